"""What all online learners share: labels, encoding, batches, and saving, around one compiled step."""

from __future__ import annotations

import logging
import math
from abc import abstractmethod
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from types import FunctionType, ModuleType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from river import base

from connectors.held import numbers_of
from connectors.notices import Notice, grouped
from streamsvm.adjusting import Adjustable, Setting, check_mutable
from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.precompile import prepare
from streamsvm.core.state import State, at_most
from streamsvm.decide.arrays import Members
from streamsvm.decide.changes import Changes, Moment, Spread
from streamsvm.decide.conformal import AllSets, Key, follow_address
from streamsvm.decide.learner import PredictsManySets, answers
from streamsvm.decide.reasons import Explains, Groups, Masks
from streamsvm.features import ranks
from streamsvm.features import scaler as scaling
from streamsvm.features.first_rows import FirstRows
from streamsvm.features.frames import like, weight_of, weights_of
from streamsvm.features.rows import BadRows, EncodedRows, Floats, Ints
from streamsvm.features.space import FeatureSpace
from streamsvm.features.tables import NOT_PLAIN
from streamsvm.features.texts import Recurrence
from streamsvm.labels import (
    coded_labels,
    unhashable,
)
from streamsvm.locks import LearnerLock, locked
from streamsvm.models import ArchiveError, Scaler
from streamsvm.models.archive import check_names, decode_label, decode_labels, encode_label
from streamsvm.models.saved import LOADABLE, Archived
from streamsvm.online import driver
from streamsvm.online.archive import check_statistics, decode_param, encode_param, fill
from streamsvm.online.batch import BATCH
from streamsvm.online.calibration import noise_of
from streamsvm.online.classes import Classes, are_labels
from streamsvm.online.protocol import LearnerProtocol
from streamsvm.online.scaling import adopt_statistics, check_scaler, scaler_for, scaler_of

logger = logging.getLogger(__name__)

# Memory begins with room for so many events.
FIRST_ROOM = 4
_NONE, _NO_MEMORY = np.zeros(0, np.int64), np.zeros((0, 0), np.int64)
# What a learner needs beyond what an archive holds is at most so many bytes, and so many times its arrays.
SPARE_BYTES, SPARE_TIMES = 64 << 20, 32


Late = tuple[Ints, Ints]
"""What `run_batch` takes as `memories` and `apart`."""


