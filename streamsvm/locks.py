"""Locks of objects that several threads use."""

from __future__ import annotations

import os
from _thread import RLock
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import WeakSet

if TYPE_CHECKING:
    from streamsvm.core.state import State

_Method = TypeVar("_Method", bound=Callable[..., Any])
_LOCKS: WeakSet[Lock] = WeakSet()


class Lock(RLock):  # type: ignore[misc]
    """A reentrant lock. The copy or pickle of an object that has one gets a new lock."""

    def __init__(self) -> None:
        super().__init__()
        _LOCKS.add(self)

    def __reduce__(self) -> Any:
        return type(self), ()

    def renew(self) -> None:
        """Release the lock in a forked child, where no thread is left that could."""
        if not self._is_owned():  # type: ignore[attr-defined]
            self._at_fork_reinit()  # type: ignore[attr-defined]


class LearnerLock(Lock):  # type: ignore[misc]
    """The lock of a learner, for everything but a single event that one compiled call predicts or learns.

    Such a call keeps the interpreter's lock from the first to the last of its steps, so it needs no other. It does
    nothing where `rows.held` is set, which it is while a thread has this lock, and stays in memory no longer used.
    """

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._held: Any = None

    def __enter__(self, *_: object) -> bool:
        self.acquire()
        self._depth += 1
        self._held[()] = self._depth
        return True

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        self._held[()] = self._depth
        self.release()

    def guard(self, rows: State) -> None:
        """Guard the memory that these rows are part of; calls refuse the memory guarded before from now on."""
        before, self._held = self._held, rows.number("held").data
        self._held[()] = self._depth
        if before is not None and before.obj is not self._held.obj:
            before[()] = 1

    def renew(self) -> None:
        """Release the lock in a forked child, where no thread is left that could."""
        if not self._is_owned():  # type: ignore[attr-defined]
            super().renew()
            self._depth = 0
            if self._held is not None:
                self._held[()] = 0


def locked(method: _Method) -> _Method:
    """Have a method run by one thread at a time, by the lock of its object, `_lock`."""

    @wraps(method)
    def call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(self, *args, **kwargs)

    return cast(_Method, call)


def _renew() -> None:
    for lock in list(_LOCKS):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
