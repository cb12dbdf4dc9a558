"""A run from its settings: open streams, run the model, and write reports."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from connectors import open_sink, open_source
from connectors.errors import ConnectorError
from connectors.joined import JoinedSource
from connectors.options import Options
from connectors.registry import is_place
from connectors.streams import Sink, Source
from streamsvm.models.archive import replacing
from streamsvm.run import DEFAULT_MODEL, SHORT_NAMES
from streamsvm.run.checkpoint import Checkpoint, result_lock
from streamsvm.run.checks import check_label
from streamsvm.run.classifiers import build_classifier, with_refits
from streamsvm.run.config import RunConfig, Url
from streamsvm.run.errors import RunError, SetupError, refusing
from streamsvm.run.history import refitting
from streamsvm.run.learners import check_names, takes_batches
from streamsvm.run.loop import RunLoop
from streamsvm.run.monitoring import RunMonitor
from streamsvm.run.options import STREAM_OPTIONS
from streamsvm.run.outputs import PLACES
from streamsvm.run.plot import plot
from streamsvm.run.report import Observer, Report
from streamsvm.run.report_text import summary

logger = logging.getLogger("streamsvm.run")
_SLOW_EVENTS = 256  # events per batch for slow models
_JOINED_EVENTS, _JOINED_LABELS = 1 << 13, 1 << 15  # per batch; a joined step ends where either stream has to be read
_TIMES = {"time_unit", "time_format"}


class Run:
    """A run of `streamsvm run`, configured by its settings.

    Parameters
    ----------
    config
        Settings.
    observers
        Called after every batch.
    started
        Value of `time.perf_counter()` at the start, for the time to the first prediction; None for now.

    Attributes
    ----------
    loop
        The loop; None before the start.
    failures
        Errors of writing at the end.

    Raises
    ------
    SetupError
        If the settings are invalid; no data was touched.

    Examples
    --------
    >>> from streamsvm.run import Run, RunConfig
    >>> config = RunConfig(source="synthetic:sea?seed=1", model="cpm", max_events=1000, dead_letter="null:")
    >>> report = Run(config).start()
    >>> report.metrics.events, report.metrics.accuracy > 0.8
    (1000, True)
    """

    def __init__(self, config: RunConfig, observers: Sequence[Observer] = (), started: float | None = None) -> None:
        self.config, self.observers, self._started = config, list(observers), started
        self.loop: RunLoop | None = None
        self.failures: list[Exception] = []

    def start(self, around: Callable[[RunLoop], contextlib.AbstractContextManager[Any]] | None = None) -> Report:
        """Run to the end of the stream, `max_events` or `loop.stop()`; resume if saved.

        Parameters
        ----------
        around
            Context manager that gets the loop and is active while it runs, such as a signal handler.

        Returns
        -------
        report
            Results of the run. If it fails after the start, the error is raised after results are written.
        """
        started = time.perf_counter() if self._started is None else self._started
        config, self.failures = self.config, []
        config.validate()
        with contextlib.ExitStack() as locks:
            for option, path in config.results.items():
                if is_place(path):
                    locks.enter_context(result_lock(option, path))
            try:
                self._run(started, around or contextlib.nullcontext)
            except Exception as error:
                if self.loop is None or not self.loop.report.ended or isinstance(error, BrokenPipeError):
                    raise  # the run did not start, or its reader is gone
                self.failures.append(error)
            assert self.loop is not None  # otherwise it raised
            self.failures += _written(config, self.loop.report)
        if self.failures:
            raise self.failures[0]
        return self.loop.report

    def _run(self, started: float, around: Callable[[RunLoop], Any]) -> None:
        config, self.loop = self.config, None
        with contextlib.ExitStack() as stack:
            servers = list(_served(config, stack))  # refuses ports in use before a broker is asked
            source = stack.enter_context(contextlib.closing(source_of(config)))
            check_label(config, source)
            model = model_of(config)
            if config.learn and not config.monitors and getattr(refitting(model), "refits_on_demand", False):
                what = "the model refits on alarms, which are not computed: give --alerts SINK or --reference FILE"
                logger.warning("%s", what)
            if config.urls["source"].is_file and (config.saved_model or isinstance(config.reference, str)):
                _check_known(config, model, source)
            checkpoint = _opened_checkpoint(config, stack)
            sinks = _opened_sinks(config, checkpoint, source, stack)
            self.loop = RunLoop(model, source, config, sinks, checkpoint, [*servers, *self.observers], started)
            stack.enter_context(around(self.loop))
            try:
                self.loop.run()
            finally:
                self.loop.close()


def _served(config: RunConfig, stack: contextlib.ExitStack) -> Iterator[Observer]:
    """Start servers of the run; yield their observers."""
    if config.metrics_port is not None:
        from streamsvm.run.prometheus import Exporter

        yield stack.enter_context(contextlib.closing(Exporter(config.metrics_port)))
    if config.page is not None:
        from streamsvm.run.page.dashboard import DashboardState
        from streamsvm.run.page.server import Server

        board = DashboardState()
        stack.enter_context(contextlib.closing(Server(board, config.page, config.token)))
        yield stack.enter_context(contextlib.closing(board))  # publishes the end before the server closes


def _written(config: RunConfig, report: Report) -> list[Exception]:
    """Write the requested summary and plot; return errors."""
    failures: list[Exception] = []
    for path, name, write in ((config.summary, "summary", _write_summary), (config.plot, "plot", plot)):
        try:
            if path:
                write(report, path)
        except OSError as error:
            failures.append(RunError(f"{name}: {path}: cannot be written: {error.strerror or error}"))
    return failures


def _write_summary(report: Report, path: str) -> None:
    figures = json.dumps(summary(report), indent=2, ensure_ascii=False) + "\n"
    with replacing(path) as file:
        file.write(figures.encode("utf-8", errors="backslashreplace"))


# The model --------------------------------------------------------------------------------------------------------


def model_of(config: RunConfig) -> Any:
    """Return the requested model, new or loaded."""
    model = _loaded(config.saved_model) if config.saved_model else _new_model(config)
    if hasattr(model, "keep_categories"):
        url = config.urls["source"]
        with refusing():
            types = Options(url.path, {"types": config.types} | url.query).kinds("types")
        model.keep_categories([name for name, kind in types.items() if kind == "category"])
    return model


def _new_model(config: RunConfig) -> Any:
    model = config.model or DEFAULT_MODEL
    if isinstance(model, str):
        model = build_classifier(model, config.params)
    elif config.params:
        raise SetupError("model is a classifier, which has its own parameters: remove params", option="params")
    if not config.refit:
        return model
    model = with_refits(model, *config.refit)
    url = config.urls["source"]
    if url.has_columns and not config.time and "time" not in url.query:
        for option, settings in (("every", model.trigger), ("window", model.window)):
            if settings is not None and settings.needs_times:
                given = f"--refit {option}={getattr(config.refit, option)}"
                raise SetupError(f"{given}: needs the times of events: name their column with --time NAME")
    return model


def _loaded(path: str) -> Any:
    import streamsvm  # loads the module of the model

    if os.path.isdir(path):
        what = "is a directory, not the file of a model; a run with --checkpoint saves its model with --save FILE"
        raise SetupError(f"--model {path}: {what}", option="--model")
    try:
        return streamsvm.load(path)
    except (OSError, ValueError) as error:
        raise SetupError(f"--model {path}: {getattr(error, 'strerror', None) or error}", option="--model") from error


# Streams ----------------------------------------------------------------------------------------------------------


def _opened_checkpoint(config: RunConfig, stack: contextlib.ExitStack) -> Checkpoint | None:
    """Open the checkpoint directory, if requested."""
    if not config.checkpoint:
        return None
    every, seconds = config.checkpoint_every or (None, 5.0)
    return stack.enter_context(Checkpoint(config.checkpoint, every_events=every, every_s=seconds, fresh=config.reset))


def _check_known(config: RunConfig, model: Any, source: Source) -> None:
    """Refuse a file without any feature of the loaded model or of the profile.

    Other streams are checked at the first batch.
    """
    events = _events(source)
    start = events.position
    batch = next(iter(events), None)
    if batch is not None and len(batch):
        try:
            if config.saved_model:
                check_names(model, batch)
            if isinstance(config.reference, str):
                RunMonitor(config).check_names(batch.features)
        except RunError as error:
            raise SetupError(f"{source.name}: {error}") from error
    events.seek(start)


def source_of(config: RunConfig) -> Source:
    """Open the stream of a run, joined with its labels if they arrive separately."""
    url, given = config.urls["source"], {name: getattr(config, name) for name in STREAM_OPTIONS}
    model, results = config.model or DEFAULT_MODEL, [*config.results.values(), *filter(None, [config.checkpoint])]
    is_fast = takes_batches(model) or config.saved_model or model in (*SHORT_NAMES, *SHORT_NAMES.values())
    # With slow models, a run can stop and report progress between batches.
    size = _SLOW_EVENTS if config.explain or not is_fast else _JOINED_EVENTS if config.label_source else None
    given["batch_size"] = size if url.has_columns else None
    if not config.label_source:
        return _open_source(url, given, results)
    of_labels = config.urls["label_source"]
    shared = {name: given[name] for name in ("time", "time_unit", "time_format", "missing", "at_end", "broker_timeout")}
    shared |= {"label": config.label, "key": config.join, "bare": True}
    shared["batch_size"] = _JOINED_LABELS if of_labels.has_columns else None
    # Labels in the stream of events would be known too early.
    events = _open_source(url, given | {"label": None, "key": config.join, "hide": [config.label]}, results)
    try:
        return JoinedSource(events, _open_source(of_labels, shared, results))
    except BaseException:
        events.close()
        raise


def _open_source(url: Url, given: dict[str, Any], results: Sequence[str]) -> Source:
    """Open a source with the options that suit it; those in the URL take precedence."""
    others = url.query.keys() | (_TIMES if url.query.keys() & _TIMES else set())
    if url.kind is None or not url.kind.meaning:
        others |= {"broker_timeout"}  # for brokers only
    with refusing():
        more = {name: value for name, value in given.items() if name not in others}
        if url.table is not None:
            return open_source(url.table, **more)
        return open_source(url if url.kind else url.paths, exclude=results, **url.query | more)


def _events(source: Source) -> Source:
    return source.events if isinstance(source, JoinedSource) else source


def _opened_sinks(
    config: RunConfig, checkpoint: Checkpoint | None, source: Source, stack: contextlib.ExitStack
) -> dict[str, Sink]:
    kept: dict[str, Any] = {"resume": checkpoint is not None and checkpoint.exists, "overwrite": config.overwrite}
    if checkpoint is not None:
        kept |= {"source": _events(source), "fresh": checkpoint.fresh}
    # With two streams, results have no source order, and rejected records come from both.
    unordered = {"distinct": PLACES if checkpoint is not None and config.label_source else ()}
    sinks: dict[str, Sink] = {}
    for role in ("out", "label_output", "query_output", "alerts", "dead_letter"):
        if (url := config.urls.get(role)) is not None:
            names = () if url.kind is None else url.kind.sink_options
            more = {name: getattr(config, name) for name in names if getattr(config, name) is not None}
            more |= {} if role == "out" else {"beside": sinks.get("out"), **unordered}
            with refusing():
                sink = open_sink(url, **kept, **more)
            sinks[role] = stack.enter_context(_closing(sink))
    return sinks


@contextlib.contextmanager
def _closing(sink: Sink) -> Iterator[Sink]:
    """Close a sink at the end; suppress errors of closing after another error."""
    try:
        yield sink
    except BaseException:
        with contextlib.suppress(ConnectorError, OSError):
            sink.close()
        raise
    sink.close()
