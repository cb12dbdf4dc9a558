"""The estimator: parameters and initial problems."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from streamsvm.batch.base import (
    Hyperplane,
    Iteration,
    IterationLog,
    LinearClassifier,
    SolverResult,
    check_penalty,
    generator,
)
from streamsvm.batch.matrix import Floats, Ints, Matrix, as_matrix
from streamsvm.batch.smoothed_newton.iteration import prune, run
from streamsvm.batch.smoothed_newton.problem import EPS_FIRST, Problem
from streamsvm.batch.smoothed_newton.quadratic import Penalties
from streamsvm.models import LinearModel
from streamsvm.parameters import ParameterError, check_between, check_number

# Initial smoothing from a given model.
EPS_WARM = 0.1
# Fits start on samples of n / 32 and n / 8 rows, if these have at least SAMPLE_ROWS rows and SAMPLE_ROWS_PER_COLUMN
# rows per column.
SAMPLES, SAMPLE_ROWS, SAMPLE_ROWS_PER_COLUMN = (32, 8), 1000, 2


class SmoothedNewton(LinearClassifier):
    """Linear SVM with l2 and l1 penalties, by Newton steps on a smoothed hinge.

    With `l2` = 1 / (C n) for n rows and `l1` = 0, the problem is LIBLINEAR's for C. A duality gap bounds the distance
    of the result from the optimum. Several classes are fitted one against the rest.

    Parameters
    ----------
    l2
        Squared penalty, 0 or more; LIBLINEAR's 1 / (C n).
    l1
        Absolute penalty, 0 or more; larger values make more coefficients zero. `l2` or `l1` must be positive. If l2 = 0
        and l1 * tol is below about 1e-14 times the largest magnitude in X, rounding errors prevent convergence.
    tol
        Maximum relative distance of each one-vs-rest objective from its optimum.
    max_iter
        Maximum number of Newton steps on all rows.
    fit_intercept
        Whether to fit a bias b. The penalties do not include it.
    class_weight
        A dict from class to weight, "balanced", or None for 1 each.
    init
        A `LinearModel` of the same classes and columns to start from, such as `model_` of a fit with a larger `l1`. Its
        scaler is ignored.
    callback
        Called after each iteration with the estimator and an `Iteration`. If it returns a true value, the fit ends.
    random_state
        Seed of the samples of rows. Data of up to about 10,000 rows are not sampled.

    Attributes
    ----------
    coef_, intercept_
        Shapes (1, d) and (1,) for two classes, else (n_classes, d) and (n_classes,).
    classes_
        The labels.
    objective_
        The objective, summed over one-vs-rest problems.
    certificate_
        Bound on the distance of `objective_` from the optimum: the duality gap of the unsmoothed problem.
    n_iter_
        Number of Newton steps on all rows.
    history_
        An `Iteration` for each Newton step.
    model_
        The fitted model as a `LinearModel`.

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
    The solver minimises

        l2 / 2 |w|^2 + l1 |w|_1 + mean over rows of max(0, 1 - y (w . x + b))

    for each class against the rest; for two classes, for the second against the first. `sample_weight` weights the
    mean, and `class_weight` multiplies the losses of a class. With l2 = 1 / (C n) and l1 = 0 this is LIBLINEAR's
    problem for C. The hinge is smoothed to (u + sqrt(eps^2 + u^2)) / 2 [1]_. The smoothing eps decreases until the
    duality gap proves that the *unsmoothed* objective is within `tol` of its optimum. Zeros under l1 are exact.

    An iteration passes over the rows twice, for any number of classes. The Hessian uses the nonzero columns and the
    rows near the margin, at most 1,000 rows per column. For wide data no matrix of size d x d is built.

    The solver differs from Hajewski, Oliveira and Stewart [1]_ in four ways. The slopes of the loss are unknowns in
    addition to the coefficients, as in Chan, Golub and Mulet [2]_. Steps therefore remain accurate when eps is small. A
    step with l1 is a proximal Newton step that can activate several coordinates, because the published step can stall.
    The duality gap controls the smoothing, and the solution is extrapolated when smoothing decreases. Fits start on
    nested samples of the rows.

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
        class_weight: Any = None,
        init: LinearModel | None = None,
        callback: Callable[[Any, Iteration], Any] | None = None,
        random_state: Any = 0,
    ) -> None:
        self.l2 = l2
        self.l1 = l1
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.init = init
        self.callback = callback
        self.random_state = random_state

    def _check_params(self) -> None:
        check_penalty("l2", self.l2)
        check_penalty("l1", self.l1)
        if self.l2 == 0.0 and self.l1 == 0.0:
            raise ParameterError("l2", "and `l1` are both 0: one of them must be positive, for instance l2=1e-4")
        check_between("tol", self.tol, 0.0, 1.0)
        check_number("max_iter", self.max_iter, 1, whole=True)

    def _penalties(self, matrix: Matrix) -> Penalties:
        peaks = matrix.peaks() if self.l1 > 0.0 or self.fit_intercept else np.empty(0)
        return Penalties(float(self.l2), float(self.l1), bool(self.fit_intercept), peaks)

    def _problems(self, matrix: Matrix, codes: Ints, weights: Floats, penalties: Penalties) -> list[Problem]:
        """Create a problem for each row of `coef_`, at zero or at the given start."""
        positives = self._positives()
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

    def _solve(self, X: Any, codes: Ints, weights: Floats, progress: IterationLog) -> SolverResult:
        matrix = as_matrix(X)
        penalties = self._penalties(matrix)
        problems = self._problems(matrix, codes, weights, penalties)
        rng = generator(self.random_state)
        if problems[0].eps == EPS_FIRST:
            self._start_on_samples(matrix, problems, rng)

        def report() -> bool:
            return progress(sum(p.best.objective for p in problems), sum(p.gap for p in problems))

        n_iter = run(matrix, problems, self.tol, self.max_iter, rng, report=report)
        if self.l1 > 0.0:
            prune(matrix, problems, self.tol, rng)
        found = [Hyperplane(p.best.w, p.best.b, p.best.objective, p.gap) for p in problems]
        return self._linear_solution(found, n_iter, progress)

    def _start_on_samples(self, matrix: Matrix, problems: list[Problem], rng: np.random.Generator) -> None:
        """Solve the problems approximately on nested samples of the rows.

        Smoothing on m rows decreases to the estimation error of the margins, about the square root of the number of
        coefficients over m.
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


def warmup() -> None:
    """Compile the kernels of `SmoothedNewton`, or load them from the cache on disk."""
    X = np.random.default_rng(0).normal(size=(12, 3))
    y = np.arange(12) % 3
    for kind in (np.float64, np.float32):
        rows = X.astype(kind)
        for view in (rows, scipy.sparse.csr_matrix(rows)):
            for labels in (y, y == 0):
                SmoothedNewton(1e-2, 1e-3, tol=1e-2).fit(view, labels)
