"""Simulation of a cluster with one model per key: resources, and lag.

    python -m simulations.keyed_cluster            compute, store and plot
    python -m simulations.keyed_cluster --plot     plot stored results

Key frequencies follow Zipf's law. A worker is a process on a core. It spends time on events and, at each checkpoint, on
the state of every key that had an event since the last one. Partitions are assigned to workers. Machines fail at
random, and failures are detected after a delay. Then either other workers take over the partitions and restore them
from the changelog, or the partitions wait for the replacement machine. Time advances in steps, and unfinished work
waits. Costs are measured (`COSTS`); `Cluster` has the assumptions.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations.keeping import PICTURES, keep, kept, rounded

RESULT = "keyed-cluster"
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Costs:
    """Costs of a worker.

    Parameters
    ----------
    event_us
        Microseconds per event of an active key.
    key_us
        Microseconds to load and save the state of a key, once per checkpoint in which it had events.
    state_bytes
        Bytes of a key with 1,000 events, written to the changelog each time it is saved.
    restored_mb
        MB of changelog that a worker restores per second.
    """

    event_us: float
    key_us: float
    state_bytes: float
    restored_mb: float

    @classmethod
    def measured(cls, hot: tuple[float, float], cold: tuple[float, float], **others: float) -> Costs:
        """Compute the costs from the events per second of two streams.

        The second element of each pair is the number of saved keys per event.

        Examples
        --------
        >>> Costs.measured((10_000.0, 0.1), (2_500.0, 0.85), state_bytes=3e3, restored_mb=10.0).key_us
        400.0
        """
        key = (1e6 / cold[0] - 1e6 / hot[0]) / (cold[1] - hot[1])
        return cls(1e6 / hot[0] - hot[1] * key, key, **others)


COSTS = Costs.measured(
    (17_385.0, 0.1), (4_629.0, 0.893), state_bytes=kept("keyed-state")["CPM"]["bytes"], restored_mb=241.2 / 5.675
)
"""Measured by `python -m simulations.benchmarks.keyed_engine`, with broker and worker on the same two cores. The first
stream has 1,000 keys, all of which are in each checkpoint of 10,000 events. The second has 20,000 keys, of which 4,133
occur in the 4,629 events of a second. The restore is of 200,000 keys of 1.2 kB. The size of a key is measured by
`python -m simulations.benchmarks.keyed state`: 20 numbers and two classes."""


@dataclass(frozen=True)
class Cluster:
    """Requirements and assumptions; times are in seconds.

    Parameters
    ----------
    events_s, n_keys, skew
        Events per second, number of keys, and exponent of Zipf's law of the key frequencies.
    checkpoint_s
        Time between two checkpoints.
    busy
        Share of the workers' time that is used without failures.
    cores
        Workers per machine.
    partitions_each
        Partitions per worker.
    mean_life_s
        Mean time between failures of a machine.
    noticed_s
        Time until a failure is detected. Then the others wait `unfinished_s` for the machine's open transaction.
    replaced_s
        Time from a failure until a replacement machine with an empty disk is available.
    rebalance_s
        Time for which all workers stop when "range" reassigns partitions; otherwise only workers with new partitions
        stop.
    taken
        Assignment of the partitions of a failed machine. "range": Kafka's range assignor. "sticky": the other workers,
        each of which keeps its own partitions. "waits": the replacement machine.
    """

    events_s: float = 1e6
    n_keys: int = 100_000_000
    skew: float = 0.8
    checkpoint_s: float = 1.0
    busy: float = 0.5
    cores: int = 8
    partitions_each: int = 8
    mean_life_s: float = 30 * 86_400.0
    noticed_s: float = 10.0
    unfinished_s: float = 20.0
    replaced_s: float = 300.0
    rebalance_s: float = 3.0
    taken: str = "range"


# Keys ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keys:
    """Groups of keys by frequency: `counts` keys with `rates` events per second each.

    The first groups have one key each.
    """

    rates: Floats
    counts: Ints


def zipf(n: int, skew: float, events_s: float, singly: int = 100_000) -> Keys:
    """Return keys with power-law rates; rare keys are grouped by rank.

    Examples
    --------
    >>> keys = zipf(1_000_000, 0.8, 100.0)
    >>> int(keys.counts.sum()), round(float(keys.rates @ keys.counts), 6), bool(keys.rates[0] > keys.rates[-1])
    (1000000, 100.0, True)
    """
    singly = min(singly, n)
    bounds = np.unique(np.geomspace(singly + 1, n + 1, 400).astype(np.int64)) if n > singly else np.array([singly + 1])
    edges = np.concatenate([np.arange(1, singly + 1), bounds])
    lower, upper = edges[:-1], edges[1:]
    weights = ((lower + upper - 1) / 2.0) ** -skew
    counts = upper - lower
    return Keys(weights * (events_s / (weights @ counts)), counts)


def saved_s(keys: Keys, checkpoint_s: float) -> Floats:
    """Return how often each key is saved per second.

    A key is saved at each checkpoint after an event of it.
    """
    return -np.expm1(-keys.rates * checkpoint_s) / checkpoint_s


def work(keys: Keys, costs: Costs, checkpoint_s: float) -> Floats:
    """Return the worker seconds that each key takes per second."""
    return 1e-6 * (costs.event_us * keys.rates + costs.key_us * saved_s(keys, checkpoint_s))


def over_partitions(keys: Keys, each: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Sum the load of the keys by partition; keys are assigned at random.

    Examples
    --------
    >>> keys = zipf(1_000_000, 0.8, 100.0)
    >>> sums = over_partitions(keys, keys.rates, 16, np.random.default_rng(0))
    >>> sums.shape, bool(abs(sums.sum() - 100.0) < 1.0)
    ((16,), True)
    """
    single = keys.counts == 1
    sums = np.bincount(rng.integers(n, size=int(single.sum())), weights=each[single], minlength=n)
    many = rng.poisson(keys.counts[~single, None] / n, size=(int((~single).sum()), n))
    found: Floats = sums + each[~single] @ many
    return found


