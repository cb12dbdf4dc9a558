"""Linear support vector machines with truncated losses, on rows wherever they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any, Self

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from streamsvm.batch.base import Iteration, LinearClassifier, Progress, Solution, check_scale
from streamsvm.batch.matrix import Floats, Ints, Matrix
from streamsvm.batch.metric_forest import MetricForest
from streamsvm.batch.rows import Index, MemoryRows, Rows, bytes_of, squares_of, stack
from streamsvm.kernels import bcd as kernels
from streamsvm.models import LinearModel

# Smoothing begins here, in units of the margin; it falls by this factor.
EPS_FIRST, EPS_FACTOR, EPS_MOST, EPS_LAST = 2.0, 0.25, 0.7, 1e-9
# The Hessian rests on so many rows a column at most.
ROWS_PER_COLUMN = 1000
# Systems beyond this size are solved by conjugate gradients on rows of so many bytes in all.
LARGEST_SYSTEM, SYSTEM_BYTES = 1500, 64 << 20
# Numbers of rows are gone through so many at a time.
CHUNK = 1 << 16
# A fit holds so many bytes for each row; of the memory that is left a share keeps rows that dual rounds come back to.
PER_ROW = {"newton": 40, "dual": 72}
KEPT = {"newton": 0.0, "dual": 0.3}
# Of the memory for rows so much is for a sample where it is alone, for each of the two sets that a search holds twice,
# and for rows near the hyperplane, which are held while the next ones are collected.
ALONE, TWICE, NEXT = 0.6, 0.2, 0.33
# Rows near the hyperplane are of no use apart where they are more than this share of all.
MANY = 0.25
# A fit starts on a sample, solved to so much of its objective, with the convex loss and by rounds; on all rows
# smoothing then begins here, or for the convex loss at least there.
PILOT, PILOT_BYTES = 40_000, 64 << 20
TOL_PILOT, TOL_ROUNDS, EPS_ALL, EPS_WARM = 0.03, 0.01, 1.0, 0.1
# Truncated losses start from a convex solution at one of these lengths.
LENGTHS = 2.0 ** np.arange(10)
# Rounds after each query of an index; and it is worth its reads where they are of this share of the rows at most, with
# more where a scan has too many rows near the hyperplane to keep them apart.
ROUNDS_ON_INDEX, BORDER, BORDER_MANY = 10, 0.5, 0.75
# A dual round sweeps over its rows so often at first, and so many times as often in the next.
SWEEPS, SWEEPS_GROW, SWEEPS_MOST = 5.0, 1.2, 100.0
# It goes on so often while it would raise the objective.
ATTEMPTS = 20
# A Newton step damped more than this is given up.
DAMP_LEAST = 0.05

Report = Callable[["Point"], bool]


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


class WorkingSet:
    """Rows within `limit` of a hyperplane, as one pass meets them.

    They are held in memory up to so many bytes; if they are more they go to disk, and if they are many they are given
    up, as a pass over them costs no less than one over all rows.
    """

    def __init__(self, index: Index, limit: float, memory: float) -> None:
        self.index, self.limit, self.memory = index, limit, memory
        self.positions: list[Ints] = []
        self.parts: list[Any] = []
        self.n_rows = self.n_bytes = 0
        self.on_disk: Any = None

    @property
    def is_of_use(self) -> bool:
        """Whether there are rows, and not too many."""
        return 0 < self.n_rows <= most_apart(self.index, self.memory)

    def add(self, start: int, z: Floats, matrix: Any) -> None:
        near = np.flatnonzero(np.abs(z) <= self.limit)
        if not len(near) or (self.n_rows and not self.is_of_use):
            return
        self.n_rows += len(near)
        if not self.is_of_use:
            self.close()
            return
        self.positions.append(_compact(start + near))
        self.parts.append(matrix.rows(near).X)
        self.n_bytes += bytes_of(self.parts[-1])
        if self.n_bytes > self.memory:
            self._spill()

    def _spill(self) -> None:
        self.on_disk = self.on_disk or self.index.spill()
        for part in self.parts:
            self.on_disk.add(part)
        self.parts.clear()
        self.n_bytes = 0

    def rows(self) -> tuple[Ints, Rows]:
        """Their positions, and they themselves."""
        kept = np.concatenate(self.positions)
        self.positions.clear()
        if self.on_disk is not None:
            self._spill()
            return kept, self.on_disk
        rows = MemoryRows(stack(self.parts, self.index.shape[1]))
        self.parts.clear()
        return kept, rows

    def close(self) -> None:
        self.parts.clear()
        self.positions.clear()
        if self.on_disk is not None:
            self.on_disk.close()
            self.on_disk = None


def most_apart(rows: Rows, memory: float) -> float:
    """How many rows near the hyperplane are worth going through apart from others, as passes over them are cheaper."""
    return max(MANY * rows.shape[0], memory / max(1.0, rows.row_bytes))


def _compact(positions: Ints) -> Ints:
    return positions.astype(np.min_scalar_type(int(positions[-1])))


def look(
    rows: Rows,
    task: Task,
    w: Floats,
    eps: float,
    share: float = math.inf,
    rng: np.random.Generator | None = None,
    collect: WorkingSet | None = None,
) -> Point:
    """Pass over the rows once. Without `rng` there is no Hessian."""
    n, d = rows.shape
    point = Point(w, np.empty(n, rows.precision), v=np.zeros(d + 1), eps=eps)
    columns = np.arange(d)
    dense = d <= LARGEST_SYSTEM
    scaled: list[Any] = []
    if rng is not None and dense:
        point.hessian = np.zeros((d + 1, d + 1))
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
        if rng is None:
            continue
        chosen, weights = np.empty(size, np.int64), np.empty(size)
        count = kernels.choose(h, share, rng.random(), chosen, weights)
        if count and dense:
            point.hessian += matrix.gram(chosen[:count], weights[:count], columns)
        elif count:
            roots = np.sqrt(weights[:count])
            scaled.append((matrix.scaled(chosen[:count], roots, columns), roots))
    if rng is not None and not dense:
        point.hessian = scaled
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


# The primal ------------------------------------------------------------------------------------------------------


@dataclass
class Newton:
    """Smoothed Newton steps on rows, one pass over them for each.

    Parameters
    ----------
    eps
        How far the hinge is smoothed; it falls as need be.
    tol
        The duality gap to reach, relative to the objective.
    max_rounds
        Most steps.
    weight
        What the weights in the Hessian will sum to, to begin with, if that is known.
    fixed
        Loss of rows that are not among these, for `tol` to be relative to.
    memory
        How many bytes of rows to hold beside these.
    radius
        Of the region in which the squared loss is trusted to be as its Hessian tells.
    """

    rows: Rows
    eps: float
    tol: float
    max_rounds: int
    rng: np.random.Generator
    weight: float = 0.0
    fixed: float = 0.0
    memory: float = math.inf
    radius: float = math.inf

    def look(self, task: Task, w: Floats, collect: WorkingSet | None = None) -> Point:
        """Pass over the rows; the Hessian rests on a sample where many rows weigh in it."""
        n, d = self.rows.shape
        most = ROWS_PER_COLUMN * (d + 1)
        if d > LARGEST_SYSTEM:
            # Scaled rows are in double precision, and those of two points are held.
            most = min(most, int(min(SYSTEM_BYTES, 0.1 * self.memory) / (2.0 * self.rows.row_bytes)) + 1)
        share = most / self.weight if self.weight > 0.0 and n > most else math.inf
        point = look(self.rows, task, w, self.eps, share, self.rng, collect)
        self.weight = point.weight
        return point

    def _sharpen(self, at: Point, squared: bool) -> None:
        """Smooth less where smoothing is to blame for half of the gap."""
        if not squared and at.eps == self.eps and at.gap <= 2.0 * at.slack:
            # As little less as will do, since a sharp hinge takes more steps.
            factor = 0.3 * self.tol * (at.objective + self.fixed) / at.slack
            self.eps = max(self.eps * min(max(factor, EPS_FACTOR), EPS_MOST), EPS_LAST)

    def truncated(self, task: Task, w: Floats, report: Report, at: Point | None = None) -> Point:
        """Convex-concave rounds of one step each.

        A step that would raise the truncated objective is damped; where that does not help, the convex problem of the
        round is solved further. They end when w is within `tol` of the optimum of the convex problem of its inliers.
        `at` is w where rows have been passed over for it.
        """
        at = self.look(task, w) if at is None else at
        for _ in range(self.max_rounds):
            if report(at) or at.gap <= self.tol * (at.objective + self.fixed):
                break
            self._sharpen(at, task.squared)
            new = self._step(task, at, 0.0, DAMP_LEAST)
            if new.objective >= at.objective:
                new = self._solved_further(task, at)
                if new is at:
                    report(at)
                    break
            at = new
        return at

    def _step(self, task: Task, at: Point, eps: float, damp_least: float) -> Point:
        """Where one step leads that lowers the objective smoothed by eps, if one was found: else where it failed."""
        if task.squared:
            return self._step_in_region(task, at)
        step, _ = newton_step(at, task)
        new = self.look(task, at.w + step)
        if task.along(at, new, 1.0, eps) >= task.along(at, at, 0.0, eps):
            t = damp(task, at, new, eps)
            if t >= damp_least:
                new = self.look(task, at.w + t * step)
        return new

    def _step_in_region(self, task: Task, at: Point) -> Point:
        """A step no longer than the radius, which follows how well the quadratic model foretold the last gains."""
        for _ in range(ATTEMPTS):
            step, foretold = newton_step(at, task, self.radius)
            length = float(np.linalg.norm(step))
            new = self.look(task, at.w + step)
            gain = at.objective - new.objective
            if gain < 0.25 * foretold:
                self.radius = 0.25 * length
            elif gain > 0.75 * foretold and length > 0.99 * self.radius:
                self.radius *= 2.0
            if gain > 0.0 or foretold <= 1e-12 * at.objective:
                break
        return new

    def by_working_sets(self, task: Task, w: Floats, shrink: float, report: Report) -> Point:
        """`truncated` where a pass costs much: each collects the rows in range or short of it by `shrink`.

        The next round is solved on these in memory, as if others kept their losses, and the next pass tells. Where they
        do not fit, and where that gains nothing, rounds go over all rows.
        """

        index = self.rows
        assert isinstance(index, MetricForest)
        working = WorkingSet(index, task.reach + shrink, NEXT * self.memory)
        at = self.look(task, w, working)
        try:
            while at.gap > self.tol * at.objective and working.is_of_use:
                if report(at) or self.max_rounds <= 1:
                    return at
                self.max_rounds -= 1
                working, last = WorkingSet(index, working.limit, working.memory), working
                with closing(last):
                    new = self._round_on(last, task, at, working)
                if new.objective >= at.objective:
                    t = damp(task, at, new)
                    if t == 0.0:
                        break
                    working.close()
                    working = WorkingSet(index, working.limit, working.memory)
                    new = self.look(task, at.w + t * (new.w - at.w), working)
                    if new.objective >= at.objective:
                        break
                at = new
        finally:
            working.close()
        return self.truncated(task, at.w, report, at)

    def _round_on(self, working: WorkingSet, task: Task, at: Point, collect: WorkingSet) -> Point:
        """Where rounds on a working set lead, as a pass over all rows tells, which collects the next one."""
        kept, rows = working.rows()
        part = task.at(kept, task.c[kept])
        fixed = at.objective - 0.5 * float(at.w @ at.w) - part.loss(at.z[kept])
        inner = replace(self, rows=rows, eps=max(at.eps, EPS_WARM), tol=0.5 * self.tol, fixed=fixed)
        end = inner.truncated(part, at.w, lambda _: False)
        self.eps, self.weight, self.radius = inner.eps, inner.weight, inner.radius
        new = self.look(task, end.w, collect)
        # The dual point of the working set bounds the problem of all rows too: others have no part in it.
        inside = part.inliers(new.z[kept])
        others = new.inside - part.loss(new.z[kept[inside]], inside)
        new.gap = min(new.gap, end.gap + max(0.0, others))
        return new

    def _solved_further(self, task: Task, at: Point) -> Point:
        """A point below `at` by steps on the convex problem of its inliers; else `at`, with what its gap is."""
        inside = task.inliers(at.z)
        fixed = fixed_loss(task, inside)
        enough = at.objective - fixed
        end = self.convex(task.convex(inside), at.w, enough=enough - 1e-9 * at.objective, fixed=fixed)
        at.gap = min(at.gap, max(0.0, enough - (end.objective - end.gap)))
        if at.gap <= self.tol * (at.objective + self.fixed) or end.objective >= enough:
            return at
        new = self.look(task, end.w)
        return new if new.objective < at.objective else at

    def convex(
        self, task: Task, w: Floats, report: Report | None = None, enough: float = -math.inf, fixed: float = 0.0
    ) -> Point:
        """Steps on a convex problem, until an objective below `enough` or within `tol` of the optimum.

        `fixed` is part of the objective that `tol` is relative to.
        """
        at = best = self.look(task, w)
        bound = -math.inf
        n_failed = 0
        for _ in range(self.max_rounds):
            bound = max(bound, at.objective - at.gap)
            best = at if at.objective < best.objective else best
            best.gap = best.objective - bound
            stop = report is not None and report(best)
            if (
                stop
                or best.objective < enough
                or best.gap <= self.tol * (best.objective + fixed + self.fixed)
                or n_failed > 2
            ):
                break
            self._sharpen(at, task.squared)
            new = self._step(task, at, self.eps, 0.0)
            # The gradient of a smoother loss may lead nowhere: the next step has the right one.
            is_lower = new.objective < at.objective if task.squared else not np.array_equal(new.w, at.w)
            n_failed = 0 if is_lower or at.eps != self.eps else n_failed + 1
            at = new
        return best


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


def newton_step(at: Point, task: Task, radius: float = math.inf) -> tuple[Floats, float]:
    """The step s of at most so large a norm that lowers g . s + s . (1 + H) s / 2 most, and by how much.

    A step that would leave the region satisfies (1 + H + shift) s = -g for the shift that puts it on the boundary; that
    is found by Newton steps on 1 / |s|, which is almost linear in the shift [More and Sorensen, 1983].
    """
    g = at.w - at.v
    if isinstance(at.hessian, list):
        return conjugate_gradients(at.hessian, g, task.constant, radius)
    hessian = at.hessian.copy()
    if task.constant == 0.0:
        hessian[-1] = 0.0
    shift, diagonal = 0.0, np.einsum("ii->i", hessian).copy() + 1.0
    for _ in range(20):
        np.einsum("ii->i", hessian)[:] = diagonal + shift
        factors, failed = scipy.linalg.lapack.dpotrf(hessian, lower=1)
        if failed:
            shift += 1e-10 * float(diagonal.sum())
            continue
        step = np.asarray(-scipy.linalg.lapack.dpotrs(factors, g, lower=1)[0])
        length = float(np.linalg.norm(step))
        if length <= 1.01 * radius:
            break
        half = scipy.linalg.solve_triangular(factors, step, lower=True, check_finite=False)
        shift += length**2 / float(half @ half) * (length - radius) / radius
    return step, 0.5 * (shift * length**2 - float(g @ step))


def conjugate_gradients(scaled: list[Any], g: Floats, constant: float, radius: float) -> tuple[Floats, float]:
    """`newton_step` to a hundredth, where H is the sum of the outer products of scaled rows.

    Iterates grow, and where one would leave the region the way to it ends on the boundary [Steihaug, 1983].
    """

    def times(p: Floats) -> Floats:
        out = p.copy()
        for B, roots in scaled:
            q = B @ p[:-1] + constant * p[-1] * roots
            out[:-1] += B.T @ q
            out[-1] += constant * float(roots @ q)
        return out

    x = np.zeros(len(g))
    residual = -g
    p = residual.copy()
    energy = first = float(residual @ residual)
    for _ in range(200):
        if energy <= 1e-4 * first or energy == 0.0:
            break
        q = times(p)
        length = energy / float(p @ q)
        is_outside = float(np.linalg.norm(x + length * p)) > radius
        if is_outside:
            a, b, c = float(p @ p), float(x @ p), float(x @ x) - radius**2
            length = (math.sqrt(b * b - a * c) - b) / a
        x += length * p
        residual -= length * q
        if is_outside:
            break
        energy, last = float(residual @ residual), energy
        p = residual + (energy / last) * p
    return x, 0.5 * float((residual - g) @ x)


# The dual --------------------------------------------------------------------------------------------------------


def dual_rounds(
    rows: Rows,
    task: Task,
    w: Floats,
    *,
    shrink: float,
    block: int,
    tol: float,
    max_rounds: int,
    rng: np.random.Generator,
    report: Report,
) -> Point:
    """Convex-concave rounds of dual coordinate descent over blocks of rows, more sweeps in each round.

    A round takes up the rows that are no outliers of the last w and have alpha > 0 or y z < 1 + `shrink`, `block` of
    them at a time. One that would raise the truncated objective goes on, and is damped if that does not help.
    """
    alpha = np.zeros(rows.shape[0])
    at = look_with(rows, task, w, alpha)
    # No alpha yields the w to start from: the first round takes its inliers, and begins at zero.
    sweeps = SWEEPS
    for _ in range(max_rounds):
        if report(at) or at.gap <= tol * at.objective:
            break
        inside = task.inliers(at.z) & (task.c > 0.0)
        fixed = fixed_loss(task, inside)
        trial, v, new = np.where(inside, alpha, 0.0), at.v.copy(), at
        for _ in range(ATTEMPTS):
            active = np.flatnonzero(inside & ((trial > 0.0) | (task.y * new.z < 1.0 + shrink)))
            for first in range(0, len(active), block):
                sweep_block(rows, task, active[first : first + block], int(sweeps), trial, v, rng)
            at.gap = min(at.gap, max(0.0, at.objective - fixed - dual_value(task, trial, v)))
            new = look_with(rows, task, v.copy(), trial)
            sweeps = min(sweeps * SWEEPS_GROW, SWEEPS_MOST)
            if new.objective <= at.objective or task.ceiling == math.inf or at.gap <= tol * at.objective:
                break
        if new.objective > at.objective and task.ceiling < math.inf:
            t = damp(task, at, new)
            trial = (1.0 - t) * alpha + t * trial
            new = look_with(rows, task, at.w + t * (new.w - at.w), trial)
            if t == 0.0 or new.objective > at.objective:
                report(at)
                break
        alpha, at = trial, new
    return at


def dual_value(task: Task, alpha: Floats, w: Floats) -> float:
    """The dual objective, to be maximised."""
    total = -0.5 * float(w @ w)
    for part in chunks(len(alpha)):
        a, c = alpha[part], task.c[part].astype(np.float64)
        ridge = np.divide(a * a, 4.0 * c, out=np.zeros(len(a)), where=c > 0.0) if task.squared else 0.0
        total += float(np.sum(a - ridge))
    return total


def sweep_block(
    rows: Rows, task: Task, active: Ints, sweeps: int, alpha: Floats, w: Floats, rng: np.random.Generator
) -> None:
    """Minimise the dual over a block of rows, by sweeps in random order; alpha and w follow."""
    X = rows.take(active)
    y, c, part = task.y[active], task.c[active].astype(np.float64), alpha[active]
    upper = np.full(len(active), np.inf) if task.squared else c
    ridge = 1.0 / (2.0 * c) if task.squared else np.zeros(len(active))
    squares = squares_of(X) + task.constant**2
    for _ in range(sweeps):
        order = rng.permutation(len(active))
        if scipy.sparse.issparse(X):
            kernels.sweep_sparse(X.data, X.indices, X.indptr, order, y, upper, ridge, squares, task.constant, part, w)
        else:
            kernels.sweep_dense(np.ascontiguousarray(X), order, y, upper, ridge, squares, task.constant, part, w)
    alpha[active] = part


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


# The estimator ---------------------------------------------------------------------------------------------------


class IndexedBCD(LinearClassifier):
    """Linear support vector machine with a truncated loss, which outliers and wrong labels cannot pull.

    It minimises, one class against the rest (of two classes, the second against the first),

        |w|^2 / 2 + b^2 / 2 + C sum over rows of min(L(y (w . x + b)), 1 + s),

    where L is the hinge max(0, 1 - z) or its square: with s = inf what LIBLINEAR minimises, otherwise by convex-concave
    rounds. A round solves the convex problem of the rows with L <= 1 + s, and never raises the truncated objective.

    Parameters
    ----------
    C
        Weight of the losses.
    s
        A row counts at most 1 + s; inf for the convex loss.
    loss
        "hinge" or "squared_hinge".
    solver
        "newton" makes one Newton step a round in the primal, on the hinge smoothed where it bends; "dual" sweeps by
        coordinate descent over the rows that matter, more often in each round.
    index
        "forest" searches a `MetricForest` for rows near the hyperplane, first; "scan" goes through all rows at once;
        "auto" searches where rows are on disk and the leaves that hold rows in range, by a sample, have at most half of
        all rows, or three quarters where more rows are near the hyperplane than a scan keeps apart. Measured on
        Covertype and generated rows on disk: with 5 and 45 % of the rows in such leaves a search reads less than a scan
        (39 % less to 2 % more), with 70 % and rows too many to keep apart a fifth to three fifths as much, else with
        71 % 0.9 to 1.4 times as much. In memory it saves nothing, and a scan is mostly faster. All end with passes over
        all rows that certify the solution.
    n_query
        Rows that a search is for at least, and less than which share of all rows ends the searches.
    n_pilot
        The fit starts with a solution for so many rows chosen at random, as far as they fit in memory. None for 40,000,
        fewer where they would take more than 64 MB.
    shrink
        Rows that clear the margin by more than this are left out of a round of "dual".
    block
        As many rows are in one block of "dual".
    tol
        How far w may be above the optimum of the convex problem of the rows that are no outliers, relative to the
        objective.
    max_iter
        Most rounds on all rows.
    fit_intercept
        Whether there is a bias b, penalised as in LIBLINEAR.
    class_weight
        A dict from class to weight, "balanced", or None for 1 each.
    warm_start
        Whether to start from what the last `fit` found, instead of a pilot.
    init
        A `LinearModel` of the same classes and columns to start from; its scaler is left aside.
    callback
        Called after each round on all rows with the estimator and an `Iteration`; something true ends the fit.
    random_state
        Seed of the pilot, of sweeps and of samples for the Hessian.

    Attributes
    ----------
    coef_, intercept_
        Shapes (1, d) and (1,) for two classes, else (n_classes, d) and (n_classes,).
    classes_
        The labels.
    objective_
        The truncated objective, summed over one-vs-rest problems.
    certificate_
        How far w is above the optimum of the convex problem of the rows that are no outliers, at most: the duality gap.
        With s = inf that is all rows; otherwise no further round can gain more than this.
    n_iter_
        Rounds on all rows.
    history_
        An `Iteration` for each.
    n_support_
        How many rows have a part in w, for each row of `coef_`.
    n_outliers_
        How many rows have L > 1 + s, for each row of `coef_`.
    model_
        What was learned, as a `LinearModel`.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import IndexedBCD
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 5))
    >>> truth = X[:, 0] > 0.5
    >>> y = truth ^ (rng.random(2000) < 0.3)
    >>> bool(np.mean(IndexedBCD().fit(X, y).predict(X) == truth) > 0.98)
    True

    Notes
    -----
    After Yen, Chang, Lin, Lin and Lin [1]_. The published method solves each round in the dual (`solver="dual"`) or
    by trust-region steps; one smoothed Newton step a round with a line search on the truncated objective itself was
    many times faster in memory. It starts from a convex solution for the same loss on a sample; here from that for the
    squared hinge, at the length that suits the truncated loss best, and rounds on the sample: with 30 % of Covertype's
    labels flipped at random and s = 0.25 rounds then end at 23.1 % test error, where they stayed at the convex
    solution's 31 %.

    References
    ----------
    .. [1] I. E.-H. Yen, C.-F. Chang, T.-W. Lin, S.-W. Lin, S.-D. Lin: Indexed block coordinate descent for large-scale
       linear classification with limited memory, KDD 2013.
    """

    n_support_: Ints
    n_outliers_: Ints

    def __init__(
        self,
        C: float = 1.0,
        s: float = 1.0,
        *,
        loss: str = "hinge",
        solver: str = "newton",
        index: str = "auto",
        n_query: int = 1000,
        n_pilot: int | None = None,
        shrink: float = 1.0,
        block: int = 1_000_000,
        tol: float = 1e-3,
        max_iter: int = 300,
        fit_intercept: bool = True,
        class_weight: Any = None,
        warm_start: bool = False,
        init: LinearModel | None = None,
        callback: Callable[[Any, Iteration], Any] | None = None,
        random_state: Any = 0,
    ) -> None:
        self.C = C
        self.s = s
        self.loss = loss
        self.solver = solver
        self.index = index
        self.n_query = n_query
        self.n_pilot = n_pilot
        self.shrink = shrink
        self.block = block
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.init = init
        self.callback = callback
        self.random_state = random_state

    def _check_params(self) -> None:
        for name, least, most in (("C", 0.0, math.inf), ("tol", 0.0, 1.0)):
            value: Any = getattr(self, name)
            if not isinstance(value, Real) or not least < float(value) < most:
                raise ValueError(f"`{name}` must be a number between {least:g} and {most:g}, got {value!r}")
        for name in ("s", "shrink"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not float(value) >= 0.0:
                raise ValueError(f"`{name}` must be a number, 0 or more, got {value!r}")
        for name in ("n_query", "n_pilot", "block", "max_iter"):
            value = getattr(self, name)
            if name == "n_pilot" and value is None:
                continue
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"`{name}` must be an integer of at least 1, got {value!r}")
        choices_of = {
            "loss": ("hinge", "squared_hinge"),
            "solver": ("newton", "dual"),
            "index": ("auto", "scan", "forest"),
        }
        for name, choices in choices_of.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"`{name}` must be one of {', '.join(choices)}, got {getattr(self, name)!r}")

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X
            Rows, shape (n, d): an array, CSR, or a data frame; or a `MetricForest`.
        y
            n labels of at least two classes, in the order of the rows in their source; None for those of the forest.
        sample_weight
            n weights, 0 or more, in that order; a row of weight 2 counts as two rows. None for 1 each.

        Raises
        ------
        ValueError
            For NaN, infinities, negative weights, a single class, or parameters that cannot be.
        """
        return super().fit(X, y, sample_weight)

    def _prepare(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Ints, Floats]:
        """Weights are those of a sum here, not of a mean."""
        if isinstance(X, MetricForest):
            return self._prepare_forest(X, y, sample_weight)
        X, codes, weights = super()._prepare(X, y, sample_weight)
        total = len(codes) if sample_weight is None else float(_check_sample_weight(sample_weight, X).sum())
        return X, codes, self._times_C(weights, total)

    def _prepare_forest(self, forest: MetricForest, y: Any, sample_weight: Any) -> tuple[Any, Ints, Floats]:
        """Labels and weights by row of the source, or the forest's own, by position."""
        self._statistics = None
        n, d = forest.shape
        if y is None:
            check_classification_targets(np.asarray(forest.classes))
            codes = self._encode(np.asarray(forest.classes)).astype(forest.codes.dtype)[forest.codes]
        else:
            y = np.asarray(y)
            if y.shape != (n,):
                raise ValueError(f"the index has {n} rows, `y` has shape {y.shape}: give one label a row")
            check_classification_targets(y)
            codes = self._encode(y).astype(np.min_scalar_type(len(self.classes_)))[forest.ids]
        weights = np.ones(n)
        if sample_weight is not None:
            weights = np.array(sample_weight, np.float64)[forest.ids]
            if weights.shape != (n,) or not (np.isfinite(weights).all() and weights.min() >= 0.0):
                raise ValueError(f"`sample_weight` must be {n} finite numbers, 0 or more")
        total = float(weights.sum())
        weights = self._by_class(codes, weights)
        weights = self._times_C(weights, total)
        self.n_features_in_ = d
        return forest, codes, weights.astype(forest.precision, copy=False)

    def _times_C(self, weights: Floats, total: float) -> Floats:
        """What the loss of each row is multiplied by, whose weights are given as those of a mean."""
        largest = float(weights.max()) * total * self.C
        check_scale("`C` times the largest weight of a row", largest, "rescale `C`, `sample_weight` or `class_weight`")
        return weights * (self.C * total)

    def _solve(self, X: Any, codes: Ints, weights: Floats, progress: Progress) -> Solution:
        rows: Rows = X if isinstance(X, MetricForest) else MemoryRows(X)
        if self.index == "forest" and isinstance(rows, MemoryRows):
            rows = MetricForest.build(X)
            assert isinstance(rows, MetricForest)
            codes, weights = codes[rows.ids], weights[rows.ids]
        n, d = rows.shape
        held = PER_ROW[self.solver] * n + 32.0 * (min(d, LARGEST_SYSTEM) + 1) ** 2
        with rows.lend(held, KEPT[self.solver]) as memory:
            return self._solve_all(rows, codes, weights, progress, memory)

    def _solve_all(self, rows: Rows, codes: Ints, weights: Floats, progress: Progress, memory: float) -> Solution:
        """The problems of all classes, with so many bytes of rows in memory beside those that `rows` holds."""
        positives = [1] if len(self.classes_) == 2 else list(range(len(self.classes_)))
        shape = len(positives), rows.shape[1]
        start = self._start(shape)
        # Problems not begun yet stand at zero, where each row's loss is one.
        points = [Point(np.zeros(shape[1] + 1), np.empty(0), float(weights.sum()), float(weights.sum()))] * shape[0]
        n_iter = 0
        for k, positive in enumerate(positives):
            y = np.where(codes == positive, np.int8(1), np.int8(-1))
            task = Task(y, weights, self.loss == "squared_hinge", 1.0 + self.s, float(self.fit_intercept))
            w = None
            if start is not None:
                w = np.append(start[0][k], start[1][k] * task.constant)

            def report(point: Point, k: int = k) -> bool:
                nonlocal n_iter
                points[k] = point
                n_iter += 1
                return progress(sum(p.objective for p in points), sum(p.gap for p in points))

            if not progress.is_stopped:
                points[k] = self._solve_one(rows, task, w, report, memory)
        attributes = {
            "coef_": np.array([p.w[:-1] for p in points]),
            "intercept_": np.array([p.w[-1] for p in points]),
            "n_support_": np.array([p.n_support for p in points]),
            "n_outliers_": np.array([p.n_out for p in points]),
        }
        objective, gap = sum(p.objective for p in points), sum(p.gap for p in points)
        return Solution(attributes, objective, gap, n_iter, self._warning(points, n_iter, progress.is_stopped))

    def _generator(self) -> np.random.Generator:
        seed = self.random_state
        if isinstance(seed, np.random.RandomState):
            return np.random.default_rng(seed.randint(2**31))
        return np.random.default_rng(seed)

    def _solve_one(self, rows: Rows, task: Task, w: Floats | None, report: Report, memory: float) -> Point:
        rng = self._generator()
        n_pilot = fitting(rows, PILOT, PILOT_BYTES) if self.n_pilot is None else self.n_pilot
        newton = Newton(rows, EPS_ALL, self.tol, self.max_iter, rng, memory=memory)
        if w is None:
            w = pilot(newton, task, n_pilot)
            if (
                isinstance(rows, MetricForest)
                and task.ceiling < math.inf
                and self._is_index_worth(newton, task, w, n_pilot)
            ):
                w = on_index(newton, task, rows, w, n=self.n_query, n_pilot=n_pilot, shrink=self.shrink)
        if self.solver == "newton":
            if task.ceiling == math.inf:
                return newton.convex(task, w, report)
            if isinstance(rows, MetricForest):
                return newton.by_working_sets(task, w, self.shrink, report)
            return newton.truncated(task, w, report)
        return dual_rounds(
            rows,
            task,
            w,
            shrink=self.shrink,
            block=max(1, int(min(self.block, ALONE * memory / max(1.0, rows.row_bytes)))),
            tol=self.tol,
            max_rounds=self.max_iter,
            rng=rng,
            report=report,
        )

    def _is_index_worth(self, newton: Newton, task: Task, w: Floats, n: int) -> bool:
        """Whether to search near the hyperplane before all rows are gone through."""
        rows = newton.rows
        assert isinstance(rows, MetricForest)
        if self.index != "auto":
            return bool(self.index == "forest")
        if not rows.is_costly:
            return False
        positions = rows.sample(fitting(rows, n, ALONE * newton.memory), newton.rng)
        X = rows.take(positions)
        near = float(np.mean(np.abs(scores_of(X, w)) <= task.reach + self.shrink))
        is_apart = near * rows.shape[0] <= most_apart(rows, NEXT * newton.memory)
        return share_needed(rows, task, w, positions, X) <= (BORDER if is_apart else BORDER_MANY)

    def _warning(self, points: list[Point], n_iter: int, stopped: bool) -> str:
        worst = max(point.gap / max(point.objective, 1e-300) for point in points)
        if worst <= self.tol:
            return ""
        if stopped:
            return f"IndexedBCD was stopped by its callback with a relative duality gap of {worst:.1e}"
        return (
            f"IndexedBCD stopped after {n_iter} rounds with a relative duality gap of {worst:.1e} where "
            f"tol={self.tol:g} was asked for: raise max_iter={self.max_iter} or tol, or scale X"
        )


