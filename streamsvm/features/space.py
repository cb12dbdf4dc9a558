"""From named features to columns of numbers."""

from __future__ import annotations

import contextlib
import logging
import math
import struct
import sys
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import chain, islice, repeat, starmap
from operator import itemgetter
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from connectors.cells import is_missing, shown
from connectors.events import SparseRows
from connectors.notices import Notice, Notices, grouped
from connectors.spelling import are_numbers, conversions
from connectors.time_formats import formats_of
from connectors.times import is_spelled_out
from streamsvm.core.precompile import prepare
from streamsvm.features import datetimes
from streamsvm.features.encoding import DIGITS, ENTRY_POINTS
from streamsvm.features.names import FeatureMismatchError, Strangers, check_width, compare
from streamsvm.features.scaler import LARGEST
from streamsvm.labels import is_nan, twin_of

if TYPE_CHECKING:
    import narwhals as nw

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# A name is watched from its first string on, and again when it has come to so many columns, and each time these have
# doubled: what begins as a category may turn into identifiers.
WATCHED_AGAIN = 128
# Of the first so many strings watched, so many new ones raise doubts. These end where so many of the strings known have
# come again; where they have not before so many strings in all, the name is left out.
FIRST, DOUBTFUL, AGAIN, LAST = 40, 37, 3, 500
# Events of so many names are encoded by arrays, shorter ones name by name.
LONG = 32
# So many values of another kind than was learned raise a warning.
MOST_OF_OTHER_KIND = 10
# So many texts under a name that were not learned are compared with so many that were.
MOST_ASKED = 100
IDENTIFIERS, TIMES = "identifiers", "times"
# Numbers from here on are looked at one by one: datetimes of numpy may be among them, as nanoseconds.
_LARGE = 1e17
_TEXT_OR_NONE = frozenset({str, NoneType})
_NUMBER_OR_NONE = frozenset({float, int, bool, NoneType})
# Integer names below this are looked up in a table.
TABLED = 1 << 20
# Columns become rows so many at a time.
BLOCK_ROWS = 1024


class BadRows(ValueError):
    """Rows that cannot be learned from or predicted, with the reason for each; nothing has been done with any row.

    Attributes
    ----------
    rows
        Reasons by row number.
    """

    def __init__(self, rows: Mapping[int, str]) -> None:
        self.rows = dict(rows)
        shown = "; ".join(f"row {i}: {reason}" for i, reason in sorted(self.rows.items())[:3])
        more = f" and {len(self.rows) - 3} more" if len(self.rows) > 3 else ""
        super().__init__(f"{shown}{more}. No row has been used: mend or leave out the bad ones.")


@dataclass(slots=True)
class EncodedRows:
    """Rows as columns and values, in ascending order of columns, NaN where missing.

    Row i has values[indptr[i]:indptr[i + 1]], in columns[indptr[i]:indptr[i + 1]], or, where `shared`, all rows have
    the same `columns`.
    """

    values: Floats
    columns: Ints
    indptr: Ints
    shared: bool

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def part(self, start: int, end: int) -> EncodedRows:
        """The rows from `start` to before `end`, as views."""
        indptr = self.indptr[start : end + 1]
        first, last = int(indptr[0]), int(indptr[-1])
        columns = self.columns if self.shared else self.columns[first:last]
        return EncodedRows(self.values[first:last], columns, indptr - first, self.shared)


@dataclass(slots=True)
class Recurrence:
    """What was seen of the strings under a name: do they come again?

    Parameters
    ----------
    before
        How many columns the name had when it began.
    seen
        How many strings there were since.
    again
        The columns of those that came again after the first 40.
    """

    before: int
    seen: int = 0
    again: set[int] = field(default_factory=set)

    def check(self, n: int) -> None:
        """Refuse what cannot have been seen of a name with n columns."""
        if not (0 <= self.before <= n and 0 <= self.seen < LAST and len(self.again) < AGAIN):
            raise ValueError(f"a name of {n} columns is watched as no stream leaves it: {self}")


