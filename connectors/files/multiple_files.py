"""Source that reads several files one after the other as one stream."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from connectors.addresses import printable
from connectors.columns.roles import Roles
from connectors.columns.text import Header, TextColumns
from connectors.errors import ConnectorError
from connectors.events import Batch, Origins, Position, SparseRows, rows_of
from connectors.files.listing import ListedFile
from connectors.files.queue import FileQueue
from connectors.notices import Notice, Notices
from connectors.options import Options
from connectors.registry import connector_of, opener
from connectors.streams import PrefetchSource

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

    def infer_types(self, values: Iterable[Mapping[str, str]]) -> None:
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


# Between two looks for new files: at least a second, and a multiple of the time that a look takes.
CHECK_S, _CHECK_PAUSES = 1.0, 10.0


class MultipleFilesSource(PrefetchSource):
    """Read the files of paths, globs and directories with the source of their format.

    The first file determines the types of columns. Columns of later files are matched by name. The origin of an event
    names its file. With ``at_end=wait``, new files are read as they appear, each up to its end at that time.

    Parameters
    ----------
    roots
        Paths, globs and directories.
    options
        Options of the files, and `order`, `hive_partitioning`, `at_end` and `min_age`.
    exclude
        Results of the run, which globs and directories do not contain.
    """

    def __init__(self, roots: Sequence[str], options: Options, exclude: Sequence[str] = ()) -> None:
        super().__init__()
        self.name = options.name
        self._roots, self._notices = list(roots), Notices()
        self._hive = options.flag("hive_partitioning", True)
        self._files = FileQueue(self._roots, options, exclude, self._notices)
        self._options = options.rest()
        self._inner: PrefetchSource | None = None
        self._partitions: PartitionColumns | None = None
        self._unit = ""
        self._current: ListedFile | None = None
        self._at: Position = {}
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    @property
    def identity(self) -> str:
        """All paths, globs and directories."""
        return ", ".join(printable(root.rstrip("/") or root) for root in self._roots)

    def _begin(self) -> None:
        """Open the first file that is not empty."""
        self._plan(self._files.left)
        if not self._next_file() and not self._files.follow:
            raise ConnectorError(f"{self.name}: all files are empty", "empty")
        self._at = self._here()
        if self._inner is not None and self._current is not None and self._partitions is not None:
            start = self._inner.position
            first = next(iter(self._inner), None)
            if first is not None:
                self._made(first)  # raises an error if a column and a folder have the same name
            self._inner.seek(start)

    def _plan(self, files: Sequence[ListedFile]) -> None:
        """Determine the columns of folders from the first files."""
        if self._partitions is not None or not files:
            return
        keys = list(files[0].keys) if self._hive else []
        if keys:
            for file in files:
                self._check_keys(file, keys)
            self._partitions = PartitionColumns(self.name, keys, self._options)
            self._partitions.infer_types(file.keys for file in files)

    def _check_keys(self, file: ListedFile, keys: Sequence[str]) -> None:
        if self._hive and set(file.keys) != set(keys):
            names = ", ".join(f"{key}=..." for key in keys) or "no such names"
            what = f"the folders of the files have different keys; those of the first file are {names}"
            raise ConnectorError(f"{file.name}: {what}: set hive_partitioning=no", "value", option="hive_partitioning")

    def _next_file(self) -> bool:
        """Open the next file that is not empty. Return whether there is one."""
        while (file := self._files.pop()) is not None:
            if file.size and self._opened(file):
                self._current = file
                return True
            self._notices.warn(Notice.of("{name!r} is empty", file.name))
            self._files.mark_read(file)
        return False

    def _opened(self, file: ListedFile) -> bool:
        """Open a file. Return False if it is empty."""
        self._check_keys(file, [] if self._partitions is None else self._partitions.keys)
        try:
            if self._inner is None:
                self._inner = self._first(file)
            else:
                self._inner.next_file(file.path)
        except ConnectorError as error:
            if error.reason == "empty":
                return False
            raise
        return True

    def _first(self, file: ListedFile) -> PrefetchSource:
        options = Options(file.name, self._options | {"format": self._files.format})
        connector = connector_of(file.path, options)
        source = None if connector.source is None else opener(connector.source)(file.path, options)
        if not isinstance(source, PrefetchSource):
            raise ConnectorError(f"{file.name}: such files are read one at a time: give one SOURCE", "several")
        source.prefetches = False
        self.is_labelled = connector.labelled
        return source

    # Reading ------------------------------------------------------------------------------------------------------

    def _batches(self) -> Iterator[Batch]:
        due = -math.inf
        while True:
            if self._current is not None or self._next_file():
                yield from self._rest_of_file()
            elif not self._files.follow:
                return
            elif time.monotonic() < due:
                time.sleep(CHECK_S / 4)
                yield Batch([], [], Origins({}, {}), self._at)
            else:
                began = time.monotonic()
                self._files.find_new()
                self._plan(self._files.left)
                ended = time.monotonic()
                due = ended + max(CHECK_S, _CHECK_PAUSES * (ended - began))

    def _rest_of_file(self) -> Iterator[Batch]:
        """Yield the batches of the current file; the last position is the end of it."""
        assert self._inner is not None
        assert self._current is not None
        held: Batch | None = None
        for batch in self._inner:
            if held is not None:
                self._at = held.position
                yield held
            held = self._made(batch)
        self._files.mark_read(self._current)
        self._current = None
        self._at = self._here()
        if held is not None:
            held.position = self._at
            yield held

    def _made(self, batch: Batch) -> Batch:
        """Return a batch of the inner source with the file as a column of its origins."""
        assert self._inner is not None
        assert self._current is not None
        unit = next(iter(batch.origins.columns))
        self._unit = self._unit or unit
        if unit != self._unit:
            what = f"numbers events by {unit}, but the files before by {self._unit}: name files of one kind by a glob"
            raise ConnectorError(f"{self._inner.name}: {what}", "formats")
        if self._partitions is not None:
            batch = self._partitions.added(batch, self._current.keys, self._inner.name)
        columns = {"file": [self._inner.name] * len(batch)} | batch.origins.columns
        return replace(batch, origins=Origins({}, columns), position=self._here(batch.position))

    def _here(self, at: Position | None = None) -> Position:
        """Return the position within the current file, or between files."""
        inner = self._inner
        position = {
            "file": None if self._current is None else self._current.name,
            "at": at or (None if inner is None else inner.position),
            "read": self._files.done,
        }
        return position if self._partitions is None else position | {"folders": self._partitions.decided}

    @property
    def _read_position(self) -> Position:
        return self._at

    def _seek(self, position: Position) -> None:
        name, at, done = position["file"], position["at"], dict(position["read"])
        files = self._files.restore(done, name)
        self._plan(files)
        if self._partitions is not None and "folders" in position:
            self._partitions.restore(position["folders"])
        current = next((file for file in files if file.name == name), None)
        if name is not None and current is None:
            what = "is missing, but was read in part: put it back, or start over with --reset"
            raise ConnectorError(f"{name}: {what}", "missing")
        inner = self._inner
        if inner is not None and at is not None:
            is_open = current is not None and self._current is not None and self._current.name == name
            if not is_open:
                inner.recall(at)
            if current is not None:
                if not is_open:
                    inner.next_file(current.path)
                inner.seek(at)
        self._current = current
        self._at = position

    @property
    def is_apart(self) -> bool:
        """Whether reading mostly runs without the GIL."""
        return self._inner is not None and self._inner.is_apart

    @property
    def _read_fraction(self) -> float | None:
        """Fraction of bytes."""
        share = 0.0 if self._current is None or self._inner is None else self._inner.fraction or 0.0
        return self._files.fraction(self._current, share)

    @property
    def notices(self) -> Sequence[str]:
        """Warnings so far."""
        folders = [] if self._partitions is None else self._partitions.notices
        return [*self._notices.texts, *folders, *([] if self._inner is None else self._inner.notices)]

    @property
    def categories(self) -> Sequence[str]:
        """Features with declared values."""
        return () if self._inner is None else self._inner.categories

    def _close_files(self) -> None:
        if self._inner is not None:
            self._inner.close()
