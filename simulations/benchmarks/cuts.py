"""Cost and accuracy of sampled cuts, compared with LIBSVM and others.

    python -m simulations.benchmarks.cuts growth      10,000 to 10,000,000 rows generated on demand, three problems
    python -m simulations.benchmarks.cuts peers       SVC on subsets, Nystroem + linear SVM, averaged Pegasos
    python -m simulations.benchmarks.cuts classes     MNIST's ten classes and Covertype's seven, and other solvers

Figures are means and standard deviations over seeds. Times are wall seconds and CPU seconds; other processes on the
machine affect the latter less. Results are stored in `simulations/results`.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC
from threadpoolctl import threadpool_limits

from simulations import data
from simulations.keeping import keep
from streamsvm import BSGDClassifier, SampledCuts
from streamsvm.batch.sampled_cuts.estimator import SAMPLE

PACKAGES = ("scikit-learn", "numpy", "numba", "scipy")
# Seeds of slow measurements.
FEW_SEEDS = range(2)


# Problems --------------------------------------------------------------------------------------------------------


def noise(indices: NDArray[np.int64], column: int, seed: int) -> NDArray[np.float64]:
    """Return uniform numbers that depend on index, column and seed (splitmix64)."""
    z = indices.astype(np.uint64) * np.uint64(64) + np.uint64(column) + np.uint64(seed << 40)
    z = (z + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((z ^ (z >> np.uint64(31))) >> np.uint64(11), np.float64) * 2.0**-53


class Board:
    """A noisy checkerboard of k x k cells, with rows generated from their indices."""

    def __init__(self, n: int, k: int, seed: int) -> None:
        self.n, self.k, self.seed = n, k, seed

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, indices: NDArray[np.int64]) -> tuple[Any, Any]:
        x = np.column_stack([noise(indices, j, self.seed) for j in range(2)]) * self.k
        y = np.floor(x).sum(axis=1).astype(np.int64) % 2
        size = np.sqrt(-2.0 * np.log(1.0 - noise(indices, 2, self.seed)))
        turn = 2.0 * np.pi * noise(indices, 3, self.seed)
        x += 0.08 * size[:, None] * np.column_stack([np.cos(turn), np.sin(turn)])
        return x / self.k, y


class Teacher:
    """The sign of 400 Gaussians with random signs in 8 dimensions.

    5 % of the labels are flipped.
    """

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed = n, seed
        rng = np.random.default_rng(1234)
        self.centres = rng.random((400, 8)).astype(np.float32)
        self.squares = (self.centres**2).sum(axis=1)
        self.signs = rng.choice([-1.0, 1.0], 400).astype(np.float32)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, indices: NDArray[np.int64]) -> tuple[Any, Any]:
        x = np.column_stack([noise(indices, j, self.seed) for j in range(8)])
        score = np.empty(len(x), np.float32)
        for first in range(0, len(x), 500):
            part = x[first : first + 500].astype(np.float32)
            square = (part**2).sum(axis=1)[:, None] + self.squares - 2.0 * part @ self.centres.T
            score[first : first + 500] = np.exp(-6.0 * square) @ self.signs
        y = (score > 0.0) ^ (noise(indices, 8, self.seed) < 0.05)
        return x, y.astype(np.int64)


class Problem:
    """A problem, with the gamma of the solver and a goal."""

    def __init__(self, rows: Callable[[int, int], Any], gamma: float, goal: str) -> None:
        self.rows, self.gamma, self.goal = rows, gamma, goal

    def test(self) -> tuple[Any, Any]:
        return self.rows(20_000, 999)[np.arange(20_000)]

    def drawn(self, n: int, seed: int) -> tuple[Any, Any]:
        """Return n rows and labels."""
        rows = self.rows(n, seed)
        parts = [rows[np.arange(first, min(first + 100_000, n))] for first in range(0, n, 100_000)]
        return np.concatenate([X for X, _ in parts]), np.concatenate([y for _, y in parts])

    def solver(self, seed: int, **more: Any) -> SampledCuts:
        return SampledCuts(gamma=self.gamma, random_state=seed, **more)


# Problems for the solver's default settings.
PROBLEMS = {
    "board 4 x 4": Problem(lambda n, seed: Board(n, 4, seed), 20.0, "9.6 % in 0.4 s"),
    "board 16 x 16": Problem(lambda n, seed: Board(n, 16, seed), 320.0, "12.8 % in 1.2 s"),
    "teacher in 8 dimensions": Problem(lambda n, seed: Teacher(n, seed), 4.0, "10.4 % in 1.2 s"),
}


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[float, float, Any]:
    """Return wall seconds, CPU seconds and the value of a call."""
    clock, processor = time.perf_counter(), time.process_time()
    value = work(*arguments)
    return time.perf_counter() - clock, time.process_time() - processor, value


def spread(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Return mean and standard deviation of each measure, and minimum seconds."""
    found: dict[str, Any] = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        found[name] = float(f"{statistics.mean(values):.4g}")
        found[f"{name} +-"] = float(f"{statistics.pstdev(values):.2g}")
        if name == "seconds":
            found["least seconds"] = float(f"{min(values):.4g}")
    return found


