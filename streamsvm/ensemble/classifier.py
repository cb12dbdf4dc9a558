"""The blend of kernel, polytope and linear members as an online learner."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.adjusting import Setting
from streamsvm.budgeted import kernels as budgeted
from streamsvm.budgeted import maintenance
from streamsvm.budgeted.classifier import BSGDClassifier, nearest_vectors
from streamsvm.core import losses
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.state import State
from streamsvm.decide.wrapped import model_from, state_of
from streamsvm.ensemble import delayed_votes as answers
from streamsvm.ensemble import label_autocorrelation as autocorrelation
from streamsvm.ensemble import linear
from streamsvm.ensemble import stacked_vote as stacking
from streamsvm.ensemble import vote as kernels
from streamsvm.ensemble.parts import Parts, with_parts
from streamsvm.features.rows import Floats
from streamsvm.features.scaler import ROOM
from streamsvm.locks import Lock, locked
from streamsvm.models import ArchiveError
from streamsvm.online import base
from streamsvm.online.archive import check_bounds, check_ranks
from streamsvm.online.batch import one_event
from streamsvm.online.calibration import HEARING, MEMORY, new_calibration
from streamsvm.online.minibatch import MINIBATCH
from streamsvm.online.scaling import new_rows
from streamsvm.parameters import check_choice, check_number
from streamsvm.polytope import kernels as polytope
from streamsvm.polytope.classifier import CPMClassifier

if TYPE_CHECKING:
    from streamsvm.decide.deciding import DecidingClassifier

# The heads of every kernel member, and the steps of those of the linear one.
HEADS = (("hinge", 0.1), ("hinge", 1.0), ("log", 0.2))
LINEAR_RATES = (0.003, 0.03, 0.3)
# What the large members hold, in budgets.
LARGE = 5
# Kernel members see at most so many columns: their memory and cost are by the column.
KERNEL_COLUMNS = 2_048
# So many numbers of events a block of rows may hold (or one row), and so many scores (or those of one row).
BLOCK_PAIRS, BLOCK_SCORES = 8_192, 65_536
# Ranks are among so many values, one in so many of those that came last.
RANKS_WINDOW, RANKS_SPACING = 250, 4
# What an effort stands for: members, and the budget.
EFFORTS: dict[str, tuple[tuple[str, ...], int]] = {
    "low": (("standard", "linear"), 100),
    "normal": (("ranks", "standard-large", "linear"), 200),
    "high": (("standard", "ranks", "standard-large", "ranks-large", "linear"), 200),
}


Effort = Literal["low", "normal", "high"]


@with_parts
class StreamSVMClassifier(base.OnlineClassifier):
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

    budget, vote_window = Setting(), Setting()

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
            _check_members(members)
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

    def _change(self, name: str, value: Any) -> None:
        if self._parts is None:
            super()._change(name, value)
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

    def _members(self) -> tuple[str, ...]:
        return EFFORTS[self.effort][0] if self.members is None else self.members

    def _kinds(self) -> list[_Member]:
        """What each member is."""
        budget = EFFORTS[self.effort][1] if self.budget is None else self.budget
        return [MEMBERS[name](budget) for name in self._members()]

    def _entries(self) -> list[EntryPoint]:
        members = {entry.name: entry for kind in self._kinds() for entry in kind.entries}
        return [*super()._entries(), *kernels.ENTRY_POINTS.values(), *members.values()]

    def _is_ranking(self) -> bool:
        return any(kind.on_ranks for kind in self._kinds())

    def _room_for(self, n: int) -> int:
        return (
            n if n < max(autocorrelation.NOTES, RANKS_WINDOW, *(kind.most_events for kind in self._kinds())) else ROOM
        )

    def _n_held(self) -> int:
        labels = self._state.autocorrelation
        return max(self.n_events_learned, int(labels.oldest + labels.n_notes))

    def _new_state(self, n_columns: int, n_classes: int, *, room: int = ROOM) -> State:
        kinds = self._kinds()
        n_heads = [len(kind.heads) for kind in kinds]
        experts, ranking = sum(n_heads), self._is_ranking()
        members = {
            str(i): kind.new_state(n_columns, n_classes, new_rows(kind.n_columns(n_columns), None), room)
            for i, kind in enumerate(kinds, start=1)
        }
        rows = new_rows(n_columns, "standard")
        rows.room = room
        block = self._new_block(n_columns, n_classes, kinds, list(members.values()), room)
        own = {
            "rows": rows,
            "ranks": new_rows(
                n_columns, "rank", RANKS_WINDOW if ranking else 0, RANKS_SPACING, by_others=True, room=room
            ),
            "whole": one_event(rows.row, rows.all_rows),
            "listed": one_event(rows.row, rows.row_columns),
            "block": block,
            "stack": State(stacking.STACK, {"inputs": experts + 1, "classes": n_classes}),
            "calibration": new_calibration(n_classes, MEMORY / kernels.NOISE_SAMPLE, HEARING / kernels.NOISE_SAMPLE),
            "autocorrelation": State(
                autocorrelation.AUTOCORRELATION,
                {
                    "lags": autocorrelation.LAGS,
                    "contexts": autocorrelation.N_ROWS if self.label_autocorrelation else 0,
                    "notes": min(autocorrelation.NOTES, room) if self.label_autocorrelation else 0,
                    "classes": n_classes,
                },
            ),
        }
        lanes = -(-experts // kernels.EXPERTS_AT_ONCE) * kernels.EXPERTS_AT_ONCE
        sizes = {"block": len(block.rows), "experts": experts, "lanes": lanes, "few": min(n_classes, losses.FEW)}
        sizes |= {"columns": n_columns, "classes": n_classes}
        state = State(kernels.BLEND, sizes, parts=own | members)
        state.scale, state.vote = (
            kernels.ENTRY_POINTS[name].compile().address for name in ("scale_rows", "vote_on_rows")
        )
        state.is_ranking, state.uses_autocorrelation = ranking, self.label_autocorrelation
        state.expert_decay = 1.0 - 1.0 / self.vote_window
        state.experts.weight[:] = 1.0 / experts
        state.experts.inverse_temperature[:] = [s for kind in kinds for s in kind.inverse_temperature]
        state.stack.weights[experts] = 1.0
        return state

    def _new_block(self, n_columns: int, n_classes: int, kinds: list[_Member], states: list[State], room: int) -> State:
        """Room for the rows that members see; it is cut where rows are wide, or classes many."""
        n_heads = [len(kind.heads) for kind in kinds]
        most = max(min(kernels.BLOCK, room, BLOCK_SCORES // (sum(n_heads) * max(n_classes, 1))), 1)
        sizes = {
            "block": most,
            "ways": 1 + any(kind.on_ranks for kind in kinds),
            "pairs": max(min(min(kernels.BLOCK, room) * (n_columns + 1), BLOCK_PAIRS), n_columns + 1),
            "experts": sum(n_heads),
            "classes": n_classes,
            "members": len(kinds),
        }
        block = State(MINIBATCH, sizes)
        block.members.n_heads[:] = n_heads
        block.members.first[:] = np.cumsum([0, *n_heads[:-1]])
        for member, kind, state in zip(block.members, kinds, states, strict=True):
            member.way, member.state, member.run = kind.on_ranks, state.address, kind.entries[0].compile().address
        return block

    def _member_states(self) -> list[State]:
        return _members_of(self._state)

    def _check_restored(self, state: State) -> None:
        check_ranks(state.ranks, state.rows)
        for kind, member in zip(self._kinds(), _members_of(state), strict=True):
            kind.check_restored(member)
        labels = state.autocorrelation
        check_bounds("autocorrelation.made", labels.made, 0, labels.n_learned)

    def _refresh(self, state: State) -> None:
        for kind, member in zip(self._kinds(), _members_of(state), strict=True):
            if member.n_classes > state.n_classes:
                raise ArchiveError("a member knows other classes than the blend")
            kind.refresh(member)
        # Places of notes that were never written hold the class 0, even where there is none yet.
        labels = state.autocorrelation
        most = max(labels.counts.shape[1] - 1, 0)
        if labels.recent.max() > most or (labels.noted.size and labels.noted.max() > most):
            raise ArchiveError("label autocorrelation knows other classes than the blend")

    def _fit_settings(self, state: State) -> None:
        for kind, member in zip(self._kinds(), _members_of(state), strict=True):
            kind.fit_settings(member)

    def memory_bytes(self, n_features: int | None = None, n_classes: int | None = None) -> int:
        """The most memory a model of so many columns and classes takes; without either, what it takes now.

        A model begins with some 30 kB, which grow with the first thousand events. After them nothing grows with the
        stream but columns and classes, their names, and the labels.

        Parameters
        ----------
        n_features, n_classes
            How many columns (a text has one for each of its categories) and classes; None for the capacity now.

        Examples
        --------
        >>> StreamSVMClassifier().memory_bytes(n_features=20, n_classes=4) < 1.1e6
        True
        """
        columns, classes = self._capacity
        if n_features is not None:
            check_number("n_features", n_features, 1, whole=True)
            columns = max(min(16, self.max_features), min(base.capacity_for(n_features), self.max_features))
        if n_classes is not None:
            check_number("n_classes", n_classes, 1, whole=True)
            classes = max(2, base.capacity_for(n_classes))
        if n_features is None and n_classes is None:
            return self._state.n_bytes
        return self._new_state(columns, classes).n_bytes

    @property
    def memory_size(self) -> int:
        """How many numbers it has to remember of an event, to learn it late: what experts answered, and labels."""
        return answers.memory_size(len(self._state.experts))

    def without_order(self) -> Self:
        """A copy without label autocorrelation, for events that do not go on where those learned have ended."""
        twin = deepcopy(self)
        twin.label_autocorrelation = False
        state = twin._fresh_state()
        state.take(twin._state)
        state.uses_autocorrelation = 0
        twin._use(state)
        return twin

    def _learn_packed(self, code: int) -> NDArray[np.float64] | None:
        # Learning takes the votes first. It does not count as a prediction, of which label autocorrelation takes note.
        n = self._n_classes[()]
        return self._proba[:n] if self._event(self._rows, b"", code, 1.0) == 0 else None

    def _run_rows(self, batch: State) -> None:
        kernels.run_rows(self._state, batch)

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
        n, caution = self.n_events_learned, kernels.VOTE_CAUTION
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

    def _relevances(self) -> Floats | None:
        n = min(len(self._space), KERNEL_COLUMNS)
        total, thetas = 0.0, np.zeros(n)
        for _, member, vote in self._kernel_votes():
            thetas += (vote + 1e-12) * member.theta[:n]
            total += vote + 1e-12
        return None if total == 0.0 else np.exp(thetas / total)

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
        self._run(base.one_row(*self._space.encode_event(x, learn=False)), predict=False)
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

    def _shares_of_classes(self) -> dict[Any, float]:
        counts = self._state.frequencies[: len(self.labels.codes)]
        total = float(counts.sum())
        return {} if len(counts) > losses.FEW or not total else dict(zip(self.classes_, counts / total, strict=True))

    def _kernel_votes(self) -> list[tuple[_Member, State, float]]:
        """The kernel members, their states, and their shares of the vote."""
        weights = iter(self._state.experts.weight.tolist())
        votes = [
            (kind, member, sum(next(weights) for _ in kind.heads))
            for kind, member in zip(self._kinds(), self._member_states(), strict=True)
        ]
        return [vote for vote in votes if vote[0].has_metric]


# Members ----------------------------------------------------------------------------------------------------------


def _members_of(state: State) -> list[State]:
    """The states of the members of a blend."""
    return [part for name, part in state.parts.items() if name.isdecimal()]


class _Member:
    """What the blend must know of a kind of member: its memory, its heads and how sharp each is, and its step."""

    entries: Sequence[EntryPoint]  # the `run_member` of its kernels, and what else is compiled apart
    heads: Sequence[str]
    inverse_temperature: Sequence[float]
    on_ranks = has_metric = False
    most_events = 0  # how many events take memory of their own
    learner: base.OnlineClassifier | None = None  # one with the same kind of memory, that has nothing to learn with

    def n_columns(self, n: int) -> int:
        """How many of n columns it sees."""
        return n

    def new_state(self, n_columns: int, n_classes: int, rows: State, room: int) -> State:
        """An empty state, for rows that are scaled, with room for so many events."""
        raise NotImplementedError

    def check_restored(self, state: State) -> None:
        """As `OnlineClassifier` has it."""
        if self.learner is not None:
            self.learner._check_restored(state)

    def refresh(self, state: State) -> None:
        """The same."""
        if self.learner is not None:
            self.learner._refresh(state)

    def fit_settings(self, state: State) -> None:
        """The same."""
        if self.learner is not None:
            self.learner._fit_settings(state)


class _KernelMachine(BSGDClassifier):
    def _reset(self) -> None:
        """It holds nothing."""


class _Polytopes(CPMClassifier):
    def _reset(self) -> None:
        """It holds nothing."""


class _KernelMember(_Member):
    entries = (budgeted.ENTRY_POINTS["run_member"], maintenance.ENTRY_POINTS["maintain"])
    has_metric = True
    learner: _KernelMachine

    def __init__(self, budget: int, gamma_factor: float, on_ranks: bool) -> None:
        self.learner = _KernelMachine(
            budget=budget, gamma_factor=gamma_factor, heads=HEADS, scaling="none", absorb=0.95, max_features=1
        )
        self.heads = [f"{loss} {rate:g}" for loss, rate in HEADS]
        self.inverse_temperature = [losses.HINGE_INVERSE_TEMPERATURE if loss == "hinge" else 1.0 for loss, _ in HEADS]
        self.on_ranks, self.most_events = on_ranks, budget

    def n_columns(self, n: int) -> int:
        return min(n, KERNEL_COLUMNS)

    def new_state(self, n_columns: int, n_classes: int, rows: State, room: int) -> State:
        return self.learner._new_state(self.n_columns(n_columns), n_classes, rows, room=room)


class _PolytopeMember(_Member):
    entries = (polytope.ENTRY_POINTS["run_member"],)
    heads, inverse_temperature = ("hinge",), (2.0,)
    learner: _Polytopes

    def __init__(self) -> None:
        self.learner = _Polytopes(scaling="none", max_features=1)

    def new_state(self, n_columns: int, n_classes: int, rows: State, room: int) -> State:
        return self.learner._new_state(n_columns, n_classes, rows)


class _LinearMember(_Member):
    entries = (linear.ENTRY_POINTS["run_member"],)
    heads, inverse_temperature = [f"log {rate:g}" for rate in LINEAR_RATES], [1.0] * len(LINEAR_RATES)

    def new_state(self, n_columns: int, n_classes: int, rows: State, room: int) -> State:
        sizes = {"weight_rows": n_columns + 1, "heads": len(LINEAR_RATES), "classes": n_classes}
        state = State(linear.LINEAR, sizes, parts={"rows": rows})
        state.rates[:] = LINEAR_RATES
        return state


@cache
def _kernel_member(budget: int, gamma_factor: float, on_ranks: bool) -> _Member:
    return _KernelMember(budget, gamma_factor, on_ranks)


@cache
def _plain_member(kind: Callable[[], _Member]) -> _Member:
    return kind()


# Members by name, each made for a budget. Another kind of member is another line here, and its two files.
MEMBERS: dict[str, Callable[[int], _Member]] = {
    "standard": lambda budget: _kernel_member(budget, 1.0, False),
    "ranks": lambda budget: _kernel_member(budget, 1.0, True),
    "standard-large": lambda budget: _kernel_member(LARGE * budget, 8.0, False),
    "ranks-large": lambda budget: _kernel_member(LARGE * budget, 4.0, True),
    "polytope": lambda _: _plain_member(_PolytopeMember),
    "linear": lambda _: _plain_member(_LinearMember),
}


def _check_members(members: Any) -> None:
    if not isinstance(members, tuple) or not members:
        raise TypeError(f"`members` must be a tuple of names or None, got {members!r}")
    for i, name in enumerate(members):
        check_choice(f"members[{i}]", name, tuple(MEMBERS))