class FeatureSpace:
    """The columns of a stream's features, in order of first arrival; names may appear at any time.

    A number (bool included) under a name takes the column of that name. A string is one-hot: it takes the column of the
    pair (name, string), with the value 1. None and NaN are missing, as is a name that is absent: a missing value
    contributes nothing. A datetime becomes the hour of its day and its weekday in UTC, each as sine and cosine, and a
    notice says so once. New names of one event take columns in an order of their own (integers by size, others by their
    representation), so that the order in which an event lists its features is without consequence.

    Strings that say nothing, because nearly each is new, are left out with a warning: where the first 40 under a name
    are all times (as `time` columns may be written), or 37 of them differ and fewer than three of those known come
    again within 500 (in that while, new ones take no columns). A name that is left out contributes nothing from the
    next event on. The same is asked again when a name has come to 128 columns, to 256, and so on. Only what is learned
    counts, so that the answer is the same however events are cut into batches. Numbers are never left out: an
    identifier that is one costs one column.

    Parameters
    ----------
    max_features
        The most columns there may be. Names and strings that come later are refused: they contribute nothing, are
        counted in `n_refused`, and warned of once.
    categories
        Names whose strings are never left out.

    Attributes
    ----------
    names
        What stands in each column: a name, or a `(name, string)` pair where `is_indicator` says so.
    is_indicator
        Whether a column holds the presence of a string.
    n_refused
        How many values of learned events were refused because all columns were taken.
    left_out
        Names whose strings are left out, with what they are: `"identifiers"` or `"times"`.

    Examples
    --------
    >>> space = FeatureSpace(max_features=100)
    >>> rows = space.encode([{"size": 2.5, "color": "red"}, {"color": "blue", "size": None}], learn=[True, True])
    >>> space.names
    [('color', 'red'), 'size', ('color', 'blue')]
    >>> rows.values, rows.columns
    (array([1. , 2.5, 1. ]), array([0, 1, 2]))
    """

    def __init__(self, max_features: int, categories: Iterable[Hashable] = ()) -> None:
        self.max_features = max_features
        self.names: list[Any] = []
        self.is_indicator: list[bool] = []
        self.n_refused = 0
        self.left_out: dict[Hashable, str] = {}
        self.quoted: dict[Hashable, str] = {}  # names whose texts are numbers, with what makes such of them
        self.noticed: list[Notice] = []  # what the first rows told
        self.said = Notices(logger)  # by this space and its copies
        self.watched: dict[Hashable, Recurrence] = {}
        self._closed: set[Hashable] = set()  # names whose new strings take no columns
        self._categories = set(categories)
        self._numbers: dict[Hashable, int] = {}
        self._strings: dict[Hashable, dict[str, int]] = {}
        self.timed: dict[Hashable, None] = {}  # names of datetimes that were learned
        self.width: int | None = None
        self._accepted: Any = None  # the names, or the width, of the last rows whose names were compared
        self._doubts, self._differs = "", False  # what was told of names that do not fit, and whether of few of them
        self._strangers = Strangers()
        # How many values to predict were texts where numbers were learned, or numbers where texts were.
        self._of_other_kind: dict[Hashable, int] = {}
        self._n_asked: dict[Hashable, int] = {}  # how many texts that were not learned were looked at
        self._other_kinds: dict[Hashable, Notice] = {}  # what was said of such names
        self._warned = False
        self._of_integers, self._n_tabled = np.zeros(0, np.int64), 0  # see `_table`
        self._last: tuple[int, list[Any], Ints] = 0, [], np.zeros(0, np.int64)
        self.set_fast_path()

    def __len__(self) -> int:
        return len(self.names)

    def set_fast_path(self) -> None:
        """Prepare for events that have a number under each name there is, and nothing else.

        `packer(*getter(x))` gives the values of such an event x (len(x) == plain_length) as bytes, in order of columns,
        and `filler(buffer, 0, *getter(x))` writes them to memory; both raise one of NOT_PLAIN where it is not of that
        kind. A new column ends this (plain_length is -1) until the next such event: sparse rows of many columns bring
        none.
        """
        n = len(self.names)
        self.plain_length = n if n > 0 and not self._strings else -1
        self.getter: Callable[[Any], tuple[Any, ...]] = itemgetter(*self.names) if n > 1 else _Single(self.names)
        values = struct.Struct(f"{n}d")
        self.packer, self.filler = values.pack, values.pack_into

    def copy(self) -> FeatureSpace:
        """A space with the same columns, which goes its own way from here."""
        twin = object.__new__(FeatureSpace)
        twin.__dict__.update(self.__dict__)
        twin.names, twin.is_indicator = self.names.copy(), self.is_indicator.copy()
        twin.quoted, twin.noticed = dict(self.quoted), self.noticed.copy()
        twin.left_out, twin._closed, twin._categories = dict(self.left_out), set(self._closed), set(self._categories)
        twin.watched = {name: replace(found, again=set(found.again)) for name, found in self.watched.items()}
        twin._numbers = self._numbers.copy()
        twin.timed = dict(self.timed)
        twin._strings = {name: strings.copy() for name, strings in self._strings.items()}
        twin._of_integers, twin._n_tabled = np.zeros(0, np.int64), 0
        twin._strangers = copy(self._strangers)
        twin._of_other_kind, twin._other_kinds = self._of_other_kind.copy(), self._other_kinds.copy()
        twin._n_asked = self._n_asked.copy()
        return twin

    # Names given and names known ---------------------------------------------------------------------------------

    @property
    def known(self) -> dict[Hashable, None]:
        """The names that were learned, in order of arrival."""
        return dict.fromkeys((*self._numbers, *self._strings, *self.left_out))

    def compare(self, given: Sequence[Any], *, open_ended: bool = False, **how: bool) -> None:
        """Compare the names of rows with those known, as `feature_names.compare` has it; tell once.

        Parameters
        ----------
        given
            The names of the rows.
        open_ended, **how
            What is expected of them.

        Raises
        ------
        FeatureMismatchError
            Where none of them is known.
        """
        level, doubts = compare(self.known, given, open_ended=open_ended or self.n_refused > 0, **how)
        if doubts and level >= logging.WARNING and not self._doubts:
            self._doubts = doubts
            logger.warning("%s", doubts)
        elif doubts and not self._doubts and not self._differs:
            self._differs = True
            logger.info("%s", doubts)
        if self.names:
            self._accepted = given

    def check_names(self, X: Any) -> None:
        """Refuse rows without a single name that is known; warn where few are. Nothing else is done with them.

        Parameters
        ----------
        X
            The first rows of a stream, of the kinds that `encode` takes, except for data frames.

        Raises
        ------
        FeatureMismatchError
            Where none is known.
        """
        if isinstance(X, SparseRows):
            self.compare(np.unique(X.indices).tolist(), complete=False)
        elif isinstance(X, Mapping):
            self.compare(_names_with_values(X), table=True)
        else:
            counts = Counter(chain.from_iterable(X))
            # Rows of which most have most names are as a table, unless names that most of them have are all known.
            is_dense = 2 * counts.total() >= len(X) * len(counts)
            usual = [name for name, n in counts.items() if self.knows(name) or 2 * n >= len(X)]
            is_table = is_dense and not all(map(self.knows, usual))
            self.compare(usual if is_table else list(counts), table=is_table)

    @contextlib.contextmanager
    def _bad_rows_first(self, encode: Callable[..., EncodedRows], *given: Any) -> Iterator[None]:
        """Tell of rows that are of no use before names that do not fit."""
        try:
            yield
        except FeatureMismatchError:
            encode(*given, None)
            raise

    def _compare_width(self, shape: tuple[int, int], *, sparse: bool = False) -> None:
        """Refuse arrays of another width than those learned, or whose columns are none of the names known."""
        n, width = shape
        if not n:
            return
        check_width(self.width, width)
        if self.width is None and self.names and self._accepted != width:
            self.compare(range(width), complete=not sparse, open_ended=sparse, table=not sparse)
            self._accepted = width

    def _take_width(self, width: int, learn: Any) -> None:
        if self.width is None and _learns(learn):
            self.width = width

    def _look_for_strangers(self, rows: EncodedRows, names: Collection[Any]) -> None:
        """Count rows to predict, where none has a value; names are some or all of theirs."""
        if len(rows.values):
            self._strangers.count = 0
        else:
            self._meet_strangers(names, len(rows))

    def _meet_strangers(self, names: Collection[Any], n: int = 1) -> None:
        """Count events to predict that have features, of which none is known."""
        if self.names and len(names) and not any(map(self.knows, names)) and self._strangers.come(names, n):
            logger.warning("%s", self._strangers.notice)

    def _meet_other_kind(self, name: Hashable, value: Any, n: int = 1) -> None:
        """Count values to predict that are texts where numbers were learned, or the other way round; warn once."""
        is_text = isinstance(value, str)
        own, other = (self._strings, self._numbers) if is_text else (self._numbers, self._strings)
        if name in own or name not in other or name in self.left_out or name in self._other_kinds or not n:
            return
        self._of_other_kind[name] = self._of_other_kind.get(name, 0) + n
        if self._of_other_kind[name] >= MOST_OF_OTHER_KIND:
            if is_text:
                learned, given, remedy = "numbers", "texts", f"convert each x by {_conversion(value)}"
            else:
                strings, given = self._strings[name], "numbers"
                learned = f"texts such as {shown(next(iter(strings), ''))}"
                ways = {"str(x)": str(value), "str(int(x))": f"{value:.0f}"}
                way = next((way for way, text in ways.items() if text in strings), None)
                remedy = f"convert each x by {way}" if way else "give such texts"
            what = "was learned as {learned} and is given as {given} such as {example}, which are ignored: {remedy}"
            self._say_other_kind(name, what, learned=learned, given=given, example=shown(value), remedy=remedy)

    def _say_other_kind(self, name: Hashable, what: str, **details: str) -> None:
        self._other_kinds[name] = Notice.of(f"feature {{name!r}} {what}", name, **details)
        self.said.say(self._other_kinds[name])

    def _meet_unknown_texts(self, name: Hashable, texts: Iterable[str]) -> None:
        """Count texts to predict that differ from one learned only in how they are written; warn once."""
        n_asked = self._n_asked.get(name, 0)
        if name in self._other_kinds or name in self.left_out or n_asked >= MOST_ASKED:
            return
        for text, n in islice(Counter(texts).items(), MOST_ASKED - n_asked):
            self._n_asked[name] = self._n_asked.get(name, 0) + 1
            twin = twin_of(text, islice(self._strings[name], MOST_ASKED))
            self._of_other_kind[name] = self._of_other_kind.get(name, 0) + (0 if twin is None else n)
            if self._of_other_kind[name] >= MOST_OF_OTHER_KIND and twin is not None:
                what = (
                    "is given as texts such as {example}, which differ from those learned, such as {twin}, only in how "
                    "they are written, and are ignored: write them alike"
                )
                self._say_other_kind(name, what, example=shown(text), twin=shown(twin))
                return

    # New columns -------------------------------------------------------------------------------------------------

    def _add(self, name: Hashable, string: str | None) -> int:
        """A column for a name or, unless `string` is None, for a string under that name; -1 where refused."""
        _check_name(name)
        column = len(self.names)
        if column >= self.max_features:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"all {self.max_features} columns are taken: {name!r}{'' if string is None else f' = {string!r}'} "
                    "and other new names or strings are ignored from here on (counted in `n_refused`); "
                    "raise `max_features` to take them in",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return -1
        if string is None:
            self._numbers[name] = column
            self.names.append(name)
        else:
            strings = self._strings.setdefault(name, {})
            if name not in self._categories and _is_time_to_watch(len(strings) + 1):
                self.watched[name] = Recurrence(len(strings))
            strings[string] = column
            self.names.append((name, string))
        self.is_indicator.append(string is not None)
        self.plain_length = -1
        return column

    def restore(
        self,
        names: Iterable[Any],
        is_indicator: Iterable[bool],
        n_refused: int,
        left_out: Mapping[Hashable, str] | None = None,
        watched: Mapping[Hashable, Recurrence] | None = None,
        quoted: Mapping[Hashable, str] | None = None,
        noticed: Iterable[Notice] = (),
    ) -> None:
        """Take the columns another space had, and what it had noticed of them."""
        for name, indicator in zip(names, is_indicator, strict=True):
            self._add(*(name if indicator else (name, None)))
        self.quoted, self.noticed = dict(quoted or {}), list(noticed)
        self.left_out = dict(left_out or {})
        for name, kind in self.left_out.items():
            if kind not in (IDENTIFIERS, TIMES):
                raise ValueError(f"{name!r} is left out as {kind!r}")
            self._leave_out(name, kind)
        self.recall(n_refused, watched or {})

    def recall(self, n_refused: int, watched: Mapping[Hashable, Recurrence]) -> None:
        """Take over what another space of the same columns had counted."""
        self.n_refused, self.watched = n_refused, dict(watched)
        for name, recurrence in self.watched.items():
            recurrence.check(len(self._strings.get(name, ())))
        self._closed = {*self.left_out, *(name for name, found in self.watched.items() if found.seen >= FIRST)}

    # Strings that say nothing ------------------------------------------------------------------------------------

    def keep(self, names: Iterable[Hashable]) -> None:
        """Take strings under these names for categories from now on, however many are new."""
        for name in names:
            self._categories.add(name)
            self.quoted.pop(name, None)
            self.watched.pop(name, None)
            self._closed.discard(name)
            if self.left_out.pop(name, None) is not None:
                own = (j for j in range(len(self)) if self.is_indicator[j] and self.names[j][0] == name)
                self._strings[name] = {self.names[j][1]: j for j in own}

    def is_dead(self, column: int) -> bool:
        """Whether a column is of a string that is left out."""
        return bool(self.left_out) and self.is_indicator[column] and self.names[column][0] in self.left_out

    def notices(self) -> list[str]:
        """For each name left out, and each of datetimes, why, and what can be done; and of names that do not fit."""
        found = [*map(self._why_left_out, self.left_out), *map(datetimes.notice, self.timed)]
        found += [_quoted_notice(name, way) for name, way in self.quoted.items() if name not in self.left_out]
        found += [_mixed_notice(name, next(iter(self._strings[name]))) for name in self._mixed()]
        found += [*self.noticed, *self._other_kinds.values()]
        return grouped(found) + list(filter(None, (self._doubts, self._strangers.notice)))

    def _mixed(self) -> list[Hashable]:
        """Names of numbers and of texts."""
        return [name for name, strings in self._strings.items() if strings and name in self._numbers]

    def notice(self, notices: Iterable[Notice]) -> None:
        """Warn of what the first rows told."""
        self.noticed += (found := list(notices))
        self.said.say(*found)

    def _say_mixed(self, names: Iterable[Hashable]) -> None:
        """Warn of names that have both numbers and texts."""
        mixed = [name for name in names if name in self._numbers and self._strings.get(name)]
        self.said.say(*(_mixed_notice(name, next(iter(self._strings[name]))) for name in mixed))

    def _why_left_out(self, name: Hashable) -> Notice:
        if name in self.quoted:
            before = "feature {name!r} is left out: nearly each of its values is new. "
            return _quoted_notice(name, self.quoted[name], before)
        return _notice(name, self.left_out[name])

    def _say_times(self, names: Iterable[Hashable]) -> None:
        """Say once of each name that datetimes under it are learned by their hours and weekdays."""
        new = [name for name in names if name not in self.timed]
        self.timed |= dict.fromkeys(new)
        self.said.say(*map(datetimes.notice, new))

    def _watch(self, x: Mapping[Any, Any]) -> None:
        """Look at a learned event's strings under the names that are watched."""
        watched = [name for name, value in x.items() if name in self.watched and isinstance(value, str)]
        found = []
        for name in sorted(watched, key=_name_key):
            recurrence, strings = self.watched[name], self._strings[name]
            recurrence.seen += 1
            if recurrence.seen > FIRST and (column := strings.get(_text(x[name]), -1)) >= 0:
                recurrence.again.add(column)
            if recurrence.seen == FIRST and name not in self.quoted and (remedy := _remedy_of_numbers(strings)):
                self.quoted[name] = remedy
                found.append(_quoted_notice(name, remedy))
            if recurrence.seen == FIRST and (all(map(is_spelled_out, strings)) or formats_of(strings)):
                self._leave_out(name, TIMES)
            elif recurrence.seen == FIRST and len(strings) - recurrence.before >= DOUBTFUL:
                self._closed.add(name)
            elif recurrence.seen == FIRST or len(recurrence.again) == AGAIN:
                del self.watched[name]
                self._closed.discard(name)
            elif recurrence.seen == LAST:
                self._leave_out(name, IDENTIFIERS)
            if name in self.left_out:
                found.append(self._why_left_out(name))
        if found:
            self.said.say(*found)

    def _leave_out(self, name: Hashable, kind: str) -> None:
        self.left_out[name] = kind
        self._strings[name] = {}
        self._closed.add(name)
        self.watched.pop(name, None)

    # Single events and lists of them -----------------------------------------------------------------------------

    def encode_event(self, x: Mapping[Any, Any], learn: bool) -> tuple[Ints, Floats]:
        """The columns, ascending, and values of one event; names not known yet get columns only if `learn`.

        Raises
        ------
        TypeError, ValueError
            For a value that is neither a number nor a string nor missing, or is infinite.
        """
        if not hasattr(x, "items"):
            raise TypeError(f"{_what_is_wrong(x)}; rows at once go to `learn_many` or `predict_many`")
        entries = self._encode_numbers_alone(x, learn) if len(x) >= LONG else None
        if entries is None:
            try:
                entries = self._encode_any(x, learn)
            except TypeError:
                timed = datetimes.with_times(x)
                if timed is None:
                    raise
                entries = self._encode_any(timed, learn)
                if learn:
                    self._say_times(datetimes.names_of_times(x))
        self.look_for_fast_path(x)
        if len(entries[0]):
            self._strangers.count = 0
        elif not learn:
            self._meet_strangers(x)
        return entries

    def knows(self, name: Hashable) -> bool:
        """Whether anything was learned under a name.

        Parameters
        ----------
        name
            The name.
        """
        return name in self._numbers or name in self._strings or name in self.left_out

    def look_for_fast_path(self, x: Mapping[Any, Any]) -> None:
        """Prepare for events that have a number under each name, where one has something under so many."""
        if len(x) == len(self.names) != self.plain_length and not self._strings:
            self.set_fast_path()

    def _encode_numbers_alone(self, x: Mapping[Any, Any], learn: bool) -> tuple[Ints, Floats] | None:
        """`encode_event` of one with many names and a number under each; None where it is another."""
        try:
            values = np.frombuffer(array("d", x.values()))
        except (TypeError, OverflowError):
            return None
        if not (np.abs(values) < _LARGE).all():
            return None
        columns = self._columns_of(x)
        if learn and (new := np.flatnonzero(columns < 0)).size:
            names = list(x)
            for i in sorted(new.tolist(), key=lambda i: _name_key(names[i])):
                columns[i] = self._add(names[i], None)
                self.n_refused += int(columns[i] < 0)
        order = columns.argsort()
        order = order[np.count_nonzero(columns < 0) :]
        return columns[order], values[order]

    def _columns_of(self, x: Mapping[Any, Any]) -> Ints:
        """The columns of numbers under the names of an event, -1 where there is none.

        The event predicted is most often the one learned next, so the last are at hand.
        """
        names, n = list(x), len(self.names)
        if self._last[:2] != (n, names):
            self._last = n, names, np.fromiter(map(self._numbers.get, names, repeat(-1)), np.int64, len(names))
        return self._last[2].copy()

    def _encode_any(self, x: Mapping[Any, Any], learn: bool) -> tuple[Ints, Floats]:
        entries: list[tuple[int, float]] = []
        unseen: list[tuple[Hashable, str | None, float]] = []
        numbers, strings = self._numbers, self._strings
        string: str | None
        for name, value in x.items():
            if value is None:
                continue
            if type(value) is float and -LARGEST <= value <= LARGEST:
                number, string, column = value, None, numbers.get(name, -1)
            elif isinstance(value, str):
                number, string = 1.0, _text(value)
                column = strings.get(name, {}).get(string, -1)
            else:
                number, string = _number(name, value), None
                if math.isnan(number):
                    continue
                column = numbers.get(name, -1)
            if column >= 0:
                entries.append((column, number))
            elif learn and (string is None or name not in self._closed):
                unseen.append((name, string, number))
            elif not learn:
                self._meet_other_kind(name, value)
                if string is not None and name in strings:
                    self._meet_unknown_texts(name, [string])
        unseen.sort(key=_arrival_key)
        begun = []
        for name, string, number in unseen:
            column = self._add(name, string)
            if column >= 0:
                entries.append((column, number))
                if string is None or len(self._strings[name]) == 1:
                    begun.append(name)
            else:
                self.n_refused += 1
        if begun:
            self._say_mixed(begun)
        if self.watched and learn:
            self._watch(x)
        entries.sort()
        return np.array([column for column, _ in entries], np.int64), np.array([number for _, number in entries], float)

    def encode(
        self, X: Any, learn: Sequence[bool] | NDArray[np.bool_] | None = None, *, complete: bool = True
    ) -> EncodedRows:
        """Encode many rows.

        Parameters
        ----------
        X
            Mappings; a table (dict of equally long columns); a data frame; a numpy array of numbers, shape (n, d),
            or a scipy sparse matrix, whose names are 0 ... d - 1; or `SparseRows`.
        learn
            Which rows may bring new names; none of them by default.
        complete
            Whether a table has all features of its rows. False for events of their own that are held as a table.

        Raises
        ------
        BadRows
            Where values are infinite or of no use; no name has been taken in.
        FeatureMismatchError
            Where a table, a frame or an array has none of the names known, or an array another width than those
            learned.
        TypeError, ValueError
            Where X as a whole is of no use.
        """
        if isinstance(X, EncodedRows):
            return X
        if isinstance(X, SparseRows):
            return self._encode_sparse(X.indptr, X.indices, X.values, learn)
        if _is_sparse(X):
            X = X.tocsr()
            if not X.has_sorted_indices or not X.has_canonical_format:
                X = X.copy()
                X.sum_duplicates()
            entries = X.indptr, X.indices, X.data
            with self._bad_rows_first(self._encode_sparse, *entries):
                self._compare_width(X.shape, sparse=True)
            rows = self._encode_sparse(*entries, learn)
            self._take_width(X.shape[1], learn)
            return rows
        if isinstance(X, np.ndarray):
            return self._encode_array(X, learn)
        if isinstance(X, dict):
            return self._encode_table(X, learn, complete)
        if isinstance(X, list | tuple):
            return self._encode_events(X, learn)
        frame = _frame_of(X)
        if not frame.columns:  # of which a table would not know how many rows there are
            return self._encode_events([{}] * len(frame), learn)
        return self._encode_table(_table_of_frame(frame), learn)

    def _encode_events(self, events: Sequence[Mapping[Any, Any]], learn: Any) -> EncodedRows:
        """Rows that are mappings: at once where all are plain, else one by one."""
        _refuse_lengths(len(events), learn)
        rows = None
        if (numbers := _plain_numbers(events)) is not None:
            rows = self._encode_numbers(*numbers, learn)
        elif (table := _plain_table(events)) is not None:
            rows = self._encode_known(table, learn)
        if rows is None:
            return self._encode_one_by_one(events, learn)
        if not _learns(learn):
            self._look_for_strangers(rows, events[0])
        return rows

    def _encode_one_by_one(self, events: Sequence[Mapping[Any, Any]], learn: Any) -> EncodedRows:
        _refuse_rows({i: reason for i, x in enumerate(events) if (reason := _what_is_wrong(x)) is not None})
        rows = [self.encode_event(x, learn is not None and bool(learn[i])) for i, x in enumerate(events)]
        columns = np.concatenate([np.zeros(0, np.int64), *(columns for columns, _ in rows)])
        values = np.concatenate([np.zeros(0), *(values for _, values in rows)])
        lengths = np.fromiter((len(columns) for columns, _ in rows), np.int64, len(rows))
        return EncodedRows(values, columns, _starts(lengths), False)

    # Columns of values -------------------------------------------------------------------------------------------

    def _encode_array(self, X: NDArray[Any], learn: Any) -> EncodedRows:
        if X.dtype.names is not None and X.ndim == 1:
            return self._encode_table({name: X[name] for name in X.dtype.names}, learn)
        if X.ndim != 2:
            raise ValueError(f"an array of rows must have two dimensions, got shape {X.shape}; reshape it to (n, d)")
        if isinstance(X, np.ma.MaskedArray):
            X = np.ma.filled(X.astype(float), np.nan)
        width = X.shape[1]
        encode: Callable[..., EncodedRows] = self._encode_table
        given: tuple[Any, ...] = ({j: X[:, j] for j in range(width)},)
        if X.dtype.kind in "biuf":
            encode, given = self._encode_numbers, (list(range(width)), np.ascontiguousarray(X, float))
        if width == self.width:
            return encode(*given, learn)
        with self._bad_rows_first(encode, *given):
            self._compare_width(X.shape)
        rows = encode(*given, learn)
        self._take_width(width, learn)
        return rows

    def _encode_numbers(self, names: list[Any], X: Floats, learn: Any) -> EncodedRows:
        """Rows with a number (or NaN) under each of the same names."""
        n, _ = X.shape
        _refuse_lengths(n, learn)
        _refuse_rows(_infinite_rows(X, names))
        if n > 0 and learn is not None and not all(map(self._numbers.__contains__, names)):
            unknown = [j for j, name in enumerate(names) if name not in self._numbers]
            use = np.asarray(learn, bool)
            first = int(use.argmax())
            # Mostly all names arrive with the first row, and no look at the others is needed.
            met = X[first : first + 1, unknown] if use[first] else X[:0, unknown]
            if np.isnan(met).any() or len(self) + len(unknown) > self.max_features:
                first, met = 0, np.where(use[:, None], X[:, unknown], np.nan)
            there = ~np.isnan(met)  # NaN is missing: a name arrives with its first number
            if len(there):
                self._arrive(first + there.argmax(axis=0), there.sum(axis=0), [names[j] for j in unknown])
        known = [(self._numbers[name], j) for j, name in enumerate(names) if name in self._numbers]
        if n and len(known) < len(names) and self._strings and not _learns(learn):
            for j in (j for j, name in enumerate(names) if name not in self._numbers):
                there = ~np.isnan(X[:, j])
                self._meet_other_kind(names[j], X[there.argmax(), j].item(), int(there.sum()))
        known.sort()
        order = [j for _, j in known]
        if order != list(range(X.shape[1])):
            X = np.ascontiguousarray(X[:, order])
        width = len(order)
        return EncodedRows(
            X.reshape(-1),
            np.array([column for column, _ in known], np.int64),
            np.arange(n + 1, dtype=np.int64) * width,
            True,
        )

    def _encode_table(self, table: Mapping[Any, Any], learn: Any, complete: bool = True) -> EncodedRows:
        columns: dict[Any, NDArray[Any]] = {}
        for name, values in table.items():
            column = _column(name, values)
            if column.dtype.kind != "M":
                columns[name] = column
                continue
            columns |= datetimes.columns_of(name, column)
            if learn is not None and (np.asarray(learn, bool)[: len(column)] & ~np.isnat(column)[: len(learn)]).any():
                self._say_times([name])
        given = list(columns)
        if complete and given != self._accepted and len(next(iter(columns.values()), ())):
            with self._bad_rows_first(self._encode_columns, columns):
                self.compare(_names_with_values(columns), table=True)
                if self.names:
                    self._accepted = given
        rows = self._encode_columns(columns, learn)
        if not (complete or _learns(learn)):
            self._look_for_strangers(rows, given)
        elif complete and _learns(learn):
            self._accepted = given
        return rows

    def _encode_columns(self, columns: dict[Any, NDArray[Any]], learn: Any) -> EncodedRows:
        n = len(next(iter(columns.values()))) if columns else 0
        for name, values in columns.items():
            if len(values) != n:
                raise ValueError(f"column {name!r} has {len(values)} values, the first column has {n}")
        for name in self.left_out:
            if name in columns and set(map(type, columns[name])) <= _TEXT_OR_NONE:
                del columns[name]
        if all(map(_is_numeric, columns.values())):
            names = sorted(columns, key=self._place)  # in their order, or the one they arrive in: rows stay as they are
            return self._encode_numbers(names, _side_by_side([columns[name] for name in names], n), learn)
        _refuse_lengths(n, learn)
        if (rows := self._encode_known(columns, learn)) is not None:
            return rows
        names = list(columns)
        events = zip(*(values.tolist() for values in columns.values()), strict=True)
        return self._encode_one_by_one([dict(zip(names, event, strict=True)) for event in events], learn)

    def _place(self, name: Any) -> tuple[int, tuple[int, str]]:
        """What tells where a name is among others, if they all arrive with one event."""
        return self._numbers.get(name, sys.maxsize), _name_key(name)

    def _encode_known(self, table: Mapping[Any, NDArray[Any]], learn: Any) -> EncodedRows | None:
        """Rows of numbers and strings that are all known or missing; None where one must be looked at by itself."""
        n = len(next(iter(table.values())))
        learned = np.zeros(n, bool) if learn is None else np.asarray(learn, bool)
        if learned.any() and not self.watched.keys().isdisjoint(table):
            return None
        columns, values = np.empty((n, len(table)), np.int64), np.ones((n, len(table)))
        for k, (name, given) in enumerate(table.items()):
            if _is_numeric(given):
                there = ~np.isnan(given)
                np.copyto(values[:, k], given, where=there)
                columns[:, k] = np.where(there, self._numbers.get(name, -1), -1)
                if name not in self._numbers and not learned.any():
                    self._meet_other_kind(name, given[there.argmax()].item(), int(there.sum()))
            else:
                strings = self._strings.get(name, {})
                try:
                    columns[:, k] = np.fromiter(map(strings.get, given, repeat(-1)), np.int64, n)
                except TypeError:  # what cannot be a key is no string
                    return None
                there = columns[:, k] >= 0
                others = given[~there]
                if not set(map(type, others)) <= _TEXT_OR_NONE:
                    return None
                if not learned.any() and len(others):
                    texts = [value for value in others if value is not None]
                    if name in self._strings:
                        self._meet_unknown_texts(name, texts)
                    else:
                        self._meet_other_kind(name, texts[0] if texts else "", len(texts))
                if name not in self._closed:
                    there[~there] = others != None  # noqa: E711 - of each of them
            if (there & learned & (columns[:, k] < 0)).any():
                return None
        if not _all_within(values):
            return None
        return _in_order(columns.reshape(-1), values.reshape(-1), np.arange(n + 1, dtype=np.int64) * len(table))

    def _encode_sparse(self, indptr: Any, names: Any, values: Any, learn: Any) -> EncodedRows:
        """Rows whose names are integers."""
        if np.iscomplexobj(values):
            raise TypeError("values must be real numbers, got complex ones")
        indptr, names = np.ascontiguousarray(indptr, np.int64), np.ascontiguousarray(names, np.int64)
        values = np.ascontiguousarray(values, float)
        n = len(indptr) - 1
        _refuse_lengths(n, learn)
        if not len(names) == len(values) == indptr[-1] or indptr[0] != 0 or (np.diff(indptr) < 0).any():
            raise ValueError("the row starts do not fit the entries")
        if not _all_within(values):
            bad = np.flatnonzero(np.abs(values) > LARGEST)
            rows = np.searchsorted(indptr, bad, side="right") - 1
            _refuse_rows(
                {int(i): _too_large(int(names[b]), values[b]) for i, b in zip(rows[::-1], bad[::-1], strict=True)}
            )
        distinct = None
        if names.min(initial=0) < 0 or names.max(initial=0) >= TABLED:
            distinct, names = np.unique(names, return_inverse=True)
            table = np.array([self._numbers.get(name, -1) for name in distinct.tolist()], np.int64)
        else:
            table = self._table(int(names.max(initial=-1)) + 1)
        columns = table[names]
        if learn is not None and (columns < 0).any():
            first, counts = np.zeros(len(table), np.int64), np.zeros(len(table), np.int64)
            _call("meet", names, values, indptr, np.ascontiguousarray(learn, bool), table, first, counts)
            met = np.flatnonzero(counts)
            met = met[first[met].argsort(kind="stable")]  # those of one row by size
            before = len(self)
            self._add_numbers((met if distinct is None else distinct[met]).tolist(), counts[met])
            table[met[: len(self) - before]] = np.arange(before, len(self))
            if distinct is None:
                self._n_tabled = len(self)
            columns = table[names]
        found = _in_order(columns, values, indptr)
        if not _learns(learn):
            self._look_for_strangers(found, names[:TABLED].tolist() if distinct is None else distinct.tolist())
        return found

    def _table(self, size: int) -> Ints:
        """The columns of the integers from 0 to before `size`, or more; -1 where one has none."""
        if size > len(self._of_integers):
            self._of_integers, self._n_tabled = np.full(max(size, 2 * len(self._of_integers)), -1), 0
        table = self._of_integers
        for column in range(self._n_tabled, len(self)):
            name = self.names[column]
            # What equals a whole number has its hash, be it 1, 1.0 or True.
            if not self.is_indicator[column] and 0 <= (number := hash(name)) < len(table) and name == number:
                table[number] = column
        self._n_tabled = len(self)
        return table

    def _arrive(self, rows: Ints, counts: Ints, names: Sequence[Any]) -> None:
        """Take in names of numbers, in the order in which single events would bring them.

        names[i] was met counts[i] times, first in row rows[i].
        """
        order = sorted(np.flatnonzero(counts).tolist(), key=lambda i: (int(rows[i]), _name_key(names[i])))
        self._add_numbers([names[i] for i in order], counts[order])

    def _add_numbers(self, names: list[Any], counts: Ints) -> None:
        """Columns for names of numbers, as far as there is room; names[i] was met counts[i] times."""
        for name in names:
            _check_name(name)
        before, room = len(self), max(self.max_features - len(self), 0)
        self.names += names[:room]
        self.is_indicator += [False] * (len(self) - before)
        self._numbers.update(zip(names, range(before, len(self)), strict=False))
        if before < len(self):
            self.plain_length = -1
        self._say_mixed(filter(self._strings.__contains__, names))
        if len(names) > room:
            self._add(names[room], None)  # which warns
            self.n_refused += int(counts[room:].sum())


