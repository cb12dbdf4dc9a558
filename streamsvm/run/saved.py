"""State of the parts of a run: one codec for all, which checks what it restores."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamsvm.models import ArchiveError
from streamsvm.models.archive import real, reals, whole
from streamsvm.models.codec import State, nested, part_of


class Saved:
    """Base class of parts whose state is some of their attributes.

    Arrays, numbers and lists are saved, and other parts with their own state. A restored value has the type of the
    value in a new object. Dimensions of arrays that are not 0 in a new object do not change.

    Attributes
    ----------
    saved
        Names of the attributes.

    Examples
    --------
    >>> class Total(Saved):
    ...     saved = ("n", "sums")
    ...
    ...     def __init__(self) -> None:
    ...         self.n, self.sums = 0, np.zeros(2)
    >>> total = Total()
    >>> total.restore(({"n": 3}, {"sums": np.array([1.0, 2.0])}))
    >>> total.state()
    ({'n': 3}, {'sums': array([1., 2.])})
    """

    saved: ClassVar[tuple[str, ...]]

    def state(self) -> State:
        """Return the state as a JSON header and arrays."""
        values = {name: getattr(self, name) for name in self.saved}
        parts = {name: value.state() for name, value in values.items() if isinstance(value, Saved)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        header, held = nested(parts, {name: values[name] for name in values if name not in parts | arrays.keys()})
        return header, held | arrays

    def restore(self, state: State) -> None:
        """Restore the result of `state` in a new object.

        Raises
        ------
        ValueError, LookupError, TypeError
            If it is not the state of such an object.
        """
        header, arrays = state
        for name in self.saved:
            new = getattr(self, name)
            if isinstance(new, Saved):
                new.restore(part_of(state, name))
            else:
                value = _array(arrays[name], new) if isinstance(new, np.ndarray) else _value(header[name], new)
                setattr(self, name, value)
        if not self.is_valid():
            raise ArchiveError(f"{type(self).__name__}: values that do not fit together")

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        return True


def _array(array: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    fits = array.ndim == new.ndim and all(n in (0, m) for m, n in zip(array.shape, new.shape, strict=True))
    if not fits or array.dtype != new.dtype:
        raise ArchiveError(f"an array of shape {array.shape} and type {array.dtype}, not {new.shape} and {new.dtype}")
    return reals(array, new.ndim) if new.dtype == np.float64 else array.copy()


def _value(value: Any, new: Any) -> Any:
    if type(new) is int:
        return whole(value, -1)
    if type(new) is float:
        return real(value)
    if type(value) is not type(new):
        raise ArchiveError(f"{value!r} is not of type {type(new).__name__}")
    return value
