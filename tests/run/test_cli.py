from __future__ import annotations

import functools
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import connectors
import streamsvm as package
from streamsvm import cli
from streamsvm.cli.commands import COMMANDS
from tests.commands import Command, command, environment, wait_for
from tests.run.conftest import table, write_stream

GAUSSIAN = ("--model", "river.naive_bayes.GaussianNB")
CPM = ("--model", "cpm")


def test_everything_at_once(streamsvm, tmp_path):
    write_stream(tmp_path / "in.csv", 1500, broken=True)
    options = ("--out", "out.csv", "--save", "model", "--summary", "s.json", "--plot", "p.png", "--set", "window=500")
    reading = ("--label", "y", "--types", "a:number")
    result = streamsvm("run", "in.csv", *reading, *CPM, "--param", "n_faces=3", *options)
    summary = json.loads((tmp_path / "s.json").read_text())
    out, rejected = table(tmp_path / "out.csv"), (tmp_path / "out.csv.rejected.jsonl").read_text().splitlines()
    assert summary["events"] == len(out) == 1500 - len(rejected)
    assert summary["rejected"] == len(rejected) == 16
    assert list(out[0]) == ["line", "prediction", "score", "label"]
    assert out[0]["prediction"] == ""
    assert {row["prediction"] for row in out[1:]} == {"UP", "DOWN"}
    judged = [row for row in out if row["label"] and row["prediction"]]
    assert summary["judged"] == len(judged)
    assert summary["accuracy"] == sum(row["label"] == row["prediction"] for row in judged) / len(judged) > 0.8
    first = json.loads(rejected[0])
    assert (first["line"], first["raw"].split(",")[0]) == (7, "oops")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    for text in ("accuracy", "no change", "balanced accuracy", "Cohen's kappa", "16 events rejected, written to", "UP"):
        assert text in result.stdout
    assert "first prediction" in result.stdout


def write_identifiers(path: Path, n: int) -> None:
    lines = [f"user-{i:x},2024-05-{1 + i // 24 % 30:02}T{i % 24:02}:00,{i % 7},{i % 2}" for i in range(n)]
    path.write_text("\n".join(["id,when,x,y", *lines]) + "\n")


@pytest.fixture
def in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command line in this process; return standard output and error."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: Any) -> tuple[str, str]:
        assert cli.main(["run", *map(str, arguments)]) == 0
        return tuple(capsys.readouterr())

    return call


@pytest.mark.parametrize(
    ("types", "names"), [("", ["when", "id"]), ("id:category", ["when"]), ("when:time", ["id"])], ids=str
)
def test_identifiers_and_times_are_left_out_by_name(in_process, tmp_path, types, names):
    write_identifiers(tmp_path / "in.csv", 1500)
    out, err = in_process("in.csv", "--label", "y", *CPM, "--summary", "s.json", f"--types={types}")
    left_out = {
        "when": "feature 'when' is left out: its values are times; datetimes (--types when:time) become",
        "id": "feature 'id' is left out: nearly all of its values are new, like an identifier; --types id:category",
    }
    for notice, name in zip(json.loads((tmp_path / "s.json").read_text())["notices"], names, strict=True):
        assert notice.startswith(left_out[name])
        assert out.count(notice) == err.count(notice) == 1


def test_names_omitted_by_a_loaded_model_can_be_kept(in_process, tmp_path):
    write_identifiers(tmp_path / "in.csv", 1500)
    in_process("in.csv", "--label", "y", *CPM, "--save", "one.svm")
    out, err = in_process("in.csv", "--label", "y", "--model", "one.svm", "--save", "two.svm", "--types", "id:category")
    assert "'id'" not in out + err
    assert len(package.load("two.svm").state()[0]["names"]) > 1500


def test_values_that_arff_declares_are_categories(in_process, tmp_path):
    declared = ",".join(map(str, range(4000)))
    header = f"@attribute day {{{declared}}}\n@attribute text string\n@attribute y {{a,b}}\n@data\n"
    rows = [f"{i * 7919 % 4000},{i % 23},{'ab'[i % 7 < 3]}\n" for i in range(700)]
    (tmp_path / "in.arff").write_text(header + "".join(rows))
    out, err = in_process("in.arff", *CPM, "--save", "whole.svm")
    assert "'day'" not in err
    assert "feature 'day'" not in out
    kept = ("--checkpoint", "state", "--checkpoint-every", 100)
    for events in (60, 700):  # before and after an ambiguous state
        in_process("in.arff", *CPM, "--save", "part.svm", *kept, "--max-events", events)
    assert (tmp_path / "whole.svm").read_bytes() == (tmp_path / "part.svm").read_bytes()


