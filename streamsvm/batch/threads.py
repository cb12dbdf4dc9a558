"""Limit BLAS to one thread for small problems.

BLAS threads wait for each other in a busy loop. On processors that run other work, such as a stream beside a refit,
this costs more than the threads gain.
"""

from __future__ import annotations

import functools
import os
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from threadpoolctl import ThreadpoolController

# Multiplications of a product from which several threads are faster.
WORTH = 1e9


@functools.cache
def _libraries() -> ThreadpoolController:
    """Find the BLAS libraries; cached, because the search is slow."""
    return ThreadpoolController()


def _give_up_control() -> None:
    """Let any thread change the limits of OpenBLAS.

    Since threadpoolctl 3.8, only the first thread to change them can, until it gives up control or ends. A thread that
    `threading` did not start never counts as ended, and is an error in a forked child.
    """
    for library in _libraries().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)


class OneThread:
    """Context in which BLAS uses one thread.

    The limit is global. The last of several concurrent contexts to exit restores the original limits.
    """

    _lock = threading.Lock()
    _n_inside = 0
    _of_all: Any = None

    @classmethod
    def reset_after_fork(cls) -> None:
        """Reset in a forked child, which has none of the parent's threads."""
        cls._lock, cls._n_inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if OneThread._n_inside == 0:
                _give_up_control()
                OneThread._of_all = _libraries().limit(limits=1, user_api="blas")
                _give_up_control()
            OneThread._n_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            OneThread._n_inside -= 1
            if OneThread._n_inside == 0:
                _give_up_control()
                OneThread._of_all.restore_original_limits()
                _give_up_control()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=OneThread.reset_after_fork)


def threads_for(n_multiplications: float) -> AbstractContextManager[None]:
    """Return a context for a problem with `n_multiplications` in its largest product."""
    return nullcontext() if n_multiplications >= WORTH else OneThread()
