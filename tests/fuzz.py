"""Corrupt archives, checkpoints and keyed states raise known errors or work.

    python -m tests.fuzz                    a thousand of each kind, with indices of compiled code checked
    python -m tests.fuzz --each 20000       a long trial
    python -m tests.fuzz --kinds late --first 4711 --each 1     one of them again

Files are changed at random: a header value is replaced, removed or duplicated, an array gets another element, shape or
type, or a byte changes. A file that loads must predict, learn and save. The number of a change is its seed.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import logging
import os
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

State = tuple[dict[str, Any], dict[str, Any]]
Trial = Callable[[np.random.Generator, Path], bool]
"""Apply one change in a directory. Return whether it was rejected."""

DEEP: Any = [[[[[[]]]]]]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 7, 255, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, -(2**63), 10**400),
    *("", "x", "nan", "0x1p9999", "1", "é\ud800", [], {}, [[]], DEEP, {"float": "nan"}, {"float": "inf"}),
    *({"float": 3}, {"tuple": []}, {"tuple": [[]]}, {"dict": [[1, 2]]}, [0, 1], ["a", "b"], {"class": "CPMClassifier"}),
]
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e300, -1e300, 1e-300, 5e-324, 1e15, 2.0**53, 2.0**63, np.nan, np.inf, -np.inf)
WHOLES = (0, 1, -1, 2, 3, 100, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))


# Changes ----------------------------------------------------------------------------------------------------------


def nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each position of a header: its container, and the name or index in it."""
    found = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in found:
        yield value, key
        yield from nodes(inner)


def change_header(rng: np.random.Generator, header: Any) -> None:
    """Change one position of a header."""
    places = list(nodes(header))
    if not places:
        return
    held, key = places[rng.integers(len(places))]
    way = rng.random()
    if way < 0.65:
        held[key] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    elif way < 0.8:
        del held[key]
    elif way < 0.9 and isinstance(held, list):
        held.insert(int(key), copy.deepcopy(held[key]))
    else:
        other, name = places[rng.integers(len(places))]
        held[key] = copy.deepcopy(other[name])


def change_arrays(rng: np.random.Generator, arrays: dict[str, Any]) -> None:
    """Change one array."""
    if not arrays:
        return
    name = sorted(arrays)[rng.integers(len(arrays))]
    array, way = np.array(arrays[name]), rng.random()
    if way < 0.75 and array.size:
        with np.errstate(all="ignore"):
            change_element(rng, array.reshape(-1))
    elif way < 0.8:
        del arrays[name]
        return
    elif way < 0.85:
        array = array.astype([np.float64, np.float32, np.int64, np.uint8][rng.integers(4)], casting="unsafe")
    elif way < 0.9:
        array = array[None]
    elif way < 0.95 and array.ndim:
        array = array[: rng.integers(len(array) + 1)]
    else:
        array = np.concatenate([array.reshape(-1), array.reshape(-1)])
    arrays[name] = array


def change_element(rng: np.random.Generator, flat: Any) -> None:
    """Change one element, or swap two."""
    at = int(rng.integers(len(flat)))
    if flat.dtype.kind == "f":
        flat[at] = REALS[rng.integers(len(REALS))] if rng.random() < 0.8 else -flat[at]
    elif flat.dtype == np.int64:
        flat[at] = WHOLES[rng.integers(len(WHOLES))]
    elif flat.dtype == bool or rng.random() < 0.5:
        flat[at] = ~flat[at]
    else:
        other = int(rng.integers(len(flat)))
        flat[[at, other]] = flat[[other, at]]


def changed(rng: np.random.Generator, state: State) -> State:
    """Return a state with one to three changes."""
    header, arrays = copy.deepcopy(state[0]), dict(state[1])
    for _ in range(1 + int(rng.integers(3))):
        if rng.random() < 0.5:
            change_header(rng, header)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                change_arrays(rng, arrays)
    return header, arrays


def write(rng: np.random.Generator, path: Path, state: State) -> bool:
    """Write a changed state, sometimes with a changed byte; False if not JSON."""
    from streamsvm.models.archive import write_archive

    header, arrays = changed(rng, state)
    for key in ("format", "version"):
        header.pop(key, None)
    try:
        write_archive(path, header, arrays)
    except (TypeError, ValueError, OSError):  # such as a surrogate, or a name that is not text
        return False
    if rng.random() < 0.05:
        content = bytearray(path.read_bytes())
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
    return True


# Archives ---------------------------------------------------------------------------------------------------------


