"""Saving and copying of learners, and adoption of models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from connectors.notices import Notice, grouped
from streamsvm.core.precompile import prepare
from streamsvm.core.state import State, at_most
from streamsvm.decide.conformal import AllSets
from streamsvm.features import scaler as scaling
from streamsvm.features.rows import Floats
from streamsvm.features.space import FeatureSpace
from streamsvm.features.texts import Recurrence
from streamsvm.locks import LearnerLock, locked
from streamsvm.models import ArchiveError, Scaler
from streamsvm.models.archive import check_names, decode_label, decode_labels, encode_label
from streamsvm.online.archive import check_statistics, decode_param, encode_param, fill
from streamsvm.online.classes import Classes
from streamsvm.online.rows import RowLearner
from streamsvm.online.scaling import adopt_statistics, check_scaler, scaler_for, scaler_of

# Bounds of the memory of a learner beyond its archive: bytes, and a multiple of its arrays.
SPARE_BYTES, SPARE_TIMES = 64 << 20, 32


class SavedLearner(RowLearner):
    """Saving, copying, and adoption of models given as arrays."""

    @locked
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the learner as a JSON header and arrays, from which `from_state` continues bit for bit.

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
        """Refuse an inconsistent restored state; recompute derived fields of a valid one."""
        if not 0 <= state.n_classes <= len(self.labels.codes):
            raise ArchiveError("there are more classes than labels")
        check_statistics(state.rows, self._space)
        self._check_restored(state)
        self._refresh(state)

    def _restore_space(self, header: Mapping[str, Any], is_indicator: NDArray[Any]) -> None:
        """Restore the columns of an archive, and the names left out."""
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
        # Copies in memory keep labels and names of any type.
        with self._lock:
            state = self._shared_state()
            state["_state"] = self._fresh_state()
            state["_state"].take(self._state)
            state["labels"] = self.labels.copy()
            state["_sets"], state["_first"] = deepcopy(self._sets), deepcopy(self._first)
            state["_columns"] = tuple(map(copy, state["_columns"]))
            return state

    def _shared_state(self) -> dict[str, Any]:
        """Return the attributes of the learner without copying."""
        state = dict(self.__dict__)
        views = ("_rows", "_row", "_listed", "_proba", "_n_classes", "_shares", "_fast", "_learning", "blocks")
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

    def _scaler(self) -> Scaler:
        return scaler_of(self._rows, self._space)

    def _has_units(self, scaler: Scaler) -> bool:
        """Whether unscaled values are stored in the units of an adopted model."""
        return math.isinf(scaler.limit) and not scaler.is_identity

    def _scaler_for(self, given: Scaler, units: Floats | None) -> Scaler:
        return scaler_for(given, self._rows, self._space, units)

    def _check_adopted(self, scaler: Scaler, classes: Sequence[Any]) -> None:
        check_scaler(scaler, self._rows, self.max_features)
        if len(classes) > self.max_classes:
            raise ValueError(f"the model has {len(classes)} classes, `max_classes` allows {self.max_classes}")

    def _adopt_scaler(self, scaler: Scaler) -> None:
        """Set columns and statistics in an empty state."""
        self._space.restore(scaler.names, scaler.is_indicator.tolist(), 0)
        self._grow()
        adopt_statistics(scaler, self._rows)
