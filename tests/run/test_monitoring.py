"""Monitoring of features in runs: alarms, profiles, reports, user errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from connectors import open_source
from streamsvm import CPMClassifier, DecidingClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.refit import Latest, OnDemand
from streamsvm.run import Run, RunConfig
from streamsvm.run.page.watch import CheckpointView
from streamsvm.run.prometheus import text_of_report
from tests.commands import environment
from tests.run.conftest import json_lines, table

CPM = ("--model", "cpm", "--quiet")
N = 3_000


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Events with times: after 2,000, `heat` rises and labels are random.

    `site` is then often missing.
    """
    rng = np.random.default_rng(4)
    heat, load = rng.normal(20.0, 2.0, N), rng.normal(size=N)
    heat[2_000:] += 8.0
    labels = np.where(np.arange(N) < 2_000, load > 0.0, rng.random(N) < 0.5)
    path = tmp_path_factory.mktemp("stream") / "in.csv"
    lines = ["id,t,heat,load,site,y"]
    for i in range(N):
        site = "" if i >= 2_000 and i % 2 else f"s{i % 3}"
        label = "" if i % 10 == 3 else "bad" if labels[i] else "ok"
        lines.append(f"k{i},{1_700_000_000 + i},{heat[i]:.3f},{load[i]:.4f},{site},{label}")
    path.write_text("\n".join(lines) + "\n")
    return path


def asked(stream: Path, *more: Any, command: str = "run") -> tuple[Any, ...]:
    return (command, stream, "--label", "y", "--time", "t", "--set", "key=id", *more)


def test_an_alarm_is_a_record_of_its_event(stream, tmp_path, streamsvm):
    streamsvm(*asked(stream, *CPM, "--alerts", "alerts.jsonl", "--reference", 1024, "--out", "out.csv"))
    alarms = json_lines(tmp_path / "alerts.jsonl")
    first = {alarm["column"]: alarm for alarm in reversed(alarms)}
    assert set(first) == {"heat", "site", None}
    heat, site, accuracy = first["heat"], first["site"], first[None]
    assert heat["kind"] in ("distribution", "range")
    assert 1_920 <= heat["since"] < 2_000 < heat["events"] <= 2_128
    assert heat["before"]["mean"] == pytest.approx(20.0, abs=0.3)
    assert heat["after"]["mean"] > 23.0
    assert heat["evidence"] < 1e-6
    assert site["kind"] == "missing"
    assert site["after"]["missing"] > site["before"]["missing"] == 0.0
    assert accuracy["kind"] == "accuracy"
    assert accuracy["after"]["accuracy"] < accuracy["before"]["accuracy"]
    predictions = table(tmp_path / "out.csv")
    for alarm in alarms:  # its origin is that of the last event of the window
        assert predictions[alarm["events"] - 1]["line"] == str(alarm["line"])
        assert alarm["time"].startswith(str(np.datetime64(1_700_000_000 + alarm["events"] - 1, "s")))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_records_do_not_depend_on_batches_or_the_format(stream, suffix, tmp_path, streamsvm):
    for size, name in (("50", "small.jsonl"), ("1000", "large.jsonl"), ("1000", f"other.{suffix}")):
        options = asked(f"{stream}?batch_size={size}", *CPM, "--alerts", name, "--reference", 1024)
        streamsvm(*options)
    lines = json_lines(tmp_path / "small.jsonl")
    assert (tmp_path / "small.jsonl").read_bytes() == (tmp_path / "large.jsonl").read_bytes()
    if suffix == "csv":
        assert [json.loads(row["before"]) for row in table(tmp_path / "other.csv")] == [one["before"] for one in lines]
    else:
        (batch,) = open_source(str(tmp_path / "other.parquet"))
        assert [row["kind"] for row in batch.rows()] == [one["kind"] for one in lines]


def test_features_are_monitored_before_late_labels_arrive(stream, tmp_path, streamsvm):
    loads = [float(line.split(",")[3]) for line in stream.read_text().splitlines()[1:501]]
    known = "".join(f"k{i},{1_700_000_001 + i},{'bad' if load > 0.0 else 'ok'}\n" for i, load in enumerate(loads))
    (tmp_path / "labels.csv").write_text(f"id,t,y\n{known}k{N - 1},{1_700_000_000 + 2 * N},ok\n")
    late = ("--label-source", "labels.csv", "--join", "id", "--checkpoint", "state")
    options = ("run", stream, "--label", "y", "--time", "t", *late, "--alerts", "alerts.jsonl", "--reference", 1024)
    done = streamsvm(*options, "--model", "cpm", "--summary", "summary.json")
    assert {alarm["column"] for alarm in json_lines(tmp_path / "alerts.jsonl")} == {"heat", "site"}
    summary = json.loads((tmp_path / "summary.json").read_text())
    late = summary["late"]
    assert [alarm["labelled"] for alarm in summary["monitor"]["last"]] == [summary["judged"] - 1] * 2
    assert late["estimated_accuracy_lowered"] > 0.0
    assert f"estimated accuracy {late['estimated_accuracy']:.4f}" in done.stdout
    assert "of the relevance changed" in done.stdout
    again = (tmp_path / "alerts.jsonl").read_bytes()
    streamsvm(*options, *CPM)  # resumes at the end
    assert (tmp_path / "alerts.jsonl").read_bytes() == again


