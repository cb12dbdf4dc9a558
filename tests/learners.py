"""Common helpers of the tests of learners."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from enum import Enum
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import scipy.sparse
from river import checks

from streamsvm import BSGDClassifier, CPMClassifier, DecidingClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.online.base import OnlineClassifier
from streamsvm.refit import Every

# A small classifier of each kind, with parameters of its learner.
MAKERS: dict[str, Callable[..., Any]] = {
    "cpm": CPMClassifier,
    "bsgd": partial(BSGDClassifier, budget=10),
    "blend": partial(StreamSVMClassifier, effort="low", budget=10),
    "refit": lambda **settings: RefitClassifier(CPMClassifier(**settings), "newton", trigger=Every(150), delay=64),
    "deciding": lambda **settings: DecidingClassifier(CPMClassifier(**settings), cost={"a": {"b": 2.0}}),
}

# Parameters of each learner that take different ways through its code.
CPM_SETTINGS: list[dict[str, Any]] = [
    {},
    {"n_faces": 1, "scaling": "none"},
    {"n_faces": 10, "scaling": "rank", "class_weight": "balanced"},
    {"entropy": 0.0, "scaling": "decayed", "horizon": 200},
]
BSGD_SETTINGS: list[dict[str, Any]] = [
    {},
    {"budget": 20, "metric": "fixed", "absorb": 1.0, "merges": 3},
    {"budget": 20, "absorb": 0.95, "loss": "log", "learning_rate": 0.1},
    {"budget": 10, "scaling": "rank", "class_weight": "balanced"},
    {"budget": 10, "learning_rate": None, "merges": 5, "scaling": "decayed"},
    {"budget": 10, "gamma": 0.1, "absorb": 1.0},
]
ENSEMBLE_SETTINGS: list[dict[str, Any]] = [
    {"budget": 20},
    {"effort": "low"},
    {"effort": "high", "budget": 5, "vote_window": 50.0, "label_autocorrelation": False},
    {"members": ("ranks", "linear"), "budget": 10},
    {"effort": "low", "budget": 10, "class_weight": "balanced"},
]


def with_constants(make: type[Any], **constants: Any) -> type[Any]:
    """Return a learner's class with other values of its constants."""
    return type(make.__name__, (make,), constants)


class Color(str, Enum):  # noqa: UP042 - `StrEnum` writes itself as its value
    """Members whose values are texts."""

    RED = "r"
    BLUE = "b"


# Fields that the ensemble stores per prediction until the event is learned.
NOTES = {
    f"autocorrelation.{name}"
    for name in ("keys", "noted", "made", "left", "oldest", "n_notes", "n_fresh", "n_lost", "distinct", "reach")
} | {f"autocorrelation.{name}" for name in ("n_remembered", "n_followed", "stride")}


def check_with_river(model: Any, all_data: bool = False) -> None:
    """Run River's checks of a model, each with one data set in turn, or with all."""
    sets: dict[str, list[Any]] = {}
    for check in checks.yield_checks(model):
        sets.setdefault(getattr(check, "__name__", None) or check.func.__name__, []).append(check)
    for i, found in enumerate(sets.values()):
        for check in found if all_data else [found[i % len(found)]]:
            check(model.clone())


def snapshot(model: OnlineClassifier) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the complete state of a learner."""
    header, arrays = model.state()
    return header, {name: array.tobytes() for name, array in arrays.items()}


def arrays_of(model: OnlineClassifier) -> dict[str, Any]:
    """Return the arrays that a learner saves."""
    return model.state()[1]


def changed(model: Any, values: dict[str, Any]) -> Any:
    """Return a learner like another, with some arrays of its state replaced."""
    header, arrays = model.state()
    return type(model).from_state(header, arrays | {name: np.asarray(value) for name, value in values.items()})


def knowledge(model: OnlineClassifier) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the complete state of a learner, without the records of its predictions."""
    header, arrays = snapshot(model)
    return header, {name: held for name, held in arrays.items() if name not in NOTES}


def assert_same_knowledge(one: OnlineClassifier, other: OnlineClassifier) -> None:
    """Check that two learners have equal states, except for the sign of zeros."""
    (header, arrays), (other_header, other_arrays) = one.state(), other.state()
    assert header == other_header
    assert arrays.keys() == other_arrays.keys()
    for name in arrays:
        np.testing.assert_array_equal(arrays[name], other_arrays[name], err_msg=name)


def looped(model: Any, events: Any, labels: Any, **known: Any) -> list[Any]:
    """Return predictions of single events, which are then learned if labelled.

    Parameters
    ----------
    known
        Keyword arguments of `learn_one`, each with a value per event.
    """
    predicted = []
    events = dicts(events) if isinstance(events, np.ndarray) else events
    labels = labels.tolist() if isinstance(labels, np.ndarray) else labels
    for i, (x, label) in enumerate(zip(events, labels, strict=True)):
        predicted.append(model.predict_one(x))
        if label is not None:
            model.learn_one(x, label, **{name: values[i] for name, values in known.items()})
    return predicted


def dicts(X: np.ndarray[Any, Any]) -> list[dict[int, float | None]]:
    """Convert rows to events, with None for NaN."""
    return [{j: None if math.isnan(value) else value for j, value in enumerate(row)} for row in X.tolist()]


def csr(X: np.ndarray[Any, Any]) -> scipy.sparse.csr_array:
    """Convert rows to a sparse array; NaN is omitted, zeros are stored."""
    present = ~np.isnan(X)
    indptr = np.concatenate([[0], present.sum(axis=1).cumsum()])
    return scipy.sparse.csr_array((X[present], np.nonzero(present)[1], indptr), shape=X.shape)


def accuracy(model: OnlineClassifier, X: np.ndarray[Any, Any], y: Any) -> float:
    """Return the accuracy of predictions before learning."""
    return float(np.mean([p == t for p, t in zip(model.test_then_train(X, y), y, strict=True)]))


def blobs(n: int, n_classes: int, seed: int = 0, d: int = 5) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Classes of normal distributions that overlap."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    return 2.0 * rng.normal(size=(n_classes, d))[y] + rng.normal(size=(n, d)), y.tolist()


def ring(n: int, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A disc in a ring, which no line separates."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.5
    radius = np.where(y, rng.uniform(0.0, 1.0, n), rng.uniform(1.4, 2.4, n))
    angle = rng.uniform(0.0, 2.0 * math.pi, n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y


@functools.cache
def interpreted(kernel: Any, *compiled: str) -> Callable[..., Any]:
    """Return a kernel as a Python function, with the kernels that it calls.

    Kernels that are named or have no state stay compiled.

    For short streams, compilation would take longer than the test.
    """
    plain = kernel.py_func
    names = dict(plain.__globals__)
    for name in plain.__code__.co_names:
        called = getattr(names.get(name), "py_func", None)
        if called is not None and called.__code__.co_varnames[:1] == ("state",) and name not in compiled:
            names[name] = interpreted(names[name], *compiled)
    return FunctionType(plain.__code__, names, plain.__name__)
