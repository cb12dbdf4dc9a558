"""Warnings about labels: blanks, keys that never match, repeated headers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from connectors import open_source
from streamsvm import cli, load
from tests.choices import each_choice


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def summary(*arguments: str, command: str = "run") -> dict[str, Any]:
    assert cli.main([command, *arguments, "--summary", "s.json"]) == 0
    found: dict[str, Any] = json.loads(Path("s.json").read_text())
    return found


@each_choice(("model", ["cpm", "river.naive_bayes.GaussianNB"]), ("twins", [("up", "up "), ("up", "UP"), ("1", "1.0")]))
def test_labels_that_differ_in_writing_alone_are_reported_once(model, twins, capsys):
    Path("in.csv").write_text("x,y\n" + f"1,{twins[0]}\n2,{twins[1]}\n3,down\n" * 20)
    notices = summary("in.csv", "--label", "y", "--model", model)["notices"]
    assert len(notices) == 1
    out, err = capsys.readouterr()
    assert out.count(notices[0]) == err.count(notices[0]) == 1


@pytest.mark.parametrize(
    ("learned", "given", "said"),
    [
        ("up down", "UP DOWN", "the label 'UP' differs from the class 'up' of the model only in spelling"),
        ("1 0", "1.0 0.0", "the label '1.0' differs from the class 1 of the model only in spelling"),
        ("a b", "n1 n2 n3 n4", "the label 'n1' is not a class of the model ('a', 'b'), which does not learn"),
    ],
)
def test_unknown_labels_are_reported_for_a_model_that_does_not_learn(learned, given, said, capsys):
    for name, labels in (("a.csv", learned.split()), ("b.csv", given.split())):
        Path(name).write_text("x,y\n" + "".join(f"{i % 4},{labels[i % len(labels)]}\n" for i in range(200)))
    assert summary("a.csv", "--label", "y", "--model", "cpm", "--save", "m.svm")["notices"] == []
    run = ["b.csv", "--label", "y", "--model", "m.svm"]
    capsys.readouterr()
    notices = summary(*run, command="predict")["notices"]
    n = len({*given.split()} - {*learned.split()})
    assert len(notices) == min(n, 2 if n < 3 else 1)
    assert notices[0].startswith(said)
    out, err = capsys.readouterr()
    assert all(out.count(notice) == err.count(notice) == 1 for notice in notices)
    assert summary(*run, "--checkpoint", "ck", "--max-events", "90", command="predict")["notices"]
    assert summary(*run, "--checkpoint", "ck", command="predict")["notices"] == notices
    Path("unlabelled.csv").write_text("x,y\n" + "1,\n" * 50)
    assert summary("unlabelled.csv", *run[1:], command="predict")["notices"] == []


def test_fractional_labels_are_reported_at_any_time(capsys):
    labels = ["0.25"] * 1100 + [f"{i * 37 % 300 + 0.5:.2f}" for i in range(400)]
    Path("in.csv").write_text("x,y\n" + "".join(f"{i % 7},{y}\n" for i, y in enumerate(labels)))
    (notice,) = summary("in.csv", "--label", "y", "--model", "cpm")["notices"]
    assert notice.startswith("the label looks like an identifier or a measured number: 250 classes")
    codes = ["7"] * 1100 + [f"{i * 37 % 300}" for i in range(400)]
    Path("in.csv").write_text("x,y\n" + "".join(f"{i % 7},{y}\n" for i, y in enumerate(codes)))
    assert summary("in.csv", "--label", "y", "--model", "cpm")["notices"] == []


def write_late(events: Iterable[tuple[Any, float]], labels: Iterable[tuple[Any, float]]) -> list[str]:
    """Write keys and times of events and labels; return arguments of a run."""
    rows = {"e.csv": ["k,t,x"], "l.csv": ["k,t,y"]}
    rows["e.csv"] += [f"{key},{time:.0f},{i % 2}" for i, (key, time) in enumerate(events)]
    rows["l.csv"] += [f"{key},{time:.0f},{'ud'[i % 2]}" for i, (key, time) in enumerate(labels)]
    for name, lines in rows.items():
        Path(name).write_text("\n".join(lines) + "\n")
    late = ["--label-source", "l.csv", "--join", "k", "--time", "t", "--label", "y", "--set", "overwrite=true"]
    return ["e.csv", *late, "--model", "cpm"]


SECONDS = ["--set", "time-unit=s"]


@each_choice(
    (
        ("of_event", "of_label", "examples"),
        [
            (lambda i: f"{i + 7:06d}", lambda i: i + 7, ("'000007'", "'7'")),
            (lambda i: i + 7, lambda i: f"{i + 7}.0", ("'7'", "'7.0'")),
            (lambda i: f"A{i}", lambda i: f"a{i}", ("'A0'", "'a0'")),
            (lambda i: f"order-{i}", lambda i: f"customer-{i}", ("'order-0'", "'customer-0'")),
        ],
    ),
    ("n", [50, 1100]),
)
def test_keys_that_never_match_are_reported_with_an_example_of_each_side(of_event, of_label, examples, n, capsys):
    asked = write_late(((of_event(i), i) for i in range(n)), ((of_label(i), i + 5) for i in range(n)))
    [notice] = summary(*asked, *SECONDS)["notices"]
    assert all(example in notice for example in examples)
    out, err = capsys.readouterr()
    assert out.count(notice) == 1
    assert err.count("matched an event") == 1
    assert "--label" not in out


def test_keys_that_match_at_times_are_not_reported():
    asked = write_late(((i, i) for i in range(200)), ((i if i % 3 else f"{i}.0", i + 5) for i in range(200)))
    assert summary(*asked, *SECONDS)["notices"] == []


H, NOW = 3600, 1_700_000_000


@each_choice(
    (
        ("delay", "parts"),
        [
            (300 + 2 * H, ("2:05:00 after", "2:00:00 apart, like time zones", "--label-timeout")),
            (30 - 2 * H, ("1:59:30 before", "2:00:00 apart, like time zones")),
            (27_000, ("7:30:00 after", "7:30:00 apart")),
            (11_745, ("3:15:45 after", "time zone, time_unit")),
            (None, ("different units", "time_unit=")),  # milliseconds
        ],
    ),
    ("n", [60, 1100]),
)
def test_times_that_prevent_matches_are_reported(delay, parts, n, capsys):
    if delay is None:
        asked = write_late(((i, 1e6 + i) for i in range(n)), ((i, 1e9 + 1000 * i) for i in range(n))) + SECONDS
    else:
        asked = write_late(((i, NOW + 10 * i) for i in range(n)), ((i, NOW + 10 * i + delay) for i in range(n)))
    [notice] = summary(*asked, "--label-timeout", "1h")["notices"]
    assert all(part in notice for part in parts), notice
    assert f"0 of {n:,} labels arrived in time" in notice
    out, err = capsys.readouterr()
    assert out.count(notice) == 1
    assert err.count("labels arrived in time") == 1
    found = summary(*asked)["notices"]  # without a timeout
    assert [text.startswith("labels are 1:59:30 before") for text in found] == ([True] if "before" in parts[0] else [])


@pytest.mark.parametrize(("early", "is_told"), [(1, False), (7200, True)])
def test_labels_with_earlier_times_than_their_events_are_reported(early, is_told):
    notices = summary(*write_late(((i, NOW + i) for i in range(600)), ((i, NOW + i - early) for i in range(600))))
    told = "labels are 2:00:00 before their events (median), and are learned immediately, as if they were on time"
    assert [notice.startswith(told) for notice in notices["notices"]] == [True] * is_told


def test_labels_dated_by_the_day_are_reported():
    times = [NOW + 300 * i for i in range(600)]
    asked = write_late(enumerate(times), ((i, t // 86400 * 86400) for i, t in enumerate(times)))
    for more in ([], ["--label-timeout", "1h"]):
        (notice,) = summary(*asked, *more)["notices"]
        assert "but the times of labels are whole days: include the hour" in notice


def test_labels_mostly_in_time_are_not_reported():
    labels = sorted((NOW + i + (60 if i % 2 == 0 else 9000), i) for i in range(600))
    asked = write_late(((i, NOW + i) for i in range(600)), ((i, t) for t, i in labels))
    assert summary(*asked, "--label-timeout", "1h")["notices"] == []


@each_choice(("cells", [("{n}", "{n}"), ("{n}", "red"), ("red", "blue")]), ("n", [30, 1100]), ("label", ["y", None]))
def test_rows_that_repeat_the_header_are_rejected(cells, n, label):
    rows = "".join(f"{cells[0].format(n=i % 7)},{cells[1].format(n=i % 5)},{'ud'[i % 2]}\n" for i in range(n))
    Path("in.csv").write_text(("a,b,y\n" + rows) * 3)
    rejected, events = [], 0
    ignore = [] if label else ["y"]
    for batch in open_source("in.csv", label=label, ignore=ignore):
        rejected += batch.rejected
        events += len(batch)
    assert events == 3 * n
    assert {one.reason for one in rejected} == {"the row repeats the header"}
    assert [one.origin["line"] for one in rejected] == [n + 2, 2 * n + 3]


def test_a_class_with_the_name_of_its_column_is_one():
    Path("in.csv").write_text("a,spam\n" + "x,spam\ny,ham\na,ham\n" * 20)
    assert sum(map(len, open_source("in.csv", label="spam"))) == 60


def test_events_of_a_class_too_many_are_rejected_and_counted():
    rows = [f"{i},{i % 5},{'abc'[i % 3] if i % 10 else f'id-{i}'}" for i in range(300)]
    Path("all.csv").write_text("\n".join(["k,x,y", *rows]) + "\n")
    found = summary("all.csv", "--label", "y", "--model", "cpm", "--param", "max_classes=4", "--dead-letter", "bad.csv")
    assert found["rejected"] == 29
    assert "`max_classes` allows 4: 'id-10'" in Path("bad.csv").read_text()


def test_late_labels_of_a_class_too_many_are_rejected_and_counted():
    arguments = write_late(((i, i) for i in range(300)), ((i, i + 5) for i in range(300))) + SECONDS
    lines = Path("l.csv").read_text().splitlines()
    lines[1::10] = [f"{line.rpartition(',')[0]},id-{i}" for i, line in enumerate(lines[1::10])]
    Path("l.csv").write_text("\n".join(lines) + "\n")
    wanted = "--param max_classes=3 --dead-letter bad.csv --out o.jsonl --set coverage=0.9 --save m"
    found = summary(*arguments, *wanted.split())
    assert found["rejected"] == 29
    assert "`max_classes` allows 3: 'id-1'" in Path("bad.csv").read_text()
    assert len(Path("o.jsonl").read_text().splitlines()) == 300
    assert sorted(load("m").classes_) == ["d", "id-0", "u"]
