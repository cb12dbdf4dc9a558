"""What a monitor of features reports, and what it does not depend on."""

from __future__ import annotations

import datetime
import json
import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from scipy.sparse import csr_array

from connectors.events import SparseRows
from streamsvm import FeatureMonitor
from streamsvm.models import ArchiveError
from streamsvm.models.archive import read_archive, write_archive
from streamsvm.monitor import Profile
from streamsvm.monitor.bins import Bins, count_blocks, fit_bins
from streamsvm.monitor.positions import ABOVE, BELOW, MISSING, N_CUTS, REPEATS, TOTAL, TYPE
from streamsvm.parameters import ParameterError
from tests.errors import raises


def columns(rng, n):
    """Two related numbers, a count, and a category."""
    size = rng.normal(size=n)
    return {
        "size": size,
        "weight": 0.6 * size + 0.8 * rng.normal(size=n),
        "count": rng.poisson(2.0, n),
        "color": rng.choice(["red", "green", "blue"], n, p=[0.6, 0.3, 0.1]),
    }


def every(n, values, other):
    """Replace one value in n."""
    return [other(value) if i % n == 0 else value for i, value in enumerate(values.tolist())]


@pytest.mark.parametrize(
    ("column", "kind", "change"),
    [
        pytest.param("size", "stuck", lambda x: np.full(len(x), x[0]), id="sensor stuck"),
        pytest.param("size", "range", lambda x: x * 1000.0, id="unit"),
        pytest.param("size", "missing", lambda x: np.array(every(3, x, lambda _: math.nan)), id="missing"),
        pytest.param("size", "type", lambda x: every(3, x, str), id="texts"),
        pytest.param("color", "unseen", lambda x: every(4, x, lambda _: "violet"), id="unseen"),
        pytest.param("color", "distribution", lambda x: every(2, x, lambda _: "blue"), id="shares"),
        pytest.param("size", "distribution", lambda x: x + 1.0, id="mean"),
        pytest.param("size", "distribution", lambda x: x * 1.5, id="scale"),
        pytest.param(("size", "weight"), "relation", lambda x: -x, id="correlation"),
    ],
)
def test_each_change_has_one_alarm_and_recovers(column, kind, change):
    rng, monitor = np.random.default_rng(0), FeatureMonitor(reference=4096)
    monitor.learn_many(columns(rng, 8192))
    assert not monitor.drift_detected
    X = columns(rng, 4096)
    changed = "weight" if kind == "relation" else column
    X[changed] = change(X[changed])
    monitor.learn_many(X)
    assert monitor.drift_detected
    assert [(alarm.column, alarm.kind) for alarm in monitor.alarms] == [(column, kind)]
    (alarm,) = monitor.alarms
    assert 8192 < alarm.event <= 8192 + 1024
    assert alarm.since <= 8192 + 512
    assert 0.0 < alarm.evidence < 1e-6
    json.dumps(alarm.as_dict(), allow_nan=False)
    if alarm.kind == "unseen":
        assert alarm.after["examples"] == ["violet"]
    assert monitor.changed_relations() == ([alarm.column] if alarm.kind == "relation" else [])
    if alarm.kind != "relation":
        changed = {state.name: state.changed for state in monitor.columns() if state.changed}
        assert list(changed) == [alarm.column]
    monitor.learn_many(columns(rng, 32_768))
    assert not any(state.changed for state in monitor.columns())
    assert not monitor.changed_relations()
    monitor.learn_many(X)
    assert monitor.n_alarms == 2


def test_a_column_that_relearns_has_an_alarm_for_each_change():
    rng, monitor = np.random.default_rng(0), FeatureMonitor(reference=1024, reset="after_alarm")
    for mean in (0.0, 3.0, 6.0, 3.0):
        monitor.learn_many({"size": rng.normal(size=8192) + mean})
    assert [round(alarm.after["mean"]) for alarm in monitor.alarms] == [3, 6, 3]


