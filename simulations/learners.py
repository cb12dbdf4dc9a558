"""Learners by name or dotted path, with River's interface and a seed.

`learners.toml` next to this file has the named learners. Any other classifier with River's interface is given by its
dotted path with URL parameters: ``river.forest.ARFClassifier?n_models=3``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import tomllib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Number
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

TABLE = Path(__file__).with_name("learners.toml")
_SEEDS = ("seed", "random_seed", "random_state")


@dataclass(frozen=True)
class Learner:
    """Specification of a learner; its fields are the keys of `learners.toml`."""

    name: str
    path: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    of: str = ""
    standardised: bool = False
    ranked: bool = False
    us: float = 1_000.0

    @property
    def described(self) -> str:
        """Text that identifies the learner, without its name."""
        return repr((self.path, self.parameters, self.standardised))

    def missing(self) -> str:
        """Return why the learner is not available, or an empty string."""
        try:
            _class_of(self.path)
        except Exception as error:  # CapyMOA raises various errors if Java is missing
            return f"{self.name}: {type(error).__name__}: {error}".splitlines()[0]
        return ""

    def begin(self, seed: int, features: Sequence[str], classes: Sequence[Hashable]) -> Any:
        """Create the learner.

        `features` and `classes` are for learners that need them in advance.
        """
        if self.of == "CapyMOA":
            return _Moa(self, seed, features, classes)
        model = _made(self.path, self.parameters, seed)
        return standardised(model) if self.standardised else model


def table(path: Path = TABLE) -> dict[str, Learner]:
    """Read the learners of a file, by name."""
    try:
        return {name: Learner(name, **given) for name, given in tomllib.loads(path.read_text()).items()}
    except (OSError, tomllib.TOMLDecodeError, TypeError) as error:
        raise SystemExit(f"{path}: {error}") from error


def named(text: str, known: Mapping[str, Learner]) -> Learner:
    """Return a learner by name, or create one from a dotted path with parameters."""
    if text in known:
        return known[text]
    path, _, query = text.partition("?")
    if "." not in path:
        raise SystemExit(f"unknown learner {text!r}; there are {', '.join(known)}, and any dotted path of a class")
    learner = Learner(text, path, {key: _literal(value) for key, value in parse_qsl(query)}, path.partition(".")[0])
    if reason := learner.missing():
        raise SystemExit(reason)
    return learner


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _class_of(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _made(path: str, parameters: Mapping[str, Any], seed: int, **more: Any) -> Any:
    make = _class_of(path)
    known = inspect.signature(make).parameters
    given = {name: _nested(value, seed) for name, value in parameters.items()}
    seeds = {name: seed for name in _SEEDS if name in known and name not in given}
    return make(**more, **given, **seeds)


def _nested(value: Any, seed: int) -> Any:
    if not isinstance(value, Mapping) or "path" not in value:
        return value
    return _made(value["path"], {name: each for name, each in value.items() if name != "path"}, seed)


def standardised(model: Any) -> Any:
    """Wrap a River model with standardised numbers and one-hot encoded strings."""
    from river import compose, preprocessing

    numbers = compose.SelectType(Number) | preprocessing.StandardScaler()
    strings = compose.SelectType(str) | preprocessing.OneHotEncoder(drop_zeros=True)
    return (numbers + strings) | model


class _Moa:
    """A classifier of CapyMOA with River's interface.

    Features are numbers; missing ones are NaN.
    """

    def __init__(self, learner: Learner, seed: int, features: Sequence[str], classes: Sequence[Hashable]) -> None:
        core, stream = importlib.import_module("capymoa.core"), importlib.import_module("capymoa.stream")
        self._instance, self._labeled = core.Instance.from_array, core.LabeledInstance.from_array
        self._features, self._codes = list(features), {label: c for c, label in enumerate(classes)}
        names = [f"c{c}" for c in range(max(len(self._codes), 2))]
        self._schema = stream.Schema.from_custom(
            features=[*(f"x{j}" for j in range(len(features))), "class"], target="class", categories={"class": names}
        )
        self._model = _made(learner.path, learner.parameters, seed, schema=self._schema)

    def _row(self, x: Mapping[str, Any]) -> Any:
        return np.array([x.get(name, np.nan) for name in self._features], float)

    def predict_proba_one(self, x: Mapping[str, Any]) -> dict[Hashable, float]:
        """Return the class probabilities."""
        proba = self._model.predict_proba(self._instance(self._schema, self._row(x)))
        return {} if proba is None else dict(zip(self._codes, np.asarray(proba, float).tolist(), strict=False))

    def learn_one(self, x: Mapping[str, Any], y: Hashable) -> None:
        """Learn an event."""
        self._model.train(self._labeled(self._schema, self._row(x), self._codes[y]))
