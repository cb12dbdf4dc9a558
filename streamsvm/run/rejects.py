"""Why events were set aside, in few words and numbers however many there are."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable

from connectors.events import Rejected

_VALUES = re.compile(r"(?<=: )('[^']*'|\"[^\"]*\")|\d[\d.,]*")  # what differs between events that share a reason
_MOST_REASONS, _MOST_LAST = 20, 5
_OTHERS = "other reasons"


class Rejects:
    """Counts by reason, and the last events.

    Attributes
    ----------
    reasons
        How many had which, the values in it left out; those that come after 20 others are counted as one.
    last
        The last five.

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
        """Take events."""
        for one in rejected:
            reason = _VALUES.sub("…", one.reason[:300])
            known = reason in self.reasons or len(self.reasons) < _MOST_REASONS
            self.reasons[reason if known else _OTHERS] += 1
            self.last.append(one)
