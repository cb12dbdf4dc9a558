"""The blend of kernel, polytope and linear members as an online learner."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, Protocol

import numpy as np

from streamsvm.kernels import apart, budgeted, order, stack
from streamsvm.kernels import blend as kernels
from streamsvm.kernels import rows as layout
from streamsvm.kernels.arena import Arena, JoinedArena
from streamsvm.models import ArchiveError
from streamsvm.online import base
from streamsvm.online.budgeted import BSGDClassifier
from streamsvm.online.polytope import MOST_WEIGHT, CPMClassifier

# The heads of every kernel member, and the steps of those of the linear one.
HEADS = (("hinge", 0.1), ("hinge", 1.0), ("log", 0.2))
LINEAR_RATES = (0.003, 0.03, 0.3)
# What the large members hold, in budgets.
LARGE = 5
# Kernel members see at most so many columns: their memory and cost are by the column.
KERNEL_COLUMNS = 4_096
# So many numbers of events a block of rows may hold (or one row), and so many scores (or those of one row).
BLOCK_PAIRS, BLOCK_SCORES = 8_192, 65_536
# Ranks are among so many values.
RANKS_WINDOW = 1_000
# Members by name: their kind, and for kernel members budgets, the factor of gamma, and whether they see ranks.
MEMBERS: dict[str, tuple[int, int, float, bool]] = {
    "standard": (kernels.KERNEL, 1, 1.0, False),
    "ranks": (kernels.KERNEL, 1, 1.0, True),
    "standard-large": (kernels.KERNEL, LARGE, 8.0, False),
    "ranks-large": (kernels.KERNEL, LARGE, 4.0, True),
    "polytope": (kernels.POLYTOPE, 0, 0.0, False),
    "linear": (kernels.LINEAR, 0, 0.0, False),
}
# What an effort stands for: members, and the budget.
EFFORTS: dict[str, tuple[tuple[str, ...], int]] = {
    "low": (("standard", "linear"), 100),
    "normal": (("standard", "ranks", "standard-large", "linear"), 200),
    "high": (("standard", "ranks", "standard-large", "ranks-large", "linear"), 200),
}


class StreamSVMClassifier(base.OnlineClassifier):
    """The classifier without settings: kernel and linear members that learn every event, and vote.

    Kernel members are budgeted kernel machines (see `BSGDClassifier`) on standardised and on ranked numbers, with a
    learned metric; each carries several heads, that is losses and steps. Linear ones cost little beside them, and lead
    on text; polytopes (see `CPMClassifier`) are there for those who ask. Each head votes with its probabilities,
    weighted by exp(100 accuracy) with its accuracy over about the last `horizon` events, so that what follows the
    stream best now leads; a second vote weighs the heads by what they add to one another, and is heard where it is more
    often right. The power the blend's probabilities are raised to is learned by their log loss, which calibrates them.
    Last, which labels tend to follow the three before is weighed in where that makes probabilities better
    (`label_order`); an event follows those labels that had come when it was last predicted, however late its own comes
    (up to 1,024 predictions; events come to be learned in the order in which they were predicted). Other predictions
    change nothing of what is learned.

    Numbers are scaled as they run, strings are one-hot, new names and classes may come at any time, missing values
    (None, NaN, or an absent name) contribute nothing. Infinite values are refused. Kernel members see the first 4,096
    columns, linear ones all.

    A member ten points less accurate than the best sleeps: it has no say, and learns from one event in eight, until it
    has come nearer, or the blend becomes less accurate than it was.

    Predicting while another thread learns is not safe.

    Parameters
    ----------
    effort
        `"low"`, `"normal"` or `"high"`: which members there are, and their budget.
    budget
        The support vectors of each kernel member; the large ones hold five times as many. None: those of the effort.
    members
        Which members there are, of `"standard"`, `"ranks"`, `"standard-large"`, `"ranks-large"`, `"linear"` and
        `"polytope"`. None: those of the effort.
    horizon
        The accuracies that votes rest on are over about so many events.
    label_order
        Whether the order of labels may speak. False where events come in no order, or labels in another than events.
    seed
        Settles which events members learn from that sleep: all else is determined.
    max_features
        The most columns (names of numbers, and strings under a name); those that come later are ignored and counted.
    threads
        On how many threads members run where rows come in batches (`learn_many`, `predict_many`, `test_then_train`,
        `run_batch`), a few tens or more; the results are the same. More threads than members are of no use.
    categories
        Features whose strings are taken in however many are new. Others, such as identifiers and timestamps, are left
        out with a warning (see `FeatureSpace`).

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
    Accuracy: 90.79%
    """

    _kernels: ClassVar[ModuleType] = kernels
    _arena: JoinedArena

    def __init__(
        self,
        effort: str = "normal",
        budget: int | None = None,
        members: tuple[str, ...] | None = None,
        horizon: float = 500.0,
        label_order: bool = True,
        seed: int = 0,
        max_features: int = 65_536,
        threads: int = 1,
        categories: tuple[Hashable, ...] | None = None,
    ) -> None:
        base.check_choice("effort", effort, tuple(EFFORTS))
        if budget is not None:
            base.check_number("budget", budget, 1, 100_000, whole=True)
        if members is not None:
            _check_members(members)
        base.check_number("horizon", horizon, 1)
        if not isinstance(label_order, bool):
            raise TypeError(f"`label_order` must be True or False, got {label_order!r}")
        base.check_number("seed", seed, 0, 2**32 - 1, whole=True)
        base.check_number("max_features", max_features, 1, whole=True)
        self.effort = effort
        self.budget = budget
        self.members = members
        self.horizon = horizon
        self.label_order = label_order
        self.seed = seed
        base.check_number("threads", threads, 1, 64, whole=True)
        self.max_features = max_features
        self.threads = threads
        self.categories = base.check_categories(categories)
        self._reset()

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {"budget": 20}
        yield {"effort": "low"}
        yield {"effort": "high", "budget": 5, "horizon": 50.0, "label_order": False}
        yield {"members": ("ranks", "linear"), "budget": 10, "threads": 2}

    # Memory ------------------------------------------------------------------------------------------------------

    def _members(self) -> tuple[str, ...]:
        return EFFORTS[self.effort][0] if self.members is None else self.members

    def _templates(self) -> list[_Template]:
        """For each member a learner that knows what its memory looks like."""
        budget = EFFORTS[self.effort][1] if self.budget is None else self.budget
        return [_template(*MEMBERS[name][:3], budget) for name in self._members()]

    def _new_arena(self, n_columns: int, n_classes: int) -> JoinedArena:
        names, templates = self._members(), self._templates()
        ranking = any(MEMBERS[name][3] for name in names)
        window = RANKS_WINDOW if ranking else 0
        ranks = Arena(base.common_shapes(n_columns, 0, layout.LIMIT + 1, window), n_columns)
        base.set_scaling(ranks, "rank", window, 1.0)
        n_heads = [template.n_heads for template in templates]
        # A block is cut where its rows are wide, or classes many.
        ways, pairs = 1 + ranking, max(min(kernels.BLOCK * (n_columns + 1), BLOCK_PAIRS), n_columns + 1)
        block = max(min(kernels.BLOCK, BLOCK_SCORES // (sum(n_heads) * max(n_classes, 1))), 1)
        arena = JoinedArena(
            [
                *base.common_shapes(n_columns, n_classes, kernels.N_PARAMS, 0),
                (len(names), kernels.MEMBER_FIELDS),
                (sum(n_heads), kernels.VOTER_FIELDS),
                (2, n_columns),
                (order.N_FIELDS,),
                (order.N_ROWS if self.label_order else 0, n_classes),
                (order.NOTES * order.NOTE_FIELDS if self.label_order else 0,),
                (order.N_SCRATCH, n_classes),
                (len(names), kernels.NAP_FIELDS),
                (sum(n_heads) + 1 + stack.N_SHARES,),
                (sum(n_heads) + stack.N_ROWS, n_classes),
                (ways, pairs),
                (ways, pairs),
                (block, kernels.BLOCK_FIELDS),
                (block, sum(n_heads), n_classes),
                (kernels.N_REQUEST,),
            ],
            n_columns,
            [ranks, *(template.new_arena(n_columns, n_classes) for template in templates)],
        )
        base.set_scaling(arena, "standard", 0, 1.0)
        length = len(ranks.layout)  # as that of every part
        arena.layout[[kernels.LENGTH, kernels.RANKED, kernels.N_MEMBERS]] = length, ranking, len(names)
        arena.layout[kernels.RUN_MEMBER] = apart(kernels.run_member, 7).address
        fields, voters = arena[kernels.MEMBERS], arena[kernels.VOTERS]
        fields[:, kernels.KIND] = [MEMBERS[name][0] for name in names]
        fields[:, kernels.ON_RANKS] = [MEMBERS[name][3] for name in names]
        fields[:, kernels.HEADS] = n_heads
        fields[:, kernels.FIRST] = np.cumsum([0, *n_heads[:-1]])
        voters[:, kernels.VOTE] = 1.0 / len(voters)
        arena[layout.PARAMS][kernels.POWER] = 1.0
        arena[kernels.STACK][sum(n_heads)] = 1.0
        arena[kernels.ORDER][[order.POWER, order.RAISE]] = 1.0
        arena[kernels.ORDER][[*range(order.RECENT, order.RECENT + order.ORDERS), order.LAST_KEY]] = -1.0
        self._set_params(arena)
        return arena

    def _set_params(self, arena: JoinedArena) -> None:
        params = arena[layout.PARAMS]
        params[kernels.VOTE_DECAY], params[kernels.SEED] = 1.0 - 1.0 / self.horizon, self.seed
        sharpness = [s for template in self._templates() for s in template.sharpness]
        arena[kernels.VOTERS][:, kernels.SHARPNESS] = sharpness

    def _make_room(self) -> None:
        prepared = self._n_prepared
        super()._make_room()
        # Indicators stay as they are among ranks, too.
        new = slice(prepared, self._n_prepared)
        stats, ranked = self._arena[layout.STATS], self._arena[0, layout.STATS]
        indicators = stats[layout.DUE, new] < 0.0
        ranked[layout.DUE, new][indicators], ranked[layout.SCALE, new][indicators] = -1.0, 1.0

    @property
    def _changing(self) -> dict[Any, tuple[int, ...]]:  # type: ignore[override]
        own = {
            layout.PARAMS: (layout.SEEN, kernels.POWER, kernels.RIGHT_NOW, kernels.RIGHT_LONG),
            (0, layout.PARAMS): (layout.SEEN,),
        }
        return own | {(i, layout.PARAMS): part.changing for i, part in enumerate(self._templates(), start=1)}

    @property
    def _saved(self) -> dict[str, Any]:  # type: ignore[override]
        saved: dict[str, Any] = {
            "params": layout.PARAMS,
            "stats": layout.STATS,
            "votes": kernels.VOTERS,
            "naps": kernels.NAPS,
            "stack": kernels.STACK,
            "order": kernels.ORDER,
            "order.counts": kernels.COUNTS,
            "order.notes": kernels.NOTES,
            "ranks.params": (0, layout.PARAMS),
            "ranks.stats": (0, layout.STATS),
            "ranks.ring": (0, layout.RING),
            "ranks.ranks": (0, layout.RANKS),
        }
        for i, template in enumerate(self._templates(), start=1):
            saved |= {f"{i}.{name}": (i, section) for name, section in template.saved.items()}
        return saved

    def _settle(self, arena: Arena) -> None:
        assert isinstance(arena, JoinedArena)
        ranks, *members = arena.parts
        base.check_statistics(ranks, self._space)
        for member, template in zip(members, self._templates(), strict=True):
            # A sleeper may not have met the latest classes yet.
            if not 0 <= member.counters[layout.N_CLASSES] <= arena.counters[0, layout.N_CLASSES]:
                raise ArchiveError("a member knows other classes than the blend")
            template.settle(member)
        _check_order(arena)
        params, voters = arena[layout.PARAMS], arena[kernels.VOTERS]
        base.within("the power of probabilities", params[kernels.POWER], kernels.LEAST_POWER, kernels.MOST_POWER)
        base.within("votes", voters[:, [kernels.ACCURACY, kernels.VOTE]], 0.0, 1.0)
        base.within("accuracies", params[[kernels.RIGHT_NOW, kernels.RIGHT_LONG]], 0.0, 1.0)
        base.within("weights of heads", arena[kernels.STACK], -stack.MOST_WEIGHT, stack.MOST_WEIGHT)
        if not np.isin(arena[kernels.NAPS][:, kernels.ASLEEP], (0.0, 1.0)).all():
            raise ArchiveError("members either sleep or do not")
        self._set_params(arena)

    def memory_bytes(self, n_features: int | None = None, n_classes: int | None = None) -> int:
        """The memory of a model of so many columns and classes; None: of those it has room for now.

        Nothing else grows with the stream, but the names of columns and the labels.

        Examples
        --------
        >>> StreamSVMClassifier().memory_bytes(n_features=20, n_classes=4) < 1e6
        True
        """
        columns, classes = self._room
        if n_features is not None:
            base.check_number("n_features", n_features, 1, whole=True)
            columns = max(min(16, self.max_features), min(base.roomy(n_features), self.max_features))
        if n_classes is not None:
            base.check_number("n_classes", n_classes, 1, whole=True)
            classes = max(2, base.roomy(n_classes))
        arena = self._new_arena(columns, classes) if (columns, classes) != self._room else self._arena
        return int(arena.values.nbytes + arena.layout.nbytes)

    def _spread(self) -> None:
        """Predicting has done it."""

    # Threads -----------------------------------------------------------------------------------------------------

    def _run_rows(self, *rows: Any) -> None:
        n_threads, n_rows = min(self.threads, len(self._members())), rows[4].size - 1
        if n_threads == 1 or n_rows == 1:
            super()._run_rows(*rows)
            return
        self._share_members(n_threads)
        request = kernels.Request(*rows)
        do: Callable[..., int] = kernels.run_request
        executor, done, arena = _executor(n_threads - 1), 0, rows[:2]
        while done < n_rows:
            request.fields[kernels.FIRST_ROW] = done
            n = do(*arena, kernels.SCALE)
            if n < 0:
                break
            request.fields[kernels.N_BLOCK] = n
            others = [executor.submit(do, *arena, kernels.LEARN + thread) for thread in range(1, n_threads)]
            do(*arena, kernels.LEARN)
            for other in others:
                other.result()
            done = do(*arena, kernels.VOTE_ON)
        request.clear()

    def _share_members(self, n_threads: int) -> None:
        """Give each member a thread: the one that costs most first, to the thread that has least to do."""
        fields, naps = self._arena[kernels.MEMBERS], self._arena[kernels.NAPS]
        asleep = naps[:, kernels.ASLEEP] > 0.0
        costs = np.array([template.cost for template in self._templates()]) / np.where(asleep, kernels.NAP_SAMPLE, 1)
        loads = np.zeros(n_threads)
        for i in np.argsort(-costs, kind="stable"):
            thread = int(loads.argmin())
            fields[i, kernels.THREAD] = thread
            loads[thread] += costs[i]

    # What it knows -----------------------------------------------------------------------------------------------

    def leaders(self) -> list[dict[str, Any]]:
        """All heads, the leading first: member, head, recent accuracy, share of the vote, and whether it sleeps.

        Examples
        --------
        >>> model = StreamSVMClassifier()
        >>> for i in range(100):
        ...     model.learn_one({"a": float(i % 2)}, i % 2)
        >>> sorted(model.leaders()[0])
        ['accuracy', 'asleep', 'head', 'member', 'vote']
        """
        # Accuracies start from 0 and are not yet there.
        n, caution = self.n_events_learned, kernels.VOTE_CAUTION
        n_first = min(n, max(self.horizon - caution, 0.0))
        reached = 1.0 - caution / (n_first + caution) * (1.0 - 1.0 / self.horizon) ** (n - n_first)
        voters = self._arena[kernels.VOTERS]
        heads = [
            (name, head, bool(nap[kernels.ASLEEP]))
            for name, template, nap in zip(self._members(), self._templates(), self._arena[kernels.NAPS], strict=True)
            for head in template.heads
        ]
        rows = [
            {
                "member": member,
                "head": head,
                "accuracy": min(float(fields[kernels.ACCURACY]) / reached, 1.0) if n else 0.0,
                "vote": float(fields[kernels.VOTE]),
                "asleep": asleep,
            }
            for (member, head, asleep), fields in zip(heads, voters, strict=True)
        ]
        return sorted(rows, key=lambda row: -row["vote"])

    @property
    def relevance(self) -> dict[Any, float]:
        """The part of each column in the kernel members' distances, by name, the most relevant first.

        Geometric means over these members, weighted by their votes; empty where there is none.
        """
        n = min(len(self._space), KERNEL_COLUMNS)
        total, thetas = 0.0, np.zeros(n)
        for i, vote in self._kernel_votes():
            thetas += (vote + 1e-12) * self._arena[i, budgeted.METRIC][budgeted.THETA, :n]
            total += vote + 1e-12
        if total == 0.0:
            return {}
        values = np.exp(thetas / total)
        space = self._space
        return {
            space.names[j]: float(values[j]) for j in np.argsort(-values, kind="stable") if not space.is_dead(int(j))
        }

    def nearest(self, x: dict[Hashable, Any], n: int = 5) -> list[dict[str, Any]]:
        """The support vectors most like an event, in the leading kernel member: what its prediction rests on.

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
        base.check_number("n", n, 1, whole=True)
        votes = self._kernel_votes()
        if not votes:
            return []
        self._run(base.one_row(*self._space.encode_event(x, learn=False)), predict=False)
        i, _ = max(votes, key=lambda vote: vote[1])
        fields = self._arena[kernels.MEMBERS][i - 1]
        n_classes, n_vectors = (int(self._arena.counters[1 + i, c]) for c in (layout.N_CLASSES, budgeted.N_VECTORS))
        similarity = self._arena[i, budgeted.KERNEL][:n_vectors]
        heads = self._arena[i, budgeted.HEADS]
        # Vectors that only heads with little to say have asked for are those heads' to label.
        weights = (heads[:, budgeted.VOTE] + 1e-6) * heads[:, budgeted.A] / heads[:, budgeted.RATE]
        coefs = np.tensordot(weights, self._arena[i, budgeted.COEFS][:, :n_classes, :n_vectors], 1)
        vectors = self._arena[i, budgeted.VECTORS]
        return [
            {
                "similarity": float(similarity[b]),
                "label": self.classes_[int(coefs[1, b] > 0.0) if n_classes == 2 else int(coefs[:, b].argmax())],
                "features": {
                    self._space.names[j]: self._unscaled(int(j), float(vectors[j, b]), bool(fields[kernels.ON_RANKS]))
                    for j in np.flatnonzero(vectors[: len(self._space), b])
                    if not self._space.is_dead(int(j))
                },
            }
            for b in np.argsort(-similarity, kind="stable")[:n]
        ]

    @property
    def order_trust(self) -> float:
        """How far the order of labels is trusted: the power of what it says, 0 while it is not heard.

        Examples
        --------
        >>> model = StreamSVMClassifier()
        >>> for i in range(500):
        ...     model.learn_one({"a": 1.0}, i % 5)
        >>> model.order_trust > 0.0, model.predict_one({"a": 1.0})
        (True, 0)
        """
        fields = self._arena[kernels.ORDER]
        return float(fields[order.TRUST]) if order.is_heard(fields) else 0.0

    def order_effect(self) -> dict[str, float] | None:
        """What the order of labels does of late; None without `label_order`.

        Returns
        -------
        dict
            `trust`, as `order_trust`; the log loss of the probabilities `without` the order, and `with` it.

        Examples
        --------
        >>> model = StreamSVMClassifier()
        >>> for i in range(500):
        ...     model.learn_one({"a": 1.0}, i % 5)
        >>> effect = model.order_effect()
        >>> effect["with"] < effect["without"]
        True
        """
        if not self.label_order:
            return None
        fields, n = self._arena[kernels.ORDER], self.n_events_learned
        reached = 1.0 - (1.0 - order.LOSS_RATE) ** n if n else 1.0  # losses start from 0 and are not yet there
        losses = {"without": fields[order.PLAIN_LOSS], "with": fields[order.ORDERED_LOSS]}
        return {"trust": self.order_trust} | {name: float(loss) / reached for name, loss in losses.items()}

    def _kernel_votes(self) -> list[tuple[int, float]]:
        """The kernel members' parts of the arena, and their shares of the vote."""
        members, votes = self._arena[kernels.MEMBERS], self._arena[kernels.VOTERS][:, kernels.VOTE]
        return [
            (i, float(votes[int(fields[kernels.FIRST]) :][: int(fields[kernels.HEADS])].sum()))
            for i, fields in enumerate(members, start=1)
            if fields[kernels.KIND] == kernels.KERNEL
        ]

    def _unscaled(self, j: int, z: float, ranked: bool) -> float:
        """A scaled value of column j in the units of the stream."""
        stats = self._arena[0, layout.STATS] if ranked else self._arena[layout.STATS]
        if ranked and j < base.RANKED_MOST and stats[layout.CENTRED, j] > 0.0:
            held = self._arena[0, layout.RANKS][j, : int(min(stats[layout.PRESENT, j], RANKS_WINDOW))]
            return float(np.quantile(held, min(max(z / math.sqrt(12.0) + 0.5, 0.0), 1.0)))
        scale = stats[layout.SCALE, j]
        return float(z / scale + stats[layout.SHIFT, j]) if scale > 0.0 else float(stats[layout.SHIFT, j])


