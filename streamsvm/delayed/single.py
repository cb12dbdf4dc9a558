"""Single events of a learner whose labels arrive later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.features.rows import Floats

if TYPE_CHECKING:
    from streamsvm.online.base import OnlineClassifier


class SingleRow:
    """Batch of one row, predicted or learned by one compiled call with the result of `run_batch`.

    Parameters
    ----------
    model
        A learner that is not composed.
    """

    def __init__(self, model: OnlineClassifier) -> None:
        self._model, self._n_classes = model, 0
        self._state: State | None = None

    def __reduce__(self) -> Any:
        return type(self), (self._model,)

    def run(self, x: dict[Any, Any], label: Any = None, memory: bytes = b"") -> tuple[int, float, Floats, bytes] | None:
        """Predict an event, or learn it with the memory of its prediction.

        Parameters
        ----------
        x
            Features by name.
        label
            Class to learn, None for a prediction.
        memory
            Memory of the prediction.

        Returns
        -------
        (code, score, probabilities, memory) or None
            As `run_batch` returns them. None if it needs `run_batch`: then nothing has changed.
        """
        model = self._model
        with model.lock:
            code = -1 if label is None else model.labels.codes.get(label)
            values = model.load_event(x)
            if values is None:
                model.look_for_fast_path(x)
                values = model.load_event(x)
            if code is None or values is None or not model.n_classes:
                return None
            if model.buffer is not self._state or len(model.labels) != self._n_classes:
                self._bind(model.buffer, len(model.labels))
            self._labels[0], self._ends[1] = code, len(values)
            self._memory[0] = np.frombuffer(memory, np.int64) if memory else 0
            if self._run_rows(*self._arguments) < 1:
                return None
            return self._code[0], self._score[0], self._proba.copy(), self._memory.tobytes()

    def _bind(self, state: State, n_classes: int) -> None:
        """Use the memory of a learner."""
        from streamsvm.ensemble import vote
        from streamsvm.ensemble.classifier import StreamSVMClassifier
        from streamsvm.online import driver
        from streamsvm.online.batch import one_event

        self._state, self._n_classes = state, n_classes
        is_ensemble = isinstance(self._model, StreamSVMClassifier)
        entry = (vote if is_ensemble else driver).ENTRY_POINTS["run_rows"]
        prepare([entry])
        batch = one_event(state.rows.row, state.rows.all_rows)
        scores, self._proba = np.zeros(1), np.zeros((1, n_classes))
        self._memory = np.zeros((1, self._model.memory_size), np.int64)
        batch.bind(scores=scores, proba=self._proba, apart=np.ones(1, np.int64), memories=self._memory)
        batch.shared = batch.predicting = batch.answering = 1
        batch.weights[0] = 1.0
        # Elements of memory views are read and written faster than those of arrays.
        self._labels, self._ends, self._code = batch.labels.data, batch.indptr.data, batch.codes.data
        self._score: Any = scores.data
        self._run_rows, self._arguments = entry.compile(), (state if is_ensemble else state.rows, batch)
