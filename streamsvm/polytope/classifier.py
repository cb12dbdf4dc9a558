"""The convex polytope machine as an online learner."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from types import ModuleType
from typing import Any, ClassVar, Self

import numpy as np

from streamsvm.adjusting import Setting
from streamsvm.core.state import State
from streamsvm.features import scaler as scaling
from streamsvm.features.frames import weights_of
from streamsvm.features.rows import Floats, Ints
from streamsvm.features.scaler import LARGEST
from streamsvm.features.space import FeatureSpace
from streamsvm.features.statistics import observe_rows
from streamsvm.features.transform import load_all
from streamsvm.labels import is_label, labels_of
from streamsvm.locks import locked
from streamsvm.models import Polytopes
from streamsvm.online import base, calibration
from streamsvm.online.archive import check_bounds
from streamsvm.online.scaling import SCALINGS, even_units, new_rows, without_units
from streamsvm.parameters import check_choice, check_class_weight, check_number
from streamsvm.polytope import kernels

# Where values are not scaled, a step on an adopted model adds no more to a score, whose margin is 1: steps are measured
# for scaled values, and one on a row of large ones would leave nothing of the model.
REACH = 0.1


class CPMClassifier(base.OnlineClassifier):
    """Convex polytope machine: a maximum of several linear scores for every class, learned one event at a time.

    Each class has a polytope of `n_faces` hyperplanes, trained against all other classes; the class with the largest
    f_c(x) = max_k W_ck . x wins (for two classes this is the double-sided machine of the paper). A polytope minimises

        l2 / 2 ||W||^2 + mean over its class of [1 - max_k W_k . x]+ + mean over the others of sum_k [1 + W_k . x]+

    by stochastic gradient descent. One face is a linear support vector machine; more give piecewise linear boundaries.
    An event of n present features costs O(n * n_faces * n_classes).

    Numbers are scaled as they run, strings are one-hot, new names and classes may come at any time, missing values
    (None, NaN, or an absent name) contribute nothing. Infinite values are refused.

    Thread-safe: any number of threads may predict with one model, single events or rows, while others learn; each call
    gives what it would give by itself.

    Parameters
    ----------
    n_faces
        Hyperplanes of a class. More can follow finer boundaries, at proportional cost.
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
    average
        Predict with weights averaged over about so many events, 0 for the latest weights. Steadier, slower to follow
        a drift, and half as fast.
    l2
        Strength of the penalty; steps are 1 / (l2 * t). Larger is smoother and steadier.
    horizon
        Steps count no further than this, so that a long stream is still followed: the step settles at
        1 / (l2 * horizon), and what was learned decays over `horizon` events.
    entropy
        The least entropy of the faces' shares of their class, as a part of its maximum, 0 to below 1: below it, events
        go to faces that have few. 0 leaves all to the best face.
    memory
        Over how many events of a class the shares are counted; older ones fade.

    Attributes
    ----------
    classes_ : list
        The labels, in order of first arrival.

    Examples
    --------

    >>> from river import datasets, evaluate, metrics
    >>> from streamsvm import CPMClassifier

    >>> model = CPMClassifier()
    >>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    Accuracy: 87.19%

    Rows at once, of which the last two are only predicted:

    >>> import numpy as np
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0]] * 10 + [[0.1, 0.9], [0.9, 0.2]])
    >>> predicted = CPMClassifier().test_then_train(X, ["left", "right"] * 10 + [None, None])
    >>> predicted[-2:].tolist()
    ['left', 'right']

    Notes
    -----
    Probabilities are the softmax of so many f_c as make the log loss of late the least: the inverse temperature is
    learned as they run, from one event in four of the first 2,000 and one in eight after them, and changes no
    prediction. The published algorithm is for two classes and an endless pass over a data set, which `fit` follows;
    there a row drawn again gives up its earlier count before entropies are compared (compared with it still in place,
    as Algorithm 2 is printed, the fits tried were worse). On a stream, where no event comes twice, the counts decay
    instead, and the count of steps is capped.

    References
    ----------
    [^1]: [Kantchelian, A., Tschantz, M. C., Huang, L., Bartlett, P. L., Joseph, A. D., Tygar, J. D. (2014).
    Large-Margin Convex Polytope Machine. NIPS 27](https://papers.nips.cc/paper/5511-large-margin-convex-polytope-machine)
    """

    _kernels: ClassVar[ModuleType] = kernels

    l2, horizon = Setting(), Setting()

    def __init__(
        self,
        n_faces: int = 4,
        scaling: str = "standard",
        scaling_window: int = 1_000,
        class_weight: dict[Any, float] | str | None = None,
        max_features: int = 65_536,
        categories: tuple[Hashable, ...] | None = None,
        max_classes: int = 1_000,
        *,
        average: int = 0,
        l2: float = 0.01,
        horizon: int = 3_000,
        entropy: float = 0.5,
        memory: int = 1_000,
    ) -> None:
        check_number("n_faces", n_faces, 1, 10_000, whole=True)
        check_number("l2", l2, 1e-12, 1e6)
        check_number("horizon", horizon, 2)
        check_number("entropy", entropy, 0.0, 0.999)
        check_number("memory", memory, 1)
        check_number("average", average, 0, whole=True)
        check_choice("scaling", scaling, SCALINGS)
        check_number("scaling_window", scaling_window, 2, whole=True)
        check_number("max_features", max_features, 1, whole=True)
        check_number("max_classes", max_classes, 2, whole=True)
        check_class_weight(class_weight, LARGEST)
        self.n_faces = n_faces
        self.l2 = l2
        self.horizon = horizon
        self.entropy = entropy
        self.memory = memory
        self.average = average
        self.scaling = scaling
        self.scaling_window = scaling_window
        self.class_weight = class_weight
        self.max_features = max_features
        self.max_classes = max_classes
        self.categories = base.check_categories(categories)
        self._reset()

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"n_faces": 1, "scaling": "none"}
        yield {"n_faces": 10, "average": 100, "scaling": "rank", "class_weight": "balanced"}
        yield {"entropy": 0.0, "scaling": "decayed", "horizon": 200}

    def _new_state(
        self, n_columns: int, n_classes: int, rows: State | None = None, *, room: int = scaling.ROOM
    ) -> State:
        """As for every learner; rows that another has scaled come in `rows`."""
        own = new_rows(n_columns, self.scaling, self.scaling_window) if rows is None else rows
        sizes = {
            "weight_rows": n_columns + 1,
            "averaged_rows": n_columns + 1 if self.average else 0,
            "classes": n_classes,
            "faces": self.n_faces,
        }
        state = State(kernels.CPM, sizes, parts={"rows": own, "calibration": calibration.of_sampled(n_classes)})
        state.n_faces = self.n_faces
        state.l2 = self.l2
        state.horizon = self.horizon
        state.entropy = self.entropy * math.log(self.n_faces)
        state.count_growth = 1.0 / (1.0 - 1.0 / self.memory) if self.memory > 1 else 1e6
        state.average = self.average
        state.balanced = self.class_weight == "balanced"
        return state

    def _check_restored(self, state: State) -> None:
        begun = state.classes.view(np.ndarray)[: int(state.n_classes)]  # without the slower access by attributes
        check_bounds("class fields", begun["scale"], kernels.SMALLEST, 1.0)
        check_bounds("class fields", begun["mean_u"], kernels.SMALLEST, 1.0)
        check_bounds("class fields", begun["next_count"], 1e-300, 1e300)
        if not self.average:
            check_bounds("class fields", begun["mean_v"], 0.0, 0.0)

    def _weight_class(self, label: Any, code: int) -> None:
        weights = self.class_weight if isinstance(self.class_weight, dict) else {}
        self._state.classes[code].weight = weights.get(label, 1.0)

    # Several passes ----------------------------------------------------------------------------------------------

    @locked
    def fit(self, X: Any, y: Any, *, n_steps: int | None = None, w: Any = None, seed: int = 0) -> Self:
        """Forget all, and learn a data set by steps on rows drawn at random, as the paper trains (Algorithm 1).

        Rows are scaled with the statistics of the whole set. A row drawn again moves its earlier count in the entropy
        of the faces (the paper's dictionary UNADJ).

        Parameters
        ----------
        X, y, w
            Rows, labels and weights, as for `learn_many`.
        n_steps
            How many rows to draw, with repetition; by default ten for each row.
        seed
            Of the draws.
        """
        labels = labels_of(y)
        weights = np.ones(len(labels)) if w is None else weights_of(w, len(labels))
        if not labels or not all(map(is_label, set(labels))):
            raise ValueError("there must be at least one row, and no label may be None or NaN")
        if len(set(labels)) > self.max_classes:
            raise ValueError(f"there are {len(set(labels))} classes, `max_classes` allows {self.max_classes}: raise it")
        space = FeatureSpace(self.max_features, self.categories or ())
        rows = space.encode(X, np.ones(len(labels), bool))
        self._reset()  # all is checked: what was learned is given up
        self._space = space
        codes = np.array([self._code(label) for label in labels], np.int64)
        self._grow()
        n = len(labels)
        entries = rows.values, rows.columns, rows.indptr, rows.shared
        observe_rows(self._rows, *entries)
        kernels.open_classes(self._state, len(self.labels.codes))
        pairs = np.zeros(len(rows.values) + n, np.int64), np.zeros(len(rows.values) + n), np.zeros(n + 1, np.int64)
        load_all(self._rows, *entries, *pairs)
        rng = np.array([seed], np.uint64)
        steps = 10 * n if n_steps is None else n_steps
        kernels.fit_rows(self._state, *pairs, codes, weights, np.full(n, -1), rng, steps)
        return self

    # What it knows -----------------------------------------------------------------------------------------------

    def _own_temperature(self) -> float:
        """How many f the probabilities are the softmax of, where no label is noise."""
        noise = self._state.calibration
        return float(self._state.inverse_temperature) * (float(noise.sharpness) if self.noise else 1.0)

    # Plain arrays ------------------------------------------------------------------------------------------------

    @property
    def model(self) -> Polytopes:
        """The polytopes it predicts with, as plain arrays, with the scaling they live in (units are folded in)."""
        model = self._held_model()
        return model.scaled_by(without_units(model.scaler)) if self._has_units(model.scaler) else model

    def _held_model(self) -> Polytopes:
        """The same in units."""
        n, c = len(self._space), int(self._state.n_classes)
        classes = self._state.classes[:c, None]
        weights = self._state.split("weights")[: n + 1, :c]
        if self.average:
            weights = weights * classes.mean_v + self._state.split("averaged")[: n + 1, :c] * classes.mean_u
        else:
            weights = weights * classes.scale
        faces = np.ascontiguousarray(weights.transpose(1, 2, 0))
        beta, noise = self._own_temperature(), self.noise
        own = self.classes_[:c], faces[:, :, 1:].copy(), faces[:, :, 0].copy(), self._scaler()
        return Polytopes(*own, inverse_temperature=beta, noise=noise)

    @locked
    def adopt(self, model: Polytopes) -> None:
        """Forget all, and go on from other polytopes with their scaling, at the step of a long stream.

        Polytopes for numbers as they are, as batch solvers have them, are mapped into this learner's running scaling:
        by its own statistics where it has learned events with all their columns, else by those of the rows they were
        fitted on. They say the same of any row where no value is missing or cut off as an outlier. With
        `scaling="none"` they are kept in units of the columns of those rows, which say the same of every row, and a
        step adds no more than a tenth of the margin to any score.

        Parameters
        ----------
        model
            Faces by class, as `SmoothedNewton(...).model_.polytopes()` or another learner's `model`.

        Raises
        ------
        ValueError
            Where the number of faces differs, there are too many columns, or the ways of scaling do not go together.
        """
        n_classes, n_faces, _ = model.faces.shape
        if n_faces != self.n_faces:
            raise ValueError(f"the model has {n_faces} faces a class, this learner {self.n_faces}")
        scaler = self._scaler_for(model.scaler, even_units(model.scaler))
        model = model if scaler is model.scaler else model.scaled_by(scaler)
        self._check_adopted(scaler, model.classes)
        self._reset()
        self._adopt_scaler(model.scaler)
        for label in model.classes:
            self._code(label)
        self._grow()
        kernels.open_classes(self._state, n_classes)
        beta = min(max(model.inverse_temperature, kernels.LEAST_INVERSE_TEMPERATURE), kernels.MOST_INVERSE_TEMPERATURE)
        self._state.inverse_temperature = beta
        calibration.begin_with(self._state.calibration, model.noise, model.inverse_temperature / beta)
        self._state.classes.learned[:n_classes] = self.n_events_learned / n_classes
        self._take_faces(np.arange(n_classes), model.faces, model.biases)

    def _take_faces(self, codes: Ints, faces: Floats, biases: Floats) -> None:
        """Put other faces, for values as they are held, in the place of some classes', at the step of a long stream."""
        state, d = self._state, faces.shape[2]
        weights = state.split("weights")
        weights[:, codes] = 0.0
        weights[1 : d + 1, codes] = faces.transpose(2, 0, 1)
        weights[0, codes] = biases
        state.reach = REACH if self.scaling == "none" else 0.0
        for c in codes:
            own = state.classes[c]
            own.scale, own.steps = 1.0, self.horizon
            own.mean_v, own.mean_u = 0.0, 1.0
        if self.average:
            state.split("averaged")[:, codes] = weights[:, codes]
