"""Triggers: when a refit is due, for any batches and resumed streams."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import drift

from streamsvm.models.archive import CORRUPT_ERRORS, ArchiveError
from streamsvm.parameters import ParameterError
from streamsvm.refit import detectors
from streamsvm.refit.settings import decode_settings, encode_settings, trigger_of
from streamsvm.refit.triggers import (
    Every,
    EveryTime,
    FirstOf,
    Growing,
    OnDemand,
    OnDrift,
    Trigger,
    TriggerEvent,
    TriggerState,
)
from tests.errors import raises

NAN = math.nan
# An alarm at fixed events: the hundredth after the last, for any input.
EACH_100TH = drift.DummyDriftDetector(t_0=100, seed=1)


def saved(trigger: Trigger, running: TriggerState) -> TriggerState:
    resumed = trigger.begin()
    resumed.restore(json.loads(json.dumps(running.state(), allow_nan=False)))
    return resumed


def happenings(trigger, times, errors=None, cuts=(), asked=(), resume=False):
    """Return trigger events of a stream in batches, with requested refits."""
    times = np.asarray(times, float)
    errors = np.zeros(len(times)) if errors is None else np.asarray(errors, float)
    running, found = trigger.begin(), []
    ends = sorted({*cuts, *asked, len(times)})
    at = 0
    for end in ends:
        while at < end:
            if at in asked:
                running.request()
            seen = running.update(times[at:end], errors[at:end])
            at += seen.n
            if resume:
                running = saved(trigger, running)
            if seen.event is not TriggerEvent.NOTHING:
                found.append((at, seen.event.value))
    return found


def cut(at: int) -> tuple[int, str]:
    return at, "cut"


RARELY = OnDrift(drift.DummyDriftDetector(t_0=400, seed=1), gather=300)


@pytest.mark.parametrize(
    ("trigger", "times", "asked", "expected"),
    [
        (Every(3), 10, (), [3, 6, 9]),
        (Every(1), 3, (), [1, 2, 3]),
        (Growing(100, 2.0), 3200, (), [100, 300, 700, 1500, 3100]),
        (Growing(100, 2.0, most=250), 1000, (), [100, 300, 550, 800]),
        (Growing(10, 1.0), 35, (), [10, 20, 30]),
        (EveryTime(10.0), [0, 5, 9, 10, 15, 19, 20, 31, 32], (), [4, 7, 8]),
        (EveryTime(10.0), [NAN, 100, NAN, 109.5, NAN, 110.5, NAN], (), [6]),
        (EveryTime(10.0), [NAN] * 5, (), []),
        # Decreasing event time fires once; times that are no time are no progress.
        (EveryTime(10.0), [0, 10, 0, 10, 5, 12, -50, 19, 20, 20], (), [2, 9]),
        (EveryTime(10.0), [math.inf, 0, -math.inf, math.inf, 9, 10], (), [6]),
        # A drift alarm cuts, and fires when enough is gathered. An alarm during the collection restarts it.
        (OnDrift(EACH_100TH, gather=60), 270, (), [cut(100), 160, cut(200), 260]),
        (OnDrift(EACH_100TH, gather=150), 390, (), [cut(100), cut(200), cut(300)]),
        (FirstOf(RARELY, OnDrift(EACH_100TH, gather=1000)), 800, (), [cut(at) for at in range(100, 801, 100)]),
        (OnDemand(), 1000, (), []),
        (OnDemand(), 10, (3, 7), [4, 8]),
        (OnDemand(gather=3), 20, (3, 5, 12), [8, 15]),
        (FirstOf(Every(6), OnDemand(gather=3)), 20, (4,), [6, 7, 13, 19]),
        *((trigger, 60, (5,), [6]) for trigger in (Every(100), Growing(100), EveryTime(100.0), FirstOf(Every(90)))),
        (OnDrift(EACH_100TH), 60, (5,), [6]),
        # A demand at an alarm waits for the next event.
        (OnDrift(EACH_100TH, gather=150), 120, (99,), [cut(100), 101]),
        # The first of several fires, and all intervals begin anew.
        (FirstOf(Every(10), EveryTime(100.0)), [0, 1, 2, 3, 200, *range(201, 221)], (), [5, 15, 25]),
        (FirstOf(Growing(10, 2.0), Every(25)), 100, (), [10, 30, 55, 80]),
        (Every(10), 25, (4,), [5, 15, 25]),
        # Collecting continues during refits, and intervals restart at a cut.
        (FirstOf(OnDrift(EACH_100TH, gather=60), Every(35)), 195, (), [35, 70, cut(100), 135, 160, 195]),
        (FirstOf(Growing(20, 2.0), OnDrift(EACH_100TH, gather=1000)), 165, (), [20, 60, cut(100), 120, 160]),
        # Of a cut and a refit at one event, only the cut happens.
        (FirstOf(Every(50), OnDrift(EACH_100TH)), 149, (), [50, cut(100)]),
    ],
    ids=str,
)
def test_refits_and_cuts_come_at_their_events(trigger, times, asked, expected):
    times = np.zeros(times) if isinstance(times, int) else times
    expected = [(at, "refit") if isinstance(at, int) else at for at in expected]
    assert happenings(trigger, times, asked=asked) == expected


def test_intervals_that_grow_slowly_do_grow():
    slowly = np.diff([at for at, _ in happenings(Growing(10, 1.01), np.zeros(20_000))])
    assert slowly[0] == 10
    assert slowly[-1] > 150


ALARMING = [kind() for kind in (drift.ADWIN, drift.PageHinkley)] + [
    drift.KSWIN(seed=1),
    *[kind() for kind in (drift.binary.DDM, drift.binary.EDDM, drift.binary.HDDMA, drift.binary.HDDMW)],
    drift.binary.FHDDM(),
]


@pytest.mark.parametrize("detector", ALARMING, ids=lambda d: type(d).__name__)
def test_every_detector_of_river_cuts_where_errors_become_many(detector):
    errors = np.random.default_rng(5).random(600) < np.repeat([0.1, 0.8], [400, 200])
    found = happenings(OnDrift(detector, gather=100), np.zeros(600), errors, cuts=range(0, 600, 77))
    assert any(400 < at < 550 and event == "cut" for at, event in found)


def test_a_detector_that_looks_for_a_falling_mean_does_not_alarm_when_errors_become_few():
    errors = np.random.default_rng(5).random(1600) < np.repeat([0.8, 0.1], [1000, 600])
    assert happenings(OnDrift(drift.binary.FHDDM()), np.zeros(1600), errors) == []


def test_the_detector_given_is_left_alone():
    detector = drift.ADWIN()
    happenings(OnDrift(detector), np.zeros(2000), np.repeat([0, 1], 1000))
    assert detector.width == 0


@pytest.mark.parametrize("detector", [drift.binary.HDDMA(), drift.binary.DDM()], ids=lambda d: type(d).__name__)
def test_a_learner_that_learns_raises_no_alarm_of_a_detector_of_more_errors(detector):
    errors = np.random.default_rng(6).random(8_000) < 0.1 + 0.4 * np.exp(-np.arange(8_000) / 1_500)
    assert happenings(OnDrift(detector), np.zeros(8_000), errors) == []
    assert happenings(OnDrift(drift.ADWIN()), np.zeros(8_000), errors) != []


def test_after_an_alarm_a_fresh_detector_is_fed():
    # The first alarm comes after a warm-up, which a new detector repeats.
    warm = happenings(OnDrift(drift.DummyDriftDetector(t_0=20, w=50, seed=4), gather=1000), np.zeros(500))
    assert len(set(np.diff([0, *(at for at, _ in warm)]))) == 1
    assert warm[0][0] > 20


def test_a_detector_is_reset_after_a_number_of_events(monkeypatch):
    each_100th, never = OnDrift(EACH_100TH), OnDrift(drift.NoDrift())
    monkeypatch.setattr(detectors, "RENEWED_AFTER", 60)
    assert happenings(each_100th, np.zeros(1000)) == []
    running = never.begin()
    running.update(np.zeros(1000), np.zeros(1000))
    assert running.state()["progress"][0]["detector"]["n"] == 1000 % 60


TRIGGERS = [
    Every(7),
    Growing(3, 1.3, most=40),
    EveryTime(10.0),
    OnDrift(drift.DummyDriftDetector("random", t_0=20, w=20, seed=3, dynamic_cloning=True), gather=5),
    OnDrift(drift.KSWIN(seed=2, window_size=20, stat_size=5, alpha=0.05), gather=7),
    OnDemand(),
    FirstOf(Every(9), EveryTime(6.0), OnDrift(drift.binary.HDDMW(), gather=5)),
    FirstOf(
        FirstOf(OnDrift(drift.DummyDriftDetector(t_0=13, seed=1), gather=3), Every(8)),
        OnDrift(drift.DummyDriftDetector(t_0=9, seed=1), gather=7),
        Growing(2, 2.0),
    ),
]


@pytest.mark.parametrize("trigger", TRIGGERS, ids=str)
@settings(max_examples=8)
@given(data=st.data())
def test_batches_and_saving_do_not_change_triggers(trigger, data):
    n = data.draw(st.integers(0, 100))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    times = np.cumsum(rng.integers(-1, 3, n)).astype(float)
    times[rng.random(n) < 0.2] = NAN
    errors = rng.random(n) < np.where(np.arange(n) % 60 < 30, 0.1, 0.9)
    within = st.sets(st.integers(0, n), max_size=10)
    asked, cuts, resume = data.draw(within), data.draw(within), data.draw(st.booleans())
    one_by_one = happenings(trigger, times, errors, asked=asked, cuts=range(n))
    assert happenings(trigger, times, errors, asked=asked, cuts=cuts, resume=resume) == one_by_one


def test_when_it_is_due():
    assert Every(7).begin().due_in() == 7
    assert EveryTime(7.0).begin().due_in() > detectors.NEVER
    assert OnDemand().begin().due_in() > detectors.NEVER
    assert FirstOf(OnDemand(), Every(7), Growing(5)).begin().due_in() == 5
    running = OnDrift(EACH_100TH, gather=60).begin()
    assert running.due_in() > detectors.NEVER
    running.update(np.zeros(200), np.zeros(200))
    assert running.due_in() == 60
    running.request()
    assert running.due_in() == 1


@pytest.mark.parametrize("trigger", TRIGGERS, ids=str)
def test_settings_are_values_and_are_written_as_json(trigger):
    again = decode_settings(json.loads(json.dumps(encode_settings(trigger), allow_nan=False)))
    assert again == trigger == copy.deepcopy(trigger)
    assert hash(again) == hash(trigger)
    assert sum(again == other for other in TRIGGERS) == 1
    assert again.begin().state() == trigger.begin().state()


def test_numbers_of_numpy_are_numbers():
    trigger = FirstOf(Every(np.int64(5)), OnDrift(drift.ADWIN(delta=np.float64(0.1))), EveryTime(np.float32(2.0)))
    assert decode_settings(json.loads(json.dumps(encode_settings(trigger)))) == trigger
    json.dumps(trigger.begin().state())


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: Every(0), "n"),
        (lambda: Growing(first=0), "first"),
        (lambda: Growing(factor=0.9), "factor"),
        (lambda: Growing(first=10, most=9), "most"),
        (lambda: EveryTime(0.0), "seconds"),
        (lambda: OnDrift(drift.ADWIN(), gather=0), "gather"),
        (lambda: OnDrift(drift.ADWIN), "detector"),
        (lambda: OnDrift(drift.KSWIN()), "detector"),
        (lambda: OnDrift(drift.binary.DDM(warm_start="x")), "detector"),
        (lambda: OnDrift(drift.KSWIN(seed=1, stat_size=80)), "detector"),
        (lambda: OnDrift(drift.ADWIN(grace_period=10**6)), "ADWIN.grace_period"),
        (lambda: FirstOf(), "triggers"),
        (lambda: FirstOf(5), "triggers"),
    ],
)
def test_wrong_settings_are_refused_by_name(make, parameter):
    with raises(ParameterError, parameter=parameter):
        make()


def test_a_detector_of_ones_own_is_refused_as_it_could_not_be_saved():
    class ADWIN(drift.ADWIN):
        pass

    with raises(TypeError, parameter="detector"):
        OnDrift(ADWIN())


def test_times_and_errors_belong_together():
    with raises(ValueError, named="3 times"):
        Every(5).begin().update(np.zeros(3), np.zeros(2))


ADWIN = {"class": "ADWIN", "params": {}}


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"class": "Every"},
        {"class": "Every", "n": 5, "more": 1},
        {"class": "Trigger"},
        {"class": "EveryTime", "seconds": {"float": "nan"}},
        {"class": "FirstOf", "triggers": 5},
        {"class": "OnDrift", "gather": 5, "detector": {**ADWIN, "class": "os.system"}},
        {"class": "OnDrift", "gather": 5, "detector": {**ADWIN, "class": "DriftRetrainingClassifier"}},
        {"class": "OnDrift", "gather": 5, "detector": {**ADWIN, "params": {"delta": "x"}}},
        {"class": "OnDrift", "gather": 5, "detector": {"class": "KSWIN", "params": {}}},
        {"class": "OnDrift", "gather": 5, "detector": {**ADWIN, "params": {"max_buckets": 10**13}}},
    ],
)
def test_other_settings_in_an_archive_are_refused(content):
    with raises(ArchiveError, reason="settings"):
        decode_settings(content)


def spoil(state, value, *path):
    *parents, last = path
    spoiled = inner = json.loads(json.dumps(state))
    for name in parents:
        inner = inner[name]
    inner[last] = value
    return spoiled


STATE_TRIGGER = FirstOf(Every(10), EveryTime(5.0), OnDrift(EACH_100TH, gather=5))


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (1, ("asked",)),
        (None, ("progress",)),
        (-1, ("progress", 0, "left")),
        ({"float": "nan"}, ("progress", 0, "interval")),
        (5.0, ("progress", 0, "interval")),
        ({"float": "0x1p90"}, ("progress", 1, "begun")),
        (6, ("progress", 2, "left")),
        (10**12, ("progress", 2, "detector", "n")),
        (9, ("progress", 2, "detector", "n")),
        ("%", ("progress", 2, "detector", "errors")),
    ],
)
def test_another_state_in_an_archive_is_refused(value, path):
    running = STATE_TRIGGER.begin()
    running.update(np.arange(4.0), np.ones(4))
    STATE_TRIGGER.begin().restore(running.state())
    with pytest.raises(CORRUPT_ERRORS):
        STATE_TRIGGER.begin().restore(spoil(running.state(), value, *path))


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("5000", Every(5000)),
        ("growing", Growing()),
        ("growing:500:1.5:9000", Growing(500, 1.5, 9000)),
        ("90s", EveryTime(90.0)),
        ("drift", OnDrift(drift.binary.HDDMA())),
        ("drift:HDDMW:300", OnDrift(drift.binary.HDDMW(), gather=300)),
        ("drift:KSWIN", OnDrift(drift.KSWIN(seed=0))),
        ("demand", OnDemand()),
        ("growing+alarm:30", FirstOf(Growing(), OnDemand(gather=30))),
        ("growing:500:1.5+drift:ADWIN + 1d", FirstOf(Growing(), OnDrift(drift.ADWIN()), EveryTime(86400.0))),
    ],
)
def test_triggers_from_text(text, trigger):
    assert trigger_of(text) == trigger


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("5000:3", "'3'"),
        ("growing:x", "'x' is not a whole number"),
        ("growing:10:0.5", "`factor`"),
        ("drift:Adwin", "'Adwin'"),
        ("drift:ADWIN:0", "`gather`"),
        ("5000+", "5000+"),
        ("alarm:-1", "`gather`"),
    ],
)
def test_other_text_is_refused_with_the_accepted_values(text, named):
    with raises(ValueError, named=named) as caught:
        trigger_of(text)
    assert '"growing[:FIRST[:FACTOR[:MOST]]]"' in str(caught.value)
