"""Contents of slots: row, key, probabilities and memory of the prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.events import rows_of
from streamsvm.delayed.segments import Segments
from streamsvm.delayed.slots import SlotTable
from streamsvm.delayed.stored_features import OBJECT, Layouts, Packed, PaddedKeys, gather
from streamsvm.features.rows import Floats, Ints


class SlotContents:
    """Contents of slots.

    Parameters
    ----------
    keeps_objects
        Whether rows are stored as objects, whose bytes are not counted.
    folder
        Folder of closed segments; None for memory.

    Attributes
    ----------
    table, segments
        Records of the slots, and the words that they refer to.
    layouts
        Layouts of the rows.
    """

    def __init__(self, keeps_objects: bool, folder: Path | None) -> None:
        self.keeps_objects = keeps_objects
        self.table, self.layouts, self._objects = SlotTable(), Layouts(), dict[int, Any]()
        self.segments = Segments(self.table, folder)

    def pack(self, features: Any, n: int) -> Packed:
        """Pack rows for storage."""
        if not self.keeps_objects:
            return self.layouts.pack(features, n)
        return Packed(np.full(n, OBJECT), np.zeros(0), np.zeros(n, np.int64), rows_of(features, n))

    def pack_one(self, x: Any) -> tuple[int, bytes]:
        """Return the layout and the words of a row for storage."""
        return (OBJECT, b"") if self.keeps_objects else self.layouts.pack_one(x)

    def unpack_one(self, slot: int, layout: int, words: bytes) -> dict[Any, Any]:
        """Restore the row of a slot from its words, or return its object."""
        row: dict[Any, Any] = self._objects[slot] if layout == OBJECT else self.layouts.unpack_one(layout, words)
        return row

    def sizes(self, rows: Packed, keys: PaddedKeys) -> Ints:
        """Return the counted bytes of events."""
        n_words = rows.lengths + keys.lengths
        return int(self.table.state.event_bytes) + int(self.table.state.word_bytes) * n_words

    def records(self, slots: Any) -> Any:
        """Return copies of the records of slots, or the record of one slot."""
        return self.table.records[self.table.at(slots)]

    def holds(self, slots: Ints) -> NDArray[np.bool_]:
        """Return whether the rows of slots are needed."""
        return self.segments.holds(self.records(slots)["status"])

    def has(self, slots: Ints) -> NDArray[np.bool_]:
        """Return whether rows are stored; those of failed predictions are not."""
        has: NDArray[np.bool_] = self.keeps_objects | (self.records(slots)["n_words"] > 0)
        return has

    def put(self, slots: Ints, codes: Ints, scores: Floats, origins: Ints) -> None:
        """Store predictions and origins of events."""
        records, at = self.table.records, self.table.at(slots)
        records["code"][at], records["score"][at], records["origin"][at] = codes, scores, origins

    def keep_objects(self, slots: Ints, which: Ints, rows: Packed) -> None:
        """Store rows that are objects in new slots, before the model may fail."""
        if self.keeps_objects:
            own = zip(slots.tolist(), which.tolist(), strict=True)
            self._objects.update((slot, dict(rows.objects[i])) for slot, i in own)

    def add(self, slots: Ints, which: Ints, rows: Packed, keys: PaddedKeys, numbers: Floats) -> None:
        """Store rows, keys and numbers of pending events of a batch.

        Parameters
        ----------
        slots
            New slots, ascending.
        which
            Index of the event in each slot.
        rows, keys, numbers
            Rows, keys, and probabilities with memory, of all events.
        """
        if not len(slots):
            return
        parts = [(rows.words, rows.lengths), (keys.words, keys.lengths)]
        parts.append((numbers.reshape(-1), np.full(len(numbers), numbers.shape[1])))
        lengths = np.column_stack([each for _, each in parts])
        first = np.cumsum([0, *(len(words) for words, _ in parts[:-1])])
        starts = (first + np.cumsum(lengths, axis=0) - lengths)[which]
        words = np.concatenate([words.view(np.int64) for words, _ in parts])
        n_words, data = lengths[which].sum(axis=1), self.segments.open_at(int(slots[0]))
        found = {"layout": rows.layouts[which], "n_row": rows.lengths[which], "n_words": n_words}
        found |= {"n_key": keys.sizes[which], "start": len(data) // 8 + np.cumsum(n_words) - n_words}
        for name, column in found.items():
            self.table.records[name][self.table.at(slots)] = column
        data += gather(words, starts.reshape(-1), lengths[which].reshape(-1)).tobytes()

    def part(self, slots: Ints, name: str, width: int = 0) -> tuple[NDArray[Any], Ints]:
        """Return one stored part of ascending slots, concatenated, and word counts.

        Parameters
        ----------
        slots
            The slots.
        name
            "row", "key", "memory" (of `width` words) or "probas" (before it).
        width
            Number of words of memory.
        """
        records = self.records(slots)
        row, key = (records[n].astype(np.int64) for n in ("n_row", "n_key"))
        ends = np.cumsum([0 * row, row, -(-key // 8), records["n_words"] - row + key // -8 - width, 0 * row + width], 0)
        i = ("row", "key", "probas", "memory").index(name)
        lengths = ends[i + 1] - ends[i]
        return self.segments.words(slots, records["start"] + ends[i], lengths), lengths

    def rows(self, slots: Ints) -> Any:
        """Return the rows of ascending slots as they were at prediction time."""
        if self.keeps_objects or not len(slots):
            return [self._objects[slot] for slot in slots.tolist()]
        return self.layouts.unpack(self.records(slots)["layout"].astype(np.int64), *self.part(slots, "row"))

    def keys(self, slots: Ints) -> list[str]:
        """Return the keys of ascending slots that are pending or have just left."""
        words, lengths = self.part(slots, "key")
        data, ends = words.tobytes(), (8 * np.cumsum(lengths)).tolist()
        found = zip([0, *ends], self.records(slots)["n_key"].tolist(), strict=False)
        return [data[start : start + size].decode("utf-8", "surrogatepass") for start, size in found]

    def free_one(self, slot: int, n_words: int) -> None:
        """Free the row of a slot that is no longer pending."""
        if self._objects:
            self._objects.pop(slot, None)
        self.segments.free_of(self.segments.number(slot), n_words)

    def free(self, slots: Ints) -> None:
        """Free the rows of ascending slots that are no longer pending."""
        for slot in slots.tolist() if self._objects else ():
            self._objects.pop(slot, None)
        self.segments.free(slots)
