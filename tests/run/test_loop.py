from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import dummy, linear_model, multiclass, naive_bayes
from river.base import Classifier

from connectors import open_sink
from connectors.errors import ConnectorError, FencedError
from connectors.events import Batch, Origins, Position, Rejected
from connectors.notices import CountNotice
from connectors.streams import Sink, Source
from streamsvm import BSGDClassifier, CPMClassifier
from streamsvm.models.archive import read_archive, write_archive
from streamsvm.run.checkpoint import Checkpoint
from streamsvm.run.errors import RunError, SetupError
from tests.errors import raises
from tests.run.conftest import run, runner_of


class Numbers(Source):
    """Events (x, y) of two linearly separable classes; some are malformed.

    Some have no label.
    """

    name = "numbers"

    def __init__(self, n: int = 1000, size: int = 64, labels: tuple[Any, Any] = ("low", "high")) -> None:
        rng = np.random.default_rng(5)
        self.x = rng.normal(size=(n, 2))
        self.labels: list[Any] = [labels[int(a + b > 0)] for a, b in self.x]
        self.size, self.at, self.unreadable, self.n = size, 0, {17, 500, 501}, n
        self.labels[33] = None

    @property
    def position(self) -> Position:
        return {"event": self.at}

    @property
    def fraction(self) -> float | None:
        return self.at / self.n

    def seek(self, position: Position) -> None:
        self.at = position["event"]

    def __iter__(self) -> Iterator[Batch]:
        while self.at < self.n:
            rows = range(self.at, min(self.at + self.size, self.n))
            self.at = rows.stop
            yield self.batch(rows)

    def batch(self, rows: range) -> Batch:
        good = [i for i in rows if i not in self.unreadable]
        rejected = [Rejected("unreadable", {"file": "n", "line": i}, f"#{i}") for i in rows if i in self.unreadable]
        features = {"x": self.x[good, 0], "y": self.x[good, 1]}
        origins = Origins({"file": "n"}, {"line": good})
        return Batch(
            features, [self.labels[i] for i in good], origins, self.position, rejected, [f"#{i}" for i in good]
        )

    def close(self) -> None: ...


class Collected(Sink):
    """A sink in memory."""

    name = "memory"

    def __init__(self, can_rewind: bool = True) -> None:
        self.can_rewind = can_rewind
        self.rows: list[dict[str, Any]] = []
        self.flushed = 0

    def write(self, table: Any) -> None:
        columns = [c.tolist() if isinstance(c, np.ndarray) else c for c in table.values()]
        self.rows += [dict(zip(table, row, strict=True)) for row in zip(*columns, strict=True)]

    def flush(self) -> None:
        self.flushed = len(self.rows)

    @property
    def position(self) -> Position:
        return {"rows": self.flushed}

    def rewind(self, position: Position) -> None:
        del self.rows[position["rows"] :]

    def close(self) -> None: ...


class Fragile(Classifier):
    """Learns the most frequent label; raises an error for given events."""

    def __init__(self, fails: Any = lambda x: False) -> None:
        self.fails = fails
        self.seen: dict[Any, int] = {}

    @property
    def _multiclass(self) -> bool:
        return True

    def predict_one(self, x: dict[Any, Any], **kwargs: Any) -> Any:
        return max(self.seen, key=lambda c: self.seen[c]) if self.seen else None

    def learn_one(self, x: dict[Any, Any], y: Any) -> None:
        if self.fails(x):
            raise KeyError("humidity")
        self.seen[y] = self.seen.get(y, 0) + 1


def test_predictions_and_rejected_events_are_written():
    out, rejected = Collected(), Collected()
    report = run(CPMClassifier(), Numbers(), out=out, dead_letter=rejected)
    assert report.ended == "end of stream"
    assert (report.metrics.taken, report.metrics.events, report.metrics.rejected) == (997, 997, 3)
    assert report.metrics.accuracy > 0.9
    assert list(out.rows[0]) == ["line", "prediction", "score", "label"]
    assert out.rows[0] == {"line": 0, "prediction": None, "score": None, "label": Numbers().labels[0]}
    assert rejected.rows[0] == {"reason": "unreadable", "raw": "#17", "file": "n", "line": 17}
    unlabelled = next(row for row in out.rows if row["line"] == 33)
    assert unlabelled["label"] is None
    assert unlabelled["prediction"] in ("low", "high")


MODELS = [CPMClassifier(), naive_bayes.GaussianNB(), dummy.NoChangeClassifier()]


