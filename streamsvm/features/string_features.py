"""String features: categories, or strings left out as identifiers or times."""

from __future__ import annotations

import shlex
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from connectors.columns.cells import is_missing, shown
from connectors.columns.number_formats import (
    FEWEST_DIFFERENT,
    NUMBER_FORMATS,
    are_addresses,
)
from connectors.columns.time_texts import formats_of
from connectors.columns.times import is_spelled_out
from connectors.notices import Notice, Notices
from streamsvm.features.values import name_key, text_of
from streamsvm.labels import twins_in

if TYPE_CHECKING:
    from streamsvm.features.known_features import KnownFeatures

# A name is watched from its first string on. Categories may turn into identifiers, so it is watched again at this
# number of columns and each time the number doubles.
WATCHED_AGAIN = 128
# A name is suspicious if at least DOUBTFUL of the first FIRST strings are new. AGAIN recurring strings clear it.
# Without them, it is left out after LAST strings.
FIRST, DOUBTFUL, AGAIN, LAST = 40, 37, 3, 500
IDENTIFIERS, TIMES = "identifiers", "times"
_QUOTED = (
    "feature {name!r} contains numbers as texts, and each text is a category: convert each text x to a number, such as "
    "float(x) (which needs a decimal point and no unit), or use --types {option}:number. For codes, confirm with "
    "categories=({name!r},) (--types {option}:category)"
)
_MIXED = (
    "feature {name!r} has numbers and texts such as {text}; each text becomes a category: use None for missing values "
    "(--set missing=TEXT), and convert numbers with float(x)"
)
_TWINS = (
    "feature {name!r} has the texts {first} and {second}, which are two categories but differ only in spelling: use "
    "one spelling if they are the same, or --types {option}:category (in Python categories=({name!r},))"
)
# Number of strings of a declared category at which its memory is reported.
MANY = 16_384
_MANY = (
    "feature {name!r} is in `categories` and has {n} or more different texts, which take memory for each class: leave "
    "it out if it identifies events (--types {option}:ignore), or limit the memory with `max_features`"
)
_NUMBERS = "feature {name!r} is in `categories`, but its numbers stay numbers: pass them as texts, such as str(x)"


@dataclass(slots=True)
class Recurrence:
    """Recurrence of the strings under a name that is being watched.

    Parameters
    ----------
    before
        Number of columns of the name at the start.
    seen
        Number of strings since the start.
    again
        Columns of the strings that recurred after the first 40.
    """

    before: int
    seen: int = 0
    again: set[int] = field(default_factory=set)

    def check(self, n: int) -> None:
        """Raise an error for a state that a name with n columns cannot reach."""
        if not (0 <= self.before <= n and n > 0 and 0 <= self.seen < LAST and len(self.again) < AGAIN):
            raise ValueError(f"no stream leads to these counts of the strings of a name with {n} columns: {self}")