# What packing an event raises where it has other names, or values that are no numbers.
NOT_PLAIN = (KeyError, struct.error, OverflowError, TypeError, ValueError)


class _Single:
    """`itemgetter` that gives a tuple for a single name too."""

    def __init__(self, names: list[Any]) -> None:
        self._names = tuple(names)

    def __call__(self, x: Mapping[Any, Any]) -> tuple[Any, ...]:
        return tuple(x[name] for name in self._names)


def _text(value: str) -> str:
    """The characters of a string; of a member of an `Enum` of strings these are its value."""
    return value if type(value) is str else str.__str__(value)


def _name_key(name: Any) -> tuple[int, str]:
    """Names in an order of their own: integers by size, so that an array's columns keep theirs, then all others."""
    return (name, "") if type(name) is int else (sys.maxsize, repr(name))


def _arrival_key(entry: Any) -> tuple[tuple[int, str], bool, str]:
    return _name_key(entry[0]), entry[1] is not None, entry[1] or ""


def _is_time_to_watch(n: int) -> bool:
    """Whether a name is to be watched that comes to n columns."""
    return n == 1 or (n >= WATCHED_AGAIN and n & (n - 1) == 0)


def _remedy_of_numbers(strings: Iterable[str]) -> str:
    """What makes numbers of texts under a name that are such, with {name} for it; empty where they are not."""
    texts = [string for string in strings if not is_missing(string)]
    if not are_numbers(texts):
        return ""
    ways = conversions("{name}", texts) or {"a function that reads them": "--types {name}:number"}
    return " or ".join(f"{way} ({options})" for way, options in ways.items())