# The index -------------------------------------------------------------------------------------------------------


def share_needed(index: Index, task: Task, w: Floats, positions: Ints, X: Any) -> float:
    """The share of the rows in leaves that a search visits for 95 % of the rows in range, by a sample of the rows."""
    in_range = np.abs(scores_of(X, w)) <= task.reach
    away = np.abs(index.leaf_scores(w))
    if not in_range.any():
        return 0.0
    farthest = np.quantile(away[index.leaf_of(positions[in_range])], 0.95)
    return float(np.diff(index.starts)[away <= farthest].sum() / index.shape[0])


def scores_of(X: Any, w: Floats) -> Floats:
    """w . x + b of rows."""
    scores: Floats = np.asarray(X @ w[:-1], np.float64) + w[-1]
    return scores


def on_index(newton: Newton, task: Task, index: Index, w: Floats, *, n: int, n_pilot: int, shrink: float) -> Floats:
    """Rounds on a working set that grows by the rows near the hyperplane, leaf by leaf.

    Each query visits the leaves with the nearest means that were not visited before, until it finds as many rows in
    range as the working set has, at least `n`. Rows in range, or short of it by `shrink`, join the working set, other
    rows of those leaves do not count until all rows are looked at again. A sample stands for the rows of leaves not
    visited yet. It ends when of the rows a query traversed fewer than n / |D| were in range, or the memory is full.
    """
    most = TWICE * newton.memory
    sample = index.sample(fitting(index, n_pilot, most), newton.rng)
    X_sample = index.take(sample)
    leaf_of_sample = index.leaf_of(sample)
    leaf_weight = np.add.reduceat(task.c, index.starts[:-1], dtype=np.float64)
    is_visited = np.zeros(index.n_leaves, bool)
    chunk = max(16, index.n_leaves // 64)
    parts: list[Any] = []
    positions: list[Ints] = []
    n_kept = 0
    is_last = False
    while not is_last:
        away = np.where(is_visited, np.inf, np.abs(index.leaf_scores(w)))
        order = np.argsort(away)[: np.count_nonzero(~is_visited)]
        wanted, n_found = max(n, n_kept), 0
        # Some leaves at once, so that they are read in the order of the disk.
        for first in range(0, len(order), chunk):
            found = seen = 0
            for part, X in index.leaves(order[first : first + chunk]):
                z = scores_of(X, w)
                is_near = np.abs(z) <= task.reach + shrink
                near, far = np.flatnonzero(is_near), np.flatnonzero(~is_near)
                newton.fixed += task.loss(z[far], part.start + far)
                found += int(np.count_nonzero(np.abs(z) <= task.reach))
                seen += len(z)
                parts.append(X[near])
                positions.append(part.start + near)
                n_kept += len(near)
                is_visited[index.leaf_of(part.start) : index.leaf_of(part.stop - 1) + 1] = True
                is_last = n_kept * index.row_bytes > most
                if is_last:
                    break
            n_found += found
            is_last |= found < seen * n / index.shape[0]
            if is_last or n_found >= wanted:
                break
        is_last |= bool(is_visited.all())
        left = ~is_visited[leaf_of_sample]
        c = np.where(left, task.c[sample].astype(np.float64), 0.0)
        c *= leaf_weight[~is_visited].sum() / c.sum() if c.any() else 0.0
        kept = np.concatenate(positions)
        rows = MemoryRows(stack([*parts, X_sample[np.flatnonzero(left)]], index.shape[1]))
        weights = np.concatenate([task.c[kept].astype(np.float64), c[left]])
        working = task.at(np.concatenate([kept, sample[left]]), weights)
        rounds = newton.max_rounds if is_last else ROUNDS_ON_INDEX
        inner = replace(newton, rows=rows, tol=0.5 * newton.tol, max_rounds=rounds)
        w = inner.truncated(working, w, lambda _: False).w
    newton.eps, newton.weight, newton.radius, newton.fixed = inner.eps, inner.weight, inner.radius, 0.0
    return w


def fitting(rows: Rows, n: int, memory: float) -> int:
    """How many of n rows fit."""
    return max(1, int(min(n, memory / max(1.0, rows.row_bytes))))


def pilot(newton: Newton, task: Task, n: int) -> Floats:
    """A solution for n rows, with a convex loss first; `newton` is left as it should go on with all rows.

    Truncated losses start from the squared hinge. With many wrong labels the solution for the hinge has so wide a
    margin that hardly a row is an outlier, and rounds would stay by it; that of the squared hinge still has the right
    direction, and which length suits the truncated losses a look at the same scores tells.
    """
    positions = newton.rows.sample(fitting(newton.rows, n, ALONE * newton.memory), newton.rng)
    c = task.c[positions].astype(np.float64)
    w = np.zeros(newton.rows.shape[1] + 1)
    if not c.any():
        return w
    is_truncated = task.ceiling < math.inf
    part = task.at(positions, c * (float(task.c.sum(dtype=np.float64)) / c.sum()))
    sample = MemoryRows(newton.rows.take(positions))
    on_sample = Newton(sample, EPS_FIRST, TOL_PILOT, 30, newton.rng, memory=newton.memory)
    at = on_sample.convex(replace(part, ceiling=math.inf, squared=part.squared or is_truncated), w)
    newton.eps = max(on_sample.eps, EPS_WARM)
    if is_truncated:
        newton.eps = EPS_ALL
        norm = 0.5 * float(at.w @ at.w)
        length = min(LENGTHS, key=lambda t: norm * t * t + part.loss(t * at.z))
        rounds = Newton(sample, EPS_ALL, TOL_ROUNDS, 100, newton.rng, memory=newton.memory)
        at = rounds.truncated(part, length * at.w, lambda _: False)
    newton.weight = at.weight
    return at.w
