"""A run over a growing file, killed, resumed and refused, against a plain model."""

from __future__ import annotations

import contextlib
import csv
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamsvm import CPMClassifier
from streamsvm.run import Run, RunConfig
from streamsvm.run.errors import RunError
from tests.faults.scenarios import unpacked

# Events: features, label or None; a string is a malformed line.
EVENTS = st.one_of(
    st.tuples(st.integers(-9, 9), st.integers(-9, 9), st.sampled_from(["up", "down", "side", None])),
    st.just("oops,1,up"),
)


class Killed(BaseException):
    """Abandons a run."""


class Plain:
    """Expected results of a run: predictions, malformed lines and joined labels.

    A model that learned all earlier labels makes each prediction.

    Late labels are those of earlier events, and each event has at most one.
    """

    def __init__(self, events: list[Any], *, is_late: bool) -> None:
        model = CPMClassifier()
        self.predictions: list[tuple[str, str, str]] = []
        self.rejected: list[str] = []
        self.joined: list[tuple[str, str]] = []
        labelled, valid = set[int](), list[int]()
        for i, event in enumerate(events):
            if isinstance(event, str):
                self.rejected.append(str(i + 2))
                continue
            a, b, label = event
            x = {"a": float(a), "b": float(b)}
            self.predictions.append((str(i + 2), model.predict_one(x) or "", "" if is_late else label or ""))
            valid.append(i)
            at = target(event, valid) if is_late else i
            if label is not None and at not in labelled:
                a, b, _ = events[at]
                model.learn_one({"a": float(a), "b": float(b)}, label)
                labelled.add(at)
                self.joined.append((f"k{at}", label))
        self.n_learned = model.n_events_learned


def target(event: Any, valid: list[int]) -> int:
    """Return the event that gets the late label."""
    return valid[(event[0] * 7 + event[1]) % len(valid)]


