"""The README and related files are correct."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_its_examples_give_what_they_show():
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, attempted = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=flags)
    assert failed == 0
    assert attempted > 10


def test_it_has_two_set_up_commands_and_continuous_integration_runs_the_second():
    blocks = re.findall(r"^```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines() if "pip install" in line]
    assert len(commands) == 2
    assert commands[1] in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_links_lead_somewhere(name):
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text()):
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_files_that_are_named_are_there(name):
    text = (ROOT / name).read_text()
    for path in re.findall(r"`((?:docs|tests|streamsvm|connectors|simulations|\.ci)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
