"""Settings of model and predictions, and hints: effort, members, all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from river import linear_model, multiclass, naive_bayes

from connectors.events import Batch
from streamsvm import CPMClassifier, StreamSVMClassifier
from tests.run.conftest import json_lines, run, table, write_stream
from tests.run.test_cli import CPM
from tests.run.test_loop import Collected, Numbers

NOT_NAMED = "no SOURCE is given, "
NOT_SAID = "no label to learn: name its column with --label, or use `streamsvm predict`"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--config", "c.toml"), f"{NOT_NAMED}nor `source` in c.toml"),
        (("--label", "y"), f"{NOT_NAMED}which these settings are for"),
        (("in.csv",), f"in.csv: {NOT_SAID}"),
        (("-",), f"standard input: {NOT_SAID}"),
    ],
)
def test_a_stream_and_a_label_are_required(refused, tmp_path, arguments, message):
    (tmp_path / "c.toml").write_text("window = 10\n")
    write_stream(tmp_path / "in.csv", 10)
    assert message in refused("run", *arguments, *CPM, input="x,y\n")


def test_the_label_need_not_be_named_if_it_is_known(streamsvm, tmp_path):
    (tmp_path / "in.libsvm").write_text("1 1:2\n0 1:3\n" * 5)
    write_stream(tmp_path / "in.csv", 50)
    for arguments in (("in.libsvm",), ("in.csv?label=y",)):
        streamsvm("run", *arguments, *CPM, "--save", "m")
    streamsvm("predict", "in.csv", "--model", "m")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--model", "..x"), id="a relative name"),
        pytest.param(("--param", f"n_faces={'9' * 100_000}"), id="very many digits"),
        pytest.param(("--param", f"n_faces={'[' * 100_000}"), id="very many brackets"),
        pytest.param(("--config", "deep.toml"), id="TOML nested deeply"),
        pytest.param(("--set", "class-weight={" * 100_000), id="JSON nested deeply"),
    ],
)
def test_settings_that_no_parser_can_read_are_refused_in_a_line(refused, tmp_path, arguments):
    write_stream(tmp_path / "in.csv", 5)
    (tmp_path / "deep.toml").write_text(f"seed = {'[' * 100_000}{']' * 100_000}\n")
    model = () if arguments[0] == "--model" else ("--model", "cpm")
    assert len(refused("run", "in.csv", "--label", "y", *model, *arguments)) < 300


def test_errors_do_not_repeat_passwords(streamsvm, tmp_path):
    write_stream(tmp_path / "in.csv", 5)
    url, asked = "kafka:me:hunter2@broker:9/t", ("--label", "y", *CPM)
    for arguments in (("in.csv", *asked, "--out", url, "--dead-letter", url), (url, *asked)):
        result = streamsvm("run", *arguments, code=None)
        assert result.returncode != 0
        assert "hunter2" not in result.stderr
    misspelt = (("--page-tokn", "hunter2"), ("--page-tokn=hunter2",), ("--set", "page-tokn=hunter2"))
    for arguments in misspelt:
        message = streamsvm("run", "in.csv", *asked, *arguments, code=2).stderr
        assert "page-tokn" in message
        assert "hunter2" not in message


def test_effort_and_members(streamsvm, refused, tmp_path):
    write_stream(tmp_path / "in.csv", 100)
    (tmp_path / "c.toml").write_text('source = "in.csv"\nlabel = "y"\n[model]\neffort = "low"\nmembers = ["linear"]\n')
    asked = {
        ("--config", "c.toml"): ("low", ("linear",)),
        ("--config", "c.toml", "--param", "effort=high", "--param", "budget=10"): ("high", ("linear",)),
        ("in.csv", "--label", "y", "--param", "effort=low"): ("low", None),
        ("in.csv", "--label", "y", "--param", 'members=["linear", "standard"]'): ("normal", ("linear", "standard")),
    }
    for arguments, (effort, members) in asked.items():
        streamsvm("run", *arguments, "--save", "m")
        model = StreamSVMClassifier.load(tmp_path / "m")
        assert (model.effort, model.members) == (effort, members)
    assert "members" in refused("run", "in.csv", "--label", "y", "--param", 'members=["none"]')


# All probabilities -----------------------------------------------------------------------------------------------


class Late(Numbers):
    """Classes of several types appear one after another."""

    def __init__(self, size: int) -> None:
        super().__init__(600, size)
        self.labels = [(None, "up", 1, True, "1", 2.5)[min(i // 100, 5)] for i in range(600)]

    def __iter__(self) -> Iterator[Batch]:
        for batch in super().__iter__():
            batch.labels = [["up", 1, "1", 2.5][i % (1 + i // 100)] if i % 3 else y for i, y in self.numbered(batch)]
            yield batch

    def numbered(self, batch: Batch) -> list[tuple[int, Any]]:
        lines = batch.origins.columns["line"]
        return [(line % 400, label) for line, label in zip(lines, batch.labels, strict=True)]


MODELS = [CPMClassifier(), naive_bayes.GaussianNB(), multiclass.OneVsRestClassifier(linear_model.LogisticRegression())]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_probabilities_are_those_of_river(model):
    out, twin = Collected(), model.clone()
    run(model, Late(64), out=out, proba=True)
    expected = []
    for batch in Late(64):
        for x, y in zip(batch.rows(), batch.labels, strict=True):
            prediction, probabilities = twin.predict_one(x), twin.predict_proba_one(x)
            expected.append(None if prediction is None else [p for p in probabilities.values() if p])
            if y is not None:
                twin.learn_one(x, y)
    found = [None if row["proba"] is None else list(row["proba"].values()) for row in out.rows]
    assert [None if row is None else sorted(row) for row in found] == [
        None if row is None else sorted(row) for row in expected
    ]
    named = {name for row in out.rows if row["proba"] for name in row["proba"]}
    assert named >= {"up", "1", '"1"', "2.5"}


def test_two_classes_alone_and_models_without_probabilities():
    out = Collected()
    run(linear_model.LogisticRegression(), Numbers(100), out=out, proba=True)
    assert set(out.rows[-1]["proba"]) == {"low", "high"}
    assert sum(out.rows[-1]["proba"].values()) == pytest.approx(1.0)
    run(linear_model.Perceptron(), Numbers(100), out=(plain := Collected()), proba=True)
    run(linear_model.PAClassifier(), Numbers(100), out=(none := Collected()))
    assert "proba" in plain.rows[0]
    assert "proba" not in none.rows[0]


def test_all_probabilities_from_the_command_line(streamsvm, refused, tmp_path):
    write_stream(tmp_path / "in.csv", 300)
    asked = ("run", "in.csv", "--label", "y", *CPM, "--set", "proba=true")
    for sink in ("o.csv", "o.jsonl"):
        streamsvm(*asked, "--out", sink)
    cells = [json.loads(row["proba"] or "null") for row in table(tmp_path / "o.csv")]
    objects = json_lines(tmp_path / "o.jsonl")
    assert cells == [row["proba"] for row in objects]
    last = objects[-1]
    assert last["score"] == last["proba"][last["prediction"]] == max(last["proba"].values())
    assert "--set proba needs --out" in refused(*asked)
