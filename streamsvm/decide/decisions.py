"""Prediction sets, decisions and alarms, updated in the order of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from struct import pack, unpack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.decide.alarms import Alarms
from streamsvm.decide.conformal import ConformalSets, Members
from streamsvm.decide.costs import UNKNOWN, Costs
from streamsvm.features.rows import Floats, Ints


@dataclass(slots=True)
class DecisionRows:
    """Probabilities and labels, in the order of decisions and updates.

    An event with an immediate label, or without one, is one row. An event with a delayed label is two rows: one at its
    prediction, and one at the arrival of the label. Both have the probabilities of the prediction.

    Parameters
    ----------
    proba
        Probabilities of all classes, shape (n, n_classes), 0 for classes unknown at that time.
    labels
        The labels, None if unknown.
    asked
        The rows that need a decision.
    learned
        The rows with labels that cause an update. Other labels are only used for the costs of the decisions.
    """

    proba: Floats
    labels: Sequence[Any]
    asked: NDArray[np.bool_]
    learned: NDArray[np.bool_]

    @classmethod
    def with_labels(cls, proba: Floats, labels: Sequence[Any], *, learn: bool) -> DecisionRows:
        """Create the rows of events with immediate labels."""
        n = len(labels)
        return cls(np.nan_to_num(proba), labels, np.ones(n, np.bool_), np.full(n, learn))


@dataclass(slots=True)
class Decided:
    """Results for events; each is None if it was not requested.

    Parameters
    ----------
    members
        Whether each class is in the set, shape (n, n_classes).
    decisions
        The number of the class of minimum expected cost; -1 for abstaining, -2 if no longer known.
    alarms
        1 for an alarm, else 0; -2 if no longer known.
    weights
        The factor for the cost of each row's label.
    codes, own
        The number of each row's label, and whether it is the class that alarms are for.
    """

    members: Members | None = None
    decisions: Ints | None = None
    alarms: Ints | None = None
    weights: Floats | None = None
    codes: Ints | None = None
    own: Ints | None = None

    def part(self, rows: Any) -> Decided:
        """Return the results of some rows that do not depend on labels."""
        columns = (self.members, self.decisions, self.alarms, self.weights)
        return Decided(*(None if column is None else column[rows] for column in columns))

    def with_first_classes(self, k: int) -> Decided:
        """Return the results with sets of the first k classes."""
        return self if self.members is None else replace(self, members=self.members[:, :k])


class Decisions:
    """Prediction sets, cost-sensitive decisions and alarms of a run.

    Parameters
    ----------
    sets, costs, alarms
        The respective objects, None if not requested.
    label
        The class that alarms are for.

    Examples
    --------
    >>> decisions = Decisions(costs=Costs(abstain=0.3))
    >>> rows = DecisionRows.with_labels(np.array([[0.9, 0.1], [0.5, 0.5]]), ["no", "yes"], learn=True)
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

    @property
    def n_notes(self) -> int:
        """Number of values stored with an event beside its probabilities."""
        return (self.costs is not None) + (self.alarms is not None)

    def run(self, rows: DecisionRows, classes: Sequence[Any]) -> Decided:
        """Decide on each row, then update with its label.

        Parameters
        ----------
        rows
            Probabilities and labels.
        classes
            The labels of the columns of the probabilities, in order of first arrival.
        """
        codes = self.codes(rows.labels, classes)
        found = Decided(codes=codes)
        if self.sets is not None:
            found.members = self.sets.run(rows.proba, np.where(rows.learned, codes, -1))
        if self.costs is not None:
            found.decisions, found.weights = self.costs.decide_rows(rows.proba, codes, classes, rows.learned)
        if self.alarms is not None:
            found.own = self.is_alarmed_for(rows.labels)
            found.alarms = self._alarmed(self.alarms, rows, found.own, classes)
        return found

    @staticmethod
    def codes(labels: Sequence[Any], classes: Sequence[Any]) -> Ints:
        """Return the number of each label's class, -1 for no label."""
        number = {label: code for code, label in enumerate(classes) if label is not None}
        return np.fromiter(map(number.get, labels, repeat(-1)), np.int64, len(labels))

    def is_alarmed_for(self, labels: Sequence[Any]) -> Ints:
        """Return 1 for labels of the alarmed class, 0 for other labels, -1 for no label."""
        return np.fromiter(map({self.label: 1, None: -1}.get, labels, repeat(0)), np.int64, len(labels))

    def _alarmed(self, alarms: Alarms, rows: DecisionRows, own: Ints, classes: Sequence[Any]) -> Ints:
        [c], (n, k) = self.codes([self.label], classes), rows.proba.shape
        p = rows.proba[:, c] if 0 <= c < k else np.zeros(n)
        # A share counts each event once, so the second rows of events with late labels are left out.
        used = rows.asked if alarms.kind == "share" else np.ones(n, np.bool_)
        raised = np.zeros(n, np.int64)
        raised[used] = alarms.run(p[used], np.where(rows.learned, own, -1)[used])
        return raised

    # Single events without alarms -------------------------------------------------------------------------------------

    def decide_one(self, proba: Floats, classes: Sequence[Any]) -> tuple[Decided, bytes]:
        """Decide on one event as `run` does.

        Parameters
        ----------
        proba
            Probabilities of all classes, shape (n_classes,).
        classes
            The labels, in order of first arrival.

        Returns
        -------
        decided : Decided
            The results for the event; the next call overwrites them.
        packed : bytes
            Its row of `packed`.
        """
        found, shares, notes = Decided(), proba.tolist(), list[float]()
        if self.costs is not None:
            self.costs.matrix(classes)
            notes = [self.costs.decide_one(shares)]
            found.decisions = np.array(notes, np.int64)
        if self.sets is not None:
            members = self.sets.run_one(proba)
            found.members = members[None]
            shares = [-share if is_member else share for share, is_member in zip(shares, members.tolist(), strict=True)]
        return found, pack(f"{len(notes) + len(shares)}d", *notes, *shares)

    def learn_one(self, packed: Any, code: int, n_classes: int) -> None:
        """Update with the label of one event as `run` does.

        Parameters
        ----------
        packed
            Its row of `packed`, as bytes.
        code
            The number of its class.
        n_classes
            Number of classes known now.
        """
        shares = [abs(share) for share in unpack(f"{len(packed) // 8}d", packed)[self.costs is not None :]]
        if self.sets is not None:
            self.sets.run_one(shares + [0.0] * (n_classes - len(shares)), code)
        if self.costs is not None:
            self.costs.count_labels(code)

    # Results stored with an event -------------------------------------------------------------------------------------

    def packed(self, proba: Floats, decided: Decided) -> Floats:
        """Pack results and probabilities of events to store them until labels arrive.

        Parameters
        ----------
        proba
            Probabilities of all classes, shape (n, n_classes); NaN if unknown.
        decided
            The results for the events.

        Returns
        -------
        ndarray of float64, shape (n, k)
            The decision and the alarm, if requested, followed by the probabilities. The sign bit of a probability is
            set if the class is in the set.
        """
        notes = [column for column in (decided.decisions, decided.alarms) if column is not None]
        if decided.members is not None:
            proba = np.copysign(proba, np.where(decided.members, -1.0, 1.0))
        return np.column_stack([*notes, proba])

    def unpacked(self, held: Sequence[Floats], n_classes: int) -> tuple[Floats, Decided]:
        """Unpack the rows of `packed`, extended to all classes known now.

        Parameters
        ----------
        held
            The packed row of each event, empty if it is no longer stored.
        n_classes
            Number of classes known now.

        Returns
        -------
        proba : ndarray of float64, shape (n, n_classes)
            Probabilities, NaN if unknown.
        decided : Decided
            The results for the events.
        """
        n_notes = self.n_notes
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
