"""Dashboards of other processes, from their checkpoints or their pages."""

from __future__ import annotations

import ast
import contextlib
import http.client
import logging
import math
import os
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from connectors.errors import UnreachableError
from streamsvm.models.archive import CORRUPT_ERRORS
from streamsvm.run.checkpoint import Checkpoint, Snapshot, read_snapshot
from streamsvm.run.config import RunConfig
from streamsvm.run.errors import SetupError
from streamsvm.run.history import History, RefitSummary
from streamsvm.run.learners import as_learner
from streamsvm.run.metrics import Metrics
from streamsvm.run.monitoring import RunMonitor
from streamsvm.run.page.dashboard import DashboardState, packed
from streamsvm.run.page.figures import COLUMNS, Series
from streamsvm.run.page.server import Server
from streamsvm.run.report import Report
from streamsvm.run.stages import Rate

_CHECK_S = 1.0
_RESPONSE_S = 10.0
_LONGEST = 1 << 26  # largest state in bytes

logger = logging.getLogger("streamsvm.run")


def watch(place: str, page: str, token: str | None) -> None:
    """Serve a dashboard of a run in another process, until interrupted.

    Parameters
    ----------
    place
        Checkpoint directory of the run, or URL of its page.
    page, token
        Address and token of the new page. The page of the run is requested with this token, too.

    Raises
    ------
    SetupError
        If the directory does not exist, the URL is malformed or refuses the request, or the page cannot be served.
    UnreachableError
        If nothing responds at the URL. Later, requests are repeated until it responds again.
    """
    is_address = place.startswith(("http://", "https://"))
    view: RemoteView | CheckpointView = RemoteView(place, token) if is_address else CheckpointView(place)
    if isinstance(view, RemoteView):
        view.check()
    with contextlib.closing(Server(view, page, token)):
        follow(view)


def follow(view: RemoteView | CheckpointView) -> None:
    """Look at a run until the feed of the view is closed."""
    wait = 0.0
    while not view.feed.wait_closed(wait):
        began = time.perf_counter()
        view.refresh()
        wait = max(_CHECK_S, view.rest * (time.perf_counter() - began))


class CheckpointView(DashboardState):
    """State of a run from its checkpoints, which are read without a lock.

    Parameters
    ----------
    directory
        Checkpoint directory; it may be empty at first.

    Attributes
    ----------
    rest
        Pause after reading a checkpoint, as a multiple of the reading time.
    """

    kind, rest = "checkpoint", 10.0

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(every_s=0.0)
        if not Path(directory).is_dir():
            raise SetupError(
                f"watch {directory}: must be a directory of checkpoints, or a URL such as http://host:8080"
            )
        self._checkpoint, self._rate = Checkpoint(directory), Rate()
        self._first: int | None = None
        self._seen = 0  # time of the last checkpoint, in nanoseconds

    def refresh(self) -> None:
        """Read the checkpoint if it is new."""
        path = self._checkpoint.path
        try:
            stamp = path.stat().st_mtime_ns
            if stamp == self._seen:
                return
            self._seen = stamp
            snapshot = read_snapshot(path)
        except FileNotFoundError:
            return
        except (ValueError, OSError, *CORRUPT_ERRORS) as error:
            logger.warning("%s cannot be read: %s", path, error)
            return
        try:
            report = self._report(snapshot, stamp / 1e9)
        except CORRUPT_ERRORS as error:  # its checksum was right, so that it is hardly damaged
            hint = "watch it with the version that wrote it"
            logger.warning("%s does not fit this version of streamsvm: %s; %s", path, error, hint)
            return
        self._due = self._history_due = 0.0  # updates need no delay, because they do not slow down the run
        self(report, None)

    def _report(self, snapshot: Snapshot, at: float) -> Report:
        from streamsvm.loading import from_state

        state = snapshot.states["model"]
        if state[0].get("job"):  # only the run solves an unfinished refit
            from streamsvm.refit.schedule import without_running_refit  # slow import

            state = without_running_refit(*state)
        metrics, history = Metrics(), History()
        metrics.restore(snapshot.states["metrics"])
        history.restore(snapshot.states["history"])
        monitor = RunMonitor(RunConfig()) if "monitor" in snapshot.states else None
        if monitor is not None:
            monitor.restore(snapshot.states["monitor"])
        self._first = metrics.taken if self._first is None else self._first
        self._checkpoint.written_at = at
        identity = snapshot.identity
        report = Report(
            identity.get("model", ""),
            _literal(identity.get("source", "")),
            _literal(identity["--out"]) if "--out" in identity else None,
            None,
            metrics,
            history,
            checkpoint=self._checkpoint,
            resumed=self._first,
            events=metrics.taken - self._first,
            ended=snapshot.ended,
            monitor=monitor,
        )
        report.rate = self._rate.at(report.events)
        report.learner = as_learner(from_state(*state), scored=False)
        report.refits = RefitSummary.of(report.learner.model)
        return report

    def explain(self, number: int, timeout: float) -> bytes:
        """Refuse, because a checkpoint contains no events."""
        raise LookupError(number)

    def health(self) -> str:
        """Return the problem of the run; empty once a checkpoint was read."""
        return "" if self.report is not None else "no checkpoint yet"


