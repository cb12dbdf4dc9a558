"""Sets of labels that cover the true one as often as is wanted, from any probabilities."""

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
from streamsvm.decide.arrays import Floats, Ints, Members
from streamsvm.models import ArchiveError
from streamsvm.models.archive import check_names
from streamsvm.parameters import check_between

Key = tuple[float, bool]
"""Which sets are meant: of what coverage, and whether by class."""


class ConformalSets:
    """Sets of classes that hold the true one in a wanted share of events, whatever the stream does.

    A set holds the classes whose probability is at least a threshold that follows the misses, and the most probable
    one in any case: so where the most probable one alone is right more often than is asked for, it stands alone, and
    the coverage is above what was asked for. How the threshold follows is in `streamsvm.decide.conformal_kernels`:
    however the stream drifts, and whatever the probabilities are worth, thresholds miss no more and no fewer than they
    may, but for 51 events counted from the beginning, and 102 over any stretch of the stream; the sets, which hold the
    most probable class too, miss no more than that. The first event of a class, which no set could hold, is left out.

    Parameters
    ----------
    coverage
        The share of events whose class is to be in its set, between 0 and 1.
    by_class
        Whether that is to hold for the events of each class by themselves, each of which has its own threshold then:
        rare classes are covered, too, at the price of larger sets.
    n_known
        How many classes are known from the beginning: their first events are not left out, and they may be in a set
        even where their probability is 0.

    Notes
    -----
    Adaptive conformal inference for shifts of unknown rate (Gibbs and Candès, arXiv 2208.08401), in the space of scores
    and with integrated errors (Angelopoulos, Candès and Tibshirani, arXiv 2307.16895).

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
            raise TypeError(f"`by_class` must be True or False, got {by_class!r}")
        prepare(list(kernels.ENTRY_POINTS.values()))
        self.coverage, self.by_class = float(coverage), by_class
        self._rows = State(kernels.COVERING)
        self._live = State(kernels.COVERING)
        self._use(self._new_state(2 if by_class else 1))
        self._state.n_known, self._n_groups = n_known, 0
        self._one: tuple[Floats, Ints, Members, State] | None = None  # the arrays of a single event, kept
        self._grow(1)

    most = kernels.MOST
    """The largest score, -log of a probability: less probable classes are taken for this."""

    @property
    def key(self) -> Key:
        """Which they are."""
        return self.coverage, self.by_class

    def _new_state(self, n_groups: int) -> State:
        state = State(kernels.SETS, {"groups": n_groups, "rates": len(kernels.RATES)})
        state.miss, state.by_class = 1.0 - self.coverage, self.by_class
        state.rates[:] = kernels.RATES
        return state

    def _grow(self, n_classes: int) -> None:
        """See that there is a threshold for each of so many classes."""
        n_groups = n_classes if self.by_class else 1
        if n_groups <= self._n_groups:
            return
        self._n_groups = n_groups
        if n_groups > len(self._state.groups):
            state = self._new_state(1 << (n_groups - 1).bit_length())
            state.take(self._state)
            self._use(state)
        kernels.begin_groups(self._state, n_groups)

    def _use(self, state: State) -> None:
        """Work on this state from now on, also where a learner is followed."""
        self._state, self._live.sets = state, state.address

    def of(self, proba: Floats) -> Members:
        """The sets of rows, by the thresholds as they are.

        Parameters
        ----------
        proba
            Probabilities of all classes, shape (n, n_classes).

        Returns
        -------
        array of bool
            Whether each class is in the set, shape (n, n_classes); nothing is where no class is known.
        """
        return self.run(proba, np.full(len(proba), -1))

    def run(self, proba: Floats, codes: Ints) -> Members:
        """The set of each row, of which the label is taken (where it is not -1) before the next row.

        Parameters
        ----------
        proba
            Probabilities, shape (n, n_classes), 0 for classes that are not known.
        codes
            The class of each event, by its number in order of arrival, -1 where it is not known.

        Returns
        -------
        array of bool
            Whether each class is in the set, shape (n, n_classes), as `of` has it.
        """
        members = np.zeros(proba.shape, np.bool_)
        if len(codes) != len(proba):
            raise ValueError(f"there are {len(proba)} rows of probabilities, and {len(codes)} codes")
        self._grow(proba.shape[1])
        self._rows.bind(
            proba=np.ascontiguousarray(proba, np.float64),
            labels=np.ascontiguousarray(codes, np.int64),
            members=members,
        )
        _step()(self._state, self._rows)
        return members

    def run_one(self, proba: Floats | Sequence[float], code: int = -1) -> Members:
        """As `run` for one event: its probabilities, and its set, are of shape (n_classes,).

        Parameters
        ----------
        proba
            Probabilities, shape (n_classes,), 0 for classes that are not known.
        code
            The class of the event, by its number in order of arrival, -1 where it is not known.

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

    def follow(self, proba: Floats, then: int = 0) -> int:
        """Find the set of each single event of a learner, and take its label, by the probabilities that it leaves.

        Parameters
        ----------
        proba
            Where it leaves them, shape (1, n_classes), contiguous.
        then
            The address of other sets that follow it, as they gave it; 0 for none.

        Returns
        -------
        int
            The address of these, for `follow_sets`.
        """
        self._grow(proba.shape[1])
        members = np.zeros(proba.shape, np.bool_)
        self._live.bind(proba=proba, members=members)
        self._live.next, self._found = then, members.data
        return int(self._live.address)

    def found(self, classes: Iterable[Any]) -> set[Any]:
        """The set of the single event that the learner followed has predicted last.

        Parameters
        ----------
        classes
            The labels.
        """
        return set(compress(classes, self._found.tobytes()))

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """All that was learned, as arrays."""
        tight = self._new_state(self._n_groups)
        tight.take(self._state)
        return tight.saved()

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `state` gave.

        Parameters
        ----------
        arrays
            What `state` gave.

        Raises
        ------
        ValueError
            Where it is not that of such sets.
        """
        n_groups = int(arrays["n_groups"])
        if len(arrays["groups.seen"]) != n_groups or (not self.by_class and n_groups != 1):
            raise ArchiveError(f"sets of labels with {n_groups} thresholds")
        state = self._new_state(n_groups)
        check_names(arrays, set(state.names()))
        state.restore(arrays)
        self._use(state)
        self._n_groups, self._one = n_groups, None

    def __getstate__(self) -> dict[str, Any]:
        return {"coverage": self.coverage, "by_class": self.by_class, "arrays": self.state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.coverage, self.by_class = state["coverage"], state["by_class"]
        self._rows, self._live = State(kernels.COVERING), State(kernels.COVERING)
        self.restore(state["arrays"])


@cache
def _step() -> Any:
    """The compiled step, which is called without the look at the types of its arguments that a dispatcher takes."""
    return kernels.ENTRY_POINTS["run_sets"].compile()


def follow_address() -> int:
    """Where the code is that follows a learner."""
    prepare([kernels.ENTRY_POINTS["follow_sets"]])
    return int(kernels.ENTRY_POINTS["follow_sets"].compile().address)


class AllSets:
    """The sets that a learner is asked for, each from when it was asked for first.

    Examples
    --------
    >>> sets = AllSets()
    >>> bool(sets), len(sets.of(0.9, False, ["a", "b"]).of(np.array([[0.99, 0.01]]))), bool(sets)
    (False, 1, True)
    """

    def __init__(self) -> None:
        self._sets: dict[Key, ConformalSets] = {}

    def __bool__(self) -> bool:
        return bool(self._sets)

    def follow(self, proba: Floats) -> int:
        """Follow a learner, as `ConformalSets.follow`; 0 where there are none."""
        address = 0
        for sets in self._sets.values():
            address = sets.follow(proba, address)
        return address

    def get(self, coverage: float, by_class: bool) -> ConformalSets | None:
        """Those of a coverage, if they were ever asked for."""
        return self._sets.get((coverage, by_class))

    def of(self, coverage: float, by_class: bool, classes: Sequence[Any]) -> ConformalSets:
        """Those of a coverage, which begin now if they were never asked for: by now these classes are known."""
        found = self.get(coverage, by_class)
        if found is None:
            found = ConformalSets(coverage, by_class, n_known=len(classes))
            found = self._sets.setdefault(found.key, found)  # 9/10 is .9
        return found

    def run(self, proba: Floats, codes: Ints, wanted: Key | None = None) -> Members | None:
        """Take labels, as `ConformalSets.run`; the sets of each row that are wanted."""
        members = None
        for key, sets in self._sets.items():
            found = sets.run(proba, codes)
            members = found if key == wanted else members
        return members

    def learn_one(self, proba: Floats, code: int) -> None:
        """Take the label of one event."""
        for sets in self._sets.values():
            sets.run_one(proba, code)

    def header(self) -> list[Any]:
        """Which they are, for JSON."""
        return [list(key) for key in self._sets]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What they have learned, by names that begin with `sets.`."""
        each = enumerate(self._sets.values())
        return {f"sets.{i}.{name}": array for i, sets in each for name, array in sets.state().items()}

    @classmethod
    def from_state(cls, header: Sequence[Any], arrays: Mapping[str, NDArray[Any]]) -> AllSets:
        """What `header` and `arrays` gave, among others."""
        self = cls()
        for i, (coverage, by_class) in enumerate(header):
            sets, under = ConformalSets(coverage, by_class), f"sets.{i}."
            sets.restore({name.removeprefix(under): a for name, a in arrays.items() if name.startswith(under)})
            self._sets[coverage, by_class] = sets
        return self


def labels_in(members: Members, classes: Iterable[Any]) -> list[Any]:
    """The labels in a set, in order of first arrival."""
    return list(compress(classes, members.tolist()))