@pytest.mark.parametrize("model", [*MODELS, multiclass.OneVsOneClassifier(naive_bayes.GaussianNB())], ids=repr)
def test_each_event_is_predicted_before_it_is_learned(model):
    out = Collected()
    twin = model.clone()
    run(model, Numbers(150), out=out)
    source = Numbers(150)
    for row in out.rows:
        x = dict(zip("xy", source.x[row["line"]].tolist(), strict=True))
        assert twin.predict_one(x) == row["prediction"]
        if row["prediction"] is not None:
            try:
                assert row["score"] == twin.predict_proba_one(x)[row["prediction"]]
            except NotImplementedError:
                assert row["score"] is None
        if row["label"] is not None:
            twin.learn_one(x, row["label"])


@pytest.mark.parametrize("labels", [(False, True), (0.0, 1.0), (2, 7)])
def test_two_classes_of_any_name_for_models_of_two(labels):
    out = Collected()
    report = run(linear_model.LogisticRegression(), Numbers(300, labels=labels), out=out)
    assert report.metrics.accuracy > 0.85
    kinds = {type(row["prediction"]) for row in out.rows}
    assert kinds <= {type(labels[0]), type(None)}


def test_a_third_class_for_a_model_of_two():
    source = Numbers(300)
    source.labels[200] = "between"
    with raises(RunError, reason="two classes", named="OneVsRestClassifier"):
        run(linear_model.LogisticRegression(), source)


def test_events_that_fail_in_a_foreign_model_are_rejected():
    rejected = Collected()
    report = run(Fragile(lambda x: x["x"] > 1.5), Numbers(), dead_letter=rejected)
    aside = [row for row in rejected.rows if row["reason"] == "KeyError: 'humidity'"]
    assert len(aside) == report.metrics.rejected - 3 > 10
    assert report.metrics.taken == report.metrics.events + len(aside)
    assert aside[0]["raw"] == f"#{aside[0]['line']}"


def test_a_model_that_can_take_nothing_stops_the_run():
    with raises(RunError, reason="hopeless", named="KeyError: 'humidity'"):
        run(Fragile(lambda x: True), Numbers())


def test_infinities_are_rejected_for_own_models():
    source = Numbers()
    source.x[[100, 700]] = np.inf
    out, rejected = Collected(), Collected()
    report = run(CPMClassifier(), source, out=out, dead_letter=rejected)
    assert report.metrics.rejected == 5
    assert {row["line"] for row in rejected.rows} == {17, 100, 500, 501, 700}
    assert report.metrics.events == len(out.rows) == 995


def test_invalid_labels_are_rejected():
    for model in (CPMClassifier(), naive_bayes.GaussianNB()):
        source = Numbers(300)
        source.labels[50] = ["a", "list"]
        rejected = Collected()
        report = run(model, source, dead_letter=rejected)
        assert report.metrics.rejected == 2
        assert rejected.rows[1]["reason"] == "the label is a list, not one value"


def test_no_learning():
    model = CPMClassifier()
    run(model, Numbers())
    learned, first, second = model.n_events_learned, Collected(), Collected()
    report = run(model, Numbers(), learn=False, out=first)
    run(model, Numbers(), learn=False, out=second)
    assert model.n_events_learned == learned
    assert first.rows == second.rows
    assert report.metrics.unanswered == 0


class Elector(naive_bayes.GaussianNB):
    """A model whose attribute `state` is not a state."""

    state = "Ohio"


def test_models_that_cannot_be_saved_are_refused_before_reading(tmp_path):
    for options in ({"checkpoint": Checkpoint(tmp_path)}, {"save": tmp_path / "m"}):
        with raises(SetupError, reason="not kept", named=f"--{next(iter(options))}"):
            runner_of(naive_bayes.GaussianNB(), Numbers(), **options)
    with raises(SetupError, reason="not kept", named="Elector"):
        runner_of(Elector(), Numbers(), checkpoint=Checkpoint(tmp_path))
    with raises(SetupError, reason="not seekable", option="--checkpoint"):
        runner_of(CPMClassifier(), Numbers(), out=Collected(can_rewind=False), checkpoint=Checkpoint(tmp_path))


def test_a_sink_that_is_read_along_is_flushed_at_once():
    out = Collected(can_rewind=False)
    lags = []
    observe = lambda report, fraction: lags.append(len(out.rows) - out.flushed)  # noqa: E731
    run(CPMClassifier(), Numbers(), out=out, observers=[observe])
    assert set(lags) == {0}


def test_results_are_durable_while_nothing_arrives():
    out = Collected()
    flushed = []

    class Pausing(Numbers):
        def __iter__(self):
            for batch in super().__iter__():
                yield batch
                yield self.batch(range(0))
                flushed.append(out.flushed == len(out.rows))

    run(CPMClassifier(), Pausing(200), out=out)
    assert flushed
    assert all(flushed)


