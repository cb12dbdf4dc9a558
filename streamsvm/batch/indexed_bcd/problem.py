"""One binary problem, and what a pass over the rows tells of a hyperplane in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streamsvm.batch.indexed_bcd import kernels
from streamsvm.batch.linear_systems import LARGEST_BOUNDED_SYSTEM
from streamsvm.batch.matrix import Floats, Ints, Matrix
from streamsvm.batch.rows import Rows

# Numbers of rows are gone through so many at a time.
CHUNK = 1 << 16


@dataclass(frozen=True)
class Task:
    """One binary problem: |w|^2 / 2 + b^2 / 2 + sum of c_i min(L(1 - y_i (w . x_i + b)), ceiling).

    Parameters
    ----------
    y, c
        Labels +1 and -1, and weights, over positions.
    squared
        Whether L is the squared hinge.
    ceiling
        1 + s; inf for the convex loss.
    constant
        1 for a bias, 0 for none.
    """

    y: NDArray[np.int8]
    c: Floats
    squared: bool
    ceiling: float
    constant: float

    @property
    def reach(self) -> float:
        """Beyond scores of this magnitude a row's truncated loss is constant."""
        return max(1.0, (math.sqrt(self.ceiling) if self.squared else self.ceiling) - 1.0)

    def at(self, positions: Ints, c: Floats) -> Task:
        """The same for some of the rows, with other weights."""
        return Task(self.y[positions], c, self.squared, self.ceiling, self.constant)

    def inliers(self, z: Floats) -> NDArray[np.bool_]:
        """Which rows are no outliers at scores z."""
        if self.ceiling == math.inf:
            return np.ones(len(z), np.bool_)
        most = math.sqrt(self.ceiling) if self.squared else self.ceiling
        inside = np.empty(len(z), np.bool_)
        for part in chunks(len(z)):
            inside[part] = 1.0 - self.y[part] * z[part].astype(np.float64) <= most
        return inside

    def loss(
        self,
        z: Floats,
        rows: NDArray[Any] | slice = slice(None),
        other: Floats | None = None,
        t: float = 0.0,
        eps: float = 0.0,
    ) -> float:
        """The sum of truncated losses of some rows, smoothed by eps, at scores z or at z + t (other - z)."""
        y, c = self.y[rows], self.c[rows]
        other = z if other is None else other
        total = 0.0
        for part in chunks(len(z)):
            some = (values[part].astype(np.float64, copy=False) for values in (z, other))
            c_some = c[part].astype(np.float64, copy=False)
            total += kernels.along(*some, y[part], c_some, self.squared, eps, self.ceiling, t)
        return total

    def convex(self, inside: NDArray[np.bool_]) -> Task:
        """The convex problem of some rows."""
        return replace(self, c=np.where(inside, self.c, 0.0), ceiling=math.inf)

    def along(self, one: Point, other: Point, t: float, eps: float = 0.0) -> float:
        """The objective between two points, smoothed unless eps is 0."""
        w = one.w + t * (other.w - one.w)
        return 0.5 * float(w @ w) + self.loss(one.z, other=other.z, eps=eps, t=t)


def chunks(n: int) -> Iterator[slice]:
    """Ranges of rows whose numbers stay in the cache."""
    return (slice(start, min(n, start + CHUNK)) for start in range(0, n, CHUNK))


class Collector(Protocol):
    """Who wants to see the rows of a pass."""

    def add(self, start: int, z: Floats, matrix: Any) -> None:
        """A block of rows from a position on, and their scores."""


