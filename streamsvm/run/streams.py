"""Opens the streams that the settings of the command line name."""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

from connectors import open_sink, open_source
from connectors.errors import ConnectorError, UnreachableError
from connectors.events import Sink, Source
from connectors.joined import JoinedSource
from connectors.options import split_url
from connectors.registry import by_scheme
from connectors.results import is_replaceable
from streamsvm.run.abilities import Batched
from streamsvm.run.checkpoint import Checkpoint
from streamsvm.run.deferred import DeferredSink
from streamsvm.run.errors import RunError, SetupError
from streamsvm.run.locks import held
from streamsvm.run.runner import PLACES, check_names
from streamsvm.run.settings import REJECTED, STREAM_OPTIONS, check_label, check_writable, rejected_path

_SLOW_EVENTS = 256  # at once, for what takes its time over each
_JOINED_EVENTS, _JOINED_LABELS = 1 << 13, 1 << 15  # at once: a step ends where one of the two streams has to be read

_WRITTEN = {"time_unit", "time_format"}


def opened_checkpoint(args: argparse.Namespace, stack: contextlib.ExitStack) -> Checkpoint | None:
    """The directory of checkpoints, if there is to be one."""
    if not args.checkpoint:
        return None
    seconds = args.checkpoint_seconds or (None if args.checkpoint_every else 5.0)
    checkpoint = Checkpoint(
        args.checkpoint, every_events=args.checkpoint_every, every_s=seconds, fresh=bool(args.fresh)
    )
    return stack.enter_context(checkpoint)


def check_files(args: argparse.Namespace) -> None:
    """Refuse files that cannot be read, or learned from, before there is a model, which may have to be compiled."""
    if all(map(_is_opened_again, filter(None, (args.source, args.label_source)))):
        with _silent(logging.getLogger("connectors")), contextlib.closing(opened_source(args)) as source:
            check_label(args, source)


@contextlib.contextmanager
def _silent(logger: logging.Logger) -> Iterator[None]:
    """Drop what is logged: the run opens its files again, and warns then."""
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def check_known(args: argparse.Namespace, model: Any) -> None:
    """Refuse a file that has no feature a loaded model has learned; other streams are looked at as they come."""
    if not (args.load and _is_opened_again(args.source)):
        return
    with _silent(logging.getLogger("connectors")), contextlib.closing(opened_source(args, model)) as source:
        batch = next(iter(source.events if isinstance(source, JoinedSource) else source), None)
        if batch is not None and len(batch):
            try:
                check_names(model, batch)
            except RunError as error:
                raise SetupError(f"{source.name}: {error}") from error


def _is_opened_again(url: str) -> bool:
    """Whether it is a file, or would be one: a pipe can be read once, and brokers are asked once."""
    path = split_url(url)[0]
    return by_scheme(url) is None and path != "-" and (os.path.isfile(path) or not os.path.exists(path))


def opened_source(args: argparse.Namespace, model: Any = None) -> Source:
    """The stream of events, for a model if there is one."""
    given = {name: getattr(args, name) for name in STREAM_OPTIONS}
    is_slow = args.explain or not (model is None or isinstance(model, Batched))
    if is_slow and by_scheme(args.source) is None and "batch_size" not in split_url(args.source)[1]:
        given |= {"batch_size": _SLOW_EVENTS}  # between two batches a run can be stopped, and says how far it is
    if args.label_source:
        return _opened_joined(args, given)
    source: Source = _settled(open_source, args.source, **given)
    return source


def _opened_joined(args: argparse.Namespace, given: dict[str, Any]) -> JoinedSource:
    """The stream of events with that of their labels. A label in the events themselves would be known too soon."""
    hidden = _large(args.source, _JOINED_EVENTS) | given | {"label": None, "key": args.join, "hide": [args.label]}
    shared = {name: given[name] for name in ("time", "time_unit", "time_format", "missing")} | {
        "label": args.label,
        "key": args.join,
        "bare": True,
    }
    shared |= _large(args.label_source, _JOINED_LABELS)
    events = _settled(open_source, args.source, **_fitting(args.source, hidden))
    try:
        labels = _settled(open_source, args.label_source, **_fitting(args.label_source, given, shared))
    except BaseException:
        events.close()
        raise
    return JoinedSource(events, labels)


