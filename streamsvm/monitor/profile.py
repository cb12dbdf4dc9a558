"""Reference distributions of features, and their JSON file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from streamsvm.features.rows import Floats
from streamsvm.models.archive import CORRUPT_ERRORS, ArchiveError, decode_label, encode_label, real, replacing, whole
from streamsvm.monitor import positions as pos
from streamsvm.monitor.kernels import BLOCK
from streamsvm.monitor.window_counts import window_sizes

FORMAT, VERSION = "streamsvm profile", 2


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """Reference distribution of a column.

    Parameters
    ----------
    name
        Name of the column.
    kind
        "number", "category", "time" for texts that are dates or times, or "empty" for a column without values.
    n_events
        Number of events of the reference.
    cuts
        For numbers: 32 values, from the minimum to the maximum.
    values, others
        For categories: the most frequent values, at most 32, and all others. For times: the formats.
    counts
        Counts of events, at the positions of `streamsvm.monitor.positions`: up to each cut (or of each value), out of
        range, repeated, missing, of another type; and the sum of the values.
    design
        Design effects by scale and group, the whole reference last.
    split
        Index of the cut near the median for tests of relations, -1 for none.
    middle
        Indexes of the cuts near the quartiles, -1 for none.
    """

    name: Any
    kind: str
    n_events: int
    cuts: tuple[float, ...] = ()
    values: tuple[str, ...] = ()
    others: frozenset[str] = frozenset()
    counts: Floats = field(default_factory=lambda: np.zeros(pos.WIDTH))
    design: Floats = field(default_factory=lambda: np.ones((1, 4)))
    split: int = -1
    middle: tuple[int, int] = (-1, -1)

    @property
    def is_stationary(self) -> bool:
        """Whether the reference is longer than its values depend on each other."""
        return self.n_events >= LEAST_EFFECTIVE * float(self.design[-1, 0])

    @property
    def is_compared(self) -> bool:
        """Whether values are compared, besides formats, types, repeats and missing ones."""
        return self.is_stationary and self.kind != "time"

    def as_dict(self) -> dict[str, Any]:
        """Return JSON."""
        own: dict[str, Any] = {"name": encode_label(self.name), "kind": self.kind, "n_events": self.n_events}
        if self.kind == "number":
            own |= {"cuts": list(self.cuts), "split": self.split, "middle": list(self.middle)}
        else:
            own |= {"values": list(self.values), "others": sorted(self.others)}
        return own | {"counts": self.counts.tolist(), "design": self.design.tolist()}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Validate and return the profile of a column from JSON.

        Parameters
        ----------
        given
            The result of `as_dict`.

        Raises
        ------
        ArchiveError
            If values are missing or do not fit together.
        """
        kind, n_events = given["kind"], whole(given["n_events"])
        counts = np.array([real(count, -1e300) for count in given["counts"]])
        design = _design(given["design"], n_groups=4)
        if kind not in ("number", "category", "time", "empty") or counts.shape != (pos.WIDTH,):
            raise ArchiveError(f"column {given['name']!r} has kind {kind!r} and {len(counts)} counts, not {pos.WIDTH}")
        if not ((counts[: pos.TOTAL] >= 0.0) & (counts[: pos.TOTAL] <= n_events)).all():
            raise ArchiveError(f"column {given['name']!r} has counts below 0 or above {n_events}")
        own: dict[str, Any] = {}
        if kind == "number":
            cuts = [real(cut, -math.inf, math.inf) for cut in given["cuts"]]
            if len(cuts) != pos.N_CUTS or cuts != sorted(cuts):
                raise ArchiveError(f"column {given['name']!r} needs {pos.N_CUTS} ascending cuts")
            split, low, high = (whole(cut, -1, pos.N_CUTS - 1) for cut in (given["split"], *given["middle"]))
            own = {"cuts": tuple(cuts), "split": split, "middle": (low, high)}
        else:
            values, others = given["values"], given["others"]
            if not all(isinstance(value, str) for value in [*values, *others]) or len(values) > pos.N_CUTS:
                raise ArchiveError(f"column {given['name']!r} has values that are not texts, or more than {pos.N_CUTS}")
            own = {"values": tuple(values), "others": frozenset(others)}
        return cls(decode_label(given["name"]), kind, n_events, counts=counts, design=design, **own)


LEAST_EFFECTIVE = 16
"""Least effective number of events of a reference that is compared with."""


