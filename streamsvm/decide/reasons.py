"""Explanations: the contribution of each feature to the log-odds of a label.

The log-odds compare the label with the most probable other one. The contributions are their Shapley values, where a
feature that is left out is missing. They add up to the difference between the log-odds of the event and of an event
without features. With few features, all subsets are evaluated and the values are exact. With more features,
permutations are drawn, each together with its reverse. About 90 % of the values are then within two standard errors.
For additive models, such as linear ones, any permutation gives the exact values.

Notes
-----
E. Štrumbelj and I. Kononenko, "Explaining prediction models and individual predictions with feature contributions",
Knowledge and Information Systems 41, 2014 (sampling permutations); R. Mitchell et al., "Sampling permutations for
Shapley value estimation", JMLR 23, 2022 (antithetic ones).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import Floats
from streamsvm.features.values import encoding_error, with_times
from streamsvm.labels import is_nan
from streamsvm.locks import locked
from streamsvm.names import feature
from streamsvm.parameters import check_number

Masks = NDArray[np.bool_]
Groups = Sequence[Sequence[Any]]
MOST = 64
"""Maximum number of features with separate contributions.

These are the most relevant features; the others count as one.
"""
OTHERS = "all others"
EVALUATIONS = 128
_LEAST_PROBABILITY = 1e-9


class Contribution(NamedTuple):
    """Contribution of a feature.

    Parameters
    ----------
    feature, value
        Name and value; several features together have no value. A missing value that has a column of its own has the
        name `(name, None)`.
    adds
        Contribution to the log-odds of the label against the most probable other one.
    error
        Standard error of the contribution; 0 if it is exact, NaN if there were too few evaluations for an estimate.
    """

    feature: Any
    value: Any
    adds: float
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class Reasons:
    """Explanation of a prediction: `score` is `base` plus all contributions.

    Parameters
    ----------
    label, against
        The explained label, and the most probable other one.
    score
        Log-odds of `label` against `against`.
    base
        Log-odds of an event without features.
    contributions
        Contributions of the features, the largest first.
    nearest
        The nearest support vectors, see `nearest` of the classifier; empty if it has none.
    """

    label: Any
    against: Any
    score: float
    base: float
    contributions: list[Contribution]
    nearest: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the explanation as text.

        Examples
        --------
        >>> print(Reasons("up", "down", 1.5, 0.2, [Contribution("a", 3.0, 1.3)]))
        up rather than down: +1.50
          without features +0.20
          a = 3 adds +1.30
        """
        lines = [f"{self.label} rather than {self.against}: {self.score:+.2f}", f"  without features {self.base:+.2f}"]
        for one in self.contributions:
            value = f"{one.value:g}" if isinstance(one.value, float) else str(one.value)
            lines.append(f"  {feature(one.feature)}{'' if one.value is None else f' = {value}'} adds {one.adds:+.2f}")
        return "\n".join(lines)


