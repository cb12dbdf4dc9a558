"""Untrusted files: each raises an `ArchiveError`, quickly and with no more memory than the file size.

Memory of numpy and Python is measured with `tracemalloc`. Any file takes a few hundred kilobytes.
"""

from __future__ import annotations

import copy
import functools
import io
import json
import math
import os
import struct
import tracemalloc
import zipfile
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
from tests.learners import snapshot

pytestmark = pytest.mark.usefixtures("unsynced")

Case = Callable[[bytes], bytes]

LEARNERS: dict[str, Callable[[], OnlineClassifier]] = {
    "polytope": lambda: streamsvm.CPMClassifier(n_faces=2, average=5, scaling="rank", scaling_window=8),
    "budgeted": lambda: streamsvm.BSGDClassifier(budget=10, average=5),
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
    """Check that a file is rejected by name, with at most twice its size and a constant of memory."""
    load = streamsvm.load  # imported before memory is traced
    tracemalloc.start()
    try:
        with raises(ArchiveError, named=named):
            load(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * path.stat().st_size + beyond


# Zip files -------------------------------------------------------------------------------------------------------


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(parts: dict[str, bytes], method: int = zipfile.ZIP_STORED, **more: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in {**parts, **more}.items():
            archive.writestr(name, content)
    return file.getvalue()


def streamed(content: bytes) -> bytes:
    """Write as to a pipe: sizes follow each member."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def seek(self, *_: Any) -> int:
            raise io.UnsupportedOperation

    file = Pipe()
    with zipfile.ZipFile(file, "w") as archive:
        for name, part in members(content).items():
            with archive.open(name, "w") as member:
                member.write(part)
    return file.getvalue()


def twice(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, part in members(content).items():
            archive.writestr(name, part)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr(name, part)
    return file.getvalue()


def patched(at: int, new: bytes) -> Case:
    """Change bytes of the first member's header, or counted from the end."""
    return lambda content: content[:at] + new + content[at + len(new) :] if at + len(new) else content[:at] + new


def bomb(content: bytes) -> bytes:
    return zipped(members(content) | {"weights.npy": bytes(30_000_000)}, zipfile.ZIP_DEFLATED)


ZIPS: dict[str, Case] = {
    "packed": lambda content: zipped(members(content), zipfile.ZIP_DEFLATED),
    "bomb": bomb,
    "bzip2": lambda content: zipped(members(content), zipfile.ZIP_BZIP2),
    "lzma": lambda content: zipped(members(content), zipfile.ZIP_LZMA),
    "streamed": streamed,
    "twice": twice,
    "longer name": patched(26, b"\xff\xff"),
    "longer extra": patched(28, b"\xff\xff"),
    "name that is no text": patched(30, b"\xff"),
    "half": lambda content: content[: len(content) // 2],
    "no directory": lambda content: content[: content.index(b"PK\1\2")],
    "nothing but a directory": lambda content: content[content.index(b"PK\1\2") :],
    "half an end": lambda content: content[:-11],
    "end of another file": patched(-12, b"\0\0\0\1"),
    "more members at the end": patched(-14, b"\xff\xff"),
    "a comment": lambda content: content[:-2] + b"\5\0hello",
    "something before": lambda content: b"#!/bin/sh\n" + content,
    "something between": lambda content: content.replace(b"PK\1\2", bytes(100) + b"PK\1\2", 1),
    "something behind": lambda content: content + bytes(100),
    "two files": lambda content: content + content,
    "empty zip": lambda content: zipped({}),
    "no header": lambda content: zipped({k: v for k, v in members(content).items() if k != "header.json"}),
    "path outside": lambda content: zipped({**members(content), "../../etc/x": b""}),
    "folder": lambda content: zipped({**members(content), "more/": b""}),
    "other member": lambda content: zipped({**members(content), "run.py": b"print()"}),
    "many members": lambda content: zipped({**members(content), **{f"{i}.npy": b"" for i in range(12_000)}}),
    "npy instead": lambda content: members(content)["weights.npy"],
    "local header only": lambda content: content[:30],
    "end only": lambda content: content[-22:],
    "zeros": lambda content: bytes(100_000),
    "gzip": lambda content: b"\x1f\x8b\x08" + bytes(100),
}


@pytest.mark.parametrize("case", ZIPS)
def test_what_is_no_file_of_ours_is_refused(saved, case):
    saved.write_bytes(ZIPS[case](saved.read_bytes()))
    check_refused(saved)


# The directory at the end repeats the header of each member, and takes precedence.
REPEATED: dict[str, Case] = {
    "encrypted": patched(6, b"\1\0"),
    "other method": patched(8, b"\x63\0"),
    "other checksum": patched(14, b"abcd"),
    "sizes differ": patched(18, b"\1\0\0\0"),
    "longer than the file": patched(18, b"\xff\xff\xff\x7f" * 2),
    "long sizes without any": patched(18, b"\xff\xff\xff\xff" * 2),
}


@pytest.mark.parametrize("case", REPEATED)
def test_what_is_said_before_a_member_but_not_in_the_directory_changes_nothing(saved, case):
    expected = snapshot(streamsvm.load(saved))
    saved.write_bytes(REPEATED[case](saved.read_bytes()))
    assert snapshot(streamsvm.load(saved)) == expected


def test_the_order_of_the_directory_is_of_no_consequence_but_the_members_are(saved):
    """Overlapping members: the directory contains one position twice."""
    content = saved.read_bytes()
    at = content.index(b"PK\1\2")
    second = content.index(b"PK\1\2", at + 4)
    doubled = content[:at] + content[at:second] * 2 + content[second:]
    length = struct.unpack("<I", content[-10:-6])[0] + second - at
    n = struct.unpack("<H", content[-12:-10])[0] + 1
    saved.write_bytes(doubled[:-14] + struct.pack("<HHII", n, n, length, at) + doubled[-2:])
    check_refused(saved)


# Paths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/random"])
def test_a_device_is_refused(device):
    with raises(ArchiveError, reason="damaged", named=device):
        streamsvm.load(device)


def test_a_folder_and_a_pipe_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
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
TEXTS: dict[str, bytes] = {
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "UTF-16": '{"format": "streamsvm"}'.encode("utf-16"),
    "no JSON": b"{'format': 'streamsvm'}",
    "two values": b"{} {}",
    "half": b'{"format": "stre',
    "list": b"[]",
    "number": b"7",
    "null": b"null",
    "NaN": b'{"format": "streamsvm", "version": 1, "x": NaN}',
    "Infinity": b'{"format": "streamsvm", "version": 1, "x": -Infinity}',
    "name twice": b'{"format": "streamsvm", "format": "streamsvm", "version": 1}',
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "many lists": b"[" + b"[]," * 300_000 + b"[]]",
    "many objects": b"[" + b"{}," * 300_000 + b"{}]",
    "long number": b'{"format": "streamsvm", "version": ' + b"9" * 10_000 + b"}",
    "other format": b'{"format": "other", "version": 1}',
    "older version": b'{"format": "streamsvm", "version": 0}',
    "newer version": b'{"format": "streamsvm", "version": 2}',
    "negative version": b'{"format": "streamsvm", "version": -1}',
    "true version": b'{"format": "streamsvm", "version": true}',
    "version as text": b'{"format": "streamsvm", "version": "1"}',
    "huge version": b'{"format": "streamsvm", "version": 1' + b"0" * 4000 + b"}",
    "no class": b'{"format": "streamsvm", "version": 1}',
    "class is a list": b'{"format": "streamsvm", "version": 1, "class": ["CPMClassifier"]}',
    "class is an object": b'{"format": "streamsvm", "version": 1, "class": {"CPMClassifier": 1}}',
    "other class": b'{"format": "streamsvm", "version": 1, "class": "OnlineClassifier"}',
    "checkpoint": b'{"format": "streamsvm", "version": 1, "class": "Checkpoint"}',
}


@pytest.mark.parametrize("case", TEXTS)
def test_other_headers_are_refused(saved, case):
    saved.write_bytes(zipped({**members(saved.read_bytes()), "header.json": TEXTS[case]}))
    check_refused(saved)


FLOAT_OUT = {"float": "0x1p9999"}
HEADERS: dict[str, dict[str, Any]] = {
    "classes twice": {"classes": [0, 2, 2]},
    "classes that are equal": {"classes": [1, 2, True]},
    "class NaN": {"classes": [0, 1, {"float": "nan"}]},
    "class that is a list": {"classes": [0, 1, [2]]},
    "class of lists": {"classes": [0, 1, {"tuple": [[]]}]},
    "class that is no label": {"classes": [0, 1, {"float": 3}]},
    "class out of range": {"classes": [0, 1, FLOAT_OUT]},
    "classes are text": {"classes": "abc"},
    "classes are an object": {"classes": {"tuple": [0, 1, 2]}},
    "one class less": {"classes": [0, 1]},
    "one class more": {"classes": [0, 1, 2, 3]},
    "many classes": {"classes": list(range(100_000))},
    "names twice": {"names": ["a", "a", {"tuple": ["s", "x"]}, {"tuple": ["s", "y"]}]},
    "name that is a list": {"names": ["a", ["b"], {"tuple": ["s", "x"]}, {"tuple": ["s", "y"]}]},
    "indicator of a number": {"names": ["a", "b", {"tuple": ["s", 1]}, {"tuple": ["s", "y"]}]},
    "indicator of three": {"names": ["a", "b", {"tuple": ["s", "x", "z"]}, {"tuple": ["s", "y"]}]},
    "indicator of a text": {"names": ["a", "b", "sx", {"tuple": ["s", "y"]}]},
    "one name less": {"names": ["a", "b", {"tuple": ["s", "x"]}]},
    "many names": {"names": list(range(65_000))},
    "names are text": {"names": "abcd"},
    "names are null": {"names": None},
    "negative refused": {"n_refused": -1},
    "refused is text": {"n_refused": "1"},
    "refused is true": {"n_refused": True},
    "huge refused": {"n_refused": 10**400},
    "no parameters": {"params": {}},
    "parameters are a list": {"params": []},
    "parameter is null": {"params": {"n_faces": None}},
    "parameter of another name": {"params": {"faces": 2}},
    "parameter self": {"params": {"self": 2}},
    "huge parameter": {"params": {"n_faces": 10**400}},
    "parameter out of range": {"params": {"l2": FLOAT_OUT}},
    "parameter NaN": {"params": {"l2": {"float": "nan"}}},
    "weights that are no numbers": {"params": {"class_weight": {"dict": [[1, "x"]]}}},
    "weights with lists": {"params": {"class_weight": {"dict": [[[1], 1]]}}},
    "weights of three": {"params": {"class_weight": {"dict": [[1, 2, 3]]}}},
    "large faces": {"params": {"n_faces": 10_000}, "names": list(range(60_000)), "classes": list(range(1000))},
    "large window": {"params": {"scaling": "rank", "scaling_window": 10**12}},
    "window beyond any": {"params": {"scaling": "rank", "scaling_window": 10**30}},
    "fewer features allowed": {"params": {"max_features": 2}},
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers_that_do_not_fit_their_arrays_are_refused(saved, case):
    header, arrays = state("polytope")
    header = copy.deepcopy(header)
    params = HEADERS[case].get("params")
    if isinstance(params, dict) and params:
        params = header["params"] | params
    write_archive(saved, header | HEADERS[case] | ({"params": params} if "params" in HEADERS[case] else {}), arrays)
    check_refused(saved, beyond=SPARE_BYTES)  # a learner with such settings is created, with untouched memory


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("budgeted", {"budget": 1_000_000}),
        ("budgeted", {"budget": 10**30}),
        ("budgeted", {"heads": {"tuple": [{"tuple": ["log", {"float": "0x1p-3"}]}] * 10_000}}),
        ("budgeted", {"heads": {"tuple": [1, 2]}}),
        ("blend", {"budget": 100_000}),
        ("blend", {"members": {"tuple": ["standard"] * 50}}),
        ("blend", {"members": {"tuple": [[]]}}),
        ("blend", {"effort": "high"}),
    ],
)
def test_settings_that_ask_for_more_memory_than_there_are_values_are_refused(tmp_path, name, params):
    header, arrays = state(name)
    write_archive(tmp_path / "model.svm", header | {"params": header["params"] | params}, arrays)
    with raises(ArchiveError, named="model.svm"):
        streamsvm.load(tmp_path / "model.svm")


# Arrays ----------------------------------------------------------------------------------------------------------


def npy(text: str | bytes, content: bytes = b"", version: bytes = b"\1\0") -> bytes:
    described = text.encode() if isinstance(text, str) else text
    return b"\x93NUMPY" + version + len(described).to_bytes(2, "little") + described + content


def described(descr: str = "'<f8'", order: str = "False", shape: str = "(3,)", content: int = 24) -> bytes:
    return npy(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }} \n", bytes(content))


NPYS: dict[str, bytes] = {
    "empty": b"",
    "mark only": b"\x93NUMPY\1\0",
    "no mark": bytes(100),
    "other version": npy("{}", version=b"\2\0"),
    "no description": npy(""),
    "description beyond the end": b"\x93NUMPY\1\0\xff\xff{}",
    "objects": described("'|O'"),
    "text": described("'<U2'"),
    "bytes": described("'|S8'"),
    "complex": described("'<c16'", content=48),
    "time": described("'<M8[s]'"),
    "half precision": described("'<f2'", content=6),
    "long double": described("'<f16'", content=48),
    "fields": described("[('a', '<f8')]"),
    "subarray": described("('<f8', (3,))"),
    "other byte order": described("'>f8'"),
    "huge type": described("'|V2147483647'"),
    "by columns": described(order="True"),
    "order is a number": described(order="0"),
    "negative shape": described(shape="(-3,)"),
    "shape without a comma": described(shape="(3)"),
    "shape of floats": described(shape="(3.0,)"),
    "shape is a list": described(shape="[3]"),
    "shape of names": described(shape="(a,)"),
    "shape too large": described(shape="(4,)"),
    "shape too small": described(shape="(2,)"),
    "huge shape": described(shape="(9223372036854775807,)"),
    "product that wraps": described(shape="(4294967296, 4294967296)"),
    "huge and empty": described(shape="(0, 9223372036854775807)", content=0),
    "beyond any": described(shape=f"({'9' * 5000},)"),
    "many dimensions": described(shape="(" + "1, " * 63 + "3)"),
    "no content": described(content=0),
    "more content": described(content=32),
    "deep": npy("(" * 9_000),
    "open string": npy("{'descr': '"),
    "code": npy("__import__('os').mkdir('trapped')"),
    "more keys": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), 'x': 1, }\n", bytes(24)),
    "missing keys": npy("{'descr': '<f8', 'shape': (3,), }\n", bytes(24)),
    "no end of line": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }", bytes(24)),
    "null byte": npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }\0\n", bytes(24)),
    "neither true nor false": npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }\n", b"\2\0\1"),
}


