"""Compiled code knows what a state is once `access` is imported: each file of tests here runs by itself."""

from __future__ import annotations

import streamsvm.kernels.access  # noqa: F401
