"""Checks that options are consistent, before any stream is opened."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from connectors.addresses import printable
from connectors.outputs.files import NullSink
from connectors.streams import Source
from streamsvm.decide.costs import check_costs
from streamsvm.models.archive import is_saved_model
from streamsvm.run import DEFAULT_SOURCE, SHORT_NAMES
from streamsvm.run.config import SINKS, SOURCES, RunConfig, Url
from streamsvm.run.errors import SetupError
from streamsvm.run.options import LATE_OPTIONS, STREAM_OPTIONS, option_of
from streamsvm.run.plot import check_plot, is_picture


def check(config: RunConfig) -> None:
    """Refuse inconsistent options."""
    check_source(config)
    _check_local(config)
    if config.saved_model and (config.params or config.refit):
        raise SetupError(f"--model {config.model}: has its own parameters: remove --param and --refit")
    check_needed(config)
    _check_decisions(config)
    if not config.learn and (config.model is None or config.model in SHORT_NAMES):
        raise SetupError("predict needs --model FILE: the file of `streamsvm run --save FILE`")
    if config.broker_timeout and not any(url.startswith("kafka:") for url in config.urls.values()):
        raise SetupError("--set broker-timeout is only for Kafka: remove it")
    _check_late(config)
    _check_monitor(config)
    _check_partitions(config)
    if config.plot:
        check_plot(config.plot)
    for name in ("save", "summary", "plot"):
        if getattr(config, name):
            check_writable(f"--{name}", getattr(config, name))
    if config.save and os.path.exists(config.save) and not os.path.isfile(config.save):
        raise SetupError(f"--save {config.save}: is not a regular file")
    check_distinct(config)
    _check_overwriting(config)


_NEEDED = {
    "out": (": say where predictions go", ("proba", "explain")),
    "checkpoint": (" DIR", ("checkpoint_every", "reset")),
    "label_source": (": say where labels come from", LATE_OPTIONS),
    "page": (" PORT", ("page_token_file",)),
    "coverage": (" SHARE", ("coverage_by_class",)),
    "query_output": (" SINK", ("label_budget",)),
}
"""Options that others require, with a hint for the message, and the others."""


def check_needed(config: RunConfig) -> None:
    """Refuse options that require another one."""
    given = {each.name for each in fields(config) if getattr(config, each.name) != each.default}
    for needed, (hint, names) in _NEEDED.items():
        if needed not in given and (name := next((each for each in names if each in given), None)):
            raise SetupError(f"{option_of(name)} needs {option_of(needed)}{hint}", "needs", option=option_of(needed))


def _check_late(config: RunConfig) -> None:
    """Refuse inconsistent options of delayed labels."""
    if not config.label_source:
        return
    if not config.label:
        raise SetupError("--label-source needs --label NAME: name the column of the label")
    if config.key and config.key != config.join:
        raise SetupError(
            f"--set key={config.key}: with late labels, the column of --join is also the key of results: remove key"
        )
    events, labels = config.urls["source"], config.urls["label_source"]
    for url, option in ((events, "SOURCE"), (labels, "--label-source")):
        if url.kind is not None and url.kind.labelled:
            raise SetupError(f"{option} {url}: contains labels and no keys: remove --label-source")
        for role, name in (("key", "join"), ("time", "time")):
            if url.has_columns and not getattr(config, name) and role not in url.query:
                hint = f"name the column with --{name} NAME, or with ?{role}=NAME behind {url}"
                raise SetupError(f"{option} {url}: has no {role}s to merge events and labels by: {hint}")
    if _is_same(events, labels):
        raise SetupError(f"SOURCE and --label-source are the same stream {events}: remove --label-source")
    if config.timeout_class is not None and config.label_timeout is None:
        raise SetupError(
            "--set timeout-label=CLASS needs --label-timeout TIME: set how long an event waits for its label"
        )
    if config.pending_dir and not (os.path.isdir(config.pending_dir) and os.access(config.pending_dir, os.W_OK)):
        raise SetupError(f"--set pending-dir={config.pending_dir}: is not a writable directory")
    if config.query_output and config.timeout_class is not None:
        raise SetupError("--set timeout-label: with --query-output it would apply to most events: remove one of them")


def _check_monitor(config: RunConfig) -> None:
    """Refuse inconsistent options of the monitor."""
    if config.monitors:
        from streamsvm.run.monitoring import RunMonitor

        RunMonitor(config)
        return
    needing = [option_of(name) for name in ("false_alarms", "reset_reference") if getattr(config, name) is not None]
    triggers = [] if config.refit is None else (config.refit.every or "").split("+")
    needing += ["--refit every=alarm" for trigger in triggers if trigger.strip().partition(":")[0] == "alarm"]
    if needing:
        what = f"{needing[0]} needs --alerts SINK or --reference FILE: say what features are compared with"
        raise SetupError(what, "needs", option="--alerts")


def _is_same(one: Url, other: Url) -> bool:
    """Return whether two URLs name one stream."""
    if one.table is not None or other.table is not None:
        return one.table is other.table
    if one.kind is not None or other.kind is not None:
        return one.kind is other.kind and one.path.rpartition("/")[2] == other.path.rpartition("/")[2]
    places = [{place for path in url.paths for place in _places(path, 0)} for url in (one, other)]
    return one.path == other.path or bool(places[0] & places[1])


def _check_decisions(config: RunConfig) -> None:
    """Refuse inconsistent options of decisions."""
    follows = config.class_weight == "balanced" or (config.alarms is not None and config.alarms.kind != "share")
    if follows and not config.learn:
        raise SetupError("predict learns no labels, which class-weight=balanced and alarms need: remove these settings")
    try:
        check_costs(config.cost, config.class_weight, config.abstain)
    except (TypeError, ValueError) as error:
        raise SetupError(f"--set cost, class-weight or abstain: {error}") from error


def check_source(config: RunConfig) -> None:
    """Refuse stream settings without a stream."""
    is_set = any(getattr(config, name) is not None for name in STREAM_OPTIONS)
    if not config.source and (config.config or is_set or not config.learn):
        where = f", nor `source` in {config.config}" if config.config else ", which these settings are for" * is_set
        what = f"no SOURCE is given{where}: use a file, a topic, - for standard input, or {DEFAULT_SOURCE}"
        raise SetupError(what, option="SOURCE")


def _check_local(config: RunConfig) -> None:
    """Refuse URLs where files must be local."""
    paths = {f"--{name}": getattr(config, name) for name in ("save", "summary", "plot", "checkpoint")}
    for option, path in (paths | {"--model": config.saved_model, "--reference": config.reference}).items():
        if path and "://" in str(path):
            what = f"{option} {printable(path)}: must be a local path; only sources and results may be URLs"
            raise SetupError(what, "not local", option=option)


def check_label(config: RunConfig, source: Source) -> None:
    """Refuse a stream without a label to learn."""
    if config.label_source or not config.learn or config.label or "label" in config.urls["source"].query:
        return
    if not source.is_labelled:
        raise SetupError(f"{source.name}: no label to learn: name its column with --label, or use `streamsvm predict`")


def check_writable(option: str, path: str) -> None:
    """Refuse a file that cannot be written or replaced."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise SetupError(f"{option} {path}: no such directory: {folder}", "missing", option=option)
    if os.path.isfile(path):
        folder = os.path.dirname(os.path.realpath(path))
        if not os.access(folder, os.W_OK):
            what = f"{option} {path}: cannot be replaced, because the directory is not writable: {folder}"
            raise SetupError(what, "replace", option=option)
    if os.path.isdir(path):
        raise SetupError(f"{option} {path}: is a directory: name a file", "write", option=option)
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise SetupError(f"{option} {path}: cannot be written: Permission denied", "write", option=option)


