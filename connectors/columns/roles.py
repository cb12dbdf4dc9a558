"""Roles of named columns, and how their values are read."""

from __future__ import annotations

import contextlib
import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from connectors.columns.cells import MISSING, MISSING_NUMBERS, listed
from connectors.columns.number_formats import NumberFormat, declared
from connectors.errors import ConnectorError, OptionError
from connectors.options import Options

_SAMPLE = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)
TIME_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""Units of time, as the number of units per second."""
ROLES = ("label", "key", "time", "ignore", "types")
NEEDED = ("label", "key", "time")
"""Roles without which no event can be read."""
_SHOWN = 50  # names of columns in a message
MOST_COLUMNS = 100_000
"""Maximum number of columns of a table, because each of them is inspected."""


@dataclass(slots=True)
class Roles:
    """Roles of named columns: label, key and time; the others are features.

    Also the missing-value markers, columns to hide if present, whether to read features at all, and the formats of
    times and numbers.
    """

    label: str | None = None
    key: str | None = None
    time: str | None = None
    ignore: list[str] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    missing: frozenset[str] = MISSING
    hidden: list[str] = field(default_factory=list)
    bare: bool = False
    time_unit: str | None = None
    time_format: str | Mapping[str, str] | None = None
    number_format: NumberFormat | None = None

    @classmethod
    def of(cls, options: Options) -> Roles:
        """Create roles from options."""
        label, key, time = map(options.text, ("label", "key", "time"))
        roles = cls(
            label, key, time, options.names("ignore"), options.kinds("types"), options.texts("missing", MISSING)
        )
        roles.hidden, roles.bare = options.names("hide"), options.flag("bare", False)
        roles.time_unit, roles.time_format = options.one_of("time_unit", TIME_UNITS), options.formats("time_format")
        roles.number_format = declared(options.name, options.text("decimal"), options.text("thousands"))
        try:
            check_times(options.name, roles.time_unit, roles.time_format)
        except ValueError as error:
            raise ConnectorError(str(error)) from None
        timed = [roles.time, *(name for name, kind in roles.types.items() if kind == "time")]
        formats = roles.time_format if isinstance(roles.time_format, Mapping) else {}
        if unknown := next((name for name in formats if not (name in timed or roles.bare)), None):
            what = f"has the column {unknown!r}, which is not a time: name it in `time` or in `types`"
            raise OptionError(options.name, "time_format", what)
        roles.ignore += [name for name, kind in roles.types.items() if kind == "ignore"]
        return roles

    def check(self, source: str, columns: Iterable[str], checked: Sequence[str] = ROLES) -> None:
        """Raise ConnectorError for roles of unknown columns, or for too many columns."""
        known = list(columns)
        if len(known) > MOST_COLUMNS:
            what = f"has {len(known):,} columns, and a table may have {MOST_COLUMNS:,}"
            raise ConnectorError(
                f"{source}: {what}: write rows that are mostly zeros as libsvm or JSON lines", "too wide"
            )
        roles = [("label", self.label), ("key", self.key), ("time", self.time)]
        roles += [("ignore", name) for name in self.ignore] + [("types", name) for name in self.types]
        for role, name in roles:
            if role in checked and name is not None and name not in known:
                near, advice = _hints(name, known)
                what = f"no column {name!r} for `{role}`{near}; the columns are {listed(known, _SHOWN)}{advice}"
                raise ConnectorError(f"{source}: {what}", "no column", option=role, column=name)

    def features(self, columns: Iterable[str]) -> list[str]:
        """Return the feature columns in order."""
        taken = {self.label, self.key, self.time, *self.unused}
        return [] if self.bare else [name for name in columns if name not in taken]

    @property
    def missing_numbers(self) -> frozenset[str]:
        """Missing-value markers of numbers and times."""
        return MISSING_NUMBERS if self.missing is MISSING else self.missing

    @property
    def missing_values(self) -> list[float]:
        """Finite numbers that are declared as missing values."""
        found = []
        for text in () if self.missing is MISSING else self.missing:
            with contextlib.suppress(ValueError):
                found.append(float(text))
        return sorted(value for value in found if math.isfinite(value))

    @property
    def unused(self) -> list[str]:
        """Columns that are ignored or hidden."""
        return self.ignore + self.hidden


def _hints(name: str, known: Sequence[str]) -> tuple[str, str]:
    """Return the known name that is probably meant, and advice on the cause."""
    folded = {each.casefold(): each for each in reversed(known)}
    near = difflib.get_close_matches(name.casefold(), folded, 1, cutoff=0.75)
    meant = f" (did you mean {folded[near[0]]!r}?)" if near else ""
    if len(known) == 1 and name in known[0]:
        return meant, "; the only column contains this name: check delimiter="
    return meant, "; a name with commas goes in double quotes" if any("," in each for each in known) else ""


def check_times(source: str, unit: str | None, form: str | Mapping[str, str] | None) -> None:
    """Check that time options are valid and compatible.

    Formats of some columns may be combined with a unit for the others.

    Raises
    ------
    ValueError
        If they are not.
    """
    if unit is not None and unit not in TIME_UNITS:
        raise ValueError(f"{source}: `time_unit` must be one of {', '.join(TIME_UNITS)}, got {unit!r}")
    if not isinstance(form, str):
        for one in (form or {}).values():
            check_times(source, None, one)
        return
    if unit is not None:
        raise ValueError(f"{source}: `time_unit` is for numbers, `time_format` for texts: use one of them")
    try:
        datetime.strptime(_SAMPLE.strftime(form), form)
        fault = None if "%" in form else "it has no directives"
    except ValueError as error:
        fault = str(error)
    if fault is not None:
        raise ValueError(f"{source}: `time_format` {form!r} is not a format such as %d.%m.%Y %H:%M: {fault}")
