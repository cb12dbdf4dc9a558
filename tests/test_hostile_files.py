"""Untrusted files raise an `ArchiveError` quickly, within the file's size.

Memory of numpy and Python is measured with `tracemalloc`. Any file takes a few hundred kilobytes.
"""

from __future__ import annotations

import copy
import functools
import io
import json
import math
import os
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm
from streamsvm.models import ArchiveError, KernelExpansion, LinearModel, Scaler
from streamsvm.models.archive import read_archive, write_archive
from streamsvm.online.base import OnlineClassifier
from streamsvm.online.saving import SPARE_BYTES
from streamsvm.run.checkpoint import Checkpoint
from streamsvm.run.errors import SetupError
from tests.errors import raises

pytestmark = pytest.mark.usefixtures("unsynced")

Case = Callable[[bytes], bytes]

LEARNERS: dict[str, Callable[[], OnlineClassifier]] = {
    "polytope": lambda: streamsvm.CPMClassifier(n_faces=2, scaling="rank", scaling_window=8),
    "budgeted": lambda: streamsvm.BSGDClassifier(budget=10),
    "blend": lambda: streamsvm.StreamSVMClassifier(effort="low", budget=5),
}


def learned(name: str) -> OnlineClassifier:
    model = LEARNERS[name]()
    for i in range(30):
        model.learn_one({"a": i % 7 - 3.0, "b": i % 5 * 0.3, "s": "xy"[i % 2]}, i % 3)
    return model


@functools.cache
def state(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return learned(name).state()


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "model.svm"
    write_archive(path, *state("polytope"))
    return path


def check_refused(path: Path, named: str = "model.svm", beyond: int = 1_000_000) -> None:
    """Check that a file is rejected by name, with bounded memory.

    The bound is twice the file size and a constant.
    """
    load = streamsvm.load  # imported before memory is traced
    tracemalloc.start()
    try:
        with raises(ArchiveError, named=named):
            load(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * path.stat().st_size + beyond


# Files -----------------------------------------------------------------------------------------------------------

Table = dict[str, Any]


def split(content: bytes) -> tuple[Table, bytes]:
    """The table of arrays, and the bytes of the arrays."""
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def joined(table: Table, arrays: bytes) -> bytes:
    """An archive with the right checksum."""
    if "crc32" in table.get("__metadata__", ()):
        table["__metadata__"]["crc32"] = "00000000"
    head = json.dumps(table).encode()
    checksum = zlib.crc32(arrays, zlib.crc32(head))
    return len(head).to_bytes(8, "little") + head.replace(b"0" * 8, b"%08x" % checksum, 1) + arrays


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("header.json", content)
    return file.getvalue()


FILES: dict[str, Case] = {
    "half": lambda content: content[: len(content) // 2],
    "longest table": lambda content: b"\xff" * 8 + content[8:],
    "two files": lambda content: content + content,
    "zip": zipped,
}


@pytest.mark.parametrize("case", FILES)
def test_foreign_files_are_refused(saved, case):
    saved.write_bytes(FILES[case](saved.read_bytes()))
    check_refused(saved)


# Paths -----------------------------------------------------------------------------------------------------------


def test_a_device_a_folder_and_a_pipe_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", "/dev/null", "/dev/random", tmp_path, tmp_path / "pipe"):
        with raises(ArchiveError, reason="damaged", named=path):
            streamsvm.load(path)


def test_a_file_with_holes_is_refused(saved):
    """A terabyte that takes no disk space."""
    with saved.open("ab") as file:
        file.truncate(1 << 40)
    with raises(ArchiveError, reason="damaged"):
        streamsvm.load(saved)


# Headers ---------------------------------------------------------------------------------------------------------

DEEP = 100_000
TEXTS: dict[str, Any] = {
    "no text": 7,
    "no JSON": "{'format': 'streamsvm'}",
    "list": "[]",
    "NaN": '{"format": "streamsvm", "version": 2, "x": NaN}',
    "deep lists": "[" * DEEP + "]" * DEEP,
    "many objects": "[" + "{}," * 100_000 + "{}]",
    "long number": '{"format": "streamsvm", "version": ' + "9" * 10_000 + "}",
    "other format": '{"format": "other", "version": 1}',
    "newer version": '{"format": "streamsvm", "version": 3}',
    "no class": '{"format": "streamsvm", "version": 2}',
    "class is an object": '{"format": "streamsvm", "version": 2, "class": {"CPMClassifier": 1}}',
    "checkpoint": '{"format": "streamsvm", "version": 2, "class": "Checkpoint"}',
}


FLOAT_OUT = {"float": "0x1p9999"}
HEADERS: dict[str, dict[str, Any]] = {  # of a polytope machine
    "classes twice": {"classes": [0, 2, 2]},
    "classes that are equal": {"classes": [1, 2, True]},
    "class NaN": {"classes": [0, 1, {"float": "nan"}]},
    "class that is a list": {"classes": [0, 1, [2]]},
    "class without a label": {"classes": [0, 1, None]},
    "one class more": {"classes": [0, 1, 2, 3]},
    "many classes": {"classes": list(range(100_000))},
    "names twice": {"names": ["a", "a", {"tuple": ["s", "x"]}, {"tuple": ["s", "y"]}]},
    "name that is a list": {"names": ["a", ["b"], {"tuple": ["s", "x"]}, {"tuple": ["s", "y"]}]},
    "indicator of a text": {"names": ["a", "b", "sx", {"tuple": ["s", "y"]}]},
    "many names": {"names": list(range(65_000))},
    "names are null": {"names": None},
    "negative refused": {"n_refused": -1},
    "watched name without texts": {"watched": [["a", 0, 3]]},
    "no parameters": {"params": {}},
    "parameter of another name": {"params": {"faces": 2}},
    "huge parameter": {"params": {"n_faces": 10**400}},
    "parameter out of range": {"params": {"l2": FLOAT_OUT}},
    "weights that are not numbers": {"params": {"class_weight": {"dict": [[1, "x"]]}}},
    "large faces": {"params": {"n_faces": 10_000}, "names": list(range(60_000)), "classes": list(range(1000))},
    "large window": {"params": {"scaling": "rank", "scaling_window": 10**12}},
    "window beyond any": {"params": {"scaling": "rank", "scaling_window": 10**30}},
    "fewer features allowed": {"params": {"max_features": 2}},
}


# Settings that ask for more memory than there are values.
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("budgeted", {"budget": 1_000_000}),
    ("budgeted", {"budget": 10**30}),
    ("budgeted", {"heads": {"tuple": [{"tuple": ["log", {"float": "0x1p-3"}]}] * 10_000}}),
    ("budgeted", {"heads": {"tuple": [1, 2]}}),
    ("blend", {"budget": 100_000}),
    ("blend", {"members": {"tuple": ["standard"] * 50}}),
    ("blend", {"members": {"tuple": [[]]}}),
    ("blend", {"effort": "high"}),
]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *(pytest.param("polytope", changes, id=case) for case, changes in HEADERS.items()),
        *((name, {"params": params}) for name, params in SETTINGS),
    ],
)
def test_headers_that_do_not_fit_their_arrays_are_refused(tmp_path, name, changes):
    header, arrays = copy.deepcopy(state(name))
    if changes.get("params"):
        changes = changes | {"params": header["params"] | changes["params"]}
    write_archive(tmp_path / "model.svm", header | changes, arrays)
    # A learner with such settings is created, with untouched memory.
    check_refused(tmp_path / "model.svm", beyond=SPARE_BYTES)


