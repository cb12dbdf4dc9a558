"""The page in a browser, next to a running stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.page.looking import Running, wait_for

EVIL = "<img src=x onerror=window.harmed=1>"
"""Name of a feature, a category and a class."""
SCRIPT = "</script><script>harmed=1</script>"


class Stream:
    """A growing file whose concept can change."""

    def __init__(self, path: Path) -> None:
        self.path, self._draw, self.n = path, np.random.default_rng(3), 0
        self.names = ["calm", SCRIPT, EVIL, "site"]
        self.path.write_text(",".join([*self.names, "y"]) + "\n")

    def grow(self, n: int, *, turned: bool = False) -> None:
        rows = self._draw.normal(size=(n, 3))
        lines = []
        for i, (a, b, c) in enumerate(rows.tolist()):
            label = EVIL if (b > c if turned else a > 0.0) else "down"
            lines.append(f"{a if i % 500 else 'oops'},{b:.4f},{c:.4f},{EVIL if i % 2 else 'home'},{label}\n")
        with self.path.open("a") as file:
            file.writelines(lines)
        self.n += n


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    return Stream(tmp_path_factory.mktemp("stream") / "events.csv")


@pytest.fixture(scope="module")
def run(stream: Stream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    stream.grow(2_000)
    options = ("--at-end", "wait", "--label", "y", "--types", "calm:number", "--model", "bsgd", "--checkpoint", "state")
    options += ("--reference", "1024")
    with Running(stream.path, *options, "--out", "out.csv", cwd=tmp_path_factory.mktemp("run")) as running:
        wait_for(lambda: running.state().get("judged", 0) > 1_900, "events")
        yield running


@pytest.fixture
def page(browser: Any, run: Running) -> Iterator[Any]:
    """Open page of a run, which must not request other addresses or log errors."""
    looked_at(browser)  # earlier requests
    browser.get(run.url)
    wait_for(lambda: shown(browser, "#status-text") == "running", "the page")
    yield browser
    asked, errors = looked_at(browser)
    assert asked
    assert {url for url in asked if not url.startswith((run.url, "data:", "blob:", "about:", "chrome:"))} == set()
    assert errors == []


def looked_at(browser: Any) -> tuple[set[str], list[str]]:
    """Return addresses requested since the last call, and console errors."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    return asked, [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def shown(browser: Any, selector: str) -> str:
    """Return the displayed text of an element, or an empty string if there is none."""
    return str(browser.execute_script("return document.querySelector(arguments[0])?.innerText ?? ''", selector))


FIGURE = "[...document.querySelectorAll('dt')].filter(d => d.textContent === '{}')[0]?.nextSibling.textContent"


def figure(browser: Any, name: str) -> str:
    """Return the value with a name, in any card."""
    return str(browser.execute_script("return " + FIGURE.format(name)))


def number(browser: Any, name: str) -> int:
    """Return the value as a number, or -1 if there is none yet."""
    return int(figure(browser, name).replace(",", "").replace("None", "-1").split()[0])


def drawn(browser: Any, panel: str) -> int:
    """Return the number of pixels of a chart that are not empty."""
    return int(
        browser.execute_script(
            "const c = document.querySelector(`#p-${arguments[0]} canvas`); let n = 0;"
            "const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
            "for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n;",
            panel,
        )
    )


@contextmanager
def phone(browser: Any, width: int = 390) -> Iterator[None]:
    """A narrow screen, whose width is in pixels."""
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        wait_for(lambda: browser.execute_script("return charts.accuracy.plot.width < 390"), "a narrow chart")
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        wait_for(lambda: browser.execute_script("return charts.accuracy.plot.width > 600"), "a wide chart")


def by(browser: Any, axis: str) -> None:
    """Select the axis: time or events."""
    script = "[...document.querySelectorAll('button')].find(b => b.textContent === arguments[0]).click()"
    browser.execute_script(script, axis)


def after_message(browser: Any, changes: str, result: str) -> Any:
    """Draw the last message `s` with changes, and return the result of a script."""
    script = (
        "const s = structuredClone(state), done = arguments[arguments.length - 1];"
        f"{changes}; take(s).then(() => {{}}).then(() => done({result}), error => done(String(error)))"
    )
    return browser.execute_async_script(script)


def test_figures_move(page, stream):
    before = number(page, "events")
    assert before > 1_900
    stream.grow(500)
    wait_for(lambda: number(page, "events") >= before + 490, "more events")
    assert "Recent accuracy" in shown(page, "#right")
    assert float(figure(page, "log loss")) < 0.5
    assert "in total, written to out.csv.rejected.jsonl" in shown(page, "#rejects")
    assert "'calm' is not a number: …" in shown(page, "#rejects")
    assert "oops" in shown(page, "#rejects pre")
    for panel in ("accuracy", "rate", "relevance"):
        assert drawn(page, panel) > 500, panel


