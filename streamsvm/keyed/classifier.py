"""One learner for each key of a stream, whose state between two of its events is bytes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from streamsvm.features import is_nan
from streamsvm.keyed.packing import Held, KeyStateError, Packer, seal, unseal
from streamsvm.keyed.parent import Vote, parent_of
from streamsvm.models import ArchiveError, encode_label
from streamsvm.online.base import OnlineClassifier

# What is kept by a state that an engine calls us with.
STATE = "streamsvm"
_N_SECTIONS = 5


class Key:
    """A key at work.

    Parameters
    ----------
    held
        Its learner.
    vote
        How far it listens to that, and to its parent.
    """

    __slots__ = ("held", "vote")

    def __init__(self, held: Held, vote: Vote | None) -> None:
        self.held, self.vote = held, vote


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
        What a new key answers as: a classifier that was trained on all keys, or a file that one was saved to, which
        stay as they are; or `"learn"` for one like the model that learns the events of all keys, as they come here.
        Its probabilities are put together with those of the key's own model, as far as each has shown to be right for
        that key (see `streamsvm.keyed.parent`). What the key's own model learns does not change by it.

    Attributes
    ----------
    parent : classifier or None
        The parent, which can be saved.

    Raises
    ------
    TypeError, ValueError
        Where the model or the parent is of another kind, or the model has learned something, or the parent nothing.
    ArchiveError, FileNotFoundError
        Where the parent's file is damaged, or not there.

    Examples
    --------
    >>> from streamsvm import CPMClassifier
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
    """

    def __init__(
        self,
        model: OnlineClassifier,
        *,
        label: str = "label",
        ignore: Iterable[Hashable] = (),
        parent: Any = None,
    ) -> None:
        if isinstance(ignore, str):
            raise TypeError(f"`ignore` must be a sequence of field names, got {ignore!r}")
        self.label = label
        self.ignore = tuple(ignore)
        self._packer = Packer(model)
        self._parent = parent_of(parent, model)

    @property
    def parent(self) -> Any:
        """What a new key answers as; None where there is none."""
        return None if self._parent is None else self._parent.model

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
            the key has learned nothing. Where an event is of no use there is a `reason`, and nothing is learned.
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

    # A key at work -----------------------------------------------------------------------------------------------

    def wake(self, state: bytes | None) -> Key:
        """The key with this state, to be let go when it is not needed any more.

        Parameters
        ----------
        state
            As for `step`.
        """
        if state is None:
            return Key(self._packer.begin(), Vote() if self._parent else None)
        *learned, vote = unseal(state, _N_SECTIONS)
        held = self._packer.unpack(learned)
        try:
            return Key(held, Vote.unpack(vote) if vote or self._parent else None)
        except ArchiveError as error:
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
            prediction, score = self._predict(key, x)
            answer = {"prediction": prediction, "score": score}
            if label is not None and not is_nan(label):
                self._learn(key, x, label)
        except (TypeError, ValueError, OverflowError) as error:
            answer["reason"] = str(error)
        return answer

    def _predict(self, key: Key, x: dict[Any, Any]) -> tuple[Any, float | None]:
        """The label predicted and its probability; None and None where nothing is known."""
        learner = key.held.learner
        prediction, shares = learner._answer(x)
        if self._parent is None or key.vote is None:
            return prediction, shares[learner._codes[prediction]] if shares else None
        classes = learner._answers[: len(shares)]
        together = key.vote.together(self._parent.proba(x), classes, shares, learner.n_events_learned)
        best = max(together, key=together.__getitem__, default=None)
        return best, together.get(best)

    def _learn(self, key: Key, x: dict[Any, Any], label: Any) -> None:
        """Learn the event that was predicted last."""
        learner = key.held.learner
        if label not in learner._codes:
            encode_label(label)
        learner.learn_one(x, label)
        if self._parent is not None and key.vote is not None:
            key.vote.learn(label)
            self._parent.learn(x, label)

    def pack(self, key: Key) -> bytes:
        """The state of a key.

        Parameters
        ----------
        key
            The key, which may go on.
        """
        return seal([*self._packer.pack(key.held), b"" if key.vote is None else key.vote.pack()])

    def let_go(self, key: Key) -> None:
        """Forget a key that was packed, or whose last events are to be taken back.

        Parameters
        ----------
        key
            The key, which must not be used any more.
        """
        self._packer.give_back(key.held)