# Members ----------------------------------------------------------------------------------------------------------


class _Template(Protocol):
    """What the blend must know of a member: its memory, its heads, and how sharp each is."""

    heads: list[str]
    sharpness: list[float]
    saved: dict[str, int]
    changing: tuple[int, ...]
    cost: float  # about, in support vectors

    @property
    def n_heads(self) -> int: ...

    def new_arena(self, n_columns: int, n_classes: int) -> Arena: ...

    def settle(self, arena: Arena) -> None: ...


# Sections of a member that stay empty, because scaling is the blend's.
_NOT_OWN = ("stats", "ring", "ranks")


class _KernelMember:
    def __init__(self, budget: int, gamma_factor: float) -> None:
        self._learner = BSGDClassifier(
            budget=budget, gamma_factor=gamma_factor, heads=HEADS, scaling="none", absorb=0.95, max_features=1
        )
        self.heads = [f"{loss} {rate:g}" for loss, rate in HEADS]
        self.n_heads = len(HEADS)
        self.sharpness = [budgeted.HINGE_SHARPNESS if loss == "hinge" else 1.0 for loss, _ in HEADS]
        self.saved = {name: i for name, i in BSGDClassifier._saved.items() if name not in _NOT_OWN}
        self.changing = BSGDClassifier._changing[layout.PARAMS]
        self.cost = float(budget)

    def new_arena(self, n_columns: int, n_classes: int) -> Arena:
        return self._learner._new_arena(min(n_columns, KERNEL_COLUMNS), n_classes)

    def settle(self, arena: Arena) -> None:
        self._learner._settle(arena)


