from __future__ import annotations

import itertools
import logging
import threading
import time

import numpy as np
import pytest

from connectors import ConnectorError, open_source
from connectors.synthetic import FAMILIES
from tests.connectors.streams import events, resumed_everywhere
from tests.errors import raises


@pytest.mark.parametrize("name", ["demo", *FAMILIES])
def test_the_same_options_give_the_same_events_also_when_resumed(name):
    url = f"synthetic:{name}?n=150&seed=5" + ("" if name == "waveform" else "&drift=50,100&width=25")
    batches = resumed_everywhere(url, 17, step=35)
    assert sum(map(len, batches)) == 150
    assert events(batches)[-1][2] == {"stream": f"synthetic:{name}", "event": 149}


def _reversed_share(url: str) -> np.ndarray:
    """Return whether each event is of the second of two opposite sine concepts."""
    return np.array([label == int(x["0"] >= np.sin(x["1"])) for x, label, _ in events(open_source(url))])


def test_drift_is_abrupt_or_gradual_about_its_position():
    base = _reversed_share("synthetic:sine?n=3000")
    assert base.all() or not base.any()
    abrupt = _reversed_share("synthetic:sine?n=3000&drift=1000") == base[0]
    assert abrupt[:1000].all()
    assert not abrupt[1000:].any()
    gradual = _reversed_share("synthetic:sine?n=3000&drift=1000&width=500") == base[0]
    assert gradual[:400].mean() > 0.98
    assert not gradual[2000:].any()
    assert 0.6 < gradual[750:1000].mean() < 0.9
    assert 0.1 < gradual[1000:1250].mean() < 0.4


@pytest.mark.parametrize("fault", [("vibration", "temperature"), ("pressure", "flow"), ("current", "speed")])
def test_each_worn_part_of_the_machine_shows_in_its_own_sensors(fault):
    faults = [("vibration", "temperature"), ("pressure", "flow"), ("current", "speed")]
    rows = events(open_source(f"synthetic:machine?n=2000&fault={faults.index(fault)}"))
    is_worn = np.array([label == "worn" for _, label, _ in rows])
    assert 0.2 < is_worn.mean() < 0.4
    related = {name: abs(np.corrcoef([x[name] for x, _, _ in rows], is_worn)[0, 1]) for name in rows[0][0]}
    assert set(sorted(related, key=related.__getitem__)[-2:]) == set(fault)
    assert sorted(related.values())[-3] < 0.1 < 0.3 < min(related[name] for name in fault)


def test_a_share_of_noise_that_cannot_be_is_refused():
    with raises(ConnectorError, "noise"):
        events(open_source("synthetic:machine?noise=1.5"))


def test_labels_are_plain_values():
    kinds = {type(label) for name in FAMILIES for _, label, _ in events(open_source(f"synthetic:{name}?n=20"))}
    assert kinds == {int, bool, str}


def test_resuming_with_other_options_is_refused():
    position = open_source("synthetic:sea?seed=1").position
    with raises(ConnectorError, reason="another"):
        open_source("synthetic:sea?seed=2").seek(position)


def test_resuming_says_how_far_it_has_skipped(monkeypatch, caplog):
    source = open_source("synthetic:sine?n=20000")
    clock, seconds = time.monotonic, itertools.count(0.0, 3.0)
    here = threading.get_ident()  # other threads, such as those of the test runner, have the real time
    monkeypatch.setattr(time, "monotonic", lambda: next(seconds) if threading.get_ident() == here else clock())
    with caplog.at_level(logging.INFO):
        source.seek({**source.position, "event": 20_000})
    assert source.fraction == 1.0
    assert [record.getMessage() for record in caplog.records] == [
        "synthetic:sine: skipping to event 20,000, 40% done",
        "synthetic:sine: skipping to event 20,000, 81% done",
    ]
