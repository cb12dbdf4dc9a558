"""Streams sorted by label are reported; persistent labels are not."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm import CPMClassifier, RefitClassifier, cli
from streamsvm.run.metrics import Metrics
from tests.choices import each_choice
from tests.run.conftest import restored

SORTED = {
    "three classes": np.repeat([0, 1, 2], [400, 300, 500]),
    "few of one": np.repeat([0, 1], [900, 40]),
    "short": np.repeat([0, 1, 2], 50),
}
_RNG = np.random.default_rng(0)


def strewn(y: Any, share: float) -> Any:
    """Permute a random share of the labels."""
    y, places = y.copy(), _RNG.choice(len(y), int(share * len(y)), replace=False)
    y[np.sort(places)] = y[places]
    return y


SORTED |= {
    "two blocks": np.tile(np.repeat([0, 1, 2], [300, 200, 400]), 2),
    "1 % elsewhere": strewn(np.repeat([0, 1], 2000), 0.02),
    "two blocks, 1 % elsewhere": strewn(np.tile(np.repeat(np.arange(5), 800), 2), 0.01),
}
OTHERS = {
    "shuffled": _RNG.permutation(np.repeat([0, 1, 2], 400)),
    "persistent": np.repeat(np.arange(40) % 4, _RNG.integers(100, 300, 40)),
    "two long runs, then back": np.repeat([0, 1, 0], [400, 500, 100]),
    "a rare event at the end": np.repeat([0, 1], [999, 1]),
    "few rows": np.repeat([0, 1], 6),
    "three blocks": np.tile(np.repeat([0, 1], 300), 3),
    "5 % elsewhere": strewn(np.repeat([0, 1], 2000), 0.1),
    "bursts of a rare class": np.tile(np.repeat([0, 1], [990, 10]), 5),
}


def write(path: str, y: Any) -> None:
    X = np.random.default_rng(1).normal(size=(len(y), 2))
    Path(path).write_text("a,b,y\n" + "".join(f"{a:.3f},{b:.3f},{label}\n" for (a, b), label in zip(X, y, strict=True)))


def notices(*arguments: str) -> list[str]:
    """Return the warnings on the order of `in.csv` in the summary of a run."""
    run = ["run", "in.csv", "--label", "y", "--model", "cpm", "--summary", "s.json", "--set", "overwrite=true"]
    assert cli.main([*run, *arguments]) == 0
    return [notice for notice in json.loads(Path("s.json").read_text())["notices"] if "sorted" in notice]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("y", [SORTED["short"], SORTED["two blocks, 1 % elsewhere"]])
def test_a_sorted_file_is_reported_once(y, capsys):
    write("in.csv", y)
    [notice] = notices()
    out, err = capsys.readouterr()
    assert out.count(notice) == 1
    assert err.count("sorted by") == 1
    assert f"{len(np.unique(y))} classes" in notice


@pytest.mark.parametrize(("last", "found"), [(["Total"], True), (["a"], False), (["Total", "a"], False), ([], False)])
def test_a_class_of_the_last_row_alone_is_reported(last, found, capsys):
    write("in.csv", ["a", "b"] * 50 + last)
    notices()
    out, err = capsys.readouterr()
    assert ("class 'Total' occurs only in the last event" in err) == found
    assert out.count("summarises") == found


def test_sorted_labels_are_reported_during_the_run(capsys):
    write("in.csv", np.repeat(np.arange(10), 1500))
    assert notices("--max-events", "10000")
    write("in.csv", np.repeat([0, 1], [300, 20_000]))
    assert notices("--max-events", "1000") == []  # the beginning of a stream is not sufficient


def test_only_what_is_learned_counts():
    write("in.csv", OTHERS["shuffled"])
    assert cli.main(["run", "in.csv", "--label", "y", "--model", "cpm", "--quiet", "--save", "m.svm"]) == 0
    write("in.csv", SORTED["three classes"])
    run = ["predict", "in.csv", "--label", "y", "--model", "m.svm", "--summary", "s.json", "--quiet"]
    assert cli.main(run) == 0
    assert json.loads(Path("s.json").read_text())["notices"] == []


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("y", [SORTED["two blocks"], SORTED["few of one"]])
def test_a_resumed_run_finds_the_same(y):
    write("in.csv", y)
    whole = notices("--quiet")
    kept = ("--checkpoint", "ck", "--checkpoint-every", "50", "--quiet")
    notices(*kept, "--max-events", str(len(y) // 3))
    assert notices(*kept) == whole


@pytest.mark.parametrize("name", [*SORTED, *OTHERS])
def test_sorted_labels_are_noticed_in_any_batches(name):
    y = (SORTED | OTHERS)[name]
    found = set()
    for size in (97, len(y)):
        metrics = Metrics()
        for start, end in pairwise([*range(0, len(y), size), len(y)]):
            metrics.judge(y[start:end].tolist(), np.full(end - start, -1), [])
            metrics = restored(Metrics(), metrics.state()) if size == 97 else metrics
        found.add(metrics.order.notice(metrics.labels))
    (notice,) = found
    assert bool(notice) == (name in SORTED)


@each_choice(
    ("make", [CPMClassifier, lambda: RefitClassifier(CPMClassifier(), "newton")]),
    ("way", ["learn_many", "test_then_train"]),
    (("y", "expected"), [(SORTED["short"], 1), (OTHERS["shuffled"], 0), (OTHERS["few rows"], 0)]),
)
def test_sorted_rows_are_reported_in_python(make, way, y, expected, caplog):
    model = make()
    X = np.random.default_rng(1).normal(size=(len(y), 2))
    for _ in range(2):
        getattr(model, way)(X, y)
    logged = [record for record in caplog.records if "sorted" in record.getMessage()]  # a slow machine waits for refits
    assert len(model.notices) == len(logged) == expected


def test_a_batch_of_a_stream_in_python_is_no_file():
    model = CPMClassifier()
    X = np.random.default_rng(1).normal(size=(60, 2))
    model.learn_many(X, OTHERS["shuffled"][:60])
    model.learn_many(X, np.repeat([0, 1], 30))
    assert model.notices == []