class _PolytopeMember:
    def __init__(self) -> None:
        self._learner = CPMClassifier(scaling="none", max_features=1)
        self.heads = ["hinge"]
        self.n_heads = 1
        self.sharpness = [2.0]
        self.saved = {name: i for name, i in CPMClassifier._saved.items() if name not in _NOT_OWN}
        self.changing = CPMClassifier._changing[layout.PARAMS]
        self.cost = 20.0

    def new_arena(self, n_columns: int, n_classes: int) -> Arena:
        return self._learner._new_arena(n_columns, n_classes)

    def settle(self, arena: Arena) -> None:
        self._learner._settle(arena)


class _LinearMember:
    def __init__(self) -> None:
        self.heads = [f"log {rate:g}" for rate in LINEAR_RATES]
        self.n_heads = len(LINEAR_RATES)
        self.sharpness = [1.0] * len(LINEAR_RATES)
        self.saved = {"params": layout.PARAMS, "weights": kernels.WEIGHTS}
        self.changing: tuple[int, ...] = (layout.SEEN,)
        self.cost = 10.0

    def new_arena(self, n_columns: int, n_classes: int) -> Arena:
        n = self.n_heads
        arena = Arena(
            [
                *base.common_shapes(n_columns, n_classes, layout.LIMIT + 1, 0),
                (n_columns + 1, n, n_classes),
                (n,),
                (n, n_classes),
                (n, n_classes),
            ],
            n_columns,
        )
        arena[kernels.RATES][:] = LINEAR_RATES
        return arena

    def settle(self, arena: Arena) -> None:
        base.within("weights", arena[kernels.WEIGHTS], -MOST_WEIGHT, MOST_WEIGHT)


