"""Index of rows: passes against brute force, damaged files, fits on disk."""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import signal
import tracemalloc
import zlib

import numpy as np
import pytest
import scipy.sparse

from streamsvm import IndexedBCD
from streamsvm.batch.metric_forest import MetricForest
from streamsvm.batch.metric_forest.blocks import INDEX_FILE, ROWS_FILE
from streamsvm.models import ArchiveError
from streamsvm.models.archive import read_archive, write_archive
from streamsvm.parameters import ParameterError
from tests.errors import raises
from tests.learners import with_constants


def clusters(n, d=12, seed=0, flipped=0.1):
    """Rows in clusters, with some wrong labels."""
    rng = np.random.default_rng(seed)
    X = 2.0 * rng.normal(size=(40, d))[rng.integers(0, 40, n)] + 0.2 * rng.normal(size=(n, d))
    y = np.where(X @ rng.normal(size=d) > 0.5, "yes", "no")
    other = np.where(y == "yes", "no", "yes")
    return X, np.where(rng.random(n) < flipped, other, y)


def batches(X, y, size=500):
    for first in range(0, X.shape[0], size):
        yield X[first : first + size], y[first : first + size]


@pytest.fixture
def small_leaves(monkeypatch):
    """Small leaves on disk, so that small data sets have many."""
    monkeypatch.setattr("streamsvm.batch.metric_forest.blocks.LEAF_BYTES", 4096)
    monkeypatch.setattr("streamsvm.batch.metric_forest.building.LEAF_BYTES", 4096)


@pytest.fixture
def on_disk(tmp_path, small_leaves):
    """Build an index and open it."""

    def make(X, y, memory=2 << 20, build=200_000, **how):
        path = tmp_path / "index"
        MetricForest.from_batches(path, batches(X, y), memory=build, **how)
        return MetricForest.open(path, memory=memory)

    return make


def rows_of(forest):
    """Return all rows of a forest, as an array."""
    parts = [matrix.X for _, matrix in forest.scan()]
    return np.concatenate([part.toarray() if scipy.sparse.issparse(part) else part for part in parts])


# The leaves ------------------------------------------------------------------------------------------------------


def test_leaves_have_the_requested_size_and_contain_each_row_once(on_disk):
    X, y = clusters(7000)
    forest = on_disk(X, y)
    sizes, leaf = np.diff(forest.starts), 43  # 4,096 bytes of rows of 96
    assert sizes.min() >= leaf
    assert sizes.max() < 4 * leaf
    np.testing.assert_array_equal(np.sort(forest.ids), np.arange(7000))
    np.testing.assert_array_equal(forest.labels, y[forest.ids])
    np.testing.assert_array_equal(rows_of(forest), X[forest.ids])


def test_a_scan_leaves_out_only_leaves_beyond_reach(on_disk):
    X, y = clusters(5000)
    forest = on_disk(X, y, build=8 << 20)
    plane = np.append(np.random.default_rng(5).normal(size=12), 0.3)
    scores = X[forest.ids] @ plane[:-1] + plane[-1]
    n_left_out = 0
    for part, matrix in forest.scan(plane, 1.0):
        if isinstance(matrix, float):
            n_left_out += 1
            assert np.all(np.abs(scores[part]) > 1.0)
            assert np.all(np.sign(scores[part]) == np.sign(matrix))
    assert n_left_out > 10


# On disk ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float64", "float32", "pixels", "sparse"])
def test_rows_are_read_unchanged_from_disk(on_disk, kind):
    X, y = clusters(3000)
    X = {
        "float64": X,
        "float32": X.astype(np.float32),
        "pixels": np.clip(40 * X + 100, 0, 255).astype(np.uint8),
        "sparse": scipy.sparse.csr_matrix(np.where(X > 1.0, X, 0.0)),
    }[kind]
    forest = on_disk(X, y)
    expected = X.toarray() if kind == "sparse" else X
    np.testing.assert_array_equal(rows_of(forest), expected[forest.ids])
    np.testing.assert_array_equal(forest.labels, y[forest.ids])
    positions, taken = forest.sample(100, np.random.default_rng(0))
    taken = taken.toarray() if kind == "sparse" else taken
    np.testing.assert_array_equal(taken, expected[forest.ids[positions]])
    if kind == "pixels":
        assert forest.blocks.sizes[: forest.n_leaves].sum() == 3000 * 12


