"""Time per event by stage, and by part of the kernel members.

Stages are the rows (scaling, ranks and statistics), each member, and the votes (with label autocorrelation). The rest
of the total is the overhead of Python. Parts of a kernel member are replayed and compared with a lower bound. The bound
is the maximum of two measured times: reading the same number of bytes from memory of the same size, and the same number
of multiply-adds in registers. The rest of a member is new vectors, merging and the steps of the heads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from simulations.benchmarks.blend import head, warm
from simulations.benchmarks.blend.cost import between
from simulations.benchmarks.peers import Stream
from simulations.keeping import keep, rounded
from streamsvm import StreamSVMClassifier
from streamsvm.budgeted.expansion import distances, evaluate, padded, take_event
from streamsvm.budgeted.maintenance import find_costs, find_smallest
from streamsvm.budgeted.metric import relearn_metric
from streamsvm.core.jit import kernel
from streamsvm.core.math import ZERO, exp32
from streamsvm.core.simd import LANES, lanes, lanes_at, put_lanes, sum_of, times_plus, uint
from streamsvm.core.state import State
from streamsvm.ensemble import vote as kernels

EVENTS, COUNTED, CALLS, TURNS = 4_000, 400, 100, 30
# Multiply-adds of an exponential and of the cost of a merge, counted in the source code.
OF_EXPONENTIAL, OF_COST = 9, 60


# Parts ------------------------------------------------------------------------------------------------------------


@kernel
def replay_distances(state, m, times):
    for _ in range(times):
        take_event(state, m)
        distances(state, m, state.work[0])


@kernel
def replay_exponentials(state, m, times):
    far, near = state.work[0], state.work[1]
    for _ in range(times):
        for b in range(padded(state.n_vectors)):
            near[uint(b)] = exp32(-far[uint(b)])


@kernel
def replay_evaluation(state, m, times):
    for _ in range(times):
        evaluate(state, m, False)


@kernel
def replay_metric(state, m, times):
    for _ in range(times):
        relearn_metric(state, m)


@kernel
def replay_search(state, m, times):
    for k in range(times):
        find_smallest(state)
        find_costs(state, k % state.n_vectors, state.work[3])


@kernel
def read(values, n, times):
    """Sum n values repeatedly."""
    total = ZERO
    for _ in range(times):
        sums = lanes(ZERO)
        for b in range(0, n, LANES):
            sums = times_plus(lanes_at(values, uint(b)), values[0], sums)
        total += sum_of(sums)
    return total


@kernel
def multiply(values, n, times):
    """Compute n multiply-adds in registers repeatedly."""
    for _ in range(times):
        first, second, third, x = lanes(ZERO), lanes(ZERO), lanes(ZERO), lanes_at(values, 0)
        for _ in range(0, n, 3 * LANES):
            first, second, third = times_plus(first, x, x), times_plus(second, x, x), times_plus(third, x, x)
        put_lanes(first + second + third, values, 0)


def us(function: Callable[..., Any], *arguments: Any, calls: int = CALLS) -> float:
    """Measure the microseconds per iteration of a function's loop.

    A call with a single iteration is subtracted, which removes the overhead of the call.
    """
    return 1e6 * (_least(function, *arguments, calls + 1) - _least(function, *arguments, 1)) / calls


def _least(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the minimum seconds of several calls."""
    least = float("inf")
    for _ in range(TURNS):
        start = time.perf_counter()
        function(*arguments)
        least = min(least, time.perf_counter() - start)
    return least


