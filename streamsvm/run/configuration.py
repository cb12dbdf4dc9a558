"""Configuration files: TOML whose keys are the long options, with `source` and a table for the model."""

from __future__ import annotations

import json
import tomllib
from typing import Any, NamedTuple

from connectors.options import joined_names
from streamsvm.run.errors import SetupError

_TABLES = ("cost", "class-weight")  # whose keys are labels, which may be any texts
_REPEATED = ("ignore", "types", "missing")  # whose lists and tables hold names, which may be any texts, one by one
FLAGS = ("follow", "until-end", "learn", "proba", "fresh", "overwrite", "quiet", "relearn-corrections")


class Configuration(NamedTuple):
    """What a file says.

    Parameters
    ----------
    source
        The stream, if it is named.
    model
        The name of the model, if it is given, and its parameters.
    arguments
        The other entries, as the command line would have them, to be checked like those.
    """

    source: str | None
    model: dict[str, Any]
    arguments: list[str]


def read_configuration(path: str, options: set[str]) -> Configuration:
    """Read a file that may set these options of the command line."""
    entries = _read(path)
    model, source = _model(entries.pop("model", {}), path), _source(entries.pop("source", None), path)
    return Configuration(source, model, _arguments(entries, path, options) if entries else [])


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SetupError(f"--config {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also for very many digits, or brackets
        raise SetupError(f"--config {path}: {error}") from error


def _source(source: Any, path: str) -> str | None:
    if source is not None and (not isinstance(source, str) or not source):
        raise SetupError(f"--config {path}: `source` must be a text, got {source!r}")
    return source


def _model(model: Any, path: str) -> dict[str, Any]:
    """A model's name and parameters; its name alone may be given as a text."""
    table = {"name": model} if isinstance(model, str) else model
    if not isinstance(table, dict):
        raise SetupError(f"--config {path}: `model` must be a text or one table, got {model!r}")
    if not isinstance(table.get("name", ""), str):
        raise SetupError(f"--config {path}: the `name` of the model must be a text, got {table['name']!r}")
    return table


def _arguments(config: dict[str, Any], path: str, options: set[str]) -> list[str]:
    """The entries of a configuration file as arguments, to be checked like those."""
    arguments = []
    allowed = {name.replace("_", "-") for name in options}
    for key, value in config.items():
        name = key.removeprefix("no-")
        if name in FLAGS:
            if not isinstance(value, bool):
                raise SetupError(f"--config {path}: `{key}` must be true or false, got {value!r}")
            arguments.append(f"--{name}" if value == (key == name) else f"--no-{name}")
        elif key not in allowed:
            raise SetupError(f"--config {path}: unknown key `{key}`; allowed are {', '.join(sorted(allowed))}")
        elif isinstance(value, bool):
            raise SetupError(f"--config {path}: `{key}` must be a text or a number, got {str(value).lower()}")
        elif key in _REPEATED and isinstance(value, dict | list):
            names = [f"{name}:{kind}" for name, kind in value.items()] if isinstance(value, dict) else value
            names = names or ([""] if key == "missing" else [])  # none but the empty text is missing
            arguments += [f"--{key}={joined_names([name])}" for name in names]
        else:
            is_table = isinstance(value, dict) and key in _TABLES
            arguments.append(f"--{key}={json.dumps(value) if is_table else _as_text(value)}")
    return arguments


def _as_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
