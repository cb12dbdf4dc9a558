"""Every learner on every stream, joined with the results of the peers."""

from __future__ import annotations

import math
import multiprocessing
import statistics
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

from simulations import data
from simulations.benchmarks import peers
from simulations.benchmarks.blend import LEARNERS, groups, head, prequential, warm
from simulations.benchmarks.peers import GENERATED, PEERS, REAL, Results, Stream
from simulations.keeping import PICTURES, keep, kept, rounded

RESULT = "blend-streams"
# Number of events that are timed through River's interface.
TIMED = 4_000

# The best of HAT, KNN, ARF30, SRP10, LB10 and ARF100 of CapyMOA for a stream: accuracy, learner, and us per event.
# Measured once with the same files and at most 50,000 rows; not measured by this benchmark.
CAPYMOA: dict[str, tuple[float, str, int]] = {
    "electricity": (90.1, "ARF100", 990),
    "insects 2013": (89.9, "SRP10", 360),
    "insects abrupt": (86.4, "SRP10", 500),
    "keystroke": (92.2, "ARF100", 990),
    "luxembourg": (99.7, "ARF30", 170),
    "ozone": (93.9, "KNN", 650),
    "power supply": (17.6, "SRP10", 270),
    "usenet1": (72.7, "ARF30", 2200),
    "SEA 50k": (88.75, "ARF30", 230),
    "posture": (63.9, "ARF100", 570),
}


# Label of a learner in the plot, its side of the point, and its vertical offset.
TITLES: dict[str, tuple[str, str, float]] = {
    "cpm": ("CPM", "right", 0.0),
    "bsgd": ("BSGD", "right", 0.0),
    "blend low": ('effort="low"', "left", -9.0),
    "blend": ("StreamSVM", "right", 5.0),
    "blend high": ('effort="high"', "left", 5.0),
    "no autocorrelation": ("label_autocorrelation=False", "left", 0.0),
}


# Measuring --------------------------------------------------------------------------------------------------------


def run(streams: list[Stream], learners: Sequence[str], jobs: int = 1) -> None:
    """Measure and print; results of every learner on every stream are stored."""
    warm(learners)
    found, result = Results().streams, {}
    print(f"{'':26s}{'best peer':>14s}{'CapyMOA':>15s}" + "".join(f"{name:>22s}" for name in learners))
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), warm, (learners,)) as pool:
        for stream, measured in zip(streams, pool.map(measure, streams, repeat(learners)), strict=True):
            result[stream.key] = measured
            (row,) = join({stream.key: measured}, found)
            print(line(row), flush=True)
    rows = join(result, found)
    print_totals(rows, learners)
    if len(rows) == len(REAL + GENERATED) and set(learners) == set(LEARNERS):
        keep(RESULT, result, lines=True)
        draw(rows)


def measure(stream: Stream, learners: Iterable[str]) -> dict[str, Any]:
    """Measure learners on a stream."""
    X, y = stream.load()
    rows, labels = data.rows_of(head(X, TIMED)), y[:TIMED]
    runs = {}
    for name in learners:
        make, settings = LEARNERS[name]
        by_event = peers.prequential(make(**settings), rows, labels)["us"]
        runs[name] = rounded(prequential(make(**settings), X, y) | {"us by event": by_event})
    return {"rows": len(y), "digest": peers.digest(X, y), "runs": runs}


# Joining ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A stream, with the results of the learners and of the available peers."""

    stream: Stream
    runs: dict[str, dict[str, float]]
    peers: dict[str, dict[str, float]]

    @property
    def best(self) -> str | None:
        """The most accurate peer."""
        return max(self.peers, key=lambda name: self.peers[name]["accuracy"], default=None)

    def least(self, measure: str) -> float | None:
        """Return the minimum log loss or calibration error of the peers."""
        return min((cell[measure] for cell in self.peers.values()), default=None)

    def gain(self, learner: str, capymoa: bool = False) -> float | None:
        """Return the gain in points over the best peer, optionally including CapyMOA."""
        others = [cell["accuracy"] for cell in self.peers.values()]
        if capymoa and self.stream.name in CAPYMOA:
            others.append(CAPYMOA[self.stream.name][0])
        return self.runs[learner]["accuracy"] - max(others) if others else None


