"""Prediction sets, rare classes, alarms, calibration under noise, and cost.

    python -m simulations.benchmarks.decisions coverage   prediction sets on all streams, and fixed conformal sets
    python -m simulations.benchmarks.decisions rare       eight drifting streams at 1:20, 1:100, 1:1000, and River
    python -m simulations.benchmarks.decisions votes      votes weighted by log loss for rare classes
    python -m simulations.benchmarks.decisions noise      calibration under label noise
    python -m simulations.benchmarks.decisions late       recall and precision of alarms with delayed labels
    python -m simulations.benchmarks.decisions cost       time per event with and without decisions, alternating
    python -m simulations.benchmarks.decisions show       tables of stored results

Every event is predicted, then learned. River has conformal intervals for regression, but no prediction sets for
classification. `rare` takes about 15 minutes on one core because of River's forests; the other parts take one or two
minutes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations import data, generators
from simulations.keeping import keep, kept

COVERAGES = (0.8, 0.9, 0.95)
FIRST, WINDOW = 1_000, 500  # calibration events of fixed sets, and window of the minimum coverage
MOST = 20_000

DRIFTING = (
    *("Agrawal sudden", "Agrawal gradual", "RBF incremental", "RBF recurring"),
    *("hyperplane incremental", "SEA sudden", "sine recurring", "mixed gradual"),
)
EVEN = (
    *("electricity", "insects 2013", "insects abrupt", "keystroke", "luxembourg", "SEA 50k", "posture", "usenet1"),
    *DRIFTING,
)
# Number of events of the frequent class per rare event, and length of the stream.
RATIOS = {20: 5_000, 100: 8_000, 1_000: 20_000}
SKIPPED = 500  # events excluded from averages


# Coverage ---------------------------------------------------------------------------------------------------------


def streams() -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield all streams: real ones in their order, then generated ones."""
    for name in data.STREAMS:
        yield name, *data.load_stream(name, MOST)
    for name in generators.GENERATORS:
        yield name, *generators.load(name, 0, MOST)


def coverage() -> None:
    """Compare prediction sets with fixed ones, from the same probabilities."""
    from streamsvm import StreamSVMClassifier
    from streamsvm.decide.conformal import ConformalSets

    result = {}
    for name, X, y in streams():
        model = StreamSVMClassifier()
        _, proba = model.test_then_train(X, y, proba=True)
        codes = np.array([model.classes_.index(label) for label in y])
        cells = {}
        for wanted in COVERAGES:
            found = {
                "sets": ConformalSets(wanted).run(proba, codes),
                "by class": ConformalSets(wanted, by_class=True).run(proba, codes),
                "fixed": fixed(proba, codes, wanted),
            }
            cells[str(wanted)] = {kind: of_sets(members, codes, wanted) for kind, members in found.items()}
        result[name] = {"events": len(y), "accuracy": _rounded(float((proba.argmax(axis=1) == codes).mean())), **cells}
        print(name, cells["0.9"], flush=True)
        keep("decisions-coverage", result, lines=True)


