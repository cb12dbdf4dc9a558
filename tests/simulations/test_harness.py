"""Harness: results are measured once, stored with provenance, and tabulated."""

from __future__ import annotations

import dataclasses
import importlib
import json
import pkgutil
from argparse import Namespace
from functools import partial

import pytest

import simulations
from simulations import __main__ as program
from simulations import storage
from simulations.harness import Benchmark, Case, key_of, measure, run
from simulations.storage import RESULTS_LAST_CHANGED_AT, Results
from simulations.tables import Column, Table, of, part, renewed, sources

CHANGE = "2026-11-20T12:00:00+00:00"
NEW = {
    "commit": "bbbb",
    "date": "2026-11-20T13:00:00+00:00",
    "command": "now",
    "machine": None,
    "versions": {"river": "2"},
}
OLD = NEW | {"commit": "aaaa", "date": "2026-11-20T11:00:00+01:00", "command": "before"}
TABLE = Table("stream", part(0), [Column(name, of("accuracy", name), best=max) for name in ("A", "B")])


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setitem(RESULTS_LAST_CHANGED_AT, "learners", ("cccc", CHANGE))
    return Results(tmp_path / "results.json")


def options(**given):
    return Namespace(**{"only": [], "again": False, "list": False, "jobs": 1} | given)


def test_results_are_stored_with_how_they_were_measured(results):
    results.add({"sea / A": {"accuracy": 0.5}}, OLD)
    results.add({"sea / B": {"accuracy": 0.6}, "sine / A": {"accuracy": 0.7}}, NEW)
    again = Results(results.path)
    assert again.rows == results.rows
    assert [again.runs[row["run"]]["commit"] for row in again.rows.values()] == ["aaaa", "bbbb", "bbbb"]
    assert "sea / A" in again
    assert "sea" in again
    assert "sea / C" not in again
    assert "se" not in again
    assert set(json.loads(results.path.read_text())) == {"runs", "rows"}


def test_a_result_that_is_measured_again_has_its_new_run_alone(results):
    results.add({"sea / A": {"accuracy": 0.5}}, OLD)
    results.add({"sea / A": {"accuracy": 0.6}}, NEW)
    assert results.runs == [NEW]
    assert results.rows == {"sea / A": {"run": 0, "accuracy": 0.6}}


def test_plots_of_results_that_are_missing_are_refused(results, tmp_path, monkeypatch, capsys):
    drawn = []
    cases = [Case(name, lambda: {"accuracy": 0.5}) for name in ("sea / A", "sea / B")]
    plotted = Benchmark("plotted", "", lambda options: cases, {"plotted": TABLE}, drawn.append)
    monkeypatch.setattr(program, "benchmark", lambda name: plotted)
    monkeypatch.setattr(program, "BENCHMARKS", {"plotted": ""})
    monkeypatch.setattr(program, "RESULTS", tmp_path)
    results.path = tmp_path / "plotted.json"
    results.add({"sea / A": {"accuracy": 0.5}}, NEW)
    assert program.main(["plotted", "--show", "--draw"]) == 2
    assert "--draw: measure the missing results (1), such as 'sea / B', first" in capsys.readouterr().err
    assert not drawn
    results.add({"sea / B": {"accuracy": 0.6}}, NEW)
    assert program.main(["plotted", "--show", "--draw"]) == 0
    assert len(drawn) == 1


def test_another_process_may_store_results_meanwhile(results):
    Results(results.path).add({"sea / A": {"accuracy": 0.5}}, OLD)
    results.add({"sea / B": {"accuracy": 0.6}}, NEW)
    assert set(Results(results.path).rows) == {"sea / A", "sea / B"}


def test_rows_with_older_results_are_marked(results):
    results.add({"sea / A": {"accuracy": 50.0}, "sea / B": {"accuracy": 60.0}, "sine / A": {"accuracy": 70.0}}, NEW)
    results.add({"sea / A": {"accuracy": 55.0}}, OLD)
    lines = [line.split(" | ") for line in TABLE.markdown(results.rows, results.older("learners")).splitlines()]
    assert lines[0] == ["| stream", "A", "B |"]
    assert lines[2:] == [["| sea †", "55.0", "**60.0** |"], ["| sine", "**70.0**", " |"]]
    said = sources(results, "learners")
    assert "cccc" not in sources(results)
    for told in ("`now`", "`before`", "aaaa", "bbbb", "cccc", "river 2", "machine not recorded", "20 November 2026"):
        assert told in said


