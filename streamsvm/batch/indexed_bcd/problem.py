"""Binary problem, with passes that evaluate a hyperplane and find rows near it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamsvm.batch.indexed_bcd import kernels
from streamsvm.batch.linear_systems import LARGEST_BOUNDED_SYSTEM
from streamsvm.batch.matrix import Floats, Ints, Matrix, MemoryRows, Rows, stack, systematic_sample


class WorkingSet:
    """Collector of the rows within `limit` of a hyperplane during a pass.

    A set that exceeds `memory` bytes is discarded.
    """

    def __init__(self, index: Rows, limit: float, memory: float) -> None:
        self.index, self.limit, self.memory = index, limit, memory
        self.positions: list[Ints] = []
        self.parts: list[Any] = []
        self.n_rows = 0

    @property
    def is_usable(self) -> bool:
        """Whether the set has rows, and they fit in memory."""
        return 0 < self.n_rows <= self.memory / max(1.0, self.index.row_bytes)

    def add(self, start: int, z: Floats, matrix: Any) -> None:
        """Collect rows with scores z near 0 from a block that begins at position `start`."""
        near = np.flatnonzero(np.abs(z) <= self.limit)
        if not len(near) or (self.n_rows and not self.is_usable):
            return
        self.n_rows += len(near)
        if self.is_usable:
            positions = start + near
            self.positions.append(positions.astype(np.min_scalar_type(int(positions[-1]))))
            self.parts.append(matrix.rows(near).X)
        else:
            self.close()

    def rows(self) -> tuple[Ints, Rows]:
        """Return the positions and the rows, and clear the set."""
        kept = np.concatenate(self.positions)
        rows = MemoryRows(stack(self.parts, self.index.shape[1]))
        self.close()
        return kept, rows

    def close(self) -> None:
        """Discard all rows."""
        self.parts.clear()
        self.positions.clear()


# Rows processed at a time; their scores fit in the cache.
CHUNK = 1 << 16
# A round ignores rows that are outside the margin by more than this.
SHRINK = 1.0


@dataclass(frozen=True)
class BinaryProblem:
    """A binary problem.

    It minimises |w|^2 / 2 + b^2 / 2 + sum of c_i min(L(1 - y_i (w . x_i + b)), ceiling).

    Parameters
    ----------
    y, c
        Labels +1 and -1, and weights, over positions.
    squared
        Whether L is the squared hinge.
    ceiling
        The largest loss of a row, 1 + s; inf for the convex loss.
    constant
        1 to fit a bias, else 0.
    """

    y: NDArray[np.int8]
    c: Floats
    squared: bool
    ceiling: float
    constant: float

    @property
    def reach(self) -> float:
        """Magnitude of scores beyond which the truncated loss is constant."""
        return max(1.0, (math.sqrt(self.ceiling) if self.squared else self.ceiling) - 1.0)

    def restricted(self, positions: Ints, c: Floats) -> BinaryProblem:
        """Return the problem of some rows, with other weights."""
        return BinaryProblem(self.y[positions], c, self.squared, self.ceiling, self.constant)

    def inliers(self, z: Floats) -> NDArray[np.bool_]:
        """Return which rows are not outliers at scores z."""
        if self.ceiling == math.inf:
            return np.ones(len(z), np.bool_)
        most = math.sqrt(self.ceiling) if self.squared else self.ceiling
        inside = np.empty(len(z), np.bool_)
        for part in chunks(len(z)):
            inside[part] = 1.0 - self.y[part] * z[part].astype(np.float64) <= most
        return inside

    def losses(self, rows: Any, eps: float = 0.0) -> kernels.Losses:
        """Return the losses of some rows, for kernels."""
        c = self.c[rows].astype(np.float64, copy=False)
        return kernels.Losses(self.y[rows], c, self.squared, float(eps), float(self.ceiling))

    def loss(
        self,
        z: Floats,
        rows: NDArray[Any] | slice = slice(None),
        other: Floats | None = None,
        t: float = 0.0,
        eps: float = 0.0,
    ) -> float:
        """Sum the truncated losses of some rows at scores z, or at z + t (other - z).

        The hinge is smoothed by `eps`.
        """
        losses = self.losses(rows, eps)
        other = z if other is None else other
        total = 0.0
        for part in chunks(len(z)):
            some = (values[part].astype(np.float64, copy=False) for values in (z, other))
            total += kernels.along(*some, losses._replace(y=losses.y[part], c=losses.c[part]), t)
        return total

    def without_truncation(self, inside: NDArray[np.bool_]) -> BinaryProblem:
        """Return the problem of the rows in a mask, without truncation."""
        return replace(self, c=np.where(inside, self.c, 0.0), ceiling=math.inf)

    def along(self, one: Point, other: Point, t: float, eps: float = 0.0) -> float:
        """Evaluate the objective between two points, smoothed unless eps is 0."""
        w = one.w + t * (other.w - one.w)
        return 0.5 * float(w @ w) + self.loss(one.z, other=other.z, eps=eps, t=t)


def chunks(n: int) -> Iterator[slice]:
    """Yield consecutive ranges of n rows."""
    return (slice(start, min(n, start + CHUNK)) for start in range(0, n, CHUNK))


@dataclass
class Point:
    """A hyperplane (w, b), evaluated by a pass over the rows.

    Parameters
    ----------
    w
        Coefficients, with the bias last, shape (d + 1,).
    z
        Scores over positions.
    objective
        Objective with truncated losses.
    gap
        Bound on the distance of w from the optimum of the convex problem of its inliers.
    slack
        The part of the gap due to smoothing.
    v
        Sum of alpha y x, including the constant column.
    hessian
        Hessian of the losses, lower triangle; for many columns a list of weighted rows instead.
    weight
        Sum of the rows' weights in the Hessian.
    eps
        Smoothing of the hinge.
    inside
        Sum of the losses of inliers.
    n_support, n_out
        Numbers of rows with alpha > 0 and of outliers.
    """

    w: Floats
    z: Floats
    objective: float = 0.0
    gap: float = math.inf
    slack: float = 0.0
    v: Floats = field(default_factory=lambda: np.empty(0))
    hessian: Any = None
    weight: float = 0.0
    eps: float = 0.0
    inside: float = 0.0
    n_support: int = 0
    n_out: int = 0


# Called with the point after each round; returns whether to stop.
OnRound = Callable[[Point], bool]


class HessianSample:
    """Hessian of the losses, estimated from a sample of the rows.

    It is a matrix, or for many columns a list of weighted rows.
    """

    def __init__(self, d: int, share: float, rng: np.random.Generator) -> None:
        self.share, self.rng, self.columns = share, rng, np.arange(d)
        self.hessian: Any = np.zeros((d + 1, d + 1)) if d <= LARGEST_BOUNDED_SYSTEM else []

    def add(self, matrix: Matrix, h: Floats) -> None:
        """Add a block of rows with weights h."""
        if self.share < math.inf:
            chosen, weights = systematic_sample(h, self.share, self.rng)
        else:
            chosen = np.flatnonzero(h)
            weights = h[chosen]
        if len(chosen) and isinstance(self.hessian, list):
            roots = np.sqrt(weights)
            self.hessian.append((matrix.scaled(chosen, roots, self.columns), roots))
        elif len(chosen):
            self.hessian += matrix.gram(chosen, weights, self.columns)


def evaluate(
    rows: Rows,
    problem: BinaryProblem,
    w: Floats,
    eps: float = 0.0,
    *,
    hessian: HessianSample | None = None,
    collect: WorkingSet | None = None,
) -> Point:
    """Evaluate w by a pass over the rows.

    The dual point follows from the smoothed loss.
    """
    n, d = rows.shape
    point = Point(w, np.empty(n, rows.precision), v=np.zeros(d + 1), eps=eps)
    sums = np.zeros(5)
    for part, matrix in rows.scan(w, problem.reach):
        size = part.stop - part.start
        z, r, h = np.empty(size), np.empty((1, size)), np.empty(size)
        scores(matrix, w, z, point.z[part])
        *found, n_support, n_out = kernels.dual_and_hessian_weights(z, problem.losses(part, eps), r[0], h)
        sums += found
        point.n_support += n_support
        point.n_out += n_out
        if isinstance(matrix, float):
            continue
        if collect is not None:
            collect.add(part.start, z, matrix)
        if n_support:
            point.v[:d] += matrix.adjoint(r)[0]
            point.v[d] += problem.constant * r.sum()
        if hessian is not None:
            point.weight += float(h.sum())
            hessian.add(matrix, h)
    if hessian is not None:
        point.hessian = hessian.hessian
    loss, fixed, mass, square, point.slack = sums
    assess(point, loss, fixed, mass, square)
    return point


def scores(matrix: Matrix | float, w: Floats, z: Floats, kept: Floats) -> None:
    """Fill z with w . x + b, rounded to the precision of `kept`.

    A float in place of a matrix is the score of all rows of a skipped block.
    """
    if isinstance(matrix, float):
        z[:] = matrix
    else:
        matrix.scores(w[None, :-1], z[None])
        z += w[-1]
    kept[:] = z
    z[:] = kept


def assess(point: Point, loss: float, fixed: float, mass: float, square: float) -> None:
    """Compute objective and duality gap, with the best feasible multiple of alpha."""
    norm = 0.5 * float(point.w @ point.w)
    point.objective, point.inside = norm + float(loss), float(loss - fixed)
    curvature = 2.0 * square + float(point.v @ point.v)
    t = mass / curvature if curvature > 0.0 else 1.0
    t = t if square > 0.0 else min(t, 1.0)
    bound = t * mass - 0.5 * t * t * curvature
    point.gap = max(0.0, norm + point.inside - bound)


def fixed_loss(problem: BinaryProblem, inside: NDArray[np.bool_]) -> float:
    """Return the total loss of the outliers."""
    if problem.ceiling == math.inf:
        return 0.0
    return problem.ceiling * float(np.sum(problem.c, where=~inside, dtype=np.float64))


def backtrack(problem: BinaryProblem, at: Point, new: Point, eps: float = 0.0) -> float:
    """Return the best step length from `at` towards `new` among powers of 1/2.

    It is 0 if no step lowers the objective.
    """
    best, value = 0.0, problem.along(at, at, 0.0, eps)
    t = 0.5
    for _ in range(20):
        there = problem.along(at, new, t, eps)
        if there < value:
            best, value = t, there
        elif best > 0.0:
            break
        t *= 0.5
    return best
