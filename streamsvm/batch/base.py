"""Base classes of the batch solvers, with the scikit-learn interface."""

from __future__ import annotations

import math
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from streamsvm.batch.linear_systems import LARGEST_SYSTEM
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.threads import threads_for
from streamsvm.models import LinearModel, Scaler
from streamsvm.parameters import ParameterError, ParameterTypeError, check_between

# Supported magnitudes: products of six such values neither overflow nor underflow.
SMALLEST, LARGEST = 1e-50, 1e50


class Iteration(NamedTuple):
    """State of a solver after an iteration.

    Attributes
    ----------
    objective
        Best objective so far, summed over one-vs-rest problems.
    certificate
        Bound on the distance of the objective from the optimum.
    seconds
        Seconds since `fit` was called.
    """

    objective: float
    certificate: float
    seconds: float


class IterationLog:
    """Record of the iterations, which also calls the callback."""

    def __init__(self, estimator: Any, callback: Callable[[Any, Iteration], Any] | None) -> None:
        self.history: list[Iteration] = []
        self._estimator, self._callback = estimator, callback
        self._start = time.perf_counter()
        self.is_stopped = False

    def __call__(self, objective: float, certificate: float) -> bool:
        """Record an iteration; returns whether the callback requests a stop."""
        step = Iteration(float(objective), float(certificate), time.perf_counter() - self._start)
        self.history.append(step)
        self.is_stopped = self._callback is not None and bool(self._callback(self._estimator, step))
        return self.is_stopped


class SolverResult(NamedTuple):
    """Result of a solver beside the fitted attributes, with a warning, if any."""

    objective: float
    certificate: float
    n_iter: int
    warning: str = ""


class BatchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the batch solvers: validation, classes, weights, history and warnings.

    A subclass has the parameters `class_weight` and `callback`, and implements `_check_params`, `_solve` and
    `decision_function`.
    """

    class_weight: Any
    callback: Callable[[Any, Iteration], Any] | None

    @abstractmethod
    def _solve(self, X: Any, codes: Ints, weights: Floats, progress: IterationLog) -> SolverResult:
        """Solve for rows X with labels classes_[codes], and set fitted attributes.

        `weights` include the class weights and sum to about 1.
        """

    def _check_params(self) -> None:
        """Raise ValueError or TypeError for invalid parameters."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X
            Rows, shape (n, d): an array, a CSR matrix or a data frame. float32 and float64 are not converted.
        y
            n labels of at least two classes.
        sample_weight
            n weights, 0 or more; a row of weight 2 counts as two rows. None for 1 each.

        Raises
        ------
        ValueError
            For NaN, infinities, negative weights, a single class of positive weight, or invalid parameters.
        """
        progress = IterationLog(self, self.callback)
        self._check_params()
        X, codes, weights = self._prepare(X, y, sample_weight)
        with threads_for(self._largest_product(X.shape[0], X.shape[1], scipy.sparse.issparse(X))):
            solution = self._solve(X, codes, weights, progress)
        self.objective_, self.certificate_, self.n_iter_, warning = solution
        self.history_ = progress.history
        if warning:
            warnings.warn(warning, ConvergenceWarning, stacklevel=2)
        return self

    def _largest_product(self, n: int, d: int, is_sparse: bool) -> float:
        """Estimate the multiplications of the largest BLAS call.

        For linear models this call computes X^T X. For sparse rows a kernel computes X^T X, and BLAS only factorises
        it.
        """
        return min(d, LARGEST_SYSTEM) ** 3 / 3.0 if is_sparse else float(n) * d * min(d, LARGEST_SYSTEM)

    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Ints, Floats]:
        """Validate the input; returns rows, label codes and weights, and sets `classes_`."""
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], accept_large_sparse=True, order=None
        )
        check_classification_targets(y)
        self._check_magnitudes(X)
        codes = self._encode(y)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, copy=True, ensure_non_negative=True)
        weights /= max(float(weights.max(initial=0.0)), 5e-324)  # so that the sum is finite
        return X, codes, self._by_class(codes, weights)

    def _check_magnitudes(self, X: Any) -> None:
        """Raise ValueError if a value is too large, or if all values are too small."""
        values = X.data if scipy.sparse.issparse(X) else X
        largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
        if largest > 0.0:
            check_scale("X", largest, "scale its columns, as StandardScaler does")

    def _encode(self, y: Any) -> Ints:
        """Encode labels, and set `classes_`."""
        self.classes_ = np.unique(y)
        # Faster than np.unique with return_inverse, which sorts all labels.
        codes: Ints = np.searchsorted(self.classes_, y)
        return codes

    def _by_class(self, codes: Ints, weights: Floats) -> Floats:
        """Normalise the weights to sum to 1, and apply the class weights, in place."""
        by_class = np.bincount(codes, weights, minlength=len(self.classes_)).astype(np.float64, copy=False)
        weights *= (self._class_factors(by_class) / by_class.sum())[codes]
        return weights

    def _class_factors(self, by_class: Floats) -> Floats:
        """Return the weight of each class under `class_weight`.

        `by_class` are the sums of the sample weights per class. A class counts as absent if this sum or its class
        weight is 0.
        """
        factors = np.ones(len(by_class))
        if self.class_weight == "balanced":
            present = by_class > 0.0
            factors[present] = by_class.sum() / (np.count_nonzero(present) * by_class[present])
        elif self.class_weight is not None:
            factors = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)
            if not (np.isfinite(factors).all() and (factors >= 0.0).all()):
                raise ParameterError("class_weight", f"must be finite and not negative, got {self.class_weight!r}")
            if factors.any():
                check_scale("class_weight", factors.max(), "rescale the weights")
        n_present = np.count_nonzero(by_class * factors)
        if n_present < 2:
            raise ParameterError("y", f"must have at least two classes with positive weight, got {n_present} class")
        return np.asarray(factors, np.float64)

    @abstractmethod
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

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the labels of rows.

        Parameters
        ----------
        X
            Rows, an array or CSR matrix of shape (n, d).

        Returns
        -------
        ndarray, shape (n,)
            Labels of the type of `classes_`.
        """
        scores = self.decision_function(X)
        codes = (scores > 0.0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    @property
    def predict_proba(self) -> Any:
        """Not available, because scores are not calibrated.

        Scikit-learn's `CalibratedClassifierCV` calibrates them on held-out rows.
        """
        name = type(self).__name__
        raise AttributeError(
            f"{name} has no probabilities: sklearn.calibration.CalibratedClassifierCV({name}()) calibrates its scores "
            "on held-out rows",
            name="predict_proba",
            obj=self,
        )

    def _validated(self, X: Any) -> Any:
        """Validate rows for prediction."""
        check_is_fitted(self)
        return validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)


def generator(seed: Any) -> np.random.Generator:
    """Create a random number generator from a `random_state`."""
    return np.random.default_rng(seed.randint(2**31) if isinstance(seed, np.random.RandomState) else seed)


def check_positive(name: str, value: Any) -> None:
    """Raise ValueError unless a parameter is positive and of a supported magnitude."""
    check_between(name, value, 0.0, math.inf)
    check_scale(name, value, "give another")


