"""Partitions are merged by the smallest head, in any order of arrival."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from connectors.kafka.reader import ArrivalOrder, TimeOrder

PARTITIONS = st.lists(st.lists(st.integers(0, 12), max_size=12), min_size=1, max_size=4)


def records(times):
    return [
        [SimpleNamespace(partition=p, offset=i, timestamp=t) for i, t in enumerate(ts)] for p, ts in enumerate(times)
    ]


def by_heads(partitions):
    """Definition: take the smallest first record; at ties, of the lowest partition."""
    rest, order = [list(records) for records in partitions], []
    while any(rest):
        heads = [(records[0].timestamp, p) for p, records in enumerate(rest) if records]
        order.append(rest[min(heads)[1]].pop(0))
    return order


def places(order):
    return [(record.partition, record.offset) for record in order]


@given(PARTITIONS, st.randoms(use_true_random=False))
def test_results_do_not_depend_on_the_arrival_of_records(times, dice):
    partitions = records(times)
    order, taken = TimeOrder(range(len(partitions))), []
    rest = [list(some) for some in partitions]
    while any(rest):
        p = dice.choice([p for p, some in enumerate(rest) if some])
        n = dice.randint(1, len(rest[p]))
        order.add(p, rest[p][:n])
        del rest[p][:n]
        # The end of a partition may be known or not.
        taken += order.take(ended=[q for q, some in enumerate(rest) if not some and not order.held(q)])
    while left := order.take(ended=order.empty_partitions()):
        taken += left
    assert places(taken) == places(by_heads(partitions))


def test_arrival_order_does_not_wait():
    (first,), (second,) = records([[5], [7]])
    order = ArrivalOrder([0, 1])
    order.add(1, [second])
    assert places(order.take(ended=[])) == [(1, 0)]
    order.add(0, [first])
    assert places(order.take(ended=[])) == [(0, 0)]
