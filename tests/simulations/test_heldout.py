"""Files of the user, and figures beside the published ones of StreamArena."""

from __future__ import annotations

import json

import numpy as np
import pytest

from simulations.__main__ import main
from simulations.benchmarks import heldout
from tests.errors import raises

FIGURES = {"real/machine": {"Forest": [0.4, 80.0, 100.0], "Tree": [0.5, 90.0, 9.0]}, "real/weather": {}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STREAMSVM_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / heldout.FIGURES).write_text(json.dumps(FIGURES))
    rng = np.random.default_rng(0)
    rows = [f"{x:.3f};{'on' if x > 0 else 'off'};{y:.3f}" for x, y in rng.normal(size=(3_000, 2))]
    (tmp_path / "machine.csv").write_text("\n".join(["a;state;b", *rows]))
    return tmp_path


def test_learners_and_baselines_run_on_a_file_of_the_user(folder, capsys):
    learners = ["StreamSVM", "previous label", "most frequent", "LR"]
    file = f"mine={folder / 'machine.csv'}?delimiter=;&label=state"
    assert main(["heldout", file, "--events", "1000", "--learners", *learners]) == 0
    found = json.loads((folder / "heldout.json").read_text())["rows"]
    assert list(found) == [f"mine / {name}" for name in learners]
    assert {row["events"] for row in found.values()} == {1_000}
    accuracy = {name: found[f"mine / {name}"]["accuracy"] for name in learners}
    assert accuracy["StreamSVM"] > 95.0
    assert 40.0 < accuracy["previous label"] < 60.0 > accuracy["most frequent"] > 40.0
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    cells = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in table[:3]]
    assert cells[0] == ["stream", "StreamSVM", "gain", *learners[1:]]
    assert cells[2][:2] == ["mine", f"{accuracy['StreamSVM']:.1f}"]
    assert float(cells[2][2]) == pytest.approx(accuracy["StreamSVM"] - accuracy["LR"], abs=0.06)


def test_a_result_of_other_data_or_another_label_is_measured_again(folder):
    def measured(query, events):
        main(["heldout", f"machine.csv?delimiter=;{query}", "--events", str(events), "--learners", "previous label"])
        return json.loads((folder / "heldout.json").read_text())["rows"]["machine / previous label"]

    first = measured("&label=state", 500)
    assert measured("&label=state", 500) == first
    assert measured("&label=state", 600)["events"] == 600
    assert measured("", 600)["classes"] > 2  # the last column has numbers


@pytest.mark.parametrize(
    ("file", "content", "label"),
    [
        ("a.csv", "a,Class,b\n1,2,3\n", "Class"),
        ("a.csv", "a,b,c\n1,2,3\n", "c"),
        ("a.csv?header=no", "1,2\n3,4\n", "f2"),
        ("a.jsonl", '{"target": 1, "a": 2}\n', "target"),
        ("a.jsonl", '{"a": 1, "b": 2}\n', ""),
        ("a.libsvm", "+1 1:1\n", ""),
    ],
)
def test_the_label_of_a_file_is_guessed(folder, file, content, label):
    (folder / file.partition("?")[0]).write_text(content)
    assert heldout.label_of(file) == label
    assert not label or heldout.load(file, 9, label).events


def test_the_label_is_guessed_with_the_options_of_the_file(folder):
    (folder / "other.csv").write_text("Title\nGröße;Klasse\n1,5;on\n2,5;off\n", encoding="cp1252")
    file = f"{folder / 'other.csv'}?delimiter=;&decimal=,&skip_rows=1&encoding=cp1252"
    assert heldout.label_of(file) == "Klasse"
    assert [event.x for event in heldout.load(file, 9, "Klasse").events] == [{"Größe": 1.5}, {"Größe": 2.5}]


@pytest.mark.parametrize("arguments", [[], ["machine.csv", "--events", "0"], ["a=machine.csv", "a=other.csv"]])
def test_wrong_arguments_are_refused(folder, arguments):
    (folder / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SystemExit) as refused:
        main(["heldout", *arguments])
    assert refused.value.code
    assert not (folder / "heldout.json").exists()


def test_a_file_without_labels_is_refused(folder):
    (folder / "other.jsonl").write_text('{"a": 1}\n')
    with raises(ValueError, named="label="):
        heldout.load(str(folder / "other.jsonl"), 9)


def test_sparse_rows_have_their_zeros(folder):
    (folder / "sparse.libsvm").write_text("+1 1:1 3:2\n-1 2:1\n")
    assert [event.x for event in heldout.load(str(folder / "sparse.libsvm"), 9).events] == [
        {1: 1.0, 3: 2.0, 2: 0.0},
        {1: 0.0, 3: 0.0, 2: 1.0},
    ]


def test_a_stream_is_compared_with_the_best_published_learners(folder, capsys):
    assert main(["arena", f"{folder / 'machine.csv'}?delimiter=;&label=state", "--out", "arena.json"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| machine")).split("|")
    loss, accuracy, _ = (float(text) for text in row[2].split("/"))
    assert loss < 0.1
    assert accuracy > 95.0
    assert row[3].split() == ["Forest:", "0.400", "/", "80.0", "/", "100"]
    assert row[4].split() == ["Tree:", "0.500", "/", "90.0", "/", "9.0"]
