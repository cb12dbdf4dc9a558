"""Label join of a key: events waiting for labels, and labels that came first."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

import orjson

from streamsvm.models.archive import decode_label, encode_label


class Entry(NamedTuple):
    """Event that waits for its label, or label that waits for its event.

    Parameters
    ----------
    label
        The label, or the predicted label of the event.
    score
        The probability of the predicted label.
    x
        Features by name; None for a label.
    """

    label: Any
    score: float | None = None
    x: dict[str, Any] | None = None


class PendingEntries:
    """Waiting events and labels by join value, the oldest first.

    An entry is stored as a line of its join value, time and content, separated by tabs. Its content is decoded when it
    is needed, because a key is loaded and saved far more often than one of its labels arrives.

    Parameters
    ----------
    most
        Maximum number of entries; if there are more, the oldest one is dropped.
    timeout_ms
        Maximum waiting time in milliseconds of event time; None for no limit.
    lines
        The lines of the entries.

    Raises
    ------
    ValueError
        If a line has another format.

    Examples
    --------
    >>> pending = PendingEntries(most=2)
    >>> [pending.add(f"order-{i}", Entry("honest", 0.9, {"amount": 10.0 * i}), None) for i in range(3)]
    [False, False, True]
    >>> pending.find("order-0"), pending.find("order-2")
    (None, Entry(label='honest', score=0.9, x={'amount': 20.0}))
    """

    __slots__ = ("_entries", "most", "timeout_ms")

    def __init__(self, most: int, timeout_ms: int | None = None, lines: Iterable[bytes] = ()) -> None:
        self.most, self.timeout_ms = most, timeout_ms
        self._entries: dict[bytes, tuple[int | None, bytes]] = {}
        for line in lines:
            join, time, _ = line.split(b"\t")
            self._entries[join] = int(time) if time else None, line

    @property
    def lines(self) -> list[bytes]:
        """The lines of the entries."""
        return [line for _, line in self._entries.values()]

    def add(self, join: str, entry: Entry, time: int | None) -> bool:
        """Add an entry, and return whether the oldest one was dropped.

        Parameters
        ----------
        join
            The join value; no entry with it is waiting.
        entry
            The entry.
        time
            Event time in milliseconds, None if unknown.

        Raises
        ------
        TypeError
            If a feature has a type that cannot be saved.
        """
        name, content = _name(join), [encode_label(entry.label), entry.score, entry.x]
        columns = name, b"" if time is None else b"%d" % time, orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
        self._entries[name] = time, b"\t".join(columns)
        if len(self._entries) <= self.most:
            return False
        del self._entries[next(iter(self._entries))]
        return True

    def expire(self, now: int | None) -> int:
        """Remove entries that have waited too long, and return their number.

        Parameters
        ----------
        now
            The newest event time of the key.
        """
        n = 0
        if self.timeout_ms is not None and now is not None:
            for time, _ in self._entries.values():
                if time is None or now - time <= self.timeout_ms:
                    break
                n += 1
            for name in list(islice(self._entries, n)):
                del self._entries[name]
        return n

    def find(self, join: str) -> Entry | None:
        """Return the entry with this join value; None if there is none.

        Parameters
        ----------
        join
            The join value.
        """
        found = self._entries.get(_name(join))
        if found is None:
            return None
        label, score, x = orjson.loads(found[1].rpartition(b"\t")[2])
        return Entry(decode_label(label), score, x)

    def remove(self, join: str) -> None:
        """Remove the entry with this join value.

        Parameters
        ----------
        join
            The join value.
        """
        del self._entries[_name(join)]


def _name(join: str) -> bytes:
    """Return a join value without tabs and line breaks."""
    return ascii(join).encode()
