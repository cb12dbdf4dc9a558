"""Number formats: decimal commas, thousands separators, units and hexadecimal."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from connectors.memo import Memo
from connectors.notices import Notice, Notices

CURRENCIES = "$€£¥₹"
LONGEST = 64
"""Longer texts are not numbers."""
_UNITS = CURRENCIES + "%"
_SPACES = " \u00a0\u2009\u202f"
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]{1,16}")
_ADDRESS = re.compile(r"\s*\d{1,3}(\.\d{1,3}){3}\s*")  # an IP address, not a number
_NAMES = {" ": "space", ".": ".", ",": ",", "'": '"\'"'}  # in shell syntax
# A column with fewer distinct numbers may contain codes.
_FEWEST_DIFFERENT = 10
_DIGIT = re.compile(r"\d")
_PARENTHESES = re.compile(r"\s*\(([^()+-]*)\)\s*")
_SIGNS = re.compile(r"^(\s*[+-])[+-]+")
# A number with an affix such as a unit. Letters before the number make it an identifier.
_BESIDE = re.compile(r"([^\w+.,-]*)[+-]?(?:\d+(?:[.,]\d+)*|[.,]\d+)([^\d\n]{0,16})")
_MOST_BESIDE = 4


@dataclass(frozen=True)
class Spelling:
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
    >>> Spelling(",", ".").plain("1.234,56")
    '1234.56'
    >>> Spelling(".", ",").plain("$1,234.50"), Spelling().plain("0xff"), Spelling().plain("5.1 %")
    ('1234.50', '255', '5.1')
    >>> Spelling().plain("(12.5)")  # as accountants write what is below zero
    '-12.5'
    """

    decimal: str = "."
    thousands: str = ""
    unit: str | None = None

    def plain(self, cell: str) -> str:
        """Return the number in Python's format, or the cell unchanged if it does not match."""
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
        return not unit and (self.unit in CURRENCIES or not float(self.plain(cell)))

    def expression(self, cells: Sequence[str]) -> str:
        """Return a Python expression that converts cells x to floats. Empty if it takes more than replacing characters.

        Examples
        --------
        >>> Spelling(",", ".").expression(["1.234,5"]), Spelling(".", " ").expression(["1 234 %"])
        ("float(x.replace('.', '').replace(',', '.'))", "float(''.join(x.replace('%', '').split()))")
        """
        steps = [(unit, "") for unit in dict.fromkeys(map(unit_of, cells)) if unit]
        is_spaced = self.thousands == " "
        steps += [(mark, "") for mark in self.thousands if not is_spaced and any(mark in cell for cell in cells)]
        steps += [(self.decimal, ".")] if self.decimal != "." else []
        for cell in cells:
            text = functools.reduce(lambda text, step: text.replace(*step), steps, cell)
            try:
                if float("".join(text.split()) if is_spaced else text) != float(self.plain(cell)):
                    return ""
            except ValueError:
                return ""
        text = "x" + "".join(f".replace({old!r}, {new!r})" for old, new in steps)
        return f"float(''.join({text}.split()))" if is_spaced else f"float({text})"

    def options(self, name: str) -> str:
        """Return the command-line options that declare this format for a column."""
        if not self.thousands and self.decimal == ".":
            return f"--types {name}:number"
        thousands = f" --set thousands={_NAMES[self.thousands]}" if self.thousands else ""
        return f"--set decimal={self.decimal}{thousands}"


def are_numbers(cells: Sequence[str]) -> bool:
    """Return whether all texts are numbers in one format, and not a few integer codes."""
    if not cells or all(map(_ADDRESS.fullmatch, cells)):
        return False
    if len({*cells}) < _FEWEST_DIFFERENT and all(cell.strip().isdecimal() for cell in cells):
        return False
    return any(all(map(spelling.reads, cells)) for spelling in SPELLINGS)


def conversions(name: str, cells: Sequence[str]) -> dict[str, str]:
    """Return a Python expression for each possible meaning of texts x, with its command-line options.

    Parameters
    ----------
    name
        The column.
    cells
        Texts of the column.

    Examples
    --------
    >>> conversions("a", ["0,35", "2,5"])
    {"float(x.replace(',', '.'))": '--set decimal=,'}
    """
    read = [spelling for spelling in reversed(SPELLINGS) if all(map(spelling.reads, cells))]
    found = list({tuple(map(spelling.plain, cells)): spelling for spelling in read}.values())[::-1]
    found = _as_python_reads(found, cells)
    return {expression: each.options(name) for each in found if (expression := each.expression(cells))}


