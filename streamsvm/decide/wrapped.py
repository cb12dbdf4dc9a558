"""How those around a classifier keep it: its header in theirs, its arrays under names that begin with `model.`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from streamsvm.models import LOADABLE, LOADABLE_LATER, public

_UNDER = "model."


def state_of(model: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The header of a classifier, and its arrays by their names in the archive of what is around it.

    Raises
    ------
    TypeError
        Where it does not give its state: nothing is pickled here.
    """
    if not hasattr(model, "state"):
        raise TypeError(
            f"a {type(model).__name__} cannot be saved, as it does not give its state as arrays: only classifiers of "
            "this package do"
        )
    header, arrays = model.state()
    return header, {f"{_UNDER}{name}": array for name, array in arrays.items()}


def model_from(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The classifier whose state stands among these arrays."""
    name = header["class"]
    kind = public(name) if name in LOADABLE_LATER else LOADABLE[name]
    own = {key.removeprefix(_UNDER): array for key, array in arrays.items() if key.startswith(_UNDER)}
    return kind.from_state(header, own)
