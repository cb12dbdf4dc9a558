"""The blend of kernel, polytope and linear members as an online learner."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.budgeted.support import nearest_vectors
from streamsvm.decide.wrapped import model_from, state_of
from streamsvm.ensemble import blend
from streamsvm.ensemble import label_autocorrelation as autocorrelation
from streamsvm.ensemble import vote as kernels
from streamsvm.ensemble.members import check_members
from streamsvm.ensemble.memory import EFFORTS, Ensemble
from streamsvm.ensemble.parts import Parts, with_parts
from streamsvm.locks import Lock, locked
from streamsvm.models import ArchiveError
from streamsvm.online import base
from streamsvm.parameters import check_choice, check_number

if TYPE_CHECKING:
    from streamsvm.decide.deciding import DecidingClassifier


Effort = Literal["low", "normal", "high"]


@with_parts
class StreamSVMClassifier(Ensemble):
    """The classifier without settings: kernel and linear members that learn every event, and vote.

    Kernel members are budgeted kernel machines (see `BSGDClassifier`) on standardised and on ranked numbers, with a
    learned metric; each carries several heads, that is losses and steps. Linear ones cost little beside them, and lead
    on text; polytopes (see `CPMClassifier`) are there for those who ask. Each head votes with its probabilities,
    weighted by exp(100 accuracy) with its accuracy over about the last `vote_window` events, so that what follows the
    stream best now leads (where most events are of one class, accuracy says little: log loss has a say then, the more
    the rarer the others are); a second vote weighs the heads by what they add to one another, and is heard where it is
    more often right. The inverse temperature of the blend's probabilities is learned by their log loss: that calibrates
    them. Next, which labels tend to follow the three before is weighed in where that makes probabilities better
    (`label_autocorrelation`); an event follows those labels that had come when it was last predicted, however late its
    own comes (up to 1,024 predictions; events come to be learned in the order in which they were predicted). Other
    predictions change nothing of what is learned. The last label says less of each further event that is predicted
    before the next label comes, and its weight fades accordingly; `predict_many` and `predict_proba_many`, whose rows
    are in no order, go without it. Last, where labels are noisy, the share of labels that are as if drawn at random is
    learned, and no prediction is surer than that leaves it: this changes probabilities, but not which label is the most
    probable.

    Where labels come late, by `DelayedClassifier` or `streamsvm run --label-source`, heads are weighed by what they had
    answered when an event was predicted, over twenty times as many labels; the second vote is not heard, and the
    longest steps of the linear member give way to the average of shorter ones.

    Numbers are scaled as they run, strings are one-hot, new names and classes may come at any time, missing values
    (None, NaN, or an absent name) contribute nothing. Infinite values are refused. Kernel members see the first 2,048
    columns, linear ones all.

    Thread-safe: any number of threads may predict with one model, single events or rows, while others learn; each call
    gives what it would give by itself.

    Parameters
    ----------
    effort
        `"low"`, `"normal"` or `"high"`: which members there are, and their budget.
    budget
        The support vectors of each kernel member; the large ones hold five times as many. None: those of the effort.
    members
        Which members there are, of `"standard"`, `"ranks"`, `"standard-large"`, `"ranks-large"`, `"linear"` and
        `"polytope"`. None: those of the effort.
    vote_window
        The accuracies that votes rest on are over about so many events, twenty times as many where labels come late.
    label_autocorrelation
        Whether which labels follow one another is learned, and heard where it helps. False where events come in no
        order, or labels in another than events.
    max_features
        The most columns (names of numbers, and strings under a name); those that come later are ignored and counted.
    categories
        Features whose strings are taken in however many are new. Others, such as identifiers and timestamps, are left
        out with a warning (see `FeatureSpace`).
    max_classes
        The most classes; events of further ones are refused, since each class takes memory by the column.
    refit
        A batch solver that is fitted again to windows of the stream as it runs, by name or as an instance, or a dict
        with parameters of `RefitClassifier`. Its models vote beside the members. None: no refits.
    cost, class_weight, abstain
        What decisions cost, as `Costs` has it. Labels predicted are the decisions of least expected cost then, None
        where it abstains. Learning, probabilities, sets and explanations stay as they are.

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
    Accuracy: 90.63%
    """

    _kernels: ClassVar[ModuleType] = kernels

    _parts: Parts | None = None

    def __init__(
        self,
        effort: Effort = "normal",
        budget: int | None = None,
        members: tuple[str, ...] | None = None,
        vote_window: float = 500.0,
        label_autocorrelation: bool = True,
        max_features: int = 65_536,
        categories: tuple[Hashable, ...] | None = None,
        max_classes: int = 1_000,
        *,
        refit: Any = None,
        cost: Any = None,
        class_weight: dict[Any, float] | str | None = None,
        abstain: float | None = None,
    ) -> None:
        check_choice("effort", effort, tuple(EFFORTS))
        if budget is not None:
            check_number("budget", budget, 1, 100_000, whole=True)
        if members is not None:
            check_members(members)
        check_number("vote_window", vote_window, 1)
        if not isinstance(label_autocorrelation, bool):
            raise TypeError(f"`label_autocorrelation` must be True or False, got {label_autocorrelation!r}")
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
        own = dict.fromkeys(("refit", "cost", "class_weight", "abstain"))
        if refit is None and cost is None and class_weight is None and abstain is None:
            self._reset()
        else:
            learner = type(self)(**self._get_params() | own)
            self._hold(Parts.around(learner, refit, (cost, class_weight, abstain)))

    def _hold(self, parts: Parts) -> None:
        """Answer by parts from now on: their methods become those of this object, which learns nothing by itself."""
        self._parts, self.__dict__["_lock"] = parts, Lock()
        self.__dict__.update(parts.methods())

    @property
    def is_composed(self) -> bool:
        return self._parts is not None

    def change_setting(self, name: str, value: Any) -> None:
        if self._parts is None:
            super().change_setting(name, value)
        else:
            setattr(self._parts.learner, name, value)
            self.__dict__[name] = value

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"budget": 20}
        yield {"effort": "low"}
        yield {"effort": "high", "budget": 5, "vote_window": 50.0, "label_autocorrelation": False}
        yield {"members": ("ranks", "linear"), "budget": 10}
        yield {"effort": "low", "budget": 10, "class_weight": "balanced"}

    # Memory ------------------------------------------------------------------------------------------------------

    def without_order(self) -> Self:
        """A copy without label autocorrelation, for events that do not go on where those learned have ended."""
        twin = object.__new__(type(self))
        twin.__setstate__(self.__getstate__() | {"label_autocorrelation": False})
        twin._state.uses_autocorrelation = 0
        return twin

    # Refits ------------------------------------------------------------------------------------------------------

    @property
    def refits(self) -> list[dict[str, Any]]:
        """The last 100 refits, as `RefitClassifier.refits` has them; none without `refit`."""
        found: list[dict[str, Any]] = [] if self._refitter is None else self._refitter.refits
        return found

    def refit_totals(self) -> dict[str, Any] | None:
        """Number of refits by outcome, their seconds, and their models' share of the vote; None without `refit`."""
        found: dict[str, Any] | None = None if self._refitter is None else self._refitter.refit_totals()
        return found

    def refit_now(self) -> None:
        """Begin a refit after the next labelled event, or the next multiple of 64 of them.

        Raises
        ------
        ValueError
            Without `refit`.
        """
        if self._refitter is None:
            raise ValueError("there are no refits: make the classifier with `refit`")
        self._refitter.refit()

    @property
    def decider(self) -> DecidingClassifier | None:
        """What decides by costs; None where nothing does."""
        return None if self._parts is None else self._parts.decider

    @property
    def _refitter(self) -> Any:
        return None if self._parts is None else self._parts.refitter

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if self._parts is None:
            return super().state()
        header, arrays = state_of(self._parts.top)
        return {"class": type(self).__name__, "parts": header}, arrays

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        if "parts" not in header:
            self = super()._from_state(header, arrays)
            if self.is_composed:
                raise ArchiveError("a classifier with `refit` or costs, whose parts are missing")
            return self
        parts = Parts(model_from(header["parts"], arrays))
        if type(parts.learner) is not cls or parts.learner.is_composed:
            raise ArchiveError(f"refits and costs around a {type(parts.learner).__name__}, not a {cls.__name__}")
        self = object.__new__(cls)
        self.__dict__.update(parts.params())
        self._hold(parts)
        return self

    def __getstate__(self) -> dict[str, Any]:
        if self._parts is None:
            return super().__getstate__()
        # Methods of parts are no part of what is copied: the copy has methods of its own parts.
        return {**self._get_params(), "_parts": self._parts.top}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_parts" not in state:
            super().__setstate__(state)
            return
        self.__dict__.update({name: value for name, value in state.items() if name != "_parts"})
        self._hold(Parts(state["_parts"]))

    # What it knows -----------------------------------------------------------------------------------------------

    def leaders(self) -> list[dict[str, Any]]:
        """Return all heads, the leading first: member, head, recent accuracy and weight (its share of the vote).

        Examples
        --------
        >>> model = StreamSVMClassifier()
        >>> for i in range(100):
        ...     model.learn_one({"a": float(i % 2)}, i % 2)
        >>> sorted(model.leaders()[0])
        ['accuracy', 'head', 'member', 'weight']
        """
        # Accuracies start from 0 and are not yet there.
        n, caution = self.n_events_learned, blend.VOTE_CAUTION
        n_first = min(n, max(self.vote_window - caution, 0.0))
        reached = 1.0 - caution / (n_first + caution) * (1.0 - 1.0 / self.vote_window) ** (n - n_first)
        kinds = zip(self._members(), self._kinds(), strict=True)
        heads = [(name, head) for name, kind in kinds for head in kind.heads]
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

    @property
    def relevance(self) -> dict[Any, float]:
        """The part of each column in the kernel members' distances, by name, the most relevant first.

        Geometric means over these members, weighted by their votes; empty where there is none.
        """
        values, space = self._relevances(), self._space
        if values is None:
            return {}
        return {
            space.names[j]: float(values[j]) for j in np.argsort(-values, kind="stable") if not space.is_dead(int(j))
        }

    @locked
    def nearest(self, x: dict[Hashable, Any], n: int = 5) -> list[dict[str, Any]]:
        """The support vectors most like an event, in the leading kernel member: what its prediction rests on.

        Parameters
        ----------
        x
            Features by name.
        n
            How many at most.

        Returns
        -------
        list of dict
            At most n, the nearest first: the `similarity` (the kernel's, at most 1), the `label` it speaks for most,
            and its `features` by name, in the units of the stream. Features it has no value for, or the mean, are left
            out; a vector merged of several events lies between them.

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
        # Vectors that only heads with little to say have asked for are those heads' to label.
        heads = member.heads
        weights = (heads.weight + 1e-6) * heads.scale / heads.rate
        rows = self._state.ranks if kind.on_ranks else self._rows
        return nearest_vectors(member, rows, self._rows, self._space, self.labels.answers, n, weights)

    @property
    def autocorrelation_trust(self) -> float:
        """How far label autocorrelation is trusted: the exponent of what it says, 0 while it is not heard.

        Examples
        --------
        >>> model = StreamSVMClassifier()
        >>> for i in range(500):
        ...     model.learn_one({"a": 1.0}, i % 5)
        >>> model.autocorrelation_trust > 0.0, model.predict_one({"a": 1.0})
        (True, 0)
        """
        state = self._state.autocorrelation
        return float(state.trust) if autocorrelation.is_used(state) else 0.0

    def autocorrelation_effect(self) -> dict[str, float] | None:
        """What label autocorrelation does of late; None without `label_autocorrelation`.

        Returns
        -------
        dict
            `trust`, as `autocorrelation_trust`; the log loss of the probabilities `without` it, and `with` it.

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
        reached = 1.0 - (1.0 - autocorrelation.LOSS_RATE) ** n if n else 1.0  # losses start from 0, not yet there
        losses = {"without": state.plain_loss, "with": state.autocorrelated_loss}
        return {"trust": self.autocorrelation_trust} | {name: float(loss) / reached for name, loss in losses.items()}
