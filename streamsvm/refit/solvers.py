"""Solvers of windows: batch solvers, boosted trees, any scikit-learn classifier.

A solver gets a `Task`, the rows of a window with class numbers. It returns a `Solution`: a model as plain arrays with
its settings and score. Solvers by name choose their settings by fits to the older part of the window, scored on the
newer part. The next search starts from the best settings. An instance of a classifier is cloned and fitted with its own
settings; missing values are 0 unless it allows NaN.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from streamsvm.features.rows import EncodedRows, Floats
from streamsvm.models import KernelExpansion, LinearModel, Trees
from streamsvm.models.arrays import Model
from streamsvm.parameters import ParameterError, ParameterTypeError
from streamsvm.refit.tasks import Solution, Task, check_size, dense, is_wide, scaled
from streamsvm.refit.window_rows import WindowRows, csr_of, dense_of

# Settings are scored on the newest fifth of the rows, within bounds.
NEWER_SHARE, NEWER_MOST, NEWER_LEAST = 0.2, 4_000, 50
# Greatest number of fits that choose settings, and the least improvement.
MOST_FITS, BETTER = 8, 1e-3
# Greatest number of rows, and leaves per tree.
LEAVES = ((10_000, 31), (50_000, 63), (math.inf, 127))
# Rows per cut, and the mean number of cuts that contain a row.
CUT_ROWS, SEEN_TIMES = 500, 1.5
# Greatest number of values evaluated at a time.
PART_MOST = 20_000_000
# Packages of the extra `batch`.
_NEEDED = ("sklearn", "threadpoolctl")


class OneClassWindow(ValueError):
    """A window has fewer than two classes, so nothing can be fitted to it."""


class _Searching:
    """A solver that chooses settings by hill climbing from the previous ones."""

    name: str
    module = "streamsvm.batch"
    asks_relevance = False
    """Whether it uses the relevance of columns in the learner's metric."""

    def solve(self, task: Task) -> Solution:
        """Fit a model to the window.

        Raises
        ------
        OneClassWindow
            If the window has fewer than two classes.
        ValueError
            If it cannot be solved for another reason.
        """
        _check_classes(task.window.codes)
        settings, score = self._climb(task)
        return Solution(self._fit(task, settings), settings, score)

    def warm_up(self) -> None:
        """Solve a tiny window, to import, load and compile everything."""
        codes = np.arange(64) % 2
        rows = EncodedRows(np.arange(64.0), np.zeros(1, np.int64), np.arange(65), True)
        self.solve(Task(WindowRows(rows, codes, np.ones(64), np.full(64, np.nan), np.arange(64)), 1))

    def _climb(self, task: Task) -> tuple[dict[str, Any], float]:
        """Return locally best settings on the newer part of the window, and their score."""
        best = dict(task.carried or self._first())
        older, newer = _parts(task)
        if newer is None or not any(self._changes(best, task)) or len(np.unique(older.codes)) < 2:
            return best, math.nan
        smaller = replace(task, window=older, previous=None)
        change: dict[str, Any] | None = best
        tried, top = list[dict[str, Any]](), -math.inf
        while change is not None and len(tried) < MOST_FITS:
            tried.append(change)
            score = _accuracy(self._fit(smaller, change), newer, task.n_columns)
            if score > top + BETTER:
                best, top = change, score
            change = next((c for c in self._changes(best, task) if c not in tried), None)
        return best, top

    def _first(self) -> dict[str, Any]:
        """Return the settings of the first refit."""
        raise NotImplementedError

    def _changes(self, best: dict[str, Any], task: Task) -> Iterator[dict[str, Any]]:
        """Yield settings that differ from the best in one value."""
        return iter(())

    def _fit(self, task: Task, settings: Mapping[str, Any]) -> Model:
        raise NotImplementedError


class BoostedTreesSolver(_Searching):
    """scikit-learn's HistGradientBoostingClassifier on one thread."""

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
        fit_alone(model, dense(task), task.window.codes, task.window.weights)
        return trees_of(model)


