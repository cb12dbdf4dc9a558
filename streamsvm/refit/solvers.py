"""What solves a window: the batch solvers of this package, boosted trees, and any classifier of scikit-learn.

A *solver* is given a `Task`, rows of a window with their labels as numbers, and gives a `Solution`: a model as plain
arrays, the settings it was fitted with, and how these did. Solvers by name choose their settings on the older and score
them on the newer part of the window, and begin the next time with what was best. An instance of a classifier is fitted
as it is, a clone each time, with rows as they are but for missing values, which only those that allow NaN are given.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from streamsvm.core.precompile import prepare
from streamsvm.features.space import EncodedRows
from streamsvm.models import KernelExpansion, LinearModel, Polytopes, Scaler, Trees
from streamsvm.models.scaling import cut
from streamsvm.online.scaling import new_rows
from streamsvm.refit.outliers import ENTRIES
from streamsvm.refit.window_rows import WindowRows

Floats = NDArray[np.float64]
Model: TypeAlias = "LinearModel | KernelExpansion | Trees | Polytopes"

# Scaled values are cut here, as those of the online learners are.
CLIP = 10.0
# Newer rows that settings are scored on: a fifth, and no more than so many; fewer tell nothing.
NEWER_SHARE, NEWER_MOST, NEWER_LEAST = 0.2, 4_000, 50
# At most so many fits choose the settings; others must be better by so much.
MOST_FITS, BETTER = 8, 1e-3
# The leaves of a tree, by how many rows there are.
LEAVES = ((10_000, 31), (50_000, 63), (math.inf, 127))
# The rows of a cut, and how often in the mean a row is in one.
CUT_ROWS, SEEN_TIMES = 500, 1.5
# So many numbers a window may take as a matrix without gaps.
DENSE_MOST = 60_000_000
# So many numbers are asked about at a time.
PART_MOST = 20_000_000
# Of the extra `batch`.
_NEEDED = ("sklearn", "threadpoolctl")


@dataclass(frozen=True, slots=True)
class Task:
    """A window to be solved.

    Parameters
    ----------
    window
        The rows, as they came, with the numbers of their classes.
    n_columns
        The columns the learner knew.
    relevance
        Where the learner's kernel has a learned metric, the part of each column in it, shape (n_columns,).
    carried
        The settings that were best the last time; empty at first.
    search
        Settings are chosen by fits on at most so many times the window's rows in all.
    previous
        The newest model of this solver, to start from, where that is of planes.
    seed
        Of what is drawn.
    """

    window: WindowRows
    n_columns: int
    relevance: Floats | None = None
    carried: Mapping[str, Any] | None = None
    search: float = 1.0
    previous: Any = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Solution:
    """What a solver found.

    Parameters
    ----------
    model
        Its classes are the learner's numbers, its columns the learner's first ones; or a fitted estimator of
        scikit-learn that no arrays are known for.
    settings
        What it was fitted with, for JSON.
    score
        The share of right answers on the newer part of the window, by a fit on the older; NaN where nothing was chosen.
    """

    model: Any
    settings: dict[str, Any]
    score: float = math.nan


class Solver(Protocol):
    """What solves windows."""

    name: str
    holds_lock: bool
    """Whether it keeps the interpreter's lock while it works: it is then run in a process of its own."""
    asks_relevance: bool
    """Whether it looks at what columns count in the learner's metric."""

    def solve(self, task: Task) -> Solution:
        """Fit a model to the window.

        Raises
        ------
        ValueError
            Where the window cannot be solved, as with one class alone.
        """


