"""Penalties of a linear model, and the dual bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.batch.matrix import Floats


@dataclass
class Penalties:
    """The penalties l2 / 2 |w|^2 + l1 |w|_1.

    `peaks` are the largest magnitudes in the columns.
    """

    l2: float
    l1: float
    intercept: bool
    peaks: Floats

    def value(self, w: Floats) -> float:
        """Return the sum of the penalties."""
        return float(0.5 * self.l2 * (w @ w) + self.l1 * np.abs(w).sum())

    def dual(self, v: Floats, mass: float, balance: float) -> float:
        """Compute a lower bound of the optimum from a dual point alpha in [0, c].

        The dual objective is sum(alpha) - |shrink(v, l1)|^2 / (2 l2) with v = sum(alpha y x). A bias needs
        balance = sum(alpha y) = 0. Scaling down the heavier class ensures this, and changes column j of v by at most
        |balance| * peaks[j]. The bound is that of the best multiple of alpha.
        """
        size = np.abs(v)
        if self.intercept:
            mass -= abs(balance)
            size += abs(balance) * self.peaks
        if mass <= 0.0:
            return 0.0
        if self.l2 == 0.0:
            largest = float(size.max(initial=0.0))
            return mass if largest <= self.l1 else mass * self.l1 / largest
        part = size[size > self.l1]
        t = 1.0
        for _ in range(50):  # Newton's method on a convex increasing function
            over = np.maximum(t * part - self.l1, 0.0)
            excess = float(part @ over) / self.l2 - mass
            if excess <= 1e-12 * mass:
                break
            t -= excess * self.l2 / float(part[over > 0.0] @ part[over > 0.0])
        over = np.maximum(t * part - self.l1, 0.0)
        return max(0.0, t * mass - float(over @ over) / (2.0 * self.l2))