def _mixed_notice(name: Hashable, text: str) -> Notice:
    form = (
        "feature {name!r} has numbers and texts such as {text}; each text becomes a category of its own: give None "
        f"where a value is missing (--set missing=TEXT), and numbers as {_conversion(text)}"
    )
    return Notice.of(form, name, text=shown(text))


def _conversion(text: str) -> str:
    """What makes a number of a text: several where it has several meanings."""
    return " or ".join(conversions("", [text])) or "float(x)"


def _quoted_notice(name: Hashable, remedy: str, before: str = "") -> Notice:
    form = (
        f"{before}feature {{name!r}} has texts that are numbers, and each is taken for a category: make a number of "
        "each text x by {remedy}, as converters= of River's iter_csv does; categories=({name!r},) confirms codes "
        "(--types {name}:category)"
    )
    text = form.format(name=name, remedy=remedy.replace("{name}", str(name)))  # it may be of a file, and no format
    return Notice(text, form + remedy, name)


def _notice(name: Hashable, kind: str) -> Notice:
    if kind == TIMES:
        why = "its values are times"
        instead = "; --types {name}:time makes features of their hour and weekday"
    else:
        why, instead = "nearly each of its values is new, as of an identifier", ""
    form = (
        f"feature {{name!r}} is left out: {why}{instead}; --types {{name}}:category (in Python "
        "categories=({name!r},)) keeps it"
    )
    return Notice.of(form, name)