@pytest.mark.parametrize("case", NPYS)
def test_arrays_that_are_none_are_refused(saved, case):
    saved.write_bytes(zipped({**members(saved.read_bytes()), "rows.shift.npy": NPYS[case]}))
    check_refused(saved)


def test_an_array_is_what_the_checksum_says(saved):
    content = bytearray(saved.read_bytes())
    content[content.index(b"PK\1\2") - 1] ^= 1
    saved.write_bytes(content)
    check_refused(saved, "weights.npy")


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
        changes += [{k: a for k, a in arrays.items() if k != key}, arrays | {key: kinds[i % len(kinds)]}]
    for changed in changes:
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
    "gamma is a number": ({"gamma": 1}, {}),
    "other kernel": ({"kernel": "sigmoid"}, {}),
    "kernel is a list": ({"kernel": []}, {}),
    "no kernel": ({"kernel": None}, {}),
    "limit NaN": ({"limit": "nan"}, {}),
    "limit negative": ({"limit": "-0x1p0"}, {}),
    "classes twice": ({"classes": ["x", "x"]}, {}),
    "class unhashable": ({"classes": ["x", ["y"]]}, {}),
    "one name": ({"names": ["a"]}, {}),
    "names are a number": ({"names": 2}, {}),
    "infinite shift": ({}, {"shift": np.array([0.0, math.inf])}),
    "scales in a table": ({}, {"scale": np.ones((2, 1))}),
    "vectors in a row": ({}, {"vectors": np.zeros(6)}),
    "vectors are whole": ({}, {"vectors": np.zeros((3, 2), np.int64)}),
    "coefs NaN": ({}, {"coefs": np.full((2, 3), math.nan)}),
    "negative relevance": ({}, {"relevance": -np.ones(2)}),
    "windows too short": ({}, {"windows": np.arange(2.0)}),
    "negative window": ({}, {"window_lengths": np.array([4, -1])}),
    "windows that wrap": ({}, {"window_lengths": np.array([-(1 << 62) * 2 + 3, -(1 << 63)])}),
    "windows unsorted": ({}, {"windows": np.array([2.0, 1.0, 3.0])}),
    "windows NaN": ({}, {"windows": np.array([0.0, 1.0, math.nan])}),
    "windows without lengths": ({}, {"window_lengths": None}),
    "no windows": ({}, {"windows": None}),
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

