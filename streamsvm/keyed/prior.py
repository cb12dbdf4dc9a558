"""Vote of a key's own model and its prior model, a model of all keys.

Let p be the probabilities of the prior model, and q those of the key's own model after n events. The combined
probabilities are

    r(c) ~ p(c)^a q(c)^(b n / (n + SLOW)) exp(d_c)

The exponent a starts at 1, the exponent b and the biases d at 0. All follow the gradient of the key's log loss, b with
larger steps during the first events, when the calibrated probabilities of the key's own model differ little. This is a
product of experts, like the stacked vote of `StreamSVMClassifier`, with a bias for each class of the key's own model. A
new key predicts like its prior model, and its own model gains weight if that reduces the log loss.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from streamsvm.ensemble.classifier import StreamSVMClassifier
from streamsvm.loading import load
from streamsvm.models.saved import innermost
from streamsvm.online.base import OnlineClassifier
from streamsvm.parameters import ParameterError, ParameterTypeError

# Learning rates of the exponents and of the biases, their maximum values, and the number of events after which the
# key's own model has half its weight, because a model of few events is overconfident.
STEP, BIAS_STEP, MOST, MOST_BIAS, SLOW = 0.02, 0.001, 3.0, 20.0, 100.0
# The step of `own` after n events is OWN_STEP / (n + OWN_EVENTS), but at least STEP.
OWN_STEP, OWN_EVENTS = 20.0, 50.0
# Lower bound of the probabilities in the vote.
LEAST = 0.01


class PriorVote:
    """Vote of the prior model and the key's own model.

    Parameters
    ----------
    prior, own
        Exponents of their probabilities.
    *biases
        Biases of the first classes of the key's own model, in its order; 0 for other classes.

    Raises
    ------
    ValueError
        If an exponent or bias is beyond its bounds.

    Examples
    --------
    >>> vote = PriorVote()
    >>> shares = vote.combine({"a": 0.9, "b": 0.1}, ["a", "b"], [0.2, 0.8], 1_000)
    >>> round(shares["a"], 3)
    0.9
    >>> for _ in range(200):
    ...     shares = vote.combine({"a": 0.9, "b": 0.1}, ["a", "b"], [0.2, 0.8], 1_000)
    ...     vote.learn("b")
    >>> max(shares, key=shares.get), vote.own > vote.prior
    ('b', True)
    """

    __slots__ = ("_labels", "_logs", "_n_own", "_own_step", "_shares", "biases", "own", "prior")

    def __init__(self, prior: float = 1.0, own: float = 0.0, *biases: float) -> None:
        exponents = 0.0 <= prior <= MOST and 0.0 <= own <= MOST
        if not exponents or not all(-MOST_BIAS <= bias <= MOST_BIAS for bias in biases):
            raise ValueError("the vote of prior model and key has exponents or biases beyond their bounds")
        self.prior, self.own, self.biases = prior, own, list(biases)
        self._labels: list[Any] = []
        self._logs: tuple[list[float], list[float]] = [], []
        self._shares: list[float] = []
        self._n_own, self._own_step = 0, STEP

    def combine(
        self, of_prior: Mapping[Any, float], classes: Sequence[Any], of_key: Sequence[float], n: int
    ) -> dict[Any, float]:
        """Return the combined probabilities.

        Parameters
        ----------
        of_prior
            The probabilities of the prior model by label.
        classes, of_key
            The classes of the key's own model, and their probabilities.
        n
            Number of events learned by the key's own model.

        Returns
        -------
        dict
            Probabilities by label; empty if neither model knows a label.
        """
        own = dict(zip(classes, of_key, strict=True))
        labels = list(dict.fromkeys((*own, *of_prior)))
        biases = self.biases + [0.0] * (len(labels) - len(self.biases))
        trust = n / (n + SLOW)
        priors = [_log(of_prior.get(label, 0.0)) for label in labels] if of_prior else [0.0] * len(labels)
        owns = [trust * _log(own.get(label, 0.0)) for label in labels]
        a, b = self.prior, self.own
        logs = [a * p + b * q + d for p, q, d in zip(priors, owns, biases, strict=True)]
        most = max(logs, default=0.0)
        terms = [math.exp(log - most) for log in logs]
        total = sum(terms)
        self._labels, self._logs, self._n_own = labels, (priors, owns), len(own)
        self._own_step = max(OWN_STEP / (n + OWN_EVENTS), STEP)
        self._shares = [term / total for term in terms]
        return dict(zip(labels, self._shares, strict=True))

    def learn(self, label: Any) -> None:
        """Update the vote with the label of the event last passed to `together`.

        Parameters
        ----------
        label
            The label; ignored if neither model knew it.
        """
        if label not in self._labels:
            return
        true = self._labels.index(label)
        priors, owns = self._logs
        self.prior = self._moved(self.prior, priors, true, STEP)
        self.own = self._moved(self.own, owns, true, self._own_step)
        self.biases += [0.0] * (self._n_own - len(self.biases))
        for c in range(self._n_own):
            bias = self.biases[c] + BIAS_STEP * ((c == true) - self._shares[c])
            self.biases[c] = min(max(bias, -MOST_BIAS), MOST_BIAS)

    def _moved(self, exponent: float, logs: Sequence[float], true: int, step: float) -> float:
        gradient = logs[true] - sum(share * log for share, log in zip(self._shares, logs, strict=True))
        return min(max(exponent + step * gradient, 0.0), MOST)

    @property
    def weights(self) -> list[float]:
        """The exponents and biases, from which a vote is restored."""
        return [self.prior, self.own, *self.biases]


def _log(probability: float) -> float:
    return math.log(max(probability, LEAST))


class PriorModel:
    """Model of all keys, which predicts every event.

    Parameters
    ----------
    model
        A classifier with probabilities.
    learns
        Whether it learns every event of every key; otherwise it does not change.
    """

    def __init__(self, model: Any, learns: bool) -> None:
        # A trained prior model has the label order of other streams, which says nothing about the next event of a key.
        is_plain = isinstance(model, OnlineClassifier) and model.parts is None
        is_ordered = isinstance(model, StreamSVMClassifier) and is_plain and not learns
        self.model = model.without_order() if is_ordered else model
        self.learns = learns
        # Predictions must not change a prior model that does not learn.
        self._peeks = not learns and not is_plain and hasattr(model, "peek_proba_many")

    def proba(self, x: dict[Any, Any]) -> Mapping[Any, float]:
        """Return the probabilities of an event by label.

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
        """Warn if the prior model knows few of the features of events.

        Parameters
        ----------
        rows
            Events, as features by name.

        Raises
        ------
        FeatureMismatchError
            If no feature is known.
        """
        model = innermost(self.model)
        if hasattr(model, "check_names"):  # other classifiers do not report their features
            model.check_names(rows)

    def learn(self, x: dict[Any, Any], label: Any) -> None:
        """Learn an event, if the prior model learns.

        Parameters
        ----------
        x
            Features by name.
        label
            The label.
        """
        if self.learns:
            self.model.learn_one(x, label)


def prior_model_of(given: Any, learns: bool, model: OnlineClassifier) -> PriorModel | None:
    """Create the prior model from the parameters of `KeyedClassifier`.

    Parameters
    ----------
    given
        None, "learn", a path, or a classifier.
    learns
        Whether the prior model learns.
    model
        The untrained model of every key.

    Raises
    ------
    TypeError, ValueError
        If `given` is invalid, or an untrained learner that does not learn.
    """
    if given is None:
        return None
    if isinstance(given, str) and given == "learn":
        given, learns = type(model)(**model._get_params()), True
    elif isinstance(given, str | os.PathLike):
        given = load(given)
    if not hasattr(given, "predict_proba_one"):
        raise ParameterTypeError(
            "prior_model", f'must be "learn", a file that `save` wrote, or a classifier, got {type(given).__name__}'
        )
    if isinstance(given, OnlineClassifier) and not given.n_events_learned and not learns:
        raise ParameterError(
            "prior_model", "has learned nothing: train it, or let it learn with `prior_model_learns=True`"
        )
    return PriorModel(given, learns)
