"""Compilation of steps: as few times as possible, and large parts separately."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import event

from streamsvm.core import cache
from streamsvm.core.jit import address_of, as_cfunc, call_pointer, kernel, state_at
from streamsvm.core.schema import Array, Schema
from streamsvm.core.state import State


@kernel
def plus(x, i):
    return x + i


@kernel
def plus_constants(x):
    return plus(x, 1) + plus(x, 2)


FILLED = Schema("filled", {"values": Array(("values",), "to be filled")})
filled_at = state_at(FILLED)


def fill(address, value):
    values = filled_at(address).values
    for i in range(values.size):
        values[i] = value


@kernel
def fill_apart(address, state, value):
    call_pointer(address, (address_of(state), value))


def test_a_function_is_compiled_once_for_all_constants(monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    with event.install_recorder("numba:compile") as recorder:
        assert kernel(plus_constants.py_func)(10) == 23
    compiled = [step.data["dispatcher"].py_func for _, step in recorder.buffer if step.is_end]
    assert compiled == [plus.py_func, plus_constants.py_func]
    # What compiled code calls has no machine code of its own.
    assert not list(tmp_path.rglob("*.plus-*"))
    assert list(tmp_path.rglob("*.plus_constants-*"))


def run(folder: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script that defines kernels, with a cache of its own."""
    (folder / "script.py").write_text(code)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "script.py"]
    return subprocess.run(command, cwd=folder, env=env | variables, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_indices_are_checked_in_compiled_code_if_requested(tmp_path):
    code = """if True:
        import numpy as np
        from streamsvm.core.jit import inlined, kernel
        @inlined
        def get(x, i):
            return x[i]
        @kernel
        def get_next(x, i):
            return get(x, i + 1)
        get_next(np.zeros(3), 2)
    """
    done = run(tmp_path, code, NUMBA_BOUNDSCHECK="1")
    assert done.stderr.endswith("IndexError: index is out of bounds\n")


@pytest.mark.slow
def test_with_a_newer_numba_functions_are_compiled_in_its_way_with_a_notice(tmp_path):
    code = """if True:
        import numba
        numba.version_info = (*numba.version_info[:1], 999, *numba.version_info[2:])
        from streamsvm.core.jit import as_cfunc, call_pointer, inlined, kernel
        @inlined
        def plus(a, b):
            return a + b
        @kernel
        def twice(a):
            return plus(a, a)
        def nothing(address):
            plus(address, 1)
        print(twice(10), as_cfunc(nothing, 1).address > 0, len(plus.signatures) > 0)
    """
    done = run(tmp_path, code)
    assert done.stdout == "20 True True\n"
    assert "newer than 0.68" in done.stderr


def test_separate_functions_are_compiled_once_and_called_by_address():
    state = State(FILLED, {"values": 5})
    fill_apart(as_cfunc(fill, 2).address, state, 7)
    np.testing.assert_array_equal(state.values, 7.0)
    assert as_cfunc(fill, 2) is as_cfunc(fill, 2)


def test_compiled_code_of_unused_sources_is_removed(monkeypatch, tmp_path):
    old, other = tmp_path / "streamsvm" / "old", tmp_path / "streamsvm" / "other"
    for folder in (old, other):
        folder.mkdir(parents=True)
        (folder / "kernel.nbc").write_bytes(b"code")
    long_ago = time.time() - 1.1 * cache.UNUSED_S
    os.utime(old, (long_ago, long_ago))
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    assert cache.cache_folder.__wrapped__().parent == tmp_path / "streamsvm"
    assert not old.exists()
    assert other.exists()