# Arrays ----------------------------------------------------------------------------------------------------------


# Changed fields of the entry of an array.
ENTRIES: dict[str, dict[str, Any]] = {
    "half precision": {"dtype": "F16"},
    "smaller type": {"dtype": "F32"},
    "negative shape": {"shape": [-4]},
    "shape of floats": {"shape": [4.0]},
    "huge shape, and offsets": {"shape": [2**40], "data_offsets": [0, 2**43]},
    "product that wraps": {"shape": [2**32, 2**32]},
    "beyond any": {"shape": [10**400]},
    "many dimensions": {"shape": [1] * 100 + [4]},
    "offsets in reverse": {"data_offsets": [32, 0]},
}
TABLES: dict[str, Callable[[Table], object]] = {
    "no metadata": lambda table: table.pop("__metadata__"),
    "no header": lambda table: table["__metadata__"].pop("streamsvm"),
    "no checksum": lambda table: table["__metadata__"].pop("crc32"),
    "an entry is a number": lambda table: table.update({"rows.shift": 7}),
    "no offsets": lambda table: table["rows.shift"].pop("data_offsets"),
    "an array without entry": lambda table: table.pop("rows.shift"),
    "an array twice": lambda table: table.update({"more": table["weights"]}),
}


def changed(content: bytes, case: str) -> bytes:
    """An archive with another header, entry of an array or table."""
    table, arrays = split(content)
    if case in TEXTS:
        table["__metadata__"]["streamsvm"] = TEXTS[case]
    elif case in ENTRIES:
        table["rows.shift"] |= ENTRIES[case]
    else:
        TABLES[case](table)
    return joined(table, arrays)


@pytest.mark.parametrize("case", [*TEXTS, *ENTRIES, *TABLES])
def test_tables_that_do_not_fit_are_refused(saved, case):
    saved.write_bytes(changed(saved.read_bytes(), case))
    check_refused(saved, beyond=20_000_000 if case in TEXTS else 1_000_000)  # parsed JSON is larger than its text


