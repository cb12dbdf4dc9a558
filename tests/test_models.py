"""Archives, labels on disk, and models as plain arrays."""

from __future__ import annotations

import fcntl
import json
import math
import multiprocessing
import os
import pickle
import signal
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamsvm
from streamsvm import CPMClassifier, DelayedClassifier
from streamsvm.models import ArchiveError, Polytopes, Scaler
from streamsvm.models.archive import (
    FORMAT,
    VERSION,
    decode_label,
    encode_label,
    read_archive,
    write_archive,
)
from streamsvm.online import saving
from streamsvm.parameters import ParameterError
from tests.errors import raises
from tests.learners import snapshot

NAN = math.nan


ARRAYS = {
    "floats": np.arange(6.0).reshape(2, 3),
    "small": np.float32([1.5, -0.0]),
    "whole": np.arange(3),
    "flags": np.array([True, False]),
    "empty": np.zeros((0, 4)),
    "single": np.array(2.5),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
}


def learner() -> CPMClassifier:
    model = CPMClassifier(n_faces=2, class_weight={0: 2.0})
    for i in range(12):
        model.learn_one({"a": float(i % 4), "s": "xy"[i % 2], 3: i * 0.5}, i % 3)
    return model


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.svm"
    learner().save(path)
    return path


# Archives --------------------------------------------------------------------------------------------------------


def test_header_and_arrays_are_restored_exactly(tmp_path):
    write_archive(tmp_path / "file", {"what": "test", "list": [1, None, "ä"]}, ARRAYS)
    header, arrays = read_archive(tmp_path / "file")
    assert header == {"format": FORMAT, "version": VERSION, "what": "test", "list": [1, None, "ä"]}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        found = arrays[name]
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_the_same_content_gives_the_same_bytes(tmp_path):
    for name in "ab":
        write_archive(tmp_path / name, {"b": 1, "a": 2}, dict(sorted(ARRAYS.items(), reverse=name == "b")))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_length_of_a_table_may_begin_like_a_zip_file(tmp_path):
    table = int.from_bytes(b"PK", "little")
    write_archive(tmp_path / "file", {"filler": ""}, {})
    shorter = int.from_bytes((tmp_path / "file").read_bytes()[:8], "little")
    header = {"filler": "a" * (table - shorter)}
    write_archive(tmp_path / "file", header, {})
    assert (tmp_path / "file").read_bytes()[:8] == b"PK" + bytes(6)
    assert read_archive(tmp_path / "file")[0]["filler"] == header["filler"]
    (tmp_path / "file").write_bytes(b"PK\3\4\x14" + bytes(100))
    with raises(ArchiveError, reason="version", named="save the model again"):
        read_archive(tmp_path / "file")


def test_an_archive_is_in_the_format_of_safetensors(saved):
    """A length of 8 bytes, a JSON table, and the arrays one after the other."""
    content, (header, arrays) = saved.read_bytes(), read_archive(saved)
    start = 8 + int.from_bytes(content[:8], "little")
    table = json.loads(content[8:start])
    assert json.loads(table.pop("__metadata__")["streamsvm"]) == header
    assert start % 8 == 0
    for name, entry in table.items():
        first, last = entry["data_offsets"]
        assert content[start + first : start + last] == arrays[name].tobytes()


def test_leftovers_of_a_killed_process_are_removed_and_files_of_others_are_not(tmp_path):
    left, in_hand, another = (tmp_path / name for name in (".a[1].123.tmp", ".a[1].124.tmp", ".b.123.tmp"))
    for path in (left, in_hand, another):
        path.write_bytes(b"half")
    with in_hand.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        write_archive(tmp_path / "a[1]", {}, {})
        assert set(tmp_path.iterdir()) == {in_hand, another, tmp_path / "a[1]"}


def test_a_model_of_another_version_is_refused_with_what_to_do(saved: Path) -> None:
    header, arrays = read_archive(saved)
    del arrays["n_classes"]
    write_archive(saved, header, arrays)
    for load in (streamsvm.load, CPMClassifier.load):
        with raises(ArchiveError, reason="content", named="train the model again"):
            load(saved)


def test_a_missing_folder_is_reported(tmp_path):
    with raises(FileNotFoundError, filename=str(tmp_path / "no" / "file")):
        write_archive(tmp_path / "no" / "file", {}, {})
    with pytest.raises(FileNotFoundError):
        read_archive(tmp_path / "no")


@pytest.mark.parametrize(
    ("header", "arrays"),
    [({}, {"a": np.array([object()])}), ({"a": object()}, {}), ({"a": b"bytes"}, {})],
    ids=["objects", "no JSON", "bytes"],
)
def test_a_failed_save_leaves_the_old_file(saved, header, arrays):
    before = saved.read_bytes()
    with pytest.raises((TypeError, ValueError)):
        write_archive(saved, header, arrays)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace"])
