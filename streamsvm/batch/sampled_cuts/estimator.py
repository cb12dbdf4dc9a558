"""The estimator: parameters, the kind of rounds, and what is done with their result."""

from __future__ import annotations

import copy
import hashlib
import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from streamsvm.batch.base import BatchClassifier, Iteration, Progress, Solution, check_positive, generator
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.reduction import METHODS, reduce
from streamsvm.batch.sampled_cuts.losses import MEASURED, cost_matrix, most_violated, square_norm
from streamsvm.batch.sampled_cuts.population import Drawn, Population, RowSequence
from streamsvm.batch.sampled_cuts.rounds import AllRows, ConstantTime, Result, Rounds, Settings
from streamsvm.batch.sampled_cuts.whole import Whole
from streamsvm.batch.similarity import KERNELS, Similarity, Singles
from streamsvm.batch.threads import threads_for
from streamsvm.models import KernelExpansion, Scaler
from streamsvm.parameters import check_choice, check_number

# Rows that `gamma` and the centre are taken from.
SCALED_BY = 10_000
# All rows are gone through so many at a time.
PASS = 4096
# Rows of a cut.
SAMPLE = 500
# Up to so many rows the whole problem is solved.
WHOLE = 4000


class Reduction(NamedTuple):
    """What a cut to a budget cost, at the rows it was measured with.

    Parameters
    ----------
    n_before, n_after
        Vectors.
    objective_before, objective_after
        |f|^2 / (2 C) + mean loss.
    accuracy_before, accuracy_after
        The share of right labels.
    """

    n_before: int
    n_after: int
    objective_before: float
    objective_after: float
    accuracy_before: float
    accuracy_after: float


