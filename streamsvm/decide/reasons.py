"""Why an event is predicted as it is: what each of its features adds to the log-odds of a label against the next.

The contributions are Shapley values of the log-odds, where a feature that is left out is missing: they add up to how
far the event's log-odds are from those of an event of which nothing is known. With few features all subsets are asked
about, and they are exact; with more, permutations are drawn, each together with its reverse, and for each feature the
standard error says how far off they may be: nine in ten are within twice of it. Where features add up without one
another, as in a linear model, any permutation is exact. In a blend the scores of each member go through a softmax
before they vote: there even polytopes have no closed form, and are sampled.

Notes
-----
E. Štrumbelj and I. Kononenko, "Explaining prediction models and individual predictions with feature contributions",
Knowledge and Information Systems 41, 2014 (sampling permutations); R. Mitchell et al., "Sampling permutations for
Shapley value estimation", JMLR 23, 2022 (antithetic ones).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.decide.arrays import Floats
from streamsvm.features.datetimes import with_times
from streamsvm.locks import locked
from streamsvm.parameters import check_number

Masks = NDArray[np.bool_]
MOST = 64
"""So many features are told apart, the most relevant ones; the others are taken together."""
OTHERS = "all others"
SEVERAL, NO_COLUMN = -1, -2
"""In place of a column: that of several features together, and of none."""
EVALUATIONS = 128
_LEAST_PROBABILITY = 1e-9


class Contribution(NamedTuple):
    """What a feature adds.

    Parameters
    ----------
    feature, value
        Its name, and its value; of several together no value.
    adds
        To the log-odds of the label against the next one.
    error
        How far that may be off: a standard error, 0 where it is exact, NaN where too few variants were asked about to
        tell.
    """

    feature: Any
    value: Any
    adds: float
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why an event is predicted as it is: `base` and all that is added are the `score`.

    Parameters
    ----------
    label, against
        The label that is explained, and the most probable other one.
    score
        The log-odds of the one against the other.
    base
        Those of an event of which nothing is known.
    contributions
        What each feature adds, the largest first.
    nearest
        The support vectors most like the event, where there are any, as `nearest` has them.
    """

    label: Any
    against: Any
    score: float
    base: float
    contributions: list[Contribution]
    nearest: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        """As a text to be read.

        Examples
        --------
        >>> print(Reasons("up", "down", 1.5, 0.2, [Contribution("a", 3.0, 1.3)]))
        up rather than down: +1.50
          from the outset +0.20
          a = 3 adds +1.30
        """
        lines = [f"{self.label} rather than {self.against}: {self.score:+.2f}", f"  from the outset {self.base:+.2f}"]
        for one in self.contributions:
            value = f"{one.value:g}" if isinstance(one.value, float) else str(one.value)
            lines.append(f"  {one.feature}{'' if one.value is None else f' = {value}'} adds {one.adds:+.2f}")
        return "\n".join(lines)


def shapley(
    worth: Callable[[Masks], Floats], n: int, evaluations: int = EVALUATIONS, seed: int = 0
) -> tuple[Floats, Floats, float]:
    """Shapley values of n players, their standard errors, and what nobody is worth.

    Parameters
    ----------
    worth
        What coalitions are worth: those of masks of shape (m, n).
    n
        How many players.
    evaluations
        About so many coalitions are asked about; 2 n at least.
    seed
        Of the permutations.

    Examples
    --------
    >>> values, errors, base = shapley(lambda masks: 1.0 + masks @ [1.0, 2.0] + masks.all(axis=1), 2)
    >>> values.tolist(), base
    ([1.5, 2.5], 1.0)
    """
    walk = walk_of(n, evaluations, seed)
    found = worth(np.concatenate([np.zeros((1, n), bool), np.ones((1, n), bool), walk.masks]))
    values, errors = walk.values(float(found[0]), float(found[1]), found[2:])
    return values, errors, float(found[0])


class Walk:
    """A walk through coalitions, all but the empty and the whole one, and what their worths say of each player.

    Parameters
    ----------
    n
        How many players there are.
    steps
        For each step the depth of the coalition it adds to, the depth where it holds the new one, and who is added. At
        depth 0 is the empty one.
    """

    def __init__(self, n: int, steps: list[tuple[int, int, int]]) -> None:
        self.n, self.steps = n, np.array(steps, np.int64).reshape(-1, 3)
        self.depths = int(self.steps[:, 1].max(initial=0)) + 1

    @abstractmethod
    def values(self, nothing: float, whole: float, found: Floats) -> tuple[Floats, Floats]:
        """Shapley values and standard errors, by what nobody is worth, what all are, and each step's coalition."""

    @property
    def masks(self) -> Masks:
        """The coalitions, one after the other."""
        held, found = np.zeros((self.depths, self.n), bool), np.zeros((len(self.steps), self.n), bool)
        for mask, (source, target, added) in zip(found, self.steps.tolist(), strict=True):
            held[target] = held[source]
            held[target, added] = True
            mask[:] = held[target]
        return found