def test_times_of_other_formats_are_left_out_and_their_formats_named(streamsvm, tmp_path):
    form, first = "%d/%m/%Y %I:%M %p", datetime(2021, 1, 1)
    rows = [f"{first + timedelta(hours=11 * i):{form}},{i % 7},{'ab'[i % 7 < 3]}" for i in range(600)]
    (tmp_path / "in.csv").write_text("\n".join(["when,x,y", *rows]) + "\n")
    run = ("run", "in.csv", "--label", "y", *CPM)
    assert "feature 'when' is left out: its values are times" in streamsvm(*run).stderr
    for more in (("--types", "when:time"), ("--time", "when")):
        said = "--set time-format='%d/%m/%Y %I:%M %p' or --set time-format='%m/%d/%Y %I:%M %p' reads others"
        assert said in streamsvm(*run, *more, code=3).stderr
        read = streamsvm(*run, *more, "--set", f"time-format={form}")
        assert "events rejected" not in read.stdout


def test_with_no_arguments_it_shows_something(streamsvm, tmp_path):
    result = streamsvm("run", "--max-events", 1000)
    assert "1,000 events of synthetic:demo" in result.stdout
    assert not list(tmp_path.iterdir())


def test_predictions_on_standard_output(streamsvm):
    lines = "x,y\n" + "1,1\n0,0\n" * 50
    result = streamsvm("run", "-", "--label", "y", "--out", "-", *GAUSSIAN, input=lines)
    assert result.stdout.splitlines()[:3] == ["line,prediction,score,label", "2,,,1", "3,1,1.0,0"]
    assert len(result.stdout.splitlines()) == 101
    assert "accuracy" in result.stderr


def test_progress_lines_and_quiet(streamsvm, tmp_path):
    write_stream(tmp_path / "in.csv", 1000)
    result = streamsvm("run", "in.csv", "--label", "y", *CPM, "--set", "log-every=0.001")
    assert " events, " in result.stderr
    assert "accuracy 0." in result.stderr
    (tmp_path / "c.toml").write_text("quiet = true\nlog-every = 0.01\n")
    for quiet in (["--quiet"], ["--config", "c.toml"]):
        result = streamsvm("run", "in.csv", "--label", "y", *CPM, *quiet)
        assert (result.stdout, result.stderr) == ("", "")


def test_a_quiet_run_restores_the_levels_of_loggers(in_process, tmp_path):
    write_identifiers(tmp_path / "in.csv", 100)
    loggers = [logging.getLogger(name) for name in ("streamsvm", "connectors")]
    levels = [logger.level for logger in loggers]
    in_process("in.csv", "--label", "y", *CPM, "--quiet")
    assert [logger.level for logger in loggers] == levels


def test_many_classes(streamsvm, tmp_path):
    (tmp_path / "in.csv").write_text("x,y\n" + "".join(f"{i % 50},c{i % 50}\n" for i in range(500)))
    result = streamsvm("run", "in.csv", "--label", "y", *CPM)
    assert "and 30 rarer classes" in result.stdout


def test_settings_from_a_file(streamsvm, tmp_path):
    write_stream(tmp_path / "in.csv", 500)
    write_stream(tmp_path / "again.csv", 500)
    (tmp_path / "c.toml").write_text(
        'source = "in.csv"\nlabel = "y"\nmax-events = 300\nquiet = true\nignore = ["b", "c"]\n'
        'summary = "s.json"\n[types]\nsite = "ignore"\n[model]\nname = "river.multiclass.OneVsRestClassifier"\n'
        '[model.classifier]\nname = "river.linear_model.LogisticRegression"\nl2 = 0.1\n'
    )

    def figures(*arguments):
        streamsvm("run", "--config", "c.toml", *arguments)
        figures: dict[str, Any] = json.loads((tmp_path / "s.json").read_text())
        return figures

    asked = figures()
    assert asked["events"] == 300
    assert asked["model"] == "river.multiclass.ovr.OneVsRestClassifier"
    given = figures("again.csv", "--max-events", "100", "--model", "cpm", "--param", "n_faces=2")
    assert (given["events"], given["source"]) == (100, "again.csv")
    assert given["model"].endswith("CPMClassifier")


