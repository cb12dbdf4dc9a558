"""How many threads BLAS computes on: as many as a problem is worth.

They wait for each other by spinning. Where other work has the processors, as the stream has beside a refit, that costs
far more than a product of medium size gains by them.
"""

from __future__ import annotations

import functools
import os
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from threadpoolctl import ThreadpoolController

# A product of so many multiplications is worth more than one thread.
WORTH = 1e9


@functools.cache
def _libraries() -> ThreadpoolController:
    """Those there are: to find them takes longer than a small fit."""
    return ThreadpoolController()


class OneThread:
    """Has BLAS compute on one thread as long as anybody is inside.

    How many it takes is a matter of the whole program: who comes last out of several that solve at once gives it back
    what the first found.
    """

    _lock = threading.Lock()
    _n_inside = 0
    _of_all: Any = None

    @classmethod
    def begin_anew(cls) -> None:
        """In a child process, which has none of its parent's threads: nobody is inside."""
        cls._lock, cls._n_inside = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if OneThread._n_inside == 0:
                OneThread._of_all = _libraries().limit(limits=1, user_api="blas")
            OneThread._n_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            OneThread._n_inside -= 1
            if OneThread._n_inside == 0:
                OneThread._of_all.restore_original_limits()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=OneThread.begin_anew)


def threads_for(n_multiplications: float) -> AbstractContextManager[None]:
    """As many threads as are worth it where the largest product takes so many multiplications."""
    return nullcontext() if n_multiplications >= WORTH else OneThread()
