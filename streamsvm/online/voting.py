"""Comparison of two votes by their recent accuracies."""

from __future__ import annotations

from streamsvm.core.jit import inlined
from streamsvm.core.losses import best_class


@inlined
def is_right(proba, n, label):
    """Return 1 if the label is the most probable of n classes, else 0."""
    return 1.0 if best_class(proba, 0, n) == label else 0.0


@inlined
def next_advantage(advantage, rate, proba, other, n, label):
    """Return the decayed difference in accuracy of two votes, updated with a label."""
    return advantage + rate * (is_right(proba, n, label) - is_right(other, n, label) - advantage)