class _Searching:
    """A solver that chooses among settings: it climbs from what was best the last time, one change at a time."""

    name: str
    module = "streamsvm.batch"
    holds_lock = True  # between what is compiled there is much Python
    asks_relevance = False

    def solve(self, task: Task) -> Solution:
        """As `Solver` has it."""
        _check_classes(task.window.codes)
        settings, score = self._climb(task)
        return Solution(self._fit(task, settings), settings, score)

    def warm_up(self) -> None:
        """Solve next to nothing: what is imported, loaded or compiled the first time takes longer than many events."""
        codes = np.arange(64) % 2
        rows = EncodedRows(np.arange(64.0), np.zeros(1, np.int64), np.arange(65), True)
        self.solve(Task(WindowRows(rows, codes, np.ones(64), np.full(64, np.nan), np.arange(64)), 1))

    def _climb(self, task: Task) -> tuple[dict[str, Any], float]:
        """Settings that no single change makes better on the newer part of the window, and how good they are there."""
        best = dict(task.carried or self._first())
        older, newer = _parts(task)
        if newer is None or not any(self._changes(best, task)) or len(np.unique(older.codes)) < 2:
            return best, math.nan
        smaller = replace(task, window=older, previous=None)
        tried, top = [best], self._score(smaller, best, newer)
        while len(tried) < MOST_FITS:
            change = next((c for c in self._changes(best, task) if c not in tried), None)
            if change is None:
                break
            tried.append(change)
            score = self._score(smaller, change, newer)
            if score > top + BETTER:
                best, top = change, score
        return best, top

    def _score(self, task: Task, settings: Mapping[str, Any], newer: WindowRows) -> float:
        """How good settings are on rows that came after those of the task."""
        return _accuracy(self._fit(task, settings), newer, task.n_columns)

    def _first(self) -> dict[str, Any]:
        """The settings to begin with."""
        raise NotImplementedError

    def _changes(self, best: dict[str, Any], task: Task) -> Iterator[dict[str, Any]]:
        """Settings that differ from the best in one thing."""
        return iter(())

    def _fit(self, task: Task, settings: Mapping[str, Any]) -> Model:
        raise NotImplementedError


class BoostedTrees(_Searching):
    """scikit-learn's HistGradientBoostingClassifier, on one thread: the stream has the others."""

    name = "trees"
    module = "sklearn.ensemble"

    def _first(self) -> dict[str, Any]:
        return {"max_iter": 50, "learning_rate": 0.2}

    def _fit(self, task: Task, settings: Mapping[str, Any]) -> Model:
        from sklearn.ensemble import HistGradientBoostingClassifier

        leaves = next(leaves for n, leaves in LEAVES if len(task.window) <= n)
        model = HistGradientBoostingClassifier(
            early_stopping=False, l2_regularization=1.0, max_leaf_nodes=leaves, random_state=task.seed, **settings
        )
        fit_alone(model, _dense(task), task.window.codes, task.window.weights)
        return trees_of(model)


class Cuts(_Searching):
    """`SampledCuts` with a Gaussian kernel.

    Columns are scaled each by its deviation, or all by a common one, as pixels want it; they weigh alike, or as in the
    learner's metric. `gamma` is in units of the inverse mean square distance of the rows from their mean.
    """

    name = "cuts"
    asks_relevance = True

    def _first(self) -> dict[str, Any]:
        return {"gamma": 4.0, "scale": "columns", "relevance": False}

    def _changes(self, best: dict[str, Any], task: Task) -> Iterator[dict[str, Any]]:
        yield best | {"gamma": best["gamma"] * 4.0}
        yield best | {"gamma": best["gamma"] / 4.0}
        yield best | {"scale": "common" if best["scale"] == "columns" else "columns"}
        if task.relevance is not None:
            yield best | {"relevance": not best["relevance"]}

    def _fit(self, task: Task, settings: Mapping[str, Any]) -> Model:
        from streamsvm.batch import SampledCuts

        check_size(task)
        scaler, rows = _scaled(task, common=settings["scale"] == "common")
        root = np.sqrt(_weights(task, settings["relevance"]))
        Z = _toarray(rows) * root
        gamma = settings["gamma"] / max(float((Z**2).sum(axis=1).mean()), 1e-12)
        n_rounds = int(min(max(SEEN_TIMES * len(Z) / CUT_ROWS, 150), 400))
        cuts = SampledCuts(gamma=gamma, max_iter=n_rounds, random_state=task.seed)
        fit_alone(cuts, Z, task.window.codes, task.window.weights)
        model = cuts.model_
        vectors = np.divide(model.vectors, root, out=np.zeros_like(model.vectors), where=root > 0.0)
        return replace(model, vectors=vectors, relevance=root**2, scaler=scaler)


