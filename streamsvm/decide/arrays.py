"""Array types that do not depend on a learner."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Members = NDArray[np.bool_]
