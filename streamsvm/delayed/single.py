"""Single events of a learner whose labels arrive later."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streamsvm.core.layout import array_address
from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.decide.conformal_kernels import COVERING
from streamsvm.delayed.single_join import ENTRY_POINTS, SETS
from streamsvm.features.tables import NOT_PLAIN
from streamsvm.features.values import names_of_times

if TYPE_CHECKING:
    from streamsvm.online.base import OnlineClassifier


class SingleRow:
    """Batch of one row, predicted or learned by one compiled call.

    Results are the same as with `run_batch`.

    Parameters
    ----------
    model
        A learner without refits and costs.

    Attributes
    ----------
    names
        Features of rows that are packed, in order.
    binding, address
        Memory view of the binding of the learner, see `single_join`, and its address.
    code, score
        Memory views of the last prediction and its probability.
    proba
        Probabilities of the last prediction, shape (1, classes).
    found, memory
        Memory views of the words to store with the last prediction, and of those that are its memory.
    members
        Whether each class is in the prediction set, shape (1, classes).
    """

    def __init__(self, model: OnlineClassifier) -> None:
        self._model = model
        self._fast: tuple[Any, ...] = ()  # that was used last
        self.names: tuple[Any, ...] = ()
        self._sets = 0

    def __reduce__(self) -> Any:
        return type(self), (self._model,)

    @classmethod
    def of(cls, model: Any) -> Self | None:
        """Return the row of a learner, None if it cannot process single events."""
        return cls(model) if hasattr(model, "load_event") and model.parts is None else None

    @property
    def label(self) -> Any:
        """The predicted class, None for none."""
        return self._model.labels.by_code[self.code[0]]

    @property
    def shares_by_label(self) -> dict[Any, float]:
        """Probabilities of the last prediction."""
        return dict(zip(self._model.classes_, self.proba[0].tolist(), strict=True))

    def number(self, label: Any) -> int:
        """Return the number of a class that was learned."""
        return self._model.labels.codes[label]

    def use_sets(self, address: int) -> None:
        """Predict and update the prediction sets at an address from now on."""
        self._sets = address
        if self._fast:
            self.binding[SETS] = address

    def pack(self, x: Any) -> bytes | None:
        """Return packed numbers of an event with exactly the known names, or None.

        Missing values are NaN. None means that the event needs `predict`.
        """
        fast = self._model.fast_path
        if type(x) is not dict or len(x) != fast[0]:
            return None
        if fast is not self._fast:
            self._bind(fast)
        try:
            packed: bytes = fast[1](*fast[2](x))
        except NOT_PLAIN:
            try:
                packed = fast[1](*[math.nan if value is None else value for value in fast[2](x)])
            except NOT_PLAIN:
                return None
        return packed

    def predict(self, x: Any) -> bytes | None:
        """Predict an event of any features.

        Parameters
        ----------
        x
            Features by name.

        Returns
        -------
        bytes or None
            Words of its probabilities and its memory. None if it needs `run_batch`: then nothing has changed.
        """
        model = self._model
        if type(x) is not dict or names_of_times(x):
            return None
        with model.lock:
            try:
                n = model.load_listed(x)
            except (TypeError, ValueError):  # refused as a row of a batch
                return None
            self._follow()
            self.memory[:] = bytes(len(self.memory))
            return self.proba.tobytes() + bytes(self.memory) if self._run_listed(n, -1) else None

    def learn(self, held: bytes, n_row: int, n_key: int, label: Any) -> bool:
        """Learn a packed row.

        Parameters
        ----------
        held
            All words stored with the event: its row first, the memory of its prediction last.
        n_row, n_key
            Number of words of the row, and of bytes of the key.
        label
            Class to learn.

        Returns
        -------
        bool
            False if it needs `run_batch`: then nothing has changed.
        """
        code = self._model.labels.codes.get(label)
        if code is None:
            return False
        fast = self._model.fast_path
        if fast is not self._fast:
            self._bind(fast)
        is_learned = n_row == fast[0] and bool(self._learn_row(self.address, held, n_row, n_key, code))
        if is_learned and self._opening[()]:
            self._model.add_gaps()
        return is_learned

    def learn_listed(self, x: Any, memory: bytes, label: Any) -> bool:
        """Learn a row of named features with the memory of its prediction; see `learn`."""
        model = self._model
        code = model.labels.codes.get(label)
        if code is None:
            return False
        with model.lock:
            n = model.load_listed(x, learn=True)
            self._follow()
            self.memory[:] = memory
            return self._run_listed(n, code)

    def _run_listed(self, n_values: int, label: int) -> bool:
        """Predict the loaded row of listed columns, or learn it if it has a label."""
        self._end[1], self._label_of_listed[0], self._listed.predicts = n_values, label, label < 0
        is_done = bool(self._run_rows(self._owner, self._listed) == 1)
        if self._opening[()]:
            self._model.add_gaps()
        return is_done

    def _follow(self) -> None:
        """Use the memory of the learner, which may have changed."""
        if (fast := self._model.fast_path) is not self._fast:
            self._bind(fast)

    def _bind(self, fast: tuple[Any, ...]) -> None:
        from streamsvm.ensemble import vote
        from streamsvm.ensemble.classifier import StreamSVMClassifier
        from streamsvm.online import driver
        from streamsvm.online.batch import one_event

        model, self._fast = self._model, fast
        k, size, n_values = len(model.labels.codes), model.memory_size, max(fast[0], 0)
        self.names = tuple(model.columns[:n_values])
        is_ensemble, rows = isinstance(model, StreamSVMClassifier), fast[3]
        entry = (vote if is_ensemble else driver).ENTRY_POINTS["run_rows"]
        prepare([entry])
        self._packed, self._listed = one_event(rows.row, rows.all_rows), one_event(rows.row, rows.row_columns)
        scores, self.proba, found = np.full(1, math.nan), np.zeros((1, k)), np.zeros(k + size)
        memories, self.members = found[None, k:].view(np.int64), np.zeros((1, k), np.bool_)
        covering = State(COVERING)
        covering.bind(proba=found[None, :k], labels=np.zeros(1, np.int64), members=self.members)
        own = {"scores": scores, "proba": self.proba, "memory_rows": np.ones(1, np.int64), "memories": memories}
        for batch in (self._packed, self._listed):
            batch.bind(codes=self._packed.codes, **own)
            batch.shared, batch.notes = int(batch is self._packed), 1
            batch.weights[0], batch.indptr[1] = 1.0, n_values
        # Elements of memory views are read and written faster than those of arrays.
        self._end, self._label_of_listed = self._listed.indptr.data, self._listed.labels.data
        self.code, self.score = self._packed.codes.data, scores.data
        self._opening = rows.number("opening").data
        self.found, self.memory = (array.view(np.uint8).data for array in (found, found[k:]))
        self._owner, self._parts = model.buffer if is_ensemble else rows, (rows, self._packed, covering)
        addresses = [part.address for part in self._parts]  # these must stay where they are
        self._bound = np.array([*addresses, self._sets, 0, 0])
        self.binding, self.address = self._bound.data, array_address(self._bound)
        self._run_rows, self._learn_row = entry.compile(), ENTRY_POINTS["learn_row"].compile()
