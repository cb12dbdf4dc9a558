"""The experts beside a learner, and their places in the vote."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.features.space import EncodedRows, Floats, Ints
from streamsvm.models import ArchiveError
from streamsvm.online.base import capacity_for
from streamsvm.refit import expert_vote as kernels
from streamsvm.refit.experts import Expert, put
from streamsvm.refit.frozen_models import QUESTION

# Experts are asked on a thread of their own where there are so many rows.
_THREADED = 16


class Panel:
    """A learner and up to n experts that vote.

    Attributes
    ----------
    experts
        Who sits in each place but the learner's, None where it is free.
    """

    def __init__(self, n_experts: int) -> None:
        self.experts: list[Expert | None] = [None] * n_experts
        self._seats = np.zeros(1 + n_experts, kernels.SEAT)
        self._classes = 2
        self._use(self._new_state(self._classes))
        self._state.experts[0].present, self._state.experts[0].share = 1, 1.0

    def _new_state(self, n_classes: int) -> State:
        return State(
            kernels.PANEL,
            {"experts": 1 + len(self.experts), "classes": n_classes, "stretches": kernels.STRETCHES},
        )

    def _use(self, state: State) -> None:
        """Work on this state from now on."""
        self._state = state
        self._single: Single | None = None
        self._asleep: NDArray[np.int64] = state.experts.view(np.ndarray)["asleep"]

    @property
    def is_empty(self) -> bool:
        """Whether there is nobody but the learner."""
        return not any(self.experts)

    def look_around(self) -> tuple[bool, int]:
        """Whether nobody but the learner is heard, and for how many labelled events that stays so."""
        found: tuple[bool, int] = _compiled("look_around")(self._state)
        return found

    def enter(self, expert: Expert, n_classes: int) -> None:
        """Give an expert a place, if need be that of another, where the learner knows so many classes."""
        self._grow(n_classes)
        k = _compiled("take_place")(self._state, n_classes)
        self.experts[k - 1] = expert
        self._seats[k] = expert.addresses
        if self._single is not None:
            self._single.seat(k, expert)

    # Voting ------------------------------------------------------------------------------------------------------

    def vote(
        self, rows: EncodedRows, labels: Ints, n_classes: int, learner: Callable[[], Floats]
    ) -> tuple[Ints, Floats, Floats, Floats]:
        """Have all answer for rows, and vote.

        Parameters
        ----------
        rows, labels
            n rows, and their classes by number, -1 where unknown: experts are judged by the others.
        n_classes
            How many classes there are.
        learner
            Has the learner run over the rows, and gives its probabilities, shape (n, n_classes).

        Returns
        -------
        codes, scores, probabilities, errors
        """
        n = len(rows)
        self._grow(n_classes)
        answers = np.empty((1 + len(self.experts), n, n_classes))
        answers[:, :, 0] = np.nan
        codes, scores, proba, errors = np.full(n, -1), np.full(n, np.nan), np.zeros((n, n_classes)), np.zeros(n)
        poll, asking = self._new_poll(), None
        poll.parts["ballot"].lend(
            labels=labels, answers=answers, codes=codes, scores=scores, proba=proba, errors=errors
        )
        put(poll.parts["question"], rows, np.zeros(n, np.int64), np.empty((n, n_classes)))
        if n >= _THREADED and not self.is_empty:
            asking = _executor().submit(self._ask_early, poll, rows, labels, answers)
        answers[0] = learner()
        if asking is not None:
            asking.result()
        at = 0
        while (at := _compiled("poll_rows")(self._state, poll, at)) < n:
            self._ask_foreign(rows.part(at, n), labels[at:], answers[:, at:])
        return codes, scores, proba, errors

    def _new_poll(self) -> State:
        """A poll, to be lent rows and memory for answers."""
        poll = State(kernels.POLL, parts={"ballot": State(kernels.BALLOT), "question": State(QUESTION)})
        poll.lend(seats=self._seats)
        return poll

    def _seated(self) -> list[tuple[int, Expert]]:
        """The experts, and their places."""
        return [(k, expert) for k, expert in enumerate(self.experts, start=1) if expert is not None]

    def _foreign(self) -> list[tuple[int, Expert]]:
        """Those whom compiled code cannot ask, and their places."""
        return [(k, expert) for k, expert in self._seated() if not expert.has_arrays]

    def vote_on_one(self, row: Floats, learner: Floats, label: int) -> tuple[int, Floats]:
        """Vote on one row with a value in each column, by what the learner says; its label is -1 where unknown.

        Returns
        -------
        code, probabilities
        """
        self._grow(len(learner))
        single = self._single
        if single is None or len(single.row) != len(row):
            single = self._single = Single(self._state, len(row), self._new_poll(), self._foreign())
        return single.vote(row, learner, label)

    def _ask_early(self, poll: State, rows: EncodedRows, labels: Ints, answers: Floats) -> None:
        """Have all answer for rows who are to, as it looks before any has been voted on."""
        _compiled("ask_early")(self._state, poll)
        self._ask_foreign(rows, labels, answers)

    def _ask_foreign(self, rows: EncodedRows, labels: Ints, answers: Floats) -> None:
        """Have those whom compiled code cannot ask answer for the next rows, who are to and have not."""
        if not (foreign := self._foreign()):
            return
        is_learned, asleep = labels >= 0, self._asleep.tolist()
        before = int(self._state.seen) + np.cumsum(is_learned) - is_learned
        for k, expert in foreign:
            is_asked = (_is_turn_of(k, before) & is_learned) | (not asleep[k])
            if (lacking := is_asked & np.isnan(answers[k, :, 0])).any():
                answers[k, lacking] = 0.0
                expert.ask(rows, lacking.astype(np.int64), answers[k])

    def _grow(self, n_classes: int) -> None:
        if n_classes > self._classes:
            self._classes = capacity_for(n_classes)
            state = self._new_state(self._classes)
            state.take(self._state)
            self._use(state)

    def standing(self) -> list[dict[str, Any]]:
        """How the learner, first, and each expert stand: accuracy of late, share of the vote that is heard, asleep.

        The accuracy is None as long as there has been nobody to vote with the learner.
        """
        state, places = self._state, self._state.experts
        awake = (places.present > 0) & (places.asleep == 0)
        if state.is_mute:
            weights = np.eye(1, len(places))[0]
        elif state.second_right > state.first_right + kernels.MARGIN:
            weights = np.where(awake, places.share, 0.0)
        else:
            top = places.lead[places.present > 0].max()
            weights = np.where(awake, np.exp(kernels.VOTE_SHARPNESS * (places.lead - top)), 0.0)
        weights = weights / max(weights.sum(), 1e-300)
        return [
            {
                "expert": expert,
                "accuracy": float(min(max(state.learner_right + places.lead[k], 0.0), 1.0)) if state.seen else None,
                "weight": float(weights[k]),
                "dormant": bool(places.asleep[k]),
            }
            for k, expert in enumerate([None, *self.experts])
            if k == 0 or expert is not None
        ]

    # Saving ------------------------------------------------------------------------------------------------------

    def __reduce__(self) -> Any:
        return _again, (len(self.experts), self.state(), self.experts, self._classes)

    def state(self) -> dict[str, NDArray[Any]]:
        """What the vote knows, as arrays."""
        return self._state.saved()

    def restore(self, arrays: Mapping[str, NDArray[Any]], experts: list[Expert | None], n_classes: int) -> None:
        """Continue from what `state` gave, with these experts."""
        if len(experts) != len(self.experts):
            raise ArchiveError(f"{len(experts)} places for {len(self.experts)} experts")
        self.experts, self._single = experts, None
        for k, expert in self._seated():
            self._seats[k] = expert.addresses
        self._grow(n_classes)
        self._state.restore(arrays)
        present = [True, *(expert is not None for expert in experts)]
        if (self._state.experts.present > 0).tolist() != present or not 0 <= self._state.n_classes <= n_classes:
            raise ArchiveError("the vote knows other experts or classes")
        if self._state.experts.asleep[0]:
            raise ArchiveError("the learner is marked as inactive, which only refitted models can be")


def _is_turn_of(k: int, seen: Any) -> Any:
    """Whether expert k answers though it is asleep, after so many labelled events; no two of a few have one turn."""
    return (seen + k) % kernels.ASLEEP_SAMPLE == 0


class Single:
    """All that a vote on a single row needs, at hand: memory that is looked at anew for each.

    Parameters
    ----------
    state
        Of the panel.
    n_columns
        The columns of the row.
    poll
        What the row is asked about in.
    foreign
        Whom compiled code cannot ask, and their places.
    """

    def __init__(
        self,
        state: State,
        n_columns: int,
        poll: State,
        foreign: list[tuple[int, Expert]],
    ) -> None:
        n_experts, n_classes = state.dims["experts"], state.dims["classes"]
        self.row, self._foreign = np.full(n_columns, np.nan), dict(foreign)
        self._rows = EncodedRows(self.row, np.arange(n_columns), np.array([0, n_columns]), True)
        self._asked = np.ones(1, np.int64)
        self._answers, self._proba = np.full((n_experts, 1, n_classes), np.nan), np.zeros((1, n_classes))
        self._answers[0] = 0.0
        self._panel, self._poll = state, poll
        poll.parts["ballot"].lend(
            labels=np.zeros(1, np.int64),
            answers=self._answers,
            codes=np.zeros(1, np.int64),
            scores=np.zeros(1),
            proba=self._proba,
            errors=np.zeros(1),
        )
        put(poll.parts["question"], self._rows, np.zeros(1, np.int64), np.zeros((1, n_classes)))

    def seat(self, k: int, expert: Expert) -> None:
        """Give an expert a place."""
        self._answers[k, 0, 0] = np.nan  # it has not answered yet
        self._foreign.pop(k, None)
        if not expert.has_arrays:
            self._foreign[k] = expert

    def vote(self, row: Floats, learner: Floats, label: int) -> tuple[int, Floats]:
        """Ask who is to answer for a row, take the votes, and learn from a label."""
        if self._foreign:
            self._ask_foreign(row, label >= 0)
        code = _compiled("poll_row")(self._panel, self._poll, row, learner, label)
        return code, self._proba[0, : len(learner)]

    def _ask_foreign(self, row: Floats, learning: bool) -> None:
        """As compiled code has the others answer."""
        if row.tobytes() != self.row.tobytes():
            self.row[:] = row
            self._answers[1:] = np.nan
        asleep, seen = self._panel.experts["asleep"].tolist(), int(self._panel.seen)
        for k, expert in self._foreign.items():
            answers, is_asked = self._answers[k], not asleep[k] or (learning and _is_turn_of(k, seen))
            if is_asked and np.isnan(answers[0, 0]):
                answers[:] = 0.0
                expert.ask(self._rows, self._asked, answers)


@cache
def _compiled(name: str) -> Any:
    """An entry, called without the look at the arguments' types that each call of a dispatcher costs."""
    entry = kernels.ENTRIES[name]
    prepare([entry])
    return entry.compile()


def _again(n: int, arrays: dict[str, NDArray[Any]], experts: list[Expert | None], n_classes: int) -> Panel:
    panel = Panel(n)
    panel.restore(arrays, experts, n_classes)
    return panel


@cache
def _executor() -> ThreadPoolExecutor:
    """A thread for all models, on which experts are asked."""
    return ThreadPoolExecutor(1, thread_name_prefix="streamsvm-experts")


# A child process has the executor, but not its thread.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_executor.cache_clear)
