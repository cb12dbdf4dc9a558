"""Scenarios: valid descriptions, and streams that match them."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest

from connectors import ConnectorError, open_source
from connectors.synthetic import Event, Scenario, Stage, find, names
from connectors.synthetic.disturbances import Disturbance, Late, Missing, Mix, Noise, Scale, Swap, Unlabelled, share
from tests.connectors.streams import events
from tests.errors import raises

KINDS = {"none", "sudden", "gradual", "incremental", "recurring", "features", "labels", "balance", "disturbed"}


def drawn(*disturbance: Disturbance, generator: str = "sine", n: int = 2_000, seed: int = 0) -> list[Event]:
    return list(Scenario("a", events=n, generator=generator, disturbance=disturbance).draw(seed))


def column(found: list[Event], name: str) -> np.ndarray:
    return np.array([event.x.get(name, np.nan) for event in found], float)


@pytest.mark.parametrize("name", names())
def test_included_scenarios_have_titles_and_repeat_with_a_seed(name):
    scenario = find(name)
    assert scenario.title
    assert scenario.kind in KINDS
    first, again, other = (list(islice(scenario.draw(seed), 40)) for seed in (1, 1, 2))
    assert first == again != other
    changes = bool(scenario.drifts) or scenario.moving
    late_or_rare = any(isinstance(each, Late | Unlabelled | Mix) for each in scenario.disturbance)
    assert changes or scenario.kind == "none" or late_or_rare


def test_all_kinds_are_included():
    assert {find(name).kind for name in names()} == KINDS


@pytest.mark.parametrize("width", [0, 1, 20, 100_000])
def test_narrow_changes_do_not_overflow(width):
    past = [share(i, 5_000, width) for i in (0, 4_999, 5_000, 5_001, 10_000_000)]
    assert all(0.0 <= a <= b <= 1.0 for a, b in pairwise(past))
    assert past[2] == (0.5 if width else 1.0)


def test_a_returning_concept_continues_where_it_stopped():
    alone = list(Scenario("a", events=300, generator="sine").draw())
    turns = (Stage(0), Stage(1, 100), Stage(0, 200))
    found = list(Scenario("a", events=300, generator="sine", schedule=turns).draw())
    assert found[:100] + found[200:] == alone[:200]


def test_true_drift_points_are_known():
    scenario = Scenario(
        "a",
        events=1_000,
        generator="sea",
        schedule=(Stage(0), Stage(1, 400, 20)),
        disturbance=(Noise(after=0.1), Missing(at=200, until=600), Scale(at=5_000, factor=2.0)),
    )
    assert scenario.drifts == [(200, 0, "missing"), (400, 20, "concept"), (600, 0, "missing")]
    assert scenario.stretched(100).drifts == [(20, 0, "missing"), (40, 2, "concept"), (60, 0, "missing")]


def test_features_vanish_and_appear():
    gone = column(drawn(Missing(at=500, until=1_500, features=["1"])), "1")
    assert np.isnan(gone[500:1500]).all()
    assert not np.isnan(gone[:500]).any()
    assert not np.isnan(gone[1500:]).any()
    came = drawn(Missing(at=1_000, before=1.0, after=0.0, features=2))
    assert [len(event.x) for event in (came[0], came[999], came[1_000])] == [0, 0, 2]


def test_scales_jump():
    plain = drawn()
    jumped = drawn(Scale(at=1_000, features=["0"], factor=100.0, offset=-3.0))
    assert jumped[:1_000] == plain[:1_000]
    assert np.allclose(column(jumped, "0")[1_000:], 100.0 * column(plain, "0")[1_000:] - 3.0)
    assert np.array_equal(column(jumped, "1"), column(plain, "1"))


def test_noise_increases_and_the_truth_is_unchanged():
    found = drawn(Noise(at=1_000, width=400, after=0.4), n=4_000)
    assert [event.truth for event in found] == [event.truth for event in drawn(n=4_000)]
    wrong = np.array([event.y != event.truth for event in found])
    assert wrong[:500].mean() < 0.02
    assert 0.1 < wrong[900:1_100].mean() < 0.3
    assert wrong[2_000:].mean() == pytest.approx(0.4, abs=0.04)


def test_classes_change_their_labels_and_back():
    plain, swapped = drawn(generator="rbf"), drawn(Swap(at=500, until=1_000, labels=[0, 1]), generator="rbf")
    same = np.array([a.y == b.y == b.truth for a, b in zip(plain, swapped, strict=True)])
    assert same[:500].all()
    assert not same[500:1000].any()
    assert same[1000:].all()


def test_labels_are_late_or_missing():
    late = drawn(Late(at=100, by=7))
    assert [event.delay for event in late] == [0] * 100 + [7] * 1_900
    assert Late(at=100, by=50).stretched(0.1) == Late(at=10, by=5)
    rare = drawn(Unlabelled(at=1_000, after=0.9))
    unlabelled = np.array([event.y is None for event in rare])
    assert not unlabelled[:1_000].any()
    assert unlabelled[1_000:].mean() == pytest.approx(0.9, abs=0.03)
    assert all(event.truth is not None for event in rare)


def test_classes_and_regions_have_the_configured_share():
    balanced = drawn(Mix(label=1, at=1_000, before=0.5, after=0.01), generator="agrawal")
    positive = np.array([event.truth == 1 for event in balanced])
    assert positive[:1_000].mean() == pytest.approx(0.5, abs=0.05)
    assert positive[1_000:].mean() == pytest.approx(0.01, abs=0.01)
    plain, moved = drawn(), drawn(Mix(feature="0", above=0.5, at=1_000, after=0.9))
    assert moved[:1_000] == plain[:1_000]
    assert (column(moved, "0")[1_000:] > 0.5).mean() == pytest.approx(0.9, abs=0.03)


def test_a_label_that_is_never_drawn_is_reported():
    with raises(ConnectorError, reason="not drawn", named="label 9"):
        drawn(Mix(label=9, after=1.0), n=1)


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'title = "Mine"\nevents = 60\ngenerator = "sine"\nschedule = [{ concept = 1 }, { concept = 0, at = 30 }]\n'
        '[[disturbance]]\nkind = "missing"\nat = 20\n'
    )
    found = events(open_source(f"synthetic:{path}?n=30&seed=3"))
    assert [len(x) for x, _, _ in found] == [2] * 10 + [1] * 20
    assert find(str(path)).drifts == [(20, 0, "missing"), (30, 0, "concept")]


def test_any_stream_can_be_disturbed(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,y\n" + "1,red,no\n2,blue,yes\n" * 5)
    path = tmp_path / "mine.toml"
    path.write_text(
        f'source = "{tmp_path}/a.csv?label=y"\n[[disturbance]]\nkind = "missing"\nat = 4\nfeatures = ["b"]\n'
    )
    found = events(open_source(f"synthetic:{path}"))
    assert [(x, y) for x, y, _ in found[2:6]] == [
        ({"a": 1.0, "b": "red"}, "no"),
        ({"a": 2.0, "b": "blue"}, "yes"),
        ({"a": 1.0}, "no"),
        ({"a": 2.0}, "yes"),
    ]