def test_a_change_of_missing_values_does_not_hide_one_of_the_distribution():
    rng, monitor = np.random.default_rng(0), FeatureMonitor(reference=4096)
    monitor.learn_many({"size": rng.normal(size=8192)})
    holes = np.where(rng.random(16_384) < 0.3, math.nan, rng.normal(size=16_384))
    monitor.learn_many({"size": holes})
    assert [alarm.kind for alarm in monitor.alarms] == ["missing"]
    monitor.learn_many({"size": holes + 1.0})
    assert [alarm.kind for alarm in monitor.alarms] == ["missing", "distribution"]


def test_a_sliding_reference_accepts_slow_changes_and_has_one_alarm_for_each_sudden_one():
    rng, n = np.random.default_rng(0), 30_000
    monitor = FeatureMonitor(reference=1024, reset="sliding")
    slow = np.linspace(0.0, 3.0, n)
    fast = np.where(np.arange(n) < 20_300, 0.0, 2.0)
    sites = np.where(rng.random(n) < slow / 3.0, "north", "south")
    monitor.learn_many({"slow": rng.normal(size=n) + slow, "fast": rng.normal(size=n) + fast, "site": sites})
    assert [alarm.column for alarm in monitor.alarms] == ["fast"]
    assert 20_300 < monitor.alarms[0].event < 20_600
    means = {column.name: column.counts[TOTAL] / column.n_events for column in monitor.profile().columns}
    assert means["slow"] > 2.5
    assert means["fast"] > 1.8


@pytest.mark.parametrize("reset", ["never", "sliding"])  # which also learns anew after alarms
def test_results_do_not_depend_on_batches_and_continue_after_loading(reset, tmp_path):
    rng = np.random.default_rng(3)
    events = []
    for i in range(7000):
        x = {"a": rng.normal() + 1.5 * (i > 4000), "b": int(rng.integers(4)), "k": "xyz"[rng.integers(3)]}
        x["c"] = x["a"] + rng.normal() if i < 3000 else rng.normal()
        if i > 1500:
            x["late"] = rng.random()
        if i % 7 == 0:
            del x["a"]
        if i > 5000:
            x["k"] = "w"
        if i > 6000 and i % 3 == 0:
            x["b"] = "oops"
        events.append(x)
    single, whole, cut = (FeatureMonitor(reference=1024, reset=reset) for _ in range(3))
    detected = []
    for x in events:
        single.update(x)
        detected.append(single.drift_detected)
    whole.learn_many(events)
    at = 0
    for i, k in enumerate([*rng.integers(1, 700, 20).tolist(), len(events)]):
        cut.learn_many(events[at : at + k])
        at += k
        if i % 3 == 0:
            cut.save(tmp_path / "monitor", overwrite=True)
            cut = FeatureMonitor.load(tmp_path / "monitor")
    few = {"relation"} if reset == "sliding" else set()  # a sliding reference begins anew shortly after its change
    assert {alarm.kind for alarm in single.alarms} | few == {"relation", "distribution", "unseen", "type"}
    assert np.flatnonzero(detected).tolist() == sorted({alarm.event - 1 for alarm in single.alarms})
    for other in (whole, cut):
        assert (other.alarms, other.columns(), other.n_events) == (single.alarms, single.columns(), single.n_events)