class OnlineClassifier(
    LearnerProtocol, Adjustable, Explains, Changes, PredictsManySets, Archived, base.MiniBatchClassifier
):
    """Base of the online learners.

    Labels are of any hashable type; a class begins when its first event is learned. Features are as `FeatureSpace` has
    them.

    Thread-safe: any number of threads may predict with one model, single events or rows, while others learn; each call
    gives what it would give by itself. A single event is one compiled call that keeps the interpreter's lock; all else
    takes the learner's `_lock`. Memory that a learner has outgrown is there as long as a call has it.

    A subclass names its kernel file, `_kernels`, with the `CODE` that its `rows` have the addresses of, and gives
    `_new_state`.
    """

    _kernels: ClassVar[ModuleType]
    _event: ClassVar[Any]
    _event_proba: ClassVar[Any]
    _lock: LearnerLock
    _room: int
    _first: FirstRows | None = None

    max_features: int
    max_classes = Setting()
    categories: tuple[Hashable, ...] | None

    _shares_space = False  # with other learners

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def is_composed(self) -> bool:
        """Whether it has refits or costs: then its parts learn, and it has no memory of its own."""
        return False

    @property
    def memory_size(self) -> int:
        """How many numbers it has to remember of the moment at which an event was predicted, to learn it late."""
        return 0

    @property
    def noise(self) -> float:
        """The share of labels that are as if drawn at random, by which probabilities are bounded; 0 while for none.

        Learned as the stream runs, and heard where probabilities are better for it.
        """
        return noise_of(self._state.calibration)

    @abstractmethod
    def _new_state(self, n_columns: int, n_classes: int, *, room: int = scaling.ROOM) -> State:
        """An empty state for so many columns, classes, and events, and with this learner's settings."""

    def _room_for(self, n: int) -> int:
        """For how many events there is room in memory that holds n; `scaling.ROOM` where more take no more of it."""
        return scaling.ROOM

    def _fresh_state(self) -> State:
        """An empty state of the capacity that there is."""
        return self._new_state(*self._capacity, room=self._room)

    def _make_room(self, n: int) -> None:
        """See that n more events can be predicted and learned."""
        if self._room < scaling.ROOM and (needed := self._n_held() + n) > self._room:
            self._room = self._room_for(capacity_for(needed))
            self._move()

    def _n_held(self) -> int:
        """How many events the memory holds, or held."""
        return self.n_events_learned

    def _move(self) -> None:
        """Go on in another memory, of the capacity that there is now."""
        state = self._fresh_state()
        state.take(self._state)
        self._use(state)

    @locked
    def _change(self, name: str, value: Any) -> None:
        """Go on with another value of a parameter, from what is learned."""
        check_mutable(self, name)
        type(self)(**self._get_params() | {name: value})  # refuses what the parameter does not take
        self._room = scaling.ROOM
        self._move()
        self.__dict__[name] = value
        self._fit_settings(self._state)
        state = self._fresh_state()
        state.take_learned(self._state)
        self._refresh(state)
        self._use(state)

    def _fit_settings(self, state: State) -> None:
        """Reduce what is learned to what the settings have memory for."""

    def _weight_class(self, label: Any, code: int) -> None:
        """Give a class that begins its settings."""

    def _check_restored(self, state: State) -> None:
        """Check what the table cannot say of a state from an archive."""

    def _refresh(self, state: State) -> None:
        """Bring up to date what follows from what was put back, once no number leads out of the memory."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_kernels" in cls.__dict__:
            LOADABLE[cls.__name__] = cls

    # State -------------------------------------------------------------------------------------------------------

    def _reset(self) -> None:
        """Begin with nothing learned."""
        if "_lock" not in self.__dict__:
            self._lock = LearnerLock()
        self._space = FeatureSpace(self.max_features, self.categories or ())
        self.labels = Classes()
        self._first = FirstRows()
        prepare(self._entries())
        self._n_prepared = 0
        self._sets = AllSets()
        self._capacity, self._room = (1, 1), self._room_for(FIRST_ROOM)
        self._use(self._fresh_state())

    @property
    def classes_(self) -> list[Any]:
        """The labels learned, in order of first arrival."""
        return self.labels.answers[:-1]

    @property
    def n_events_learned(self) -> int:
        """How many events have been learned."""
        return int(self._rows.seen)

    @property
    def n_features_in_(self) -> int | None:
        """How many columns the arrays have that were learned, None where none were; others are refused."""
        return self._space.mismatches.width

    @n_features_in_.setter
    def n_features_in_(self, width: int | None) -> None:
        self._space.mismatches.width = width

    def check_names(self, X: Any) -> None:
        """Compare the features of the first rows of a stream with those that were learned; warn where few are known.

        Parameters
        ----------
        X
            A table, a list of dicts, or `SparseRows`.

        Raises
        ------
        FeatureMismatchError
            Where none is known.
        """
        self._space.mismatches.check_names(X)

    def moment(self) -> Moment:
        """What it knows now, for `changes` to compare with later: a few numbers for each feature and class."""
        leaders = self.leaders() if hasattr(self, "leaders") else []
        return Moment(
            self.n_events_learned,
            self.spreads(),
            dict(getattr(self, "relevance", {})),
            self._shares_of_classes(),
            leaders[0]["member"] if leaders and self.n_events_learned else "",
            float(getattr(self, "autocorrelation_trust", 0.0)),
        )

    def spreads(self, names: Collection[Hashable] | None = None, most: int | None = None) -> dict[Hashable, Spread]:
        """What running scaling knows of the values of columns; nothing where there is none.

        Parameters
        ----------
        names
            Of which columns; None for all.
        most
            Of so many of them, in order of arrival; None for all.
        """
        rows, space = self._rows, self._space
        found: dict[Hashable, Spread] = {}
        wanted = None if names is None else set(names)
        for j, name in enumerate(space.names if rows.scaling != scaling.NONE else ()):
            if len(found) == most:
                break
            n = 0.0 if wanted is not None and name not in wanted else float(rows.present[j])
            if n == 0.0 or space.is_dead(j):
                continue
            if space.is_indicator[j]:
                found[name] = Spread(n, math.nan, math.nan)
                continue
            less = float(rows.total[j] / rows.count[j])
            variance = max(float(rows.squares[j] / rows.count[j]) - less * less, 0.0)
            found[name] = Spread(n, float(rows.shift[j]) + less, math.sqrt(variance), bool(rows.decay < 1.0))
        return found

    def _shares_of_classes(self) -> dict[Any, float]:
        """How often each class came."""
        counts = self._state.classes.learned[: len(self.labels.codes)].tolist()
        return dict(zip(self.classes_, counts, strict=True))

    @property
    def notices(self) -> list[str]:
        """What it has warned of, once each: features left out, and labels that look like mistakes."""
        return self._space.notices() + self.labels.notices

    @locked
    def keep_categories(self, names: Sequence[Hashable]) -> None:
        """Take the strings under these names for categories from now on, as `categories` does from the start.

        Parameters
        ----------
        names
            Names of features whose texts are mostly new, such as identifiers, which are left out otherwise.
        """
        self.categories = tuple(dict.fromkeys((*(self.categories or ()), *names))) or None
        self._own_space().texts.keep(names)

    def _use(self, state: State) -> None:
        """Work on this state from now on, with what the fast path of single events needs at hand."""
        self._state, self._rows = state, state.rows
        self._connect()
        self._lock.guard(state.rows)
        self._row, self._listed, self._proba = self._rows.row, self._rows.row_columns, state.proba
        # Views, whose elements are read many times faster than a number of a state, or an array's.
        self._n_classes, self._shares = state.number("n_classes").data, state.proba.data
        self._follow_space()
        self._follow_sets()

    def _entries(self) -> list[EntryPoint]:
        """The compiled code that single events need."""
        of_ranks = ranks.ENTRY_POINTS.values() if self._is_ranking() else ()
        return [driver.ENTRY_POINTS["event"], *self._kernels.CODE.values(), *of_ranks]

    def _is_ranking(self) -> bool:
        """Whether values are scaled by their ranks."""
        return bool(getattr(self, "scaling", None) == "rank")

    def _connect(self) -> None:
        """Let events reach the learner, by the addresses of its compiled code."""
        rows = self._rows
        rows.learner = self._state.address
        for name, entry in self._kernels.CODE.items():
            setattr(rows, name, entry.compile().address)
        rows.bind(proba=self._state.proba)

    def _follow_space(self) -> None:
        space = self._space
        self._rows.row_length = len(space)
        self._fast = (space.columns.plain_length, space.columns.packer, space.columns.getter, self._rows)
        # The first events are learned one by one, since they are looked at.
        self._learning = self._fast if self._first is None else (-1, *self._fast[1:])
        self._fill, self._view = space.columns.filler, self._row.data

    def _follow_sets(self) -> None:
        """Have sets asked, and taught, by the probabilities that events leave."""
        self._rows.followed = self._sets.follow(self._proba[None, : len(self.labels.codes)])
        self._rows.follow = follow_address() if self._sets else 0

    def _sets_began(self) -> None:
        self._follow_sets()

    def _grow(self) -> None:
        """See that there is capacity for all columns and classes known."""
        n_columns, n_classes = len(self._space), len(self.labels.codes)
        if n_columns > self._capacity[0] or n_classes > self._capacity[1]:
            columns = max(self._capacity[0], min(capacity_for(n_columns), self.max_features))
            self._capacity = (columns, max(self._capacity[1], capacity_for(n_classes)))
            self._move()
        if n_columns > self._n_prepared:
            indicators = self._n_prepared + np.flatnonzero(self._space.is_indicator[self._n_prepared :])
            if indicators.size > 0:
                self._rows.due[indicators], self._rows.scale[indicators] = -1.0, 1.0
            self._n_prepared = n_columns
            self._follow_space()

    def _code(self, label: Any) -> int:
        """The number of a class, which begins if it is new."""
        code = self.labels.codes.get(label)
        if code is None:
            code = len(self.labels)
            self.labels.add(label)
            label = self.labels.answers[code]
            self._grow()
            self._weight_class(label, code)
            self._follow_sets()
        return code

    def _share_names(self, other: OnlineClassifier) -> None:
        """Have the columns and labels of another learner of the same capacity, whatever the memory holds."""
        self._space, self._shares_space = other._space, True
        self.labels, self._n_prepared = other.labels.copy(), other._n_prepared
        self.labels.many_at = 0
        self._follow_space()

    def _own_space(self) -> FeatureSpace:
        """The columns, to be added to: those of other learners stay as they are."""
        if self._shares_space:
            self._space, self._shares_space = self._space.copy(), False
        return self._space

    def _another(self) -> Self:
        """A learner with the same settings, columns and labels, and memory of its own with nothing in it."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._sets, twin._lock, twin._first = AllSets(), LearnerLock(), None
        twin._room = scaling.ROOM  # it may be given more than it learns
        twin._use(twin._fresh_state())
        twin._share_names(self)
        return twin

    def _look_at_first(self, rows: EncodedRows) -> None:
        """Warn of what the first rows tell of their features; nothing once there were enough."""
        if self._first is not None and len(rows):
            self._tell(self._first.take(rows, self._space.names))

    def _look_at_event(self, columns: Ints, values: Floats) -> None:
        """Do so with a single event."""
        if self._first is not None:
            self._tell(self._first.take_event(columns, values, self._space.names))

    def _tell(self, doubts: Sequence[Notice]) -> None:
        if doubts:
            self._own_space().notice(doubts)
        if self._first is None or self._first.is_full:
            self._first, self._learning = None, self._fast

    # One event ---------------------------------------------------------------------------------------------------

    def learn_one(self, x: dict[Hashable, Any], y: Any, w: float = 1.0, time: Any = None) -> None:
        """Learn one event.

        Parameters
        ----------
        x
            Features by name.
        y
            The label, of any hashable type.
        w
            How much the event weighs, 0 or more; at 0 it is left out.
        time
            Its event time in seconds or as a datetime, for learners that use it.

        Raises
        ------
        TypeError, ValueError
            For a feature that is infinite, or neither number nor string nor None, for a label that is None or NaN, or
            a bad weight. Nothing has been learned then.
        """
        try:
            code = self.labels.codes.get(y)
        except TypeError:
            raise unhashable(y) from None
        plain_length, pack, get, rows = self._learning
        if code is not None and w == 1.0 and type(x) is dict and len(x) == plain_length:
            try:
                packed = pack(*get(x))
            except NOT_PLAIN:
                pass
            else:
                if self._event(rows, packed, code, 1.0) == 0:
                    return
        self._learn(x, y, w)

    @locked
    def _learn(self, x: dict[Hashable, Any], y: Any, w: float) -> None:
        """Learn any event."""
        w = weight_of(w)
        self._make_room(1)
        self.labels.check(y, self.max_classes)
        if self._first is not None and w == 1.0 and y in self.labels.codes and self._pack(x):
            values = self._row[: len(x)].copy()
            if self._event(self._rows, b"", self.labels.codes[y], 1.0) == 0:
                self._look_at_event(np.arange(len(x)), values)
                return
        space = self._space if self._pack(x) else self._own_space()  # what is plain brings no columns
        entries = space.encode_event(x, learn=w > 0.0)
        if w > 0.0:
            self._look_at_event(*entries)
            n_classes = len(self.labels.codes)
            code = self._code(y)
            self.labels.doubt_number(n_classes, [y], self.n_events_learned)
            self._grow()
            self._list(*entries)
            self._event(self._rows, b"", code, w)

    def _list(self, columns: Ints, values: Floats) -> None:
        """Make an event that lists its columns the single one at hand."""
        n = len(columns)
        self._row[:n], self._listed[:n] = values, columns
        self._rows.listed = 1 + n
        if self._fast[0] != self._space.columns.plain_length:
            self._follow_space()

    def predict_one(self, x: dict[Hashable, Any], **kwargs: Any) -> Any:
        """The most probable label; None as long as nothing has been learned.

        Parameters
        ----------
        x
            Features by name.
        kwargs
            Taken and not looked at, as River passes what comes with an event.

        Raises
        ------
        TypeError, ValueError
            For a feature that is infinite, or neither number nor string nor None.
        """
        plain_length, pack, get, rows = self._fast
        if type(x) is dict and len(x) == plain_length:
            try:
                packed = pack(*get(x))
            except NOT_PLAIN:
                pass
            else:
                code = self._event(rows, packed, scaling.PREDICT, 1.0)
                if code >= -1:
                    return self.labels.answers[code]
        with self._lock:
            return self.labels.answers[self._predict(x, scaling.PREDICT)]

    def predict_proba_one(self, x: dict[Hashable, Any], **kwargs: Any) -> dict[Any, float]:
        """The probability of each label learned, 0 to 1; empty as long as nothing has been.

        Parameters
        ----------
        x
            Features by name.
        kwargs
            Taken and not looked at.

        Raises
        ------
        TypeError, ValueError
            For a feature that is infinite, or neither number nor string nor None.
        """
        plain_length, pack, get, rows = self._fast
        if type(x) is dict and len(x) == plain_length:
            try:
                packed = pack(*get(x))
            except NOT_PLAIN:
                pass
            else:
                if shares := self._event_proba(rows, packed):
                    return dict(zip(self.labels.answers, shares, strict=False))
        with self._lock:
            if self._n_classes[()] == 0:
                self._space.encode_event(x, learn=False)  # refuses what is no event
                return {}
            *_, shares = self.answer_one(x)
            return dict(zip(self.labels.answers, shares, strict=False))

    @locked
    def predict_set_one(
        self, x: dict[Hashable, Any], coverage: float = 0.9, by_class: bool = False, **kwargs: Any
    ) -> set[Any]:
        """Labels of which the true one is one, in a wanted share of events.

        Parameters
        ----------
        x
            Features by name.
        coverage
            That share, between 0 and 1. It follows the labels that are learned from the first call on; see
            `streamsvm.decide.conformal.ConformalSets` for how close to it the sets come, whatever the stream does.
        by_class
            Whether it is to hold for the events of each class by themselves.
        kwargs
            Taken and not looked at.

        Returns
        -------
        set
            The most probable label, and all that are probable enough; empty as long as nothing has been learned.

        Raises
        ------
        TypeError, ValueError
            For a feature that is infinite, or neither number nor string nor None, and a coverage that is none.
        """
        sets = self._sets.get(coverage, by_class) or self.label_sets(coverage, by_class)
        if not self.labels.codes:
            self._space.encode_event(x, learn=False)  # refuses what is no event
            return set()
        self._predict(x, scaling.FOLLOW)
        return sets.found(self.labels.answers)

    def answer_one(self, x: dict[Hashable, Any]) -> tuple[Any, float | None, Sequence[float]]:
        """The label that `predict_one` gives, its probability, and those over `classes_`, good until the next call.

        Not thread-safe, since the next call overwrites the probabilities.

        Parameters
        ----------
        x
            Features by name.
        """
        code = self._predict(x)
        shares = self._shares[: self._n_classes[()]]
        return self.labels.answers[code], shares[code] if code >= 0 else None, shares

    def _predict(self, x: dict[Hashable, Any], asked: int = scaling.PROBA) -> int:
        """The number of the most probable class, -1 for none; the probabilities of all come to stand in `_proba`."""
        self._make_room(1)
        if self._pack(x):
            code: int = self._event(self._rows, b"", asked, 1.0)
            if code >= -1:
                return code
        self._list(*self._space.encode_event(x, learn=False))
        return int(self._event(self._rows, b"", asked, 1.0))

    def _relevances(self) -> Floats | None:
        """The part of each of the first columns in a learned metric, 0 of the others; None where there is none."""
        return None

    def _pack(self, x: Any) -> bool:
        """Make an event the single one at hand, if it has a number under each known name and nothing else."""
        plain_length, _, get, _ = self._fast
        if type(x) is not dict or len(x) != plain_length:
            return False
        try:
            self._fill(self._view, 0, *get(x))
        except NOT_PLAIN:
            return False
        return True

    def _predict_packed(self) -> bool:
        """Predict the event at hand: the probabilities are then in `_proba`. False where it cannot be used."""
        return bool(self._event(self._rows, b"", scaling.PROBA, 1.0) >= -1)

    def _learn_packed(self, code: int) -> NDArray[np.float64] | None:
        """Learn the event at hand; what was probable before, or None where it cannot be used."""
        n = self._n_classes[()]
        if not self._predict_packed():
            return None
        proba: NDArray[np.float64] = self._proba[:n].copy()
        self._event(self._rows, b"", code, 1.0)
        return proba

    # Many events -------------------------------------------------------------------------------------------------

    @locked
    def learn_many(self, X: Any, y: Any, w: Any = None, times: Any = None) -> None:
        """Learn rows one after another, exactly as a loop of `learn_one` does.

        Parameters
        ----------
        X
            Rows as `FeatureSpace.encode` takes them: a data frame, an array of shape (n, d), a scipy sparse matrix, a
            list of dicts.
        y
            n labels.
        w
            n weights, one for all rows, or None for 1.
        times
            n event times, for learners that use them.

        Raises
        ------
        BadRows
            Where rows cannot be learned from; no row has been then.
        """
        self._run_with_sets(*self._prepare(X, y, w, False), predict=False)

    @locked
    def predict_many(self, X: Any) -> Any:
        """The labels `predict_one` gives for rows, which need be in no order: without label autocorrelation.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.

        Returns
        -------
        series or ndarray of objects, shape (n,)
            A series of the frame's kind where X is a frame; None where nothing has been learned.

        Raises
        ------
        BadRows
            Where rows cannot be used.
        """
        codes, _, _ = self._run(self._space.encode(X))
        return like(X, self.labels.decode(codes))

    @locked
    def proba_array(self, X: Any) -> Floats:
        """The probabilities of rows as `predict_proba_many` has them, as an array whatever the rows come in.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.
        """
        _, _, proba = self._run(self._space.encode(X), n_proba=int(self._state.n_classes))
        return proba

    @locked
    def peek_proba_many(self, X: Any) -> Floats:
        """What `predict_proba_one` gives for each row by itself, as one who looks on sees it: no trace is left.

        A prediction may leave one, as label autocorrelation takes note of which events wait for their labels.

        Parameters
        ----------
        X
            n rows, as for `learn_many`.

        Returns
        -------
        ndarray of float64, shape (n, n_classes)
            Over `classes_`.
        """
        _, _, proba = self._run(self._space.encode(X), predict=False, n_proba=int(self._state.n_classes))
        return proba

    @locked
    def test_then_train(
        self,
        X: Any,
        y: Any,
        *,
        times: Any = None,
        w: Any = None,
        proba: bool = False,
        coverage: float | None = None,
        by_class: bool = False,
    ) -> Any:
        """Predict each row, then learn it, exactly as a loop of `predict_one` and `learn_one` does.

        Parameters
        ----------
        X
            Rows, as for `learn_many`.
        y
            n labels; where None or NaN the row is only predicted.
        times
            n event times, for learners that use them.
        w
            n weights, one for all rows, or None for 1.
        proba
            Whether to return the probabilities too.
        coverage, by_class
            Where a coverage is given, also return sets of labels, as `predict_set_one` has them.

        Returns
        -------
        labels or (labels, probabilities) or (labels, sets) or (labels, probabilities, sets)
            Predicted labels, shape (n,), None where nothing had been learned; probabilities over `classes_` as it is
            afterwards, shape (n, n_classes), 0 for classes not known yet; whether each class is in the set, of that
            shape.

        Raises
        ------
        BadRows
            Where rows cannot be used; nothing has been learned then.
        """
        key = self._sets_asked(coverage, by_class)
        codes, probabilities, members = self._run_with_sets(*self._prepare(X, y, w, True), proba=proba, sets=key)
        predicted = like(X, self.labels.decode(codes))
        return answers(predicted, probabilities if proba else None, members)

    @locked
    def run_batch(
        self,
        features: Any,
        labels: Sequence[Any],
        learn: bool = True,
        proba: bool = False,
        times: Any = None,
        memories: Ints | None = None,
        apart: Ints | None = None,
    ) -> Any:
        """Predict each event of a batch, then (if `learn`) learn it where its label is not None.

        Sets of labels are left to whoever calls it, by `label_sets`: only there is known what was predicted of an event
        whose label comes late.

        Parameters
        ----------
        features
            n rows, as for `learn_many`.
        labels
            n labels, None where unknown.
        learn
            Whether to learn, or only to predict.
        proba
            Whether to return the probabilities too.
        times
            n event times, for learners that use them.
        memories, apart
            Where labels come late, an event is one row where it is predicted and another where it is learned. Both
            have a row of `memory_size` numbers of `memories`, left there by the prediction and wanted back for
            learning: `apart` has 1 + its number, and 0 for other rows.

        Returns
        -------
        (codes, scores) or (codes, scores, probabilities)
            For each event the index of the predicted label in `classes_`, -1 where nothing had been learned, and its
            probability, NaN there. If `proba` the probabilities over `classes_`, too, shape (n, n_classes), 0 for
            classes not known yet.

        Raises
        ------
        BadRows
            Where rows cannot be used; nothing has been learned then.
        """
        codes = weights = late = None
        if learn:
            late = None if memories is None or apart is None else (memories, apart)
            rows, codes, weights = self._prepare(features, labels, None, True, complete=memories is None, whole=False)
        else:
            rows = self._space.encode(features)
        n_classes = len(self.labels.codes) if learn else int(self._state.n_classes)

        found = self._run(rows, codes, weights, score=True, n_proba=n_classes if proba else 0, late=late)
        return found if proba else found[:2]

    def _run_with_sets(
        self,
        rows: EncodedRows,
        numbers: Ints,
        weights: Floats,
        predict: bool = True,
        proba: bool = False,
        sets: Key | None = None,
    ) -> tuple[Ints, Floats, Members | None]:
        """Predict and learn rows as `_prepare` has them: classes, all probabilities, and the sets that are wanted."""
        n_proba = len(self.labels.codes) if proba or self._sets else 0
        codes, _, shares = self._run(rows, numbers, weights, predict=predict, n_proba=n_proba)
        return codes, shares, self._sets.run(shares, np.where(weights > 0.0, numbers, -1), sets)

    def _prepare(
        self, X: Any, y: Any, w: Any, unlabelled: bool, *, complete: bool = True, whole: bool = True
    ) -> tuple[EncodedRows, Ints, Floats]:
        """Rows, their classes by number, -1 where they are not to be learned, and their weights.

        Where `unlabelled`, None and NaN are no labels. Of `complete` see `FeatureSpace.encode`. `whole` rows may be all
        that will come.
        """
        labels = coded_labels(y)
        weights = np.ones(len(labels)) if w is None else weights_of(w, len(labels))
        learn = (weights > 0.0) & are_labels(labels, unlabelled)
        is_known = all(map(self.labels.codes.__contains__, labels.values))
        if not is_known:
            refused = self.labels.without_room(labels, learn, self.max_classes)
            if refused:
                self._space.encode(X)  # rows with bad features are refused first: they begin no class
                raise BadRows(refused)
        rows = self._own_space().encode(X, learn, complete=complete)
        if not is_known:
            n_classes, learned = len(self.labels.codes), labels.take(learn)
            for label in learned.different():
                self._code(label)
            self.labels.doubt_number(n_classes, learned, self.n_events_learned)
        numbers = numbers_of(labels, self.labels.codes)
        np.putmask(numbers, ~learn, -1)
        if whole and len(numbers) > 1 and self._rows.seen == 0:
            self.labels.doubt_order(numbers[learn])
        if whole:
            self._look_at_first(rows)
        self._grow()
        self._make_room(len(rows))
        return rows, numbers, weights

    def _run(
        self,
        rows: EncodedRows,
        codes: Ints | None = None,
        weights: Floats | None = None,
        predict: bool = True,
        score: bool = False,
        n_proba: int = 0,
        late: Late | None = None,
    ) -> tuple[Ints, Floats, Floats]:
        n = len(rows)
        self._make_room(n)
        memories, apart = (_NO_MEMORY, _NONE) if late is None else late
        predicted, proba = np.full(n, -1), np.zeros((n, n_proba))
        scores = np.full(n if score or n_proba else 0, math.nan)
        batch = State(BATCH)
        batch.shared, batch.predicting, batch.unordered = rows.shared, predict, predict and codes is None
        batch.answering = predict or score or n_proba > 0
        batch.bind(
            values=np.ascontiguousarray(rows.values, np.float64),
            columns=np.ascontiguousarray(rows.columns, np.int64),
            indptr=np.ascontiguousarray(rows.indptr, np.int64),
            labels=np.full(n, -1) if codes is None else np.ascontiguousarray(codes, np.int64),
            weights=np.ones(n) if weights is None else weights,
            codes=predicted,
            scores=scores,
            proba=proba,
            apart=apart,
            memories=memories,
        )
        self._run_rows(batch)
        return predicted, scores, proba

    def _run_rows(self, batch: State) -> None:
        prepare([driver.ENTRY_POINTS["run_rows"]])
        driver.run_rows(self._rows, batch)

    # Reasons -----------------------------------------------------------------------------------------------------

    def _put(self, x: Mapping[Hashable, Any]) -> None:
        """Make an event the current row."""
        if not (self._pack(x) and np.isfinite(self._row[: len(x)]).all()):
            self._list(*self._space.encode_event(x, learn=False))

    def _peek_variants(self, x: Mapping[Any, Any], groups: Groups, masks: Masks) -> Floats:
        space = self._space
        columns, values = space.encode_event(x, learn=False)
        group_of = {name: g for g, group in enumerate(groups) for name in group}
        names = (space.names[j][0] if space.is_indicator[j] else space.names[j] for j in columns.tolist())
        group = [group_of.get(name, -1) for name in names]
        n, d = len(masks), len(columns)
        kept = np.where(masks[:, group], values, math.nan) if d else np.zeros((n, 0))
        rows = EncodedRows(kept.ravel(), columns, d * np.arange(n + 1), True)
        return self._run(rows, predict=False, n_proba=int(self._state.n_classes))[2]

    # Saving ------------------------------------------------------------------------------------------------------

    @locked
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All there is to know, as a JSON header and arrays: `from_state` continues from it bit for bit.

        Raises
        ------
        TypeError
            Where a label or feature name is of a type that cannot be saved.
        """
        space = self._space
        tight = self._new_state(len(space), len(self.labels.codes))
        tight.take(self._state)
        header = {
            "class": type(self).__name__,
            "params": {name: encode_param(value) for name, value in self._get_params().items()},
            "classes": [encode_label(label) for label in self.classes_],
            "names": [encode_label(name) for name in space.names],
            "n_refused": space.n_refused,
            "left_out": [[encode_label(name), kind] for name, kind in space.left_out.items()],
            "watched": [
                [encode_label(name), found.before, found.seen, *sorted(found.again)]
                for name, found in space.texts.watched.items()
            ],
            "quoted": [[encode_label(name), way] for name, way in space.texts.quoted.items()],
            "noticed": grouped(space.noticed),
            "many_classes_at": self.labels.many_at,
            "sets": self._sets.header(),
        }
        arrays = tight.saved() | {"is_indicator": np.array(space.is_indicator, bool)}
        return header, arrays | self._sets.arrays()

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        with at_most(SPARE_BYTES + SPARE_TIMES * sum(array.nbytes for array in arrays.values())):
            return cls._restored(header, arrays)

    @classmethod
    def _restored(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        self = cls(**{name: decode_param(value) for name, value in header["params"].items()})
        self._restore_space(header, arrays["is_indicator"])
        self._first = None
        self.labels = Classes(decode_labels(header["classes"]))
        self.labels.many_at = int(header["many_classes_at"])
        self._capacity, self._room = (max(len(self._space), 1), max(len(self.labels.codes), 1)), scaling.ROOM
        state = self._new_state(len(self._space), len(self.labels.codes))
        self._sets = AllSets.from_state(header.get("sets", []), arrays)
        check_names(arrays, {*state.names(), "is_indicator", *self._sets.arrays()})
        state.restore(arrays)
        self._accept(state)
        if self._capacity != (len(self._space), len(self.labels.codes)):
            tight, state = state, self._new_state(*self._capacity)
            state.take(tight)
        self._n_prepared = len(self._space)
        self._use(state)
        return self

    def _accept(self, state: State) -> None:
        """Refuse a state that was put back and that no stream can have left; bring up to date what follows from it."""
        if not 0 <= state.n_classes <= len(self.labels.codes):
            raise ArchiveError("there are more classes than labels")
        check_statistics(state.rows, self._space)
        self._check_restored(state)
        self._refresh(state)

    def _restore_space(self, header: Mapping[str, Any], is_indicator: NDArray[Any]) -> None:
        """Take over the columns of an archive, and what is known of names that take none."""
        names, n_refused = header["names"], header["n_refused"]
        indicators = np.zeros(len(names), bool)
        fill(indicators, is_indicator, "is_indicator")
        columns = [decode_label(name) for name in names]
        for name, indicator in zip(columns, indicators.tolist(), strict=True):
            if indicator and not (type(name) is tuple and len(name) == 2 and type(name[1]) is str):
                raise ArchiveError(f"{name!r} is not the name of an indicator")
        if type(names) is not list or len(set(zip(columns, indicators.tolist(), strict=True))) < len(columns):
            raise ArchiveError("two columns have the same name")
        if type(n_refused) is not int or not 0 <= n_refused <= scaling.MOST_EVENTS:
            raise ArchiveError(f"{n_refused!r} columns were refused")
        if len(columns) > self.max_features:
            raise ArchiveError(f"there are {len(columns)} columns, `max_features` allows {self.max_features}")
        self._space.restore(
            columns,
            indicators.tolist(),
            n_refused,
            {decode_label(name): kind for name, kind in header["left_out"]},
            {
                decode_label(name): Recurrence(int(before), int(seen), set(map(int, again)))
                for name, before, seen, *again in header["watched"]
            },
            {decode_label(name): str(way) for name, way in header.get("quoted", ())},
            map(Notice, map(str, header.get("noticed", ()))),
        )

    def __getstate__(self) -> dict[str, Any]:
        # In memory labels and names keep their own objects, of whatever type.
        with self._lock:
            state = self._shared_state()
            state["_state"] = self._fresh_state()
            state["_state"].take(self._state)
            state["labels"] = self.labels.copy()
            state["_sets"], state["_first"] = deepcopy(self._sets), deepcopy(self._first)
            state["_columns"] = tuple(map(copy, state["_columns"]))
            return state

    def _shared_state(self) -> dict[str, Any]:
        """Everything that makes up the learner, not copied."""
        state = dict(self.__dict__)
        views = ("_rows", "_row", "_listed", "_proba", "_n_classes", "_shares", "_fast", "_learning")
        for name in (*views, "_fill", "_view", "_lock", "_space"):
            del state[name]
        space = self._space
        state["_columns"] = (
            *(space.names, space.is_indicator, space.n_refused, space.left_out, deepcopy(space.texts.watched)),
            *(space.texts.quoted, space.noticed),
        )
        state["_width"] = space.mismatches.width
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        columns, memory, width = state.pop("_columns"), state.pop("_state"), state.pop("_width", None)
        self.__dict__.update(state)
        self._lock = LearnerLock()
        self._space = FeatureSpace(self.max_features, self.categories or ())
        self._space.restore(*columns)
        self._space.mismatches.width = width
        prepare(self._entries())
        fresh = self._fresh_state()
        fresh.take(memory)
        self._use(fresh)

    # Models ------------------------------------------------------------------------------------------------------

    def _scaler(self) -> Scaler:
        return scaler_of(self._rows, self._space)

    def _has_units(self, scaler: Scaler) -> bool:
        """Whether values that are not scaled are held in units of an adopted model."""
        return math.isinf(scaler.limit) and not scaler.is_identity

    def _scaler_for(self, given: Scaler, units: Floats | None) -> Scaler:
        return scaler_for(given, self._rows, self._space, units)

    def _check_adopted(self, scaler: Scaler, classes: Sequence[Any]) -> None:
        check_scaler(scaler, self._rows, self.max_features)
        if len(classes) > self.max_classes:
            raise ValueError(f"the model has {len(classes)} classes, `max_classes` allows {self.max_classes}")

    def _adopt_scaler(self, scaler: Scaler) -> None:
        """Take over columns and statistics, into a state with nothing learned."""
        self._space.restore(scaler.names, scaler.is_indicator.tolist(), 0)
        self._grow()
        adopt_statistics(scaler, self._rows)


def _entry(name: str) -> Any:
    """A compiled step of single events as a class attribute, compiled when it is first called.

    From then on it is called without the look at the arguments' types that each call of a dispatcher costs.
    """

    def first_call(*arguments: Any) -> Any:
        entry = driver.ENTRY_POINTS[name]
        prepare([entry])
        compiled = entry.compile()
        plain = isinstance(compiled, FunctionType)
        setattr(OnlineClassifier, f"_{name}", staticmethod(compiled) if plain else compiled)
        return compiled(*arguments)

    return staticmethod(first_call)


OnlineClassifier._event, OnlineClassifier._event_proba = _entry("event"), _entry("event_proba")


def check_categories(categories: Any) -> tuple[Hashable, ...] | None:
    """Names as a tuple, whatever they came in; None where there are none, since River cannot clone an empty one."""
    if categories is None:
        return None
    if isinstance(categories, str) or not isinstance(categories, Iterable):
        raise TypeError(f"`categories` must be a tuple of feature names, got {categories!r}")
    return tuple(categories) or None


def capacity_for(n: int) -> int:
    """How many columns or classes there is capacity for, where n are asked for."""
    return 1 << max(n - 1, 0).bit_length()


def one_row(columns: Ints, values: Floats) -> EncodedRows:
    """A single event as rows."""
    return EncodedRows(values, columns, np.array([0, len(columns)]), False)
