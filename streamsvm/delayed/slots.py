"""Slots of events and labels, shared with compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.delayed import digests, single_join
from streamsvm.delayed import label_join as kernels
from streamsvm.features.rows import Ints

FIRST_SLOTS = 1 << 10
"""Initial number of slots."""
_FULL = 0.6  # greatest load of the hash table
RECORD = kernels.JOIN_TABLE.entries["slots"].element  # type: ignore[union-attr]
SLOT_BYTES = RECORD.itemsize + 27 + 16
"""Counted bytes of a slot: its record, hash table entry, and a reserve.

The load of the table may be as low as 0.3 after growth. The reserve is for slots and words that are not removed yet.
"""


class SlotTable:
    """Slot records, the hash table of keys, and the journal of the last step.

    Records begin at slot `state.base`.
    """

    def __init__(self) -> None:
        prepare([entry for module in (kernels, digests, single_join) for entry in module.ENTRY_POINTS.values()])
        self.state = State(kernels.JOIN_TABLE, {"kinds": kernels.N_KINDS})
        self.records: NDArray[Any] = np.zeros(0, RECORD)
        self._table, self._journal = np.zeros(1, np.int64), np.zeros((0, kernels.N_FIELDS), np.int64)
        self._found = np.zeros(7, np.int64)
        self._bind()
        self.make_room(FIRST_SLOTS, 0)

    def _bind(self) -> None:
        own = {"table": self._table, "journal": self._journal, "found": self._found}
        self.state.bind(slots=self.records.view(np.recarray), **own)
        self._base, self.address = int(self.state.base), self.state.address
        # Memory views of numbers, which are read faster.
        views = self.state.number("n_entries").data, self.state.number("next").data, self._found.data
        self.n_entries, self.next, self.found = views
        single = [entry.compile() for entry in single_join.ENTRY_POINTS.values()]
        self.is_simple, self.add_event, self.add_label, self.predict_event, self.learn_row, self.expire_events = single

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()

    def __getstate__(self) -> dict[str, Any]:
        views = {"address", "n_entries", "next", "found", *single_join.ENTRY_POINTS}
        return {name: value for name, value in self.__dict__.items() if name not in views}

    @property
    def n_bytes(self) -> int:
        """Memory in use."""
        return int((self.state.next - self.state.base) * RECORD.itemsize + self._table.nbytes)

    def at(self, slots: Any) -> Any:
        """Return the index or indices of slots in the records."""
        return slots - self._base

    def of(self, first: int, end: int) -> NDArray[Any]:
        """Return the records of a range of slots."""
        return self.records[self.at(first) : self.at(end)]

    def run(self, digests: NDArray[np.uint64], times: Ints, labels: Ints, sizes: Ints) -> Ints:
        """Process events and labels in order; return the journal.

        The next call overwrites it.
        """
        kernels.ENTRY_POINTS["run"](self.state, digests, times, labels, sizes)
        return self.journal

    @property
    def journal(self) -> Ints:
        """The journal of the last call."""
        return self._journal[: self.n_entries[()]]

    def make_room(self, n: int, begin: int) -> None:
        """Make room for n more events or labels; slots before `begin` may be removed."""
        state, room = self.state, len(self.records)
        held, unused = int(state.next - state.base), begin - int(state.base)
        if held + n > room:
            self._move(begin, max(room if 4 * unused > room else 2 * room, held - unused + n))
        if state.n_known + n > _FULL * len(self._table):
            self._table = np.zeros(1 << int(np.ceil(np.log2((state.n_known + n) / _FULL + 1))), np.int64)
            self._bind()
            kernels.ENTRY_POINTS["fill_table"](state)
        if 3 * n + state.n_pending > len(self._journal):
            self._journal = np.empty((2 * (3 * n + int(state.n_pending)), kernels.N_FIELDS), np.int64)
            self._bind()

    def drop_before(self, begin: int, share: float) -> None:
        """Remove the slots before `begin`, if their share exceeds `share`."""
        if begin - self.state.base > share * (self.state.next - self.state.base):
            self._move(begin, len(self.records))

    def _move(self, begin: int, room: int) -> None:
        """Move the records to start at `begin`, with room for `room` slots."""
        kept = self.of(begin, int(self.state.next))
        self.records = np.zeros(room, RECORD)
        self.records[: len(kept)] = kept
        self.state.base = begin
        self._bind()

    # Saving -----------------------------------------------------------------------------------------------------------

    def restore(self, arrays: dict[str, NDArray[Any]], records: NDArray[Any], begin: int) -> None:
        """Restore the saved numbers and all records from slot `begin` on.

        Raises
        ------
        ValueError
            If they do not fit.
        """
        state = self.state
        state.restore(arrays)
        status, n = records["status"], len(records)
        counts = {"n_pending": kernels.PENDING, "n_early": kernels.EARLY}
        if any(getattr(state, name) != (status == kind).sum() for name, kind in counts.items()):
            raise ValueError("counts of pending events do not fit them")
        if state.n_known != (status != kernels.FORGOTTEN).sum() or not np.isin(status, range(5)).all():
            raise ValueError("counts of remembered events do not fit them")
        if not begin <= state.known <= state.first <= state.next == begin + n:
            raise ValueError("numbers of events that do not follow one another")
        state.base, self.records = begin, np.zeros(max(n, FIRST_SLOTS), RECORD)
        self.records[:n], self._table = records, np.zeros(1, np.int64)
        self._bind()
        self.make_room(1, begin)