@cache
def _executor(n_threads: int) -> ThreadPoolExecutor:
    """Threads for all models: nothing a model would have to copy or save, and no more of them than asked for."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="streamsvm")


# A child process has the executor, but not its threads.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_executor.cache_clear)


@cache
def _template(kind: int, budgets: int, gamma_factor: float, budget: int) -> _Template:
    if kind == kernels.KERNEL:
        return _KernelMember(budgets * budget, gamma_factor)
    return _PolytopeMember() if kind == kernels.POLYTOPE else _LinearMember()


def _check_order(arena: Arena) -> None:
    """Refuse what no order of labels can have left in an archive."""
    fields, notes = arena[kernels.ORDER], arena[kernels.NOTES]
    base.within("the order of labels", fields[order.POWER], order.LEAST_POWER, order.MOST_POWER)
    base.within("the order of labels", fields[order.TRUST], 0.0, order.MOST_TRUST)
    base.within("the order of labels", fields[order.RAISE], 1.0, order.LARGE)
    base.within("the order of labels", arena[kernels.COUNTS], 0.0, math.inf)
    most = len(notes) // order.NOTE_FIELDS
    base.within("notes of predictions", fields[[order.OLDEST, order.N_NOTES, order.N_FRESH]], 0.0, order.NOTES)
    base.within("notes of predictions", fields[order.N_LOST], 0.0, base.MOST_EVENTS)
    base.within("notes of predictions", fields[order.DISTINCT], 0.0, 1.0)
    labels = [*fields[order.RECENT : order.RECENT + order.ORDERS], *notes[most : most * (1 + order.ORDERS)]]
    # Places of notes that were never written hold the class 0, even where there is none yet.
    base.within("labels in order", np.array(labels), -1.0, max(arena[kernels.COUNTS].shape[1] - 1.0, 0.0))


def _check_members(members: Any) -> None:
    if not isinstance(members, tuple) or not members:
        raise TypeError(f"`members` must be a tuple of names or None, got {members!r}")
    for i, name in enumerate(members):
        base.check_choice(f"members[{i}]", name, tuple(MEMBERS))
