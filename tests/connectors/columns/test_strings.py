"""Columns stored in arrays: unchanged content, values decoded once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from connectors.columns.strings import CategoricalColumn

VALUES = st.sampled_from([True, False, 0, 1, 1.0, "up", "down", "", None, (1, 2), b"x"])


@given(st.lists(VALUES, max_size=12), st.integers(1, 60))
def test_any_number_of_values_is_numbered_by_first_occurrence(some, times):
    values = some * times
    coded = CategoricalColumn.by_value(values)
    assert coded.tolist() == values
    # Equal values are stored once, even if they are different objects.
    assert coded.values == list(dict.fromkeys(values))
    assert coded[len(some) // 2 :].different() == list(dict.fromkeys(values[len(some) // 2 :]))


@given(st.integers(1, 400))
def test_equal_values_of_different_objects_are_one(n):
    texts = ["".join(["label ", str(i % 3)]) for i in range(n)]
    assert CategoricalColumn.by_value(texts).values == list(dict.fromkeys(texts))
    assert CategoricalColumn.by_value(texts).codes.tolist() == [i % 3 for i in range(n)]
