"""The estimator: parameters, where the problems start, and what is told of their solutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse

from streamsvm.batch.base import Iteration, LinearClassifier, Progress, Solution, check_penalty, generator
from streamsvm.batch.matrix import Floats, Ints, Matrix, as_matrix
from streamsvm.batch.smoothed_newton.iteration import assess, prune, run
from streamsvm.batch.smoothed_newton.path import PathSolver, RegularizationPath
from streamsvm.batch.smoothed_newton.penalties import Penalties
from streamsvm.batch.smoothed_newton.problem import EPS_FIRST, Problem
from streamsvm.batch.threads import threads_for
from streamsvm.models import LinearModel
from streamsvm.parameters import check_between, check_number

# Where smoothing begins from a given model.
EPS_WARM = 0.1
# Starts on samples of n / 32 and n / 8 rows, where these are at least so many, and so many a column.
SAMPLES, SAMPLE_ROWS, SAMPLE_ROWS_PER_COLUMN = (32, 8), 1000, 2


class SmoothedNewton(LinearClassifier):
    """Linear support vector machine with l2 and l1 penalties, by Newton steps on a smoothed hinge.

    It minimises

        l2 / 2 |w|^2 + l1 |w|_1 + mean over rows of max(0, 1 - y (w . x + b)),

    one class against the rest (of two classes, the second against the first), where the mean is weighted by
    `sample_weight`, and `class_weight` multiplies the losses of a class. l2 = 1 / (C n), l1 = 0 is the problem
    LIBLINEAR solves for C. The hinge is smoothed to (u + sqrt(eps^2 + u^2)) / 2, and eps falls until the objective
    of the *unsmoothed* problem is proven to be within `tol` of its optimum. Zeros under l1 are exact.

    An iteration passes over the rows twice, whatever the number of classes. The Hessian rests on rows near the margin
    and on columns that are not at zero, at most 1,000 rows a column, fewer while that is enough; nothing of size d x d
    is built for wide data.

    Parameters
    ----------
    l2
        Squared penalty, 0 or more; 1 / (C n) in the terms of LIBLINEAR.
    l1
        Absolute penalty, 0 or more: more makes more coefficients zero. One of the two must be positive. Without l2,
        rounding stands in the way of the proof where l1 * tol is below some 1e-14 of the largest magnitudes in X.
    tol
        How far the objective of each one-vs-rest problem may be above its optimum, relative to it.
    max_iter
        Most Newton steps on all rows.
    fit_intercept
        Whether there is a bias b. It is never in the l1 penalty.
    penalize_bias
        Whether b is in the l2 penalty, as in LIBLINEAR.
    class_weight
        A dict from class to weight, "balanced", or None for 1 each.
    warm_start
        Whether to start from what the last `fit` found.
    init
        A `LinearModel` of the same classes and columns to start from; its scaler is left aside.
    callback
        Called after each iteration with the estimator and an `Iteration`; something true ends the fit.
    random_state
        Seed of the samples of rows, which only data of more than some ten thousand rows need.

    Attributes
    ----------
    coef_, intercept_
        Shapes (1, d) and (1,) for two classes, else (n_classes, d) and (n_classes,).
    classes_
        The labels.
    objective_
        The objective, summed over one-vs-rest problems.
    certificate_
        How far `objective_` is above the optimum at most: the duality gap of the unsmoothed problem.
    n_iter_
        Newton steps on all rows.
    history_
        An `Iteration` for each.
    model_
        What was learned, as a `LinearModel`.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import SmoothedNewton
    >>> X = np.random.default_rng(0).normal(size=(200, 20))
    >>> y = np.where(X[:, 0] - X[:, 1] > 0.2, "yes", "no")
    >>> model = SmoothedNewton(l2=0.0, l1=0.12).fit(X, y)
    >>> np.flatnonzero(model.coef_)
    array([0, 1])
    >>> model.certificate_ <= 1e-3 * model.objective_
    True
    >>> model.score(X, y)
    0.975

    Notes
    -----
    After Hajewski, Oliveira and Stewart [1]_, with these changes: the slopes of the loss are unknowns beside the
    coefficients, as Chan, Golub and Mulet [2]_ have it for another norm, so that steps stay good where the loss bends
    sharply; a step with l1 minimises the model of second order
    with the penalty as it is (a proximal Newton step), since the published one can stall; several coordinates leave at
    once; smoothing follows a duality gap; the start is made on nested samples of rows; and as smoothing falls, the
    solution is extrapolated along its path.

    References
    ----------
    .. [1] J. Hajewski, S. Oliveira, D. E. Stewart: Smoothed hinge loss and l1 support vector machines, 2018.
    .. [2] T. F. Chan, G. H. Golub, P. Mulet: A nonlinear primal-dual method for total variation-based image
       restoration, SIAM Journal on Scientific Computing 20, 1999.
    """

    def __init__(
        self,
        l2: float = 1e-4,
        l1: float = 0.0,
        *,
        tol: float = 1e-3,
        max_iter: int = 200,
        fit_intercept: bool = True,
        penalize_bias: bool = False,
        class_weight: Any = None,
        warm_start: bool = False,
        init: LinearModel | None = None,
        callback: Callable[[Any, Iteration], Any] | None = None,
        random_state: Any = 0,
    ) -> None:
        self.l2 = l2
        self.l1 = l1
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.penalize_bias = penalize_bias
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.init = init
        self.callback = callback
        self.random_state = random_state

    def _check_params(self) -> None:
        check_penalty("l2", self.l2)
        check_penalty("l1", self.l1)
        if self.l2 == 0.0 and self.l1 == 0.0:
            raise ValueError("`l2` and `l1` are both 0: one of them must be positive, for instance l2=1e-4")
        check_between("tol", self.tol, 0.0, 1.0)
        check_number("max_iter", self.max_iter, 1, whole=True)

    def _penalties(self, matrix: Matrix, l1: float) -> Penalties:
        bias_l2 = self.l2 if self.penalize_bias and self.fit_intercept else 0.0
        needs_peaks = l1 > 0.0 or (self.fit_intercept and bias_l2 == 0.0)
        peaks = matrix.peaks() if needs_peaks else np.empty(0)
        return Penalties(float(self.l2), float(l1), float(bias_l2), bool(self.fit_intercept), peaks)

    def _problems(self, matrix: Matrix, codes: Ints, weights: Floats, penalties: Penalties) -> list[Problem]:
        """One problem for each row of `coef_`, at zero or where to start from."""
        positives = [1] if len(self.classes_) == 2 else list(range(len(self.classes_)))
        shape = len(positives), matrix.shape[1]
        start = self._start(shape)
        coef, intercept = start or (np.zeros(shape), np.zeros(shape[0]))
        if not self.fit_intercept:
            intercept = np.zeros(shape[0])
        problems = [
            Problem(codes, positive, weights, penalties, w, float(b))
            for positive, w, b in zip(positives, coef, intercept, strict=True)
        ]
        if start is not None:
            for problem in problems:
                problem.eps = EPS_WARM
        return problems

    def _solve(self, X: Any, codes: Ints, weights: Floats, progress: Progress) -> Solution:
        matrix = as_matrix(X)
        penalties = self._penalties(matrix, self.l1)
        problems = self._problems(matrix, codes, weights, penalties)
        rng = generator(self.random_state)
        if problems[0].eps == EPS_FIRST:
            self._start_on_samples(matrix, problems, rng)

        def report() -> bool:
            return progress(sum(p.best.objective for p in problems), sum(p.gap for p in problems))

        n_iter = run(matrix, problems, self.tol, self.max_iter, rng, report=report)
        if self.l1 > 0.0:
            prune(matrix, problems, self.tol, rng)
        return self._solution(problems, n_iter, progress.is_stopped)

    def _start_on_samples(self, matrix: Matrix, problems: list[Problem], rng: np.random.Generator) -> None:
        """Bring the problems near their solutions on samples of the rows, each part of the next.

        Smoothing falls until it resolves what m rows cannot tell: the margins of their solution are off by about the
        square root of the number of coefficients over m.
        """
        n, d = matrix.shape
        sizes = [n // part for part in SAMPLES if n // part >= max(SAMPLE_ROWS, SAMPLE_ROWS_PER_COLUMN * d)]
        if not sizes:
            return
        order = rng.choice(n, sizes[-1], replace=False)
        for size in sizes:
            rows = np.sort(order[:size])
            part = matrix.rows(rows)
            codes, c = problems[0].codes[rows], problems[0].c[rows]
            if not c.any():
                continue
            c *= problems[0].c.sum() / c.sum()
            starts = []
            for problem in problems:
                start = Problem(codes, problem.positive, c, problem.penalties, problem.w, problem.b)
                start.eps = problem.eps
                starts.append(start)
            run(part, starts, self.tol, self.max_iter, rng, floor=math.sqrt((d + 1) / size))
            for problem, start in zip(problems, starts, strict=True):
                problem.w, problem.b, problem.eps = start.w, start.b, start.eps

    def path(
        self,
        X: Any,
        y: Any,
        alphas: Any = None,
        *,
        n_alphas: int = 50,
        ratio: float = 0.01,
        sample_weight: Any = None,
    ) -> RegularizationPath:
        """Solutions for falling l1 penalties, started from each other; `l1` is left aside.

        Where mixtures of two solutions are proven to be as good as `tol` asks, they stand for the points between.
        Columns that by the strong rule will stay at zero are left out; the certificate and a last look at all
        gradients are those of all columns.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.
        alphas
            The penalties; None for `n_alphas` of them, from where all coefficients are zero down to `ratio` of that.
        n_alphas, ratio
            How many penalties, and the smallest as a share of the largest, where none are given.
        """
        type(self)(**(self.get_params(deep=False) | {"l1": 1.0}))._check_params()
        X, codes, weights = self._prepare(X, y, sample_weight)
        with threads_for(self._largest_product(X.shape[0], X.shape[1], scipy.sparse.issparse(X))):
            return self._path(as_matrix(X), codes, weights, alphas, n_alphas, ratio)

    def _path(
        self, matrix: Matrix, codes: Ints, weights: Floats, alphas: Any, n_alphas: int, ratio: float
    ) -> RegularizationPath:
        penalties = replace(self._penalties(matrix, 1.0), l1=0.0)
        problems = [problem.at_zero() for problem in self._problems(matrix, codes, weights, penalties)]
        scores = np.zeros((len(problems), matrix.shape[0]))
        for problem, z in zip(problems, scores, strict=True):
            problem.z = z
            problem.center(1e-9)
        assess(matrix, problems, np.empty((len(problems), matrix.shape[0])))
        largest = max(float(np.abs(problem.g).max()) for problem in problems)
        if alphas is None:
            alphas = largest * np.geomspace(1.0, ratio, n_alphas)
        alphas = np.sort(np.asarray(alphas, np.float64))[::-1]
        if alphas.ndim != 1 or len(alphas) == 0 or not (np.isfinite(alphas).all() and alphas[-1] > 0.0):
            raise ValueError(f"`alphas` must be positive numbers, got {alphas!r}")
        return PathSolver(
            matrix, problems, alphas, largest, self.tol, self.max_iter, generator(self.random_state)
        ).found

    def _solution(self, problems: list[Problem], n_iter: int, stopped: bool) -> Solution:
        attributes = {
            "coef_": np.array([problem.best.w for problem in problems]),
            "intercept_": np.array([problem.best.b for problem in problems]),
        }
        objective, gap = sum(p.best.objective for p in problems), sum(p.gap for p in problems)
        return Solution(attributes, objective, gap, n_iter, self._warning(problems, n_iter, stopped))

    def _warning(self, problems: list[Problem], n_iter: int, stopped: bool) -> str:
        worst = max(problem.gap / max(problem.best.objective, 1e-300) for problem in problems)
        if worst <= self.tol:
            return ""
        if n_iter < self.max_iter and stopped:
            return f"SmoothedNewton was stopped by its callback with a relative duality gap of {worst:.1e}"
        advice = f"raise max_iter={self.max_iter}" if n_iter >= self.max_iter else "rounding stands in the way: scale X"
        return (
            f"SmoothedNewton stopped after {n_iter} iterations with a relative duality gap of {worst:.1e} "
            f"where tol={self.tol:g} was asked for; {advice}, or raise tol"
        )


def warmup() -> None:
    """Compile the kernels of `SmoothedNewton`, or load them from disk where they were compiled before."""
    X = np.random.default_rng(0).normal(size=(12, 3))
    y = np.arange(12) % 3
    for kind in (np.float64, np.float32):
        rows = X.astype(kind)
        for view in (rows, scipy.sparse.csr_matrix(rows)):
            for labels in (y, y == 0):
                SmoothedNewton(1e-2, 1e-3, tol=1e-2).fit(view, labels)
