"""Columns of texts that are numbers: in which spelling, and with which texts for missing values."""

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
_SPELLED = "0"  # under which numbers in another spelling are counted
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}\.\d{3}\s*")


def numbers(name: str, cells: Cells, bad: Bad, missing: frozenset[str] = MISSING_NUMBERS) -> NDArray[np.float64]:
    """Cells as floats, NaN where missing; what is neither is noted in `bad`.

    Examples
    --------
    >>> bad = {}
    >>> numbers("x", ["1", "", "one"], bad), bad
    (array([ 1., nan, nan]), {2: "'x' is not a number: 'one'"})
    """
    if "_" not in "".join(cells):
        if missing is MISSING_NUMBERS:  # none of these texts is a number
            with contextlib.suppress(ValueError):
                return np.fromiter(map(float, cells), np.float64, len(cells))
        with contextlib.suppress(ValueError):
            return np.array([math.nan if cell in missing else float(cell) for cell in cells], dtype=np.float64)
    return np.array([_number(name, i, cell, bad, missing) for i, cell in enumerate(cells)], dtype=np.float64)


def number_of(value: Any) -> float:
    """A value as float. Python would read ``1_000``, but the underscore is the mark of an identifier.

    Raises
    ------
    ValueError
        If it is not a number.
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
    """Whether a text is a number as Python writes it."""
    try:
        number_of(cell)
    except ValueError:
        return False
    return True


def repeated_texts(name: str, there: Sequence[str]) -> dict[str, float]:
    """Texts among the numbers of a column that stand for missing values, such as ``unknown``, with their shares.

    There are one or two of them, without digits, each at least five times. More than half of the cells are numbers, as
    are nine in ten of the others, and at least ten different ones or some not whole, so that a column of codes, such as
    1, 2, 3 and A, stays a category.

    Parameters
    ----------
    name
        The column.
    there
        Its first cells, without missing ones.

    Examples
    --------
    >>> repeated_texts("x", [*map(str, range(15)), *5 * ["unknown"]])
    {'unknown': 0.25}
    >>> repeated_texts("x", 5 * ["1", "2", "3", "A"])
    {}
    """
    counts = Counter(cell for cell in there if not any(map(str.isdigit, cell)) and not is_number(cell))
    texts = {text: n for text, n in counts.items() if n >= _LEAST_REPEATS and text != name}
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
    """Decides which columns of texts are numbers, by their first cells, and reads these.

    Parameters
    ----------
    roles
        What is declared of columns, missing values and spelling.
    are_typed
        Whether the source tells numbers from texts, so that texts that are plain numbers are worth a warning.
    """

    def __init__(self, roles: Roles, are_typed: bool = False) -> None:
        self._roles, self._are_typed = roles, are_typed
        self.notices = Notices()
        """What was warned of, of all columns of the source."""
        self.markers: dict[str, list[str]] = {}
        """Texts that stand for missing values in one column of numbers only, by name."""
        self.spelled: dict[str, SpelledNumbers] = {}
        """The numbers of columns in another spelling, by name."""
        self.is_sampled = False
        """Whether the first events of a stream that names its columns event by event were looked at."""
        self._rejected: dict[str, Counter[str]] = {}
        self._open = {name for name, kind in roles.types.items() if kind == "number"}  # no value seen yet

    @property
    def decided(self) -> dict[str, Any]:
        """What is decided so far, as JSON; nothing where nothing is."""
        found: dict[str, Any] = {"markers": dict(self.markers)} if self.markers else {}
        found |= {"open": sorted(self._open)} if self._open else {}
        found |= {"sampled": True} if self.is_sampled else {}
        spellings = {
            name: [each.spelling.decimal, each.spelling.thousands, each.spelling.unit]
            for name, each in self.spelled.items()
        }
        return found | ({"spellings": spellings} if spellings else {})

    def restore(self, decided: Mapping[str, Any]) -> None:
        """Go back to what was decided before."""
        self.markers, self._open = dict(decided.get("markers", {})), set(decided.get("open", ()))
        self.is_sampled = bool(decided.get("sampled", False))
        self.spelled = {name: SpelledNumbers(Spelling(*given)) for name, given in decided.get("spellings", {}).items()}

    def is_plain(self, name: str) -> bool:
        """Whether the numbers of a column are as Python writes them."""
        return name not in self.markers and name not in self.spelled

    def missing(self, name: str) -> frozenset[str]:
        """The texts of a column of numbers that are missing values."""
        missing = self._roles.missing_numbers
        return missing.union(self.markers[name]) if name in self.markers else missing

    def decide(
        self, name: str, cells: Cells, *, later: list[str] | None = None, decimal: str | None = None
    ) -> str | None:
        """Whether a column is of numbers or of categories by its first cells; None where all are missing.

        Parameters
        ----------
        name
            The column.
        cells
            Its first cells.
        later, decimal
            As `guess` has them: the column is not decided where it is noted.

        Raises
        ------
        ValueError
            If the column is declared as numbers, and these have several meanings.
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
        """The decimal separator of those numbers whose meaning is sure; None where there are both, or neither.

        Parameters
        ----------
        columns
            The first cells of columns of numbers.
        """
        sure = (one.spelling for one in self.spelled.values())
        found = {one.decimal for one in sure if one.decimal == "," or one.thousands}
        cells = chain.from_iterable(columns.values())
        if any("." in cell and not _THOUSANDS.fullmatch(cell) and is_number(cell) for cell in cells):
            found.add(".")
        return found.pop() if len(found) == 1 else None

    def warn_of_points(self, columns: Mapping[str, Cells]) -> None:
        """Warn of plain numbers such as 1.234 where other columns have decimal commas: the point may be of thousands.

        Parameters
        ----------
        columns
            The first cells of columns of numbers.
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
        """How a cell is read as a number that its column does not read, nothing where it is none."""
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
        """Look for texts that stand for missing values among the cells of a column that may be of both."""
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
        """Decide a column that had no values before by the first one, so that the size of batches does not matter.

        Parameters
        ----------
        name
            The column.
        cells
            The cells of a batch, or the numbers of one.
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
        """A cell of a column that holds both, None where it is NaN."""
        spelled = self.spelled.get(name)
        try:
            number = number_of(cell) if spelled is None else spelled[cell]
        except (KeyError, ValueError):
            return cell
        return None if math.isnan(number) else number

    def count_text(self, name: str, cell: str) -> None:
        """Say once of a text that is rejected among numbers, and comes again, how it is read as missing or a number."""
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
        """Say once of numbers in another spelling, which are rejected, how they are read."""
        way = self.spelling_of(name, text) if texts[_SPELLED] < _LEAST_REPEATS else ""
        texts[_SPELLED] += bool(way)
        if way and texts[_SPELLED] == _LEAST_REPEATS:
            form = (
                "column {name!r}: numbers such as {text} are written otherwise than those before, and their events are "
                "rejected: {way}"
            )
            self.notices.say(Notice.of(form, name, text=shown(text), way=way))

    def is_open(self, name: str) -> bool:
        """Whether no value of a column that is declared as numbers was seen."""
        return name in self._open

    def read(self, name: str, cells: Cells, bad: Bad) -> NDArray[np.float64]:
        """Cells as floats, in the spelling of their column; what is no number is noted in `bad`."""
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
