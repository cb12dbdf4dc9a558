"""Columns of named features, for all forms of input."""

from __future__ import annotations

import math
import pickle
import random
import warnings
from collections import Counter, OrderedDict, defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import example, given, settings
from hypothesis import strategies as st

from connectors.events import SparseRows
from streamsvm import CPMClassifier
from streamsvm.features import known_features as encoding_of_events
from streamsvm.features.rows import BadRows, EncodedRows
from streamsvm.features.scaler import LARGEST
from streamsvm.features.space import TABLED, FeatureSpace
from tests.choices import each_choice
from tests.errors import raises
from tests.learners import Color, csr, dicts

NAN = math.nan


def encode(space: FeatureSpace, X: Any, learn: Any = True) -> list[dict[Any, float]]:
    """Return rows as names and values, without missing ones."""
    if learn is True:
        learn = [True] * (X.shape[0] if hasattr(X, "shape") else len(X))
    return named(space, space.encode(X, learn))


def named(space: FeatureSpace, rows: EncodedRows) -> list[dict[Any, float]]:
    out = []
    for start, end in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        columns = rows.columns[: end - start] if rows.shared else rows.columns[start:end]
        assert (np.diff(columns) > 0).all()  # ascending, without duplicates
        values = rows.values[start:end]
        pairs = zip(columns, values.tolist(), strict=True)
        out.append({space.names[column]: value for column, value in pairs if not math.isnan(value)})
    return out


def one(event: Any) -> dict[Any, float]:
    return encode(FeatureSpace(100), [event])[0]


def test_parts_of_rows_are_rows():
    X = np.arange(12.0).reshape(6, 2)
    X[2, 1] = NAN
    dense, events = {0: X[:, 0], 1: X[:, 1]}, [{0: float(i)} if i % 2 else {0: float(i), "b": 1.0} for i in range(6)]
    for form in (dense, events):
        space = FeatureSpace(100)
        rows = space.encode(form, [True] * 6)
        whole = named(space, rows)
        for start, end in ((0, 6), (2, 5), (3, 3), (6, 6), (4, 99)):
            part = rows.part(start, end)
            assert len(part) == len(whole[start:end])
            assert named(space, part) == whole[start:end]
            assert part.shared == rows.shared
            assert np.shares_memory(part.values, rows.values) or not len(part)


# Values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (2.5, 2.5),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.int8(-4), -4.0),
        (np.bool_(True), 1.0),
        (Decimal("0.25"), 0.25),
        (Fraction(1, 2), 0.5),
        (2**70, 2.0**70),
        (LARGEST, LARGEST),
    ],
    ids=repr,
)
def test_all_kinds_of_numbers_are_accepted(value, number):
    assert one({"a": value}) == {"a": number}


@pytest.mark.parametrize("value", [None, NAN, np.float32("nan"), np.float64("nan"), pd.NA, pd.NaT], ids=repr)
def test_missing_values_are_as_an_absent_name(value):
    space = FeatureSpace(100)
    assert encode(space, [{"a": value, "b": 1.0}]) == [{"b": 1.0}]
    assert space.names == ["b"]


def test_strings_are_one_hot():
    space = FeatureSpace(100)
    rows = encode(space, [{"color": "red"}, {"color": np.str_("blue")}, {"color": ""}, {"color": "red", "form": "red"}])
    red, blue, empty, form = ("color", "red"), ("color", "blue"), ("color", ""), ("form", "red")
    assert rows == [{red: 1.0}, {blue: 1.0}, {empty: 1.0}, {red: 1.0, form: 1.0}]
    assert space.is_indicator == [True] * 4


def test_a_name_may_change_between_number_and_string():
    space = FeatureSpace(100)
    rows = encode(space, [{"a": 1.5}, {"a": "high"}, {"a": 2}, {"a": None}, {"a": "1.5"}])
    assert rows == [{"a": 1.5}, {("a", "high"): 1.0}, {"a": 2.0}, {}, {("a", "1.5"): 1.0}]
    assert space.is_indicator == [False, True, True]


@pytest.mark.parametrize("name", [1, "1", 1.5, (1, "a"), None, True, frozenset({1})], ids=repr)
def test_names_are_of_any_hashable_type(name):
    assert one({name: 2.0}) == {name: 2.0}


