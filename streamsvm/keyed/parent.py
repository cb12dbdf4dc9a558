"""What a key begins from: a model of all keys, beside the key's own.

With p the probabilities of the parent and q those of the key's own model, after n events, those of the two are

    r(c) ~ p(c)^a q(c)^(b n / (n + SLOW)) exp(d_c)

where a begins with 1, b and d with 0, and all follow the gradient of the key's log loss: a product of experts, as the
second vote of `StreamSVMClassifier`, and a bias for each class that the key has met. A key that is new answers as its
parent, and listens to its own model as far as that has shown to make the probabilities better.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from streamsvm.ensemble.classifier import StreamSVMClassifier
from streamsvm.loading import load
from streamsvm.models import ArchiveError
from streamsvm.models.saved import innermost
from streamsvm.online.base import OnlineClassifier

# The steps of the exponents and of the biases, how large they may be, and after how many events half of what the key's
# own model says is heard: what it says after a few is too sure.
STEP, BIAS_STEP, MOST, MOST_BIAS, SLOW = 0.02, 0.001, 3.0, 20.0, 100.0
# Neither is ever surer than this that a class is not the one.
LEAST = 0.01


class Vote:
    """How far a key listens to its parent, and to its own model.

    Parameters
    ----------
    parent, own
        The exponents of their probabilities.
    biases
        Those of the classes of the key's own model, in its order; 0 for those that are not there.

    Examples
    --------
    >>> vote = Vote()
    >>> shares = vote.together({"a": 0.9, "b": 0.1}, ["a", "b"], [0.2, 0.8], 1_000)
    >>> round(shares["a"], 3)
    0.9
    >>> for _ in range(200):
    ...     shares = vote.together({"a": 0.9, "b": 0.1}, ["a", "b"], [0.2, 0.8], 1_000)
    ...     vote.learn("b")
    >>> max(shares, key=shares.get), vote.own > vote.parent
    ('b', True)
    """

    __slots__ = ("_labels", "_logs", "_n_own", "_shares", "biases", "own", "parent")

    def __init__(self, parent: float = 1.0, own: float = 0.0, biases: Sequence[float] = ()) -> None:
        self.parent, self.own, self.biases = parent, own, list(biases)
        self._labels: list[Any] = []
        self._logs: tuple[list[float], list[float]] = [], []
        self._shares: list[float] = []
        self._n_own = 0

    def together(
        self, of_parent: Mapping[Any, float], classes: Sequence[Any], of_key: Sequence[float], n: int
    ) -> dict[Any, float]:
        """The probabilities of the two together.

        Parameters
        ----------
        of_parent
            The parent's probabilities.
        classes, of_key
            The classes of the key's own model, and their probabilities.
        n
            How many events of the key that has learned.

        Returns
        -------
        dict
            By label; empty where neither knows one.
        """
        own = dict(zip(classes, of_key, strict=True))
        labels = list(dict.fromkeys((*own, *of_parent)))
        biases = self.biases + [0.0] * (len(labels) - len(self.biases))
        trust = n / (n + SLOW)
        parents = [_log(of_parent.get(label, 0.0)) for label in labels] if of_parent else [0.0] * len(labels)
        owns = [trust * _log(own.get(label, 0.0)) for label in labels]
        a, b = self.parent, self.own
        logs = [a * p + b * q + d for p, q, d in zip(parents, owns, biases, strict=True)]
        most = max(logs, default=0.0)
        terms = [math.exp(log - most) for log in logs]
        total = sum(terms)
        self._labels, self._logs, self._n_own = labels, (parents, owns), len(own)
        self._shares = [term / total for term in terms]
        return dict(zip(labels, self._shares, strict=True))

    def learn(self, label: Any) -> None:
        """Take the label of the event whose probabilities were asked for last.

        Parameters
        ----------
        label
            The label; one that neither knew says nothing of them.
        """
        if label not in self._labels:
            return
        true = self._labels.index(label)
        parents, owns = self._logs
        self.parent = self._moved(self.parent, parents, true)
        self.own = self._moved(self.own, owns, true)
        self.biases += [0.0] * (self._n_own - len(self.biases))
        for c in range(self._n_own):
            bias = self.biases[c] + BIAS_STEP * ((c == true) - self._shares[c])
            self.biases[c] = min(max(bias, -MOST_BIAS), MOST_BIAS)

    def _moved(self, exponent: float, logs: Sequence[float], true: int) -> float:
        gradient = logs[true] - sum(share * log for share, log in zip(self._shares, logs, strict=True))
        return min(max(exponent + STEP * gradient, 0.0), MOST)

    def pack(self) -> bytes:
        """All that was learned as a section."""
        return struct.pack(f"<{2 + len(self.biases)}d", self.parent, self.own, *self.biases)

    @classmethod
    def unpack(cls, section: bytes) -> Vote:
        """What `pack` gave; one that begins where there is nothing.

        Parameters
        ----------
        section
            The section.

        Raises
        ------
        ArchiveError
            Where it is no vote.
        """
        if not section:
            return cls()
        if len(section) % 8 or len(section) < 16:
            raise ArchiveError(f"the vote of parent and key is no row of numbers: it takes {len(section)} bytes")
        parent, own, *biases = struct.unpack(f"<{len(section) // 8}d", section)
        exponents = 0.0 <= parent <= MOST and 0.0 <= own <= MOST
        if not exponents or not all(-MOST_BIAS <= bias <= MOST_BIAS for bias in biases):
            raise ArchiveError("the vote of parent and key has exponents or biases beyond their bounds")
        return cls(parent, own, biases)


def _log(probability: float) -> float:
    return math.log(max(probability, LEAST))


class Parent:
    """A model of all keys that is asked about every event.

    Parameters
    ----------
    model
        A classifier that knows probabilities.
    learns
        Whether it learns every event of every key; else it stays as it is.
    """

    def __init__(self, model: Any, learns: bool) -> None:
        # What labels came last says nothing of the next event of a key.
        is_plain = isinstance(model, OnlineClassifier) and not model.is_composed
        is_ordered = isinstance(model, StreamSVMClassifier) and is_plain and not learns
        self.model = model.without_order() if is_ordered else model
        self.learns = learns
        # One that stays as it is must take no note of what it predicts.
        self._peeks = not learns and not is_plain and hasattr(model, "peek_proba_many")

    def proba(self, x: dict[Any, Any]) -> Mapping[Any, float]:
        """Its probabilities by label.

        Parameters
        ----------
        x
            Features by name.
        """
        if self._peeks:
            return dict(zip(self.model.classes_, self.model.peek_proba_many([x])[0].tolist(), strict=False))
        found: Mapping[Any, float] = self.model.predict_proba_one(x)
        return found

    def check_names(self, rows: Sequence[Mapping[Any, Any]]) -> None:
        """Compare the features of first events with those that the parent has learned; warn where few are known.

        Parameters
        ----------
        rows
            Features by name.

        Raises
        ------
        FeatureMismatchError
            Where none is known.
        """
        model = innermost(self.model)
        if hasattr(model, "check_names"):  # others do not tell what they have learned
            model.check_names(rows)

    def learn(self, x: dict[Any, Any], label: Any) -> None:
        """Learn an event, if it learns at all.

        Parameters
        ----------
        x
            Features by name.
        label
            The label.
        """
        if self.learns:
            self.model.learn_one(x, label)


def parent_of(given: Any, learns: bool, model: OnlineClassifier) -> Parent | None:
    """What keys begin from, as `KeyedClassifier` takes it.

    Parameters
    ----------
    given
        None, "learn", a path, or a classifier.
    learns
        Whether it learns on.
    model
        What each key begins with.

    Raises
    ------
    TypeError, ValueError
        Where it is none of these, or knows nothing and does not learn.
    """
    if given is None:
        return None
    if isinstance(given, str) and given == "learn":
        given, learns = type(model)(**model._get_params()), True
    elif isinstance(given, str | os.PathLike):
        given = load(given)
    if not hasattr(given, "predict_proba_one"):
        raise TypeError(
            f'`parent` must be "learn", a file that `save` wrote, or a classifier, got {type(given).__name__}'
        )
    if isinstance(given, OnlineClassifier) and not given.n_events_learned and not learns:
        raise ValueError("the parent has learned nothing: train it, or let it learn with `parent_learns=True`")
    return Parent(given, learns)
