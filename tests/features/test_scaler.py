"""Online scaling, against a reference implementation that stores all values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.features import scaler as rows
from streamsvm.features import statistics, transform
from streamsvm.online.scaling import RANKED_MOST, new_rows
from tests.choices import each_choice

NAN = math.nan
SCALINGS = ("none", "standard", "decayed", "rank")


class TwinColumn:
    """One column, as documented."""

    def __init__(self, scaling: str, window: int, indicator: bool = False, spacing: int = 1) -> None:
        self.scaling, self.window, self.spacing, self.indicator = scaling, window, spacing, indicator
        self.values: list[float] = []
        self.kept: list[float] = []  # values in the sums since the last restart
        self.prior: list[float] = []
        self.born = self.missing = 0
        self.due = self.count = 0.0
        self.shift, self.scale = (0.0, 1.0) if scaling == "none" or indicator else (0.0, 0.0)
        self.centred = False
        self.anchor = self.ties = self.narrow = self.longest = self.outliers = 0.0
        self.began = 0

    def scaled(self, x: float) -> float:
        if self.scaling == "rank" and self.centred:
            values = self.values[self.began :]
            recent = np.array([*values[: self.window], *values[self.window :: self.spacing]][-self.window :])
            if len(recent) == 0:
                return 0.0
            below, equal = np.sum(recent < x), np.sum(recent == x)
            return float(((below + equal / 2.0) / len(recent) - 0.5) * math.sqrt(12.0))
        limit = math.inf if self.scaling == "none" else rows.CLIP
        z = (x - self.shift) * self.scale
        if self.is_far(x):
            farther = rows.FARTHER / math.sqrt(max(1.0 - self.ties, rows.LEAST_UNTIED))
            return math.copysign(limit * min(farther / abs(z), 1.0) ** 2, z)
        return min(max(z, -limit), limit)

    def is_far(self, x: float) -> bool:
        z = (x - self.shift) * self.scale
        return self.scaling != "none" and abs(z) > rows.FAR and len(self.values) >= rows.KNOWN

    def observe(self, x: float, seen: int) -> None:
        """Add a value of the event with index `seen`."""
        if not self.values:
            self.born = seen - 1
        if self.scaling != "none" and not self.indicator:
            if seen <= 64 or seen * 0x9E3779B1 % 2**32 < 2**30:
                self.watch(x, seen)
            if self.is_far(x) and not self.begins_anew(x, seen):
                self.values.append(x)
                return
            self.kept.append(x)
        self.values.append(x)
        if self.scaling != "none" and not self.indicator and len(self.values) >= self.due:
            self.renew(seen)

    def watch(self, x: float, seen: int) -> None:
        self.ties += (float(x == self.anchor) - self.ties) / 32
        distance = abs(x - self.anchor) * self.scale
        if distance == 0.0:
            return
        if distance >= statistics.NARROW:
            self.longest = max(self.longest, self.narrow)
        self.narrow += 1.0 if distance < statistics.NARROW else -statistics.NOT_NARROW
        if self.narrow < 0.0:
            self.anchor, self.narrow = x, 0.0
        share = statistics.NARROW_SHARE * (1.0 - self.ties) * self.total_weight()
        if self.narrow >= max(statistics.NARROW_MOST, min(statistics.NARROW_TIMES * self.longest, share)):
            self.longest = max(self.longest, 2.0 * self.narrow / statistics.NARROW_TIMES)
            self.restart(self.anchor, abs(x - self.anchor) / statistics.NARROW, seen)

    def begins_anew(self, x: float, seen: int) -> bool:
        """Count an outlier. Return whether the statistics restart."""
        untied = max(1.0 - self.ties, rows.LEAST_UNTIED)
        step, present = 1.0 / (statistics.LEAK * untied), len(self.values)
        self.outliers = max(self.outliers - present, 0.0) + step + 1.0 + present
        many = min(max(untied * self.total_weight() / 2, statistics.FEW_OUTLIERS), statistics.MANY_OUTLIERS)
        if self.outliers - present - 1.0 < many * step:
            return False
        self.restart(x, abs(x - self.shift), seen)
        return True

    def restart(self, shift: float, deviation: float, seen: int) -> None:
        self.kept, self.prior = [], [shift - deviation, shift + deviation]
        self.outliers = self.narrow = 0.0
        if len(self.values) - self.began >= statistics.MANY_RANKED:
            self.began = len(self.values) + 1
        self.renew(seen)

    def weights(self) -> Any:
        """Return the weights of the values in the sums, after those of the prior."""
        half_life = self.window if self.scaling == "decayed" else math.inf
        ages = np.arange(len(self.kept))[::-1]
        prior = statistics.PRIOR / 2 * 0.5 ** (len(self.kept) / half_life)
        return np.concatenate([np.full(len(self.prior), prior), 0.5 ** (ages / half_life)])

    def total_weight(self) -> float:
        return float(self.weights().sum())

    def renew(self, seen: int) -> None:
        values, weights = np.array(self.prior + self.kept), self.weights()
        mean = np.average(values, weights=weights)
        present, events = len(self.values), seen - self.born
        constant = len(set(values)) == 1
        self.centred = not (2 * present < events - self.missing or (present < events and constant))
        if not self.centred:
            self.shift, square = 0.0, np.average(values**2, weights=weights)
        else:
            self.shift, square = mean, np.average((values - mean) ** 2, weights=weights)
        self.scale = 0.0 if (constant and self.centred) or square == 0.0 else 1.0 / math.sqrt(square)
        self.due = present + min(max(self.total_weight() / 32, 1), 64)


class Twin:
    """Columns; NaN is a missing value, or an absent name if not `explicit`."""

    def __init__(
        self, scaling: str, window: int, indicators: Sequence[bool], spacing: int = 1, explicit: bool = True
    ) -> None:
        self.columns = [TwinColumn(scaling, window, indicator, spacing) for indicator in indicators]
        self.seen, self.explicit = 0, explicit

    def scaled(self, row: Sequence[float]) -> list[float]:
        """Return scaled values, 0 where missing."""
        pairs = zip(self.columns, row, strict=True)
        return [0.0 if math.isnan(x) else column.scaled(x) for column, x in pairs]

    def observe(self, row: Sequence[float]) -> None:
        self.seen += 1
        for column, x in zip(self.columns, row, strict=True):
            if not math.isnan(x):
                column.observe(x, self.seen)
            elif self.explicit and column.values:
                column.missing += 1


class Kernel:
    """The compiled scaling, with dense rows, or pairs without missing values."""

    def __init__(self, scaling: str, window: int, indicators: Sequence[bool], whole: bool, spacing: int = 1) -> None:
        self.rows = new_rows(len(indicators), scaling, window, spacing)
        self.rows.due[list(indicators)], self.rows.scale[list(indicators)] = -1.0, 1.0
        self.whole = whole

    def _entries(self, row: Sequence[float]) -> tuple[Any, ...]:
        values, columns = np.array(row, float), np.arange(len(row))
        if not self.whole:
            present = ~np.isnan(values)
            values, columns = values[present], columns[present]
        return self.rows, values, columns

    def load(self, row: Sequence[float]) -> int:
        return int(transform.load_row(*self._entries(row)))

    def scaled(self, row: Sequence[float]) -> list[float]:
        m = self.load(row)
        assert m >= 1
        weight_rows = (self.rows.all_rows if self.rows.in_order else self.rows.own_rows)[:m]
        out = np.zeros(len(row) + 1)
        out[weight_rows] = self.rows.scaled[:m]
        assert weight_rows[0] == 0
        assert out[0] == 1.0  # the bias
        assert (np.diff(weight_rows) > 0).all()
        return out[1:].tolist()

    def observe(self, row: Sequence[float]) -> None:
        statistics.observe(*self._entries(row))

    def statistics(self) -> dict[str, Any]:
        """Return the statistics of the columns."""
        return {name: array for name, array in self.rows.saved().items() if name != "seen"}


def assert_like_twin(
    table: Sequence[Sequence[float]],
    scaling: str,
    window: int,
    indicators: Sequence[bool],
    whole: bool,
    spacing: int = 1,
) -> None:
    twin = Twin(scaling, window, indicators, spacing, explicit=whole)
    kernel = Kernel(scaling, window, indicators, whole, spacing)
    for row in table:
        np.testing.assert_allclose(kernel.scaled(row), twin.scaled(row), rtol=1e-7, atol=1e-7)
        twin.observe(row)
        kernel.observe(row)


# Quarters keep means and variances exact. Few distinct values give ties and constants.
cells = st.one_of(st.integers(-3, 3), st.integers(-4000, 4000), st.none())
tables = st.integers(1, 4).flatmap(
    lambda d: st.tuples(
        st.lists(st.lists(cells, min_size=d, max_size=d), max_size=60), st.lists(st.booleans(), min_size=d, max_size=d)
    )
)


@each_choice(("whole", [True, False]), ("scaling", SCALINGS))
@settings(max_examples=25)
@given(table=tables, window=st.sampled_from([2, 7, 100]), spacing=st.sampled_from([1, 4]))
def test_scaling_is_that_of_the_twin(scaling, whole, table, window, spacing):
    cells, indicators = table
    numbers = [
        [NAN if cell is None else 1.0 if one else cell / 4 for cell, one in zip(row, indicators, strict=True)]
        for row in cells
    ]
    assert_like_twin(numbers, scaling, window, indicators, whole, spacing)


@each_choice(("whole", [True, False]), ("scaling", SCALINGS))
def test_long_streams_with_missing_values_and_a_drift_are_scaled_like_the_twin(scaling, whole):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 5)) * [1.0, 1e-3, 1e4, 1.0, 1.0] + [0.0, 1e3, -1e6, 0.0, 7.0]
    X[300:, 0] += 5.0
    X[:, 3] = rng.integers(0, 4, 600)
    X[rng.random((600, 5)) < [0.0, 0.2, 0.45, 0.6, 0.9]] = NAN
    assert_like_twin(X[:420].tolist(), scaling, 50, [False] * 5, whole)


@each_choice(("decimals", [0, 1, 9]), ("looks", [0, 1, 2]))
def test_rows_are_ranked_column_by_column_however_many_are_searched_at_a_time(decimals, looks):
    rng = np.random.default_rng(decimals)
    table = rng.normal(size=(80, 11)).round(decimals)
    table[:, 0] = rng.choice([-0.0, 0.0, 1.0], 80)  # both zeros are the same
    table[rng.random(table.shape) < 0.2] = NAN  # so that columns fill up at different rows
    twin, kernel = Twin("rank", 17, [False] * 11), Kernel("rank", 17, [False] * 11, False)
    for row, other in zip(table, np.roll(table, 1, axis=0), strict=True):
        for seen in [row, other][:looks]:
            np.testing.assert_allclose(kernel.scaled(seen), twin.scaled(seen), rtol=1e-7, atol=1e-7)
        twin.observe(row)
        kernel.observe(row)
    np.testing.assert_array_equal(np.sort(kernel.rows.ring, axis=1), kernel.rows.ranks)
    np.testing.assert_allclose(kernel.scaled(table[0]), twin.scaled(table[0]), rtol=1e-7, atol=1e-7)


def test_columns_beyond_the_first_hundreds_are_standardised_instead_of_ranked():
    n = RANKED_MOST + 1
    kernel = Kernel("rank", 4, [False] * n, False)
    for i in range(50):
        kernel.observe([float(i % 2)] * n)
    scaled = kernel.scaled([1.0] * n)
    assert scaled[0] == pytest.approx(0.25 * math.sqrt(12.0))
    assert scaled[-1] == pytest.approx(1.0, rel=0.1)


@each_choice(("whole", [True, False]), ("bad", [math.inf, -math.inf, 1.1e100, -1.1e100]))
def test_values_too_large_are_refused_by_their_place(bad, whole):
    kernel = Kernel("standard", 0, [False] * 5, whole)
    assert kernel.load([1.0, 2.0, 3.0, bad, bad]) == -1 - 3
    assert kernel.load([NAN, 2.0, 3.0, bad, bad]) == -1 - (3 if whole else 2)


def test_the_largest_accepted_values_do_not_overflow():
    kernel = Kernel("standard", 0, [False], True)
    for i in range(100):
        kernel.observe([rows.LARGEST * (-1) ** i])
    assert all(np.isfinite(array).all() for array in kernel.statistics().values())
    assert kernel.scaled([rows.LARGEST])[0] == pytest.approx(1.0, rel=0.05)


class TestOutliers:
    """Values far outside the known range of a column."""

    RNG = np.random.default_rng(0)

    def fed(self, values: Any, scaling: str = "standard", whole: bool = True, kernel: Kernel | None = None) -> Kernel:
        kernel = kernel or Kernel(scaling, 1_000, [False], whole)
        for x in values:
            kernel.observe([float(x)])
        return kernel

    @each_choice(
        (("row", "size"), itertools.product([0, 1, 4, 49, 199, 1_999], [1e3, 1e12, 1e90])),
        (("burst", "scaling", "whole"), itertools.product([1, 50], ["standard", "decayed"], [True, False])),
    )
    def test_an_outlier_does_not_change_the_scale(
        self, row: int, size: float, burst: int, scaling: str, whole: bool
    ) -> None:
        values = self.RNG.normal(5.0, 2.0, row + 600)
        values[row : row + burst] = 2.0 * size * self.RNG.uniform(0.5, 1.0, burst)
        kernel = self.fed(values, scaling, whole)
        assert kernel.rows.scale[0] == pytest.approx(0.5, rel=0.3)
        assert kernel.rows.shift[0] == pytest.approx(5.0, abs=0.5)

    @pytest.mark.parametrize("share", [0.02, 0.05])
    def test_neither_do_sentinels_from_the_first_row_on(self, share: float) -> None:
        values = self.RNG.normal(5.0, 2.0, 1_000)
        kernel = self.fed(np.where(self.RNG.random(1_000) < share, -99_999.0, values))
        assert kernel.rows.scale[0] == pytest.approx(0.5, rel=0.3)
        assert abs(kernel.scaled([-99_999.0])[0]) < 0.1

    @pytest.mark.parametrize("factor", [1e-6, 1e-3, 1e3, 1e9])
    def test_other_units_are_followed_and_so_is_the_way_back(self, factor: float) -> None:
        values, kernel = self.RNG.normal(5.0, 2.0, 4_000), None
        values[1_000:2_500] *= factor
        for start, end, unit in ((0, 1_500, factor), (1_500, 2_500, factor), (2_500, 3_200, 1.0), (3_200, 4_000, 1.0)):
            kernel = self.fed(values[start:end], kernel=kernel)
            assert kernel.rows.scale[0] * unit == pytest.approx(0.5, rel=0.4)
            assert kernel.rows.shift[0] / unit == pytest.approx(5.0, abs=1.0)

    def test_another_level_far_away_is_followed(self) -> None:
        values = self.RNG.normal(size=1_000)
        values[500:] += 1e6
        kernel = self.fed(values)
        assert kernel.rows.shift[0] == pytest.approx(1e6, abs=0.5)
        assert kernel.rows.scale[0] == pytest.approx(1.0, rel=0.3)

    @pytest.mark.parametrize(
        "values",
        [
            pytest.param(RNG.exponential(size=5_000), id="exponential"),
            pytest.param(np.exp(1.5 * RNG.normal(size=5_000)), id="log-normal"),
            pytest.param(np.where(RNG.random(5_000) < 0.05, RNG.exponential(size=5_000), 0.0), id="mostly zero"),
            pytest.param(RNG.random(5_000) < 0.003, id="rare flag"),
            pytest.param(np.cumsum(RNG.normal(size=5_000)), id="random walk"),
            pytest.param(np.arange(5_000.0), id="trend"),
            pytest.param(np.linspace(0.1, 10.0, 5_000) * RNG.normal(size=5_000), id="growing spread"),
            pytest.param(1e9 + 1e-3 * RNG.normal(size=5_000), id="large offset, small spread"),
            pytest.param(np.sin(np.arange(20_000) * 2 * np.pi / 10_000), id="slow wave"),
        ],
    )
    def test_columns_without_outliers_are_scaled_by_mean_and_deviation(self, values: Any) -> None:
        kernel = self.fed(values)
        assert kernel.rows.shift[0] == pytest.approx(np.mean(values), rel=0.1, abs=0.1)
        assert kernel.rows.scale[0] == pytest.approx(1.0 / np.std(values), rel=0.05)

    def test_a_column_that_begins_constant_is_scaled_by_later_values(self) -> None:
        values = np.where(np.arange(1_500) < 1_000, 3.0, 3.0 + self.RNG.normal(size=1_500))
        assert self.fed(values).rows.scale[0] == pytest.approx(np.sqrt(3.0), rel=0.15)  # a third of the values varies

    def test_rare_nonzero_values_remain_outliers(self) -> None:
        kernel = self.fed(np.zeros(5_000))
        for x in (1.0, *[0.0] * 64):
            kernel.observe([x])
        assert kernel.scaled([1.0]) == kernel.scaled([20.0]) == [rows.CLIP]

    def test_far_beyond_the_values_other_than_zero_are_outliers_of_counts(self) -> None:
        kernel = self.fed(np.where(self.RNG.random(2_000) < 0.1, 3.0, 0.0))
        assert kernel.scaled([3.0])[0] == pytest.approx(3.0, rel=0.2)
        assert abs(kernel.scaled([1e6])[0]) < 0.1

    @pytest.mark.parametrize("n", [1_000, 6_000])
    def test_smaller_units_are_followed_within_500_values_however_many_came_before(self, n: int) -> None:
        values = self.RNG.normal(5.0, 2.0, n + 500)
        values[n:] /= 1e3
        assert self.fed(values).rows.scale[0] == pytest.approx(500.0, rel=0.2)

    def test_flags_in_other_units_are_followed_and_so_is_the_way_back(self) -> None:
        values = np.where(self.RNG.random(8_000) < 0.1, 1.0, 0.0)
        values[3_000:5_000] *= 1e3
        kernel = self.fed(values[:5_000])
        assert kernel.rows.scale[0] == pytest.approx(1.0 / 300.0, rel=0.3)
        kernel = self.fed(values[5_000:], kernel=kernel)
        assert kernel.rows.scale[0] == pytest.approx(1.0 / 0.3, rel=0.3)

    def test_ranks_are_among_values_of_the_new_unit(self) -> None:
        values = self.RNG.normal(5.0, 2.0, 1_500)
        values[1_000:] *= 1e-3
        kernel = self.fed(values, "rank", whole=False)
        assert kernel.scaled([5e-3])[0] == pytest.approx(0.0, abs=0.3)
        assert kernel.scaled([7e-3])[0] == pytest.approx(0.34 * math.sqrt(12.0), abs=0.3)
