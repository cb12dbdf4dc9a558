"""The directory of a checkpoint: what it accepts, refuses, removes and keeps."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from streamsvm import load
from streamsvm.models.archive import ArchiveError, write_archive
from streamsvm.run.checkpoint import Checkpoint, Snapshot, read_snapshot
from streamsvm.run.errors import RunError, SetupError
from tests.errors import raises

STATES: dict[str, Any] = {part: ({"of": part}, {}) for part in ("model", "metrics", "history")}


def snapshot(**changes: Any) -> Snapshot:
    states = STATES | {"model": ({"class": "M"}, {"weights": np.arange(3.0)}), "late": ({"n": 1}, {})}
    given = {"identity": {"label": "y"}, "source": {"line": 7}, "sinks": {"out": {"bytes": 9}}, "states": states}
    return Snapshot(**given | changes)


@pytest.mark.parametrize(
    ("every_events", "every_s", "due", "not_due"),
    [
        (10, None, [(10, 0.0), (11, 99.0)], [(9, 99.0)]),
        (None, 2.0, [(0, 2.0), (5, 2.5)], [(999, 1.9)]),
        (10, 2.0, [(10, 0.0), (0, 2.0)], [(9, 1.9)]),
    ],
)
def test_when_a_snapshot_is_due(tmp_path, every_events, every_s, due, not_due):
    checkpoint = Checkpoint(tmp_path, every_events=every_events, every_s=every_s)
    assert [checkpoint.due(*at) for at in (*due, *not_due)] == [True] * len(due) + [False] * len(not_due)


def test_the_age_is_that_of_the_last_snapshot(tmp_path, monkeypatch):
    with Checkpoint(tmp_path) as checkpoint:
        assert checkpoint.age is None
        checkpoint.written_at = time.time() + 100  # by a process whose clock is ahead
        assert checkpoint.age == 0
        checkpoint.written_at -= 150
        assert 50 <= checkpoint.age < 100
        checkpoint.write(snapshot())
        for now in (0.0, 1e12):  # the clock is set
            monkeypatch.setattr(time, "time", Mock(return_value=now))
            assert 0 <= checkpoint.age < 50


def test_one_run_uses_a_checkpoint_at_a_time(tmp_path):
    with Checkpoint(tmp_path), raises(SetupError, reason="locked"), Checkpoint(tmp_path):
        pass
    with Checkpoint(tmp_path):
        pass


def test_a_directory_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with raises(SetupError, named="file"), Checkpoint(tmp_path / "file" / "check"):
        pass


@pytest.mark.parametrize(("code", "n_warnings"), [("", 0), ("another processor", 1)])
def test_another_kind_of_code_is_warned_of(tmp_path, caplog, code, n_warnings):
    with Checkpoint(tmp_path) as checkpoint:
        checkpoint.write(snapshot(code=code))
        checkpoint.read({"label": "y"})
        assert len(caplog.records) == n_warnings
        checkpoint.write(snapshot())
        checkpoint.read({"label": "y"})
    assert len(caplog.records) == n_warnings


def test_a_fresh_run_discards_only_the_earlier_state(tmp_path):
    pieces = [f"{'0' * 16}-{n}.safetensors" for n in range(3)]
    with Checkpoint(tmp_path) as checkpoint:
        checkpoint.write(snapshot())
        checkpoint.pieces.mkdir()
        for name in (*pieces, "notes.txt", "model.safetensors"):
            (checkpoint.pieces / name).write_text("")
        checkpoint.keep_pieces({pieces[1]})
        assert {path.name for path in checkpoint.pieces.iterdir()} == {pieces[1], "notes.txt", "model.safetensors"}
    with Checkpoint(tmp_path, fresh=True) as checkpoint:
        assert not checkpoint.exists
        assert checkpoint.read({"label": "other"}) is None
        checkpoint.discard()
        assert not checkpoint.path.exists()
        assert {path.name for path in checkpoint.pieces.iterdir()} == {"notes.txt", "model.safetensors"}
        checkpoint.discard()


@pytest.mark.parametrize("call", ["os.fsync", "os.unlink"])
def test_errors_of_writing_name_the_checkpoint(tmp_path, monkeypatch, call):
    with Checkpoint(tmp_path) as checkpoint:
        checkpoint.write(snapshot())
        monkeypatch.setattr(call, Mock(side_effect=OSError(5, "Input/output error")))
        with raises(RunError, named=checkpoint.path):
            checkpoint.discard() if call == "os.unlink" else checkpoint.write(snapshot())


def test_files_of_killed_writers_are_removed(tmp_path):
    left = tmp_path / ".checkpoint.safetensors.123.tmp"
    left.write_text("")
    with Checkpoint(tmp_path):
        assert not left.exists()


PARTS = ("identity", "source", "sinks", "model", "metrics", "history")
HEADER = {"class": "Checkpoint", "ended": "", "code": ""} | {part: {} for part in PARTS}


@pytest.mark.parametrize(
    "change",
    [
        {"class": "Polytopes"},
        *({part: None} for part in PARTS),
    ],
)
def test_another_archive_is_no_checkpoint(tmp_path, change):
    path = tmp_path / "checkpoint.safetensors"
    write_archive(path, HEADER, {})
    assert read_snapshot(path).code == read_snapshot(path).ended == ""
    kept = {name: change.get(name, value) for name, value in HEADER.items()}
    write_archive(path, {name: value for name, value in kept.items() if value is not None}, {})
    with raises(ValueError, named=next(iter(change)).replace("class", "Polytopes")):
        read_snapshot(path)


def test_a_checkpoint_is_no_model(tmp_path):
    with Checkpoint(tmp_path) as checkpoint:
        checkpoint.write(snapshot())
    with raises(ArchiveError, named="--save FILE"):
        load(tmp_path / "checkpoint.safetensors")


def test_a_checkpoint_of_an_earlier_version_is_named_with_what_to_do(tmp_path):
    """Earlier versions separated the names of parts and of their arrays by a slash."""
    path = tmp_path / "checkpoint.safetensors"
    write_archive(path, HEADER, {"history/relevances": np.zeros(1)})
    what = f"{path} is a checkpoint of another version of streamsvm, which alone can read it"
    with Checkpoint(tmp_path) as checkpoint, raises(SetupError, option="--reset", named=what):
        checkpoint.read({})


def test_refits_that_were_added_or_changed_are_named_by_their_option(tmp_path):
    """Parameters of another class of model are not listed."""
    refits = {"model": "streamsvm.refit.classifier.RefitClassifier", "parameter solver": "'newton'"}
    alone = {"model": "streamsvm.polytope.classifier.CPMClassifier", "parameter n_faces": "3"}
    for old, new, named in (
        (refits, refits | {"parameter solver": "'trees'"}, "--refit: parameter solver was 'newton', now 'trees'. Use"),
        (refits, alone, f"--refit: model was {refits['model']}, now {alone['model']}. Use"),
        (alone, alone | {"parameter n_faces": "5"}, "settings: parameter n_faces was 3, now 5. Use"),
    ):
        checkpoint = Checkpoint(tmp_path)
        checkpoint.write(replace(snapshot(), identity=old))
        with raises(SetupError, reason="another run", option="--reset", named=named):
            checkpoint.read(new)
