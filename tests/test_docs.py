"""The documentation says only what is so: pages made from code are up to date, links lead somewhere, examples run."""

from __future__ import annotations

import doctest
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TUTORIALS = sorted((DOCS / "tutorials").glob("*.md"))
SHELL = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
EXAMPLES = [page for page in PAGES if ">>>" in page.read_text(encoding="utf-8") and page not in TUTORIALS]


def name_of(page: Path) -> str:
    return str(page.relative_to(DOCS))


@pytest.mark.parametrize(
    ("script", "made"), [("state_page.py", "state.md"), ("command_line_page.py", "reference/command-line.md")]
)
def test_a_page_that_is_made_from_code_is_that_of_the_code(script, made):
    page = runpy.run_path(str(DOCS / script))["page"]()
    assert (DOCS / made).read_text(encoding="utf-8") == page, f"run python docs/{script}"


def test_every_number_and_array_says_what_it_means():
    tables = runpy.run_path(str(DOCS / "state_page.py"))["TABLES"]
    for declaration in tables:
        for name, entry in declaration.entries.items():
            assert entry.meaning, (declaration.name, name)


def test_the_site_is_built_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "class StreamSVMClassifier" not in (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "test_then_train" in (tmp_path / "reference" / "learners" / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", EXAMPLES, ids=name_of)
def test_examples_give_what_they_show(page):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, attempted = doctest.testfile(str(page), module_relative=False, optionflags=flags)
    assert failed == 0
    assert attempted > 0


@pytest.mark.parametrize("name", ["first-stream.md", "history-to-live.md"])
def test_a_tutorial_runs_as_it_is_written(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found: dict[str, object] = {}
    for kind, title, text in blocks(DOCS / "tutorials" / name):
        if title:
            Path(title).write_text(text, encoding="utf-8")
        elif kind == "sh":
            run(text)
        else:
            test = doctest.DocTestParser().get_doctest(text, found, name, name, 0)
            runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
            runner.run(test, clear_globs=False)
            found = test.globs
            assert runner.summarize(verbose=False).failed == 0


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """The kind, the title and the text of each block of code."""
    fences = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
    return fences.findall(page.read_text(encoding="utf-8"))


def run(script: str) -> None:
    """Run a block of the shell, and fail where it does."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], env=os.environ | SHELL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