def test_stopping_finishes_the_batch_in_hand(tmp_path):
    def step(source, stop_at):
        out = open_sink(str(tmp_path / "out.csv"), resume=True)
        with Checkpoint(tmp_path) as checkpoint:
            runner = runner_of(CPMClassifier(), source, out=out, checkpoint=checkpoint)
            runner.observers = [lambda report, fraction: runner.stop() if report.metrics.taken > stop_at else None]
            report = runner.run()
        out.close()
        return report

    assert step(Numbers(), 300).ended == "stopped"
    report = step(Numbers(), 10**9)
    assert report.resumed == 319  # five batches of 64 without a malformed event
    assert report.metrics.taken == 997
    assert (tmp_path / "out.csv").read_text().count("\n") == 998


# Checkpoints -----------------------------------------------------------------------------------------------------


def kept(folder: Path, *, model: Any = None, source: Any = None, fresh: bool = False, **options: Any) -> Any:
    with Checkpoint(folder, fresh=fresh) as checkpoint:
        return run(model or CPMClassifier(), source or Numbers(200), checkpoint=checkpoint, **options)


class Elsewhere(Numbers):
    name = "elsewhere"


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"model": CPMClassifier(n_faces=7)}, f"parameter n_faces was {CPMClassifier().n_faces}, now 7"),
        ({"source": Elsewhere(200)}, "source was 'numbers', now 'elsewhere'"),
        ({"out": Collected()}, "--out was not given, now 'memory'"),
        ({"label": "y"}, "--label was not given, now 'y'"),
        ({"window": 5}, "--set window was 1000, now 5"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, changed, named):
    kept(tmp_path)
    before = (tmp_path / "checkpoint.safetensors").read_bytes()
    with raises(SetupError, reason="another run", option="--reset", named=named):
        kept(tmp_path, **changed)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == before
    assert kept(tmp_path, fresh=True, **changed).resumed is None


def test_a_checkpoint_whose_model_does_not_load_is_named(tmp_path):
    kept(tmp_path)
    header, arrays = read_archive(tmp_path / "checkpoint.safetensors")
    write_archive(
        tmp_path / "checkpoint.safetensors", header, {k: a for k, a in arrays.items() if k != "model.n_classes"}
    )
    with raises(SetupError, reason="checkpoint", option="--reset", named="CPMClassifier"):
        kept(tmp_path)


def test_a_model_outlives_the_error_that_ends_its_run(tmp_path):
    class Rotated(Numbers):
        def __iter__(self):
            yield from list(super().__iter__())[:5]
            raise ConnectorError("numbers: was rotated")

    with raises(ConnectorError, named="was rotated"):
        run(CPMClassifier(), Rotated(), save=tmp_path / "m")
    run(CPMClassifier(), Numbers(), save=tmp_path / "twin", max_events=319)
    assert (tmp_path / "m").read_bytes() == (tmp_path / "twin").read_bytes()
    with raises(RunError, named=tmp_path / "no" / "m") as caught:
        run(CPMClassifier(), Rotated(), save=tmp_path / "no" / "m")
    assert isinstance(caught.value.__cause__, ConnectorError)


@pytest.mark.parametrize(
    ("error", "raised", "reason"),
    [
        (ConnectorError("numbers: has been shortened"), SetupError, "checkpoint"),
        (FencedError("numbers: fenced off", "fenced"), ConnectorError, "fenced"),  # as later, not an error of settings
    ],
)
def test_a_source_that_cannot_seek(tmp_path, error, raised, reason):
    class Gone(Numbers):
        def seek(self, position):
            raise error

    kept(tmp_path)
    with raises(raised, reason=reason, named=str(error)):
        kept(tmp_path, source=Gone())


def test_a_resumed_run_reports_the_warnings_from_before(tmp_path):
    class Warned(Numbers):
        notices = ("numbers: the first half is odd",)

    assert kept(tmp_path, source=Warned(200), max_events=100).notices == [*Warned.notices]
    report = kept(tmp_path)
    assert (report.resumed, report.notices, report.source_notices) == (100, [*Warned.notices], [*Warned.notices])


def test_a_resumed_run_reports_a_count_once(tmp_path):
    class Counting(Numbers):
        @property
        def notices(self):
            return [CountNotice(f"{self.at} read")]

    first = kept(tmp_path, source=Counting(200), max_events=100)
    last = kept(tmp_path, source=Counting(200))
    assert (len(first.notices), last.notices) == (1, ["200 read"])


# Part of a batch -------------------------------------------------------------------------------------------------


