"""Decisions by cost, and alarms, in a run: output and metrics."""

from __future__ import annotations

import json

import numpy as np
import pytest

from streamsvm import load
from streamsvm.decide.alarms import Alarms
from tests.run.conftest import json_lines, write_joined, write_stream


def test_decisions_and_alarms_from_the_command_line(streamsvm, tmp_path):
    write_stream(tmp_path / "in.csv", 400)
    asked = ("run", "in.csv", "--label", "y", "--model", "cpm", "--out", "o.jsonl", "--summary", "s.json")
    done = streamsvm(*asked, "--set", "cost=UP:DOWN=3", "--set", "abstain=0.3", "--set", "alarms=UP=0.1")
    assert "mean per event; recent" in done.stdout
    rows = json_lines(tmp_path / "o.jsonl")
    costs, watched = [], []
    for row in rows[1:]:
        if row["label"] is not None:
            wrong = 3.0 if row["label"] == "UP" else 1.0
            costs.append(0.3 if row["decision"] is None else wrong * (row["decision"] != row["label"]))
            watched.append((row["alarm"], row["label"] == "UP"))
    figures = json.loads((tmp_path / "s.json").read_text())["probabilities"]
    assert figures["cost"] == pytest.approx(np.mean(costs), abs=1e-6)
    alarms, own = np.array(watched).T
    assert figures["alarms"] == pytest.approx(alarms.mean())
    assert figures["recall"] == pytest.approx((alarms & own).sum() / own.sum())
    assert {row["decision"] for row in rows} == {"UP", "DOWN", None}


@pytest.mark.parametrize("param", ["abstain=0.4", "refit=newton"])
def test_a_model_with_costs_or_refits_of_its_own_is_explained_and_saved(streamsvm, tmp_path, param):
    write_stream(tmp_path / "in.csv", 200)
    asked = ("run", "in.csv", "--label", "y", "--param", "effort=low", "--param", param, "--save", "m")
    streamsvm(*asked, "--set", "explain=1", "--out", "o.jsonl")
    rows = json_lines(tmp_path / "o.jsonl")
    assert all(len(row["reasons"]) == 1 for row in rows[100:] if row["prediction"] is not None)
    assert f"{param.partition('=')[0]}=" in repr(load(tmp_path / "m"))


def test_late_labels_update_thresholds_and_weights_on_arrival(streamsvm, tmp_path):
    """Compare with a loop over labels and the predictions at prediction time."""
    rng = np.random.default_rng(5)
    n, kind = 500, "recall"
    X = rng.normal(size=(n, 2)).round(3)
    y = np.where(X[:, 0] + rng.normal(size=n) > 1.2, "UP", "DOWN").tolist()
    delays = 1 + 10 * rng.exponential(40.0, n).astype(int)
    labels = sorted((10 * i + delay, i) for i, delay in enumerate(delays.tolist()))
    write_joined(tmp_path, X, y, delays)
    asked = ("run", "events.csv", "--label-source", "labels.csv", "--join", "id", "--label", "y", "--time", "t")
    more = "--model cpm --set proba=true --out o.jsonl --label-output joined.jsonl --summary s.json"
    more += f" --set alarms=UP={kind}:0.6 --set class-weight=balanced --set abstain=0.8"
    streamsvm(*asked, *more.split())
    rows, joined = (json_lines(tmp_path / name) for name in ("o.jsonl", "joined.jsonl"))
    order = [int(row["key"][1:]) for row in joined]
    assert order == [i for _, i in labels]
    alarms, counts, costs, watched = Alarms(kind, 0.6), dict[str, int](), [], []
    probable = [row["proba"] or {} for row in rows]

    def weight(label):
        return sum(counts.values()) / (len(counts) * counts[label]) if label in counts else 1.0

    for _, is_label, i in sorted([(10 * i, False, i) for i in range(n)] + [(t, True, i) for t, i in labels]):
        p, row = np.array([probable[i].get("UP", 0.0)]), rows[i]
        if is_label:
            alarms.run(p, np.array([int(y[i] == "UP")]))
            if row["prediction"] is not None:
                costs.append(0.8 if row["decision"] is None else weight(y[i]) * (row["decision"] != y[i]))
                watched.append((row["alarm"], y[i] == "UP"))
            counts[y[i]] = counts.get(y[i], 0) + 1
            continue
        assert row["alarm"] == bool(alarms.run(p, np.array([-1]))[0])
        expected = {label: sum(q * weight(c) for c, q in probable[i].items() if c != label) for label in counts}
        least = min(expected.values(), default=1.0)
        assert row["decision"] is None if least > 0.8 or not probable[i] else expected[row["decision"]] == least
    figures = json.loads((tmp_path / "s.json").read_text())["probabilities"]
    raised, own = np.array(watched).T
    assert 0 < raised.sum() < n
    assert figures["cost"] == pytest.approx(np.mean(costs), abs=1e-6)
    assert figures["alarms"] == pytest.approx(raised.mean())
    assert figures["recall"] == pytest.approx((raised & own).sum() / own.sum())


@pytest.mark.parametrize(("rare", "other", "named"), [(True, False, "true:false"), (2.5, 1.0, "2.5:1.0")])
def test_labels_of_other_types_are_named_by_their_spelling(streamsvm, tmp_path, rare, other, named):
    rng, name = np.random.default_rng(0), named.partition(":")[0]
    rows = [{"a": a, "y": rare if a + b > 1.5 else other} for a, b in rng.normal(size=(600, 2)).tolist()]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    asked = ("run", "in.jsonl", "--label", "y", "--model", "cpm", "--quiet", "--out", "out.jsonl")
    more = ("--set", f"alarms={name}=recall:0.9", "--set", f"cost={named}=20", "--set", f"class-weight={name}=2")
    done = streamsvm(*asked, *more)
    assert (done.returncode, done.stderr) == (0, "")
    found = json_lines(tmp_path / "out.jsonl")
    raised = np.array([row["alarm"] for row in found if row["label"] == rare])
    assert 0.8 < raised.mean() < 1.0
    assert np.mean([row["decision"] == rare for row in found]) > np.mean([row["prediction"] == rare for row in found])