def shapley(worth: Callable[[Masks], Floats], n: int, evaluations: int = EVALUATIONS) -> tuple[Floats, Floats, float]:
    """Compute Shapley values.

    Parameters
    ----------
    worth
        The worth of coalitions, given as masks of shape (m, n). The first is empty, the last has all players.
    n
        Number of players.
    evaluations
        Approximate number of coalitions to evaluate, at least 2 n.

    Returns
    -------
    values, errors : ndarray of float64, shape (n,)
        The Shapley values of the players and their standard errors.
    base : float
        The worth of the empty coalition.

    Examples
    --------
    >>> values, errors, base = shapley(lambda masks: 1.0 + masks @ [1.0, 2.0] + masks.all(axis=1), 2)
    >>> values.tolist(), base
    ([1.5, 2.5], 1.0)
    """
    if 2**n <= max(evaluations, 4):
        masks, weights = _all_coalitions(n)
        found = worth(masks)
        return weights @ found, np.zeros(n), float(found[0])
    masks, ranks = _permutations(n, max(1, (evaluations - 2) // (2 * (n - 1))))
    found = worth(masks)
    worths = np.empty((len(ranks), n + 1))
    worths[:, 0], worths[:, -1], worths[:, 1:-1] = found[0], found[-1], found[1:-1].reshape(len(ranks), -1)
    gains = np.take_along_axis(np.diff(worths, axis=1), ranks, axis=1)
    pairs = 0.5 * (gains[::2] + gains[1::2])  # of a permutation and its reverse
    n_pairs = len(pairs)
    errors = pairs.std(axis=0, ddof=1) / math.sqrt(n_pairs) if n_pairs > 1 else np.full(n, np.nan)
    return pairs.mean(axis=0), errors, float(found[0])


@lru_cache(maxsize=64)
def _all_coalitions(n: int) -> tuple[Masks, Floats]:
    """Return all 2^n coalitions as masks, and their weights for each player."""
    masks = (np.arange(2**n)[:, None] >> np.arange(n)) % 2 > 0
    sizes = masks.sum(axis=1)
    weights = np.array([math.factorial(s) * math.factorial(n - s - 1) for s in range(n)]) / math.factorial(n)
    own, other = np.append(0.0, weights)[sizes], np.append(weights, 0.0)[sizes]
    return masks, np.where(masks, own[:, None], -other[:, None]).T.copy()


@lru_cache(maxsize=64)
def _permutations(n: int, n_pairs: int) -> tuple[Masks, NDArray[np.int64]]:
    """Return coalitions along permutations, and the rank of each player.

    Each permutation is followed by its reverse. The first coalition is empty and the last one has all players; both
    belong to all permutations.
    """
    rng = np.random.default_rng(0)  # explanations of equal events are equal
    drawn = np.array([rng.permutation(n) for _ in range(n_pairs)])
    ranks = np.argsort(np.stack([drawn, drawn[:, ::-1]], axis=1).reshape(-1, n), axis=1)
    inner = ranks[:, None, :] < np.arange(1, n)[:, None]
    return np.concatenate([np.zeros((1, n), bool), inner.reshape(-1, n), np.ones((1, n), bool)]), ranks


def explain(
    peek: Callable[[list[dict[Any, Any]]], Floats], x: Mapping[Any, Any], classes: Sequence[Any], **options: Any
) -> Reasons | None:
    """Explain a prediction of any model with probabilities.

    Parameters
    ----------
    peek
        Function that returns the probabilities of rows, shape (n, n_classes).
    x
        Features of the event by name.
    classes
        The labels, in the order of the probabilities.
    options
        See `explain_by`.

    Returns
    -------
    Reasons or None
        None if there are fewer than two classes.
    """
    x = {name: x[name] for name in present(x)}
    return explain_by(lambda groups, masks: peek(variants(x, groups, masks)), x, classes, **options)


def explain_by(
    of_variants: Callable[[Groups, Masks], Floats],
    x: Mapping[Any, Any],
    classes: Sequence[Any],
    *,
    label: Any = None,
    ordered: Sequence[Any] = (),
    most: int = MOST,
    evaluations: int = EVALUATIONS,
) -> Reasons | None:
    """Explain a prediction, given a function of masks of features.

    Parameters
    ----------
    of_variants
        Function of groups of features and n masks. It returns the probabilities of the event with only the groups of
        each mask, shape (n, n_classes).
    x
        Features by name; missing values of only those features whose missing values have columns of their own.
    classes
        See `explain`.
    label
        The label to explain; None for the most probable one.
    ordered
        Features in order of relevance. Needed only if there are more than `most`.
    most
        Maximum number of features with separate contributions; the others count as one.
    evaluations
        Approximate number of rows to evaluate.

    Returns
    -------
    Reasons or None
        None if there are fewer than two classes.
    """
    if len(classes) < 2:
        return None
    rank = {name: i for i, name in enumerate(ordered)}
    names = sorted(x, key=lambda name: rank.get(name, len(rank)))
    groups = [[name] for name in names[:most]] + ([names[most:]] if len(names) > most else [])
    a = b = 0
    score = 0.0

    def odds(masks: Masks) -> Floats:
        nonlocal a, b, score
        proba = of_variants(groups, masks)
        whole = proba[-1]
        a = classes.index(label) if label in classes else int(whole.argmax())
        b = int(np.where(np.arange(len(whole)) == a, -1.0, whole).argmax())
        found = _log_odds(proba, a, b)
        score = float(found[-1])
        return found

    values, errors, base = shapley(odds, len(groups), evaluations)
    found = [
        Contribution(name, value, add, error)
        for (name, value), add, error in zip(
            (_named(group, x) for group in groups), values.tolist(), errors.tolist(), strict=True
        )
    ]
    return Reasons(classes[a], classes[b], score, base, sorted(found, key=lambda one: -abs(one.adds)))


def _named(group: Sequence[Any], x: Mapping[Any, Any]) -> tuple[Any, Any]:
    """Return name and value of a group."""
    if len(group) > 1:
        return OTHERS, None
    (name,) = group
    return (name, x[name]) if present({name: x[name]}) else ((name, None), None)


def present(x: Mapping[Any, Any]) -> list[Any]:
    """Return the features for which an event has a value."""
    return [name for name, value in x.items() if value is not None and not is_nan(value)]


def variants(x: Mapping[Any, Any], groups: Groups, masks: Masks) -> list[dict[Any, Any]]:
    """Return the event with only the features of some groups, one row per mask."""
    return [{n: x[n] for group, is_in in zip(groups, mask, strict=True) if is_in for n in group} for mask in masks]


def _log_odds(proba: Floats, a: int, b: int) -> Floats:
    logs = np.log(np.clip(proba[:, [a, b]], _LEAST_PROBABILITY, 1.0))
    found: Floats = logs[:, 0] - logs[:, 1]
    return found


class Explains:
    """Base of classifiers that explain their predictions."""

    @property
    @abstractmethod
    def classes_(self) -> list[Any]:
        """The labels learned, in order of first arrival."""

    @abstractmethod
    def peek_proba_many(self, X: Any) -> Floats:
        """Return the probabilities of rows, without counting as predictions."""

    @locked
    def explain_one(
        self, x: dict[Any, Any], evaluations: int = EVALUATIONS, nearest: int = 3, label: Any = None
    ) -> Reasons | None:
        """Explain a prediction by the contribution of each feature to the log-odds.

        The log-odds are of a label, by default the predicted one, against the most probable other label. The
        contributions are Shapley values; see `streamsvm.decide.reasons` for when they are exact. The model does not
        change. The log-odds exclude label noise and, in a `StreamSVMClassifier`, label autocorrelation, because these
        are not effects of features.

        Parameters
        ----------
        x
            Features by name.
        evaluations
            Approximate number of variants of the event to evaluate. The contributions are exact for up to
            log2(evaluations) features, 7 by default.
        nearest
            Number of nearest support vectors to add, if the classifier has any.
        label
            The label to explain; None or an unknown label for the predicted one.

        Returns
        -------
        Reasons or None
            None while fewer than two labels are known.

        Raises
        ------
        TypeError, ValueError
            If the event is not a mapping, or for a value that is infinite or not a number, string or None.

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
        if not hasattr(x, "items"):
            raise TypeError(encoding_error(x))
        x = with_times(x) or x
        columns = getattr(self, "columns", ())
        gaps = {name[0] for name in columns if isinstance(name, tuple) and name[1:] == (None,)}
        x = {name: x[name] for name in x if name in gaps} | {name: x[name] for name in present(x)}
        ordered = by_relevance(x, getattr(self, "relevance", {})) if len(x) > MOST else ()

        def of_variants(groups: Groups, masks: Masks) -> Floats:
            return without_noise(self._peek_variants(x, groups, masks), self.noise)

        reasons = explain_by(of_variants, x, self.classes_, label=label, ordered=ordered, evaluations=evaluations)
        if reasons is not None and nearest and hasattr(self, "nearest"):
            reasons.nearest.extend(self.nearest(x, nearest))
        return reasons

    @property
    def noise(self) -> float:
        """Estimated share of random labels, which caps every probability; 0 for none."""
        return 0.0

    def _peek_variants(self, x: Mapping[Any, Any], groups: Groups, masks: Masks) -> Floats:
        """Return the probabilities of variants of an event, see `variants`."""
        return self.peek_proba_many(variants(x, groups, masks))


def without_noise(proba: Floats, noise: float) -> Floats:
    """Remove the share of random labels from probabilities.

    Examples
    --------
    >>> without_noise(np.array([[0.5 * 0.9 + 0.5 / 2.0, 0.5 * 0.1 + 0.5 / 2.0]]), 0.5).round(9).tolist()
    [[0.9, 0.1]]
    """
    return np.maximum(proba - noise / max(proba.shape[1], 1), 0.0) / (1.0 - noise) if noise else proba


def by_relevance(x: Mapping[Any, Any], relevance: Mapping[Any, float]) -> list[Any]:
    """Return the features of an event, the most relevant first.

    The relevance of a categorical feature is the relevance of its string.
    """

    def of(name: Any) -> float:
        value = x[name]
        return relevance.get((name, value), 0.0) if isinstance(value, str) else relevance.get(name, 0.0)

    return sorted(x, key=lambda name: -of(name))
