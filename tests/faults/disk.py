"""A recorder of what a program changes on disk.

`Disk` replaces `open` and the functions of `os` that change files. It records writes, truncations, changed names and
syncs of files and directories below a root, and carries them out, except the syncs. It records files of SQLite as well.
Other code that bypasses these functions, for example a C library that opens a path itself, is noticed: `check` compares
each recorded file with the real one.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from tests.faults.contents import OPEN, Change, Contents, Mark, Names, Sync, Truncate, Write
from tests.faults.sqlite_files import SqliteFiles

Before = Callable[[str, str], "int | None"]


class Disk:
    """Records changes below a directory while it is active as a context manager.

    Parameters
    ----------
    root
        The directory.
    before
        Called before each system call with its name and path. It may raise an error, or return the number of bytes that
        a write may take.

    Attributes
    ----------
    start
        Contents at the start.
    now
        Contents after all recorded changes.
    history
        Changes in order.
    """

    def __init__(self, root: Path, before: Before | None = None) -> None:
        self.root = root.resolve()
        self.start, self.now = Contents.of(self.root), Contents.of(self.root)
        self.history: list[Change] = []
        self._before = before or _nothing
        self._patches = contextlib.ExitStack()

    def __enter__(self) -> Disk:
        replaced = {
            **{name: functools.partial(self._sync, name) for name in ("fsync", "fdatasync")},
            **{name: functools.partial(self._rename, name) for name in ("replace", "rename")},
            **{name: functools.partial(self._remove, name) for name in ("unlink", "remove", "rmdir")},
            "mkdir": self._mkdir,
            "open": self._os_open,
            **{name: functools.partial(self._truncate, name) for name in ("truncate", "ftruncate")},
        }
        for name, function in replaced.items():
            self._patches.enter_context(mock.patch.object(os, name, function))
        for module in (builtins, io):
            self._patches.enter_context(mock.patch.object(module, "open", self._open))
        self._patches.enter_context(SqliteFiles(self).active())
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def mark(self, value: Any) -> None:
        """Record a moment at which the program may rely on what it has synced."""
        self.history.append(Mark(value))

    def check(self) -> None:
        """Raise an error if files differ from what was recorded."""
        found, recorded = Contents.of(self.root).tree(), self.now.tree()
        differing = [name for name in found | recorded if found.get(name, 0) != recorded.get(name, 0)]
        assert not differing, f"changed by code that the recorder does not see: {differing}"

    # What files call ----------------------------------------------------------------------------------------------

    def before(self, call: str, path: str | Path) -> int | None:
        """Let a system call fail."""
        return self._before(call, str(path))

    def change(self, change: Change) -> None:
        """Record a change that was carried out."""
        self.history.append(change)
        self.now.change(change)

    def place(self, path: Any) -> Path | None:
        """Return the absolute path of a file below the root, else None.

        Symbolic links in its parents are resolved.
        """
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
            if not path.startswith("/"):  # a pipe
                return None
        path = os.fsdecode(path)
        whole = Path(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
        return whole if whole.is_relative_to(self.root) else None

    def find(self, path: Path) -> int:
        """Return the node of an existing file or directory."""
        return self.now.find(path, self.root)

    def rename(self, *new: tuple[Path, int | None]) -> None:
        """Record names that change at once."""
        self.change(Names(tuple(((self.find(path.parent), path.name), node) for path, node in new)))

    # Replacements -------------------------------------------------------------------------------------------------

    def _open(
        self, file: Any, mode: str = "r", buffering: int = -1, *text: Any, opener: Any = None, **more: Any
    ) -> Any:
        place = self.place(file)
        if place is None or place.is_dir():
            return OPEN(file, mode, buffering, *text, opener=opener, **more)
        raw = Recorded(self, file, mode.replace("t", "").replace("b", ""), opener, more.pop("closefd", True))
        if buffering == 0:
            return raw
        size = io.DEFAULT_BUFFER_SIZE if buffering < 0 else buffering
        kind = io.BufferedRandom if "+" in mode else io.BufferedReader if "r" in mode else io.BufferedWriter
        buffer = kind(raw, size)
        return buffer if "b" in mode else io.TextIOWrapper(buffer, *text, **more)

    def _os_open(self, path: Any, flags: int, *mode: int, **more: Any) -> int:
        place = self.place(os.path.realpath(path))
        if place is None:
            return _OS["open"](path, flags, *mode, **more)
        self.before("open", place)
        is_new = not place.exists()
        fd = _OS["open"](path, flags, *mode, **more)
        self.opened(place, is_new=is_new, size=0 if flags & os.O_TRUNC else None)
        return fd

    def opened(self, place: Path, *, is_new: bool, size: int | None) -> None:
        """Record that a file was created or truncated when it was opened."""
        if is_new:
            self.rename((place, self.now.new(is_folder=False)))
        elif size is not None and self.now.content(self.find(place)):
            self.change(Truncate(self.find(place), size))

    def _sync(self, call: str, file: Any) -> None:
        place = self.place(file if isinstance(file, int) else file.fileno())
        if place is not None and not place.name.endswith(" (deleted)"):
            self.before(call, place)
            self.history.append(Sync(self.find(place)))

    def _rename(self, call: str, source: Any, target: Any, **more: Any) -> None:
        old, new = self.place(source), self.place(target)
        if old is None or new is None:
            return _OS[call](source, target, **more)
        self.before(call, new)
        _OS[call](source, target, **more)
        return self.rename((old, None), (new, self.find(old)))

    def _remove(self, call: str, path: Any, **more: Any) -> None:
        place = self.place(path)
        if place is not None:
            self.before(call, place)
        _OS[call](path, **more)
        if place is not None:
            self.rename((place, None))

    def _mkdir(self, path: Any, *mode: int, **more: Any) -> None:
        place = self.place(path)
        if place is not None:
            self.before("mkdir", place)
        _OS["mkdir"](path, *mode, **more)
        if place is not None:
            self.rename((place, self.now.new(is_folder=True)))

    def _truncate(self, call: str, file: Any, size: int) -> None:
        place = self.place(file)
        if place is not None:
            self.before(call, place)
        _OS[call](file, size)
        if place is not None:
            self.change(Truncate(self.find(place), size))


_OS: dict[str, Any] = {name: getattr(os, name) for name in dir(os)}


def _nothing(call: str, path: str) -> None:
    """Let a system call succeed."""


class Recorded(io.FileIO):
    """An unbuffered file whose changes are recorded."""

    def __init__(self, disk: Disk, file: Any, mode: str, opener: Any, closefd: bool) -> None:
        self._disk, self._node = disk, -1
        place = disk.place(file if isinstance(file, int) else os.path.realpath(file))
        assert place is not None
        self.place = place
        is_new = not place.exists()
        if opener is None:  # otherwise it calls `os.open`
            disk.before("open", place)
        super().__init__(file, mode, closefd=closefd, opener=opener)
        if not isinstance(file, int):
            disk.opened(place, is_new=is_new and mode[0] != "r", size=0 if mode[0] == "w" else None)
        self._node = disk.find(place)

    def write(self, data: Any) -> int:
        data = bytes(data)
        most = self._disk.before("write", self.place)
        at = len(self._disk.now.content(self._node)) if "a" in self.mode else self.tell()
        n = super().write(data if most is None else data[:most])
        assert n is not None
        self._disk.change(Write(self._node, at, data[:n]))
        return n

    def truncate(self, size: int | None = None) -> int:
        self._disk.before("truncate", self.place)
        size = super().truncate(size)
        self._disk.change(Truncate(self._node, size))
        return size

    def readinto(self, buffer: Any) -> int:
        self._disk.before("read", self.place)
        n = super().readinto(buffer)
        assert n is not None
        return n

    def read(self, size: int | None = -1) -> bytes:
        self._disk.before("read", self.place)
        data = super().read(-1 if size is None else size)
        assert data is not None
        return data

    def readall(self) -> bytes:
        self._disk.before("read", self.place)
        data = super().readall()
        assert data is not None
        return data