@pytest.mark.parametrize(
    ("value", "error", "reason"),
    [
        (math.inf, ValueError, "infinite"),
        (np.float32("-inf"), ValueError, "infinite"),
        (10**400, ValueError, "infinite"),
        (1.0001e100, ValueError, "too large"),
        ([1.0], TypeError, "of type list"),
        (1j, TypeError, "of type complex"),
    ],
    ids=repr,
)
def test_useless_values_are_refused_by_name_without_effect(value, error, reason):
    space = FeatureSpace(100)
    with raises(error, named=f"'a' is {reason}"):
        space.encode_event({"first": 1.0, "a": value}, learn=True)
    with raises(BadRows, named=f"'a' is {reason}") as bad:
        space.encode([{"b": 1.0}, {"c": 1.0, "a": value}], [True, True])
    assert list(bad.value.rows) == [1]
    assert space.names == []


def test_rows_that_are_no_mappings_are_refused():
    with raises(BadRows, named="tuple") as bad:
        FeatureSpace(9).encode([{"a": 1.0}, (1.0, 2.0)], [True, True])
    assert list(bad.value.rows) == [1]
    with raises(TypeError, named="ndarray"):
        CPMClassifier().learn_one(np.ones(2), 0)


def test_all_bad_rows_are_reported_at_once():
    events = [{"a": math.inf if i % 2 else 1.0} for i in range(10)]
    X = np.array([[event["a"]] for event in events])
    for rows in (events, X, scipy.sparse.csr_array(X), pd.DataFrame(X, columns=["a"]), {"a": X[:, 0]}):
        with pytest.raises(BadRows) as error:
            FeatureSpace(9).encode(rows, [True] * 10)
        assert sorted(error.value.rows) == [1, 3, 5, 7, 9]
    received = pickle.loads(pickle.dumps(error.value))  # as from a worker process
    assert (str(received), received.rows) == (str(error.value), error.value.rows)


# Columns ---------------------------------------------------------------------------------------------------------


def test_names_of_one_event_have_an_order_of_their_own():
    """Integers by value, then other names by their repr."""
    for names in (["b", 10, "a", 9, (1,)], [(1,), "a", 9, "b", 10]):
        space = FeatureSpace(100)
        encode(space, [dict.fromkeys(names, 1.0)])
        assert space.names == [9, 10, "a", "b", (1,)]


names = st.sampled_from(["a", "b", "c", 1, 2, 10])
values = st.one_of(st.none(), st.floats(-5, 5), st.just(NAN), st.integers(-2, 2), st.sampled_from(["x", "y"]))
streams = st.lists(st.dictionaries(names, values), max_size=12)
learned = st.lists(st.booleans(), min_size=24, max_size=24)


@given(streams, streams, st.integers(1, 8), learned, st.booleans(), st.randoms(use_true_random=False))
@example([{"a": None, "b": 0.0}] * 2, [], 1, [False, True], False, random.Random(0))
def test_a_list_of_events_is_encoded_like_single_events_with_names_in_any_order(
    events, later, cap, learn, categories, seed
):
    kept = ("a", "b", "c", 1, 2, 10) if categories else ()
    many, single = FeatureSpace(cap, kept), FeatureSpace(cap, kept)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in (events, later, events + later):  # known columns use a shorter path
            rows = named(many, many.encode(part, learn[: len(part)]))
            shuffled = [dict(seed.sample(list(event.items()), len(event))) for event in part]
            pairs = [single.encode_event(event, one) for event, one in zip(shuffled, learn, strict=False)]
            assert rows == [{single.names[j]: x for j, x in zip(*pair, strict=True) if x == x} for pair in pairs]
    assert (many.names, many.n_refused, many.texts.watched) == (single.names, single.n_refused, single.texts.watched)