def test_forms_of_events_give_the_same_results():
    X = np.random.default_rng(0).normal(size=(3000, 3))
    X[2000:, 1] += 2.0
    names = ["0", "1", "2"]
    forms = {
        "dicts": [dict(zip(names, row, strict=True)) for row in X.tolist()],
        "frame": pl.DataFrame(X, schema=names),
        "columns": dict(zip(names, X.T, strict=True)),
        "array": X,
        "sparse": csr_array(X),
        "rows": SparseRows(np.arange(0, 9001, 3), np.tile(np.arange(3), 3000), X.ravel()),
    }
    found = {}
    for form, rows in forms.items():
        monitor = FeatureMonitor(reference=1024)
        monitor.learn_many(rows)
        found[form] = [(str(alarm.column), alarm.event, alarm.before, alarm.after) for alarm in monitor.alarms]
    assert len(found["dicts"]) == 1
    assert all(alarms == found["dicts"] for alarms in found.values()), found


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([2, 50, 10_000]))
def test_counts_are_those_of_numpy(seed, n_different):
    rng = np.random.default_rng(seed)
    first, values = (np.round(rng.normal(size=n) * n_different) / 7.0 for n in (512, 256))
    values[rng.random(256) < 0.1] = math.nan
    values[rng.random(256) < 0.02] = math.inf
    texts = np.where(np.isnan(values) & (rng.random(256) < 0.5), "text", None)
    profile = fit_bins("x", first, None)
    bins = Bins()
    bins.put(0, profile)
    counts, _ = count_blocks(bins, values[None], {0: texts}, np.array([values[0]]))
    for block, own, words in zip(counts[:, 0], values.reshape(-1, 64), texts.reshape(-1, 64), strict=True):
        assert block[:N_CUTS].tolist() == [(own <= cut).sum() for cut in profile.cuts]
        assert block[[BELOW, ABOVE]].tolist() == [(own < first.min()).sum(), (own > first.max()).sum()]
        assert block[TYPE] == sum(word is not None for word in words)
        assert block[MISSING] == np.isnan(own).sum() - block[TYPE]
        assert math.isclose(
            block[TOTAL], own[np.isfinite(own)].sum(), abs_tol=1e-6 * np.abs(own[np.isfinite(own)]).sum()
        )
    assert counts[:, 0, REPEATS].sum() == (values == np.concatenate([values[:1], values[:-1]])).sum()


def of_three(X):
    X[:, 2] = np.abs(X[:, 2]) * np.sign(X[:, 0] * X[:, 1])


def of_a_square(X):
    X[:, 1] = special.ndtri(special.ndtr(np.abs(X[:, 0])) * 2.0 - 1.0)


@pytest.mark.parametrize(("change", "columns"), [(of_three, (0, 1, 2)), (of_a_square, (0, 1))])
def test_relations_are_compared_beyond_columns_and_correlations(change, columns):
    rng, monitor = np.random.default_rng(0), FeatureMonitor(reference=2048)
    monitor.learn_many(rng.normal(size=(4096, 4)))
    restored = FeatureMonitor.from_state(*monitor.state())
    X = rng.normal(size=(2048, 4))
    change(X)
    monitor.learn_many(X)
    restored.learn_many(X)
    assert [(alarm.kind, alarm.column) for alarm in monitor.alarms] == [("relation", columns)]
    (alarm,) = monitor.alarms
    assert alarm.event <= 4096 + 512
    assert len(alarm.after["conditions"]) == len(columns)
    assert abs(alarm.after["odd_share"] - alarm.before["odd_share"]) > 0.15
    assert restored.alarms == monitor.alarms


def test_false_alarms_are_below_the_stated_rate():
    rate, n, found = 200.0, 1 << 16, 0
    for seed in range(6):
        rng, monitor = np.random.default_rng(seed), FeatureMonitor(reference=4096, false_alarms=rate)
        monitor.learn_many(rng.standard_t(2, size=(n, 3)) if seed % 2 else rng.poisson(1.0, size=(n, 3)))
        found += monitor.n_alarms
    assert found <= rate * 1e-6 * 6 * n


def test_a_random_walk_is_dependent_and_raises_no_alarms_of_values():
    walk = np.cumsum(np.random.default_rng(0).normal(size=65_536))
    monitor = FeatureMonitor(reference=8192)
    monitor.learn_many({"walk": walk})
    assert ([state.status for state in monitor.columns()], monitor.alarms) == (["dependent"], [])
    monitor.learn_many({"walk": np.full(4096, math.nan)})
    assert [alarm.kind for alarm in monitor.alarms] == ["missing"]