def stretch(folder: Path, max_events: int | None, source: Any = None, url: str = "out.csv", **options: Any) -> Any:
    """One process of a run with samples, and with batches beyond its limit."""
    folder.mkdir(exist_ok=True)
    with Checkpoint(folder / "check", every_events=1_000_000, every_s=None) as checkpoint:
        out = open_sink(str(folder / url), resume=checkpoint.exists)
        kept = {"out": out, "checkpoint": checkpoint, "max_events": max_events, "save": folder / "m"}
        report = run(BSGDClassifier(budget=10), source or Numbers(1400, size=400), **kept, **options)
        out.close()
        return report


DECIDED = {
    "url": "out.csv?rotate_bytes=9000",
    **{"coverage": 0.8, "coverage_by_class": True, "proba": True, "explain": 1},
    **{"cost": {"low": {"high": 3.0}}, "abstain": 0.4, "alarms": "high=0.1"},
}


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("options", [{}, DECIDED], ids=["plain", "decided"])
def test_a_bounded_run_ends_with_a_checkpoint(tmp_path, options):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    uninterrupted, before = stretch(whole, None, **options), 0
    for limit in (17, 18, 18, 400, 501, 799, 1199, 1200, 1201, 5000):
        report = stretch(parts, limit, **options)
        taken = min(limit, 1397)
        assert (report.metrics.taken, report.resumed, report.events) == (taken, before or None, taken - before)
        before = taken
    last = stretch(parts, None, **options)
    assert (last.resumed, last.events) == (before, 0)
    found, expected = (
        {
            path.relative_to(folder): path.read_bytes()
            for path in (folder / "m", *folder.rglob("*.csv"))
            if path.is_file()
        }
        for folder in (parts, whole)
    )
    assert found == expected
    assert len(found) > 5 if options else len(found) == 2
    (header, arrays), (other, others) = (
        read_archive(folder / "check" / "checkpoint.safetensors") for folder in (parts, whole)
    )
    assert header | {"identity": ""} == other | {"identity": ""}
    assert all(np.array_equal(arrays[name], others[name]) for name in arrays | others)
    assert last.metrics.rejected == uninterrupted.metrics.rejected


class Growing(Numbers):
    """A stream of unknown length, in batches of any size."""

    @property
    def fraction(self) -> float | None:
        return None

    def __iter__(self) -> Iterator[Batch]:
        for batch in super().__iter__():
            self.size = 1 + 3 * self.size % 700
            yield batch


def test_samples_do_not_depend_on_batches(tmp_path):
    found = []
    for size in (5, 640):
        stretch(tmp_path / str(size), None, Growing(3000, size=size))
        header, arrays = read_archive(tmp_path / str(size) / "check" / "checkpoint.safetensors")
        found.append({name: array.tolist() for name, array in arrays.items() if name.startswith("history.")})
        found[-1] |= header["history"]
    assert len(found[0]["samples"]) == 11
    assert found[0] == found[1]


class Woven(Numbers):
    """Two parts with event counts of their own, interleaved at random."""

    name = "woven"
    salt = 0

    def __iter__(self) -> Iterator[Batch]:
        rng = np.random.default_rng(Woven.salt)
        Woven.salt += 1
        while self.left():
            yield self.next_batch([int(rng.integers(2)) for _ in range(self.size)])

    def left(self) -> bool:
        return self.next != [self.n, self.n]

    def next_batch(self, parts: list[int]) -> Batch:
        rows, rejected = [], []
        for part in parts:
            if self.next[part] < self.n:
                number = self.next[part]
                self.next[part] += 1
                if number % 13 == 5:
                    rejected.append(Rejected("unreadable", {"partition": part, "offset": number}))
                else:
                    rows.append((part, number))
        columns = {"partition": [part for part, _ in rows], "offset": [number for _, number in rows]}
        features = {"x": np.array([float(number % 7) for _, number in rows])}
        return Batch(features, [number % 7 > 3 for _, number in rows], Origins({}, columns), self.position, rejected)

    @property
    def next(self) -> list[int]:
        self.__dict__.setdefault("_next", [0, 0])
        found: list[int] = self.__dict__["_next"]
        return found

    @property
    def position(self) -> Position:
        return {"next": list(self.next)}

    def seek(self, position: Position) -> None:
        self.next[:] = position["next"]


def test_the_rest_of_a_batch_is_found_by_origin_if_the_order_changes(tmp_path):
    for limit in (100, 150, 151, 333, None):
        stretch(tmp_path, limit, Woven(300, size=64))
        rows = [line.split(",")[:2] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
        assert len({tuple(row) for row in rows}) == len(rows) == (limit or 600 - 2 * 23)
