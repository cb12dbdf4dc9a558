"""Files of a source given by paths, globs and directories, in reading order."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from connectors.addresses import STORES, is_remote, printable
from connectors.errors import ConnectorError

UNFINISHED = (".tmp", ".part", ".inprogress")
"""Name suffixes of files that are still being written."""
ORDERS = ("given", "name", "time")
_ONLY_FILES = "several sources must be local files, globs or directories"
_CONNECTIONS = 8
_DIGITS = re.compile(r"([0-9]+)")
_HIVE = re.compile(r"([^=/]+)=([^/]*)")
_HIVE_MISSING = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file of a list.

    Parameters
    ----------
    path, name
        Path, and the path as valid Unicode, which identifies the file.
    size, modified
        Size in bytes, and time of the last modification in seconds since 1970.
    identity
        Device and inode, or the URL; two names of one file have the same.
    root
        Path, glob or directory of the source that contains it.
    """

    path: str
    name: str
    size: int
    modified: float
    identity: tuple[int, int] | str
    root: str

    @property
    def keys(self) -> dict[str, str]:
        """Keys and values of hive-partitioned folders such as ``dt=2026-01-01``.

        A missing value is an empty text.
        """
        below = os.path.relpath(self.path, self.root) if os.path.isdir(self.root) else self.path
        pairs = map(_HIVE.fullmatch, below.split(os.sep)[:-1])
        found = {pair[1]: unquote(pair[2]) for pair in pairs if pair is not None}
        return {key: "" if value == _HIVE_MISSING else value for key, value in found.items()}


def is_several(path: str) -> bool:
    """Return whether a path names several files: a directory or a glob.

    The name of an existing file is not a glob.

    A directory of an object store ends in a slash. Web addresses name one file.

    Examples
    --------
    >>> is_several("data/*.csv"), is_several("a.csv"), is_several("kafka://broker/events[1]")
    (True, False, False)
    >>> is_several("s3://bucket/data/"), is_several("s3://bucket/*.csv"), is_several("https://host/a/")
    (True, True, False)
    """
    scheme, colons, _ = path.partition("://")
    if colons:
        return scheme.lower() in STORES and (path.endswith("/") or glob.has_magic(path))
    return path != "-" and (os.path.isdir(path) or (glob.has_magic(path) and not os.path.exists(path)))


def natural_key(path: str) -> tuple[Any, ...]:
    """Return a sort key of a path that sorts numbers in names by value.

    Examples
    --------
    >>> sorted(["b/part-10.csv", "b/part-2.csv", "a.csv"], key=natural_key)
    ['a.csv', 'b/part-2.csv', 'b/part-10.csv']
    """
    parts = [[int(text) if i % 2 else text for i, text in enumerate(_DIGITS.split(part))] for part in path.split("/")]
    return parts, path


def find_files(roots: Sequence[str], order: str, exclude: Sequence[str] = ()) -> list[ListedFile]:
    """List the files of paths, globs and directories, in reading order and each once.

    Hidden files, files whose names begin with ``_``, and unfinished files are not part of globs and directories.

    Parameters
    ----------
    roots
        Paths, globs and directories.
    order
        ``given`` (by root, then by name), ``name`` or ``time`` (of the last modification, then name).
    exclude
        Results of the run. Globs and directories do not contain these files, nor files in these directories.

    Raises
    ------
    ConnectorError
        If a path does not exist.
    """
    outputs = [os.path.realpath(path) for path in exclude]
    found: dict[tuple[int, int] | str, ListedFile] = {}
    listed = _listed_together(list(filter(is_remote, roots)))
    for root in roots:
        if root in listed:
            files_of_root = listed[root]
        else:
            paths = sorted(_inside(root), key=natural_key) if is_several(root) else [root]
            files_of_root = [file for path in paths if (file := _listed(path, root)) is not None]
        for file in files_of_root:
            if not (outputs and is_several(root) and _is_in(os.path.realpath(file.path), outputs)):
                found.setdefault(file.identity, file)
    files = list(found.values())
    if order == "name":
        files.sort(key=lambda file: natural_key(file.path))
    elif order == "time":
        files.sort(key=lambda file: (file.modified, natural_key(file.path)))
    return files


def _inside(root: str) -> Iterator[str]:
    """Yield the paths of a directory or a glob, except hidden and unfinished files."""
    if not os.path.isdir(root):
        for path in glob.iglob(root, recursive=True):
            if _is_visible(os.path.basename(path)):
                yield path
        return
    seen = set[tuple[int, int]]()
    for folder, folders, names in os.walk(root, followlinks=True, onerror=_refuse):
        try:
            about = os.stat(folder)
        except FileNotFoundError:  # removed meanwhile
            continue
        place = about.st_dev, about.st_ino
        if place in seen:  # a link to a directory above
            folders.clear()
            continue
        seen.add(place)
        folders[:] = filter(_is_visible, folders)
        yield from (os.path.join(folder, name) for name in names if _is_visible(name))


def _listed_together(roots: Sequence[str]) -> dict[str, list[ListedFile]]:
    """List the files of URLs, with several requests at a time because they wait."""
    if not roots:
        return {}
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        return dict(zip(roots, pool.map(_listed_remote, roots), strict=True))


def _listed_remote(root: str) -> list[ListedFile]:
    """Return the files of a URL: a file, or a directory or glob of an object store."""
    if not is_several(root):
        from connectors.remote.files import open_remote

        with contextlib.closing(open_remote(root)) as file:
            return [ListedFile(root, printable(root), file.size or 1, 0.0, root, root)]
    from connectors.remote.files import list_files

    found = [ListedFile(path, printable(path), size, time, path, root) for path, size, time in list_files(root)]
    first = root.count("/") if root.endswith("/") else -1  # of a glob, only the last name counts
    visible = [file for file in found if all(map(_is_visible, file.path.split("/")[first:]))]
    return sorted(visible, key=lambda file: natural_key(file.path))


def _refuse(error: OSError) -> None:
    """Raise an error for a folder that cannot be read, unless it was removed."""
    if not isinstance(error, FileNotFoundError):
        raise ConnectorError(f"{printable(error.filename)}: cannot be read: {error.strerror}", "denied")


def _is_visible(name: str) -> bool:
    return not name.startswith((".", "_")) and not name.lower().endswith(UNFINISHED)


def _is_in(path: str, outputs: Sequence[str]) -> bool:
    return any(path == output or path.startswith(output + os.sep) for output in outputs)


def _listed(path: str, root: str) -> ListedFile | None:
    """Return a regular file, or None if it was removed or `root` has something else."""
    try:
        about = os.stat(path)
    except OSError as error:
        if path == root or os.path.islink(path):
            if path == "-" or ":" in path.partition("/")[0]:
                raise ConnectorError(f"{path}: {_ONLY_FILES}", "several") from None
            what = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
            raise ConnectorError(f"{printable(path)}: {what}", "missing") from None
        return None
    if not stat.S_ISREG(about.st_mode):
        if path == root:
            raise ConnectorError(f"{path}: {_ONLY_FILES}", "several")
        return None
    return ListedFile(path, printable(path), about.st_size, about.st_mtime, (about.st_dev, about.st_ino), root)
