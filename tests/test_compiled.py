"""The wheel with the compiled library works in an environment without numba.

The wheel is `STREAMSVM_WHEEL`, if that is set. Otherwise the tests build one with the entry points of `CPMClassifier`.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.test_release import NOT_COPIED, ROOT, installed, run

MACHINES = {"x86_64": "x86-64-v3", "aarch64": "aarch64"}
TARGET = MACHINES.get(platform.machine(), "")
LEARN = """
import json, random, sys
import streamsvm
rng = random.Random(0)
model, found = streamsvm.CPMClassifier(), []
for i in range(600):
    x = {"a": rng.gauss(2.0 * (i % 3), 1.0), "b": rng.random(), "c": rng.gauss(-2.0 * (i % 3), 1.0)}
    found.append([model.predict_one(x) == i % 3, list(model.predict_proba_one(x).values())])
    model.learn_one(x, i % 3)
model.save("model", overwrite=True)
same = streamsvm.load("model").predict_proba_one({"a": 1.0}) == model.predict_proba_one({"a": 1.0})
print(json.dumps([found, same, "numba" in sys.modules]))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() not in MACHINES, reason="the library is for Linux"
    ),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="the C module of the library needs a C compiler"),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel given by the environment, or a new one."""
    if "STREAMSVM_WHEEL" in os.environ:
        return Path(os.environ["STREAMSVM_WHEEL"]).resolve()
    place = tmp_path_factory.mktemp("compiled")
    shutil.copytree(ROOT, place / "checkout", ignore=NOT_COPIED)
    modules = r"online\.driver|polytope\.kernels\.(run_event|open)|refit\.frozen_models\.build_masks"
    env = {"STREAMSVM_TARGET": TARGET, "STREAMSVM_MODULES": modules}
    run(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", place),
        cwd=place / "checkout",
        env=env,
    )
    return next(place.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and its dependencies except numba."""
    python, site = installed(wheel, tmp_path_factory.mktemp("fresh"))
    for absent in ("numba", "llvmlite"):
        (site / absent).unlink()
    return python


def asked(python: Path, code: str, place: Path, kind: str = "") -> subprocess.CompletedProcess[str]:
    """Run a script in an environment with one kind of code."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "STREAMSVM_CODE")}
    env |= {"STREAMSVM_CODE": kind} if kind else {}
    return subprocess.run([python, "-c", code], cwd=place, env=env, capture_output=True, text=True, check=False)


def test_it_serves_all_versions_of_python_and_is_small(wheel):
    assert re.search(r"-cp311-abi3-(many)?linux_.*(x86_64|aarch64)\.whl$", wheel.name)
    assert wheel.stat().st_size < 5e6
    with zipfile.ZipFile(wheel) as archive:
        assert {"streamsvm/core/_library.abi3.so", "streamsvm/core/_merging.npy"} <= set(archive.namelist())


def test_without_numba_it_learns_and_twice_gives_the_same_bits(python, tmp_path):
    first, second = (asked(python, LEARN, tmp_path) for _ in range(2))
    assert first.stderr == ""
    found, is_same, has_numba = json.loads(first.stdout)
    assert is_same
    assert not has_numba
    assert second.stdout == first.stdout
    native = asked(Path(sys.executable), LEARN, tmp_path, "numba")
    by_numba, is_same, has_numba = json.loads(native.stdout)
    assert is_same
    assert has_numba
    rates = [sum(right for right, _ in each[300:]) / 300 for each in (found, by_numba)]
    assert rates[0] == pytest.approx(rates[1], abs=0.02)
    assert rates[0] > 0.6


@pytest.mark.skipif("STREAMSVM_WHEEL" not in os.environ, reason="the wheel of the tests has one learner only")
@pytest.mark.parametrize("name", ["StreamSVMClassifier", "BSGDClassifier"])
def test_other_learners_need_no_numba_either(python, tmp_path, name):
    done = asked(python, LEARN.replace("CPMClassifier", name), tmp_path)
    assert done.stderr == ""
    assert not json.loads(done.stdout)[2]


OTHERS = """
import random, sys
import streamsvm
delayed = streamsvm.DelayedClassifier(streamsvm.StreamSVMClassifier())
rng = random.Random(0)
keyed, state = streamsvm.KeyedClassifier(streamsvm.CPMClassifier(), label="y"), None
decided = streamsvm.StreamSVMClassifier(cost={True: {False: 10.0}})
for i in range(300):
    y = rng.random() < 0.5
    x = {"a": float(y)}
    delayed.predict_one(x, key=i)
    delayed.predict_set_one(x, key=i)
    delayed.learn_one(i, y)
    decided.learn_one(x, y)
    answers, state = keyed.step(state, [x | {"y": y}])
