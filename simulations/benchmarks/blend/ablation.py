"""Each part of the blend taken out alone, and sets of members: what it changes in accuracy, and in cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from simulations.benchmarks import keep, rounded
from simulations.benchmarks.blend import groups, head, prequential, warm
from simulations.benchmarks.peers import Stream
from streamsvm import BSGDClassifier, StreamSVMClassifier
from streamsvm.online import blend

EVENTS = 10_000
NORMAL = blend.EFFORTS["normal"][0]
WHOLE = "whole"


@dataclass(frozen=True)
class Variant:
    """How a blend differs: in settings of its own, of its kernel members, or in constants of its module."""

    settings: dict[str, Any] = field(default_factory=dict)
    kernel: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)


def _without(*names: str) -> Variant:
    return Variant({"members": tuple(name for name in NORMAL if name not in names)})


def _heads(loss: str) -> Variant:
    """Kernel members whose heads have this loss alone."""
    return Variant(constants={"HEADS": tuple(one for one in blend.HEADS if one[0] == loss)})


VARIANTS: dict[str, Variant] = {
    WHOLE: Variant(),
    "no learned metric": Variant(kernel={"metric": "fixed"}),
    "no ranks": _without("ranks", "ranks-large"),
    "no log loss": _heads("hinge"),
    "no hinge loss": _heads("log"),
    "no absorbing": Variant(kernel={"absorb": 1.0}),
    "no large budget": _without("standard-large", "ranks-large"),
    "no small standard": _without("standard"),
    # Over so many events accuracies never tell heads apart.
    "equal votes": Variant({"horizon": 1e15}),
    "no linear members": _without("linear"),
    **{f"with {name}": Variant({"members": (*NORMAL, name)}) for name in blend.MEMBERS if name not in NORMAL},
    **{f"{name} alone": Variant({"members": (name,)}) for name in blend.MEMBERS},
}


@contextmanager
def built_as(variant: Variant) -> Iterator[None]:
    """Blends built meanwhile are of this variant."""

    class Member(BSGDClassifier):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings | variant.kernel)

    changed = variant.constants | ({"BSGDClassifier": Member} if variant.kernel else {})
    # Templates of members are remembered by what they were made from, which does not name what changes here.
    blend._template.cache_clear()
    try:
        with mock.patch.multiple(blend, **changed) if changed else nullcontext():
            yield
    finally:
        blend._template.cache_clear()


def run(streams: list[Stream], parts: Sequence[str] | None, keeping: bool) -> None:
    """Every variant on the first events of every stream, and how it compares with the whole."""
    warm(("blend",))
    variants = [WHOLE, *(name for name in parts or VARIANTS if name != WHOLE)]
    result: dict[str, dict[str, Any]] = {name: {} for name in variants}
    for stream in streams:
        X, y = stream.load()
        X, y = head(X, EVENTS), y[:EVENTS]
        for name in variants:
            with built_as(VARIANTS[name]):
                result[name][stream.key] = rounded(prequential(StreamSVMClassifier(**VARIANTS[name].settings), X, y))
        print(
            f"{stream.key}: " + ", ".join(f"{n} {result[n][stream.key]['accuracy']:.2f}" for n in variants), flush=True
        )
    if keeping and parts is None:
        keep("blend-ablation", result, lines=True)
    report(result, streams)


def report(result: dict[str, dict[str, Any]], streams: list[Stream]) -> None:
    """Mean and worst change over the streams, also over those for choosing and for confirming alone."""
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