def join(ours: dict[str, Any], theirs: dict[str, Any]) -> list[Row]:
    """Join our results with those of the peers on the same rows."""
    rows = []
    for stream in REAL + GENERATED:
        if stream.key in ours:
            own, other = ours[stream.key], theirs.get(stream.key, {})
            same = other.get("digest") == own["digest"]
            rows.append(Row(stream, own["runs"], other["peers"] if same else {}))
    return rows


def by_name(rows: list[Row]) -> dict[str, list[Row]]:
    """Group rows by stream: one for a real stream, one per seed for a generator."""
    named: dict[str, list[Row]] = {}
    for row in rows:
        named.setdefault(row.stream.name, []).append(row)
    return named


def gains(rows: list[Row], learner: str, capymoa: bool) -> dict[str, float]:
    """Return the gain over the best peer of each stream.

    The gain of a generator is the mean over the seeds, with the best peer of each.
    """
    named = {name: [row.gain(learner, capymoa) for row in group] for name, group in by_name(rows).items()}
    known = {name: [gain for gain in group if gain is not None] for name, group in named.items()}
    return {name: statistics.mean(group) for name, group in known.items() if group}


# Showing ----------------------------------------------------------------------------------------------------------


def line(row: Row) -> str:
    """Format a row."""
    best, capymoa = row.best, CAPYMOA.get(row.stream.name)
    shown = f"{row.peers[best]['accuracy']:6.2f} {best:3s} {len(row.peers)}/{len(PEERS)}" if best else ""
    other = f"{capymoa[0]:6.2f} {capymoa[1]:6s}" if capymoa else ""
    runs = "".join(
        f"{run['accuracy']:7.2f}"
        + ("       " if row.gain(name) is None else f" {row.gain(name):+6.2f}")
        + f"{run['us']:6.1f}us"
        for name, run in row.runs.items()
    )
    return f"{row.stream.key:26s}{shown:>14s}{other:>15s}{runs}"


def print_totals(rows: list[Row], learners: Iterable[str]) -> None:
    """Print gains over the best peer, then calibration."""
    parts = {
        "all": rows,
        "real": [row for row in rows if not row.stream.generated],
        "generators": [row for row in rows if row.stream.generated],
        "choosing": [row for row in rows if "choosing" in groups(row.stream)],
        "confirming": [row for row in rows if "confirming" in groups(row.stream)],
    }
    for capymoa in (False, True):
        title = f"gain over the best {'with CapyMOA' if capymoa else 'peer'}"
        print(
            f"\n{title:26s}"
            + "".join(f"{part:>24s}" for part in parts)
            + "\n"
            + " " * 26
            + "    ahead   mean  least " * 5
        )
        for name in learners:
            found = {part: gains(part_rows, name, capymoa) for part, part_rows in parts.items()}
            print(f"{name:26s}" + "".join(f"{_summary(list(part.values())):>24s}" for part in found.values()))
    missing = sum(len(PEERS) - len(row.peers) for row in rows)
    print(f"\n{missing} of {len(rows) * len(PEERS)} runs of peers are missing." if missing else "")
    print_calibration(rows, learners)


def _summary(found: list[float]) -> str:
    """Format the number of streams with a gain, the mean gain, and the minimum gain."""
    if not found:
        return ""
    return f"{sum(g >= 0 for g in found)}/{len(found)} {statistics.mean(found):+6.2f} {min(found):+6.2f}"


def print_calibration(rows: list[Row], learners: Iterable[str]) -> None:
    """Print log loss and calibration error, and the minimum of the peers."""
    print(f"\n{'log loss, ECE in %':26s}{'minimum of peers':>16s}" + "".join(f"{name:>16s}" for name in learners))
    for row in rows:
        pairs = [(row.least("log loss"), row.least("ECE")), *((r["log loss"], r["ECE"]) for r in row.runs.values())]
        print(
            f"{row.stream.key:26s}"
            + "".join(f"{a:8.3f} {b:6.1f} " if row.peers or i else " " * 16 for i, (a, b) in enumerate(pairs))
        )
    known = [row for row in rows if row.peers]
    if known:
        for name in learners:
            losses = sum(row.runs[name]["log loss"] <= (row.least("log loss") or math.inf) for row in known)
            errors = sum(row.runs[name]["ECE"] <= (row.least("ECE") or math.inf) for row in known)
            print(f"{name:17s} lowest log loss on {losses} of {len(known)} runs, lowest ECE on {errors}")


