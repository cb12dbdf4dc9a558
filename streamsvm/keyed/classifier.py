"""One learner for each key of a stream, whose state between two of its events is bytes."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from connectors.options import check_times
from connectors.times import SingleTimes
from streamsvm.delayed.keys import key_text
from streamsvm.keyed.packing import Held, KeyStateError, Packer, seal, unseal
from streamsvm.keyed.parent import Vote, parent_of
from streamsvm.keyed.waiting import NO_TIME, Event, Label, Waiting
from streamsvm.labels import is_label
from streamsvm.models.archive import DAMAGED, encode_label
from streamsvm.online.base import OnlineClassifier
from streamsvm.parameters import check_number

# What is kept by a state that an engine calls us with.
STATE = "streamsvm"
# Of a learner four; then the vote with the parent, the newest time, and what waits for labels.
_N_SECTIONS = 7
_TIME = struct.Struct("<q")


class Key:
    """A key at work.

    Parameters
    ----------
    held
        Its learner.
    vote
        How far it listens to that, and to its parent.
    newest
        The newest time of its events, in milliseconds.
    waiting
        What waits for labels.
    """

    __slots__ = ("held", "newest", "vote", "waiting")

    def __init__(self, held: Held, vote: Vote | None, newest: int, waiting: Waiting | None) -> None:
        self.held, self.vote, self.newest, self.waiting = held, vote, newest, waiting


class KeyedClassifier:
    """A model for each key of a stream: the state of a key and its next events become predictions and the new state.

    Each event is predicted, then learned where it has a label, by a learner that has met the events of its key alone.
    The answers, and what is learned, are those of one model for that key, to the bit. A state is bytes, which any
    engine can keep: about 3 kB for a `CPMClassifier` of 20 numbers and two classes.

    Parameters
    ----------
    model
        What each key begins with: a learner of this package that has learned nothing.
    label
        The field of an event with its label. Without it, or where it is None, the event is only predicted.
    ignore
        Fields that are no features.
    parent
        What a new key answers as: a classifier that was trained on all keys, or a file that one was saved to; or
        `"learn"` for one like the model that learns the events of all keys, as they come here, from nothing.
        Its probabilities are put together with those of the key's own model, as far as each has shown to be right for
        that key (see `streamsvm.keyed.parent`). What the key's own model learns does not change by it.
    parent_learns
        Whether the parent learns the events of all keys; else it stays as it is.
    time
        The field with the event's time: a number since 1970, ISO 8601 or RFC 2822; it is no feature.
    time_unit
        The unit of times that are numbers: `"s"`, `"ms"`, `"us"` or `"ns"`. None: each number tells it by its size, as
        1700000000 does; an event with a number that does not, such as 1500, is refused.
    time_format
        The format of times that are texts, as `datetime.strptime` has it.
    forget_after
        A key that has had no event for so long, in seconds or as a timedelta, begins anew. None: never.
    join
        The field by which labels that come later find their events, such as an order number; it is no feature. An
        event without label then waits, inside the state of its key, and is learned as it was when its label comes: in
        a record with that field and the label.
    wait
        For how long by the times of the key, in seconds or as a timedelta. None: as long as there is room.
    max_waiting
        How many events and labels of a key wait at most; what came first gives way.

    Attributes
    ----------
    parent : classifier or None
        The parent, which can be saved.
    counts : Counter
        What was met by this object: `events`, `labels` that came by themselves, `learned`, `refused`, `doubles` (the
        join value of one that waits), `expired` and `dropped` from what waits, and keys that were `forgotten`.

    Raises
    ------
    TypeError, ValueError
        Where the model or the parent is of another kind, or the model has learned something, or the parent nothing; or
        a setting needs another.
    ArchiveError, FileNotFoundError
        Where the parent's file is damaged, or not there.

    Examples
    --------
    >>> from streamsvm import CPMClassifier, KeyedClassifier
    >>> keyed = KeyedClassifier(CPMClassifier(), label="fraud", ignore=("customer",))
    >>> state = None
    >>> for i in range(50):
    ...     event = {"customer": "c17", "amount": float(i % 2), "fraud": i % 2 == 1}
    ...     answers, state = keyed.step(state, [event])
    >>> answers, state = keyed.step(state, [{"customer": "c17", "amount": 1.0}, {"customer": "c17"}])
    >>> [answer["prediction"] for answer in answers], type(state)
    ([True, False], <class 'bytes'>)

    An event that is of no use costs nothing but itself:

    >>> answers, state = keyed.step(state, [{"amount": float("inf"), "fraud": True}, {"amount": 0.0}])
    >>> sorted(answers[0]), answers[1]["prediction"]
    (['prediction', 'reason', 'score'], False)

    Labels that come later:

    >>> keyed, state = KeyedClassifier(CPMClassifier(), label="fraud", join="order"), None
    >>> for i in range(20):
    ...     answers, state = keyed.step(state, [{"order": i, "amount": float(i % 2)}])
    ...     answers, state = keyed.step(state, [{"order": i, "fraud": i % 2 == 1}])
    >>> answers, keyed.step(state, [{"order": 20, "amount": 1.0}])[0][0]["prediction"]
    ([{'prediction': True, 'score': 0.9..., 'label': True}], True)
    """

    def __init__(
        self,
        model: OnlineClassifier,
        *,
        label: str = "label",
        ignore: Iterable[Hashable] = (),
        parent: Any = None,
        parent_learns: bool = False,
        time: str | None = None,
        time_unit: str | None = None,
        time_format: str | None = None,
        forget_after: timedelta | float | None = None,
        join: str | None = None,
        wait: timedelta | float | None = None,
        max_waiting: int = 100,
    ) -> None:
        if isinstance(ignore, str):
            raise TypeError(f"`ignore` must be a sequence of field names, got {ignore!r}")
        check_number("max_waiting", max_waiting, 1, 1_000_000, whole=True)
        self.label, self.ignore, self.time, self.join = label, tuple(ignore), time, join
        self.forget_after, self.wait, self.max_waiting = forget_after, wait, max_waiting
        self._idle, self._wait = _milliseconds("forget_after", forget_after), _milliseconds("wait", wait)
        if time is None and (self._idle or self._wait):
            raise ValueError(
                f"`{'forget_after' if self._idle else 'wait'}` is by the times of events: name their field"
            )
        if join is None and self._wait:
            raise ValueError("`wait` is for labels that come later: name the field that they find events by as `join`")
        check_times("KeyedClassifier", time_unit, time_format)
        self._times = SingleTimes(time_unit, time_format)
        fields = [name for name in (label, time, join) if name is not None]
        if len(set(fields)) < len(fields):
            raise ValueError(f"label, time and join must be fields of their own, got {', '.join(map(repr, fields))}")
        self._packer = Packer(model)
        self._parent = parent_of(parent, parent_learns, model)
        self.counts: Counter[str] = Counter()

    @property
    def parent(self) -> Any:
        """What a new key answers as; None where there is none."""
        return None if self._parent is None else self._parent.model

    @property
    def settings(self) -> dict[str, Any]:
        """Parameters of the model that the states of all keys must share, by name, as JSON can hold them."""
        return dict(self._packer.settings)

    def step(self, state: bytes | None, events: Sequence[Mapping[Any, Any]]) -> tuple[list[dict[str, Any]], bytes]:
        """Predict the events of one key, one after the other, and learn each that has a label.

        The same state and events give the same answers and the same bytes; with a parent that learns, the answers go by
        what that has learned, too.

        Parameters
        ----------
        state
            What the last step of this key gave; None for one that has none.
        events
            Features by name, and among them the label.

        Returns
        -------
        answers : list of dict
            For each event `prediction` and `score`, the probability of the label predicted; both are None as long as
            nothing is known. For a label that comes by itself what had been predicted of its event, None where that
            does not wait, and the `label`. Where an event is of no use there is a `reason`, and nothing is learned.
        state : bytes
            The state from now on.

        Raises
        ------
        KeyStateError
            Where the state is damaged, of another model, or of a newer version.
        TypeError
            Where the state is not bytes.
        """
        key = self.wake(state)
        answers = [self.answer(key, event) for event in events]
        state = self.pack(key)
        self.let_go(key)
        return answers, state

    def __call__(self, value: Mapping[Any, Any], state: Any) -> dict[str, Any]:
        """One event and a state that an engine keeps by key, as Quix Streams calls a stateful function.

        Parameters
        ----------
        value
            The event.
        state
            Has `get_bytes(name)` and `set_bytes(name, data)`.

        Returns
        -------
        dict
            The answer, as `step` gives it.
        """
        [answer], data = self.step(state.get_bytes(STATE), [value])
        state.set_bytes(STATE, data)
        return answer

    def newest(self, state: bytes) -> int | None:
        """The newest time of the events of a key, in milliseconds since 1970; None where none had one.

        By it an engine can remove the states of keys that will not come again.

        Parameters
        ----------
        state
            What `step` gave.

        Raises
        ------
        KeyStateError
            Where it is damaged, or something else.

        Examples
        --------
        >>> from streamsvm import CPMClassifier
        >>> keyed = KeyedClassifier(CPMClassifier(), time="at")
        >>> keyed.newest(keyed.step(None, [{"size": 1.0, "at": "1970-01-02"}])[1])
        86400000
        """
        section = unseal(state, _N_SECTIONS)[5]
        return _TIME.unpack(section)[0] if section else None

    def moment(self, event: Mapping[Any, Any]) -> int:
        """The time of an event in milliseconds since 1970.

        Parameters
        ----------
        event
            The event.

        Raises
        ------
        KeyError, ValueError
            Where it has none.
        """
        return self._times.of(str(self.time), event[self.time])

    def check_parent(self, events: Sequence[Mapping[Any, Any]]) -> None:
        """Compare the features of first events with those that the parent has learned; warn where few are known.

        Parameters
        ----------
        events
            As of `step`.

        Raises
        ------
        FeatureMismatchError
            Where none is known.
        """
        if self._parent is not None:
            others = {self.label, self.join, self.time, *self.ignore}
            rows = [{name: event[name] for name in event if name not in others} for event in events]
            self._parent.check_names(rows)

    # A key at work -----------------------------------------------------------------------------------------------

    def wake(self, state: bytes | None) -> Key:
        """The key with this state, to be let go when it is not needed any more.

        Parameters
        ----------
        state
            As for `step`.
        """
        if state is None:
            return Key(self._packer.blank(), Vote() if self._parent else None, NO_TIME, self._new_waiting())
        *learned, vote, newest, waits = unseal(state, _N_SECTIONS)
        held = self._packer.unpack(learned)
        try:
            waiting = self._new_waiting() if self.join is not None or waits else None
            if waiting is not None:
                waiting.unpack(waits)
            return Key(
                held,
                Vote.unpack(vote) if vote or self._parent else None,
                _TIME.unpack(newest)[0] if newest else NO_TIME,
                waiting,
            )
        except (struct.error, *DAMAGED) as error:
            raise KeyStateError(f"not the state of a key: {error}") from error

    def answer(self, key: Key, event: Mapping[Any, Any]) -> dict[str, Any]:
        """Predict the next event of a key, and learn it where it has a label.

        Parameters
        ----------
        key
            The key.
        event
            As for `step`.
        """
        answer: dict[str, Any] = {"prediction": None, "score": None}
        try:
            x = dict(event)
            label = x.pop(self.label, None)
            for name in self.ignore:
                x.pop(name, None)
            if self.time is not None:
                self._pass_time(key, x.pop(self.time, None))
            if self.join is not None and (join := x.pop(self.join, None)) is not None:
                self._join(key, key_text(join), x, label, answer)
            else:
                self._take(key, x, label, answer)
        except (TypeError, ValueError, OverflowError) as error:
            self.counts["refused"] += 1
            answer["reason"] = str(error)
        return answer

    def pack(self, key: Key) -> bytes:
        """The state of a key.

        Parameters
        ----------
        key
            The key, which may go on.
        """
        vote = b"" if key.vote is None else key.vote.pack()
        newest = b"" if key.newest == NO_TIME else _TIME.pack(key.newest)
        return seal([*self._packer.pack(key.held), vote, newest, key.waiting.pack() if key.waiting else b""])

    def let_go(self, key: Key) -> None:
        """Forget a key that was packed, or whose last events are to be taken back.

        Parameters
        ----------
        key
            The key, which must not be used any more.
        """
        self._packer.give_back(key.held)

    # One event ---------------------------------------------------------------------------------------------------

    def _take(self, key: Key, x: dict[Any, Any], label: Any, answer: dict[str, Any]) -> None:
        """Predict an event, then learn it where it has a label."""
        answer["prediction"], answer["score"] = self._predict(key, x)
        self.counts["events"] += 1
        if is_label(label):
            self._learn(key, x, label)

    def _join(self, key: Key, join: str, x: dict[Any, Any], label: Any, answer: dict[str, Any]) -> None:
        """Take an event that may wait for its label, or a label that comes to one."""
        waiting = key.waiting
        assert waiting is not None
        before = waiting.n_expired, waiting.n_dropped
        waiting.expire(key.newest)
        if not is_label(label):
            self._take(key, x, None, answer)
            self._wait_for_label(key, waiting, join, Event(x, answer["prediction"], answer["score"]))
        elif join in waiting or not x:
            self._take_label(key, waiting, join, label, answer)
        else:
            self._take(key, x, label, answer)
        self.counts["expired"] += waiting.n_expired - before[0]
        self.counts["dropped"] += waiting.n_dropped - before[1]

    def _wait_for_label(self, key: Key, waiting: Waiting, join: str, event: Event) -> None:
        """Let an event wait that was predicted, unless its label has come."""
        early = waiting.pop(join) if waiting.is_label(join) else None
        if isinstance(early, Label):
            self._learn(key, event.x, early.label)
        elif join in waiting:
            self.counts["doubles"] += 1
        else:
            waiting.add(join, event, key.newest)

    def _take_label(self, key: Key, waiting: Waiting, join: str, label: Any, answer: dict[str, Any]) -> None:
        """Teach the event that waits for this label; it waits itself where there is none."""
        encode_label(label)
        self.counts["labels"] += 1
        answer["label"] = label
        found = waiting.pop(join)
        if not isinstance(found, Event):
            waiting.add(join, found or Label(label), key.newest)
            return
        answer["prediction"], answer["score"] = found.prediction, found.score
        self._learn(key, found.x, label, late=True)

    def _predict(self, key: Key, x: dict[Any, Any]) -> tuple[Any, float | None]:
        """The label predicted and its probability; None and None where nothing is known."""
        learner = key.held.learner
        prediction, score, shares = learner.answer_one(x)
        if self._parent is None or key.vote is None:
            return prediction, score
        together = self._together(key, x, shares)
        best = max(together, key=together.__getitem__, default=None)
        return best, together.get(best)

    def _together(self, key: Key, x: dict[Any, Any], shares: Sequence[float]) -> dict[Any, float]:
        """The probabilities of the parent and of the key's own model."""
        assert self._parent is not None
        assert key.vote is not None
        learner = key.held.learner
        classes = learner.classes_[: len(shares)]
        return key.vote.together(self._parent.proba(x), classes, shares, learner.n_events_learned)

    def _learn(self, key: Key, x: dict[Any, Any], label: Any, late: bool = False) -> None:
        """Learn an event: that which was predicted last, or else a `late` one."""
        learner = key.held.learner
        if label not in learner.labels.codes:
            encode_label(label)
        if late and self._parent is not None and key.vote is not None:
            # Nobody asks for a prediction: none may be taken note of.
            self._together(key, x, learner.peek_proba_many([x])[0].tolist())
        key.held = self._packer.ready(key.held, x, label)
        key.held.learner.learn_one(x, label)
        self.counts["learned"] += 1
        if self._parent is not None and key.vote is not None:
            key.vote.learn(label)
            self._parent.learn(x, label)

    def _pass_time(self, key: Key, time: Any) -> None:
        """Take note of the time of an event; a key that was idle for too long begins anew."""
        if time is None:
            return
        moment = self._times.of(str(self.time), time)
        if self._idle is not None and key.newest != NO_TIME and moment - key.newest > self._idle:
            self.counts["forgotten"] += 1
            self._packer.give_back(key.held)
            fresh = self.wake(None)
            key.held, key.vote, key.waiting = fresh.held, fresh.vote, fresh.waiting
        key.newest = max(key.newest, moment)

    def _new_waiting(self) -> Waiting | None:
        return Waiting(self.max_waiting, self._wait)


def _milliseconds(name: str, value: timedelta | float | None) -> int | None:
    """A duration in seconds in milliseconds."""
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    check_number(name, seconds, 0.001, math.inf)
    return round(seconds * 1000)