REFUSED = [
    ([], ["nothing.csv"], r"nothing\.csv: no such file"),
    (["--label", "z"], [], "label"),
    (["--bogus"], [], "unrecognized arguments: --bogus"),
    (["--out", "o.csv"], [""], "argument SOURCE: must not be empty"),
    (["--model", "river.linear_model"], [], "river.linear_model is a module: name one of its classes"),
    (["--model", "river.base"], [], "river.base is a module: name one of its classes"),  # imported before
    (["--model", "json.decoder.Nothing"], [], "cannot find json.decoder.Nothing: module .* has no attribute"),
    (["--model", "river.linear_model.Nothing"], [], "cannot find river.linear_model.Nothing"),
    ([*CPM, "--param", "n_faces=0"], [], "n_faces"),
    ([*CPM, "--param", "scaling=rank", "--param", "scaling_window=1000000000000"], [], "cpm: Unable to allocate"),
    (["--model", "os.system", "--param", "command=rm o.csv"], [], "--model os.system is not a River classifier"),
    (
        [*CPM, "--param", "n_faces=os.system", "--param", "n_faces.x=rm"],
        [],
        "n_faces os.system is not a class of River",
    ),
    (["--param", "model.depth=3"], [], "first name the class|name the class of `model` first"),
    ([*GAUSSIAN, "--save", "m"], [], "GaussianNB cannot be saved"),
    (["--out", "-", "--checkpoint", "ck"], [], "standard output cannot undo writes"),
    (["--no-learn"], [], "--no-learn is now the command `streamsvm predict`"),
    (["--set", "broker-timeout=3"], [], "--set broker-timeout is only for Kafka"),
    (["--model", "m"], [], "unknown model 'm'; .*no saved model has this name"),
    (["--model", "in.csv"], [], r"--model in\.csv: in\.csv is not a whole streamsvm file"),
    (["--model", "./"], [], r"--model \./: is a directory, .* with --save FILE"),
    (["--model", "./m", "--param", "n_faces=3"], [], "has its own parameters: remove --param"),
    (["--window", "10"], [], "--window is now --set window=VALUE"),
    (["--label", "a", "--label", "b"], [], "--label is both 'a' and 'b': give it once"),
    (["-o", "a.csv", "--out", "b.csv"], [], r"--out is both 'a\.csv' and 'b\.csv': give it once"),
    (["--set", "window=1", "--set", "window=2"], [], "--set window is both '1' and '2': give it once"),
    (["--param", "seed=1", "--param", "seed=2"], [], "--param seed is both '1' and '2': give it once"),
    (["--set", "window"], [], "--set window: must read NAME=VALUE"),
    (["--save", "no/m"], [], "--save no/m: no such directory: no"),
    (["--plot", "p.xyz"], [], r"--plot p\.xyz: the name must end in one of \.png, \.svg, \.pdf"),
    (["--out", "in.csv"], [], r"SOURCE and --out are the same file in\.csv"),
    (["--out", "o.csv"], ["o.csv.rejected.jsonl"], "SOURCE and --dead-letter are the same file"),
    (
        ["--dead-letter", "r.foo"],
        [],
        r"r\.foo: .*; set format= to one of csv, json, jsonl, parquet, tsv$",
    ),
    (["--types", "x:number,x:category"], [], "--types: column 'x' has both 'number' and 'category'"),
    (["--set", "time-format=x:%d,x:%m"], [], "--set time-format: column 'x' has both '%d' and '%m'"),
    (["--save", "/"], [], "--save /: is a directory: name a file"),
    (["--out", "/"], [], "/: "),
    (["--checkpoint", "in.csv"], [], "cannot use in.csv for checkpoints: it is not a directory"),
    (["--save", "/dev/null"], [], "--save /dev/null: is not a regular file"),
    (["--config", "no.toml"], [], "--config no.toml: No such file or directory"),
]