def _check_name(name: Any) -> None:
    """Refuse the one name that could not be found again."""
    if is_nan(name):
        raise ValueError("a feature is named NaN, which equals nothing, itself neither: give it another name")


def _number(name: Any, value: Any) -> float:
    try:
        if isinstance(value, _NO_NUMBERS):
            raise TypeError
        number = float(value)
    except OverflowError:
        number = math.inf
    except (TypeError, ValueError):
        if is_nan(value):
            return math.nan
        raise TypeError(_no_feature(name, value)) from None
    if abs(number) > LARGEST:
        raise ValueError(_too_large(name, number))
    return number


# What float() would take, as text or as a number of some unit.
_NO_NUMBERS = (bytes, bytearray, np.datetime64, np.timedelta64)


def _no_feature(name: Any, value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, timedelta | np.timedelta64):
        return f"feature {name!r} is of type {kind}: give its seconds, as `total_seconds()` has them"
    return f"feature {name!r} is of type {kind}: a feature must be a number, a string, a datetime, or None"


def _too_large(name: Any, value: float) -> str:
    kind = "infinite" if math.isinf(value) else "too large"
    return (
        f"feature {name!r} is {kind} ({value}): the largest magnitude taken is {LARGEST:g}; clip it, or give None "
        f"(--set missing={value:g})"
    )


