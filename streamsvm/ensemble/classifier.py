"""Online learner: ensemble of members of several kinds."""

from __future__ import annotations

import inspect
from collections.abc import Hashable, Mapping
from copy import deepcopy
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from numpy.typing import NDArray

from streamsvm.budgeted.inspection import nearest_vectors
from streamsvm.decide.conformal import AllSets
from streamsvm.ensemble import blend
from streamsvm.ensemble import label_autocorrelation as autocorrelation
from streamsvm.ensemble import vote as kernels
from streamsvm.ensemble.composition import NO_FAST_PATH, PARAMETERS, Parts, answered_by_parts
from streamsvm.ensemble.members import check_members
from streamsvm.ensemble.memory import EFFORTS, Ensemble
from streamsvm.locks import Lock, locked
from streamsvm.models import ArchiveError
from streamsvm.models.codec import nested, part_of
from streamsvm.models.saved import from_state, state_of
from streamsvm.online import base
from streamsvm.online.saving import decode_param, encode_param
from streamsvm.parameters import ParameterError, ParameterTypeError, check_choice, check_number

if TYPE_CHECKING:
    from streamsvm.decide.deciding import DecidingClassifier

Effort = Literal["low", "normal", "high"]


@answered_by_parts
class StreamSVMClassifier(Ensemble):
    """Ensemble of kernel machines, linear models, trees and naive Bayes.

    The defaults need no tuning. The ensemble learns events one at a time and predicts labels of any hashable type.
    Numbers are scaled with running statistics and strings are one-hot encoded. New features and classes may appear at
    any time. Missing values (None, NaN, or an absent name) contribute nothing. Infinite values raise an error.

    Thread-safe: any number of threads may predict single events or batches with one model while others learn. Each call
    returns what it would return without other threads.

    Parameters
    ----------
    effort
        `"low"`, `"normal"` or `"high"`. It sets the defaults of `members` and `budget`. More effort takes more time per
        event.
    refit
        Batch solver that is refitted to windows of the stream: a name, an instance, or a dict with parameters of
        `RefitClassifier`. Its models vote with the members. None: no refits.
    cost, class_weight, abstain
        Costs of decisions, as in `Costs`. Predicted labels are then the decisions with the least expected cost, or None
        if the classifier abstains. Learning, probabilities, prediction sets and explanations do not change.
    categories
        Features whose strings are always categories. By default, features with mostly new strings, such as identifiers
        and timestamps, are left out with a warning (see `FeatureSpace`).
    label_autocorrelation
        Whether to learn how labels depend on previous labels. Predictions use this dependence only where it improves
        the log loss. Set it to False if events have no order, or if labels arrive in a different order from events.
    budget
        Maximum number of support vectors of each kernel member. Large members have five times as many. None: depends on
        `effort`. With `effort="low"` and more than 100 classes, choose at least two per class: with 300 overlapping
        classes, 600 raise the accuracy from 23 to 39 %, in 1.4 times the time.
    members
        Names of the members: `"standard"`, `"ranks"`, `"standard-large"`, `"ranks-large"`, `"linear"`, `"trees"`,
        `"forest"`, `"naive-bayes"` and `"polytope"`. None: depends on `effort`.
    vote_window
        Approximate number of recent events over which the vote averages accuracies. With late labels the number is 20
        times as large.
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
    >>> from streamsvm import StreamSVMClassifier
    >>> model = StreamSVMClassifier()
    >>> evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    Accuracy: 91.19%

    Notes
    -----
    **Members.** Kernel members are budgeted kernel machines (see `BSGDClassifier`) on standardised or ranked values,
    with a learned metric. They use the first 2,048 columns. The linear member uses all columns and is the best one on
    text. With at most 64 columns, its first head is an extended Kalman filter, which needs few events. With at most 16
    classes, the member also treats columns with 3 to about 500 different integers as categories. Boosted trees are
    fitted to the last 4,096 events: every 768 events, a new tree replaces the oldest of 64. They use the first 128
    columns and at most 64 classes. A second head of this member votes by the three nearest neighbours among the last
    256 of these events. A forest of eight randomised trees describes the last 16,384 events, for the same columns and
    classes: it grows with each event, and leads in complex concepts that last. `effort="low"` uses none of these. Naive
    Bayes with normal densities of about the last 50 events leads after few labels and soon after changes, for the same
    columns and classes. If a row has values in at most a quarter of the learned columns, as texts and categories do, it
    counts the columns of about the last 1,000 events instead, without regard to their values, and uses all columns.
    This does not apply to rows most of whose columns are in more than half of the events, such as numbers beside one
    category. Polytopes (see `CPMClassifier`) are optional. Each member has one or more heads, which differ in loss and
    step size.

    **Vote.** Each head votes with its probabilities. Its weight is proportional to exp(100 accuracy), with the accuracy
    over about the last `vote_window` events, so the currently best heads dominate. If classes are imbalanced, the log
    loss of a head also enters its weight, by an amount that grows with the imbalance.

    Predictions are a mixture of this vote and three others, with weights that depend on the log loss. One of the others
    is a sum of the heads' probabilities, weighted by likelihood. Two are products of powers of the probabilities,
    trained by logistic regression with a large and a small step size. If a vote was recently more accurate than this
    mixture, the prediction is the most probable class of that vote.

    **Calibration.** An inverse temperature, learned by log loss, calibrates the probabilities. If labels are noisy, the
    share of random labels is estimated, and this estimate caps every probability. The cap does not change which label
    is most probable.

    **Repeated rows.** The last four labels of up to 4,096 rows are kept. If a row is equal to one of these, the
    probabilities are moved towards its labels, as far as this has predicted labels of repeated rows better. Rows equal
    to the row learned last are left out of this.

    **Label autocorrelation.** Baselines predict labels without features: the last label, the label one season ago, and
    the frequencies given the previous one or three labels. Predictions are a mixture of these and the vote, with
    weights that depend on the log loss. If the last label, the label one season ago or the most frequent class was more
    accurate than the mixture, it is the prediction.

    The label of an event is counted together with the previous labels that were known at the last prediction of the
    event. These previous labels are stored for up to 1,024 predictions without a label. Events must be learned in the
    order of their predictions. The weight of the last label decreases with each further event predicted before the next
    label. `predict_many` and `predict_proba_many` ignore previous labels, because their rows have no order.

    **Late labels.** With `DelayedClassifier` or `streamsvm run --label-source`, the weights of heads and votes depend
    on what they predicted when the event arrived. Accuracies of heads cover 20 times as many labels. The exponents of
    the stacked votes are not learned. The label one season ago is the last known label of the same phase. In the linear
    member, an average of weights replaces the head with the largest step size.
    """

    _kernels: ClassVar[ModuleType] = kernels

    parts: Parts | None

    def __init__(
        self,
        effort: Effort = "normal",
        *,
        refit: Any = None,
        cost: Any = None,
        class_weight: dict[Any, float] | str | None = None,
        abstain: float | None = None,
        categories: tuple[Hashable, ...] | None = None,
        label_autocorrelation: bool = True,
        budget: int | None = None,
        members: tuple[str, ...] | None = None,
        vote_window: float = 500.0,
        max_features: int = 65_536,
        max_classes: int = 1_000,
    ) -> None:
        check_choice("effort", effort, tuple(EFFORTS))
        if budget is not None:
            check_number("budget", budget, 1, 100_000, whole=True)
        if members is not None:
            check_members(members)
        check_number("vote_window", vote_window, 1)
        if not isinstance(label_autocorrelation, bool):
            raise ParameterTypeError("label_autocorrelation", f"must be True or False, got {label_autocorrelation!r}")
        check_number("max_features", max_features, 1, whole=True)
        check_number("max_classes", max_classes, 2, whole=True)
        self.effort = effort
        self.budget = budget
        self.members = members
        self.vote_window = vote_window
        self.label_autocorrelation = label_autocorrelation
        self.max_features = max_features
        self.max_classes = max_classes
        self.categories = base.check_categories(categories)
        self.refit, self.cost, self.class_weight, self.abstain = refit, cost, class_weight, abstain
        if refit is None and cost is None and class_weight is None and abstain is None:
            self._reset()
        else:
            # A subclass may have other parameters, which are not assigned yet.
            names = {"effort", *(StreamSVMClassifier.__init__.__kwdefaults__ or ())}.difference(PARAMETERS)
            learner = StreamSVMClassifier(**{name: getattr(self, name) for name in names})
            self._use_parts(Parts.around(learner, refit, (cost, class_weight, abstain)))

    # Parts -------------------------------------------------------------------------------------------------------

    def _use_parts(self, parts: Parts) -> None:
        self.parts, self._fast, self._sets, self.__dict__["_lock"] = parts, NO_FAST_PATH, AllSets(), Lock()

    def change_setting(self, name: str, value: Any) -> None:
        if self.parts is None:
            super().change_setting(name, value)
        else:
            setattr(self.parts.learner, name, value)
            self.__dict__[name] = value

    # Memory ------------------------------------------------------------------------------------------------------

    def without_order(self) -> Self:
        """Return a copy without label autocorrelation.

        Use it for events that do not continue the learned stream.
        """
        twin = deepcopy(self)
        learner = twin if twin.parts is None else twin.parts.learner
        twin.__dict__["label_autocorrelation"] = learner.__dict__["label_autocorrelation"] = False
        learner._state.uses_autocorrelation = 0
        return twin

    # Refits ------------------------------------------------------------------------------------------------------

    @property
    def refits(self) -> list[dict[str, Any]]:
        """The last 100 refits as in `RefitClassifier.refits`, empty without `refit`."""
        return [] if self._refitter is None else list(self._refitter.refits)

    def refit_totals(self) -> dict[str, Any] | None:
        """Return totals of refits: numbers by outcome, seconds, and share of the vote.

        Returns
        -------
        dict or None
            As in `RefitClassifier.refit_totals`; None without `refit`.
        """
        return None if self._refitter is None else dict(self._refitter.refit_totals())

    @property
    def refits_on_demand(self) -> bool:
        """Whether the trigger of `refit` is or contains `OnDemand`."""
        return self._refitter is not None and bool(self._refitter.refits_on_demand)

    def refit_now(self) -> None:
        """Start a refit after the next labelled event, see `RefitClassifier.refit_now`.

        Raises
        ------
        ValueError
            If the classifier has no `refit`.
        """
        if self._refitter is None:
            raise ParameterError("refit", "is None: make the classifier with a solver")
        self._refitter.refit_now()

    @property
    def decider(self) -> DecidingClassifier | None:
        """Part that makes decisions by costs, or None."""
        return None if self.parts is None else self.parts.decider

    @property
    def _refitter(self) -> Any:
        return None if self.parts is None else self.parts.refitter

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if self.parts is None:
            return super().state()
        # Parameters that only a subclass has: all others are those of the parts.
        params, known = self._get_params(), self.parts.learner._get_params()
        own = {name: encode_param(value) for name, value in params.items() if name not in known}
        return nested({"parts": state_of(self.parts.top)}, {"class": type(self).__name__, "own": own})

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        if "parts" not in header:
            self = super()._from_state(header, arrays)
            if self.parts is not None:
                raise ArchiveError("a classifier with `refit` or costs, whose parts are missing")
            return self
        parts = Parts(from_state(*part_of((header, arrays), "parts")))
        if type(parts.learner) is not StreamSVMClassifier or parts.learner.parts:
            raise ArchiveError(f"refits and costs around a {type(parts.learner).__name__}, not a StreamSVMClassifier")
        own = {name: decode_param(value) for name, value in header["own"].items()}
        known = inspect.signature(cls).parameters
        self = cls(**own, **{name: value for name, value in parts.params().items() if name in known})
        self.__dict__.update(parts.params())
        self._use_parts(parts)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() if self.parts is None else {**self.__dict__, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "parts" in state:
            self.__dict__.update(state)
            self._use_parts(state["parts"])
        else:
            super().__setstate__(state)

    # Inspection --------------------------------------------------------------------------------------------------

    def leaders(self) -> list[dict[str, Any]]:
        """Return all heads, sorted by their share of the vote.

        Returns
        -------
        list of dict
            For each head its `member`, `head`, recent `accuracy` and `weight` (share of the vote), largest weight
            first.

        Examples
        --------
        >>> model = StreamSVMClassifier()
        >>> for i in range(100):
        ...     model.learn_one({"a": float(i % 2)}, i % 2)
        >>> sorted(model.leaders()[0])
        ['accuracy', 'head', 'member', 'weight']
        """
        # Corrects the bias of accuracies that start from 0.
        n, caution = self.n_events_learned, blend.VOTE_CAUTION
        n_first = min(n, max(self.vote_window - caution, 0.0))
        reached = 1.0 - caution / (n_first + caution) * (1.0 - 1.0 / self.vote_window) ** (n - n_first)
        kinds = zip(self._members(), self._kinds(), strict=True)
        heads = [(name, head) for name, kind in kinds for head in kind.head_names]
        rows = [
            {
                "member": member,
                "head": head,
                "accuracy": min(float(expert.accuracy) / reached, 1.0) if n else 0.0,
                "weight": float(expert.weight),
            }
            for (member, head), expert in zip(heads, self._state.experts, strict=True)
        ]
        return sorted(rows, key=lambda row: -row["weight"])

    @locked
    def nearest(self, x: dict[Any, Any], n: int = 5) -> list[dict[str, Any]]:
        """Return the support vectors most similar to an event.

        They belong to the kernel member with the largest share of the vote.

        Parameters
        ----------
        x
            Features by name.
        n
            Maximum number of support vectors.

        Returns
        -------
        list of dict
            At most n support vectors, the most similar first. `similarity` is the kernel value, at most 1. `label` is
            the class with the largest coefficient. `features` has the values by name, in the units of the stream.
            Missing features and features at their mean are omitted. A vector merged from several events lies between
            them.

        Examples
        --------
        >>> model = StreamSVMClassifier()
        >>> for i in range(100):
        ...     model.learn_one({"a": float(i % 2)}, "odd" if i % 2 else "even")
        >>> model.nearest({"a": 1.0}, n=1)[0]["label"]
        'odd'
        """
        check_number("n", n, 1, whole=True)
        votes = self._kernel_votes()
        if not votes:
            return []
        self.run_rows(self.encode_event(x), predict=False)
        kind, member, _ = max(votes, key=lambda vote: vote[2])
        # A vector that only heads with small weights have added gets its label from these heads.
        heads = member.heads
        weights = (heads.weight + 1e-6) * heads.scale / heads.rate
        rows = self._state.ranks if kind.on_ranks else self._rows
        return nearest_vectors(member, rows, self._rows, self._space, self.labels.by_code, n, weights)

    @property
    def autocorrelation_weight(self) -> float:
        """Exponent of label autocorrelation in the probabilities, 0 while it is not used.

        Examples
        --------
        >>> model = StreamSVMClassifier()
        >>> for i in range(500):
        ...     model.learn_one({"a": 1.0}, i % 5)
        >>> model.autocorrelation_weight > 0.0, model.predict_one({"a": 1.0})
        (True, 0)
        """
        state = self._state.autocorrelation
        return float(state.exponent) if autocorrelation.is_used.py_func(state) else 0.0

    def autocorrelation_effect(self) -> dict[str, float] | None:
        """Return the recent effect of label autocorrelation.

        Returns
        -------
        dict or None
            `weight`, as `autocorrelation_weight`, and the log loss of the probabilities `without` and `with` it. None
            without `label_autocorrelation`.

        Examples
        --------
        >>> model = StreamSVMClassifier()
        >>> for i in range(500):
        ...     model.learn_one({"a": 1.0}, i % 5)
        >>> effect = model.autocorrelation_effect()
        >>> effect["with"] < effect["without"]
        True
        """
        if not self.label_autocorrelation:
            return None
        state, n = self._state.autocorrelation, self.n_events_learned
        reached = 1.0 - (1.0 - autocorrelation.LOSS_RATE) ** n if n else 1.0  # corrects losses that start from 0
        losses = {"without": state.plain_loss, "with": state.autocorrelated_loss}
        return {"weight": self.autocorrelation_weight} | {name: float(loss) / reached for name, loss in losses.items()}
