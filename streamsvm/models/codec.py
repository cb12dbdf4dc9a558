"""States of parts as one state: a header for JSON, and arrays with the name of the part before theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from numpy.typing import NDArray

from streamsvm.models.archive import ArchiveError

State: TypeAlias = "tuple[dict[str, Any], dict[str, NDArray[Any]]]"
"""A header for JSON, and arrays."""
Saved: TypeAlias = "tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]"
"""A state as it is read."""


def nested(parts: Mapping[str, State], header: Mapping[str, Any] | None = None, mark: str = ".") -> State:
    """The state of a whole.

    Parameters
    ----------
    parts
        The states of its parts, by their names.
    header
        What else belongs to it.
    mark
        What stands between the names of a part and of its arrays.

    Examples
    --------
    >>> nested({"curve": ({"width": 1}, {"hits": [0]})}, {"events": 3})
    ({'events': 3, 'curve': {'width': 1}}, {'curve.hits': [0]})
    """
    arrays = {f"{part}{mark}{name}": array for part, (_, held) in parts.items() for name, array in held.items()}
    return {**(header or {}), **{part: own for part, (own, _) in parts.items()}}, arrays


def part_of(state: Saved, part: str, mark: str = ".") -> State:
    """The state of a part, as `nested` took it.

    Examples
    --------
    >>> part_of(({"events": 3, "curve": {"width": 1}}, {"curve.hits": [0], "seen": [1]}), "curve")
    ({'width': 1}, {'hits': [0]})
    """
    header, arrays = state
    return header.get(part, {}), under(arrays, f"{part}{mark}")


def check_parts(state: Saved) -> None:
    """Refuse arrays that belong to no part in the header."""
    header, arrays = state
    if strange := sorted(name for name in arrays if name.partition(".")[0] not in header):
        raise ArchiveError(f"there is an array {strange[0]!r}, which is unknown")


def under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """The arrays whose names have a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
