"""``streamsvm per-key``: a worker with one model per key, on Quix Streams."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.columns.nested import Flattening
from connectors.errors import UnreachableError
from connectors.kafka.clients import client_file, server_list, split_address
from connectors.kafka.security import check_settings, check_welcome
from connectors.notices import Notices
from connectors.options import Options
from streamsvm.cli.commands import PerKeyCommand
from streamsvm.core.clock import compile_seconds
from streamsvm.keyed.classifier import KeyedClassifier
from streamsvm.run.checks import check_needed
from streamsvm.run.config import Url
from streamsvm.run.errors import SetupError, refusing
from streamsvm.run.options import option_of
from streamsvm.run.prometheus import Exporter, Metric, exposition_text
from streamsvm.run.start import model_of

if TYPE_CHECKING:
    from streamsvm.keyed.worker import Worker

EVERY_S, _MOST_S, _EVERY = 1.0, 10.0, 10_000  # brokers abort transactions after 20 s
_SECURITY = {
    "security_protocol": "security_protocol",
    "sasl_mechanism": "sasl_mechanism",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "ssl_cafile": "ssl_ca_location",
    "ssl_certfile": "ssl_certificate_location",
    "ssl_keyfile": "ssl_key_location",
    "ssl_password": "ssl_key_password",
    "ssl_crlfile": "ssl_crl_location",
}
"""Names of Kafka URL options in Quix Streams."""


_REQUIRED = {
    "field": "FIELD is missing: name the field with the key of an event",
    "consumer_group": "NAME is missing: name the consumer group of the workers",
    "label": "NAME is missing: name the field to predict",
}


def main(config: PerKeyCommand, _started: float) -> int:
    """Run the worker until stopped, and return the exit code."""
    check(config)
    started: list[Worker] = []
    with contextlib.ExitStack() as stack:
        if config.metrics_port is not None:  # refuse a port in use before connecting to brokers
            exporter = Exporter(config.metrics_port, lambda: exposition_text(_figures(started)))
            stack.enter_context(contextlib.closing(exporter))
        worker = _worker(config, _keyed(config))
        started.append(worker)
        worker.run(until_end=config.at_end == "stop")
    return 0 if worker.app.ended_by is None else 128 + worker.app.ended_by


def check(config: PerKeyCommand) -> None:
    """Check the settings before anything is opened."""
    for name, message in _REQUIRED.items():
        if not getattr(config, name):
            raise SetupError(f"{option_of(name)} {message}")
    if config.label == config.field:
        raise SetupError(f"--label {config.label}: is also --field")
    if importlib.util.find_spec("quixstreams") is None:
        raise SetupError("per-key needs Quix Streams: pip install 'streamsvm[quix]'")
    _, seconds = config.checkpoint_every or (None, None)
    if (seconds or 0.0) > _MOST_S:
        raise SetupError(f"--checkpoint-every {seconds:g}s: must be at most {_MOST_S:g}s")
    check_needed(config)
    if config.label_source and not config.join:
        raise SetupError("--label-source needs --join NAME: name the field that labels and events share")
    if config.label_source and config.repartition:
        raise SetupError("--repartition cannot be combined with --label-source: remove one of them")
    state = Path(str(config.checkpoint))
    if state.exists() and not state.is_dir():
        raise SetupError(f"--checkpoint {state}: is not a directory")
    topics_of(config)
    _flattening(config)


def topics_of(config: PerKeyCommand) -> tuple[str, dict[str, str]]:
    """Return the brokers and the topic of each stream; refuse unsuitable topics."""
    brokers, found = "", dict[str, str]()
    for name in ("source", "label_source", "out", "dead_letter"):
        option, url = option_of(name), config.urls.get(name)
        if url is None or url == "null:":
            continue
        if not url.startswith("kafka://"):
            raise SetupError(f"{option} {url}: must be a Kafka topic, as kafka://HOST:PORT/TOPIC")
        with refusing(f"{option} "):
            servers, topic = split_address(url.path)
        brokers = brokers or servers
        if set(servers.split(",")) != set(brokers.split(",")):
            raise SetupError(f"{option} {url}: must be on the brokers of SOURCE (for one transaction)")
        same = next((each for each in found if found[each] == topic), None)
        if same is not None and (same, name) != ("out", "dead_letter"):
            raise SetupError(f"{option_of(same)} and {option} are the same topic {topic}")
        if found and url.query:
            raise SetupError(f"{option} {url}: put the options in the URL of SOURCE; they apply to all topics")
        found[name] = topic
    return brokers, found


def _keyed(config: PerKeyCommand) -> KeyedClassifier:
    from streamsvm.keyed.handler import RECORD_TIME

    if isinstance(config.time_format, dict):
        raise SetupError("--set time-format: per-key reads one time, --time: give its FORMAT without a name")
    model = model_of(config)
    with contextlib.suppress(TypeError, ValueError):  # errors are reported below
        # Compile before the first transaction, which brokers would otherwise abort.
        KeyedClassifier(model.clone()).step(None, [{"": 0.0, "label": False}])
    time = config.time or (RECORD_TIME if config.key_ttl or config.label_timeout else None)
    try:
        return KeyedClassifier(
            model,
            label=str(config.label),
            ignore=(config.field, *(config.ignore or ())),
            prior_model=config.prior_model,
            time=time,
            time_unit="ms" if time == RECORD_TIME else config.time_unit,
            time_format=config.time_format,
            key_ttl=config.key_ttl,
            join=config.join,
            label_timeout=config.label_timeout,
        )
    except OSError as error:
        raise SetupError(f"--prior-model {config.prior_model}: {error.strerror or error}") from error
    except (TypeError, ValueError) as error:
        raise SetupError(f"per-key: {error}") from error


def _worker(config: PerKeyCommand, keyed: KeyedClassifier) -> Worker:
    from confluent_kafka import KafkaException
    from quixstreams.exceptions import QuixException

    from streamsvm.keyed.handler import Stream
    from streamsvm.keyed.quix import Application
    from streamsvm.keyed.worker import Worker

    logging.getLogger("quixstreams.state.rocksdb.partition").addFilter(_without_formats)
    brokers, topics = topics_of(config)
    every, seconds = config.checkpoint_every or (None, None)
    app = Application(
        connection_of(config.urls["source"], brokers),
        consumer_group=str(config.consumer_group),
        state_dir=str(config.checkpoint),
        commit_interval=seconds or EVERY_S,
        commit_every=every or _EVERY,
        loglevel=None,
        # Errors are raised and logged once; the engine would also log a traceback.
        on_consumer_error=lambda *_: False,
        on_processing_error=lambda *_: False,
        on_producer_error=lambda *_: False,
    )
    labels, out, rejected = (topics.get(name) for name in ("label_source", "out", "dead_letter"))
    flat = _flattening(config)
    stream = Stream(topics["source"], str(config.field), labels, out, rejected, bool(config.repartition), flat)
    try:
        with refusing():
            return Worker(app, stream, keyed)
    except KafkaException as error:
        raise UnreachableError(f"kafka topic {stream.topic}: {error.args[0].str()}") from error
    except QuixException as error:
        raise SetupError(f"kafka topic {stream.topic}: {error}") from error


def _flattening(config: PerKeyCommand) -> Flattening:
    """Return the conversion of nested events, as in `run`."""
    options = Options(config.urls["source"].path, {"flatten": config.flatten, "lists": config.lists})
    with refusing():
        roles = (config.field, config.label, config.time, config.join)
        return Flattening(options, config.ignore or (), roles, Notices())


def _without_formats(record: logging.LogRecord) -> bool:
    """Filter out engine messages about state formats, which need no action."""
    return record.levelno > logging.WARNING or not any(name in record.getMessage() for name in ("TTL", "v3.24.0"))


def connection_of(url: Url, brokers: str) -> Any:
    """Return the connection settings, with the options of the URL."""
    from quixstreams.kafka import ConnectionConfig

    path, options = url.path, Options(url.path, url.query)
    with refusing():
        given = client_file(path, options.text("client"))
    given |= {name: options.text(name) for name in _SECURITY if options.has(name)}
    with refusing(after=" (events are JSON objects here)"):
        options.finish()
    if strange := sorted(set(given) - set(_SECURITY)):
        raise SetupError(f"{path}: `{strange[0]}` is not an option of per-key")
    if importlib.util.find_spec("kafka") is not None:  # kafka-python is from another extra
        # The engine's client reports errors in TLS and SASL settings as unreachable brokers.
        with refusing():
            check_settings(path, given)
            check_welcome(path, server_list(brokers, path), given)
    try:
        return ConnectionConfig(bootstrap_servers=brokers, **{_SECURITY[name]: value for name, value in given.items()})
    except ValueError:  # the message may contain a secret
        raise SetupError(f"{path}: the Kafka client refuses `{'`, `'.join(given)}`: check these options") from None


def _figures(started: list[Worker]) -> Iterator[Metric]:
    """Yield Prometheus metrics of a started worker, to be summed over workers."""
    compiling = "Seconds in which kernels were compiled."
    yield Metric("counter", "compile_seconds", compiling, compile_seconds())
    if not started:
        return
    worker = started[0]
    figures, cache = worker.handler, worker.cache
    yield Metric("counter", "events", "Events predicted by this worker.", figures.events)
    yield Metric("counter", "judged", "Labelled events with a prediction.", figures.judged)
    yield Metric("counter", "right", "Correct predictions.", figures.right)
    yield Metric("counter", "rejected", "Rejected events.", figures.rejected)
    yield Metric("gauge", "recent_accuracy", "Accuracy over the last 1,000 events.", figures.recent_accuracy)
    yield Metric("counter", "model_seconds", "Seconds spent in the models.", figures.seconds)
    yield Metric("gauge", "cached_keys", "Keys whose models are in memory.", len(cache))
    yield Metric("counter", "states", "States of keys written.", cache.saved)
    yield Metric("counter", "state_bytes", "Bytes of written states.", cache.saved_bytes)
    if worker.keyed.join is not None:
        yield Metric("counter", "late", "Events and labels, by outcome.", dict(worker.keyed.counts), ("what",))
    yield Metric("gauge", "lag", "Events that the run lags behind, by partition.", worker.lag(), ("partition",))
