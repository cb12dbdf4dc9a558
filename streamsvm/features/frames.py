"""Sample weights, and outputs in the type of the input data frame, by narwhals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.features.rows import EncodedRows, Floats
from streamsvm.features.scaler import LARGEST

if TYPE_CHECKING:
    import narwhals as nw


def weight_of(w: Any) -> float:
    """Validate and return the weight of an event."""
    weight = float(w)
    if not 0.0 <= weight <= LARGEST:
        raise ValueError(f"a weight must be a number of at least 0 and at most {LARGEST:g}, got {w!r}")
    return weight


def weights_of(w: Any, n: int) -> Floats:
    """Validate and return the weights of n events."""
    weights = np.full(n, weight_of(w)) if np.ndim(w) == 0 else np.ascontiguousarray(w, float)
    if weights.shape != (n,):
        raise ValueError(f"{n} rows need {n} weights, got shape {weights.shape}")
    if not ((weights >= 0.0) & (weights <= LARGEST)).all():
        raise ValueError(f"weights must be numbers of at least 0 and at most {LARGEST:g}")
    return weights


def _frame(X: Any) -> nw.DataFrame[Any] | None:
    """Return X as a narwhals data frame, or None if it is not a frame."""
    if isinstance(X, (dict, list, np.ndarray, EncodedRows)):  # skip the slow checks of narwhals
        return None
    import narwhals as nw

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def like(X: Any, labels: NDArray[Any]) -> Any:
    """Return labels as a series for the frame X, or unchanged if X is not a frame."""
    frame = _frame(X)
    if frame is None:
        return labels
    if frame.implementation.is_pandas_like():
        series = frame.implementation.to_native_namespace().Series
        return series(labels.tolist(), index=frame.to_native().index, dtype=_dtype(labels))
    import narwhals as nw

    values = labels.tolist()
    if len({type(value) for value in values if value is not None}) > 1:
        values = [None if value is None else str(value) for value in values]
    return nw.new_series("prediction", values, backend=frame.implementation).to_native()


def _dtype(labels: NDArray[Any]) -> Any:
    """Return the narrowest of bool, int, float and object that holds all labels."""
    kinds = set(map(type, labels.tolist()))
    return next((kind for kind in (bool, int, float) if kinds == {kind}), object)


def frame_like(X: Any, proba: NDArray[Any], classes: list[Any]) -> Any:
    """Return probabilities as a frame of the type of X, with one column per label.

    If X is not a frame, the array is returned unchanged.
    """
    frame = _frame(X)
    if frame is None:
        return proba
    if frame.implementation.is_pandas_like():
        native = frame.implementation.to_native_namespace().DataFrame
        return native(proba, columns=classes, index=frame.to_native().index)
    names = [str(label) for label in classes]
    if len(set(names)) < len(names):  # such as 1 and "1"
        names = [repr(label) for label in classes]
    columns = {name: proba[:, c].copy() for c, name in enumerate(names)}
    import narwhals as nw

    return nw.from_dict(columns, backend=frame.implementation).to_native()
