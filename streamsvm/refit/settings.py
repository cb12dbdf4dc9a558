"""Settings of refits as text and as JSON values."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from streamsvm.models import ArchiveError
from streamsvm.models.archive import CORRUPT_ERRORS, decode_label, encode_label
from streamsvm.online.saving import decode_param, encode_param
from streamsvm.refit.detectors import DetectorSpec, detector_named
from streamsvm.refit.triggers import Every, EveryTime, FirstOf, Growing, OnDemand, OnDrift, Trigger
from streamsvm.refit.windows import Adaptive, Latest, Since, Window

SETTINGS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Every, Growing, EveryTime, OnDrift, OnDemand, FirstOf, Latest, Since, Adaptive)
}
# Archives may import estimators of these packages only.
TRUSTED = ("sklearn.", "streamsvm.batch.")


# JSON ----------------------------------------------------------------------------------------------------------------


def encode_settings(settings: Any) -> Any:
    """Return a trigger or a window as JSON values, and so its fields."""
    if isinstance(settings, tuple):  # the triggers of `FirstOf`
        return list(map(encode_settings, settings))
    if isinstance(settings, DetectorSpec):
        return settings.encode()
    if type(settings) in SETTINGS.values():
        own = {field.name: encode_settings(getattr(settings, field.name)) for field in fields(settings)}
        return {"class": type(settings).__name__, **own}
    return encode_label(settings)


def decode_settings(content: Any) -> Any:
    """Return the settings from `encode_settings`.

    Only triggers, windows and River's drift detectors are created.

    Raises
    ------
    ArchiveError
        If the content is invalid.
    """
    if content is None:
        return None
    try:
        params = dict(content)
        kind = SETTINGS[params.pop("class")]
        triggers = [decode_settings(part) for part in params.pop("triggers")] if kind is FirstOf else []
        detector = {"detector": DetectorSpec.decode(params.pop("detector"))} if kind is OnDrift else {}
        return kind(*triggers, **detector, **{name: decode_label(value) for name, value in params.items()})
    except ArchiveError:
        raise
    except CORRUPT_ERRORS as error:
        raise ArchiveError(f"not the settings of a trigger or window: {error!r}", "settings") from error


def encode_solver(solver: Any) -> Any:
    """Return a solver's name, or the class and parameters of an estimator.

    Raises
    ------
    TypeError
        If archives may not contain the class of the estimator.
    """
    if isinstance(solver, str):
        return solver
    kind = type(solver)
    if not kind.__module__.startswith(TRUSTED):
        raise TypeError(
            f"a {kind.__module__}.{kind.__qualname__} cannot be saved: use a solver by name, or one of "
            "scikit-learn or of this package"
        )
    params = {name: encode_param(value) for name, value in solver.get_params(deep=False).items()}
    return {"class": [kind.__module__, kind.__qualname__], "params": params}


def decode_solver(content: Any) -> Any:
    """Return the solver from `encode_solver`."""
    if isinstance(content, str):
        return content
    module, name = content["class"]
    if not module.startswith(TRUSTED):
        raise ArchiveError(f"{module}.{name} is not imported for an archive")
    from sklearn.base import BaseEstimator, is_classifier

    kind = getattr(importlib.import_module(module), name, None)
    if not (isinstance(kind, type) and issubclass(kind, BaseEstimator)):
        raise ArchiveError(f"{module}.{name} is not a classifier")
    solver = kind(**{name: decode_param(value) for name, value in content["params"].items()})
    if not is_classifier(solver):
        raise ArchiveError(f"{module}.{name} is not a classifier")
    return solver


# Text ----------------------------------------------------------------------------------------------------------------

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def parse_duration(text: str) -> float:
    """Parse a duration such as "90s", "30m", "12h" or "1d".

    Examples
    --------
    >>> parse_duration("1.5h")
    5400.0
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a duration")
    return float(found[1]) * _UNITS[found[2]]


def _number_of(kind: Callable[[str], Any], text: str) -> Any:
    """Parse a value, with an error that names the text."""
    try:
        return kind(text)
    except ValueError:
        if kind not in (int, float):
            raise
        raise ValueError(f"{text!r} is not a {'whole ' if kind is int else ''}number") from None


# Kind by name, and the types of its values.
_TRIGGER_KINDS: dict[str, tuple[Any, ...]] = {
    "every": (Every, int),
    "growing": (Growing, int, float, int),
    "drift": (OnDrift, detector_named, int),
    "demand": (OnDemand, int),
    "alarm": (OnDemand, int),
}
_WINDOW_KINDS: dict[str, tuple[Any, ...]] = {
    "latest": (Latest, int),
    "since": (Since, parse_duration, int),
    "adaptive": (Adaptive, int),
}
_DEFAULTS = {"drift": ["HDDMA"], "alarm": ["500"]}
_TRIGGERS = """a number of labelled events ("5000" or "every:5000"), "growing[:FIRST[:FACTOR[:MOST]]]" \
("growing:500:1.5"), event time ("90s", "30m", "12h" or "1d"), "drift[:DETECTOR[:GATHER]]" ("drift:HDDMA:500"), \
"demand[:GATHER]" or "alarm[:GATHER]" ("alarm:500"), or several of these joined by "+\""""
_WINDOWS = (
    'a number of events ("20000" or "latest:20000"), "adaptive[:N]", or "since:TIME[:N]" with a time such as "90s", '
    '"30m", "12h" or "7d"'
)


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
    triggers: list[Trigger] = []
    try:
        for part in text.split("+"):
            name = part.strip()
            is_time = _DURATION.fullmatch(name) is not None
            triggers.append(EveryTime(parse_duration(name)) if is_time else _parsed(name, "every", _TRIGGER_KINDS))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is not a trigger ({error}); use {_TRIGGERS}") from error
    return triggers[0] if len(triggers) == 1 else FirstOf(*triggers)


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
    try:
        window: Window = _parsed(text, "latest", _WINDOW_KINDS)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is not a window ({error}); use {_WINDOWS}") from error
    return window


def _parsed(text: str, of_number: str, kinds: Mapping[str, Any]) -> Any:
    """Return settings from a name and values, separated by colons.

    A number without a name is a value of the kind `of_number`.
    """
    name, *values = text.split(":")
    if name not in kinds:
        if not name.strip().lstrip("-").replace("_", "").isdecimal():
            raise ValueError("neither a known name nor a whole number")
        name, values = of_number, [name, *values]
    (kind, *types), values = kinds[name], values or _DEFAULTS.get(name, [])
    if len(values) > len(types):
        raise ValueError(f"{values[len(types)]!r} is a surplus value")
    return kind(*(_number_of(own, value) for own, value in zip(types, values, strict=False)))
