"""The budgeted kernel machine as an online learner."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from streamsvm.budgeted import expansion, kernels
from streamsvm.budgeted import vectors as support
from streamsvm.budgeted.memory import LOSSES, SEARCHES, BudgetedMemory
from streamsvm.budgeted.support import class_coefs, mark_touched, nearest_vectors, put_sparse_coefs
from streamsvm.features.rows import Floats
from streamsvm.features.scaler import LARGEST, PREDICT, ROOM
from streamsvm.locks import locked
from streamsvm.models import KernelExpansion, Scaler
from streamsvm.online import base
from streamsvm.online.scaling import SCALINGS, without_units
from streamsvm.parameters import check_choice, check_class_weight, check_number

METRICS = ("fixed", "learned")
# Kernel values are within .01 where gamma times square norms in single precision are no more than this.
FARTHEST = 1e5


class BSGDClassifier(BudgetedMemory):
    """Budgeted kernel machine: a Gaussian-kernel classifier of at most `budget` support vectors, learned by the event.

    Each class has a score f_c(x) = sum_b A_cb k(x, v_b), k(x, v) = exp(-gamma |x - v|^2), over support vectors v that
    all classes share; the largest wins. The coefficients A minimise

        l2 / 2 |f|^2 + mean [1 - f_y(x) + max_{c != y} f_c(x)]+        (loss "hinge", Crammer and Singer's)
        l2 / 2 |f|^2 - mean log softmax(f(x))_y                        (loss "log")

    by stochastic gradient descent: an event that violates its margin becomes a support vector. When there are more than
    the budget allows, `merges` of them are merged into one, so that f changes least. An event of n present features
    costs O((n + n_classes) * budget).

    Numbers are scaled as they run, strings are one-hot, new names and classes may come at any time, missing values
    (None, NaN, or an absent name) contribute nothing. Infinite values are refused. Nothing is drawn at random.

    Thread-safe: any number of threads may predict with one model, single events or rows, while others learn; each call
    gives what it would give by itself.

    Parameters
    ----------
    budget
        The most support vectors. More follow finer boundaries and remember longer, at proportional cost.
    gamma
        Of the kernel, for scaled values: larger is more local. None: `gamma_factor` / the mean square norm of the
        events so far, which is scikit-learn's gamma="scale" as it runs.
    loss
        `"hinge"`, for classes that can be told apart, or `"log"`, for noisy or overlapping ones.
    learning_rate
        A constant step, for streams that drift; None for Pegasos' steps 1 / (l2 t).
    heads
        Several (loss, learning_rate) pairs instead of one: each has coefficients of its own over the shared support
        vectors, at little cost, and they vote by their recent accuracies.
    scaling
        `"standard"`: numbers are centred and divided by their standard deviation so far; `"decayed"`: the same over
        the last values, with half-life `scaling_window`; `"rank"`: by the rank among the last `scaling_window` values,
        immune to outliers; `"none"`. A column absent in most events is not centred, so that absent means zero.
    scaling_window
        See `scaling`.
    class_weight
        A weight of its events' steps for each label, `"balanced"` for weights inverse to how often a class came, or
        None. That is for those who look at the class alone: probabilities are no longer any then. Where they count,
        leave it, and decide by what a mistake costs, as `DecidingClassifier` does.
    max_features
        The most columns (names of numbers, and strings under a name); those that come later are ignored and counted.
    categories
        Features whose strings are taken in however many are new. Others, such as identifiers and timestamps, are left
        out with a warning (see `FeatureSpace`).
    max_classes
        The most classes; events of further ones are refused, since each class takes memory by the column.
    metric
        `"fixed"`, or `"learned"`: each column's part in the distance is learned by the same loss, so that gamma hardly
        matters and irrelevant columns fade. Costs up to twice as much on events that change the model.
    average
        Predict with coefficients averaged over about so many events, 0 for the latest ones. Steadier, slower to follow.
    l2
        Strength of the penalty. For two classes, the C of a support vector machine on n events is l2 = 2 / (C n).
    horizon
        With Pegasos' steps, t counts no further than this, so that a long stream is still followed.
    gamma_factor
        See `gamma`.
    bias
        Whether f_c has a constant, that takes the same steps and is not shrunk.
    metric_rate
        The step of the learned metric.
    absorb
        An event whose kernel value with the nearest support vector is larger than this changes that one's coefficients
        instead of joining; 1 for never.
    merges
        How many support vectors are merged into one, one after another, 2 to 11. More are cheaper, and lose more. Only
        those whose coefficients point the same way are merged; where the smallest has none such, it is removed.
    search
        How the point on the line between two support vectors is found: `"table"`, precomputed, or `"golden"`, exact and
        slower.

    Attributes
    ----------
    classes_ : list
        The labels, in order of first arrival.

    Examples
    --------

    >>> from river import datasets, evaluate, metrics
    >>> from streamsvm import BSGDClassifier

    >>> model = BSGDClassifier()
    >>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    Accuracy: 90.55%

    Notes
    -----
    Support vectors are kept scaled, in single precision. Two classes keep one signed coefficient; Crammer and Singer's
    machine at l2 is then the binary one at l2 / 2. The log loss acts only on events whose label has less than 0.7 of
    the probability, because every event it acts on becomes a support vector. Probabilities are the softmax of f for the
    log loss, and of 3 f for the hinge, and allow for labels that are noisy: how far is learned as they run, from one
    event in four of the first 2,000 and one in eight after them, and changes no prediction.

    The learned metric follows the columns an event has a value other than zero in. A column that never had one in an
    event learned before weighs nothing yet.

    The paper's machine is metric="fixed", absorb=1.0, learning_rate=None, scaling="none" with its M as `merges`; with
    more than two merged at once, average coefficients together with a bias. The defaults are good single choices over
    fourteen streams; heads=(("hinge", 0.1), ("hinge", 0.3), ("hinge", 1.0), ("log", 0.05), ("log", 0.2)) gains another
    point on average, most with many or noisy classes, for two to three times the time.

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
        gamma: float | None = None,
        loss: str = "hinge",
        learning_rate: float | None = 0.3,
        heads: tuple[tuple[str, float | None], ...] | None = None,
        scaling: str = "standard",
        scaling_window: int = 1_000,
        class_weight: dict[Any, float] | str | None = None,
        max_features: int = 65_536,
        categories: tuple[Hashable, ...] | None = None,
        max_classes: int = 1_000,
        *,
        metric: str = "learned",
        average: int = 0,
        l2: float = 3e-4,
        horizon: int = 100_000,
        gamma_factor: float = 1.0,
        bias: bool = False,
        metric_rate: float = 0.05,
        absorb: float = 0.9,
        merges: int = 2,
        search: str = "table",
    ) -> None:
        self.budget = budget
        self.gamma = gamma
        self.loss = loss
        self.learning_rate = learning_rate
        self.heads = heads
        self.scaling = scaling
        self.scaling_window = scaling_window
        self.class_weight = class_weight
        self.max_features = max_features
        self.max_classes = max_classes
        self.metric = metric
        self.average = average
        self.l2 = l2
        self.horizon = horizon
        self.gamma_factor = gamma_factor
        self.bias = bias
        self.metric_rate = metric_rate
        self.absorb = absorb
        self.merges = merges
        self.search = search
        self.categories = base.check_categories(categories)
        self._check_params()
        self._reset()

    def _check_params(self) -> None:
        check_number("budget", self.budget, 1, 1_000_000, whole=True)
        if self.gamma is not None:
            check_number("gamma", self.gamma, 1e-12, 1e12)
        check_number("gamma_factor", self.gamma_factor, 1e-12, 1e12)
        _check_head("", self.loss, self.learning_rate)
        check_number("l2", self.l2, 1e-12, 1e6)
        check_number("horizon", self.horizon, 2)
        if self.heads is not None:
            _check_heads(self.heads)
        for rate in (self.learning_rate, *(rate for _, rate in self.heads or ())):
            if rate is not None and rate * self.l2 >= 1.0:
                raise ValueError(f"`learning_rate` times `l2` must be below 1, got {rate!r} times {self.l2!r}")
        check_number("average", self.average, 0)
        if not isinstance(self.bias, bool):
            raise TypeError(f"`bias` must be a bool, got {self.bias!r}")
        check_choice("metric", self.metric, METRICS)
        check_number("metric_rate", self.metric_rate, 1e-6, 1.0)
        check_number("absorb", self.absorb, 0.0, 1.0)
        check_number("merges", self.merges, 2, expansion.MOST_MERGES, whole=True)
        check_choice("search", self.search, tuple(SEARCHES))
        check_choice("scaling", self.scaling, SCALINGS)
        check_number("scaling_window", self.scaling_window, 2, whole=True)
        check_class_weight(self.class_weight, LARGEST)
        check_number("max_features", self.max_features, 1, whole=True)
        check_number("max_classes", self.max_classes, 2, whole=True)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"budget": 20, "metric": "fixed", "absorb": 1.0, "merges": 3}
        yield {"budget": 20, "absorb": 0.95, "loss": "log", "learning_rate": 0.1}
        yield {"budget": 10, "average": 100, "scaling": "rank", "class_weight": "balanced", "bias": True}
        yield {"budget": 15, "heads": (("hinge", 0.1), ("hinge", 1.0), ("log", 0.1)), "average": 10}
        yield {"budget": 10, "learning_rate": None, "merges": 5, "scaling": "decayed"}
        yield {"budget": 10, "gamma": 0.1, "absorb": 1.0}

    # Memory ------------------------------------------------------------------------------------------------------

    # What it knows -----------------------------------------------------------------------------------------------

    @property
    def n_support_vectors(self) -> int:
        """How many support vectors there are."""
        return int(self._state.n_vectors)

    @locked
    def nearest(self, x: dict[Hashable, Any], n: int = 5) -> list[dict[str, Any]]:
        """The support vectors most like an event: what its prediction rests on, as `StreamSVMClassifier.nearest`.

        Parameters
        ----------
        x
            Features by name.
        n
            How many at most.

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
        weights = np.zeros(len(self._state.heads))
        weights[self._state.heads.weight.argmax()] = 1.0
        return nearest_vectors(self._state, self._rows, self._rows, self._space, self.labels.answers, n, weights)

    @property
    def relevance(self) -> dict[Any, float]:
        """The part of each column in the distance, by name; 1 for all where the metric is fixed."""
        values = zip(self._space.names, self._relevances().tolist(), strict=True)
        return {name: value for j, (name, value) in enumerate(values) if not self._space.is_dead(j)}

    def _relevances(self) -> Floats:
        """The relevance of each column."""
        n = len(self._space)
        return self._state.relevance[:n] if self.metric == "learned" else np.ones(n)

    @property
    def model(self) -> KernelExpansion:
        """What it predicts with, as plain arrays, with the scaling they live in; of several heads, the leading one.

        It is for labels: how far probabilities allow for noisy ones is no part of it.
        """
        model = self._held_model()
        return model.scaled_by(without_units(model.scaler)) if self._has_units(model.scaler) else model

    def _held_model(self) -> KernelExpansion:
        """The same in the units that values are held in."""
        state = self._state
        d, c, n = len(self._space), int(state.n_classes), self.n_support_vectors
        head = int(state.heads.weight.argmax())
        fields = state.heads[head]
        coefs = class_coefs(state, "coefs")[head]
        biases = state.split("mean_biases" if self.average else "biases")[head, :c].copy()
        if self.average:
            coefs = fields.mean_v * coefs + fields.mean_u * class_coefs(state, "averaged")[head]
        else:
            coefs = fields.scale * coefs
        if c == 2:
            coefs[0], biases[0] = -coefs[1], -biases[1]
        return KernelExpansion(
            self.classes_[:c],
            state.vectors[:d, :n].T.astype(float),
            coefs,
            biases,
            float(state.gamma_now),
            # A column in which no value other than zero was learned has no part in the distance yet.
            self._relevances() * (np.arange(d) < state.n_known),
            self._scaler(),
        )

    @locked
    def adopt(self, model: KernelExpansion) -> None:
        """Forget all, and go on from another expansion with its scaling; every head takes it over.

        Two classes keep half the difference of their coefficients, which leaves the decision as it is. With Pegasos'
        steps, these go on as after a long stream. Where gamma follows the data, it starts from the model's.

        An expansion for numbers as they are, as batch solvers have them, keeps its gamma, and is mapped into this
        learner's running scaling: by its own statistics where it has learned events with all the model's columns, else
        by those of the support vectors. It says the same of any row where no value is missing or cut off as an outlier.
        With `scaling="none"`, relevances beyond the range of the learned metric become units of the columns, which say
        the same of every row.

        Parameters
        ----------
        model
            Support vectors and their coefficients, as `SampledCuts(...).model_` or another learner's `model`.

        Raises
        ------
        ValueError
            Where there are more support vectors than the budget, too many columns, another gamma or metric
            than this learner's, or the ways of scaling do not go together.
        """
        n, d = model.vectors.shape
        c = len(model.classes)
        if n > self.budget:
            raise ValueError(f"the model has {n} support vectors, the budget is {self.budget}")
        if self.gamma is not None and not np.isclose(self.gamma, model.gamma, rtol=1e-6):
            raise ValueError(f"the model's gamma is {model.gamma}, this learner's {self.gamma}")
        held = model.scaler.is_identity
        if held and model.scaler.mean is None and n > 1:
            mean, spread = model.vectors.mean(axis=0), model.vectors.std(axis=0)
            model = replace(model, scaler=replace(model.scaler, mean=mean, spread=spread))
        scaler = self._scaler_for(model.scaler, self._units(model))
        if scaler is not model.scaler:
            model = self._mapped(model, scaler)
        self._check_adopted(scaler, model.classes)
        if math.isinf(scaler.limit) and _farthest(model) > FARTHEST:
            raise ValueError(
                "the model's support vectors lie too far from 0 for single precision, beside the width of its kernel: "
                'centre the columns before it is fitted, or take `scaling="standard"`'
            )
        known = int(np.flatnonzero(model.relevance).max(initial=-1)) + 1
        if self.metric == "fixed" and not (model.relevance[:known] == 1.0).all():
            raise ValueError(
                "the model's metric is a learned one, or its columns differ in scale; this learner's is fixed (see "
                "`metric`)"
            )
        if model.relevance.max(initial=0.0) > math.exp(expansion.MOST_THETA) * 1.001:
            raise ValueError("the model's relevances are too large beside this learner's gamma: take `gamma=None`")
        self._reset()
        self._room = ROOM
        self._move()
        self._adopt_scaler(model.scaler)
        for label in model.classes:
            self._code(label)
        self._grow()
        state = self._state
        kernels.open_classes(state, c)
        state.classes.learned[:c] = self.n_events_learned / c
        state.gamma_now = model.gamma
        state.gamma = model.gamma if held else self.gamma or 0.0
        state.sum_of_squares = self.gamma_factor * self._rows.seen / model.gamma
        if self.metric == "learned":
            state.relevance[:d] = model.relevance
            state.theta[:d] = np.log(np.maximum(model.relevance, 1e-300)).clip(
                expansion.LEAST_THETA, expansion.MOST_THETA
            )
        state.n_known = known
        self._take_vectors(model.vectors, model.coefs, model.biases)

    def _take_vectors(self, vectors: Floats, coefs: Floats, biases: Floats) -> None:
        """Put other support vectors in the place of all, for every head, at the step of a long stream."""
        state, (n, d), c = self._state, vectors.shape, len(biases)
        if c == 2:
            coefs, biases = coefs - coefs.mean(axis=0), biases - biases.mean()
        state.vectors[:], state.coefs[:], state.averaged[:] = 0.0, 0.0, 0.0
        state.vectors[:d, :n] = vectors.T
        put_sparse_coefs(state, coefs)
        state.split("biases")[:, :c] = state.split("mean_biases")[:, :c] = biases
        heads = state.heads
        heads.scale[:], heads.mean_v[:], heads.mean_u[:], heads.steps[:] = 1.0, 0.0, 1.0, self.horizon
        state.n_vectors, state.n_relearned = n, 0
        mark_touched(state)
        support.measure_all(state)
        for b in range(n):
            state.norms[b] = support.vector_norm(state, b)

    def _units(self, model: KernelExpansion) -> Floats | None:
        """Units in which all columns of a model have the same relevance, where the metric cannot hold their own."""
        positive = model.relevance > 0.0
        logs = np.log(model.relevance[positive])
        if self.metric == "fixed" or not ((logs < expansion.LEAST_THETA) | (logs > expansion.MOST_THETA)).any():
            return None
        shared = 0.0 if self.gamma is not None else float(logs.mean())
        units = np.full(len(positive), math.exp((float(logs.min()) - shared) / 2.0))
        units[positive] = np.exp((logs - shared) / 2.0)
        return np.where(model.scaler.is_indicator, 1.0, units)

    def _mapped(self, model: KernelExpansion, scaler: Scaler) -> KernelExpansion:
        """A model for rows as they are, mapped into a scaling; gamma takes what all relevances share, if it may."""
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


def _farthest(model: KernelExpansion) -> float:
    """The largest square norm of support vectors as the kernel measures it."""
    return float(model.gamma * (model.relevance * model.vectors**2).sum(axis=1).max(initial=0.0))


def _check_head(place: str, loss: Any, rate: Any) -> None:
    check_choice(f"{place}loss", loss, tuple(LOSSES))
    if rate is not None:
        check_number(f"{place}learning_rate", rate, 1e-9, 1e6)


def _check_heads(heads: Any) -> None:
    if not isinstance(heads, tuple) or not heads or not all(isinstance(h, tuple) and len(h) == 2 for h in heads):
        raise TypeError(f"`heads` must be a tuple of (loss, learning_rate) pairs or None, got {heads!r}")
    for i, (loss, rate) in enumerate(heads):
        _check_head(f"heads[{i}].", loss, rate)
