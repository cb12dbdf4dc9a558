"""The release files work without the checkout, with only the declared dependencies."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
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
    """Link the dependencies without extras into another environment, without downloads."""
    for requirement in map(Requirement, wanting.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found = distribution(requirement.name)
            places = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
            if missing := [place for place in places if not (site / place).exists()]:
                for place in missing:
                    (site / place).symlink_to(str(found.locate_file(place)))
                lend_what_is_needed(found, site)


@pytest.fixture(scope="module")
def fresh(released: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and its core dependencies only."""
    place = tmp_path_factory.mktemp("fresh")
    run(sys.executable, "-m", "venv", "--without-pip", place)
    python = place / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", released[1])
    lend_what_is_needed(Distribution.at(next(site.glob("streamsvm-*.dist-info"))), site)
    return python


def test_they_hold_the_packages_and_nothing_else_of_the_checkout(released):
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


def test_dependencies_fit_one_another(fresh):
    assert "No broken requirements" in run(sys.executable, "-m", "pip", "--python", fresh, "check")


def test_the_main_job_is_done_with_core_dependencies_alone(fresh, tmp_path):
    (tmp_path / "events.csv").write_text("heat,place,state\n" + "1,a,up\n2,b,down\n" * 30)
    results = ("--out", "p.csv", "--save", "model", "--checkpoint", "ck", "--summary", "s.json", "--quiet")
    run(fresh.parent / "streamsvm", "run", "events.csv", "--label", "state", *results, cwd=tmp_path)
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 1 + 60
    asked = "import streamsvm as s; print(s.load('model').predict_one({'heat': 1, 'place': 'a'}), s.__file__)"
    label, place = run(fresh, "-c", asked, cwd=tmp_path).split()
    assert label == "up"
    assert Path(place).is_relative_to(fresh.parents[1])


@pytest.mark.parametrize("missing", ["sklearn", "threadpoolctl"])
def test_without_an_extra_all_names_can_be_imported_but_those_that_need_it(missing: str) -> None:
    code = f"""if True:
        import sys
        sys.modules[{missing!r}] = None
        import streamsvm
        try:
            streamsvm.SmoothedNewton
        except ImportError as error:
            print(error)
        if {missing!r} == "sklearn":
            from streamsvm import *
        from streamsvm import StreamSVMClassifier
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "streamsvm[batch]" in done.stdout
