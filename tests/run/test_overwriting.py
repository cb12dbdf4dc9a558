"""Files that no run has written are only replaced on request."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow.parquet
import pytest

from connectors import open_sink, open_source
from streamsvm import CPMClassifier, cli
from streamsvm.models import KernelExpansion
from streamsvm.run.errors import SetupError
from tests.run.conftest import runner_of

DATA = "a,b,y\n" + "".join(f"{i % 7},{i % 5},{'ud'[i % 2]}\n" for i in range(60))
EVENTS = "a,b,k,t\n" + "".join(f"{i % 7},{i % 5},{i},{i}\n" for i in range(60))
LABELS = "k,t,y\n" + "".join(f"{i},{i},{'ud'[i % 2]}\n" for i in range(60))
REPLACED = [
    ("--out", "f.csv.gz"),
    ("--out", "f.jsonl"),
    ("--out", "f.parquet"),
    ("--dead-letter", "f.csv"),
    ("--save", "f.svm"),
    ("--summary", "f.json"),
    ("--plot", "f.png"),
]
LATE = ("--label-source", "labels.csv", "--join", "k", "--time", "t", "--set", "time-unit=s")


@pytest.fixture(autouse=True)
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("in.csv", DATA), ("events.csv", EVENTS), ("labels.csv", LABELS)):
        Path(name).write_text(text)


def run(*arguments: str, source: str = "in.csv") -> int:
    return cli.main(["run", source, "--label", "y", "--model", "cpm", "--quiet", *arguments])


def write_foreign(path: Path) -> None:
    if path.suffix == ".parquet":
        path.mkdir()
        pyarrow.parquet.write_table(pyarrow.table({"x": [1.0]}), path / "part-00000-c000.snappy.parquet")
    else:
        text = {".json": b'{"model": 1}', ".jsonl": b'{"line": 1, "x": 2}\n'}.get(path.suffix, DATA.encode())
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def content(path: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in (path, *path.rglob("*")) if each.is_file()}


@pytest.mark.parametrize(("option", "name"), REPLACED)
def test_a_foreign_file_is_replaced_only_on_request(option, name, capsys):
    path = Path(name)
    write_foreign(path)
    before = content(path)
    assert run(option, name) == 2
    assert "--set overwrite=true" in capsys.readouterr().err
    assert content(path) == before
    assert run(option, name, "--set", "overwrite=true") == 0
    assert content(path) != before
    assert run(option, name) == 0  # it replaces files written by a run


def test_a_picture_that_names_this_package_is_not_one_of_a_run():
    Path("f.svg").write_text("<svg><text>the house of streamsvm</text></svg>")
    assert run("--plot", "f.svg") == 2


def test_a_checkpoint_is_not_replaced_by_a_model():
    assert run("--checkpoint", "ck") == 0
    [path] = Path("ck").glob("*.safetensors")
    assert run("--save", str(path)) == 2
    with pytest.raises(FileExistsError):
        CPMClassifier().save(path)
    assert run("--checkpoint", "ck") == 0


@pytest.mark.parametrize("option", ["--label-output", "--query-output"])
def test_results_of_late_labels_do_not_replace_foreign_files(option):
    more = (*LATE, "--set", "label-budget=0.9", *(() if option == "--query-output" else ("--query-output", "r.csv")))
    write_foreign(Path("f.csv"))
    assert run(*more, option, "f.csv", source="events.csv") == 2
    assert Path("f.csv").read_text() == DATA
    for overwrite in (["--set", "overwrite=true"], []):
        assert run(*more, option, "f.csv", *overwrite, source="events.csv") == 0


def test_a_foreign_file_is_not_replaced_by_rejected_events():
    Path("bad.csv").write_text(DATA + "broken\n")
    Path("o.csv.rejected.jsonl").write_text("of somebody else\n")
    assert run("--out", "o.csv", source="bad.csv") == 2
    assert Path("o.csv.rejected.jsonl").read_text() == "of somebody else\n"


def test_a_directory_of_checkpoints_keeps_the_files_of_others():
    Path("ck/waiting").mkdir(parents=True)
    Path("ck/waiting/notes.txt").write_text("of somebody else")
    for more in ([], ["--reset"]):
        assert run("--checkpoint", "ck", "--out", "o.csv", *more) == 0
    assert Path("ck/waiting/notes.txt").exists()


def test_in_python_foreign_files_are_not_replaced_either():
    write_foreign(Path("f.svm"))
    expansion = KernelExpansion.__new__(KernelExpansion)
    for model in (CPMClassifier(), expansion):
        with pytest.raises(FileExistsError):
            model.save("f.svm")
    CPMClassifier().save("f.svm", overwrite=True)
    CPMClassifier().save("f.svm")
    write_foreign(Path("f.csv"))
    for overwrite in (False, True):
        sink = open_sink("f.csv", overwrite=overwrite)
        runner = runner_of(CPMClassifier(), open_source("in.csv", label="y"), out=sink)
        if overwrite:
            runner.run()
        else:
            with pytest.raises(SetupError):
                runner.run()
        sink.close()
        assert (Path("f.csv").read_text() != DATA) == overwrite


def test_a_model_that_is_cut_short_is_still_recognised():
    CPMClassifier().save("m.svm")
    Path("m.svm").write_bytes(Path("m.svm").read_bytes()[:-50])
    CPMClassifier().save("m.svm")