def test_labels_of_any_text_have_costs_and_weights(streamsvm, tmp_path):
    rng = np.random.default_rng(0)
    rows = [{"a": a, "y": "a,b" if a + b > 1.5 else "10:30=x"} for a, b in rng.normal(size=(300, 2)).tolist()]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    asked = ("run", "in.jsonl", "--label", "y", "--model", "cpm", "--quiet", "--out")
    (tmp_path / "set.toml").write_text('cost = {"10:30=x" = {"a,b" = 5}}\nclass-weight = {"a,b" = 3}\n')
    done = streamsvm(*asked, "one.jsonl", "--config", "set.toml")
    assert (done.returncode, done.stderr) == (0, "")
    assert '"decision":"a,b"' in (tmp_path / "one.jsonl").read_text()


def test_a_class_that_no_event_has_is_reported(streamsvm, tmp_path):
    write_stream(tmp_path / "in.csv", 100)
    asked = ("run", "in.csv", "--label", "y", "--model", "cpm", "--quiet")
    done = streamsvm(*asked, "--set", "cost=UP:DOWM=3", "--set", "alarms=DOWN=0.1")
    assert "--set cost contains 'DOWM', which was not the label of any event" in done.stderr
    assert done.stderr.count("which was not the label") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "cost=UP=3"), "TRUE:DECIDED=COST"),
        (("--set", "alarms=0.1"), "use LABEL=SHARE"),
        (("--set", "abstain=-1"), "at least 0"),
        (("--set", "cost=UP:DOWN=3,UP:DOWN=4"), "UP:DOWN occurs twice"),
        (("--param", "abstain=0.1", "--set", "coverage=0.9"), "the model already decides by costs"),
    ],
)
def test_settings_that_do_not_fit_are_refused(refused, tmp_path, options, message):
    write_stream(tmp_path / "in.csv", 10)
    assert message in refused("run", "in.csv", "--label", "y", *options)


@pytest.mark.parametrize("setting", ["alarms=UP=recall:0.9", "class-weight=balanced"])
def test_options_of_learning_are_refused_for_a_model_that_does_not_learn(refused, tmp_path, setting):
    write_stream(tmp_path / "in.csv", 10)
    assert "predict learns no labels" in refused("predict", "in.csv", "--model", "m", "--set", setting)


def test_reasons_are_of_the_model_that_predicts_and_change_nothing(streamsvm, refused, tmp_path):
    write_stream(tmp_path / "in.csv", 200, broken=True)
    asked = ("run", "in.csv", "--label", "y", "--model", "bsgd")
    streamsvm(*asked, "--out", "plain.jsonl", "--save", "plain")
    streamsvm(*asked, "--out", "o.jsonl", "--save", "told", "--set", "explain=2")
    rows, plain = (json_lines(tmp_path / name) for name in ("o.jsonl", "plain.jsonl"))
    assert [{k: v for k, v in row.items() if k != "reasons"} for row in rows] == plain
    assert (tmp_path / "told").read_bytes() == (tmp_path / "plain").read_bytes()
    assert (tmp_path / "o.jsonl.rejected.jsonl").read_bytes() == (tmp_path / "plain.jsonl.rejected.jsonl").read_bytes()
    assert rows[0]["reasons"] is None
    assert len(rows[-1]["reasons"]) == 2
    leading = [row["reasons"][0]["feature"] for row in rows[60:] if row["reasons"]]
    assert max("abc", key=leading.count) in "ab"
    assert set(rows[-1]["reasons"][0]) == {"feature", "value", "adds"}
    assert "--set explain needs --out" in refused(*asked, "--set", "explain=2")


def test_reasons_where_labels_come_later_change_nothing(streamsvm, tmp_path):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 2)).round(3)
    write_joined(tmp_path, X, np.where(X[:, 0] > 0, "UP", "DOWN"), 200)
    events = tmp_path / "events.csv"
    events.write_text(events.read_text().replace("k30,300,", "k30,300,oops"))
    asked = ("run", "events.csv", "--label-source", "labels.csv", "--join", "id", "--label", "y", "--time", "t")
    settings = "--types a:number --model bsgd --set coverage=0.9 --set class-weight=balanced"
    asked = (*asked, *settings.split(), "--set", "alarms=UP=recall:0.8")
    for name, more in (("plain", ()), ("told", ("--set", "explain=1"))):
        files = ("--out", f"{name}.jsonl", "--label-output", f"{name}-joined.jsonl", "--save", name)
        streamsvm(*asked, *files, *more)
    for suffix in ("", "-joined.jsonl", ".jsonl.rejected.jsonl"):
        assert (tmp_path / f"told{suffix}").read_bytes() == (tmp_path / f"plain{suffix}").read_bytes()
    rows, plain = (json_lines(tmp_path / name) for name in ("told.jsonl", "plain.jsonl"))
    assert [{k: v for k, v in row.items() if k != "reasons"} for row in rows] == plain
    assert not any(row["reasons"] for row in rows[:20])  # before the first label
    leading = [row["reasons"][0]["feature"] for row in rows[60:]]
    assert leading.count("a") > len(leading) / 2
