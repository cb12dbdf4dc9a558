"""Random numbers in kernels, from an explicit state."""

from __future__ import annotations

import numpy as np

from streamsvm.core.jit import kernel


@kernel
def draw(rng, n):
    """Draw an integer below n with splitmix64 (Steele, Lea, Flood 2014).

    Parameters
    ----------
    rng
        State of the generator: an array of one uint64.
    n
        Upper bound, below 2**32.
    """
    rng[0] += np.uint64(0x9E3779B97F4A7C15)
    z = rng[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    # Multiplying the high 32 bits by n and shifting is uniform up to n / 2**32.
    return np.int64(((z >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))
