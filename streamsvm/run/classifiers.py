"""Classifiers from names and parameters in settings."""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib
import importlib.util
import inspect
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from streamsvm.names import shown
from streamsvm.run import SHORT_NAMES
from streamsvm.run.errors import SetupError, check_repeated

_LONGEST = 4096  # characters of a parameter that is a string


def build_classifier(name: str, params: Mapping[str, Any]) -> Any:
    """Build a classifier of this package by its name, or one of River by its path.

    A parameter that is an estimator is given as a table with its `name` and its own parameters.

    Raises
    ------
    SetupError
        If the class is unknown or not a River classifier, or a parameter is invalid.

    Examples
    --------
    >>> params = {"classifier": {"name": "river.naive_bayes.GaussianNB"}}
    >>> build_classifier("river.multiclass.OneVsRestClassifier", params)
    OneVsRestClassifier (
      classifier=GaussianNB ()
    )
    """
    from river.base import Classifier

    cls = _locate(name)
    if not _is_class(cls, Classifier):
        raise SetupError(f"--model {name} is not a River classifier")
    return _build(cls, params, name)


def with_refits(model: Any, solver: str, trigger: str | None = None, window: str | None = None) -> Any:
    """Wrap a classifier of this package in a `RefitClassifier`.

    Parameters
    ----------
    model
        The classifier.
    solver
        A solver name of `RefitClassifier`, or the dotted path of a scikit-learn classifier.
    trigger, window
        Strings for `trigger_of` and `window_of`; None for the defaults.

    Raises
    ------
    SetupError
        If a value is invalid or does not fit the model.

    Examples
    --------
    >>> from streamsvm import CPMClassifier
    >>> with_refits(CPMClassifier(), "newton", "1000", "since:7d").window.seconds
    604800.0
    """
    from streamsvm.refit.classifier import RefitClassifier
    from streamsvm.refit.settings import trigger_of, window_of

    given: dict[str, Any] = {}
    for option, name, text, read in (
        ("--refit every=", "trigger", trigger, trigger_of),
        ("--refit window=", "window", window, window_of),
    ):
        if text is not None:
            try:
                given[name] = read(text)
            except ValueError as error:
                raise SetupError(f"{option}{error}") from error
    if _name(model) not in SHORT_NAMES.values():
        raise SetupError(f"--refit requires a model of this package: {', '.join(SHORT_NAMES)}, not {_name(model)}")
    try:
        return RefitClassifier(model, _solver(solver), **given)
    except (TypeError, ValueError, ImportError) as error:
        raise SetupError(f"--refit {solver}: {error}", option="--refit") from error


def _name(model: Any) -> str:
    package, _, _ = type(model).__module__.partition(".")
    return f"{package if package == 'streamsvm' else type(model).__module__}.{type(model).__qualname__}"


def _solver(name: str) -> Any:
    """Return a solver's name, or a classifier by its dotted path, with a fixed seed."""
    if "." not in name:
        return name
    cls = _locate(name)
    if not isinstance(cls, type) or not hasattr(cls, "fit"):
        raise SetupError(f"--refit {name} is not a scikit-learn classifier")
    return cls(**({"random_state": 0} if "random_state" in inspect.signature(cls).parameters else {}))


def parse_params(texts: Iterable[str], base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Parse parameters such as ``n_faces=10``.

    Values are TOML or Python literals, or else strings.

    A dotted path names a class; ``name.parameter=value`` sets the parameters of that class. Parameters override those
    of `base`.

    Examples
    --------
    >>> parse_params(["n_faces=10", "entropy=true", "model=river.naive_bayes.GaussianNB", "model.x=None"])
    {'n_faces': 10, 'entropy': True, 'model': {'name': 'river.naive_bayes.GaussianNB', 'x': None}}
    """
    params: dict[str, Any] = copy.deepcopy(dict(base or {}))
    given: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        check_repeated(f"--param {key}", given.setdefault(key, value), value)
        *parents, last = key.strip().split(".")
        if not equals or not all(part.isidentifier() for part in (*parents, last)):
            raise SetupError(f"--param {text}: must read NAME=VALUE")
        table = params
        for parent in parents:
            table = table.get(parent, {})
            if not isinstance(table, dict) or "name" not in table:
                raise SetupError(f"--param {text}: name the class of `{parent}` first: --param {parent}=PATH.TO.CLASS")
        table[last] = parse_value(value.strip())
    return params


def parse_value(text: str) -> Any:
    """Parse a Boolean, a Python literal, the path of a class, or else a string.

    The path of a class becomes a table with its name.
    """
    try:
        return text == "true" if text in ("true", "false") else ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        if len(text) > _LONGEST:  # too many digits or brackets
            raise SetupError(f"--param {shown(text)}: {error}") from error
    except (MemoryError, RecursionError) as error:
        raise SetupError(f"--param {shown(text)}: nested too deeply") from error
    parts = text.split(".")
    return {"name": text} if len(parts) > 1 and all(part.isidentifier() for part in parts) else text


def _build(cls: Any, params: Mapping[str, Any], name: str) -> Any:
    allowed = inspect.signature(cls).parameters
    unknown = [key for key in params if key not in allowed]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in allowed.values()):
        raise SetupError(f"{name} has no parameter `{unknown[0]}`; it takes {', '.join(allowed) or 'none'}")
    built = {key: _value(key, value) for key, value in params.items()}
    if cls.__module__.startswith("streamsvm."):  # these take tuples, but TOML has only lists
        built = {key: _frozen(value) for key, value in built.items()}
    try:
        return cls(**built)
    except Exception as error:  # foreign classes may raise anything
        raise SetupError(f"{name}: {error if str(error) else type(error).__name__}") from error


def _value(key: str, value: Any) -> Any:
    if not isinstance(value, dict) or "name" not in value:
        return value
    from river.base import Base

    name = str(value["name"])
    cls = _locate(name)
    if not _is_class(cls, Base):  # functions are not called, because they may do anything
        raise SetupError(f"{key} {name} is not a class of River")
    return _build(cls, {k: v for k, v in value.items() if k != "name"}, f"{key} {name}")


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _is_class(found: Any, base: type) -> bool:
    return isinstance(found, type) and issubclass(found, base)


def _is_module(name: str) -> bool:
    with contextlib.suppress(ImportError, ValueError):  # the parent is no package
        return importlib.util.find_spec(name) is not None
    return False


def _locate(name: str) -> Any:
    module, _, attribute = SHORT_NAMES.get(name, name).rpartition(".")
    if not module:
        known = f"give {', '.join(SHORT_NAMES)}, or a dotted path such as river.linear_model.LogisticRegression"
        raise SetupError(f"unknown model {name!r}; {known} (no saved model has this name)")
    try:
        found = getattr(importlib.import_module(module), attribute)
        if isinstance(found, ModuleType):  # imported before
            raise AttributeError(name)
        return found
    except (ImportError, AttributeError, TypeError, ValueError) as error:  # names such as `..x` raise other errors
        is_own = isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]
        where = "; add its directory to PYTHONPATH" if is_own else ""
        if isinstance(error, AttributeError) and _is_module(f"{module}.{attribute}"):
            raise SetupError(f"{name} is a module: name one of its classes") from error
        raise SetupError(f"cannot find {name}: {error}{where}") from error