def test_counters_and_dates_are_dependent_even_in_the_smallest_reference():
    i = np.arange(8192)
    days = np.datetime_as_string(np.datetime64("2026-01-01") + i // 300)
    slow = 20.0 + 8.0 * np.sin(i / 1400.0)
    monitor = FeatureMonitor(reference=256)
    monitor.learn_many({"row": i, "at": 1.7e9 + 10.0 * i, "day": days, "slow": slow, "saw": i % 100})
    assert ({state.status for state in monitor.columns()}, monitor.alarms) == ({"dependent"}, [])


DAY = datetime.datetime(2026, 1, 1, 12)
FORMATS = {
    "iso to local": (lambda day: day.strftime("%Y-%m-%d"), lambda day: day.strftime("%d.%m.%Y")),
    "iso to milliseconds": (lambda day: day.isoformat(), lambda day: int(1000 * day.timestamp())),
    "utc to local": (lambda day: day.isoformat() + "Z", lambda day: day.isoformat() + "+02:00"),
    "object to iso": (lambda day: day, lambda day: day.isoformat()),
    "iso to object": (lambda day: day.isoformat(), lambda day: day),
    "decimal comma": (lambda day: day.hour + 0.5, lambda day: f"{day.hour},5"),
    "number to text": (lambda day: day.hour, lambda day: str(day.hour)),
    "text to number": (lambda day: f"{day:%a}", lambda day: day.weekday()),
    "text to text": (lambda day: str(day.hour > 12), lambda day: "yes" if day.hour > 12 else "no"),
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_changed_format_raises_one_alarm(name):
    rng, monitor = np.random.default_rng(0), FeatureMonitor(reference=512)
    days = [DAY + datetime.timedelta(hours=int(i)) for i in rng.integers(0, 8000, 1536)]
    before, after = FORMATS[name]
    for i, day in enumerate(days):
        monitor.update({"v": before(day) if i < 1024 else after(day)})
    (alarm,) = monitor.alarms
    assert alarm.kind == ("unseen" if name in ("object to iso", "text to text") else "type")
    assert alarm.event == 1088
    assert alarm.after["examples"]


def test_a_code_outside_the_range_is_no_stuck_sensor():
    x = np.random.default_rng(0).normal(size=4096)
    x[3072:] = -999.0
    monitor = FeatureMonitor(reference=2048)
    monitor.learn_many({"x": x})
    assert [alarm.kind for alarm in monitor.alarms] == ["range"]


def test_a_profile_raises_no_alarm_on_its_own_stream():
    rng, n = np.random.default_rng(0), 8192
    i = np.arange(n)
    X = {
        "order": np.char.add("ORD-", i.astype(str)),
        "session": np.char.add("s", (i // 7).astype(str)),
        "guest": np.where(rng.random(n) < 0.6, "guest", np.char.add("s", (i // 7).astype(str))),
        "user": np.char.add("u", np.minimum(rng.zipf(1.3, n), 1 << 40).astype(str)),
        "rare": np.where(rng.random(n) < 0.998, "usual", np.char.add("r", i.astype(str))),
        "day": np.datetime_as_string(np.datetime64("2026-01-01") + i // 300),
        "row": i,
        "left": n - i,
        "at": 1.7e9 + 10.0 * i,
        "size": rng.normal(size=n),
    }
    history, later = FeatureMonitor(reference=n), FeatureMonitor(reference=1_000_000)
    history.learn_many(X)
    later.learn_many(X)
    for profile in (history.profile(), later.profile()):
        monitor = FeatureMonitor(reference=profile)
        monitor.learn_many(X)
        assert monitor.alarms == []
        not_compared = {column.name for column in profile.columns if not column.is_compared}
        assert not_compared == {"order", "session", "day", "row", "left", "at"}
        monitor.learn_many({name: np.full(512, "new") for name in ("guest", "user", "rare")})
        assert {alarm.column for alarm in monitor.alarms} >= {"guest", "user", "rare"}


def test_a_profile_is_a_reference_for_other_streams(tmp_path):
    rng, monitor = np.random.default_rng(0), FeatureMonitor(reference=4096)
    monitor.learn_many(columns(rng, 4096))
    monitor.profile().save(tmp_path / "profile.json")
    profile = Profile.load(tmp_path / "profile.json")
    assert profile.as_dict() == monitor.profile().as_dict()
    other, X = FeatureMonitor(reference=profile), columns(rng, 1024)
    X["size"] += 2.0
    other.learn_many(X)
    assert [(alarm.column, alarm.kind) for alarm in other.alarms] == [("size", "distribution")]
    assert other.alarms[0].event == 64


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda given: given.update(format="x"), "foreign"),
        (lambda given: given.update(version=9), "version"),
        (lambda given: given.pop("columns"), "damaged"),
        (lambda given: given["columns"][0].update(counts=[1.0]), "content"),
        (lambda given: given["columns"][0].update(n_events=-1), "content"),
        (lambda given: given["columns"].append(given["columns"][0]), "content"),
        (lambda given: given["columns"][0]["design"].pop(), "content"),
    ],
)
def test_a_damaged_profile_is_refused(damage, reason, tmp_path):
    monitor = FeatureMonitor(reference=256)
    monitor.learn_many(np.random.default_rng(0).normal(size=(256, 2)))
    given = monitor.profile().as_dict()
    damage(given)
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(given))
    with pytest.raises(ArchiveError) as caught:
        Profile.load(path)
    assert caught.value.reason == reason
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("n", [63, 64 * 50])
def test_first_values_that_are_not_whole_blocks_are_refused(n, tmp_path):
    monitor, path = FeatureMonitor(reference=1024), tmp_path / "monitor.svm"
    monitor.learn_many(np.random.default_rng(0).normal(size=(100, 1)))
    monitor.save(path)
    header, arrays = read_archive(path)
    write_archive(path, header, arrays | {"state.first.0": np.zeros(n)})
    with pytest.raises(ArchiveError, match="do not fit together"):
        FeatureMonitor.load(path)


def test_a_file_that_is_not_json_is_refused(tmp_path):
    path = tmp_path / "profile.json"
    path.write_bytes(b"\xff{")
    with pytest.raises(ArchiveError) as caught:
        Profile.load(path)
    assert caught.value.reason == "damaged"


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("reference", 10),
        ("reference", "p.json"),
        ("reset", "always"),
        ("false_alarms", 0.0),
        ("columns", "size"),
        ("columns", []),
        ("seed", -1),
    ],
)
def test_a_wrong_parameter_is_refused(parameter, value):
    with raises(ParameterError, parameter=parameter):
        FeatureMonitor(**{parameter: value})


@pytest.mark.parametrize("rows", [[1, 2], "abc", np.zeros(3), {"a": [1.0], "b": [1.0, 2.0]}, [{math.nan: 1.0}] * 64])
def test_other_types_than_events_are_refused(rows):
    with pytest.raises((TypeError, ValueError)):
        FeatureMonitor().learn_many(rows)


@pytest.mark.filterwarnings("error")
def test_extreme_and_odd_values_are_counted():
    monitor = FeatureMonitor(reference=256)
    big = [1e308, -1e308, math.inf, 10**400, -(10**400)]
    odd = [b"x", (1, 2), [1, 2], np.True_, None]
    day = datetime.date(2026, 11, 28)
    monitor.learn_many([{"big": big[i % 5], "odd": odd[i % 5], 3: np.float32(1), "day": day} for i in range(2048)])
    kinds = {state.name: state.kind for state in monitor.columns()}
    assert kinds == {3: "number", "big": "number", "odd": "category", "day": "category"}
    assert monitor.alarms == []


def test_a_named_column_without_values_is_reported(caplog):
    monitor = FeatureMonitor(reference=256, columns=["size", "wight"])
    monitor.learn_many({"size": np.arange(256.0), "weight": np.arange(256.0)})
    assert "wight" in caplog.text
    assert [(state.name, state.kind, state.status) for state in monitor.columns()][1] == ("wight", "empty", "monitored")


@pytest.mark.parametrize("values", [np.arange(256.0), np.array(["a", "b"] * 128, object), np.full(256, np.inf)])
def test_values_in_a_column_that_was_empty_raise_one_alarm(values, tmp_path):
    monitor = FeatureMonitor(reference=512, columns=["size"])
    monitor.learn_many({"size": np.full(1024, np.nan)})
    assert monitor.alarms == []
    monitor.profile().save(tmp_path / "profile")
    of_profile = FeatureMonitor(reference=Profile.load(tmp_path / "profile"))
    for own in (monitor, of_profile):
        own.learn_many({"size": values})
        [alarm] = own.alarms
        assert (alarm.column, alarm.kind, alarm.since) == ("size", "missing", own.n_events - 256)
        assert alarm.after.keys() == {"missing"}


def test_a_column_with_late_first_values_learns_from_the_next_events():
    monitor = FeatureMonitor(reference=512, columns=["size"])
    monitor.learn_many({"size": np.where(np.arange(2048) < 400, np.nan, np.arange(2048.0) % 7)})
    [state] = monitor.columns()
    assert (state.kind, state.status, monitor.alarms) == ("number", "monitored", [])


def test_columns_are_chosen_by_name_or_are_the_first_thousand():
    X, few = np.random.default_rng(0).normal(size=(64, 1500)), FeatureMonitor(reference=256, columns=[7, 3])
    few.learn_many(X)
    assert [state.name for state in few.columns()] == [7, 3]
    many = FeatureMonitor()
    many.learn_many(X)
    assert (len(many.columns()), many.n_columns_left_out) == (1000, 500)


def test_quantiles_of_a_reference_are_those_of_its_values():
    rng = np.random.default_rng(0)
    x, k = rng.normal(size=2_000), rng.integers(0, 60, 2_000)
    monitor = FeatureMonitor(reference=2_000)
    monitor.learn_many(pl.DataFrame({"x": x, "k": k}))
    references = {column.name: column.reference for column in monitor.columns()}
    found, counted = references["x"], references["k"]
    assert found["median"] == pytest.approx(np.median(x[1_000:]), abs=0.1)
    assert found["p95"] == pytest.approx(np.quantile(x[1_000:], 0.95), abs=0.1)
    assert counted["median"] in k


def test_a_stream_may_begin_without_any_value():
    monitor = FeatureMonitor(reference=256)
    monitor.learn_many([{"size": None}, {}] * 64)
    monitor.learn_many([{"size": float(i % 7)} for i in range(512)])
    assert [(state.name, state.status) for state in monitor.columns()] == [("size", "monitored")]


def test_the_values_of_a_category_are_described_before_and_after():
    rng, names = np.random.default_rng(3), np.array(list("abcdef"), object)
    monitor = FeatureMonitor(reference=2_048)
    monitor.learn_many({"kind": rng.choice(names, 2_048, p=[0.18, 0.17, 0.17, 0.17, 0.16, 0.15])})
    monitor.learn_many({"kind": rng.choice(names, 2_048, p=[0.05, 0.06, 0.17, 0.17, 0.16, 0.39])})
    alarm, state = monitor.alarms[0], monitor.columns()[0]
    for before, after in (
        (alarm.before["values"], alarm.after["values"]),
        (state.reference["values"], state.recent["values"]),
    ):
        assert set(before) == set(after)
        assert 0.1 < before["f"] < 0.2 < after["f"]  # not 0 because five others were more frequent
