"""Windows: the events of a stream that a solver is given.

What a window keeps is a setting (`Latest`, `Since`, `Reservoir`, `Adaptive`); `begin` gives the memory for it. Rows are
kept encoded and unscaled, with classes by number.

Where one event has to leave a window that is `balanced`, it leaves from the class that has most, the new event counted;
so of n events a class keeps its last n divided by the number of classes, if so many ever came.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.features.scaler import LARGEST, MOST_EVENTS
from streamsvm.features.space import EncodedRows, Floats, Ints
from streamsvm.models import ArchiveError
from streamsvm.models.archive import DAMAGED, check_names
from streamsvm.online.archive import within
from streamsvm.online.base import capacity_for
from streamsvm.parameters import ParameterTypeError, check_between, check_number
from streamsvm.refit import window_kernels as windows
from streamsvm.refit.triggers import seconds_of

if TYPE_CHECKING:
    import scipy.sparse

_MAX_BYTES = 256 << 20
_SLOT_BYTES = windows.WINDOW.own_arrays["slots"].element.itemsize
_CLASS_BYTES = windows.WINDOW.own_arrays["classes"].element.itemsize
# The words of an arena at first, and the fewest it may be confined to; and the classes there is memory for at first.
_FIRST_WORDS, _LEAST_WORDS, _FIRST_CLASSES = 1 << 10, 1 << 13, 16
_MOST_EVENTS_HELD = 1 << 31
_MOST_COLUMNS = 1 << 31
_NO_ROOM = np.empty(0)
# A detector begins anew at the latest after so many errors.
_MOST_ERRORS = 1_000_000


# Settings ---------------------------------------------------------------------------------------------------------


class Window:
    """What a window keeps; see the kinds."""

    n: int
    balanced: bool
    max_bytes: int

    # What the kind takes, beyond events.
    _own_bytes: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check_number("n", self.n, 1, _MOST_EVENTS_HELD, whole=True)
        if not isinstance(self.balanced, bool):
            raise ParameterTypeError(f"`balanced` must be True or False, got {self.balanced!r}")
        check_number("max_bytes", self.max_bytes, 0, MOST_EVENTS, whole=True)
        least = 2 * self._fixed_bytes + 8 * _LEAST_WORDS
        if self.max_bytes < least:
            raise ValueError(f"`max_bytes` must be at least {least:,} for n={self.n:,} events, got {self.max_bytes:,}")

    @property
    def _fixed_bytes(self) -> int:
        return self.n * _SLOT_BYTES + self._own_bytes

    @property
    def needs_times(self) -> bool:
        """Whether it goes by the times of events."""
        return False

    def begin(self) -> WindowMemory:
        """An empty window of this kind."""
        return WindowMemory(self)


@dataclass(frozen=True)
class Latest(Window):
    """The last n events.

    Parameters
    ----------
    n
        How many.
    balanced
        Whether the oldest of the class that has most leaves, in place of the oldest of all.
    max_bytes
        The memory all events may take; beyond it the window holds fewer.

    Examples
    --------
    >>> memory = Latest(n=3).begin()
    >>> rows = EncodedRows(np.array([5.0, 6.0, 7.0, 8.0]), np.array([0]), np.arange(5), shared=True)
    >>> memory.add(rows, np.array([0, 1, 0, 0]))
    >>> memory.snapshot().numbers
    array([1, 2, 3])
    """

    n: int = 20_000
    balanced: bool = False
    max_bytes: int = _MAX_BYTES


@dataclass(frozen=True)
class Since(Window):
    """The events of the last t seconds of event time, and at most n.

    An event counts as having come at the newest time known when it came, so times that jump back or are missing do no
    harm.

    Parameters
    ----------
    seconds
        How long an event stays.
    n
        At most so many events.
    balanced
        Whether rare classes are kept: of each class as many events stay, though their time is up, as there are events
        whose time is not up, divided by the classes held, and at least one. Where there are more than n, the oldest of
        the class that has most leaves.
    max_bytes
        The memory all events may take; beyond it the window holds fewer.

    Examples
    --------
    >>> memory = Since(60.0).begin()
    >>> rows = EncodedRows(np.array([5.0, 6.0, 7.0]), np.array([0]), np.arange(4), shared=True)
    >>> memory.add(rows, np.array([0, 1, 0]), times=np.array([0.0, 30.0, 75.0]))
    >>> memory.snapshot().numbers
    array([1, 2])
    """

    seconds: float
    n: int = 100_000
    balanced: bool = False
    max_bytes: int = _MAX_BYTES

    def __post_init__(self) -> None:
        check_number("seconds", self.seconds, 0.0)
        super().__post_init__()

    @property
    def needs_times(self) -> bool:
        return True


@dataclass(frozen=True)
class Reservoir(Window):
    """A sample biased to the recent (Aggarwal, VLDB 2006): that an event is in it falls as exp(-age / n).

    Each event enters: with m events held, with probability m / n in place of one drawn from them, else beside them.

    Parameters
    ----------
    n
        At most so many events, and the mean age of those held once it is full.
    balanced
        Whether the event that leaves is drawn from the class that has most, in place of all.
    seed
        Of the random numbers.
    max_bytes
        The memory all events may take; beyond it the window holds fewer.

    Examples
    --------
    >>> memory = Reservoir(n=3).begin()
    >>> rows = EncodedRows(np.arange(100.0), np.array([0]), np.arange(101), shared=True)
    >>> memory.add(rows, np.zeros(100, int))
    >>> len(memory)
    3
    """

    n: int = 20_000
    balanced: bool = False
    seed: int = 0
    max_bytes: int = _MAX_BYTES

    def __post_init__(self) -> None:
        check_number("seed", self.seed, 0, 2**63 - 1, whole=True)
        super().__post_init__()


@dataclass(frozen=True)
class Adaptive(Window):
    """The last n events, or fewer: where a detector finds that errors have become more, the older ones are forgotten.

    The detector is River's `ADWIN`; after its alarm as many events stay as it holds errors. Where it finds that errors
    have become fewer, nothing is forgotten. It begins anew after each alarm, and at the latest after a million errors.

    Parameters
    ----------
    n
        How many.
    balanced
        Whether the oldest of the class that has most leaves, in place of the oldest of all.
    delta
        The probability of a false alarm, see `ADWIN`.
    max_bytes
        The memory all events may take; beyond it the window holds fewer.

    Examples
    --------
    >>> memory = Adaptive(n=5_000).begin()
    >>> rows = EncodedRows(np.zeros(4_000), np.array([0]), np.arange(4_001), shared=True)
    >>> memory.add(rows, np.zeros(4_000, int), errors=(np.arange(4_000) >= 3_000).astype(float))
    >>> len(memory)
    1016
    """

    n: int = 20_000
    balanced: bool = False
    delta: float = 0.002
    max_bytes: int = _MAX_BYTES

    _own_bytes: ClassVar[int] = _MOST_ERRORS

    def __post_init__(self) -> None:
        check_between("delta", self.delta, 0.0, 1.0)
        super().__post_init__()

    def begin(self) -> WindowMemory:
        """An empty window of this kind."""
        return AdaptiveMemory(self)


_KINDS: dict[str, type[Any]] = {"latest": Latest, "since": Since, "reservoir": Reservoir, "adaptive": Adaptive}
_FORMS = (
    'a number of events ("20000" or "latest:20000"), "since:TIME[:N]" with a time such as "90s", "30m", "12h" or "7d", '
    '"reservoir[:N]" or "adaptive[:N]", each also with "+balanced"'
)


def window_of(text: str) -> Window:
    """Settings from text.

    Raises
    ------
    ValueError
        Naming what may be given.

    Examples
    --------
    >>> window_of("5000") == Latest(5_000), window_of("since:7d+balanced") == Since(604_800.0, balanced=True)
    (True, True)
    """
    parts, *options = text.split("+")
    kind, *values = parts.split(":")
    if kind.isdecimal():
        kind, values = "latest", [kind, *values]
    try:
        if kind not in _KINDS or options not in ([], ["balanced"]):
            raise ValueError("unknown")
        takes: tuple[Callable[[str], Any], ...] = (_seconds, int) if kind == "since" else (int,)
        if len(values) > len(takes):
            raise ValueError(f"{values[len(takes)]!r} is one value too many")
        given = [take(value) for take, value in zip(takes, values, strict=False)]
        window: Window = _KINDS[kind](*given, balanced=bool(options))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is no window ({error}); it may be {_FORMS}") from error
    return window


def _seconds(text: str) -> float:
    seconds = seconds_of(text)
    if seconds is None:
        raise ValueError(f"{text!r} is no time")
    return seconds


# What a window gives ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Events of a window in order of arrival.

    Parameters
    ----------
    rows
        Their rows: `shared` where all have the columns 0 ... d - 1.
    codes, weights, times
        The class of each, its weight, and its time, NaN where it has none.
    numbers
        How many events came before each.
    """

    rows: EncodedRows
    codes: Ints
    weights: Floats
    times: Floats
    numbers: Ints

    def __len__(self) -> int:
        return len(self.codes)

    def part(self, which: slice) -> WindowRows:
        """Events that follow one another, as views."""
        start, end, step = which.indices(len(self))
        if step != 1:
            raise ValueError(f"a part of a window has no gaps: got {which}")
        end = max(start, end)
        own = slice(start, end)
        return WindowRows(
            self.rows.part(start, end), self.codes[own], self.weights[own], self.times[own], self.numbers[own]
        )

    def dense(self, n_columns: int) -> Floats:
        """The first columns as an array of shape (n, n_columns), NaN where missing."""
        matrix = np.full((len(self), n_columns), np.nan)
        if self.rows.shared:
            width = len(self.rows.columns)
            matrix[:, :width] = self.rows.values.reshape(len(self), width)[:, :n_columns]
        else:
            keep = self.rows.columns < n_columns
            matrix[self._rows_of_entries()[keep], self.rows.columns[keep]] = self.rows.values[keep]
        return matrix

    def csr(self, n_columns: int) -> scipy.sparse.csr_array:
        """The first columns as a sparse array of shape (n, n_columns), without what is missing."""
        return csr_of(self.rows, n_columns)

    def _rows_of_entries(self) -> Ints:
        return np.repeat(np.arange(len(self)), np.diff(self.rows.indptr))