def test_the_sample_is_uniform_over_the_rows_as_they_came(on_disk):
    X, y = clusters(20_000, 2)
    forest = on_disk(X, y, n_sample=1000)
    ids = forest.ids[forest.sample_positions]
    assert len(np.unique(ids)) == 1000
    assert np.all(np.abs(np.bincount(ids // 5000) - 250) < 70)


def test_memory_of_building_and_scanning_is_bounded(tmp_path):
    def stream():
        rng = np.random.default_rng(0)
        for _ in range(12):
            yield rng.normal(size=(1000, 100)), np.arange(1000) % 2

    tracemalloc.start()
    MetricForest.from_batches(tmp_path / "index", stream(), memory=2 << 20)
    _, peak = tracemalloc.get_traced_memory()
    assert peak < 5 << 20  # 9.6 MB of rows
    tracemalloc.reset_peak()
    forest = MetricForest.open(tmp_path / "index", memory=1 << 20)
    for _ in forest.scan():
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5 << 20


def test_a_sorted_source_serves_as_well_as_a_shuffled_one(tmp_path, small_leaves):
    X, y = clusters(6_000, 6)
    w = np.random.default_rng(5).normal(size=6)
    # For a sorted source, each tree would contain one class and one side.
    by_class = np.lexsort((X @ w, y))
    found = {}
    for name, order in {"sorted": by_class, "shuffled": np.random.default_rng(0).permutation(6_000)}.items():
        MetricForest.from_batches(tmp_path / name, batches(X[order], y[order]), memory=400_000)
        forest = MetricForest.open(tmp_path / name, memory=1 << 20)
        # Each tree contains rows from the whole source.
        for ids in np.array_split(forest.ids, 5):
            assert abs(np.median(ids) - 3_000) < 500
        model = with_constants(IndexedBCD, n_pilot=500)().fit(forest)
        found[name] = model.objective_, 1.0 - model.score(X, y)
    assert found["sorted"][0] == pytest.approx(found["shuffled"][0], rel=5e-3)
    assert found["sorted"][1] == pytest.approx(found["shuffled"][1], abs=5e-3)


def test_rows_near_the_hyperplane_that_do_not_fit_in_memory_are_read_again(on_disk, tmp_path, monkeypatch):
    X, y = clusters(6_000, 6, flipped=0.2)
    forest = on_disk(X, y)
    monkeypatch.setattr("streamsvm.batch.indexed_bcd.newton.SHRINK", 0.2)
    roomy = with_constants(IndexedBCD, n_pilot=500)().fit(forest)
    with MetricForest.open(tmp_path / "index", memory=350_000) as small:
        tight = with_constants(IndexedBCD, n_pilot=500)().fit(small)
        assert small.bytes_read > forest.bytes_read
    assert tight.objective_ == pytest.approx(roomy.objective_, rel=5e-3)
    assert tight.certificate_ <= 1e-3 * tight.objective_


def test_too_little_memory_for_row_statistics_is_refused(on_disk):
    X, y = clusters(5000)
    with raises(ParameterError, parameter="memory"):
        IndexedBCD().fit(on_disk(X, y, memory=100_000))


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        pytest.param(ROWS_FILE, lambda content: content[:-100], id="cut rows"),
        pytest.param(ROWS_FILE, lambda content: content.replace(content[5000:5008], bytes(8), 1), id="changed rows"),
        pytest.param(INDEX_FILE, lambda content: content[:-50], id="cut index"),
        pytest.param(INDEX_FILE, lambda _: b"PK, but no archive", id="foreign"),
    ],
)
def test_damaged_and_foreign_indexes_are_refused_with_the_reason(on_disk, tmp_path, file, damage):
    on_disk(*clusters(2000))
    path = tmp_path / "index" / file
    path.write_bytes(damage(path.read_bytes()))
    with raises(ArchiveError, named=file):
        for _ in MetricForest.open(tmp_path / "index").scan():
            pass
    path.unlink()
    with raises(FileNotFoundError, named=file):
        MetricForest.open(tmp_path / "index")


def test_an_index_whose_arrays_do_not_fit_is_refused_by_their_name(on_disk, tmp_path):
    on_disk(*clusters(1000))
    header, arrays = read_archive(tmp_path / "index" / INDEX_FILE)
    for name, change in (
        ("blocks", lambda values: values[1:]),
        ("blocks", lambda values: values[:, 1:]),
        ("blocks", lambda values: values * [1, 1, 1, 0, 1]),
        ("blocks", lambda values: values.astype(np.uint64)),
        ("blocks", lambda values: np.add(values, [0, 0, 1, 0, 0])),
        ("codes", lambda values: values + 2),
        ("ids", lambda values: values.astype(float)),
        ("sample", lambda values: values[:-1]),
        ("centroids", lambda values: values * np.nan),
        ("radii", lambda values: -values - 1.0),
    ):
        write_archive(tmp_path / "index" / INDEX_FILE, header, arrays | {name: change(arrays[name])})
        with raises(ArchiveError, named=name.removesuffix("s")):
            MetricForest.open(tmp_path / "index")


@pytest.mark.parametrize("at", ["starts", "columns"])
def test_a_block_with_missing_references_is_refused_whatever_its_checksum(tmp_path, at):
    X, y = clusters(1000)
    MetricForest.from_batches(tmp_path / "index", [(scipy.sparse.csr_matrix(X), y)])
    header, arrays = read_archive(tmp_path / "index" / INDEX_FILE)
    header = {key: value for key, value in header.items() if key not in ("format", "version")}
    content = bytearray((tmp_path / "index" / ROWS_FILE).read_bytes())
    offsets, rows = arrays["blocks"][:, :2].T.tolist()
    for i, (start, n_rows) in enumerate(zip(offsets, rows, strict=True)):
        changed = start + 8 if at == "starts" else start + 8 * (n_rows + 1)
        content[changed : changed + 2] = b"\xff\xff"
        end = offsets[i + 1] if i + 1 < len(offsets) else len(content)
        arrays["blocks"][i, 4] = zlib.crc32(content[start:end])
    (tmp_path / "index" / ROWS_FILE).write_bytes(content)
    write_archive(tmp_path / "index" / INDEX_FILE, header, arrays)
    with raises(ArchiveError, named=ROWS_FILE):
        IndexedBCD().fit(MetricForest.open(tmp_path / "index"))


def test_existing_files_are_not_overwritten_and_bad_batches_leave_nothing(tmp_path):
    X, y = clusters(1000)
    (tmp_path / "taken").mkdir()
    with raises(FileExistsError, named="taken"):
        MetricForest.from_batches(tmp_path / "taken", batches(X, y))
    with raises(ValueError, named=12):
        MetricForest.from_batches(tmp_path / "index", [(X, y), (X[:, :3], y)])
    many = [(X, [None] * 1000)], [(X, [math.nan] * 1000)], [(1e20 * X, y)], [(scipy.sparse.csr_matrix(1e300 * X), y)]
    for bad in ([], *many):
        with raises(ValueError):
            MetricForest.from_batches(tmp_path / "index", bad)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def build_endlessly(path, killed_at=10**6, most_bytes=resource.RLIM_INFINITY):
    """Build an index of endless batches, to be killed or to fill its disk."""

    def stream():
        rng = np.random.default_rng(0)
        for k in range(10**6):
            if k == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
            yield rng.normal(size=(2000, 50)), np.arange(2000) % 2

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    try:
        MetricForest.from_batches(path, stream(), memory=1 << 20)
    except OSError:
        os._exit(3)


def exit_code(**how):
    """Return the exit code of a build in a process of its own."""
    process = multiprocessing.get_context("fork").Process(target=build_endlessly, kwargs=how)
    process.start()
    process.join(120)
    return process.exitcode


def test_a_killed_build_leaves_no_index(tmp_path):
    assert exit_code(path=tmp_path / "index", killed_at=6) == -signal.SIGKILL
    assert not (tmp_path / "index").exists()
    left = list(tmp_path.iterdir())
    assert len(left) == 1
    assert left[0].name.endswith(".tmp")
    with pytest.raises((ArchiveError, FileNotFoundError)):
        MetricForest.open(left[0])


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path):
    assert exit_code(path=tmp_path / "index", most_bytes=3_000_000) == 3
    assert list(tmp_path.iterdir()) == []


