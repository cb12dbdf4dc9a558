"""What happens in a step of the join, in order."""

from __future__ import annotations

import numpy as np

from streamsvm.delayed import label_join as kernels
from streamsvm.delayed.label_join import EVENT, IN_TIME, LATE, TIMEOUT
from streamsvm.delayed.store import Store
from streamsvm.features.rows import Ints


class Timeline:
    """What happens in a step, in order.

    Attributes
    ----------
    kind, position, slot, label, lag
        Columns of the journal.
    is_event
        Whether each entry is an event.
    slots
        Slot of each event, -1 for duplicates.
    fused
        Entries of labels directly after their event.
    matches, labels
        Entries of matches, and the numbers of their labels.
    old
        Slots of events of earlier steps that are learned or matched.
    source
        Number of the event of each entry in this step, or the number of events + its index in `old`; -1 for none.
    rows
        Entries that are rows of the model.
    """

    def __init__(self, journal: Ints, store: Store, *, has_timeouts: bool, learn: bool) -> None:
        self.kind, self.position, self.slot, self.label, self.lag = journal.T.copy()
        kind, slot = self.kind, self.slot
        self.is_event = kind <= kernels.DUPLICATE
        self.slots = slot[self.is_event]
        is_timeout = has_timeouts & (kind == TIMEOUT)
        is_learned = (kind == IN_TIME) | is_timeout | (store.relearns & (kind == kernels.CORRECTED))
        is_next = (kind[1:] == IN_TIME) & (kind[:-1] == EVENT) & (slot[1:] == slot[:-1]) & (not store.relearns)
        self.fused = 1 + np.flatnonzero(is_next)
        new = np.flatnonzero(self.slots >= 0)
        is_new = is_learned & (slot >= (self.slots[new[0]] if len(new) else kernels.NEVER))
        is_old = is_learned & ~is_new
        is_old[is_old] = store.has(slot[is_old])
        self.old = np.unique(slot[is_old])
        self.source = np.full(len(kind), -1)
        self.source[self.is_event] = np.arange(len(self.slots))
        self.source[is_new] = new[np.searchsorted(self.slots[new], slot[is_new])]
        self.source[is_old] = len(self.slots) + np.searchsorted(self.old, slot[is_old])
        self.matches = np.flatnonzero((kind == IN_TIME) | (kind == LATE) | (is_timeout & (self.source >= 0)))
        self.labels = self.label[self.matches] + 2
        is_row = self.is_event | ((is_new | is_old) & learn)
        is_row[self.fused] = False
        self.rows = np.flatnonzero(is_row)