def test_monitored_features_have_rows(page):
    table = shown(page, "#features")
    assert "4 columns, 0 changed now" in table
    for name in ("calm", SCRIPT, EVIL, "site"):
        assert name in table
    assert page.execute_script("return document.querySelectorAll('#features svg').length") == 4
    change = "Object.assign(s.features.rows.find(row => row.name === 'calm'), {changed: ['missing'], since: 4000})"
    told = after_message(page, change, "document.querySelector('#features tr[data-changed=true]').innerText")
    assert "missing changed since event 4,000" in told
    with phone(page):
        assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")


def test_the_lag_of_a_topic_is_shown_by_partition(page):
    # All at once, because the next message of the run has no lag.
    card = "document.querySelector('#lag-card').hidden, document.querySelector('#lag').innerText"
    hidden, parts, total = after_message(
        page, "s.lag = {total: 12, parts: [[2, 9], [0, 3]]}", f"[{card}, {FIGURE.format('lag')}]"
    )
    assert not hidden
    assert "partition 2" in parts
    assert total == "12"


def test_the_estimated_accuracy_says_what_lowers_it(page):
    lowered = "document.querySelector('#lowered')"
    assert page.execute_script(f"return {lowered}.hidden")
    given = "s.estimated = {events: 1000, accuracy: .57, error: .13, lowered: .1, share: .55, features: 'heat, site'}"
    told = after_message(page, given, f"{lowered}.innerText + document.querySelector('#right-figures').innerText")
    assert "from 67.0 %" in told
    assert "heat, site" in told
    assert "57.0 ± 13.0 %" in told


def test_drift_has_a_mark(page, stream):
    stream.grow(3_000, turned=True)
    wait_for(lambda: shown(page, "#changes li[data-kind=drift]"), "drift")
    assert "accuracy fell from" in shown(page, "#changes li[data-kind=drift]")
    for axis in ("by time", "by events"):
        by(page, axis)
        mark = "const m = document.querySelector('#p-accuracy .mark[data-kind=drift]');"
        script = f"{mark} return m && [m.title, m.clientHeight]"
        title, height = wait_for(lambda: page.execute_script(script), axis)  # noqa: B023
        assert "drift at event" in title
        assert height > 50


MARKS = "[...document.querySelectorAll('#p-accuracy .mark')]"
# Add a later point with a new maximum, drift at a third of the stream, and a refit at a half.
LATER = """
    for (const column of [...Object.values(series.columns), series.leaders]) column.splice(1);
    const at = s.now + 30, n = s.judged + 1000;
    series.columns.judged[0] = 0;
    const mark = (share, kind = "drift") => ({kind, judged: share * n, text: "so"});
    [s.now, s.judged, s.point.figures[0], s.point.figures[2]] = [at, n, at, n];
    s.marks = [mark(1 / 3), mark(.5), mark(.495, "refit"), mark(1)]
"""


@pytest.mark.parametrize("axis", ["by time", "by events"])
def test_every_mark_is_drawn_where_it_belongs(page, axis):
    by(page, axis)
    place = "parseFloat(m.style.left) / charts.accuracy.plot.over.clientWidth"
    drawn = f"{MARKS}.map(m => [m.dataset.kind, +m.dataset.count, {place}])"

    def compare():
        page.refresh()
        wait_for(lambda: shown(page, "#status-text") == "running", "the page")
        by(page, axis)
        wait_for(lambda: page.execute_script("return charts.accuracy !== undefined"), "the chart")
        found = after_message(page, LATER, drawn)
        assert [tuple(mark[:2]) for mark in found] == [("drift", 1), ("drift", 2), ("drift", 1)]
        assert [mark[2] for mark in found] == pytest.approx([1 / 3, 0.5, 1.0], abs=0.002)

    compare()
    with phone(page):
        compare()