def _as_python_reads(found: list[Spelling], cells: Sequence[str]) -> list[Spelling]:
    """Prefer the plain format if it reads all cells without units: 1.234 is a decimal."""
    is_plain = found[:1] == [Spelling()] and not any(map(unit_of, cells))
    return found[:1] if is_plain else found


def _signed(cell: str) -> str:
    """Replace a typographic minus sign or accounting parentheses by ``-``."""
    found = _PARENTHESES.fullmatch(cell)
    return f"-{found[1]}" if found else cell.replace("\u2212", "-")


def unit_of(cell: str) -> str:
    """Return the percent sign or currency symbol in a cell, else an empty string."""
    return next((character for character in cell if character in _UNITS), "")


@functools.cache
def _pattern(decimal: str, thousands: str) -> re.Pattern[str]:
    point = re.escape(decimal)
    separator = {" ": f"[{_SPACES}]", "'": "['\u2019]"}.get(thousands, re.escape(thousands))
    grouped = rf"[1-9]\d{{0,2}}(?:{separator}\d{{3}})+|" if thousands else ""
    unit = f"[{_SPACES}]*[{CURRENCIES}]?[{_SPACES}]*"
    return re.compile(
        rf"(?P<signs>[{_SPACES}]*(?:[+-]{unit}|{unit}[+-]?))(?P<whole>{grouped}\d+|(?={point}\d))(?P<fraction>{point}\d*)?"
        rf"(?P<exponent>[eE][+-]?\d+)?{unit}%?[{_SPACES}]*"
    )


SPELLINGS = (
    *(Spelling(), Spelling(","), Spelling(".", ","), Spelling(".", " "), Spelling(".", "'")),
    *(Spelling(",", "."), Spelling(",", " ")),
)
"""Number formats to try; the simplest come first."""