class _Exact(Walk):
    """All coalitions, each from the one that lacks its last player."""

    def __init__(self, n: int) -> None:
        steps: list[tuple[int, int, int]] = []

        def go_on(depth: int, first: int) -> None:
            for player in range(first, n):
                if depth + 1 < n:
                    steps.append((depth, depth + 1, player))
                    go_on(depth + 1, player + 1)

        go_on(0, 0)
        super().__init__(n, steps)
        every = np.concatenate([np.zeros((1, n), bool), np.ones((1, n), bool), self.masks])[: 2**n]
        sizes = every.sum(axis=1)
        weights = np.array([math.factorial(s) * math.factorial(n - s - 1) for s in range(n)]) / math.factorial(n)
        # A coalition is what a player of it has joined, and what each other player could.
        own, other = np.append(0.0, weights)[sizes], np.append(weights, 0.0)[sizes]
        self._weights = np.where(every, own[:, None], -other[:, None]).T.copy()

    def values(self, nothing: float, whole: float, found: Floats) -> tuple[Floats, Floats]:
        every = np.concatenate([[nothing, whole], found])[: self._weights.shape[1]]
        return self._weights @ every, np.zeros(self.n)


class _Sampled(Walk):
    """Permutations, each followed by its reverse."""

    def __init__(self, n: int, n_pairs: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        drawn = np.array([rng.permutation(n) for _ in range(n_pairs)])
        orders = np.stack([drawn, drawn[:, ::-1]], axis=1).reshape(-1, n)
        super().__init__(
            n, [(int(k > 0), 1, player) for order in orders.tolist() for k, player in enumerate(order[:-1])]
        )
        self._ranks, self._n_pairs = np.argsort(orders, axis=1), n_pairs

    def values(self, nothing: float, whole: float, found: Floats) -> tuple[Floats, Floats]:
        worths = np.empty((2 * self._n_pairs, self.n + 1))
        worths[:, 0], worths[:, -1], worths[:, 1:-1] = nothing, whole, found.reshape(2 * self._n_pairs, -1)
        gains = np.take_along_axis(worths[:, 1:] - worths[:, :-1], self._ranks, axis=1)
        pairs = 0.5 * (gains[::2] + gains[1::2])
        values = pairs.sum(axis=0) / self._n_pairs
        if self._n_pairs == 1:
            return values, np.full(self.n, np.nan)
        squares = ((pairs - values) ** 2).sum(axis=0)
        return values, np.sqrt(squares / (self._n_pairs * (self._n_pairs - 1)))


@lru_cache(maxsize=64)
def walk_of(n: int, evaluations: int = EVALUATIONS, seed: int = 0) -> Walk:
    """The walk that takes about so many evaluations, the empty and the whole coalition among them.

    Parameters
    ----------
    n
        How many players.
    evaluations
        How many coalitions may be asked about; 2 n at least.
    seed
        Of the permutations.
    """
    if 2**n <= max(evaluations, 4):
        return _Exact(n)
    return _Sampled(n, max(1, (evaluations - 2) // (2 * (n - 1))), seed)


def explain(
    peek: Callable[[list[dict[Any, Any]]], Floats],
    x: Mapping[Any, Any],
    classes: Sequence[Any],
    *,
    label: Any = None,
    ordered: Sequence[Any] = (),
    most: int = MOST,
    evaluations: int = EVALUATIONS,
) -> Reasons | None:
    """What each feature of an event adds, by any model that may be asked for probabilities.

    Parameters
    ----------
    peek
        The probabilities of rows, shape (n, n_classes).
    x
        The event.
    classes
        The labels.
    label
        The one that is explained; None for the most probable one.
    ordered
        Features in the order in which they are told apart, if there are more than `most`.
    most
        So many are; the others are taken together.
    evaluations
        About so many rows are asked about.

    Returns
    -------
    Reasons or None
        None where there are fewer than two classes.
    """
    first = peek([dict(x)])[0]
    if len(first) < 2:
        return None
    a = classes.index(label) if label in classes else int(first.argmax())
    b = int(np.where(np.arange(len(first)) == a, -1.0, first).argmax())
    rank = {name: i for i, name in enumerate(ordered)}
    names = sorted(present(x), key=lambda name: rank.get(name, len(rank)))
    groups = [[name] for name in names[:most]] + ([names[most:]] if len(names) > most else [])

    def odds(masks: Masks) -> Floats:
        rows = [{n: x[n] for group, is_in in zip(groups, mask, strict=True) if is_in for n in group} for mask in masks]
        return _log_odds(peek(rows), a, b)

    values, errors, base = shapley(odds, len(groups), evaluations)
    found = contributions(x, [group[0] if len(group) == 1 else OTHERS for group in groups], values, errors)
    score = float(_log_odds(first[None], a, b)[0])
    return Reasons(classes[a], classes[b], score, base, largest_first(found))


def present(x: Mapping[Any, Any]) -> list[Any]:
    """The features that an event has a value for."""
    return [name for name, value in x.items() if value is not None and value == value]


def contributions(x: Mapping[Any, Any], names: Sequence[Any], adds: Floats, errors: Floats) -> list[Contribution]:
    """What features add, by name, of which `OTHERS` stands for several."""
    found = zip(names, adds.tolist(), errors.tolist(), strict=True)
    return [Contribution(name, None if name is OTHERS else x[name], *numbers) for name, *numbers in found]


def largest_first(found: list[Contribution]) -> list[Contribution]:
    """In the order in which they are told."""
    return sorted(found, key=lambda one: -abs(one.adds))


def _log_odds(proba: Floats, a: int, b: int) -> Floats:
    logs = np.log(np.clip(proba[:, [a, b]], _LEAST_PROBABILITY, 1.0))
    found: Floats = logs[:, 0] - logs[:, 1]
    return found


class Explains:
    """A classifier that says why it predicts what it does."""

    @property
    @abstractmethod
    def classes_(self) -> list[Any]:
        """The labels learned, in order of first arrival."""

    @abstractmethod
    def peek_proba_many(self, X: Any) -> Floats:
        """Probabilities of rows, without a trace."""

    @locked
    def explain_one(
        self, x: dict[Hashable, Any], evaluations: int = EVALUATIONS, nearest: int = 3, label: Any = None
    ) -> Reasons | None:
        """What each feature adds to the log-odds of a label, by default the predicted one, against the next one.

        The contributions are Shapley values, where a feature that is left out is missing, and add up; see
        `streamsvm.decide.reasons` for when they are exact. Nothing is learned, and no trace is left. Where labels are
        noisy, these are the log-odds of labels that are not noise: what noise takes from probabilities is no feature's.

        Parameters
        ----------
        x
            Features by name.
        evaluations
            About so many variants of the event are asked about: with up to log2 of that many features, 7 by default,
            all of them, so that the contributions are exact.
        nearest
            How many support vectors to tell beside, where the classifier has any.
        label
            The label that is explained; None, or one that is not known, for the predicted one.

        Returns
        -------
        Reasons or None
            None as long as fewer than two labels are known.

        Examples
        --------
        >>> from streamsvm import StreamSVMClassifier
        >>> model = StreamSVMClassifier()
        >>> for i in range(200):
        ...     x = {"signal": float(i * 37 % 101), "noise": float(i * 7 % 11)}
        ...     model.learn_one(x, "high" if x["signal"] > 50.0 else "low")
        >>> reasons = model.explain_one({"signal": 90.0, "noise": 3.0})
        >>> reasons.label, reasons.contributions[0].feature
        ('high', 'signal')
        >>> bool(abs(reasons.base + sum(one.adds for one in reasons.contributions) - reasons.score) < 1e-9)
        True
        """
        check_number("evaluations", evaluations, 1, whole=True)
        check_number("nearest", nearest, 0, whole=True)
        x = with_times(x) or x
        reasons = self._reasons(x, evaluations, label)
        if reasons is not None and nearest and hasattr(self, "nearest"):
            reasons.nearest.extend(self.nearest(x, nearest))
        return reasons

    @property
    def noise(self) -> float:
        """The share of labels that are taken for noise: no probability is surer than that leaves it; 0 for none."""
        return 0.0

    def _reasons(self, x: dict[Hashable, Any], evaluations: int, label: Any) -> Reasons | None:
        ordered = by_relevance(x, getattr(self, "relevance", {}))
        noise = self.noise

        def peek(rows: list[dict[Any, Any]]) -> Floats:
            return without_noise(self.peek_proba_many(rows), noise)

        return explain(peek, x, self.classes_, label=label, ordered=ordered, evaluations=evaluations)


def without_noise(proba: Floats, noise: float) -> Floats:
    """The probabilities of labels that are not as if drawn at random, from those of all, of which that is a share.

    Examples
    --------
    >>> without_noise(np.array([[0.5 * 0.9 + 0.5 / 2.0, 0.5 * 0.1 + 0.5 / 2.0]]), 0.5).round(9).tolist()
    [[0.9, 0.1]]
    """
    return np.maximum(proba - noise / max(proba.shape[1], 1), 0.0) / (1.0 - noise) if noise else proba


def by_relevance(x: Mapping[Any, Any], relevance: Mapping[Any, float]) -> list[Any]:
    """The features of an event, the most relevant first; of a category the string it has counts."""

    def of(name: Any) -> float:
        value = x[name]
        return relevance.get((name, value), 0.0) if isinstance(value, str) else relevance.get(name, 0.0)

    return sorted(x, key=lambda name: -of(name))