def _check_partitions(config: RunConfig) -> None:
    """Refuse outputs partitioned by the times of events without such times."""
    source = config.urls["source"]
    for name in SINKS:
        if name not in config.urls or "partition_by" not in config.urls[name].query:
            continue
        if name != "out":
            raise SetupError(f"{option_of(name)}: partition_by is for --out: remove it", option=option_of(name))
        if (source.kind is None or source.kind.labelled) and not config.time and "time" not in source.query:
            what = "partition_by needs the times of events: name their column with --time NAME"
            raise SetupError(f"--out {config.urls[name].path}: {what}", "no times", option="--time")


def check_distinct(config: RunConfig) -> None:
    """Refuse to overwrite an input, or to write a file twice, also by other names."""
    used = {
        "--model": config.saved_model,
        "--config": config.config,
        "--reference": config.reference if isinstance(config.reference, str) else None,
        "--checkpoint": os.path.join(config.checkpoint, "checkpoint.safetensors") if config.checkpoint else None,
    }
    urls = {option_of(name): config.urls[name] for name in SOURCES if name in config.urls}
    sources = [(option, path) for option, url in urls.items() if url.table is None for path in url.paths]
    given = [*sources, *used.items()]
    seen = {place: option for option, path in given if path for place in _places(path, 0)}
    for option, path in config.results.items():
        places = _places(path, 1)
        for place in places:
            if place in seen and (seen[place], option) != ("--model", "--save"):  # a saved model is replaced atomically
                raise SetupError(f"{seen[place]} and {option} are the same file {path}")
        seen |= dict.fromkeys(places, option)
    for source, path in sources:
        folder = os.path.dirname(os.path.realpath(path))
        if held := next((option for option, path in config.results.items() if os.path.realpath(path) == folder), None):
            raise SetupError(f"{source} lies in the directory {folder}, whose parts {held} replaces")


def _places(path: str, descriptor: int) -> set[Any]:
    """Return identifiers of a file: its full name, or its device and inode, or both."""
    if path == "-":
        found = os.fstat(descriptor)  # a terminal may be both read and written
        return {(found.st_dev, found.st_ino)} if stat.S_ISREG(found.st_mode) else set()
    real = os.path.realpath(path)
    if path == NullSink.name or real == os.path.realpath(os.devnull):
        return set()
    try:
        found = os.stat(real)
    except OSError:
        return {real}
    return {real, (found.st_dev, found.st_ino)}


def _check_overwriting(config: RunConfig) -> None:
    """Refuse to replace unknown files without `overwrite`, except files of sinks."""
    recognised: dict[str, Callable[[str], bool]] = {"save": is_saved_model, "summary": is_summary, "plot": is_picture}
    for name, is_own in recognised.items():
        path = getattr(config, name)
        if config.overwrite or not path or not os.path.isfile(path) or not os.path.getsize(path):
            continue
        if not is_own(path):
            raise SetupError(f"--{name} {path}: exists and is no {name} of a run: --set overwrite=true replaces it")


def is_summary(path: str) -> bool:
    """Return whether a file is the summary of a run."""
    try:
        with open(path, encoding="utf-8") as file:
            figures = json.load(file)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(figures, dict) and figures.keys() >= {"model", "source", "events", "process"}