@pytest.mark.parametrize("axis", ["by time", "by events"])
def test_labels_of_the_axis_are_whole(page, axis):
    # How far each label extends beyond the picture, to the left or right, in a view that ends at one of the labels.
    script = """
        const u = charts.accuracy.plot, pen = document.createElement("canvas").getContext("2d"), axis = u.axes[0];
        const [low, high] = extent(), from = low + arguments[0] * (high - low);
        u.batch(() => zoom(from, high));
        u.batch(() => zoom(from, axis._splits.at(-1)));
        pen.font = "12px system-ui, sans-serif";
        return axis._splits.map((at, i) => {
            const middle = u.valToPos(at, "x") + u.bbox.left / devicePixelRatio;
            const half = pen.measureText(axis._values[i]).width / 2;
            return Math.max(half - middle, middle + half - u.width);
        });"""
    by(page, axis)
    with phone(page):
        beyond = [x for share in (0.0, 0.2, 0.4, 0.6) for x in page.execute_script(script, share)]
    page.execute_script("unzoom()")
    assert max(beyond) <= 0.0
    pen = "const pen = document.createElement('canvas').getContext('2d'); pen.font = '12px system-ui, sans-serif';"
    longest = "timeLabels(null, [1.7e9, 1.7e9 + 1e5])[0]"  # over days
    assert page.execute_script(f"{pen} return pen.measureText({longest}).width") <= 88


def test_ticks_of_logarithmic_axes_are_finite(page):
    assert page.execute_script("return decades(.09999, .6)") == [0.1, 0.2, 0.5]
    assert page.execute_script("return decades(.0123, 140)") == [0.1, 1, 10, 100]
    assert page.execute_script("return decades(1.2, 1.9)") == [1.5]


def test_accuracy_names_its_events(page, run):
    by(page, "by time")
    assert figure(page, "over the last") == "1,000 events"
    last_two = """
        for (const column of [...Object.values(series.columns), series.leaders]) column.splice(0, column.length - 1);
        s.resumed = 5;
        s.judged = s.point.figures[2] = series.columns.judged[0] + 5000;
        s.point.figures[0] += 30;
        s.late = {events: 1000, model: .75, no_change: .5, majority: .25}
    """
    found = after_message(page, last_two, "[$('accuracy-over').textContent, $('right').textContent]")
    assert found == ["over the last 5,000 events", "Recent accuracy 75.0 %"]
    page.refresh()
    wait_for(lambda: shown(page, "#status-text") == "running", "the page")
    by(page, "by events")
    wait_for(lambda: shown(page, "#accuracy-over").startswith("over the last 1,000 events"), "the last ones")
    wider = "charts.data.over.fill(8192, 0, -1); sayOver(null, charts.accuracy.plot);"
    said = page.execute_script(f"{wider} return $('accuracy-over').textContent")
    assert said == "over the last 1,000 events, earlier points over up to 8,192"
    said = page.execute_script("sayOver(1, charts.accuracy.plot); return $('accuracy-over').textContent")
    assert said == "over the 8,192 events before"


def test_a_large_confusion_matrix_has_its_names_and_fits(page):
    names = [f"standing up from sitting on the ground, number {i}" for i in range(12)]
    draw = "state.confusion = {classes: arguments[0], counts: arguments[1], left_out: 0, events: 1}; renderConfusion();"
    fits = "const box = $('confusion'); return [box.scrollWidth - box.clientWidth, box.innerText.includes('sideways')]"
    page.execute_script(draw, names, [[12_345] * 12] * 12)
    assert page.execute_script(fits) == [0, False]
    with phone(page):
        page.execute_script(draw, names, [[12_345] * 12] * 12)
        more, is_said = page.execute_script(fits)
        assert more > 0
        assert is_said
        assert page.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
        name = "$('confusion').querySelector('tbody th').getBoundingClientRect().left"
        left = f"$('confusion').scrollLeft = 500; return {name} - $('confusion').getBoundingClientRect().left"
        assert page.execute_script(left) == 0  # unchanged
        cut = "[...document.querySelectorAll('#confusion th')].filter(t => t.scrollWidth > t.clientWidth + 1)"
        assert page.execute_script(f"return {cut}.length") == 0


def test_long_names_are_whole(page):
    named = """
        const name = i => `a rather long name of a sensor, number ${i}`;
        s.relevance = [...Array(8).keys()].map(i => [name(i), i + 1]);
        s.latest = s.latest.map((event, i) => ({...event, prediction: name(i), label: name(i)}));
        s.leaders = s.leaders.map((head, i) => ({...head, member: name(i)}));
        legend("relevance", s.relevance.map(([name, value]) => ({name, color: "red", value})), "");"""
    cut = """[...document.querySelectorAll("#latest td, #relevance td, #leaders td, .legend b")].filter(n =>
        n.scrollWidth > n.clientWidth + 1 && getComputedStyle(n).overflow !== "visible" ||
        n.getBoundingClientRect().right > n.closest(".card").getBoundingClientRect().right).map(n => n.textContent)"""
    assert after_message(page, named, cut) == []
    with phone(page):
        assert after_message(page, named, cut) == []


