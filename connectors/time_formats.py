"""Common time formats other than ISO 8601, to suggest one in messages."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from datetime import datetime

_DATES = (
    *("%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y", "%b %d %Y", "%d %B %Y", "%B %d, %Y"),
)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
_LONGEST = 40


def formats_of(texts: Iterable[str]) -> list[str]:
    """Return the `datetime.strptime` formats that parse all texts.

    The result has two formats if day and month are ambiguous.

    Examples
    --------
    >>> formats_of(["31.12.2023 23:59", "1.1.2024 00:00"])
    ['%d.%m.%Y %H:%M']
    >>> formats_of(["01/02/2024 12:00 AM"])
    ['%d/%m/%Y %I:%M %p', '%m/%d/%Y %I:%M %p']
    >>> formats_of(["1.2.3"]), formats_of(["10.0.0.1"]), formats_of([])
    ([], [], [])
    """
    found: list[str] | None = None
    for text in texts:
        tried = [date + clock for date in _DATES for clock in _CLOCKS] if found is None else found
        found = [form for form in tried if _reads(form, text.strip())]
        if not found:
            break
    return found or []


def _reads(form: str, text: str) -> bool:
    if len(text) > _LONGEST:
        return False
    try:
        datetime.strptime(text, form)
    except ValueError:
        return False
    return True


def options_of(text: str) -> str:
    """Return the command-line options that parse a time, for messages."""
    return " or ".join(f"--set time-format={shlex.quote(form)}" for form in formats_of([text])) or "--set time-format"