def measured(model: Any, X: Any, y: Any, seconds: tuple[float, float]) -> dict[str, float]:
    row = {"error": 100.0 * (1.0 - float(model.score(X, y))), "seconds": seconds[0], "processor": seconds[1]}
    if isinstance(model, SampledCuts):
        row |= {"rounds": float(model.n_iter_), "vectors": float(len(model.vectors_))}
    return row


# Figures ---------------------------------------------------------------------------------------------------------


def growth() -> None:
    result: dict[str, Any] = {}
    for name, problem in PROBLEMS.items():
        X, y = problem.test()
        problem.solver(0, max_iter=3).fit(*problem.rows(20_000, 1)[np.arange(20_000)])  # compiles
        rows: dict[int, list[dict[str, float]]] = {n: [] for n in (10**4, 10**5, 10**6)}
        for seed in range(5):
            for n, found in rows.items():
                model = problem.solver(seed)
                clock, processor, _ = timed(model.fit, *problem.drawn(n, seed))
                found.append(measured(model, X, y, (clock, processor)))
        result[name] = {"goal": problem.goal} | {f"{n:,}": spread(found) for n, found in rows.items()}
        for measure in ("processor", "least seconds"):
            values = [result[name][f"{n:,}"][measure] for n in rows]
            result[name][f"slowest to fastest, {measure}"] = round(max(values) / min(values), 2)
        print(name, json.dumps(result[name], indent=1), flush=True)
        keep("cuts-growth", result, PACKAGES)


class Pegasos:
    """Averaged minibatch Pegasos with a kernel.

    A step is f <- (1 - 1/t) f + C / t * mean of y k(x, .) over the rows with a positive loss.
    """

    def __init__(self, C: float, similarity: Any, size: int, seconds: float, seed: int) -> None:
        self.C, self.similarity, self.size, self.seconds, self.seed = C, similarity, size, seconds, seed

    def fit(self, X: Any, y: Any) -> Pegasos:
        start, rng = time.process_time(), np.random.default_rng(self.seed)
        vectors, signs, firsts = np.empty((0, X.shape[1]), np.float32), np.empty(0), np.empty(0)
        t = 0
        while time.process_time() - start < self.seconds:
            t += 1
            indices = rng.integers(len(y), size=self.size)
            rows, sign = self.similarity.prepare(X[indices]), 2.0 * y[indices] - 1.0
            # After step t each vector has the coefficient C y / (size t), in whichever step it was added.
            weights = (signs * (self.C / self.size / max(t - 1, 1))).astype(np.float32)[:, None]
            lose = sign * self.similarity.decide(vectors, weights, rows)[0] < 1.0 if t > 1 else np.ones(self.size, bool)
            vectors = np.vstack([vectors, rows[lose]])
            signs, firsts = np.append(signs, sign[lose]), np.append(firsts, np.full(np.count_nonzero(lose), t))
        tails = np.append(np.cumsum(1.0 / np.arange(t, 0, -1))[::-1], 0.0)  # sum of 1 / u from s to t
        self.vectors = vectors
        self.coefs = (signs * self.C / self.size * tails[firsts.astype(int) - 1] / t).astype(np.float32)[:, None]
        return self

    def score(self, X: Any, y: Any) -> float:
        scores = self.similarity.decide(self.vectors, self.coefs, self.similarity.prepare(X))[0]
        return float(np.mean((scores > 0.0) == y))


def peers() -> None:
    """Compare the solver with others; the subset of SVC takes it the same time."""
    n, result = 100_000, {}
    for name, problem in PROBLEMS.items():
        rows: dict[str, list[dict[str, float]]] = {}
        test = problem.test()
        problem.solver(0, max_iter=3).fit(*test)  # compiles
        for seed in FEW_SEEDS:
            X, y = problem.rows(n, seed)[np.arange(n)]
            solver = problem.solver(seed)
            models: dict[str, Any] = {"sampled cuts": solver, "sampled cuts, last": problem.solver(seed, average=False)}
            note(rows, models, X, y, *test)
            seconds = rows["sampled cuts"][-1]["processor"]
            size = svc_size(problem.gamma, X, y, seconds)
            svc = SVC(C=1.0, gamma=problem.gamma, cache_size=1000)
            note(rows, {"SVC on a subset": svc}, X[:size], y[:size], *test)
            rows["SVC on a subset"][-1]["rows"] = size
            models = {
                f"Nystroem {k} + linear": make_pipeline(
                    Nystroem(gamma=problem.gamma, n_components=k, random_state=seed),
                    LinearSVC(C=1.0, tol=1e-2, max_iter=50, random_state=seed),
                )
                for k in (300,)
            }
            for factor in (1, 4):
                pegasos = Pegasos(solver.C_, solver.kernel_, SAMPLE, factor * seconds, seed)
                models[f"averaged Pegasos, {factor} x time"] = pegasos
            note(rows, models, X, y, *test)
        result[name] = {which: spread(found) for which, found in rows.items()}
        print(name, json.dumps(result[name], indent=1), flush=True)
        keep("cuts-peers", result, PACKAGES)