@pytest.mark.parametrize(("options", "source", "message"), REFUSED, ids=lambda value: " ".join(value) or "-")
def test_refused_before_any_data_is_touched(options, source, message, tmp_path, monkeypatch, capsys):
    write_stream(tmp_path / "in.csv", 10)
    (tmp_path / "o.csv").write_text("precious\n")
    monkeypatch.chdir(tmp_path)
    options = options if "--out" in options else [*options, "--out", "o.csv"]
    options = options if "--label" in options or "--config" in options else [*options, "--label", "y"]
    try:
        code = cli.main(["run", *(source or ["in.csv"]), *options])
    except SystemExit as ended:  # as argparse does
        code = ended.code
    text = capsys.readouterr()
    assert (code, text.out) == (2, "")
    assert text.err.count("\n") == 1
    assert text.err.startswith("streamsvm: error: ")
    assert re.search(message, text.err), text.err
    assert (tmp_path / "o.csv").read_text() == "precious\n"
    assert not (tmp_path / "ck" / "checkpoint.safetensors").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lable = 'y'", "unknown key `lable`; did you mean `label`"),
        ("colour = 'y'", "unknown key `colour`; --help-all"),
        ("label = true", "argument --label: must be a text, got True"),
        ("quiet = 'yes'", "argument --quiet: must be true or false, got 'yes'"),
        ("config = 'other.toml'", "unknown key `config`"),
        ("source = 'synthetic:demo'\n[model]\nname = 'cpm'\nfaces = 3", "cpm has no parameter `faces`"),
        ("model = 3", "`model` must be a text, or a table whose `name` is a text, got 3"),
    ],
)
def test_settings_files_are_checked(refused, tmp_path, text, message):
    (tmp_path / "c.toml").write_text(text)
    assert re.search(message, refused("run", "--config", "c.toml"))


def test_a_run_with_mostly_rejected_events_warns_and_reports_them(streamsvm, tmp_path):
    (tmp_path / "in.csv").write_text("x,y\n" + "1,a\n2,b\n" * 500 + "1,2,3\n" * 1001)
    run = ("run", "in.csv", "--label", "y", *CPM, "--checkpoint", "ck", "--quiet")
    for _ in range(2):  # the second time, all events were already read
        result = streamsvm(*run, code=3)
        assert "more than half of all events were rejected, 1,001 of 2,001" in result.stderr
        assert "Traceback" not in result.stderr
        run = (*run, "--summary", "s.json")
    (tmp_path / "in.csv").write_text("x,y\n" + "1,a\n2,b\n" * 2500 + "1,2,3\n" * 4000)
    result = streamsvm("run", "in.csv", "--label", "y", *CPM, "--quiet")
    line, end = result.stderr.splitlines()
    assert re.search(r"in\.csv: of the last [\d,]+ events [\d,]+ were rejected, .*: 3 fields instead of 2", line)
    assert "4,000 events rejected, only counted" in end


def test_the_model_is_saved_after_an_error(streamsvm, tmp_path):
    write_stream(tmp_path / "in.csv", 1500)
    results = ("--save", "m", "--summary", "s.json")
    result = streamsvm("run", "in.csv", "--label", "y", *CPM, "--out", "/dev/full?format=csv", *results, code=1)
    assert "predictions: /dev/full: cannot be written: No space left on device" in result.stderr
    assert "ended by an error" in result.stdout
    summary = json.loads((tmp_path / "s.json").read_text())
    assert summary["ended"] == "error"
    assert summary["events"] > 0
    streamsvm("predict", "in.csv", "--label", "y", "--model", "m", "--quiet")


def test_a_report_that_cannot_be_written_is_named_and_leaves_the_earlier_one(streamsvm, tmp_path):
    write_stream(tmp_path / "in.csv", 100)
    for name in ("s.json", "p.png"):
        (tmp_path / name).write_text("of an earlier run")
    asked = ("run", "in.csv", "--label", "y", *CPM, "--summary", "s.json", "--plot", "p.png", "--set", "overwrite=true")
    result = streamsvm(*asked, most_bytes=1000, code=1)
    for name, option in (("s.json", "summary"), ("p.png", "plot")):
        assert f"{option}: {name}: cannot be written: File too large" in result.stderr
        assert (tmp_path / name).read_text() == "of an earlier run"
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_refused_run_changes_nothing(streamsvm, refused, tmp_path):
    write_stream(tmp_path / "in.csv", 300, broken=True)
    (tmp_path / "b.csv").write_text("x,z\n1,2\n")
    kept = ("--label", "y", "--types", "a:number", "--checkpoint", "ck", "--out", "o.csv", "--quiet")
    streamsvm("run", "in.csv", *kept)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for arguments in (
        ("b.csv", *kept, "--reset"),
        ("b.csv", "--out", "o.csv", "--label", "nothing"),
        ("in.csv", *kept, "--reset", "--dead-letter", "no/r.jsonl"),
        ("in.csv", *kept, "--set", "window=7"),
        ("in.csv", "--label", "y", "--out", "new.csv", "--dead-letter", "r.foo"),
    ):
        refused("run", *arguments)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "o.csv").unlink()
    assert "o.csv: is missing, but" in refused("run", "in.csv", *kept)
    assert not (tmp_path / "o.csv").exists()