# Sources ---------------------------------------------------------------------------------------------------------


def test_an_index_of_a_csv_file_counts_omitted_rows(tmp_path):
    rows = ["a,b,label", "1.5,2,x", "2.5,,x", "3.5,4,y", "4.5,5,", "bad,6,y,too,long", "5.5,inf,y", "6.5,7,x"]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    seen = []
    MetricForest.from_source(
        tmp_path / "index",
        str(tmp_path / "rows.csv"),
        options={"label": "label"},
        progress=lambda n, share: seen.append((n, share)),
    )
    forest = MetricForest.open(tmp_path / "index")
    order = np.argsort(forest.ids)
    assert forest.labels[order].tolist() == ["x", "y", "x"]
    np.testing.assert_array_equal(rows_of(forest)[order], [[1.5, 2.0], [3.5, 4.0], [6.5, 7.0]])
    assert seen[-1][0] == 3
    header, _ = read_archive(tmp_path / "index" / INDEX_FILE)
    assert header["rejected"] == 4


def test_an_index_of_libsvm_and_of_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    (tmp_path / "rows.libsvm").write_text("+1 1:0.5 3:2\n-1 2:1\n+1 7:4\n")
    MetricForest.from_source(tmp_path / "sparse", str(tmp_path / "rows.libsvm"))
    forest = MetricForest.open(tmp_path / "sparse")
    expected = np.zeros((3, 8))
    expected[0, [1, 3]], expected[1, 2], expected[2, 7] = (0.5, 2.0), 1.0, 4.0
    np.testing.assert_array_equal(rows_of(forest)[np.argsort(forest.ids)], expected)

    X, y = clusters(3000, 3)
    table = pyarrow.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": y})
    parquet.write_table(table, tmp_path / "rows.parquet")
    MetricForest.from_source(tmp_path / "index", str(tmp_path / "rows.parquet"), options={"label": "label"})
    forest = MetricForest.open(tmp_path / "index")
    np.testing.assert_array_equal(rows_of(forest), X[forest.ids])