def note(rows: dict[str, list[dict[str, float]]], models: dict[str, Any], X: Any, y: Any, *test: Any) -> None:
    """Fit models, and add their time and accuracy to the rows."""
    for which, model in models.items():
        clock, processor, _ = timed(model.fit, X, y)
        rows.setdefault(which, []).append(measured(model, *test, (clock, processor)))


def svc_size(gamma: float, X: Any, y: Any, seconds: float) -> int:
    """Return the number of rows that SVC fits in the given CPU seconds."""
    size = 2000
    while True:
        taken = timed(SVC(C=1.0, gamma=gamma, cache_size=1000).fit, X[:size], y[:size])[1]
        if taken >= 0.95 * seconds or size >= len(y) // 3:
            return size
        size = min(int(size * max(1.1, min(2.0, 0.95 * (seconds / taken) ** 0.5))), len(y) // 3)


def covertype_classes() -> tuple[Any, Any, Any, Any]:
    """Load Covertype's seven classes with standardised columns.

    Returns training rows and labels, and test rows and labels.
    """
    X, y = data.load_covertype_classes()
    X = X.astype(np.float32)
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order[:500_000]], y[order[:500_000]], X[order[500_000:520_000]], y[order[500_000:520_000]]


class Classes(NamedTuple):
    """A data set of several classes, with settings.

    Parameters
    ----------
    load
        Function that loads the data.
    cuts
        Settings to compare: rows of a cut and rounds.
    gamma
        The selected gamma.
    gamma_of_others
        Gamma of the other solvers, which need a wider kernel because they have fewer rows.
    C
        C of SVC.
    """

    load: Callable[[], Any]
    cuts: tuple[tuple[int, int], ...]
    gamma: float
    gamma_of_others: float
    C: float


def cuts_of(gamma: float, sample_size: int, max_iter: int, seed: int) -> SampledCuts:
    return SampledCuts(gamma=gamma, sample_size=sample_size, max_iter=max_iter, tol=1e-9, random_state=seed)


CLASSES = {
    "MNIST": Classes(
        lambda: (*data.load_digits("mnist.train"), *data.load_digits("mnist.test")),
        ((200, 300), (500, 200)),
        0.03,
        0.03,
        5.0,
    ),
    "Covertype": Classes(covertype_classes, ((500, 300),), 1.0, 0.1, 5.0),
}


def classes_of(name: str) -> None:
    """Compare solvers on one data set of several classes.

    The solvers are sampled cuts, one-vs-one SVC on a subset, and the budgeted learner in one epoch.
    """
    task = CLASSES[name]
    X, y, X_test, y_test = task.load()
    rows: dict[str, list[dict[str, float]]] = {}
    options = {"budget": 500, "gamma": task.gamma_of_others, "metric": "fixed", "scaling": "none", "absorb": 1.0}
    SampledCuts(max_iter=3).fit(X[:2000], y[:2000])  # compiles
    BSGDClassifier(**options).learn_many(X[:2000], y[:2000].tolist())
    for seed in FEW_SEEDS:
        rng = np.random.default_rng(seed)
        subset = rng.choice(len(y), 10_000, replace=False)
        native = {
            f"sampled cuts, {rounds} of {size} rows": cuts_of(task.gamma, size, rounds, seed)
            for size, rounds in task.cuts
        }
        note(rows, native, X, y, X_test, y_test)
        pairs = {"one-vs-one SVC on 10,000 rows": SVC(C=task.C, gamma=task.gamma_of_others, cache_size=1000)}
        note(rows, pairs, X[subset], y[subset], X_test, y_test)
        order = rng.permutation(len(y))
        online = BSGDClassifier(**options)
        clock, processor, _ = timed(online.learn_many, X[order], y[order].tolist())
        wrong = np.mean(np.array(online.predict_many(X_test)) != y_test)
        row = {"error": 100.0 * float(wrong), "seconds": clock, "processor": processor}
        rows.setdefault("budgeted learner, B = 500, one epoch", []).append(row)
        result = {which: spread(found) for which, found in rows.items()} | {"seeds": seed + 1}
        print(name, json.dumps(result, indent=1), flush=True)
        keep(f"cuts-classes-{name.lower()}", result, PACKAGES)


def classes() -> None:
    for name in CLASSES:
        classes_of(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {f.__name__: f for f in (growth, peers, classes)}
    parser.add_argument("part", choices=parts)
    with threadpool_limits(1):
        parts[parser.parse_args().part]()


if __name__ == "__main__":
    main()
