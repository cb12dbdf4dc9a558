"""Events of a key that wait for their labels, and labels that came before their events, inside the state of the key."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import orjson

from streamsvm.models import ArchiveError
from streamsvm.models.archive import decode_label, encode_label

# The time of what came with none.
NO_TIME = -(1 << 63)
_ENTRY = struct.Struct("<qIHB")


class Event(NamedTuple):
    """An event as it was predicted.

    Parameters
    ----------
    x
        Its features.
    prediction, score
        The label predicted, and its probability.
    """

    x: dict[str, Any]
    prediction: Any
    score: float | None


class Label(NamedTuple):
    """A label whose event has not come.

    Parameters
    ----------
    label
        The label.
    """

    label: Any


class Waiting:
    """What waits, by what events and labels are joined by; the oldest first.

    Parameters
    ----------
    most
        So much may wait; then what came first gives way.
    wait
        For so many milliseconds, by the times of the key; None for as long as there is room.

    Attributes
    ----------
    n_expired, n_dropped
        How much has waited too long, or given way.

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
        # As they are packed: most keys are packed far more often than one of their labels comes.
        self._entries: dict[str, tuple[int, bytes]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, join: str) -> bool:
        return join in self._entries

    def is_label(self, join: str) -> bool:
        """Whether a label waits under a name, and not an event.

        Parameters
        ----------
        join
            The name.
        """
        found = self._entries.get(join)
        return found is not None and bool(_ENTRY.unpack_from(found[1])[3])

    def add(self, join: str, what: Event | Label, time: int) -> None:
        """Let something wait; of two under the same name the first one does.

        Parameters
        ----------
        join
            The name.
        what
            An event or a label.
        time
            In milliseconds; `NO_TIME` where there is none.

        Raises
        ------
        TypeError
            Where a feature is of a type that cannot be saved.
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
        """Forget what has waited too long.

        Parameters
        ----------
        now
            The newest time of the key.
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
        """What waits under a name, and does so no longer; None where there is nothing.

        Parameters
        ----------
        join
            The name.
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
        """All that waits as a section."""
        return b"".join([entry for _, entry in self._entries.values()])

    def unpack(self, section: bytes) -> None:
        """Take what `pack` gave.

        Parameters
        ----------
        section
            The section.

        Raises
        ------
        ArchiveError
            Where it is no such section.
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
