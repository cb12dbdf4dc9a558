"""The page in a real browser, beside a running stream."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.page.looking import Running, wait_for

EVIL = "<img src=x onerror=window.harmed=1>"
"""A name of a feature, a category and a class."""
SCRIPT = "</script><script>harmed=1</script>"


class Stream:
    """A file that grows, and whose concept can turn."""

    def __init__(self, path: Path) -> None:
        self._path, self._draw, self.n = path, np.random.default_rng(3), 0
        self.names = ["calm", SCRIPT, EVIL, "site"]
        self._path.write_text(",".join([*self.names, "y"]) + "\n")

    def grow(self, n: int, *, turned: bool = False) -> None:
        rows = self._draw.normal(size=(n, 3))
        lines = []
        for i, (a, b, c) in enumerate(rows.tolist()):
            label = EVIL if (b > c if turned else a > 0.0) else "down"
            lines.append(f"{a if i % 500 else 'oops'},{b:.4f},{c:.4f},{EVIL if i % 2 else 'home'},{label}\n")
        with self._path.open("a") as file:
            file.writelines(lines)
        self.n += n


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return Stream(tmp_path_factory.mktemp("stream") / "events.csv")


@pytest.fixture(scope="module")
def run(stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    stream.grow(2_000)
    options = ("--follow", "--label", "y", "--types", "calm:number", "--model", "bsgd", "--checkpoint", "state")
    with Running(stream._path, *options, "--out", "out.csv", cwd=tmp_path_factory.mktemp("run")) as running:
        wait_for(lambda: running.state().get("judged", 0) > 1_900, "events")
        yield running


@pytest.fixture
def page(browser: Any, run: Running) -> Iterator[Any]:
    """The page of the run, opened; after the test nothing was asked elsewhere and the console has no error."""
    looked_at(browser)  # what was before
    browser.get(run.url)
    wait_for(lambda: shown(browser, "#status-text") == "running", "the page")
    yield browser
    asked, errors = looked_at(browser)
    assert asked
    assert {url for url in asked if not url.startswith((run.url, "data:", "blob:", "about:", "chrome:"))} == set()
    assert errors == []


def looked_at(browser: Any) -> tuple[set[str], list[str]]:
    """All addresses asked for since the last time, and the errors of the console."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    return asked, [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def shown(browser: Any, selector: str) -> str:
    """The text of an element as it is on the screen, empty where there is none. At once: it is soon drawn anew."""
    return str(browser.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector))


def figure(browser: Any, name: str) -> str:
    """The value under a name, in any of the cards."""
    script = "return [...document.querySelectorAll('dt')].filter(d => d.textContent === arguments[0])[0]?.nextSibling"
    found = browser.execute_script(f"{script}.textContent", name)
    return str(found)


def number(browser: Any, name: str) -> int:
    """That as a number, -1 where there is none yet."""
    return int(figure(browser, name).replace(",", "").replace("None", "-1").split()[0])


def drawn(browser: Any, panel: str) -> int:
    """How many pixels of a chart are not empty."""
    return int(
        browser.execute_script(
            "const c = document.querySelector(`#p-${arguments[0]} canvas`); let n = 0;"
            "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            "for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n;",
            panel,
        )
    )


def test_figures_move(page: Any, stream: Stream) -> None:
    before = number(page, "events")
    assert before > 1_900
    stream.grow(500)
    wait_for(lambda: number(page, "events") >= before + 490, "more events")
    assert "right of late" in shown(page, "#right")
    assert float(figure(page, "log loss")) < 0.5
    assert "in all, kept in out.csv.rejected.jsonl" in shown(page, "#rejects")
    assert "'calm' is not a number: …" in shown(page, "#rejects")
    assert "oops" in shown(page, "#rejects pre")
    for panel in ("accuracy", "rate", "relevance"):
        assert drawn(page, panel) > 500, panel


def test_drift_has_a_mark(page: Any, stream: Stream) -> None:
    stream.grow(3_000, turned=True)
    wait_for(lambda: shown(page, "#changes li[data-kind=drift]"), "drift")
    assert "accuracy fell from" in shown(page, "#changes li[data-kind=drift]")
    for axis in ("by time", "by events"):
        page.execute_script(
            "[...document.querySelectorAll('button')].find(b => b.textContent === arguments[0]).click()", axis
        )
        mark = "const m = document.querySelector('#p-accuracy .mark[data-kind=drift]');"
        script = f"{mark} return m && [m.title, m.clientHeight]"
        title, height = wait_for(lambda: page.execute_script(script), axis)  # noqa: B023
        assert "drift at event" in title
        assert height > 50


