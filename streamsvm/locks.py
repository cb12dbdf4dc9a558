"""Locks of objects shared by threads."""

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
    """Reentrant lock; copies and pickles of its owner get a new lock."""

    def __init__(self) -> None:
        super().__init__()
        _LOCKS.add(self)

    def __reduce__(self) -> Any:
        return type(self), ()

    def renew(self) -> None:
        """Release the lock in a forked child process, where its holder does not exist."""
        if not self._is_owned():  # type: ignore[attr-defined]
            self._at_fork_reinit()  # type: ignore[attr-defined]


class LearnerLock(Lock):  # type: ignore[misc]
    """Lock of a learner, for all operations except compiled calls on single events.

    Such a call holds the GIL from start to end and needs no other lock. It returns without effect if `rows.held` is
    set, that is, while a thread holds this lock or after the memory was replaced.
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
        """Guard the memory of these rows; calls on the memory guarded before are refused."""
        before, self._held = self._held, rows.number("held").data
        self._held[()] = self._depth
        if before is not None and before.obj is not self._held.obj:
            before[()] = 1

    def renew(self) -> None:
        """Release the lock in a forked child process, where its holder does not exist."""
        if not self._is_owned():  # type: ignore[attr-defined]
            super().renew()
            self._depth = 0
            if self._held is not None:
                self._held[()] = 0


def locked(method: _Method) -> _Method:
    """Decorate a method to run under the lock `_lock` of its object."""

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