@dataclass
class Point:
    """A hyperplane (w, b), and all that one pass over the rows tells of it.

    Parameters
    ----------
    w
        Shape (d + 1,), the bias last.
    z
        Scores over positions.
    objective
        With truncated losses.
    gap
        How far above its optimum w is in the convex problem of the rows that are no outliers of w, at most.
    slack
        The part of that which smoothing is to blame for.
    v
        The sum of alpha y x, and its value at the constant column.
    hessian
        That of the losses in its lower triangle; or the rows it is made of, already scaled.
    weight
        The sum of the rows' weights in it.
    eps
        How far the hinge was smoothed.
    inside
        The sum of losses of rows that are no outliers.
    n_support, n_out
        How many rows have alpha > 0, and how many are outliers.
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


# Told of a point after each round; whether to end.
OnRound = Callable[[Point], bool]


class Curvature:
    """The Hessian of the losses by a share of the rows as they come: built, or of many columns the rows, scaled."""

    def __init__(self, d: int, share: float, rng: np.random.Generator) -> None:
        self.share, self.rng, self.columns = share, rng, np.arange(d)
        self.hessian: Any = np.zeros((d + 1, d + 1)) if d <= LARGEST_BOUNDED_SYSTEM else []

    def add(self, matrix: Matrix, h: Floats) -> None:
        """A block of rows with these weights in it."""
        chosen, weights = np.empty(len(h), np.int64), np.empty(len(h))
        count = kernels.choose(h, self.share, self.rng.random(), chosen, weights)
        chosen, weights = chosen[:count], weights[:count]
        if count and isinstance(self.hessian, list):
            roots = np.sqrt(weights)
            self.hessian.append((matrix.scaled(chosen, roots, self.columns), roots))
        elif count:
            self.hessian += matrix.gram(chosen, weights, self.columns)


def look(
    rows: Rows,
    task: Task,
    w: Floats,
    eps: float,
    share: float = math.inf,
    rng: np.random.Generator | None = None,
    collect: Collector | None = None,
) -> Point:
    """Pass over the rows once. Without `rng` there is no Hessian."""
    n, d = rows.shape
    point = Point(w, np.empty(n, rows.precision), v=np.zeros(d + 1), eps=eps)
    curvature = None if rng is None else Curvature(d, share, rng)
    sums = np.zeros(5)
    for part, matrix in rows.scan(w, task.reach):
        size = part.stop - part.start
        z, y, c = np.empty(size), task.y[part], task.c[part].astype(np.float64, copy=False)
        scores(matrix, w, z, point.z[part])
        r, h = np.empty((1, size)), np.empty(size)
        *losses, n_support, n_out = kernels.respond(z, y, c, task.squared, eps, task.ceiling, r[0], h)
        sums += losses
        point.n_support += n_support
        point.n_out += n_out
        if isinstance(matrix, float):
            continue
        if collect is not None:
            collect.add(part.start, z, matrix)
        if n_support:
            point.v[:d] += matrix.adjoint(r)[0]
            point.v[d] += task.constant * r.sum()
        point.weight += float(h.sum())
        if curvature is not None:
            curvature.add(matrix, h)
    if curvature is not None:
        point.hessian = curvature.hessian
    loss, fixed, mass, square, point.slack = sums
    assess(point, loss, fixed, mass, square)
    return point


def scores(matrix: Matrix | float, w: Floats, z: Floats, kept: Floats) -> None:
    """Fill z with w . x + b as precisely as it is kept; a block that was left out has one score for all its rows."""
    if isinstance(matrix, float):
        z[:] = matrix
    else:
        matrix.scores(w[None, :-1], z[None])
        z += w[-1]
    kept[:] = z
    z[:] = kept


def assess(point: Point, loss: float, fixed: float, mass: float, square: float) -> None:
    """Objective and duality gap; the best multiple of alpha that keeps within its bounds is taken."""
    norm = 0.5 * float(point.w @ point.w)
    point.objective, point.inside = norm + float(loss), float(loss - fixed)
    curvature = 2.0 * square + float(point.v @ point.v)
    t = mass / curvature if curvature > 0.0 else 1.0
    t = t if square > 0.0 else min(t, 1.0)
    bound = t * mass - 0.5 * t * t * curvature
    point.gap = max(0.0, norm + point.inside - bound)


def look_with(rows: Rows, task: Task, w: Floats, alpha: Floats) -> Point:
    """Pass over the rows once, with a given dual point; `v` is what it makes of the rows that are no outliers of w."""
    n, d = rows.shape
    point = Point(w, np.empty(n, rows.precision), v=np.zeros(d + 1))
    sums = np.zeros(4)
    for part, matrix in rows.scan():
        z, r = np.empty(part.stop - part.start), np.empty((1, part.stop - part.start))
        scores(matrix, w, z, point.z[part])
        c = task.c[part].astype(np.float64, copy=False)
        *losses, n_support, n_out = kernels.respond_with(
            alpha[part], z, task.y[part], c, task.squared, task.ceiling, r[0]
        )
        sums += losses
        point.n_support += n_support
        point.n_out += n_out
        if n_support and not isinstance(matrix, float):
            point.v[:d] += matrix.adjoint(r)[0]
            point.v[d] += task.constant * r.sum()
    assess(point, *sums)
    return point


def fixed_loss(task: Task, inside: NDArray[np.bool_]) -> float:
    """The loss of outliers."""
    if task.ceiling == math.inf:
        return 0.0
    return task.ceiling * float(np.sum(task.c, where=~inside, dtype=np.float64))


def damp(task: Task, at: Point, new: Point, eps: float = 0.0) -> float:
    """The share of a step that lowers the objective most, of halves, quarters and so on; 0 for none."""
    best, value = 0.0, task.along(at, at, 0.0, eps)
    t = 0.5
    for _ in range(20):
        there = task.along(at, new, t, eps)
        if there < value:
            best, value = t, there
        elif best > 0.0:
            break
        t *= 0.5
    return best
