"""Parser of windows and triggers on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from streamsvm.refit.detectors import detector_named
from streamsvm.refit.triggers import Every, EveryTime, FirstOf, Growing, OnDemand, OnDrift, Trigger
from streamsvm.refit.windows import Adaptive, Latest, Since, Window

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_TRIGGERS = """a number of labelled events ("5000" or "every:5000"), "growing[:FIRST[:FACTOR[:MOST]]]" \
("growing:500:1.5"), event time ("90s", "30m", "12h" or "1d"), "drift[:DETECTOR[:GATHER]]" ("drift:HDDMA:500"), \
"demand[:GATHER]" or "alarm[:GATHER]" ("alarm:500"), or several of these joined by "+\""""
# Kind of trigger by name, and the types of its values.
_BY_NAME: dict[str, tuple[Any, ...]] = {
    "every": (Every, int),
    "growing": (Growing, int, float, int),
    "time": (EveryTime, float),
    "drift": (OnDrift, detector_named, int),
    "demand": (OnDemand, int),
    "alarm": (OnDemand, int),
}


def trigger_of(text: str) -> Trigger:
    """Parse a trigger.

    "alarm" is "demand" with 500 labelled events after the request. "drift" alone is HDDMA. It usually detects an
    increase of errors as early as ADWIN, and ignores a decrease.

    Raises
    ------
    ValueError
        If the text is not a trigger; the message lists the forms.

    Examples
    --------
    >>> trigger_of("5000"), trigger_of("growing:500:1.5"), trigger_of("1d")
    (Every(n=5000), Growing(first=500, factor=1.5, most=None), EveryTime(seconds=86400.0))
    >>> trigger_of("growing:1000+drift:HDDMA") == FirstOf(Growing(1000), trigger_of("drift"))
    True
    """
    try:
        triggers = [_single_trigger(*part.strip().split(":")) for part in text.split("+")]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is not a trigger ({error}); use {_TRIGGERS}") from error
    return triggers[0] if len(triggers) == 1 else FirstOf(*triggers)


def _single_trigger(name: str, *values: Any) -> Trigger:
    if (seconds := seconds_of(name)) is not None:
        name, values = "time", (seconds, *values)
    elif name == "time" or name not in _BY_NAME:
        name, values = "every", (name, *values)
    if name == "drift":
        values = values or ("HDDMA",)
    if name == "alarm":
        values = values or ("500",)
    settings: Trigger = _made(*_BY_NAME[name], values=values)
    return settings


def _made(kind: Any, *types: Callable[[Any], Any], values: Sequence[Any]) -> Any:
    """Return settings of a kind, with values converted by the types."""
    if len(values) > len(types):
        raise ValueError(f"{values[len(types)]!r} is a surplus value")
    return kind(*(own(value) for own, value in zip(types, values, strict=False)))


def seconds_of(text: str) -> float | None:
    """Parse a duration such as "90s", "30m", "12h" or "1d"; return None for other text.

    Examples
    --------
    >>> seconds_of("1.5h"), seconds_of("1.5")
    (5400.0, None)
    """
    found = _DURATION.fullmatch(text)
    return float(found[1]) * _SECONDS[found[2]] if found else None


_WINDOWS = (
    'a number of events ("20000" or "latest:20000"), "adaptive[:N]", or "since:TIME[:N]" with a time such as "90s", '
    '"30m", "12h" or "7d"'
)


def window_of(text: str) -> Window:
    """Parse a window.

    Raises
    ------
    ValueError
        If the text is not a window; the message lists the forms.

    Examples
    --------
    >>> window_of("5000") == Latest(5_000), window_of("since:7d") == Since(604_800.0)
    (True, True)
    """
    kind, *values = text.split(":")
    if kind.isdecimal():
        kind, values = "latest", [kind, *values]
    try:
        if kind not in _WINDOWS_BY_NAME:
            raise ValueError("unknown")
        window: Window = _made(*_WINDOWS_BY_NAME[kind], values=values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is not a window ({error}); use {_WINDOWS}") from error
    return window


def _seconds(text: str) -> float:
    seconds = seconds_of(text)
    if seconds is None:
        raise ValueError(f"{text!r} is not a duration")
    return seconds


_WINDOWS_BY_NAME: dict[str, tuple[Any, ...]] = {
    "latest": (Latest, int),
    "since": (Since, _seconds, int),
    "adaptive": (Adaptive, int),
}
