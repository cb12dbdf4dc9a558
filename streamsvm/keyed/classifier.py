"""One learner per key of a stream, stored as bytes between events."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import orjson

from connectors.columns.roles import check_times
from connectors.columns.times import SingleTimes
from streamsvm.keyed.key_events import Key
from streamsvm.keyed.key_state import unseal
from streamsvm.keyed.packing import Packer
from streamsvm.keyed.prior import prior_model_of
from streamsvm.online.base import OnlineClassifier
from streamsvm.parameters import ParameterError, ParameterTypeError, check_number

# Name of our bytes in the keyed state of an engine.
STATE = "streamsvm"


class KeyedClassifier:
    """One model per key of a stream, with a state per key as bytes.

    Each event is predicted, then learned if it has a label, by a learner that sees only the events of its key. The
    predictions are bit for bit those of a separate model per key. A state is bytes that any engine can store, about
    3 kB for a `CPMClassifier` with 20 numbers and two classes.

    Parameters
    ----------
    model
        The untrained model of every key: a learner of this package.
    label
        The field of an event with its label. An event without it, or with None, is only predicted.
    ignore
        Fields that are not features.
    time
        The field with the event time: a number since 1970, ISO 8601 or RFC 2822. It is not a feature.
    time_unit
        The unit of numeric times: `"s"`, `"ms"`, `"us"` or `"ns"`. If None, the unit follows from the size of each
        number, as in 1700000000. Events with an ambiguous number, such as 1500, are refused.
    time_format
        The format of times that are strings, as for `datetime.strptime`.
    key_ttl
        A key without events for this time, in seconds or as a timedelta, starts over. None: never.
    join
        The field that joins delayed labels to their events, such as an order number. It is not a feature. An event
        without a label is stored in the state of its key. It is learned with the stored features when its label
        arrives, in a record with this field and the label.
    label_timeout
        How long events wait for their label, in event time, in seconds or as a timedelta. None: without limit.
    max_pending
        Maximum number of waiting events and labels of a key. If there are more, the oldest one is dropped.
    prior_model
        A model of all keys: a trained classifier, or a file that one was saved to. `"learn"` creates an untrained copy
        of `model` that learns the events of all keys. A new key starts with the predictions of the prior model. Later
        its probabilities combine both models, with weights for each key that follow their log loss; see
        `streamsvm.keyed.prior`. The prior model does not affect the learning of the key's own model.
    prior_model_learns
        Whether the prior model learns the events of all keys; otherwise it does not change.

    Attributes
    ----------
    prior_model : classifier or None
        The prior model, which can be saved.
    counts : Counter
        Counters of this object: `events`, delayed `labels`, `learned`, `refused`, `duplicates` (events with the join
        value of a waiting one), `expired` and `dropped` waiting entries, and `forgotten` keys.

    Raises
    ------
    TypeError, ValueError
        If the model or the prior model has the wrong type, the model is trained, the prior model is untrained, or a
        setting requires another one.
    ArchiveError, FileNotFoundError
        If the prior model's file is corrupt or missing.

    Examples
    --------
    >>> from streamsvm import CPMClassifier, KeyedClassifier
    >>> keyed = KeyedClassifier(CPMClassifier(), label="fraud", ignore=("customer",))
    >>> state = None
    >>> for i in range(50):
    ...     event = {"customer": "c17", "amount": float(i % 2), "fraud": i % 2 == 1}
    ...     results, state = keyed.step(state, [event])
    >>> results, state = keyed.step(state, [{"customer": "c17", "amount": 1.0}, {"customer": "c17"}])
    >>> [result["prediction"] for result in results], type(state)
    ([True, False], <class 'bytes'>)

    An invalid event is refused with a reason and changes nothing:

    >>> results, state = keyed.step(state, [{"amount": float("inf"), "fraud": True}, {"amount": 0.0}])
    >>> sorted(results[0]), results[1]["prediction"]
    (['prediction', 'reason', 'score'], False)

    Delayed labels:

    >>> keyed, state = KeyedClassifier(CPMClassifier(), label="fraud", join="order"), None
    >>> for i in range(20):
    ...     results, state = keyed.step(state, [{"order": i, "amount": float(i % 2)}])
    ...     results, state = keyed.step(state, [{"order": i, "fraud": i % 2 == 1}])
    >>> results, keyed.step(state, [{"order": 20, "amount": 1.0}])[0][0]["prediction"]
    ([{'prediction': True, 'score': 0.9..., 'label': True}], True)
    """

    def __init__(
        self,
        model: OnlineClassifier,
        *,
        label: str = "label",
        ignore: Iterable[Hashable] = (),
        time: str | None = None,
        time_unit: str | None = None,
        time_format: str | None = None,
        key_ttl: timedelta | float | None = None,
        join: str | None = None,
        label_timeout: timedelta | float | None = None,
        max_pending: int = 100,
        prior_model: Any = None,
        prior_model_learns: bool = False,
    ) -> None:
        if isinstance(ignore, str):
            raise ParameterTypeError("ignore", f"must be a sequence of field names, got {ignore!r}")
        check_number("max_pending", max_pending, 1, 1_000_000, whole=True)
        self.label, self.ignore, self.time, self.join = label, tuple(ignore), time, join
        self.key_ttl, self.label_timeout, self.max_pending = key_ttl, label_timeout, max_pending
        self.key_ttl_ms = _milliseconds("key_ttl", key_ttl)
        self.label_timeout_ms = _milliseconds("label_timeout", label_timeout)
        if time is None and (self.key_ttl_ms or self.label_timeout_ms):
            given = "key_ttl" if self.key_ttl_ms else "label_timeout"
            raise ParameterError(given, "uses the times of events: set `time` to their field")
        if join is None and self.label_timeout_ms:
            raise ParameterError(
                "label_timeout", "is for late labels: set `join` to the field that labels and events share"
            )
        check_times("KeyedClassifier", time_unit, time_format)
        self.times = SingleTimes(time_unit, time_format)
        fields = [name for name in (label, time, join) if name is not None]
        if len(set(fields)) < len(fields):
            what = f"and `time` and `join` must be fields of their own, got {', '.join(map(repr, fields))}"
            raise ParameterError("label", what)
        self.packer = Packer(model)
        self.prior = prior_model_of(prior_model, prior_model_learns, model)
        self.counts: Counter[str] = Counter()

    @property
    def prior_model(self) -> Any:
        """The model of all keys, None without one."""
        return None if self.prior is None else self.prior.model

    @property
    def settings(self) -> dict[str, Any]:
        """Model parameters that the states of all keys must share, as JSON values."""
        return dict(self.packer.settings)

    def step(self, state: bytes | None, events: Sequence[Mapping[Any, Any]]) -> tuple[list[dict[str, Any]], bytes]:
        """Predict the events of one key in order, and learn those with a label.

        The result is deterministic: equal states and events give equal results and bytes. With a learning prior model,
        the results also depend on the events of other keys.

        Parameters
        ----------
        state
            The state returned by the last step of this key; None for a new key.
        events
            Features by name, including the label.

        Returns
        -------
        results : list of dict
            For each event `prediction` and `score`, the probability of the predicted label; both are None while nothing
            has been learned. For a delayed label, the stored prediction of its event, None if that is not waiting, and
            the `label`. For an invalid event also a `reason`; nothing is learned from it.
        state : bytes
            The new state.

        Raises
        ------
        KeyStateError
            If the state is corrupt, or was written by another model or version.
        TypeError
            If the state is not bytes.
        """
        key = Key(self, state)
        results = [key.step(event) for event in events]
        state = key.pack()
        key.release()
        return results, state

    def __call__(self, value: Mapping[Any, Any], state: Any) -> dict[str, Any]:
        """Process one event with an engine's keyed state, as Quix Streams calls it.

        Parameters
        ----------
        value
            The event.
        state
            An object with methods `get_bytes(name)` and `set_bytes(name, data)`.

        Returns
        -------
        dict
            The result, see `step`.
        """
        [result], data = self.step(state.get_bytes(STATE), [value])
        state.set_bytes(STATE, data)
        return result

    def newest(self, state: bytes) -> int | None:
        """Return the newest event time of a key in milliseconds since 1970, or None.

        It is None without event times.

        An engine can use it to remove the states of inactive keys.

        Parameters
        ----------
        state
            The state returned by `step`.

        Raises
        ------
        KeyStateError
            If the state is corrupt.

        Examples
        --------
        >>> from streamsvm import CPMClassifier
        >>> keyed = KeyedClassifier(CPMClassifier(), time="at")
        >>> keyed.newest(keyed.step(None, [{"size": 1.0, "at": "1970-01-02"}])[1])
        86400000
        """
        newest: int | None = orjson.loads(unseal(state)[-1].partition(b"\n")[0])[1]
        return newest

    def event_time(self, event: Mapping[Any, Any]) -> int:
        """Return the time of an event in milliseconds since 1970.

        Parameters
        ----------
        event
            The event.

        Raises
        ------
        KeyError, ValueError
            If the event has no valid time.
        """
        return self.times.of(str(self.time), event[self.time])

    def check_prior_model(self, events: Sequence[Mapping[Any, Any]]) -> None:
        """Warn if the prior model knows few of the features of events.

        Parameters
        ----------
        events
            Events, as for `step`.

        Raises
        ------
        FeatureMismatchError
            If no feature is known.
        """
        if self.prior is not None:
            others = {self.label, self.join, self.time, *self.ignore}
            self.prior.check_names([{name: event[name] for name in event if name not in others} for event in events])


def _milliseconds(name: str, value: timedelta | float | None) -> int | None:
    """Convert a duration in seconds to milliseconds."""
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    check_number(name, seconds, 0.001, math.inf)
    return round(seconds * 1000)


class KeyCache:
    """LRU cache of unpacked keys, to avoid unpacking and packing for every event.

    Parameters
    ----------
    keyed
        The classifier.
    load
        Function that returns the state of a key, None if there is none.
    save
        Function that stores the state of a key.
    max_keys
        Maximum number of keys in the cache. If there are more, the least recently used key is saved and removed.

    Examples
    --------
    >>> from streamsvm import CPMClassifier
    >>> store = {}
    >>> cache = KeyCache(KeyedClassifier(CPMClassifier()), store.get, store.__setitem__, max_keys=2)
    >>> for i in range(40):
    ...     for customer in "abc":
    ...         results = cache.step(customer, [{"amount": float(i % 2), "label": i % 2}])
    >>> cache.flush()
    >>> sorted(store), cache.step("b", [{"amount": 1.0}])[0]["prediction"]
    (['a', 'b', 'c'], 1)
    """

    def __init__(
        self,
        keyed: KeyedClassifier,
        load: Callable[[Any], bytes | None],
        save: Callable[[Any, bytes], None],
        max_keys: int = 10_000,
    ) -> None:
        check_number("max_keys", max_keys, 1, whole=True)
        self.keyed = keyed
        self.max_keys = max_keys
        self._load, self._save = load, save
        self._keys: OrderedDict[Hashable, Key] = OrderedDict()
        self._changed: dict[Hashable, Key] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def step(self, key: Hashable, events: Sequence[Mapping[Any, Any]]) -> list[dict[str, Any]]:
        """Predict the next events of a key, and learn those with a label.

        Parameters
        ----------
        key
            The key.
        events
            Features by name, including the label.

        Returns
        -------
        list of dict
            The results, see `KeyedClassifier.step`.

        Raises
        ------
        KeyStateError
            If the loaded state is corrupt, or was written by another model or a newer version.
        """
        found = self._keys.get(key)
        if found is None:
            found = self._fetch(key)
        else:
            self._keys.move_to_end(key)
        if events:
            self._changed[key] = found
        return [found.step(event) for event in events]

    def flush(self) -> None:
        """Save all keys changed since their last save, before the engine commits."""
        for key, found in self._changed.items():
            self._save(key, found.pack())
        self._changed.clear()

    def drop(self, belongs: Callable[[Any], bool] | None = None) -> None:
        """Remove keys without saving, such as those of a revoked partition.

        Parameters
        ----------
        belongs
            Function that returns whether to remove a key; None for all keys.
        """
        for key in [key for key in self._keys if belongs is None or belongs(key)]:
            self._changed.pop(key, None)
            self._keys.pop(key).release()

    def _fetch(self, key: Hashable) -> Key:
        """Load a key, after removing the least recently used one if the cache is full."""
        while len(self._keys) >= self.max_keys:
            oldest, found = next(iter(self._keys.items()))
            if oldest in self._changed:
                self._save(oldest, found.pack())
                del self._changed[oldest]
            self._keys.pop(oldest).release()
        found = self._keys[key] = Key(self.keyed, self._load(key))
        return found
