"""The estimator: parameters, the choice of the algorithm, and the fitted model."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import scipy.linalg
import scipy.sparse
from sklearn.utils.validation import check_is_fitted

from streamsvm.batch.base import BatchClassifier, Iteration, IterationLog, SolverResult, check_positive, generator
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.sampled_cuts.gaussian import GaussianKernel
from streamsvm.batch.sampled_cuts.losses import cost_matrix
from streamsvm.batch.sampled_cuts.rounds import Population, Result, Rounds, RoundSettings
from streamsvm.batch.sampled_cuts.whole_problem import WholeProblem
from streamsvm.models import KernelExpansion, Scaler
from streamsvm.parameters import check_number

# Maximum rows that estimate `gamma` and the centre.
SCALED_BY = 10_000
# Rows scored at a time.
PASS = 4096
# Default number of rows of a cut.
SAMPLE = 500
# Maximum number of rows for which the whole problem is solved.
WHOLE = 4000
# Ridge on the kernel matrix of landmarks: the rounding of single precision.
RIDGE = 1e-5


class SampledCuts(BatchClassifier):
    """Gaussian kernel SVM by cutting planes, in time independent of the data size.

    Each round evaluates a sample of the rows and solves a small quadratic program.

    Parameters
    ----------
    C
        Weight of the loss; larger values fit the rows more closely. None uses `sample_size` * `max_iter`. If `fit`
        solves the whole problem (see `sample_size`), None uses n, or a multiple of n with a clearly lower cost on
        held-out rows. The multiples are between 0.01 and 100.
    gamma
        Kernel exp(-gamma |x - v|^2); "scale" for 1 / (n_features * variance of X), from at most 10,000 rows.
    cost
        cost[i, j] of predicting classes_[j] for classes_[i], zero on the diagonal; None for 1 each.
    sample_size
        Number of rows per cut. If classes overlap little or there are many classes, hundreds of small cuts are better
        than a few large ones. None uses 500. With None and at most 4,000 rows, `fit` solves the whole problem without
        cuts. It then ascends the dual [3]_ and stores all kernel values in memory (64 MB).
    tol
        Tolerance of the stopping rule. After each round, `fit` evaluates the loss of the average on held-out rows. It
        stops when this loss is at most `tol`, or fell by at most `tol` in the last quarter of the rounds. If `fit`
        solves the whole problem, it stops when the duality gap is at most `tol`.
    max_iter
        Maximum number of rounds.
    class_weight
        A dict from class to weight, "balanced", or None for 1 each.
    callback
        Called after each round with the estimator and an `Iteration`. If it returns a true value, the fit ends.
    random_state
        Seed of the samples.

    Attributes
    ----------
    classes_
        The labels.
    support_, vectors_, dual_coef_
        Indices of the support vectors, the support vectors as the kernel centres and scales them, and their
        coefficients. The coefficients have shape (1, n_vectors) for two classes, else (n_classes, n_vectors).
    objective_, objective_error_
        The objective and its standard error. The error is 0 unless the objective is estimated from 2,000 new rows and
        2,000 vectors.
    certificate_
        Bound on the distance of `objective_` from the optimum; inf unless `fit` solves the whole problem.
    n_iter_
        Number of rounds.
    history_
        An `Iteration` for each round. Unless `fit` solves the whole problem, the objective is an estimate. It uses the
        loss on 2,000 held-out rows, and the weighted mean of |f|^2 over the rounds. This mean is an upper bound of
        |f|^2 of the average.
    model_
        The fitted model as a `KernelExpansion`.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import SampledCuts
    >>> X = np.random.default_rng(0).random((20_000, 2))
    >>> y = np.floor(4 * X).sum(axis=1) % 2
    >>> model = SampledCuts(gamma=20.0).fit(X, y)
    >>> round(model.score(X[:1000], y[:1000]), 1)
    1.0
    >>> small = model.reduced(100)
    >>> round(small.score(X[:1000], y[:1000]), 1)
    1.0

    Notes
    -----
    The solver minimises, over functions f in the kernel's space and without a bias,

        |f|^2 / (2 C) + mean over rows of the loss,

    where C is n times the C of SVC. For two classes f is one function with loss max(0, 1 - y f(x)). For more classes
    there is one function f_c per class, and the loss is the largest cost[y, c] + f_c(x) - f_y(x) over labels c.

    Cuts are planes that bound the mean loss from below. A cut is computed from the most violated labels of
    `sample_size` rows. A round adds a cut at the current f and solves a small quadratic program over the cuts [1]_. The
    result is the average of f over the rounds, where round t has weight t [2]_.

    The solver differs from Yu and Joachims [1]_ in three ways. The result is an average; the last f is 1 to 3
    percentage points less accurate. The stopping rule uses held-out rows, because a series of sampled cuts without
    violation may occur by chance. Kernel values are in single precision. Cuts inactive for 30 rounds are dropped. The
    solver stores the vectors of the cuts, at most `sample_size` per cut, and 2^18 kernel values. Time and memory do not
    depend on the number of rows.

    References
    ----------
    .. [1] C.-N. J. Yu, T. Joachims: Training structural SVMs with kernels using sampled cuts, KDD 2008.
    .. [2] S. Lacoste-Julien, M. Schmidt, F. Bach: A simpler approach to obtaining an O(1/t) convergence rate for the
       projected stochastic subgradient method, 2012 (arXiv 1212.2002), for the weights.
    .. [3] I. Steinwart, D. Hush, C. Scovel: Training SVMs without offset, JMLR 2011; R.-E. Fan, P.-H. Chen, C.-J. Lin:
       Working set selection using second order information, JMLR 2005.
    """

    # scikit-learn needs an argument for each parameter, so there are more than 7.
    def __init__(
        self,
        C: float | None = None,
        gamma: float | str = "scale",
        *,
        cost: Any = None,
        sample_size: int | None = None,
        tol: float = 1e-3,
        max_iter: int = 150,
        class_weight: Any = None,
        callback: Callable[[Any, Iteration], Any] | None = None,
        random_state: Any = 0,
    ) -> None:
        self.C = C
        self.gamma = gamma
        self.cost = cost
        self.sample_size = sample_size
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.callback = callback
        self.random_state = random_state

    def _check_params(self) -> None:
        if self.gamma != "scale":
            check_positive("gamma", self.gamma)
        check_positive("tol", self.tol)
        if self.C is not None:
            check_positive("C", self.C)
        check_number("max_iter", self.max_iter, 1, whole=True)
        if self.sample_size is not None:
            check_number("sample_size", self.sample_size, 1, whole=True)

    # Fitting -----------------------------------------------------------------------------------------------------

    def _largest_product(self, n: int, d: int, is_sparse: bool) -> float:
        """Estimate the multiplications of a sample's kernel values; 0 for few rows.

        Few rows spend their time between the products.
        """
        return float(self.sample_size or SAMPLE) * WHOLE * d if n > WHOLE else 0.0

    def _solve(self, X: Any, codes: Ints, weights: Floats, progress: IterationLog) -> SolverResult:
        population = Population(X, codes, weights)
        rng = generator(self.random_state)
        sample_size, kind = self.sample_size or SAMPLE, self._algorithm(population.n)
        C = float(self.C or (0 if kind is WholeProblem else sample_size * self.max_iter))
        cost = cost_matrix(self.cost, len(self.classes_))
        self.kernel_ = self._kernel(population, rng)
        settings = RoundSettings(self.kernel_, cost, C, sample_size, self.tol, self.max_iter)
        result = kind(population, settings).run(rng, progress)
        self.C_ = result.C
        self.support_, self.dual_coef_ = result.indices, np.ascontiguousarray(result.coefs.T)
        self.vectors_ = self.kernel_.prepare(X[result.indices])
        self.objective_error_ = result.error
        return SolverResult(result.objective, result.certificate, result.n_iter, self._warning(result, kind, progress))

    def _algorithm(self, n: int) -> type[Rounds | WholeProblem]:
        """Return the algorithm for n rows."""
        return WholeProblem if self.sample_size is None and n <= WHOLE else Rounds

    def _warning(self, result: Result, kind: type[Rounds | WholeProblem], progress: IterationLog) -> str:
        if kind is Rounds or result.is_done:  # reaching max_iter is usual with samples
            return ""
        if progress.is_stopped:
            return f"SampledCuts was stopped by its callback, {result.certificate:.1e} above the bound of its cuts"
        return (
            f"SampledCuts stopped after {result.n_iter} rounds, {result.certificate:.1e} above the bound of its cuts, "
            f"more than tol={self.tol:g}; raise max_iter={self.max_iter}, lower C, or raise tol"
        )

    def _kernel(self, population: Population, rng: np.random.Generator) -> GaussianKernel:
        """Create the kernel, with centre and default `gamma` from all rows or a sample."""
        indices = np.arange(population.n) if population.n <= SCALED_BY else population.draw(rng, SCALED_BY)
        X = population.X[indices].astype(np.float64)
        is_sparse = scipy.sparse.issparse(X)
        centre = np.asarray(X.mean(axis=0)).ravel()
        gamma = self.gamma
        if isinstance(gamma, str):
            variance = float(X.multiply(X).mean() - X.mean() ** 2 if is_sparse else X.var())
            gamma = 1.0 / (X.shape[1] * variance) if 0.0 < variance < math.inf else 1.0
        return GaussianKernel(float(gamma), centre)

    # The fitted model --------------------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> Floats:
        """Compute the decision function of rows.

        Parameters
        ----------
        X
            Rows, an array or CSR matrix of shape (n, d).

        Returns
        -------
        ndarray, shape (n,) or (n, n_classes)
            For two classes a single score per row, positive for the second class.
        """
        X = self._validated(X)
        out = np.empty((len(self.dual_coef_), X.shape[0]))
        coefs = np.ascontiguousarray(self.dual_coef_.T)
        for first in range(0, X.shape[0], PASS):
            part = slice(first, first + PASS)
            out[:, part] = self.kernel_.decide(self.vectors_, coefs, self.kernel_.prepare(X[part]))
        return out[0] if len(out) == 1 else np.ascontiguousarray(out.T)

    @property
    def model_(self) -> KernelExpansion:
        """The fitted model as plain arrays."""
        check_is_fitted(self)
        names = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        coefs = self.dual_coef_.astype(np.float64)
        return KernelExpansion(
            self.classes_.tolist(),
            self.kernel_.restore(self.vectors_),
            np.vstack([-coefs, coefs]) if len(coefs) == 1 else coefs,
            np.zeros(len(self.classes_)),
            self.kernel_.gamma,
            np.ones(self.n_features_in_),
            Scaler.identity(names),
        )

    def reduced(self, budget: int) -> Self:
        """Copy the model with at most `budget` support vectors.

        Landmarks are drawn from the vectors, with probabilities proportional to their coefficients. The result is the
        nearest function in the kernel's space.

        Parameters
        ----------
        budget
            Maximum number of vectors.
        """
        check_is_fitted(self)
        check_number("budget", budget, 1, whole=True)
        other = copy.copy(self)
        n = len(self.vectors_)
        if n <= budget:
            return other
        sizes = np.abs(self.dual_coef_).sum(axis=0, dtype=np.float64)
        chosen = np.sort(np.random.default_rng(0).choice(n, budget, replace=False, p=sizes / sizes.sum()))
        marks = self.vectors_[chosen]
        system = self.kernel_.values(marks, marks).astype(np.float64)
        system[np.diag_indices(budget)] += RIDGE
        target = self.kernel_.decide(self.vectors_, np.ascontiguousarray(self.dual_coef_.T), marks)
        coefs = scipy.linalg.solve(system, target.T, assume_a="sym")
        other.support_, other.vectors_ = self.support_[chosen], marks
        other.dual_coef_ = np.ascontiguousarray(coefs.T, np.float32)
        return other