def csr_of(rows: EncodedRows, n_columns: int) -> scipy.sparse.csr_array:
    """The first columns of rows as a sparse array of shape (n, n_columns), without what is missing."""
    import scipy.sparse  # only solvers of sparse windows need it

    columns = np.tile(rows.columns, len(rows)) if rows.shared else rows.columns
    keep = ~np.isnan(rows.values) & (columns < n_columns)
    indptr = np.concatenate([[0], np.cumsum(keep)])[rows.indptr]
    # scikit-learn's trees take short indices alone.
    kind = scipy.sparse.get_index_dtype(maxval=max(int(indptr[-1]), n_columns))
    entries = rows.values[keep], columns[keep].astype(kind), indptr.astype(kind)
    return scipy.sparse.csr_array(entries, shape=(len(rows), n_columns))


# Memory -----------------------------------------------------------------------------------------------------------


class OneEvent:
    """An event with a class, as a window takes it in: arrays of one row that are filled anew for each.

    Parameters
    ----------
    whole
        Where its values are.
    n
        There is one for each of the first n columns.
    """

    def __init__(self, whole: Floats, n: int) -> None:
        self.row = row = whole[:n]
        codes, self.times, self.errors = np.zeros(1, np.int64), np.zeros(1), np.zeros(1)
        columns, indptr = np.arange(n), np.array([0, n])
        self.arrays = row, columns, indptr, True, codes, np.ones(1), self.times

    def fill(self, code: int, time: float, error: float) -> None:
        """Its class, its time, NaN where it has none, and whether it was predicted wrong."""
        self.arrays[4][0], self.times[0], self.errors[0], self.error = code, time, error, error


