"""Pages that are made from the code are those of the code."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_the_page_of_what_learners_hold_is_that_of_the_declarations():
    made = runpy.run_path(str(DOCS / "state_page.py"))["page"]()
    assert (DOCS / "state.md").read_text(encoding="utf-8") == made, "run python docs/state_page.py"


def test_every_number_and_array_says_what_it_means():
    tables = runpy.run_path(str(DOCS / "state_page.py"))["TABLES"]
    for declaration in tables:
        for name, entry in declaration.entries.items():
            assert entry.meaning, (declaration.name, name)