@pytest.mark.parametrize("first", [0, TABLED - 20, 1 << 60], ids=["small", "about as large as tabled", "large"])
def test_sparse_rows_are_as_events_whatever_their_names(first):
    rng = np.random.default_rng(1)
    X = scipy.sparse.random_array((30, 80), density=0.6, rng=rng, format="csr")
    X.data[::7] = NAN
    sparse = SparseRows(X.indptr.astype(np.int64), X.indices.astype(np.int64) + first, X.data)
    events = [dict(zip(sparse.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True)) for a, b in pairwise(X.indptr)]
    learn = (rng.random(30) < 0.7).tolist()
    for known in ([], [first + 50, first + 7, float(first + 3)]):
        many, single = FeatureSpace(70), FeatureSpace(70)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for space in (many, single):
                space.encode([dict.fromkeys(known, 1.0)], [True])
            rows = [many.encode(sparse, learn) for _ in range(2)]  # everything is known the second time
            pairs = [single.encode_event(event, one) for event, one in zip(events, learn, strict=True)]
            pairs = [single.encode_event(event, one) for event, one in zip(events, learn, strict=True)]
        expected = [{single.names[j]: x for j, x in zip(*pair, strict=True) if x == x} for pair in pairs]
        assert named(many, rows[1]) == expected
        assert (many.names, many.n_refused) == (single.names, single.n_refused)


@pytest.mark.parametrize("indptr", [[1, 2, 3], [0, 2, 1], [0, 2, 4]])
def test_sparse_rows_whose_starts_do_not_fit_are_refused(indptr):
    with raises(ValueError):
        FeatureSpace(9).encode(SparseRows(np.array(indptr), np.arange(3), np.ones(3)), [True, True])


long_names = st.one_of(st.integers(0, 99), st.sampled_from([f"n{i}" for i in range(99)]))
long_values = st.one_of(st.floats(-5, 5), st.integers(-2, 2), st.booleans(), st.just(NAN), st.just(None), st.just("x"))


@settings(max_examples=20)
@given(
    st.lists(st.tuples(st.dictionaries(long_names, long_values, min_size=20), st.booleans()), max_size=4),
    st.integers(1, 120),
)
def test_long_events_are_encoded_as_short_ones_are(events, cap):
    long, short = FeatureSpace(cap), FeatureSpace(cap)
    with warnings.catch_warnings(), patch.object(encoding_of_events, "LONG", 20):
        warnings.simplefilter("ignore")
        for x, learn in events:
            columns, values = long.encode_event(x, learn)
            with patch.object(encoding_of_events, "LONG", math.inf):
                other = short.encode_event(x, learn)
            assert columns.tolist() == other[0].tolist()
            np.testing.assert_array_equal(values, other[1])
    assert (long.names, long.n_refused) == (short.names, short.n_refused)


def test_a_long_event_predicted_and_learned_sees_names_that_came_in_between():
    space = FeatureSpace(100)
    event = {f"n{i}": float(i) for i in range(50)}
    assert space.encode_event(event, learn=False)[0].tolist() == []
    space.encode_event({"n7": 1.0}, learn=True)
    assert space.encode_event(event, learn=False)[1].tolist() == [7.0]
    assert len(space.encode_event(event, learn=True)[0]) == len(space.encode_event(event, learn=False)[0]) == 50


def test_only_learned_rows_bring_names():
    space = FeatureSpace(100)
    assert encode(space, [{"a": 1.0, "s": "x"}], learn=None) == [{}]
    assert encode(space, np.ones((1, 3)), learn=[False]) == [{}]
    assert encode(space, scipy.sparse.eye_array(2), learn=[False, True]) == [{}, {1: 1.0}]
    assert space.names == [1]


# Maximum number of columns ---------------------------------------------------------------------------------------

CAPPED = np.array([[NAN, 2.0, NAN, NAN], [1.0, 2.0, 3.0, NAN], [1.0, 2.0, 3.0, 4.0], [NAN, NAN, 3.0, 4.0]])


def capped_forms() -> list[Any]:
    sparse = csr(CAPPED)
    return [
        pytest.param(dicts(CAPPED), id="dicts"),
        pytest.param(CAPPED, id="array"),
        pytest.param(CAPPED.astype(object), id="array of objects"),
        pytest.param(pd.DataFrame(CAPPED), id="pandas"),
        pytest.param({j: CAPPED[:, j] for j in range(4)}, id="table"),
        pytest.param(sparse, id="csr"),
        pytest.param(SparseRows(sparse.indptr, sparse.indices, sparse.data), id="sparse rows"),
    ]


