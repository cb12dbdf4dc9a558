"""State of columns, of open events and of alarms, as JSON headers and arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.archive import ArchiveError, decode_label, encode_label, real, whole
from streamsvm.models.codec import LoadedState, SavedState, nested, part_of
from streamsvm.monitor.alarms import KINDS, FeatureAlarm
from streamsvm.monitor.cells import Cells, Part
from streamsvm.monitor.columns import Columns
from streamsvm.monitor.kernels import BLOCK
from streamsvm.monitor.profile import ColumnProfile, RelationProfile
from streamsvm.monitor.sliding import SlidingColumns
from streamsvm.monitor.window_counts import WindowCounts


def columns_state(columns: Columns) -> SavedState:
    """Return the state of columns."""
    header = {
        "names": [encode_label(name) for name in columns.names],
        "block": columns.block,
        "n_budgeted": columns.n_budgeted,
    }
    parts = {"own": _rows_state(columns.own), "related": _rows_state(columns.related)}
    if isinstance(columns, SlidingColumns) and columns.next is not None:
        parts["next"] = columns_state(columns.next)
    parts["first"] = _cells_state({str(c): cells for c, cells in columns.first.items()})
    found, arrays = nested(parts, header)
    return found, arrays | {"previous": columns.previous, "relations": columns.relations}


def restore_columns(columns: Columns, state: LoadedState) -> None:
    """Restore columns in a new object; the caller handles errors of damaged content."""
    header, arrays = state
    columns.add(decode_label(name) for name in header["names"])
    columns.add_relations(_like(arrays["relations"], columns.relations, (len(arrays["relations"]), 3)))
    if columns.relations.size and not -1 <= columns.relations.min() <= columns.relations.max() < 2 * len(columns):
        raise ArchiveError("a relation of columns that do not exist")
    _restore_rows(columns.own, part_of(state, "own"), lambda one: ColumnProfile.from_dict(one, 0))
    _restore_rows(columns.related, part_of(state, "related"), RelationProfile.from_dict)
    for c, profile in enumerate(columns.own.profiles):
        columns.bins.put(c, profile)
    columns.previous = _like(arrays["previous"], columns.previous)
    columns.own.n_blocks = columns.related.n_blocks = whole(header["block"])
    columns.n_budgeted = whole(header["n_budgeted"])
    first = _restored_cells(part_of(state, "first"))
    columns.first = {whole(int(c), 0, len(columns) - 1): cells for c, cells in first.items()}
    if any(len(cells.numbers) not in range(0, columns.n_first * BLOCK, BLOCK) for cells in columns.first.values()):
        raise ArchiveError("first values of a column that are not whole blocks")
    if isinstance(columns, SlidingColumns) and "next" in header:
        columns.next = Columns(columns.n_blocks * BLOCK, False, columns.false_alarms, columns.seed)
        restore_columns(columns.next, part_of(state, "next"))


def _rows_state(rows: WindowCounts) -> SavedState:
    arrays = {name: getattr(part, name) for part in (rows, rows.watches) for name in part.arrays}
    return {"profiles": [None if one is None else one.as_dict() for one in rows.profiles]}, arrays


def _restore_rows(rows: WindowCounts, state: SavedState, of_dict: Callable[[Any], Any]) -> None:
    header, arrays = state
    for part in (rows, rows.watches):
        for name in part.arrays:
            shape = (len(arrays[name]), 3) if name == "ended" else None
            setattr(part, name, _like(arrays[name], getattr(part, name), shape))
    rows.profiles = [None if one is None else of_dict(one) for one in header["profiles"]]
    if len(rows.profiles) != len(rows):
        raise ArchiveError("rows and references differ in number")


def open_state(part: Part) -> SavedState:
    """Return the state of events that are not yet in a block."""
    columns, n = part
    header, arrays = _cells_state({str(i): cells for i, cells in enumerate(columns.values())})
    return {**header, "names": [encode_label(name) for name in columns], "n": n}, arrays


def restored_open(state: SavedState) -> Part:
    """Return the events of `open_state`."""
    header, n, cells = state[0], whole(state[0]["n"], 0, 63), _restored_cells(state)
    columns = {decode_label(name): cells[str(i)] for i, name in enumerate(header["names"])}
    if any(len(own.numbers) != n for own in columns.values()):
        raise ArchiveError(f"open events that are not {n}")
    return columns, n


def _cells_state(cells: Mapping[str, Cells]) -> SavedState:
    texts = {name: own.texts.tolist() for name, own in cells.items() if own.texts is not None}
    return {"texts": texts}, {name: own.numbers for name, own in cells.items()}


def _restored_cells(state: SavedState) -> dict[str, Cells]:
    header, arrays = state
    texts = {name: np.fromiter(own, object, len(own)) for name, own in header["texts"].items()}
    found = {name: Cells(_like(own, np.zeros(0), own.shape), texts.get(name)) for name, own in arrays.items()}
    for name, own in found.items():
        strange = own.texts is not None and any(not isinstance(text, str | None) for text in own.texts)
        if own.numbers.ndim != 1 or strange or (own.texts is not None and len(own.texts) != len(own.numbers)):
            raise ArchiveError(f"cells of column {name} that do not fit together")
    return found


def alarm_state(alarm: FeatureAlarm) -> dict[str, Any]:
    """Return JSON of an alarm that keeps the types of names."""
    names = alarm.column if alarm.kind == "relation" else (alarm.column,)
    return asdict(alarm) | {"column": [encode_label(name) for name in names]}


def restored_alarm(given: Mapping[str, Any]) -> FeatureAlarm:
    """Return the alarm of `alarm_state`."""
    names = [decode_label(name) for name in given["column"]]
    kind = given["kind"]
    if kind not in KINDS or not (2 <= len(names) <= 3 if kind == "relation" else len(names) == 1):
        raise ArchiveError(f"an alarm of kind {kind!r} for {len(names)} columns")
    column = tuple(names) if kind == "relation" else names[0]
    event, since = whole(given["event"]), whole(given["since"])
    return FeatureAlarm(column, kind, event, since, given["before"], given["after"], real(given["evidence"], high=1.0))


def _like(array: NDArray[Any], new: NDArray[Any], shape: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Check type and shape of an array, by default those of `new`."""
    if array.dtype != new.dtype or array.shape != (new.shape if shape is None else shape):
        raise ArchiveError(f"an array of shape {array.shape} and type {array.dtype}, not {new.shape} and {new.dtype}")
    return array.copy()
