"""Bounded store of pending events by key, in arrays that are saved incrementally."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from connectors.outputs.results import make_directory
from streamsvm.delayed import label_join as kernels
from streamsvm.delayed.digests import ENTRY_POINTS
from streamsvm.delayed.segments import Segment
from streamsvm.delayed.slot_contents import SlotContents
from streamsvm.delayed.slots import RECORD, SLOT_BYTES
from streamsvm.delayed.stored_features import OBJECT, PaddedKeys, padded
from streamsvm.features.rows import Ints
from streamsvm.labels import LabelCodes
from streamsvm.models.archive import decode_labels, encode_label, read_archive, write_archive
from streamsvm.models.codec import SavedState, nested, part_of
from streamsvm.parameters import ParameterError

if TYPE_CHECKING:
    from streamsvm.delayed.single import SingleRow

_LEAST = 8  # least number of events that must fit
SPARE = 256  # number of single events and labels that room is made for at a time
_CLASS = "Segment"
_SECRET_BYTES = 16
_EVENT = Struct("5qd")
_ZEROS = [bytes(-n % 8) for n in range(8)]
_WORDS = RECORD.itemsize // 8


class TooSmall(ValueError):
    """The bound on bytes is too small to store any events.

    Attributes
    ----------
    size
        Bytes that an event takes, at least.
    """

    def __init__(self, message: str, size: int = 0) -> None:
        super().__init__(message)
        self.size = size


class Store(SlotContents):
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
    folder
        Folder that stores rows, keys and memories on disk, in files without a name; these bytes are not counted. The
        record of each slot, about 125 bytes, stays in memory. None for memory only.

    Attributes
    ----------
    labels
        Numbers of all labels, in order of first arrival.
    """

    def __init__(
        self,
        *,
        wait_ms: int | None = None,
        most: int = 1_000_000,
        most_bytes: int = 1 << 30,
        keeps_objects: bool = False,
        relearns: bool = False,
        folder: Path | None = None,
    ) -> None:
        if folder is not None and keeps_objects:
            raise ParameterError("folder", "holds no rows that are objects: leave it out")
        super().__init__(keeps_objects, folder)
        self.most_bytes, self.relearns, self.folder = most_bytes, relearns, folder
        self._check_room(0)
        self.labels = LabelCodes()
        self._use_secret(secrets.token_bytes(_SECRET_BYTES))
        # Single events and labels that there is room for, and words of the segment that is open for them.
        self._spare, self._data = 0, bytearray()
        state = self.table.state
        state.most, state.most_bytes, state.slot_bytes, state.relearns = most, most_bytes, SLOT_BYTES, relearns
        state.wait = kernels.NEVER if wait_ms is None else wait_ms

    def configure(self, *, event_bytes: int, class_bytes: int, learns_timeouts: bool) -> None:
        """Prepare for a model.

        Parameters
        ----------
        event_bytes, class_bytes
            Counted bytes of a pending event beside row and key, and for each class seen as a label.
        learns_timeouts
            Whether expired events are learned.
        """
        state = self.table.state
        state.learns_timeouts = learns_timeouts
        if self.folder is None:
            state.word_bytes, state.event_bytes, state.class_bytes = 8, event_bytes, class_bytes

    def _check_room(self, size: int) -> None:
        """Refuse a bound that is too small for a few events."""
        least = _LEAST * (SLOT_BYTES + size)
        if self.most_bytes < least:
            one = f"{SLOT_BYTES + size}{'' if size else ' at least'}"
            raise TooSmall(
                f"{self.most_bytes} bytes are not enough for {_LEAST} waiting events of {one}: "
                f"use at least {least}, better a multiple",
                SLOT_BYTES + size,
            )

    @property
    def n_waiting(self) -> int:
        """Number of events that wait for their label."""
        return int(self.table.state.n_pending)

    @property
    def counts(self) -> dict[str, int]:
        """Counts of events and labels since the start, and numbers of pending ones.

        labels: arrived. answered: events with their label in time. late: labels of expired events. repeated, corrected:
        further labels of events, equal to the first and different from it. duplicates: events with the key of an
        earlier one. expired: events whose label did not arrive in time. waiting, early: pending events and labels.
        unmatched: labels whose event did not arrive in time. dropped: pending events and labels beyond the bounds.
        """
        n = self.table.state.counts.tolist()
        return {
            "labels": sum(n[kind] for kind in kernels.LABELS),
            "answered": n[kernels.IN_TIME],
            "late": n[kernels.LATE],
            "repeated": n[kernels.REPEATED],
            "corrected": n[kernels.CORRECTED] + n[kernels.DIFFERENT],
            "duplicates": n[kernels.DUPLICATE],
            "expired": n[kernels.TIMEOUT],
            "waiting": self.n_waiting,
            "early": int(self.table.state.n_early),
            "unmatched": n[kernels.UNMATCHED],
            "dropped": n[kernels.DROPPED] + n[kernels.LOST],
        }

    @property
    def clock(self) -> int:
        """Newest time so far, in milliseconds; 0 before the first."""
        return max(0, int(self.table.state.clock))

    @property
    def n_bytes(self) -> int:
        """Memory in use."""
        return self.table.n_bytes + self.segments.n_bytes

    # Events and labels ------------------------------------------------------------------------------------------------

    def digests(self, keys: PaddedKeys) -> NDArray[np.uint64]:
        """Return 128-bit digests of keys that differ between stores, shape (n, 2)."""
        found = np.empty((len(keys.sizes), 2), np.uint64)
        ENTRY_POINTS["digest_keys"](self.table.state, keys.words, keys.sizes, found)
        return found

    def run(self, digests: NDArray[np.uint64], times: Ints, labels: Ints, sizes: Ints) -> Ints:
        """Process events (label -1) and labels in order; return the journal.

        The next call overwrites it.

        Raises
        ------
        TooSmall
            If there is no room for a few events like the first.
        """
        self._spare = 0
        self._make_room(len(times), sizes)
        return self.table.run(digests, times, labels, sizes)

    def is_simple(self, key: bytes, time: int) -> bool:
        """Return whether the learner has to learn no other event with a single event."""
        return bool(self.table.is_simple(self.table.address, padded(key), len(key), time))

    def add_one(self, key: bytes, time: int, x: Any, row: bytes, found: bytes, about: Sequence[Any]) -> int:
        """Store a single event; return 1 if it is pending, plus 2 if others leave.

        Parameters
        ----------
        key, time
            The event.
        x
            Its features, which are copied if rows are stored as objects.
        row, found
            Words of its row, and its probabilities with the memory.
        about
            Layout, predicted class and its probability.
        """
        table, own, (layout, code, score) = self.table, padded(key), about
        data, slot, words = self._open(len(row) + len(own)), table.next[()], b"".join((row, own, found))
        packed = _EVENT.pack(layout, len(data) >> 3, len(row) >> 3, len(words) >> 3, code, score)
        kind: int = table.add_event(table.address, own, len(key), time, packed)
        if kind & 1:
            data += words
            if self.keeps_objects:
                self._objects[slot] = dict(x)
        return kind

    def predict_one(self, single: SingleRow, row: bytes, key: bytes, time: int, decide: Any) -> int:
        """Predict, process and store a single event.

        Parameters
        ----------
        single
            The learner, which gets the prediction.
        row, key, time
            The event; its row has the values of the first columns of the learner.
        decide
            Function that returns the decision and the words to store; None without costs.

        Returns
        -------
        int
            See `single_join.predict_event`.
        """
        table, n_key = self.table, len(key)
        own = key + _ZEROS[n_key & 7]
        data = self._open(len(row) + len(own))
        kind: int = table.predict_event(table.address, single.address, row, own, n_key, time, len(data) >> 3)
        if kind >= 0:
            found = single.found if decide is None else decide(single)
            if kind & 1:
                data += b"".join((row, own, found))
        return kind

    def _open(self, n_bytes: int) -> bytearray:
        """Make room for an event or a label; return the data of the open segment."""
        if not self._spare:
            self.trim()
            self._make_room(SPARE, np.array([n_bytes and n_bytes + int(self.table.state.event_bytes)]))
            slot = self.table.next[()]
            self._data, self._spare = self.segments.open_at(slot), min(SPARE, self.segments.room(slot))
        self._spare -= 1
        return self._data

    def expire(self, time: int) -> Ints:
        """Expire events up to a time; return the journal."""
        self.table.expire_events(self.table.address, time)
        return self.table.journal

    def label_one(self, key: bytes, time: int, label: int) -> int:
        """Process a single label; return its kind in the journal.

        See `single_join.add_label`.
        """
        self._open(0)
        n_key = len(key)
        found: int = self.table.add_label(self.table.address, key + _ZEROS[n_key & 7], n_key, time, label)
        return found

    def _use_secret(self, secret: bytes) -> None:
        """Use the secret of the digests, which also begins the names of files."""
        self._secret, state = secret, self.table.state
        state.secret_low, state.secret_high = np.frombuffer(secret, np.int64).tolist()

    def _make_room(self, n: int, sizes: Ints) -> None:
        """Make room for n events and labels."""
        state = self.table.state
        if self.folder is None and not state.next and len(first := sizes[sizes > 0]):
            self._check_room(int(first[0]))
        self.table.make_room(n, self._begin)

    @property
    def _begin(self) -> int:
        """First slot that is remembered or has a segment."""
        return min(int(self.table.state.known), self.segments.all[0].first)

    def trim(self) -> None:
        """Free memory of forgotten slots: whole segments always, others if necessary."""
        self.segments.trim(self.most_bytes - self.table.n_bytes)
        self.table.drop_before(self._begin, 0.5 if self.n_bytes <= self.most_bytes else 0.125)

    # Saving -----------------------------------------------------------------------------------------------------------

    def state(self, folder: Path) -> SavedState:
        """Return a JSON header and arrays of everything except closed segments.

        Closed segments do not change. Each is written once, durably, to a file in the folder; `files` names them.
        """
        if self._objects:
            raise TypeError("rows that are objects cannot be saved")
        self.trim()
        self._spare = 0
        self.segments.compact(len(self.segments.all) - 1, 0.0)
        if not folder.is_dir():
            make_directory(folder)
        for i, segment in enumerate(self.segments.all[:-1]):
            if not segment.is_saved:
                write_archive(folder / self._file(segment), {"class": _CLASS}, self._segment(i))
                segment.is_saved = True
        records = self.table.of(self.segments.all[0].first, int(self.table.state.next))
        header = {
            "labels": [encode_label(label) for label in self.labels],
            "layouts": self.layouts.state(),
            "secret_of_digests": self._secret.hex(),
            "segments": [segment.first for segment in self.segments.all],
        }
        changing = {"status": records["status"], "label": records["label"]}
        own = {"table": self.table.state.saved(), "open": self._segment(-1), "slots": changing}
        return nested({name: ({}, arrays) for name, arrays in own.items()}, header)

    def _segment(self, i: int) -> dict[str, NDArray[Any]]:
        """Return the arrays of a segment."""
        i %= len(self.segments.all)
        segment = self.segments.all[i]
        records = self.table.of(segment.first, self.segments.end(i))
        return {"data": np.frombuffer(segment.data, np.uint8), "records": records.view(np.int64).reshape(-1, _WORDS)}

    @property
    def files(self) -> set[str]:
        """Names of the files that the last `state` needs."""
        return {self._file(segment) for segment in self.segments.all if segment.is_saved}

    def _file(self, segment: Segment) -> str:
        return f"{self._secret.hex()}-{segment.first}.safetensors"

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], folder: Path) -> None:
        """Restore the result of `state` into an empty store.

        Raises
        ------
        ValueError, LookupError, TypeError, OSError
            If the state is invalid or a file is missing.
        """
        self._use_secret(bytes.fromhex(header["secret_of_digests"]))
        self._spare = 0
        self.layouts.restore(header["layouts"])
        self.labels = LabelCodes.of_labels(decode_labels(header["labels"]))
        state, found = (dict(header), dict(arrays)), []
        self.segments.all = [Segment(int(first)) for first in header["segments"]]
        for segment in self.segments.all[:-1]:
            kind, held = read_archive(folder / self._file(segment))
            if kind.get("class") != _CLASS:
                raise ValueError(f"{folder / self._file(segment)} holds no segment")
            segment.is_saved = True
            found.append(held)
        found.append(part_of(state, "open")[1])
        records = np.concatenate([records_of(held["records"]) for held in found])
        for name in ("status", "label"):
            records[name] = part_of(state, "slots")[1][name]
        firsts = [segment.first for segment in self.segments.all]
        ends = np.cumsum([firsts[0], *(len(held["records"]) for held in found)]).tolist()
        if firsts != ends[:-1] or not np.isin(records["label"], range(-1, len(self.labels))).all():
            raise ValueError("segments that do not follow one another, or unknown labels")
        self.table.restore(part_of(state, "table")[1], records, firsts[0])
        for i, (segment, held) in enumerate(zip(self.segments.all, found, strict=True)):
            segment.data = bytearray(held["data"].tobytes())
            self._check(segment, records[firsts[i] - firsts[0] : ends[i + 1] - firsts[0]])
            self.segments.restore(i)

    def _check(self, segment: Segment, records: NDArray[Any]) -> None:
        """Refuse records that do not fit the words of their segment."""
        held = records[self.segments.holds(records["status"])]
        row, key, n = (held[name].astype(np.int64) for name in ("n_row", "n_key", "n_words"))
        if len(segment.data) % 8 or ((held["start"] < 0) | (held["start"] + n > len(segment.data) // 8)).any():
            raise ValueError("events beyond the end of their segment")
        if ((row < 0) | (key < 0) | (row - key // -8 > n)).any():
            raise ValueError("rows and keys that do not fit their events")
        widths = np.array([len(names) if plain else -1 for names, plain in self.layouts.names], np.int64)
        layout = held["layout"]
        if ((layout < OBJECT) | (layout >= len(widths))).any():
            raise ValueError("rows of unknown layouts")
        plain = (layout >= 0) & (np.append(widths, -1)[layout] >= 0)
        if (np.append(widths, -1)[layout][plain] != row[plain]).any():
            raise ValueError("rows of another number of values than their names")


def records_of(words: NDArray[Any]) -> NDArray[Any]:
    """Return records from their saved words."""
    if words.dtype != np.int64 or words.ndim != 2 or words.shape[1] != _WORDS:
        raise ValueError("slots of another kind")
    return words.reshape(-1).view(RECORD)