def test_results_of_other_peoples_learners_are_not_marked(results):
    results.add({"sea / A": {"accuracy": 50.0}, "sine / B": {"accuracy": 60.0}}, OLD)
    results.add({"RBF / A": {"accuracy": 50.0}}, {"source": "A paper"})
    assert results.older("learners") == {"sea / A", "sine / B"}
    assert results.older("learners", others=["B"]) == {"sea / A"}
    ours = Benchmark("b", "", lambda _: [], {"t": TABLE}, others=["B"])
    table, told = program.shown(ours, results)
    assert [line.split(" | ")[0] for line in table.splitlines()[2:]] == ["| sea †", "| sine", "| RBF"]
    assert "cccc" in told
    table, told = program.shown(dataclasses.replace(ours, others=["A", "B"]), results)
    assert "†" not in table + told


def test_missing_cases_are_measured_and_failures_do_not_stop_the_others(results):
    asked: list[str] = []

    def measured(name):
        asked.append(name)
        if name == "bad":
            raise ValueError("no such stream")
        return {"accuracy": 1.0}

    names = ("good", "bad", "last")
    benchmark = Benchmark("b", "", lambda _: [Case(name, partial(measured, name)) for name in names])
    results.add({"last": {"accuracy": 0.0}}, OLD)
    assert measure(benchmark, options(), results) == 1
    assert asked == ["good", "bad"]
    assert {key: row["accuracy"] for key, row in results.rows.items()} == {"last": 0.0, "good": 1.0}
    with pytest.raises(SystemExit):
        measure(benchmark, options(only=["lost"]), results)
    assert measure(benchmark, options(again=True, only=["la"]), results) == 0
    assert asked == ["good", "bad", "last"]
    own = results.runs[results.rows["last"]["run"]]
    assert own["machine"] == storage.machine()
    assert {"commit", "date", "command", "versions"} <= set(own)


def test_a_case_may_have_several_results_that_are_measured_together(results):
    case = Case("sea", lambda: {"A": {"accuracy": 1.0}, key_of("B", 3): {"accuracy": 2.0}}, several=True)
    assert run([case], results, NEW) == 0
    assert {key: row["accuracy"] for key, row in results.rows.items()} == {"sea / A": 1.0, "sea / B / 3": 2.0}
    assert measure(Benchmark("b", "", lambda _: [case]), options(), results) == 0
    assert results.runs == [NEW]


def test_a_page_gets_its_tables_and_keeps_its_text():
    begin, end = "<!-- one: made by python -m simulations tables -->", "<!-- end of one -->"
    page = renewed(f"before {begin}old{end} after", {"one": lambda: "new"})
    assert page == f"before {begin}\n\nnew\n\n{end} after"
    assert renewed(page, {"one": lambda: "new"}) == page
    with pytest.raises(SystemExit):
        renewed(page, {})


def test_the_tables_of_the_documentation_are_those_of_the_stored_results():
    assert program.main(["tables", "--check"]) == 0, "run python -m simulations tables"


def test_pictures_of_the_documentation_are_not_drawn_from_other_results(tmp_path):
    for given in (["streams", "--show", "--draw", "--out", str(tmp_path / "mine.json")], ["delays", "--draw"]):
        with pytest.raises(SystemExit) as refused:
            program.main(given)
        assert refused.value.code == 2


@pytest.mark.parametrize("name", sorted(program.BENCHMARKS))
def test_every_benchmark_shows_its_stored_results_and_a_part_of_them(name):
    """Only some results may be measured yet."""
    found = Results(storage.RESULTS / f"{name}.json")
    shown = program.shown(program.benchmark(name), found)
    assert len(shown) > 1 or not found.rows
    for table in program.benchmark(name).tables.values():
        whole = table.markdown(found.rows)
        for key, row in list(found.rows.items())[:: max(1, len(found.rows) // 20)]:
            assert set(titles(table.markdown({key: row}))) <= set(titles(whole))


def titles(text):
    return text.partition("\n")[0].split("|")


def test_all_modules_of_the_simulations_are_importable():
    for module in pkgutil.walk_packages(simulations.__path__, "simulations."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def test_a_stored_command_names_no_folder_of_the_machine(monkeypatch):
    monkeypatch.setenv("STREAMSVM_DATA", "/some/folder")
    monkeypatch.setattr("sys.argv", ["x", "heldout", "/some/folder/a.csv", f"{storage.ROOT}/b.csv"])
    assert storage.provenance(["numpy"])["command"].endswith("heldout $STREAMSVM_DATA/a.csv ./b.csv")
