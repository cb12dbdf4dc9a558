"""All that is decided about events: it follows labels in the order in which these find their events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.decide.alarms import Alarms
from streamsvm.decide.arrays import Floats, Ints, Members
from streamsvm.decide.conformal import ConformalSets
from streamsvm.decide.costs import UNKNOWN, Costs


@dataclass(slots=True)
class Rows:
    """Probabilities, in the order in which they are decided by and labels are taken.

    An event whose label comes with it, or not at all, is one row. One whose label comes later is two: where it is
    predicted, and, with the probabilities of then, where its label finds it.

    Parameters
    ----------
    proba
        Of all classes, shape (n, n_classes), 0 for those that were not known.
    labels
        None where there is none.
    asked
        Which rows something is to be decided about.
    followed
        Which labels are to be followed, rather than looked at only for what decisions have cost.
    """

    proba: Floats
    labels: Sequence[Any]
    asked: NDArray[np.bool_]
    followed: NDArray[np.bool_]

    @classmethod
    def with_labels(cls, proba: Floats, labels: Sequence[Any], *, follow: bool) -> Rows:
        """Events that have their labels with them."""
        n = len(labels)
        return cls(np.nan_to_num(proba), labels, np.ones(n, np.bool_), np.full(n, follow))


@dataclass(slots=True)
class Decided:
    """What is decided about events, each None where it is not wanted.

    Parameters
    ----------
    members
        Whether each class is in the set, shape (n, n_classes).
    decisions
        Those of least expected cost, by the number of the class, -1 for none, -2 where that is not known any more.
    alarms
        1 where there is one, else 0; -2 where that is not known any more.
    weights
        What the costs of each row's label are multiplied by.
    codes, own
        Of the labels by which it was decided, the numbers, and whether alarms are for them.
    """

    members: Members | None = None
    decisions: Ints | None = None
    alarms: Ints | None = None
    weights: Floats | None = None
    codes: Ints | None = None
    own: Ints | None = None

    def part(self, rows: Any) -> Decided:
        """That of some rows, without what is known of their labels."""
        columns = (self.members, self.decisions, self.alarms, self.weights)
        return Decided(*(None if column is None else column[rows] for column in columns))

    def of_first(self, k: int) -> Decided:
        """The same, with sets of the first k classes: others were in none."""
        return self if self.members is None else replace(self, members=self.members[:, :k])


class Decisions:
    """Sets of labels, decisions by what they cost, and alarms, as far as they are wanted.

    Parameters
    ----------
    sets, costs, alarms
        None where they are not wanted.
    label
        The class that alarms are for.

    Examples
    --------
    >>> decisions = Decisions(costs=Costs(abstain=0.3))
    >>> rows = Rows.with_labels(np.array([[0.9, 0.1], [0.5, 0.5]]), ["no", "yes"], follow=True)
    >>> decisions.run(rows, ["no", "yes"]).decisions
    array([ 0, -1])
    """

    def __init__(
        self,
        sets: ConformalSets | None = None,
        costs: Costs | None = None,
        alarms: Alarms | None = None,
        label: Any = None,
    ) -> None:
        self.sets, self.costs, self.alarms, self.label = sets, costs, alarms, label

    def __bool__(self) -> bool:
        return not (self.sets is None and self.costs is None and self.alarms is None)

    def run(self, rows: Rows, classes: Sequence[Any]) -> Decided:
        """Decide by each row, and take its label before the next.

        Parameters
        ----------
        rows
            Probabilities and labels.
        classes
            The labels that the probabilities are of, in order of first arrival.
        """
        codes = self.codes(rows.labels, classes)
        found = Decided(codes=codes)
        if self.sets is not None:
            found.members = self.sets.run(rows.proba, np.where(rows.followed, codes, -1))
        if self.costs is not None:
            found.decisions, found.weights = self.costs.decide_rows(rows.proba, codes, classes, rows.followed)
        if self.alarms is not None:
            found.own = self.is_alarmed_for(rows.labels)
            found.alarms = self._alarmed(self.alarms, rows, found.own, classes)
        return found

    @staticmethod
    def codes(labels: Sequence[Any], classes: Sequence[Any]) -> Ints:
        """Labels by the number of their class, -1 where there is none."""
        number = {label: code for code, label in enumerate(classes) if label is not None}
        return np.fromiter(map(number.get, labels, repeat(-1)), np.int64, len(labels))

    def is_alarmed_for(self, labels: Sequence[Any]) -> Ints:
        """Whether each label is the one that alarms are for, 1 or 0, or -1 where there is none."""
        return np.fromiter(map({self.label: 1, None: -1}.get, labels, repeat(0)), np.int64, len(labels))

    def _alarmed(self, alarms: Alarms, rows: Rows, own: Ints, classes: Sequence[Any]) -> Ints:
        [c], (n, k) = self.codes([self.label], classes), rows.proba.shape
        p = rows.proba[:, c] if 0 <= c < k else np.zeros(n)
        # A share is one of events, whatever their labels.
        used = rows.asked if alarms.kind == "share" else np.ones(n, np.bool_)
        raised = np.zeros(n, np.int64)
        raised[used] = alarms.run(p[used], np.where(rows.followed, own, -1)[used])
        return raised

    # What waits with an event -----------------------------------------------------------------------------------------

    def packed(self, proba: Floats, decided: Decided) -> Floats:
        """Rows to keep with events until their labels come: what was decided, and all probabilities.

        Parameters
        ----------
        proba
            Of all classes, shape (n, n_classes); NaN where there are none.
        decided
            What was decided by them.

        Returns
        -------
        array, shape (n, k)
            First the decision and the alarm, as far as they are wanted; then the probabilities, with the sign bit set
            for each class that is in the event's set.
        """
        notes = [column for column in (decided.decisions, decided.alarms) if column is not None]
        if decided.members is not None:
            proba = np.copysign(proba, np.where(decided.members, -1.0, 1.0))
        return np.column_stack([*notes, proba])

    def unpacked(self, held: Sequence[Floats], n_classes: int) -> tuple[Floats, Decided]:
        """What `packed` gave of events, some time or other, over all classes that are known by now.

        Parameters
        ----------
        held
            A row for each event, empty where nothing is known of it any more.
        n_classes
            How many classes are known by now.

        Returns
        -------
        proba, decided
            Probabilities, shape (n, n_classes), NaN where there are none; and what was decided by them.
        """
        n_notes = (self.costs is not None) + (self.alarms is not None)
        proba, notes = np.full((len(held), n_classes), np.nan), np.full((len(held), n_notes), UNKNOWN)
        for shares, note, row in zip(proba, notes, held, strict=True):
            if len(row):
                note[:] = row[:n_notes]
            if len(row) > n_notes:
                shares[:] = 0.0
                shares[: len(row) - n_notes] = row[n_notes:]
        found = Decided(
            None if self.sets is None else np.signbit(proba) & ~np.isnan(proba),
            None if self.costs is None else notes[:, 0],
            None if self.alarms is None else notes[:, -1],
        )
        return np.abs(proba), found
