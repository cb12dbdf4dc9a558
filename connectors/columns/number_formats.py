"""Number formats: decimal commas, thousands separators, units and hexadecimal."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from connectors.columns.cells import MISSING_NUMBERS, Memo, is_number, number_of
from connectors.errors import OptionError

# Excel writes the yen sign of code page 932 as a backslash.
_CURRENCY = r"(?:[$€£¥￥₹\\]|AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HUF|INR|JPY|NOK|NZD|PLN|SEK|USD)"
LONGEST = 64
"""Longer texts are not numbers."""
_UNIT = re.compile(f"%|{_CURRENCY}")
# Minus signs of typography and of Japanese accounts.
_MINUS = dict.fromkeys(map(ord, "\u2212▲△"), "-")
_FALLING = frozenset("▼▽")  # beside them, ▲ marks a rise
_SPACES = " \u00a0\u2009\u202f"
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]{1,16}")
_ADDRESS = re.compile(r"\s*\d{1,3}(\.\d{1,3}){3}\s*")  # an IP address, not a number
_NAMES = {" ": "space", ".": ".", ",": ",", "'": '"\'"'}  # in shell syntax
_MOST_MARKERS, _LEAST_REPEATS, _LEAST_NUMBERS = 2, 5, 10
# A column with fewer distinct numbers may contain codes.
FEWEST_DIFFERENT = 10
_DIGIT = re.compile(r"\d")
_CODE = re.compile(r"\s*([A-Za-z]+)(\s*)(\d+)\s*")
_PUNCTUATION = re.compile(r"[\s._/\\()\[\]<>#?!\u2013\u2014-]")  # in which spellings of a missing value differ
# Numbers in parentheses, and with the minus sign after the digits, are negative.
_NEGATIVE = re.compile(r"\s*(?:\(([^()+-]*)\)|([^()+-]*\d)-)\s*")
# A number with an affix such as a unit. Letters before the number make it an identifier, except currencies.
_BESIDE = re.compile(rf"({_CURRENCY}?" r"[^\w+.,-]*)[+-]*(?:\d+(?:[.,'’]\d+)*|[.,]\d+)([^\d\n]{0,16})")
_MOST_BESIDE = 4


@dataclass(frozen=True)
class NumberFormat:
    """Number format of a column.

    Parameters
    ----------
    decimal
        The decimal separator.
    thousands
        Thousands separator, or an empty string. A space matches spaces of every width.
    unit
        Percent sign or currency of all numbers, or an empty string; None for any. A currency is optional; a percent
        sign is optional for zero.

    Examples
    --------
    >>> NumberFormat(",", ".").plain("1.234,56")
    '1234.56'
    >>> NumberFormat(".", ",").plain("$1,234.50"), NumberFormat().plain("0xff"), NumberFormat().plain("5.1 %")
    ('1234.50', '255', '5.1')
    >>> NumberFormat().plain("(12.5)"), NumberFormat().plain("12.5-")  # negative numbers of accounts and of SAP
    ('-12.5', '-12.5')
    """

    decimal: str = "."
    thousands: str = ""
    unit: str | None = None

    def plain(self, cell: str) -> str:
        """Return the number in Python's format, or the cell if it does not match."""
        found = _pattern(self.decimal, self.thousands).fullmatch(_signed(cell))
        if found is None:
            text = cell.strip()
            return str(int(text, 16)) if _HEXADECIMAL.fullmatch(text) else cell
        whole, fraction, exponent = found["whole"], found["fraction"] or "", found["exponent"] or ""
        digits = "".join(filter(str.isdigit, whole))
        sign = "-" if "-" in found["signs"] else ""
        return f"{sign}{digits or '0'}{'.' + fraction[1:] if fraction else ''}{exponent}"

    def reads(self, cell: str) -> bool:
        """Return whether a cell is a number in this format."""
        if len(cell) > LONGEST:
            return False
        if not (
            _pattern(self.decimal, self.thousands).fullmatch(_signed(cell)) or _HEXADECIMAL.fullmatch(cell.strip())
        ):
            return False
        unit = unit_of(cell)
        if self.unit is None or unit == self.unit:
            return True
        return not unit and (self.unit != "%" or not float(self.plain(cell)))

    def options(self, name: str) -> str:
        """Return the command-line options that declare this format for a column."""
        if not self.thousands and self.decimal == ".":
            return f"--types {name}:number"
        thousands = f" --set thousands={_NAMES[self.thousands]}" if self.thousands else ""
        return f"--set decimal={self.decimal}{thousands}"


def _signed(cell: str) -> str:
    """Write a negative number with a leading ``-``."""
    found = _NEGATIVE.fullmatch(cell)
    return f"-{found[1] or found[2] or ''}" if found else cell.translate(_MINUS)


def unit_of(cell: str) -> str:
    """Return the percent sign or currency in a cell, else an empty string."""
    found = _UNIT.search(cell)
    return found[0] if found else ""