def unusable_rows(X: Any) -> dict[int, str]:
    """Rows, as a stream brings them, that cannot be encoded, and why."""
    if isinstance(X, SparseRows):
        bad = np.flatnonzero(np.abs(X.values) > LARGEST)
        rows = np.searchsorted(X.indptr, bad, side="right") - 1
        return {int(i): _too_large(int(X.indices[b]), X.values[b]) for i, b in zip(rows[::-1], bad[::-1], strict=True)}
    if isinstance(X, dict):
        numbers = {name: column for name, column in X.items() if column.dtype.kind == "f"}
        found = _infinite_rows(np.column_stack(list(numbers.values())), list(numbers)) if numbers else {}
        texts = [name for name in X if name not in numbers]
        X = [dict(zip(texts, row, strict=True)) for row in zip(*(X[name].tolist() for name in texts), strict=True)]
    else:
        found = {}
    return found | {i: reason for i, x in enumerate(X) if (reason := _what_is_wrong(x)) is not None}


def _what_is_wrong(x: Mapping[Any, Any]) -> str | None:
    """Why an event cannot be encoded, None if it can."""
    try:
        for name, value in x.items():
            if value is not None and not isinstance(value, str):
                _number(name, value)
    except (TypeError, ValueError) as error:
        timed = datetimes.with_times(x)
        return str(error) if timed is None else _what_is_wrong(timed)
    except AttributeError:
        return f"a row must be a mapping of names to values, got {type(x).__name__}"
    return None


