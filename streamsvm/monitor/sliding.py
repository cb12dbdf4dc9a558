"""Columns whose reference slides with the stream, by its whole length at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from streamsvm.features.rows import Floats
from streamsvm.models.codec import SavedState, nested, part_of
from streamsvm.monitor.bins import Texts
from streamsvm.monitor.columns import Columns
from streamsvm.monitor.kernels import BLOCK


class SlidingColumns(Columns):
    """Columns that are compared with the events of up to two reference lengths ago.

    At each multiple of the length, the events since the last multiple become the new reference of a column. A column
    with an alarm among these events keeps its reference.

    Attributes
    ----------
    next
        Columns that learn the next references; None during the first one.
    """

    next: Columns | None = None

    def add(self, names: Iterable[Any]) -> None:
        """Add columns, which begin to learn their references."""
        names = list(names)
        super().add(names)
        if self.next is not None:
            self.next.add(names)

    def _next_boundary(self) -> int:
        return min(super()._next_boundary(), (self.block // self.n_blocks + 1) * self.n_blocks)

    def _part_taken(self, numbers: Floats, texts: Mapping[int, Texts]) -> None:
        """Let the next references learn; use them at each multiple of their length."""
        if self.next is not None:
            self.next.add_blocks(numbers, texts)
        if self.block % self.n_blocks == 0:
            if self.next is not None:
                self._slide(self.next)
            self.next = self._successor()

    def _slide(self, new: Columns) -> None:
        """Use the new references of columns and relations that were learned since."""
        began = self.block - self.n_blocks
        columns = [c for c in new.own.known(range(len(new))) if self.own.learn_from[c] <= began]
        if not columns:
            return
        if len(new.relations) > len(self.relations):
            self.add_relations(new.relations)
        taken = np.isin(self.relations >> 1, [-1, *columns]).all(axis=1) & (self.related.learn_from <= began)
        relations = [p for p in new.related.known(range(len(new.relations))) if taken[p]]
        for c in columns:
            self.bins.put(c, new.own.profiles[c])
        self.own.copy_rows(new.own, columns)
        self.related.copy_rows(new.related, relations)
        self.related.forget([p for p in self._relations_of(columns) if p not in relations])
        self._begin_relations()
        if new.log_levels != self.log_levels:
            self._set_limits(range(len(self)), range(len(self.relations)))

    def _successor(self) -> Columns:
        """Return columns that learn references from the current block on.

        The bounds of false alarms remain.
        """
        new = self._new()
        new.own.n_blocks = self.block
        new.add(self.names)
        new.add_relations(self.relations)
        new.previous, new.n_budgeted = self.previous.copy(), self.n_budgeted
        return new

    def _new(self) -> Columns:
        return Columns(self.n_blocks * BLOCK, False, self.false_alarms, self.seed)

    def state(self) -> SavedState:
        """Return the state as a JSON header and arrays."""
        header, arrays = super().state()
        found, of_next = nested({} if self.next is None else {"next": self.next.state()})
        return header | found, arrays | of_next

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state` in a new object."""
        super().restore(state)
        if "next" in state[0]:
            self.next = self._new()
            self.next.restore(part_of(state, "next"))