def bound(n_bytes: float, n_products: float) -> float:
    """Return the longer of the times to read `n_bytes` and compute `n_products`.

    It is in microseconds.
    """
    values = np.ones(max(int(n_bytes) // 4 // LANES, 1) * LANES, np.float32)
    return max(us(read, values, len(values)), us(multiply, values, int(n_products)))


# Measuring --------------------------------------------------------------------------------------------------------


class _Staged(StreamSVMClassifier):
    """A `StreamSVMClassifier` that times each stage."""

    seconds: dict[str, float]

    def _run_batch(self, batch: State) -> None:
        state, block = self._state, self._state.block
        addresses = state.address, block.address, batch.address
        scale, vote = (kernels.ENTRY_POINTS[name].compile().ctypes for name in ("scale_rows", "vote_on_rows"))
        stages: dict[str, tuple[Any, tuple[int, ...]]] = {"rows": (scale, addresses)}
        for i, (name, kind, member) in enumerate(zip(self._members(), self._kinds(), block.members, strict=True)):
            learn = kind.entries[0].compile().ctypes
            stages[f"member {i + 1}, {name}"] = learn, (int(member.state), block.address, i, 0)
        stages["votes"] = vote, addresses
        self.seconds = dict.fromkeys(stages, 0.0)
        state.cached = block.first = 0
        while block.first < batch.indptr.size - 1:
            for name, (do, arguments) in stages.items():
                start = time.process_time()
                do(*arguments)
                self.seconds[name] += time.process_time() - start
            block.first += block.n_rows


def run(streams: list[Stream], keeping: bool) -> None:
    """Measure the parts on each stream."""
    warm(("blend",))
    result = {}
    for stream in streams:
        X, y = stream.load()
        result[stream.key] = show(stream.key, measure(head(X, EVENTS), y[:EVENTS]))
        if keeping:
            keep("blend-parts", result, lines=True)


def measure(X: Any, y: list[Any]) -> dict[str, dict[str, float]]:
    """Return microseconds per call, calls per event and the bound of each part."""
    found: dict[str, dict[str, float]] = {}
    for name, asked in (("all", None), ("no kernel members", ("linear",))):
        model = StreamSVMClassifier(members=asked)
        rows = model._space.encode(X, np.ones(len(y), bool))
        start = time.process_time()
        model.test_then_train(rows, y)
        found[name] = {"us": 1e6 * (time.process_time() - start) / len(y), "calls": 1.0}
    staged = _Staged()
    staged.test_then_train(staged._space.encode(X, np.ones(len(y), bool)), y)
    found |= {name: {"us": 1e6 * spent / len(y), "calls": 1.0} for name, spent in staged.seconds.items()}
    model, n = StreamSVMClassifier(), len(y) - COUNTED
    model.test_then_train(between(X, 0, n), y[:n])
    members = [member for member in model._member_states() if hasattr(member, "n_vectors")]
    counts = np.zeros((len(members), 2))
    for i in range(n, len(y)):
        before = [(member.n_vectors == member.budget, member.theta.copy()) for member in members]
        model.learn_many(between(X, i, i + 1), y[i : i + 1])
        for k, member in enumerate(members):
            acting = bool(member.update.any())
            joins = member.kernel[: int(member.n_vectors)].max() <= member.absorb
            is_full, theta = before[k]
            counts[k] += (member.theta != theta).any(), acting and joins and is_full
    for k, member in enumerate(members):
        seen, row = model._state.block.members[k], model._state.block.rows[0]
        m = int(row.n_ranked if seen.way else row.n_pairs)
        for name, part in parts(member, m, *counts[k] / COUNTED).items():
            found[f"{k + 1}: {name} ({int(member.n_vectors)} vectors)"] = part
    return found


def parts(member: Any, m: int, moving: float, merging: float) -> dict[str, dict[str, float]]:
    """Measure the parts of a kernel member, for events of m pairs."""
    n, sums = int(member.n_vectors), member.n_heads * (1 if member.n_classes == 2 else member.n_classes)
    pulled = np.count_nonzero(member.update) // (2 if member.n_classes == 2 else 1)
    each = {
        "distances": (us(replay_distances, member, m), 1.0, bound(4 * n * m, n * m)),
        "exponentials": (us(replay_exponentials, member, m), 1.0, bound(8 * n, OF_EXPONENTIAL * n)),
        "scores": (us(replay_evaluation, member, m), 1.0, bound(4 * n * sums, n * sums)),
        "metric": (us(replay_metric, member, m), moving, bound(4 * n * (2 * m + pulled), n * (5 * m + pulled))),
        "search": (us(replay_search, member, m), merging, bound(4 * n * (m + sums), n * (m + sums + OF_COST))),
    }
    # The evaluation includes distances and exponentials.
    took, calls, least = each["scores"]
    each["scores"] = max(took - each["distances"][0] - each["exponentials"][0], 0.0), calls, least
    return {name: rounded({"us": a, "calls": b, "bound": c}) for name, (a, b, c) in each.items()}


def show(name: str, found: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Print the parts of a stream."""
    print(f"\n{name:34s}{'us per call':>12s}{'calls':>8s}{'us per event':>13s}{'bound':>8s}{'times':>7s}")
    for part, row in found.items():
        least = f"{row['bound']:8.2f}{row['us'] / row['bound']:7.1f}" if "bound" in row else ""
        print(f"{part:34s}{row['us']:12.2f}{row['calls']:8.2f}{row['us'] * row['calls']:13.2f}{least}", flush=True)
    return found