def test_an_event_gives_its_reasons(page: Any) -> None:
    wait_for(lambda: shown(page, "#latest tbody tr button"), "events")
    page.execute_script("document.querySelector('#latest tbody tr button').click()")
    wait_for(lambda: shown(page, "#contributions"), "contributions")
    names = "return [...document.querySelectorAll('#contributions td:first-child')].map(cell => cell.textContent)"
    assert set(page.execute_script(names)) == {"calm", SCRIPT, EVIL, "site"}
    assert "the model as it is now" in shown(page, "#reasons")
    assert len(page.find_elements("css selector", "#nearest tbody tr")) == 6  # the event, and five vectors
    page.find_element("css selector", "body").send_keys("\ue00c")  # Escape
    assert not page.find_element("id", "reasons").is_displayed()


def test_names_are_texts(page: Any) -> None:
    wait_for(lambda: EVIL in shown(page, "#relevance"), "the name")
    assert SCRIPT in shown(page, "#relevance")
    assert f"site = {EVIL}"[:39] in shown(page, "#relevance")
    assert EVIL in page.execute_script("return document.querySelector('#confusion').textContent")
    assert page.find_elements("css selector", "main img, main script") == []
    assert page.execute_script("return window.harmed") is None


def test_it_is_reloaded_in_the_middle(page: Any, stream: Stream) -> None:
    before = len(page.execute_script("return series.columns.time"))
    page.refresh()
    wait_for(lambda: shown(page, "#status-text") == "running", "the page")
    assert len(page.execute_script("return series.columns.time")) >= before
    seen = number(page, "events")
    stream.grow(200, turned=True)
    wait_for(lambda: number(page, "events") > seen, "more events")


def test_keys_themes_and_a_phone(page: Any) -> None:
    body = page.find_element("css selector", "body")
    background = "return getComputedStyle(document.body).backgroundColor"
    page.execute_script("theme('light')")
    light = page.execute_script(background)
    page.execute_script("theme('dark')")
    assert page.execute_script(background) != light
    body.send_keys("1")
    assert shown(page, "#ranges [aria-pressed=true]") in ("15 min", "10 k")
    body.send_keys("4")
    assert shown(page, "#ranges [aria-pressed=true]") == "all"
    chart = page.find_element("css selector", "#p-accuracy .chart")
    page.execute_script("arguments[0].focus()", chart)
    before = shown(page, "#p-accuracy .legend")
    chart.send_keys("\ue012\ue012\ue012")  # three times to the left
    wait_for(lambda: shown(page, "#p-accuracy .legend") != before, "a value that is read")
    chart.send_keys("+")
    assert page.execute_script("return view.zoom !== null")
    chart.send_keys("\ue00c")
    assert page.execute_script("return view.zoom === null")
    page.set_window_size(390, 800)
    try:
        wait_for(lambda: page.execute_script("return innerWidth < 520"), "a narrow window")
        wide = "return document.documentElement.scrollWidth - innerWidth"
        wait_for(lambda: page.execute_script(wide) <= 0, "all fits")
    finally:
        page.set_window_size(1360, 1000)


def test_ten_pages_beside_the_run(page: Any, run: Running, stream: Stream) -> None:
    first = page.current_window_handle
    try:
        for _ in range(9):
            page.switch_to.new_window("tab")
            page.get(run.url)
        stream.grow(100, turned=True)
        for handle in page.window_handles:
            page.switch_to.window(handle)
            wait_for(lambda: number(page, "events") > stream.n - stream.n // 400, "events")
    finally:
        for handle in page.window_handles:
            if handle != first:
                page.switch_to.window(handle)
                page.close()
        page.switch_to.window(first)
    stream.grow(100, turned=True)
    wait_for(lambda: run.state()["events"] + run.state()["rejected"] == stream.n, "the run goes on")


def test_the_end_is_said(browser: Any, run: Running) -> None:
    browser.get(run.url)
    wait_for(lambda: shown(browser, "#status-text") == "running", "the page")
    assert run.stop() == 130
    wait_for(lambda: "The run has ended on request" in shown(browser, "#banner"), "the end")
    time.sleep(0.1)
    assert shown(browser, "#status-text") == "ended"
