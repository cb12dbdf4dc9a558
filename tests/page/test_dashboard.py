"""State of the dashboard: correct figures, low cost, and an unchanged run."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from river.base import Classifier
from river.naive_bayes import GaussianNB
from river.preprocessing import StandardScaler
from river.tree import HoeffdingTreeClassifier

from connectors import Source, open_source
from connectors.events import Batch, Origins
from streamsvm import BSGDClassifier, CPMClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.online.adapters import Predictions
from streamsvm.refit import Every
from streamsvm.run.estimate import Estimate
from streamsvm.run.loop import Report
from streamsvm.run.metrics import Metrics
from streamsvm.run.notices import Rejects
from streamsvm.run.page.dashboard import DashboardState, Stopwatch
from streamsvm.run.page.figures import Series, annotations_of, calibration, confusion, estimated
from tests.run.conftest import runner_of

DRIFTING = "synthetic:demo?n=8800&drift=8000&width=0&batch_size=200"
SHORT = "synthetic:demo?n=2400&drift=1200&width=0&batch_size=200"


@pytest.fixture(scope="module", autouse=True)
def _eager() -> Iterator[None]:
    """Update the dashboard after nearly every batch."""
    with pytest.MonkeyPatch.context() as patch:
        for share in ("_PUBLISHING", "_LOOKING"):
            patch.setattr(f"streamsvm.run.page.dashboard.{share}", 1.0)
        yield


def ran(model: Any, source: Any = DRIFTING, **options: Any) -> tuple[DashboardState, Report, dict[str, Any]]:
    """Run with a dashboard updated after each batch; return all three results.

    They are the dashboard, the report and the last message.
    """
    board = DashboardState(every_s=0.0)
    source = open_source(source) if isinstance(source, str) else source
    report = runner_of(model, source, observers=[board], **options).run()
    board.close()
    return board, report, json.loads(board.feed.latest)


@pytest.fixture(scope="module")
def whole() -> tuple[DashboardState, Report, dict[str, Any]]:
    return ran(StreamSVMClassifier(effort="low"))


def test_the_figures_are_those_of_the_report(whole):
    _, report, state = whole
    metrics = report.metrics
    assert (state["events"], state["judged"], state["unanswered"]) == (8_800, metrics.judged, metrics.unanswered)
    assert state["accuracy"] == metrics.accuracy
    assert state["ended"] == "end of stream"
    assert [head["weight"] for head in state["leaders"]] == [head["weight"] for head in report.insight.leaders[:12]]
    assert dict(state["relevance"]) == {str(name): value for name, value in list(report.insight.relevance.items())[:12]}
    assert state["classes"] == 2
    assert state["late"] == {"events": 1_000, **metrics.measures.recent_hits}
    assert state["late"]["model"] == metrics.recent_accuracy


def test_the_estimated_accuracy_names_the_features_that_lower_it():
    estimate, nothing = Estimate(window=400), np.zeros(0)
    estimate.update(np.full(400, 0.9), nothing, nothing > 0)
    changed: Any = SimpleNamespace(changed_shares=lambda history: {"heat": 0.3, ("site", "b"): 0.1})
    late: Any = SimpleNamespace(estimate=estimate)
    report = Report("model", "source", None, None, Metrics(), late=late, monitor=changed)
    found = estimated(report)
    assert found is not None
    assert (found["features"], found["share"]) == ("heat, site = b", pytest.approx(0.4))
    assert found["accuracy"] == report.estimated.accuracy < 0.9
    assert estimated(Report("model", "source", None, None, Metrics())) is None


def test_drift_is_marked_where_it_was_noticed(whole):
    _, report, state = whole
    drops = [mark for mark in state["marks"] if mark["kind"] == "drift"]
    assert [mark["judged"] for mark in drops] == [drop.judged for drop in report.metrics.drops.last]
    assert 8_000 < drops[0]["judged"] < 8_800


def test_a_new_class_is_marked_at_its_first_label():
    report = Report("a model", "a source", None, None, Metrics())
    for labels in ([0] * 1_500, [0, 0, 7, 7], [0, 7]):
        report.metrics.judge(labels, np.zeros(len(labels), int), [0])
    assert annotations_of(report) == [{"kind": "class", "judged": 1_502, "text": "7"}]


def test_the_last_events_are_those_of_the_stream(whole):
    board, report, state = whole
    (*_, batch) = open_source(DRIFTING)
    last = state["latest"][0]
    assert [line["place"] for line in state["latest"]] == [f"event {n}" for n in range(8_799, 8_779, -1)]
    assert last["label"] == str(batch.labels[-1])
    assert dict(answer(board, report)["features"]) == batch.rows()[-1]


@pytest.mark.parametrize("batch_size", [1, 7])
def test_each_moment_has_the_last_events_of_it(monkeypatch, batch_size):
    board, seen = DashboardState(every_s=0.0), Counter[int]()

    def compare(report, fraction):
        board(report, fraction)
        state = json.loads(board.feed.latest)
        n = state["events"]
        seen[n] += 1
        assert [line["place"] for line in state["latest"]] == [f"event {i}" for i in range(n)[-20:][::-1]]
        assert [line["id"] for line in state["latest"]] == [i + 1 for i in range(n)[-20:][::-1]]

    runner_of(GaussianNB(), open_source(f"synthetic:sea?n=120&batch_size={batch_size}"), observers=[compare]).run()
    assert len(seen) == -(-120 // batch_size)


def test_the_last_message_needs_no_more_questions(whole):
    board, report, state = whole
    assert state["series"] == json.loads(board.series())
    assert state["series"]["columns"]["judged"][-1] == report.metrics.judged
    assert state["series"]["run"] == state["run"]


def test_series_are_exact_counts(whole):
    board, report, _ = whole
    series = json.loads(board.series())
    columns = series["columns"]
    assert columns["judged"][-1] == report.metrics.judged
    assert columns["hits"][-1] == report.metrics.measures.curve.totals()[0]
    assert len({len(column) for column in columns.values()}) == 1
    assert series["history"]["judged"][-1] <= report.metrics.judged
    assert series["history"]["over"] == report.metrics.measures.curve.width_of(1_000)
    assert set(series["history"]["shares"]) == {"model", "no_change", "majority"}


def test_a_run_with_questions_is_the_same_to_the_bit(monkeypatch):
    for share in ("_PUBLISHING", "_LOOKING", "_ANSWERING"):
        monkeypatch.setattr(f"streamsvm.run.page.dashboard.{share}", 1.0)  # it updates and answers continuously

    def model():
        learner = StreamSVMClassifier(effort="low")
        return RefitClassifier(learner, "newton", trigger=Every(800), delay=64)

    alone, watched, board = model(), model(), DashboardState(every_s=0.0)
    runner_of(alone, open_source(SHORT)).run()
    answers: list[Future[bytes]] = []

    def look_and_ask(report, fraction):
        board(report, fraction)
        if latest := json.loads(board.feed.latest)["latest"]:
            answers.append(pool.submit(board.explain, latest[0]["id"], 10.0))
        time.sleep(0.01)  # until the question waits

    with ThreadPoolExecutor() as pool:
        runner_of(watched, open_source(SHORT), observers=[look_and_ask]).run()
        board.close()
    answered = [answer for answer in answers if answer.exception() is None]
    assert len(answered) >= 3  # how many there is time for depends on the machine
    (header, arrays), (header2, arrays2) = alone.state(), watched.state()
    for refit in [*header["notes"], *header2["notes"], header, header2]:
        refit.pop("seconds", None)  # depends on clocks
    assert header == header2
    assert {name: array.tobytes() for name, array in arrays.items()} == {
        name: array.tobytes() for name, array in arrays2.items()
    }


def answer(board: DashboardState, report: Report) -> dict[str, Any]:
    """Explain the last event of a finished run."""
    number = json.loads(board.feed.latest)["latest"][0]["id"]
    found: list[bytes] = []
    asking = threading.Thread(target=lambda: found.append(board.explain(number, 30.0)))
    asking.start()
    while asking.is_alive():
        board(report, None)
    return dict(json.loads(found[0]))


@pytest.mark.parametrize("model", [StreamSVMClassifier(effort="low"), BSGDClassifier()], ids=["blend", "bsgd"])
def test_reasons(model):
    # The label is the sign of `tells`.
    rng = np.random.default_rng(0)
    rows = [{"tells": a, "says nothing": b} for a, b in rng.normal(size=(1_500, 2)).tolist()]
    model.run_batch(rows, ["yes" if row["tells"] > 0 else "no" for row in rows])
    source = open_source("synthetic:sea?n=100&batch_size=100")
    board, report, _ = ran(model.clone(), source)
    report.learner.model = model
    batch = Batch([{"tells": 1.2, "says nothing": 0.3}], ["yes"], Origins({}, {"row": [7]}), {})
    report.predictions = Predictions(np.array([model.classes_.index("yes")]), np.array([0.9]), batch=batch)
    report.metrics.taken += 1
    while json.loads(board.feed.latest)["latest"][0]["place"] != "row 7":
        board(report, None)
    found = answer(board, report)
    assert found["event"]["place"] == "row 7"
    assert (found["event"]["prediction"], found["now"]["prediction"], found["now"]["against"]) == ("yes", "yes", "no")
    changes = {name: change for name, _, change in found["contributions"]}
    assert changes["tells"] > 1.0 > abs(changes["says nothing"]) * 2
    assert len(found["nearest"]) == 5
    assert found["nearest"][0]["label"] == "yes"
    assert abs(found["nearest"][0]["features"]["tells"] - 1.2) < 1.0  # in the units of the stream
    own = model.explain_one({"tells": 1.2, "says nothing": 0.3})
    assert changes == {one.feature: pytest.approx(one.adds, abs=1e-5) for one in own.contributions}
    assert found["base"] + sum(changes.values()) == pytest.approx(found["odds"], abs=1e-9)


@pytest.mark.parametrize(
    "model", [CPMClassifier(), StandardScaler() | HoeffdingTreeClassifier()], ids=["cpm", "pipeline"]
)
def test_reasons_of_models_without_examples(model):
    board, report, _ = ran(model, "synthetic:sea?n=600")
    found = answer(board, report)
    assert found["nearest"] == []
    assert found["asked"] == 3
    assert any(abs(change) > 0.1 for _, _, change in found["contributions"])


def test_the_lag_is_that_of_each_partition(monkeypatch):
    source = open_source("synthetic:sea?n=100")
    monkeypatch.setattr(type(source), "lag", {0: 3, 2: 9})
    assert ran(GaussianNB(), source)[2]["lag"] == {"total": 12, "parts": [[2, 9], [0, 3]]}


def test_models_that_know_no_probabilities():
    class First(Classifier):
        """Predicts the first label."""

        first: Any = None

        def learn_one(self, x, y, **_):
            self.first = y if self.first is None else self.first

        def predict_one(self, x, **_):
            return self.first

        @property
        def _multiclass(self):
            return True

    board, report, state = ran(First(), "synthetic:sea?n=300")
    assert answer(board, report)["why_not"] == "the model does not predict probabilities"
    assert state["calibration"] is None


def test_a_page_that_fails_is_no_matter_of_the_run(monkeypatch, caplog):
    monkeypatch.setattr(DashboardState, "_state", lambda *_: 1 / 0)
    board = DashboardState()
    assert runner_of(GaussianNB(), open_source("synthetic:sea?n=600"), observers=[board]).run().metrics.taken == 600
    board.close()
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "the dashboard has stopped, the run continues: ZeroDivisionError: division by zero"
    ]


def test_looking_rests_as_long_as_keeps_it_cheap(monkeypatch):
    clock = iter([10.0, 10.003, 10.003])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    watch = Stopwatch()
    assert watch.rest(0.5, 0.003) == pytest.approx(1.0)
    assert watch.rest(2.0, 0.003) == 2.0


def test_it_says_whether_all_is_well():
    board = DashboardState()
    assert board.health() == "starting"
    report = runner_of(GaussianNB(), open_source("synthetic:sea?n=200"), observers=[board]).run()
    assert board.health() == "ended: end of stream"
    report.ended = ""
    assert board.health() == ""
    board.feed.at -= 1_000
    assert board.health().startswith("no batch was processed for 1")


def test_names_that_no_json_can_hold():
    class Odd(Source):
        name = "odd"

        @property
        def position(self):
            return {}

        def seek(self, position): ...

        def __iter__(self):
            rows = [{"\ud800half": float(i % 2), ("a", "b"): 1.0, 3: 2.0} for i in range(40)]
            labels = [("x", 1) if i % 2 else "\ud800" for i in range(40)]
            yield Batch(rows, labels, Origins({}, {"\udfff": list(range(40))}), {}, keys=["\ud801"] * 40)

        def close(self): ...

    _, _, state = ran(CPMClassifier(), Odd())
    assert state["latest"][0]["label"] == "('x', 1)"
    assert state["latest"][1]["label"] == "\\ud800"


def test_rejects_by_reason():
    rejects = Rejects()
    from connectors.events import Rejected

    rejects.add(Rejected(f"line has {i} fields, not 5", {"line": i}) for i in range(1_000))
    rejects.add(Rejected(f"reason {chr(97 + i // 26)}{chr(97 + i % 26)}", {}) for i in range(200))
    assert rejects.reasons["line has … fields, not …"] == 1_000
    assert len(rejects.reasons) == 21
    assert rejects.reasons["other reasons"] == 181
    assert len(rejects.last) == 5


# Over time --------------------------------------------------------------------------------------------------------


def test_a_month_of_points_is_bounded_and_falls_in_resolution():
    series, days = Series(), 40
    seconds = np.concatenate([np.arange(0, (days - 1) * 86_400, 200), np.arange((days - 1) * 86_400, days * 86_400, 5)])
    for second in seconds.tolist():
        series.add({"time": float(second), "judged": 10.0 * second})
    columns = series.columns()
    at, judged = columns["time"], columns["judged"]
    assert len(at) < 6_000
    assert (np.diff(at) > 0).all()
    assert (judged == 10.0 * at).all()  # exact for any distance between points
    age = at[-1] - at[:-1]
    steps = np.diff(at)
    assert steps[age < 900].max() <= 5
    assert (steps <= np.maximum(age / 200, 10)).all()
    assert age[0] > 39 * 86_400


# Recent events ----------------------------------------------------------------------------------------------------


def test_calibration_is_that_of_the_measures():
    rng = np.random.default_rng(1)
    p = rng.uniform(0.02, 0.98, 1_500)  # of "b"
    labels = ["b" if u < q else "a" for u, q in zip(rng.uniform(size=len(p)), p, strict=True)]
    metrics = Metrics(window=200)
    assert calibration(metrics.measures) is None
    codes, scores, proba = (p > 0.5).astype(int), np.maximum(p, 1 - p), np.column_stack([1 - p, p])
    metrics.judge(labels, codes, ["a", "b"], scores=scores, proba=proba)
    found = calibration(metrics.measures)
    of_label = np.where(np.array(labels) == "b", p, 1 - p)
    assert found is not None
    assert found["loss"] == pytest.approx(-np.log(of_label[-200:]).mean())
    assert found["error"] == metrics.measures.recent_reliability.error
    assert sum(each["events"] for each in found["bins"]) == found["events"] == 200


def test_confusions_of_late():
    rng = np.random.default_rng(2)
    metrics, classes = Metrics(), list(range(20))
    seen: list[tuple[int, int]] = []
    for _ in range(50):
        labels = np.minimum(rng.geometric(0.2, 100), 19)
        guesses = np.where(rng.uniform(size=100) < 0.8, labels, 0)
        seen += zip(labels.tolist(), guesses.tolist(), strict=True)
        metrics.judge(labels.tolist(), guesses, classes)
        found = confusion(metrics)
    assert found["events"] == 1_000
    late = Counter(seen[-found["events"] :])
    names = [int(name) for name in found["classes"]]
    assert found["counts"] == [[late[label, guess] for guess in names] for label in names]
    assert len(names) == 12
    assert found["left_out"] == len({code for pair in late for code in pair}) - 12