def test_a_checkpoint_needs_a_stream_that_can_be_read_again(refused):
    said = refused("run", "-", "--label", "y", "--checkpoint", "ck", input="x,y\n1,a\n")
    assert said.startswith("standard input: cannot be read again from an earlier position; use a file instead")


def test_rejects_of_an_earlier_run_do_not_stay_beside_new_predictions(streamsvm, tmp_path):
    write_stream(tmp_path / "bad.csv", 300, broken=True)
    write_stream(tmp_path / "good.csv", 300)
    reading = ("--label", "y", "--types", "a:number")
    assert "written to o.csv.rej" in streamsvm("run", "bad.csv", *reading, "--out", "o.csv", "--quiet").stderr
    assert (tmp_path / "o.csv.rejected.jsonl").stat().st_size
    streamsvm("run", "good.csv", *reading, "--out", "o.csv", "--quiet")
    assert not (tmp_path / "o.csv.rejected.jsonl").stat().st_size
    before = set(tmp_path.iterdir())
    assert "only counted (--dead-letter FILE writes them)" in streamsvm("run", "bad.csv", *reading).stdout
    assert "only counted" in streamsvm("run", "bad.csv", *reading, "--quiet").stderr
    assert not streamsvm("run", "bad.csv", *reading, "--quiet", "--dead-letter", "null:").stderr
    assert set(tmp_path.iterdir()) == before


def test_a_quiet_run_without_any_label_says_so(streamsvm, tmp_path):
    (tmp_path / "in.csv").write_text("a,y\n" + "1,\n2,\n" * 20)
    assert "no event had a label" in streamsvm("run", "in.csv", "--label", "y", "--quiet").stderr


def closed(number: int) -> None:
    """Close a standard stream, as if the interpreter had started without it."""
    os.close(number)
    setattr(sys, ("stdin", "stdout", "stderr")[number], None)


@pytest.mark.parametrize(
    ("number", "arguments", "code", "message"),
    [
        (0, ("-",), 2, "standard input: is closed"),
        (1, ("in.csv", "--out", "-"), 2, "standard output: cannot be written: it is closed"),
        (2, ("in.csv", "--out", "o.csv"), 0, ""),
    ],
)
def test_standard_streams_that_are_closed(streamsvm, tmp_path, number, arguments, code, message):
    write_stream(tmp_path / "in.csv", 300)
    result = streamsvm("run", *arguments, "--label", "y", *CPM, prepare=functools.partial(closed, number), code=code)
    assert message in result.stderr
    assert result.stderr.count("\n") == bool(message)
    assert code or len(table(tmp_path / "o.csv")) == 300


@pytest.mark.slow
def test_a_report_that_finds_no_room_is_no_traceback(streamsvm, tmp_path):
    write_stream(tmp_path / "in.csv", 100)
    with open("/dev/full", "w") as full:
        asked = command("run", "in.csv", "--label", "y", *CPM)
        done = subprocess.run(asked, cwd=tmp_path, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "streamsvm: error: report: standard output: cannot be written: No space left on device\n"


def test_a_picture_that_could_not_be_drawn_is_refused_at_the_start(refused, tmp_path):
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "__init__.py").write_text("raise OSError('a library is missing')\n")
    message = refused("run", "--plot", "p.png", "--out", "o.csv", env=environment())
    assert message == "--plot needs matplotlib: pip install 'streamsvm[plot]' (a library is missing)"
    assert not (tmp_path / "o.csv").exists()


@pytest.mark.slow
def test_a_reader_that_exits(tmp_path):
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command("run", *CPM, "--out", "-", "--quiet"), cwd=tmp_path, env=environment(), **pipes)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    message = process.stderr.read().decode()
    assert process.wait(60) == 141
    assert message == ""
    process.stderr.close()


def test_a_foreign_package_in_the_way(refused, tmp_path):
    (tmp_path / "connectors.py").touch()
    said = refused("run", env=environment())
    assert f"(`connectors` is {tmp_path / 'connectors.py'}" in said


def test_an_unknown_kind_of_code_is_a_mistake_of_the_command(streamsvm):
    done = streamsvm("run", env=environment() | {"STREAMSVM_CODE": "nonsense"}, code=2)
    assert "STREAMSVM_CODE" in done.stderr