@functools.cache
def _pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    point = re.escape(decimal)
    separator = {" ": f"[{_SPACES}]", "'": "['\u2019]"}.get(thousands, re.escape(thousands))
    grouped = rf"[1-9]\d{{0,2}}(?:{separator}\d{{3}})+|" if thousands else ""
    unit = f"[{_SPACES}]*{_CURRENCY}?[{_SPACES}]*"
    return re.compile(
        rf"(?P<signs>[{_SPACES}]*(?:[+-]{unit}|{unit}[+-]?))(?P<whole>{grouped}\d+|(?={point}\d))(?P<fraction>{point}\d*)?"
        rf"(?P<exponent>[eE][+-]?\d+)?{unit}%?[{_SPACES}]*"
    )


NUMBER_FORMATS = (
    *(NumberFormat(), NumberFormat(","), NumberFormat(".", ","), NumberFormat(".", " "), NumberFormat(".", "'")),
    *(NumberFormat(",", "."), NumberFormat(",", " ")),
)
"""Number formats to try; the simplest come first."""


def declared(source: str, decimal: str | None, thousands: str | None) -> NumberFormat | None:
    """Return the number format declared by options, or None.

    Raises
    ------
    OptionError
        If the options are inconsistent.
    """
    if decimal is None and thousands is None:
        return None
    point, separator = decimal or ".", {"space": " "}.get(thousands or "", thousands or "")
    if point not in (".", ","):
        raise OptionError(source, "decimal", f"must be . or , got {decimal!r}")
    if separator not in ("", *_NAMES) or separator == point:
        what = f"must be one of , . ' space, and not the decimal {point}, got {thousands!r}"
        raise OptionError(source, "thousands", what)
    return NumberFormat(point, separator)


def readings(cells: Sequence[str], tried: Sequence[NumberFormat]) -> list[NumberFormat]:
    """Return the formats that read the most cells of a column, one per meaning.

    Returns no format unless one reads nearly all cells.

    Parameters
    ----------
    cells
        Cells of the column, without missing ones.
    tried
        Formats to try.
    """
    if not (tried and cells and nearly_all(sum(map(bool, map(_DIGIT.search, cells))), cells)) or are_addresses(cells):
        return []
    different = Counter(cells)  # few in most categorical columns
    if not _FALLING.isdisjoint(chain.from_iterable(different)):
        return []
    counts = {each: sum(n for cell, n in different.items() if each.reads(cell)) for each in tried}
    most = max(counts.values())
    if not nearly_all(most, cells):
        return []
    found = {tuple(map(each.plain, cells)): each for each in reversed(tried) if counts[each] == most}
    formats = list(found.values())[::-1]
    # Python's format is preferred if it reads cells without units: 1.234 is a decimal.
    is_plain = formats[:1] == [NumberFormat()] and not any(map(unit_of, cells))
    return formats[:1] if is_plain else formats


def readings_of_rare(cells: Sequence[str]) -> list[NumberFormat]:
    """Return the format that reads plain numbers and rare cells like ``(12.5)``.

    Returns no format if there is none or more than one, or if it reads many plain numbers differently. Rejecting such
    cells would lose all negative or large numbers.
    """
    rare = [cell for cell in cells if not is_number(cell)]
    if not any(each.reads(cell) for cell in rare for each in NUMBER_FORMATS):
        return []
    found = readings(cells, NUMBER_FORMATS)
    number_format = with_unit(found[0], cells) if len(found) == 1 else None
    if number_format is None or not any(map(number_format.reads, rare)):
        return []
    plain = [cell for cell in cells if is_number(cell)]
    n_same = sum(not number_format.reads(cell) or float(number_format.plain(cell)) == float(cell) for cell in plain)
    return found if nearly_all(n_same, plain) else []


def nearly_all(n: int, cells: Sequence[str]) -> bool:
    """Return whether n of the cells are at least nine in ten."""
    return 10 * n >= 9 * len(cells)


def with_unit(number_format: NumberFormat, cells: Sequence[str]) -> NumberFormat | None:
    """Return the format with the unit of nearly all cells, None if there is none."""
    units = dict.fromkeys(unit_of(cell) for cell in cells if number_format.reads(cell))
    found = max((replace(number_format, unit=unit) for unit in units), key=lambda one: sum(map(one.reads, cells)))
    return found if nearly_all(sum(map(found.reads, cells)), cells) else None


def are_addresses(cells: Sequence[str]) -> bool:
    """Return whether all texts are IP addresses."""
    return all(map(_ADDRESS.fullmatch, cells))


