"""Records and disturbs what SQLite changes on disk.

SQLite opens files itself. Its default virtual file system is replaced in memory, as its own tests do: `xOpen` gives
each file other methods, and two system calls tell which names it removes and which directories it syncs.
"""

from __future__ import annotations

import _sqlite3
import contextlib
import ctypes
import errno
import functools
import os
from collections.abc import Callable, Iterator
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.contents import Sync, Truncate, Write

if TYPE_CHECKING:
    from tests.faults.disk import Disk

_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, POINTER(c_int))  # more data follow the name
_MOVE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)  # read or write
_TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC = CFUNCTYPE(c_int, c_void_p, c_int)
_UNLINK = CFUNCTYPE(c_int, c_char_p, use_errno=True)
_OPEN_DIRECTORY = CFUNCTYPE(c_int, c_char_p, POINTER(c_int))
_SET = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p)
_GET = CFUNCTYPE(c_void_p, c_void_p, c_char_p)
_X_OPEN, _X_SET, _X_GET = 5, 18, 19  # positions in `sqlite3_vfs`, in pointers
_X_CLOSE = 1  # in `sqlite3_io_methods`
_CLOSE = CFUNCTYPE(c_int, c_void_p)
_METHODS = {"read": (2, _MOVE), "write": (3, _MOVE), "truncate": (4, _TRUNCATE), "fsync": (5, _SYNC)}
_N_METHODS = 19  # pointers of `sqlite3_io_methods`
_FULL, _NO_MEMORY, _IO_ERROR = 13, 7, 10


class SqliteFiles:
    """Context manager that records the virtual file system of SQLite."""

    def __init__(self, disk: Disk) -> None:
        self._disk, self._files = disk, dict[int, tuple[Path, int]]()
        self._kept: list[Any] = []  # functions and methods that SQLite refers to until it closes its files

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Context in which files are recorded."""
        vfs = _default_vfs()
        pointers = (c_void_p * (_X_GET + 1)).from_address(vfs)
        real_open, setter, getter = pointers[_X_OPEN], _SET(pointers[_X_SET]), _GET(pointers[_X_GET])
        calls = {b"unlink": (_UNLINK, self._unlink), b"openDirectory": (_OPEN_DIRECTORY, self._open_directory)}
        reals = {name: getter(vfs, name) for name in calls}
        try:
            for name, (kind, function) in calls.items():
                setter(vfs, name, self._address(kind, functools.partial(function, kind(reals[name]))))
            pointers[_X_OPEN] = self._address(_OPEN, functools.partial(self._open, _OPEN(real_open)))
            yield
        finally:
            pointers[_X_OPEN] = real_open
            for name, real in reals.items():
                setter(vfs, name, real)
        assert not self._files, f"not closed: {[str(place) for place, _ in self._files.values()]}"

    def _address(self, kind: Any, function: Callable[..., int]) -> int | None:
        self._kept.append(kind(function))
        return ctypes.cast(self._kept[-1], c_void_p).value

    def _failed(self, call: str, place: Path) -> int:
        """Return the code of a failure, 0 if the call succeeds."""
        try:
            self._disk.before(call, place)
        except MemoryError:
            return _NO_MEMORY
        except OSError as error:
            return 0 if error.errno == errno.EINTR else _FULL if error.errno == errno.ENOSPC else _IO_ERROR
        return 0

    def _open(self, real: Any, vfs: int, name: int | None, file: int, flags: int, found: Any) -> int:
        place = None if name is None else self._disk.place(ctypes.string_at(name))
        if place is None:
            return int(real(vfs, name, file, flags, found))
        if failed := self._failed("open", place):
            c_void_p.from_address(file).value = None
            return failed
        is_new = not place.exists()
        if result := real(vfs, name, file, flags, found):
            return int(result)
        self._disk.opened(place, is_new=is_new, size=None)
        methods = c_void_p.from_address(file).value
        assert methods is not None
        own = (c_void_p * _N_METHODS)(*(c_void_p * _N_METHODS).from_address(methods))
        for call, (i, kind) in _METHODS.items():
            own[i] = self._address(kind, functools.partial(self._method, call, kind(own[i])))
        own[_X_CLOSE] = self._address(_CLOSE, functools.partial(self._close, _CLOSE(own[_X_CLOSE])))
        self._kept.append(own)
        self._files[file] = place, self._disk.find(place)
        c_void_p.from_address(file).value = ctypes.addressof(own)
        return 0

    def _method(self, call: str, real: Any, address: int, *given: int) -> int:
        place, node = self._files[address]
        failed = self._failed(call, place) or real(address, *given)
        if not failed and call == "write":
            self._disk.change(Write(node, given[2], ctypes.string_at(given[0], given[1])))
        elif not failed and call == "truncate":
            self._disk.change(Truncate(node, given[0]))
        elif not failed and call == "fsync":
            self._disk.history.append(Sync(node))
        return int(failed)

    def _close(self, real: Any, address: int) -> int:
        del self._files[address]
        return int(real(address))

    def _unlink(self, real: Any, name: bytes) -> int:
        place = self._disk.place(name)
        if place is not None and self._failed("unlink", place):
            ctypes.set_errno(errno.EIO)
            return -1
        result = int(real(name))
        if not result and place is not None:
            self._disk.rename((place, None))
        return result

    def _open_directory(self, real: Any, name: bytes, found: Any) -> int:
        """Record that a directory is synced, for which alone SQLite opens one."""
        place = self._disk.place(os.path.dirname(name) or b".")
        if place is not None:
            self._disk.history.append(Sync(self._disk.find(place)))
        return int(real(name, found))


def _default_vfs() -> int:
    with open("/proc/self/maps") as file:
        paths = {line.split()[-1] for line in file if "libsqlite3" in line} or {_sqlite3.__file__}
    library = ctypes.CDLL(paths.pop())
    library.sqlite3_vfs_find.restype = c_void_p
    vfs = library.sqlite3_vfs_find(None)
    assert isinstance(vfs, int)
    return vfs
