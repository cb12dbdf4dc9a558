"""Single events: prediction and training by one compiled call each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import FunctionType
from typing import Any, ClassVar

import numpy as np

from streamsvm.core.precompile import prepare
from streamsvm.decide.conformal import ConformalSets
from streamsvm.features.rows import EncodedRows, Floats, Ints
from streamsvm.features.scaler import CALLBACK, PREDICT, PROBA
from streamsvm.features.tables import NOT_PLAIN, weight_of
from streamsvm.locks import locked
from streamsvm.online import driver
from streamsvm.online.memory import LearnerMemory
from streamsvm.online.row_methods import Encoded


class EventLearner(LearnerMemory):
    """Predicts and learns single events.

    An event with exactly the known names and only numbers takes the fast path. Its values are packed into the row
    buffer, and one compiled call that holds the GIL does the rest. An event with None takes it under the lock.
    """

    parts: Any = None
    """Classifiers that answer in place of a learner with refits or costs.

    No event takes the fast path of such a learner.
    """

    _balance = 0
    """Number of `predict_one` less `predict_proba_one` before the first label."""

    _event: ClassVar[Any]
    _event_proba: ClassVar[Any]

    @locked
    def _inspect_first_rows(self, rows: EncodedRows) -> None:
        """Warn about suspicious features in the first rows of the stream."""
        if self._first is None or not len(rows):
            return
        if notices := self._first.add_rows(rows, self._space.names):
            self._own_space().notice(notices)
        if self._first.is_full:
            self._first = None

    def _inspect_event(self, columns: Ints, values: Floats) -> None:
        """Warn about suspicious features with a single event."""
        first = self._first  # another thread may end the checks
        if first is not None and not first.add_event(columns, values):
            self._inspect_first_rows(EncodedRows.of_event(columns, values))

    def learn_one(self, x: dict[Any, Any], y: Any, w: float = 1.0, time: Any = None) -> None:
        """Learn one event.

        Parameters
        ----------
        x
            Features by name.
        y
            Label, of any hashable type.
        w
            Weight of the event, 0 or more; 0 skips the event.
        time
            Event time in seconds or as a datetime, for learners that use it.

        Raises
        ------
        TypeError, ValueError
            For an infinite feature, one that is not a number, string or None, a label that is None or NaN, or an
            invalid weight. Nothing is learned then.
        """
        plain_length, pack, get, rows = self._fast
        if w == 1.0 and type(x) is dict and len(x) == plain_length:
            try:
                code, packed = self.labels.codes[y], pack(*get(x))
            except NOT_PLAIN:  # or a new label
                pass
            else:
                if (done := self._event(rows.address, packed, code, 1.0)) >= 0:
                    if done:
                        self.add_gaps()
                    first = self._first
                    if first is not None and not first.add_packed(packed):
                        self._inspect_event(np.arange(plain_length), np.frombuffer(packed))
                    return
        if self.parts is None:
            self._learn(x, y, w)
        else:
            self.parts.top.learn_one(x, y, w=w, time=time)

    @locked
    def _learn(self, x: dict[Any, Any], y: Any, w: float) -> None:
        """Learn an event outside the fast path."""
        w = weight_of(w)
        self._make_room(1)
        self.labels.check(y, self.max_classes)
        is_plain, code = self._pack(x), self.labels.codes.get(y, -1)
        if is_plain and w > 0.0 and code >= 0 and self._learn_current(code, w):
            if self._first is not None:
                self._inspect_event(np.arange(len(x)), self._row[: len(x)].copy())
            return
        space = self._space if is_plain else self._own_space()  # a plain event adds no columns
        entries = space.encode_event(x, learn=w > 0.0)
        if w > 0.0:
            self._inspect_event(*entries)
            n_classes = len(self.labels.codes)
            code = self._code(y)
            self.labels.check_count(n_classes, [y], self.n_events_learned)
            self._grow()
            self._rows.listed = 1 + self._write_listed(*entries)
            self._learn_current(code, w)

    def _learn_current(self, code: int, w: float) -> bool:
        """Learn the current row; return False if a value is out of range."""
        done = self._event(self._rows.address, b"", code, w)
        if done > 0:
            self.add_gaps()
        return bool(done >= 0)

    def _write_listed(self, columns: Ints, values: Floats) -> int:
        """Write an event with a list of its columns to the row buffer."""
        n = len(columns)
        self._row[:n], self._listed[:n] = values, columns
        self._update_fast_path()
        return n

    def _update_fast_path(self) -> None:
        """Replace the fast path if the columns have changed."""
        if self._fast[0] != self._space.plain_length:
            self._replace_fast_path()

    def predict_one(self, x: dict[Any, Any], **kwargs: Any) -> Any:
        """Predict the label of an event.

        Parameters
        ----------
        x
            Features by name.
        kwargs
            Ignored; for compatibility with River.

        Returns
        -------
        object or None
            The most probable label; None before anything has been learned.

        Raises
        ------
        TypeError, ValueError
            For an infinite feature, or one that is not a number, string or None.
        """
        plain_length, pack, get, rows = self._fast
        if type(x) is dict and len(x) == plain_length:
            try:
                packed = pack(*get(x))
            except NOT_PLAIN:
                pass
            else:
                code = self._event(rows.address, packed, PREDICT, 1.0)
                if code >= -1:
                    return self.labels.by_code[code]
        if self.parts is not None:
            return self.parts.top.predict_one(x)
        with self._lock:
            return self.labels.by_code[self._predict(x, PREDICT)]

    def predict_proba_one(self, x: dict[Any, Any], **kwargs: Any) -> dict[Any, float]:
        """Predict the probability of each learned label.

        Parameters
        ----------
        x
            Features by name.
        kwargs
            Ignored; for compatibility with River.

        Returns
        -------
        dict
            Probability by label, 0 to 1; empty before anything has been learned.

        Raises
        ------
        TypeError, ValueError
            For an infinite feature, or one that is not a number, string or None.

        Examples
        --------
        >>> from streamsvm import CPMClassifier
        >>> model = CPMClassifier()
        >>> for i in range(100):
        ...     model.learn_one({"a": float(i % 2)}, "odd" if i % 2 else "even")
        >>> {label: round(p, 1) for label, p in model.predict_proba_one({"a": 1.0}).items()}
        {'even': 0.0, 'odd': 1.0}
        """
        plain_length, pack, get, rows = self._fast
        if type(x) is dict and len(x) == plain_length:
            try:
                packed = pack(*get(x))
            except NOT_PLAIN:
                pass
            else:
                if shares := self._event_proba(rows.address, packed):
                    return dict(zip(self.labels.by_code, shares, strict=False))
        if self.parts is not None:
            found: dict[Any, float] = self.parts.top.predict_proba_one(x)
            return found
        with self._lock:
            *_, shares = self.answer_one(x)
            return dict(zip(self.labels.by_code, shares, strict=False))

    def _predict_set(self, sets: ConformalSets, x: dict[Any, Any], kwargs: dict[str, Any]) -> set[Any]:
        if not self.labels.codes:
            self._space.encode_event(x, learn=False)  # refuses invalid events
            return set()
        self._predict(x, CALLBACK)
        return sets.found(self.labels.by_code)

    def answer_one(self, x: dict[Any, Any]) -> tuple[Any, float | None, Sequence[float]]:
        """Return the predicted label, its probability, and all probabilities.

        Not thread-safe: the next call overwrites the probabilities.

        Parameters
        ----------
        x
            Features by name.

        Returns
        -------
        label, score, probabilities
            The label and its probability are None before anything has been learned. The probabilities are over
            `classes_`.
        """
        code = self._predict(x)
        shares = self._proba_view[: self._n_classes_view[()]]
        return self.labels.by_code[code], shares[code] if code >= 0 else None, shares

    def _predict(self, x: dict[Any, Any], asked: int = PROBA) -> int:
        """Return the number of the most probable class, or -1.

        Writes the probabilities to `_proba`.
        """
        self._make_room(1)
        if self._pack(x):
            code: int = self._event(self._rows.address, b"", asked, 1.0)
            if code >= -1:
                return code
        self._rows.listed = 1 + self._write_listed(*self._space.encode_event(x, learn=False))
        if not self.labels.codes:  # events have no content yet, so one that is predicted by both methods counts once
            sign = 1 if asked == PREDICT else -1
            self._balance += sign
            if self._balance * sign <= 0:
                return -1
        return int(self._event(self._rows.address, b"", asked, 1.0))

    def _pack(self, x: Any) -> bool:
        """Write an event to the row buffer if known names all have numbers or None."""
        plain_length, _, get, _ = self._fast
        if type(x) is not dict or len(x) != plain_length:
            return False
        try:
            self._fill(self._view, 0, *[math.nan if value is None else value for value in get(x)])
        except NOT_PLAIN:
            return False
        return True

    # Single events of a classifier around this learner -----------------------------------------------------------

    def encode_event(self, x: dict[Any, Any]) -> Encoded:
        """Encode a single event to predict.

        Parameters
        ----------
        x
            Features by name.

        Returns
        -------
        Encoded
            The encoded event, without a label.
        """
        return Encoded(EncodedRows.of_event(*self._space.encode_event(x, learn=False)), np.array([-1]))

    @property
    def fast_path(self) -> tuple[Any, ...]:
        """Tuple (number of values, packer, getter, rows) for events on the fast path.

        The number is -1 while there is no fast path. See `KnownFeatures` for packer and getter.
        """
        return self._fast

    def load_event(self, x: Any) -> Floats | None:
        """Load an event as the current row, if it is on the fast path.

        Parameters
        ----------
        x
            Features by name.

        Returns
        -------
        ndarray of float64 or None
            The values, NaN for None; or None if the event has other names, or values that are not numbers.
        """
        self._make_room(1)
        self._update_fast_path()
        return self._row[: self._fast[0]] if self._pack(x) else None

    @property
    def columns(self) -> list[Any]:
        """Features by column; (name, string) for a string."""
        names: list[Any] = self._space.names
        return names

    def load_listed(self, x: Any, *, learn: bool = False) -> int:
        """Make any event the current row, with a list of its columns.

        Parameters
        ----------
        x
            Features by name.
        learn
            Whether new features get columns.

        Returns
        -------
        int
            The number of values.

        Raises
        ------
        TypeError, ValueError
            For values that cannot be used.
        """
        self._make_room(1)
        columns, values = (self._own_space() if learn else self._space).encode_event(x, learn=learn)
        if learn:
            self._inspect_event(columns, values)
            self._grow()
        return self._write_listed(columns, values)

    def predict_loaded(self) -> Floats | None:
        """Return the probabilities of the current row, valid until the next call.

        None if a value is out of range.
        """
        return self._proba[: self.n_classes] if self._event(self._rows.address, b"", PROBA, 1.0) >= -1 else None

    def learn_loaded(self, code: int) -> tuple[int, Floats] | None:
        """Predict and learn the current row.

        Parameters
        ----------
        code
            Number of its class.

        Returns
        -------
        tuple of int and ndarray, or None
            The predicted class, -1 if none is known, and the probabilities, valid until the next call. None if a value
            is out of range.
        """
        if self._first is not None:
            n = self._space.plain_length
            self._inspect_event(np.arange(n), self._row[:n].copy())
        return self._learn_packed(code)

    def _learn_packed(self, code: int) -> tuple[int, Floats] | None:
        """Predict and learn the current row."""
        predicted = self._event(self._rows.address, b"", PROBA, 1.0)
        if predicted < -1:
            return None
        proba = self._proba[: self.n_classes].copy()
        self._learn_current(code, 1.0)
        return predicted, proba

    def find_fast_path(self, x: dict[Any, Any]) -> None:
        """Enable the fast path for events with the names of this event, if possible.

        Parameters
        ----------
        x
            Features by name.
        """
        self._space.find_fast_path(x)


def _entry(name: str) -> Any:
    """Return a method that compiles the step of single events at its first call.

    Later calls skip the check of argument types by the dispatcher.
    """

    def first_call(*arguments: Any) -> Any:
        entry = driver.ENTRY_POINTS[name]
        prepare([entry])
        compiled = entry.compile()
        plain = isinstance(compiled, FunctionType)
        setattr(EventLearner, f"_{name}", staticmethod(compiled) if plain else compiled)
        return compiled(*arguments)

    return staticmethod(first_call)


EventLearner._event, EventLearner._event_proba = _entry("event"), _entry("event_proba")
