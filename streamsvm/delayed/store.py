"""Events that wait for their labels, by key: bounded in number and bytes, in arrays, kept on disk piece by piece."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.events import rows_of
from connectors.held import Texts, numbers_of
from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.delayed import label_join as kernels
from streamsvm.delayed.ragged import Ragged
from streamsvm.delayed.rows import (
    Layouts,
    ObjectRows,
    Objects,
    Packed,
    PackedRows,
    Rows,
    in_order,
    split,
    stacked,
    under,
)
from streamsvm.features.rows import Floats, Ints
from streamsvm.models.archive import decode_labels, encode_label, read_archive, write_archive

# So many slots make a segment, which is closed and never changes again; so many events may leave at a time.
SEGMENT, LEAVING = 1 << 15, 1 << 12
_FIRST_SLOTS = 1 << 10
_FULL = 0.6  # of the table
_CLEARED, _SQUEEZED = 0.5, 0.125  # of a segment must be gone for its memory to be given back: mostly; for want of bytes
_LEAST = 8  # so many events at least must find room

_LEDGER: dict[str, Any] = {
    "digests": np.uint64,
    "fates": np.uint8,
    "codes": np.int32,
    "labels": np.int32,
    "came": np.int64,
    "times": np.int64,
    "sizes": np.int32,
}
# What a slot takes at most, beside its origins, row and key: in the ledger, and in the table, of which three tenths may
# be all that is used; and in its segment, where five rows of different lengths end.
_SLOT_BYTES = sum(np.dtype(kind).itemsize for kind in _LEDGER.values()) + 16 + 27
_WAITING_BYTES = 5 * 8 + 5
_SEGMENT = "Segment"
_FIXED = ("digests", "codes", "came", "times", "sizes")
_NUMBERS = ("clock", "next", "first", "known", "n_waiting", "n_early", "n_known", "n_orphans", "n_dropped")

_OTHERS = ("base", "wait", "most", "most_bytes", "slot_bytes", "class_bytes", "n_classes", "relearns", "held")


@dataclass(slots=True)
class Settled:
    """What became of some events and labels, in turn.

    Parameters
    ----------
    first, end
        Which of those in hand they are.
    fates, slots, labels, lags
        What became of each, as `streamsvm.delayed.label_join` names it, the slot, the number of the label, and how much
        later than its event that came.
    left, expired, left_before
        The slots of events that wait no longer, whether they expired (or were dropped), and before which of those in
        hand.
    """

    first: int
    end: int
    fates: Ints
    slots: Ints
    labels: Ints
    lags: Ints
    left: Ints
    expired: NDArray[np.bool_]
    left_before: Ints


class Segment:
    """Slots one after the other: what waits with each."""

    def __init__(self, first: int, rows: Rows) -> None:
        self.first, self.rows = first, rows
        self.keys, self.probas, self.memories = Ragged(np.uint8), Ragged(np.float64), Ragged(np.int64)
        self.gone = np.zeros(0, bool)
        """Slots of which nothing has to be kept any more."""
        self.is_saved = False
        self._n_cleared = 0

    def __len__(self) -> int:
        return len(self.gone)

    @property
    def end(self) -> int:
        """The first slot after it."""
        return self.first + len(self)

    @property
    def n_bytes(self) -> int:
        """The memory in use."""
        return self.rows.n_bytes + sum(part.n_bytes for part in self.ragged().values()) + len(self.gone)

    def ragged(self) -> dict[str, Ragged]:
        """What waits beside the rows, by name."""
        return {"keys": self.keys, "probas": self.probas, "memories": self.memories}

    def clear(self, share: float = _CLEARED) -> bool:
        """Give back the memory of slots that are gone, once that is more than a share of it; whether it was."""
        n_gone = int(self.gone.sum())
        if n_gone - self._n_cleared <= share * (len(self) - self._n_cleared):
            return False
        self._n_cleared = n_gone
        self.rows = self.rows.without(self.gone)
        for name, rows in self.ragged().items():
            setattr(self, name, rows.empty(self.gone))
        return True

    def spill(self, folder: Path) -> None:
        """Let what waits stand in files; no slot is added any more."""
        self.rows.spill(folder)
        for part in self.ragged().values():
            part.spill(folder)


class TooSmall(ValueError):
    """A bound on bytes within which next to nothing can wait."""


class Store:
    """Events that wait for their labels, and labels that wait for their events.

    Parameters
    ----------
    wait_ms
        How long an event waits, in milliseconds of event time; None for as long as there is room. For as long again it
        is remembered that it was there.
    most
        So many may wait; where there are more, the oldest is dropped.
    most_bytes
        So much memory may be taken, but for some MiB of the segment that is open; where it is not enough the oldest
        goes: one that waits is dropped, one that had its label is forgotten.
    keeps_objects
        Whether rows are kept as objects, which are not counted among the bytes.
    relearns
        Whether rows are kept after their label came, for as long as they are remembered.
    n_origins
        How many numbers tell where an event came from.
    folder
        Where rows, keys and what is remembered wait on disk, in files without a name: these are not counted among the
        bytes. What is known of each slot, some 100 bytes, stays in memory. None for memory alone.
    """

    def __init__(
        self,
        *,
        wait_ms: int | None = None,
        most: int = 1_000_000,
        most_bytes: int = 1 << 30,
        keeps_objects: bool = False,
        relearns: bool = False,
        n_origins: int = 0,
        folder: Path | None = None,
    ) -> None:
        if folder is not None and keeps_objects:
            raise ValueError("rows that are objects wait in memory alone: leave out the folder")
        prepare(tuple(kernels.ENTRY_POINTS.values()))
        self.most_bytes, self.relearns = most_bytes, relearns
        self._fixed_bytes = _SLOT_BYTES + 8 * n_origins + (_WAITING_BYTES if folder is None else 0)
        self._check_room(0)
        self.labels: list[Any] = []
        """All labels that came, in order."""
        self._numbers: dict[Any, int] = {}
        self._layouts, self._keeps_objects = Layouts(), keeps_objects
        self._secret = np.array([secrets.randbits(64), secrets.randbits(64)], np.uint64)
        self._segments: list[Segment] = []
        self._n_closed_bytes = 0
        self._ledger = State(kernels.LEDGER)
        self._ledger.most, self._ledger.most_bytes = most, most_bytes
        self._ledger.slot_bytes, self._ledger.relearns = self._fixed_bytes, int(relearns)
        if wait_ms is not None:
            self._ledger.wait = wait_ms
        self.n_origins, self.folder = n_origins, folder
        self._scores, self._origins = np.zeros(0), np.zeros((0, n_origins), np.int64)
        self._left = np.zeros((2, LEAVING), np.int64)
        table, digests = np.zeros(1, np.int64), np.zeros((0, 2), np.uint64)
        self._ledger.bind(table=table, digests=digests, left=self._left[0], left_before=self._left[1])
        self._ledger.bind(**{name: np.zeros(0, kind) for name, kind in _LEDGER.items() if name != "digests"})
        self._fit(_FIRST_SLOTS)

    def _check_room(self, size: int) -> None:
        """Refuse bounds within which next to nothing can wait."""
        least = _LEAST * (self._fixed_bytes + size)
        if self.most_bytes < least:
            one = f"{self._fixed_bytes + size}{'' if size else ' at least'}"
            raise TooSmall(
                f"{self.most_bytes} bytes hold not even {_LEAST} events that wait, of which one takes {one}: "
                f"allow {least} or, better, many times that"
            )

    # How it stands ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.n_waiting + self.n_early

    @property
    def n_waiting(self) -> int:
        """Events that wait for their label."""
        return int(self._ledger.n_waiting)

    @property
    def wait_ms(self) -> int:
        """How long events wait."""
        return int(self._ledger.wait)

    @property
    def clock(self) -> int:
        """The newest time that has come, in milliseconds; 0 before the first."""
        return max(0, int(self._ledger.clock))

    @property
    def n_early(self) -> int:
        """Labels that wait for their event."""
        return int(self._ledger.n_early)

    @property
    def n_orphans(self) -> int:
        """Labels that have waited in vain."""
        return int(self._ledger.n_orphans)

    @property
    def n_dropped(self) -> int:
        """Events and labels that had to give way to others."""
        return int(self._ledger.n_dropped)

    @property
    def n_bytes(self) -> int:
        """The memory in use."""
        n = int(self._ledger.next - self._ledger.base)
        slot = sum(np.dtype(kind).itemsize for kind in _LEDGER.values()) + 16 + 8 * self._origins.shape[1]
        n_open = sum(segment.n_bytes for segment in self._segments[-1:])
        return int(n * slot + self._ledger.table.nbytes + self._n_closed_bytes + n_open)

    @property
    def is_over(self) -> bool:
        """Whether what is known takes more bytes than it may."""
        ledger = self._ledger
        return int(ledger.held + ledger.slot_bytes * (ledger.next - ledger.known)) > self.most_bytes

    def numbers(self, labels: Sequence[Any]) -> Ints:
        """The numbers of labels, which may be new."""
        found = numbers_of(labels, self._numbers)
        for i in np.flatnonzero(found < 0).tolist():
            found[i] = self.number(labels[i])
        return found

    def number(self, label: Any) -> int:
        """The number of a label, which may be new."""
        found = self._numbers.get(label)
        if found is None:
            found = self._numbers[label] = len(self.labels)
            self.labels.append(label)
        return found

    # Slots ------------------------------------------------------------------------------------------------------------

    def digests(self, keys: Sequence[str]) -> NDArray[np.uint64]:
        """What keys are told apart by, shape (n, 2)."""
        texts, found = Texts.of(keys), np.empty((len(keys), 2), np.uint64)
        _call("digest")(texts.data, np.cumsum(texts.lengths), self._secret, found)
        return found

    def packed(self, features: Any, n: int) -> Packed | Objects:
        """Rows as they would wait."""
        return Objects(rows_of(features, n)) if self._keeps_objects else self._layouts.pack(features, n)

    def sizes(self, rows: Packed | Objects, keys: Texts, n_numbers: int) -> Ints:
        """How many bytes events would take that wait with so many numbers beside rows and keys.

        Raises
        ------
        TooSmall
            Where there is not even room for a few such as the first.
        """
        if self.folder is not None:
            return np.zeros(len(keys), np.int64)
        sizes = rows.sizes + keys.lengths + 8 * n_numbers
        if len(sizes) and not self._ledger.next:
            self._check_room(int(sizes[0]))
        return sizes

    def settle(
        self, digests: NDArray[np.uint64], times: Ints, labels: Ints, sizes: Ints, class_bytes: int = 0
    ) -> Iterator[Settled]:
        """Let events (of label -1) and labels come in turn: what became of them, some at a time.

        Events of these sizes take some bytes more for each class that came as a label.
        """
        n, first, ledger = len(times), 0, self._ledger
        ledger.class_bytes = class_bytes if self.folder is None else 0
        fates, slots, lags = (np.zeros(n, np.int64) for _ in range(3))
        is_over = False
        while first < n or is_over:
            self._fit(n - first)
            ledger.n_left = 0
            end = _call("settle")(ledger, first, digests, times, labels, sizes, fates, slots, lags)
            is_over = self.is_over
            part, (left, before) = slice(first, end), self._left[:, : int(ledger.n_left)].copy()
            expired = left >= 0
            yield Settled(
                first,
                end,
                fates[part],
                slots[part],
                labels[part],
                lags[part],
                np.where(expired, left, -1 - left),
                expired,
                before,
            )
            first = end

    def _fit(self, n: int) -> None:
        """See that there is room for n more slots."""
        ledger = self._ledger
        held, room = int(ledger.next - ledger.base), len(self._scores)
        if held + n > room:
            unused = self._begin - int(ledger.base)
            self._move(self._begin, max(room if 4 * unused > room else 2 * room, held - unused + n))
        if ledger.n_known + n > _FULL * len(ledger.table):
            size = 1 << int(np.ceil(np.log2((ledger.n_known + n) / _FULL + 1)))
            ledger.bind(table=np.zeros(size, np.int64))
            _call("fill_table")(ledger)

    @property
    def _begin(self) -> int:
        """The first slot that something is known of, or has a segment."""
        known = int(self._ledger.known)
        return min(known, self._segments[0].first) if self._segments else known

    def _move(self, begin: int, room: int) -> None:
        """Let the ledger begin with a slot, and have room for so many."""
        ledger = self._ledger
        here = slice(begin - int(ledger.base), int(ledger.next - ledger.base))

        def moved(array: NDArray[Any]) -> NDArray[Any]:
            fresh = np.empty((room, *array.shape[1:]), array.dtype)
            fresh[: here.stop - here.start] = array[here]
            return fresh

        for name in _LEDGER:
            ledger.bind(**{name: moved(getattr(ledger, name))})
        self._scores, self._origins = moved(self._scores), moved(self._origins)
        ledger.base = begin

    def at(self, slots: Ints) -> Ints:
        """Where slots stand in the ledger."""
        found: Ints = slots - int(self._ledger.base)
        return found

    def codes(self, slots: Ints) -> Ints:
        """The classes predicted, by number, -1 for none."""
        found: Ints = self._ledger.codes[self.at(slots)].astype(np.int64)
        return found

    def scores(self, slots: Ints) -> Floats:
        """Their probabilities."""
        found: Floats = self._scores[self.at(slots)]
        return found

    def times(self, slots: Ints) -> Ints:
        """The times of events."""
        found: Ints = self._ledger.times[self.at(slots)]
        return found

    def origins(self, slots: Ints) -> Ints:
        """Where events came from."""
        found: Ints = self._origins[self.at(slots)]
        return found

    # What waits -------------------------------------------------------------------------------------------------------

    def add(self, n: int, at: Ints, rows: Packed | Objects, keys: Sequence[str]) -> None:
        """What waits with the next n slots: of those at the places `at` rows and keys, of the others nothing."""
        first = self._n_added
        if not self._segments or len(self._segments[-1]) >= SEGMENT:
            for closed in self._segments[-1:]:
                closed.clear()
                self._spill(closed)
                self._n_closed_bytes += closed.n_bytes
            self._segments.append(Segment(first, ObjectRows() if self._keeps_objects else PackedRows(self._layouts)))
        segment = self._segments[-1]
        segment.rows.add(rows, at, n)
        texts, lengths = Texts.of(keys), np.zeros(n, np.int64)
        lengths[at] = texts.lengths
        segment.keys.add(texts.data, lengths)
        gone = np.ones(n, bool)
        gone[at] = False
        segment.gone = np.concatenate([segment.gone, gone])

    def _spill(self, closed: Segment) -> None:
        if self.folder is None:
            return
        try:
            closed.spill(self.folder)
        except OSError as error:
            raise OSError(f"{self.folder}: events that wait cannot be written: {error.strerror or error}") from error

    @property
    def _n_added(self) -> int:
        """The first slot that nothing was added for."""
        return self._segments[-1].end if self._segments else 0

    def come_from(self, slots: Ints, origins: Ints) -> None:
        """Note where events came from."""
        self._origins[self.at(slots)] = origins

    def predicted(self, slots: Ints, codes: Ints, scores: Floats) -> None:
        """Note the predictions for events."""
        at = self.at(slots)
        self._ledger.codes[at], self._scores[at] = codes, scores

    def remember(self, n: int, at: Ints, memories: Ints, probas: Floats) -> None:
        """What the model knew when it predicted those of the last n slots at `at`, and all probabilities."""
        segment = self._segments[-1]
        for rows, values in ((segment.memories, memories), (segment.probas, probas)):
            lengths = np.zeros(n, np.int64)
            lengths[at] = values.shape[1]
            rows.add(values.reshape(-1), lengths)

    def take(self, slots: Ints, what: Callable[[Segment, Ints], Any]) -> Iterator[tuple[Ints, Any]]:
        """Something of slots, segment by segment: which of them, and what it gave."""
        firsts = [segment.first for segment in self._segments]
        found = np.searchsorted(firsts, slots, "right") - 1
        for i in range(int(found.min(initial=len(firsts))), int(found.max(initial=-1)) + 1):
            which = np.flatnonzero(found == i)
            if not len(which):
                continue
            segment = self._segments[i]
            yield which, what(segment, slots[which] - segment.first)

    def keys(self, slots: Ints) -> list[str]:
        """The keys of events that wait, or waited until now."""
        keys = [""] * len(slots)
        for which, texts in self.take(slots, lambda segment, rows: split(*segment.keys.take(rows))):
            for i, text in zip(which.tolist(), texts, strict=True):
                keys[i] = text.decode("utf-8", "surrogatepass")
        return keys

    def rows(self, slots: Ints) -> Any:
        """The rows of events, as they were predicted on."""
        parts, places = [], [np.zeros(0, np.int64)]
        for which, rows in self.take(slots, lambda segment, rows: segment.rows.take(rows)):
            parts.append((rows, len(which)))
            places.append(which)
        return in_order(stacked(parts), np.argsort(np.concatenate(places)))

    def memories(self, slots: Ints, width: int) -> Ints:
        """What was left there by `remember`."""
        found = np.zeros((len(slots), width), np.int64)
        for which, (values, _) in self.take(slots, lambda segment, rows: segment.memories.take(rows)):
            found[which] = values.reshape(len(which), width)
        return found

    def probas(self, slots: Ints) -> list[Floats]:
        """The probabilities left there by `remember`; of those that are gone, none."""
        found = [np.zeros(0)] * len(slots)
        for which, (values, lengths) in self.take(slots, lambda segment, rows: segment.probas.take(rows)):
            for i, row in zip(which.tolist(), np.split(values, np.cumsum(lengths)[:-1]), strict=True):
                found[i] = row
        return found

    def let_go(self, slots: Ints) -> None:
        """These wait no longer: what was kept of them need not be."""
        for _, (segment, rows) in self.take(slots, lambda segment, rows: (segment, rows)):
            segment.gone[rows] = True
            if segment is self._segments[-1]:
                continue  # is cleared when it is closed
            before = segment.n_bytes
            if segment.clear():
                self._spill(segment)
                self._n_closed_bytes += segment.n_bytes - before

    # Bounds -----------------------------------------------------------------------------------------------------------

    def trim(self) -> None:
        """Give back the memory of what is not known any more: of whole segments at once, of others as it is wanted."""
        self._shed()
        if self.n_bytes <= self.most_bytes:
            return
        for segment in self._segments:
            before = segment.n_bytes
            if segment.clear(_SQUEEZED) and segment is not self._segments[-1]:
                self._spill(segment)
                self._n_closed_bytes += segment.n_bytes - before
        ledger = self._ledger
        if self._begin - ledger.base > _SQUEEZED * (ledger.next - ledger.base) and self.n_bytes > self.most_bytes:
            self._move(self._begin, len(self._scores))

    def _shed(self) -> None:
        """Do without what stands before all that is known."""
        ledger = self._ledger
        while len(self._segments) > 1 and self._segments[0].end <= ledger.known:
            self._n_closed_bytes -= self._segments.pop(0).n_bytes
        if 2 * (self._begin - ledger.base) > ledger.next - ledger.base:
            self._move(self._begin, len(self._scores))

    # Copies in memory -------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state, ledger = dict(self.__dict__), self._ledger
        del state["_ledger"]
        numbers = {name: int(getattr(ledger, name)) for name in (*_NUMBERS, *_OTHERS)}
        return state | {"_copied": (numbers, {name: getattr(ledger, name).copy() for name in (*_LEDGER, "table")})}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        numbers, arrays = state.pop("_copied")
        self.__dict__.update(state)
        self._ledger = State(kernels.LEDGER)
        self._ledger.bind(left=self._left[0], left_before=self._left[1], **arrays)
        for name, number in numbers.items():
            setattr(self._ledger, name, number)

    # Saving -----------------------------------------------------------------------------------------------------------

    def state(self, folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All there is to know, as a JSON header and arrays, but for segments that are closed: these never change, and
        are written to files of the folder once, durably. `names_of_files` has those that are needed."""
        folder.mkdir(exist_ok=True)
        for segment in self._segments[:-1]:
            if not segment.is_saved:
                write_archive(folder / self._file(segment), {"class": _SEGMENT}, self._segment_state(segment))
                segment.is_saved = True
        ledger = self._ledger
        held = slice(
            self._segments[0].first - int(ledger.base) if self._segments else 0, int(ledger.next - ledger.base)
        )
        header = {
            "numbers": {name: int(getattr(ledger, name)) for name in _NUMBERS},
            "labels": [encode_label(label) for label in self.labels],
            "layouts": self._layouts.state(),
            "secret": [hex(int(half)) for half in self._secret],
            "segments": [[segment.first, len(segment)] for segment in self._segments],
        }
        arrays = {"fates": ledger.fates[held], "labels": ledger.labels[held]}
        if self._segments:
            arrays |= {f"open.{name}": array for name, array in self._segment_state(self._segments[-1]).items()}
        return header, arrays

    @property
    def files(self) -> set[str]:
        """The names of the files that the last `state` needs."""
        return {self._file(segment) for segment in self._segments if segment.is_saved}

    def _file(self, segment: Segment) -> str:
        return f"{int(self._secret[0]):016x}-{segment.first}.npz"

    def _segment_state(self, segment: Segment) -> dict[str, NDArray[Any]]:
        if not isinstance(segment.rows, PackedRows):
            raise TypeError("rows that are objects cannot be saved")
        ledger, here = self._ledger, self.at(np.array([segment.first, segment.end]))
        arrays = {name: getattr(ledger, name)[slice(*here)] for name in _FIXED}
        arrays |= {"scores": self._scores[slice(*here)], "origins": self._origins[slice(*here)]}
        parts = {name: rows.state() for name, rows in segment.ragged().items()} | {"rows": segment.rows.state()}
        return arrays | {f"{part}.{name}": array for part, held in parts.items() for name, array in held.items()}

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], folder: Path) -> None:
        """Take over, into an empty store, what `state` gave.

        Raises
        ------
        ValueError, LookupError, TypeError, OSError
            Where that cannot be what a store left, or a file is missing.
        """
        self._secret = np.array([int(half, 16) for half in header["secret"]], np.uint64)
        if len(self._secret) != 2:
            raise ValueError("keys are told apart by another secret")
        self._layouts.restore(header["layouts"])
        for label in decode_labels(header["labels"]):
            self.number(label)
        ledger, numbers = self._ledger, {name: int(header["numbers"][name]) for name in _NUMBERS}
        places = [(int(first), int(n)) for first, n in header["segments"]]
        begin = places[0][0] if places else numbers["next"]
        n = numbers["next"] - begin
        if [first for first, _ in places[1:]] != [first + size for first, size in places[:-1]] or sum(
            size for _, size in places
        ) != n:
            raise ValueError("segments that do not follow one another")
        ledger.base = ledger.known = ledger.next = begin
        self._fit(max(n, _FIRST_SLOTS))
        ledger.fates[:n], ledger.labels[:n] = arrays["fates"], arrays["labels"]
        for first, size in places:
            last = first == places[-1][0]
            self._restore_segment(first, size, under("open", arrays) if last else None, folder)
        for name, number in numbers.items():
            setattr(ledger, name, number)
        self._check(n, numbers)
        fates = ledger.fates[:n]
        holds = (fates == kernels.WAITING) | (self.relearns & (fates == kernels.ANSWERED))
        ledger.held, ledger.n_classes = int(ledger.sizes[:n][holds].sum()), len(self.labels)
        self._fit(0)
        ledger.table[:] = 0
        _call("fill_table")(ledger)
        self._n_closed_bytes = sum(segment.n_bytes for segment in self._segments[:-1])

    def _restore_segment(self, first: int, n: int, arrays: Mapping[str, NDArray[Any]] | None, folder: Path) -> None:
        segment = Segment(first, PackedRows(self._layouts))
        if arrays is None:
            header, arrays = read_archive(folder / self._file(segment))
            if header.get("class") != _SEGMENT:
                raise ValueError(f"{folder / self._file(segment)} holds no segment")
            segment.is_saved = True
        here = slice(first - int(self._ledger.base), first - int(self._ledger.base) + n)
        for name in _FIXED:  # there are no sizes in what earlier versions left
            getattr(self._ledger, name)[here] = arrays.get(name, 0)
        self._scores[here], self._origins[here] = arrays["scores"], arrays["origins"]
        fates = self._ledger.fates[here]
        segment.gone = ~((fates == kernels.WAITING) | (self.relearns & (fates == kernels.ANSWERED)))
        segment.rows = PackedRows.from_state(self._layouts, under("rows", arrays))
        for name, rows in segment.ragged().items():
            setattr(segment, name, Ragged.from_state(rows.dtype, under(name, arrays)))
        if {len(segment.rows), *map(len, segment.ragged().values())} != {n}:
            raise ValueError(f"a segment of {n} slots that has others")
        segment.clear()
        if segment.is_saved:
            self._spill(segment)
        self._segments.append(segment)

    def _check(self, n: int, numbers: Mapping[str, int]) -> None:
        """Refuse what no store can have left."""
        ledger = self._ledger
        fates, labels = ledger.fates[:n], ledger.labels[:n]
        counts = {"n_waiting": (fates == kernels.WAITING).sum(), "n_early": (fates == kernels.EARLY).sum()}
        counts["n_known"] = (fates != kernels.GONE).sum()
        if any(numbers[name] != count for name, count in counts.items()) or fates.max(initial=0) > kernels.EXPIRED:
            raise ValueError("counts of events that wait do not fit them")
        if labels.min(initial=0) < -1 or labels.max(initial=-1) >= len(self.labels):
            raise ValueError("labels that are not known")
        if not ledger.base <= ledger.known <= ledger.first <= ledger.next:
            raise ValueError("slots that are not there")


def _call(name: str) -> Any:
    return kernels.ENTRY_POINTS[name].compile()
