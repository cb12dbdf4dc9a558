"""Single events of a learner whose labels arrive later."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from streamsvm.core.precompile import prepare
from streamsvm.core.state import State

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
    code, score
        Memory views of the last prediction and its probability.
    proba
        Probabilities of the last prediction, shape (1, classes).
    memory
        Memory view of the words that the last prediction stores for its label.
    """

    def __init__(self, model: OnlineClassifier) -> None:
        self._model = model
        self._bound: tuple[State, int] | None = None  # memory and number of classes of the learner at its last use

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
        if type(x) is not dict:
            return None
        with self._model.lock:
            try:
                n = self._model.load_any(x)
            except (TypeError, ValueError):  # a datetime, or refused as a row of a batch
                return None
            self._follow()
            self.memory[:] = bytes(len(self.memory))
            return self.proba.tobytes() + bytes(self.memory) if self._run(n, -1) else None

    def learn_stored(self, x: Any, memory: bytes, label: Any) -> bool:
        """Learn an event.

        Parameters
        ----------
        x
            Its features by name, as they were at its prediction.
        memory
            Words that its prediction stored.
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
        with self._model.lock:
            n = self._model.load_any(x, learn=True)
            self._follow()
            self.memory[:] = memory
            return self._run(n, code)

    def _run(self, n_values: int, label: int) -> bool:
        """Predict the loaded event, or learn it if it has a label."""
        self._end[1], self._label[0], self._predicts[()] = n_values, label, label < 0
        is_done = bool(self._run_rows(self._owner, self._batch) == 1)
        if self._opening[()]:
            self._model.add_gaps()
        return is_done

    def _follow(self) -> None:
        """Use the memory of the learner, which may have changed."""
        bound = self._model.buffer, len(self._model.labels.codes)
        if bound != self._bound:
            self._bind(*bound)
            self._bound = bound

    def _bind(self, buffer: State, n_classes: int) -> None:
        from streamsvm.ensemble import vote
        from streamsvm.ensemble.classifier import StreamSVMClassifier
        from streamsvm.online import driver
        from streamsvm.online.batch import one_event

        is_ensemble, rows = isinstance(self._model, StreamSVMClassifier), buffer.rows
        entry = (vote if is_ensemble else driver).ENTRY_POINTS["run_rows"]
        prepare([entry])
        scores, self.proba = np.full(1, math.nan), np.zeros((1, n_classes))
        memories = np.zeros((1, self._model.memory_size), np.int64)
        self._batch = batch = one_event(rows.row, rows.row_columns)
        batch.bind(scores=scores, proba=self.proba, memory_rows=np.ones(1, np.int64), memories=memories)
        batch.notes, batch.weights[0] = 1, 1.0
        # Elements of memory views are read and written faster than those of arrays.
        self._end, self._label, self._predicts = batch.indptr.data, batch.labels.data, batch.number("predicts").data
        self.code, self.score = batch.codes.data, scores.data
        self._opening = rows.number("opening").data
        self.memory = memories[0].view(np.uint8).data
        self._owner, self._run_rows = buffer if is_ensemble else rows, entry.compile()