def _large(url: str, n: int) -> dict[str, Any]:
    """The size of batches of a file."""
    return {"batch_size": n} if by_scheme(url) is None else {}


def _fitting(url: str, given: dict[str, Any], options: dict[str, Any] | None = None) -> dict[str, Any]:
    """The options of a stream of two, of which those of live streams are for those of their kind alone."""
    live = {"until_end", "patience"} if by_scheme(url) is not None else {"follow"}
    own = given if options is None else options | {name: given[name] for name in live}
    others = {"until_end", "patience", "follow"} - live
    query = split_url(url)[1]
    if query.keys() & _WRITTEN:
        others |= _WRITTEN  # a stream whose times are written otherwise says so itself
    return {name: value for name, value in own.items() if name not in others and name not in query}


def opened_sinks(
    args: argparse.Namespace, checkpoint: Checkpoint | None, source: Source, stack: contextlib.ExitStack
) -> list[Sink | None]:
    """For predictions, joined results and requests, if wanted, and for events set aside: by default a file that is made
    when the first one comes."""
    kept: dict[str, Any] = {"resume": checkpoint is not None and checkpoint.exists, "overwrite": bool(args.overwrite)}
    is_joined = isinstance(source, JoinedSource)
    events = source.events if isinstance(source, JoinedSource) else source
    kept |= {} if checkpoint is None else {"source": events, "fresh": checkpoint.fresh}
    # Of two streams, labels find their events in an order of its own, and what is set aside comes from both.
    unordered = {"distinct": PLACES if checkpoint is not None and is_joined else ()}
    out = _settled(open_sink, args.out, **kept, **_shared(args, args.out)) if args.out else None
    if out is not None:
        stack.enter_context(_closing(out))
    joined = None
    if args.joined:
        joined = _settled(open_sink, args.joined, beside=out, **kept, **unordered, **_shared(args, args.joined))
    if joined is not None:
        stack.enter_context(_closing(joined))
    requests = None
    if args.requests:
        requests = _settled(open_sink, args.requests, beside=out, **kept, **unordered, **_shared(args, args.requests))
        stack.enter_context(_closing(requests))
    path = args.rejected or rejected_path(args)
    if args.rejected:
        rejected = _settled(open_sink, path, beside=out, **kept, **unordered, **_shared(args, path))
    else:
        check_writable("rejected events go to", path)
        opened = functools.partial(_open_unshared, stack) if path == REJECTED else open_sink
        opened = functools.partial(opened, overwrite=bool(args.overwrite))
        rejected = DeferredSink(path, opened, replace=path != REJECTED, overwrite=bool(args.overwrite))
    return [out, stack.enter_context(_closing(rejected)), joined, requests]


@contextlib.contextmanager
def _closing(sink: Sink) -> Iterator[Sink]:
    """Close a sink at the end; after an error that is the one to be told, and closing may well fail for the same."""
    try:
        yield sink
    except BaseException:
        with contextlib.suppress(ConnectorError, OSError):
            sink.close()
        raise
    sink.close()


def _open_unshared(stack: contextlib.ExitStack, path: str, *, resume: bool, overwrite: bool) -> Sink:
    """Open the default file for rejected events; where that is another's, one beside it."""
    stem, _, suffix = REJECTED.partition(".")
    others = () if resume else (f"{stem}-{i}.{suffix}" for i in itertools.count(2))
    for name in itertools.chain((path,), others):
        if not (resume or overwrite or is_replaceable(name)):
            continue
        try:
            stack.enter_context(held("rejected events to", name))
        except SetupError:
            if resume:
                raise
        else:
            break
    return open_sink(name, resume=resume, overwrite=overwrite)


def _shared(args: argparse.Namespace, url: str) -> dict[str, Any]:
    """The settings of the run that a sink takes too, such as the patience of the source."""
    kind = by_scheme(url)
    names = () if kind is None else kind.sink_options
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _settled(open_stream: Callable[..., Any], url: str, **options: Any) -> Any:
    """Open a stream; what is wrong with it now is wrong with the settings."""
    try:
        return open_stream(url, **options)
    except UnreachableError:
        raise
    except ConnectorError as error:
        raise SetupError(str(error)) from error
