"""Words stored with pending events, in segments of consecutive slots."""

from __future__ import annotations

import tempfile
from bisect import bisect_right
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.delayed import label_join as kernels
from streamsvm.delayed.slots import SlotTable
from streamsvm.delayed.stored_features import gather
from streamsvm.features.rows import Floats, Ints

SEGMENT = 32_768
"""Number of slots of a segment. A full segment is closed and does not change."""
_FREED = 0.5  # share of freed words that triggers compaction


class Segment:
    """Words of slots from `first` on: in a bytearray, or in a memory-mapped file."""

    def __init__(self, first: int, data: Any = b"") -> None:
        self.first, self.n_free, self.is_saved = first, 0, False
        self.data: Any = bytearray(data)

    @property
    def n_bytes(self) -> int:
        """Memory in use; 0 on disk."""
        return len(self.data) if isinstance(self.data, bytearray) else 0

    def gather(self, starts: Ints, lengths: Ints) -> Floats:
        """Return spans of words, concatenated."""
        return gather(np.frombuffer(self.data, np.float64), starts, lengths)

    def spill(self, folder: Path) -> None:
        """Move the words to a file without a name, which is removed with the segment."""
        if not self.n_bytes:
            return
        try:
            with tempfile.TemporaryFile(dir=folder) as file:
                file.write(self.data)
                file.flush()
                self.data = np.memmap(file, np.uint8, "r", shape=(len(self.data),)).view(np.ndarray)
        except OSError as error:
            raise OSError(f"{folder}: waiting events cannot be written: {error.strerror or error}") from error


class Segments:
    """Segments of all slots, the closed ones on disk if a folder is given.

    Parameters
    ----------
    table
        Records of the slots.
    folder
        Folder of closed segments, in files without a name; None for memory.
    """

    def __init__(self, table: SlotTable, folder: Path | None) -> None:
        self.table, self.folder = table, folder
        self.all = [Segment(0)]

    @property
    def n_bytes(self) -> int:
        """Memory in use."""
        return sum(segment.n_bytes for segment in self.all)

    def end(self, i: int) -> int:
        """Return the first slot after a segment."""
        return self.all[i + 1].first if i + 1 < len(self.all) else int(self.table.state.next)

    def open_at(self, slot: int) -> bytearray:
        """Return the words of the open segment, to append those of the next slot."""
        if slot - self.all[-1].first >= SEGMENT:
            self.all.append(Segment(slot))
            self.compact(len(self.all) - 2)
        data: bytearray = self.all[-1].data
        return data

    def room(self, slot: int) -> int:
        """Return the number of slots from this one on that the open segment has room for."""
        return SEGMENT - (slot - self.all[-1].first)

    def number(self, slot: int) -> int:
        """Return the number of the segment of a slot."""
        if slot >= self.all[-1].first:
            return len(self.all) - 1
        return bisect_right(self.all, slot, key=lambda segment: segment.first) - 1

    def _parts(self, slots: Ints) -> Iterator[tuple[int, slice]]:
        """Yield segments with their part of ascending slots."""
        cuts = [*np.searchsorted(slots, [segment.first for segment in self.all]).tolist(), len(slots)]
        return ((i, slice(a, b)) for i, (a, b) in enumerate(pairwise(cuts)) if a < b)

    def words(self, slots: Ints, starts: Ints, lengths: Ints) -> Floats:
        """Return spans of words of ascending slots, concatenated."""
        found = [self.all[i].gather(starts[part], lengths[part]) for i, part in self._parts(slots)]
        return np.concatenate([np.zeros(0), *found])

    def free(self, slots: Ints) -> None:
        """Free the words of ascending slots."""
        n_words = self.table.records["n_words"][self.table.at(slots)]
        for i, part in self._parts(slots):
            self.free_of(i, int(n_words[part].sum()))

    def free_of(self, i: int, n_words: int) -> None:
        """Free words of segment i."""
        self.all[i].n_free += n_words
        if i < len(self.all) - 1:  # the open segment is compacted when it closes
            self.compact(i)

    def compact(self, i: int, share: float = _FREED) -> None:
        """Compact a segment with too many freed words; move a closed one to the folder."""
        segment = self.all[i]
        if segment.n_free > share * len(segment.data) / 8:
            records = self.table.of(segment.first, self.end(i))
            lengths = records["n_words"].astype(np.int64) * self.holds(records["status"])
            segment.data, segment.n_free = bytearray(segment.gather(records["start"], lengths).tobytes()), 0
            records["start"] = np.where(lengths > 0, np.cumsum(lengths) - lengths, 0)
        if self.folder is not None and i < len(self.all) - 1:
            segment.spill(self.folder)

    def restore(self, i: int) -> None:
        """Count the freed words of a segment, and move a closed one to disk."""
        segment, records = self.all[i], self.table.of(self.all[i].first, self.end(i))
        segment.n_free = len(segment.data) // 8 - int(records["n_words"][self.holds(records["status"])].sum())
        self.compact(i)

    def holds(self, status: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return whether slots of these statuses have stored words."""
        relearns = bool(self.table.state.relearns)
        holds: NDArray[np.bool_] = (status == kernels.PENDING) | (relearns & (status == kernels.LABELLED))
        return holds

    def trim(self, most_bytes: float) -> None:
        """Remove forgotten segments; compact others if memory exceeds `most_bytes`."""
        while len(self.all) > 1 and self.all[1].first <= self.table.state.known:
            del self.all[0]
        if self.n_bytes > most_bytes:
            for i in range(len(self.all)):
                self.compact(i, _FREED / 4)
