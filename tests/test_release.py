"""Release files work without the checkout, with declared dependencies only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pip
import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PIP = Path(pip.__file__).parent  # runs in any interpreter, as it stands
NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "results")


def run(*command: object, **options: object) -> str:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | options.pop("env", {})
    done = subprocess.run([*map(str, command)], env=env, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel built from it."""
    place = tmp_path_factory.mktemp("release")
    shutil.copytree(ROOT, place / "checkout", ignore=NOT_COPIED)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", place, cwd=place / "checkout")
    (sdist,), (wheel,) = place.glob("*.tar.gz"), place.glob("*.whl")
    return sdist, wheel


def lend_what_is_needed(wanting: Distribution, site: Path) -> None:
    """Link dependencies without extras into an environment, without downloads.

    Their versions must be compatible.
    """
    for requirement in map(Requirement, wanting.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found = distribution(requirement.name)
            assert requirement.specifier.contains(found.version, prereleases=True), f"{requirement}: {found.version}"
            places = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
            if missing := [place for place in places if not (site / place).exists()]:
                for place in missing:
                    (site / place).symlink_to(str(found.locate_file(place)))
                lend_what_is_needed(found, site)


def installed(wheel: Path, place: Path) -> tuple[Path, Path]:
    """Return the interpreter and the packages of a new environment with a wheel.

    It has the core dependencies, of matching versions.
    """
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    (site,) = place.glob("lib/*/site-packages")
    run(python, PIP, "install", "--quiet", "--no-compile", "--no-deps", "--no-index", wheel)
    lend_what_is_needed(Distribution.at(next(site.glob("streamsvm-*.dist-info"))), site)
    return python, site


@pytest.fixture(scope="module")
def fresh(released: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel."""
    return installed(released[1], tmp_path_factory.mktemp("fresh"))[0]


def test_release_files_contain_only_the_packages(released):
    sdist, wheel = released
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"streamsvm", "connectors"}
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    ours = {name for name in names if ".dist-info" not in name}
    assert ours <= packed
    assert not {name.partition("/")[0] for name in packed} & {"simulations", "tests", "docs"}
    here = [path for part in ("streamsvm", "connectors") for path in (ROOT / part).rglob("*") if path.is_file()]
    built = {"_library.abi3.so", "_merging.npy"}  # in wheels with the compiled library
    here = [path for path in here if "__pycache__" not in path.parts and path.name not in built]
    assert ours == {path.relative_to(ROOT).as_posix() for path in here}


def test_the_main_job_is_done_with_core_dependencies_alone(fresh, tmp_path):
    (tmp_path / "events.csv").write_text("heat,place,state\n" + "1,a,up\n2,b,down\n" * 30)
    results = ("--out", "p.csv", "--save", "model", "--checkpoint", "ck", "--summary", "s.json", "--quiet")
    code = """if True:
        import runpy, sys
        del sys.argv[0]
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as ended:
            assert not ended.code, ended.code
        import streamsvm
        print(streamsvm.load("model").predict_one({"heat": 1, "place": "a"}), streamsvm.__file__)
    """
    command = (fresh.parent / "streamsvm", "run", "events.csv", "--label", "state", *results)
    label, place = run(fresh, "-c", code, *command, cwd=tmp_path).split()[-2:]
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 1 + 60
    assert label == "up"
    assert Path(place).is_relative_to(fresh.parents[1])


def test_without_an_extra_all_names_can_be_imported_but_those_that_need_it():
    code = """if True:
        import sys
        import streamsvm
        for missing in ("sklearn", "threadpoolctl"):
            sys.modules[missing] = None
            try:
                streamsvm.SmoothedNewton
            except ImportError as error:
                print(error)
            if missing == "sklearn":
                from streamsvm import *
            from streamsvm import StreamSVMClassifier
            for name in list(sys.modules):
                if name == missing or name.startswith("streamsvm.batch"):
                    del sys.modules[name]
    """
    assert run(sys.executable, "-c", code, cwd=ROOT).count("streamsvm[batch]") == 2
