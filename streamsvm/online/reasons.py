"""Reasons of the learners that have members: a compiled walk through what an event would score with fewer features."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from streamsvm.decide.reasons import (
    MOST,
    OTHERS,
    Contribution,
    Walk,
    by_relevance,
    largest_first,
    walk_of,
    without_columns,
)
from streamsvm.features import Ints
from streamsvm.first_use import prepare
from streamsvm.kernels import reasons as kernels
from streamsvm.kernels.state import State


class Explainer:
    """What is kept between the reasons of a learner, as long as its memory is where it was.

    Parameters
    ----------
    state
        Its memory.
    entry
        The name of the compiled walk of its kind.
    members
        Of a blend, for each member the name of what explains it, and its state.
    block
        The address of the rows that members see.
    """

    def __init__(self, state: State, entry: str, members: Sequence[tuple[str, State]] = (), block: int = 0) -> None:
        self._state, self._members = state, [member for _, member in members] or [state]
        whole, *explains = (kernels.ENTRIES[name] for name in (entry, *(name for name, _ in members)))
        prepare([whole, *explains])
        self._call = whole.compile()
        self.walk = State(kernels.WALK)
        self.walk.block = block
        self._players = np.full(len(state.rows.row), -1)
        self._steps: Walk | None = None
        self.walk.lend(
            explains=np.array([explain.compile().address for explain in explains], np.int64),
            lengths=np.zeros(len(explains), np.int64),
            players=self._players,
        )

    def _follow(self, steps: Walk) -> None:
        """Have room for the steps of another walk."""
        if steps is self._steps:
            return
        walk, n = self.walk, len(self._members) * steps.depths
        self._steps, walk.depths, self._found = steps, steps.depths, np.zeros(len(steps.steps))
        slots = max((m.vectors.shape[1] for m in self._members if m.declaration.name == "bsgd"), default=0)
        sums = max((m.weights.shape[1] for m in self._members if m.declaration.name != "bsgd"), default=0)
        walk.lend(
            **{name: np.ascontiguousarray(column) for name, column in zip(_COLUMNS, steps.steps.T, strict=True)},
            found=self._found,
            dots=np.zeros((n, slots), np.float32),
            norms=np.zeros(n, np.float32),
            sums=np.zeros((n, sums)),
        )

    def explain(
        self, learner: Any, x: Mapping[Hashable, Any], evaluations: int, noise: float
    ) -> tuple[int, int, float, float, list[Contribution]] | None:
        """The label and the next one, the score and that of nothing, and what each feature adds; None for no event.

        Parameters
        ----------
        learner
            Whose memory it is.
        x
            The event.
        evaluations
            About so many sets of features are asked about.
        noise
            The share of labels that are noise.
        """
        own, columns = learner._put_to_explain(x)
        names = own
        if len(own) > MOST:
            names = [*by_relevance({name: x[name] for name in own}, learner.relevance)[:MOST], OTHERS]
        self._give(own, names, columns)
        steps = walk_of(max(len(names), 1), evaluations)
        self._follow(steps)
        walk = self.walk
        walk.noise = noise
        if self._call(self._state, walk) < 0:
            return None
        base, score = float(walk.nothing), float(walk.whole)
        values, errors = steps.values(base, score, self._found)
        found = [
            Contribution(name, None if name is OTHERS else x[name], value, error)
            for name, value, error in zip(names, values.tolist(), errors.tolist(), strict=False)
        ]
        if len(own) < len(x):
            found += without_columns(x, own)
        return int(walk.label), int(walk.against), score, base, largest_first(found)

    def _give(self, own: Sequence[Any], names: Sequence[Any], columns: Ints | None) -> None:
        """Give each column to a player: features by name, all that is not named to the last."""
        if names is own:
            self._players[slice(len(own)) if columns is None else columns] = _NUMBERS[: len(own)]
        else:
            number = {name: i for i, name in enumerate(names)}
            given = [number.get(name, MOST) for name in own]
            self._players[slice(len(own)) if columns is None else columns] = given


_COLUMNS = ("sources", "targets", "added")
_NUMBERS: Ints = np.arange(MOST)