def test_words_of_the_latest_events_are_whole_on_a_phone(page):
    named = "s.latest = s.latest.map(event => ({...event, prediction: 'standing_still', label: 'not_standing'}));"
    lines = """[...document.querySelectorAll("#latest tbody td:nth-child(2n)")].map(cell => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return range.getClientRects().length; })"""
    with phone(page, 360):
        assert set(after_message(page, named, lines)) == {1}


def test_the_reasons_of_an_event_are_returned(page):
    wait_for(lambda: shown(page, "#latest tbody tr button"), "events")
    names = "return [...document.querySelectorAll('#contributions td:first-child')].map(cell => cell.textContent)"

    def told_apart():  # there are fewer on a busy machine
        page.execute_script("closeReasons(); document.querySelector('#latest tbody tr button').click()")
        wait_for(lambda: shown(page, "#contributions"), "contributions")
        return set(page.execute_script(names)) == {"calm", SCRIPT, EVIL, "site"}

    wait_for(told_apart, "all features")
    assert "The current model predicts" in shown(page, "#reasons")
    assert len(page.find_elements("css selector", "#nearest tbody tr")) == 6  # the event and five vectors
    page.find_element("css selector", "body").send_keys("\ue00c")  # Escape
    assert not page.find_element("id", "reasons").is_displayed()


def test_names_are_texts(page):
    wait_for(lambda: EVIL in shown(page, "#relevance"), "the name")
    assert SCRIPT in shown(page, "#relevance")
    assert f"site = {EVIL}"[:39] in shown(page, "#relevance")
    assert EVIL in page.execute_script("return document.querySelector('#confusion').textContent")
    assert page.find_elements("css selector", "main img, main script") == []
    assert page.execute_script("return window.harmed") is None


def test_it_is_reloaded_in_the_middle(page, stream):
    before = len(page.execute_script("return series.columns.time"))
    page.refresh()
    wait_for(lambda: shown(page, "#status-text") == "running", "the page")
    assert len(page.execute_script("return series.columns.time")) >= before
    seen = number(page, "events")
    stream.grow(200, turned=True)
    wait_for(lambda: number(page, "events") > seen, "more events")


def test_keys_themes_and_a_phone(page):
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
    chart.send_keys("\ue012\ue012\ue012")  # so long ago that they are requested again
    wait_for(lambda: shown(page, "#p-accuracy .legend") != before, "a value that is read")
    chart.send_keys("+")
    assert page.execute_script("return view.zoom !== null")
    chart.send_keys("\ue00c")
    assert page.execute_script("return view.zoom === null")
    with phone(page):
        wide = "return document.documentElement.scrollWidth - innerWidth"
        wait_for(lambda: page.execute_script(wide) <= 0, "all fits")


def test_four_pages_beside_the_run(page, run, stream):
    first = page.current_window_handle
    try:
        for _ in range(3):
            page.switch_to.new_window("tab")
            page.get(run.url)
        stream.grow(100, turned=True)
        wait_for(lambda: run.state()["events"] + run.state()["rejected"] == stream.n, "all events")
        for handle in page.window_handles:
            page.switch_to.window(handle)
            wait_for(lambda: number(page, "events") == run.state()["events"], "events")
    finally:
        for handle in page.window_handles:
            if handle != first:
                page.switch_to.window(handle)
                page.close()
        page.switch_to.window(first)
    stream.grow(100, turned=True)
    wait_for(lambda: run.state()["events"] + run.state()["rejected"] == stream.n, "the run goes on")


def test_the_end_is_shown(browser, run, stream):
    browser.get(run.url)
    wait_for(lambda: shown(browser, "#status-text") == "running", "the page")
    by(browser, "by events")
    stream.grow(2, turned=True)
    wait_for(lambda: run.state()["events"] + run.state()["rejected"] == stream.n, "the last event")
    browser.execute_script("series.loadedAt = -1e9")  # so long ago that they would be asked for again
    assert run.stop() == 130
    wait_for(lambda: "The run has ended on request" in shown(browser, "#banner"), "the end")
    wait_for(lambda: shown(browser, "#well") == "Ended on request", "the last message")
    assert shown(browser, "#status-text") == "ended"
    assert shown(browser, "#latest tbody tr button") == f"line {stream.n + 1}"
    assert browser.execute_script("return series.columns.taken.at(-1) === state.events")
    assert browser.execute_script("return charts.data.accuracy[0].at(-1) === state.judged")