@dataclass(frozen=True, slots=True)
class RelationProfile:
    """Share of reference events with an odd number of conditions on 2 or 3 columns.

    Parameters
    ----------
    columns
        The names.
    middle
        Whether the condition is that the value is between the quartiles; else that it is at most the median.
    n_events, count
        Number of events, and number of those for which an odd number of conditions holds.
    design
        Design effects by scale, the whole reference last.
    """

    columns: tuple[Any, ...]
    middle: tuple[bool, ...]
    n_events: int
    count: float
    design: Floats

    @property
    def counts(self) -> Floats:
        """The count as an array."""
        return np.array([self.count])

    def as_dict(self) -> dict[str, Any]:
        """Return JSON."""
        names = [encode_label(name) for name in self.columns]
        design = self.design[:, 0].tolist()
        own = {"columns": names, "middle": list(self.middle)}
        return own | {"n_events": self.n_events, "count": self.count, "design": design}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Validate and return the profile of a relation from JSON."""
        columns, middle = tuple(map(decode_label, given["columns"])), tuple(one is True for one in given["middle"])
        if not 2 <= len(columns) <= 3 or len(columns) != len(middle) or len(set(columns)) < len(columns):
            raise ArchiveError(f"a relation of {len(columns)} columns with {len(middle)} conditions")
        n_events = whole(given["n_events"], BLOCK)
        design = _design([[effect] for effect in given["design"]], n_groups=1)
        return cls(columns, middle, n_events, real(given["count"], 0.0, n_events), design)


def _design(given: Any, n_groups: int) -> Floats:
    design = np.array([[real(effect, 1.0) for effect in row] for row in given])
    if design.ndim != 2 or design.shape[1] != n_groups:
        raise ArchiveError(f"design effects of shape {design.shape}, not of {n_groups} groups")
    return design


@dataclass(frozen=True, slots=True)
class Profile:
    """Reference distributions of the columns of a stream.

    Parameters
    ----------
    n_events
        Number of events of the reference.
    columns, relations
        The distributions.

    Examples
    --------
    >>> from streamsvm.monitor import FeatureMonitor
    >>> monitor = FeatureMonitor(reference=2_048)
    >>> monitor.learn_many({"size": np.random.default_rng(0).normal(size=2_048)})
    >>> profile = monitor.profile()
    >>> profile.n_events, [column.name for column in profile.columns]
    (2048, ['size'])
    """

    n_events: int
    columns: tuple[ColumnProfile, ...] = ()
    relations: tuple[RelationProfile, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return JSON."""
        head = {"format": FORMAT, "version": VERSION, "n_events": self.n_events}
        columns, relations = ([one.as_dict() for one in found] for found in (self.columns, self.relations))
        return head | {"columns": columns, "relations": relations}

    @classmethod
    def from_dict(cls, given: Any) -> Self:
        """Validate and return a profile from JSON.

        Parameters
        ----------
        given
            The result of `as_dict`.

        Raises
        ------
        ArchiveError
            If it is not a profile, or of a newer version.
        """
        if not isinstance(given, dict) or given.get("format") != FORMAT:
            raise ArchiveError("this is not a profile of streamsvm", "foreign")
        if given.get("version") != VERSION:
            raise ArchiveError(f"the profile has version {given.get('version')!r}, not {VERSION}", "version")
        try:
            n_events = whole(given["n_events"], 4 * BLOCK)
            columns = tuple(map(ColumnProfile.from_dict, given["columns"]))
            relations = tuple(map(RelationProfile.from_dict, given["relations"]))
        except ArchiveError:
            raise
        except CORRUPT_ERRORS as error:
            raise ArchiveError(f"the profile is damaged: {error!r}", "damaged") from error
        _check(n_events, columns, relations)
        return cls(n_events, columns, relations)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file, atomically.

        Parameters
        ----------
        path
            The file; an existing one is replaced.
        """
        with replacing(path) as file:
            file.write(json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read and validate a JSON file.

        Parameters
        ----------
        path
            The file.

        Raises
        ------
        ArchiveError
            If the file is damaged, not a profile, or of a newer version.
        FileNotFoundError
            If the file does not exist.
        """
        try:
            with open(path, "rb") as file:
                given = json.loads(file.read())
        except CORRUPT_ERRORS as error:
            raise ArchiveError(f"{os.fspath(path)} is not a profile: {error}", "damaged") from error
        try:
            return cls.from_dict(given)
        except ArchiveError as error:
            raise ArchiveError(f"{os.fspath(path)}: {error}", error.reason) from error


def _check(n_events: int, columns: Sequence[ColumnProfile], relations: Sequence[RelationProfile]) -> None:
    names = {column.name for column in columns}
    n_rows = len(window_sizes(n_events)) + 1
    designs = [column.design for column in columns] + [relation.design for relation in relations]
    if len(names) < len(columns) or {len(design) for design in designs} - {n_rows}:
        raise ArchiveError(f"two columns have one name, or there are not {n_rows} design effects")
    known = {(column.name, False) for column in columns if column.split >= 0}
    known |= {(column.name, True) for column in columns if min(column.middle) >= 0}
    if any(not known.issuperset(zip(one.columns, one.middle, strict=True)) for one in relations):
        raise ArchiveError("a relation has a column without a median or quartiles")
    if any(column.n_events < BLOCK for column in columns):
        raise ArchiveError(f"a column has fewer than {BLOCK} events")
