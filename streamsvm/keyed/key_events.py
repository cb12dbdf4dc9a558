"""Events of unpacked keys: predict, learn, and join with delayed labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from connectors.columns.times import SingleTimes
from streamsvm.delayed.keys import key_text
from streamsvm.keyed.key_state import KeyStateError, seal, unseal
from streamsvm.keyed.packing import KeyModel, Packer
from streamsvm.keyed.pending import Entry, PendingEntries
from streamsvm.keyed.prior import PriorModel, PriorVote
from streamsvm.labels import is_label
from streamsvm.models.archive import CORRUPT_ERRORS, encode_label


@dataclass(slots=True)
class Key:
    """Unpacked state of a key.

    Parameters
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

    model: KeyModel
    vote: PriorVote
    pending: PendingEntries
    newest: int | None = None


class KeyEvents:
    """Base class that processes events of unpacked keys.

    The attributes are settings of a `KeyedClassifier`.
    """

    label: str
    ignore: tuple[Hashable, ...]
    time: str | None
    join: str | None
    max_pending: int
    counts: Counter[str]
    _key_ttl_ms: int | None
    _label_timeout_ms: int | None
    _times: SingleTimes
    _packer: Packer
    _prior: PriorModel | None

    # Unpacked keys -----------------------------------------------------------------------------------------------

    def unpack(self, state: bytes | None) -> Key:
        """Unpack a state; call `release` when the key is no longer needed.

        Parameters
        ----------
        state
            The state of a key, as for `step`.
        """
        if state is None:
            return Key(self._packer.blank(), PriorVote(), PendingEntries(self.max_pending, self._label_timeout_ms))
        *learned, rest = unseal(state)
        model = self._packer.unpack(learned)
        try:
            head, *lines = rest.split(b"\n")
            vote, newest = orjson.loads(head)
            pending = PendingEntries(self.max_pending, self._label_timeout_ms, lines)
            return Key(model, PriorVote(*vote), pending, None if newest is None else int(newest))
        except CORRUPT_ERRORS as error:
            raise KeyStateError(f"not the state of a key: {error}") from error

    def answer(self, key: Key, event: Mapping[Any, Any]) -> dict[str, Any]:
        """Predict the next event of a key, and learn it if it has a label.

        Parameters
        ----------
        key
            The key.
        event
            An event, as for `step`.
        """
        answer: dict[str, Any] = {"prediction": None, "score": None}
        try:
            x = dict(event)
            label = x.pop(self.label, None)
            for name in self.ignore:
                x.pop(name, None)
            if self.time is not None:
                self._update_time(key, x.pop(self.time, None))
            if self.join is not None and (join := x.pop(self.join, None)) is not None:
                self._join(key, key_text(join), x, label, answer)
            else:
                self._take(key, x, label, answer)
        except (TypeError, ValueError, OverflowError) as error:
            self.counts["refused"] += 1
            answer["reason"] = str(error)
        return answer

    def pack(self, key: Key) -> bytes:
        """Return the state of a key as bytes.

        Parameters
        ----------
        key
            The key, which remains usable.
        """
        head = orjson.dumps([key.vote.weights, key.newest])
        return seal([*self._packer.pack(key.model), b"\n".join([head, *key.pending.lines])])

    def release(self, key: Key) -> None:
        """Release a key; changes since the last `pack` are lost.

        Parameters
        ----------
        key
            The key, which must not be used afterwards.
        """
        self._packer.release(key.model)

    # One event ---------------------------------------------------------------------------------------------------

    def _take(self, key: Key, x: dict[Any, Any], label: Any, answer: dict[str, Any]) -> None:
        """Predict an event, then learn it if it has a label."""
        prediction, score, shares = key.model.learner.answer_one(x)
        if self._prior is not None:
            together = self._together(key, x, shares)
            prediction = max(together, key=together.__getitem__, default=None)
            score = together.get(prediction)
        answer["prediction"], answer["score"] = prediction, score
        self.counts["events"] += 1
        if is_label(label):
            self._learn(key, x, label)

    def _join(self, key: Key, join: str, x: dict[Any, Any], label: Any, answer: dict[str, Any]) -> None:
        """Process a record with a join value: an event, or a delayed label."""
        self.counts["expired"] += key.pending.expire(key.newest)
        found = key.pending.find(join)
        if is_label(label) and (found is not None or not x):
            self._take_label(key, join, found, label, answer)
            return
        self._take(key, x, label, answer)
        if is_label(label):
            return
        if found is None:
            self._store(key, join, Entry(answer["prediction"], answer["score"], x))
        elif found.x is None:
            key.pending.remove(join)
            self._learn(key, x, found.label)
        else:
            self.counts["duplicates"] += 1

    def _take_label(self, key: Key, join: str, found: Entry | None, label: Any, answer: dict[str, Any]) -> None:
        """Learn the event that waits for this label; if there is none, store the label."""
        encode_label(label)
        self.counts["labels"] += 1
        answer["label"] = label
        if found is None:
            self._store(key, join, Entry(label))
        elif found.x is not None:
            key.pending.remove(join)
            answer["prediction"], answer["score"] = found.label, found.score
            self._learn(key, found.x, label, late=True)

    def _store(self, key: Key, join: str, entry: Entry) -> None:
        self.counts["dropped"] += key.pending.add(join, entry, key.newest)

    def _together(self, key: Key, x: dict[Any, Any], shares: Sequence[float]) -> dict[Any, float]:
        """Return combined probabilities of the prior model and the key's own model."""
        learner, of_prior = key.model.learner, {} if self._prior is None else self._prior.proba(x)
        return key.vote.together(of_prior, learner.classes_[: len(shares)], shares, learner.n_events_learned)

    def _learn(self, key: Key, x: dict[Any, Any], label: Any, late: bool = False) -> None:
        """Learn the event that was predicted last, or an event with a late label."""
        learner = key.model.learner
        if label not in learner.labels.codes:
            encode_label(label)
        if late and self._prior is not None:
            # The vote learns from current probabilities, but this must not count as a prediction.
            self._together(key, x, learner.peek_proba_many([x])[0].tolist())
        key.model = self._packer.ready(key.model, x, label)
        key.model.learner.learn_one(x, label)
        self.counts["learned"] += 1
        if self._prior is not None:
            key.vote.learn(label)
            self._prior.learn(x, label)

    def _update_time(self, key: Key, time: Any) -> None:
        """Update the newest event time; reset a key that was inactive for too long."""
        if time is None:
            return
        moment = self._times.of(str(self.time), time)
        if self._key_ttl_ms is not None and key.newest is not None and moment - key.newest > self._key_ttl_ms:
            self.counts["forgotten"] += 1
            self._packer.release(key.model)
            fresh = self.unpack(None)
            key.model, key.vote, key.pending = fresh.model, fresh.vote, fresh.pending
        key.newest = moment if key.newest is None else max(key.newest, moment)