def test_flags_are_true_or_false(saved):
    header, arrays = state("polytope")
    write_archive(saved, header, arrays | {"is_indicator": np.array([True, False])})
    table, arrays = split(saved.read_bytes())
    at = table["is_indicator"]["data_offsets"][0]
    saved.write_bytes(joined(table, arrays[:at] + b"\2" + arrays[at + 1 :]))
    check_refused(saved, "is_indicator")


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_arrays_that_are_missing_surplus_or_of_another_kind_are_refused(tmp_path, name):
    header, arrays = state(name)
    changes: list[dict[str, Any]] = [arrays | {"more": np.zeros(3)}]
    for i, (key, array) in enumerate(arrays.items()):
        other = np.float64 if array.dtype != np.float64 else np.float32
        kinds = [array.astype(other), array[None], array[..., None]]
        if array.dtype.kind == "f" and array.size:
            for bad in (math.nan, math.inf):
                kinds.append(array.copy())
                kinds[-1].reshape(-1)[-1] = bad
        both = [{k: a for k, a in arrays.items() if k != key}, arrays | {key: kinds[i % len(kinds)]}]
        changes += both if name == "polytope" else both[i % 2 : i % 2 + 1]
    for changed in changes[:: 3 if name == "blend" else 1]:
        write_archive(tmp_path / "model.svm", header, changed)
        with raises(ArchiveError, named="model.svm"):
            streamsvm.load(tmp_path / "model.svm")


# Models ----------------------------------------------------------------------------------------------------------


def expansion() -> KernelExpansion:
    scaler = Scaler.identity(["a", "b"])
    scaler.windows = [np.arange(3.0), np.empty(0)]
    return KernelExpansion(
        ["x", "y"], np.eye(3, 2), np.ones((2, 3)), np.zeros(2), gamma=1.0, relevance=np.ones(2), scaler=scaler
    )


MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gamma NaN": ({"gamma": "nan"}, {}),
    "limit negative": ({"limit": "-0x1p0"}, {}),
    "classes twice": ({"classes": ["x", "x"]}, {}),
    "one name": ({"names": ["a"]}, {}),
    "infinite shift": ({}, {"shift": np.array([0.0, math.inf])}),
    "scales in a table": ({}, {"scale": np.ones((2, 1))}),
    "vectors are whole": ({}, {"vectors": np.zeros((3, 2), np.int64)}),
    "coefs NaN": ({}, {"coefs": np.full((2, 3), math.nan)}),
    "negative relevance": ({}, {"relevance": -np.ones(2)}),
    "windows too short": ({}, {"windows": np.arange(2.0)}),
    "windows that wrap": ({}, {"window_lengths": np.array([-(1 << 62) * 2 + 3, -(1 << 63)])}),
    "windows unsorted": ({}, {"windows": np.array([2.0, 1.0, 3.0])}),
    "windows without lengths": ({}, {"window_lengths": None}),
    "more": ({}, {"more": np.zeros(1)}),
}


@pytest.mark.parametrize("case", MODELS)
def test_models_that_are_not_whole_are_refused(saved, case):
    expansion().save(saved)
    assert KernelExpansion.load(saved).predict(np.zeros((1, 2))) == ["x"]
    header, arrays = read_archive(saved)
    fields, changed = MODELS[case]
    arrays = {k: a for k, a in (arrays | changed).items() if a is not None}
    write_archive(saved, header | fields, arrays)
    with raises(ArchiveError, named="model.svm"):
        KernelExpansion.load(saved)


def test_one_model_is_not_another(saved):
    with raises(ArchiveError, reason="class", named="CPMClassifier"):
        LinearModel.load(saved)
    expansion().save(saved)
    with raises(ArchiveError, reason="class", named="KernelExpansion"):
        streamsvm.load(saved)


# Checkpoints -----------------------------------------------------------------------------------------------------

CHECKPOINT = {"class": "Checkpoint", "source": 0, "ended": "", "code": ""}
CHECKPOINT |= {name: {} for name in ("identity", "sinks", "model", "metrics", "history")}


@pytest.mark.parametrize("case", ["half", "two files", "zip", "no JSON", "newer version", "no class"])
def test_a_checkpoint_that_is_no_file_of_ours_is_refused(tmp_path, case):
    path = tmp_path / "checkpoint.safetensors"
    write_archive(path, CHECKPOINT, {"model.stats": np.zeros(3), "model.weights": np.zeros(2)})
    content = path.read_bytes()
    path.write_bytes(FILES[case](content) if case in FILES else changed(content, case))
    with Checkpoint(tmp_path) as checkpoint, raises(SetupError, reason="checkpoint", option="--reset"):
        checkpoint.read({})


def test_a_checkpoint_of_other_parts_or_with_more_arrays_is_refused(tmp_path):
    for changes in ({"identity": []}, {"identity": None}, {"sinks": []}, {"model": 3}, {"metrics": None}):
        write_archive(tmp_path / "checkpoint.safetensors", CHECKPOINT | changes, {})
        with Checkpoint(tmp_path) as checkpoint, raises(SetupError, reason="checkpoint", option="--reset"):
            checkpoint.read({})
    write_archive(tmp_path / "checkpoint.safetensors", CHECKPOINT, {"other": np.zeros(3)})
    with Checkpoint(tmp_path) as checkpoint, raises(SetupError, reason="checkpoint", named="other"):
        checkpoint.read({})
