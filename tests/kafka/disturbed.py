"""Disturbed requests of runs with a Kafka broker: see `test_ambiguous`.

python -m tests.kafka.disturbed                         each disturbance of each request of a transaction: ten minutes
python -m tests.kafka.disturbed --minutes 60            random disturbances of any requests, also of resumed runs
python -m tests.kafka.disturbed --first 17 --each 1     one random trial again
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
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("STREAMSVM_CODE", "numba")

from tests.kafka.conftest import starter
from tests.kafka.proxy import OTHERS, TRANSACTION, Fault
from tests.kafka.test_ambiguous import Trial

_PLAIN = ("request", "answer", "cut", "delay", "slice")
_CODES = (-1, 1, 3, 5, 6, 7, 10, 13, 14, 15, 16, 19, 20, 29, 41, 45, 47, 48, 49, 51, 53, 56, 59, 67, 90, 120)
"""Error codes that brokers give to producers and consumers."""
_MOST_S = 600.0


def each_fault() -> Iterator[list[list[Fault]]]:
    """Yield each disturbance of the first and second request of each kind in a transaction."""
    for api, n in itertools.product(TRANSACTION, (1, 2)):
        if (api, n) != ("InitProducerId", 2):
            yield from ([[Fault(api, how, n)]] for how in _PLAIN)
            if n == 1:
                yield from ([[Fault(api, how, n, code)]] for how in ("error", "refused") for code in _CODES)


def random_faults(rng: random.Random) -> list[list[Fault]]:
    """Return disturbances of up to three runs."""
    return [[_random_fault(rng) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 3))]


def _random_fault(rng: random.Random) -> Fault:
    api = rng.choice(rng.choice((TRANSACTION, TRANSACTION, OTHERS)))
    hows = (*_PLAIN, "error", "error", *(("refused", "refused") if api in TRANSACTION else ()))
    code = rng.choice(_CODES) if rng.random() < 0.8 else rng.randint(-1, 130) or 1
    return Fault(api, rng.choice(hows), rng.randint(1, 6), code, lasting=rng.random() < 0.1)


@contextlib.contextmanager
def _broker() -> Iterator[str]:
    if "STREAMSVM_KAFKA" in os.environ:
        yield os.environ["STREAMSVM_KAFKA"]
    else:
        with contextlib.closing(starter.Broker(brief=True)) as broker:
            yield broker.address


def _topic(broker: str, name: str, partitions: int = 3) -> str:
    name = f"{name}-{uuid.uuid4().hex[:8]}"
    starter.make_topics(broker, name, partitions=partitions)
    return name


def main() -> None:
    """Run the trials of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=0.0, help="duration of random trials")
    parser.add_argument("--first", type=int, default=0, help="seed of the first random trial")
    parser.add_argument("--each", type=int, default=0, help="number of random trials; 0 for the given minutes")
    given = parser.parse_args()
    logging.disable()
    seeds = itertools.count(given.first) if not given.each else range(given.first, given.first + given.each)
    is_random, end = bool(given.minutes or given.each), time.monotonic() + 60 * (given.minutes or float("inf"))
    cases = ((seed, random_faults(random.Random(seed))) for seed in seeds) if is_random else enumerate(each_fault())
    n_tried = n_fired = n_wrong = 0
    with _broker() as broker, tempfile.TemporaryDirectory() as folder:
        trial = Trial(broker, functools.partial(_topic, broker), Path(folder))
        for number, faults in itertools.takewhile(lambda _: time.monotonic() < end, cases):
            faulthandler.dump_traceback_later(_MOST_S, exit=True)
            try:
                trial.check(*faults)
            except Exception as error:
                n_wrong += 1
                print(f"{number}: {faults}\n{error}", flush=True)
            n_tried, n_fired = n_tried + 1, n_fired + sum(one.n_fired > 0 for some in faults for one in some)
    faulthandler.cancel_dump_traceback_later()
    print(f"{n_tried} trials with {n_fired} faults, {n_wrong} wrong")
    raise SystemExit(n_wrong > 0)


if __name__ == "__main__":
    main()
