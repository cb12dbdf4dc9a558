"""First use: kernels compiled by several processes are in the cache of all."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numba
import pytest

import streamsvm.loading
from streamsvm import BSGDClassifier, CPMClassifier, RefitClassifier, StreamSVMClassifier, cli
from streamsvm.core import cache, jit, precompile
from streamsvm.core.cache import cache_folder
from streamsvm.core.entry_points import EntryPoint
from streamsvm.decide import conformal_kernels
from streamsvm.delayed import label_join
from streamsvm.refit import frozen_models, outliers, vote_kernels

ROOT = Path(__file__).resolve().parents[2]
PREPARE = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(message)s")
from streamsvm.core import precompile
from streamsvm.online import driver
precompile._LEAST_SHARE = 1  # two processes for as little as this
entries = [driver.ENTRY_POINTS["event_proba"], driver.ENTRY_POINTS["event"]]  # compiled quickly
cold = [entry.name for entry in entries if not entry.is_compiled]
precompile.prepare(entries, jobs=2)
print(cold, [entry.is_compiled for entry in entries])
entries[0].compile()
"""

COLD = "['online.driver.event_proba', 'online.driver.event'] [True, True]"
WARM = "[] [True, True]"


def start(folder: Path, package: Path = ROOT, working: Path | None = None) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(package), "NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-P", "-c", PREPARE]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, cwd=working, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, said = process.communicate(timeout=280)
    assert process.returncode == 0, said
    return out.strip(), said


@pytest.mark.slow
def test_installations_and_processes_of_equal_content_compile_once_also_after_a_kill(tmp_path):
    copy, folder, another_checkout = tmp_path / "copy", tmp_path / "cache", tmp_path / "checkout"
    (another_checkout / "streamsvm").mkdir(parents=True)
    (another_checkout / "streamsvm" / "__init__.py").write_text("raise SystemExit('the wrong package')")
    for package in ("streamsvm", "connectors"):
        shutil.copytree(ROOT / package, copy / package)
    killed = start(folder)
    assert killed.stderr is not None
    assert "compiling" in killed.stderr.readline()
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    first, second = start(folder, working=another_checkout), start(folder, copy)
    answers = [end(first), end(second)]
    assert sorted(found for found, _ in answers) in ([COLD, COLD], [WARM, COLD])
    assert sum("compiling" in said.splitlines()[0] for _, said in answers if said) >= 1
    assert len(list(folder.rglob("*.code"))) == 2
    assert end(start(folder, copy, another_checkout)) == (WARM, "")
    assert stat.S_IMODE((folder / "streamsvm").stat().st_mode) == 0o700


def halved(x):
    return x / 2.0


def doubled(x):
    return x * 2.0


def test_cached_code_is_loaded_from_a_read_only_folder(monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(cache._Keeping, "failed", False)
    assert jit.kernel(halved)(4.0) == 2.0
    before = set(tmp_path.rglob("*"))
    monkeypatch.setattr("os.access", lambda place, mode: not mode & os.W_OK)
    kept, other = jit.kernel(halved), jit.kernel(doubled)
    assert (kept(4.0), sum(kept.stats.cache_hits.values())) == (2.0, 1)
    assert caplog.text == ""
    assert (other(4.0), other(4)) == (8.0, 8.0)
    assert not cache.is_kept()
    assert caplog.text.count(f"cannot be kept in {tmp_path}: the directory is not writable") == 1
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("damage", [b"", b"code", None], ids=["empty", "foreign", "cut"])
def test_a_damaged_file_is_compiled_again(monkeypatch, tmp_path, caplog, damage):
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path)
    assert jit.kernel(halved)(4.0) == 2.0
    (path,) = tmp_path.glob("*.code")
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] if damage is None else damage)
    assert jit.kernel(halved)(4.0) == 2.0
    assert caplog.text.count(f"{path} is damaged") == 1
    again = jit.kernel(halved)
    assert (again(4.0), sum(again.stats.cache_hits.values())) == (2.0, 1)


class TestFolders:
    def test_one_that_others_may_write_to_is_not(self, tmp_path):
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        assert str(shared) in str(cache.unsafe_part(shared))
        assert str(shared) in str(cache.unsafe_part(shared / "own"))
        shared.chmod(0o1777)  # nobody can replace its files, as in /tmp
        (shared / "own").mkdir(0o700)
        assert cache.unsafe_part(shared / "own") is None

    @pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give folders away")
    def test_one_of_another_user_is_not(self, tmp_path):
        given = tmp_path / "given"
        given.mkdir(0o700)
        os.chown(given, 12345, 12345)
        assert "another user" in str(cache.unsafe_part(given))

    def test_a_private_folder_replaces_an_unsafe_one(self, monkeypatch, tmp_path, caplog):
        monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "shared"))
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "shared").mkdir()
        (tmp_path / "shared").chmod(0o777)
        folder = cache.cache_folder.__wrapped__()
        assert folder.parent == tmp_path / ".cache" / "streamsvm"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert str(tmp_path / "shared") in caplog.text


def test_warmup_compiles_all_that_is_called_first(monkeypatch):
    monkeypatch.setattr(precompile, "_ready", set())
    for learner in (StreamSVMClassifier(), BSGDClassifier(), CPMClassifier()):
        RefitClassifier(learner).run_batch([{"warm": 1.0}], [0])
    needed = {
        entry.name for module in (outliers, vote_kernels, frozen_models) for entry in module.ENTRY_POINTS.values()
    }
    assert needed < precompile._ready  # before the first query of a model
    warmed: list[EntryPoint] = []
    monkeypatch.setattr(streamsvm.loading, "prepare", lambda entries, jobs: warmed.extend(entries))
    streamsvm.warmup()
    assert precompile._ready <= {entry.name for entry in warmed}
    streamsvm.warmup(everything=True)
    asked_for = {entry.name for module in (conformal_kernels, label_join) for entry in module.ENTRY_POINTS.values()}
    assert asked_for <= {entry.name for entry in warmed}


def test_warmup_says_where_compiled_code_is_kept(monkeypatch, capsys):
    monkeypatch.setattr(streamsvm.loading, "_KERNELS", ("ensemble.linear",))
    find = cli.importlib.util.find_spec
    monkeypatch.setattr(cli.importlib.util, "find_spec", lambda name: None if name == "sklearn" else find(name))
    gone = cache_folder().with_name("0123456789abcdef")
    gone.mkdir()
    os.utime(gone, (0.0, 0.0))
    assert cli.main(["warmup", "--jobs", "1"]) == 0
    assert capsys.readouterr().out.strip() == str(cache_folder())
    assert not gone.exists()
    monkeypatch.setattr(cache._Keeping, "failed", True)
    assert cli.main(["warmup", "--jobs", "1"]) == 1