@pytest.mark.parametrize("X", capped_forms())
def test_names_beyond_the_limit_are_refused_and_counted_in_all_formats(X):
    space = FeatureSpace(2)
    with pytest.warns(RuntimeWarning) as caught:
        rows = named(space, space.encode(X, [True] * 4))
    assert space.names == [1, 0]
    assert rows == [{1: 2.0}, {0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}, {}]
    assert space.n_refused == 5
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it warns once
        space.encode(X, [True] * 4)
        space.encode(X, [False] * 4)
        space.encode(X)
    assert space.n_refused == 10


def test_strings_count_against_the_cap():
    space = FeatureSpace(2)
    with pytest.warns(RuntimeWarning):
        rows = encode(space, [{"s": "x"}, {"s": "y"}, {"s": "z"}, {"s": "x", "n": 1.0}])
    assert rows == [{("s", "x"): 1.0}, {("s", "y"): 1.0}, {}, {("s", "x"): 1.0}]
    assert space.n_refused == 2


# Identifiers -----------------------------------------------------------------------------------------------------

DAY = datetime(2024, 5, 31)


def strings_of(space: FeatureSpace, strings: list[str], name: Any = "a") -> list[bool]:
    """Return whether each event of these strings, in order, has a column of its own."""
    return [len(space.encode_event({name: string}, learn=True)[0]) > 0 for string in strings]


def test_a_name_under_which_nearly_every_string_is_new_is_left_out(caplog):
    space = FeatureSpace(10_000)
    listed = strings_of(space, [f"id-{i}" for i in range(1000)])
    assert sum(listed) == len(space) == 40
    assert space.left_out == {"a": "identifiers"}
    (record,) = caplog.records
    for text in ("feature 'a' is left out", "--types a:category", "categories=('a',)"):
        assert text in record.getMessage()
    assert strings_of(space, ["id-3"]) == [False]  # not even strings that had a column
    assert encode(space, [{"a": "id-3", "b": 1.0}, {"a": 2.0}]) == [{"b": 1.0}, {"a": 2.0}]


@pytest.mark.parametrize("strings", [["red", "Red", "blue"], ["blue", "red", "red "]])
def test_texts_that_differ_only_in_spelling_are_reported_once(strings, caplog):
    space = FeatureSpace(10_000)
    strings_of(space, strings * 100)
    assert "feature 'a' has the texts 'red' and " in "".join(space.notices()) == caplog.messages[0]
    assert len(caplog.records) == 1
    strings_of(declared := FeatureSpace(10_000, categories=["a"]), strings * 100)
    assert (len(caplog.records), declared.notices()) == (1, [])


def test_free_text_and_names_with_spaces_are_reported_with_a_remedy(caplog):
    space = FeatureSpace(10_000)
    strings_of(space, [f"call {i} now" for i in range(1000)], "the text")
    (record,) = caplog.records
    assert "word" in record.getMessage()
    assert "--types 'the text':category" in record.getMessage()


