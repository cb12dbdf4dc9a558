"""Random use of runs, `DelayedClassifier` and keyed models, against plain models.

    python -m tests.faults.machines                         2,000 examples of each
    python -m tests.faults.machines files --examples 20000  a long trial

An example that fails is shrunk and printed as a sequence of calls.
"""

from __future__ import annotations

import argparse
import logging
import os

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

os.environ.setdefault("STREAMSVM_CODE", "numba")

from tests.faults.test_delayed import DelayedMachine
from tests.faults.test_files import FileMachine
from tests.faults.test_keyed import KeyedMachine

MACHINES = {"files": FileMachine, "delayed": DelayedMachine, "keyed": KeyedMachine}


def main() -> None:
    """Run the examples of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="*", help=f"{', '.join(MACHINES)}; all by default")
    parser.add_argument("--examples", type=int, default=2000, help="number of examples of each")
    parser.add_argument("--steps", type=int, default=50, help="greatest number of calls of an example")
    given = parser.parse_args()
    logging.disable()
    how = settings(
        max_examples=given.examples,
        stateful_step_count=given.steps,
        derandomize=False,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    for name in given.machines or MACHINES:
        run_state_machine_as_test(MACHINES[name], settings=how)
        print(f"{name}: {given.examples} examples", flush=True)


if __name__ == "__main__":
    main()
