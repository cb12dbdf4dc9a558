"""Disturbed requests of runs with a Kafka broker: see `test_ambiguous`.

python -m tests.kafka.disturbed                         each disturbance of each request of a transaction: ten minutes
python -m tests.kafka.disturbed --pairs                 each two disturbances of one transaction: an hour
python -m tests.kafka.disturbed --keyed                 each disturbance of a worker with one model per key: an hour
python -m tests.kafka.disturbed --minutes 60            random disturbances of any requests, also of resumed runs
python -m tests.kafka.disturbed --first 17 --each 1     one random trial again
python -m tests.kafka.disturbed --pairs --first 575     the pairs from number 575 on
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import functools
import itertools
import logging
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("STREAMSVM_CODE", "numba")

from tests.kafka.conftest import new_topic, starter
from tests.kafka.proxy import GROUP, OTHERS, TRANSACTION, Fault
from tests.kafka.test_ambiguous import Trial
from tests.kafka.trials import Disturbed
from tests.keyed.test_ambiguous import Trial as Worked

_PLAIN = ("request", "answer", "cut", "delay", "slice")
_CODES = (-1, 1, 3, 5, 6, 7, 10, 13, 14, 15, 16, 19, 20, 22, 25, 29, 41, 45, 47, 48, 49, 51, 53, 56, 59, 67, 90, 120)
"""Error codes that brokers give to producers and consumers."""
_GROUP_CODES = (-1, 3, 7, 14, 15, 16, 22, 25, 27, 30, 79, 82)
"""Error codes that brokers give to members of a consumer group."""
_MOST_S = 600.0
_SAY_EACH = 25  # trials
_WORKERS = 4
"""Trials of workers at a time; they wait for most of their time."""


def each_fault(*more: str) -> Iterator[list[list[Fault]]]:
    """Yield each fault of the first two requests of each kind in a transaction.

    `more` are further kinds of requests.
    """
    for api, n in itertools.product((*TRANSACTION, *more), (1, 2)):
        if (api, n) not in (("InitProducerId", 2), ("LeaveGroup", 2)):
            yield from ([[Fault(api, how, n)]] for how in _PLAIN)
            if n == 1:
                codes = _GROUP_CODES if api in GROUP else _CODES
                yield from ([[Fault(api, how, n, code)]] for how in ("error", "refused") for code in codes)


def each_pair() -> Iterator[list[list[Fault]]]:
    """Yield each two faults in requests of a transaction, or of one repeated.

    If the first one ends the run, the second one disturbs the resumed run.
    """
    for one, other in itertools.combinations_with_replacement(TRANSACTION, 2):
        for (how, code), (then, code_then) in itertools.product(_classes(one), _classes(other)):
            second = Fault(other, then, 1 + (one == other), code_then)
            yield [[Fault(one, how, 1, code), second], [second]]


def _classes(api: str) -> Iterator[tuple[str, int]]:
    """Yield faults by reaction of a client: no answer, retry, abort or stop."""
    yield from (("request", 0), ("answer", 0))
    yield from itertools.product(("error", "refused"), (6 if api == "Produce" else 14, 120, 47))


def random_faults(rng: random.Random, *more: str) -> list[list[Fault]]:
    """Return disturbances of up to three runs."""
    return [[_random_fault(rng, *more) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 3))]


def _random_fault(rng: random.Random, *more: str) -> Fault:
    api = rng.choice(rng.choice((TRANSACTION, more or TRANSACTION, OTHERS)))
    hows = (*_PLAIN, "error", "error", *(("refused", "refused") if api not in OTHERS else ()))
    code = rng.choice(_GROUP_CODES if api in GROUP else _CODES) if rng.random() < 0.8 else rng.randint(-1, 130) or 1
    how, n, lasting = rng.choice(hows), rng.randint(1, 6), rng.random() < 0.1
    return Fault(api, how, n, code, lasting)


@contextlib.contextmanager
def _broker() -> Iterator[str]:
    if "STREAMSVM_KAFKA" in os.environ:
        yield os.environ["STREAMSVM_KAFKA"]
    else:
        with contextlib.closing(starter.Broker(brief=True)) as broker:
            yield broker.address


def _ended(trial: str) -> None:
    """End the process because a trial takes too long."""
    print(f"{trial}\nstill running after {_MOST_S:.0f} s", flush=True)
    faulthandler.dump_traceback()
    os._exit(1)


_trial: Disturbed
"""Trials of this process."""


def _prepare(kind: type[Trial | Worked], broker: str, folder: str) -> None:
    """Prepare trials in this process."""
    global _trial
    logging.disable()
    _trial = kind(broker, functools.partial(new_topic, broker), Path(tempfile.mkdtemp(dir=folder)))


def _tried(number: int, faults: list[list[Fault]], beside: bool) -> tuple[int, int, str]:
    """Return number and fired faults of a trial, and what is wrong."""
    watch = threading.Timer(_MOST_S, _ended, (f"{number}: {faults}",))
    watch.daemon = True
    watch.start()
    if isinstance(_trial, Worked):
        _trial.beside = beside
    wrong = ""
    try:
        _trial.check(*faults)
    except Exception as error:
        wrong = f"{number}: {faults}\n{error}"
    watch.cancel()
    return number, sum(one.n_fired > 0 for some in faults for one in some), wrong


def _results(
    pool: ProcessPoolExecutor, cases: Iterator[Any], n: int, *, beside: bool
) -> Iterator[tuple[int, int, str]]:
    """Yield the results of trials, of which n run at a time."""
    running: set[Any] = set()
    while True:
        more = itertools.islice(cases, n - len(running))
        running |= {pool.submit(_tried, number, faults, beside and number % 2 == 1) for number, faults in more}
        if not running:
            return
        done, running = wait(running, return_when=FIRST_COMPLETED)
        yield from (one.result() for one in done)


def main() -> None:
    """Run the trials of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", action="store_true", help="two disturbances of one transaction")
    parser.add_argument("--keyed", action="store_true", help="workers with one model per key, also their group")
    parser.add_argument("--minutes", type=float, default=0.0, help="duration of random trials")
    parser.add_argument("--first", type=int, default=0, help="number of the first trial, or seed if random")
    parser.add_argument("--each", type=int, default=0, help="number of random trials; 0 for the given minutes")
    given = parser.parse_args()
    seeds = itertools.count(given.first) if not given.each else range(given.first, given.first + given.each)
    kind: type[Trial | Worked]
    more, kind, at_once = (GROUP, Worked, _WORKERS) if given.keyed else ((), Trial, 1)
    is_random, end = bool(given.minutes or given.each), time.monotonic() + 60 * (given.minutes or float("inf"))
    listed = itertools.islice(enumerate(each_pair() if given.pairs else each_fault(*more)), given.first, None)
    cases = ((seed, random_faults(random.Random(seed), *more)) for seed in seeds) if is_random else listed
    cases = itertools.takewhile(lambda _: time.monotonic() < end, cases)
    n_tried = n_fired = n_wrong = 0
    with _broker() as broker, tempfile.TemporaryDirectory() as folder:
        start = {"mp_context": get_context("spawn"), "initializer": _prepare, "initargs": (kind, broker, folder)}
        with ProcessPoolExecutor(at_once, **start) as pool:
            for number, fired, wrong in _results(pool, cases, at_once, beside=is_random):
                n_tried, n_fired, n_wrong = n_tried + 1, n_fired + fired, n_wrong + bool(wrong)
                if wrong:
                    print(wrong, flush=True)
                if n_tried % _SAY_EACH == 0:
                    print(f"{n_tried} trials with {n_fired} faults, {n_wrong} wrong; number {number}", flush=True)
    print(f"{n_tried} trials with {n_fired} faults, {n_wrong} wrong")
    raise SystemExit(n_wrong > 0)


if __name__ == "__main__":
    main()
