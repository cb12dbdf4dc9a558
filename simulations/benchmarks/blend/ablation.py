"""Ablation of the blend: accuracy and cost without each part."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from unittest import mock

from simulations.benchmarks.blend import groups, head, prequential, warm
from simulations.benchmarks.peers import Stream
from simulations.keeping import keep, rounded
from streamsvm import StreamSVMClassifier
from streamsvm.core.precompile import JOBS
from streamsvm.ensemble import members as kinds
from streamsvm.ensemble.memory import EFFORTS

EVENTS = 10_000
NORMAL = EFFORTS["normal"][0]
WHOLE = "whole"


@dataclass(frozen=True)
class Variant:
    """Differences of a blend from the default.

    Parameters
    ----------
    settings
        Settings of the blend.
    kernel
        Settings of its kernel members.
    constants
        Constants of `streamsvm.ensemble.members`.
    compiled
        Constants of compiled code, with their modules.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    kernel: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    compiled: dict[str, Any] = field(default_factory=dict)


def _without(*names: str) -> Variant:
    return Variant({"members": tuple(name for name in NORMAL if name not in names)})


def _heads(loss: str) -> Variant:
    """Return kernel members whose heads have only this loss."""
    return Variant(constants={"HEADS": tuple(one for one in kinds.HEADS if one[0] == loss)})


VARIANTS: dict[str, Variant] = {
    WHOLE: Variant(),
    "no learned metric": Variant(kernel={"metric": "fixed"}),
    "no ranks": _without("ranks", "ranks-large"),
    "no log loss": _heads("hinge"),
    "no hinge loss": _heads("log"),
    "no absorbing": Variant(kernel={"absorb": 1.0}),
    "no large budget": _without("standard-large", "ranks-large"),
    "votes over all events": Variant({"vote_window": 1e15}),
    "equal votes": Variant(compiled={"streamsvm.ensemble.judging.VOTE_INVERSE_TEMPERATURE": 0.0}),
    "no stacked votes": Variant(compiled={"streamsvm.ensemble.combined_vote.STEPS": (0.0, 0.0)}),
    "no linear members": _without("linear"),
    "no label autocorrelation": Variant({"label_autocorrelation": False}),
    **{f"with {name}": Variant({"members": (*NORMAL, name)}) for name in kinds.MEMBERS if name not in NORMAL},
    **{f"{name} alone": Variant({"members": (name,)}) for name in kinds.MEMBERS},
}


@contextmanager
def built_as(variant: Variant) -> Iterator[None]:
    """Context in which new blends are of a variant."""

    class Settings(kinds._KernelMachine):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings | variant.kernel)

    changed = variant.constants | ({"_KernelMachine": Settings} if variant.kernel else {})
    # The cache of members does not depend on the constants that are changed here.
    kinds._kernel_member.cache_clear()
    try:
        with mock.patch.multiple(kinds, **changed) if changed else nullcontext():
            yield
    finally:
        kinds._kernel_member.cache_clear()


def measure(variant: Variant, stream: Stream) -> dict[str, float]:
    """Measure a variant on the first events of a stream."""
    X, y = _beginning(stream)
    with built_as(variant):
        return rounded(prequential(StreamSVMClassifier(**variant.settings), X, y))


@lru_cache(maxsize=1)
def _beginning(stream: Stream) -> tuple[Any, list[Any]]:
    X, y = stream.load()
    return head(X, EVENTS), y[:EVENTS]


@contextmanager
def compiled_as(variant: Variant) -> Iterator[Executor]:
    """Start a process that compiles the kernels with the constants of a variant.

    Its cache is temporary.
    """
    spawn = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"NUMBA_CACHE_DIR": folder, JOBS: "1"}),
        ProcessPoolExecutor(1, spawn, _set_constants, (variant.compiled,)) as process,
    ):
        yield process


def _set_constants(constants: dict[str, Any]) -> None:
    """Set constants before anything is compiled, then compile."""
    for place, value in constants.items():
        module, _, name = place.rpartition(".")
        setattr(importlib.import_module(module), name, value)
    warm(("blend",))


def run(streams: list[Stream], parts: Sequence[str] | None, keeping: bool) -> None:
    """Measure every variant on the first events of every stream, and print changes."""
    warm(("blend",))
    variants = [WHOLE, *(name for name in parts or VARIANTS if name != WHOLE)]
    result: dict[str, dict[str, Any]] = {name: {} for name in variants}
    for stream in streams:
        for name in variants:
            if not VARIANTS[name].compiled:
                result[name][stream.key] = measure(VARIANTS[name], stream)
        shown = ", ".join(f"{name} {runs[stream.key]['accuracy']:.2f}" for name, runs in result.items() if runs)
        print(f"{stream.key}: {shown}", flush=True)
    for name in variants:
        if VARIANTS[name].compiled:
            with compiled_as(VARIANTS[name]) as process:
                found = process.map(measure, [VARIANTS[name]] * len(streams), streams)
                result[name] = {stream.key: run for stream, run in zip(streams, found, strict=True)}
    if keeping and parts is None:
        keep("blend-ablation", result, lines=True)
    report(result, streams)


def report(result: dict[str, dict[str, Any]], streams: list[Stream]) -> None:
    """Print mean and extreme changes over streams, and means over groups."""
    parts = {
        "all": streams,
        "choosing": [s for s in streams if "choosing" in groups(s)],
        "confirming": [s for s in streams if "confirming" in groups(s)],
    }
    print(
        f"\n{'change of accuracy, points':26s}"
        + "".join(f"{title:>12s}" for title in parts)
        + "   least, most, and where; log loss; time"
    )
    whole = result[WHOLE]
    for name, runs in result.items():
        change = {key: run["accuracy"] - whole[key]["accuracy"] for key, run in runs.items()}
        means = [statistics.mean(change[s.key] for s in part) if part else 0.0 for part in parts.values()]
        least, most = min(change, key=change.__getitem__), max(change, key=change.__getitem__)
        loss = statistics.mean(run["log loss"] - whole[key]["log loss"] for key, run in runs.items())
        cost = statistics.median(run["us"] / whole[key]["us"] for key, run in runs.items())
        print(
            f"{name:26s}"
            + "".join(f"{mean:+12.2f}" for mean in means)
            + f"   {change[least]:+.2f} ({least}), {change[most]:+.2f} ({most}); {loss:+.3f}; x {cost:.2f}"
        )
