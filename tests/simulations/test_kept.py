"""Each stored result belongs to a program, and the documentation matches it."""

from __future__ import annotations

from connectors.synthetic import find
from simulations import __main__ as listing
from simulations import figures, learners, tables
from simulations.drift import report
from simulations.drift.__main__ import shown_scenarios
from simulations.keeping import DOCS, PICTURES


def test_every_result_and_picture_is_of_a_program(capsys):
    owned = [path for program in listing.programs() for path in listing.kept_of(program)]
    assert len(owned) == len(set(owned))
    assert set(listing.all_kept()) - set(owned) == {PICTURES / "demo.png", PICTURES / "page.png"}  # of `streamsvm run`
    listing.main()
    assert "python -m simulations.drift\n    What every learner does" in capsys.readouterr().out


def test_tables_are_those_of_what_is_kept():
    for page in tables.PAGES:
        text = page.read_text()
        assert "made by python -m simulations.tables" in text
        assert tables.renewed(text) == text, "run python -m simulations.tables"


def test_the_page_of_drift_is_that_of_what_is_kept():
    scenarios = [find(name) for name in shown_scenarios()]
    made = report.documented(scenarios, learners.table())
    assert (DOCS / "drift.md").read_text() == made, "run python -m simulations.drift --report"


def test_the_page_of_all_figures_is_that_of_what_is_kept():
    assert figures.PAGE.read_text() == figures.page(), "run python -m simulations.figures"
