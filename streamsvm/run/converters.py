"""Converters of option values, from strings or Python values."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_origin

from connectors.columns.roles import TIME_UNITS
from connectors.errors import ConnectorError
from connectors.options import split_formats, split_kinds, split_names
from connectors.registry import are_paths
from streamsvm.names import shown
from streamsvm.run.errors import SetupError


class RefitOption(NamedTuple):
    """A refit option: the solver, the trigger (`every`), and the window."""

    solver: str
    every: str | None = None
    window: str | None = None


class Alarm(NamedTuple):
    """Alarm option: a class and a share of all events, a recall or a precision."""

    label: Any
    kind: str
    share: float


def converted(option: str, kind: str, value: Any) -> Any:
    """Convert a string or a Python value to the type of a field.

    Raises
    ------
    SetupError
        If the value is invalid.
    """
    try:
        return KINDS[kind](value) if kind in KINDS else value
    except (ValueError, TypeError, ConnectorError) as error:
        message = f"invalid value: {value!r}" if isinstance(error, TypeError) else error
        raise SetupError(f"argument {option}: {message}", "value", option=option) from error


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, os.PathLike, Real)):
        raise ValueError(f"must be a text, got {value!r}")
    return str(_value(os.fspath(value) if isinstance(value, os.PathLike) else value))


def _sources(value: Any) -> Any:
    """Return the URL of a source, a list of several files, or data, which remain."""
    if isinstance(value, str | os.PathLike):
        return _text(value)
    if not are_paths(value):
        return value
    urls = [_text(each) for each in value]
    if not urls:
        raise ValueError("must name at least one file, got an empty list")
    return urls if len(urls) > 1 else urls[0]


def _value(value: Any) -> Any:
    if isinstance(value, str) and not value:
        raise ValueError("must not be empty (check for an unset shell variable)")
    return value


def _numeric(kind: type, name: str, is_allowed: Callable[[Any], bool], wanted: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        try:
            number = None if isinstance(value, bool) else kind(value)
        except (TypeError, ValueError, OverflowError):  # OverflowError: infinity as a whole number
            number = None
        if number is None or (not isinstance(value, str) and number != value):
            raise ValueError(f"invalid {name} value: {value!r}")
        if not is_allowed(number):
            raise ValueError(f"must be {wanted}, got {value}")
        return number

    return convert


def _span(value: Any) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    try:
        seconds = float(value[:-1]) * units[value[-1:]] if isinstance(value, str) else float(value)
    except (KeyError, ValueError, TypeError):
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise ValueError(f"must be a time such as 90s, 30m, 12h or 30d, got {value}")
    return seconds


def _pace(value: Any) -> Pace:
    """Parse events and seconds between checkpoints: ``5000``, ``30s``, ``5000,30s``."""
    parts = value if isinstance(value, (tuple, list)) else str(value).split(",")
    events: int | None = None
    seconds: float | None = None
    for part in parts:
        text = str(part).strip()
        if part is None:
            continue
        if isinstance(part, float) or not text[-1:].isdigit():
            seconds = _span(part)
        else:
            events = _whole(text)
    if seconds is not None and seconds <= 0:
        raise ValueError(f"must be more than 0, got {value}")
    return events, seconds


def _refit(value: Any) -> RefitOption:
    """Parse a refit option such as ``trees,every=5000,window=since:7d``."""
    if isinstance(value, tuple):
        return RefitOption(*value)
    solver, *others = _text(value).split(",")
    pairs = [other.partition("=") for other in others]
    if wrong := [name for name, equals, text in pairs if name not in ("every", "window") or not (equals and text)]:
        raise ValueError(f"must be SOLVER[,every=WHEN][,window=WHAT], got `{wrong[0]}` in {value}")
    return RefitOption(solver, **{name: text for name, _, text in pairs})


def _reference(value: Any) -> int | str:
    """Parse a reference: a number of events, or the path of a profile.

    Examples
    --------
    >>> _reference("5000"), _reference("1e4"), _reference("profile.json")
    (5000, 10000, 'profile.json')
    """
    try:
        number = float(value)
    except (TypeError, ValueError):
        return _text(value)
    return int(_whole(number))


def read_token(path: str | None, option: str) -> str | None:
    """Read the token of a page from a file, or else from the environment.

    White space around it is removed.

    Parameters
    ----------
    path, option
        Path of the file, None without one, and the option that names it.
    """
    if path is None:
        return os.environ.get("STREAMSVM_PAGE_TOKEN") or None
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        what = f"{option} {path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        raise SetupError(what, "read", option=option) from error


def _choice(*allowed: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if value not in allowed:
            raise ValueError(f"invalid choice: {value!r} (choose from {', '.join(allowed)})")
        return value

    return convert


def _kinds(value: Any) -> dict[str, str]:
    if isinstance(value, Mapping):
        return dict(value)
    return split_kinds(value) if isinstance(value, str) else dict(map(_pair, filter(None, value)))


def _pair(text: str) -> tuple[str, str]:
    name, colon, kind = text.rpartition(":")
    return (name, kind) if colon else (kind, "")


def params_of(value: Any, base: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return parameters from a mapping, or strings such as ``n_faces=10``.

    They are merged into `base`.
    """
    if isinstance(value, Mapping):
        return {**(base or {}), **value}
    from streamsvm.run.classifiers import parse_params

    return parse_params(value, base)


