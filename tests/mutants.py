"""Mutation tests: each mutant differs by an operator, constant or statement.

    pip install cosmic-ray
    python -m tests.mutants                              60 random mutants of each module: an hour or two
    python -m tests.mutants sinks parquet --sample 0     all mutants of two modules
    python -m tests.mutants sinks --only 17              one of them again

The mutants are in a copy of the checkout. The tests of each run in a fork of this process. A mutant that no test
notices is printed with its line.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import difflib
import importlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
_SLACK_S = 30.0  # for a mutant, in addition to three times the time of all its tests
_HEAVY = "numpy numba scipy.sparse scipy.optimize pyarrow.parquet pandas river.base hypothesis orjson kafka sklearn"

_POWER = "tests/faults/test_power.py::test_"
_SINKS = ("tests/connectors/outputs/test_files.py", f"{_POWER}rows_that_a_sink_has_flushed_are_durable")
_PARQUET = (
    _SINKS[0],
    f"{_SINKS[1]}[{{}}/out.parquet]",
    "tests/connectors/remote/test_stores.py::test_results_in_a_store_replace_results_only",
    "tests/connectors/outputs/test_parts.py",
)
_LATE = (
    "tests/delayed/test_join.py",
    "tests/delayed/test_learning.py::test_single_events_and_labels_equal_steps",
    "tests/delayed/test_classifier.py",
)
MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "checkpoint": ("streamsvm/run/checkpoint.py", ("tests/run/test_checkpoints.py", "tests/run/test_loop.py")),
    "sinks": ("connectors/outputs/files.py", _SINKS),
    "parquet": ("connectors/arrow/parquet_sink.py", (*_PARQUET, "-k", "parquet")),
    "results": (
        "connectors/outputs/results.py",
        ("connectors/outputs/results.py", "tests/run/test_overwriting.py", *_SINKS),
    ),
    "joined": ("connectors/joined.py", ("connectors/joined.py", "tests/connectors/test_joined.py")),
    "join": ("streamsvm/delayed/join.py", _LATE),
    "store": ("streamsvm/delayed/store.py", ("tests/delayed/test_store.py", *_LATE[:2])),
    "label_join": ("streamsvm/delayed/label_join.py", _LATE[:1]),
    "segments": (
        "streamsvm/delayed/segments.py",
        (
            "tests/delayed/test_store.py",
            f"{_LATE[0]}::test_memory_is_bounded",
            f"{_LATE[0]}::test_a_join_equals_its_slow_reference",
            f"{_LATE[1]}[<lambda>-options5]",
        ),
    ),
    "single_join": ("streamsvm/delayed/single_join.py", tuple(f"{_LATE[1]}[<lambda>-options{i}]" for i in (3, 7, 1))),
    "archive": (
        "streamsvm/models/archive.py",
        ("tests/test_models.py", "tests/test_hostile_files.py", f"{_POWER}an_archive_is_replaced_as_a_whole"),
    ),
    "arrays": ("streamsvm/models/arrays.py", ("tests/test_models.py", "streamsvm/models/arrays.py")),
    "transactions": ("connectors/kafka/transactions.py", ("tests/kafka/test_transactions.py",)),
    "kafka_sink": ("connectors/kafka/sink.py", ("tests/kafka/test_rows.py",)),
}
"""File and tests of each module."""
_KERNELS = ("label_join", "single_join")
"""Compiled modules of `streamsvm.delayed`; tests of mutants interpret them."""

_KINDS = frozenset({"expr_stmt", "atom_expr", "return_stmt", "raise_stmt", "del_stmt", "yield_expr"})
_REPLACED = {
    "comparison_operator_replacement.ReplaceComparisonOperator_": (
        *("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_Gt", "Gt_Lt", "LtE_Gt", "GtE_Lt"),
        *("Is_IsNot", "IsNot_Is"),
    ),
    "binary_operator_replacement.ReplaceBinaryOperator_": (
        *("Add_Sub", "Sub_Add", "Mul_FloorDiv", "FloorDiv_Mul", "Mod_Mul", "Div_Mul", "BitAnd_BitOr", "LShift_RShift"),
    ),
    "boolean_replacer.": (
        "ReplaceTrueWithFalse",
        "ReplaceFalseWithTrue",
        "AddNot",
        "ReplaceAndWithOr",
        "ReplaceOrWithAnd",
    ),
    "break_continue.": ("ReplaceBreakWithContinue", "ReplaceContinueWithBreak"),
    "unary_operator_replacement.": ("ReplaceUnaryOperator_Delete_Not",),
    "exception_replacer.": ("ExceptionReplacer",),
    "number_replacer.": ("NumberReplacer",),
    "zero_iteration_for_loop.": ("ZeroIterationForLoop",),
}
"""Operators of cosmic-ray, by module and beginning of their names."""


def operators() -> list[Any]:
    """Return what changes a source in one place."""
    import parso
    from cosmic_ray.operators.operator import Operator

    class DeleteStatement(Operator):
        """Replaces a simple statement, except a docstring or an import, by `pass`."""

        def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
            if node.type == "simple_stmt" and node.children[0].type in _KINDS:
                yield node.start_pos, node.end_pos

        def mutate(self, node: Any, index: int) -> Any:
            return parso.parse(f"{node.get_first_leaf().prefix}pass\n")

        @classmethod
        def examples(cls) -> tuple[()]:
            return ()

    found: list[Any] = [DeleteStatement()]
    for path, names in _REPLACED.items():
        module, _, start = path.partition(".")
        held = importlib.import_module(f"cosmic_ray.operators.{module}")
        found += [getattr(held, start + name)() for name in names]
    return found


def mutants(source: str) -> list[str]:
    """Return all different sources that one operator gives."""
    from cosmic_ray.mutating import mutate_code

    found: dict[str, None] = {}
    for operator in operators():
        for n in itertools.count():
            try:
                changed = mutate_code(source, operator, n)
                if changed is None:
                    break
                compile(changed, "mutant", "exec")
            except (AttributeError, SyntaxError):  # cosmic-ray does not replace `module.Error`
                continue
            found[changed] = None
    return list(found)


class Trial:
    """A copy of the checkout, in which a module is replaced.

    Parameters
    ----------
    place
        Directory of the copy, created by it.
    module
        Path of the module.
    tests
        Paths of its tests.
    """

    def __init__(self, place: Path, module: str, tests: tuple[str, ...]) -> None:
        self.place, self.path, self.tests, self._n = place, place / module, tests, 0
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
        for name in listed.stdout.splitlines():
            if name.startswith(("streamsvm/", "connectors/", "tests/", "pyproject.toml", "simulations/")):
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, place / name)
        began = time.monotonic()
        self.timeout = 3600.0
        if not self.passes((ROOT / module).read_text()):
            raise SystemExit(f"the tests fail without a change:\n{(place / 'log').read_text()[-3000:]}")
        self.timeout = 3 * (time.monotonic() - began) + _SLACK_S

    def passes(self, source: str) -> bool:
        """Return whether the tests pass with a source of the module."""
        self.path.write_text(source)
        self._n += 1
        os.utime(self.path, (self._n, self._n))  # no bytecode of another mutant is used
        child = os.fork()
        if not child:
            self._test()
        deadline = time.monotonic() + self.timeout
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return False
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what the tests have started
        return os.waitstatus_to_exitcode(ended[1]) == 0

    def _test(self) -> None:
        code: int = 3
        try:
            os.setsid()
            os.chdir(self.place)
            log = os.open(self.place / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.path[:] = [str(self.place), *(path for path in sys.path if Path(path or ".").resolve() != ROOT)]
            for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "streamsvm", "connectors")]:
                del sys.modules[name]
            sys.modules["__main__"] = ModuleType("__main__")  # processes of tests would import this program
            import hypothesis
            import pytest

            if self.path.stem in _KERNELS:
                interpret()
            phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)  # nobody reads the failing example
            hypothesis.settings.register_profile("mutants", derandomize=True, deadline=None, phases=phases)
            quiet = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
            quiet.append("--hypothesis-profile=mutants")
            code = int(pytest.main([*quiet, f"--basetemp={self.place / 'tmp'}", *self.tests]))
        finally:
            os._exit(code)


def interpret() -> None:
    """Import the kernels of the label join as Python functions.

    The compilation of a mutant takes up to a minute.
    """
    from streamsvm.core import entry_points, jit
    from streamsvm.core.layout import array_address
    from streamsvm.core.state import State
    from streamsvm.decide import conformal_kernels
    from streamsvm.ensemble import vote
    from streamsvm.online import driver

    del conformal_kernels, entry_points  # imported before the decorators change
    compiled = {name: getattr(jit, name) for name in ("inlined", "kernel", "jit_holding_gil")}
    jit.inlined = jit.kernel = lambda function: function
    jit.jit_holding_gil = lambda function: lambda *given: function(*map(_packed, given))
    own = {
        "columns_at": lambda start, n: _view(start, n).view(np.int64),
        "values_at": _view,
        "element_address": lambda array, i: array_address(array[i:]),
    }
    vars(jit).update(own)
    # In the interpreter, attributes of states and records would hide these numbers.
    bind, begin = State.bind, State.__init__

    def begin_known(state: Any, *given: Any, **named: Any) -> None:
        begin(state, *given, **named)
        _STATES[state.address] = state

    for name, hidden in {
        "__init__": begin_known,
        "n_bytes": property(lambda state: state.number("n_bytes")[()]),
        "bind": lambda state, **arrays: bind(state, **{key: _recorded(array) for key, array in arrays.items()}),
    }.items():
        setattr(State, name, hidden)
    for name in _KERNELS:
        module = importlib.import_module(f"streamsvm.delayed.{name}")
        for entry in module.ENTRY_POINTS.values():
            vars(entry)["_compiled"] = entry.function
    module.driver, module.vote = (SimpleNamespace(run_rows=each.ENTRY_POINTS["run_rows"]) for each in (driver, vote))
    for state in ("table", "rows", "batch", "blend", "sets", "covering"):
        setattr(module, f"{state}_at", lambda address: _STATES[int(address)])
    module.digest = importlib.import_module("streamsvm.delayed.digests").digest = _digest  # type: ignore[attr-defined]
    vars(jit).update(compiled)
    for name in own:
        delattr(jit, name)


_STATES: dict[int, Any] = {}
"""States by address, for the functions that convert addresses to states."""


def _digest(state: Any, start: Any, n: int) -> Any:
    """Return two words that identify a key."""
    key = start.words[:n] if isinstance(start, _Packed) else ctypes.string_at(int(start), int(n))
    return np.frombuffer(blake2b(key, digest_size=16).digest(), np.uint64)


def _view(start: Any, n: int) -> Any:
    """View n numbers at an address, or in the words of a call."""
    if isinstance(start, _Packed):
        return np.frombuffer(start.words, np.float64, n, start.at)
    return np.ctypeslib.as_array((ctypes.c_double * int(n)).from_address(int(start)))


def _packed(given: Any) -> Any:
    return _Packed(given) if isinstance(given, bytes) else given


class _Record(np.record):  # type: ignore[misc]
    """A record with a field named `size`."""

    def __getattribute__(self, name: str) -> Any:
        return self["size"] if name == "size" else super().__getattribute__(name)


def _recorded(array: Any) -> Any:
    return array.view(np.ndarray).view(np.dtype((_Record, array.dtype))) if array.dtype.names else array


class _Packed:
    """Words of a call from Python, and a position in them."""

    def __init__(self, words: bytes, at: int = 0) -> None:
        self.words, self.at, self.start, self.size = words, at, self, len(words)

    def __add__(self, n_bytes: int) -> _Packed:
        return _Packed(self.words, self.at + n_bytes)


def changed_lines(source: str, changed: str) -> str:
    """Return the lines that differ, with their numbers."""
    found, line = [], 0
    for text in difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0):
        if text.startswith("@@"):
            line = int(text.split()[1][1:].split(",")[0])
        elif not text.startswith(("---", "+++")):
            found.append(f"    {line}: {text}" if text[0] == "-" else f"    {' ' * len(str(line))}  {text}")
    return "\n".join(found)


def main() -> None:
    """Try the mutants of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help=f"{', '.join(MODULES)}; all by default")
    parser.add_argument("--sample", type=int, default=60, help="number of mutants of each module; 0 for all")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--only", type=int, help="number of a single mutant")
    given = parser.parse_args()
    for name in _HEAVY.split():
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in given.modules or MODULES:
        path, tests = MODULES[name]
        source = (ROOT / path).read_text()
        found = list(enumerate(mutants(source)))
        chosen = random.Random(given.seed).sample(found, min(given.sample or len(found), len(found)))
        chosen = chosen if given.only is None else [found[given.only]]
        n_survivors = 0
        with tempfile.TemporaryDirectory() as folder:
            trial = Trial(Path(folder, "copy"), path, tests)
            for n, changed in chosen:  # in random order: an interrupted sample is also one
                if trial.passes(changed):
                    n_survivors += 1
                    print(f"  {name} {n} survives\n{changed_lines(source, changed)}", flush=True)
        share = 1 - n_survivors / max(1, len(chosen))
        print(f"{name}: {share:.0%} of {len(chosen)} of {len(found)} mutants killed", flush=True)


if __name__ == "__main__":
    main()
