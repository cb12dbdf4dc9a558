"""Columns of hive-partitioned folders such as ``dt=2026-01-01/``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from connectors.columns.roles import Roles
from connectors.columns.text import Header, TextColumns
from connectors.errors import ConnectorError
from connectors.events import Batch, SparseRows, rows_of
from connectors.options import Options

_SHARED = ("missing", "time_unit", "time_format", "decimal", "thousands", "bare", "hide")
_ROLES = ("label", "key", "time")


class PartitionColumns(TextColumns):
    """Add the keys of folders to events, with types inferred as in CSV.

    Parameters
    ----------
    source
        Name of the source, for messages.
    keys
        Names of the keys.
    given
        Options of the source. Those about the keys are removed.
    """

    def __init__(self, source: str, keys: Sequence[str], given: dict[str, Any]) -> None:
        options = Options(source, given)
        ignore, types = options.names("ignore"), options.kinds("types")
        mine: dict[str, Any] = {name: given[name] for name in _SHARED if name in given}
        mine |= {name: given.pop(name) for name in _ROLES if given.get(name) in keys}
        mine["ignore"] = [name for name in ignore if name in keys]
        mine["types"] = {name: types[name] for name in types if name in keys}
        formats = options.formats("time_format")
        if isinstance(formats, dict):
            mine["time_format"] = {name: form for name, form in formats.items() if name in keys}
            given["time_format"] = {name: form for name, form in formats.items() if name not in keys}
        super().__init__(Header(keys), Roles.of(Options(source, mine)))
        self._source, self.keys = source, list(keys)
        given |= {
            "ignore": [name for name in ignore if name not in keys] or None,
            "types": {name: types[name] for name in types if name not in keys} or None,
        }

    def look_at(self, values: Iterable[Mapping[str, str]]) -> None:
        """Infer types from the folders of all files."""
        found = list(values)
        self.decide(self._source, {key: [one[key] for one in found] for key in self.keys}, True)

    def added(self, batch: Batch, values: Mapping[str, str], name: str) -> Batch:
        """Return a batch with the keys of the folder of its file.

        Parameters
        ----------
        batch
            Events of one file.
        values
            Values of the keys.
        name
            Name of the file, for messages.

        Raises
        ------
        ConnectorError
            If the file has a column of the same name.
        """
        n = len(batch)
        if not n:
            return batch
        features = batch.features
        if isinstance(features, SparseRows):
            what = f"libsvm has no named columns for folders such as {self.keys[0]}=...: set hive_partitioning=no"
            raise ConnectorError(f"{name}: {what}", "value", option="hive_partitioning")
        tables = features if isinstance(features, list) else [features]
        if clash := next((key for key in self.keys if any(key in table for table in tables)), None):
            what = f"{name}: column {clash!r} is also a folder, {clash}={values[clash]}: set hive_partitioning=no"
            raise ConnectorError(what, "twice", option="hive_partitioning", column=clash)
        events = self.read([tuple(values[key] for key in self.keys)] * n)
        if isinstance(features, list):
            more = rows_of(events.features, n)
            features = [row | one for row, one in zip(features, more, strict=True)]
        else:
            assert isinstance(events.features, dict)
            features = features | events.features
        roles = self._roles
        found = replace(
            batch,
            features=features,
            labels=batch.labels if roles.label is None else events.labels,
            keys=batch.keys if roles.key is None else events.keys,
            times=batch.times if roles.time is None else events.times,
        )
        return found.without(events.bad)
