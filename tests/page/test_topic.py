"""The page of a run on a topic, in a browser."""

from __future__ import annotations

import signal
from typing import Any

from tests.commands import Command
from tests.kafka.conftest import fill
from tests.kafka.test_run import arguments, stream
from tests.page.looking import eager, free_port, wait_for
from tests.page.test_browser import figure, looked_at, number, shown


def test_a_topic_is_seen_to_move(browser, broker, topic, tmp_path):
    source, out, dead, port = topic("events"), topic("out"), topic("dead", 1), free_port()
    rows = stream(3_000)
    fill(broker, source, rows[:2_000])
    browser.get("about:blank")  # the page of an earlier test asks no more
    looked_at(browser)
    log = tmp_path / "log"
    log.touch()
    command = ("run", *arguments(broker, source, out, dead, "--page", port))
    with Command(*command, cwd=tmp_path, stdout=log, stderr=log, prepare=eager) as run:
        wait_for(lambda: "streamsvm: error" not in log.read_text() and opens(browser, port), "the page")
        wait_for(lambda: number(browser, "events") + n_rejected(browser) == 2_000, "all events")
        wait_for(lambda: figure(browser, "lag") == "0", "no lag")
        fill(broker, source, rows[2_000:])
        wait_for(lambda: number(browser, "events") + n_rejected(browser) == 3_000, "more events")
        assert "partition 2" in shown(browser, "#lag")
        assert shown(browser, "#latest tbody tr td").startswith("k")  # the key of an event
        assert f"kafka://{broker}/{dead}" in shown(browser, "#rejects")
        asked, errors = looked_at(browser)
        assert {url for url in asked if not url.startswith((f"http://127.0.0.1:{port}/", "data:", "chrome:"))} == set()
        assert [error for error in errors if "ERR_CONNECTION_REFUSED" not in error] == []  # before the server started
        run.send_signal(signal.SIGINT)
        wait_for(lambda: "The run has ended on request" in shown(browser, "#banner"), "the end")
        assert run.wait(120) == 130, log.read_text()


def opens(browser: Any, port: int) -> bool:
    from selenium.common.exceptions import WebDriverException

    try:
        browser.get(f"http://127.0.0.1:{port}/")
    except WebDriverException:
        return False
    return shown(browser, "#status-text") != ""


def n_rejected(browser: Any) -> int:
    return number(browser, "rejected")