@pytest.mark.parametrize("make", [datetime.isoformat, str, lambda t: t.date().isoformat(), lambda t: f"{t}+02:00"])
def test_recurring_times_are_left_out(make, caplog):
    space = FeatureSpace(10_000)
    listed = strings_of(space, [make(DAY + timedelta(hours=i // 2)) for i in range(100)])
    assert listed == [True] * 40 + [False] * 60
    assert space.left_out == {"a": "times"}
    assert "--types a:time" in caplog.text


@pytest.mark.parametrize(
    "strings",
    [
        [f"{i:08}" for i in range(2024_0101, 2024_0131)],
        ["1234-5", "1234-6"] * 20,
        [(DAY + timedelta(i)).isoformat() for i in range(39)] + ["never"],
    ],
    ids=["digits", "dashes", "all but one"],
)
def test_invalid_times_are_none(strings):
    space = FeatureSpace(10_000)
    strings_of(space, strings)
    assert space.left_out == {}


@pytest.mark.parametrize("n", [2, 200])
def test_recurring_categories_are_kept_at_any_number(n, caplog):
    space, seeded = FeatureSpace(10_000), random.Random(n)
    strings_of(space, [f"c{seeded.randrange(n)}" for _ in range(30 * n)])
    assert (space.left_out, space.texts.watched) == ({}, {})
    assert len(space) == n
    assert not caplog.records


def test_categories_that_turn_into_identifiers_are_left_out():
    space = FeatureSpace(10_000)
    strings_of(space, ["none"] * 300 + [f"id-{i}" for i in range(2000)])
    assert space.left_out == {"a": "identifiers"}
    assert len(space) < 200


def test_predicted_events_do_not_count():
    space = FeatureSpace(10_000)
    for i in range(1000):
        space.encode_event({"a": f"id-{i}"}, learn=i < 60)
    assert space.left_out == {}
    assert space.texts.watched["a"].seen == 60


def test_monitoring_of_names_continues_with_restored_columns():
    strings = [f"id-{i}" for i in range(600)]
    whole = FeatureSpace(10_000)
    strings_of(whole, strings)
    for cut in (1, 39, 40, 41, 499, 500, 550):
        one, other = FeatureSpace(10_000), FeatureSpace(10_000)
        strings_of(one, strings[:cut])
        other.restore(one.names, one.is_indicator, one.left_out)
        other.texts.restore_watched(one.texts.watched)
        strings_of(other, strings[cut:])
        assert (other.names, other.left_out, other.texts.watched) == (whole.names, whole.left_out, whole.texts.watched)


# Arrays ----------------------------------------------------------------------------------------------------------


@each_choice(
    ("dtype", ["f8", "f4", "f2", ">f8", "i8", "u1", "i2", "bool", object, "longdouble"]), ("order", ["C", "F"])
)
def test_arrays_of_all_kinds_of_numbers_are_accepted(dtype, order):
    X = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype, order=order)
    X.setflags(write=False)
    rows = encode(FeatureSpace(9), X)
    assert rows == [{0: 0.0, 1: 1.0, 2: 1.0}, {0: 1.0, 1: 0.0, 2: 1.0}]


def test_views_of_arrays_are_accepted():
    X = np.arange(24.0).reshape(4, 6)
    assert encode(FeatureSpace(9), X[::-2, 1::2]) == [{0: 19.0, 1: 21.0, 2: 23.0}, {0: 7.0, 1: 9.0, 2: 11.0}]


def test_masked_cells_are_missing():
    X = np.ma.masked_array([[1, 2], [3, 4]], [[True, False], [False, False]])
    assert encode(FeatureSpace(9), X) == [{1: 2.0}, {0: 3.0, 1: 4.0}]


def test_arrays_of_strings_and_objects_are_accepted():
    rows = encode(FeatureSpace(9), np.array([["a", "b"], ["c", "b"]]))
    assert rows == [{(0, "a"): 1.0, (1, "b"): 1.0}, {(0, "c"): 1.0, (1, "b"): 1.0}]
    assert encode(FeatureSpace(9), np.array([[1, "b"], [None, NAN]], object)) == [{0: 1.0, (1, "b"): 1.0}, {}]


@pytest.mark.parametrize("X", [np.zeros(3), np.zeros((2, 2, 2)), np.array(1.0)], ids=["1", "3", "0"])
def test_arrays_have_two_dimensions(X):
    with raises(ValueError, named="shape"):
        FeatureSpace(9).encode(X)


def test_the_data_given_are_never_written_to_nor_kept():
    X = np.array([[1.0, NAN], [2.0, 3.0]])
    before = X.copy()
    model = CPMClassifier()
    model.learn_many(X, [0, 1])
    np.testing.assert_array_equal(X, before)
    expected = model.predict_proba_many(before)
    X[:] = 99.0
    np.testing.assert_array_equal(model.predict_proba_many(before), expected)


# Sparse matrices -------------------------------------------------------------------------------------------------


@each_choice(
    ("kind", ["csr", "csc", "coo", "lil", "dok", "bsr"]), ("form", [scipy.sparse.csr_array, scipy.sparse.csr_matrix])
)
def test_sparse_matrices_of_all_kinds_are_accepted(kind, form):
    X = form(np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])).asformat(kind)
    assert encode(FeatureSpace(9), X) == [{1: 2.0}, {}, {0: 1.0, 2: 3.0}]


def test_unsorted_and_repeated_entries_are_put_in_order_and_summed_without_touching_the_matrix():
    X = scipy.sparse.csr_array((np.array([1.0, 2.0, 4.0, 8.0]), np.array([2, 0, 2, 1]), np.array([0, 3, 4])), (2, 3))
    space = FeatureSpace(9)
    assert encode(space, X) == [{0: 2.0, 2: 5.0}, {1: 8.0}]
    assert space.names == [0, 2, 1]
    assert X.indices.tolist() == [2, 0, 2, 1]


@pytest.mark.parametrize(
    "rows", [[{NAN: 1.0}], [{pd.NA: 1.0}], pd.DataFrame({np.nan: [1.0]})], ids=["events", "NA", "frame"]
)
def test_a_name_that_equals_nothing_is_refused(rows):
    with raises(ValueError, named="NaN"):
        FeatureSpace(9).encode(rows, learn=[True])


def test_stored_zeros_are_values_and_stored_nan_is_missing():
    X = scipy.sparse.csr_array((np.array([0.0, NAN]), np.array([0, 1]), np.array([0, 2])), (1, 3))
    space = FeatureSpace(9)
    assert encode(space, X) == [{0: 0.0}]
    assert space.names == [0]


def test_long_rows_are_laid_out_in_order_of_columns():
    names = np.random.default_rng(0).permutation(70_000)
    space = FeatureSpace(len(names))
    space.encode(SparseRows(np.arange(len(names) + 1), names, np.ones(len(names))), np.ones(len(names), bool))
    for every in (500, 50):  # few entries and many are sorted in different ways
        row = np.append(np.sort(names[::every]), len(names))  # the last one is unknown
        rows = space.encode(SparseRows(np.array([0, 3, 3, len(row)]), row, row.astype(float)))
        assert rows.indptr.tolist() == [0, 3, 3, len(row) - 1]
        assert (np.diff(rows.columns[:3]) > 0).all()
        assert (np.diff(rows.columns[3:]) > 0).all()
        assert names[rows.columns].tolist() == rows.values.tolist()


# Tables and frames -----------------------------------------------------------------------------------------------

CELLS: dict[str, list[Any]] = {
    "i": [1, None, 3],
    "f": [0.5, None, -1.5],
    "b": [True, None, False],
    "s": ["x", None, "y"],
    "c": ["p", "q", None],
}
EVENTS = [{name: column[i] for name, column in CELLS.items()} for i in range(3)]

FRAMES = {
    "pandas with nullable types": lambda: pd.DataFrame(CELLS).convert_dtypes().astype({"c": "category"}),
    "pandas with arrow types": lambda: (
        pd.DataFrame(CELLS).convert_dtypes(dtype_backend="pyarrow").astype({"c": "category"})
    ),
    "pandas as it guesses": lambda: pd.DataFrame(CELLS),
    "pandas of objects": lambda: pd.DataFrame(CELLS, dtype=object),
    "polars": lambda: pl.DataFrame(CELLS),
    "polars with categories": lambda: pl.DataFrame(CELLS).with_columns(
        pl.col("c").cast(pl.Categorical), pl.col("s").cast(pl.Enum(["x", "y"])), pl.col("i").cast(pl.UInt8)
    ),
    "polars with wide integers": lambda: pl.DataFrame(CELLS).with_columns(pl.col("i").cast(pl.Int128)),
    "pyarrow": lambda: pa.table(CELLS),
    "pyarrow with dictionaries": lambda: pa.table({**CELLS, "c": pa.array(CELLS["c"]).dictionary_encode()}),
    "table of lists": lambda: dict(CELLS),
    "table of arrays": lambda: {
        "i": np.array([1.0, NAN, 3.0]),
        "f": np.array([0.5, NAN, -1.5], np.float32),
        **{name: np.array(CELLS[name], object) for name in "bsc"},
    },
    "table of series": lambda: dict(pd.DataFrame(CELLS).items()),
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
def test_frames_are_encoded_like_events(make):
    frame, events = FeatureSpace(100), FeatureSpace(100)
    rows = frame.encode(make(), [True, True, False])
    assert named(frame, rows) == encode(events, EVENTS, [True, True, False])
    assert frame.names == events.names
    assert frame.is_indicator == events.is_indicator


def test_a_list_of_several_types_keeps_them():
    rows = encode(FeatureSpace(9), {"a": [1, "1", True, None]}, [True] * 4)
    assert rows == [{"a": 1.0}, {("a", "1"): 1.0}, {"a": 1.0}, {}]


@pytest.mark.parametrize(
    "column", [np.zeros((2, 2)), 1.0, "red", [[1], [2]]], ids=["two dimensions", "number", "text", "lists"]
)
def test_other_types_than_tables_are_refused(column):
    with raises((TypeError, ValueError), named="'a'"):
        FeatureSpace(9).encode({"a": column}, None)


@pytest.mark.parametrize(
    "X", [5, "text", pd.Series([1.0]), pl.Series([1.0]), pa.array([1.0]), iter([])], ids=lambda X: type(X).__name__
)
def test_rows_of_another_type_are_refused_with_the_accepted_types(X):
    with pytest.raises(TypeError):
        FeatureSpace(9).encode(X)


EMPTY = {
    "list": [],
    "array": np.zeros((0, 3)),
    "array without columns": np.zeros((0, 0)),
    "csr": scipy.sparse.csr_array((0, 3)),
    "sparse rows": SparseRows(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0)),
    "pandas": pd.DataFrame({"a": []}),
    "pandas without columns": pd.DataFrame(),
    "pyarrow": pa.table({"a": []}),
    "table without columns": {},
}


@pytest.mark.parametrize("X", EMPTY.values(), ids=EMPTY)
def test_no_rows_are_no_trouble(X):
    space = FeatureSpace(9)
    assert len(space.encode(X, [])) == 0
    assert len(space.encode(X)) == 0
    assert space.names == []
    model = CPMClassifier()
    model.learn_many(X, [])
    model.learn_one({"a": 1.0}, 0)
    model.learn_many(X, [])
    assert len(model.predict_many(X)) == 0
    assert len(model.test_then_train(X, [])) == 0


@pytest.mark.parametrize(
    "X", [np.ones((3, 0)), [{}, {}, {}], scipy.sparse.csr_array((3, 2))], ids=["array", "dicts", "csr"]
)
def test_rows_without_features_are_rows(X):
    model = CPMClassifier()
    assert model.test_then_train(X, ["a", "a", "b"]).tolist() == [None, "a", "a"]


@pytest.mark.parametrize("n_labels", [0, 1, 3])
def test_different_numbers_of_rows_and_labels_have_no_effect(n_labels):
    events = [{"a": 1.0}, {"b": 1.0}]
    for X in (events, np.eye(2), scipy.sparse.eye_array(2), pd.DataFrame(np.eye(2)), pl.DataFrame({"s": ["x", "y"]})):
        space = FeatureSpace(9)
        with raises(ValueError, named=f"{n_labels} labels"):
            space.encode(X, [True] * n_labels)
        assert space.names == []


# The fast path of single events ----------------------------------------------------------------------------------


def learned() -> CPMClassifier:
    model = CPMClassifier()
    for i in range(20):
        model.learn_one({"a": float(i % 3), "b": float(i % 5)}, i % 2)
    return model


@pytest.mark.parametrize("make", [Counter, OrderedDict, lambda x: defaultdict(float, x)])
def test_mappings_with_default_values_are_read_by_their_keys(make):
    """A Counter, as returned by River's BagOfWords, has a value for every name."""
    plain, other = learned(), learned()
    for names in (("a", "z"), ("z", "y"), ("a", "b"), ("b",)):
        x, made = dict.fromkeys(names, 2), make(dict.fromkeys(names, 2))
        assert plain.predict_proba_one(x) == other.predict_proba_one(made)
        assert plain.predict_one(x) == other.predict_one(made)
        plain.learn_one(x, 1)
        other.learn_one(made, 1)
        assert made == x
    assert plain.state()[0]["names"] == other.state()[0]["names"]
    np.testing.assert_array_equal(plain.state()[1]["weights"], other.state()[1]["weights"])


def test_an_enum_of_strings_is_its_value():
    events = [{"color": Color.RED}, {"color": Color.BLUE}, {"color": "r"}]
    single, rows = FeatureSpace(100), FeatureSpace(100)
    for x in events:
        single.encode_event(x, learn=True)
    rows.encode(events, np.ones(3, bool))
    assert single.names == rows.names == [("color", "r"), ("color", "b")]
    assert all(type(name[1]) is str for name in single.names + rows.names)
