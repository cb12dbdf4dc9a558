"""Recognize result files, which a later run may replace."""

from __future__ import annotations

import contextlib
import csv
import errno
import glob
import gzip
import json
import os
import zlib
from typing import Any

from connectors.bytestreams import is_packed
from connectors.errors import ConnectorError

_PLACES = frozenset(("stream", "part", "number", "partition", "offset", "line", "row", "element", "event", "key"))
_MOST_BYTES = 1 << 28  # of the first line


def check_replaced(path: str) -> None:
    """Raise an error if a path exists and does not look like results.

    Parameters
    ----------
    path
        Output path: a file or a directory of parts.

    Raises
    ------
    ConnectorError
        If the path exists and does not look like results.
    """
    if not is_replaceable(path):
        raise ConnectorError(
            f"{path}: exists and does not look like results of streamsvm: give another name, or replace it with "
            "--set overwrite=true (in Python overwrite=True)"
        )


def check_link(path: str) -> None:
    """Raise an error if a path is a symbolic link of another user other than root.

    Raises
    ------
    PermissionError
        If the path is such a link.
    """
    if os.path.islink(path) and os.lstat(path).st_uid not in (0, os.geteuid()):
        owner = os.lstat(path).st_uid
        raise PermissionError(errno.EPERM, f"it is a symbolic link of another user ({owner}): remove it", path)


def is_replaceable(path: str) -> bool:
    """Return whether a path does not exist, is empty or looks like results."""
    if os.path.isdir(path):
        parts = glob.glob(os.path.join(glob.escape(path), "part-*.parquet"))
        return all(map(_are_results, map(_names_of_part, parts)))
    if not os.path.isfile(path) or not os.path.getsize(path):
        return True
    return any(map(_are_results, names_in(path)))


def names_in(path: str) -> list[list[str]]:
    """Return the possible column names of a text file, one list for each format."""
    try:
        with gzip.open(path) if is_packed(path) else open(path, "rb") as file:
            line = file.readline(_MOST_BYTES)
    except (OSError, EOFError, zlib.error):
        return []
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError):
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        with contextlib.suppress(csv.Error):
            return [next(csv.reader([text], delimiter=mark), []) for mark in ",\t"]
        return []
    return [list(row)] if isinstance(row, dict) else []


def _names_of_part(path: str) -> list[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        return list(pyarrow.parquet.read_schema(path).names)
    except (OSError, pyarrow.ArrowException):
        return []


def _are_results(names: list[str]) -> bool:
    """Return whether columns are those of predictions, joined results, requests or rejected events."""
    if names[:2] == ["reason", "raw"]:
        return True
    places = names[: names.index("prediction")] if "prediction" in names else []
    return bool(places) and _PLACES.issuperset(places) and names[len(places) + 1 : len(places) + 2] == ["score"]
