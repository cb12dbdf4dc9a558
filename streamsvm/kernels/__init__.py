"""Compiled steps: plain functions over arrays, nothing of Python inside.

A learner's state is one float64 buffer (the *arena*, see `streamsvm.features.Arena`) cut into sections, and one int64
array (the *layout*) with its counters and the sections' offsets. A call from Python thus passes two arrays whatever the
learner holds, which matters when a call should cost as little as the step it makes.
"""

from __future__ import annotations
