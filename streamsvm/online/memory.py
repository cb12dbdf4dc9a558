"""Memory of a learner: a state that grows with columns, classes and events."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from types import ModuleType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.entry_points import EntryPoint
from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.core.template import Template
from streamsvm.decide.conformal import AllSets, callback_address
from streamsvm.features import ranks
from streamsvm.features.first_rows import FirstRows
from streamsvm.features.rows import Ints
from streamsvm.features.scaler import UNLIMITED
from streamsvm.features.space import FeatureSpace
from streamsvm.labels import as_label
from streamsvm.locks import LearnerLock, locked
from streamsvm.mutation import MutableParameter, check_mutable
from streamsvm.online import driver
from streamsvm.online.classes import Classes
from streamsvm.online.row_methods import RowMethods

# Initial room for events, and its growth: a move takes as long as 50 events.
FIRST_ROOM, GROWTH = 4, 4
# Templates of empty states by class, settings, capacity and room; None after the first one, which is not a copy.
_templates: dict[Any, Template | None] = {}
_MOST_TEMPLATES, _LARGEST_TEMPLATE = 64, 1 << 20
# Types of settings that are compared. A learner with settings of other types has no template.
_COMPARED = (int, float, str, type(None), np.generic)
# Attributes that do not change an empty state.
_OTHERS = frozenset({"labels", "categories", "class_weight"})


class LearnerMemory(RowMethods):
    """State of a learner with its columns and labels.

    A subclass defines `_new_state` and sets `_kernels` to its kernel module. `CODE` of that module names the entry
    points.
    """

    _kernels: ClassVar[ModuleType]
    _lock: LearnerLock
    _capacity: tuple[int, int]
    _room: int
    _state: State
    _rows: State
    _row: NDArray[np.float64]
    _listed: NDArray[np.int64]
    _proba: NDArray[np.float64]
    _n_classes_view: Any
    _proba_view: Any
    _fast: tuple[Any, ...]
    _fill: Any
    _view: Any
    _first: FirstRows | None = None

    max_features: int
    max_classes = MutableParameter()
    categories: tuple[Hashable, ...] | None

    _shares_space = False  # with other learners

    @abstractmethod
    def _new_state(self, n_columns: int, n_classes: int, *, room: int = UNLIMITED) -> State:
        """Return an empty state with the settings of this learner, for `room` events."""

    def _room_for(self, n: int) -> int:
        """Return for how many events memory for n events suffices."""
        return UNLIMITED

    def _fresh_state(self) -> State:
        """Return an empty state of the current capacity."""
        return self._empty_state(self._capacity, self._room)

    def _empty_state(self, capacity: tuple[int, int], room: int) -> State:
        """Return an empty state, from the third one with equal settings on a copy."""
        settings = {name: value for name, value in self.__dict__.items() if name[0] != "_" and name not in _OTHERS}
        settings["is_balanced"] = getattr(self, "class_weight", None) == "balanced"
        if not all(isinstance(value, _COMPARED) or name == "members" for name, value in settings.items()):
            return self._new_state(*capacity, room=room)
        key = type(self), tuple(settings.items()), capacity, room
        found = _templates.get(key)
        if found is not None:
            return found.copy()
        state = self._new_state(*capacity, room=room)
        if key not in _templates:
            if len(_templates) >= _MOST_TEMPLATES:
                _templates.clear()
            _templates[key] = None
        elif state.n_bytes <= _LARGEST_TEMPLATE:
            _templates[key] = Template(state)
        return state

    def _make_room(self, n: int) -> None:
        """Allocate memory for n more events, and for columns of interrupted calls."""
        if self._n_prepared < len(self._space) and not self._shares_space:
            self._grow()
        if self._room < UNLIMITED and (needed := self._n_held() + n) > self._room:
            self._move(self._capacity, self._room_for(max(capacity_for(needed), GROWTH * self._room)))

    def _n_held(self) -> int:
        """Return the number of events counted towards the room."""
        return self.n_events_learned

    def _move(self, capacity: tuple[int, int], room: int) -> None:
        """Move the state to memory of this capacity."""
        state = self._empty_state(capacity, room)
        state.take(self._state)
        self._use(state, _capacity=capacity, _room=room)

    @locked
    def change_setting(self, name: str, value: Any) -> None:
        """Change a parameter of a trained learner.

        Assigning the attribute calls this. The learner keeps its model.

        Parameters
        ----------
        name, value
            Name of the parameter and its new value.
        """
        check_mutable(self, name)
        type(self)(**self._get_params() | {name: value})  # refuses invalid values
        self._move(self._capacity, UNLIMITED)
        self.__dict__[name] = value
        self._fit_settings(self._state)
        state = self._fresh_state()
        state.take_learned(self._state)
        self._refresh(state)
        self._use(state)

    def _fit_settings(self, state: State) -> None:
        """Reduce the state to the limits of changed settings."""

    def _weight_class(self, label: Any, code: int) -> None:
        """Set the weight of a new class, for learners with weights by class."""
        if isinstance(weights := getattr(self, "class_weight", None), dict):
            self._state.classes[code].weight = weights.get(label, 1.0)

    def _check_restored(self, state: State) -> None:
        """Check relations in a restored state that the schema cannot express."""

    def _refresh(self, state: State) -> None:
        """Recompute derived fields of a checked, restored state."""

    def _reset(self) -> None:
        """Start with nothing learned."""
        if "_lock" not in self.__dict__:
            self._lock = LearnerLock()
        self._space = FeatureSpace(self.max_features, self.categories or ())
        self.labels = Classes()
        self._first = FirstRows()
        prepare(self._entries())
        self._n_prepared = 0
        self._sets = AllSets()
        self._capacity, self._room = (1, 2), self._room_for(FIRST_ROOM)
        self._use(self._fresh_state())

    @property
    def classes_(self) -> list[Any]:
        """Labels learned, in order of first appearance."""
        return self.labels.by_code[:-1]

    @property
    def n_classes(self) -> int:
        return int(self._state.n_classes)

    @property
    def n_events_learned(self) -> int:
        """Number of events learned."""
        return int(self._rows.seen)

    def _use(self, state: State, **changes: Any) -> None:
        """Use this state and these attributes, and set those of the fast path.

        All change at once: Ctrl-C or a lack of memory must not leave a size without its memory.
        """
        rows = state.rows
        rows.learner = state.address
        for name, entry in self._kernels.CODE.items():
            setattr(rows, name, entry.compile().address)
        rows.bind(proba=state.proba)
        fast = self._fast_path(rows)
        # Memory views, because their elements are read many times faster than fields of a state or of an array.
        views = {"_n_classes_view": state.number("n_classes").data, "_proba_view": state.proba.data}
        arrays = {"_row": rows.row, "_listed": rows.row_columns, "_proba": state.proba}
        self._lock.guard(rows)
        self.__dict__.update(changes | fast | views | arrays | {"_state": state, "_rows": rows})
        self._on_new_sets()

    def _entries(self) -> list[EntryPoint]:
        """Return the entry points that single events need."""
        of_ranks = ranks.ENTRY_POINTS.values() if self._is_ranking() else ()
        return [driver.ENTRY_POINTS["event"], *self._kernels.CODE.values(), *of_ranks]

    def _is_ranking(self) -> bool:
        """Return whether values are scaled by ranks."""
        return bool(getattr(self, "scaling", None) == "rank")

    def _replace_fast_path(self) -> None:
        """Replace the attributes of the fast path, which users compare by identity."""
        self.__dict__.update(self._fast_path(self._rows))

    def _fast_path(self, rows: State) -> dict[str, Any]:
        """Return the attributes of the fast path, which are valid together."""
        space = self._space
        rows.row_length, rows.n_gaps = space.n_given, len(space.gaps)
        fast = (space.plain_length, space.packer, space.getter, rows)
        return {"_fast": fast, "_fill": space.filler, "_view": rows.row.data}

    def _on_new_sets(self) -> None:
        """Connect prediction sets with the probabilities of single events."""
        self._rows.callback_memory = self._sets.bind_callback(self._proba[None, : len(self.labels.codes)])
        self._rows.callback = callback_address() if self._sets else 0

    def _grow(self, n_new: int = 0) -> None:
        """Grow to the number of known columns, and of known and new classes."""
        n_columns, n_classes = len(self._space), len(self.labels.codes) + n_new
        if n_columns > self._capacity[0] or n_classes > self._capacity[1]:
            columns = max(self._capacity[0], min(capacity_for(n_columns), self.max_features + len(self._space.gaps)))
            self._move((columns, max(self._capacity[1], capacity_for(n_classes))), self._room)
        if n_columns > self._n_prepared:
            indicators = self._n_prepared + np.flatnonzero(self._space.is_indicator[self._n_prepared :])
            if indicators.size > 0:
                self._rows.due[indicators], self._rows.scale[indicators] = -1.0, 1.0
            for j in (j for j in self._space.gaps if j >= self._n_prepared):
                self._rows.gap[self._space.numbers[self._space.names[j][0]]] = j + 1
            self._n_prepared = n_columns
            self._replace_fast_path()

    @locked
    def add_gaps(self, columns: Ints | None = None) -> None:
        """Add columns for missing values that have just proved informative.

        Their place depends only on learned events. Columns that are new in later rows of a batch make room for them.

        Parameters
        ----------
        columns
            Columns of the batch, or a part of them; changed in place.
        """
        rows, space = self._rows, self._own_space()
        n = 1 + max(space.gaps[-1:] + rows.present.nonzero()[0][-1:].tolist())
        due = np.flatnonzero(rows.gap < 0.0)
        for i, j in enumerate(due.tolist()):
            space.add_gap(space.names[j], n + i)
        if columns is not None:
            columns = columns if columns.base is None else columns.base
            columns[columns >= n] += len(due)
        rows.opening, rows.gap[due] = 0, 0.0
        rows.due[n:] = rows.scale[n:] = 0.0
        self._n_prepared = n
        self._grow()

    def _code(self, label: Any) -> int:
        """Return the number of a class; add a new one."""
        code = self.labels.codes.get(label)
        if code is None:
            label, code = as_label(label), len(self.labels)
            self._grow(1)  # before the label has a number, which is an index into the memory
            self._weight_class(label, code)
            self.labels.add(label)
            self._on_new_sets()
            self._replace_fast_path()  # users of the fast path notice new classes by it
        return code

    def _own_space(self) -> FeatureSpace:
        """Return the columns of this learner alone, which may be added to."""
        if self._shares_space:
            self._space, self._shares_space = self._space.copy(), False
        return self._space

    def twin_with(self, state: State) -> Self:
        """Return a learner with equal parameters and schema.

        Parameters
        ----------
        state
            Its memory, of equal capacity.
        """
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._sets, twin._lock, twin._first = AllSets(), LearnerLock(), None
        twin._shares_space, twin.labels = True, self.labels.copy()
        twin._use(state)
        return twin

    def use_memory(self, state: State, capacity: tuple[int, int]) -> None:
        """Move the learned state to other memory.

        Parameters
        ----------
        state
            The memory, which is overwritten.
        capacity
            Its number of columns and classes.
        """
        state.take(self._state)
        self._use(state, _capacity=capacity)


def capacity_for(n: int) -> int:
    """Return the capacity that is allocated for n columns or classes."""
    return 1 << max(n - 1, 0).bit_length()
