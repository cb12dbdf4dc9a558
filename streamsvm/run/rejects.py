"""Rejected events by reason, in bounded memory."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable

from connectors.events import Rejected

_VALUES = re.compile(r"(?<=: )('[^']*'|\"[^\"]*\")|\d[\d.,]*")  # values that differ between events with a common reason
_MOST_REASONS, _MOST_LAST = 20, 5
_OTHERS = "other reasons"


class Rejects:
    """Counts of rejected events by reason, and the last events.

    Attributes
    ----------
    reasons
        Number of events by reason, without values; after 20 reasons, others are counted together.
    last
        The last five events.

    Examples
    --------
    >>> rejects = Rejects()
    >>> rejects.add([Rejected(f"'x' is not a number: {text!r}", {"line": 3}) for text in ("oops", "?!")])
    >>> rejects.reasons
    Counter({"'x' is not a number: …": 2})
    """

    def __init__(self) -> None:
        self.reasons: Counter[str] = Counter()
        self.last: deque[Rejected] = deque(maxlen=_MOST_LAST)

    def add(self, rejected: Iterable[Rejected]) -> None:
        """Add rejected events."""
        for one in rejected:
            reason = _VALUES.sub("…", one.reason[:300])
            known = reason in self.reasons or len(self.reasons) < _MOST_REASONS
            self.reasons[reason if known else _OTHERS] += 1
            self.last.append(one)
