"""The estimator: parameters, rows and weights, and the way the problems are solved."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from streamsvm.batch.base import Iteration, LinearClassifier, Progress, Solution, check_scale, generator
from streamsvm.batch.indexed_bcd.dual import dual_rounds
from streamsvm.batch.indexed_bcd.newton import NEXT, Newton
from streamsvm.batch.indexed_bcd.problem import OnRound, Point, Task
from streamsvm.batch.indexed_bcd.start import ALONE, EPS_ALL, fitting, on_index, pilot, scores_of, share_needed
from streamsvm.batch.indexed_bcd.working_set import most_apart
from streamsvm.batch.linear_systems import BOUNDED_COPIES, LARGEST_BOUNDED_SYSTEM
from streamsvm.batch.matrix import Floats, Ints
from streamsvm.batch.metric_forest import MetricForest
from streamsvm.batch.rows import MemoryRows, Rows
from streamsvm.models import LinearModel
from streamsvm.parameters import check_between, check_choice, check_number

# A fit holds so many bytes for each row; of the memory that is left a share keeps rows that dual rounds come back to.
PER_ROW = {"newton": 40, "dual": 72}
KEPT = {"newton": 0.0, "dual": 0.3}
# The sample a fit starts on.
PILOT, PILOT_BYTES = 40_000, 64 << 20
# A search is worth its reads where they are of this share of the rows at most, with more where a scan has too many
# rows near the hyperplane to keep them apart.
BORDER, BORDER_MANY = 0.5, 0.75


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
        check_between("C", self.C, 0.0, math.inf)
        check_between("tol", self.tol, 0.0, 1.0)
        for name in ("s", "shrink"):
            if getattr(self, name) != math.inf:
                check_number(name, getattr(self, name), 0.0)
        for name in ("n_query", "block", "max_iter"):
            check_number(name, getattr(self, name), 1, whole=True)
        if self.n_pilot is not None:
            check_number("n_pilot", self.n_pilot, 1, whole=True)
        check_choice("loss", self.loss, ("hinge", "squared_hinge"))
        check_choice("solver", self.solver, ("newton", "dual"))
        check_choice("index", self.index, ("auto", "scan", "forest"))

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
        held = PER_ROW[self.solver] * n + 8.0 * BOUNDED_COPIES * (min(d, LARGEST_BOUNDED_SYSTEM) + 1) ** 2
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

    def _solve_one(self, rows: Rows, task: Task, w: Floats | None, report: OnRound, memory: float) -> Point:
        rng = generator(self.random_state)
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
