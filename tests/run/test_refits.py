"""Refits in runs: options, monitoring and event times."""

from __future__ import annotations

import io
import json
import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm import BSGDClassifier, CPMClassifier, RefitClassifier, cli, load
from streamsvm.refit import Every, EveryTime, FirstOf, Growing, Latest, OnDemand, Since
from streamsvm.run.classifiers import with_refits
from streamsvm.run.errors import SetupError
from streamsvm.run.history import RefitSummary
from streamsvm.run.loop import Report
from streamsvm.run.plot import plot
from streamsvm.run.progress import Progress
from streamsvm.run.prometheus import text_of_report
from streamsvm.run.report_text import summary
from tests.commands import ran_here
from tests.errors import raises
from tests.run.conftest import runner_of, write_stream
from tests.run.test_loop import Numbers

REFIT = ("--refit", "newton,every=300,window=600")


# Settings ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command line with settings that it must reject without effects.

    Returns its message.
    """
    write_stream(tmp_path / "in.csv", 50)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> str:
        before = set(tmp_path.iterdir())
        assert cli.main(["run", "in.csv", "--label", "y", "--out", "out.csv", *arguments]) == 2
        assert set(tmp_path.iterdir()) == before
        return capsys.readouterr().err

    return call


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("--refit", "forest"), "'trees', 'cuts', 'newton', 'bcd'", id="an unknown solver"),
        pytest.param(("--refit", "sklearn.svm.SVR"), "SVR has none", id="not a classifier"),
        pytest.param(("--refit", "newton,every=often"), "--refit every='often' is not a trigger", id="a trigger"),
        pytest.param(
            (*REFIT, "--model", "river.naive_bayes.GaussianNB"),
            "--refit requires a model of this package: blend, bsgd, cpm, not river.naive_bayes",
            id="a foreign model",
        ),
        pytest.param(("--refit", "newton,every=300+1d"), "--refit every=300+1d: needs the times", id="no times"),
        pytest.param(("--refit", "newton,window=since:7d"), "their column with --time NAME", id="a timeless window"),
        pytest.param(("--refit", "newton,often=1"), "must be SOLVER", id="a part that is unknown"),
        pytest.param(("--model", "./m", *REFIT), "remove --param and --refit", id="a loaded model"),
    ],
)
def test_what_does_not_fit_is_refused(refused, arguments, message):
    assert message in refused(*arguments)


def test_a_solver_that_could_not_be_kept_is_refused(refused, tmp_path, monkeypatch):
    source = "from sklearn.naive_bayes import GaussianNB\nclass Own(GaussianNB):\n    pass\n"
    (tmp_path / "own_solvers.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    assert "cannot be saved" in refused("--refit", "own_solvers.Own", "--save", "m")


@pytest.mark.parametrize(
    ("trigger", "window", "expected"),
    [
        ("1000", "2000", (Every(1000), Latest(2000))),
        ("growing:100", "2000", (Growing(100), Latest(2000))),
        ("30m", "since:7d", (EveryTime(1800.0), Since(604_800.0))),
        ("1000+1d", "since:90s:500", (FirstOf(Every(1000), EveryTime(86_400.0)), Since(90.0, 500))),
        ("demand", None, (OnDemand(), None)),
    ],
)
def test_triggers_and_windows_from_text(trigger, window, expected):
    model = with_refits(CPMClassifier(), "newton", trigger, window)
    assert (model.trigger, model.window) == expected


def test_a_solver_by_its_path_draws_the_same_numbers_each_time():
    model = with_refits(BSGDClassifier(), "sklearn.ensemble.RandomForestClassifier")
    assert model.solver.random_state == 0


def test_without_scikit_learn_the_missing_package_is_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "sklearn", None)
    with raises(SetupError, option="--refit", named="pip install 'streamsvm[batch]'"):
        with_refits(CPMClassifier(), "trees")


# Event times ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_second", [1, 1000])
def test_windows_and_triggers_of_time_follow_the_column_of_times(per_second, tmp_path):
    lines = ["at,a,y", *(f"{(1_750_000_000 + 60 * i) * per_second},{i % 7},{i % 2}" for i in range(400))]
    (tmp_path / "in.csv").write_text("\n".join(lines))
    asked = ("run", "in.csv", "--label", "y", "--time", "at", "--quiet", "--model", "cpm", "--summary", "s.json")
    refits = ("--refit", "newton,every=2h,window=since:1h")
    ran_here(*asked, *refits, cwd=tmp_path, check=True)
    refits = json.loads((tmp_path / "s.json").read_text())["refits"]["last"]
    assert [(refit["event"], refit["events"]) for refit in refits] == [(128, 61), (256, 61)]  # at multiples of 64


# Monitoring -------------------------------------------------------------------------------------------------------


def ran(model: Any, n: int = 1000, **options: Any) -> Report:
    return runner_of(model, Numbers(n, 100), **options).run()


@pytest.fixture(scope="module")
def report() -> Report:
    """Report of two successful refits, and one whose window has one class."""
    model = RefitClassifier(CPMClassifier(n_faces=2), "newton", trigger=Every(300), delay=64, window=Latest(200))
    done = ran(model, observers=[lambda report, fraction: None])
    assert [note["outcome"] for note in model.refits] == ["votes"] * 3
    assert done.refits is not None
    note = done.refits.last[-1] | {"number": 4, "event": 950, "outcome": "failed: ValueError: one class"}
    seconds, outcomes = done.refits.seconds + note["seconds"], {"votes": 3, "failed": 1}
    done.refits = replace(done.refits, last=[*done.refits.last, note], outcomes=outcomes, seconds=seconds)
    return done


def test_figures_of_refits_keep_their_order_in_a_resumed_run(tmp_path):
    """Settings of the trees are `max_iter` and `learning_rate` when they are made."""
    model = RefitClassifier(CPMClassifier(), "trees", trigger=Every(200), delay=64)
    model.learn_many([{"a": i % 7.0} for i in range(300)], [i % 7 > 2 for i in range(300)])
    for number, outcome in enumerate(("skipped: one class", "failed: ValueError: a"), 2):
        model._refits._remember({"number": number, "outcome": outcome, "seconds": 0.5})
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert list(again.refits[0]["settings"]) == list(model.refits[0]["settings"]) == ["learning_rate", "max_iter"]
    assert [*again.refit_totals()["outcomes"]] == [*model.refit_totals()["outcomes"]] == ["failed", "skipped", "votes"]


def test_totals_include_refits_that_are_no_longer_stored(monkeypatch):
    monkeypatch.setattr("streamsvm.refit.schedule.KEPT", 2)
    model = RefitClassifier(CPMClassifier(), "newton", Latest(100), Every(100), delay=64)
    n = np.arange(570)
    model.learn_many(np.eye(2)[n % 2], n % 2 * (n // 100 % 2 == 0))  # the second and fourth window have one class
    totals, again = model.refit_totals(), RefitClassifier.from_state(*model.state())
    assert totals["outcomes"] == {"votes": 3, "skipped": 2}
    assert totals["seconds"] > sum(refit["seconds"] for refit in model.refits)
    for one in (model, again):
        assert len(one.refits) == 2
        assert one.refit_totals() == totals


def test_the_share_of_the_vote_is_that_of_the_leaders(report):
    assert report.refits is not None
    heads = {head["head"]: head["weight"] for head in report.insight.leaders if head["member"] == "refit"}
    assert heads
    shares = {f"{refit['number']} newton": refit["share"] for refit in report.refits.last}
    assert {name: shares[name] for name in heads} == pytest.approx(heads)
    assert report.refits.share == pytest.approx(sum(heads.values()))


def test_the_progress_line(report, caplog):
    with caplog.at_level(logging.INFO, "streamsvm.run"):
        lines = Progress(io.StringIO(), 0.0)
        time.sleep(0.005)
        lines(report, None)
    assert "4 refits, the last failed, " in caplog.text
    assert "% of the vote" in caplog.text


def test_the_summary(report):
    found = json.loads(json.dumps(summary(report)))
    refits, seconds = found["refits"], found["process"]["refits"]
    assert (refits["count"], refits["outcomes"]) == (4, {"votes": 3, "failed": 1})
    first = refits["last"][0]
    assert (first["event"], first["entered"], first["events"], first["solver"]) == (300, 364, 200, "newton")
    assert {"settings", "score", "share", "outcome"} < set(first)
    assert "seconds" not in first  # depends on clocks
    assert list(seconds["last"]) == ["1", "2", "3", "4"]
    assert seconds["seconds"] == pytest.approx(sum(seconds["last"].values()))
    assert summary(ran(CPMClassifier(), 50))["refits"] is None


def test_prometheus(report):
    lines = text_of_report(report).decode().splitlines()
    assert 'streamsvm_refits_total{outcome="votes"} 3.0' in lines
    assert 'streamsvm_refits_total{outcome="failed"} 1.0' in lines
    assert any(line.startswith("streamsvm_refit_seconds_total ") for line in lines)
    assert any(line.startswith("streamsvm_refit_share ") for line in lines)


def test_the_plot_has_a_mark_for_each_refit_of_the_run_and_for_none_before_it(tmp_path):
    model = RefitClassifier(CPMClassifier(n_faces=2), "newton", trigger=Every(300), delay=64, window=Latest(200))
    ran(model, 400)
    later = ran(model, 100)
    assert later.learned_before == 398  # others had no label, or were malformed
    (note,) = model.refits
    failed = note | {"number": 2, "event": 450, "outcome": "failed: ValueError: one class"}
    later.refits = RefitSummary([note, failed], {"votes": 1, "failed": 1}, seconds=0.1, share=0.5)
    plot(later, tmp_path / "p.svg")
    drawn = (tmp_path / "p.svg").read_text()
    assert "<!-- refit failed -->" in drawn
    assert "refit votes" not in drawn
