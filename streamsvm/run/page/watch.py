"""Shows a run that is elsewhere: from the directory of its checkpoints, or from its own page."""

from __future__ import annotations

import ast
import contextlib
import http.client
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import orjson

from streamsvm.models.archive import DAMAGED
from streamsvm.run.abilities import Refits
from streamsvm.run.checkpoint import Checkpoint, Snapshot, read_snapshot
from streamsvm.run.errors import SetupError
from streamsvm.run.history import History
from streamsvm.run.learners import as_learner
from streamsvm.run.metrics import Metrics
from streamsvm.run.page import figures, text_of
from streamsvm.run.page.board import Board
from streamsvm.run.page.feed import Feed
from streamsvm.run.page.server import Server
from streamsvm.run.prometheus import Figures
from streamsvm.run.standing import Report

_LOOK_S = 1.0
_REST = 10.0  # so many times what reading a checkpoint took, it is not read again
_TRY_AGAIN_S = 3.0
_SILENCE_S = 40.0  # after which a page that says nothing, not even that it is there, is given up
_LONGEST = 1 << 26  # bytes of an answer

logger = logging.getLogger("streamsvm.run")


def watch(place: str, page: str, token: str | None) -> NoReturn:
    """Serve a page of the run at a directory or an address, until interrupted.

    Parameters
    ----------
    place
        The directory of the run's checkpoints, or the address of its page.
    page, token
        As `Server` has them; the token is also what the other page is asked with.

    Raises
    ------
    SetupError
        For a directory that is none, an address that cannot be one, and a page that cannot be served.
    """
    shown = Elsewhere(place, token) if place.startswith(("http://", "https://")) else Shelf(place)
    server = Server(shown, page, token, shown.metrics)
    logger.info("the page: %s", server.url)
    try:
        threading.Thread(target=shown.run, name="watch", daemon=True).start()
        while True:
            time.sleep(3600.0)
    finally:
        server.close()


class Shelf(Board):
    """A board of the checkpoints in a directory, as they are renewed. It holds no lock, and writes nothing.

    Parameters
    ----------
    directory
        Of the checkpoints; there need be none in it yet.
    """

    kind = "checkpoint"

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__(every_s=0.0)
        if not Path(directory).is_dir():
            raise SetupError(
                f"watch {directory}: is no directory of checkpoints, and no address such as http://host:8080"
            )
        self._checkpoint, self._figures = Checkpoint(directory), figures()
        self._first: int | None = None
        self._stop = threading.Event()

    def run(self) -> None:
        """Look at it again and again."""
        seen, wait = 0, 0.0
        while not self._stop.wait(wait):
            wait = _LOOK_S
            with contextlib.suppress(FileNotFoundError):
                stamp = self._checkpoint.path.stat().st_mtime_ns
                if stamp != seen:
                    began, seen = time.perf_counter(), stamp
                    self._read(stamp / 1e9)
                    wait = max(_LOOK_S, _REST * (time.perf_counter() - began))

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()

    def _read(self, at: float) -> None:
        try:
            report = self._report(read_snapshot(self._checkpoint.path), at)
        except FileNotFoundError:
            raise
        except (ValueError, OSError, *DAMAGED) as error:
            logger.warning("%s cannot be read: %s", self._checkpoint.path, error)
            return
        self._due = 0.0  # no run is kept waiting here
        self(report, None)
        if isinstance(self._figures, Figures):
            self._figures(report, None)

    def _report(self, snapshot: Snapshot, at: float) -> Report:
        from streamsvm.loading import from_state

        state = snapshot.states["model"]
        if state[0].get("job"):  # what is being solved is for the run to solve
            from streamsvm.refit.archive import at_rest  # imports much

            state = at_rest(*state)
        metrics = Metrics.from_state(*snapshot.states["metrics"])
        self._first = metrics.taken if self._first is None else self._first
        self._checkpoint.written_at = at
        identity = snapshot.identity
        report = Report(
            identity.get("model", ""),
            _said(identity.get("source", "")),
            _said(identity["--out"]) if "--out" in identity else None,
            None,
            metrics,
            History.from_state(*snapshot.states["history"]),
            checkpoint=self._checkpoint,
            resumed=self._first,
            events=metrics.taken - self._first,
            ended=snapshot.ended,
        )
        report.learner = as_learner(from_state(*state), scored=False)
        report.refits = Refits.of(report.learner.model)
        return report

    def metrics(self) -> bytes:
        """What Prometheus reads."""
        return text_of(self._figures)

    def ask(self, number: int, timeout: float) -> bytes:
        """A checkpoint holds no events."""
        raise LookupError(number)

    def health(self) -> str:
        """Empty, once there is a checkpoint."""
        return "" if self.report is not None else "there is no checkpoint yet"