CHECKPOINT = {
    "class": "Checkpoint",
    "identity": {},
    "source": 0,
    "sinks": {},
    "model": {},
    "metrics": {},
    "history": {},
}


@pytest.mark.parametrize(
    "case", ["bomb", "half", "twice", "gzip", "no JSON", "deep lists", "newer version", "no class"]
)
def test_a_checkpoint_that_is_no_file_of_ours_is_refused(tmp_path, case):
    path = tmp_path / "checkpoint.npz"
    write_archive(path, CHECKPOINT, {"model/stats": np.zeros(3), "model/weights": np.zeros(2)})
    content = path.read_bytes()
    if case in ZIPS:
        parts = {name.removeprefix("model/"): part for name, part in members(content).items()}
        path.write_bytes(ZIPS[case](zipped(parts)))
    else:
        path.write_bytes(zipped({**members(content), "header.json": TEXTS[case]}))
    with Checkpoint(tmp_path) as checkpoint, raises(SetupError, reason="checkpoint", option="--reset"):
        checkpoint.read({})


@pytest.mark.parametrize(
    "changes", [{"identity": []}, {"identity": None}, {"sinks": []}, {"model": 3}, {"metrics": None}, {"history": "x"}]
)
def test_a_checkpoint_of_other_parts_is_refused(tmp_path, changes):
    write_archive(tmp_path / "checkpoint.npz", CHECKPOINT | changes, {})
    with Checkpoint(tmp_path) as checkpoint, raises(SetupError, reason="checkpoint", option="--reset"):
        checkpoint.read({})


def test_a_checkpoint_with_more_arrays_is_refused(tmp_path):
    write_archive(tmp_path / "checkpoint.npz", CHECKPOINT, {"other": np.zeros(3)})
    with Checkpoint(tmp_path) as checkpoint, raises(SetupError, reason="checkpoint", named="other"):
        checkpoint.read({})


def test_what_is_saved_is_read(tmp_path):
    for name in LEARNERS:
        header, arrays = state(name)
        write_archive(tmp_path / name, header, arrays)
        assert json.dumps(streamsvm.load(tmp_path / name).state()[0]) == json.dumps(header)
