"""Names of the parts of a directory, in folders of days or hours of event time."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

SPANS = {"date": 86_400_000, "hour": 3_600_000}
"""Milliseconds of event time per folder."""
UNFINISHED = ".inprogress"
"""Suffix of a part that is being written."""
_FOLDERS = ("", "dt=*/", "dt=*/hour=*/")


class PartFiles:
    """Paths of the parts ``part-00000.csv``, ``part-00001.csv``, ... of a directory.

    Parameters
    ----------
    root
        Path of the directory.
    suffix
        Suffix of the parts.
    """

    def __init__(self, root: str, suffix: str) -> None:
        self._root, self._suffix = root, suffix

    def path(self, folder: str, number: int) -> str:
        """Return the path of a finished part. The folder may be empty."""
        return os.path.join(self._root, folder, f"part-{number:05d}{self._suffix}")

    def found(self) -> list[tuple[str, str, int]]:
        """Return path, folder and number of the parts in the directory."""
        form = re.compile(rf"part-(\d{{5,}}){re.escape(self._suffix)}(?:{re.escape(UNFINISHED)}(?:\.tmp)?)?")
        names = [name for folder in _FOLDERS for name in sorted(glob.glob(f"{folder}part-*", root_dir=self._root))]
        found = ((name, form.fullmatch(os.path.basename(name))) for name in names)
        return [(os.path.join(self._root, name), os.path.dirname(name), int(part[1])) for name, part in found if part]

    def remove_empty_folders(self) -> None:
        """Remove folders of partitions that are empty."""
        for folders in reversed(_FOLDERS[1:]):
            for name in glob.glob(folders, root_dir=self._root):
                if not os.listdir(path := os.path.join(self._root, name)):
                    os.rmdir(path)


def folder_of(span: int, by: str) -> str:
    """Return the folder of a time span.

    Examples
    --------
    >>> folder_of(1, "date"), folder_of(25, "hour")
    ('dt=1970-01-02', 'dt=1970-01-02/hour=01')
    """
    day, _, hour = str(np.datetime64(span * SPANS[by], "ms")).partition("T")
    return f"dt={day}" if by == "date" else os.path.join(f"dt={day}", f"hour={hour[:2]}")


def split_spans(spans: NDArray[np.int64], latest: int | None) -> Iterator[slice]:
    """Yield the rows between which the latest time span advances.

    Parameters
    ----------
    spans
        Number of the time span of each row.
    latest
        The latest one before, if any.
    """
    highest = np.maximum.accumulate(spans)
    if latest is not None:
        highest = np.maximum(highest, latest)
    starts = [0, *(np.flatnonzero(np.diff(highest)) + 1).tolist(), len(spans)]
    yield from (slice(a, b) for a, b in pairwise(starts) if a < b)
