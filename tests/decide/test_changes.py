"""Changes between two moments of a learner: report, and equality of all paths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streamsvm
from streamsvm import BSGDClassifier, CPMClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.decide.changes import Spread, moved_values
from streamsvm.parameters import ParameterError
from streamsvm.refit import Every, Growing
from tests.errors import raises
from tests.learners import looped

pytestmark = pytest.mark.usefixtures("lasting_process")

MAKERS = [
    CPMClassifier,
    lambda: BSGDClassifier(budget=20),
    lambda: StreamSVMClassifier(effort="low"),
    lambda: RefitClassifier(CPMClassifier(), "newton", trigger=Growing(200, 3.0), delay=64),
]


def stream(n: int, late: bool, seed: int = 0) -> tuple[list[dict[str, Any]], list[str]]:
    """A stream with changes of relevance, a distribution, a string and a class."""
    rng = np.random.default_rng(seed)
    rows, labels = [], []
    for a, b, c, d in rng.normal(size=(n, 4)):
        rows.append(
            {
                "a": float(a),
                "b": float(b),
                "level": 20.0 + float(c) + 3.0 * late,
                "width": float(d) * (4.0 if late else 1.0),
                "site": "north" if rng.random() < (0.6 if late else 0.1) else "south",
            }
        )
        odd = late and rng.random() < 0.2
        labels.append("odd" if odd else "yes" if (b if late else a) > 0.0 else "no")
    return rows, labels


def test_different_means_are_distinguished() -> None:
    before, since = Spread(500.0, 1_000_000.0, 1.0), Spread(1_000.0, 1_000_010.0, 10.0)
    told = moved_values(({"c": before}, 500), ({"c": since}, 1_000))
    assert told == ["c is higher: 1.00002e+06 on average, was 1e+06"]


@pytest.mark.parametrize("make", MAKERS)
def test_only_actual_changes_are_reported(make: Any) -> None:
    model = make()
    model.learn_many(*stream(1_500, late=False))
    then = model.summary()
    model.learn_many(*stream(1_500, late=False, seed=1))
    of_votes = ("relevance", "leading", "autocorrelation")
    assert not [told for told in model.changes(then) if not any(word in told for word in of_votes)]
    then = model.summary()
    model.learn_many(*stream(1_500, late=True, seed=2))
    told = model.changes(then)
    starts = ("level is higher: 2", "width varies more", "site = north is in 6", "site = south is in ")
    assert [start for start in starts if not any(text.startswith(start) for text in told)] == []
    assert "new classes: odd" in told
    assert not any(text.startswith(("a is", "b is", "a varies", "b varies")) for text in told)


@pytest.mark.parametrize("make", MAKERS)
def test_a_loop_rows_and_a_saved_learner_tell_the_same(make: Any, tmp_path: Any) -> None:
    rows, labels = stream(210, late=False)
    later = stream(210, late=True, seed=1)
    loop, batch = make(), make()
    looped(loop, rows, labels)
    batch.test_then_train(rows, labels)
    assert repr(loop.summary()) == repr(batch.summary())  # dataclasses with NaN are not equal since Python 3.13
    loop.save(tmp_path / "then")
    then = loop.summary()
    looped(loop, *later)
    resumed = streamsvm.load(tmp_path / "then")
    assert repr(resumed.summary()) == repr(then)
    resumed.learn_many(*later)
    told = loop.changes(then)
    assert told
    assert resumed.changes(streamsvm.load(tmp_path / "then")) == told
    with raises(ParameterError, parameter="since"):
        streamsvm.load(tmp_path / "then").changes(loop)


@pytest.mark.parametrize("value", [0.422915, 1e9 / 3.0, 0.0])
def test_constants_do_not_vary_by_rounding(value: float) -> None:
    signal = np.random.default_rng(0).normal(size=2_000)
    X, y = np.column_stack([signal, np.full(2_000, value)]), (signal > 0.0).tolist()
    model = CPMClassifier()
    model.learn_many(X[:1_000], y[:1_000])
    then = model.summary()
    model.learn_many(X[1_000:], y[1_000:])
    assert model.changes(since=then) == []


def test_few_events_tell_nothing() -> None:
    model = CPMClassifier()
    model.learn_many(*stream(100, late=False))
    then = model.summary()
    model.learn_many(*stream(20, late=True, seed=1))
    assert [told for told in model.changes(then) if "new classes" not in told] == []


def test_a_leading_refit_is_reported() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3_000, 2))
    model = RefitClassifier(BSGDClassifier(budget=3), "newton", trigger=Every(500), delay=64)
    model.learn_many(X[:400], X[:400, 0] > X[:400, 1])
    then = model.summary()
    assert then.leader == "BSGDClassifier"
    model.learn_many(X[400:], X[400:, 0] > X[400:, 1])
    assert any(
        told.startswith("refit ") and told.endswith(" is the leading member, was BSGDClassifier")
        for told in model.changes(then)
    )
