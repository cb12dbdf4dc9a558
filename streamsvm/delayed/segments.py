"""Rows, keys and memories of pending events, in segments of consecutive slots."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.held import Texts
from streamsvm.delayed.ragged import Growing, Ragged
from streamsvm.delayed.rows import NONE, Layouts, Packed, in_order, split, stacked
from streamsvm.features.rows import Floats, Ints
from streamsvm.models.archive import read_archive, write_archive
from streamsvm.models.codec import under

SEGMENT = 1 << 15
"""Number of slots of a segment. A full segment is closed and does not change."""
_CLASS = "Segment"
_CLEARED, SQUEEZED = 0.5, 0.125  # share of freed slots that triggers compaction: normally; when memory is short
_PARTS: dict[str, Any] = {
    "keys": np.uint8,
    "words": np.float64,
    "texts": np.uint8,
    "memories": np.int64,
    "probas": np.float64,
}


class Segment:
    """Rows, keys and memories of consecutive slots.

    Parameters
    ----------
    first
        The first slot.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.layouts = Growing(np.int32)
        self.parts = {name: Ragged(kind) for name, kind in _PARTS.items()}
        self._gone = Growing(np.bool_)
        self.is_saved = False
        self._n_cleared = 0

    def __len__(self) -> int:
        return len(self._gone)

    @property
    def gone(self) -> NDArray[np.bool_]:
        """Which slots are freed."""
        return self._gone.values

    @property
    def end(self) -> int:
        """First slot after the segment."""
        return self.first + len(self)

    @property
    def n_bytes(self) -> int:
        """Memory in use."""
        return self.layouts.n_bytes + sum(part.n_bytes for part in self.parts.values()) + len(self.gone)

    def put(self, name: str, n: int, at: Ints, values: NDArray[Any], lengths: Any) -> None:
        """Add a part of n new slots: values of the given lengths at the indices `at`, empty elsewhere."""
        every = np.zeros(n, np.int64)
        every[at] = lengths
        self.parts[name].add(values, every)

    def add(self, n: int, at: Ints, rows: Packed, keys: Texts) -> None:
        """Add n slots, with rows and keys at the indices `at`."""
        layouts, gone = np.full(n, NONE, np.int32), np.ones(n, bool)
        layouts[at], gone[at] = rows.layouts, False
        self.layouts.add(layouts)
        self.put("words", n, at, rows.words, rows.word_lengths)
        self.put("texts", n, at, *rows.text_bytes)
        self.put("keys", n, at, keys.data, keys.lengths)
        self._gone.add(gone)

    def add_one(self, layout: int, parts: Mapping[str, bytes]) -> None:
        """Add one slot, freed if it has no layout."""
        self.layouts.append(layout.to_bytes(4, sys.byteorder, signed=True))
        for name, part in self.parts.items():
            part.append(parts.get(name, b""))
        self._gone.append(b"\1" if layout == NONE else b"\0")

    def rows(self, layouts: Layouts, at: Ints) -> Any:
        """Return rows as they were stored."""
        texts = split(*self.parts["texts"].take(at)) if self.parts["texts"].n_values else [b""] * len(at)
        return layouts.unpack(self.layouts.values[at].astype(np.int64), *self.parts["words"].take(at), texts)

    def clear(self, share: float = _CLEARED) -> bool:
        """Release the memory of freed slots if their share exceeds `share`; return whether it did."""
        n_gone = int(self.gone.sum())
        if n_gone - self._n_cleared <= share * (len(self) - self._n_cleared):
            return False
        self._n_cleared = n_gone
        self.layouts = Growing(np.int32, np.where(self.gone, NONE, self.layouts.values).astype(np.int32))
        self.parts = {name: part.empty(self.gone) for name, part in self.parts.items()}
        return True

    def spill(self, folder: Path) -> None:
        """Move the segment to files; no slot is added afterwards."""
        self.layouts.spill(folder)
        for part in self.parts.values():
            part.spill(folder)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything except freed slots as arrays."""
        layouts, held = self.layouts.values, self.parts
        if int(self.gone.sum()) > self._n_cleared:
            layouts = np.where(self.gone, NONE, layouts).astype(np.int32)
            held = {name: part.empty(self.gone) for name, part in held.items()}
        return {
            "layouts": layouts,
            **{f"{part}.{n}": a for part, rows in held.items() for n, a in rows.state().items()},
        }

    @classmethod
    def from_state(cls, first: int, gone: NDArray[np.bool_], layouts: Layouts, arrays: Mapping[str, Any]) -> Segment:
        """Restore a segment from its `state`.

        Raises
        ------
        ValueError, LookupError
            If the state is invalid.
        """
        self, kinds = cls(first), arrays["layouts"]
        if kinds.dtype != np.int32 or kinds.ndim != 1 or kinds.min(initial=NONE) < NONE:
            raise ValueError("rows of no known layout")
        if kinds.max(initial=NONE) >= len(layouts.names):
            raise ValueError("rows of layouts that are not there")
        self.layouts, self._gone = Growing(np.int32, kinds), Growing(np.bool_, gone)
        self.parts = {name: Ragged.from_state(kind, under(arrays, f"{name}.")) for name, kind in _PARTS.items()}
        if {len(kinds), *map(len, self.parts.values())} != {len(gone)}:
            raise ValueError(f"a segment of {len(gone)} slots that has others")
        lengths = self.parts["words"].lengths
        for layout, (names, plain) in enumerate(layouts.names):
            if plain and (lengths[kinds == layout] != len(names)).any():
                raise ValueError("rows of another number of values than their names")
        self.clear()
        return self


class Segments:
    """Rows, keys and memories of all slots, on disk if a folder is given.

    Parameters
    ----------
    folder
        Folder of closed segments, in files without a name; None for memory.
    keeps_objects
        Whether rows are stored as objects, whose bytes are not counted.
    """

    def __init__(self, folder: Path | None, *, keeps_objects: bool) -> None:
        self.folder, self.layouts = folder, Layouts()
        self.keeps_objects, self._objects = keeps_objects, dict[int, dict[Any, Any]]()
        self._held: list[Segment] = []
        self._n_closed_bytes = 0

    @property
    def first(self) -> int | None:
        """First slot; None without slots."""
        return self._held[0].first if self._held else None

    @property
    def n_bytes(self) -> int:
        """Memory in use."""
        return self._n_closed_bytes + sum(segment.n_bytes for segment in self._held[-1:])

    @property
    def places(self) -> list[list[int]]:
        """First slot and length of each segment."""
        return [[segment.first, len(segment)] for segment in self._held]

    def pack(self, features: Any, n: int) -> Packed:
        """Pack rows for storage."""
        return Packed.of_objects(features, n) if self.keeps_objects else self.layouts.pack(features, n)

    # Contents ---------------------------------------------------------------------------------------------------------

    def _begin(self) -> int:
        """Return the next slot, and close the open segment if it is full."""
        first = self._held[-1].end if self._held else 0
        if not self._held or len(self._held[-1]) >= SEGMENT:
            for closed in self._held[-1:]:
                closed.clear()
                self._spill(closed)
                self._n_closed_bytes += closed.n_bytes
            self._held.append(Segment(first))
        return first

    def add(self, n: int, at: Ints, rows: Packed, keys: Sequence[str]) -> None:
        """Add n slots, with rows and keys at the indices `at`."""
        first = self._begin()
        self._held[-1].add(n, at, rows, Texts.of(keys))
        if self.keeps_objects:
            self._objects.update(zip((first + at).tolist(), map(dict, rows.objects), strict=True))

    def remember(self, n: int, at: Ints, memories: Ints, probas: Floats) -> None:
        """Add memories and probabilities of those of the last n slots at the indices `at`."""
        for name, values in (("memories", memories), ("probas", probas)):
            self._held[-1].put(name, n, at, values.reshape(-1), values.shape[1])

    def _take(self, slots: Ints, what: Callable[[Segment, Ints], Any]) -> Iterator[tuple[Ints, Any]]:
        """Call `what` on the slots of each segment; yield which slots, and the result."""
        firsts = [segment.first for segment in self._held]
        found = np.searchsorted(firsts, slots, "right") - 1
        for i in range(int(found.min(initial=len(firsts))), int(found.max(initial=-1)) + 1):
            if len(which := np.flatnonzero(found == i)):
                yield which, what(self._held[i], slots[which] - firsts[i])

    def part(self, name: str, slots: Ints) -> list[NDArray[Any]]:
        """Return a part of slots, an array for each, empty for freed slots."""
        found: list[NDArray[Any]] = [np.zeros(0, _PARTS[name])] * len(slots)
        for which, (values, lengths) in self._take(slots, lambda segment, at: segment.parts[name].take(at)):
            for i, row in zip(which.tolist(), np.split(values, np.cumsum(lengths)[:-1]), strict=True):
                found[i] = row
        return found

    def rows(self, slots: Ints) -> Any:
        """Return the rows of events as they were at prediction time."""
        if self.keeps_objects:
            return [self._objects[slot] for slot in slots.tolist()]
        parts, places = [], [np.zeros(0, np.int64)]
        for which, rows in self._take(slots, lambda segment, at: segment.rows(self.layouts, at)):
            parts.append((rows, len(which)))
            places.append(which)
        return in_order(stacked(parts), np.argsort(np.concatenate(places)))

    def memories(self, slots: Ints, width: int) -> Ints:
        """Return the values that the model stored at prediction time."""
        found = np.zeros((len(slots), width), np.int64)
        for which, (values, _) in self._take(slots, lambda segment, at: segment.parts["memories"].take(at)):
            found[which] = values.reshape(len(which), width)
        return found

    def add_one(self, layout: int = NONE, **parts: bytes) -> None:
        """Add one slot, freed if it has no layout."""
        self._begin()
        self._held[-1].add_one(layout, parts)

    def one(self, slot: int) -> tuple[dict[Any, Any], bytes] | None:
        """Return the row and memory of an event; None unless the row has only numbers."""
        segment = self._segment(slot)
        at = slot - segment.first
        names, plain = self.layouts.names[layout] if (layout := int(segment.layouts.values[at])) >= 0 else ((), False)
        if not plain:
            return None
        return dict(zip(names, segment.parts["words"].row(at).tolist(), strict=True)), segment.parts["memories"].row(
            at
        ).tobytes()

    def _segment(self, slot: int) -> Segment:
        """Return the segment of a slot."""
        return self._held[bisect_right(self._held, slot, key=lambda segment: segment.first) - 1]

    # Memory -----------------------------------------------------------------------------------------------------------

    def let_go(self, slots: Ints) -> None:
        """Free slots."""
        for slot in slots.tolist():
            self._objects.pop(slot, None)
        for _, (segment, at) in self._take(slots, lambda segment, at: (segment, at)):
            self._free(segment, at)

    def let_one_go(self, slot: int) -> None:
        """Free one slot of rows that are not objects."""
        segment = self._segment(slot)
        self._free(segment, slot - segment.first)

    def _free(self, segment: Segment, at: int | Ints) -> None:
        segment.gone[at] = True
        if segment is not self._held[-1]:  # the open segment is compacted when it closes
            self._clear(segment, _CLEARED)

    def drop_before(self, slot: int) -> None:
        """Drop segments before a slot."""
        while len(self._held) > 1 and self._held[0].end <= slot:
            segment = self._held.pop(0)
            self._n_closed_bytes -= segment.n_bytes
            for gone in range(segment.first, segment.end) if self._objects else ():
                self._objects.pop(gone, None)

    def squeeze(self) -> None:
        """Free as much memory as possible."""
        for segment in self._held:
            self._clear(segment, SQUEEZED)

    def _clear(self, segment: Segment, share: float) -> None:
        before, is_open = segment.n_bytes, segment is self._held[-1]
        if segment.clear(share) and not is_open:
            self._spill(segment)
            self._n_closed_bytes += segment.n_bytes - before

    def _spill(self, segment: Segment) -> None:
        if self.folder is None:
            return
        try:
            segment.spill(self.folder)
        except OSError as error:
            raise OSError(f"{self.folder}: events that wait cannot be written: {error.strerror or error}") from error

    # Saving -----------------------------------------------------------------------------------------------------------

    def state(
        self, folder: Path, name_of: Callable[[int], str], columns: Callable[[slice], dict[str, NDArray[Any]]]
    ) -> dict[str, NDArray[Any]]:
        """Return the open segment as arrays, after writing each closed segment once, durably, to the folder.

        Parameters
        ----------
        folder
            Folder of the files.
        name_of
            File name of a segment by its first slot.
        columns
            Other columns of a range of slots.
        """
        if self.keeps_objects and self._held:
            raise TypeError("rows that are objects cannot be saved")
        folder.mkdir(exist_ok=True)
        arrays: dict[str, NDArray[Any]] = {}
        for segment in self._held:
            if segment.is_saved:
                continue
            arrays = columns(slice(segment.first, segment.end)) | segment.state()
            if segment is not self._held[-1]:
                write_archive(folder / name_of(segment.first), {"class": _CLASS}, arrays)
                segment.is_saved = True
        return arrays

    @property
    def saved(self) -> list[int]:
        """First slots of the segments in files."""
        return [segment.first for segment in self._held if segment.is_saved]

    def restore(self, first: int, gone: NDArray[np.bool_], arrays: Mapping[str, NDArray[Any]], *, saved: bool) -> None:
        """Restore the next segment from its `state`."""
        segment = Segment.from_state(first, gone, self.layouts, arrays)
        segment.is_saved = saved
        if saved:
            self._spill(segment)
            self._n_closed_bytes += segment.n_bytes
        self._held.append(segment)


def read_segment(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a segment from a file."""
    header, arrays = read_archive(path)
    if header.get("class") != _CLASS:
        raise ValueError(f"{path} holds no segment")
    return arrays
