"""The cluster on paper: keys share what there is, partitions move as said, and work is neither lost nor done twice."""

from __future__ import annotations

import numpy as np
import pytest

from simulations.keyed_cluster import Cluster, Costs, Fleet, after_failure, needs, run, saved_s, zipf

COSTS = Costs(event_us=40.0, key_us=200.0, state_bytes=3000.0, restored_mb=40.0)
SMALL = Cluster(events_s=100_000.0, n_keys=1_000_000, mean_life_s=100_000.0)
N_MACHINES, N_PARTITIONS = 4, 96


def fleet(taken: str) -> Fleet:
    cluster = Cluster(cores=3, taken=taken, n_keys=1_000_000, events_s=10_000.0)
    return Fleet(cluster, COSTS, N_MACHINES, np.full(N_PARTITIONS, 0.05))


def test_keys_put_together_are_saved_as_often_as_one_by_one():
    few, each = zipf(100_000, 0.8, 1000.0, singly=1_000), zipf(100_000, 0.8, 1000.0)
    assert few.counts.sum() == each.counts.sum() == 100_000
    assert saved_s(few, 60.0) @ few.counts == pytest.approx(saved_s(each, 60.0).sum(), rel=1e-3)


def test_a_key_is_saved_at_most_with_each_checkpoint_and_with_each_event():
    keys = zipf(1_000, 1.0, 100.0)
    assert (saved_s(keys, 10.0) <= np.minimum(keys.rates, 0.1)).all()


def test_costs_give_back_the_rates_that_they_come_from():
    costs = Costs.measured((10_000.0, 0.1), (2_000.0, 0.9), state_bytes=1.0, restored_mb=1.0)
    for rate, saved in ((10_000.0, 0.1), (2_000.0, 0.9)):
        assert 1e6 / (costs.event_us + saved * costs.key_us) == pytest.approx(rate)


def test_rarer_checkpoints_and_busier_workers_need_fewer_machines():
    plain, rarer, busier = (
        needs(c, COSTS)["workers"] for c in (Cluster(), Cluster(checkpoint_s=60), Cluster(busy=0.7))
    )
    assert rarer < plain
    assert busier == pytest.approx(plain * 5 / 7)


@pytest.mark.parametrize("taken", ["range", "sticky"])
def test_others_take_the_partitions_of_a_machine_that_failed_and_give_them_back(taken):
    some = fleet(taken)
    before = some.owner.copy()
    some.fail(1)
    some.notice(10.0)
    assert some.alive[some.owner].all()
    assert np.bincount(some.owner).max() <= (12 if taken == "range" else 11)
    kept = ~np.isin(before, [3, 4, 5])
    assert (some.owner[kept] == before[kept]).all() == (taken == "sticky")
    some.come_back(1, 300.0)
    assert (some.owner == before).all()


def test_a_copy_that_is_still_on_disk_is_only_brought_up_to_date():
    some = fleet("range")
    some.fail(0)
    some.notice(0.0)
    fresh = some.held_until.copy()
    some.come_back(0, 1000.0)
    back = some.held_until - 1000.0
    assert back[3:].max() < fresh.max()
    assert back[:3].min() > 8 * 0.9 * some._restore_s


def test_work_that_waits_is_done_when_somebody_takes_it():
    some = fleet("sticky")
    some.fail(0)
    for now in range(10):
        some.pass_time(float(now), 1.0)
    assert some.lags()[:24] == pytest.approx(10.0)
    assert some.lags()[24:] == pytest.approx(0.0)
    some.notice(10.0)
    for now in range(10, 100):
        some.pass_time(float(now), 1.0)
    assert some.lags() == pytest.approx(0.0)


def test_partitions_that_wait_are_behind_longer_than_those_that_others_take():
    waits, sticky = (
        after_failure(Cluster(events_s=100_000.0, n_keys=1_000_000, taken=taken), COSTS)
        for taken in ("waits", "sticky")
    )
    assert max(waits["worst s"]) > 290.0 > 100.0 > max(sticky["worst s"]) > 10.0
    assert waits["worst s"][-1] == sticky["worst s"][-1] == 0.0


def test_the_same_seed_gives_the_same_days():
    first = run(SMALL, COSTS, days=1.0)
    assert first == run(SMALL, COSTS, days=1.0)
    assert first["failures"] > 0
    shares = list(first["share behind by more"].values())
    assert 0.0 < shares[0] < 0.2
    assert shares == sorted(shares, reverse=True)