@cache
def models() -> list[State]:
    """Return saved models of all kinds."""
    from streamsvm import BSGDClassifier, CPMClassifier, DecidingClassifier, RefitClassifier, StreamSVMClassifier
    from streamsvm.refit import Every, Latest

    small = CPMClassifier(n_faces=2)
    made: list[Any] = [
        CPMClassifier(n_faces=2, scaling="rank", scaling_window=8),
        BSGDClassifier(budget=10),
        StreamSVMClassifier(budget=4),
        StreamSVMClassifier(effort="low", budget=4, members=("ranks", "polytope")),
        DecidingClassifier(small, cost={0: {1: 2.0}}, class_weight="balanced", abstain=0.4),
        RefitClassifier(small, "newton", Latest(60), Every(1_000)),
    ]
    for model in made:
        use(model, 40)
        if isinstance(model, StreamSVMClassifier):
            model.predict_set_one({"a": 1.0}, coverage=0.8)
            use(model, 10)
    return [model.state() for model in made]


def use(model: Any, n: int = 8) -> None:
    """Predict and learn some events."""
    for i in range(n):
        x = {"a": i % 7 - 3.0, "b": 0.3 * (i % 5), "s": "xyz"[i % 3]}
        model.predict_one(x)
        model.predict_proba_one(x)
        model.learn_one(x, i % 3)


def try_archive(rng: np.random.Generator, folder: Path) -> bool:
    """A model file."""
    import streamsvm
    from streamsvm.models import ArchiveError

    state, path = models()[rng.integers(len(models()))], folder / "model"
    if not write(rng, path, state):
        return True
    try:
        model = streamsvm.load(path)
    except ArchiveError:
        return True
    use(model)
    use(type(model).from_state(*model.state()))
    return False


# Keys -------------------------------------------------------------------------------------------------------------


@cache
def keyed() -> list[tuple[Any, bytes]]:
    """Return keyed classifiers and the state of one key."""
    from streamsvm import CPMClassifier, StreamSVMClassifier
    from streamsvm.keyed import KeyedClassifier

    made = [
        KeyedClassifier(CPMClassifier(n_faces=2, scaling="rank", scaling_window=8), label="y"),
        KeyedClassifier(
            StreamSVMClassifier(budget=4), label="y", join="k", time="t", label_timeout=100, prior_model="learn"
        ),
    ]
    found = [(each, each.step(None, key_events(30))[1]) for each in made]
    for each, state in found:
        each.step(state, [])
    return found