def test_strings_are_refused_by_the_name_of_their_column(tmp_path):
    (tmp_path / "rows.csv").write_text("a,colour,label\n1,red,x\n2,blue,y\n")
    with raises(ValueError, named="colour"):
        MetricForest.from_source(tmp_path / "index", str(tmp_path / "rows.csv"), options={"label": "label"})
    assert not (tmp_path / "index").exists()


# Fits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_with_and_without_an_index_the_convex_solution_is_the_same(on_disk, loss):
    X, y = clusters(1500, 6)
    how = {"s": np.inf, "loss": loss, "tol": 1e-4, "max_iter": 1000}
    best = IndexedBCD(**how).fit(X, y)
    model = IndexedBCD(**how).fit(on_disk(X, y))
    assert model.objective_ == pytest.approx(best.objective_, rel=2e-4)
    assert model.certificate_ <= 1e-4 * model.objective_
    np.testing.assert_array_equal(model.classes_, best.classes_)


def test_one_index_serves_other_labels_weights_and_penalties(on_disk):
    X, y = clusters(4000, 6)
    forest = on_disk(X, y)
    rng = np.random.default_rng(1)
    others = np.where(X[:, 1] > 0.0, 2, 1)
    weights = rng.random(4000)
    for C, s in ((0.1, 1.0), (10.0, np.inf)):
        given = with_constants(IndexedBCD, n_pilot=400)(C, s).fit(forest, others, sample_weight=weights)
        plain = with_constants(IndexedBCD, n_pilot=400)(C, s).fit(X, others, sample_weight=weights)
        assert given.classes_.tolist() == [1, 2]
        assert given.objective_ == pytest.approx(plain.objective_, rel=5e-3)
        assert given.certificate_ <= 1e-3 * given.objective_
        assert given.score(X, others) == pytest.approx(plain.score(X, others), abs=0.005)
    with raises(ValueError, named=4000):
        IndexedBCD().fit(forest, others[:-1])
    with raises(ParameterError, parameter="y"):
        IndexedBCD().fit(forest, np.ones(4000))


@pytest.mark.parametrize("factor", [1.0, 0.0])
def test_rows_all_alike(on_disk, factor):
    X, _ = clusters(30, 4)
    same = factor * np.repeat(X[:1], 3000, axis=0)
    labels = np.where(np.arange(3000) % 3 == 0, "a", "b")
    forest = on_disk(same, labels)
    assert np.diff(forest.starts).max() < 2000
    assert IndexedBCD().fit(forest).predict(same[:1]) == ["b"]


def test_fewer_rows_than_a_leaf_and_three_classes(on_disk):
    X, _ = clusters(30, 4)
    y = np.where(X[:, 0] > 1.0, "a", np.where(X[:, 0] > -1.0, "b", "c"))
    model = IndexedBCD().fit(on_disk(X, y))
    assert model.coef_.shape == (3, 4)
    assert model.score(X, y) > 0.8