@pytest.mark.parametrize("name", ["orjson", "connectors.events"])
def test_a_package_that_is_missing_is_named_and_is_no_foreign_one(tmp_path, name):
    code = f"import sys; sys.modules[{name!r}] = None; from streamsvm import cli; sys.exit(cli.main(['run']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert name in done.stderr
    assert done.stderr.startswith("streamsvm: error: a package that streamsvm needs is missing or ")
    assert done.stderr.count("\n") == 1


def test_a_foreign_package_that_was_installed_over_ours(refused, tmp_path):
    folder = tmp_path / "connectors"  # two packages of one name: our modules, and `__init__` of the other
    shutil.copytree(Path(connectors.__file__).parent, folder)
    (folder / "__init__.py").write_text("class Input: ...\n")
    said = refused("run", env=environment())
    assert f"was overwritten by another one: cannot import name 'open_sink' from 'connectors' ({folder}" in said


def test_help_and_version(streamsvm):
    assert streamsvm("--version").stdout.startswith("streamsvm ")
    assert "run" in streamsvm(code=2).stdout
    text = streamsvm("run", "--help").stdout
    assert text.index("examples:") < text.index("common options:") < text.index("--label NAME")
    assert "--refit" not in text
    assert streamsvm("watch", "--help-all").stdout == streamsvm("watch", "--help").stdout
    misplaced = streamsvm("--quiet", "run", code=2).stderr
    assert misplaced.startswith("streamsvm: error: options follow the command: streamsvm run --quiet ...")
    text = streamsvm("run", "--help-all").stdout
    for group in ("common options:", "stream:", "model:", "results:", "checkpoint:", "reports:"):
        assert f"\n{group}\n" in text
    assert "--set NAME=VALUE:\n  broker-timeout=S" in text
    assert len(set(re.findall(r"^  (?:-\w[^,]*, )?(--[\w-]+)", text, re.MULTILINE))) <= 30


@pytest.mark.parametrize(
    ("command", "texts"),
    [
        ("predict", ["--model FILE", "true label", "3 done", "75 brokers"]),
        ("profile", ["the label, which is not a feature", "3 done"]),
        ("per-key", ["the field to predict", "75 brokers"]),
    ],
)
def test_help_of_a_command_is_about_this_command(command, texts, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["help", command])
    text = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert all(each in text for each in texts)
    assert "River classifier" not in text or command == "per-key"


def test_help_of_a_command_names_only_its_settings(capsys):
    for name, options in COMMANDS.items():
        with pytest.raises(SystemExit):
            cli.main([name, "--help-all"])
        settings = re.findall(r"--set\s+([a-z-]+)", capsys.readouterr().out)
        assert {each.replace("-", "_") for each in settings} <= options.takes, name


def test_help_without_docstrings_names_the_options():
    asked = [sys.executable, "-OO", "-m", "streamsvm", "run", "--help-all"]
    done = subprocess.run(asked, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    assert "\nstream:\n" in done.stdout
    assert "--label" in done.stdout
    assert "Options(" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_signals_end_a_run_in_good_order(tmp_path, number):
    results = ("--out", "o.csv", "--checkpoint", "ck", "--summary", "s.json", "--save", "m")
    (tmp_path / "in.csv").write_text("x,y\n" + "1,a\n2,b\n" * 100)
    asked = ("run", "in.csv", "--at-end", "wait", "--label", "y", *results)
    out, said = tmp_path / "o.csv", tmp_path / "said.txt"
    with Command(*asked, cwd=tmp_path, stdout=said) as process:
        wait_for(lambda: out.exists() and out.read_text().count("\n") >= 100)
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    assert "ended on request" in said.read_text()
    summary = json.loads((tmp_path / "s.json").read_text())
    assert summary["ended"] == "stopped"
    assert out.read_text().count("\n") == 1 + summary["events"]
    assert (tmp_path / "ck" / "checkpoint.safetensors").exists()
    assert (tmp_path / "m").exists()


@pytest.mark.slow
def test_a_second_signal_kills(tmp_path):
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import time\nfrom river.dummy import NoChangeClassifier\n"
        "class Slow(NoChangeClassifier):\n"
        "    def predict_one(self, x):\n        open('began', 'w').close()\n        time.sleep(60)\n"
    )
    with Command("run", "--model", "slow.Slow", cwd=tmp_path) as process:
        wait_for((tmp_path / "began").exists)
        for _ in range(2):  # as sent by a terminal that is closed
            process.send_signal(signal.SIGHUP)
            time.sleep(0.2)
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