class FileMachine(RuleBasedStateMachine):
    """Drives runs in a directory."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.events: list[Any] = []
        self.read = 0  # bytes of the file when a run ended
        self.done: int | None = None  # valid and malformed lines that the results contain; None if unknown

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(
        events=st.lists(EVENTS, min_size=1, max_size=30),
        size=st.integers(1, 20),
        out=st.sampled_from(["out.csv", "out.csv.gz", "out.csv.zst"]),
        is_late=st.booleans(),
    )
    def begin(self, events: list[Any], size: int, out: str, is_late: bool) -> None:
        self.size, self.out, self.is_late = size, out, is_late
        (self.folder / "in.csv").write_text("a,b,id,t\n" if is_late else "a,b,y\n")
        if is_late:
            (self.folder / "labels.csv").write_text("id,y,t\n")
        self.append(events)

    # Rules ------------------------------------------------------------------------------------------------------------

    @rule(events=st.lists(EVENTS, min_size=1, max_size=30))
    def append(self, events: list[Any]) -> None:
        """The file grows, and that of late labels."""
        if self.is_late:
            self.append_late(events)
            return
        with (self.folder / "in.csv").open("a") as file:
            for event in events:
                file.write(event if isinstance(event, str) else ",".join("" if v is None else str(v) for v in event))
                file.write("\n")
        self.events += events

    def append_late(self, events: list[Any]) -> None:
        """Append events with keys and times, and labels of earlier events."""
        with (self.folder / "in.csv").open("a") as file, (self.folder / "labels.csv").open("a") as labels:
            for i, event in enumerate(events, len(self.events)):
                self.events.append(event)
                a, b, label = ("oops", 1, None) if isinstance(event, str) else event
                file.write(f"{a},{b},k{i},{1000 * i}\n")
                if label is not None:
                    valid = [at for at, one in enumerate(self.events) if not isinstance(one, str)]
                    labels.write(f"k{target(event, valid)},{label},{1000 * i + 500}\n")

    @rule(every=st.integers(1, 40))
    def finish(self, every: int) -> None:
        """A run resumes, or starts, and ends."""
        self.run(every)
        self.ended()

    @rule(every=st.integers(1, 40), at=st.integers(1, 6))
    def kill(self, every: int, at: int) -> None:
        """A run is killed after a batch: the directory is what it was then."""
        place, n = self.folder.with_name(f"{self.folder.name}-killed"), itertools.count(1)

        def observe(*_: object) -> None:
            if next(n) == at:
                shutil.copytree(self.folder, place)
                raise Killed

        with contextlib.suppress(Killed):
            self.run(every, observe)
            self.ended()
        if place.exists():
            shutil.rmtree(self.folder)
            place.rename(self.folder)
            self.done = None

    @rule(every=st.integers(1, 40))
    def start_over(self, every: int) -> None:
        """A run with --reset replaces the results."""
        self.run(every, reset=True)
        self.ended()

    @precondition(lambda self: self.is_begun)
    @rule(change=st.sampled_from([{"window": 77}, {"params": {"budget": 7}}, {"proba": True}, {"label": "a"}]))
    def change_options(self, change: dict[str, Any]) -> None:
        """Other options are refused, and change nothing."""
        self.refused(**change)

    @precondition(lambda self: self.done is not None)
    @rule(name=st.sampled_from(["out", "dead.jsonl", "in.csv"]), how=st.sampled_from(["cut", "other"]))
    def replace_file(self, name: str, how: str) -> None:
        """A file that was replaced is refused, and is accepted again when it is back."""
        path = self.folder / (self.out if name == "out" else name)
        kept = path.read_bytes()
        if not kept:
            return
        known = self.read if name == "in.csv" else len(kept)
        path.write_bytes(kept[: known // 2] if how == "cut" else b"other\n" + kept)
        if name == "dead.jsonl" and how == "other":  # JSON lines have no header that could differ
            path.write_bytes(kept)
            return
        self.refused()
        path.write_bytes(kept)

    @precondition(lambda self: self.is_begun)
    @rule()
    def damage_checkpoint(self) -> None:
        """A damaged checkpoint is refused."""
        path = self.folder / "check" / "checkpoint.safetensors"
        kept = path.read_bytes()
        path.write_bytes(kept[:-3] + bytes([kept[-3] ^ 1]) + kept[-2:])
        self.refused()
        path.write_bytes(kept)

    # Runs and results -------------------------------------------------------------------------------------------------

    def ended(self) -> None:
        """Note that a run has taken all events."""
        self.done, self.read = len(self.events), (self.folder / "in.csv").stat().st_size

    @property
    def is_begun(self) -> bool:
        """Whether there is a checkpoint."""
        return (self.folder / "check" / "checkpoint.safetensors").exists()

    def run(self, every: int = 10, observe: Any = None, **more: Any) -> None:
        """Run to the end of the file."""
        given = {"source": f"in.csv?batch_size={self.size}", "label": "y", "types": "a:number,b:number"}
        given |= {"out": self.out, "dead_letter": "dead.jsonl"}
        given |= {"model": "cpm", "checkpoint": "check", "checkpoint_every": every, "save": "model"}
        if self.is_late:
            given |= {"label_source": f"labels.csv?batch_size={self.size}", "label_output": "joined.csv", "join": "id"}
            given |= {"time": "t", "time_unit": "ms", "label_timeout": "1d"}
        with contextlib.chdir(self.folder), pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.fsync", lambda _: None)
            Run(RunConfig(**given | more), [] if observe is None else [observe]).start()

    def refused(self, **more: Any) -> None:
        """Check that a run is refused and changes nothing."""
        before = self.content()
        with pytest.raises(RunError):
            self.run(**more)
        assert self.content() == before

    def content(self) -> dict[str, bytes]:
        """Return all files, except locks of killed runs, which any run removes."""
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file() and path.suffix != ".lock")
        return {str(path): path.read_bytes() for path in files}

    @precondition(lambda self: self.done is not None)
    @invariant()
    def results_are_those_of_the_model(self) -> None:
        """Each event has one prediction, each bad line a dead letter; labels are learned."""
        plain = Plain(self.events[: self.done], is_late=self.is_late)
        assert self.rows(self.out, "line", "prediction", "" if self.is_late else "label") == plain.predictions
        rejected = (self.folder / "dead.jsonl").read_text().splitlines()
        place = "number" if self.is_late else "line"
        assert [line.rpartition(f'"{place}":')[2].rstrip("}") for line in rejected] == plain.rejected
        assert CPMClassifier.load(self.folder / "model").n_events_learned == plain.n_learned
        if self.is_late:
            assert self.rows("joined.csv", "key", "label") == plain.joined

    def rows(self, name: str, *columns: str) -> list[tuple[str, ...]]:
        """Return columns of a table of results, empty texts for a column without a name."""
        lines = unpacked(self.folder / name).decode().splitlines()
        return [tuple(row[column] if column else "" for column in columns) for row in csv.DictReader(lines)]


TestFiles = pytest.mark.slow(FileMachine.TestCase)
TestFiles.settings = settings(max_examples=8, stateful_step_count=8, phases=[Phase.generate])