def test_a_saved_model_without_labels_is_monitored_too(stream, tmp_path, streamsvm):
    streamsvm(*asked(stream, *CPM, "--max-events", 1024, "--save", "model", "--checkpoint", "state"))
    options = ("--model", "model", "--time", "t", "--ignore", "id,y", "--checkpoint", "state2", "--quiet")
    streamsvm("predict", stream, *options, "--reference", 1024, "--alerts", "alerts.jsonl")
    assert {alarm["column"] for alarm in json_lines(tmp_path / "alerts.jsonl")} == {"heat", "site"}
    view = CheckpointView(tmp_path / "state2")
    view.refresh()
    shown = json.loads(view.feed.latest)["features"]
    assert [(row["name"], bool(row["changed"])) for row in shown["rows"]][:2] == [("heat", True), ("site", True)]


def test_a_profile_is_the_reference_of_the_same_events(stream, tmp_path, streamsvm):
    made = streamsvm(*asked(stream, "--max-events", 1024, command="profile"))
    assert made.stdout == "profile.json: 3 features of 1,024 events\n"
    for name, reference in (("a.jsonl", 1024), ("b.jsonl", "profile.json")):
        streamsvm(*asked(stream, *CPM, "--alerts", name, "--reference", reference))
    ours, others = json_lines(tmp_path / "a.jsonl"), json_lines(tmp_path / "b.jsonl")
    assert [(one["column"], one["kind"]) for one in ours] == [(one["column"], one["kind"]) for one in others]


def test_a_long_stream_is_profiled_in_one_pass(tmp_path, streamsvm):
    options = ("--alerts", "alerts.jsonl", "--set", "false-alarms=1", *CPM)
    source = "synthetic:sea?n=10000&seed=3"
    streamsvm("profile", source, "--quiet")
    profile = json.loads((tmp_path / "profile.json").read_text())
    assert profile["n_events"] == 9_984
    for column in profile["columns"]:
        assert column["n_events"] == 9_984
        assert len(column["design"]) == len(profile["columns"][0]["design"]) == 5
    streamsvm("run", "synthetic:sea?n=20000&seed=4", "--reference", "profile.json", *options)
    assert (tmp_path / "alerts.jsonl").read_text() == ""


def test_reports_name_changes_and_whether_accuracy_dropped(stream):
    config = RunConfig(source=str(stream), label="y", time="t", ignore="id", model="bsgd", reference=1024)
    report = Run(config).start()
    text = str(report)
    assert "monitored features: 3" in text
    assert "changed now: heat, site" in text
    (line,) = (line for line in text.splitlines() if line.startswith("  after event") and " heat: mean " in line)
    assert "; accuracy 0." in line
    metrics = text_of_report(report).decode()
    assert 'streamsvm_column_changed{column="heat"} 1.0' in metrics
    assert 'streamsvm_column_changed{column="load"} 0.0' in metrics
    assert "streamsvm_changed_columns 2.0" in metrics
    assert "streamsvm_changed_relations 0.0" in metrics
    assert 'streamsvm_alerts_total{kind="missing"} 1.0' in metrics


def test_without_options_nothing_is_monitored_or_imported(tmp_path):
    code = (
        "import sys; from streamsvm.run import Run, RunConfig; "
        "r = Run(RunConfig(source='synthetic:sea?n=300', model='cpm')).start(); "
        "assert r.monitor is None; assert not [m for m in sys.modules if m.startswith('streamsvm.monitor')]"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment())


LEARNERS = [(300, "cpm"), (3_000, "cpm"), (300, "own"), (300, "saved"), (300, "wrapped")]


@pytest.mark.parametrize(("size", "learner"), LEARNERS)
def test_an_alarm_starts_a_refit(stream, size, learner, tmp_path):
    asked: dict[str, Any] = {"model": learner, "refit": "newton,every=alarm:100,window=1000"}
    if learner != "cpm":
        refit = {"solver": "newton", "trigger": OnDemand(gather=100), "window": Latest(1_000)}
        asked = {"model": StreamSVMClassifier(effort="low", refit=refit)}
    if learner == "wrapped":
        asked = {"model": DecidingClassifier(RefitClassifier(CPMClassifier(), **refit), class_weight="balanced")}
    if learner == "saved":
        asked["model"].save(tmp_path / "model")
        asked = {"model": str(tmp_path / "model")}
    options = {"source": f"{stream}?batch_size={size}", "label": "y", "time": "t", "ignore": "id", "reference": 1024}
    alerts = str(tmp_path / "alerts.jsonl")
    report = Run(RunConfig(**options, **asked, alerts=alerts)).start()
    features = [alarm for alarm in json_lines(Path(alerts)) if alarm["column"] is not None]
    n_labelled = sum(i % 10 != 3 for i in range(features[-1]["events"]))
    assert report.refits is not None
    assert [one["event"] for one in report.refits.last] == [n_labelled + 100]


