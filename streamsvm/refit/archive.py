"""What the archive of a classifier with refits holds: plain arrays, each headed by the part it is of, and a header."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.models import ArchiveError
from streamsvm.online.archive import decode_param, encode_param, within
from streamsvm.refit.experts import Expert
from streamsvm.refit.jobs import Refit
from streamsvm.refit.solvers import Task
from streamsvm.refit.window_rows import window_of_state, window_state
from streamsvm.refit.windows import Adaptive, Latest, Reservoir, Since, Window

Arrays = dict[str, NDArray[Any]]

WINDOWS = {kind.__name__: kind for kind in (Latest, Since, Reservoir, Adaptive)}
# Estimators of these rooms alone are made anew from an archive: nothing else is imported at its word.
TRUSTED = ("sklearn.", "streamsvm.batch.")


def under(part: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Arrays by names headed by their part."""
    return {f"{part}.{name}": array for name, array in arrays.items()}


def parts_of(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Arrays]:
    """What `under` was given, by part."""
    parts: dict[str, Arrays] = {}
    for name, array in arrays.items():
        part, dot, own = name.partition(".")
        if not dot:
            raise ArchiveError(f"there is an array {name!r}, which has no place here")
        parts.setdefault(part, {})[own] = array
    return parts


def at_rest(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Any], Arrays]:
    """A state without the window that is being solved, for whoever only looks at it; any other state as it is."""
    if not header.get("job"):
        return dict(header), dict(arrays)
    return {**header, "job": None}, {name: array for name, array in arrays.items() if not name.startswith("job.")}


# Settings ------------------------------------------------------------------------------------------------------------


def encode_window(window: Window | None) -> Any:
    """A window's settings for JSON."""
    return None if window is None else {"kind": type(window).__name__, **asdict(window)}  # type: ignore[call-overload]


def decode_window(content: Any) -> Window | None:
    """What `encode_window` gave."""
    if content is None:
        return None
    settings = dict(content)
    window: Window = WINDOWS[settings.pop("kind")](**settings)
    return window


def encode_solver(solver: Any) -> Any:
    """A solver's name, or the class and parameters of an estimator.

    Raises
    ------
    TypeError
        For one that could not be made anew.
    """
    if isinstance(solver, str):
        return solver
    kind = type(solver)
    if not kind.__module__.startswith(TRUSTED):
        raise TypeError(
            f"a {kind.__module__}.{kind.__qualname__} cannot be kept on disk: take a solver by name, or one of "
            "scikit-learn or of this package"
        )
    params = {name: encode_param(value) for name, value in solver.get_params(deep=False).items()}
    return {"class": [kind.__module__, kind.__qualname__], "params": params}


def decode_solver(content: Any) -> Any:
    """What `encode_solver` gave."""
    if isinstance(content, str):
        return content
    module, name = content["class"]
    if not module.startswith(TRUSTED):
        raise ArchiveError(f"{module}.{name} is not made at the word of an archive")
    from sklearn.base import BaseEstimator, is_classifier

    kind = getattr(importlib.import_module(module), name, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseEstimator)):
        raise ArchiveError(f"{module}.{name} is no classifier")
    solver = kind(**{name: decode_param(value) for name, value in content["params"].items()})
    if not is_classifier(solver):
        raise ArchiveError(f"{module}.{name} is no classifier")
    return solver


# Refits --------------------------------------------------------------------------------------------------------------


def task_state(task: Task) -> tuple[dict[str, Any], Arrays]:
    """What is being solved; the model it starts from is that of the newest expert, kept with the experts."""
    header, arrays = window_state(task.window)
    if task.relevance is not None:
        arrays["relevance"] = task.relevance
    header |= {
        "n_columns": task.n_columns,
        "carried": dict(task.carried or {}),
        "search": task.search,
        "seed": task.seed,
    }
    return header, arrays


def task_of(header: Mapping[str, Any], arrays: Arrays, previous: Any, n_classes: int) -> Task:
    """What `task_state` gave.

    Raises
    ------
    ArchiveError, ValueError, TypeError
        Where it is no window.
    """
    window, d = window_of_state(header, arrays), int(header["n_columns"])
    within("columns", window.rows.columns, 0, d - 1)
    within("codes", window.codes, 0, n_classes - 1)
    relevance = arrays.get("relevance")
    if relevance is not None and (relevance.shape != (d,) or not (np.isfinite(relevance) & (relevance >= 0.0)).all()):
        raise ArchiveError(f"there is no relevance for each of {d} columns")
    carried, search, seed = dict(header["carried"]), float(header["search"]), int(header["seed"])
    return Task(window, d, relevance, carried, search, previous, seed)


def refit_header(refit: Refit) -> dict[str, Any]:
    """When a refit began, and when its model enters."""
    return {"number": refit.number, "event": refit.event, "due": refit.due}


def expert_state(expert: Expert) -> tuple[dict[str, Any], Arrays]:
    """An expert for an archive; one without arrays of its own is kept as what it was fitted to."""
    header, arrays = expert.state()
    if expert.task is not None:
        header["task"], arrays = task_state(expert.task)
    return header, arrays


def expert_of(header: Mapping[str, Any], arrays: Arrays, solver: Any, n_classes: int) -> Expert:
    """An expert from an archive; one without arrays of its own is fitted anew."""
    if "task" not in header:
        return Expert.from_state(header, arrays, n_classes)
    task = task_of(header["task"], arrays, None, n_classes)
    expert = Expert(solver.solve(task), int(header["number"]))
    expert.fitted_to(task)
    return expert