class StringFeatures:
    """Decision for each name whether its strings are categories or left out.

    Parameters
    ----------
    columns
        Columns of the features.
    categories
        Names whose strings are always categories.
    issued
        Receiver of warnings.

    Attributes
    ----------
    left_out
        Names that are left out, with the kind of their strings.
    watched
        Recurrence of strings for names that may be left out.
    closed
        Names whose new strings take no columns.
    quoted
        Names whose strings are numbers.
    """

    def __init__(self, columns: KnownFeatures, categories: Iterable[Hashable], issued: Notices) -> None:
        self._columns, self._categories, self._issued = columns, set(categories), issued
        self.left_out: dict[Hashable, str] = {}
        self.quoted: dict[Hashable, None] = {}
        self.watched: dict[Hashable, Recurrence] = {}
        self.closed: set[Hashable] = set()

    def copy(self, columns: KnownFeatures) -> StringFeatures:
        """Return a copy for a copy of the columns."""
        twin = StringFeatures(columns, self._categories, self._issued)
        twin.left_out, twin.quoted, twin.closed = dict(self.left_out), dict(self.quoted), set(self.closed)
        twin.watched = {name: replace(found, again=set(found.again)) for name, found in self.watched.items()}
        return twin

    def restore(self, left_out: Mapping[Hashable, str], quoted: Iterable[Hashable]) -> None:
        """Restore the names that are left out and the names with quoted numbers."""
        self.quoted, self.left_out = dict.fromkeys(quoted), dict(left_out)
        for name, kind in self.left_out.items():
            if kind not in (IDENTIFIERS, TIMES):
                raise ValueError(f"{name!r} is left out as {kind!r}")
            self._leave_out(name, kind)

    def restore_watched(self, watched: Mapping[Hashable, Recurrence]) -> None:
        """Restore the names that are watched."""
        self.watched = dict(watched)
        for name, recurrence in self.watched.items():
            recurrence.check(len(self._columns.strings.get(name, ())))
        self.closed = {*self.left_out, *(name for name, found in self.watched.items() if found.seen >= FIRST)}

    def begin(self, name: Hashable) -> None:
        """Start to watch a name if its new number of strings requires it."""
        n = len(self._columns.strings[name])
        if name not in self._categories and (n == 1 or (n >= WATCHED_AGAIN and n & (n - 1) == 0)):
            self.watched[name] = Recurrence(n - 1)
        elif n == MANY and name in self._categories:
            self._issued.warn(*self._many(name))

    def keep(self, names: Iterable[Hashable]) -> None:
        """Treat strings under these names as categories from now on."""
        columns = self._columns
        for name in names:
            self._categories.add(name)
            self.quoted.pop(name, None)
            self.watched.pop(name, None)
            self.closed.discard(name)
            if self.left_out.pop(name, None) is not None:
                own = (j for j in range(len(columns)) if columns.is_indicator[j] and columns.names[j][0] == name)
                columns.strings[name] = {columns.names[j][1]: j for j in own if j not in columns.gaps}

    def learn(self, x: Mapping[Any, Any]) -> None:
        """Update the watched names with the strings of a learned event."""
        watched = [name for name, value in x.items() if name in self.watched and isinstance(value, str)]
        found = []
        for name in sorted(watched, key=name_key):
            recurrence, strings = self.watched[name], self._columns.strings[name]
            recurrence.seen += 1
            if recurrence.seen > FIRST and (column := strings.get(text_of(x[name]), -1)) >= 0:
                recurrence.again.add(column)
            if recurrence.seen == FIRST and name not in self.quoted and _are_numbers(strings):
                self.quoted[name] = None
                found.append(_quoted_notice(name))
            if recurrence.seen == FIRST and not recurrence.before:
                found += self._twins(name)
            if recurrence.seen == FIRST and (all(map(is_spelled_out, strings)) or formats_of(strings)):
                self._leave_out(name, TIMES)
            elif recurrence.seen == FIRST and len(strings) - recurrence.before >= DOUBTFUL:
                self.closed.add(name)
            elif recurrence.seen == FIRST or len(recurrence.again) == AGAIN:
                del self.watched[name]
                self.closed.discard(name)
            elif recurrence.seen == LAST:
                self._leave_out(name, IDENTIFIERS)
            if name in self.left_out:
                found.append(self._why_left_out(name))
        if found:
            self._issued.warn(*found)

    def warn_of_mixed(self, names: Iterable[Hashable]) -> None:
        """Warn of names with numbers and strings, and of `categories` with numbers."""
        self._issued.warn(*self._mixed(names))

    def notices(self) -> list[Notice]:
        """Return notices about names left out, quoted numbers and mixed types."""
        found = [*map(self._why_left_out, self.left_out)]
        found += [_quoted_notice(name) for name in self.quoted if name not in self.left_out]
        for name in self._columns.strings:
            found += self._twins(name) + self._many(name)
        numeric = (name for name in self._columns.numbers if name in self._categories)
        return found + self._mixed(dict.fromkeys((*self._columns.strings, *numeric)))

    def _leave_out(self, name: Hashable, kind: str) -> None:
        self.left_out[name] = kind
        self._columns.strings[name] = {}
        self.closed.add(name)
        self.watched.pop(name, None)

    def _why_left_out(self, name: Hashable) -> Notice:
        if name in self.quoted:
            return _quoted_notice(name, "feature {name!r} is left out: nearly all of its values are new. ")
        if self.left_out[name] == TIMES:
            why, instead = "its values are times", "; datetimes (--types {option}:time) become hour and weekday"
        elif self._is_free_text(name):
            why = "nearly all of its values are new, like free text"
            instead = "; a feature per word, as by River's BagOfWords, lets the model learn it"
        else:
            why, instead = "nearly all of its values are new, like an identifier", ""
        form = (
            f"feature {{name!r}} is left out: {why}{instead}; --types {{option}}:category (in Python "
            "categories=({name!r},)) keeps it"
        )
        return Notice.of(form, name, option=shlex.quote(str(name)))

    def _is_free_text(self, name: Hashable) -> bool:
        columns = self._columns
        own = (columns.names[j] for j in range(len(columns)) if columns.is_indicator[j])
        n_spaces: list[int] = [string.count(" ") for feature, string in own if feature == name and string]
        return 2 * sum(n >= 2 for n in n_spaces) > len(n_spaces)

    def _twins(self, name: Hashable) -> list[Notice]:
        """Return a notice if two of the first strings of a name differ only in spelling."""
        strings = islice(self._columns.strings[name], FIRST)
        twins = next(twins_in(string for string in strings if not is_missing(string)), None)
        if twins is None or name in self._categories or name in self.quoted:
            return []
        first, second = map(shown, twins)
        return [Notice.of(_TWINS, name, first=first, second=second, option=shlex.quote(str(name)))]

    def _many(self, name: Hashable) -> list[Notice]:
        """Return a notice if a declared category has very many strings."""
        if name not in self._categories or len(self._columns.strings[name]) < MANY:
            return []
        return [Notice.of(_MANY, name, n=f"{MANY:,}", option=shlex.quote(str(name)))]

    def _mixed(self, names: Iterable[Hashable]) -> list[Notice]:
        strings, numbers = self._columns.strings, self._columns.numbers
        return [
            Notice.of(_MIXED, name, text=shown(next(iter(strings[name]))))
            if strings.get(name)
            else Notice.of(_NUMBERS, name)
            for name in names
            if name in numbers and (strings.get(name) or name in self._categories)
        ]


def _quoted_notice(name: Hashable, before: str = "") -> Notice:
    return Notice.of(before + _QUOTED, name, option=shlex.quote(str(name)))


def _are_numbers(strings: Iterable[str]) -> bool:
    """Return whether all texts are numbers in one format, other than integer codes.

    Missing texts are ignored.
    """
    cells = [string for string in strings if not is_missing(string)]
    if not cells or are_addresses(cells):
        return False
    if len({*cells}) < FEWEST_DIFFERENT and all(cell.strip().isdecimal() for cell in cells):
        return False
    return any(all(map(each.reads, cells)) for each in NUMBER_FORMATS)
