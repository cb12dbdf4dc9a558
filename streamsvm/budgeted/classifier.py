"""Budgeted kernel support vector machine as a River classifier."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from streamsvm.budgeted import expansion, kernels, vectors
from streamsvm.budgeted.inspection import class_coefs, nearest_vectors
from streamsvm.budgeted.memory import LOSSES, BudgetedMemory
from streamsvm.features.rows import Floats
from streamsvm.features.scaler import LARGEST, PREDICT
from streamsvm.locks import locked
from streamsvm.models import KernelExpansion, Scaler
from streamsvm.online import base
from streamsvm.online.saving import check_model
from streamsvm.online.scaling import SCALINGS, scaler_for, scaler_of
from streamsvm.parameters import ParameterError, check_choice, check_class_weight, check_number

METRICS = ("fixed", "learned")
# Kernel values in single precision are accurate to 0.01 up to this value of gamma times squared norm.
FARTHEST = 1e5


class BSGDClassifier(BudgetedMemory):
    """Kernel support vector machine on a budget, trained by gradient steps (BSGD).

    The model stores at most `budget` support vectors. An event that violates its margin becomes a support vector. When
    the budget is exceeded, several support vectors are merged into one.

    Numbers are scaled with running statistics and strings are one-hot encoded. New features and classes may appear at
    any time. Missing values (None, NaN, or an absent name) contribute nothing. Infinite values raise an error. Training
    is deterministic.

    Thread-safe: threads may predict with one model while others train it.

    Parameters
    ----------
    budget
        Maximum number of support vectors. A larger budget fits finer boundaries and remembers longer, at proportional
        cost.
    class_weight
        Weights of the training steps by label, `"balanced"` for weights inversely proportional to class frequencies, or
        None. Weights distort the predicted probabilities. To avoid this, use `DecidingClassifier` with costs.
    categories
        Names of categorical features with any number of categories. Other features whose strings rarely repeat, such as
        identifiers and timestamps, are left out with a warning (see `FeatureSpace`).
    gamma
        Kernel width for scaled values; a larger gamma is more local. None uses the inverse of the running mean of the
        squared norm of events, like gamma="scale" in scikit-learn.
    loss
        `"hinge"` suits separable classes, `"log"` noisy or overlapping ones.
    learning_rate
        Constant step size, with which the model follows drift. None uses the decreasing steps 1 / (l2 t) of Pegasos,
        with t at most 100,000.
    l2
        Regularisation strength. For two classes and n events, C of a support vector machine corresponds to
        l2 = 2 / (C n).
    metric
        `"learned"` also trains the weight of each column in the distance, with the same loss. Irrelevant columns lose
        weight, and gamma matters less. Events that change the model take up to twice the time. `"fixed"` weights
        columns equally.
    merges
        Number of support vectors merged into one when the budget is exceeded, 2 to 11. Larger values take less time but
        reduce accuracy.
    absorb
        Kernel value between 0 and 1. An event whose kernel value with the nearest support vector is above it changes
        the coefficients of that vector instead of becoming one. 1 disables this.
    scaling
        `"standard"` subtracts the running mean and divides by the running standard deviation. `"decayed"` uses
        exponentially decayed statistics with half-life `scaling_window`. `"rank"` uses the rank among the last
        `scaling_window` values, which is robust to outliers. `"none"` keeps values. A column whose name is
        absent in most events is not centred, so that absent means 0; None and NaN do not count as absent.
    scaling_window
        Number of values, see `scaling`.
    max_features
        Maximum number of columns (numeric features and categories). Further columns are ignored and counted.
    max_classes
        Maximum number of classes. Events of further classes are refused.

    Attributes
    ----------
    classes_ : list
        Labels in order of first appearance.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics
    >>> from streamsvm import BSGDClassifier

    >>> model = BSGDClassifier()
    >>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    Accuracy: 90.55%

    Notes
    -----
    The model has at most `budget` support vectors v_b, shared by all classes. The score of class c is
    f_c(x) = sum_b A_cb k(x, v_b) with the Gaussian kernel k(x, v) = exp(-gamma |x - v|^2). The predicted class has the
    largest score. The coefficients A minimise

        l2 / 2 |f|^2 + mean [1 - f_y(x) + max_{c != y} f_c(x)]+   (loss "hinge", Crammer and Singer's)
        l2 / 2 |f|^2 - mean log softmax(f(x))_y                   (loss "log")

    by stochastic gradient descent. An event that violates its margin becomes a support vector, unless its kernel value
    with the nearest one is above `absorb`: then it changes the coefficients of that vector. When the budget is
    exceeded, `merges` support vectors whose coefficients have the same direction are merged such that f changes least.
    If there are none, the vector with the smallest coefficients is removed. An event with n features costs O((n +
    n_classes) * budget).

    Support vectors are stored scaled, in single precision. Two classes share one signed coefficient, so that Crammer
    and Singer's machine at l2 is the binary machine at l2 / 2. The log loss acts only on events whose label has a
    probability below 0.7, because each of these events becomes a support vector.

    Probabilities are the softmax of f for the log loss and of 3 f for the hinge loss, mixed with an estimate of label
    noise. The estimate uses one in four of the first 2,000 events and one in eight of the later events. It never
    changes the predicted class.

    The learned metric updates the columns in which an event is not zero. The weight of a column is 0 until an event
    with a nonzero value has been learned.

    The algorithm of the papers has metric="fixed", absorb=1.0, learning_rate=None and scaling="none"; `merges` is M in
    the papers. The defaults are more accurate.

    References
    ----------
    [^1]: [Wang, Z., Crammer, K., Vucetic, S. (2012). Breaking the Curse of Kernelization: Budgeted Stochastic Gradient
    Descent for Large-Scale SVM Training. JMLR 13](https://jmlr.org/papers/v13/wang12b.html)
    [^2]: [Qaadan, S., Glasmachers, T. (2018). Multi-Merge Budget Maintenance for Stochastic Gradient Descent SVM
    Training](https://arxiv.org/abs/1806.10179)
    [^3]: [Glasmachers, T., Qaadan, S. (2018). Speeding Up Budgeted Stochastic Gradient Descent SVM Training with
    Precomputed Golden Section Search](https://arxiv.org/abs/1806.10180)
    """

    _kernels: ClassVar[ModuleType] = kernels

    def __init__(
        self,
        budget: int = 200,
        *,
        class_weight: dict[Any, float] | str | None = None,
        categories: tuple[Hashable, ...] | None = None,
        gamma: float | None = None,
        loss: str = "hinge",
        learning_rate: float | None = 0.3,
        l2: float = 3e-4,
        metric: str = "learned",
        merges: int = 2,
        absorb: float = 0.9,
        scaling: str = "standard",
        scaling_window: int = 1_000,
        max_features: int = 65_536,
        max_classes: int = 1_000,
    ) -> None:
        self.budget = budget
        self.gamma = gamma
        self.loss = loss
        self.learning_rate = learning_rate
        self.scaling = scaling
        self.scaling_window = scaling_window
        self.class_weight = class_weight
        self.max_features = max_features
        self.max_classes = max_classes
        self.metric = metric
        self.merges = merges
        self.absorb = absorb
        self.l2 = l2
        self.categories = base.check_categories(categories)
        self._check_params()
        self._reset()

    def _check_params(self) -> None:
        check_number("budget", self.budget, 1, 1_000_000, whole=True)
        if self.gamma is not None:
            check_number("gamma", self.gamma, 1e-12, 1e12)
        check_choice("loss", self.loss, tuple(LOSSES))
        check_number("l2", self.l2, 1e-12, 1e6)
        rate = self.learning_rate
        if rate is not None:
            check_number("learning_rate", rate, 1e-9, 1e6)
            if rate * self.l2 >= 1.0:
                raise ParameterError("learning_rate", f"times `l2` must be below 1, got {rate!r} times {self.l2!r}")
        check_choice("metric", self.metric, METRICS)
        check_number("merges", self.merges, 2, expansion.MOST_MERGES, whole=True)
        check_number("absorb", self.absorb, 0.0, 1.0)
        check_choice("scaling", self.scaling, SCALINGS)
        check_number("scaling_window", self.scaling_window, 2, whole=True)
        check_class_weight(self.class_weight, LARGEST)
        check_number("max_features", self.max_features, 1, whole=True)
        check_number("max_classes", self.max_classes, 2, whole=True)

    # Inspection ---------------------------------------------------------------------------------------------------

    @property
    def n_support_vectors(self) -> int:
        """Number of support vectors."""
        return int(self._state.n_vectors)

    @locked
    def nearest(self, x: dict[Any, Any], n: int = 5) -> list[dict[str, Any]]:
        """Return the support vectors most similar to an event.

        Parameters
        ----------
        x
            Features by name.
        n
            Maximum number of support vectors.

        Returns
        -------
        list of dict
            The most similar vector first, each with its `similarity`, `label` and `features`, as in
            `StreamSVMClassifier.nearest`.

        Examples
        --------
        >>> model = BSGDClassifier()
        >>> for i in range(100):
        ...     model.learn_one({"a": float(i % 2)}, "odd" if i % 2 else "even")
        >>> model.nearest({"a": 1.0}, n=1)[0]["label"]
        'odd'
        """
        check_number("n", n, 1, whole=True)
        self._predict(x, PREDICT)
        return nearest_vectors(self._state, self._rows, self._rows, self._space, self.labels.by_code, n, np.ones(1))

    @property
    def relevance(self) -> dict[Any, float]:
        """Relevance of columns in the distance, largest first; 1 if the metric is fixed."""
        return self._by_relevance(self._relevances())

    def _relevances(self) -> Floats:
        """Relevance of each column."""
        n = len(self._space)
        return self._state.relevance[:n] if self.metric == "learned" else np.ones(n)

    @property
    def model(self) -> KernelExpansion:
        """The model as plain arrays with its scaler.

        The estimate of label noise is not included.
        """
        state = self._state
        d, c, n = len(self._space), int(state.n_classes), self.n_support_vectors
        coefs = state.heads[0].scale * class_coefs(state)[0]
        biases = state.split("biases")[0, :c].copy()
        if c == 2:
            coefs[0], biases[0] = -coefs[1], -biases[1]
        return KernelExpansion(
            self.classes_[:c],
            state.vectors[:d, :n].T.astype(float),
            coefs,
            biases,
            float(state.gamma_now),
            # Columns without a learned value other than zero do not contribute to distances.
            self._relevances() * (np.arange(d) < state.n_known),
            scaler_of(self._rows, self._space),
        )

    @locked
    def adopt(self, model: KernelExpansion) -> None:
        """Replace the model by a kernel expansion and its scaling.

        Two classes keep half the difference of their coefficients, which does not change predictions. Pegasos' steps
        continue at their smallest size. If `gamma` is None, its estimate starts from the gamma of the model.

        An expansion of unscaled numbers, such as that of a batch solver, keeps its gamma and is mapped into the running
        scaling of this learner. The mapping uses the statistics of this learner if it has learned events with all
        columns of the model. Otherwise it uses the statistics of the support vectors. Predictions stay equal for rows
        without missing values and outliers. With `scaling="none"`, the columns of the model must be of similar scale.

        Parameters
        ----------
        model
            Support vectors and their coefficients, such as `SampledCuts(...).model_` or the `model` of another learner.

        Raises
        ------
        TypeError
            If the model is not a `KernelExpansion`.
        ValueError
            For more support vectors than the budget, too many columns, another gamma or metric than that of this
            learner, or incompatible scaling.
        """
        check_model(model, KernelExpansion, "the `model` of a BSGDClassifier or `model_` of SampledCuts")
        keeps_gamma = model.scaler.is_identity
        model = self._adoptable(model)
        self._start_with(model.scaler, model.classes)
        state, d = self._state, len(model.relevance)
        vectors.ENTRY_POINTS["open_classes"](state, len(model.classes))
        state.gamma_now = model.gamma
        state.gamma = model.gamma if keeps_gamma else self.gamma or 0.0
        state.sum_of_squares = self.gamma_factor * self._rows.seen / model.gamma
        if self.metric == "learned":
            state.relevance[:d] = model.relevance
            state.theta[:d] = np.log(np.maximum(model.relevance, 1e-300)).clip(
                expansion.LEAST_THETA, expansion.MOST_THETA
            )
        state.n_known = _n_known(model)
        self._take_vectors(model.vectors, model.coefs, model.biases)

    def _adoptable(self, model: KernelExpansion) -> KernelExpansion:
        """Return a model in the scaling of this learner; refuse one that does not fit."""
        n = len(model.vectors)
        if n > self.budget:
            raise ParameterError("budget", f"is {self.budget}, the model has {n} support vectors")
        if self.gamma is not None and not np.isclose(self.gamma, model.gamma, rtol=1e-6):
            raise ParameterError("gamma", f"is {self.gamma}, but the model has {model.gamma}")
        if model.scaler.is_identity and model.scaler.mean is None and n > 1 and self.scaling != "none":
            mean, spread = model.vectors.mean(axis=0), model.vectors.std(axis=0)
            model = replace(model, scaler=replace(model.scaler, mean=mean, spread=spread))
        scaler = scaler_for(model.scaler, self._rows, self._space)
        if scaler is not model.scaler:
            model = self._mapped(model, scaler)
        self._check_adopted(scaler, model.classes)
        if math.isinf(scaler.limit) and _farthest(model) > FARTHEST:
            raise ParameterError(
                "scaling",
                "is 'none', but the model's support vectors lie too far from 0 for single precision: centre the "
                "columns before it is fitted, or use 'standard'",
            )
        if self.scaling == "none" and self.metric == "learned" and not _within_metric(model):
            raise ParameterError(
                "scaling", "is 'none', but the columns of the model differ too much in scale: use 'standard'"
            )
        if self.metric == "fixed" and not (model.relevance[: _n_known(model)] == 1.0).all():
            raise ParameterError(
                "metric", "is 'fixed', but the metric of the model is learned, or its columns differ in scale"
            )
        if model.relevance.max(initial=0.0) > math.exp(expansion.MOST_THETA) * 1.001:
            raise ParameterError("gamma", "is too small for the relevances of the model: use None")
        return model

    def _mapped(self, model: KernelExpansion, scaler: Scaler) -> KernelExpansion:
        """Map a model of unscaled rows into a scaling.

        If `gamma` is None, the common factor of the relevances becomes part of the model's gamma.
        """
        model = model.scaled_by(scaler)
        positive = model.relevance > 0.0
        if self.gamma is not None or not positive.any():
            return model
        logs = np.log(model.relevance[positive])
        shared = math.exp(max(float(logs.mean()), float(logs.max()) - expansion.MOST_THETA))
        relevance = model.relevance / shared
        if np.ptp(logs) < 1e-9:
            relevance[positive] = 1.0
        return replace(model, gamma=model.gamma * shared, relevance=relevance)


def _n_known(model: KernelExpansion) -> int:
    """Return the number of leading columns up to the last relevant one."""
    return int(np.flatnonzero(model.relevance).max(initial=-1)) + 1


def _within_metric(model: KernelExpansion) -> bool:
    """Return whether the learned metric can represent the relevances other than 0."""
    logs = np.log(model.relevance[model.relevance > 0.0])
    return bool(((logs >= expansion.LEAST_THETA) & (logs <= expansion.MOST_THETA + 1e-3)).all())


def _farthest(model: KernelExpansion) -> float:
    """Return the largest squared norm of support vectors in the metric of the kernel."""
    return float(model.gamma * (model.relevance * model.vectors**2).sum(axis=1).max(initial=0.0))
