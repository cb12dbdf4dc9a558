"""Known features of a stream: their columns, and the notices about them."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Self

from connectors.notices import Notice, Notices, grouped
from streamsvm.features import datetimes
from streamsvm.features.columns import Columns
from streamsvm.features.names import Mismatches
from streamsvm.features.rows import Ints
from streamsvm.features.texts import Recurrence, Texts

logger = logging.getLogger("streamsvm.features")


class KnownFeatures:
    """Columns of features, the names whose strings are categories, and warnings.

    Parameters
    ----------
    max_features
        Maximum number of columns.
    categories
        Names whose strings are always categories.

    Attributes
    ----------
    columns
        Column of each name and of each string.
    texts
        Decision which names have categories.
    mismatches
        Warnings about features that differ from the learned ones.
    """

    def __init__(self, max_features: int, categories: Iterable[Hashable] = ()) -> None:
        self.columns = Columns(max_features)
        self.noticed: list[Notice] = []  # notices about the first rows
        self.said = Notices(logger)  # shared with copies, so that each warning is issued once
        self.timed: dict[Hashable, None] = {}  # names of learned datetimes
        self.texts = Texts(self.columns, categories, self.said)
        self.mismatches = Mismatches(self.columns, self.texts, self.said, logger)

    def __len__(self) -> int:
        return len(self.columns.names)

    @property
    def names(self) -> list[Any]:
        """Name of each column."""
        return self.columns.names

    @property
    def is_indicator(self) -> list[bool]:
        """Whether each column is the indicator of a string."""
        return self.columns.is_indicator

    @property
    def n_refused(self) -> int:
        """Number of values without a column."""
        return self.columns.n_refused

    @property
    def left_out(self) -> dict[Hashable, str]:
        """Names that are left out, with the reason."""
        return self.texts.left_out

    def is_dead(self, column: int) -> bool:
        """Return whether a column belongs to a string of a name that is left out."""
        return self.texts.is_dead(column)

    def copy(self) -> Self:
        """Return a copy that shares only the record of issued warnings."""
        twin = object.__new__(type(self))
        twin.columns = self.columns.copy()
        twin.noticed, twin.said, twin.timed = self.noticed.copy(), self.said, dict(self.timed)
        twin.texts = self.texts.copy(twin.columns)
        twin.mismatches = self.mismatches.copy(twin.columns, twin.texts)
        return twin

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
        """Restore the columns of another space, and its notices.

        Parameters
        ----------
        names, is_indicator, n_refused, left_out, watched, quoted, noticed
            Attributes of the other space, its `texts` and its `columns`.
        """
        for name, indicator in zip(names, is_indicator, strict=True):
            self.add(*(name if indicator else (name, None)))
        self.noticed = list(noticed)
        self.texts.restore(left_out or {}, quoted or {})
        self.recall(n_refused, watched or {})

    def recall(self, n_refused: int, watched: Mapping[Hashable, Recurrence]) -> None:
        """Copy the counters of another space with the same columns."""
        self.columns.n_refused = n_refused
        self.texts.recall(watched)

    # Notices -----------------------------------------------------------------------------------------------------

    def notices(self) -> list[str]:
        """Return all notices about features, grouped by kind."""
        single, of_rows = self.mismatches.notices()
        return grouped([*self.texts.notices(), *map(datetimes.notice, self.timed), *self.noticed, *single]) + of_rows

    def notice(self, notices: Iterable[Notice]) -> None:
        """Record notices about the first rows and issue them as warnings."""
        self.noticed += (found := list(notices))
        self.said.say(*found)

    def say_times(self, names: Iterable[Hashable]) -> None:
        """Warn once per name that datetimes are encoded as hour and weekday."""
        new = [name for name in names if name not in self.timed]
        self.timed |= dict.fromkeys(new)
        self.said.say(*map(datetimes.notice, new))

    # New columns -------------------------------------------------------------------------------------------------

    def add(self, name: Hashable, string: str | None) -> int:
        """Add a column; see `Columns.add`."""
        column = self.columns.add(name, string)
        if string is not None and column >= 0:
            self.texts.begin(name)
        return column

    def add_numbers(self, names: list[Any], counts: Ints) -> None:
        """Add columns for numeric features; see `Columns.add_numbers`."""
        self.columns.add_numbers(names, counts)
        self.texts.say_mixed(filter(self.columns.strings.__contains__, names))