class SampledCuts(BatchClassifier):
    """Kernel support vector machine by cutting planes of sampled rows, in a time that does not grow with the data.

    It minimises, over functions f in the kernel's space and without a bias,

        |f|^2 / (2 C) + mean over rows of the loss,

    which are C = n times the C of SVC and of SmoothedNewton's l2 = 1 / C. Of two classes f is one function with loss
    max(0, 1 - y f(x)); of more, one function f_c a class, and the loss is the largest over labels c of
    cost[y, c] + f_c(x) - f_y(x). All classes are learned in one problem.

    The mean loss is bounded from below by cuts, each a plane that rests on the most violated labels of `sample_size`
    rows. A round adds a cut at the current f and solves a small quadratic program over the cuts. The result is the
    average of f over the rounds, where round t counts t times [2]_.

    With a linear kernel a cut costs no more than its rows, so that large samples are cheap: they bound how near the
    optimum it ends. It needs a column of ones where the classes do not lie about zero.

    Parameters
    ----------
    C
        Weight of the loss: larger follows the rows more closely. It belongs to the rows that are seen: None for
        `sample_size` * `max_iter`, or for n where all rows are looked through. Where the whole problem is solved, None
        for n, as the C of 1 of SVC, if rows held out do not clearly speak for 10 or 100 times that, or for less.
    kernel
        `"gaussian"` exp(-gamma |x - v|^2), `"laplacian"` exp(-gamma |x - v|_1), `"polynomial"`
        (gamma x.v + coef0)^degree, `"linear"` x.v, or a callable of two arrays of rows, float32, that gives the
        values of all pairs.
    gamma
        Of the kernel; "scale" for 1 / (n_features * variance of X), from at most 10,000 rows.
    degree, coef0
        Of the polynomial kernel.
    cost
        cost[i, j] for taking a row of classes_[i] for classes_[j], zero on the diagonal; None for 1 each.
    rescaling
        `"margin"`, as above, or `"slack"`: the largest of cost[y, c] * (1 + f_c(x) - f_y(x)).
    sampling
        `"constant"`: each cut from rows drawn afresh from all; time and memory do not depend on n. `"linear"`: all
        rows are looked through each round, the cut is drawn from those that have a loss, and the end is exact. Where
        there are no more rows than `sample_size`, all are looked through anyway.
    sample_size
        Rows of a cut. Where classes overlap little, or are many, hundreds of small cuts do better than few large ones.
        None for 500; but with sampling="constant" and at most 4,000 rows that `fit` is given, the whole problem is
        solved, without cuts: by ascent on its dual [3]_, with all kernel values in memory (64 MB).
    tol
        With all rows looked through: the end comes where the mean loss is above that of the cuts by no more than
        this, or the objective of the average above their bound. Else where the average's loss at rows set aside is no
        more than this, or has not fallen by more for a quarter of the rounds since the cuts tell of a loss.
    max_iter, max_seconds
        Most rounds, and seconds (None: no limit; with one, results depend on the machine).
    average
        Whether the result is the average over the rounds (where objectives are known, if it is better than the last
        f). False for the last f, the method as published: of single samples one to three points worse.
    budget
        The result is cut down to so many vectors; None leaves it. See `reduced`.
    reduction
        How: `"project"`, `"fit"`, or `"merge"`.
    class_weight
        A dict from class to weight, "balanced", or None for 1 each.
    warm_start
        Whether `fit` on the same rows goes on with the cuts of the last one. On other rows it starts anew: cuts of an
        old window do harm.
    callback
        Called after each round with the estimator and an `Iteration`; something true ends the fit.
    random_state
        Seed of the samples.

    Attributes
    ----------
    classes_
        The labels.
    support_, vectors_, dual_coef_
        Indices of the rows that f rests on, these rows scaled by the kernel's parameters, and their coefficients, shape
        (1, n_vectors) for two classes, else (n_classes, n_vectors). After a merging, `support_` is empty.
    objective_, objective_error_
        The objective, and its standard error where it is an estimate by 2,000 fresh rows and 2,000 vectors; else 0.
    certificate_
        How far `objective_` can be above the optimum. It is proven where each cut has all rows with a loss; with
        sampled cuts of sampling="linear" it takes them for exact; with sampling="constant" none is known: inf.
    reduction_
        A `Reduction`, with `budget`.
    n_iter_
        Rounds.
    history_
        An `Iteration` for each. With sampling="constant" its objective has the loss at 2,000 rows set aside, and the
        mean of |f|^2 over the rounds, weighted so, which is at least that of their average.
    model_
        What was learned, as a `KernelExpansion`.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import SampledCuts
    >>> X = np.random.default_rng(0).random((20_000, 2))
    >>> y = np.floor(4 * X).sum(axis=1) % 2
    >>> model = SampledCuts(gamma=20.0).fit(X, y)
    >>> round(model.score(X[:1000], y[:1000]), 1)
    1.0
    >>> small = model.reduced(100, X[:2000], y[:2000])
    >>> small.reduction_.accuracy_before - small.reduction_.accuracy_after < 0.02
    True

    Notes
    -----
    After Yu and Joachims [1]_, with these changes: the average, the end by rows set aside instead of by a run of
    sampled cuts that are not violated, which is luck, and kernel values in single precision. Cuts inactive for 30
    rounds are dropped. In memory are the vectors of the cuts in the program, at most `sample_size` a cut, and 2^18
    kernel values at a time; with sampling="linear" also all rows in single precision, and a number a row and class for
    each cut.

    References
    ----------
    .. [1] C.-N. J. Yu, T. Joachims: Training structural SVMs with kernels using sampled cuts, KDD 2008.
    .. [2] S. Lacoste-Julien, M. Schmidt, F. Bach: A simpler approach to obtaining an O(1/t) convergence rate for the
       projected stochastic subgradient method, 2012 (arXiv 1212.2002), for the weights.
    .. [3] I. Steinwart, D. Hush, C. Scovel: Training SVMs without offset, JMLR 2011; R.-E. Fan, P.-H. Chen, C.-J. Lin:
       Working set selection using second order information, JMLR 2005.
    """

    def __init__(
        self,
        C: float | None = None,
        kernel: Any = "gaussian",
        gamma: float | str = "scale",
        *,
        degree: int = 3,
        coef0: float = 1.0,
        cost: Any = None,
        rescaling: str = "margin",
        sampling: str = "constant",
        sample_size: int | None = None,
        tol: float = 1e-3,
        max_iter: int = 150,
        max_seconds: float | None = None,
        average: bool = True,
        budget: int | None = None,
        reduction: str = "project",
        class_weight: Any = None,
        warm_start: bool = False,
        callback: Callable[[Any, Iteration], Any] | None = None,
        random_state: Any = 0,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.cost = cost
        self.rescaling = rescaling
        self.sampling = sampling
        self.sample_size = sample_size
        self.tol = tol
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.average = average
        self.budget = budget
        self.reduction = reduction
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.callback = callback
        self.random_state = random_state

    def _check_params(self) -> None:
        if not callable(self.kernel):
            check_choice("kernel", self.kernel, KERNELS)
        if self.gamma != "scale":
            check_positive("gamma", self.gamma)
        check_positive("tol", self.tol)
        for name in ("C", "max_seconds"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))
        for name in ("max_iter", "degree"):
            check_number(name, getattr(self, name), 1, whole=True)
        for name in ("sample_size", "budget"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 1, whole=True)
        check_number("coef0", self.coef0, 0.0)
        check_choice("rescaling", self.rescaling, ("margin", "slack"))
        check_choice("sampling", self.sampling, ("constant", "linear"))
        check_choice("reduction", self.reduction, METHODS)
        if self.budget is not None and self.reduction == "merge" and self.kernel != "gaussian":
            raise ValueError(f"only Gaussian vectors can be merged, the kernel is {self.kernel!r}")

    def _check_magnitudes(self, X: Any) -> None:
        """Warn of such rows: they are cut to where kernel values are numbers."""
        try:
            super()._check_magnitudes(X)
        except ValueError as error:
            warnings.warn(f"rows may not be told apart: {error}", ConvergenceWarning, stacklevel=4)

    # Fitting -----------------------------------------------------------------------------------------------------

    def _solve(self, X: Any, codes: Ints, weights: Floats, progress: Progress) -> Solution:
        ones = np.ones(len(self.classes_))
        is_uniform = bool((weights == weights[0]).all()) and abs(weights.sum() - 1.0) < 1e-9
        population = Population(
            len(codes), lambda indices: (X[indices], codes[indices]), None if is_uniform else weights, ones
        )
        is_whole = self.sample_size is None and self.sampling == "constant" and len(codes) <= WHOLE
        return self._find(population, _fingerprint(X, codes, weights) if self.warm_start else "", progress, is_whole)

    def fit_drawn(self, rows: RowSequence, classes: Sequence[Any] | NDArray[Any]) -> Self:
        """Fit rows that are drawn as they are needed, and are never all in memory.

        Parameters
        ----------
        rows
            `len(rows)` is how many there are; `rows[indices]`, for an array of integers, gives an array of these rows,
            shape (m, d), and their m labels. The same indices must give the same rows each time.
        classes
            All labels there are.

        Raises
        ------
        ValueError
            For values that are not finite, labels that are none of the classes, and parameters that cannot be.
        """
        progress = Progress(self, self.callback)
        self._check_params()
        self.classes_ = np.unique(np.asarray(classes))
        if len(self.classes_) < 2 or len(rows) < 1:
            raise ValueError(f"rows of at least two classes are needed, got {len(rows)} of {list(classes)}")
        if self.class_weight == "balanced":
            raise ValueError("class_weight='balanced' needs all labels: give a dict of weights with `fit_drawn`")
        factors = self._class_factors(np.ones(len(self.classes_)))
        drawn = Drawn(rows, self.classes_)
        population = Population(len(rows), drawn, None, factors)
        self.n_features_in_ = int(drawn(np.zeros(1, np.int64))[0].shape[1])
        with threads_for(self._largest_product(len(rows), self.n_features_in_, False)):
            solution = self._find(population, f"drawn {id(rows)}", progress)
        return self._take_over(solution, progress)

    def _largest_product(self, n: int, d: int, is_sparse: bool) -> float:
        """About that of similarities of a sample with the rows found; few rows have long ascents between products."""
        return float(self.sample_size or SAMPLE) * WHOLE * d if n > WHOLE else 0.0

    def _find(self, population: Population, fingerprint: str, progress: Progress, is_whole: bool = False) -> Solution:
        rng = generator(self.random_state)
        n_classes = len(self.classes_)
        sample_size = self.sample_size or SAMPLE
        settings = Settings(
            sample_size,
            self.tol,
            self.max_iter,
            time.perf_counter() + (self.max_seconds or math.inf),
            cost_matrix(self.cost, n_classes),
            self.rescaling,
            self.average,
        )
        similarity = self._similarity(population, rng)
        kind: type[Rounds] = AllRows if self.sampling == "linear" or sample_size >= population.n else ConstantTime
        kind = Whole if is_whole else kind
        defaults = {Whole: 0.0, AllRows: population.n, ConstantTime: sample_size * self.max_iter}
        C = float(self.C or defaults[kind])
        key = (fingerprint, kind, C, similarity.key, str(settings.cost), self.rescaling)
        rounds: Rounds = kind(similarity, C, 1 if n_classes == 2 else n_classes)
        held = getattr(self, "_held", None)
        if self.warm_start and held is not None and held[0] == key:
            _, rounds, rng = held
        result = rounds.run(population, settings, rng, progress)
        self._held = (key, rounds, rng) if self.warm_start else None
        self.C_, self.similarity_ = rounds.C, rounds.similarity
        self.support_, self.dual_coef_ = result.indices, np.ascontiguousarray(result.coefs.T)
        self.vectors_ = self.similarity_.prepare(population.take(result.indices)[0])
        self.objective_error_ = result.error
        if self.budget is not None:
            indices = np.arange(population.n) if population.n <= MEASURED else population.draw(rng, MEASURED)
            X, codes = population.take(indices)
            small = self._reduced(self.budget, X, codes, self.reduction, rng)
            for name in ("vectors_", "dual_coef_", "support_", "reduction_"):
                setattr(self, name, getattr(small, name))
        return Solution({}, result.objective, result.certificate, result.n_iter, self._warning(result, kind, progress))

    def _warning(self, result: Result, kind: type[Rounds], progress: Progress) -> str:
        if kind is ConstantTime or result.is_done:  # a cap is a usual end there
            return ""
        if progress.is_stopped:
            return f"SampledCuts was stopped by its callback, {result.certificate:.1e} above the bound of its cuts"
        return (
            f"SampledCuts stopped after {result.n_iter} rounds, {result.certificate:.1e} above the bound of its cuts, "
            f"where tol={self.tol:g} was asked for; raise max_iter={self.max_iter}"
            + (f" and max_seconds={self.max_seconds:g}" if self.max_seconds else "")
            + ", lower C, or raise tol"
        )

    def _similarity(self, population: Population, rng: np.random.Generator) -> Similarity:
        """The kernel function, scaled by all rows or by a sample of them."""
        indices = np.arange(population.n) if population.n <= SCALED_BY else population.draw(rng, SCALED_BY)
        X, _ = population.take(indices)
        X = X.astype(np.float64)
        is_sparse = scipy.sparse.issparse(X)
        centre = np.asarray(X.mean(axis=0)).ravel()
        gamma = self.gamma
        if isinstance(gamma, str):
            variance = float(X.multiply(X).mean() - X.mean() ** 2 if is_sparse else X.var())
            gamma = 1.0 / (X.shape[1] * variance) if 0.0 < variance < math.inf else 1.0
        return Similarity(self.kernel, float(gamma), int(self.degree), float(self.coef0), centre)

    # What was found ----------------------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> Floats:
        """Scores: shape (n,) for two classes, positive for the second, else (n, n_classes).

        Parameters
        ----------
        X
            Rows, an array or CSR of shape (n, d).
        """
        X = self._validated(X)
        out = np.empty((len(self.dual_coef_), X.shape[0]))
        coefs = np.ascontiguousarray(self.dual_coef_.T)
        for first in range(0, X.shape[0], PASS):
            part = slice(first, first + PASS)
            out[:, part] = self.similarity_.decide(self.vectors_, coefs, self.similarity_.prepare(X[part]))
        return out[0] if len(out) == 1 else np.ascontiguousarray(out.T)

    @property
    def model_(self) -> KernelExpansion:
        """What was learned as plain arrays.

        Raises
        ------
        TypeError
            For a kernel that is a callable.
        """
        check_is_fitted(self)
        similarity = self.similarity_
        if callable(similarity.kernel):
            raise TypeError("a model with a callable for a kernel cannot be plain arrays")
        names = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        coefs = self.dual_coef_.astype(np.float64)
        return KernelExpansion(
            self.classes_.tolist(),
            similarity.restore(self.vectors_),
            np.vstack([-coefs, coefs]) if len(coefs) == 1 else coefs,
            np.zeros(len(self.classes_)),
            similarity.gamma,
            np.ones(self.n_features_in_),
            Scaler.identity(names),
            similarity.kernel,
            similarity.degree,
            similarity.coef0,
        )

    def reduced(self, budget: int, X: Any, y: Any, method: str = "project") -> Self:
        """A copy with at most so many vectors, and a `reduction_` that tells what that cost.

        Parameters
        ----------
        budget
            The most vectors.
        X, y
            Rows to measure the loss with; for the method "fit" also those where the scores should be the same. Some
            thousands are enough.
        method
            `"project"`: onto landmarks among the vectors, nearest in the kernel's space. `"fit"`: onto such landmarks,
            nearest in the scores at X; better for small budgets. `"merge"`: two vectors into one, again and again, as
            in `BSGDClassifier`; for the Gaussian kernel.
        """
        check_number("budget", budget, 1, whole=True)
        check_choice("method", method, METHODS)
        X, labels = self._validated(X), np.asarray(y)
        codes = np.searchsorted(self.classes_, labels).clip(0, len(self.classes_) - 1)
        if len(labels) != X.shape[0] or (self.classes_[codes] != labels).any():
            raise ValueError("`y` must have a known label for each row of X")
        return self._reduced(budget, X, codes, method, np.random.default_rng(0))

    def _reduced(self, budget: int, X: Any, codes: Ints, method: str, rng: np.random.Generator) -> Self:
        similarity, before = self.similarity_, np.ascontiguousarray(self.dual_coef_.T)
        rows = similarity.prepare(X)
        other = copy.copy(self)
        other._held = None
        other.vectors_, after = reduce(similarity, self.vectors_, before, int(budget), method, rng, rows)
        other.dual_coef_ = np.ascontiguousarray(after.T)
        other.support_ = self.support_ if other.vectors_ is self.vectors_ else np.empty(0, np.int64)
        cost = cost_matrix(self.cost, len(self.classes_))

        def measure(vectors: Singles, coefs: Singles) -> tuple[float, float]:
            scores = similarity.decide(vectors, coefs, rows)
            loss = float(most_violated(scores, codes, cost, self.rescaling).losses.mean())
            square, _ = square_norm(similarity, vectors, coefs, np.random.default_rng(0))
            best = scores.argmax(axis=0) if len(scores) > 1 else (scores[0] > 0.0).astype(np.int64)
            return loss + 0.5 * square / self.C_, float(np.mean(best == codes))

        pairs = zip(measure(self.vectors_, before), measure(other.vectors_, after), strict=True)
        other.reduction_ = Reduction(len(before), len(after), *(value for pair in pairs for value in pair))
        return other


def _fingerprint(X: Any, codes: Ints, weights: Floats) -> str:
    """What tells these rows from others."""
    digest = hashlib.blake2b(digest_size=16)
    parts = [X.data, X.indices, X.indptr] if scipy.sparse.issparse(X) else [X]
    for part in (*parts, codes, weights):
        digest.update(f"{part.shape} {part.dtype}".encode())
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