class WindowMemory:
    """The events a window holds.

    What it holds is the same however events are cut into batches. Its memory is allocated as it is needed and stays
    within `max_bytes`: up to a half of these for the list of n events, a quarter for classes, the rest for their rows.
    Where rows exceed its capacity, the events leave that leave else, and are counted. A snapshot is a copy, and takes
    its own memory.

    Parameters
    ----------
    settings
        What it is to hold.

    Attributes
    ----------
    n_taken
        How many events have come.
    n_dropped_for_memory
        How many were forgotten, or not taken in, because their rows exceeded the capacity.
    n_bytes
        The memory allocated. Where nothing has been written yet it takes none of the machine's.
    """

    def __init__(self, settings: Window) -> None:
        self.settings = settings
        self._use(self._new_state(_FIRST_CLASSES), _FIRST_WORDS)

    def _new_state(self, n_classes: int) -> State:
        settings = self.settings
        sizes = {"slots": settings.n, "classes": n_classes, "generators": 1}
        state = State(windows.WINDOW, sizes, parts={"copy": State(windows.COPY)})
        state.n_most, state.balanced = settings.n, settings.balanced
        state.most_classes = settings.max_bytes // 4 // _CLASS_BYTES
        if isinstance(settings, Since):
            state.span = settings.seconds
        if isinstance(settings, Reservoir):
            state.chances = settings.n
            state.rng[0] = settings.seed
        return state

    def _use(self, state: State, n_words: int) -> None:
        """Work on this state from now on, with an empty arena."""
        self._state = state
        self._lend(np.empty(n_words))
        self.use_room(_NO_ROOM)

    def _lend(self, arena: Floats) -> None:
        state = self._state
        state.lend(values=arena, columns=arena.view(np.int32))
        state.capacity = _capacity(len(arena))
        state.is_largest = len(arena) >= self._most_words

    @property
    def _most_words(self) -> int:
        """The most words the arena may have, beside what else there is."""
        return _most_words(self.settings, self._state)

    def __len__(self) -> int:
        return int(self._state.held)

    @property
    def n_taken(self) -> int:
        """How many events have come."""
        return int(self._state.taken)

    @property
    def n_dropped_for_memory(self) -> int:
        """How many were forgotten, or not taken in, because their rows exceeded the capacity."""
        return int(self._state.dropped)

    @property
    def n_bytes(self) -> int:
        """The memory allocated."""
        return int(self._state.n_bytes + self._state.values.nbytes + self.settings._own_bytes)

    # Events ------------------------------------------------------------------------------------------------------

    def add(
        self,
        rows: EncodedRows,
        codes: Ints,
        weights: Floats | None = None,
        times: Floats | None = None,
        errors: Floats | None = None,
    ) -> None:
        """Take in, one after another, the events that have a class and a weight.

        Parameters
        ----------
        rows
            n rows.
        codes
            The class of each, negative where there is none.
        weights
            None for 1 each.
        times
            Seconds, NaN where there is none; None for none at all.
        errors
            For windows with a detector: 1 where the prediction was wrong, 0 where it was right, NaN where there was
            none; None for none at all.
        """
        n = len(rows)
        codes = np.ascontiguousarray(codes, np.int64)
        weights = np.ones(n) if weights is None else np.ascontiguousarray(weights, np.float64)
        times = np.full(n, np.nan) if times is None else np.ascontiguousarray(times, np.float64)
        for name, given in (("codes", codes), ("weights", weights), ("times", times), ("errors", errors)):
            if given is not None and np.shape(given) != (n,):
                raise ValueError(f"there are {n} rows, but `{name}` are of shape {np.shape(given)}")
        if errors is not None:
            errors = np.asarray(errors, np.float64)
            if not ((errors == 0.0) | (errors == 1.0) | np.isnan(errors)).all():
                raise ValueError("`errors` must be 0 or 1, or NaN where there was no prediction")
        self.take_in(rows, codes, weights, times, errors)

    def take_in(self, rows: EncodedRows, codes: Ints, weights: Floats, times: Floats, errors: Floats | None) -> None:
        """As `add`, for those who know that all fits: nothing is looked at again."""
        self._add_part(*_arrays(rows), codes, weights, times, 0, len(rows))

    def take_in_one(self, event: OneEvent) -> None:
        """As `take_in` of a row, for what comes event by event."""
        if not _call("add_row")(self._state, *event.arrays):
            self._add_part(*event.arrays, 0, 1)

    def _add_part(
        self,
        values: Floats,
        columns: Ints,
        indptr: Ints,
        shared: bool,
        codes: Ints,
        weights: Floats,
        times: Floats,
        start: int,
        end: int,
    ) -> None:
        if self.n_taken == 0:
            prepare(tuple(windows.ENTRIES.values()))
        at, add_rows = start, _call("add_rows")
        while (at := add_rows(self._state, values, columns, indptr, shared, codes, weights, times, at, end)) < end:
            code = int(codes[at])
            if len(self._state.classes) <= code < self._state.most_classes:
                self._grow_classes(code + 1)
            else:
                self._grow_arena()

    def _grow_arena(self) -> None:
        """See that there is capacity for as many words as are asked for, or as many as there may be.

        There is at once for as many rows of their mean length as are ever held: to grow is to move all, and some event
        waits for it.
        """
        asked, n_rows = int(self._state.asked), len(self) + 1
        expected = asked * max(self.settings.n, n_rows) // n_rows
        self._resize(max(2 * len(self._state.values), expected + expected // 7 + 8))

    def _grow_classes(self, n: int) -> None:
        old = self._state
        self._state = self._new_state(min(capacity_for(n), int(old.most_classes)))
        self._state.take(old)
        self._state.copy.lend(words=old.copy.words, integers=old.copy.integers)
        self._lend(old.values)
        if len(old.values) > self._most_words:
            self._resize(self._most_words)

    def _resize(self, n_words: int) -> None:
        """Move to an arena of so many words, or as many as there may be. Memory not written to takes none."""
        arena = np.empty(min(n_words, self._most_words))
        _call("maintain")(self._state, -1, _words_beyond(self._state, arena))
        _call("compact")(self._state, arena, arena.view(np.int32))
        self._lend(arena)

    def keep_latest(self, n: int) -> None:
        """Forget all events but those that are among the last n that came."""
        _call("keep_latest")(self._state, n)

    def snapshot(self) -> WindowRows:
        """A copy of all that is held, in order of arrival."""
        self.begin_copy()
        copy = self.copied()
        self.let_go_of_copy()
        return copy

    def begin_copy(self) -> None:
        """Begin to copy all that is held now, whatever comes and leaves meanwhile; not before another is done."""
        if not _call("begin_copy")(self._state):
            self.use_room(self.room())
            _call("begin_copy")(self._state)

    def room(self) -> Floats:
        """Memory for a copy, also of some events more than are held."""
        return np.empty(self.n_words_to_copy + 4 * _FIRST_WORDS)

    def use_room(self, room: Floats) -> None:
        """Have the next copy made in this memory: it is begun faster then."""
        self._state.copy.lend(words=room, integers=room.view(np.int64))

    def let_go_of_copy(self) -> None:
        """Leave the memory of a copy to those who have it."""
        self.use_room(_NO_ROOM)

    def copy_on(self, n_words: int) -> bool:
        """Copy so many words more of what was held; whether that is all."""
        return bool(_call("copy_events")(self._state, n_words))

    def copied(self) -> WindowRows:
        """What was held when the copy was begun, in order of arrival."""
        if not self.copy_on(0):
            _call("copy_rest")(self._state)
        words, integers = self._state.copy.words, self._state.copy.integers
        n, n_values, shared = _call("copy_sizes")(self._state)
        columns = np.arange(n_values // max(n, 1)) if shared else integers[n_values : 2 * n_values]
        at = n_values if shared else 2 * n_values
        rows = EncodedRows(words[:n_values], columns, integers[at : at + n + 1], bool(shared))
        at += n + 1
        codes, numbers = integers[at : at + n], integers[at + n : at + 2 * n]
        return WindowRows(rows, codes, words[at + 2 * n : at + 3 * n], words[at + 3 * n : at + 4 * n], numbers)

    @property
    def n_words_to_copy(self) -> int:
        """The words of all that is held."""
        return int(_call("copy_words")(self._state))

    @property
    def n_columns_copied(self) -> int:
        """All columns of the copy that was begun last are among the first so many, as far as it is filled."""
        return int(self._state.copy.n_columns)

    # Saving ------------------------------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All there is to know, as a JSON header and arrays: `restore` continues from it bit for bit."""
        state, held = self._state, self.snapshot()
        slots = np.argsort(state.slots.number[: len(self)])
        header = {
            "settings": _described(self.settings),
            "shared": held.rows.shared,
            "n_taken": self.n_taken,
            "n_dropped": self.n_dropped_for_memory,
            "newest": float(state.newest) if np.isfinite(state.newest) else None,
            "n_classes": len(state.classes),
            "n_words": len(state.values),
            "random": int(state.rng[0]),
        }
        arrays = {
            "values": held.rows.values,
            "columns": held.rows.columns,
            "indptr": held.rows.indptr,
            "codes": held.codes,
            "weights": held.weights,
            "times": held.times,
            "numbers": held.numbers,
            "clocks": state.slots.clock[slots],
            "slots": slots,
        }
        return header, arrays

    def restore(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what another window of these settings held.

        Raises
        ------
        ArchiveError
            Where header or arrays are not those of such a window; this one is as it was then.
        """
        try:
            self._restore(header, arrays)
        except ArchiveError:
            raise
        except DAMAGED as error:
            raise ArchiveError(f"not the state of a window: {error!r}") from error

    def _restore(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        if header["settings"] != _described(self.settings):
            raise ArchiveError(f"the state of a window {header['settings']}, not {_described(self.settings)}")
        check_names(arrays, set(_DTYPES))
        _check_arrays(header, arrays)
        fresh = type(self)(self.settings)
        n_classes = _whole(header, "n_classes", 2, int(fresh._state.most_classes))
        state = fresh._new_state(n_classes)
        state.taken = _whole(header, "n_taken", 0, int(MOST_EVENTS))
        state.dropped = _whole(header, "n_dropped", 0, int(MOST_EVENTS))
        state.newest = -np.inf if header["newest"] is None else float(header["newest"])
        state.rng[0] = _whole(header, "random", 0, 2**64 - 1)
        n_words = _whole(header, "n_words", _FIRST_WORDS, _most_words(self.settings, state))
        rows = EncodedRows(arrays["values"], arrays["columns"], arrays["indptr"], header["shared"])
        _check_rows(rows, n_words)
        _check_events(state, arrays)
        fresh._use(state, n_words)
        own = (arrays[name] for name in ("codes", "weights", "times", "clocks", "numbers", "slots"))
        _call("restore_rows")(state, *_arrays(rows), *map(np.ascontiguousarray, own))
        self.__dict__.update(fresh.__dict__)

    def __reduce__(self) -> Any:
        return _resumed, (self.settings, *self.state())


class AdaptiveMemory(WindowMemory):
    """The events of an `Adaptive` window, and its detector.

    The detector is what it is by the errors it was given since it began anew; these are kept, and given to it again.
    """

    settings: Adaptive

    def __init__(self, settings: Window) -> None:
        super().__init__(settings)
        self._renew()

    def _renew(self) -> None:
        from river.drift import ADWIN  # it comes with all of `scipy.stats`, which takes a second to import

        self._detector = ADWIN(delta=self.settings.delta)  # type: ignore[no-untyped-call]
        self._errors, self._is_spent = bytearray(), False

    def take_in(self, rows: EncodedRows, codes: Ints, weights: Floats, times: Floats, errors: Floats | None) -> None:
        """As `add`, for those who know that all fits: nothing is looked at again."""
        whole, at = _arrays(rows), 0
        if errors is not None:
            told = np.flatnonzero((codes >= 0) & (weights > 0.0) & (weights < math.inf) & ~np.isnan(errors))
            for i, error in zip(told.tolist(), errors[told].tolist(), strict=True):
                if self._is_alarmed_by(error):
                    self._add_part(*whole, codes, weights, times, at, i + 1)
                    self.keep_latest(self._detector.width)
                    at = i + 1
        self._add_part(*whole, codes, weights, times, at, len(rows))

    def take_in_one(self, event: OneEvent) -> None:
        """As `take_in` of a row, for what comes event by event."""
        super().take_in_one(event)
        if self._is_alarmed_by(event.error):
            self.keep_latest(self._detector.width)

    def _is_alarmed_by(self, error: float) -> bool:
        """Tell the detector of an event, and whether it finds that errors have become more."""
        if self._is_spent or len(self._errors) == _MOST_ERRORS:
            self._renew()
        self._errors.append(error > 0.0)
        detector = self._detector
        detector.update(error)  # type: ignore[no-untyped-call]
        self._is_spent = detector.drift_detected
        # As long as there is no alarm the detector forgets nothing.
        return self._is_spent and detector.estimation > sum(self._errors) / len(self._errors)

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """All there is to know, as a JSON header and arrays: `restore` continues from it bit for bit."""
        header, arrays = super().state()
        errors = np.frombuffer(bytes(self._errors), np.uint8)
        return header | {"n_errors": len(errors)}, arrays | {"errors": np.packbits(errors)}

    def _restore(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        n = _whole(header, "n_errors", 0, _MOST_ERRORS)
        packed = arrays["errors"]
        if packed.dtype != np.uint8 or packed.shape != (-(-n // 8),):
            raise ArchiveError(f"{n} errors are not in an array of shape {packed.shape} and type {packed.dtype}")
        super()._restore(header, {name: array for name, array in arrays.items() if name != "errors"})
        for error in np.unpackbits(packed, count=n).tolist():
            self._is_alarmed_by(error)


def _call(name: str) -> Any:
    """A compiled step, called without a look at the types of its arguments; arrays may be read-only."""
    return windows.ENTRIES[name].compile()


def _resumed(settings: Window, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> WindowMemory:
    memory = settings.begin()
    memory.restore(header, arrays)
    return memory


def _most_words(settings: Window, state: State) -> int:
    return (settings.max_bytes - settings._own_bytes - state.n_bytes) // 8


def _capacity(n_words: int) -> int:
    """The words of an arena that rows may take: the rest is spare, see the kernels."""
    return n_words - n_words // 8


def _words_beyond(state: State, arena: Floats) -> int:
    """By how many words there is less capacity in an arena than there is now, for `maintain`."""
    return max(int(state.capacity) - _capacity(len(arena)), 0)


def _arrays(rows: EncodedRows) -> tuple[Floats, Ints, Ints, bool]:
    return (
        np.ascontiguousarray(rows.values, np.float64),
        np.ascontiguousarray(rows.columns, np.int64),
        np.ascontiguousarray(rows.indptr, np.int64),
        rows.shared,
    )


def _described(settings: Window) -> dict[str, Any]:
    return {"window": type(settings).__name__, **asdict(settings)}  # type: ignore[call-overload]


# Checks of archives -----------------------------------------------------------------------------------------------

_DTYPES = {
    "values": np.float64,
    "columns": np.int64,
    "indptr": np.int64,
    "codes": np.int64,
    "weights": np.float64,
    "times": np.float64,
    "numbers": np.int64,
    "clocks": np.float64,
    "slots": np.int64,
}


def _whole(header: Mapping[str, Any], name: str, low: int, high: int) -> int:
    value = header[name]
    if type(value) is not int or not low <= value <= high:
        raise ArchiveError(f"{name!r} is {value!r}, not an integer between {low} and {high}")
    return value


def _check_arrays(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays of other types, or that do not fit one another."""
    for name, dtype in _DTYPES.items():
        if arrays[name].dtype != dtype or arrays[name].ndim != 1:
            raise ArchiveError(f"array {name!r} has shape {arrays[name].shape} and type {arrays[name].dtype}")
    n = len(arrays["codes"])
    if type(header["shared"]) is not bool or len(arrays["indptr"]) != n + 1:
        raise ArchiveError(f"there are not {n} rows")
    for name in ("weights", "times", "numbers", "clocks", "slots"):
        if len(arrays[name]) != n:
            raise ArchiveError(f"array {name!r} has {len(arrays[name])} elements for {n} events")


def _check_rows(rows: EncodedRows, n_words: int) -> None:
    """Refuse rows that are none, or do not fit into an arena."""
    indptr, columns = rows.indptr, rows.columns
    lengths = np.diff(indptr)
    if indptr[0] != 0 or indptr[-1] != len(rows.values) or (lengths < 0).any():
        raise ArchiveError("rows do not begin where the one before ends")
    listed = np.zeros(len(rows), bool)
    if rows.shared:
        if not np.array_equal(columns, np.arange(len(columns))) or (lengths != len(columns)).any():
            raise ArchiveError("rows that share their columns do not have all of them")
    else:
        if len(columns) != len(rows.values):
            raise ArchiveError(f"there are {len(columns)} columns for {len(rows.values)} values")
        within("columns", columns, 0, _MOST_COLUMNS - 1)
        begins = np.zeros(len(columns) + 1, bool)
        begins[indptr] = True
        if not (np.diff(columns) > 0)[~begins[1:-1]].all():
            raise ArchiveError("the columns of a row are not in ascending order")
        some = lengths > 0
        listed[some] = columns[indptr[1:][some] - 1] != lengths[some] - 1
    within("values", rows.values[~np.isnan(rows.values)], -LARGEST, LARGEST)
    if lengths.sum() + ((lengths[listed] + 1) // 2).sum() > _capacity(n_words):
        raise ArchiveError(f"the rows exceed the capacity of {n_words} words")


def _check_events(state: State, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse events that no stream can have left."""
    n, numbers, clocks = len(arrays["codes"]), arrays["numbers"], arrays["clocks"]
    if n > state.n_most or not np.array_equal(np.sort(arrays["slots"]), np.arange(n)):
        raise ArchiveError(f"{n} events are not in as many places, of {state.n_most}")
    within("codes", arrays["codes"], 0, len(state.classes) - 1)
    within("weights", arrays["weights"], np.nextafter(0.0, 1.0), np.finfo(float).max)
    within("numbers", numbers, 0, int(state.taken) - 1)
    if (np.diff(numbers) <= 0).any():
        raise ArchiveError("events are not in order of arrival")
    if np.isinf(arrays["times"]).any() or np.isnan(state.newest) or state.newest == np.inf:
        raise ArchiveError("times are not finite")
    least = -np.finfo(float).max if np.isfinite(state.newest) else -np.inf
    within("clocks", clocks, least, state.newest)
    if (clocks[1:] < clocks[:-1]).any():
        raise ArchiveError("clocks run backward")
