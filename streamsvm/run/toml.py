"""Settings from TOML: keys are the long options, with `source` and a table for the model."""

from __future__ import annotations

import json
import tomllib
from typing import Any

from streamsvm.run.errors import SetupError

_TABLES = ("cost", "class_weight")  # whose keys are labels, which may be any texts
_REPEATED = ("ignore", "types", "missing")  # whose lists and tables hold names, which may be any texts


def read_toml(path: str, names: set[str], flags: set[str]) -> dict[str, Any]:
    """The entries of a file that may set these fields, as texts; `model` as a table."""
    try:
        with open(path, "rb") as file:
            entries = tomllib.load(file)
    except OSError as error:
        raise SetupError(f"--config {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also for very many digits, or brackets
        raise SetupError(f"--config {path}: {error}") from error
    found: dict[str, Any] = {"model": _model(entries.pop("model", {}), path)}
    source = entries.pop("source", None)
    if source is not None:
        if not isinstance(source, str) or not source:
            raise SetupError(f"--config {path}: `source` must be a text, got {source!r}")
        found["source"] = source
    for key, value in entries.items():
        name, entry = _entry(path, key, value, names, flags)
        found[name] = entry
    return found


def _model(model: Any, path: str) -> dict[str, Any]:
    """A model's name and parameters; its name alone may be given as a text."""
    table = {"name": model} if isinstance(model, str) else model
    if not isinstance(table, dict):
        raise SetupError(f"--config {path}: `model` must be a text or one table, got {model!r}")
    if not isinstance(table.get("name", ""), str):
        raise SetupError(f"--config {path}: the `name` of the model must be a text, got {table['name']!r}")
    return table


def _entry(path: str, key: str, value: Any, names: set[str], flags: set[str]) -> tuple[str, Any]:
    """The field of an entry, and its value."""
    name = key.replace("-", "_")
    plain = name.removeprefix("no_")
    if plain in flags and "_" not in key:
        if not isinstance(value, bool):
            raise SetupError(f"--config {path}: `{key}` must be true or false, got {value!r}")
        return plain, value == (name == plain)
    if name not in names or "_" in key:
        allowed = ", ".join(sorted(each.replace("_", "-") for each in names))
        raise SetupError(f"--config {path}: unknown key `{key}`; allowed are {allowed}")
    if isinstance(value, bool):
        raise SetupError(f"--config {path}: `{key}` must be a text or a number, got {str(value).lower()}")
    if name in _REPEATED and isinstance(value, dict | list):
        return name, value or ([""] if name == "missing" else None)  # none but the empty text is missing
    if isinstance(value, dict) and name in _TABLES:
        return name, json.dumps(value)
    return name, ",".join(map(str, value)) if isinstance(value, list) else str(value)
