"""Envelopes around records: Debezium change events and Kafka Connect JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from connectors.columns.cells import Bad, shown
from connectors.notices import CountNotice
from connectors.options import Options

KINDS = ("debezium", "connect")
_CONNECT = {"schema", "payload"}
_SKIPPED = {"d": "deletes", "t": "truncations", "m": "messages"}
_RECORDS = ("c", "u", "r")  # created, updated, read for a snapshot
_OBJECT = (dict, type(None))
TOMBSTONES = "tombstones"


class Envelope:
    """Extract records from their envelopes, and count skipped ones such as deletes.

    Parameters
    ----------
    kind
        An element of `KINDS`.
    time
        Name of the event time. ``ts_ms`` and ``source.ts_ms`` of Debezium are available, unless the record has them.

    Attributes
    ----------
    skipped
        Numbers of what was skipped, by kind.

    Examples
    --------
    >>> envelope = Envelope("debezium", "ts_ms")
    >>> change = {"before": None, "after": {"x": 1}, "op": "c", "ts_ms": 7}
    >>> envelope.unwrapped([change, {"before": {"x": 1}, "after": None, "op": "d"}], {})
    ([{'x': 1, 'ts_ms': 7}, {}], {1: 'deletes'})
    """

    def __init__(self, kind: str, time: str | None) -> None:
        self._kind, self._time = kind, time.split(".") if time in ("ts_ms", "source.ts_ms") else []
        self.skipped: Counter[str] = Counter()

    @classmethod
    def of(cls, options: Options, time: str | None) -> Envelope | None:
        """Create the envelope that options ask for, if any."""
        kind = options.one_of("envelope", KINDS)
        return None if kind is None else cls(kind, time)

    @property
    def notices(self) -> list[str]:
        """What was skipped so far, as one message."""
        counts = ", ".join(f"{n:,} {kind}" for kind, n in sorted(self.skipped.items()))
        what = f"skipped, because they are not events (envelope={self._kind}): {counts}"
        return [CountNotice(what)] if counts else []

    def unwrapped(self, rows: Sequence[dict[str, Any]], bad: Bad) -> tuple[list[dict[str, Any]], dict[int, str]]:
        """Return the records, and by row the kinds of skipped ones.

        Skipped and malformed records are empty. Reasons for malformed ones are added to `bad`.
        """
        found, skipped = list[dict[str, Any]](), dict[int, str]()
        for i, row in enumerate(rows):
            record: dict[str, Any] | str
            try:
                record = self.record(row)
            except ValueError as error:
                bad.setdefault(i, str(error))
                record = {}
            if isinstance(record, str):
                skipped[i], record = record, {}
            found.append(record)
        return found, skipped

    def record(self, row: dict[str, Any]) -> dict[str, Any] | str:
        """Return the record in an envelope, or the kind of a record to skip.

        Raises
        ------
        ValueError
            If it is no such envelope.
        """
        inner: Any = row
        if row.keys() == _CONNECT:
            inner = row["payload"]
        elif self._kind == "connect":
            raise ValueError("no envelope of Connect: it has not just `schema` and `payload`; remove envelope=connect")
        if inner is None:
            return TOMBSTONES
        if type(inner) is not dict:
            raise ValueError(f"`payload` is not an object: {shown(inner)}")
        return inner if self._kind == "connect" else self._changed(inner)

    def _changed(self, change: dict[str, Any]) -> dict[str, Any] | str:
        """Return the record after a change; add the time of the change if configured."""
        operation, after = change.get("op"), change.get("after")
        if operation not in _RECORDS:
            if isinstance(operation, str) and operation in _SKIPPED:
                return _SKIPPED[operation]
            what = "has no known operation `op`" if "op" in change else "has no `op`"
            raise ValueError(f"no change event of Debezium: it {what}; remove envelope=debezium if records are plain")
        if isinstance(after, str):  # MongoDB has JSON as text
            after = change["after"] = orjson.loads(after)
        if type(after) is not dict:
            raise ValueError(f"a change event of Debezium without a record in `after`: {shown(after)}")
        if self._time and (name := ".".join(self._time)) not in after:
            moment: Any = change
            for part in self._time:
                moment = moment.get(part) if isinstance(moment, Mapping) else None
            after[name] = moment
        return after


def recognized(rows: Sequence[dict[str, Any]]) -> str | None:
    """Return the kind of envelope that more than half of the records have, or None."""
    kinds = Counter(filter(None, map(_kind_of, rows)))
    kind, n = kinds.most_common(1)[0] if kinds else (None, 0)
    return kind if 2 * n > len(rows) else None


def _kind_of(row: dict[str, Any]) -> str | None:
    inner = row.get("payload") if row.keys() == _CONNECT else row
    if isinstance(inner, dict) and inner.keys() >= {"op", "after"} and inner["op"] in (*_RECORDS, *_SKIPPED):
        return "debezium"
    is_connect = inner is not row and isinstance(row["schema"], _OBJECT) and isinstance(inner, _OBJECT)
    return "connect" if is_connect else None
