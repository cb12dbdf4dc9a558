"""libsvm (svmlight): a label, then index:value pairs in ascending order of index."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from connectors.columns.cells import MISSING, Bad, Labels, is_number, number_of, shown
from connectors.columns.roles import Roles
from connectors.columns.text import Header, TextColumns
from connectors.errors import ConnectorError
from connectors.events import Events, SparseRows
from connectors.options import Options
from connectors.text.formats import Records, TextFormat, line_records
from connectors.text.source import TextSource


class LibsvmFormat(TextFormat):
    """Sparse rows, one per line. Lines that start with ``#`` are comments."""

    needs_sample = False

    def __init__(self, options: Options) -> None:
        for key in ("label", "key", "time", "ignore", "types"):
            if options.has(key):
                what = "libsvm has no named columns, and the label is first in each line; leave it out"
                raise ConnectorError(f"{options.name}: unknown option `{key}`: {what}", "unknown", option=key)
        super().__init__(options)
        self.columns = LibsvmColumns(Roles(missing=options.texts("missing", MISSING)))

    def header(self, lines: Sequence[str], last: bool) -> int | None:
        """Return 0, because there is no header."""
        return 0

    def records(self, lines: Sequence[str], bad: Mapping[int, str], last: bool, limit: int) -> Records:
        """Parse one event per line."""
        return line_records(lines, bad, limit, lines, skip=("#",))


class LibsvmColumns(TextColumns):
    """Convert sparse rows; a line that starts with a pair has no label.

    A ``#`` starts a comment.
    """

    def __init__(self, roles: Roles) -> None:
        super().__init__(Header([]), roles)
        self._labels = Labels(roles.missing, self.numbers.notices, _label)

    def inspect(self, source: str, rows: Sequence[Any], whole: bool) -> None:
        """Do nothing, because all features are numbers."""

    @property
    def is_settled(self) -> bool:
        """Whether the first rows of a later file need no inspection."""
        return True

    def read(self, rows: Sequence[Any]) -> Events:
        """Parse all lines at once, or one by one if this fails, to find invalid ones."""
        try:
            return self._parsed(rows)
        except (ValueError, OverflowError):
            bad: Bad = {}
            for i, row in enumerate(rows):
                try:
                    self._parsed([row])
                except (ValueError, OverflowError) as error:
                    bad[i] = str(error) if type(error) is _FaultError else _reason(row)
            events = self._parsed(["0" if i in bad else row for i, row in enumerate(rows)])
            events.bad = bad
            return events

    def _parsed(self, rows: Sequence[str]) -> Events:
        labels: list[Any] = []
        tokens: list[str] = []
        starts = [0]
        for row in rows:
            words = row.partition("#")[0].split()
            labels.append(None if ":" in words[0] else self._labels[words.pop(0)])
            if words and words[0].startswith("qid:"):
                del words[0]
            tokens += words
            starts.append(len(tokens))
        # Every third token must be a colon: a single pass in C instead of one list per pair.
        pairs = " ".join(tokens)
        parts = pairs.replace(":", " : ").split()
        if "_" in pairs or len(parts) != 3 * len(tokens) or parts[1::3].count(":") != len(tokens):
            raise ValueError("not pairs of index:value")
        indptr = np.array(starts, dtype=np.int64)
        indices = np.array(list(map(int, parts[0::3])), dtype=np.int64)
        _check_order(indptr, indices)
        return Events(SparseRows(indptr, indices, np.array(list(map(float, parts[2::3])))), labels)


class _FaultError(ValueError):
    """Error whose text is the complete reason."""


def _label(text: str) -> int | float:
    number = number_of(text) if is_number(text) else math.nan
    if not math.isfinite(number):
        raise _FaultError(f"the label is not a number: {shown(text)}")
    return int(number) if number.is_integer() else number


def _check_order(indptr: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]) -> None:
    """Check that indices ascend within each row and are not negative."""
    if not len(indices):
        return
    ascends = np.diff(indices) > 0
    ascends[indptr[(indptr > 0) & (indptr < len(indices))] - 1] = True  # row boundaries need not ascend
    if indices.min() < 0:
        raise _FaultError("an index is negative")
    if not ascends.all():
        at = int(np.argmin(ascends))
        raise _FaultError(f"indices must ascend, but {indices[at + 1]} follows {indices[at]}")


def _reason(row: str) -> str:
    """Return which pair of a line is invalid."""
    for word in row.partition("#")[0].split()[1:]:
        name, colon, value = word.partition(":")
        if not colon or not name.lstrip("+-").isdigit() or abs(int(name)) >= 1 << 63 or not is_number(value):
            return f"not a pair index:value: {shown(word)}"
    return "not a line of label and index:value pairs"


open_libsvm = functools.partial(TextSource, make=LibsvmFormat)
