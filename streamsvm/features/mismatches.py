"""Comparison of given features with the features that a model has learned."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from connectors.columns.cells import listed, shown
from connectors.columns.time_texts import time_names
from connectors.events import SparseRows
from connectors.notices import Notice, Notices
from streamsvm.features.string_features import StringFeatures
from streamsvm.features.tables import names_with_values
from streamsvm.labels import twin_of

if TYPE_CHECKING:
    from streamsvm.features.known_features import KnownFeatures

_SHOWN = 5
# Number of consecutive events without a known feature that raises a warning.
_MOST_UNKNOWN = 10
# Number of values of another kind than learned that raises a warning.
_MOST_OF_OTHER_KIND = 10
# Maximum number of unknown and of learned strings compared per name.
_MOST_ASKED = 100


class FeatureMismatchError(ValueError):
    """The features of rows do not match the features that the model has learned.

    Attributes
    ----------
    missing
        Learned names that the rows lack.
    new
        Names of the rows that the model has not learned.
    """

    def __init__(self, message: str, missing: Iterable[Any], new: Iterable[Any]) -> None:
        self.missing, self.new = list(missing), list(new)
        super().__init__(message)

    def __reduce__(self) -> Any:
        # Errors of worker processes are pickled; by default only the message is passed to `__init__`.
        return type(self), (str(self), self.missing, self.new)


def compare(
    known: Collection[Any],
    given: Sequence[Any],
    *,
    complete: bool = True,
    open_ended: bool = False,
    table: bool = False,
) -> tuple[int, str]:
    """Compare feature names and return a logging level with a message.

    The level is WARNING if fewer than half of the names are in common. It is also WARNING for a table with both missing
    and new names, which may have been renamed. A table with only one of the two gives INFO.

    Parameters
    ----------
    known
        Learned names.
    given
        Names of the rows.
    complete
        Whether rows are expected to have all names, as in a table but not in sparse rows.
    open_ended
        Whether unknown names are expected.
    table
        Whether each row has all given names, so that every difference counts.

    Returns
    -------
    level : int
        Level of `logging`.
    message : str
        Message, empty if there is nothing to report.

    Raises
    ------
    FeatureMismatchError
        If no name is in common.

    Examples
    --------
    >>> compare(["a", "b", "c"], ["a", "x"])
    (30, '1 of the 3 features that the model has learned is given: missing are b, c; new are x')
    >>> compare(["a", "b", "c"], ["a", "b"], table=True)
    (20, '2 of the 3 features that the model has learned are given: missing are c')
    """
    if not known:
        return logging.INFO, ""
    new = [name for name in given if name not in known]
    n_common = len(given) - len(new)
    there = set(given)
    missing = [name for name in known if name not in there]
    if not n_common:
        form = str if {*map(str, new)}.isdisjoint(map(str, missing)) else repr  # 1 and '1'
        raise FeatureMismatchError(
            f"the model has learned none of the {len(given)} given features ({listed(new, _SHOWN, form)}), but "
            f"{listed(missing, _SHOWN, form)}: rename the features, or use another model",
            missing,
            new,
        )
    are_few = (complete and 2 * n_common < len(known)) or (not open_ended and 2 * n_common < len(given))
    if not are_few and not (table and (missing or (new and not open_ended))):
        return logging.INFO, ""
    verb = "is" if n_common == 1 else "are"
    parts = [
        f"{word} are {listed(names, _SHOWN, str)}" for word, names in (("missing", missing), ("new", new)) if names
    ]
    text = f"{n_common} of the {len(known)} features that the model has learned {verb} given: {'; '.join(parts)}"
    return logging.WARNING if are_few or (missing and new) else logging.INFO, text


class Mismatches:
    """Warnings about features that differ from the learned ones, each issued once.

    Parameters
    ----------
    columns, texts
        The learned features.
    issued
        Receiver of warnings about single features.
    log
        Receiver of warnings about rows.

    Attributes
    ----------
    width
        Width of the learned arrays, or None.
    accepted
        Names or width of the rows compared last.
    """

    def __init__(self, columns: KnownFeatures, texts: StringFeatures, issued: Notices, log: logging.Logger) -> None:
        self._columns, self._texts, self._issued, self._log = columns, texts, issued, log
        self.width: int | None = None
        self.accepted: Any = None
        self._names_notice, self._differs = "", False
        self._n_unknown, self._unknown_notice = 0, ""
        self._n_of_other_kind: dict[Hashable, int] = {}
        self._n_asked: dict[Hashable, int] = {}
        self._other_kinds: dict[Hashable, Notice] = {}

    def copy(self, columns: KnownFeatures, texts: StringFeatures) -> Mismatches:
        """Return a copy for copies of the learned features."""
        twin = copy(self)
        twin._columns, twin._texts = columns, texts
        twin._n_of_other_kind, twin._other_kinds = self._n_of_other_kind.copy(), self._other_kinds.copy()
        twin._n_asked = self._n_asked.copy()
        return twin

    def notices(self) -> tuple[list[Notice], list[str]]:
        """Return the warnings about single features and the warnings about rows."""
        return list(self._other_kinds.values()), list(filter(None, (self._names_notice, self._unknown_notice)))

    def knows(self, name: Hashable) -> bool:
        """Return whether a name has been learned."""
        columns = self._columns
        return name in columns.numbers or name in columns.strings or name in self._texts.left_out

    def names_of_table(self, table: Mapping[Any, Any]) -> list[Any]:
        """Return the names of columns with values, or all if none of these is known.

        Learned datetimes are replaced by the names of their features.
        """
        names = [name for given in names_with_values(table) for name in self._features_of(given)]
        return names if any(map(self.knows, names)) else list(table)

    def _features_of(self, name: Any) -> Sequence[Any]:
        parts = time_names(str(name))
        return [name] if self.knows(name) or not all(map(self.knows, parts)) else parts

    def compare(self, given: Sequence[Any], *, open_ended: bool = False, **how: bool) -> None:
        """Compare the names of rows with the learned ones and log the result."""
        columns = self._columns
        known = dict.fromkeys((*columns.numbers, *columns.strings, *self._texts.left_out))
        level, message = compare(known, given, open_ended=open_ended or columns.n_refused > 0, **how)
        if message and level >= logging.WARNING and not self._names_notice:
            self._names_notice = message
            self._log.warning("%s", message)
        elif message and not self._names_notice and not self._differs:
            self._differs = True
            self._log.info("%s", message)
        if columns.names:
            self.accepted = given

    def check_names(self, X: Any) -> None:
        """Compare the names of the first rows of a stream, without encoding them."""
        if isinstance(X, SparseRows):
            self.compare(np.unique(X.indices).tolist(), complete=False)
        elif isinstance(X, Mapping):
            self.compare(self.names_of_table(X), table=True)
        else:
            counts = Counter(name for x in X for name, value in x.items() if value is not None)
            if not any(map(self.knows, counts)):
                counts = Counter(chain.from_iterable(X))
            # Rows that mostly have the same names count as a table, unless all frequent names are known.
            is_dense = 2 * counts.total() >= len(X) * len(counts)
            usual = [name for name, n in counts.items() if self.knows(name) or 2 * n >= len(X)]
            is_table = is_dense and not all(map(self.knows, usual))
            self.compare(usual if is_table else list(counts), table=is_table)

    def compare_width(self, shape: tuple[int, int], *, sparse: bool = False) -> None:
        """Raise an error if an array does not fit the learned arrays or columns.

        Parameters
        ----------
        shape
            Shape of the array.
        sparse
            Whether it is a sparse matrix, whose rows need not contain all columns.

        Raises
        ------
        FeatureMismatchError
            If the width differs from the learned one, or no column is known.
        """
        n, width = shape
        if not n:
            return
        learned = self.width
        if learned is not None and width != learned:
            raise FeatureMismatchError(  # in the words of scikit-learn
                f"X has {width} features, but the model is expecting {learned} features as input, as in training. "
                "Use dicts or data frames for features that may be absent",
                range(width, learned),
                range(learned, width),
            )
        if learned is None and self._columns.names and self.accepted != width:
            self.compare(range(width), complete=not sparse, open_ended=sparse, table=not sparse)
            self.accepted = width

    def count_unknown_rows(self, n: int, n_values: int, names: Collection[Any]) -> None:
        """Count rows without any known feature, and warn after several in a row.

        Parameters
        ----------
        n
            Number of rows to predict.
        n_values
            Number of values with a column in these rows.
        names
            Feature names of the rows.
        """
        if n_values:
            self._n_unknown = 0
        elif self._columns.names and len(names) and not any(map(self.knows, names)):
            self._n_unknown += n
            if not self._unknown_notice and self._n_unknown >= _MOST_UNKNOWN:
                self._unknown_notice = (
                    f"{self._n_unknown} events in a row have no feature that the model has learned, but "
                    f"{listed(names, _SHOWN, str)}: predictions use only the class frequencies"
                )
                self._log.warning("%s", self._unknown_notice)

    def count_other_kind(self, name: Hashable, value: Any, n: int = 1) -> None:
        """Count n values of another kind than learned, and warn after several.

        The kinds are string and number.
        """
        is_text = isinstance(value, str)
        numbers, strings = self._columns.numbers, self._columns.strings
        own, other = (strings, numbers) if is_text else (numbers, strings)
        if name in own or name not in other or name in self._texts.left_out or name in self._other_kinds or not n:
            return
        self._n_of_other_kind[name] = self._n_of_other_kind.get(name, 0) + n
        if self._n_of_other_kind[name] >= _MOST_OF_OTHER_KIND:
            if is_text:
                learned, given = "numbers", "texts"
                remedy = "convert each x to a number, such as float(x) (which needs a decimal point and no unit)"
            else:
                given, learned = "numbers", f"texts such as {shown(next(iter(strings[name]), ''))}"
                ways = {"str(x)": str(value), "str(int(x))": f"{value:.0f}"}
                way = next((way for way, text in ways.items() if text in strings[name]), None)
                remedy = f"convert each x by {way}" if way else "use such texts"
            what = "was learned as {learned}, but now has {given} such as {example}, which are ignored: {remedy}"
            self._warn(name, what, learned=learned, given=given, example=shown(value), remedy=remedy)

    def count_unknown_texts(self, name: Hashable, texts: Iterable[str]) -> None:
        """Count unknown strings that differ from a learned one only in spelling.

        Several such values raise a warning.
        """
        n_asked = self._n_asked.get(name, 0)
        if name in self._other_kinds or name in self._texts.left_out or n_asked >= _MOST_ASKED:
            return
        for text, n in islice(Counter(texts).items(), _MOST_ASKED - n_asked):
            self._n_asked[name] = self._n_asked.get(name, 0) + 1
            twin = twin_of(text, islice(self._columns.strings[name], _MOST_ASKED))
            self._n_of_other_kind[name] = self._n_of_other_kind.get(name, 0) + (0 if twin is None else n)
            if self._n_of_other_kind[name] >= _MOST_OF_OTHER_KIND and twin is not None:
                what = (
                    "has texts such as {example}, which differ from learned texts such as {twin} only in spelling and "
                    "are ignored: use one spelling"
                )
                self._warn(name, what, example=shown(text), twin=shown(twin))
                return

    def _warn(self, name: Hashable, what: str, **details: str) -> None:
        self._other_kinds[name] = Notice.of(f"feature {{name!r}} {what}", name, **details)
        self._issued.warn(self._other_kinds[name])