def table() -> str:
    """Generate the table of the documentation."""
    return markdown(join(kept(RESULT), Results().streams))


def markdown(rows: list[Row]) -> str:
    """Return the table of accuracies in percent, with microseconds per event.

    Times are measured through River's interface.
    """
    ours = {
        "cpm": "CPM",
        "bsgd": "BSGD",
        "blend low": "low",
        "no autocorrelation": "no autocorr.",
        "blend": "StreamSVM",
    }
    titles = ["stream", *PEERS, "CapyMOA", *ours.values(), "gain"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, every in by_name(rows).items():
        # Means are over the seeds that have results of peers.
        group = [row for row in every if row.peers] or every
        known = {peer: [row.peers[peer] for row in group if peer in row.peers] for peer in PEERS}
        found = {title: [row.runs[learner] for row in group] for learner, title in ours.items()}
        mean = {
            title: (_mean(runs, "accuracy"), _mean(runs, "us" if title in PEERS else "us by event"))
            for title, runs in (known | found).items()
            if runs
        }
        best = max(round(accuracy, 1) for accuracy, _ in mean.values())
        capymoa = CAPYMOA.get(name)
        cells = [_cell(*mean[title], best) if title in mean else "" for title in (*PEERS, *ours.values())]
        cells.insert(len(PEERS), f"{capymoa[0]:.1f} {capymoa[1]}" if capymoa else "")
        gain = gains(group, "blend", True).get(name)
        lines.append(f"| {name} | {' | '.join(cells)} | {'' if gain is None else f'{gain:+.1f}'} |")
    return "\n".join(lines)


def _mean(runs: list[dict[str, float]], measure: str) -> float:
    return statistics.mean(run[measure] for run in runs)


def _cell(accuracy: float, us: float, best: float) -> str:
    shown = f"**{accuracy:.1f}**" if round(accuracy, 1) == best else f"{accuracy:.1f}"
    return f"{shown} ({us:,.0f})"


def points(rows: list[Row]) -> dict[str, tuple[float, float]]:
    """Return mean accuracy and geometric mean of microseconds per event by learner.

    Means are over the streams with results of all learners.
    """
    complete = list(by_name([row for row in rows if len(row.peers) == len(PEERS)]).values())
    if not complete:
        return {}
    found = {}
    for name in (*PEERS, *LEARNERS):
        cells = [[(row.peers | row.runs)[name] for row in group] for group in complete]
        accuracy = statistics.mean(_mean(group, "accuracy") for group in cells)
        clock = "us" if name in PEERS else "us by event"
        found[name] = accuracy, statistics.geometric_mean(_mean(group, clock) for group in cells)
    return found


def draw(rows: list[Row], path: Path = PICTURES / "blend-accuracy-cost.png") -> None:
    """Plot accuracy against microseconds per event of every learner."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    found = points(rows)
    if not found:
        return
    figure, axis = pyplot.subplots(figsize=(8, 4.8))
    for names, color, marker, label in (
        (list(LEARNERS), "tab:blue", "o", "streamsvm"),
        (list(PEERS), "tab:gray", "s", "River"),
    ):
        xs, ys = [found[name][1] for name in names], [found[name][0] for name in names]
        axis.scatter(xs, ys, color=color, marker=marker, s=45, label=label, zorder=3)
        for name, x, y in zip(names, xs, ys, strict=True):
            title, side, dy = TITLES.get(name, (name, "left", 0.0))
            shift = (-8 if side == "right" else 8, dy)
            axis.annotate(title, (x, y), xytext=shift, textcoords="offset points", ha=side, va="center")
    ours = sorted((found[name][1], found[name][0]) for name in LEARNERS if name.startswith("blend"))
    axis.plot(*zip(*ours, strict=True), color="tab:blue", linewidth=1.0, alpha=0.5)
    n = len(by_name([row for row in rows if len(row.peers) == len(PEERS)]))
    axis.set(
        xscale="log",
        xlabel="time per event, µs (geometric mean)",
        ylabel=f"accuracy, mean over {n} streams (%)",
    )
    axis.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axis.margins(x=0.15, y=0.12)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(loc="lower right", frameon=False)
    figure.tight_layout()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def show() -> None:
    """Print stored results with the current results of the peers, and plot."""
    rows = join(kept(RESULT), Results().streams)
    print_totals(rows, LEARNERS)
    print()
    print(markdown(rows))
    draw(rows)
