"""Solvers of what a single learner itself holds: the faces of a `CPMClassifier`, the vectors of a `BSGDClassifier`.

They work on rows as the learner had scaled them when the refit began, and give a model for such rows. Settings are
chosen on the newer part of the window, as the solvers by name have it, but by how a learner that goes on from the model
does there as it learns; an instance is fitted as it is. At the steps that it had, a learner often forgets within
hundreds of events what a solver knew: so a setting, too, is the `pace` at which it goes on, by which its steps are
multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.features import Floats, Ints
from streamsvm.models import KernelExpansion, LinearModel, Polytopes, Scaler, cut
from streamsvm.online.base import OnlineClassifier
from streamsvm.online.budgeted import BSGDClassifier
from streamsvm.online.polytope import CPMClassifier
from streamsvm.refit.solvers import Given, Solution, Task, _dense, _Searching, check_size, fit_alone, is_wide
from streamsvm.refit.windows import WindowRows

# Positives are assigned to faces, and the faces solved, at most so many times in turn.
ROUNDS = 3
# A learner goes on at a pace of at least and at most so much. However often that is, its steps stay so large that it
# follows a drift within thousands of events: with smaller ones two points were lost on SEA.
LEAST_PACE, MOST_PACE = 0.01, 100.0
LEAST_HORIZON, MOST_HORIZON = 100.0, 20_000.0
LEAST_RATE, MOST_RATE = 0.01, 1.0
# The C of sampled cuts an event; larger ones take long, and cut to a budget they are no better.
LEAST_C, MOST_C = 0.01, 10.0


class _Renewing(_Searching):
    """A solver of what a learner holds."""

    def __init__(self, solver: Any) -> None:
        self.name = solver.name
        self._solver = solver

    def solve(self, task: Task) -> Solution:
        """As `Solver` has it."""
        return super().solve(replace(task, carried=task.carried and {**task.carried, "pace": 1.0}))

    def _score(self, task: Task, settings: Mapping[str, Any], newer: WindowRows) -> float:
        learner = renewed(task.learner, Solution(self._fit(task, settings), dict(settings)))
        found, _, _ = learner._run(newer.rows, newer.codes, newer.weights)
        return float((found == newer.codes).mean())

    def _first(self) -> dict[str, Any]:
        return {"pace": 1.0}

    def _changes(self, best: dict[str, Any], task: Task) -> Iterator[dict[str, Any]]:
        for factor in (0.1, 10.0):
            if LEAST_PACE <= best["pace"] * factor <= MOST_PACE:
                yield best | {"pace": best["pace"] * factor}


class NewFaces(_Renewing):
    """The hyperplanes of a convex polytope machine, by a linear solver.

    Once the rows of a class are assigned to its faces, each face is a linear problem of its own: its rows against those
    of all other classes. So rows are assigned to the face that is largest there, beginning with those of the learner,
    the faces are solved, and so on in turn. Where a window does not bear that, a class has its one hyperplane in every
    face: the settings say `faces` "own" or "alike", and the newer part of the window decides.
    """

    def _first(self) -> dict[str, Any]:
        return super()._first() | {"faces": "own"} | ({} if isinstance(self._solver, Given) else self._solver._first())

    def _changes(self, best: dict[str, Any], task: Task) -> Iterator[dict[str, Any]]:
        yield from super()._changes(best, task)
        if task.learner.n_faces > 1:
            yield best | {"faces": "alike" if best["faces"] == "own" else "own"}
        if not isinstance(self._solver, Given):
            for change in self._solver._changes(best, task):
                yield best | change

    def _fit(self, task: Task, settings: Mapping[str, Any]) -> Polytopes:
        own = {name: value for name, value in settings.items() if name not in ("faces", "pace")}
        planes = _again(self._solver) if isinstance(self._solver, Given) else self._solver._estimator(own, task.seed)
        problem = _FacesOf(task, planes, is_split=settings["faces"] == "own")
        codes = np.unique(task.window.codes)
        solved = [problem.solve(int(c)) for c in codes]
        return Polytopes(
            codes.tolist(), np.stack([w[:, 1:] for w in solved]), np.stack([w[:, 0] for w in solved]), problem.scaler
        )


class _FacesOf:
    """The faces of one class after another, on the rows of a window."""

    def __init__(self, task: Task, planes: Any, is_split: bool) -> None:
        model: Polytopes = task.learner._held_model()
        self.scaler = scaler_of(task, model)
        self._rows, self._codes, self._weights = scaled_rows(task, self.scaler), task.window.codes, weights(task)
        self._running = np.concatenate([model.biases[:, :, None], model.faces[:, :, : task.n_columns]], axis=2)
        self._planes, self._is_split = planes, is_split

    def solve(self, code: int) -> Floats:
        """Biases and faces of a class, shape (n_faces, 1 + d)."""
        running = self._running[code]
        is_own = self._codes == code
        plane = self._plane(np.ones(len(is_own), bool), is_own, running.mean(axis=0))
        faces = np.tile(plane, (len(running), 1))
        if not self._is_split or len(running) == 1:
            return faces
        own, assigned, start = self._rows[np.flatnonzero(is_own)], np.zeros(0, int), running
        for _ in range(ROUNDS):
            before, assigned = assigned, (own @ start[:, 1:].T + start[:, 0]).argmax(axis=1)
            if np.array_equal(before, assigned):
                break
            owner = np.full(len(is_own), -1)
            owner[is_own] = assigned
            for k in np.unique(assigned):
                faces[k] = self._plane(~is_own | (owner == k), is_own, start[k])
            start = faces
        return faces

    def _plane(self, taken: NDArray[np.bool_], is_own: NDArray[np.bool_], start: Floats) -> Floats:
        """The bias and the hyperplane between the rows of a class among those taken and the others."""
        at = np.flatnonzero(taken)
        everything = len(at) == len(taken)
        rows = self._rows if everything else self._rows[at]
        d = rows.shape[1]
        names = Scaler.identity(range(d))
        coef, intercept = np.stack([-start[1:], start[1:]]), np.array([-start[0], start[0]])
        self._planes.set_params(init=LinearModel([False, True], coef, intercept, names))
        fit_alone(self._planes, rows, is_own[at], self._weights[at])
        found = self._planes.model_
        return np.concatenate([found.intercept[1:], found.coef[1]])


class NewVectors(_Renewing):
    """The support vectors of a budgeted kernel machine, by sampled cuts, in its metric and cut to its budget."""

    def _first(self) -> dict[str, Any]:
        return super()._first() | ({} if isinstance(self._solver, Given) else {"C": 1.0})

    def _changes(self, best: dict[str, Any], task: Task) -> Iterator[dict[str, Any]]:
        yield from super()._changes(best, task)
        for factor in (10.0, 0.1):
            if not isinstance(self._solver, Given) and LEAST_C <= best["C"] * factor <= MOST_C:
                yield best | {"C": best["C"] * factor}

    def _fit(self, task: Task, settings: Mapping[str, Any]) -> KernelExpansion:
        from streamsvm.batch import SampledCuts

        check_size(task)
        learner, n = task.learner, len(task.window)
        model: KernelExpansion = learner._held_model()
        if isinstance(self._solver, Given):
            cuts = _again(self._solver)
        else:
            cuts = SampledCuts(C=settings["C"] * n, random_state=task.seed)
        budget = learner.budget if cuts.budget is None else min(cuts.budget, learner.budget)
        cuts.set_params(gamma=model.gamma, budget=budget)
        scaler, relevance = scaler_of(task, model), model.relevance[: task.n_columns]
        root = np.sqrt(relevance)
        rows = scaled_rows(task, scaler)
        rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
        fit_alone(cuts, rows * root, task.window.codes, weights(task))
        found: KernelExpansion = cuts.model_
        vectors = np.divide(found.vectors, root, out=np.zeros_like(found.vectors), where=root > 0.0)
        return replace(found, vectors=vectors, relevance=relevance, scaler=scaler)


def renewed(learner: OnlineClassifier, solution: Solution) -> OnlineClassifier:
    """A branch of a learner that goes on from a solution: all else stays, but its steps go by the pace."""
    branch, model, pace = learner._branch(), solution.model, solution.settings["pace"]
    if isinstance(branch, CPMClassifier):
        branch._state.horizon = vars(branch)["horizon"] = _horizon(branch.horizon, pace)
        branch._take_faces(np.array(model.classes, np.int64), model.faces, model.biases)
    elif isinstance(branch, BSGDClassifier):
        _pace(branch, pace)
        own = branch._held_model()
        # Classes that the model does not know keep their constants alone.
        coefs, biases = np.zeros((len(own.classes), len(model.vectors))), own.biases.copy()
        coefs[model.classes], biases[model.classes] = model.coefs, model.biases
        branch._take_vectors(model.vectors, coefs, biases)
    return branch


def _pace(learner: BSGDClassifier, pace: float) -> None:
    most = min(MOST_RATE, 0.5 / learner.l2)

    def rate(one: float | None) -> float | None:
        return None if one is None else _bounded(one * pace, one, LEAST_RATE, most)

    # The branch is new: its parameters are set at once, without what `mutate` does for each.
    vars(learner).update(
        horizon=_horizon(learner.horizon, pace),
        learning_rate=rate(learner.learning_rate),
        heads=learner.heads and tuple((loss, rate(one)) for loss, one in learner.heads),
        metric_rate=_bounded(learner.metric_rate * pace, learner.metric_rate, 1e-5, 1.0),
    )
    learner._set_params(learner._state)


def _horizon(horizon: float, pace: float) -> int:
    return round(_bounded(horizon / pace, horizon, LEAST_HORIZON, MOST_HORIZON))


def _bounded(value: float, before: float, low: float, high: float) -> float:
    """A setting between bounds, but where it was beyond them already."""
    return min(max(value, min(before, low)), max(before, high))


def _again(solver: Given) -> Any:
    """The estimator, not fitted."""
    from sklearn.base import clone

    return clone(solver.estimator)


def scaler_of(task: Task, model: Polytopes | KernelExpansion) -> Scaler:
    """How the columns of the window are scaled; the learner may know of others that no event of it had."""
    own, d = model.scaler, task.n_columns
    arrays = {name: getattr(own, name)[:d] for name in ("names", "is_indicator", "shift", "scale", "count")}
    return replace(own, **arrays, windows=own.windows and own.windows[:d])


def scaled_rows(task: Task, scaler: Scaler) -> Any:
    """The rows as a learner scaled them, sparse where most of a matrix would be missing."""
    if not is_wide(task):
        return scaler(_dense(task))
    X = task.window.csr(task.n_columns)
    values = cut((X.data - scaler.shift[X.indices]) * scaler.scale[X.indices], scaler.limit)
    for j, window in enumerate(scaler.windows or []):
        if len(window):
            at = np.flatnonzero(X.indices == j)
            part = replace(scaler, shift=scaler.shift[[j]], scale=scaler.scale[[j]], windows=[window])
            values[at] = part(X.data[at, None])[:, 0]
    X.data[:] = values
    return X


def weights(task: Task) -> Floats:
    """What the learner has its events weigh, with its classes."""
    codes: Ints = task.window.codes
    learner: OnlineClassifier = task.learner
    found = task.window.weights * learner._state.classes.weight[codes]
    if learner._state.balanced:
        count = np.bincount(codes)
        found = found * (len(codes) / (np.count_nonzero(count) * count[codes]))
    return np.asarray(found)
