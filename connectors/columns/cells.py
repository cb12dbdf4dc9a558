"""Text cells: missing values, numbers and labels, and how messages show a cell."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

from connectors.notices import Notices

logger = logging.getLogger("connectors")

_WORDS = (
    *("", "?", "na", "n/a", "<na>", "nan", "-nan", "nat", "null", "none", "nil", "\\n"),
    *("#n/a", "#n/a n/a", "#na", "#div/0!", "#value!", "#ref!", "#name?", "#num!", "#null!"),
    *("1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"),
)
MISSING = frozenset(
    "".join(letters)
    for text in _WORDS
    for letters in product(*(dict.fromkeys((letter, letter.upper())) for letter in text))
)
"""Markers of missing numbers, categories and labels, in any case.

pandas has most of them.
"""
MISSING_NUMBERS = MISSING | {"-", "--", "---", ".", "..", "..."}
"""Markers of missing numbers and times.

The additional ones may be categories or labels, such as ``+`` and ``-``.
"""

_WORD = "none"  # also a frequent class name
_PLAINLY_MISSING = frozenset({"", "?"})

Cells = Sequence[str]
Bad = dict[int, str]
"""Why an event cannot be taken, by row number."""

# Kinds of columns that are read at once: numbers with NaN if missing; mostly distinct texts; repeated texts, each
# stored once; a list of texts.
NUMBERS, APART, CODED, LISTED = "numbers", "apart", "coded", "listed"

FURTHEST_MS = 1 << 62
"""Bound of times, so that the difference of two of them fits in 64 bits."""

_SHOWN = 80


_MEMO_SIZE = 1 << 16


def is_missing(cell: str, missing: frozenset[str] = MISSING_NUMBERS) -> bool:
    """Return whether a numeric cell is missing, ignoring surrounding white space."""
    return cell in missing or cell.strip() in missing


def shown(value: Any) -> str:
    """Return the repr of a value, truncated for use in a message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def listed(names: Iterable[Any], most: int, form: Callable[[Any], str] = repr) -> str:
    """Return the first names for use in a message, and the number of the others.

    Examples
    --------
    >>> listed("ab", 2), listed(range(1_009), 3)
    ("'a', 'b'", '0, 1, 2 and 1,006 more')
    """
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(map(form, every[:most])) + more


class Memo(dict[Any, Any]):
    """Dictionary that converts a text on first access and caches the result.

    It is cleared when it grows too large.

    Parameters
    ----------
    convert
        Function that converts a text.
    """

    def __init__(self, convert: Callable[[str], Any]) -> None:
        super().__init__()
        self._convert = convert

    def __missing__(self, text: str) -> Any:
        value = self._convert(text)
        if len(self) > _MEMO_SIZE:
            self.clear()
        self[text] = value
        return value


def number_of(value: Any) -> float:
    """Convert a value to float.

    Texts such as ``1_000``, which Python accepts as numbers, are identifiers here.

    Raises
    ------
    ValueError
        If the value is not a number.
    """
    if isinstance(value, str) and "_" in value:
        raise ValueError(f"not a number: {shown(value)}")
    return float(value)


def is_number(cell: str) -> bool:
    """Return whether a text is a number in Python format."""
    try:
        number_of(cell)
    except ValueError:
        return False
    return True


def label_of(text: str) -> int | str:
    """Convert a label to int if that is reversible, so that labels stay distinct.

    Examples
    --------
    >>> label_of("7"), label_of("07"), label_of("7.0")
    (7, '07', '7.0')
    """
    try:
        number = int(text)
    except ValueError:
        return text
    return number if str(number) == text else text


class Labels(Memo):
    """Cache of labels by text, with None for missing labels.

    Texts that may be either a class or a missing label are logged.

    Parameters
    ----------
    missing
        Markers of missing labels.
    notices
        Collection of warnings.
    convert
        Function that converts other texts.
    """

    def __init__(self, missing: frozenset[str], notices: Notices, convert: Callable[[str], Any] = label_of) -> None:
        super().__init__(self._meaning)
        self._missing, self._notices, self._label_of = missing, notices, convert
        self._reported: set[str] = set()

    def _meaning(self, text: str) -> Any:
        label = None if text in self._missing else self._label_of(text)
        if label is None and text not in _PLAINLY_MISSING | self._reported:
            self._reported.add(text)
            if text.casefold() == _WORD and self._missing == MISSING:
                self._notices.warn(
                    f"the label {text!r} is taken as missing, so that its events have no label: --set missing='?' "
                    "makes it a class (and leaves only the empty text and ? missing)"
                )
            else:
                logger.info("the label %r is taken as missing; if it names a class, set missing= to other texts", text)
        elif text in MISSING_NUMBERS and label is not None and self._missing == MISSING:
            logger.info(
                "the label %r is taken as a class; if it stands for a missing label, set missing=%s", text, text
            )
        return label