def key_events(n: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for i in range(n):
        events.append({"a": i % 7 - 3.0, "b": 0.3 * (i % 5), "s": "xyz"[i % 3], "k": f"k{i}", "t": float(i)})
        if i % 4:
            events.append({"k": f"k{i}", "t": i + 0.5, "y": i % 3})
    return events


def try_key(rng: np.random.Generator, folder: Path) -> bool:
    """The state of a key, with new checksums of its sections."""
    from streamsvm.keyed.key_state import KeyStateError, seal, unseal

    classifier, state = keyed()[rng.integers(len(keyed()))]
    sections = unseal(state)
    for _ in range(1 + int(rng.integers(3))):
        k = int(rng.integers(len(sections)))
        if k == 1 and rng.random() < 0.8:  # the schema
            try:
                said = json.loads(sections[k])
                change_header(rng, said)
                sections[k] = json.dumps(said).encode()
            except ValueError:
                continue
            continue
        content = bytearray(sections[k])
        if not content or rng.random() < 0.1:
            content += rng.bytes(8)
        elif rng.random() < 0.1:
            del content[rng.integers(len(content)) :]
        elif rng.random() < 0.6 and len(content) >= 8:
            at = int(rng.integers(len(content) // 8)) * 8
            word: Any = REALS if rng.random() < 0.5 else WHOLES
            dtype = np.float64 if word is REALS else np.int64
            content[at : at + 8] = np.array(word[rng.integers(len(word))], dtype).tobytes()
        else:
            content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        sections[k] = bytes(content)
    try:
        _, left = classifier.step(seal(sections), key_events(8))
        classifier.step(left, key_events(2))
    except KeyStateError:
        return True
    return False


# Checkpoints ------------------------------------------------------------------------------------------------------

_RUNS: dict[str, list[str]] = {
    "checkpoint": ["in.csv", "--label", "y", "--model", "cpm"],
    "decisions": [
        *("in.csv", "--label", "y", "--model", "blend", "--param", "effort=low", "--param", "budget=4"),
        *("--set", "coverage=0.8"),
        *("--set", "cost=a:b=2", "--set", "alarms=a=share:0.2"),
    ],
    "late": [
        *("in.csv", "--label-source", "labels.csv", "--join", "k", "--time", "t", "--set", "time-unit=s"),
        *("--label", "y", "--model", "cpm", "--label-timeout", "5000s", "--label-output", "joined.csv"),
        *("--set", "coverage=0.8"),
    ],
}


def run(arguments: list[str]) -> tuple[int, str]:
    """Run the command line in this process. Return exit code and output."""
    from streamsvm import cli

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = cli.main(["run", *arguments, "--quiet", "--checkpoint", "check", "--out", "out.jsonl", "--summary", "s"])
    return code, said.getvalue()


@cache
def left(kind: str) -> tuple[dict[str, bytes], State]:
    """Return the files of an interrupted run, and its checkpoint."""
    from streamsvm.models.archive import read_archive

    events, labels = ["k,t,x,c" + ("" if kind == "late" else ",y")], ["k,t,y"]
    for i in range(400):
        y = "ab"[i % 7 > 3]
        events.append(f"k{i},{10 * i},{i % 7}.5,{'uvw'[i % 3]}" + ("" if kind == "late" else f",{y}"))
        labels.append(f"k{i},{10 * i + 95},{y}")
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        Path("in.csv").write_text("\n".join(events) + "\n")
        Path("labels.csv").write_text("\n".join(labels) + "\n")
        code, said = run([*_RUNS[kind], "--max-events", "250"])
        assert code == 0, said
        found = {str(path): path.read_bytes() for path in Path().rglob("*") if path.is_file()}
        state = read_archive(Path("check/checkpoint.safetensors"))
        code, said = run(_RUNS[kind])
        assert code == 0, said  # an unchanged checkpoint must resume
        return found, state


def try_run(kind: str) -> Trial:
    """Resume from a changed checkpoint."""

    def trial(rng: np.random.Generator, folder: Path) -> bool:
        files, state = left(kind)
        with tempfile.TemporaryDirectory(dir=folder) as name, contextlib.chdir(name):
            for path, content in files.items():
                Path(path).parent.mkdir(exist_ok=True, parents=True)
                Path(path).write_bytes(content)
            pieces = sorted(Path("check/waiting").glob("*"))
            path = Path("check/checkpoint.safetensors")
            if pieces and rng.random() < 0.2:
                from streamsvm.models.archive import read_archive

                path = pieces[rng.integers(len(pieces))]
                state = read_archive(path)
            if not write(rng, path, state):
                return True
            code, said = run(_RUNS[kind])
            if code and "\nstreamsvm: error: " not in f"\n{said}":
                raise RuntimeError(f"ended with {code}: {said}")
            return code > 0

    return trial


# All of them ------------------------------------------------------------------------------------------------------

KINDS: dict[str, Trial] = {"archive": try_archive, "key": try_key} | {kind: try_run(kind) for kind in _RUNS}


def trial(kind: str, number: int, folder: Path) -> bool:
    """Apply the change of this number. Return whether it was rejected."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KINDS[kind](np.random.default_rng([sorted(KINDS).index(kind), number]), folder)


def main() -> int:
    """Apply changes of all kinds; print failures and the number of rejected files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--each", type=int, default=1_000, help="how many changes of each kind")
    parser.add_argument("--first", type=int, default=0, help="the number of the first")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    os.fsync = lambda _: None
    counts = Counter[str]()
    scratch = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=scratch if scratch.is_dir() else None) as name:
        for kind in args.kinds:
            for number in range(args.first, args.first + args.each):
                (Path(name) / "at").write_text(f"{kind} {number}")  # recorded in case the process crashes
                try:
                    refused = trial(kind, number, Path(name))
                    counts[f"{kind} {'refused' if refused else 'harmless'}"] += 1
                except BaseException as error:
                    if isinstance(error, KeyboardInterrupt):
                        raise
                    counts[f"{kind} FAILED"] += 1
                    where = traceback.extract_tb(error.__traceback__)[-1]
                    said = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {str(error)[:150]}"
                    print(f"{kind} {number}: {said}", flush=True)
            print(kind, {key: n for key, n in counts.items() if key.startswith(kind)}, flush=True)
    return int(any("FAILED" in key for key in counts))


if __name__ == "__main__":
    if os.environ.get("NUMBA_BOUNDSCHECK") != "1":  # numba reads it on import
        checked = os.environ | {"NUMBA_BOUNDSCHECK": "1", "STREAMSVM_CODE": "numba"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.fuzz", *sys.argv[1:]], checked)
    raise SystemExit(main())