def test_an_error_in_the_middle_leaves_the_old_file_and_no_other(saved, step, monkeypatch):
    before = saved.read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(step, full)
    with raises(OSError, errno=28):
        CPMClassifier().save(saved)
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


def save_until_killed(path: Path, step: str) -> None:
    with mock.patch(step, side_effect=lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)):
        CPMClassifier().save(path)


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace"])
def test_being_killed_in_the_middle_leaves_the_old_file(saved, step):
    before = saved.read_bytes()
    process = multiprocessing.get_context("fork").Process(target=save_until_killed, args=(saved, step))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert saved.read_bytes() == before
    learner().save(saved)  # leftover files do no harm
    assert streamsvm.load(saved).classes_ == [0, 1, 2]


# Foreign and damaged files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [VERSION + 1, VERSION - 1, True, "1"])
def test_files_of_other_versions_are_refused_with_what_to_do(saved, version):
    header, arrays = read_archive(saved)
    write_archive(saved, header | {"version": version}, arrays)
    with raises(ArchiveError, reason="version", named=VERSION):
        streamsvm.load(saved)


def test_truncated_files_are_refused(saved):
    content = saved.read_bytes()
    for length in (*np.linspace(0, len(content), 30, endpoint=False, dtype=int), 4, 8, 9, len(content) - 1):
        saved.write_bytes(content[:length])
        with raises(ArchiveError, named="model.svm"):
            streamsvm.load(saved)


def test_a_flipped_bit_is_seen_or_of_no_consequence(saved):
    content, known = saved.read_bytes(), snapshot(learner())
    rng, refused = np.random.default_rng(0), 0
    # Any position, and each byte of the length of the table.
    places = [*rng.integers(0, len(content), 150), *range(8)]
    for at in places:
        damaged = bytearray(content)
        damaged[at] ^= 1 << int(rng.integers(8))
        saved.write_bytes(damaged)
        try:
            assert snapshot(streamsvm.load(saved)) == known
        except ArchiveError:
            refused += 1
    assert refused > len(places) / 2