def _all_within(values: Floats) -> bool:
    """Whether no value is too large; False, too, where some are NaN, which must be looked at one by one."""
    return bool(values.max(initial=0.0) <= LARGEST and values.min(initial=0.0) >= -LARGEST)


def _infinite_rows(X: Floats, names: list[Any]) -> dict[int, str]:
    if _all_within(X):
        return {}
    rows, columns = np.nonzero(np.abs(X) > LARGEST)
    return {int(i): _too_large(names[j], float(X[i, j])) for i, j in zip(rows[::-1], columns[::-1], strict=True)}


def _refuse_rows(bad: dict[int, str]) -> None:
    if bad:
        raise BadRows(bad)


def _refuse_lengths(n: int, learn: Any) -> None:
    if learn is not None and len(learn) != n:
        raise ValueError(f"{n} rows and {len(learn)} labels: there must be as many")


def _learns(learn: Any) -> bool:
    """Whether any row is to be learned."""
    return learn is not None and bool(np.any(learn))


def _starts(lengths: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def _names_with_values(table: Mapping[Any, NDArray[Any]]) -> list[Any]:
    """The names of a table, without columns of which every value is missing, unless all are."""
    return [name for name, column in table.items() if _has_values(column)] or list(table)


def _has_values(column: NDArray[Any]) -> bool:
    if column.dtype.kind == "f":
        return not np.isnan(column).all()
    return column.dtype.kind != "O" or any(value is not None for value in column)


def _column(name: Any, values: Any) -> NDArray[Any]:
    """Values as float64, or as objects where they are not an array of numbers."""
    if not isinstance(values, np.ndarray):
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise TypeError(
                f"column {name!r} is of type {type(values).__name__}: a table has a list or an array of values under "
                "each name (a single event goes to `learn_one` or `predict_one`, or into a list)"
            )
        values = _objects(list(values))
    array: NDArray[Any] = values
    if array.ndim != 1:
        raise ValueError(f"column {name!r} must have one dimension, got shape {array.shape}")
    if array.dtype.kind == "m":
        raise TypeError(_no_feature(name, np.timedelta64(0)))
    return array if _is_numeric(array) or array.dtype.kind == "M" else array.astype(object)


def _is_numeric(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "biuf"


def _side_by_side(columns: list[NDArray[Any]], n: int) -> Floats:
    """Columns of n numbers as rows, so many at a time that these stay in the cache while they fill."""
    X = np.empty((n, len(columns)))
    for start in range(0, n, BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        for k, column in enumerate(columns):
            X[block, k] = column[block]
    return X


def _in_order(columns: Ints, values: Floats, indptr: Ints) -> EncodedRows:
    """Entries of rows in ascending order of columns, without those whose column is negative."""
    rows = EncodedRows(np.empty_like(values), np.empty_like(columns), np.empty_like(indptr), False)
    longest = int(np.diff(indptr).max(initial=0))
    spare = np.empty(longest, np.int64), np.empty(longest), np.empty(DIGITS + 1, np.int64)
    _call("order", columns, values, indptr, rows.columns, rows.values, rows.indptr, *spare)
    n = int(rows.indptr[-1])
    rows.values, rows.columns = rows.values[:n], rows.columns[:n]
    return rows


def _call(name: str, *arrays: NDArray[Any]) -> None:
    """Call a compiled function, which has no look at types: arrays may be read-only."""
    entry = ENTRY_POINTS[name]
    prepare([entry])
    entry.compile()(*arrays)


def _plain_numbers(events: Sequence[Any]) -> tuple[list[Any], Floats] | None:
    """Names and numbers of events that have numbers under the same names and nothing else, NaN where one is missing.

    None where there is more, or most would be missing.
    """
    if not events or set(map(type, events)) != {dict}:
        return None
    if any(isinstance(value, _NO_NUMBERS) for value in events[0].values()):
        return None
    n, d = len(events), max(map(len, events))
    names = list(next(x for x in events if len(x) == d))
    if not names or n * d > 2 * sum(map(len, events)):
        return None
    get = itemgetter(*names) if d > 1 else _Single(names)
    pack = struct.Struct(f"{d}d").pack
    known = frozenset(names)
    try:
        try:
            rows: Iterable[Any] = map(get, events)
            if min(map(len, events)) < d:
                rows = (get(x) if len(x) == d else _filled(x, names, known) for x in events)
            packed = b"".join(starmap(pack, rows))
        except struct.error:  # None, perhaps
            packed = b"".join(starmap(pack, map(_filled, events, repeat(names), repeat(known))))
    except NOT_PLAIN:
        return None
    return names, np.frombuffer(packed).reshape(n, d)


def _filled(x: Mapping[Any, Any], names: Sequence[Any], known: frozenset[Any]) -> list[Any]:
    """The values of an event under these names, NaN where one is missing; there must be no others."""
    if not known.issuperset(x):
        raise KeyError
    return [math.nan if (value := x.get(name)) is None else value for name in names]


def _plain_table(events: Sequence[Any]) -> dict[Any, NDArray[Any]] | None:
    """Events of numbers and strings as columns, with None where a name is absent; None where most would be."""
    if not events or set(map(type, events)) != {dict}:
        return None
    names = dict.fromkeys(chain.from_iterable(events))
    if not names or len(names) * len(events) > 2 * sum(map(len, events)):
        return None
    table = {}
    for name in names:
        values = [x.get(name) for x in events]
        kinds = set(map(type, values))
        try:
            table[name] = np.array(values, float) if kinds <= _NUMBER_OR_NONE else _objects(values)
        except OverflowError:
            return None
    return table


def _objects(values: list[Any]) -> NDArray[Any]:
    """An array of just these objects, which numpy would otherwise convert where they are of several types."""
    return np.fromiter(values, object, len(values))


def _frame_of(X: Any) -> nw.DataFrame[Any]:
    import narwhals as nw

    if type(X).__name__ == "RecordBatch" and type(X).__module__.startswith("pyarrow"):
        X = sys.modules["pyarrow"].Table.from_batches([X])
    try:
        return nw.from_native(X, eager_only=True)
    except TypeError:
        if isinstance(nw.from_native(X, pass_through=True), nw.LazyFrame):
            raise TypeError(
                f"rows of type {type(X).__name__} are not computed yet: give the data frame, as `.collect()` of polars "
                "has it"
            ) from None
        raise TypeError(
            f"rows of type {type(X).__name__} are not known: give a list of dicts, a data frame, a numpy array or a "
            "scipy sparse matrix"
        ) from None


def _is_sparse(X: Any) -> bool:
    # Who has a sparse matrix has imported scipy, which takes a tenth of a second to import.
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(X))


def _table_of_frame(frame: nw.DataFrame[Any]) -> dict[Any, NDArray[Any]]:
    return {name: _column_of_frame(series) for name, series in zip(frame.columns, frame.iter_columns(), strict=True)}


def _column_of_frame(series: nw.Series[Any]) -> NDArray[Any]:
    """A column as an array, as it is held where it is one."""
    import narwhals as nw

    if series.dtype in (nw.Datetime, nw.Date):
        return datetimes.column_of_series(series)
    if series.dtype == nw.Duration:
        raise TypeError(_no_feature(series.name, np.timedelta64(0)))
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        return _objects(series.to_list())
    if series.dtype in (nw.Int128, nw.UInt128):  # of which numpy has none
        series = series.cast(nw.Float64)
    values: NDArray[Any] = series.to_numpy()
    return values if _is_numeric(values) else series.cast(nw.Float64).to_numpy().astype(float)
