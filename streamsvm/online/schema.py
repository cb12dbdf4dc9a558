"""Schemas: the columns and labels that learners share, for models of many keys.

A learner takes the place of another one with the same schema by its memory alone.
"""

from __future__ import annotations

import json
from typing import Self

import numpy as np
from numpy.typing import NDArray

from connectors.notices import Notices
from streamsvm.core.state import State
from streamsvm.features.scaler import ROOM
from streamsvm.features.texts import Recurrence
from streamsvm.models import ArchiveError
from streamsvm.models.archive import decode_labels, encode_label
from streamsvm.online.classes import Classes
from streamsvm.online.saving import SavedLearner


class SchemaLearner(SavedLearner):
    """A learner whose schema can be shared, and whose memory can be replaced."""

    blocks: list[NDArray[np.uint64]]
    """The memory as 8-byte words, see `State.blocks`; a learner that grows gets another one."""

    def _use(self, state: State) -> None:
        super()._use(state)
        self.blocks = state.blocks()

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
        space = self._space
        content = {
            "names": [encode_label(name) for name in space.names],
            "indicators": [j for j, is_indicator in enumerate(space.is_indicator) if is_indicator],
            "left_out": [[encode_label(name), kind] for name, kind in space.left_out.items()],
            "classes": [encode_label(label) for label in self.classes_],
        }
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")

    def with_schema(self, data: bytes, notices: Notices) -> Self:
        """Set the schema of this learner, which has learned nothing, and return it.

        Parameters
        ----------
        data
            The result of `schema`.
        notices
            The warnings given so far, shared by all learners.
        """
        self._make_room(ROOM)  # the memory may be replaced by that of a learner with more events
        content = json.loads(data)
        header = {"names": content["names"], "n_refused": 0, "left_out": content["left_out"], "watched": []}
        indicators = np.zeros(len(content["names"]), bool)
        indicators[np.array(content["indicators"], np.intp)] = True
        self._restore_space(header, indicators)
        self._space.said = notices
        self.labels = Classes(decode_labels(content["classes"]))
        self._space.columns.set_fast_path()
        self._grow()
        for code, label in enumerate(self.classes_):
            self._weight_class(label, code)
        self._follow_space()
        return self

    def check_buffer(self) -> None:
        """Check the memory after it was replaced, and update what is derived from it.

        Raises
        ------
        ArchiveError
            If no stream can have left it.
        """
        self._accept(self._state)

    def counts(self) -> bytes:
        """Return the counters that are not in memory: refused columns, many classes, and watched names.

        A watched name is given by its first column.
        """
        space = self._space
        if not (space.texts.watched or space.n_refused or self.labels.many_at):
            return b""
        numbers = [space.n_refused, self.labels.many_at]
        for name, found in space.texts.watched.items():
            first = min(space.columns.strings[name].values())
            numbers += [first, found.before, found.seen, len(found.again), *sorted(found.again)]
        return np.array(numbers, np.int64).tobytes()

    def restore_counts(self, counts: bytes) -> None:
        """Restore the result of `counts`.

        Parameters
        ----------
        counts
            The result of `counts`.

        Raises
        ------
        ArchiveError
            If it is not the result for this schema.
        """
        space = self._space
        if not counts:
            if space.texts.watched or space.n_refused or self.labels.many_at:
                self._own_space().recall(0, {})
                self.labels.many_at = 0
            return
        numbers = np.frombuffer(counts, np.int64).tolist()
        n_refused, self.labels.many_at = numbers[:2]
        watched, i = {}, 2
        while i < len(numbers):
            column, before, seen, n_again = numbers[i : i + 4]
            if min(column, n_again) < 0 or not space.is_indicator[column]:
                raise ArchiveError("counters of names that are not categories")
            watched[space.names[column][0]] = Recurrence(before, seen, set(numbers[i + 4 : i + 4 + n_again]))
            i += 4 + n_again
        self._own_space().recall(n_refused, watched)
