"""Label join of a key: events that wait for labels, and labels that arrived before their events."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import orjson

from streamsvm.models import ArchiveError
from streamsvm.models.archive import decode_label, encode_label

# Time of entries without an event time.
NO_TIME = -(1 << 63)
_ENTRY = struct.Struct("<qIHB")


class Event(NamedTuple):
    """Predicted event that waits for its label.

    Parameters
    ----------
    x
        Features by name.
    prediction, score
        The predicted label and its probability.
    """

    x: dict[str, Any]
    prediction: Any
    score: float | None


class Label(NamedTuple):
    """Label that arrived before its event.

    Parameters
    ----------
    label
        The label.
    """

    label: Any


class Waiting:
    """Waiting events and labels by join value, the oldest first.

    Parameters
    ----------
    most
        Maximum number of entries; if there are more, the oldest one is dropped.
    wait
        Maximum waiting time in milliseconds of event time; None for no limit.

    Attributes
    ----------
    n_expired, n_dropped
        Number of entries that waited too long, or were dropped.

    Examples
    --------
    >>> waiting = Waiting(most=2)
    >>> for i in range(3):
    ...     waiting.add(f"order-{i}", Event({"amount": 10.0 * i}, "honest", 0.9), NO_TIME)
    >>> waiting.pop("order-0"), waiting.pop("order-2"), waiting.n_dropped
    (None, Event(x={'amount': 20.0}, prediction='honest', score=0.9), 1)
    """

    __slots__ = ("_entries", "most", "n_dropped", "n_expired", "wait")

    def __init__(self, most: int, wait: int | None = None) -> None:
        self.most, self.wait = most, wait
        self.n_expired = self.n_dropped = 0
        # Entries are stored packed, because a key is packed far more often than one of its labels arrives.
        self._entries: dict[str, tuple[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, join: str) -> bool:
        return join in self._entries

    def is_label(self, join: str) -> bool:
        """Return whether a label waits with this join value.

        Parameters
        ----------
        join
            The join value.
        """
        found = self._entries.get(join)
        return found is not None and bool(_ENTRY.unpack_from(found[1])[3])

    def add(self, join: str, what: Event | Label, time: int) -> None:
        """Add an entry, unless one with this join value is waiting.

        Parameters
        ----------
        join
            The join value.
        what
            An event or a label.
        time
            Event time in milliseconds, `NO_TIME` if unknown.

        Raises
        ------
        TypeError
            If a feature has a type that cannot be saved.
        ValueError
            If the join value is longer than 65,535 bytes.
        """
        if join in self._entries:
            return
        is_label = isinstance(what, Label)
        said = what.label if isinstance(what, Label) else what.prediction
        content = [encode_label(said)] if isinstance(what, Label) else [encode_label(said), what.score, what.x]
        payload, name = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY), join.encode("utf-8", "surrogatepass")
        if len(name) > 0xFFFF:
            raise ValueError(f"what events and labels are joined by takes {len(name)} bytes, at most 65535 are allowed")
        self._entries[join] = time, _ENTRY.pack(time, len(payload), len(name), is_label) + name + payload
        if len(self._entries) > self.most:
            self.n_dropped += 1
            del self._entries[next(iter(self._entries))]

    def expire(self, now: int) -> None:
        """Remove entries that have waited too long.

        Parameters
        ----------
        now
            The newest event time of the key.
        """
        if self.wait is None or now == NO_TIME:
            return
        while self._entries:
            join, (time, _) = next(iter(self._entries.items()))
            if time == NO_TIME or now - time <= self.wait:
                return
            self.n_expired += 1
            del self._entries[join]

    def pop(self, join: str) -> Event | Label | None:
        """Remove and return the entry with this join value; None if there is none.

        Parameters
        ----------
        join
            The join value.
        """
        found = self._entries.pop(join, None)
        if found is None:
            return None
        _, n_payload, _, is_label = _ENTRY.unpack_from(found[1])
        content = orjson.loads(found[1][-n_payload:])
        if is_label:
            return Label(decode_label(content[0]))
        return Event(content[2], decode_label(content[0]), content[1])

    def pack(self) -> bytes:
        """Return all entries as a section of a state."""
        return b"".join([entry for _, entry in self._entries.values()])

    def unpack(self, section: bytes) -> None:
        """Load the result of `pack`.

        Parameters
        ----------
        section
            The section.

        Raises
        ------
        ArchiveError
            If the section is corrupt.
        """
        at = 0
        while at < len(section):
            if at + _ENTRY.size > len(section):
                raise ArchiveError("what waits for labels ends in the middle")
            time, n_payload, n_name, _ = _ENTRY.unpack_from(section, at)
            end = at + _ENTRY.size + n_name + n_payload
            if end > len(section):
                raise ArchiveError("what waits for labels ends in the middle")
            name = section[at + _ENTRY.size : at + _ENTRY.size + n_name].decode("utf-8", "surrogatepass")
            self._entries[name] = time, section[at:end]
            at = end
