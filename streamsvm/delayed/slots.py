"""Columns of slots, shared with compiled code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.schema import Number
from streamsvm.core.state import State
from streamsvm.delayed import label_join as kernels
from streamsvm.features.rows import Ints

FIRST_SLOTS, LEAVING = 1 << 10, 1 << 12
"""Initial number of slots, and most events that leave at a time."""
_FULL = 0.6  # greatest load of the table
_SHARED: dict[str, Any] = {
    "digests": np.uint64,
    "fates": np.uint8,
    "codes": np.int32,
    "labels": np.int32,
    "came": np.int64,
    "times": np.int64,
    "sizes": np.int32,
}
"""Columns of the ledger."""
_SAVED = ("digests", "codes", "came", "times", "sizes")
_COLUMN_BYTES = sum(np.dtype(kind).itemsize for kind in _SHARED.values()) + 16
SLOT_BYTES = _COLUMN_BYTES + 27
"""Most bytes of a slot without its origins. After growth, the load of the table may be as low as 0.3."""


class SlotTable:
    """Ledger of slots from `ledger.base` on, with scores and origins, and the hash table of keys.

    Parameters
    ----------
    n_origins
        Number of integers that identify the origin of an event.
    """

    def __init__(self, n_origins: int) -> None:
        self.ledger = State(kernels.LEDGER)
        self.left = np.zeros((2, LEAVING), np.int64)
        """Slots of events that left, and the position in the batch before which each left."""
        self._own = {"scores": np.zeros(0), "origins": np.zeros((0, n_origins), np.int64)}
        table, digests = np.zeros(1, np.int64), np.zeros((0, 2), np.uint64)
        self.ledger.bind(table=table, digests=digests, left=self.left[0], left_before=self.left[1])
        self.ledger.bind(**{name: np.zeros(0, kind) for name, kind in _SHARED.items() if name != "digests"})
        self.n_left = self.ledger.number("n_left").data
        """View of a number of the ledger, which is read and written faster."""
        self.fit(FIRST_SLOTS, 0)

    @property
    def n_bytes(self) -> int:
        """Memory in use."""
        slot = _COLUMN_BYTES + 8 * self._own["origins"].shape[1]
        return int((self.ledger.next - self.ledger.base) * slot + self.ledger.table.nbytes)

    def at(self, slots: Any) -> Any:
        """Return the index or indices of slots in the columns."""
        base = int(self.ledger.base)
        return slice(slots.start - base, slots.stop - base) if isinstance(slots, slice) else slots - base

    def column(self, name: str, slots: Any) -> Any:
        """Return a column of slots: scores, origins, or one of the ledger."""
        return (self._own[name] if name in self._own else getattr(self.ledger, name))[self.at(slots)]

    def put(self, name: str, slots: int | Ints, values: Any) -> None:
        """Set a column of slots."""
        (self._own[name] if name in self._own else getattr(self.ledger, name))[self.at(slots)] = values

    def fit(self, n: int, begin: int) -> None:
        """Make room for n more slots; slots before `begin` may be removed."""
        ledger = self.ledger
        held, room = int(ledger.next - ledger.base), len(self._own["scores"])
        if held + n > room:
            unused = begin - int(ledger.base)
            self._move(begin, max(room if 4 * unused > room else 2 * room, held - unused + n))
        if ledger.n_known + n > _FULL * len(ledger.table):
            size = 1 << int(np.ceil(np.log2((ledger.n_known + n) / _FULL + 1)))
            ledger.bind(table=np.zeros(size, np.int64))
            self.fill_table()

    def fill_table(self) -> None:
        """Enter all remembered slots into the table."""
        self.ledger.table[:] = 0
        kernels.ENTRY_POINTS["fill_table"].compile()(self.ledger)

    def drop_before(self, begin: int, share: float) -> None:
        """Remove the slots before `begin`, if their share exceeds `share`."""
        ledger = self.ledger
        if begin - ledger.base > share * (ledger.next - ledger.base):
            self._move(begin, len(self._own["scores"]))

    def _move(self, begin: int, room: int) -> None:
        """Move the columns to start at `begin`, with room for `room` slots."""
        ledger = self.ledger
        here = slice(begin - int(ledger.base), int(ledger.next - ledger.base))

        def moved(array: NDArray[Any]) -> NDArray[Any]:
            fresh = np.empty((room, *array.shape[1:]), array.dtype)
            fresh[: here.stop - here.start] = array[here]
            return fresh

        for name in _SHARED:
            ledger.bind(**{name: moved(getattr(ledger, name))})
        self._own = {name: moved(array) for name, array in self._own.items()}
        ledger.base = begin

    # Copies and saving ------------------------------------------------------------------------------------------------

    def saved(self, slots: slice) -> dict[str, NDArray[Any]]:
        """Return the saved columns of slots, which do not change after the slot has left."""
        return {name: self.column(name, slots) for name in (*_SAVED, *self._own)}

    def begin(self, first: int, n: int) -> None:
        """Start empty at slot `first`, with room for n slots."""
        ledger = self.ledger
        ledger.base = ledger.known = ledger.next = first
        self.fit(max(n, FIRST_SLOTS), first)

    def restore(self, here: slice, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the result of `saved` at the given indices of the columns."""
        for name in _SAVED:
            getattr(self.ledger, name)[here] = arrays[name]
        for name, column in self._own.items():
            column[here] = arrays[name]

    def __getstate__(self) -> dict[str, Any]:
        ledger = self.ledger
        numbers = {name: int(getattr(ledger, name)) for name, _ in kernels.LEDGER.of(Number)}
        arrays = {name: getattr(ledger, name).copy() for name in (*_SHARED, "table")}
        return {"left": self.left, "_own": self._own, "copied": (numbers, arrays)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.left, self._own, (numbers, arrays) = state["left"], state["_own"], state["copied"]
        self.ledger = State(kernels.LEDGER)
        self.ledger.bind(left=self.left[0], left_before=self.left[1], **arrays)
        for name, number in numbers.items():
            setattr(self.ledger, name, number)
        self.n_left = self.ledger.number("n_left").data
