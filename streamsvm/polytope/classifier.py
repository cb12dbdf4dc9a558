"""Online learner: convex polytope machine."""

from __future__ import annotations

import math
from collections.abc import Hashable
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from streamsvm.core.state import State
from streamsvm.features.rows import Floats, Ints
from streamsvm.features.scaler import LARGEST, UNLIMITED
from streamsvm.locks import locked
from streamsvm.models import Polytopes
from streamsvm.mutation import MutableParameter
from streamsvm.online import base, calibration
from streamsvm.online.saving import check_bounds, check_model
from streamsvm.online.scaling import SCALINGS, new_rows, scaler_for, scaler_of
from streamsvm.parameters import ParameterError, check_choice, check_class_weight, check_number
from streamsvm.polytope import kernels


class CPMClassifier(base.OnlineClassifier):
    """Convex polytope machine: a maximum of linear scores per class, learned online.

    One face per class gives a linear support vector machine; more faces give piecewise linear boundaries.

    Numbers are scaled with running statistics and strings are one-hot encoded. New features and classes may appear at
    any time. Missing values (None, NaN, or an absent name) contribute nothing. Infinite values raise an error.

    Thread-safe: any number of threads may predict single events or batches with one model while others learn. Each call
    returns what it would return without other threads.

    Parameters
    ----------
    n_faces
        Number of hyperplanes per class. More hyperplanes fit finer boundaries at proportional cost.
    class_weight
        Weights of the steps by label, `"balanced"` for weights inversely proportional to class frequencies, or None.
        Weights affect the predicted classes, and the probabilities are then not calibrated. For calibrated
        probabilities, use None and wrap the classifier in `DecidingClassifier` with costs.
    categories
        Features whose strings are always categories. By default, features with mostly new strings, such as identifiers
        and timestamps, are left out with a warning (see `FeatureSpace`).
    l2
        Strength of the penalty. The step size is 1 / (l2 * t). Larger values give smoother and steadier models.
    horizon
        Upper bound of the step count t, so that the model still adapts late in a long stream. The step size then stays
        at 1 / (l2 * horizon), and learned weights decay over `horizon` events.
    entropy
        Minimum entropy of the counts of a class's faces, relative to its maximum, from 0 to 0.999. Below it, events are
        assigned to faces with few events. 0 assigns every event to its best face.
    scaling
        Scaling of numbers. `"standard"`: subtract the mean and divide by the standard deviation so far. `"decayed"`:
        like `"standard"`, with exponentially decayed statistics of half-life `scaling_window`. `"rank"`: rank among the
        last `scaling_window` values, which is robust to outliers. `"none"`: no scaling. A column whose name
        is absent in most events is not centred, so that absent means 0; None and NaN do not count as absent.
    scaling_window
        Number of values, see `scaling`.
    max_features
        Maximum number of columns: one per numeric feature and one per string value. Further columns are ignored and
        counted.
    max_classes
        Maximum number of classes. Events of further classes are refused, because each class takes memory for every
        column.

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

    Several rows at once; the last two rows are only predicted:

    >>> import numpy as np
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0]] * 10 + [[0.1, 0.9], [0.9, 0.2]])
    >>> predicted = CPMClassifier().test_then_train(X, ["left", "right"] * 10 + [None, None])
    >>> predicted[-2:].tolist()
    ['left', 'right']

    Notes
    -----
    Each class has a polytope of `n_faces` hyperplanes. The predicted class has the largest f_c(x) = max_k W_ck . x. An
    event with n features takes O(n * n_faces * n_classes) time.

    With two classes, this is the double-sided machine of the paper, learned by stochastic gradient descent. A polytope
    minimises

        l2 / 2 ||W||^2 + mean over its class of [1 - max_k W_k . x]+ + mean over the other of sum_k [1 + W_k . x]+

    With more classes, a polytope against all others cannot bound a class that others surround. Classes are therefore
    compared, as in multi-hyperplane machines [^2]: an event of class c moves its assigned face of c up, and the best
    faces of all classes with f > f_c - 1 down, by a share of the step each.

    Hinge losses have no good minimum where many classes overlap. With 300 overlapping classes in 3 columns, the
    accuracy is 4 %, and 49 % for `StreamSVMClassifier`. More columns help: with 300 classes in 20 columns, it is 52 %.

    Probabilities are the softmax of beta f_c. The inverse temperature beta minimises
    the recent log loss and does not change predictions. It is learned from one in four of the first 2,000 events and
    from one in eight of the later events.

    The published algorithm is for two classes and repeated passes over a data set. A stream repeats no event, so counts
    of faces decay over 1,000 events, and the step count is bounded.

    References
    ----------
    [^1]: [Kantchelian, A., Tschantz, M. C., Huang, L., Bartlett, P. L., Joseph, A. D., Tygar, J. D. (2014).
    Large-Margin Convex Polytope Machine. NIPS
    27](https://papers.nips.cc/paper/5511-large-margin-convex-polytope-machine)
    [^2]: Wang, Z., Djuric, N., Crammer, K., Vucetic, S. (2011). Trading Representability for Scalability: Adaptive
    Multi-Hyperplane Machine for Nonlinear Classification. KDD.
    """

    _kernels: ClassVar[ModuleType] = kernels

    l2, horizon = MutableParameter(), MutableParameter()
    memory = 1_000
    """Number of events over which the faces of a class are counted."""

    def __init__(
        self,
        n_faces: int = 4,
        *,
        class_weight: dict[Any, float] | str | None = None,
        categories: tuple[Hashable, ...] | None = None,
        l2: float = 0.01,
        horizon: int = 3_000,
        entropy: float = 0.5,
        scaling: str = "standard",
        scaling_window: int = 1_000,
        max_features: int = 65_536,
        max_classes: int = 1_000,
    ) -> None:
        check_number("n_faces", n_faces, 1, 10_000, whole=True)
        check_number("l2", l2, 1e-12, 1e6)
        check_number("horizon", horizon, 2)
        check_number("entropy", entropy, 0.0, 0.999)
        check_choice("scaling", scaling, SCALINGS)
        check_number("scaling_window", scaling_window, 2, whole=True)
        check_number("max_features", max_features, 1, whole=True)
        check_number("max_classes", max_classes, 2, whole=True)
        check_class_weight(class_weight, LARGEST)
        self.n_faces = n_faces
        self.l2 = l2
        self.horizon = horizon
        self.entropy = entropy
        self.scaling = scaling
        self.scaling_window = scaling_window
        self.class_weight = class_weight
        self.max_features = max_features
        self.max_classes = max_classes
        self.categories = base.check_categories(categories)
        self._reset()

    def _new_state(self, n_columns: int, n_classes: int, rows: State | None = None, *, room: int = UNLIMITED) -> State:
        """Return an empty state; `rows` is given if an ensemble scales the rows."""
        own = new_rows(n_columns, self.scaling, self.scaling_window) if rows is None else rows
        sizes = {"weight_rows": n_columns + 1, "classes": n_classes, "faces": self.n_faces}
        state = State(kernels.CPM, sizes, parts={"rows": own, "calibration": calibration.of_sampled(n_classes)})
        state.n_faces = self.n_faces
        state.l2 = self.l2
        state.horizon = self.horizon
        state.entropy = self.entropy * math.log(self.n_faces)
        state.count_growth = 1.0 / (1.0 - 1.0 / self.memory) if self.memory > 1 else 1e6
        state.balanced = self.class_weight == "balanced"
        return state

    def _check_restored(self, state: State) -> None:
        begun = state.classes.view(np.ndarray)[: int(state.n_classes)]  # avoids the slow attributes of recarrays
        check_bounds("class fields", begun["scale"], kernels.SMALLEST, 1.0)
        check_bounds("class fields", begun["next_count"], 1e-300, 1e300)

    # Inspection --------------------------------------------------------------------------------------------------

    def _own_temperature(self) -> float:
        """Return the inverse temperature of the probabilities, apart from label noise."""
        noise = self._state.calibration
        return float(self._state.inverse_temperature) * (float(noise.inverse_temperature) if self.noise else 1.0)

    # Plain arrays ------------------------------------------------------------------------------------------------

    @property
    def model(self) -> Polytopes:
        """The current polytopes as plain arrays with their scaler."""
        n, c = len(self._space), int(self._state.n_classes)
        weights = self._state.split("weights")[: n + 1, :c] * self._state.classes[:c, None].scale
        faces = np.ascontiguousarray(weights.transpose(1, 2, 0))
        beta, noise = self._own_temperature(), self.noise
        own = self.classes_[:c], faces[:, :, 1:].copy(), faces[:, :, 0].copy(), scaler_of(self._rows, self._space)
        return Polytopes(*own, inverse_temperature=beta, noise=noise)

    @locked
    def adopt(self, model: Polytopes) -> None:
        """Replace the model by other polytopes, and continue to learn from them.

        Learning continues with the step size for t = `horizon`. Polytopes for unscaled numbers, as batch solvers return
        them, are converted to the running scaling of this learner. The scaling uses the learner's own statistics if it
        has learned events with all columns. Otherwise it uses the statistics of the rows to which the polytopes were
        fitted. Predictions agree for rows without missing values and without clipped outliers.

        With `scaling="none"`, only the `model` of a learner without scaling is adopted. Use another scaling for models
        of batch solvers.

        Parameters
        ----------
        model
            Faces by class, as `SmoothedNewton(...).model_.polytopes()` or another learner's `model`.

        Raises
        ------
        TypeError
            If the model is not a `Polytopes`.
        ValueError
            If the number of faces differs, there are too many columns, or the scalings are incompatible.
        """
        check_model(model, Polytopes, "the `model` of a CPMClassifier or `model_.polytopes()` of a linear solver")
        n_classes, n_faces, _ = model.faces.shape
        if n_faces != self.n_faces:
            raise ParameterError("n_faces", f"is {self.n_faces}, the model has {n_faces}")
        scaler = scaler_for(model.scaler, self._rows, self._space)
        model = model if scaler is model.scaler else model.scaled_by(scaler)
        self._check_adopted(scaler, model.classes)
        self._start_with(scaler, model.classes)
        kernels.ENTRY_POINTS["open_classes"](self._state, n_classes)
        beta = min(max(model.inverse_temperature, kernels.LEAST_INVERSE_TEMPERATURE), kernels.MOST_INVERSE_TEMPERATURE)
        self._state.inverse_temperature = beta
        calibration.activate(self._state.calibration, model.noise, model.inverse_temperature / beta)
        self._take_faces(np.arange(n_classes), model.faces, model.biases)

    def _take_faces(self, codes: Ints, faces: Floats, biases: Floats) -> None:
        """Replace the faces of some classes, and set their final step size."""
        state, d = self._state, faces.shape[2]
        weights = state.split("weights")
        weights[:, codes] = 0.0
        weights[1 : d + 1, codes] = faces.transpose(2, 0, 1)
        weights[0, codes] = biases
        for c in codes:
            own = state.classes[c]
            own.scale, own.steps = 1.0, self.horizon
