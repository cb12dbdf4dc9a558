"""Alarms of features, the state of a column, and when a change begins and ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.archive import ArchiveError, decode_label, encode_label, real, whole
from streamsvm.models.codec import Stateful

KINDS = ("distribution", "range", "unseen", "stuck", "missing", "type", "relation")
"""Kinds of alarms."""
_RECOVERY = 8  # windows in succession without deviation, which end a change


@dataclass(frozen=True, slots=True)
class FeatureAlarm:
    """A change of a column.

    Parameters
    ----------
    column
        Name of the column; two or three names for "relation".
    kind
        "distribution"; "range" for values outside the range of the reference; "unseen" for values of a category that
        the reference does not have; "stuck" for a value that repeats; "missing"; "type" for texts in a column of
        numbers, or the reverse, and for times in another format; or "relation" for the correlation of two columns, or
        another relation of two or three.
    event
        Number of events up to the alarm.
    since
        Number of events before the window that deviates. The change began in the window, or shortly before.
    before, after
        Descriptions of the reference and of the window.
    evidence
        Bound on the probability that a window of this column deviates as much without a change.
    """

    column: Any
    kind: str
    event: int
    since: int
    before: dict[str, Any]
    after: dict[str, Any]
    evidence: float

    def as_dict(self) -> dict[str, Any]:
        """Return a dict for JSON; the names of a relation become a list."""
        return asdict(self) | {"column": list(self.column) if isinstance(self.column, tuple) else self.column}


def alarm_state(alarm: FeatureAlarm) -> dict[str, Any]:
    """Return JSON of an alarm that keeps the types of names."""
    names = alarm.column if alarm.kind == "relation" else (alarm.column,)
    return asdict(alarm) | {"column": [encode_label(name) for name in names]}


def restored_alarm(given: Mapping[str, Any]) -> FeatureAlarm:
    """Validate and return the alarm of `alarm_state`."""
    names, kind = [decode_label(name) for name in given["column"]], given["kind"]
    if kind not in KINDS or not (2 <= len(names) <= 3 if kind == "relation" else len(names) == 1):
        raise ArchiveError(f"an alarm of kind {kind!r} for {len(names)} columns")
    column = tuple(names) if kind == "relation" else names[0]
    event, since, evidence = whole(given["event"]), whole(given["since"]), real(given["evidence"], high=1.0)
    return FeatureAlarm(column, kind, event, since, given["before"], given["after"], evidence)


@dataclass(frozen=True, slots=True)
class ColumnState:
    """Current state of a column.

    Parameters
    ----------
    name
        Name of the column.
    kind
        "number", "category", "time", or "empty" for a column without values; "" before the bins are chosen.
    status
        "learning" the reference, "monitored", or "dependent": successive values depend on each other over times as long
        as the reference, or are times, so that only missing values, types, repeats and formats of times are monitored.
    reference, recent
        Descriptions of the reference and of the last window; empty before they are known.
    evidence
        Bound on the probability of the last window without a change, 1 if there is none.
    psi
        Population stability index of the last window: 0 without change, above 0.25 is usually called a large change.
    moved
        Share of the values of the last window that would have to change to agree with the reference: the total
        variation distance, from 0 to 1.
    changed
        Kinds of changes that last: "values", "missing", "type".
    since
        Number of events before the first of them; None without change.
    """

    name: Any
    kind: str
    status: str
    reference: dict[str, Any]
    recent: dict[str, Any]
    evidence: float = 1.0
    psi: float = 0.0
    moved: float = 0.0
    changed: tuple[str, ...] = ()
    since: int | None = None


class Hit(NamedTuple):
    """A row that begins to deviate in one way, and scale and index of the window."""

    row: int
    way: int
    scale: int
    window: int


class Watches(Stateful):
    """What deviates from its reference, one alarm per change.

    A change ends after eight windows in succession without deviation, at the largest scale that deviated.

    Parameters
    ----------
    n_ways
        Number of ways in which a row may deviate.

    Attributes
    ----------
    scale
        Largest scale that deviates, shape (n_rows, n_ways); -1 for none.
    agreed
        Number of windows at this scale without deviation since the last one.
    since
        Block before the first window that deviated.
    raised
        Block of the alarm.
    ended
        Changes that ended: row, blocks of the alarm and of the end. Old ones are removed.
    """

    saved = ("scale", "agreed", "since", "raised", "ended")

    def __init__(self, n_ways: int) -> None:
        self.scale, self.agreed, self.since, self.raised = (np.zeros((0, n_ways), np.int64) for _ in range(4))
        self.ended = np.zeros((0, 3), np.int64)

    def add(self, k: int) -> None:
        """Add rows."""
        for name in ("scale", "agreed", "since", "raised"):
            setattr(self, name, np.pad(getattr(self, name), ((0, k), (0, 0)), constant_values=-1))

    def clear(self, rows: Any) -> None:
        """Forget changes."""
        self.scale[rows], self.agreed[rows] = -1, 0

    @property
    def is_changed(self) -> NDArray[np.bool_]:
        """Whether each row deviates in each way."""
        changed: NDArray[np.bool_] = self.scale >= 0
        return changed

    def update(self, deviates: Sequence[NDArray[np.bool_]], windows: Sequence[Any]) -> list[Hit]:
        """Take closed windows of all scales; return the rows that begin to deviate.

        Parameters
        ----------
        deviates
            Whether each window deviates, shape (n_rows, n_ways, n_windows), by scale.
        windows
            The closed windows by scale.
        """
        ends, sizes = [own.ends for own in windows], [own.n_blocks for own in windows]
        active = self.is_changed
        for found in deviates:
            active = active | found.any(axis=2)
        order = sorted((end, s, k) for s, own in enumerate(ends) for k, end in enumerate(own.tolist()))
        hits, ended = [], []
        for row, way in np.argwhere(active).tolist():
            own, at = [found[row, way].tolist() for found in deviates], (row, way)
            scale, agreed = int(self.scale[at]), int(self.agreed[at])
            for end, s, k in order:
                if own[s][k]:
                    if scale < 0:
                        hits.append(Hit(row, way, s, k))
                        self.since[at], self.raised[at] = end - sizes[s], end
                    scale, agreed = max(scale, s), 0
                elif s == scale:
                    agreed += 1
                    if agreed == _RECOVERY:
                        scale, agreed = -1, 0
                        ended.append((row, self.raised[at], end))
            self.scale[at], self.agreed[at] = scale, agreed
        if ended or len(self.ended):
            recent = self.ended[self.ended[:, 2] > ends[0][0] - 2 * sizes[-1]]
            self.ended = np.concatenate([recent, np.array(ended, np.int64).reshape(-1, 3)])
        return hits

    def changes(self) -> NDArray[np.int64]:
        """Return the present changes and those that just ended, one per row.

        Columns are the monitored row and the blocks of the alarm and of the end.
        """
        rows, ways = np.nonzero(self.is_changed)
        lasting = np.stack([rows, self.raised[rows, ways], np.full(len(rows), 1 << 60)], axis=1)
        return np.concatenate([self.ended, lasting])

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        return self.scale.shape == self.agreed.shape == self.since.shape == self.raised.shape