class _Planes(_Searching):
    """A linear solver, on scaled columns."""

    _setting: str
    _values: Sequence[float]

    def _first(self) -> dict[str, Any]:
        return {self._setting: self._values[len(self._values) // 2]}

    def _changes(self, best: dict[str, Any], task: Task) -> Iterator[dict[str, Any]]:
        at = self._values.index(best[self._setting])
        for k in (at + 1, at - 1):
            if 0 <= k < len(self._values):
                yield {self._setting: self._values[k]}

    def _fit(self, task: Task, settings: Mapping[str, Any]) -> Model:
        scaler, Z = _scaled(task)
        found = self._estimator(settings, task.seed)
        start, shape = task.previous, (np.unique(task.window.codes).tolist(), Z.shape[1])
        if isinstance(start, LinearModel) and (start.classes, start.coef.shape[1]) == shape:
            found.set_params(init=start)
        fit_alone(found, Z, task.window.codes, task.window.weights)
        model: LinearModel = found.model_
        return replace(model, scaler=scaler)

    def _estimator(self, settings: Mapping[str, Any], seed: int) -> Any:
        raise NotImplementedError


class Newton(_Planes):
    """`SmoothedNewton`, on scaled columns."""

    name = "newton"
    _setting, _values = "l2", (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)

    def _estimator(self, settings: Mapping[str, Any], seed: int) -> Any:
        from streamsvm.batch import SmoothedNewton

        return SmoothedNewton(random_state=seed, **settings)


class Bcd(_Planes):
    """`IndexedBCD`, on scaled columns."""

    name = "bcd"
    _setting, _values = "C", (0.001, 0.01, 0.1, 1.0, 10.0)

    def _estimator(self, settings: Mapping[str, Any], seed: int) -> Any:
        from streamsvm.batch import IndexedBCD

        return IndexedBCD(random_state=seed, **settings)


class Given:
    """A classifier by scikit-learn's protocol: `fit`, `classes_`, and `predict_proba` or `decision_function`."""

    holds_lock = True
    asks_relevance = False

    def __init__(self, estimator: Any) -> None:
        self.name = type(estimator).__name__
        self.estimator = estimator

    def solve(self, task: Task) -> Solution:
        """As `Solver` has it."""
        from sklearn.base import clone

        _check_classes(task.window.codes)
        model = seeded(clone(self.estimator), task.seed)
        X = task.window.csr(task.n_columns) if is_wide(task) else _dense(task)
        X = X if allows_nan(model) or scipy.sparse.issparse(X) else np.nan_to_num(X, copy=False)
        fit_alone(model, X, task.window.codes, task.window.weights)
        if not hasattr(model, "n_features_in_"):
            model.n_features_in_ = X.shape[1]
        found = arrays_of(model)
        if found is model:
            _check_answers(model, X[:1], task)
        return Solution(found, {})


SOLVERS: dict[str, Callable[[], _Searching]] = {"trees": BoostedTrees, "cuts": Cuts, "newton": Newton, "bcd": Bcd}


def solver_of(solver: Any) -> Solver:
    """A solver by name, or around a classifier of scikit-learn's kind.

    Raises
    ------
    TypeError, ValueError
        For what is neither.
    ImportError
        Where what all of them need is not installed.
    """
    if any(importlib.util.find_spec(module) is None for module in _NEEDED):
        raise ImportError("refits need scikit-learn and threadpoolctl: pip install 'streamsvm[batch]'")
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise ValueError(
                f"`solver` must be one of {', '.join(map(repr, SOLVERS))}, or a classifier of scikit-learn's kind, got "
                f"{solver!r}"
            )
        found = SOLVERS[solver]()
        importlib.import_module(found.module)  # now, and not in the midst of the stream
        return found
    if isinstance(solver, type) or not (hasattr(solver, "fit") and hasattr(solver, "get_params")):
        raise TypeError(f"`solver` must be a name or a classifier by scikit-learn's protocol, got {solver!r}")
    if not (hasattr(solver, "predict_proba") or hasattr(solver, "decision_function")):
        raise TypeError(f"`solver` needs predict_proba or decision_function, which {type(solver).__name__} has not")
    return Given(solver)


# Rows -----------------------------------------------------------------------------------------------------------------


def _check_classes(codes: NDArray[np.int64]) -> None:
    if len(codes) == 0 or codes.min() == codes.max():
        raise ValueError(f"a window of {len(codes)} events has not two classes")


def _parts(task: Task) -> tuple[WindowRows, WindowRows | None]:
    """The older rows, as many of the latest as the search allows for, and the newer ones."""
    n = len(task.window)
    n_newer = min(int(NEWER_SHARE * n), NEWER_MOST)
    n_older = min(n - n_newer, int(task.search * n / MOST_FITS))
    if n_newer < NEWER_LEAST or n_older < NEWER_LEAST:
        return task.window, None
    return task.window.part(slice(n - n_newer - n_older, n - n_newer)), task.window.part(slice(n - n_newer, n))


def _accuracy(model: Model, rows: WindowRows, n_columns: int) -> float:
    """The share of rows that a model is right about, asked in parts: as matrices, wide rows take much memory."""
    classes, n = np.array(model.classes), max(PART_MOST // max(n_columns, 1), 1)
    parts = (rows.part(slice(k, k + n)) for k in range(0, len(rows), n))
    n_right = sum(
        int((classes[model.decision_function(part.dense(n_columns)).argmax(axis=1)] == part.codes).sum())
        for part in parts
    )
    return n_right / len(rows)


def is_wide(task: Task) -> bool:
    """Whether most of a matrix without gaps would be missing."""
    n_values = np.count_nonzero(~np.isnan(task.window.rows.values))
    return bool(n_values < 0.2 * len(task.window) * task.n_columns)


def _dense(task: Task) -> Floats:
    """The rows as a matrix, NaN where a value is missing; 0 in columns without any, which not all solvers take."""
    check_size(task)
    matrix = task.window.dense(task.n_columns)
    matrix[:, np.isnan(matrix).all(axis=0)] = 0.0
    return matrix


def check_size(task: Task) -> None:
    """Refuse a window that takes too much memory as a matrix."""
    size = len(task.window) * task.n_columns
    if size > DENSE_MOST:
        raise ValueError(
            f"{len(task.window)} rows of {task.n_columns} columns are too many for this solver: take a linear one "
            '("newton", "bcd"), or a smaller window'
        )


def _toarray(Z: Any) -> Floats:
    return np.asarray(Z.toarray() if scipy.sparse.issparse(Z) else Z)


def _weights(task: Task, by_relevance: bool) -> Floats:
    """What columns weigh in the kernel, 1 in the mean: alike, or as in the learner's metric."""
    if not by_relevance or task.relevance is None:
        return np.ones(task.n_columns)
    return task.relevance * (task.n_columns / max(float(task.relevance.sum()), 1e-300))


def _scaled(task: Task, common: bool = False) -> tuple[Scaler, Any]:
    """The rows by the means and deviations of their columns, and how they were scaled; sparse ones are not centred.

    Where there are outliers, statistics are those of running scaling, in which these have no part.
    """
    d, robust = task.n_columns, _running_statistics(task)
    if is_wide(task):
        X = task.window.csr(d)
        count = np.bincount(X.indices, minlength=d)
        squares = np.bincount(X.indices, X.data**2, minlength=d)
        mean, spread = np.zeros(d), np.sqrt(squares / np.maximum(count, 1))
        if robust is not None:
            spread = np.hypot(*robust)
        scaler = _scaler(mean, spread, count, common)
        X.data[:] = cut(X.data * scaler.scale[X.indices], CLIP)
        return scaler, X
    X = _dense(task)
    there = ~np.isnan(X)
    count = there.sum(axis=0)
    if robust is not None:
        mean, spread = robust
    else:
        mean = np.where(there, X, 0.0).sum(axis=0) / np.maximum(count, 1)
        spread = np.sqrt((np.where(there, X - mean, 0.0) ** 2).sum(axis=0) / np.maximum(count, 1))
    scaler = _scaler(mean, spread, count, common)
    return scaler, scaler(X)


def _running_statistics(task: Task) -> tuple[Floats, Floats] | None:
    """The shifts and deviations that running scaling ends with; None where no value is an outlier."""
    rows, d = task.window.rows, task.n_columns
    known = new_rows(max(d, int(rows.columns.max(initial=-1)) + 1), "standard")
    values, columns, indptr = (np.ascontiguousarray(a) for a in (rows.values, rows.columns, rows.indptr))
    entry = ENTRIES["count_outliers"]
    prepare([entry])
    if entry.compile()(known, values, columns, indptr, rows.shared) == 0:
        return None
    scale = known.scale[:d]
    return known.shift[:d].copy(), np.divide(1.0, scale, out=np.zeros(d), where=scale > 0.0)


def _scaler(mean: Floats, spread: Floats, count: NDArray[Any], common: bool) -> Scaler:
    d = len(mean)
    if common:
        spread = np.full(d, math.sqrt(float((spread**2).mean()))) * (spread > 0.0)
    scale = np.divide(1.0, spread, out=np.zeros(d), where=spread > 1e-150)
    return Scaler(list(range(d)), np.zeros(d, bool), mean, scale, count.astype(float), CLIP)


# scikit-learn ---------------------------------------------------------------------------------------------------------


def fit_alone(estimator: Any, X: Any, y: Any, weights: Floats) -> None:
    """Fit on one thread, for the stream has the others, with weights where they are not all alike."""
    from threadpoolctl import threadpool_limits

    from streamsvm.batch.threads import OneThread

    with OneThread(), threadpool_limits(1, "openmp"):  # which is a matter of each thread
        if (weights == weights[0]).all():
            estimator.fit(X, y)
        else:
            estimator.fit(X, y, sample_weight=weights)


def seeded(estimator: Any, seed: int) -> Any:
    """An estimator that draws the same each time: where no seed of its own is set, this one is."""
    params = estimator.get_params(deep=True)
    open_seeds = [n for n in params if n.rpartition("__")[2] == "random_state" and params[n] is None]
    return estimator.set_params(**dict.fromkeys(open_seeds, seed)) if open_seeds else estimator


def _check_answers(model: Any, X: Any, task: Task) -> None:
    """Refuse an estimator whose answers could not be understood."""
    classes, known = np.asarray(model.classes_), np.unique(task.window.codes)
    if classes.dtype.kind not in "iu" or len(set(classes.tolist())) < len(classes) or not np.isin(classes, known).all():
        raise ValueError(f"`classes_` of {type(model).__name__} are {classes}, but it was fitted to {known}")
    if (shape := np.shape(proba_of(model, X))) != (1, len(classes)):
        raise ValueError(f"{type(model).__name__} answers for a row of {len(classes)} classes by {shape}")


def proba_of(model: Any, X: Any) -> Floats:
    """Probabilities of an estimator's classes for rows; of one that has none, the softmax of its scores."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X), np.float64)
    scores = np.asarray(model.decision_function(X), np.float64)
    scores = np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
    terms = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(terms / terms.sum(axis=1, keepdims=True))


def allows_nan(estimator: Any) -> bool:
    """Whether an estimator takes NaN for a value that is missing."""
    from sklearn.utils import get_tags

    try:
        return bool(get_tags(estimator).input_tags.allow_nan)
    except (AttributeError, TypeError):  # of another kind than scikit-learn's own
        return False


def arrays_of(estimator: Any) -> Any:
    """A fitted estimator as plain arrays where we know them, else as it is."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    if isinstance(estimator, HistGradientBoostingClassifier):
        return trees_of(estimator)
    if isinstance(model := getattr(estimator, "model_", None), LinearModel | KernelExpansion):
        return model
    return estimator


def trees_of(estimator: Any) -> Trees:
    """The trees of a HistGradientBoostingClassifier; of two classes the second has them, the first has nothing."""
    if estimator.is_categorical_ is not None and estimator.is_categorical_.any():
        raise ValueError("trees with categorical features are not known here: leave `categorical_features` out")
    iterations = estimator._predictors
    trees = [(tree.nodes, k) for trees in iterations for k, tree in enumerate(trees)]
    binary = len(estimator.classes_) == 2
    baseline = np.ravel(estimator._baseline_prediction).astype(float)
    roots = np.cumsum([0, *(len(nodes) for nodes, _ in trees[:-1])]).astype(np.int64)
    nodes = np.concatenate([nodes for nodes, _ in trees])
    first = np.repeat(roots, [len(nodes) for nodes, _ in trees])
    is_leaf = nodes["is_leaf"].astype(bool)
    left = np.where(is_leaf, -1, nodes["left"].astype(np.int64) + first)
    right = np.where(is_leaf, -1, nodes["right"].astype(np.int64) + first)
    return Trees(
        classes=estimator.classes_.tolist(),
        n_columns=int(estimator.n_features_in_),
        start=np.concatenate([[0.0], baseline]) if binary else baseline,
        roots=roots,
        outputs=np.array([1 if binary else k for _, k in trees], np.int64),
        feature=np.where(is_leaf, 0, nodes["feature_idx"]).astype(np.int64),
        left=left,
        right=right,
        missing=np.where(nodes["missing_go_to_left"].astype(bool), left, right),
        threshold=np.where(is_leaf, 0.0, nodes["num_threshold"]),
        value=np.where(is_leaf, nodes["value"], 0.0),
    )
