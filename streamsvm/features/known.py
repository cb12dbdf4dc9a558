"""The features that a stream has brought: their columns, and what was noticed of them."""

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
    """The columns of features, with the texts that are categories, and warnings.

    Parameters
    ----------
    max_features
        The most columns.
    categories
        Names whose texts are never left out.

    Attributes
    ----------
    columns
        The column of each name, and of each text.
    texts
        Which texts are categories.
    mismatches
        Warnings about features that differ from those learned.
    """

    def __init__(self, max_features: int, categories: Iterable[Hashable] = ()) -> None:
        self.columns = Columns(max_features)
        self.noticed: list[Notice] = []  # what the first rows told
        self.said = Notices(logger)  # by this space and its copies
        self.timed: dict[Hashable, None] = {}  # names of datetimes that were learned
        self.texts = Texts(self.columns, categories, self.said)
        self.mismatches = Mismatches(self.columns, self.texts, self.said, logger)

    def __len__(self) -> int:
        return len(self.columns.names)

    @property
    def names(self) -> list[Any]:
        """The name of each column."""
        return self.columns.names

    @property
    def is_indicator(self) -> list[bool]:
        """Whether a column is of a string."""
        return self.columns.is_indicator

    @property
    def n_refused(self) -> int:
        """The number of values that got no column."""
        return self.columns.n_refused

    @property
    def left_out(self) -> dict[Hashable, str]:
        """The names that are left out."""
        return self.texts.left_out

    def is_dead(self, column: int) -> bool:
        """Whether a column is of a string that is left out."""
        return self.texts.is_dead(column)

    def copy(self) -> Self:
        """Return a copy that shares nothing but what was said."""
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
        """Take the columns another space had, and what it had noticed of them."""
        for name, indicator in zip(names, is_indicator, strict=True):
            self.add(*(name if indicator else (name, None)))
        self.noticed = list(noticed)
        self.texts.restore(left_out or {}, quoted or {})
        self.recall(n_refused, watched or {})

    def recall(self, n_refused: int, watched: Mapping[Hashable, Recurrence]) -> None:
        """Take over what another space of the same columns had counted."""
        self.columns.n_refused = n_refused
        self.texts.recall(watched)

    # Notices -----------------------------------------------------------------------------------------------------

    def notices(self) -> list[str]:
        """For each name left out, and each of datetimes, why, and what can be done; and of names that do not fit."""
        single, of_rows = self.mismatches.notices()
        return grouped([*self.texts.notices(), *map(datetimes.notice, self.timed), *self.noticed, *single]) + of_rows

    def notice(self, notices: Iterable[Notice]) -> None:
        """Warn of what the first rows told."""
        self.noticed += (found := list(notices))
        self.said.say(*found)

    def say_times(self, names: Iterable[Hashable]) -> None:
        """Say once of each name that datetimes under it are learned by their hours and weekdays."""
        new = [name for name in names if name not in self.timed]
        self.timed |= dict.fromkeys(new)
        self.said.say(*map(datetimes.notice, new))

    # New columns -------------------------------------------------------------------------------------------------

    def add(self, name: Hashable, string: str | None) -> int:
        """Add a column, as `Columns.add` does."""
        column = self.columns.add(name, string)
        if string is not None and column >= 0:
            self.texts.begin(name)
        return column

    def add_numbers(self, names: list[Any], counts: Ints) -> None:
        """Add columns for names of numbers; names[i] came counts[i] times."""
        self.columns.add_numbers(names, counts)
        self.texts.say_mixed(filter(self.columns.strings.__contains__, names))