def test_a_model_that_waits_for_alarms_is_reported_without_them(stream, caplog):
    model = RefitClassifier(CPMClassifier(), solver="newton", trigger=OnDemand())
    Run(RunConfig(source=stream, label="y", model=model, max_events=10)).start()
    assert "--alerts" in caplog.text


# Mistakes -------------------------------------------------------------------------------------------------------------


def test_a_profile_of_other_data_is_refused_before_anything_is_written(stream, tmp_path, streamsvm, refused):
    streamsvm("profile", "synthetic:sea?n=500", "-o", "sea.json")
    (tmp_path / "out.csv").write_text("line,prediction,score\n")
    assert "'heat'" in refused(*asked(stream, *CPM, "--reference", "sea.json", "--out", "out.csv"))
    assert (tmp_path / "out.csv").read_text() == "line,prediction,score\n"


def test_columns_that_differ_are_named_and_a_label_in_a_profile_is_ignored(stream, tmp_path, streamsvm):
    streamsvm("profile", stream, "--ignore", "load", "--ignore", "id", "--quiet", "--max-events", 1024)
    columns = {column["name"] for column in json.loads((tmp_path / "profile.json").read_text())["columns"]}
    assert columns == {"t", "heat", "site", "y"}
    more = ("--reference", "profile.json", "--alerts", "alerts.jsonl")
    done = streamsvm(*asked(stream, *CPM, *more))
    assert "lacks the columns 'load'" in done.stderr
    assert "'t', 'y': no feature of this stream" in done.stderr
    assert {alarm["column"] for alarm in json_lines(tmp_path / "alerts.jsonl")} == {"heat", "site", None}


def test_a_stream_shorter_than_its_reference_is_reported(stream, caplog):
    report = Run(RunConfig(source=str(stream), label="y", time="t", model="cpm", reference=5_000)).start()
    (notice,) = (notice for notice in report.notices if "5,000" in notice)
    assert "3,000" in notice
    assert str(report).count(notice) == 1
    assert notice in caplog.messages


@pytest.mark.parametrize(
    ("lines", "code", "message"), [(1, 1, "0 events"), (200, 1, "at least 256"), (300, 0, "of 299 events")]
)
def test_a_profile_needs_events(lines, code, message, stream, tmp_path, streamsvm):
    text = "\n".join(stream.read_text().splitlines()[:lines])
    (tmp_path / "short.csv").write_text(text + "\n")
    done = streamsvm("profile", "short.csv", "--label", "y", code=code)
    assert message in done.stdout + done.stderr
    assert (tmp_path / "profile.json").exists() == (not code)
    assert ("values not compared: id, t" in done.stdout) == (not code)


def test_refusals(stream, tmp_path, refused):
    (tmp_path / "mine.json").write_text('{"mine": 1}')
    for options, named in (
        (asked(stream, "--set", "false-alarms=1"), "--alerts"),
        (asked(stream, "--set", "reset-reference=after-alarm"), "--alerts"),
        (asked(stream, "--refit", "newton,every=growing+alarm"), "--alerts"),
        (asked(stream, "--reference", 100), "256"),
        (asked(stream, "--reference", "none.json"), "none.json"),
        (asked(stream, "--reference", "mine.json"), "mine.json"),
        (asked(stream, "--alerts", "a.jsonl", "--out", "a.jsonl"), "the same file"),
        (asked(stream, "-o", "mine.json", command="profile"), "mine.json"),
        (asked(stream, "-o", stream, command="profile"), "the same file"),
        (("profile", "absent.csv"), "absent.csv"),
        (("profile", "--label", "y"), "SOURCE"),
        (("profile",), "SOURCE"),
    ):
        assert named in refused(*options)
    assert (tmp_path / "mine.json").read_text() == '{"mine": 1}'


def test_a_checkpoint_belongs_to_its_reference(stream, tmp_path, streamsvm):
    more = (*CPM, "--reference", "profile.json", "--checkpoint", "state")
    for n, code in ((1024, 0), (2048, 2)):
        streamsvm(*asked(stream, "--max-events", n, "--quiet", command="profile"))
        done = streamsvm(*asked(stream, *more), code=code)
    assert "--reference was" in done.stderr
