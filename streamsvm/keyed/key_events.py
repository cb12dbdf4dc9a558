"""Unpacked keys: predict and learn events, and join them with delayed labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from streamsvm.delayed.keys import key_text
from streamsvm.keyed.key_state import KeyStateError, seal, unseal
from streamsvm.keyed.pending import Entry, PendingEntries
from streamsvm.keyed.prior import PriorVote
from streamsvm.labels import is_label
from streamsvm.models.archive import CORRUPT_ERRORS, encode_label

if TYPE_CHECKING:
    from streamsvm.keyed.classifier import KeyedClassifier


class Key:
    """Unpacked state of a key; call `release` when it is no longer needed.

    Parameters
    ----------
    keyed
        The classifier.
    state
        The state of the key, as for `KeyedClassifier.step`.

    Attributes
    ----------
    model
        The learner of the key.
    vote
        The vote of the learner and the prior model.
    pending
        Events and labels that wait for each other.
    newest
        The newest event time, in milliseconds; None if unknown.
    """

    __slots__ = ("_keyed", "model", "newest", "pending", "vote")

    def __init__(self, keyed: KeyedClassifier, state: bytes | None) -> None:
        self._keyed, self.newest = keyed, None
        if state is None:
            self._begin()
            return
        *learned, rest = unseal(state)
        self.model = keyed.packer.unpack(learned)
        try:
            head, *lines = rest.split(b"\n")
            vote, newest = orjson.loads(head)
            self.pending = PendingEntries(keyed.max_pending, keyed.label_timeout_ms, lines)
            self.vote, self.newest = PriorVote(*vote), None if newest is None else int(newest)
        except CORRUPT_ERRORS as error:
            raise KeyStateError(f"not the state of a key: {error}") from error

    def _begin(self) -> None:
        """Begin with a new model, without waiting events."""
        self.model, self.vote = self._keyed.packer.blank(), PriorVote()
        self.pending = PendingEntries(self._keyed.max_pending, self._keyed.label_timeout_ms)

    def step(self, event: Mapping[Any, Any]) -> dict[str, Any]:
        """Predict the next event of the key, and learn it if it has a label.

        Parameters
        ----------
        event
            An event, as for `KeyedClassifier.step`.
        """
        keyed = self._keyed
        result: dict[str, Any] = {"prediction": None, "score": None}
        try:
            x = dict(event)
            label = x.pop(keyed.label, None)
            for name in keyed.ignore:
                x.pop(name, None)
            if keyed.time is not None:
                self._update_time(x.pop(keyed.time, None))
            if keyed.join is not None and (join := x.pop(keyed.join, None)) is not None:
                self._join(key_text(join), x, label, result)
            else:
                self._take(x, label, result)
        except (TypeError, ValueError, OverflowError) as error:
            keyed.counts["refused"] += 1
            result["reason"] = str(error)
        return result

    def pack(self) -> bytes:
        """Return the state of the key, which remains usable."""
        head = orjson.dumps([self.vote.weights, self.newest])
        return seal([*self._keyed.packer.pack(self.model), b"\n".join([head, *self.pending.lines])])

    def release(self) -> None:
        """Release the key, which must not be used afterwards.

        Changes since the last `pack` are lost.
        """
        self._keyed.packer.release(self.model)

    # One event ---------------------------------------------------------------------------------------------------

    def _take(self, x: dict[Any, Any], label: Any, result: dict[str, Any]) -> None:
        """Predict an event, then learn it if it has a label."""
        keyed = self._keyed
        prediction, score, shares = keyed.packer.answer_one(self.model, x)
        if keyed.prior is not None:
            together = self._together(x, shares)
            prediction = max(together, key=together.__getitem__, default=None)
            score = together.get(prediction)
        result["prediction"], result["score"] = prediction, score
        keyed.counts["events"] += 1
        if is_label(label):
            self._learn(x, label)

    def _join(self, join: str, x: dict[Any, Any], label: Any, result: dict[str, Any]) -> None:
        """Process a record with a join value: an event, or a delayed label."""
        self._keyed.counts["expired"] += self.pending.expire(self.newest)
        found = self.pending.find(join)
        if is_label(label) and (found is not None or not x):
            self._take_label(join, found, label, result)
            return
        self._take(x, label, result)
        if is_label(label):
            return
        if found is None:
            self._store(join, Entry(result["prediction"], result["score"], x))
        elif found.x is None:
            self.pending.remove(join)
            self._learn(x, found.label)
        else:
            self._keyed.counts["duplicates"] += 1

    def _take_label(self, join: str, found: Entry | None, label: Any, result: dict[str, Any]) -> None:
        """Learn the event that waits for this label; if there is none, store the label."""
        encode_label(label)
        self._keyed.counts["labels"] += 1
        result["label"] = label
        if found is None:
            self._store(join, Entry(label))
        elif found.x is not None:
            self.pending.remove(join)
            result["prediction"], result["score"] = found.label, found.score
            self._learn(found.x, label, late=True)

    def _store(self, join: str, entry: Entry) -> None:
        self._keyed.counts["dropped"] += self.pending.add(join, entry, self.newest)

    def _together(self, x: dict[Any, Any], shares: Sequence[float]) -> dict[Any, float]:
        """Return combined probabilities of the prior model and the key's own model."""
        learner, of_prior = self.model.learner, {} if self._keyed.prior is None else self._keyed.prior.proba(x)
        return self.vote.combine(of_prior, learner.classes_[: len(shares)], shares, learner.n_events_learned)

    def _learn(self, x: dict[Any, Any], label: Any, late: bool = False) -> None:
        """Learn the event that was predicted last, or an event with a late label."""
        keyed, learner = self._keyed, self.model.learner
        if label not in learner.labels.codes:
            encode_label(label)
        if late and keyed.prior is not None:
            # The vote learns from current probabilities, but this must not count as a prediction.
            self._together(x, learner.peek_proba_many([x])[0].tolist())
        keyed.packer.learn_one(self.model, x, label)
        keyed.counts["learned"] += 1
        if keyed.prior is not None:
            self.vote.learn(label)
            keyed.prior.learn(x, label)

    def _update_time(self, time: Any) -> None:
        """Update the newest event time; reset a key that was inactive for too long."""
        if time is None:
            return
        keyed = self._keyed
        moment = keyed.times.of(str(keyed.time), time)
        if keyed.key_ttl_ms is not None and self.newest is not None and moment - self.newest > keyed.key_ttl_ms:
            keyed.counts["forgotten"] += 1
            self.release()
            self._begin()
        self.newest = moment if self.newest is None else max(self.newest, moment)