# What a cluster needs --------------------------------------------------------------------------------------------


def needs(cluster: Cluster, costs: Costs = COSTS) -> dict[str, float]:
    """Compute the required resources of a cluster."""
    keys = zipf(cluster.n_keys, cluster.skew, cluster.events_s)
    saves = float(saved_s(keys, cluster.checkpoint_s) @ keys.counts)
    spent = work(keys, costs, cluster.checkpoint_s)
    workers = float(spent @ keys.counts) / cluster.busy
    machines = int(np.ceil(workers / cluster.cores))
    partitions = machines * cluster.cores * cluster.partitions_each
    state = cluster.n_keys * costs.state_bytes
    return {
        "keys saved a second": saves,
        "workers": workers,
        "machines": machines,
        "partitions": partitions,
        "events a second of a worker": cluster.events_s / workers,
        "changelog MB a second": 1e-6 * saves * costs.state_bytes,
        "state GB": 1e-9 * state,
        "state GB of a machine": 1e-9 * state / machines,
        "restore of a partition s": 1e-6 * state / partitions / costs.restored_mb,
        "restore of a worker s": 1e-6 * state / machines / cluster.cores / costs.restored_mb,
        "hottest key, events a second": float(keys.rates[0]),
        "hottest key, share of a worker": float(spent[0]),
    }


# Time passes -----------------------------------------------------------------------------------------------------


COPIES = 4
"""Number of former owners of a partition that may have a copy."""


