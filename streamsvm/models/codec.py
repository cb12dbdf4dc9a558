"""State of nested objects: a header for JSON, and arrays.

Names of arrays begin with the path of their object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamsvm.models.archive import ArchiveError, real, reals, whole

SavedState: TypeAlias = "tuple[dict[str, Any], dict[str, NDArray[Any]]]"
"""A header for JSON, and arrays."""
LoadedState: TypeAlias = "tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]"
"""A state that was read from an archive."""


def nested(parts: Mapping[str, SavedState], header: Mapping[str, Any] | None = None) -> SavedState:
    """Combine the states of several parts into one state.

    Parameters
    ----------
    parts
        State of each part by name.
    header
        Further entries of the header.

    Examples
    --------
    >>> nested({"curve": ({"width": 1}, {"hits": [0]})}, {"events": 3})
    ({'events': 3, 'curve': {'width': 1}}, {'curve.hits': [0]})
    """
    arrays = {f"{part}.{name}": array for part, (_, held) in parts.items() for name, array in held.items()}
    return {**(header or {}), **{part: own for part, (own, _) in parts.items()}}, arrays


def part_of(state: LoadedState, part: str) -> SavedState:
    """Return the state of a part from the result of `nested`.

    Examples
    --------
    >>> part_of(({"events": 3, "curve": {"width": 1}}, {"curve.hits": [0], "seen": [1]}), "curve")
    ({'width': 1}, {'hits': [0]})
    """
    header, arrays = state
    return header.get(part, {}), under(arrays, f"{part}.")


def check_parts(state: LoadedState) -> None:
    """Refuse arrays that belong to no part in the header."""
    header, arrays = state
    if strange := sorted(name for name in arrays if name.partition(".")[0] not in header):
        raise ArchiveError(f"there is an array {strange[0]!r}, which is unknown")


def under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays with a prefix in their names, which is removed."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


class Stateful:
    """Base class of parts with a state of some of their attributes.

    Arrays, numbers and lists are saved, and other parts with their own state. A restored value has the type of the
    value in a new object. Dimensions of arrays that are not 0 in a new object do not change.

    Attributes
    ----------
    saved
        Names of the attributes.
    signed
        Names of arrays of floats that may be negative or infinite.

    Examples
    --------
    >>> class Total(Stateful):
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
    signed: ClassVar[frozenset[str]] = frozenset()

    def state(self) -> SavedState:
        """Return the state as a JSON header and arrays."""
        values = {name: getattr(self, name) for name in self.saved}
        parts = {name: value.state() for name, value in values.items() if isinstance(value, Stateful)}
        arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
        header, held = nested(parts, {name: values[name] for name in values if name not in parts | arrays.keys()})
        return header, held | arrays

    def restore(self, state: SavedState) -> None:
        """Restore the result of `state` in a new object.

        Raises
        ------
        ValueError, LookupError, TypeError
            If it is not the state of such an object.
        """
        header, arrays = state
        for name in self.saved:
            new = getattr(self, name)
            if isinstance(new, Stateful):
                new.restore(part_of(state, name))
            elif isinstance(new, np.ndarray):
                setattr(self, name, _array(arrays[name], new, signed=name in self.signed))
            else:
                setattr(self, name, _value(header[name], new))
        if not self.is_valid():
            raise ArchiveError(f"{type(self).__name__}: values that do not fit together")

    def is_valid(self) -> bool:
        """Return whether the restored values fit together."""
        return True


def _array(array: NDArray[Any], new: NDArray[Any], *, signed: bool) -> NDArray[Any]:
    fits = array.ndim == new.ndim and all(n in (0, m) for m, n in zip(array.shape, new.shape, strict=True))
    if not fits or array.dtype != new.dtype:
        raise ArchiveError(f"an array of shape {array.shape} and type {array.dtype}, not {new.shape} and {new.dtype}")
    return array.copy() if signed or new.dtype != np.float64 else reals(array, new.ndim)


def _value(value: Any, new: Any) -> Any:
    if type(new) is int:
        return whole(value, -1)
    if type(new) is float:
        return real(value)
    if type(value) is not type(new):
        raise ArchiveError(f"{value!r} is not of type {type(new).__name__}")
    return value
