"""Bounded store of pending events by key, in arrays that are saved incrementally."""

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

# A pending slot takes more in its segment, because it stores the ends of five rows of different lengths.
WAITING_BYTES = 5 * 8 + 5
_LEAST = 8  # least number of events that must fit
_SPARE = 64  # number of single events and labels that room is made for at a time
_NUMBERS = ("clock", "next", "first", "known", "n_waiting", "n_early", "n_known", "n_orphans", "n_dropped")


@dataclass(slots=True)
class Settled:
    """Results of consecutive events and labels.

    Parameters
    ----------
    first, end
        Range in the batch.
    fates, slots, labels, lags
        Result of each, as defined in `streamsvm.delayed.label_join`; its slot; the number of its label; and label time
        minus event time.
    left, expired, left_before
        Slots of events that left, whether they expired (or were dropped), and the position in the batch before which
        each left.
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
    """The bound on bytes is too small to store any events."""


class Store:
    """Pending events, and labels whose events have not arrived.

    Parameters
    ----------
    wait_ms
        How long an event waits, in milliseconds of event time; None for as long as there is room. It is remembered for
        another `wait_ms`.
    most
        Greatest number of pending events and labels; beyond it the oldest is dropped.
    most_bytes
        Greatest memory, without some MiB of the open segment. Beyond it the oldest event goes: a pending one is
        dropped, a labelled one is forgotten.
    keeps_objects
        Whether rows are stored as objects, whose bytes are not counted.
    relearns
        Whether rows of labelled events are kept as long as the events are remembered.
    n_origins
        Number of integers that identify the origin of an event.
    folder
        Folder that stores rows, keys and memories on disk, in files without a name; these bytes are not counted. The
        columns of each slot, about 100 bytes, stay in memory. None for memory only.
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
        """All labels, in order of first arrival."""
        self._numbers: dict[Any, int] = {}
        self._secret = np.array([secrets.randbits(64), secrets.randbits(64)], np.uint64)
        self.segments = Segments(folder, keeps_objects=keeps_objects)
        self._spare, self._one = 0, (np.zeros((1, 2), np.uint64), *np.zeros((7, 1), np.int64))
        self.slots = SlotTable(n_origins)
        ledger = self.slots.ledger
        ledger.most, ledger.most_bytes = most, most_bytes
        ledger.slot_bytes, ledger.relearns = self._fixed_bytes, int(relearns)
        if wait_ms is not None:
            ledger.wait = wait_ms

    def _check_room(self, size: int) -> None:
        """Refuse a bound that is too small for a few events."""
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
        """Number of events that wait for their label."""
        return int(self.slots.ledger.n_waiting)

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of pending events, early labels, expired early labels, and dropped slots."""
        names = {"waiting": "n_waiting", "early": "n_early", "orphans": "n_orphans", "dropped": "n_dropped"}
        return {name: int(getattr(self.slots.ledger, number)) for name, number in names.items()}

    @property
    def clock(self) -> int:
        """Newest time so far, in milliseconds; 0 before the first."""
        return max(0, int(self.slots.ledger.clock))

    @property
    def n_bytes(self) -> int:
        """Memory in use."""
        return self.slots.n_bytes + self.segments.n_bytes

    def numbers(self, labels: Sequence[Any]) -> Ints:
        """Return the numbers of labels, adding new ones."""
        found = numbers_of(labels, self._numbers)
        for i in np.flatnonzero(found < 0).tolist():
            found[i] = self.number(labels[i])
        return found

    def number(self, label: Any) -> int:
        """Return the number of a label, adding a new one."""
        if label not in self._numbers:
            self._numbers[label] = len(self.labels)
            self.labels.append(label)
        return self._numbers[label]

    # Events and labels ------------------------------------------------------------------------------------------------

    def digests(self, keys: Sequence[str]) -> NDArray[np.uint64]:
        """Return digests of keys, shape (n, 2)."""
        texts, found = Texts.of(keys), np.empty((len(keys), 2), np.uint64)
        _call("digest")(texts.data, np.cumsum(texts.lengths), self._secret, found)
        return found

    def sizes(self, rows: Packed, keys: Texts, n_numbers: int) -> Ints:
        """Return the bytes of pending events with `n_numbers` numbers beside rows and keys.

        Raises
        ------
        TooSmall
            If there is no room for a few events like the first.
        """
        if self.folder is not None:
            return np.zeros(len(keys), np.int64)
        sizes = rows.sizes + keys.lengths + 8 * n_numbers
        if len(sizes) and not self.slots.ledger.next:
            self._check_room(int(sizes[0]))
        return sizes

    def settle(
        self,
        digests: NDArray[np.uint64],
        times: Ints,
        labels: Ints,
        sizes: Ints,
        class_bytes: int = 0,
        settled: Settled | None = None,
    ) -> Iterator[Settled]:
        """Process events (label -1) and labels in order, after those that are settled; yield results in parts.

        Each pending event takes `class_bytes` more for each class seen as a label.
        """
        n, first, ledger, is_over = len(times), 0, self.slots.ledger, False
        if settled is not None:
            yield settled
            first, is_over = settled.end, self._is_over
        self._spare, ledger.class_bytes = 0, class_bytes if self.folder is None else 0
        fates, slots, lags = (np.zeros(n, np.int64) for _ in range(3))
        while first < n or is_over:
            self.slots.fit(n - first, self._begin)
            ledger.n_left = 0
            end = _call("settle")(ledger, first, digests, times, labels, sizes, fates, slots, lags)
            is_over = self._is_over
            yield self._settled(slice(first, end), fates, slots, labels, lags)
            first = end

    def settle_one(self, key: bytes, time: int, label: int = -1, size: int = 0, class_bytes: int = 0) -> Settled:
        """Process a single event (label -1) or label as `settle`; return the first part of the result."""
        table = self.slots
        if not self._spare:
            if not table.ledger.next:
                self._check_room(size)
            self.trim()
            table.fit(_SPARE, self._begin)
            self._spare, table.ledger.class_bytes = _SPARE, class_bytes if self.folder is None else 0
        self._spare -= 1
        digests, ends, times, labels, sizes, fates, slots, lags = self._one
        ends[0], times[0], labels[0], sizes[0] = len(key), time, label, size if self.folder is None else 0
        _call("digest")(np.frombuffer(key, np.uint8), ends, self._secret, digests)
        table.n_left[()] = 0
        end = _call("settle")(table.ledger, 0, digests, times, labels, sizes, fates, slots, lags)
        if end and not table.n_left[()]:
            return Settled(0, 1, fates, slots, labels, lags, *_NONE_LEFT)
        return self._settled(slice(0, end), fates, slots, labels, lags)

    @property
    def _is_over(self) -> bool:
        """Whether slots exceed `most_bytes`."""
        ledger = self.slots.ledger
        return int(ledger.held + ledger.slot_bytes * (ledger.next - ledger.known)) > self.most_bytes

    def _settled(self, part: slice, fates: Ints, slots: Ints, labels: Ints, lags: Ints) -> Settled:
        """Return the results of a part, with the slots that left."""
        left, before = self.slots.left[:, : int(self.slots.ledger.n_left)].copy()
        expired = left >= 0
        gone = np.where(expired, left, -1 - left)
        found = fates[part], slots[part], labels[part], lags[part]
        return Settled(part.start, part.stop, *found, gone, expired, before)

    @property
    def _begin(self) -> int:
        """First slot that is remembered or has a segment."""
        known, first = int(self.slots.ledger.known), self.segments.first
        return known if first is None else min(known, first)

    def trim(self) -> None:
        """Free memory of forgotten slots: whole segments always, others if necessary."""
        ledger = self.slots.ledger
        self.segments.drop_before(int(ledger.known))
        self.slots.drop_before(self._begin, 0.5)
        if self.n_bytes > self.most_bytes:
            self.segments.squeeze()
            if self.n_bytes > self.most_bytes:
                self.slots.drop_before(self._begin, SQUEEZED)

    def keys(self, slots: Ints) -> list[str]:
        """Return the keys of events that are pending or have just left."""
        return [key.tobytes().decode("utf-8", "surrogatepass") for key in self.segments.part("keys", slots)]

    # Saving -----------------------------------------------------------------------------------------------------------

    def state(self, folder: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a JSON header and arrays of everything except closed segments.

        Closed segments do not change. Each is written once, durably, to a file in the folder; `files` names them.
        """
        self.trim()
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
        """Names of the files that the last `state` needs."""
        return set(map(self._file, self.segments.saved))

    def _file(self, first: int) -> str:
        """Return the file name of a segment."""
        return f"{int(self._secret[0]):016x}-{first}.npz"

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], folder: Path) -> None:
        """Restore the result of `state` into an empty store.

        Raises
        ------
        ValueError, LookupError, TypeError, OSError
            If the state is invalid or a file is missing.
        """
        self._secret = np.array([int(half, 16) for half in header["secret"]], np.uint64)
        if len(self._secret) != 2:
            raise ValueError("keys are told apart by another secret")
        self.segments.layouts.restore(header["layouts"])
        for label in decode_labels(header["labels"]):
            self.number(label)
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
        """Return which slots have a stored row."""
        holds: NDArray[np.bool_] = (fates == kernels.WAITING) | (self.relearns & (fates == kernels.ANSWERED))
        return holds

    def _check(self, n: int, numbers: Mapping[str, int]) -> None:
        """Refuse invalid states."""
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


_NONE_LEFT = np.zeros(0, np.int64), np.zeros(0, np.bool_), np.zeros(0, np.int64)


def _call(name: str) -> Any:
    return kernels.ENTRY_POINTS[name].compile()
