"""libsvm (svmlight): a label, then index:value pairs in ascending order of the index."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from connectors.cells import Bad, shown
from connectors.columns import Events, Labels
from connectors.events import ConnectorError, SparseRows
from connectors.files import register_text
from connectors.formats import Records, TypedValues, line_records
from connectors.number_columns import number_of
from connectors.options import MISSING, Options


class LibsvmFormat(TypedValues):
    """Sparse rows. A line may end in a comment after ``#``; one that begins with a pair is unlabelled."""

    def __init__(self, options: Options) -> None:
        for key in ("label", "key", "time", "ignore", "types"):
            if options.has(key):
                raise ConnectorError(
                    f"{options.name}: unknown option `{key}`: libsvm has no named columns, and the label stands first "
                    "in each line; leave it out"
                )
        self._labels = Labels(options.texts("missing", MISSING), _label)

    def header(self, lines: Sequence[str], last: bool) -> int | None:
        """There is none."""
        return 0

    def records(self, lines: Sequence[str], bad: Mapping[int, str], last: bool, limit: int) -> Records:
        """One event a line."""
        return line_records(lines, bad, limit, lines, skip=("#",))

    def decide(self, rows: Sequence[Any], whole: bool) -> None:
        """Nothing to decide."""

    def events(self, rows: Sequence[Any]) -> Events:
        """All lines at once; where that fails, line by line to find those at fault."""
        try:
            return self._read(rows)
        except (ValueError, OverflowError):
            bad: Bad = {}
            for i, row in enumerate(rows):
                try:
                    self._read([row])
                except (ValueError, OverflowError) as error:
                    bad[i] = str(error) if type(error) is _FaultError else _reason(row)
            events = self._read(["0" if i in bad else row for i, row in enumerate(rows)])
            events.bad = bad
            return events

    def _read(self, rows: Sequence[str]) -> Events:
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
        # Every third part must be a colon: one pass in C instead of a small list for each pair.
        pairs = " ".join(tokens)
        parts = pairs.replace(":", " : ").split()
        if "_" in pairs or len(parts) != 3 * len(tokens) or parts[1::3].count(":") != len(tokens):
            raise ValueError("not pairs of index:value")
        indptr = np.array(starts, dtype=np.int64)
        indices = np.array(list(map(int, parts[0::3])), dtype=np.int64)
        _check_order(indptr, indices)
        return Events(SparseRows(indptr, indices, np.array(list(map(float, parts[2::3])))), labels)


class _FaultError(ValueError):
    """Says by itself what is wrong with a line."""


def _label(text: str) -> int | float:
    number = _float(text)
    if number is None or not math.isfinite(number):
        raise _FaultError(f"the label is not a number: {shown(text)}")
    return int(number) if number.is_integer() else number


def _check_order(indptr: np.ndarray[Any, Any], indices: np.ndarray[Any, Any]) -> None:
    """Indices must ascend within each row and not be negative."""
    if not len(indices):
        return
    ascends = np.diff(indices) > 0
    ascends[indptr[(indptr > 0) & (indptr < len(indices))] - 1] = True  # from one row to the next they need not
    if indices.min() < 0:
        raise _FaultError("an index is negative")
    if not ascends.all():
        at = int(np.argmin(ascends))
        raise _FaultError(f"indices must ascend, but {indices[at + 1]} follows {indices[at]}")


def _reason(row: str) -> str:
    """Which pair of a line is none."""
    for word in row.partition("#")[0].split()[1:]:
        name, colon, value = word.partition(":")
        if not colon or not name.lstrip("+-").isdigit() or abs(int(name)) >= 1 << 63 or _float(value) is None:
            return f"not a pair index:value: {shown(word)}"
    return "not a line of label and index:value pairs"


def _float(text: str) -> float | None:
    try:
        return number_of(text)
    except ValueError:
        return None


register_text("libsvm", (".libsvm", ".svmlight", ".svm"), LibsvmFormat, aliases=("svmlight",), labelled=True)
