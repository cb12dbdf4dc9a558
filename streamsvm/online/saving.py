"""Saving and copying of learners, adoption of models, and schemas.

A schema is the columns and labels that learners of many keys share. A learner takes the place of another one with the
same schema by its memory alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from connectors.notices import Notice, Notices, grouped
from streamsvm.core.library import sources_key
from streamsvm.core.precompile import prepare
from streamsvm.core.state import State, at_most
from streamsvm.decide.conformal import AllSets
from streamsvm.features.scaler import ABOVE_ALL, MOST_EVENTS, UNLIMITED
from streamsvm.features.space import FeatureSpace
from streamsvm.features.string_features import Recurrence
from streamsvm.locks import LearnerLock, locked
from streamsvm.models import ArchiveError, Scaler
from streamsvm.models.archive import check_names, decode_label, decode_labels, encode_label, whole
from streamsvm.models.saved import public
from streamsvm.online.classes import Classes
from streamsvm.online.events import EventLearner
from streamsvm.online.scaling import adopt_statistics, check_scaler
from streamsvm.parameters import ParameterError, ParameterTypeError

# Bounds of the memory of a learner beyond its archive: bytes, and a multiple of its arrays.
SPARE_BYTES, SPARE_TIMES = 64 << 20, 32
_NO_COUNTS = {"n_refused": 0, "many_classes_at": 0, "watched": []}


class SavedLearner(EventLearner):
    """A learner that can be saved and copied, adopts models, and shares its schema."""

    @locked
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the learner as a JSON header and arrays.

        A learner restored by `from_state` continues bit for bit.

        Returns
        -------
        header, arrays
            The content of an archive.

        Raises
        ------
        TypeError
            If a label or feature name has a type that cannot be saved.
        """
        space = self._space
        tight = self._new_state(len(space), len(self.labels.codes))
        tight.take(self._state)
        header = {
            "class": type(self).__name__,
            "params": {name: encode_param(value) for name, value in self._get_params().items()},
            **self._schema_header(),
            **self._counters(),
            "quoted": list(map(encode_label, space.texts.quoted)),
            "noticed": grouped(space.noticed),
            "sets": list(map(list, self._sets)),
        }
        return header, tight.saved() | self._sets.arrays()

    def _schema_header(self) -> dict[str, Any]:
        space = self._space
        return {
            "names": [encode_label(name) for name in space.names],
            "indicators": [j for j, is_indicator in enumerate(space.is_indicator) if is_indicator],
            "left_out": [[encode_label(name), kind] for name, kind in space.left_out.items()],
            "classes": [encode_label(label) for label in self.classes_],
        }

    def _counters(self) -> dict[str, Any]:
        """Return the counters of refused columns, classes, and strings of watched names."""
        watched = [
            [encode_label(name), found.before, found.seen, *sorted(found.again)]
            for name, found in self._space.texts.watched.items()
        ]
        return {"n_refused": self._space.n_refused, "many_classes_at": self.labels.many_at, "watched": watched}

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        with at_most(SPARE_BYTES + SPARE_TIMES * sum(array.nbytes for array in arrays.values())):
            return cls._restored(header, arrays)

    @classmethod
    def _restored(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        self = cls(**{name: decode_param(value) for name, value in header["params"].items()})
        self._restore_space(header)
        self._first = None
        self.labels = Classes(decode_labels(header["classes"]))
        self._restore_counters(header)
        self._capacity, self._room = (max(len(self._space), 1), max(len(self.labels.codes), 1)), UNLIMITED
        state = self._new_state(len(self._space), len(self.labels.codes))
        self._sets = AllSets.from_state(header.get("sets", []), arrays)
        check_names(arrays, {*state.names(), *self._sets.arrays()})
        state.restore(arrays)
        self._accept(state)
        if self._capacity != (len(self._space), len(self.labels.codes)):
            tight, state = state, self._new_state(*self._capacity)
            state.take(tight)
        self._n_prepared = len(self._space)
        self._use(state)
        return self

    def _accept(self, state: State) -> None:
        """Refuse an inconsistent restored state; recompute derived fields of a valid one."""
        if not 0 <= state.n_classes <= len(self.labels.codes):
            raise ArchiveError("there are more classes than labels")
        check_statistics(state.rows, self._space)
        self._check_restored(state)
        self._refresh(state)

    def _restore_space(self, header: Mapping[str, Any]) -> None:
        """Restore the columns of an archive, and the names left out."""
        names, chosen = header["names"], set(header["indicators"])
        if type(names) is not list or not chosen <= set(range(len(names))):
            raise ArchiveError("indicators that are not columns")
        columns = [decode_label(name) for name in names]
        indicators = [j in chosen for j in range(len(columns))]
        numbers = {name for name, indicator in zip(columns, indicators, strict=True) if not indicator}
        for name, indicator in zip(columns, indicators, strict=True):
            is_pair = type(name) is tuple and len(name) == 2
            if indicator and not (is_pair and (type(name[1]) is str or (name[1] is None and name[0] in numbers))):
                raise ArchiveError(f"{name!r} is not the name of an indicator")
        if len(set(zip(columns, indicators, strict=True))) < len(columns):
            raise ArchiveError("two columns have the same name")
        self._space.restore(
            columns,
            indicators,
            {decode_label(name): kind for name, kind in header["left_out"]},
            map(decode_label, header["quoted"]),
            map(Notice, map(str, header["noticed"])),
        )
        if self._space.n_given > self.max_features:
            raise ArchiveError(f"there are {len(columns)} columns, `max_features` allows {self.max_features}")

    def _restore_counters(self, header: Mapping[str, Any]) -> None:
        """Restore the result of `_counters` for the current columns and classes."""
        watched = {
            decode_label(name): Recurrence(int(before), int(seen), set(map(int, again)))
            for name, before, seen, *again in header["watched"]
        }
        space = self._own_space()
        space.n_refused = whole(header["n_refused"], 0, int(MOST_EVENTS))
        space.texts.restore_watched(watched)
        self.labels.many_at = int(header["many_classes_at"])

    def __reduce__(self) -> tuple[Any, ...]:
        # An unpickler calls `_unpickled` before it reads the state, whose classes other versions may lack.
        return _unpickled, (type(self), _version()), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        # Copies in memory keep labels and names of any type.
        with self._lock:
            state = self._shared_state()
            state["_state"] = self._fresh_state()
            state["_state"].take(self._state)
            state["labels"] = self.labels.copy()
            state["_sets"], state["_first"] = deepcopy(self._sets), deepcopy(self._first)
            state["_space"] = self._space.copy()
            return state

    def _shared_state(self) -> dict[str, Any]:
        """Return the attributes of the learner without copying."""
        state = dict(self.__dict__)
        views = ("_rows", "_row", "_listed", "_proba", "_proba_view", "_n_classes_view")
        for name in (*views, "_fast", "_fill", "_view", "_lock"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = LearnerLock()
        prepare(self._entries())
        fresh = self._fresh_state()
        fresh.take(self._state)
        self._use(fresh)

    def _check_adopted(self, scaler: Scaler, classes: Sequence[Any]) -> None:
        check_scaler(scaler, self._rows, self.max_features)
        if len(classes) > self.max_classes:
            raise ParameterError("max_classes", f"is {self.max_classes}, the model has {len(classes)} classes")

    def _start_with(self, scaler: Scaler, classes: Sequence[Any]) -> None:
        """Start again with the columns, statistics and classes of a model."""
        self._reset()
        self._move(self._capacity, UNLIMITED)
        self._space.restore(scaler.names, scaler.is_indicator.tolist())
        self._grow()
        adopt_statistics(scaler, self._rows)
        for label in classes:
            self._code(label)
        self._state.classes.learned[: len(classes)] = self.n_events_learned / len(classes)

    # Schemas ------------------------------------------------------------------------------------------------------

    @property
    def buffer(self) -> State:
        """The state; a learner that grows gets another one."""
        return self._state

    @property
    def capacity(self) -> tuple[int, int]:
        """Number of columns and classes that the memory has room for."""
        return self._capacity

    @property
    def schema_size(self) -> tuple[int, int, int]:
        """Number of columns, of labels, and of names left out."""
        return len(self._space.names), len(self.labels), len(self._space.left_out)

    def schema(self) -> bytes:
        """Return columns and labels as JSON."""
        return json.dumps(self._schema_header(), separators=(",", ":"), ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )

    def with_schema(self, data: bytes, notices: Notices) -> Self:
        """Set the schema of this learner, which has learned nothing, and return it.

        Parameters
        ----------
        data
            The result of `schema`.
        notices
            The warnings given so far, shared by all learners.
        """
        self._make_room(UNLIMITED)  # another learner's memory, with more events, may replace this one
        content = json.loads(data)
        self._restore_space(content | {"quoted": [], "noticed": []})
        self._space.issued = notices
        self.labels = Classes(decode_labels(content["classes"]))
        self._space.set_fast_path()
        self._grow()
        for code, label in enumerate(self.classes_):
            self._weight_class(label, code)
        self._replace_fast_path()
        return self

    def share_schema(self, other: SavedLearner) -> None:
        """Use the columns and labels of an untrained learner, and reset all counts.

        Call this after the memory was replaced by that of an equal learner.

        Parameters
        ----------
        other
            The other learner.
        """
        if self._space is not other._space or len(self.labels) > len(other.labels) or self._has_counted:
            self._space, self._shares_space, self._capacity = other._space, True, other._capacity
            self.labels, self._n_prepared = other.labels.copy(), other._n_prepared
            self._replace_fast_path()

    def check_buffer(self) -> None:
        """Check the memory after it was replaced, and update derived values.

        Raises
        ------
        ArchiveError
            If no stream can lead to this memory.
        """
        self._accept(self._state)

    @property
    def _has_counted(self) -> bool:
        """Whether a counter is not 0."""
        return bool(self._space.texts.watched or self._space.n_refused or self.labels.many_at)

    def counts(self) -> bytes:
        """Return the counters that are not in the memory as JSON, empty if all are 0."""
        return json.dumps(self._counters()).encode() if self._has_counted else b""

    def restore_counts(self, counts: bytes) -> None:
        """Restore the result of `counts`.

        Parameters
        ----------
        counts
            The result of `counts`.

        Raises
        ------
        ValueError, LookupError, TypeError
            If it is not the result for this schema.
        """
        if counts or self._has_counted:
            self._restore_counters(json.loads(counts) if counts else _NO_COUNTS)


# Pickles ----------------------------------------------------------------------------------------------------------


@cache
def _version() -> str:
    """Return the version and a digest, because development versions share a number."""
    package = Path(__file__).parents[1]
    sources = sources_key(path.relative_to(package).as_posix() for path in sorted(package.rglob("*.py")))
    return f"{public('__version__')} (sources {sources})"


def _unpickled(kind: type[Any], version: str) -> Any:
    """Return a learner for the state of a pickle, unless another version wrote it."""
    if version != _version():
        raise ArchiveError(
            f"the pickle of a {kind.__name__} was written by streamsvm {version}, this is {_version()}: unpickle it "
            "with that version, and use `save` to keep the model",
            "version",
        )
    return object.__new__(kind)


# Checks and parameters --------------------------------------------------------------------------------------------


def check_statistics(rows: State, space: FeatureSpace) -> None:
    """Refuse inconsistent statistics of an archive.

    The bounds of single values have been checked; this checks relations between values.
    """
    count, present = rows.count, rows.present
    # For booleans, `a > b` is `a and not b`.
    if np.logical_or.reduce(((present > 0.0) > (count >= 1.0)) | ((rows.centred > 0.0) > (present >= 1.0))):
        raise ArchiveError(f"statistics contain values that are not between 1 and {MOST_EVENTS:g}")
    if np.logical_or.reduce(present < rows.began):
        raise ArchiveError(f"statistics contain values that are not between 0 and {MOST_EVENTS:g}")
    n, due = len(space), rows.due
    if (due[:n] < 0.0).tolist() != space.is_indicator or np.logical_or.reduce(due[n:] != 0.0):
        raise ArchiveError("statistics take other columns for indicators than the header does")
    gaps = [(space.numbers[space.names[j][0]], j + 1) for j in space.gaps]
    if sorted(gaps) != [(j, rows.gap[j]) for j in np.flatnonzero(rows.gap > 0.0).tolist()]:
        raise ArchiveError("statistics take other columns for indicators of missing values than the header does")
    check_ranks(rows, rows)


def check_ranks(rows: State, stats: State) -> None:
    """Refuse recent values of an archive that contradict their columns' statistics."""
    n, width = rows.ranks.shape
    if not rows.ranks.size:
        return
    n_held = np.where(stats.due < 0.0, 0.0, np.minimum(stats.present - stats.began, rows.window))[:n, None]
    is_full = (rows.ranks < ABOVE_ALL) == (np.arange(width) < n_held)
    is_full |= n_held == 0.0  # a restart empties the window at the next value
    alike = (is_full & (np.sort(rows.ring, axis=1) == rows.ranks)).all(axis=1)
    if not alike.all():
        raise ArchiveError(f"the sorted values of column {int(alike.argmin())} are not its values")


def check_model(model: Any, kind: type[Any], example: str) -> None:
    """Raise an error unless a model has the kind that a learner adopts."""
    if not isinstance(model, kind):
        raise ParameterTypeError("model", f"must be a {kind.__name__}, such as {example}, got {type(model).__name__}")


def check_bounds(name: str, values: NDArray[Any], low: float, high: float) -> None:
    """Refuse values of an archive outside [low, high]."""
    # `reduce` takes half the time of `min` for few values, and states of keys are checked at every load.
    if values.size and not (
        low <= np.minimum.reduce(values, axis=None) and np.maximum.reduce(values, axis=None) <= high
    ):
        raise ArchiveError(f"{name} contain values that are not between {low:g} and {high:g}")


def encode_param(value: Any) -> Any:
    """Return a parameter as JSON values."""
    if isinstance(value, dict):
        return {"dict": [[encode_label(k), encode_label(v)] for k, v in value.items()]}
    return encode_label(value)


def decode_param(value: Any) -> Any:
    """Return the parameter that `encode_param` encoded."""
    if isinstance(value, dict) and set(value) == {"dict"}:
        return {decode_label(k): decode_label(v) for k, v in value["dict"]}
    return decode_label(value)
