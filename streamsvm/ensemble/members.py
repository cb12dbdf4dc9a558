"""Members of an ensemble: their memory, heads and kernels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from streamsvm.budgeted import kernels as budgeted
from streamsvm.budgeted import maintenance
from streamsvm.budgeted.classifier import BSGDClassifier
from streamsvm.core import losses
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.state import State
from streamsvm.ensemble import codes, forest, linear, naive_bayes, trees
from streamsvm.features.scaler import UNLIMITED
from streamsvm.models import ArchiveError
from streamsvm.online import base
from streamsvm.online.saving import check_bounds
from streamsvm.parameters import ParameterTypeError, check_choice
from streamsvm.polytope import kernels as polytope
from streamsvm.polytope.classifier import CPMClassifier

# Loss and step size of each head of a kernel member, and step sizes of the heads of the linear member. The first one is
# for rows with too many columns for the filter.
HEADS = (("hinge", 0.1), ("hinge", 1.0), ("log", 0.2))
LINEAR_RATES = (0.01, 0.003, 0.03, 0.3)
# Size of the large members, in budgets.
LARGE = 5
# Maximum number of columns of kernel members. Their memory and time are proportional to it.
KERNEL_COLUMNS = 2_048


def members_of(state: State) -> list[State]:
    """Return the states of the members of an ensemble."""
    return [part for name, part in state.parts.items() if name.isdecimal()]


class Member:
    """Kind of member: its memory, heads, inverse temperatures and kernels."""

    entries: Sequence[EntryPoint]  # `run_member` of its kernels, then other entry points
    head_names: Sequence[str]
    inverse_temperature: Sequence[float]
    on_ranks = has_metric = False
    most_events = 0  # number of events the member can store

    def n_columns(self, n: int) -> int:
        """Return how many of n columns the member sees."""
        return n

    def new_state(self, n_columns: int, n_classes: int, rows: State, room: int) -> State:
        """Return an empty state, for rows that are already scaled.

        Parameters
        ----------
        room
            Number of events to allocate memory for.
        """
        raise NotImplementedError

    def check_restored(self, state: State) -> None:
        """Validate a restored state beyond the bounds of its schema."""

    def refresh(self, state: State) -> None:
        """Recompute everything derived from a restored state."""

    def fit_settings(self, state: State) -> None:
        """Reduce a state to the memory that the settings allow."""


class _Learner(Member, base.OnlineClassifier):
    """Member that is an online learner without a state of its own."""

    def _reset(self) -> None:
        pass

    @abstractmethod
    def _new_state(self, n_columns: int, n_classes: int, rows: State | None = None, *, room: int = UNLIMITED) -> State:
        """Return an empty state for scaled rows."""

    def new_state(self, n_columns: int, n_classes: int, rows: State, room: int) -> State:
        return self._new_state(self.n_columns(n_columns), n_classes, rows, room=room)

    def check_restored(self, state: State) -> None:
        self._check_restored(state)

    def refresh(self, state: State) -> None:
        self._refresh(state)

    def fit_settings(self, state: State) -> None:
        self._fit_settings(state)


class _KernelMember(BSGDClassifier, _Learner):
    entries = (budgeted.ENTRY_POINTS["run_member"], maintenance.ENTRY_POINTS["maintain"])
    head_names = tuple(f"{loss} {rate:g}" for loss, rate in HEADS)
    inverse_temperature = tuple(losses.HINGE_INVERSE_TEMPERATURE if loss == "hinge" else 1.0 for loss, _ in HEADS)
    has_metric = True

    def __init__(self, budget: int, gamma_factor: float, on_ranks: bool) -> None:
        super().__init__(budget, scaling="none", absorb=0.95, max_features=1)
        self.gamma_factor, self.on_ranks, self.most_events = gamma_factor, on_ranks, budget

    def _heads(self) -> tuple[tuple[str, float | None], ...]:
        return HEADS

    def n_columns(self, n: int) -> int:
        return min(n, KERNEL_COLUMNS)


class _PolytopeMember(CPMClassifier, _Learner):
    entries = (polytope.ENTRY_POINTS["run_member"],)
    head_names, inverse_temperature = ("hinge",), (2.0,)

    def __init__(self) -> None:
        super().__init__(scaling="none", max_features=1)


class _LinearMember(Member):
    entries = (linear.ENTRY_POINTS["run_member"],)
    head_names = ("filter", *(f"log {rate:g}" for rate in LINEAR_RATES[1:]))
    inverse_temperature = (1.0,) * len(LINEAR_RATES)

    def new_state(self, n_columns: int, n_classes: int, rows: State, room: int) -> State:
        has_codes = room >= codes.FIRST_EVENTS and n_classes <= codes.MOST_CLASSES
        sizes = {"weight_rows": n_columns + 1, "heads": len(LINEAR_RATES), "classes": n_classes}
        sizes["slots"] = codes.SLOTS if has_codes else 0
        sizes["filtered"] = min(n_columns, linear.MOST_FILTERED) + 1
        state = State(linear.LINEAR, sizes, parts={"rows": rows})
        state.rates[:] = LINEAR_RATES
        np.fill_diagonal(state.covariance, linear.PRIOR)
        return state

    def check_restored(self, state: State) -> None:
        covariance = state.covariance
        if not np.array_equal(covariance, covariance.T) or np.any(np.linalg.eigvalsh(covariance) < -1e-9):
            raise ArchiveError("the covariance of the linear member is not symmetric and positive definite")


class _TreeMember(Member):
    entries = (trees.ENTRY_POINTS["run_member"],)
    head_names, inverse_temperature = ("trees", "neighbours"), (1.0, 1.0)
    most_events = trees.STORED

    def n_columns(self, n: int) -> int:
        return min(n, trees.MOST_COLUMNS)

    def new_state(self, n_columns: int, n_classes: int, rows: State, room: int) -> State:
        return trees.new_trees(self.n_columns(n_columns), n_classes, room, rows)

    def check_restored(self, state: State) -> None:
        check_bounds("columns of splits", state.columns, 0, max(state.row.size - 1, 0))
        check_bounds("n_columns", np.array([state.n_columns]), 0, state.row.size)


class _ForestMember(Member):
    entries = tuple(forest.ENTRY_POINTS.values())
    head_names, inverse_temperature = ("forest",), (1.0,)
    most_events = forest.STORED

    def n_columns(self, n: int) -> int:
        return min(n, trees.MOST_COLUMNS)

    def new_state(self, n_columns: int, n_classes: int, rows: State, room: int) -> State:
        return forest.new_forest(self.n_columns(n_columns), n_classes, room, rows)

    def check_restored(self, state: State) -> None:
        check_bounds("labels of the forest", state.labels, 0, max(min(state.n_classes, state.counts.shape[1]) - 1, 0))
        check_bounds("n_columns", np.array([state.n_columns]), 0, state.row.size)

    def refresh(self, state: State) -> None:
        if not forest.ENTRY_POINTS["refresh"](state):
            raise ArchiveError("the nodes of the forest are not trees")


class _NaiveBayesMember(Member):
    entries = (naive_bayes.ENTRY_POINTS["run_member"],)
    head_names, inverse_temperature = ("gaussian",), (1.0,)

    def new_state(self, n_columns: int, n_classes: int, rows: State, room: int) -> State:
        return naive_bayes.new_naive_bayes(n_columns, n_classes, rows)

    def check_restored(self, state: State) -> None:
        check_bounds("n_columns", np.array([state.n_columns]), 0, state.row.size)


# Kinds of members are immutable, so all ensembles share them.
_kernel_member: Callable[[int, float, bool], Member] = cache(_KernelMember)
_polytope_member, _linear_member, _tree_member = cache(_PolytopeMember), cache(_LinearMember), cache(_TreeMember)
_forest_member, _naive_bayes_member = cache(_ForestMember), cache(_NaiveBayesMember)

# Factories of members by name; the argument is the budget.
MEMBERS: dict[str, Callable[[int], Member]] = {
    "standard": lambda budget: _kernel_member(budget, 1.0, False),
    "ranks": lambda budget: _kernel_member(budget, 1.0, True),
    "standard-large": lambda budget: _kernel_member(LARGE * budget, 8.0, False),
    "ranks-large": lambda budget: _kernel_member(LARGE * budget, 4.0, True),
    "polytope": lambda _: _polytope_member(),
    "linear": lambda _: _linear_member(),
    "trees": lambda _: _tree_member(),
    "forest": lambda _: _forest_member(),
    "naive-bayes": lambda _: _naive_bayes_member(),
}


def check_members(members: Any) -> None:
    """Raise an error unless `members` is a tuple of member names."""
    if not isinstance(members, tuple) or not members:
        raise ParameterTypeError("members", f"must be a tuple of names or None, got {members!r}")
    for i, name in enumerate(members):
        check_choice(f"members[{i}]", name, tuple(MEMBERS))
