"""Reasons of the learners of this room: a compiled walk through what an event would score with fewer features."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from streamsvm.core.entry_points import find
from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.decide.arrays import Floats, Ints
from streamsvm.decide.reasons import (
    NO_COLUMN,
    SEVERAL,
    Contribution,
    Reasons,
    Walk,
    contributions,
    largest_first,
    present,
    walk_of,
)
from streamsvm.online import explanations as kernels

_NOTHING = np.zeros((1, 0))


class Told(NamedTuple):
    """What adds most to the log-odds of what was predicted, of many events.

    Parameters
    ----------
    columns
        Of each event the columns of the features that add most, the largest first: -1 for several together, -2 for
        none.
    adds
        What these add.
    against
        The class that the predicted one is told against, -1 where there are no reasons.
    """

    columns: Ints
    adds: Floats
    against: Ints


class Explainer:
    """What is kept between the reasons of a learner, as long as its memory is where it was.

    Parameters
    ----------
    state
        Its memory.
    entry
        The name of the entry point that explains an event by it.
    n_experts
        How many experts vote.
    members
        Of an ensemble, for each member the name of what explains it, and its state.
    relevance
        Of columns: where there are very many, the most relevant are told apart.
    run
        Of a learner that takes rows in blocks: the name of what predicts, explains and learns them one by one.
    """

    def __init__(
        self,
        state: State,
        entry: str,
        n_experts: int,
        members: Sequence[tuple[str, State]] = (),
        relevance: Floats | None = None,
        run: str | None = None,
    ) -> None:
        self._state, self._members = state, [member for _, member in members] or [state]
        entries = [find(name) for name in (entry, *(name for name, _ in members))]
        self._run = None if run is None else find(run)
        prepare(entries if self._run is None else [*entries, self._run])
        self._address, *explains = (each.compile().address for each in entries)
        n_columns = max(len(state.rows.row), kernels.MOST + 1)
        self.walk = State(kernels.WALK, {"experts": n_experts, "columns": n_columns})
        self.walk.learner = state.address
        slots = max((m.vectors.shape[1] for m in self._members if m.declaration.name == "bsgd"), default=0)
        sums = max(m.weights.shape[1] if "weights" in m.declaration.entries else len(m.scores) for m in self._members)
        self._dims, self._is_closed = (slots, sums, n_experts), entry.endswith(".explain_planes")
        self._steps: Walk | None = None
        self.walk.lend(
            explains=np.array(explains, np.int64),
            relevance=np.zeros(0) if relevance is None else relevance,
            **{name: np.zeros(slots, np.float32) for name in ("alone", "without")},
            kept_scores=np.zeros(2 * sums),
        )
        self._plan(kernels.ENDS, 2 * min(n_columns, kernels.MOST + 1), 3)
        self._answer(_NOTHING)

    def _plan(self, planned: int, n_steps: int, depths: int) -> None:
        """Have room for so many coalitions."""
        walk, (slots, sums, experts) = self.walk, self._dims
        walk.planned, walk.n_steps, coalitions = planned, n_steps, n_steps + 2
        walk.lend(
            **{name: np.zeros(n_steps, np.int64) for name in ("sources", "targets", "moved")},
            **{name: np.zeros((experts, coalitions), np.float32) for name in ("of_label", "of_against", "of_others")},
            **{
                name: np.zeros(coalitions, np.float32)
                for name in ("terms", "rivals", "totals", "chances", "rival_chances", "said")
            },
            found=np.zeros(coalitions),
            products=np.zeros((depths, slots), np.float32),
            norms=np.zeros(depths, np.float32),
            sums=np.zeros((depths, sums)),
        )

    def _follow(self, steps: Walk | None) -> None:
        """Let coalitions be those of a walk, or the ends."""
        if steps is self._steps:
            return
        self._steps = steps
        if steps is None:
            self._plan(kernels.ENDS, 2 * min(len(self.walk.columns), kernels.MOST + 1), 3)
            return
        # All are at depth 1, between nobody and what the walk holds.
        depths = steps.steps[:, :2] + (steps.steps[:, :2] > 0)
        self._plan(steps.n, len(steps.steps), max(steps.depths + 1, 2))
        walk = self.walk
        walk.sources[:], walk.targets[:], walk.moved[:] = *depths.T, steps.steps[:, 2] + 1

    def _answer(self, adds: Floats) -> Told:
        """Have room for what is told of events."""
        self._told = found = Told(np.full(adds.shape, NO_COLUMN), adds, np.full(len(adds), -1))
        self.walk.lend(told=found.columns, adds=found.adds, against_of=found.against)
        return found

    @contextmanager
    def _following(self) -> Iterator[None]:
        rows = self._state.rows
        before = rows.follow, rows.followed
        rows.follow, rows.followed = self._address, self.walk.address
        try:
            yield
        finally:
            rows.follow, rows.followed = before

    @contextmanager
    def telling(self, n_rows: int, most: int) -> Iterator[Told]:
        """Tell so many reasons of each row that follows, by the ends."""
        self._follow(None)
        try:
            with self._following():
                yield self._answer(np.zeros((max(n_rows, 1), most)))
        finally:
            self._answer(_NOTHING)

    @property
    def is_telling(self) -> bool:
        """Whether reasons are told of each row."""
        return bool(self._told.columns.shape[1])

    def run(self, request: State) -> None:
        """Predict and learn rows in turn, of a learner that would do so in blocks."""
        assert self._run is not None
        self._run.compile()(self._state, request, self.walk)

    def explain(self, learner: Any, x: Mapping[Hashable, Any], evaluations: int, wanted: int = -1) -> Reasons | None:
        """What each feature of an event adds; None where there are no two classes.

        Parameters
        ----------
        learner
            Whose memory it is.
        x
            The event.
        evaluations
            About so many coalitions are asked about.
        wanted
            The class that is explained, -1 for the most probable one.
        """
        walk = self.walk
        if not self._ask(learner, x, wanted):
            return None
        n, errors = int(walk.n_players), None
        values = walk.values[:n]
        if n == 0:
            self.walk.nothing = self.walk.whole  # nobody is all there are
        elif not self._is_closed:
            steps = walk_of(n, evaluations)
            if steps is not self._steps:
                self._follow(steps)
                self._ask(learner, x, wanted)
            values, errors = steps.values(float(walk.nothing), float(walk.whole), walk.found[2:])
        columns = walk.columns[:n].tolist()
        found = contributions(
            x, [*map(learner.feature_of, columns)], values[:n], np.zeros(n) if errors is None else errors
        )
        if SEVERAL not in columns:
            told = {one.feature for one in found}
            found += [Contribution(name, x[name], 0.0) for name in present(x) if name not in told]
        label, against = (learner.classes_[int(code)] for code in (walk.label, walk.against))
        return Reasons(label, against, float(walk.whole), float(walk.nothing), largest_first(found))

    def _ask(self, learner: Any, x: Mapping[Hashable, Any], wanted: int) -> bool:
        """Have an event predicted and followed; returns whether there are reasons, or would be by other coalitions."""
        # The only row: rows that were told before may have left another number.
        self.walk.row, self.walk.label, self.walk.wanted = 0, -1, wanted
        try:
            with self._following():
                return bool(learner._show(x) and self.walk.label >= 0)
        finally:
            self.walk.wanted = -1
