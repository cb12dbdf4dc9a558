"""Text columns that contain numbers: detect their format and their missing-value markers."""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.cells import Bad, Cells, is_missing, shown
from connectors.notices import Notice, Notices
from connectors.options import MISSING_NUMBERS, Roles
from connectors.spelling import (
    CURRENCIES,
    LONGEST,
    SPELLINGS,
    SpelledNumbers,
    Spelling,
    guess,
    unit_of,
    warn_of_texts,
)

_MOST_MARKERS, _LEAST_REPEATS, _LEAST_NUMBERS = 2, 5, 10
_MOST_TEXTS = 20
_SPELLED = "0"  # key that counts the numbers in another format
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}\.\d{3}\s*")


def numbers(name: str, cells: Cells, bad: Bad, missing: frozenset[str] = MISSING_NUMBERS) -> NDArray[np.float64]:
    """Parse cells as floats, NaN where missing. Rows that are neither are added to `bad`.

    Examples
    --------
    >>> bad = {}
    >>> numbers("x", ["1", "", "one"], bad), bad
    (array([ 1., nan, nan]), {2: "'x' is not a number: 'one'"})
    """
    if "_" not in "".join(cells):
        if missing is MISSING_NUMBERS:  # `float` reads these texts as NaN or rejects them
            with contextlib.suppress(ValueError):
                return np.fromiter(map(float, cells), np.float64, len(cells))
        with contextlib.suppress(ValueError):
            return np.array([math.nan if cell in missing else float(cell) for cell in cells], dtype=np.float64)
    return np.array([_number(name, i, cell, bad, missing) for i, cell in enumerate(cells)], dtype=np.float64)


def number_of(value: Any) -> float:
    """Convert a value to float. Texts such as ``1_000``, which Python accepts, are identifiers here.

    Raises
    ------
    ValueError
        If the value is not a number.
    """
    if isinstance(value, str) and "_" in value:
        raise ValueError(f"not a number: {shown(value)}")
    return float(value)


def _number(name: str, i: int, cell: str, bad: Bad, missing: frozenset[str]) -> float:
    try:
        return math.nan if is_missing(cell, missing) else number_of(cell)
    except ValueError:
        bad.setdefault(i, f"'{name}' is not a number: {shown(cell)}")
        return math.nan


def is_number(cell: str) -> bool:
    """Return whether a text is a number in Python format."""
    try:
        number_of(cell)
    except ValueError:
        return False
    return True


def repeated_texts(name: str, there: Sequence[str]) -> dict[str, float]:
    """Return texts that mark missing values in a column of numbers, such as ``unknown``.

    There are at most two such texts. Each has no digits and occurs at least five times.

    More than half of the cells must be numbers, and nine in ten of the cells other than markers. A column of few
    distinct integers, such as 1, 2, 3 and A, stays categorical.

    Parameters
    ----------
    name
        The column.
    there
        First cells of the column, without missing ones.

    Examples
    --------
    >>> repeated_texts("x", [*map(str, range(15)), *5 * ["unknown"]])
    {'unknown': 0.25}
    >>> repeated_texts("x", 5 * ["1", "2", "3", "A"])
    {}
    """
    repeated = {text: n for text, n in Counter(there).items() if n >= _LEAST_REPEATS and text != name}
    texts = {text: n for text, n in repeated.items() if not any(map(str.isdigit, text)) and not is_number(text)}
    if not 0 < len(texts) <= _MOST_MARKERS or 2 * sum(texts.values()) >= len(there):
        return {}
    numbers = [cell for cell in there if cell not in texts]
    read = max(([*filter(spelling.reads, numbers)] for spelling in SPELLINGS), key=len)
    if 10 * len(read) < 9 * len(numbers) or _are_codes({*read}):
        return {}
    return {text: n / len(there) for text, n in texts.items()}


def _are_codes(numbers: set[str]) -> bool:
    return len(numbers) < _LEAST_NUMBERS and all(is_number(cell) and number_of(cell).is_integer() for cell in numbers)


