"""Brokers of tests start and stop, whatever is in their cache."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.kafka import broker as starter

JAVA = """#!/bin/bash
case "$*" in
    *SharedArchiveFile*) kill -ABRT $$ ;;
    *kafka.Kafka*)
        trap '%s' TERM
        [[ $* =~ ArchiveClassesAtExit=([^ ]+) ]] && echo classes > "${BASH_REMATCH[1]}"
        while sleep 0.05; do :; done ;;
esac
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The directory of jars, empty, and a `java` that only starts a shell."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(starter, "answers", lambda address: True)
    write_java(tmp_path, "exit 143")
    with monkeypatch.context() as patched:
        patched.setattr(starter, "_fetch", Path.mkdir)
        patched.setattr(starter.shutil, "which", lambda tool: tool)
        yield starter.jars()


def write_java(folder: Path, at_sigterm: str) -> None:
    (folder / "java").write_text(JAVA % at_sigterm)
    (folder / "java").chmod(0o755)


def classes_after(cache: Path) -> list[str]:
    """Return the archives after the start and the end of a broker."""
    with contextlib.closing(starter.Broker(brief=True)) as broker:
        while broker._archives and not broker._archive.exists():
            pass
    return sorted(path.name for path in cache.iterdir())


def test_classes_are_archived(cache):
    assert classes_after(cache) == ["classes.jsa"]


def test_a_corrupt_archive_is_removed(cache):
    (cache / "classes.jsa").write_text("cut off")
    assert classes_after(cache) == []


@pytest.mark.parametrize("end", ["", "exit 1"], ids=["ignores SIGTERM", "exits with 1"])
def test_a_broker_that_does_not_end_normally_leaves_no_archive(cache, tmp_path, monkeypatch, end):
    monkeypatch.setattr(starter, "ARCHIVE_S", 0.2)
    write_java(tmp_path, end)
    assert classes_after(cache) == []


def test_a_cache_that_cannot_be_written(cache, monkeypatch):
    monkeypatch.setattr(starter.os, "access", lambda path, mode: False)
    monkeypatch.setattr(starter, "locked", None)
    assert classes_after(cache) == []