class Elsewhere:
    """What another page shows.

    Parameters
    ----------
    url
        Of that page.
    token
        What it wants to be asked with; None for nothing.
    """

    def __init__(self, url: str, token: str | None) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise SetupError(f"watch {url}: {error}") from error
        if not self._host:
            raise SetupError(f"watch {url}: names no host")
        self._secure, self._path = parts.scheme == "https", parts.path.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.url, self.feed = url.partition("#")[0], Feed()
        self._lost = False
        self._stop = threading.Event()

    def run(self) -> None:
        """Follow it; where it goes away, wait for it to return."""
        while not self._stop.is_set():
            try:
                for message in self._messages():
                    if self._lost:
                        logger.info("%s answers again", self.url)
                    self._lost = False
                    self.feed.publish(message)
            except (OSError, http.client.HTTPException) as error:
                if not self._lost:
                    logger.warning("%s does not answer, and is asked again: %s", self.url, error)
            self._say_lost()
            self._stop.wait(_TRY_AGAIN_S)

    def stop(self) -> None:
        """End `run` when there is something new, or nothing for long."""
        self._stop.set()

    def _messages(self) -> Iterator[bytes]:
        with self._asked("/events", _SILENCE_S) as answer:
            for line in iter(lambda: answer.readline(_LONGEST), b""):
                if line.startswith(b"data: "):
                    yield line[6:].rstrip(b"\n")
                if self._stop.is_set():
                    return

    def _say_lost(self) -> None:
        """Let viewers know, unless the run has ended and said so."""
        with contextlib.suppress(orjson.JSONDecodeError, TypeError):
            state = orjson.loads(self.feed.latest)
            self._lost = True
            if not state["ended"]:
                self.feed.publish(orjson.dumps(state | {"lost": True}))

    @contextlib.contextmanager
    def _asked(self, path: str, timeout: float) -> Iterator[http.client.HTTPResponse]:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        connection = kind(self._host, self._port, timeout=timeout)
        try:
            connection.request("GET", self._path + path, headers=self._headers)
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise _Refused(answer.status, answer.read(300).decode("utf-8", "replace").strip())
            yield answer
        finally:
            connection.close()

    def _whole(self, path: str, timeout: float) -> bytes:
        with self._asked(path, timeout) as answer:
            return answer.read(_LONGEST)

    def series(self) -> bytes:
        """All points over time, as JSON."""
        return self._whole("/series.json", 10.0)

    def ask(self, number: int, timeout: float) -> bytes:
        """Why an event was predicted as it was, as JSON."""
        try:
            return self._whole(f"/event.json?id={number}", timeout)
        except _Refused as error:
            if error.errno == http.HTTPStatus.NOT_FOUND:
                raise LookupError(number) from error
            raise

    def metrics(self) -> bytes:
        """What Prometheus reads."""
        return self._whole("/metrics", 10.0)

    def health(self) -> str:
        """What is wrong, empty where nothing is."""
        if not self.feed.latest:
            return "nothing was heard yet"
        return f"{self.url} does not answer" if self._lost else ""


class _Refused(OSError):
    """The other page said no."""


def _said(text: Any) -> str:
    """A name from where it was kept as a literal."""
    try:
        return str(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return str(text)
