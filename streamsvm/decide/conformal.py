"""Conformal prediction sets from the probabilities of any classifier."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.decide import conformal_kernels as kernels
from streamsvm.features.rows import Floats, Ints
from streamsvm.models import ArchiveError, codec
from streamsvm.models.archive import check_names
from streamsvm.models.codec import Stateful, under
from streamsvm.parameters import ParameterTypeError, check_between

Members = NDArray[np.bool_]
Key = tuple[float, bool]
"""Coverage of the sets, and whether it holds by class."""


class ConformalSets(Stateful):
    """Prediction sets that contain the true class in a given share of events.

    A set contains the classes with a probability of at least a threshold, and always the most probable class. If the
    most probable class is correct more often than `coverage`, sets have one class and the coverage is higher.

    The threshold adapts to misses, see `streamsvm.decide.conformal_kernels`. The number of misses differs from the
    allowed number by at most 51 from the start of the stream. Over any part of it, it differs by at most 102. This
    holds under any drift and for any probabilities. Sets may miss less often than their threshold, because they also
    contain the most probable class. The first event of a class does not count, because no set can contain a new class.

    Parameters
    ----------
    coverage
        Share of events whose class is in the set, between 0 and 1.
    by_class
        Whether the coverage holds for each class separately, with one threshold per class. This covers rare classes
        too, but sets are larger.
    n_known
        Number of classes known from the start. Their first events count, and they may be in a set even if their
        probability is 0.

    Notes
    -----
    The method is adaptive conformal inference for drift of unknown rate (Gibbs and Candès, arXiv 2208.08401). It tracks
    scores and integrates errors (Angelopoulos, Candès and Tibshirani, arXiv 2307.16895).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sets = ConformalSets(coverage=0.9)
    >>> proba = rng.dirichlet([0.5, 0.5, 0.5], 5_000)
    >>> codes = np.array([rng.choice(3, p=p) for p in proba])
    >>> members = sets.run(proba, codes)
    >>> bool(0.89 < members[np.arange(5_000), codes].mean() < 0.91)
    True
    """

    def __init__(self, coverage: float = 0.9, by_class: bool = False, *, n_known: int = 0) -> None:
        check_between("coverage", coverage, 0.0, 1.0)
        if not isinstance(by_class, bool):
            raise ParameterTypeError("by_class", f"must be True or False, got {by_class!r}")
        prepare(list(kernels.ENTRY_POINTS.values()))
        self.coverage, self.by_class = float(coverage), by_class
        self._rows = State(kernels.COVERING)
        self._live = State(kernels.COVERING)
        self._use(self._new_state(2 if by_class else 1))
        self._state.n_known, self._n_groups = n_known, 0
        self._one: tuple[Floats, Ints, Members, State] | None = None  # arrays of a single event
        self._grow(1)

    most = kernels.MOST
    """Maximum score (negative logarithm of a probability); larger ones are clipped."""

    @property
    def key(self) -> Key:
        """Coverage, and whether it holds by class."""
        return self.coverage, self.by_class

    def _new_state(self, n_groups: int) -> State:
        state = State(kernels.SETS, {"groups": n_groups, "rates": len(kernels.RATES)})
        state.miss, state.by_class = 1.0 - self.coverage, self.by_class
        state.rates[:] = kernels.RATES
        return state

    def _grow(self, n_classes: int) -> None:
        """Create thresholds for new classes."""
        n_groups = n_classes if self.by_class else 1
        if n_groups <= self._n_groups:
            return
        self._n_groups = n_groups
        if n_groups > len(self._state.groups):
            state = self._new_state(1 << (n_groups - 1).bit_length())
            state.take(self._state)
            self._use(state)
        kernels.ENTRY_POINTS["begin_groups"](self._state, n_groups)

    @property
    def memory(self) -> State:
        """The thresholds, for compiled code.

        New classes may move them to other memory.
        """
        return self._state

    def _use(self, state: State) -> None:
        """Replace the state, also in the callback of a learner."""
        self._state, self._live.sets = state, state.address

    def of(self, proba: Floats) -> Members:
        """Predict the sets of rows with the current thresholds.

        Parameters
        ----------
        proba
            Probabilities of all classes, shape (n, n_classes).

        Returns
        -------
        array of bool
            Whether each class is in the set, shape (n, n_classes). A set is empty if no class is known.
        """
        return self.run(proba, np.full(len(proba), -1))

    def run(self, proba: Floats, codes: Ints) -> Members:
        """Predict the set of each row, then update the thresholds with its label.

        Parameters
        ----------
        proba
            Probabilities, shape (n, n_classes), 0 for unknown classes.
        codes
            The class of each event, by its number in order of arrival; -1 if unknown.

        Returns
        -------
        array of bool
            Whether each class is in the set, shape (n, n_classes), as in `of`.
        """
        members = np.zeros(proba.shape, np.bool_)
        if len(codes) != len(proba):
            raise ValueError(f"there are {len(proba)} rows of probabilities, and {len(codes)} codes")
        self._grow(proba.shape[1])
        self._rows.bind(
            proba=np.ascontiguousarray(proba, np.float64), labels=np.ascontiguousarray(codes, np.int64), members=members
        )
        _step()(self._state, self._rows)
        return members

    def run_one(self, proba: Floats | Sequence[float], code: int = -1) -> Members:
        """Predict the set of one event, then update the thresholds with its label.

        Parameters
        ----------
        proba
            Probabilities, shape (n_classes,), 0 for unknown classes.
        code
            The class of the event, by its number in order of arrival; -1 if unknown.

        Returns
        -------
        array of bool
            Whether each class is in the set, shape (n_classes,); the next call overwrites it.
        """
        n = len(proba)
        if self._one is None or len(self._one[2]) != n:
            self._grow(n)
            row, label, members = np.zeros((1, n)), np.zeros(1, np.int64), np.zeros((1, n), np.bool_)
            rows = State(kernels.COVERING)
            rows.bind(proba=row, labels=label, members=members)
            self._one = row[0], label, members[0], rows
        row, label, members, rows = self._one
        row[:], label[0] = proba, code
        _step()(self._state, rows)
        return members

    def bind_callback(self, proba: Floats, next_address: int = 0) -> int:
        """Prepare the callback that updates these sets after each single event.

        Parameters
        ----------
        proba
            The array in which the learner writes the probabilities of an event, shape (1, n_classes), contiguous.
        next_address
            Address returned by `bind_callback` of the next sets to update; 0 for none.

        Returns
        -------
        int
            Address of the callback's state, for `update_sets`.
        """
        self._grow(proba.shape[1])
        members = np.zeros(proba.shape, np.bool_)
        self._live.bind(proba=proba, members=members)
        self._live.next, self._found = next_address, members.data
        return int(self._live.address)

    def found(self, classes: Iterable[Any]) -> set[Any]:
        """Return the set of the single event that the learner predicted last.

        Parameters
        ----------
        classes
            The labels, in order of first arrival.
        """
        return set(compress(classes, self._found.tobytes()))

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> codec.SavedState:
        """Return the learned state as a JSON header and arrays."""
        tight = self._new_state(self._n_groups)
        tight.take(self._state)
        return {}, tight.saved()

    def restore(self, state: codec.SavedState) -> None:
        """Restore the result of `state`.

        Raises
        ------
        ValueError
            If it is not the state of sets with these parameters.
        """
        _, arrays = state
        n_groups = int(arrays["n_groups"])
        if len(arrays["groups.seen"]) != n_groups or (not self.by_class and n_groups != 1):
            raise ArchiveError(f"sets of labels with {n_groups} thresholds")
        memory = self._new_state(n_groups)
        check_names(arrays, set(memory.names()))
        memory.restore(arrays)
        self._use(memory)
        self._n_groups, self._one = n_groups, None

    def __getstate__(self) -> dict[str, Any]:
        return {"coverage": self.coverage, "by_class": self.by_class, "learned": self.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.coverage, self.by_class = state["coverage"], state["by_class"]
        self._rows, self._live = State(kernels.COVERING), State(kernels.COVERING)
        self.restore(state["learned"])


@cache
def _step() -> Any:
    """Return the compiled step, without the type checks of the dispatcher."""
    return kernels.ENTRY_POINTS["run_sets"].compile()


def callback_address() -> int:
    """Return the address of the callback `update_sets`."""
    prepare([kernels.ENTRY_POINTS["update_sets"]])
    return int(kernels.ENTRY_POINTS["update_sets"].compile().address)


class AllSets(dict[Key, ConformalSets]):
    """Prediction sets that were requested from a learner, by key.

    Sets are updated from their first request on.

    Examples
    --------
    >>> sets = AllSets()
    >>> bool(sets), len(sets.of(0.9, False, ["a", "b"]).of(np.array([[0.99, 0.01]]))), bool(sets)
    (False, 1, True)
    """

    def bind_callback(self, proba: Floats) -> int:
        """Prepare a callback for all sets and return its address, 0 without sets."""
        address = 0
        for sets in self.values():
            address = sets.bind_callback(proba, address)
        return address

    def of(self, coverage: float, by_class: bool, classes: Sequence[Any]) -> ConformalSets:
        """Return the sets of a coverage, created if they were never requested.

        `classes` are the classes known so far.
        """
        found = self.get((coverage, by_class))
        if found is None:
            found = ConformalSets(coverage, by_class, n_known=len(classes))
            found = self.setdefault(found.key, found)  # 9/10 is .9
        return found

    def run(self, proba: Floats, codes: Ints, wanted: Key | None = None) -> Members | None:
        """Update all sets, see `ConformalSets.run`; return the sets of the key `wanted`."""
        members = None
        for key, sets in self.items():
            found = sets.run(proba, codes)
            members = found if key == wanted else members
        return members

    def learn_one(self, proba: Floats, code: int) -> None:
        """Update all sets with the label of one event."""
        for sets in self.values():
            sets.run_one(proba, code)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the learned states of all sets, with names that start with `sets.`."""
        each = enumerate(self.values())
        return {f"sets.{i}.{name}": array for i, sets in each for name, array in sets.state()[1].items()}

    @classmethod
    def from_state(cls, keys: Sequence[Any], arrays: Mapping[str, NDArray[Any]]) -> AllSets:
        """Restore sets from their keys and arrays; other arrays are ignored."""
        self = cls()
        for i, (coverage, by_class) in enumerate(keys):
            self[coverage, by_class] = ConformalSets(coverage, by_class)
            self[coverage, by_class].restore(({}, under(arrays, f"sets.{i}.")))
        return self


def labels_in(members: Members, classes: Iterable[Any]) -> list[Any]:
    """Return the labels in a set, in order of first arrival."""
    return list(compress(classes, members.tolist()))
