"""Argument types of entry points."""

from __future__ import annotations

from streamsvm.core.deferred import from_numba

types = from_numba("numba", "types")

INTEGER, NUMBER, FLAG = types.int64, types.float64, types.boolean
INTEGERS, NUMBERS, FLAGS = INTEGER[::1], NUMBER[::1], FLAG[::1]
BYTES, WORDS = types.uint8[::1], types.uint64[::1]
WORD_TABLE, SHORT_WORD_TABLE = types.uint64[:, ::1], types.uint32[:, ::1]
