"""Events that wait for their labels, by key: bounded in number and bytes, in arrays, kept on disk piece by piece."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.held import Texts, numbers_of
from streamsvm.core.precompile import prepare
from streamsvm.delayed import label_join as kernels
from streamsvm.delayed.rows import Packed
from streamsvm.delayed.segments import SQUEEZED, Segments, read_segment
from streamsvm.delayed.slots import SLOT_BYTES, SlotTable
from streamsvm.features.rows import Ints
from streamsvm.models.archive import decode_labels, encode_label
from streamsvm.models.codec import under

# What waits with a slot takes more in its segment, where five rows of different lengths end.
WAITING_BYTES = 5 * 8 + 5
_LEAST = 8  # so many events at least must find room
_NUMBERS = ("clock", "next", "first", "known", "n_waiting", "n_early", "n_known", "n_orphans", "n_dropped")


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
        self.most_bytes, self.relearns, self.n_origins, self.folder = most_bytes, relearns, n_origins, folder
        self._fixed_bytes = SLOT_BYTES + 8 * n_origins + (WAITING_BYTES if folder is None else 0)
        self._check_room(0)
        self.labels: list[Any] = []
        """All labels that came, in order."""
        self._numbers: dict[Any, int] = {}
        self._secret = np.array([secrets.randbits(64), secrets.randbits(64)], np.uint64)
        self.segments = Segments(folder, keeps_objects=keeps_objects)
        self.slots = SlotTable(n_origins)
        ledger = self.slots.ledger
        ledger.most, ledger.most_bytes = most, most_bytes
        ledger.slot_bytes, ledger.relearns = self._fixed_bytes, int(relearns)
        if wait_ms is not None:
            ledger.wait = wait_ms

    def _check_room(self, size: int) -> None:
        """Refuse bounds within which next to nothing can wait."""
        least = _LEAST * (self._fixed_bytes + size)
        if self.most_bytes < least:
            one = f"{self._fixed_bytes + size}{'' if size else ' at least'}"
            raise TooSmall(
                f"{self.most_bytes} bytes hold not even {_LEAST} events that wait, of which one takes {one}: "
                f"allow {least} or, better, many times that"
            )

    def __len__(self) -> int:
        return int(self.slots.ledger.n_waiting + self.slots.ledger.n_early)

    @property
    def n_waiting(self) -> int:
        """Events that wait for their label."""
        return int(self.slots.ledger.n_waiting)

    @property
    def counts(self) -> dict[str, int]:
        """Events that wait, labels that wait, labels that have waited in vain, and what had to give way to others."""
        names = {"waiting": "n_waiting", "early": "n_early", "orphans": "n_orphans", "dropped": "n_dropped"}
        return {name: int(getattr(self.slots.ledger, number)) for name, number in names.items()}

    @property
    def clock(self) -> int:
        """The newest time that has come, in milliseconds; 0 before the first."""
        return max(0, int(self.slots.ledger.clock))

    @property
    def n_bytes(self) -> int:
        """The memory in use."""
        return self.slots.n_bytes + self.segments.n_bytes

    def numbers(self, labels: Sequence[Any]) -> Ints:
        """The numbers of labels, which may be new."""
        found = numbers_of(labels, self._numbers)
        for i in np.flatnonzero(found < 0).tolist():
            found[i] = self._number(labels[i])
        return found

    def _number(self, label: Any) -> int:
        if label not in self._numbers:
            self._numbers[label] = len(self.labels)
            self.labels.append(label)
        return self._numbers[label]

    # Events and labels ------------------------------------------------------------------------------------------------

    def digests(self, keys: Sequence[str]) -> NDArray[np.uint64]:
        """What keys are told apart by, shape (n, 2)."""
        texts, found = Texts.of(keys), np.empty((len(keys), 2), np.uint64)
        _call("digest")(texts.data, np.cumsum(texts.lengths), self._secret, found)
        return found

    def sizes(self, rows: Packed, keys: Texts, n_numbers: int) -> Ints:
        """How many bytes events would take that wait with so many numbers beside rows and keys.

        Raises
        ------
        TooSmall
            Where there is not even room for a few such as the first.
        """
        if self.folder is not None:
            return np.zeros(len(keys), np.int64)
        sizes = rows.sizes + keys.lengths + 8 * n_numbers
        if len(sizes) and not self.slots.ledger.next:
            self._check_room(int(sizes[0]))
        return sizes

    def settle(
        self, digests: NDArray[np.uint64], times: Ints, labels: Ints, sizes: Ints, class_bytes: int = 0
    ) -> Iterator[Settled]:
        """Let events (of label -1) and labels come in turn: what became of them, some at a time.

        Events of these sizes take some bytes more for each class that came as a label.
        """
        n, first, ledger = len(times), 0, self.slots.ledger
        ledger.class_bytes = class_bytes if self.folder is None else 0
        fates, slots, lags = (np.zeros(n, np.int64) for _ in range(3))
        is_over = False
        while first < n or is_over:
            self.slots.fit(n - first, self._begin)
            ledger.n_left = 0
            end = _call("settle")(ledger, first, digests, times, labels, sizes, fates, slots, lags)
            is_over = int(ledger.held + ledger.slot_bytes * (ledger.next - ledger.known)) > self.most_bytes
            part, (left, before) = slice(first, end), self.slots.left[:, : int(ledger.n_left)].copy()
            expired = left >= 0
            gone = np.where(expired, left, -1 - left)
            yield Settled(first, end, fates[part], slots[part], labels[part], lags[part], gone, expired, before)
            first = end

    @property
    def _begin(self) -> int:
        """The first slot that something is known of, or has a segment."""
        known, first = int(self.slots.ledger.known), self.segments.first
        return known if first is None else min(known, first)

    def trim(self) -> None:
        """Give back the memory of what is not known any more: of whole segments at once, of others where necessary."""
        ledger = self.slots.ledger
        self.segments.drop_before(int(ledger.known))
        self.slots.drop_before(self._begin, 0.5)
        if self.n_bytes > self.most_bytes:
            self.segments.squeeze()
            if self.n_bytes > self.most_bytes:
                self.slots.drop_before(self._begin, SQUEEZED)

    def keys(self, slots: Ints) -> list[str]:
        """The keys of events that wait, or waited until now."""
        return [key.tobytes().decode("utf-8", "surrogatepass") for key in self.segments.part("keys", slots)]

    # Saving -----------------------------------------------------------------------------------------------------------

    def state(self, folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Everything, as a JSON header and arrays, but for closed segments: these never change, and are written to
        files of the folder once, durably. `files` has those that are needed.
        """
        opened = self.segments.state(folder, self._file, self.slots.saved)
        ledger = self.slots.ledger
        begin = self.segments.first
        held = self.slots.at(slice(int(ledger.next) if begin is None else begin, int(ledger.next)))
        header = {
            "numbers": {name: int(getattr(ledger, name)) for name in _NUMBERS},
            "labels": [encode_label(label) for label in self.labels],
            "layouts": self.segments.layouts.state(),
            "secret": [hex(int(half)) for half in self._secret],
            "segments": self.segments.places,
        }
        arrays = {f"open.{name}": array for name, array in opened.items()}
        return header, arrays | {"fates": ledger.fates[held], "labels": ledger.labels[held]}

    @property
    def files(self) -> set[str]:
        """The names of the files that the last `state` needs."""
        return set(map(self._file, self.segments.saved))

    def _file(self, first: int) -> str:
        """The name of the file of a segment."""
        return f"{int(self._secret[0]):016x}-{first}.npz"

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
        self.segments.layouts.restore(header["layouts"])
        for label in decode_labels(header["labels"]):
            self._number(label)
        numbers = {name: int(header["numbers"][name]) for name in _NUMBERS}
        places = [(int(first), int(n)) for first, n in header["segments"]]
        begin = places[0][0] if places else numbers["next"]
        ends = [first + n for first, n in places]
        if [first for first, _ in places] != [begin, *ends][: len(places)] or [begin, *ends][-1] != numbers["next"]:
            raise ValueError("segments that do not follow one another")
        ledger, n = self.slots.ledger, numbers["next"] - begin
        self.slots.begin(begin, n)
        ledger.fates[:n], ledger.labels[:n] = arrays["fates"], arrays["labels"]
        for first, size in places:
            is_last = first == places[-1][0]
            found = under(arrays, "open.") if is_last else read_segment(folder / self._file(first))
            here = slice(first - begin, first - begin + size)
            self.slots.restore(here, found)
            self.segments.restore(first, ~self._holds(ledger.fates[here]), found, saved=not is_last)
        for name, number in numbers.items():
            setattr(ledger, name, number)
        self._check(n, numbers)
        ledger.held = int(ledger.sizes[:n][self._holds(ledger.fates[:n])].sum())
        ledger.n_classes = len(self.labels)
        self.slots.fit(0, begin)
        self.slots.fill_table()

    def _holds(self, fates: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which slots something waits with."""
        holds: NDArray[np.bool_] = (fates == kernels.WAITING) | (self.relearns & (fates == kernels.ANSWERED))
        return holds

    def _check(self, n: int, numbers: Mapping[str, int]) -> None:
        """Refuse what no store can have left."""
        ledger = self.slots.ledger
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