def fixed(proba: NDArray[Any], codes: NDArray[Any], wanted: float) -> NDArray[np.bool_]:
    """Compute split conformal sets with the threshold of the first events.

    The most probable class is always in the set.
    """
    own = proba[np.arange(len(codes)), codes][: min(FIRST, len(codes) // 4)]
    least = np.quantile(own, 1.0 - min(wanted * (1.0 + 1.0 / len(own)), 1.0), method="lower")
    members = (proba >= least) & (proba > 0.0)
    members[np.arange(len(codes)), proba.argmax(axis=1)] = True
    return members


def of_sets(members: NDArray[np.bool_], codes: NDArray[Any], wanted: float) -> dict[str, float]:
    """Compute coverage, mean size, minimum coverage of a window, and that of a class.

    The first events are excluded. A class counts if it has at least 100 events.
    """
    start = min(FIRST, len(codes) // 4)
    hits = members[np.arange(len(codes)), codes][start:].astype(float)
    windows = np.convolve(hits, np.ones(WINDOW) / WINDOW, "valid") if len(hits) >= WINDOW else np.array([hits.mean()])
    own = codes[start:]
    of_class = [hits[own == c].mean() for c in np.unique(own) if (own == c).sum() >= 100]
    return {
        "coverage": _rounded(hits.mean()),
        "size": _rounded(members[start:].sum(axis=1).mean()),
        "least": _rounded(windows.min()),
        "least of a class": _rounded(min(of_class, default=float("nan"))),
    }


# Rare classes -----------------------------------------------------------------------------------------------------


def thinned(name: str, ratio: int) -> tuple[list[dict[Any, Any]], list[int]]:
    """Return a stream whose rarer class is reduced to one event per `ratio` others."""
    from connectors import open_source

    n = RATIOS[ratio]
    rng, rows, labels = np.random.default_rng(ratio), [], []
    slug = name.lower().replace(" ", "-")
    rare: Any = None
    for batch in open_source(f"synthetic:{slug}?n={3 * n}&seed=1"):
        if rare is None:
            names, counts = np.unique(np.array(batch.labels), return_counts=True)
            rare, share = names[counts.argmin()], float(counts.min() / counts.sum())
        for x, y in zip(batch.rows(), batch.labels, strict=True):
            if y != rare or rng.random() < (1.0 - share) / share / ratio:
                rows.append(x)
                labels.append(int(y == rare))
    return rows[:n], labels[:n]


def peers() -> dict[str, Callable[[], Any]]:
    """Return factories of the compared classifiers."""
    from river import forest, imblearn, linear_model, preprocessing

    from streamsvm import CPMClassifier, StreamSVMClassifier

    even = {0: 0.5, 1: 0.5}

    def arf() -> Any:
        return forest.ARFClassifier(n_models=10, seed=1)

    return {
        "StreamSVM": StreamSVMClassifier,
        "CPM": CPMClassifier,
        "LogisticRegression": lambda: preprocessing.StandardScaler() | linear_model.LogisticRegression(),
        "ARF": arf,
        "ARF undersampled": lambda: imblearn.RandomUnderSampler(arf(), desired_dist=even, seed=1),
        "ARF oversampled": lambda: imblearn.RandomOverSampler(arf(), desired_dist=even, seed=1),
    }


def probabilities(model: Any, rows: list[dict[Any, Any]], y: list[int]) -> NDArray[np.float64]:
    """Return the prequential probabilities of the rare class."""
    if hasattr(model, "test_then_train"):
        _, proba = model.test_then_train(rows, y, proba=True)
        return proba[:, model.classes_.index(1)]
    found = np.zeros(len(y))
    for i, (x, label) in enumerate(zip(rows, y, strict=True)):
        found[i] = model.predict_proba_one(x).get(1, 0.0)
        model.learn_one(x, label)
    return found


def rare(only: list[str] | None = None) -> None:
    """Compute average precision, log loss, and the cost of optimal decisions.

    The cost of a miss is the ratio of the classes.
    """
    from sklearn import metrics

    from streamsvm.decide.costs import Costs

    result = kept("decisions-rare")
    for ratio in RATIOS:
        for name in only or DRIFTING:
            key = f"{name} 1:{ratio}"
            cells = dict(result.get(key, {}))
            missing = {peer: make for peer, make in peers().items() if peer not in cells}
            if not missing:
                continue
            rows, y = thinned(name, ratio)
            truth = np.array(y)
            for peer, make in missing.items():
                start = time.perf_counter()
                p = probabilities(make(), rows, y)
                us = 1e6 * (time.perf_counter() - start) / len(y)
                proba = np.column_stack([1.0 - p, p])
                costs = Costs([[0.0, 1.0], [float(ratio), 0.0]]).run(proba, truth, [0, 1])[1][SKIPPED:]
                own, said = truth[SKIPPED:], p[SKIPPED:]
                cells[peer] = {
                    "average precision": _rounded(metrics.average_precision_score(own, said)),
                    "log loss": _rounded(metrics.log_loss(own, np.clip(said, 1e-6, 1.0 - 1e-6))),
                    # Relative to always predicting one class, whichever is cheaper.
                    "cost": _rounded(costs.sum() / min(ratio * own.sum(), (1 - own).sum())),
                    "us": _rounded(us),
                }
            ordered = {peer: cells[peer] for peer in peers()}
            result[key] = {"events": len(y), "rare": int(truth.sum()), **ordered}
            print(key, {peer: (cell["average precision"], cell["cost"]) for peer, cell in ordered.items()}, flush=True)
            keep("decisions-rare", result, ("river", "numpy", "numba", "scikit-learn"), lines=True)


# Votes ------------------------------------------------------------------------------------------------------------


def votes() -> None:
    """Compare votes weighted by accuracy alone with votes weighted by log loss too."""
    from sklearn import metrics

    from streamsvm import StreamSVMClassifier

    result = {}
    for ratio, name in [(ratio, name) for ratio in RATIOS for name in DRIFTING] + [(0, name) for name in EVEN]:
        rows, y = thinned(name, ratio) if ratio else _even(name)
        truth, cells = np.array(y), {}
        for way in ("accuracy", "rarity"):
            model = StreamSVMClassifier()
            if way == "accuracy":
                model._state.rare_weight = 0.0
            predicted, proba = model.test_then_train(rows, y, proba=True)
            codes = np.array([model.classes_.index(label) for label in y])[SKIPPED:]
            said = np.clip(proba[np.arange(len(y)), :][SKIPPED:], 1e-6, 1.0)
            shown = [model.classes_.index(1)] if ratio else np.unique(codes).tolist()
            found = [metrics.average_precision_score(codes == c, said[:, c]) for c in shown]
            cells[way] = {
                "average precision": _rounded(float(np.mean(found))),
                "log loss": _rounded(-np.log(said[np.arange(len(said)), codes]).mean()),
                "accuracy": _rounded(100.0 * float((predicted == truth)[SKIPPED:].mean())),
            }
        result[f"{name} 1:{ratio}" if ratio else name] = cells
        print(name, ratio, cells, flush=True)
    keep("decisions-votes", result, lines=True)


def _even(name: str) -> tuple[Any, list[Any]]:
    """Load a stream with balanced classes."""
    return generators.load(name, 0, 10_000) if name in generators.GENERATORS else data.load_stream(name, 10_000)


# Noise ------------------------------------------------------------------------------------------------------------


def noise() -> None:
    """Compute the calibration error on noisy labels.

    It is computed over all events and over the last 5,000.
    """
    from streamsvm import StreamSVMClassifier
    from streamsvm.run.measures import Reliability

    result = {}
    for name in ("SEA sudden", "RBF incremental", "sine recurring", "Agrawal gradual"):
        for share in (0.0, 0.2, 0.4):
            X, y = generators.load(name, 0, MOST)
            rng, classes = np.random.default_rng(0), sorted(set(y))
            labels = [classes[rng.integers(len(classes))] if rng.random() < share else label for label in y]
            model = StreamSVMClassifier()
            predicted, proba = model.test_then_train(X, labels, proba=True)
            right, scores = predicted == np.array(labels), proba.max(axis=1)
            cell = {}
            for part, over in ((slice(1, None), "all"), (slice(-5_000, None), "last 5,000")):
                reliability = Reliability()
                reliability.add(scores[part], np.asarray(right[part], bool))
                cell[over] = _rounded(reliability.error)
            result[f"{name}, {share:.0%}"] = cell
            print(name, share, cell, flush=True)
    keep("decisions-noise", result, lines=True)


# Late labels ------------------------------------------------------------------------------------------------------

ALARMED = (
    *("electricity", "insects 2013", "insects abrupt"),
    *("Agrawal sudden 1:20", "RBF incremental 1:20", "SEA sudden 1:20"),
)
LATE = (1, 100, 1_000)
WANTED = (("recall", 0.8), ("recall", 0.95), ("precision", 0.5), ("precision", 0.8))


def late() -> None:
    """Evaluate alarms for the rarer class with delayed labels."""
    result = {}
    for name in ALARMED:
        X, y = _rows_and_labels(name)
        names, counts = np.unique(np.array(y), return_counts=True)
        rare, cells = names[counts.argmin()], {}
        own = (np.array(y) == rare).astype(np.int64)
        for delay in LATE:
            p = _late_probabilities(X, y, rare, delay)
            for kind, wanted in WANTED:
                raised, truth = _alarms(kind, wanted, p, own, delay)[SKIPPED + delay :], own[SKIPPED + delay :]
                found = {"alarms": raised.mean(), "recall": raised[truth == 1].mean()}
                found |= {"precision": truth[raised].mean() if raised.any() else float("nan")}
                cells[f"{kind} {wanted:g}, {delay} late"] = {key: _rounded(value) for key, value in found.items()}
        result[name] = {"events": len(y), "share": _rounded(own.mean()), **cells}
        print(name, result[name], flush=True)
        keep("decisions-late", result, lines=True)


def _rows_and_labels(name: str) -> tuple[Any, list[Any]]:
    base, _, ratio = name.partition(" 1:")
    if not ratio:
        return data.load_stream(name, 10_000)
    rows, y = thinned(base, int(ratio))
    return {key: np.array([row[key] for row in rows]) for key in rows[0]}, y


def _late_probabilities(X: Any, y: list[Any], rare: Any, delay: int) -> NDArray[np.float64]:
    """Return the probabilities of the rare class at prediction time."""
    from simulations.benchmarks.delays import joins
    from streamsvm import StreamSVMClassifier
    from streamsvm.delayed.models import OwnModel

    own, p = OwnModel(StreamSVMClassifier(), proba=True), np.zeros(len(y))
    for found in joins(own, X, y, delay):
        c = own.classes.index(rare) if rare in own.classes else len(own.classes)
        p[found.slots] = [row[c] if c < len(row) else 0.0 for row in found.held]
    return p


def _alarms(kind: str, wanted: float, p: NDArray[Any], own: NDArray[Any], delay: int) -> NDArray[np.bool_]:
    from streamsvm.decide.alarms import Alarms

    n = len(p)
    order = np.argsort(np.concatenate([2 * np.arange(n), 2 * (np.arange(n) + delay) - 1]), kind="stable")
    both = np.concatenate([np.full(n, -1), own])[order]
    raised = np.empty(2 * n, np.bool_)
    raised[order] = Alarms(kind, wanted).run(np.concatenate([p, p])[order], both)
    return raised[:n]


# Cost -------------------------------------------------------------------------------------------------------------


PART, SKIPPED_PARTS, REPEATED = 250, 4, 5  # events of a turn, excluded turns, and passes


def cost() -> None:
    """Measure the ratio of CPU time with and without decisions.

    Turns alternate, so that other load on the machine affects both. The minimum of each turn over several passes
    counts.
    """
    from river import linear_model, preprocessing

    from streamsvm import BSGDClassifier, CoveringClassifier, CPMClassifier, StreamSVMClassifier

    X, y = data.load_stream("electricity", 6_000)
    parts = [_Part(X, y, slice(start, start + PART)) for start in range(0, len(y), PART)]
    makers: dict[str, Callable[[], Any]] = {
        "StreamSVM": StreamSVMClassifier,
        "StreamSVM low": lambda: StreamSVMClassifier(effort="low"),
        "BSGD": BSGDClassifier,
        "CPM": CPMClassifier,
    }
    result = {}
    for name, make in makers.items():
        costly, balanced = _deciding(make, abstain=0.2), _deciding(make, class_weight="balanced")
        cell = {
            "sets, rows": _in_turns(parts, (make, _rows), (make, _rows_with_sets)),
            "sets, loop": _in_turns(parts, (make, _loop), (make, _loop_with_sets)),
            "costs, rows": _in_turns(parts, (make, _rows), (costly, _rows)),
            "costs, loop": _in_turns(parts, (make, _loop), (costly, _loop_of_decisions)),
            "class_weight, rows": _in_turns(parts, (make, _rows), (balanced, _rows)),
            "class_weight, loop": _in_turns(parts, (make, _loop), (balanced, _loop_of_decisions)),
        }
        result[name] = cell | _of_runs(make)
        print(name, result[name], flush=True)

    def peer() -> Any:
        return preprocessing.StandardScaler() | linear_model.LogisticRegression()

    ups = [_Part(X, [label == "UP" for label in y], slice(start, start + PART)) for start in range(0, len(y), PART)]
    result["LogisticRegression"] = {
        "sets, loop": _in_turns(ups, (peer, _loop), (lambda: CoveringClassifier(peer()), _loop_with_sets)),
        "costs, loop": _in_turns(ups, (peer, _loop), (_deciding(peer, abstain=0.2), _loop_of_decisions)),
    }
    print(result["LogisticRegression"], flush=True)
    keep("decisions-cost", result, lines=True)


class _Part:
    """Some events, as columns and as dicts."""

    def __init__(self, X: Any, y: list[Any], part: slice) -> None:
        self.table = {key: column[part] for key, column in X.items()}
        self.rows, self.y = data.rows_of(self.table), y[part]


Way = tuple[Callable[[], Any], Callable[[Any, _Part], None]]


def _in_turns(parts: list[_Part], plain: Way, other: Way) -> dict[str, float]:
    """Return microseconds per event of the plain way, and the ratio of the other way."""
    least = np.full((2, len(parts)), np.inf)
    for _ in range(REPEATED):
        models = plain[0](), other[0]()
        for i, part in enumerate(parts):
            for who, (_, step) in enumerate((plain, other)):
                begin = time.process_time()
                step(models[who], part)
                least[who, i] = min(least[who, i], time.process_time() - begin)
    one, two = least[:, SKIPPED_PARTS:].mean(axis=1)
    return {"us": _rounded(1e6 * one / PART), "ratio": _rounded(two / one)}


def _deciding(make: Callable[[], Any], **settings: Any) -> Callable[[], Any]:
    from streamsvm import DecidingClassifier

    return lambda: DecidingClassifier(make(), **settings)


def _rows(model: Any, part: _Part) -> None:
    model.test_then_train(part.table, part.y)


def _rows_with_sets(model: Any, part: _Part) -> None:
    model.test_then_train(part.table, part.y, coverage=0.9)


def _loop(model: Any, part: _Part) -> None:
    for x, label in zip(part.rows, part.y, strict=True):
        model.predict_proba_one(x)
        model.learn_one(x, label)


def _loop_with_sets(model: Any, part: _Part) -> None:
    for x, label in zip(part.rows, part.y, strict=True):
        model.predict_set_one(x, coverage=0.9)
        model.learn_one(x, label)


def _loop_of_decisions(model: Any, part: _Part) -> None:
    for x, label in zip(part.rows, part.y, strict=True):
        model.predict_one(x)
        model.learn_one(x, label)


RUNS: dict[str, dict[str, Any]] = {
    "measures": {},
    "coverage": {"coverage": 0.9},
    "abstain": {"abstain": 0.2},
    "balanced": {"class_weight": "balanced"},
    "alarms, share": {"alarms": ("share", 0.1), "alarm_class": "UP"},
    "alarms, recall": {"alarms": ("recall", 0.8), "alarm_class": "UP"},
    "alarms, precision": {"alarms": ("precision", 0.8), "alarm_class": "UP"},
}


def _of_runs(make: Callable[[], Any]) -> dict[str, dict[str, float]]:
    """Time whole runs over 30,000 events of a file with and without decisions.

    The minimum of five alternating runs counts.
    """
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        path = f"{folder}/events.csv"
        X, y = data.load_stream("electricity", 30_000)
        rows = [",".join(map(str, row)) for row in zip(*(column.tolist() for column in X.values()), y, strict=True)]
        Path(path).write_text("\n".join([",".join([*X, "label"]), *rows]) + "\n")
        found = {}
        for name, wanted in RUNS.items():
            plain, other = np.inf, np.inf
            for _ in range(REPEATED):
                plain = min(plain, _run(make(), path, {}, measured=bool(wanted)))
                other = min(other, _run(make(), path, wanted))
            found[f"run, {name}"] = {"us": _rounded(1e6 * plain / len(y)), "ratio": _rounded(other / plain)}
        return found


def _run(model: Any, path: str, wanted: dict[str, Any], measured: bool = True) -> float:
    """Return the CPU seconds of a run with discarded predictions."""
    from connectors import open_sink, open_source
    from streamsvm.run.runner import runner_of

    source, sink = open_source(path, label="label"), open_sink("null:")
    runner = runner_of(model, source, out=sink, **wanted)
    if not measured:
        runner.report.metrics.measures.add = lambda *_: None  # type: ignore[method-assign]
    start = time.process_time()
    runner.run()
    return time.process_time() - start


# Tables -----------------------------------------------------------------------------------------------------------


def coverage_table() -> str:
    """Return the table of coverage and size at each level, over all streams."""
    found = kept("decisions-coverage")
    lines = [
        "| target | sets | coverage | minimum of a window of 500 | mean size | minimum of a class |",
        "|---|---|---|---|---|---|",
    ]
    for wanted in COVERAGES:
        for kind in ("sets", "by class", "fixed"):
            cells = [stream[str(wanted)][kind] for stream in found.values()]
            coverages = [cell["coverage"] for cell in cells]
            lines.append(
                f"| {wanted:g} | {kind} | {np.mean(coverages):.3f} ({min(coverages):.3f} to {max(coverages):.3f}) "
                f"| {min(cell['least'] for cell in cells):.3f} | {np.mean([cell['size'] for cell in cells]):.2f} "
                f"| {np.nanmin([cell['least of a class'] for cell in cells]):.3f} |"
            )
    return "\n".join(lines)


def rare_table() -> str:
    """Return the table of means over the streams of each ratio."""
    found = kept("decisions-rare")
    names = [name for name in next(iter(found.values())) if name not in ("events", "rare")]
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for ratio in RATIOS:
        cells = [cell for key, cell in found.items() if key.endswith(f":{ratio}")]
        for measure, places in (("average precision", 3), ("cost", 3), ("log loss", 4)):
            means = [float(np.mean([cell[name][measure] for cell in cells])) for name in names]
            best = (max if measure == "average precision" else min)(means)
            shown = [f"**{mean:.{places}f}**" if mean == best else f"{mean:.{places}f}" for mean in means]
            lines.append(f"| 1:{ratio}, {measure} | {' | '.join(shown)} |")
    return "\n".join(lines)


def votes_table() -> str:
    """Return the table of means over the streams of each ratio, by kind of votes."""
    found = kept("decisions-votes")
    lines = ["| | accuracy | accuracy and log loss |", "|---|---|---|"]
    for ratio in (*RATIOS, 0):
        cells = [cell for key, cell in found.items() if (key.endswith(f":{ratio}") if ratio else ":" not in key)]
        for measure, places in (("average precision", 3), ("log loss", 4), ("accuracy", 2)):
            means = [float(np.mean([cell[way][measure] for cell in cells])) for way in ("accuracy", "rarity")]
            shown = " | ".join(f"{mean:.{places}f}" for mean in means)
            lines.append(f"| {f'1:{ratio}' if ratio else 'even'}, {measure} | {shown} |")
    return "\n".join(lines)


def noise_table() -> str:
    """Return the table of calibration errors by the share of random labels."""
    found = kept("decisions-noise")
    lines = ["| | 0 % | 20 % | 40 % |", "|---|---|---|---|"]
    for name in dict.fromkeys(key.rpartition(", ")[0] for key in found):
        cells = [found[f"{name}, {share}%"] for share in (0, 20, 40)]
        lines.append(f"| {name} | {' | '.join(_noted(cell) for cell in cells)} |")
    return "\n".join(lines)


def late_table() -> str:
    """Return the table of alarms by delay: mean, minimum and maximum over streams."""
    found = kept("decisions-late")
    lines = [f"| | {' | '.join(f'delay {delay:,}' for delay in LATE)} |", "|---" * (1 + len(LATE)) + "|"]
    for kind, wanted in WANTED:
        shown = []
        for delay in LATE:
            values = [cell[f"{kind} {wanted:g}, {delay} late"][kind] for cell in found.values()]
            shown.append(f"{np.nanmean(values):.3f} ({np.nanmin(values):.3f} to {np.nanmax(values):.3f})")
        lines.append(f"| {kind} {wanted:g} | {' | '.join(shown)} |")
    return "\n".join(lines)


COST_WAYS = {
    "sets": ("sets, rows", "sets, loop", "run, coverage"),
    "costs with abstention": ("costs, rows", "costs, loop", "run, abstain"),
    "balanced class weights": ("class_weight, rows", "class_weight, loop", "run, balanced"),
    "alarms for a share": (None, None, "run, alarms, share"),
    "alarms for a recall": (None, None, "run, alarms, recall"),
    "alarms for a precision": (None, None, "run, alarms, precision"),
    "measures": (None, None, "run, measures"),
}


def cost_table() -> str:
    """Return the table of cost ratios for rows / single events / a whole run."""
    found = {name: cell for name, cell in kept("decisions-cost").items() if "run, measures" in cell}
    lines = [f"| | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    without = [" / ".join(f"{cell[way]['us']:.2f}" for way in COST_WAYS["sets"] if way) for cell in found.values()]
    lines.append(f"| µs without decisions | {' | '.join(without)} |")
    for name, ways in COST_WAYS.items():
        shown = [" / ".join(f"{cell[way]['ratio']:.2f}" for way in ways if way) for cell in found.values()]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return "\n".join(lines)


def _noted(cell: dict[str, float]) -> str:
    return f"{cell['all']:.3f} ({cell['last 5,000']:.3f})"


def show() -> None:
    """Print all tables."""
    print(coverage_table(), rare_table(), votes_table(), noise_table(), late_table(), cost_table(), sep="\n\n")


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def main() -> None:
    """Run the selected part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    programs = {
        "coverage": coverage,
        "rare": rare,
        "votes": votes,
        "noise": noise,
        "late": late,
        "cost": cost,
        "show": show,
    }
    parser.add_argument("what", choices=programs)
    programs[parser.parse_args().what]()


if __name__ == "__main__":
    main()