def are_codes(cells: Iterable[str]) -> bool:
    """Return whether texts such as ``CAD811`` are codes, and not amounts of money.

    Codes have various letters, leading zeros, or equally many digits directly after the letters. Other texts must have
    no digits.

    Examples
    --------
    >>> are_codes(["CAD811", "CAD120"]), are_codes(["EUR5", "ABC7"]), are_codes(["EUR 007"])
    (True, True, True)
    >>> are_codes(["EUR5", "EUR12"]), are_codes(["EUR 100", "EUR 250"]), are_codes(["EUR5.50"])
    (False, False, False)
    """
    found = [_CODE.fullmatch(cell) for cell in {*cells} if _DIGIT.search(cell)]
    parts = [each.groups() for each in found if each is not None]
    if not parts or len(parts) < len(found) or not any(letters in _CURRENCY for letters, _, _ in parts):
        return False
    letters, spaces, digits = (set(part) for part in zip(*parts, strict=True))
    is_padded = any(number[0] == "0" and len(number) > 1 for number in digits)
    return is_padded or (spaces == {""} and (len(letters) > 1 or len(set(map(len, digits))) == 1))


def look_alike(cells: Sequence[str]) -> bool:
    """Return whether most of the texts look like numbers with another text beside.

    There may be only a few different texts beside the numbers. Identifiers that begin with letters and IP addresses do
    not look like numbers.
    """
    found = {cell: (n, match.groups()) for cell, n in Counter(cells).items() if (match := _BESIDE.fullmatch(cell))}
    are_many = 2 * sum(n for n, _ in found.values()) > len(cells) and len(found) >= FEWEST_DIFFERENT
    return are_many and len({beside for _, beside in found.values()}) <= _MOST_BESIDE and not are_addresses(cells)


def repeated_texts(name: str, present: Sequence[str]) -> dict[str, float]:
    """Return texts that mark missing values in a numeric column, such as ``unknown``.

    There are at most two such texts, each in several spellings, and those of missing values such as ``n.a.``. Each has
    no digits and occurs at least five times. Nine in ten of the other cells must be numbers. A column of few distinct
    integers, such as 1, 2, 3 and A, stays categorical.

    If half of the cells or more are texts, they must be one text, beside at least ten distinct numbers that are not all
    integers: codes beside `OK` are categories.

    Parameters
    ----------
    name
        The column.
    present
        First cells of the column, without missing ones.

    Examples
    --------
    >>> repeated_texts("x", [*map(str, range(15)), *5 * ["unknown"]])
    {'unknown': 0.25}
    >>> repeated_texts("x", [*(f"{i}.5" for i in range(15)), *25 * ["n.a."], *10 * ["N.A."]])
    {'n.a.': 0.5, 'N.A.': 0.2}
    >>> repeated_texts("x", 5 * ["1", "2", "3", "A"])
    {}
    """
    words = Counter(cell for cell in present if not _DIGIT.search(cell) and not is_number(cell) and cell != name)
    counts = _by_spelling(words)
    repeated = {word for word, n in counts.items() if n >= _LEAST_REPEATS}
    texts = {text: n for text, n in words.items() if _spelling(text) in repeated}
    are_most = 2 * sum(texts.values()) >= len(present)
    if not texts or len(repeated - _MISSING_WORDS) > (1 if are_most else _MOST_MARKERS):
        return {}
    numbers = [cell for cell in present if cell not in texts]
    read = max(([*filter(each.reads, numbers)] for each in NUMBER_FORMATS), key=len)
    different = {*read}
    are_few, are_whole = len(different) < _LEAST_NUMBERS, all(map(_is_whole, different))
    are_codes = are_few or are_whole if are_most else are_few and are_whole
    if are_codes or not nearly_all(len(read), numbers):
        return {}
    return {text: n / len(present) for text, n in texts.items()}


def text_among_numbers(cells: Sequence[str]) -> list[str]:
    """Return the text in most cells, in all spellings, beside many different numbers.

    The list is empty if there is no such text.
    """
    words = _by_spelling(Counter(cells))
    common, n = words.most_common(1)[0]
    texts = [cell for cell in dict.fromkeys(cells) if _spelling(cell) == common]
    numbers = {*cells}.difference(texts)
    is_most = 2 * n >= len(cells) and not any(map(_DIGIT.search, texts))
    return texts if is_most and len(numbers) >= FEWEST_DIFFERENT and all(map(is_number, numbers)) else []


def _spelling(text: str) -> str:
    """Return what the spellings of a text have in common; numbers are unchanged."""
    return text if _DIGIT.search(text) else _PUNCTUATION.sub("", text.casefold())


def _by_spelling(counts: Mapping[str, int]) -> Counter[str]:
    """Return the sums of the counts of all spellings of a text."""
    found = Counter[str]()
    for text, n in counts.items():
        found[_spelling(text)] += n
    return found


_MISSING_WORDS = frozenset(map(_spelling, MISSING_NUMBERS))


def _is_whole(cell: str) -> bool:
    return is_number(cell) and number_of(cell).is_integer()


class FormattedNumbers(Memo):
    """Dictionary of numbers by text; raises `ValueError` for other texts.

    Parameters
    ----------
    number_format
        Number format.
    """

    def __init__(self, number_format: NumberFormat) -> None:
        super().__init__(self._number)
        self.number_format = number_format

    def _number(self, text: str) -> float:
        if not self.number_format.reads(text):
            raise ValueError(text)
        return float(self.number_format.plain(text))