def check_penalty(name: str, value: Any) -> None:
    """Raise ValueError unless a parameter is 0 or a supported positive magnitude."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0.0 <= float(value) < math.inf:
        raise ParameterError(name, f"must be a finite number, 0 or more, got {value!r}")
    if value:
        check_scale(name, value, "use another value, or 0 for none")


def check_scale(name: str, value: Any, advice: str) -> None:
    """Raise ParameterError for an unsupported magnitude, with advice."""
    if not SMALLEST <= float(value) <= LARGEST:
        raise ParameterError(
            name, f"has magnitude {float(value):.3g}, not between {SMALLEST:g} and {LARGEST:g}: {advice}"
        )


class Hyperplane(NamedTuple):
    """Solution of a one-vs-rest problem, with its objective and duality gap."""

    w: Floats
    b: float
    objective: float
    gap: float


class LinearClassifier(BatchClassifier):
    """Base of the one-vs-rest linear solvers.

    Two classes have a single hyperplane, with the second class on its positive side. A subclass also has the parameters
    `tol`, `max_iter` and `init`.
    """

    tol: float
    max_iter: int
    init: LinearModel | None
    coef_: Floats
    intercept_: Floats
    _statistics: tuple[Floats, Floats] | None = None

    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Ints, Floats]:
        X, codes, weights = super()._prepare(X, y, sample_weight)
        self._statistics = column_statistics(X)
        return X, codes, weights

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
        scores = np.asarray(X @ self.coef_.T, np.float64) + self.intercept_
        return scores[:, 0] if len(self.coef_) == 1 else scores

    @property
    def model_(self) -> LinearModel:
        """The fitted model as plain arrays."""
        check_is_fitted(self)
        names = list(getattr(self, "feature_names_in_", range(self.n_features_in_)))
        coef, intercept = self.coef_, self.intercept_
        if len(coef) == 1:
            coef, intercept = np.vstack([-coef, coef]), np.concatenate([-intercept, intercept])
        scaler = Scaler.identity(names)
        if self._statistics is not None:
            scaler.mean, scaler.spread = self._statistics
        return LinearModel(self.classes_.tolist(), coef, intercept, scaler)

    def _positives(self) -> list[int]:
        """Return the code of the positive class of each one-vs-rest problem."""
        return [1] if len(self.classes_) == 2 else list(range(len(self.classes_)))

    def _linear_solution(self, found: Sequence[Hyperplane], n_iter: int, progress: IterationLog) -> SolverResult:
        """Set the hyperplanes, and warn if a relative gap exceeds `tol`."""
        self.coef_, self.intercept_ = np.array([one.w for one in found]), np.array([one.b for one in found])
        worst, name, warning = max(one.gap / max(one.objective, 1e-300) for one in found), type(self).__name__, ""
        if worst > self.tol:
            warning = (
                f"{name} was stopped by its callback with a relative duality gap of {worst:.1e}"
                if progress.is_stopped
                else f"{name} stopped after {n_iter} iterations with a relative duality gap of {worst:.1e}, "
                f"above tol={self.tol:g}: raise max_iter={self.max_iter} or tol, or scale X"
            )
        return SolverResult(sum(one.objective for one in found), sum(one.gap for one in found), n_iter, warning)

    def _start(self, shape: tuple[int, int]) -> tuple[Floats, Floats] | None:
        """Return the coefficients and intercepts of `init`; None for zeros."""
        if self.init is None:
            return None
        if not isinstance(self.init, LinearModel):
            raise ParameterTypeError(
                "init", f"must be a `LinearModel`, as `model_` of a fitted one is, got {self.init!r}"
            )
        if list(self.init.classes) != self.classes_.tolist() or self.init.coef.shape[1] != shape[1]:
            raise ParameterError(
                "init",
                f"has classes {self.init.classes} and {self.init.coef.shape[1]} columns, the data "
                f"{self.classes_.tolist()} and {shape[1]}: start from a model of the same ones",
            )
        return self.init.coef[-shape[0] :].copy(), self.init.intercept[-shape[0] :].copy()


def column_statistics(X: Any) -> tuple[Floats, Floats] | None:
    """Compute means and standard deviations of the columns; None if they overflow.

    For sparse columns the mean is 0, and the deviation is the root mean square of the stored values.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if scipy.sparse.issparse(X):
            d = X.shape[1]
            squares = np.bincount(X.indices, X.data.astype(np.float64) ** 2, minlength=d)
            mean, spread = np.zeros(d), np.sqrt(squares / np.maximum(np.bincount(X.indices, minlength=d), 1))
        else:
            mean, spread = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    return (mean, spread) if np.isfinite(mean).all() and np.isfinite(spread).all() else None
