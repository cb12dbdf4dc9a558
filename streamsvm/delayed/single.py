"""Single events of a learner whose labels arrive later."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.core.precompile import prepare
from streamsvm.core.state import State
from streamsvm.delayed.single_join import ENTRY_POINTS, NOT_TAKEN
from streamsvm.features.tables import NOT_PLAIN
from streamsvm.features.values import names_of_times

if TYPE_CHECKING:
    from streamsvm.delayed.models import RowModel
    from streamsvm.online.base import OnlineClassifier


class SingleObject:
    """Single event of a River classifier that is not of this package.

    Parameters
    ----------
    model
        Adapter of the classifier.

    Attributes
    ----------
    code, score
        The last prediction and its probability, in lists of one.
    """

    def __init__(self, model: RowModel) -> None:
        self._model, self.code, self.score = model, [-1], [math.nan]

    @property
    def label(self) -> Any:
        """The predicted class, None for none."""
        return self._model.classes[self.code[0]] if self.code[0] >= 0 else None

    @property
    def shares_by_label(self) -> dict[Any, float]:
        """Probabilities of the last prediction."""
        return self._model.last

    def predict(self, x: Any) -> tuple[bytes, bytes, bytes]:
        """Predict an event; return the words of its row, probabilities and memory as `SingleRow` does."""
        model = self._model
        prediction, shares = model.predict(x)
        self.code[0], self.score[0] = model.decode(prediction), math.nan
        shares = shares if self.code[0] >= 0 else None
        if shares is not None:
            self.score[0] = shares.get(prediction, math.nan)
        return b"", model.table([shares]).tobytes() if model.with_proba else b"", b""

    def learn(self, x: Any, memory: bytes, label: Any) -> bool:
        """Learn an event."""
        self._model.learn(x, label)
        return True


class SingleRow:
    """Batch of one row, predicted or learned by one compiled call with the result of `run_batch`.

    Parameters
    ----------
    model
        A learner that is not composed.

    Attributes
    ----------
    names
        Features of the row, in order.
    code, score
        Memory views of the last prediction and its probability.
    proba
        Probabilities of the last prediction, shape (1, classes).
    address, shares
        Address of `score` and `proba`, which are contiguous, and memory view of the bytes of `proba`.
    decide
        Decides about the last prediction, and returns the words to store in place of `shares`; None stores `shares`.
    n_notes
        Number of words that `decide` adds to the probabilities.
    """

    def __init__(self, model: OnlineClassifier) -> None:
        self._model, self.n_classes = model, 0
        self._state: State | None = None
        self._has_memory = model.memory_size > 0
        self._fast: tuple[Any, ...] = ()  # that `pack` used last
        self.decide: Callable[[SingleRow], bytes] | None = None
        self.n_notes = 0
        self.names: tuple[Any, ...] = ()

    def __reduce__(self) -> Any:
        return type(self), (self._model,)

    @property
    def label(self) -> Any:
        """The predicted class, None for none."""
        return self._model.labels.answers[self.code[0]]

    @property
    def shares_by_label(self) -> dict[Any, float]:
        """Probabilities of the last prediction."""
        return dict(zip(self._model.classes_, self.proba[0].tolist(), strict=True))

    def number(self, label: Any) -> int:
        """Return the number of a class that was learned."""
        return self._model.labels.codes[label]

    def pack(self, x: Any) -> bytes | None:
        """Return the values of an event with exactly the known names, all numbers; None if it needs `predict`."""
        model = self._model
        fast = model.fast_path
        if self._has_memory or type(x) is not dict or len(x) != fast[0]:
            return None
        if fast is not self._fast or len(model.labels.codes) != self.n_classes:
            self._bind(model.buffer, fast[0], len(model.labels))
            self._fast, self.rows, self._learn_row = fast, fast[3], ENTRY_POINTS["learn_row"].compile()
        try:
            packed: bytes = fast[1](*fast[2](x))
        except NOT_PLAIN:
            return None
        return packed

    def predict(self, x: Any) -> tuple[bytes, bytes, bytes] | None:
        """Predict an event.

        Parameters
        ----------
        x
            Features by name.

        Returns
        -------
        (row, proba, memory) or None
            Words of the row, empty unless its features are `names` and all numbers, of its probabilities, and of its
            memory. None if it needs `run_batch`: then nothing has changed.
        """
        model = self._model
        with model.lock:
            values = model.load_event(x)
            if values is None:
                if type(x) is not dict or names_of_times(x):
                    return None
                try:
                    arguments = self._fit_listed(model.load_listed(x))
                except (TypeError, ValueError):  # refused as a row of a batch
                    return None
            else:
                self._fit(len(values))
                arguments = self._plain
            self._labels[0], self.score[0], self._memory[:] = -1, math.nan, self._no_memory
            if self._run_rows(*arguments) < 1:
                return None
            shares = bytes(self.shares) if self.decide is None else self.decide(self)
            return bytes(self._row) if values is not None else b"", shares, bytes(self._memory)

    def learn(self, x: Any, memory: bytes, label: Any) -> bool:
        """Learn a row with the memory of its prediction.

        Parameters
        ----------
        x
            Words of the row as `predict` returns them, or features by name.
        memory
            Memory of the prediction, in words.
        label
            Class to learn.

        Returns
        -------
        bool
            False if it needs `run_batch`: then nothing has changed.
        """
        model = self._model
        code = model.labels.codes.get(label)
        if code is None:
            return False
        fast = model.fast_path
        is_plain = fast is self._fast and type(x) is bytes and len(x) == 8 * fast[0]
        if is_plain and self._learn_row(fast[3], x, code) != NOT_TAKEN:
            return True
        with model.lock:
            if isinstance(x, dict):
                arguments = self._fit_listed(model.load_listed(x, learn=True))
            elif model.load_packed(x):
                self._fit(len(x) // 8)
                arguments = self._plain
            else:
                return False
            self._labels[0], self._memory[:] = code, memory
            return bool(self._run_rows(*arguments) == 1)

    def _fit(self, n_values: int) -> None:
        """Use the memory of the learner, which may have changed."""
        model = self._model
        if model.buffer is not self._state or len(model.labels) != self.n_classes or n_values != len(self.names):
            self._bind(model.buffer, n_values, len(model.labels))

    def _fit_listed(self, n_values: int) -> Any:
        """Use the memory of the learner, for a row of listed columns; return the arguments of the call."""
        self._fit(len(self.names))
        self._end[1] = n_values
        return self._listed

    def _bind(self, state: State, n_values: int, n_classes: int) -> None:
        from streamsvm.ensemble import vote
        from streamsvm.ensemble.classifier import StreamSVMClassifier
        from streamsvm.online import driver
        from streamsvm.online.batch import one_event

        self._state, self.n_classes, self.names = state, n_classes, tuple(self._model.columns[:n_values])
        is_ensemble, rows = isinstance(self._model, StreamSVMClassifier), state.rows
        entry = (vote if is_ensemble else driver).ENTRY_POINTS["run_rows"]
        prepare([entry])
        plain, listed = one_event(rows.row, rows.all_rows), one_event(rows.row, rows.row_columns)
        found = np.zeros(1 + n_classes)
        scores, self.proba = found[:1], found[None, 1:]
        self.address, self.shares = found.ctypes.data, found[1:].view(np.uint8).data
        memories = np.zeros((1, self._model.memory_size), np.int64)
        own = {"scores": scores, "proba": self.proba, "apart": np.ones(1, np.int64), "memories": memories}
        for batch in (plain, listed):
            batch.bind(labels=plain.labels, codes=plain.codes, **own)
            batch.shared, batch.predicting, batch.answering = int(batch is plain), 1, 1
            batch.weights[0], batch.indptr[1] = 1.0, n_values
        # Elements of memory views are read and written faster than those of arrays.
        self._end = listed.indptr.data
        self._labels, self.code = plain.labels.data, plain.codes.data
        self.score: Any = scores.data
        self._row, self._memory = (array.reshape(-1).view(np.uint8).data for array in (rows.row, memories))
        self._row = self._row[: 8 * n_values]
        self._no_memory, self._run_rows = bytes(len(self._memory)), entry.compile()
        self._plain, self._listed = ((state if is_ensemble else rows, batch) for batch in (plain, listed))