def _flag(value: Any) -> bool:
    if value not in (True, False, "true", "false"):
        raise ValueError(f"must be true or false, got {value!r}")
    return value in (True, "true")


def parse_label(text: str) -> Any:
    """Parse a label as streams do."""
    from connectors.columns.cells import label_of  # imports numpy

    return label_of(text)


def _costs(text: str) -> dict[Any, dict[Any, float]]:
    """Parse a table of costs by label."""
    table: dict[Any, dict[Any, float]] = {}
    for pair, cost in _pairs(text, "TRUE:DECIDED=COST").items():
        true, colon, decided = pair.partition(":")
        if not colon:
            raise ValueError(f"{pair} in {text} does not name the decision: use TRUE:DECIDED=COST")
        table.setdefault(parse_label(true), {})[parse_label(decided)] = cost
    return table


def _weights(text: str) -> dict[Any, float] | str:
    """Parse the weights of classes, or "balanced"."""
    if text == "balanced":
        return text
    return {parse_label(name): weight for name, weight in _pairs(text, "LABEL=WEIGHT").items()}


def _alarm(given: Any) -> Alarm:
    """Parse an alarm: ``LABEL=SHARE``, ``LABEL=recall:SHARE`` or a mapping.

    Examples
    --------
    >>> _alarm("fraud=0.01") == ("fraud", "share", 0.01), _alarm({1: "recall:0.9"}) == (1, "recall", 0.9)
    (True, True)
    """
    from streamsvm.decide.alarms import check_alarms

    text = str(given)
    if not isinstance(given, Mapping):
        name, _, value = text.rpartition("=")
        given = {parse_label(name): value} if name else {}
    if len(given) != 1:
        raise ValueError(f"{text}: use LABEL=SHARE, such as fraud=0.01")
    ((label, value),) = given.items()
    kind, _, share = str(value).rpartition(":")
    try:
        alarm = Alarm(label, kind or "share", _number(share))
        check_alarms(alarm.kind, alarm.share)
    except ValueError as error:
        raise ValueError(
            f"{text}: use LABEL=SHARE, LABEL=recall:SHARE or LABEL=precision:SHARE, with a share above 0 and below 1"
        ) from error
    return alarm


def _pairs(text: str, form: str) -> dict[str, float]:
    """Parse names with numbers, separated by commas."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, sign, value = part.rpartition("=")
        if not sign:
            raise ValueError(f"{shown(part)} is not of the form {form}")
        if name.strip() in found:
            raise ValueError(f"{name.strip()} occurs twice in {text}")
        found[name.strip()] = _number(value)
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text} is not a number") from None


_whole = _numeric(int, "whole number", lambda n: n >= 1, "at least 1")
Count = Annotated[int, _numeric(int, "whole number", lambda n: n >= 0, "at least 0")]
Seconds = Annotated[
    float, _numeric(float, "number of seconds", lambda s: 0 < s < math.inf, "a positive number of seconds")
]
Share = Annotated[float, _numeric(float, "share", lambda p: 0 < p <= 1, "more than 0 and at most 1")]
Part = Annotated[float, _numeric(float, "share", lambda p: 0 < p < 1, "a share between 0 and 1, such as 0.9")]
Cost = Annotated[float, _numeric(float, "number", lambda c: 0 <= c < math.inf, "a number of at least 0")]
Rate = Annotated[float, _numeric(float, "number", lambda n: 0 < n < math.inf, "a positive number")]
Span = Annotated[float, _span]
Reference = Annotated[int | str, _reference]
ResetReference = Annotated[str, _choice("never", "after-alarm", "sliding")]
Names = Annotated[list[str], lambda value: split_names(value) if isinstance(value, str) else list(map(str, value))]
Sources = Annotated[str | list[str], _sources]
Kinds = Annotated[dict[str, str], _kinds]
Formats = Annotated[
    str | dict[str, str], lambda value: split_formats(_text(value)) if isinstance(value, str) else value
]
TimeUnit = Annotated[str, _choice(*TIME_UNITS)]
AtEnd = Annotated[str, _choice("stop", "wait")]
Pace = Annotated[tuple[int | None, float | None], _pace]
Params = Annotated[dict[str, Any], params_of]
Costs = Annotated[dict[Any, dict[Any, float]], lambda value: _costs(value) if isinstance(value, str) else value]
Weights = Annotated[dict[Any, float] | str, lambda value: _weights(value) if isinstance(value, str) else value]

_OF_CLASSES = {"str": _text, "Any": _value, "bool": _flag, "int": _whole, "RefitOption": _refit, "Alarm": _alarm}
KINDS: dict[str, Callable[[Any], Any]] = _OF_CLASSES | {
    name: kind.__metadata__[0] for name, kind in list(globals().items()) if get_origin(kind) is Annotated
}
"""Converter of each field type."""
