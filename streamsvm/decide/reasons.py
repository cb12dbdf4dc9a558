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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.decide.arrays import Floats
from streamsvm.parameters import check_number

Masks = NDArray[np.bool_]
MOST = 64
"""So many features are told apart, the most relevant ones; the others are taken together."""
OTHERS = "all others"
EVALUATIONS = 512
_LEAST_PROBABILITY = 1e-9


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a feature adds.

    Parameters
    ----------
    feature, value
        Its name, and its value; of several together no value.
    adds
        To the log-odds of the label against the next one.
    error
        How far that may be off: a standard error, 0 where it is exact.
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
    if n == 0:
        return np.zeros(0), np.zeros(0), float(worth(np.zeros((1, 0), bool))[0])
    if 2**n <= max(evaluations, 4):
        return _exact(worth, n)
    n_pairs = max(1, (evaluations - 2) // (2 * (n - 1)))
    rng = np.random.default_rng(seed)
    drawn = np.array([rng.permutation(n) for _ in range(n_pairs)])
    orders = np.stack([drawn, drawn[:, ::-1]], axis=1).reshape(-1, n)
    ranks = np.argsort(orders, axis=1)
    # Row k of a permutation's block has the first k of its players.
    masks = (ranks[:, None, :] < np.arange(n + 1)[None, :, None]).reshape(-1, n)
    inner = np.tile(np.arange(n + 1) % n > 0, len(orders))
    ends = worth(np.array([np.zeros(n, bool), np.ones(n, bool)]))
    flat = np.empty(len(masks))
    flat[inner] = worth(masks[inner])
    found = flat.reshape(len(orders), n + 1)
    found[:, 0], found[:, n] = ends
    gains = np.take_along_axis(np.diff(found, axis=1), ranks, axis=1)
    pairs = gains.reshape(n_pairs, 2, n).mean(axis=1)
    errors = pairs.std(axis=0, ddof=1) / math.sqrt(n_pairs) if n_pairs > 1 else np.full(n, np.nan)
    return pairs.mean(axis=0), errors, float(ends[0])


def _exact(worth: Callable[[Masks], Floats], n: int) -> tuple[Floats, Floats, float]:
    numbers = np.arange(2**n)
    masks = numbers[:, None] >> np.arange(n) & 1 > 0
    found, sizes = worth(masks), masks.sum(axis=1)
    weights = np.array([math.factorial(s) * math.factorial(n - s - 1) for s in range(n)]) / math.factorial(n)
    values = np.zeros(n)
    for i in range(n):
        without = numbers[~masks[:, i]]
        values[i] = (weights[sizes[without]] * (found[without | 1 << i] - found[without])).sum()
    return values, np.zeros(n), float(found[0])


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
    present = [name for name, value in x.items() if value is not None and value == value]
    rank = {name: i for i, name in enumerate(ordered)}
    names = sorted(present, key=lambda name: rank.get(name, len(rank)))
    groups = [[name] for name in names[:most]] + ([names[most:]] if len(names) > most else [])

    def odds(masks: Masks) -> Floats:
        rows = [{n: x[n] for group, is_in in zip(groups, mask, strict=True) if is_in for n in group} for mask in masks]
        return _log_odds(peek(rows), a, b)

    values, errors, base = shapley(odds, len(groups), evaluations)
    found = [
        Contribution(
            group[0] if len(group) == 1 else OTHERS,
            x[group[0]] if len(group) == 1 else None,
            float(value),
            float(error),
        )
        for group, value, error in zip(groups, values, errors, strict=True)
    ]
    score = float(_log_odds(first[None], a, b)[0])
    return Reasons(classes[a], classes[b], score, base, largest_first(found))


def largest_first(contributions: list[Contribution]) -> list[Contribution]:
    """In the order in which they are told."""
    return sorted(contributions, key=lambda one: -abs(one.adds))


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

    def explain_one(self, x: dict[Hashable, Any], evaluations: int = EVALUATIONS, nearest: int = 3) -> Reasons | None:
        """What each feature adds to the log-odds of the predicted label against the next one.

        The contributions are Shapley values, where a feature that is left out is missing, and add up; see
        `streamsvm.decide.reasons` for when they are exact. Nothing is learned, and no trace is left. Where labels are
        noisy, these are the log-odds of labels that are not noise: what noise takes from probabilities is no feature's.

        Parameters
        ----------
        x
            Features by name.
        evaluations
            About so many variants of the event are asked about: with up to log2 of that many features, 9 by default,
            all of them, so that the contributions are exact.
        nearest
            How many support vectors to tell beside, where the classifier has any.

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
        reasons = self._reasons(x, evaluations)
        remember = getattr(self, "nearest", None)
        if reasons is not None and nearest and remember is not None:
            reasons.nearest.extend(remember(x, nearest))
        return reasons

    @property
    def noise(self) -> float:
        """The share of labels that are taken for noise: no probability is surer than that leaves it; 0 for none."""
        return 0.0

    def _reasons(self, x: dict[Hashable, Any], evaluations: int) -> Reasons | None:
        ordered = by_relevance(x, getattr(self, "relevance", {}))
        noise = self.noise

        def peek(rows: list[dict[Any, Any]]) -> Floats:
            return without_noise(self.peek_proba_many(rows), noise)

        return explain(peek, x, self.classes_, ordered=ordered, evaluations=evaluations)


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