class Fleet:
    """Workers and their partitions, with the work that waits.

    Parameters
    ----------
    cluster, costs
        Assumptions and costs.
    n_machines
        Number of machines.
    inflow
        Worker seconds of work per second of each partition.
    """

    def __init__(self, cluster: Cluster, costs: Costs, n_machines: int, inflow: Floats) -> None:
        self.cluster, self.inflow = cluster, inflow
        self.n_workers = n_machines * cluster.cores
        self.backlog = np.zeros(len(inflow))
        self.alive = np.ones(self.n_workers, dtype=bool)
        self.held_until = np.zeros(self.n_workers)
        self.owner = self._range()
        self._home = self.owner.copy()
        whole_s = 1e-6 * costs.state_bytes * cluster.n_keys / len(inflow) / costs.restored_mb
        keys_changed = costs.state_bytes * cluster.events_s / len(inflow) * 1e-6 / costs.restored_mb
        self._restore_s, self._caught_up_s = whole_s, keys_changed
        # Former owners of each partition whose copy is still on disk, and when they lost it.
        self._before = np.full((COPIES, len(inflow)), -1)
        self._left = np.zeros((COPIES, len(inflow)))

    def pass_time(self, now: float, step: float) -> None:
        """Add incoming work, and let each available worker process it."""
        self.backlog += self.inflow * step
        able = np.where(self.alive, np.clip(now + step - self.held_until, 0.0, step), 0.0)
        waits = np.bincount(self.owner, self.backlog, self.n_workers)
        self.backlog *= (1.0 - np.minimum(1.0, able / np.maximum(waits, 1e-12)))[self.owner]

    def lags(self) -> Floats:
        """Return the lag of each partition in seconds."""
        return self.backlog / self.inflow

    def busiest(self) -> float:
        """Return the load of the busiest worker without failures."""
        return float(np.bincount(self._home, self.inflow, self.n_workers).max())

    def fail(self, machine: int) -> None:
        """Stop a machine and lose its disk."""
        its = self._workers(machine)
        self.alive[its] = False
        self._before[(self._before >= its.start) & (self._before < its.stop)] = -1

    def notice(self, now: float) -> None:
        """Reassign the partitions of failed machines, unless they wait."""
        if self.cluster.taken != "waits" and self.alive.any():
            self._assign(now, self.cluster.unfinished_s)

    def come_back(self, machine: int, now: float) -> None:
        """Add the replacement of a machine."""
        its = self._workers(machine)
        self.alive[its] = True
        if self.cluster.taken == "waits":
            mine = np.bincount(self.owner, minlength=self.n_workers)[its]
            self.held_until[its] = now + self._restore_s * mine
        else:
            self._assign(now, 0.0)

    def _workers(self, machine: int) -> slice:
        return slice(machine * self.cluster.cores, (machine + 1) * self.cluster.cores)

    def _assign(self, now: float, waits_s: float) -> None:
        """Assign the partitions to available workers.

        A worker with a new partition stops until it is restored.
        """
        owner = self._range() if self.cluster.taken == "range" else self._sticky()
        moved = np.flatnonzero(owner != self.owner)
        restore = np.bincount(owner[moved], self._seconds_to_restore(moved, owner[moved], now), self.n_workers).astype(
            np.float64
        )
        orphans = owner[moved][~self.alive[self.owner[moved]]]
        restore[np.unique(orphans)] += waits_s
        self._remember(moved, now)
        if self.cluster.taken == "range":
            restore += self.cluster.rebalance_s
        # A worker that is still restoring finishes that first.
        self.held_until = np.where(restore > 0.0, np.maximum(self.held_until, now) + restore, self.held_until)
        self.owner = owner

    def _seconds_to_restore(self, moved: Ints, owner: Ints, now: float) -> Floats:
        """Return the time to restore a partition.

        A former owner restores only the changes since it lost the partition.
        """
        known = self._before[:, moved] == owner
        away = now - np.where(known, self._left[:, moved], -np.inf).max(axis=0)
        found: Floats = np.minimum(self._restore_s, self._caught_up_s * away)
        return found

    def _remember(self, moved: Ints, now: float) -> None:
        """Record the copies of former owners, unless these have failed."""
        old = self.owner[moved]
        self._before[:, moved] = np.vstack([np.where(self.alive[old], old, -1), self._before[:-1, moved]])
        self._left[:, moved] = np.vstack([np.full(len(moved), now), self._left[:-1, moved]])

    def _range(self) -> Ints:
        """Assign consecutive partitions to consecutive workers, as evenly as possible."""
        workers, n = np.flatnonzero(self.alive), len(self.backlog)
        size, more = divmod(n, len(workers))
        return np.repeat(workers, np.where(np.arange(len(workers)) < more, size + 1, size))

    def _sticky(self) -> Ints:
        """Assign each partition to its first worker.

        Partitions of failed workers are assigned to the others in turn.
        """
        owner = np.where(self.alive[self._home], self._home, self.owner)
        orphans, workers = np.flatnonzero(~self.alive[owner]), np.flatnonzero(self.alive)
        # Spread over all workers, so that none gets a second partition before each has one.
        owner[orphans] = workers[np.arange(len(orphans)) * max(1, len(workers) // max(1, len(orphans))) % len(workers)]
        return owner


LIMITS = (1.0, 10.0, 60.0, 300.0)
STEP = 2.0


def built(cluster: Cluster, costs: Costs = COSTS, seed: int = 0) -> Fleet:
    """Create a fleet of the required size, with random partitions of the keys."""
    keys, found = zipf(cluster.n_keys, cluster.skew, cluster.events_s), needs(cluster, costs)
    spent = work(keys, costs, cluster.checkpoint_s)
    inflow = over_partitions(keys, spent, int(found["partitions"]), np.random.default_rng(seed))
    return Fleet(cluster, costs, int(found["machines"]), inflow)


def failures(cluster: Cluster, n: int, seconds: float, rng: np.random.Generator) -> list[tuple[float, str, int]]:
    """Draw failures, with their detection and replacement.

    A failed machine does not fail again before it is replaced.
    """
    happen, there = [], np.zeros(n)
    for at in np.sort(rng.uniform(0.0, seconds, rng.poisson(seconds * n / cluster.mean_life_s))).tolist():
        machine = int(rng.integers(n))
        if at >= there[machine]:
            there[machine] = at + cluster.replaced_s
            happen += of_failure(cluster, at, machine)
    return sorted(happen)


def of_failure(cluster: Cluster, at: float, machine: int) -> list[tuple[float, str, int]]:
    """Return the events of a failure."""
    noticed, back = at + cluster.noticed_s, at + cluster.replaced_s
    return [(at, "fail", machine), (noticed, "notice", machine), (back, "back", machine)]


def happens(fleet: Fleet, what: str, machine: int, now: float) -> None:
    """Apply an event to the fleet."""
    if what == "fail":
        fleet.fail(machine)
    elif what == "notice":
        fleet.notice(now)
    else:
        fleet.come_back(machine, now)


def run(cluster: Cluster, costs: Costs = COSTS, days: float = 30.0, seed: int = 0) -> dict[str, Any]:
    """Simulate days with failures; returns the shares of events by lag.

    The time until the next checkpoint, before which readers of committed records see nothing, is not included.
    """
    fleet, end = built(cluster, costs, seed), days * 86_400.0
    happen = failures(cluster, fleet.n_workers // cluster.cores, end, np.random.default_rng(seed + 1))
    n_failures = len(happen) // 3
    bounds = np.concatenate([[0.0], np.geomspace(0.1, 1e5, 241), [np.inf]])
    seen, worst, now = np.zeros(len(bounds) - 1), 0.0, 0.0
    while now < end:
        while happen and happen[0][0] <= now:
            _, what, machine = happen.pop(0)
            happens(fleet, what, machine, now)
        fleet.pass_time(now, STEP)
        now += STEP
        lags = fleet.lags()
        worst = max(worst, float(lags.max()))
        seen += np.bincount(np.searchsorted(bounds, lags, side="right") - 1, fleet.inflow, len(seen))
        if lags.max() < 1e-9 and fleet.alive.all():
            # Without a backlog nothing changes until the next failure.
            quiet = max(0.0, (min(happen[0][0], end) if happen else end) - now) // STEP
            seen[0] += quiet * fleet.inflow.sum()
            now += quiet * STEP
    behind = np.append(np.cumsum(seen[:0:-1])[::-1], 0.0) / seen.sum()

    def share_behind(s: float) -> float:
        return float(f"{behind[np.searchsorted(bounds, s * 0.999) - 1]:.3g}")

    shown = [float(f"{s:.3g}") for s in bounds[1:-1:4] if s <= worst]
    return {
        "machines": fleet.n_workers // cluster.cores,
        "partitions": len(fleet.inflow),
        "failures": n_failures,
        "busiest worker": fleet.busiest(),
        "share behind by more": {f"{s:g} s": share_behind(s) for s in LIMITS},
        "worst s": worst,
        "curve": {"s": shown, "share": [share_behind(s) for s in shown]},
    }


def after_failure(
    cluster: Cluster, costs: Costs = COSTS, seconds: float = 900.0, at: float = 60.0
) -> dict[str, list[float]]:
    """Simulate one failure.

    Returns every 10 s the share of the stream that lags by more than 10 s, and the largest lag.
    """
    fleet, rows = built(cluster, costs), []
    happen = of_failure(cluster, at, fleet.n_workers // cluster.cores // 3)
    for now in np.arange(0.0, seconds, STEP).tolist():
        while happen and happen[0][0] <= now:
            _, what, machine = happen.pop(0)
            happens(fleet, what, machine, now)
        fleet.pass_time(now, STEP)
        lags = fleet.lags()
        rows.append([now + STEP, float(fleet.inflow[lags > 10.0].sum() / fleet.inflow.sum()), float(lags.max())])
    columns = zip(*rows[:: round(10.0 / STEP)], strict=True)
    named = zip(("time s", "share behind", "worst s"), columns, strict=True)
    return {name: [float(f"{value:.4g}") for value in values] for name, values in named}


# What is kept ----------------------------------------------------------------------------------------------------

NEEDS = {
    f"skew {skew:g}, a checkpoint each {every:g} s": Cluster(skew=skew, checkpoint_s=every)
    for skew in (0.0, 0.8, 1.0)
    for every in (1.0, 10.0, 60.0)
}
RUNS = {
    "range": Cluster(),
    "sticky": Cluster(taken="sticky"),
    "waits": Cluster(taken="waits"),
    "sticky, 70 % busy": Cluster(taken="sticky", busy=0.7),
    "sticky, 2 partitions a worker": Cluster(taken="sticky", partitions_each=2),
    "sticky, noticed after 45 s": Cluster(taken="sticky", noticed_s=45.0),
}
SHOWN = ("range", "sticky", "waits")


def compute() -> dict[str, Any]:
    """Run all computations."""
    return {
        "costs": rounded(asdict(COSTS)),
        "assumed": asdict(Cluster()),
        "needs": {name: rounded(needs(cluster)) for name, cluster in NEEDS.items()},
        "runs": {name: run(cluster) for name, cluster in RUNS.items()},
        "after a failure": {name: after_failure(RUNS[name]) for name in SHOWN},
    }


def needs_table() -> str:
    """Return the table of required resources, by skew and checkpoint interval."""
    columns = {
        "keys saved a second": "keys saved per second",
        "workers": "workers",
        "machines": "machines",
        "partitions": "partitions",
        "changelog MB a second": "changelog, MB/s",
        "restore of a worker s": "restore of a worker, s",
        "hottest key, share of a worker": "hottest key, share of a worker",
    }
    lines = [f"| | {' | '.join(columns.values())} |", "|---" * (1 + len(columns)) + "|"]
    for name, row in kept(RESULT)["needs"].items():
        cells = [f"{row[c]:,.0f}" if row[c] >= 100.0 else f"{row[c]:.3g}" for c in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def runs_table() -> str:
    """Return the table of lags, by assignment of the partitions of a failed machine."""
    heads = ["failures", "busiest worker", *(f"lag over {s:g} s" for s in LIMITS), "maximum lag, s"]
    lines = [f"| | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for name, row in kept(RESULT)["runs"].items():
        shares = [f"{100.0 * share:.2g} %" for share in row["share behind by more"].values()]
        cells = [f"{row['failures']}", f"{row['busiest worker']:.2f}", *shares, f"{row['worst s']:.0f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot() -> None:
    """Plot the stored results."""
    from matplotlib import pyplot

    found = kept(RESULT)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12.0, 4.2), layout="constrained")
    for name, row in found["runs"].items():
        left.plot(*row["curve"].values(), label=name, ls="-" if name in SHOWN else "--")
    left.set(xscale="log", yscale="log", xlabel="s", ylabel="share of events", title="events with larger lag, 30 days")
    for name, rows in found["after a failure"].items():
        right.plot(rows["time s"], rows["worst s"], label=name)
    right.set(xlabel="s (a machine fails at 60)", ylabel="lag, s", title="largest lag of a partition, one failure")
    for panel in (left, right):
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)
    PICTURES.mkdir(exist_ok=True)
    figure.savefig(PICTURES / f"{RESULT}.png", dpi=110)
    pyplot.close(figure)


def main() -> None:
    """Compute, store and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", action="store_true", help="only plot stored results")
    if not parser.parse_args().plot:
        keep(RESULT, compute(), ("numpy",))
    plot()


if __name__ == "__main__":
    main()
