"""Run settings in Python: values, texts, TOML, invalid ones, and effects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from river.naive_bayes import GaussianNB

from streamsvm.run import Run, RunConfig
from streamsvm.run.errors import SetupError
from tests.errors import raises
from tests.run.conftest import write_stream


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return write_stream(tmp_path / "in.csv", 400).name


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ({"label_timeout": "90s"}, {"label_timeout": 90.0}),
        ({"types": 'a:category,"b,c":ignore'}, {"types": {"a": "category", "b,c": "ignore"}}),
        ({"ignore": "a,b"}, {"ignore": ["a", "b"]}),
        ({"params": ["n_faces=3"]}, {"params": {"n_faces": 3}}),
        ({"max_events": "3"}, {"max_events": 3}),
        ({"flatten": "0", "skip_rows": "0"}, {"flatten": 0, "skip_rows": 0}),
        ({"page": 8080, "label": 3, "out": Path("o.csv")}, {"page": "8080", "label": "3", "out": "o.csv"}),
        ({"alarms": "1=recall:0.9"}, {"alarms": {1: "recall:0.9"}}),
        ({"checkpoint_every": "500,10s"}, {"checkpoint_every": (500, 10.0)}),
        ({"refit": "trees,every=500"}, {"refit": ("trees", "500", None)}),
        ({"source": "in.csv?ignore=a,b", "ignore": "a,b"}, {"ignore": ["a", "b"]}),
        ({"cost": "a:b=2"}, {"cost": {"a": {"b": 2.0}}}),
    ],
)
def test_texts_equal_values(text, value):
    one, other = RunConfig(**text), RunConfig(**value)
    for name in ("alarms", "cost", "label_timeout", "types", "ignore"):
        assert getattr(one, name) == getattr(other, name)
    assert (one.checkpoint_every, one.refit) == (other.checkpoint_every, other.refit)
    for name in ("params", "max_events", "flatten", "skip_rows"):
        assert getattr(one, name) == getattr(other, name)


@pytest.mark.parametrize(
    ("options", "reason", "option"),
    [
        ({"window": 0}, "value", "--set window"),
        ({"max_events": 1.5}, "value", "--max-events"),
        ({"reference": "0"}, "value", "--reference"),
        ({"quiet": "yes"}, "value", "--quiet"),
        ({"at_end": "go"}, "value", "--at-end"),
        ({"page": True}, "value", "--page"),
        ({"label": ["y"]}, "value", "--label"),
        ({"source": "in.csv?label=y", "label": "x"}, "twice", "--label"),
        ({"source": "in.csv?label=y&label=x"}, "twice", "label"),
        ({"reset": True}, "needs", "--checkpoint"),
        ({"label_timeout": 3.0}, "needs", "--label-source"),
        ({"model": GaussianNB(), "params": {"x": 1}}, "", "params"),
        ({"source": None}, "", "SOURCE"),
    ],
)
def test_what_does_not_fit_is_refused(stream, options, reason, option):
    with raises(SetupError, reason=reason, option=option):
        Run(RunConfig(**({"source": stream, "label": "y"} | options))).start()


def test_a_run_writes_the_requested_files(stream, tmp_path):
    told: list[int] = []
    config = RunConfig(source=stream, label="y", model=GaussianNB(), ignore=["site"], out="o.csv", summary="s.json")
    report = Run(config, [lambda report, fraction: told.append(report.events)]).start()
    assert report.events == told[-1] == 400
    assert f"accuracy {report.metrics.accuracy:.4f}" in repr(report)
    assert len(repr(report)) < 100
    assert f"{report.metrics.accuracy:.4f}" in str(report)
    assert json.loads((tmp_path / "s.json").read_text())["events"] == 400
    assert len((tmp_path / "o.csv").read_text().splitlines()) == 401


def test_options_win_over_those_of_toml(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('source = "in.csv"\nmax-events = 300\n[model]\nname = "cpm"\nn_faces = 2\n')
    found = RunConfig.from_toml(str(path), max_events=5, params={"scaling": "rank"})
    assert (found.source, found.max_events, found.model) == ("in.csv", 5, "cpm")
    assert found.params == {"n_faces": 2, "scaling": "rank"}
    assert RunConfig.from_toml(str(path), model="blend").params == {}
