"""Positions of the counts of a column in a block, a window or a profile."""

from __future__ import annotations

N_CUTS = 32
"""Number of counts of cuts or values, which come first."""
BELOW, ABOVE, REPEATS, MISSING, TYPE, TOTAL = range(N_CUTS, N_CUTS + 6)
"""Further counts.

They count values below and above the range (of categories: unseen and others), equal to the previous value, missing,
and of another type. The last is the sum of the values.
"""
UNSEEN, OTHER = BELOW, ABOVE
WIDTH = TOTAL + 1
GROUPS = (*[0] * REPEATS, 1, 2, 3, -1)
"""Group of each count with a common design effect; -1 for the sum."""