class Trap:
    """Code that a pickle could execute."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("trapped",)


def test_nothing_in_a_file_is_executed(saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError):
        write_archive(saved, {}, {"weights": np.array([Trap()], object)})
    saved.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ArchiveError):
        streamsvm.load(saved)
    assert not (tmp_path / "trapped").exists()


# Labels ----------------------------------------------------------------------------------------------------------

labels = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    return all(map(same, a, b)) and len(a) == len(b) if isinstance(a, tuple) else repr(a) == repr(b)


@given(labels)
def test_labels_are_restored_exactly(label):
    assert same(decode_label(json.loads(json.dumps(encode_label(label)))), label)


def test_similar_labels_remain_distinct():
    look_alikes = [True, 1, 1.0, "1", "True", (1,), ("1",), (True,), None, "None", (), (None,), "null"]
    texts = [json.dumps(encode_label(label)) for label in look_alikes]
    assert len(set(texts)) == len(texts)


def test_numpy_scalars_become_those_of_python():
    for label in (np.bool_(True), np.int64(3), np.float32(0.5), np.str_("x"), (np.int8(1),)):
        assert same(decode_label(encode_label(label)), (1,) if isinstance(label, tuple) else label.item())


def test_a_learner_with_other_labels_or_names_works_and_its_old_file_remains(saved):
    before = saved.read_bytes()
    for x, y, kind in (({"a": 1.0}, frozenset({1}), "frozenset"), ({b"name": 1.0}, 1, "bytes")):
        model = CPMClassifier()
        model.learn_one(x, y)
        assert model.predict_one(x) == y
        with raises(TypeError, named=kind):
            model.save(saved)
        assert pickle.loads(pickle.dumps(model)).predict_one(x) == y
        assert saved.read_bytes() == before


@pytest.mark.parametrize("version", ["0.0.9", f"{streamsvm.__version__} (sources 0123)"])
def test_a_pickle_of_another_version_is_refused_before_its_state_is_read(monkeypatch, version):
    for model in (CPMClassifier(), DelayedClassifier(CPMClassifier())):
        with monkeypatch.context() as patched:
            patched.setattr(saving, "_version", lambda: version)
            data = pickle.dumps(model).replace(b"FeatureSpace", b"FeatureSpare")
        with raises(ArchiveError, reason="version", named=version):
            pickle.loads(data)


# Models ----------------------------------------------------------------------------------------------------------


def scaler(**changes: Any) -> Scaler:
    fields = {
        "names": ["a", "b"],
        "is_indicator": np.zeros(2, bool),
        "shift": np.array([1.0, 0.0]),
        "scale": np.array([0.5, 2.0]),
        "count": np.array([9.0, 9.0]),
    }
    return Scaler(**(fields | changes))


def test_a_scaler_shifts_scales_cuts_takes_missing_as_zero_and_outliers_almost_so():
    X = np.array([[3.0, 1.0], [NAN, -50.0]])
    np.testing.assert_array_equal(scaler()(X), [[1.0, 2.0], [0.0, -100.0]])
    np.testing.assert_array_equal(scaler(limit=10.0)(X), [[1.0, 2.0], [0.0, -10.0]])
    X = np.array([[1.0, -100.0], [1.0, 5e4]])
    np.testing.assert_allclose(scaler(limit=10.0)(X)[:, 1], [-2.5, 1e-5])
    np.testing.assert_allclose(scaler()(X)[:, 1], [-200.0, 1e5])


def test_a_scaler_ranks_columns_with_a_window():
    ranked = scaler(windows=[np.array([1.0, 2.0, 2.0, 3.0]), np.zeros(0)])
    X = np.array([[0.0, 1.0], [2.0, 1.0], [9.0, NAN], [NAN, 1.0]])
    half = math.sqrt(12.0) / 2.0
    np.testing.assert_allclose(ranked(X), [[-half, 2.0], [0.0, 2.0], [half, 0.0], [0.0, 2.0]])


@pytest.mark.parametrize("scaling", ["none", "standard", "decayed", "rank"])
def test_polytopes_predict_like_their_learner(scaling):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)) * 3.0 + 1.0
    X[rng.random(X.shape) < 0.2] = NAN
    X[0] = 0.0
    y = np.nansum(X, axis=1) > 4.0
    model = CPMClassifier(scaling=scaling, scaling_window=50)
    model.learn_many(X, y)
    polytopes = model.model
    f = polytopes.inverse_temperature * polytopes.decision_function(X)
    proba = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    proba = (1.0 - polytopes.noise) * proba + polytopes.noise / 2.0
    np.testing.assert_allclose(proba, model.predict_proba_many(X), rtol=1e-6)
    assert polytopes.predict(X) == model.predict_many(X).tolist()


def test_polytopes_are_finite_and_of_shapes_that_go_together():
    for wrong, shapes in ((0, ((2, 3, 1), (2, 3))), (1, ((2, 3, 2), (3, 2))), (0, ((1, 3, 2), (1, 3)))):
        with raises(ValueError, named=shapes[wrong]):
            Polytopes(["x", "y"], *map(np.zeros, shapes), scaler())
    for face, bias in ((NAN, 0.0), (0.0, math.inf)):
        with raises(ValueError, named="finite"):
            Polytopes(["x", "y"], np.full((2, 3, 2), face), np.full((2, 3), bias), scaler())


@pytest.mark.parametrize("scaling", ["none", "standard", "decayed", "rank"])
def test_an_adopted_model_predicts_the_same_and_continues_learning(scaling):
    rng = np.random.default_rng(1)
    X = np.where(rng.random((400, 5)) < [0.0, 0.0, 0.2, 0.9, 0.0], NAN, rng.normal(size=(400, 5)) + 2.0)
    y = np.where(np.nan_to_num(X[:, 0]) > 2.0, "up", "down")
    first = CPMClassifier(scaling=scaling, scaling_window=50)
    first.learn_many(X, y)
    second = CPMClassifier(scaling=scaling, scaling_window=50)
    second.adopt(first.model)
    assert second.classes_ == first.classes_
    np.testing.assert_allclose(second.predict_proba_many(X), first.predict_proba_many(X), rtol=1e-6)
    second.learn_many(X, y)
    assert np.mean(second.predict_many(X) == y) > 0.8
    assert second.classes_ == first.classes_


def test_an_adopted_model_knows_its_strings():
    first = learner()
    second = CPMClassifier(n_faces=2)
    second.adopt(first.model)
    for x in ({"a": 1.0, "s": "x"}, {"s": "y", 3: 1.0}, {"s": "z"}, {}):
        assert second.predict_proba_one(x) == pytest.approx(first.predict_proba_one(x))


@pytest.mark.parametrize(
    ("settings", "parameter"),
    [
        ({"n_faces": 3}, "n_faces"),
        ({"n_faces": 2, "scaling": "none"}, "scaling"),
        ({"n_faces": 2, "scaling": "rank"}, "scaling"),
        ({"n_faces": 2, "max_features": 3}, "max_features"),
    ],
    ids=str,
)
def test_a_model_that_does_not_fit_is_not_adopted(settings, parameter):
    model = CPMClassifier(**settings)
    model.learn_one({"kept": 1.0}, "kept")
    before = snapshot(model)
    with raises(ParameterError, parameter=parameter):
        model.adopt(learner().model)
    assert snapshot(model) == before
