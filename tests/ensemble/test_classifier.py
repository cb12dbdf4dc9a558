"""The ensemble as a River classifier."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import streamsvm
from streamsvm import BSGDClassifier, StreamSVMClassifier
from streamsvm.ensemble import blend, forest
from streamsvm.ensemble.classifier import EFFORTS
from streamsvm.ensemble.members import HEADS, MEMBERS
from streamsvm.ensemble.notes import LAGS
from streamsvm.models import ArchiveError
from tests.choices import each_choice
from tests.errors import raises
from tests.learners import (
    ENSEMBLE_SETTINGS,
    accuracy,
    arrays_of,
    assert_same_knowledge,
    blobs,
    check_with_river,
    dicts,
    knowledge,
    ring,
    snapshot,
    with_constants,
)


def test_river():
    check_with_river(StreamSVMClassifier(**ENSEMBLE_SETTINGS[0]))


@pytest.mark.parametrize("effort", EFFORTS)
def test_learns_classes_that_are_not_linearly_separable_and_follows_a_change(effort):
    X, y = ring(3_000)
    model = StreamSVMClassifier(effort=effort)
    accuracy(model, X[:1_000], y[:1_000])
    assert accuracy(model, X[1_000:], y[1_000:]) > 0.97
    accuracy(model, X, ~y)
    assert accuracy(model, X, ~y) > 0.97


@pytest.mark.parametrize("name", MEMBERS)
def test_each_member_learns_alone(name):
    X, y = blobs(1_500, 4)
    model = StreamSVMClassifier(members=(name,))
    accuracy(model, X[:500], y[:500])
    assert accuracy(model, X[500:], y[500:]) > 0.9
    assert {row["member"] for row in model.leaders()} == {name}


def test_a_kernel_member_is_the_kernel_machine():
    X, y = blobs(2_000, 3)
    machine = with_constants(BSGDClassifier, _heads=lambda _: HEADS)(absorb=0.95)
    model = StreamSVMClassifier(members=("standard",))
    machine.learn_many(X, y)
    model.learn_many(X, y)
    np.testing.assert_array_equal(machine.state()[1]["vectors"], model.state()[1]["1.vectors"])
    np.testing.assert_array_equal(machine.state()[1]["coefs"], model.state()[1]["1.coefs"])


# Probabilities and insight ----------------------------------------------------------------------------------------


def test_probabilities_follow_label_noise():
    rng = np.random.default_rng(1)
    X, y = ring(6_000)
    y = y ^ (rng.random(len(y)) < 0.2)
    model = StreamSVMClassifier()
    model.learn_many(X[:4_000], y[:4_000])
    predicted, proba = model.test_then_train(X[4_000:], y[4_000:], proba=True)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    confidence = proba.max(axis=1).mean()
    assert abs(confidence - np.mean(predicted == y[4_000:])) < 0.04


@pytest.mark.parametrize("share", [0.5, 0.04])
def test_log_loss_counts_beside_accuracy_for_uneven_classes(share):
    rng = np.random.default_rng(3)
    y = rng.random(960) < share
    y[::2] = ~y[1::2] if share == 0.5 else y[::2]  # as balanced as possible
    model = StreamSVMClassifier(effort="low")
    model.test_then_train(rng.normal(size=(960, 3)) + y[:, None], y.tolist())
    state = arrays_of(model)
    known = y[np.flatnonzero(y != y[0])[0] + 1 : 929]  # from the second class to the end of a block
    counts = 0.999 ** np.arange(len(known))[::-1]
    shares = np.array([counts[~known].sum(), counts[known].sum()]) / counts.sum()
    entropy = -(shares * np.log(shares)).sum()
    rarity = state["rarity"]
    assert rarity == pytest.approx(1.0 / entropy - 1.0 / np.log(2.0), rel=1e-6, abs=1e-9)
    merits = 100.0 * state["experts.accuracy"] - blend.RARE_WEIGHT * rarity * state["experts.loss"]
    weights = np.exp(merits - merits.max())
    np.testing.assert_allclose(state["experts.weight"], weights / weights.sum(), rtol=1e-5)
    assert rarity < 1e-4 if share == 0.5 else rarity > 1.0


def test_leaders_are_sorted_and_named():
    X, y = ring(2_000)
    model = StreamSVMClassifier()
    accuracy_of_all = accuracy(model, X, y)
    leaders = model.leaders()
    votes = [row["weight"] for row in leaders]
    assert votes == sorted(votes, reverse=True)
    assert sum(votes) == pytest.approx(1.0)
    assert leaders[0]["member"] in ("ranks", "standard-large")
    assert leaders[0]["accuracy"] > accuracy_of_all - 0.05
    assert {row["member"] for row in leaders} == set(EFFORTS["normal"][0])


def test_relevance_is_by_name_the_most_relevant_first():
    X, y = ring(3_000)
    noise = np.random.default_rng(2).normal(size=(3_000, 3))
    model = StreamSVMClassifier()
    model.learn_many(
        [{"a": a, "b": b, "n1": n, "n2": m, "n3": o} for (a, b), (n, m, o) in zip(X, noise, strict=True)], y
    )
    assert set(list(model.relevance)[:2]) == {"a", "b"}
    assert StreamSVMClassifier(members=("linear",)).relevance == {}


@pytest.mark.parametrize(("name", "n_classes"), [("standard", 4), ("ranks", 2)])
def test_nearest_support_vectors_are_near_and_of_the_label(name, n_classes):
    X, y = blobs(1_000, n_classes)
    X = 100.0 + 7.0 * X
    model = StreamSVMClassifier(members=(name, "linear"))
    assert model.nearest({0: 1.0}) == []
    model.learn_many(X, y)
    right, near = [], []
    for x in X[:100]:
        event = dict(enumerate(x.tolist()))
        nearest = model.nearest(event, n=3)
        similarities = [one["similarity"] for one in nearest]
        assert similarities == sorted(similarities, reverse=True)
        right.append(nearest[0]["label"] == model.predict_one(event))
        near.append(np.mean([abs(event[j] - value) for j, value in nearest[0]["features"].items()]))
    assert np.mean(right) > 0.8
    assert np.mean(near) < np.mean(np.abs(X - np.roll(X, 1, axis=0)))
    assert StreamSVMClassifier(members=("linear",)).nearest({0: 1.0}) == []


# Batches ----------------------------------------------------------------------------------------------------------


def test_wide_sparse_rows_of_many_classes_do_not_depend_on_batches():
    X = scipy.sparse.random(40, 12_000, density=0.02, random_state=np.random.default_rng(6), format="csr")
    y = (np.arange(40) ** 2 % 97).tolist()
    whole, cut = (StreamSVMClassifier(budget=5) for _ in range(2))
    whole.test_then_train(X, y)
    for i, label in enumerate(y):
        cut.test_then_train(X[[i]], [label])
    assert_same_knowledge(whole, cut)


# Label autocorrelation --------------------------------------------------------------------------------------------


def late(model, X, y, delay):
    """Return the predictions if labels arrive a number of events late."""
    predicted = []
    for i, x in enumerate(X.tolist()):
        predicted.append(model.predict_one(dict(enumerate(x))))
        if i >= delay:
            model.learn_one(dict(enumerate(X[i - delay].tolist())), y[i - delay])
    return np.array(predicted)


@pytest.mark.parametrize("delay", [0, 100])
def test_periodic_labels_are_learned_at_any_delay(delay):
    X, y = np.random.default_rng(7).normal(size=(1_000, 2)), np.arange(1_000) % 5
    learning, plain = (StreamSVMClassifier(effort="low", label_autocorrelation=given) for given in (True, False))
    assert np.mean(late(learning, X, y, delay)[700:] == y[700:]) > 0.99
    assert np.mean(late(plain, X, y, delay)[700:] == y[700:]) < 0.3


def test_events_predicted_before_any_label_form_no_context():
    X, y = np.random.default_rng(7).normal(size=(201, 2)), np.arange(201) % 5
    model = StreamSVMClassifier(effort="low")
    late(model, X, y, 100)
    counts = model.state()[1]["autocorrelation.counts"]
    # All events but the first were predicted before anything was learned.
    assert np.count_nonzero(counts[0]) == 5
    assert np.count_nonzero(counts[1:]) == 3


def test_events_predicted_before_the_first_and_never_learned_leave_nothing_behind():
    X, y = np.random.default_rng(7).normal(size=(400, 2)), np.arange(400) % 5
    plain, disturbed = (StreamSVMClassifier(effort="low") for _ in range(2))
    disturbed.predict_many(X + 0.5)
    for model in (plain, disturbed):
        model.learn_many(X, y)
    counts, disturbed_too = (model.state()[1]["autocorrelation.counts"] for model in (plain, disturbed))
    np.testing.assert_array_equal(counts, disturbed_too)
    assert knowledge(plain) == knowledge(disturbed)


@pytest.mark.parametrize(("damaged", "meant"), [(10**15, 300), (-(10**15), 0)])
def test_a_damaged_memory_is_learned_within_the_history(damaged, meant):
    X, y = np.random.default_rng(7).normal(size=(301, 2)), [i % 3 for i in range(301)]
    states = []
    for made in (damaged, meant):
        model = StreamSVMClassifier(effort="low")
        model.learn_many(X[:300], y[:300])
        memory = np.zeros((1, model.memory_size), np.int64)
        model.run_batch(X[300:], [None], memories=memory, memory_rows=np.array([1]))
        assert memory[0, LAGS] == 300
        memory[0, LAGS] = made
        model.run_batch(X[300:], y[300:], memories=memory, memory_rows=np.array([1]))
        states.append(snapshot(model))
    assert states[0] == states[1]


def test_an_autocorrelation_that_ends_is_ignored_at_once():
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(2_500, 2)), np.arange(2_500) % 5
    y[2_000:] = rng.permutation(y[2_000:])
    model, weights = StreamSVMClassifier(effort="low"), []
    model.test_then_train(X[:2_000], y[:2_000])
    assert model.autocorrelation_weight > 0.3
    for x, label in zip(dicts(X[2_000:]), y[2_000:].tolist(), strict=True):
        model.predict_one(x)
        model.learn_one(x, label)
        weights.append(model.autocorrelation_weight)
    assert np.count_nonzero(weights) < 30  # of 500


def test_labels_in_batches_follow_those_known_when_the_batch_was_predicted():
    X, y = np.random.default_rng(7).normal(size=(2_000, 2)), np.arange(2_000) % 4
    model, predicted = StreamSVMClassifier(effort="low"), []
    for start in range(0, len(y), 8):
        predicted += list(model.predict_many(X[start : start + 8]))
        model.learn_many(X[start : start + 8], y[start : start + 8])
    # Eight consecutive events are predicted after the same label: their position in the batch is unknown.
    assert np.mean(np.array(predicted[500:]) == y[500:]) < 0.4
    assert model.autocorrelation_weight < 0.2


PREDICTIONS = {
    "the next": lambda model, X, i: model.predict_one(dict(enumerate(X[min(i + 1, len(X) - 1)].tolist()))),
    "the next ones": lambda model, X, i: model.predict_many(X[i + 1 : i + 4]),
    "a chunk ahead": lambda model, X, i: i % 50 or model.predict_many(X[i + 1 : i + 51]),
    "those learned long ago": lambda model, X, i: model.predict_one(dict(enumerate(X[i // 2].tolist()))),
    "others": lambda model, X, i: model.predict_many(X[i : i + 1] + 0.5),
    "more others than are noted": lambda model, X, i: i % 50 or model.predict_many(np.tile(X, (3, 1)) + 0.5),
}


@each_choice(("n_values", [3, None]), ("what", PREDICTIONS), ("turn", ["before", "after", "alone"]))
def test_predictions_do_not_change_learning(what, turn, n_values):
    """Other predictions before or after an event, or none, make no difference."""
    if turn == "alone" and what != "others":
        pytest.skip("what was predicted last before its turn is what an event goes by")
    rng = np.random.default_rng(9)
    X = rng.normal(size=(300, 2)) if n_values is None else rng.integers(1, 1 + n_values, (300, 2)).astype(float)
    plain, disturbed = (StreamSVMClassifier(effort="low", budget=5) for _ in range(2))
    for i, x in enumerate(dicts(X)):
        if turn != "after":
            PREDICTIONS[what](disturbed, X, i)
        if turn != "alone":
            predicted, disturbed_too = plain.predict_one(x), disturbed.predict_one(x)
            assert predicted == disturbed_too or turn == "before"  # then it is not the first since the last label
        if turn == "after":
            PREDICTIONS[what](disturbed, X, i)
        plain.learn_one(x, i % 5)
        disturbed.learn_one(x, i % 5)
    assert knowledge(plain) == knowledge(disturbed)
    learned, disturbed_too = plain.state()[1], disturbed.state()[1]
    exponents, losses = (
        ("inverse_temperature", "exponent"),
        ("plain_loss", "autocorrelated_loss", "shares", "mixed_shares", "accuracies", "season"),
    )
    for name in (*exponents, *losses, "n_learned", "increment", "recent", "counts"):
        np.testing.assert_array_equal(learned[f"autocorrelation.{name}"], disturbed_too[f"autocorrelation.{name}"])
    assert plain.autocorrelation_weight > 0.0


@pytest.mark.parametrize("delay", [0, 3])
def test_an_event_learned_several_times_does_not_follow_itself(delay):
    X, y = blobs(600, 3)
    events = dicts(X)
    once, often = (StreamSVMClassifier(effort="low") for _ in range(2))
    for model, times in ((once, 1), (often, 4)):
        model.learn_one(events[-1], y[-1])  # the columns are known from here on
        for i, x in enumerate(events):
            model.predict_one(x)
            for _ in range(times * (i >= delay)):
                model.learn_one(events[i - delay], y[i - delay])
    np.testing.assert_allclose(once.state()[1]["autocorrelation.counts"], often.state()[1]["autocorrelation.counts"])
    assert often.autocorrelation_weight < 0.1


@pytest.mark.parametrize("turning", [True, False])
def test_a_model_that_only_predicts_does_not_go_by_the_last_labels(turning):
    """Labels cycle or persist during training. Later queries are in no order."""
    n, rng = 2_000, np.random.default_rng(11)
    y = np.arange(n) % 5 if turning else np.arange(n) // 40 % 5
    X = rng.normal(size=(n, 4)) + np.eye(5, 4)[y]
    held_out = rng.integers(0, 5, 400)
    asked = rng.normal(size=(400, 4)) + np.eye(5, 4)[held_out]
    learning, plain = (StreamSVMClassifier(effort="low", label_autocorrelation=given) for given in (True, False))
    for model in (learning, plain):
        model.learn_many(X, y)
    assert learning.autocorrelation_weight > 0.5
    expected = plain.predict_many(asked)
    np.testing.assert_array_equal(learning.predict_many(asked), expected)
    assert (
        learning.predict_proba_many(asked).argmax(axis=1).tolist() == plain.predict_proba_many(asked).argmax(1).tolist()
    )
    one_by_one = np.array([learning.predict_one(x) for x in dicts(asked)])
    assert np.count_nonzero(one_by_one != expected) <= 4
    assert (one_by_one[10:] == expected[10:]).all()


def test_an_event_predicted_again_is_the_same_prediction():
    X, y = np.random.default_rng(12).normal(size=(600, 2)), np.arange(600) % 5
    model = StreamSVMClassifier(effort="low")
    model.learn_many(X[:500], y[:500])
    for x, label in zip(dicts(X[500:]), y[500:].tolist(), strict=True):
        first = model.predict_proba_one(x)
        assert model.predict_one(x) == max(first, key=first.__getitem__) == label
        assert model.predict_proba_one(x) == first
        model.learn_one(x, label)


def test_events_predicted_and_never_learned_are_no_hindrance():
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(3_000, 2)), np.arange(3_000) % 5
    known = rng.random(3_000) < 0.7
    y = [int(label) if k else None for label, k in zip(np.cumsum(known) % 5, known, strict=True)]
    predicted = StreamSVMClassifier(effort="low").test_then_train(X, y)
    assert np.mean([p == t for p, t in zip(predicted[2_000:], y[2_000:], strict=True) if t is not None]) > 0.99


# Streams of all sorts ---------------------------------------------------------------------------------------------


def test_memory_is_stated_beforehand():
    X, y = blobs(1_200, 5, d=40)
    model = StreamSVMClassifier()
    stated = model.memory_bytes(n_features=40, n_classes=5)
    model.learn_many(X, y)
    assert model.memory_bytes() < stated
    for _ in range(forest.STORED // len(X) + 1):
        model.learn_many(X, y)
    assert model.memory_bytes() == stated


def test_growing_memory_changes_nothing():
    """Compare single events, rows, and a learner that starts with the maximum memory."""
    X, y = blobs(200, 3)
    begun, single = (StreamSVMClassifier(budget=40) for _ in range(2))
    begun.vote_window = begun.vote_window  # a learner whose settings change gets the maximum memory
    for x, label in zip(dicts(X), y, strict=True):
        assert begun.predict_proba_one(x) == single.predict_proba_one(x)
        begun.learn_one(x, label)
        single.learn_one(x, label)
    assert snapshot(begun) == snapshot(single)
    for n in (3, 32, 150):
        rows = StreamSVMClassifier(budget=40)
        for start in range(0, len(X), n):
            rows.test_then_train(X[start : start + n], y[start : start + n])
        assert knowledge(rows) == knowledge(begun)


# Saving -----------------------------------------------------------------------------------------------------------


def test_a_model_that_finds_none_of_a_thousand_classes_likely_is_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(0)
    model = StreamSVMClassifier(members=("linear",))
    model.learn_many(rng.normal(size=(4_000, 1)), rng.integers(1_000, size=4_000))
    model.save(tmp_path / "model")
    assert_same_knowledge(streamsvm.load(tmp_path / "model"), model)


def test_a_model_that_has_learned_nothing_is_saved_and_loaded(tmp_path):
    model = StreamSVMClassifier()
    model.predict_one({"a": 1.0})
    model.save(tmp_path / "model")
    assert streamsvm.load(tmp_path / "model").predict_one({"a": 1.0}) is None


@pytest.mark.parametrize(
    ("name", "place", "value", "text"),
    [
        ("1.n_vectors", (), 11, "11 support vectors"),
        ("2.n_classes", (), 4, "other classes"),
        ("rows.present", 0, 0.0, "statistics"),
        ("rows.due", 0, -1.0, "indicators"),
        ("ranks.ring", (0, 0), 1e9, "sorted values"),
        ("rows.began", 0, 201.0, "statistics"),
        ("rows.count", 0, -1.0, "rows.count"),
        ("1.coefs", (0, 1, 0), 3e38, "coefs"),
        ("3.classes.scale", 0, 0.0, "class fields"),
        ("4.covariance", (0, 1), 0.9, "covariance"),
        ("autocorrelation.oldest", (), 1025, "autocorrelation.oldest"),
        ("autocorrelation.recent", 0, 10**9, "other classes"),
        ("autocorrelation.season", (), 10**6, "autocorrelation.season"),
        ("autocorrelation.history", 0, 10**9, "other classes"),
        ("5.columns", ..., 100, "columns of splits"),
        ("5.n_columns", (), 100, "n_columns"),
        ("autocorrelation.shares", ..., 0.0, "shares"),
        ("autocorrelation.mixed_shares", ..., 0.0, "mixed_shares"),
        ("combination.shares", ..., 0.0, "shares"),
        ("combination.weights", ..., 0.0, "weights"),
        ("repeats.weights", ..., 0.0, "repeats.weights"),
        ("repeats.weights", ..., 5e-324, "repeats.weights"),
        ("repeats.n_buckets", (), 129, "repeats.n_buckets"),
    ],
)
def test_impossible_states_are_refused(name, place, value, text):
    header, arrays = learned_by_all().state()
    arrays[name][place] = value
    with raises(ArchiveError, named=text):
        StreamSVMClassifier.from_state(header, arrays)


def learned_by_all():
    X, y = blobs(200, 3)
    model = StreamSVMClassifier(members=("standard", "ranks", "polytope", "linear", "trees"), budget=10)
    model.learn_many(X, y)
    return model