def declared(decimal: str | None, thousands: str | None) -> Spelling | None:
    """Return the number format declared by options, or None.

    Raises
    ------
    ValueError
        If the options are inconsistent.
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


def guess(
    name: str,
    cells: Sequence[str],
    notices: Notices,
    declared: Spelling | None = None,
    are_numbers: bool = False,
    later: list[str] | None = None,
    decimal: str | None = None,
) -> Spelling | None:
    """Return the only number format of nearly all cells of a column, or None. Logs it once.

    Parameters
    ----------
    name
        The column.
    cells
        First cells of the column, without missing ones.
    notices
        Collection of warnings.
    declared
        The only format to try, without a warning.
    are_numbers
        Whether the column is declared as numbers.
    later
        List to which an ambiguous column is appended instead of a report. It is decided later, with the format of other
        columns.
    decimal
        Decimal separator of other columns, which resolves ambiguity.

    Raises
    ------
    ValueError
        If `are_numbers` is true and the numbers are ambiguous.
    """
    if not cells or not _nearly_all(sum(map(_has_digit, cells)), cells) or all(map(_ADDRESS.fullmatch, cells)):
        return None
    tried = SPELLINGS if declared is None else (declared,)
    different = Counter(cells)  # which are few in most categorical columns
    counts = {spelling: sum(n for cell, n in different.items() if spelling.reads(cell)) for spelling in tried}
    most = max(counts.values())
    if not _nearly_all(most, cells):
        return None
    readings = {tuple(map(spelling.plain, cells)): spelling for spelling in reversed(tried) if counts[spelling] == most}
    found = _as_python_reads(list(readings.values())[::-1], cells)
    if len(found) > 1 and later is not None:
        later.append(name)
        return None
    as_others = " with the decimal separator of other columns" if len(found) > 1 and decimal else ""
    found = [spelling for spelling in found if spelling.decimal == decimal] or found
    example = repr(next(cell for cell in cells if found[0].reads(cell)))
    if len(found) > 1:
        options = " or ".join(spelling.options("{name}") for spelling in found)
        _report(name, "numbers such as {example} have two meanings", example, f"say {options}", are_numbers, notices)
        return None
    spelling = _with_unit(found[0], cells)
    if spelling is None:
        examples = {unit_of(cell): repr(cell) for cell in reversed(cells) if found[0].reads(cell)}
        several = " and ".join(list(examples.values())[::-1])
        _report(
            name, "numbers such as {example} have different units", several, "convert them to one", are_numbers, notices
        )
    elif declared is None and not (are_numbers and spelling.options(name) == Spelling().options(name)):
        form = (
            f"column {{name!r}}: texts such as {{example}} are read as numbers{as_others} "
            f"({spelling.options('{name}')} says so); "
            "--types {name}:category keeps them as texts"
        )
        notices.say(Notice.of(form, name, example=example))
    return spelling


def _has_digit(cell: str) -> bool:
    return _DIGIT.search(cell) is not None


def _nearly_all(n: int, cells: Sequence[str]) -> bool:
    return 10 * n >= 9 * len(cells)


def _with_unit(spelling: Spelling, cells: Sequence[str]) -> Spelling | None:
    """Return the format with the unit of nearly all cells, None if there is none."""
    units = dict.fromkeys(unit_of(cell) for cell in cells if spelling.reads(cell))
    found = max((replace(spelling, unit=unit) for unit in units), key=lambda one: sum(map(one.reads, cells)))
    return found if _nearly_all(sum(map(found.reads, cells)), cells) else None


def _report(name: str, what: str, example: str, remedy: str, are_numbers: bool, notices: Notices) -> None:
    """Raise ValueError for declared numbers; warn for others."""
    way = "" if are_numbers else ", and are read as categories (--types {name}:category confirms it)"
    notice = Notice.of(f"column {{name!r}}: {what}{way}: {remedy}", name, example=example)
    if are_numbers:
        raise ValueError(notice.text)
    notices.say(notice)


def warn_of_texts(name: str, cells: Sequence[str], notices: Notices, declared: Spelling | None = None) -> None:
    """Warn of a categorical column in which more than half of the texts look like numbers.

    Parameters
    ----------
    name
        The column.
    cells
        First cells of the column, without missing ones.
    notices
        Collection of warnings.
    declared
        The number format declared by options.
    """
    alike = {cell: n for cell, n in Counter(cells).items() if _has_digit(cell) and _looks_like_number(cell)}
    are_many = 2 * sum(alike.values()) > len(cells) and len(alike) >= _FEWEST_DIFFERENT
    if not are_many:
        _warn_of_more_beside(name, cells, notices)
        return
    if all(map(_ADDRESS.fullmatch, cells)):
        return
    best = declared or max(SPELLINGS, key=lambda spelling: sum(map(spelling.reads, cells)))
    number = next(filter(best.reads, cells), None)
    other = next((cell for cell in cells if not best.reads(cell)), None)
    if other is not None:
        both = "" if number is None else "numbers such as {number!r} and "
        form = (
            f"column {{name!r}} holds {both}texts such as {{other!r}}, and is read as categories: --types "
            "{name}:number rejects these texts, --types {name}:category confirms them"
        )
        notices.say(Notice.of(form, name, number=number, other=other))


def _warn_of_more_beside(name: str, cells: Sequence[str], notices: Notices) -> None:
    """Warn of a column in which more than half of the texts are distinct numbers with a unit."""
    found = {cell: (n, match.groups()) for cell, n in Counter(cells).items() if (match := _BESIDE.fullmatch(cell))}
    are_many = 2 * sum(n for n, _ in found.values()) > len(cells) and len(found) >= _FEWEST_DIFFERENT
    if are_many and len({beside for _, beside in found.values()}) <= _MOST_BESIDE:
        example = next((cell for cell, (_, beside) in found.items() if any(beside)), None)
        if example is not None:
            what = "texts such as {example} seem to be numbers with more beside them"
            _report(name, what, repr(example), "leave only the numbers in the file", False, notices)


def _looks_like_number(cell: str) -> bool:
    once = _SIGNS.sub(r"\1", cell)
    return any(spelling.reads(once) for spelling in SPELLINGS)


class SpelledNumbers(Memo):
    """Dictionary of numbers by text. A text that is not a number raises a `KeyError`.

    Parameters
    ----------
    spelling
        Number format.
    """

    def __init__(self, spelling: Spelling) -> None:
        super().__init__(self._number)
        self.spelling = spelling

    def _number(self, text: str) -> float:
        if not self.spelling.reads(text):
            raise KeyError(text)
        return float(self.spelling.plain(text))
