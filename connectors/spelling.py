"""Numbers in another spelling: decimal commas, thousands separators, currencies, percentages, hexadecimal."""

from __future__ import annotations

import functools
import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

logger = logging.getLogger("connectors")

CURRENCIES = "$€£¥₹"
_SPACES = " \u00a0\u2009\u202f"
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]{1,16}")
_ADDRESS = re.compile(r"\s*\d{1,3}(\.\d{1,3}){3}\s*")  # of a computer, not a number
_NAMES = {" ": "space", ".": ".", ",": ",", "'": "'"}
# A sentinel is in at least so many cells, and such a share of them.
_LEAST_SENTINELS, _SENTINEL_SHARE = 5, 0.01
# It lies so many times the range of the other values away from them.
_FAR = 3.0
_MEMO_SIZE = 1 << 16
_SENTINEL = re.compile(r"-?9{3,}(\.[09]*)?|-1(\.0*)?[eE]\+?30|-(32768|2147483648)(\.0*)?")


@dataclass(frozen=True)
class Spelling:
    """How the numbers of a column are written.

    Parameters
    ----------
    decimal
        The decimal separator.
    thousands
        The separator of thousands, or nothing. A space stands for spaces of every width.

    Examples
    --------
    >>> Spelling(",", ".").plain("1.234,56")
    '1234.56'
    >>> Spelling(".", ",").plain("$1,234.50"), Spelling().plain("0xff"), Spelling().plain("5.1 %")
    ('1234.50', '255', '5.1')
    """

    decimal: str = "."
    thousands: str = ""

    def plain(self, cell: str) -> str:
        """The number as Python reads it; the cell as it is if it is not written in this way."""
        found = _pattern(self.decimal, self.thousands).fullmatch(cell)
        if found is None:
            text = cell.strip()
            return str(int(text, 16)) if _HEXADECIMAL.fullmatch(text) else cell
        whole, fraction, exponent = found["whole"], found["fraction"] or "", found["exponent"] or ""
        digits = "".join(filter(str.isdigit, whole))
        sign = "-" if "-" in found["signs"] else ""
        return f"{sign}{digits or '0'}{'.' + fraction[1:] if fraction else ''}{exponent}"

    def reads(self, cell: str) -> bool:
        """Whether a cell is a number that is written in this way."""
        return bool(_pattern(self.decimal, self.thousands).fullmatch(cell) or _HEXADECIMAL.fullmatch(cell.strip()))

    def options(self, name: str) -> str:
        """The options that say so of a column."""
        if self == Spelling():
            return f"--types {name}:number"
        thousands = f" --thousands {_NAMES[self.thousands]}" if self.thousands else ""
        return f"--decimal {self.decimal}{thousands}"


@functools.cache
def _pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    point = re.escape(decimal)
    separator = f"[{_SPACES}]" if thousands == " " else re.escape(thousands)
    grouped = rf"[1-9]\d{{0,2}}(?:{separator}\d{{3}})+|" if thousands else ""
    unit = f"[{_SPACES}]*[{CURRENCIES}]?[{_SPACES}]*"
    return re.compile(
        rf"(?P<signs>[{_SPACES}]*[+-]?{unit}[+-]?)(?P<whole>{grouped}\d+|(?={point}\d))(?P<fraction>{point}\d*)?"
        rf"(?P<exponent>[eE][+-]?\d+)?{unit}%?[{_SPACES}]*"
    )


SPELLINGS = (
    *(Spelling(), Spelling(","), Spelling(".", ","), Spelling(".", " "), Spelling(".", "'")),
    *(Spelling(",", "."), Spelling(",", " ")),
)
"""The spellings that are tried; the simplest come first."""


def declared(decimal: str | None, thousands: str | None) -> Spelling | None:
    """The spelling that options say, or None.

    Raises
    ------
    ValueError
        If they do not fit.
    """
    if decimal is None and thousands is None:
        return None
    point, separator = decimal or ".", {"space": " "}.get(thousands or "", thousands or "")
    if point not in (".", ","):
        raise ValueError(f"option `decimal` must be . or , got {decimal!r}")
    if separator not in ("", *_NAMES) or separator == point:
        raise ValueError(
            f"option `thousands` must be one of , . ' space, and not the decimal {point}, got {thousands!r}"
        )
    return Spelling(point, separator)


def guess(name: str, cells: Iterable[str], are_numbers: bool = False) -> Spelling | None:
    """The one spelling in which nearly all cells of a column are numbers; it is said once. None where there is none.

    Parameters
    ----------
    name
        The column.
    cells
        Its first cells, without missing ones.
    are_numbers
        Whether the column is declared as numbers.

    Raises
    ------
    ValueError
        If it is, and the numbers have two meanings.
    """
    there = list(cells)
    if there and all(map(_ADDRESS.fullmatch, there)):
        return None
    counts = {spelling: sum(map(spelling.reads, there)) for spelling in SPELLINGS}
    most = max(counts.values(), default=0)
    if not there or 10 * most < 9 * len(there):
        return None
    readings = {
        tuple(map(spelling.plain, there)): spelling for spelling in reversed(SPELLINGS) if counts[spelling] == most
    }
    found = list(readings.values())[::-1]
    example = repr(next(cell for cell in there if found[0].reads(cell)))
    if len(found) > 1:
        options = " or ".join(spelling.options(name) for spelling in found)
        if are_numbers:
            raise ValueError(f"column {name!r}: numbers such as {example} have two meanings: say {options}")
        logger.warning(
            "column %r: numbers such as %s have two meanings, and are read as categories: say %s",
            *(name, example, options),
        )
        return None
    logger.warning(
        "column %r: texts such as %s are read as numbers (%s says so); --types %s:category keeps them as texts",
        *(name, example, found[0].options(name), name),
    )
    return found[0]


def warn_of_sentinels(name: str, values: Sequence[float], cells: Sequence[str]) -> None:
    """Warn of a value such as -9999 that stands for missing ones, by its look and its distance from the others.

    Parameters
    ----------
    name
        The column.
    values, cells
        Its first numbers, NaN where missing, and how they are written.
    """
    counts = Counter(value for value in values if math.isfinite(value))
    texts = {value: cell.strip() for cell, value in zip(cells, values, strict=True)}
    candidates = {value for value in counts if _SENTINEL.fullmatch(texts[value])}
    rest = counts.keys() - candidates
    for value in sorted(candidates) if rest else ():
        share, distance = counts[value] / counts.total(), max(min(rest) - value, value - max(rest))
        is_frequent = counts[value] >= _LEAST_SENTINELS and share >= _SENTINEL_SHARE
        if is_frequent and distance > _FAR * (max(rest) - min(rest)):
            logger.warning(
                "column %r: %s in %.0f %% of its first cells looks like a missing value, and is learned as a number: "
                "--missing=%s declares it (with other markers, if there are: --missing replaces the default ones)",
                *(name, texts[value], 100.0 * share, texts[value]),
            )


class SpelledNumbers(dict[str, float]):
    """The numbers of texts in a spelling, remembered; a `KeyError` where a text is none.

    Parameters
    ----------
    spelling
        How they are written.
    """

    def __init__(self, spelling: Spelling) -> None:
        super().__init__()
        self.spelling = spelling

    def __missing__(self, text: str) -> float:
        if not self.spelling.reads(text):
            raise KeyError(text)
        if len(self) > _MEMO_SIZE:
            self.clear()
        number = self[text] = float(self.spelling.plain(text))
        return number