class _ErrorResponse(OSError):
    """The server responded with an error."""


class RemoteView(DashboardState):
    """State of a run, read from `state.json` of its page; curves start when it does.

    Parameters
    ----------
    url
        URL of the page.
    token
        The token of the page; None if it needs none.
    """

    rest = 0.0

    def __init__(self, url: str, token: str | None) -> None:
        super().__init__()
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise SetupError(f"watch {url}: {error}", "address") from error
        if not self._host:
            raise SetupError(f"watch {url}: has no host", "address")
        self._connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._path = f"{parts.path.rstrip('/')}/state.json"
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.url = url.partition("#")[0]
        self._run, self._lost, self._last = "", False, b""

    def refresh(self) -> None:
        """Fetch the state."""
        try:
            content = self._fetch()
            if content != self._last or self._lost:
                self._last = content
                self._show(content)
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            self._note_loss(error)

    def check(self) -> None:
        """Fetch the state for the first time. Raises an error instead of a warning."""
        try:
            self._show(self._fetch())
        except _ErrorResponse as error:
            raise SetupError(f"watch {self.url}: status {error.errno}: {error.strerror}", "refused") from error
        except OSError as error:
            what = f"watch {self.url}: does not respond: {error.strerror or error}"
            raise UnreachableError(f"{what}; start it once the run serves its page") from error
        except (http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            raise SetupError(f"watch {self.url}: is not the page of a run: {error!r}", "refused") from error

    def _fetch(self) -> bytes:
        with contextlib.closing(self._connect(self._host, self._port, timeout=_RESPONSE_S)) as connection:
            connection.request("GET", self._path, headers=self._headers)
            answer = connection.getresponse()
            content = answer.read(_LONGEST)
        if answer.status not in (HTTPStatus.OK, HTTPStatus.NO_CONTENT):
            is_text = answer.headers.get_content_type() == "text/plain"  # others write HTML pages
            reason = content[:300].decode("utf-8", "replace") if is_text else answer.reason
            raise _ErrorResponse(answer.status, " ".join(reason.split()))
        return content

    def _show(self, content: bytes) -> None:
        if content:  # empty before the first batch
            state = orjson.loads(content)
            if state["run"] != self._run:
                self._run, self._series = state["run"], Series()
            point = state["point"]
            known = [math.nan if value is None else value for value in point["figures"]]
            figures = dict(zip(COLUMNS, known, strict=True))
            self._series.add(figures)
            self.feed.publish(content)
        if self._lost:
            logger.info("%s answers again", self.url)
        self._lost = False

    def _note_loss(self, error: Exception) -> None:
        """Inform viewers, unless the run has ended."""
        if self._lost:
            return
        self._lost = True
        logger.warning("%s does not respond; retrying: %s", self.url, error)
        state = orjson.loads(self.feed.latest or b"{}")
        if state and not state.get("ended"):
            self.feed.publish(packed(state | {"lost": True}))

    def explain(self, number: int, timeout: float) -> bytes:
        """Refuse, because only the process of the run has its events."""
        raise LookupError(number)

    def metrics(self) -> bytes:
        """Refuse, because Prometheus can read the page of the run."""
        raise SetupError(f"ask {self.url} for them", "no metrics")

    def health(self) -> str:
        """Return the problem of the run; empty if there is none."""
        if not self.feed.latest:
            return "no state yet"
        return f"{self.url} does not respond" if self._lost else ""


def _literal(text: Any) -> str:
    """Parse a name that a checkpoint stores as a literal."""
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return str(text)
