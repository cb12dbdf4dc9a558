"""Access to states and rows in kernels.

The names are those of `access_numba`, which may be deferred.
"""

from __future__ import annotations

from typing import Any

from streamsvm.core.deferred import from_numba


def __getattr__(name: str) -> Any:
    return from_numba("streamsvm.core.access_numba", name)