class NumberColumns:
    """Detect which text columns are numbers from their first cells, and parse them.

    Parameters
    ----------
    roles
        Declared types, missing values and number format.
    are_typed
        Whether the source distinguishes numbers from text. If so, columns of texts that are plain numbers cause a
        warning.
    """

    def __init__(self, roles: Roles, are_typed: bool = False) -> None:
        self._roles, self._are_typed = roles, are_typed
        self.notices = Notices()
        """Warnings of all columns of the source."""
        self.markers: dict[str, list[str]] = {}
        """Missing-value markers of a single column, by column name."""
        self.spelled: dict[str, SpelledNumbers] = {}
        """Parsers of columns in another format, by column name."""
        self.is_sampled = False
        """Whether the first events of a stream without a header were inspected."""
        self._rejected: dict[str, Counter[str]] = {}
        self._open = {name for name, kind in roles.types.items() if kind == "number"}  # no value seen yet

    @property
    def decided(self) -> dict[str, Any]:
        """The decisions so far, as JSON. Empty if there are none."""
        found: dict[str, Any] = {"markers": dict(self.markers)} if self.markers else {}
        found |= {"open": sorted(self._open)} if self._open else {}
        found |= {"sampled": True} if self.is_sampled else {}
        spellings = {
            name: [each.spelling.decimal, each.spelling.thousands, each.spelling.unit]
            for name, each in self.spelled.items()
        }
        return found | ({"spellings": spellings} if spellings else {})

    def restore(self, decided: Mapping[str, Any]) -> None:
        """Restore earlier decisions."""
        self.markers, self._open = dict(decided.get("markers", {})), set(decided.get("open", ()))
        self.is_sampled = bool(decided.get("sampled", False))
        self.spelled = {name: SpelledNumbers(Spelling(*given)) for name, given in decided.get("spellings", {}).items()}

    def is_plain(self, name: str) -> bool:
        """Return whether the numbers of a column are in Python format, without markers."""
        return name not in self.markers and name not in self.spelled

    def missing(self, name: str) -> frozenset[str]:
        """Return the missing-value markers of a numeric column."""
        missing = self._roles.missing_numbers
        return missing.union(self.markers[name]) if name in self.markers else missing

    def decide(
        self, name: str, cells: Cells, *, later: list[str] | None = None, decimal: str | None = None
    ) -> str | None:
        """Return ``"number"`` or ``"category"`` by the first cells of a column. None if all are missing.

        Parameters
        ----------
        name
            The column.
        cells
            First cells of the column.
        later, decimal
            See `guess`. A column that `guess` appends to `later` is not decided.

        Raises
        ------
        ValueError
            If the column is declared as numbers and their meaning is ambiguous.
        """
        there = [cell.strip() for cell in cells if not is_missing(cell, self._roles.missing_numbers)]
        if not there:
            return None
        self._open.discard(name)
        is_declared = self._roles.types.get(name) == "number"
        shares = {} if is_declared else repeated_texts(name, there)
        numbers = [cell for cell in there if cell not in shares]
        if not self._are_numbers(name, numbers, is_declared, later, decimal):
            if later and later[-1] == name:
                return None
            if not is_declared:
                warn_of_texts(name, there, self.notices, self._roles.spelling)
            return "category"
        self._take_markers(name, shares)
        return "number"

    def usual_decimal(self, columns: Mapping[str, Cells]) -> str | None:
        """Return the decimal separator of the unambiguous numbers. None if there are both or neither.

        Parameters
        ----------
        columns
            First cells of the numeric columns.
        """
        sure = (one.spelling for one in self.spelled.values())
        found = {one.decimal for one in sure if one.decimal == "," or one.thousands}
        cells = chain.from_iterable(columns.values())
        if any("." in cell and not _THOUSANDS.fullmatch(cell) and is_number(cell) for cell in cells):
            found.add(".")
        return found.pop() if len(found) == 1 else None

    def warn_of_points(self, columns: Mapping[str, Cells]) -> None:
        """Warn of numbers such as 1.234 if other columns have decimal commas.

        The point may be a thousands separator.

        Parameters
        ----------
        columns
            First cells of the numeric columns.
        """
        if all(each.spelling.decimal == "." for each in self.spelled.values()):
            return
        for name, cells in columns.items():
            pointed = [cell for cell in cells if "." in cell and is_number(cell)] if self.is_plain(name) else []
            if pointed and all(map(_THOUSANDS.fullmatch, pointed)):
                form = (
                    "column {name!r}: numbers such as {example} are read with a decimal point, though other columns "
                    "have decimal commas: --set decimal=, --set thousands=. reads thousands (--types {name}:number "
                    "confirms the point)"
                )
                self.notices.say(Notice.of(form, name, example=shown(pointed[0])))

    def spelling_of(self, name: str, cell: str) -> str:
        """Return the options that parse a cell which its column rejects. Empty if there are none."""
        own = self.spelled[name].spelling if name in self.spelled else Spelling(unit="")
        readings: dict[str, Spelling] = {}
        for spelling in sorted(SPELLINGS, key=lambda each: each.decimal != own.decimal):
            if spelling.reads(cell):
                readings.setdefault(spelling.plain(cell), spelling)
        unit = unit_of(cell)
        if readings and unit != own.unit and (unit or (own.unit or "") not in CURRENCIES):
            return "their unit is not that of the numbers before: convert them to one in the file"
        ways = {
            value: each.options(name) if each.thousands or each.decimal != "." else "--set decimal=."
            for value, each in readings.items()
        }
        if len(ways) > 1:
            return f"{' or '.join(f'{way} (as {value})' for value, way in ways.items())} reads such numbers"
        return "".join(f"{way} reads such numbers" for way in ways.values())

    def find_markers(self, name: str, cells: Cells) -> None:
        """Find missing-value markers in a column that may contain both numbers and texts."""
        self._take_markers(name, repeated_texts(name, cells))

    def _take_markers(self, name: str, shares: Mapping[str, float]) -> None:
        for text, share in shares.items():
            form = (
                "column {name!r} holds numbers and, in {share:.0f} % of its first cells, the text {text}, which is "
                "read as missing: --types {name}:category keeps all as texts, --set missing=TEXT names such texts for "
                "all columns"
            )
            notice = Notice.of(form, name, share=100 * share, text=shown(text))
            self.notices.say(notice._replace(kind=form + text))
        if shares:
            self.markers[name] = list(shares)

    def _are_numbers(
        self, name: str, cells: Sequence[str], is_declared: bool, later: list[str] | None, decimal: str | None
    ) -> bool:
        n_plain, declared, spelling = sum(map(is_number, cells)), self._roles.spelling, None
        are_plain = 10 * n_plain >= 9 * len(cells)
        if declared is not None:
            if sum(map(declared.reads, cells)) >= n_plain:
                spelling = guess(name, cells, self.notices, declared, is_declared)
        elif not are_plain or (self._are_typed and not is_declared):
            spelling, are_plain = guess(name, cells, self.notices, None, is_declared, later, decimal), False
        if spelling is not None:
            self.spelled[name] = SpelledNumbers(spelling)
        return are_plain or spelling is not None

    def decide_late(self, name: str, cells: Cells | NDArray[Any]) -> str | None:
        """Decide a column that was empty so far by its first value.

        The decision does not depend on the batch size.

        Parameters
        ----------
        name
            The column.
        cells
            Cells or numbers of a batch.
        """
        if isinstance(cells, np.ndarray):
            if not np.isnan(cells).all():
                self._open.discard(name)
            return None
        first = next((cell for cell in cells if not is_missing(cell, self._roles.missing_numbers)), None)
        if first is None:
            return None
        try:
            kind = self.decide(name, [first])
        except ValueError as error:
            self.notices.say(str(error))
            return None
        if kind == "category" and name not in self._roles.types:
            form = (
                "column {name!r} is empty in the first rows, and is read as categories because of its first value, "
                "{first}: --types {name}:number rejects such values"
            )
            self.notices.say(Notice.of(form, name, first=shown(first)))
        return kind

    def number_or_text(self, name: str, cell: str) -> float | str | None:
        """Parse a cell of a column that contains numbers and texts. None if it is NaN."""
        spelled = self.spelled.get(name)
        try:
            number = number_of(cell) if spelled is None else spelled[cell]
        except (KeyError, ValueError):
            return cell
        return None if math.isnan(number) else number

    def count_text(self, name: str, cell: str) -> None:
        """Count a rejected text. Log once which option parses it if it occurs repeatedly."""
        text = cell.strip()
        texts = self._rejected.setdefault(name, Counter())
        if any(map(str.isdigit, text)):
            self._count_spelled(name, text, texts)
            return
        is_new = text not in texts
        if is_new and (len(texts) >= _MOST_TEXTS or len(text) > LONGEST):
            return
        texts[text] += 1
        if texts[text] == _LEAST_REPEATS:
            form = (
                "column {name!r}: the text {text} is no number, and its events are rejected: --set missing={marker} "
                "reads it as missing (with other markers, if there are: it replaces the default ones)"
            )
            self.notices.say(Notice.of(form, name, text=shown(text), marker=shlex.quote(text)))

    def _count_spelled(self, name: str, text: str, texts: Counter[str]) -> None:
        """Count a rejected number in another format. Log once which option parses it."""
        way = self.spelling_of(name, text) if texts[_SPELLED] < _LEAST_REPEATS else ""
        texts[_SPELLED] += bool(way)
        if way and texts[_SPELLED] == _LEAST_REPEATS:
            form = (
                "column {name!r}: numbers such as {text} are written otherwise than those before, and their events are "
                "rejected: {way}"
            )
            self.notices.say(Notice.of(form, name, text=shown(text), way=way))

    def is_open(self, name: str) -> bool:
        """Return whether a column is declared as numbers and has had no value so far."""
        return name in self._open

    def read(self, name: str, cells: Cells, bad: Bad) -> NDArray[np.float64]:
        """Parse cells in the number format of their column. Rows that are not numbers are added to `bad`."""
        missing, spelled = self.missing(name), self.spelled.get(name)
        if spelled is None:
            return numbers(name, cells, bad, missing)
        column = np.full(len(cells), math.nan)
        for i, cell in enumerate(cells):
            if not is_missing(cell, missing):
                try:
                    column[i] = spelled[cell]
                except KeyError:
                    bad[i] = (
                        f"'{name}' is not a number in its spelling ({spelled.spelling.options(name)}): {shown(cell)}"
                    )
        return column
