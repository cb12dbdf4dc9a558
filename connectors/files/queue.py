"""Files of a source that are still to be read, and those that were read."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache

from connectors.addresses import printable
from connectors.errors import ConnectorError
from connectors.files.listing import ORDERS, ListedFile, find_files, is_several, natural_key
from connectors.notices import Notice, Notices
from connectors.options import Options
from connectors.registry import connector_of


class FileQueue:
    """List the files of paths, globs and directories, and return them in order.

    Parameters
    ----------
    roots
        Paths, globs and directories.
    options
        The options `order`, `at_end`, `min_age` and `format`.
    exclude
        Results of the run, which globs and directories do not contain.
    notices
        Collection of warnings.

    Attributes
    ----------
    follow
        Whether new files are awaited.
    format
        Format of the files, None to tell it by their names.
    left
        Files to read.
    done
        Sizes of the files that were read, by name.
    """

    def __init__(self, roots: Sequence[str], options: Options, exclude: Sequence[str], notices: Notices) -> None:
        self._name, self._roots, self._exclude, self._notices = options.name, list(roots), list(exclude), notices
        self._order = options.one_of("order", ORDERS)
        self.follow = options.one_of("at_end", ("stop", "wait")) == "wait"
        self._min_age = options.seconds("min_age", 0.0)
        self.format = options.text("format")
        self._check_options()
        self.done: dict[str, int] = {}
        self._files = self._listed()  # at the start
        self.left = deque(self._ready(self._files))
        self._check_files()
        self._count()

    def _check_options(self) -> None:
        if self.follow and not any(map(is_several, self._roots)):
            what = "at_end=wait waits for new files of a directory or glob: name one of them"
            raise ConnectorError(f"{self._name}: {what}", "value", option="at_end")
        if self._min_age and not self.follow:
            raise ConnectorError(f"{self._name}: min_age is only for at_end=wait", "value", option="min_age")
        names = self._roots
        if self._order is None and len(names) > 1 and names == sorted(names) != sorted(names, key=natural_key):
            self._order = "name"  # the shell sorts part-10 before part-2
            what = "the files are read in the order of the numbers in their names"
            self._notices.warn(f"{self._name}: {what}; ?order=given keeps the order of the arguments")

    def _listed(self) -> list[ListedFile]:
        """Return the files of the format, in reading order."""
        found, formats = [], dict[str, ListedFile]()
        others = list[ListedFile]()
        for file in find_files(self._roots, self._order or "given", self._exclude):
            kind = self.format or _format_of(os.path.basename(printable(file.path)))
            if not kind and file.path != file.root:
                others.append(file)
                continue
            formats.setdefault(kind, file)
            found.append(file)
        if len(formats) > 1:
            (one, first), (other, second) = list(formats.items())[:2]
            what = f"{first.name} is {one or 'unknown'} and {second.name} {other or 'unknown'}"
            remedy = "name the files of one format with a glob such as '*.csv', or set format="
            raise ConnectorError(f"{self._name}: contains several formats, {what}: {remedy}", "formats")
        if others and (found or not self.follow):
            form = "{name!r} and other files with unknown suffixes are not read"
            self._notices.warn(Notice(form.format(name=others[0].name), form))
        return found

    def _check_files(self) -> None:
        """Raise an error if there is nothing to read, or a file cannot be read."""
        if not self.left and not self.follow:
            what = "no files: the directory is empty or the glob matches nothing"
            raise ConnectorError(f"{self._name}: {what}", "missing")
        for file in self.left:
            if "://" not in file.path and not os.access(file.path, os.R_OK):
                raise ConnectorError(f"{file.name}: cannot be read: permission denied", "denied")

    def find_new(self) -> None:
        """Look for new files."""
        files = self._listed()
        for file in files:
            if file.name in self.done and self.done[file.name] != file.size:
                form = (
                    "{name!r} changed after it was opened, and is not read again: write under another name, then rename"
                )
                self._notices.warn(Notice.of(form, file.name))
        places = {file.name: i for i, file in enumerate(files)}
        last = max((places[name] for name in places if name in self.done), default=-1)
        for file in self._ready(files):
            if file.name not in self.done:
                if places[file.name] < last:
                    form = "{name!r} appeared after later files had been read, and is read after them"
                    self._notices.warn(Notice.of(form, file.name))
                self.left.append(file)

    def _ready(self, files: Sequence[ListedFile]) -> list[ListedFile]:
        """Return the files that are complete: all, unless new files are awaited."""
        latest = time.time() - self._min_age if self._min_age else math.inf
        for file in files:
            if file.modified > latest + 2 * self._min_age:  # or a clock was set back
                form = (
                    "the time of {name!r} is in the future: it is not read before that; check the clocks, or touch it"
                )
                self._notices.warn(Notice.of(form, file.name))
        return [file for file in files if not self.follow or (file.size and file.modified <= latest)]

    def pop(self) -> ListedFile | None:
        """Return the next file that still exists, None if there is none."""
        while self.left:
            file = self.left.popleft()
            if not self.follow or "://" in file.path or os.path.exists(file.path):
                return file
            self._notices.warn(Notice.of("{name!r} was removed before it was read", file.name))
        return None

    def mark_read(self, file: ListedFile) -> None:
        """Count a file as read."""
        self.done = self.done | {file.name: file.size}  # a new dict, because positions contain it
        self._done_bytes += file.size

    def restore(self, done: Mapping[str, int], current: str | None) -> list[ListedFile]:
        """Continue after the files in `done`, and within the current one.

        Returns all files.
        """
        self.done = dict(done)
        files = self._listed() if self.follow else self._files
        for file in files:
            if file.name in self.done and file.size != self.done[file.name]:
                self._notices.warn(Notice.of("{name!r} changed after it was read, and is not read again", file.name))
        self.left = deque(file for file in self._ready(files) if file.name not in self.done and file.name != current)
        self._count(sum(file.size for file in files if file.name == current))
        return files

    def _count(self, current: int = 0) -> None:
        self._done_bytes = sum(self.done.values())
        self._total_bytes = self._done_bytes + sum(file.size for file in self.left) + current

    def fraction(self, current: ListedFile | None, share: float) -> float | None:
        """Return the fraction of bytes read, given the share of the current file.

        Returns None if new files are awaited.
        """
        if self.follow:
            return None
        done = self._done_bytes + (0 if current is None else current.size * share)
        return done / self._total_bytes if self._total_bytes else 1.0


@cache
def _format_of_suffixes(name: str) -> str:
    try:
        return connector_of(name, Options(name, {})).name
    except ConnectorError:
        return ""


def _format_of(name: str) -> str:
    """Return the format of a file by its suffixes, empty if it is unknown."""
    stem, suffix = os.path.splitext(name)
    return _format_of_suffixes("x" + os.path.splitext(stem)[1] + suffix)
