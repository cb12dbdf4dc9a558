"""Settings as strings, from a TOML file and from NAME=VALUE on the command line, and options of earlier versions."""

from __future__ import annotations

import tomllib
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from streamsvm.run.errors import SetupError
from streamsvm.run.options import REPEATED
from streamsvm.run.values import label_of

if TYPE_CHECKING:
    from streamsvm.run.config import RunConfig

_BY_LABEL = {"cost", "class_weight", "alarms"}  # tables whose keys are labels
_APART = ("config", "params", "learn")


def read_toml(path: str, config: type[RunConfig]) -> dict[str, Any]:
    """Read the entries of a file by field.

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
    found = {_field(f"--config {path}", key, config): value for key, value in entries.items()}
    return found | {name: _by_label(found[name]) for name in _BY_LABEL & found.keys()}


def _by_label(value: Any) -> Any:
    """Parse the keys of a table as labels."""
    return {label_of(key): _by_label(each) for key, each in value.items()} if isinstance(value, dict) else value


def read_settings(texts: Iterable[str], config: type[RunConfig]) -> dict[str, str]:
    """Parse settings such as ``window=500``; return strings by field.

    Parameters
    ----------
    texts
        Strings with one setting each. Repeated lists of names are concatenated; for other settings the last one wins.
    config
        Class with the fields.
    """
    kinds, found = config.kinds(), dict[str, str]()
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise SetupError(f"--set {text}: must read NAME=VALUE")
        name = _field(f"--set {text}", key.strip(), config)
        found[name] = f"{found[name]},{value}" if name in found and kinds[name] in REPEATED else value
    return found


def _field(where: str, key: str, config: type[RunConfig]) -> str:
    """Return the field of a key."""
    name, names = key.replace("-", "_"), config.takes.difference(_APART)
    if "_" in key or name not in names:
        if (new := new_name(key)) is not None:
            raise SetupError(f"{where}: `{key}` is now {new}")
        allowed = ", ".join(sorted(each.replace("_", "-") for each in names))
        raise SetupError(f"{where}: unknown key `{key}`; allowed are {allowed}")
    return name


_NEW = {
    "alarm-class": "--set alarms=LABEL=SHARE",
    "checkpoint-seconds": "--checkpoint-every TIME, such as 30s",
    "effort": "--param effort=LEVEL",
    "follow": "--at-end wait",
    "no-follow": "--at-end stop",
    "forget-after": "--key-ttl",
    "fresh": "--reset",
    "no-fresh": "the default: remove it",
    "group": "--consumer-group",
    "joined": "--label-output",
    "learn": "the command `streamsvm run`",
    "no-learn": "the command `streamsvm predict`",
    "load": "--model FILE",
    "on-timeout": "--set timeout-label=CLASS",
    "page-token": "the environment variable STREAMSVM_PAGE_TOKEN or page-token-file, to keep it secret",
    "parent": "--prior-model",
    "patience": "--set broker-timeout=S",
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


def new_name(old: str, settings: Container[str] = ()) -> str | None:
    """Return the replacement of an old option; None if it is unknown.

    Parameters
    ----------
    old
        Name of the option without leading dashes.
    settings
        Fields that are settings, some of which were options.

    Examples
    --------
    >>> new_name("wait"), new_name("no-follow"), new_name("window", {"window"}), new_name("bogus")
    ('--label-timeout', '--at-end stop', '--set window=VALUE', None)
    """
    plain = old.removeprefix("no-")
    if old in _NEW or plain.replace("-", "_") not in settings:
        return _NEW.get(old)
    return f"--set {plain}={'VALUE' if plain == old else 'false'}"
