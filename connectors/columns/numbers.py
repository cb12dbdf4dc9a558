"""Text columns that contain numbers: formats and markers of missing values."""

from __future__ import annotations

import contextlib
import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.cells import MISSING_NUMBERS, Bad, Cells, is_missing, is_number, number_of, shown
from connectors.columns.number_formats import (
    LONGEST,
    NUMBER_FORMATS,
    FormattedNumbers,
    NumberFormat,
    are_codes,
    look_alike,
    readings,
    readings_of_rare,
    repeated_texts,
    text_among_numbers,
    unit_of,
    with_unit,
)
from connectors.columns.roles import Roles
from connectors.columns.time_texts import formats_of
from connectors.errors import ConnectorError
from connectors.notices import Notice, Notices

_LEAST_REPEATS = 5
_UNCLEAR = "unclear"
WAYS = (
    "--set missing={marker} reads this text as missing (in place of the usual markers), --set decimal= and --set "
    "thousands= read numbers in another format"
)
"""Remedies for texts among numbers."""
_THOUSANDS = re.compile(r"\s*[+-]?[1-9]\d{0,2}\.\d{3}\s*")


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
        self.is_sampled = False
        """Whether the first events were inspected."""
        self.rejected: Counter[str] = Counter()
        """Number of rejected texts by column."""
        self.open = {name for name, kind in roles.types.items() if kind == "number"}
        """Columns that are declared as numbers and have had no value so far."""
        declared = () if roles.number_format is None else self.open
        self.formatted = {name: FormattedNumbers(roles.number_format or NumberFormat()) for name in declared}
        """Parsers of columns in another format, by column name."""

    @property
    def spellings(self) -> dict[str, Any]:
        """Number formats by column, as JSON."""
        return {name: list(astuple(each.number_format)) for name, each in self.formatted.items()}

    @spellings.setter
    def spellings(self, given: dict[str, Any]) -> None:
        self.formatted = {name: FormattedNumbers(NumberFormat(*form)) for name, form in given.items()}

    def is_plain(self, name: str) -> bool:
        """Return whether the numbers of a column are in Python format, without markers."""
        return name not in self.markers and name not in self.formatted

    def missing(self, name: str) -> frozenset[str]:
        """Return the missing-value markers of a numeric column."""
        missing = self._roles.missing_numbers
        return missing.union(self.markers[name]) if name in self.markers else missing

    def decide(self, source: str | None, columns: Mapping[str, Cells]) -> dict[str, str]:
        """Return ``"number"`` or ``"category"`` for each column that has values.

        Numbers with two meanings have the decimal separator of the other columns, if those agree.

        Parameters
        ----------
        source
            Name of the source in errors. None: ambiguous numbers are reported and not decided.
        columns
            First cells of each column.

        Raises
        ------
        ConnectorError
            If a column is declared as numbers and their meaning is ambiguous.
        """
        with self.notices.together():
            kinds = {name: self._kind(source, name, cells) for name, cells in columns.items()}
            unclear = [name for name, kind in kinds.items() if kind == _UNCLEAR]
            numbers = {name: columns[name] for name, kind in kinds.items() if kind == "number"}
            decimal = self._usual_decimal(numbers) if unclear else ""
            kinds |= {name: self._kind(source, name, columns[name], decimal) for name in unclear}
            self._warn_of_points(numbers)
        return {name: kind for name, kind in kinds.items() if kind}

    def _kind(self, source: str | None, name: str, cells: Cells, decimal: str | None = None) -> str:
        """Decide a column. Empty if it has no values, or stays undecided.

        Parameters
        ----------
        decimal
            Decimal separator of numbers with two meanings, empty if unknown. None: such a column is unclear.
        """
        present = [cell.strip() for cell in cells if not is_missing(cell, self._roles.missing_numbers)]
        if not present:
            return ""
        self.open.discard(name)
        is_declared, own = self._is_declared(name), self._roles.number_format
        shares = {} if is_declared else repeated_texts(name, present)
        numbers = [cell for cell in present if cell not in shares]
        n_plain = sum(map(is_number, numbers))
        tried: Sequence[NumberFormat] = NUMBER_FORMATS if own is None else (own,)
        tried = tried if is_declared or not are_codes(present) else ()
        are_plain = 10 * n_plain >= 9 * len(numbers)
        if own is not None:
            is_tried = sum(map(own.reads, numbers)) >= n_plain
        else:
            is_tried = not are_plain or (self._are_typed and not is_declared)
            are_plain = not is_tried
        is_rare = are_plain and own is None
        found = readings_of_rare(numbers) if is_rare else readings(numbers, tried if is_tried else ())
        if len(found) > 1 and decimal is None:
            return _UNCLEAR
        number_format = self._choose(source, name, numbers, found, decimal)
        self.formatted.pop(name, None)
        if number_format is not None:
            self.formatted[name] = FormattedNumbers(number_format)
        elif not are_plain:
            if not is_declared:
                self._warn_of_texts(name, present)
            return "category"
        self.take_markers(name, shares)
        return "number"

    def _is_declared(self, name: str) -> bool:
        return self._roles.types.get(name) == "number"

    def _choose(
        self, source: str | None, name: str, cells: Cells, found: list[NumberFormat], decimal: str | None
    ) -> NumberFormat | None:
        """Return the format and unit of a column if there is only one choice; warn once."""
        if not found:
            return None
        as_others = " with the decimal separator of other columns" if len(found) > 1 and decimal else ""
        found = [each for each in found if each.decimal == decimal] or found
        texts = [cell for cell in cells if found[0].reads(cell)]
        example = repr(next((cell for cell in texts if not is_number(cell)), texts[0]))
        if len(found) > 1:
            options = " or ".join(each.options("{name}") for each in found)
            self._report(source, name, "numbers such as {example} have two meanings", example, f"say {options}")
            return None
        number_format = with_unit(found[0], cells)
        if number_format is None:
            examples = {unit_of(cell): repr(cell) for cell in reversed(cells) if found[0].reads(cell)}
            several = " and ".join(list(examples.values())[::-1])
            self._report(source, name, "numbers such as {example} have different units", several, "convert them to one")
        elif self._roles.number_format is None and not (
            self._is_declared(name) and number_format.options(name) == NumberFormat().options(name)
        ):
            form = (
                f"column {{name!r}}: texts such as {{example}} are read as numbers{as_others} "
                f"({number_format.options('{name}')} says so); "
                "--types {name}:category keeps them as texts"
            )
            self.notices.warn(Notice.of(form, name, example=example))
        return number_format

    def _report(self, source: str | None, name: str, what: str, example: str, remedy: str) -> None:
        """Raise ConnectorError for declared numbers of a source; warn of others."""
        is_declared = self._is_declared(name)
        way = "" if is_declared else ", and are read as categories (--types {name}:category confirms it)"
        notice = Notice.of(f"column {{name!r}}: {what}{way}: {remedy}", name, example=example)
        if is_declared and source is not None:
            raise ConnectorError(f"{source}: {notice}", "ambiguous", column=name)
        self.notices.warn(notice)

    def _warn_of_texts(self, name: str, cells: Cells) -> None:
        """Warn of a categorical column whose texts mostly look like numbers.

        Also of one with a single text beside many different numbers.
        """
        if texts := text_among_numbers(cells):
            form = (
                "column {name!r} contains numbers and, in at least half of its first cells, the text {text}, and is "
                "read as categories: --set missing={marker} reads numbers, in place of the usual markers (--types "
                "{name}:category confirms it)"
            )
            marker = shlex.quote(",".join(text[:LONGEST] for text in texts))
            self.notices.warn(Notice.of(form, name, text=shown(texts[0]), marker=marker))
            return
        if not look_alike(cells) or formats_of(cells):  # dates have their own notice, from the learner
            return
        best = self._roles.number_format or max(NUMBER_FORMATS, key=lambda each: sum(map(each.reads, cells)))
        example = next((cell for cell in cells if not best.reads(cell)), None)
        if example is not None:
            form = (
                "column {name!r}: texts such as {example} look like numbers, and are read as categories: leave only "
                "the numbers in the file, or use --types {name}:number, which rejects such texts (--types "
                "{name}:category confirms them)"
            )
            self.notices.warn(Notice.of(form, name, example=shown(example)))

    def _usual_decimal(self, columns: Mapping[str, Cells]) -> str:
        """Return the decimal separator of unambiguous numbers; empty if not unique."""
        sure = (one.number_format for one in self.formatted.values())
        found = {one.decimal for one in sure if one.decimal == "," or one.thousands}
        cells = chain.from_iterable(columns.values())
        if any("." in cell and not _THOUSANDS.fullmatch(cell) and is_number(cell) for cell in cells):
            found.add(".")
        return found.pop() if len(found) == 1 else ""

    def _warn_of_points(self, columns: Mapping[str, Cells]) -> None:
        """Warn of numbers such as 1.234 if other columns have decimal commas.

        The point may be a thousands separator.
        """
        if all(each.number_format.decimal == "." for each in self.formatted.values()):
            return
        for name, cells in columns.items():
            pointed = [cell for cell in cells if "." in cell and is_number(cell)] if self.is_plain(name) else []
            if pointed and all(map(_THOUSANDS.fullmatch, pointed)) and not self._is_declared(name):
                form = (
                    "column {name!r}: numbers such as {example} are read with a decimal point, though other columns "
                    "have decimal commas: --set decimal=, --set thousands=. reads thousands (--types {name}:number "
                    "confirms the point)"
                )
                self.notices.warn(Notice.of(form, name, example=shown(pointed[0])))

    def take_markers(self, name: str, shares: Mapping[str, float]) -> None:
        """Use missing-value markers of a column, given the share of each; warn of them."""
        for text, share in shares.items():
            form = (
                "column {name!r} contains numbers and, in {share:.0f} % of its first cells, the text {text}, which is "
                "read as missing: --types {name}:category keeps all as texts, --set missing=TEXT names such texts for "
                "all columns"
            )
            said = form.format(name=name, share=100 * share, text=shown(text))
            self.notices.warn(Notice(said, form + text, name))
        if shares:
            self.markers[name] = list(shares)

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
                self.open.discard(name)
            return None
        first = next((cell for cell in cells if not is_missing(cell, self._roles.missing_numbers)), None)
        if first is None:
            return None
        kind = self._kind(None, name, [first], "")
        if kind == "category" and name not in self._roles.types:
            form = (
                "column {name!r} is empty in the first rows, and is read as categories because of its first value, "
                "{first}: --types {name}:number rejects such values"
            )
            self.notices.warn(Notice.of(form, name, first=shown(first)))
        return kind or None

    def _reader(self, name: str) -> Callable[[str], float]:
        """Return the function that parses a cell of a column, or raises ValueError."""
        return self.formatted[name].__getitem__ if name in self.formatted else number_of

    def number_or_text(self, name: str, cell: str) -> float | str | None:
        """Parse a cell of a column that contains numbers and texts. None if it is NaN."""
        try:
            number = self._reader(name)(cell)
        except ValueError:
            return cell
        return None if math.isnan(number) else number

    def value_alone(self, cell: str) -> float | str | None:
        """Read a cell of a column of unknown format; None if it has two meanings."""
        own = self._roles.number_format
        if are_codes([cell]):
            return cell
        found = readings([cell], NUMBER_FORMATS if own is None else (own,))
        if not found:
            return cell
        return float(found[0].plain(cell)) if len(found) == 1 else None

    def count_text(self, name: str, cell: str) -> None:
        """Count a rejected text; if it repeats, log once which options read it."""
        self.rejected[name] += 1
        if self.rejected[name] == _LEAST_REPEATS:
            form = (
                "column {name!r}: texts such as {text} are not numbers, and their events are rejected: --types "
                f"{{name}}:category keeps all as texts, {WAYS}"
            )
            text = cell.strip()
            self.notices.warn(Notice.of(form, name, text=shown(text), marker=shlex.quote(text[:LONGEST])))

    def read(self, name: str, cells: Cells, bad: Bad) -> NDArray[np.float64]:
        """Parse cells in the number format of their column.

        The reason for each row that is not a number is added to `bad`.
        """
        missing, formatted, read = self.missing(name), self.formatted.get(name), self._reader(name)
        if formatted is None and "_" not in "".join(cells):
            if missing is MISSING_NUMBERS:  # `float` reads these texts as NaN or rejects them
                with contextlib.suppress(ValueError):
                    return np.fromiter(map(float, cells), np.float64, len(cells))
            with contextlib.suppress(ValueError):
                return np.array([math.nan if cell in missing else float(cell) for cell in cells], dtype=np.float64)
        way = "" if formatted is None else f" in its number format ({formatted.number_format.options(name)})"
        column = np.full(len(cells), math.nan)
        for i, cell in enumerate(cells):
            try:
                if not is_missing(cell, missing):
                    column[i] = read(cell)
            except ValueError:
                bad.setdefault(i, f"'{name}' is not a number{way}: {shown(cell)}")
        return column


def sampled(value: Any) -> Any:
    """Return a value as JSON, with texts cut, and True for other types."""
    if type(value) is str:
        return value[: LONGEST + 1]
    if type(value) is float and not math.isfinite(value):
        return None
    return value if value is None or type(value) in (int, float) else True