print(delayed.predict_one({"a": 1.0}, key=-1), decided.predict_one({"a": 1.0}), answers[0]["prediction"] == y)
print("numba" in sys.modules)
"""


@pytest.mark.skipif("STREAMSVM_WHEEL" not in os.environ, reason="the wheel of the tests has one learner only")
def test_late_labels_keys_and_costs_need_no_numba_either(python, tmp_path):
    done = asked(python, OTHERS, tmp_path)
    assert done.stderr == ""
    assert done.stdout == "True True True\nFalse\n"


def test_the_command_line_says_which_code_it_uses(python, tmp_path):
    command = python.parent / "streamsvm"
    assert f"(compiled library for {TARGET})" in run(command, "--version", env={"STREAMSVM_CODE": "library"})
    assert "(compiled by numba on this machine)" in run(command, "--version", env={"STREAMSVM_CODE": "numba"})
    (tmp_path / "events.csv").write_text("heat,place,state\n" + "1,a,up\n2,b,down\n" * 30)
    options = ("--label", "state", "--model", "cpm", "--checkpoint", "ck", "--quiet")
    run(command, "run", "events.csv", *options, cwd=tmp_path, env={"STREAMSVM_CODE": "library"})
    command = Path(sys.executable).parent / "streamsvm"
    env = {**os.environ, "STREAMSVM_CODE": "numba"}
    resumed = [sys.executable, "-m", "streamsvm", "run", "events.csv", *options]
    env["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(resumed, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert done.stderr.count("last bits") == 1


def test_wrong_arguments_raise_errors(python, tmp_path):
    code = """if True:
        import numpy as np
        from streamsvm.refit import frozen_models
        build = frozen_models.ENTRY_POINTS["build_masks"].compile()
        masks, flags, whole = np.zeros((1, 1), np.uint32), np.zeros(1, bool), np.zeros(1, np.int64)
        for arguments in ((masks,), (whole,) * 5, (masks, np.zeros(4, np.int64)[::2], flags, whole, whole), (1,) * 5):
            try:
                build(*arguments)
            except (TypeError, ValueError, BufferError) as error:
                print(type(error).__name__)
        build(masks, whole, flags, whole, whole)
    """
    done = asked(python, code, tmp_path)
    assert len(done.stdout.split()) == 4, done.stderr
    assert done.stderr == ""


def test_functions_outside_the_library_are_compiled_or_named_as_missing(python, tmp_path):
    code = """if True:
        from streamsvm.core import math
        print(type(math.exp32).__name__)
        try:
            math.exp32(-1.0)
        except ImportError as error:
            print(error)
        print(type(math.exp32).__name__)
    """
    done = asked(python, code, tmp_path)
    assert done.stdout.splitlines() == ["DeferredFunction", "No module named 'numba'", "DeferredFunction"]


def test_a_library_of_other_sources_is_refused_with_a_reason(python, wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    with (tmp_path / "streamsvm" / "core" / "math.py").open("a") as file:
        file.write("# changed\n")
    code = "from streamsvm.core import library; print(library.code_in_use())"
    done = asked(Path(sys.executable), code, tmp_path)
    assert done.stdout == "compiled by numba on this machine\n"
    assert "it was built from other sources" in done.stderr
    done = asked(Path(sys.executable), code, tmp_path, "library")
    assert "it was built from other sources" in done.stderr
    assert done.returncode == 1
