"""Monitor of the features of a stream."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.values import check_name, name_key
from streamsvm.models.archive import ArchiveError, decode_label, encode_label, whole
from streamsvm.models.codec import SavedState, nested, part_of
from streamsvm.models.saved import Archived
from streamsvm.monitor.alarms import ColumnState, FeatureAlarm, alarm_state, restored_alarm
from streamsvm.monitor.bins import Texts
from streamsvm.monitor.cells import Cells, Part, cells_state, join_parts, parts_of, restored_cells, rows_from
from streamsvm.monitor.columns import Columns
from streamsvm.monitor.comparison import changed_relations, states
from streamsvm.monitor.kernels import BLOCK
from streamsvm.monitor.profile import Profile
from streamsvm.monitor.sliding import SlidingColumns
from streamsvm.parameters import ParameterError, ParameterTypeError, check_between, check_choice, check_number

MOST_ALARMS = 1000
"""Number of alarms that a monitor stores."""
MOST_COLUMNS = 1000
"""Number of monitored columns, the first of a stream unless `columns` is set."""
_PART_CELLS = 1 << 19
_PARAMETERS = ("reference", "reset", "false_alarms", "seed")  # of a saved monitor, besides its columns

logger = logging.getLogger("streamsvm")


class FeatureMonitor(Archived):
    """Detect changes of features, and problems of data quality, without labels.

    Each column is compared with its reference: the distribution of numbers or categories, and the shares of missing
    values and of types. Values out of range, unseen categories, and repeated values, as of a stuck sensor, are compared
    as well. For numeric columns, the relations of two and of three are compared, such as correlations. Events are
    counted in windows of 64, 256, 1,024 and so on, up to half of the reference. A window is tested when it closes, so
    an alarm comes with the last of 64 events.

    If events are exchangeable, the expected number of false alarms is at most `false_alarms` per million events. This
    bound is for all columns together and streams of any length. If successive values depend on each other, counts are
    divided by a design effect estimated from the reference, and the rate is approximate.

    Parameters
    ----------
    reference
        Number of first events that are the reference, at least 256, rounded down to a multiple of 64; or a `Profile`.
    reset
        When a column learns a new reference. "never": a change has one alarm, and another one only after the column
        has agreed with its reference again. "after_alarm": from the events that follow an alarm. "sliding": also after
        each `reference` events without an alarm, from these events. Alarms then mean that a column differs from the
        events of up to twice `reference` ago, slower changes are accepted, and the cost doubles.
    false_alarms
        Expected number of false alarms per million events.
    columns
        Names of the columns to monitor; None for all, up to 1,000.
    seed
        Seed of the choice of relations. At most 320 relations are monitored.

    Attributes
    ----------
    drift_detected
        Whether the last update raised an alarm, as in River's detectors.
    alarms
        The last 1,000 alarms, newest last.
    n_alarms
        Number of alarms so far.
    n_events
        Number of events so far.
    n_columns_left_out
        Number of columns that were left out, because 1,000 were there before.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> monitor = FeatureMonitor(reference=4_096)
    >>> monitor.learn_many({"size": rng.normal(size=10_000), "kind": rng.choice(["a", "b"], 10_000)})
    >>> monitor.drift_detected
    False
    >>> for _ in range(256):
    ...     monitor.update({"size": rng.normal() + 2.0, "kind": "a"})
    >>> [(alarm.column, alarm.kind, alarm.event) for alarm in monitor.alarms]
    [('kind', 'distribution', 10048), ('size', 'distribution', 10048)]
    """

    def __init__(
        self,
        *,
        reference: int | Profile = 10_000,
        reset: str = "never",
        false_alarms: float = 0.1,
        columns: Collection[Any] | None = None,
        seed: int = 0,
    ) -> None:
        if isinstance(reference, str | os.PathLike):
            raise ParameterTypeError("reference", "must be a number of events or a profile: see `Profile.load`")
        if not isinstance(reference, Profile):
            check_number("reference", reference, 256, 1e9, whole=True)
        check_choice("reset", reset, ("never", "after_alarm", "sliding"))
        check_between("false_alarms", false_alarms, 0.0, 10_000.0)
        check_number("seed", seed, 0, 2**63 - 1, whole=True)
        if isinstance(columns, str):
            raise ParameterTypeError("columns", f"must be a list of names, got {columns!r}")
        if columns is not None and not len(columns):
            raise ParameterError("columns", "names no column")
        n_reference = reference.n_events if isinstance(reference, Profile) else int(reference)
        self.reference, self.reset, self.false_alarms, self.seed = n_reference, reset, float(false_alarms), int(seed)
        self.columns_given = None if columns is None else list(dict.fromkeys(columns))
        self._wanted = None if columns is None else set(columns)
        kind = SlidingColumns if reset == "sliding" else Columns
        self._columns = kind(n_reference // BLOCK * BLOCK, reset != "never", self.false_alarms * 1e-6, self.seed)
        self._rows: list[dict[Any, Any]] = []  # events of `update` that are not yet in a block
        self._open: Part = {}, 0  # earlier ones
        self.n_columns_left_out = 0
        self.drift_detected = False
        self.alarms: list[FeatureAlarm] = []
        self.n_alarms = 0
        if isinstance(reference, Profile):
            self._columns.take_profile(self._chosen(reference))

    def _chosen(self, profile: Profile) -> Profile:
        """Return the columns of a profile that are wanted."""
        if self._wanted is None:
            return profile
        names = {column.name for column in profile.columns}
        if strange := [name for name in self._wanted if name not in names]:
            raise ParameterError("columns", f"names {strange[0]!r}, which the profile does not have")
        columns = tuple(column for column in profile.columns if column.name in self._wanted)
        relations = tuple(relation for relation in profile.relations if self._wanted.issuperset(relation.columns))
        return Profile(profile.n_events, columns, relations)

    @property
    def n_events(self) -> int:
        """Number of events so far."""
        return self._columns.block * BLOCK + self._open[1] + len(self._rows)

    # Events -----------------------------------------------------------------------------------------------------------

    def update(self, x: Mapping[Any, Any]) -> None:
        """Take an event; then see `drift_detected`.

        Parameters
        ----------
        x
            Features by name; absent ones are missing.
        """
        if type(x) is not dict and not isinstance(x, Mapping):  # the first test is faster
            raise TypeError(f"an event is a dict of features, got {type(x).__name__}")
        self._rows.append(dict(x))
        self.drift_detected = False
        if self._open[1] + len(self._rows) == BLOCK:
            self._close_rows()
            self._advance()

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Take an event, as `update`.

        Parameters
        ----------
        x
            Features by name; absent ones are missing.
        """
        self.update(x)

    def learn_many(self, X: Any) -> None:
        """Take events; `drift_detected` tells whether any of them raised an alarm.

        Results equal calls of `update` for each event.

        Parameters
        ----------
        X
            A list of dicts, a data frame, a dict of columns, a batch of a source, a numpy array or a sparse matrix.
            Cells that a sparse matrix does not store are missing.
        """
        self.drift_detected = False
        self._close_rows()
        for part in parts_of(X, self._is_wanted):
            self._open = join_parts(self._open, part)
            self._advance()

    def _is_wanted(self, name: Any) -> bool:
        if self._wanted is not None:
            return name in self._wanted
        return not self.n_columns_left_out or name in self._columns.names

    def _close_rows(self) -> None:
        rows, self._rows = self._rows, []
        for part in parts_of(rows, self._is_wanted) if rows else ():
            self._open = join_parts(self._open, part)

    def _advance(self) -> None:
        """Take the whole blocks of open events."""
        columns, n = self._open
        at, end = 0, n // BLOCK * BLOCK
        while at < end:
            at += self._take(columns, at, end)
        if end:
            self._open = rows_from(self._open, end) if end < n else ({}, 0)

    def _take(self, given: dict[Any, Cells], at: int, n: int) -> int:
        """Take blocks from `at` up to new columns or a memory limit; return their size."""
        if self.columns_given is not None and not len(self._columns):
            self._columns.add(self.columns_given)
        new = self._new_columns(given)
        begins = sorted({first // BLOCK * BLOCK for first in new.values() if first < n})
        due = sorted((name for name in new if new[name] // BLOCK * BLOCK <= at), key=lambda x: (new[x], name_key(x)))
        if due:
            self._add(due)
        end = min([n, *(begin for begin in begins if begin > at)])
        most = max(BLOCK, _PART_CELLS // max(1, len(self._columns)) // BLOCK * BLOCK)
        end = min(end, at + most)
        numbers = np.full((len(self._columns), end - at), np.nan)
        texts: dict[int, Texts] = {}
        for name, c in self._columns.names.items():
            if (cells := given.get(name)) is not None:
                numbers[c] = cells.numbers[at:end]
                if cells.texts is not None:
                    texts[c] = cells.texts[at:end]
        self._raise(self._columns.add_blocks(numbers, texts))
        return end - at

    def _new_columns(self, given: dict[Any, Cells]) -> dict[Any, int]:
        """Return columns not monitored yet, with the position of their first value."""
        names = [name for name in given if name not in self._columns.names and self._is_wanted(name)]
        return {name: int(has.argmax()) for name in names if (has := given[name].has_value).any()}

    def _add(self, names: list[Any]) -> None:
        for name in names:
            check_name(name)
        room = MOST_COLUMNS - len(self._columns)
        if self._wanted is None and len(names) > room:
            logger.warning(
                "the monitor leaves out columns beyond the first %d: name those of interest with `columns`",
                MOST_COLUMNS,
            )
            self.n_columns_left_out = len(names) - room
            names = names[:room]
        self._columns.add(names)

    def _raise(self, alarms: list[FeatureAlarm]) -> None:
        if alarms:
            self.drift_detected = True
            self.n_alarms += len(alarms)
            self.alarms = [*self.alarms, *alarms][-MOST_ALARMS:]

    # Results ----------------------------------------------------------------------------------------------------------

    def columns(self) -> list[ColumnState]:
        """Return the current state of every column."""
        return states(self._columns)

    def changed_relations(self) -> list[tuple[Any, ...]]:
        """Return relations that differ from the reference while their columns do not."""
        return changed_relations(self._columns)

    def profile(self) -> Profile:
        """Return the references of all columns, to save or to monitor another stream."""
        return self._columns.profile()

    @property
    def memory_bytes(self) -> int:
        """Approximate memory in bytes."""
        _, arrays = self.state()
        return sum(array.nbytes for array in arrays.values()) + 400 * len(self.alarms)

    # Saving -----------------------------------------------------------------------------------------------------------

    def state(self) -> SavedState:
        """Return the state as a JSON header and arrays."""
        self._close_rows()
        given, (columns, n_open) = self.columns_given, self._open
        header = {
            "class": type(self).__name__,
            "parameters": {name: getattr(self, name) for name in _PARAMETERS},
            "columns": None if given is None else [encode_label(name) for name in given],
            "drift_detected": self.drift_detected,
            "n_alarms": self.n_alarms,
            "n_columns_left_out": self.n_columns_left_out,
            "alarms": [alarm_state(alarm) for alarm in self.alarms],
            "n_open": n_open,
            "open_names": [encode_label(name) for name in columns],
        }
        open_cells = cells_state({str(i): cells for i, cells in enumerate(columns.values())})
        return nested({"state": self._columns.state(), "open": open_cells}, header)

    @classmethod
    def _from_state(cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Self:
        given, state = header["columns"], (header, arrays)
        self = cls(columns=None if given is None else [decode_label(name) for name in given], **header["parameters"])
        self._columns.restore(part_of(state, "state"))
        cells, n_open = restored_cells(part_of(state, "open")), whole(header["n_open"], 0, BLOCK - 1)
        if any(len(own.numbers) != n_open for own in cells.values()):
            raise ArchiveError(f"open events that are not {n_open}")
        self._open = {decode_label(name): cells[str(i)] for i, name in enumerate(header["open_names"])}, n_open
        self.alarms = [restored_alarm(one) for one in header["alarms"]]
        self.n_alarms = whole(header["n_alarms"], len(self.alarms))
        self.n_columns_left_out = whole(header["n_columns_left_out"])
        self.drift_detected = header["drift_detected"] is True
        return self
