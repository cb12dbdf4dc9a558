"""Labels from a separate stream: the command line with files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import evaluate, metrics

from streamsvm import CPMClassifier, DelayedClassifier
from tests.commands import completed, ran_here
from tests.run.conftest import json_lines, killed_and_resumed, table, write_joined

N, STEP_MS = 2_000, 10


def events() -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, 4)).round(4)
    return X, np.where((np.arange(N) < N / 2) == (X[:, 0] + X[:, 1] * X[:, 2] > 0), "up", "down")


def write(folder: Path, *, delays: Any = 1, lost: float = 0.0, sites: int = 0, n: int = N) -> None:
    """Write n events, and labels a number of milliseconds later."""
    X, y = events()
    is_lost = np.random.default_rng(2).random(n) < lost
    write_joined(folder, X[:n], y[:n], np.where(is_lost, np.nan, delays), sites)


def test_expired_events_are_learned_with_the_timeout_class(tmp_path, streamsvm):
    X, y = events()
    rows = [{"id": f"k{i}", "t": i * STEP_MS} | dict(zip("abcd", X[i].tolist(), strict=True)) for i in range(N)]
    labels = [{"id": f"k{i}", "t": i * STEP_MS + 500, "y": True} for i in range(N) if y[i] == "up"]
    for name, each in (("events", rows), ("labels", labels)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, each)) + "\n")
    own = ("events.jsonl", "--label-source", "labels.jsonl", "--join", "id", "--time", "t", "--label", "y", "--quiet")
    own += ("--label-output", "joined.jsonl", "--save", "model")
    streamsvm("run", *own, "--model", "cpm", "--label-timeout", "1s", "--set", "timeout-label=false")
    assert sorted(CPMClassifier.load(tmp_path / "model").classes_) == [False, True]
    joined = json_lines(tmp_path / "joined.jsonl")
    assert all(row["label"] is (y[int(row["key"][1:])] == "up") for row in joined)
    assert {row["how"] for row in joined} == {"in time", "timeout"}
    latest = [row for row in joined if int(row["key"][1:]) > N - 500]
    assert np.mean([row["prediction"] == row["label"] for row in latest]) > 0.7


@pytest.mark.parametrize("unit", ["s with fractions", "us", "RFC 2822"])
def test_the_wait_is_the_same_whatever_times_are_written_in(unit, tmp_path, streamsvm):
    def written(seconds):
        moment = 1_700_000_000 + seconds
        if unit == "RFC 2822":
            return f'"{format_datetime(datetime.fromtimestamp(int(moment), UTC))}"'
        return f"{moment}" if "fractions" in unit else f"{int(moment) * 1_000_000}"

    rows = [f"k{i},{written(60 * i + 0.5)},{i % 2}" for i in range(40)]
    labels = [f"k{i},{written(60 * i + 0.5 + (1800 if i < 20 else 2 * 3600))},{i % 2}" for i in range(40)]
    (tmp_path / "events.csv").write_text("\n".join(["id,t,a", *rows]) + "\n")
    (tmp_path / "labels.csv").write_text("\n".join(["id,t,y", *labels]) + "\n")
    streamsvm("run", *JOIN, "--model", "cpm", "--label-timeout", "1h", "--label-output", "joined.csv")
    statuses = [row["how"] for row in table(tmp_path / "joined.csv")]
    assert (statuses.count("in time"), statuses.count("late")) == (20, 20)


JOIN = ("events.csv", "--label-source", "labels.csv", "--join", "id", "--time", "t", "--label", "y", "--quiet")


@pytest.mark.parametrize(
    "options",
    [
        ("cpm", "--set", "alarms=up=recall:0.7", "--set", "class-weight=balanced", "--set", "abstain=0.9"),
        ("blend", "--set", "alarms=up=precision:0.7", "--set", "coverage=0.8"),
    ],
    ids=["cpm", "blend"],
)
def test_labels_without_delay_equal_labels_in_events(tmp_path, streamsvm, options):
    write(tmp_path, sites=3)
    most = ("--max-events", 600, "--model", *options)
    whole = ("both.csv", "--set", "key=id", "--time", "t", "--label", "y", "--quiet", "--summary", "whole.json")
    streamsvm("run", *whole, *most, "--out", "whole.csv", "--save", "whole")
    streamsvm("run", *JOIN, *most, "--out", "late.csv", "--save", "late", "--summary", "late.json")
    assert (tmp_path / "late").read_bytes() == (tmp_path / "whole").read_bytes()
    late, plain = table(tmp_path / "late.csv"), table(tmp_path / "whole.csv")
    assert [{**row, "label": ""} for row in late] == [{**row, "label": ""} for row in plain]
    assert "label" not in late[0]
    figures, plain_figures = (json.loads((tmp_path / name).read_text()) for name in ("late.json", "whole.json"))
    for name in ("accuracy", "kappa", "baselines", "classes", "accuracy_drops", "probabilities"):
        assert figures[name] == plain_figures[name]


@pytest.mark.parametrize("delay", [1, 100])
def test_a_delay_equals_the_evaluation_of_river(tmp_path, streamsvm, delay):
    n = 400
    write(tmp_path, delays=delay * STEP_MS - 1, n=n)
    streamsvm("run", *JOIN, "--model", "cpm", "--summary", "late.json")
    X, y = (values[:n] for values in events())
    stream = (
        (dict(zip("abcd", x, strict=True)), label, {"key": i})
        for i, (x, label) in enumerate(zip(X.tolist(), y, strict=True))
    )
    score = evaluate.progressive_val_score(stream, DelayedClassifier(CPMClassifier()), metrics.Accuracy(), delay=delay)
    assert json.loads((tmp_path / "late.json").read_text())["accuracy"] == score.get()


def test_each_event_finds_its_label_once(tmp_path, streamsvm):
    delays = np.random.default_rng(3).exponential(3000, N)
    write(tmp_path, delays=delays, lost=0.1)
    labels = table(tmp_path / "labels.csv")
    with (tmp_path / "labels.csv").open("a") as file:
        file.write("k3,50000,up\nnobody,50000,up\n,50000,up\nk4,50000,\n")
    asked = ("--label-timeout", "5s", "--label-output", "joined.csv", "--out", "out.csv", "--summary", "late.json")
    streamsvm("run", *JOIN, "--model", "cpm", *asked)
    joined, out = table(tmp_path / "joined.csv"), {row["key"]: row for row in table(tmp_path / "out.csv")}
    assert len({row["key"] for row in joined}) == len(joined)
    for row in joined:
        assert (row["prediction"], row["score"], row["line"]) == tuple(
            out[row["key"]][name] for name in ("prediction", "score", "line")
        )
        lag = delays[int(row["key"][1:])]
        assert round(float(row["lag"]) * 1000) == int(lag)
        assert row["how"] == ("late" if lag > 5000 + 100 else "in time" if lag < 5000 - 100 else row["how"])
    figures = json.loads((tmp_path / "late.json").read_text())
    late = figures["late"]
    assert late["answered"] + late["late"] == len(joined)
    assert late["waiting"] + late["answered"] + late["expired"] == N
    kinds = ("answered", "late", "repeated", "corrected", "early", "unmatched")
    assert late["labels"] == sum(late[kind] for kind in kinds) == len(labels) + 2
    assert late["early"] + late["unmatched"] >= 2
    assert figures["rejected"] == 2
    assert figures["judged"] + figures["unanswered"] == len(joined)
    assert 1.7 < late["lag_s"]["median"] < 2.3
    assert late["lag_s"]["max"] == max(round(float(row["lag"]), 3) for row in joined)


def results(folder: Path) -> dict[str, Any]:
    summary = json.loads((folder / "late.json").read_text())
    for name in ("process", "source"):
        summary.pop(name)
    return {"summary": summary} | {name: (folder / name).read_bytes() for name in ("out.csv", "joined.csv", "model")}


def arguments(folder: Path, every: int) -> list[Any]:
    joined = (f"{folder}/events.csv?batch_size=50", "--label-source", f"{folder}/labels.csv?batch_size=70", *JOIN[3:])
    waits = (
        "--label-timeout 3s --set timeout-label=down --model cpm --set relearn-corrections=true --set max-pending=200"
    )
    kept = ("--checkpoint", "check", "--checkpoint-every", every, "--save", "model", "--summary", "late.json")
    decided = ("--set", "alarms=up=precision:0.7", "--set", "class-weight=balanced", "--set", "coverage=0.8")
    return ["run", *joined, *waits.split(), *kept, *decided, "--out", "out.csv", "--label-output", "joined.csv"]


@pytest.mark.parametrize(
    "more",
    [
        "--model bsgd --set relearn-corrections=true --set max-pending=300 --set timeout-label=down --label-timeout 3s",
        "--model cpm --set max-pending-bytes=30_000 --set label-budget=0.3 --query-output asked.csv "
        "--set alarms=up=0.1 --set cost=up:down=3",
        "--model bsgd --label-timeout 3s --set coverage=0.8 --set coverage-by-class=true --set proba=true",
        "--model cpm --set alarms=up=recall:0.7 --set class-weight=balanced --set abstain=0.9 --set coverage=0.8 "
        "--label-timeout 3s --set timeout-label=down --set max-pending=300",
    ],
    ids=["relearned", "asked", "sets", "followed"],
)
def test_nothing_depends_on_how_the_streams_are_cut(tmp_path, more):
    write(tmp_path, delays=np.random.default_rng(3).exponential(2000, 1200), lost=0.1, n=1200)
    damage(tmp_path / "events.csv", ["odd", "k1,2,1e400,1,2,3", ",5,1,2,3,4"])
    damage(tmp_path / "labels.csv", ["k2,3,", "k3,soon,up", "odd"])
    left = []
    for sizes in ((50, 70), (333, 4096)):
        sources = zip(("events.csv", "labels.csv"), sizes, strict=True)
        events, labels = (f"{tmp_path}/{name}?batch_size={size}" for name, size in sources)
        folder = tmp_path / str(sizes[0])
        folder.mkdir()
        kept = ("--save", "model", "--summary", "late.json", "--out", "out.csv", "--label-output", "joined.csv")
        kept += ("--max-events", 900, "--dead-letter", "rejected.csv")
        ran_here("run", events, "--label-source", labels, *JOIN[3:], *more.split(), *kept, cwd=folder, check=True)
        left.append(results(folder) | {"rejected": (folder / "rejected.csv").read_bytes()})
        left[-1]["summary"].pop("changes")  # samples, which are taken at the ends of batches
    one, other = left
    assert {name for name in one if one[name] != other[name]} == set()
    assert one["rejected"].count(b"\n") > 100
    assert (one["summary"]["late"]["dropped"] > 0) == ("max-pending-bytes" in more)


def damage(path: Path, odd: list[str]) -> None:
    """Insert malformed lines."""
    lines = path.read_text().splitlines()
    for i in range(40, len(lines), 29):
        lines[i] += "".join(f"\n{line}" for line in odd[i % 3 :])
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("n_classes", [2, 3])
def test_losses_are_those_of_all_labels_of_two_classes_or_of_none(tmp_path, n_classes):
    rows = [(f"k{i},{i}", i % 3 - 1, f"c{max(0, i // 4 % (n_classes + 1) - 1)}") for i in range(60)]
    (tmp_path / "events.csv").write_text("id,t,a\n" + "".join(f"{at},{a}\n" for at, a, _ in rows))
    (tmp_path / "labels.csv").write_text("id,t,y\n" + "".join(f"{at},{y}\n" for at, _, y in rows))
    found = []
    for size in (3, 1000):
        run = (f"events.csv?batch_size={size}", *JOIN[1:], "--model", "cpm", "--summary", "late.json")
        ran_here("run", *run, cwd=tmp_path, check=True)
        found.append(json.loads((tmp_path / "late.json").read_text())["probabilities"])
    assert found[0] == found[1]
    assert (found[0]["log_loss"] is None) == (n_classes > 2)


@pytest.mark.usefixtures("unsynced")
def test_killed_and_resumed(tmp_path):
    delays = np.random.default_rng(3).exponential(2000, N)
    write(tmp_path, delays=delays, lost=0.1, sites=3)
    with (tmp_path / "labels.csv").open("a") as file:
        file.writelines(f"k{i},{N * STEP_MS},up\n" for i in range(N - 300, N, 3))
    whole, resumed = map(results, killed_and_resumed(tmp_path, lambda every: arguments(tmp_path, every)))
    assert resumed == whole


def test_errors_mention_pending_events_on_disk(tmp_path):
    n = 40_000  # more than a segment
    (tmp_path / "events.csv").write_text("id,t,a\n" + "".join(f"{i},{i},{i % 7}\n" for i in range(n)))
    (tmp_path / "labels.csv").write_text(f"id,t,y\n0,{n},up\n")
    (tmp_path / "disk").mkdir()
    run = ("run", *JOIN, "--model", "cpm")
    kept = (*run, "--checkpoint", "check", "--checkpoint-every", n)
    disk = (*run, "--set", "pending-dir=disk")
    for full, said in ((disk, "disk: waiting events"), (kept, "checkpoint: check/waiting:")):
        done = completed(*full, cwd=tmp_path, most_bytes=500_000)
        assert (done.returncode, f"{said} cannot be written" in done.stderr) == (1, True), done.stderr
    ran_here(*kept, cwd=tmp_path, check=True)
    next((tmp_path / "check" / "waiting").iterdir()).unlink()
    lost = ran_here(*kept, cwd=tmp_path)
    assert (lost.returncode, "cannot resume from the checkpoint in check" in lost.stderr) == (2, True), lost.stderr


def test_labels_are_requested_once_within_a_budget_also_when_resumed(tmp_path, streamsvm):
    write(tmp_path, delays=1000, sites=3)
    (tmp_path / "waiting").mkdir()
    asking = ("--model", "cpm", "--set", "label-budget=0.1", "--set", "pending-dir=waiting", "--summary", "late.json")
    streamsvm("run", *JOIN, *asking, "--out", "whole.csv", "--query-output", "asked.csv")
    for most in (("--max-events", 901), ()):
        cut = (f"{JOIN[0]}?batch_size=90", *JOIN[1:], *asking, *most, "--checkpoint", "check")
        streamsvm("run", *cut, "--out", "cut.csv", "--query-output", "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "asked.csv").read_bytes()
    asked, out = table(tmp_path / "asked.csv"), {row["key"]: row for row in table(tmp_path / "whole.csv")}
    n_asked = json.loads((tmp_path / "late.json").read_text())["late"]["asked"]
    assert len({row["key"] for row in asked}) == len(asked) == n_asked
    assert 0.09 * N < len(asked) <= 0.1 * N + 20
    assert all(row == {name: out[row["key"]][name] for name in row} for row in asked)
    sure = [[float(row["score"]) for row in rows if int(row["key"][1:]) > 500] for rows in (asked, out.values())]
    assert np.median(sure[0]) < np.median(sure[1]) - 0.1


BOTH = "--label-timeout 1s --set timeout-label=up --set label-budget=0.1 --query-output asked.csv"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("events.csv", "--label-source", "labels.csv", "--join", "id", "--time", "t"), "needs --label NAME"),
        (("events.csv", "--label-timeout", "3d", "--label", "y"), "--label-timeout needs --label-source"),
        (("events.csv", "--label-source", "labels.csv", "--label", "y", "--time", "t"), "has no keys"),
        (("events.csv", "--label-source", "labels.csv", "--label", "y", "--join", "id"), "has no times"),
        (("events.csv", "--label-source", "events.csv", "--label", "y", "--join", "id", "--time", "t"), "same stream"),
        (
            ("events.csv", "--label-source", "labels.csv", "--label", "z", "--join", "id", "--time", "t"),
            "no column 'z'",
        ),
        ((*JOIN, "--set", "label-budget=0.1"), "label-budget needs --query-output"),
        ((*JOIN, "--set", "pending-dir=nowhere"), "is not a writable directory"),
        ((*JOIN, "--set", "pending-dir=.", "--model", "river.naive_bayes.GaussianNB"), "model of this package"),
        ((*JOIN, *BOTH.split()), "remove one of them"),
        (("synthetic:sea", *JOIN[1:]), "contains labels and no keys"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(tmp_path, refused, arguments, reason):
    write(tmp_path, n=20)
    assert reason in refused("run", *arguments)


def test_the_label_in_an_event_is_no_feature(tmp_path, streamsvm):
    write(tmp_path, delays=1000, n=300)
    hidden = ("both.csv", *JOIN[1:])
    for name, source in (("with", hidden), ("without", JOIN)):
        streamsvm("run", *source, "--model", "cpm", "--save", name, "--out", f"{name}.csv")
    assert (tmp_path / "with").read_bytes() == (tmp_path / "without").read_bytes()