class SampledCutsSolver(_Searching):
    """`SampledCuts` with a Gaussian kernel.

    Columns are scaled by their own deviation or by a common one, which suits pixels. They are weighted equally or by
    the learner's metric. The unit of `gamma` is the inverse mean squared distance of the rows from their mean.
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
        scaler, rows = scaled(task, common=settings["scale"] == "common")
        root = np.sqrt(_weights(task, settings["relevance"]))
        Z = (rows.toarray() if scipy.sparse.issparse(rows) else rows) * root
        gamma = settings["gamma"] / max(float((Z**2).sum(axis=1).mean()), 1e-12)
        n_rounds = int(min(max(SEEN_TIMES * len(Z) / CUT_ROWS, 150), 400))
        cuts = SampledCuts(gamma=gamma, max_iter=n_rounds, random_state=task.seed)
        fit_alone(cuts, Z, task.window.codes, task.window.weights)
        model = cuts.model_
        vectors = np.divide(model.vectors, root, out=np.zeros_like(model.vectors), where=root > 0.0)
        return replace(model, vectors=vectors, relevance=root**2, scaler=scaler)


class _Planes(_Searching):
    """A linear solver on scaled columns."""

    _class: str
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
        scaler, Z = scaled(task)
        found = getattr(importlib.import_module(self.module), self._class)(random_state=task.seed, **settings)
        start, shape = task.previous, (np.unique(task.window.codes).tolist(), Z.shape[1])
        if isinstance(start, LinearModel) and (start.classes, start.coef.shape[1]) == shape:
            found.set_params(init=start)
        fit_alone(found, Z, task.window.codes, task.window.weights)
        model: LinearModel = found.model_
        return replace(model, scaler=scaler)


class SmoothedNewtonSolver(_Planes):
    """`SmoothedNewton` on scaled columns."""

    name, _class = "newton", "SmoothedNewton"
    _setting, _values = "l2", (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


class IndexedBCDSolver(_Planes):
    """`IndexedBCD` on scaled columns."""

    name, _class = "bcd", "IndexedBCD"
    _setting, _values = "C", (0.001, 0.01, 0.1, 1.0, 10.0)


class EstimatorSolver:
    """Solver that fits a given scikit-learn classifier.

    The classifier needs `fit`, `classes_`, and `predict_proba` or `decision_function`.
    """

    asks_relevance = False

    def __init__(self, estimator: Any) -> None:
        self.name = type(estimator).__name__
        self.estimator = estimator
        # Not first in the thread of a refit: a child process that is forked during an import waits for it forever.
        importlib.import_module("streamsvm.batch.threads")

    def solve(self, task: Task) -> Solution:
        """Fit a clone to the window, with errors as of `_Searching.solve`."""
        from sklearn.base import clone

        _check_classes(task.window.codes)
        model = seeded(clone(self.estimator), task.seed)
        X = csr_of(task.window.rows, task.n_columns) if is_wide(task) else dense(task)
        X = X if allows_nan(model) or scipy.sparse.issparse(X) else np.nan_to_num(X, copy=False)
        fit_alone(model, X, task.window.codes, task.window.weights)
        if not hasattr(model, "n_features_in_"):
            model.n_features_in_ = X.shape[1]
        found = arrays_of(model)
        if found is model:
            check_estimator(model, X[:1], task)
        return Solution(found, {})


Solver: TypeAlias = _Searching | EstimatorSolver
SOLVERS: dict[str, Callable[[], _Searching]] = {
    "trees": BoostedTreesSolver,
    "cuts": SampledCutsSolver,
    "newton": SmoothedNewtonSolver,
    "bcd": IndexedBCDSolver,
}


def solver_of(solver: Any) -> Solver:
    """Return a solver by name, or the solver of a classifier.

    Raises
    ------
    TypeError, ValueError
        If it is neither a known name nor a classifier.
    ImportError
        If scikit-learn or threadpoolctl is not installed.
    """
    if any(importlib.util.find_spec(module) is None for module in _NEEDED):
        raise ImportError("refits need scikit-learn and threadpoolctl: pip install 'streamsvm[batch]'")
    if isinstance(solver, str):
        if solver not in SOLVERS:
            raise ParameterError(
                "solver",
                f"must be one of {', '.join(map(repr, SOLVERS))}, or a scikit-learn classifier, got {solver!r}",
            )
        found = SOLVERS[solver]()
        importlib.import_module(found.module)  # now rather than during the stream
        return found
    if isinstance(solver, type) or not (hasattr(solver, "fit") and hasattr(solver, "get_params")):
        raise ParameterTypeError("solver", f"must be a name or a scikit-learn classifier, got {solver!r}")
    if not (hasattr(solver, "predict_proba") or hasattr(solver, "decision_function")):
        raise ParameterTypeError(
            "solver", f"needs predict_proba or decision_function, {type(solver).__name__} has none"
        )
    return EstimatorSolver(solver)


def _check_classes(codes: NDArray[np.int64]) -> None:
    if len(codes) == 0 or codes.min() == codes.max():
        raise OneClassWindow(f"a window of {len(codes):,} events has fewer than two classes")


def _parts(task: Task) -> tuple[WindowRows, WindowRows | None]:
    """Return rows to fit and newer rows to score settings.

    All fits that choose settings together use at most as many rows as the window has.
    """
    n = len(task.window)
    n_newer = min(int(NEWER_SHARE * n), NEWER_MOST)
    n_older = min(n - n_newer, n // MOST_FITS)
    if n_newer < NEWER_LEAST or n_older < NEWER_LEAST:
        return task.window, None
    return task.window.part(n - n_newer - n_older, n - n_newer), task.window.part(n - n_newer, n)


def _accuracy(model: Model, rows: WindowRows, n_columns: int) -> float:
    """Return the accuracy of a model, evaluated in parts to save memory."""
    classes, n = np.array(model.classes), max(PART_MOST // max(n_columns, 1), 1)
    parts = (rows.part(k, min(k + n, len(rows))) for k in range(0, len(rows), n))
    n_right = sum(
        int((classes[model.decision_function(dense_of(part.rows, n_columns)).argmax(axis=1)] == part.codes).sum())
        for part in parts
    )
    return n_right / len(rows)


def _weights(task: Task, by_relevance: bool) -> Floats:
    """Return the weights of the columns in the kernel, with mean 1.

    They are equal, or the relevances of the learner's metric.
    """
    if not by_relevance or task.relevance is None:
        return np.ones(task.n_columns)
    return task.relevance * (task.n_columns / max(float(task.relevance.sum()), 1e-300))


def fit_alone(estimator: Any, X: Any, y: Any, weights: Floats) -> None:
    """Fit on one thread, because the stream needs the others.

    Weights are only passed if they differ, because some estimators accept none.
    """
    from threadpoolctl import threadpool_limits

    from streamsvm.batch.threads import OneThread

    with OneThread(), threadpool_limits(1, "openmp"):  # the limit applies to this thread
        if (weights == weights[0]).all():
            estimator.fit(X, y)
        else:
            estimator.fit(X, y, sample_weight=weights)


def seeded(estimator: Any, seed: int) -> Any:
    """Set the seeds of an estimator that are None."""
    params = estimator.get_params(deep=True)
    open_seeds = [n for n in params if n.rpartition("__")[2] == "random_state" and params[n] is None]
    return estimator.set_params(**dict.fromkeys(open_seeds, seed)) if open_seeds else estimator


def check_estimator(model: Any, X: Any, task: Task) -> None:
    """Refuse an estimator with other classes or shapes."""
    classes, known = np.asarray(model.classes_), np.unique(task.window.codes)
    if classes.dtype.kind not in "iu" or len(set(classes.tolist())) < len(classes) or not np.isin(classes, known).all():
        raise ValueError(f"`classes_` of {type(model).__name__} are {classes}, but it was fitted to {known}")
    if (shape := np.shape(proba_of(model, X))) != (1, len(classes)):
        raise ValueError(f"{type(model).__name__} predicts for a row of {len(classes)} classes by {shape}")


def proba_of(model: Any, X: Any) -> Floats:
    """Return an estimator's probabilities, or the softmax of its scores."""
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X), np.float64)
    scores = np.asarray(model.decision_function(X), np.float64)
    scores = np.column_stack([-scores, scores]) if scores.ndim == 1 else scores
    terms = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(terms / terms.sum(axis=1, keepdims=True))


def allows_nan(estimator: Any) -> bool:
    """Return whether an estimator accepts NaN for missing values."""
    from sklearn.utils import get_tags

    try:
        return bool(get_tags(estimator).input_tags.allow_nan)
    except (AttributeError, TypeError):  # not an estimator of scikit-learn itself
        return False


def arrays_of(estimator: Any) -> Any:
    """Convert a fitted estimator to plain arrays, or return it if this is impossible."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    if isinstance(estimator, HistGradientBoostingClassifier):
        return trees_of(estimator)
    if isinstance(model := getattr(estimator, "model_", None), LinearModel | KernelExpansion):
        return model
    return estimator


def trees_of(estimator: Any) -> Trees:
    """Return the trees of a HistGradientBoostingClassifier.

    With two classes, all trees belong to the second class.
    """
    if estimator.is_categorical_ is not None and estimator.is_categorical_.any():
        raise ValueError("trees with categorical features are not supported: remove `categorical_features`")
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
