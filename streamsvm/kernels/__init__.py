"""Compiled steps: plain functions over arrays, nothing of Python inside.

A learner's memory is a `State`: one block with a name for everything in it (see `streamsvm.kernels.state`). A call from
Python passes it as one address, whatever the learner holds, which matters when a call should cost as little as the step
it makes.
"""

from __future__ import annotations

from streamsvm.kernels.cache import cache_folder
from streamsvm.kernels.compiler import allocating, apart, brief, call, fused, inlined, kernel, reduction, view

__all__ = ["allocating", "apart", "brief", "cache_folder", "call", "fused", "inlined", "kernel", "reduction", "view"]
