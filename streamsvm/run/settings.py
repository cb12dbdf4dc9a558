"""Settings as strings, from a TOML file and from NAME=VALUE on the command line, and options of earlier versions."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from streamsvm.run.errors import SetupError

if TYPE_CHECKING:
    from streamsvm.run.config import RunConfig

_TABLES = ("cost", "class_weight", "alarms")  # tables whose keys are labels, which may be any string
_REPEATED = ("ignore", "types", "missing")  # lists and tables of names, which may be any string
_APART = ("config", "params")


def read_toml(path: str, config: type[RunConfig]) -> dict[str, Any]:
    """Read the entries of a file as strings by field; `model` as a table.

    Parameters
    ----------
    path
        Path of the file.
    config
        Class with the fields.
    """
    try:
        with open(path, "rb") as file:
            entries = tomllib.load(file)
    except OSError as error:
        raise SetupError(f"--config {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also for too many digits or brackets
        raise SetupError(f"--config {path}: {error}") from error
    found: dict[str, Any] = {"model": _model(entries.pop("model", {}), path)}
    kinds = {name: kind for name, kind in config.kinds().items() if name not in _APART}
    for key, value in entries.items():
        name = _field(f"--config {path}", key, kinds)
        found[name] = _entry(path, name, value, kinds[name])
    return found


def read_settings(texts: Iterable[str], config: type[RunConfig]) -> dict[str, Any]:
    """Parse settings such as ``window=500``; return values by field.

    Parameters
    ----------
    texts
        Strings with one setting each. Repeated lists of names are concatenated; for other settings the last one wins.
    config
        Class with the fields.
    """
    kinds = {name: kind for name, kind in config.kinds().items() if name not in _APART}
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise SetupError(f"--set {text}: must read NAME=VALUE")
        name = _field(f"--set {text}", key.strip(), kinds)
        if kinds[name] == "bool":
            if value not in ("true", "false"):
                raise SetupError(f"--set {text}: must be true or false")
            found[name] = value == "true"
        elif name in _REPEATED:
            found[name] = [*found.get(name, []), value]
        else:
            found[name] = value
    return found


def _field(where: str, key: str, kinds: dict[str, str]) -> str:
    """Return the field of a key."""
    name = key.replace("-", "_")
    if "_" in key or name not in kinds:
        if (new := new_name(key)) is not None:
            raise SetupError(f"{where}: `{key}` is now {new}")
        allowed = ", ".join(sorted(each.replace("_", "-") for each in kinds))
        raise SetupError(f"{where}: unknown key `{key}`; allowed are {allowed}")
    return name


def _model(model: Any, path: str) -> dict[str, Any]:
    """Return a model's name and parameters; a string is a name without parameters."""
    table = {"name": model} if isinstance(model, str) else model
    if not isinstance(table, dict):
        raise SetupError(f"--config {path}: `model` must be a text or one table, got {model!r}")
    if not isinstance(table.get("name", ""), str):
        raise SetupError(f"--config {path}: the `name` of the model must be a text, got {table['name']!r}")
    return table


def _entry(path: str, name: str, value: Any, kind: str) -> Any:
    """Return the value of an entry as a string, or in the type of its field."""
    key = name.replace("_", "-")
    if kind == "bool":
        if not isinstance(value, bool):
            raise SetupError(f"--config {path}: `{key}` must be true or false, got {value!r}")
        return value
    if isinstance(value, bool):
        raise SetupError(f"--config {path}: `{key}` must be a text or a number, got {str(value).lower()}")
    if name == "source" and not (isinstance(value, str) and value):
        raise SetupError(f"--config {path}: `source` must be a text, got {value!r}")
    if name in _REPEATED and isinstance(value, dict | list):
        return value or ([""] if name == "missing" else None)  # empty: only the empty string is missing
    if isinstance(value, dict) and name in _TABLES:
        return json.dumps(value)
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


_NEW = {
    "alarm-class": "--set alarms=LABEL=SHARE",
    "checkpoint-seconds": "--checkpoint-every TIME, as 30s",
    "effort": "--param effort=LEVEL",
    "follow": "--at-end wait",
    "no-follow": "--at-end stop",
    "forget-after": "--key-ttl",
    "fresh": "--reset",
    "no-fresh": "the default: leave it out",
    "group": "--consumer-group",
    "joined": "--label-output",
    "learn": "the command `streamsvm run`",
    "no-learn": "the command `streamsvm predict`",
    "load": "--model FILE",
    "on-timeout": "--timeout-label",
    "page-token": "the environment variable STREAMSVM_PAGE_TOKEN or page-token-file, as secrets are no options",
    "parent": "--prior-model",
    "patience": "--broker-timeout",
    "per-key": "the command `streamsvm per-key SOURCE --field FIELD`",
    "refit-every": "--refit SOLVER,every=WHEN",
    "refit-window": "--refit SOLVER,window=WHAT",
    "rejected": "--dead-letter",
    "requests": "--query-output",
    "until-end": "--at-end stop",
    "no-until-end": "--at-end wait",
    "wait": "--label-timeout",
}
"""Replacements of options of earlier versions, for error messages."""


def new_name(old: str) -> str | None:
    """Return the replacement of an old option; None if it is unknown.

    Parameters
    ----------
    old
        Name of the option without leading dashes.

    Examples
    --------
    >>> new_name("wait"), new_name("follow"), new_name("no-follow"), new_name("bogus")
    ('--label-timeout', '--at-end wait', '--at-end stop', None)
    """
    return _NEW.get(old)


def setting_of(old: str, names: Container[str]) -> str | None:
    """Return the form of a setting that was an option; None for other names.

    Parameters
    ----------
    old
        Name of the option without leading dashes.
    names
        Fields that are settings.

    Examples
    --------
    >>> setting_of("window", {"window"}), setting_of("no-quiet", {"quiet"}), setting_of("bogus", {})
    ('--set window=VALUE', '--set quiet=false', None)
    """
    plain = old.removeprefix("no-")
    if plain.replace("-", "_") not in names:
        return None
    return f"--set {plain}={'VALUE' if plain == old else 'false'}"
