"""Steps of the budgeted kernel machine, against numpy and exact optimisation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

from streamsvm import BSGDClassifier
from streamsvm.budgeted import expansion, merging, metric, vectors
from streamsvm.core.jit import kernel
from streamsvm.core.math import exp32, log32
from streamsvm.models import KernelExpansion, Scaler
from tests.learners import arrays_of, changed, with_constants


def plain_scaler(d):
    return Scaler(list(range(d)), np.zeros(d, bool), np.zeros(d), np.ones(d), np.ones(d))


def learner_with(vectors, coefs, gamma=0.5, merges=2):
    """A learner with given vectors and coefficients.

    Two classes share one signed coefficient.
    """
    coefs = np.atleast_2d(coefs).astype(float)
    if len(coefs) == 1:
        coefs = np.vstack([-coefs, coefs])
    model = BSGDClassifier(budget=len(vectors), gamma=gamma, scaling="none", metric="fixed", merges=merges)
    d = vectors.shape[1]
    held = KernelExpansion(
        list(range(len(coefs))), vectors.astype(float), coefs, np.zeros(len(coefs)), gamma, np.ones(d), plain_scaler(d)
    )
    model.adopt(held)
    # The remaining steps determine the scale of a head's coefficients.
    return changed(model, {"heads.eta": [1.0]})


def maintain(model):
    """Maintain the budget once, as the learner does for a new vector."""
    model.mutate({"budget": model.n_support_vectors - 1})


def gram(a, b, gamma):
    return np.exp(-gamma * ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2))


def distance(first, second, gamma):
    """Return the square distance between two expansions, (vectors, coefs) each."""
    v, a = np.vstack([first[0], second[0]]), np.hstack([first[1], -second[1]])
    return float(np.einsum("cb,bd,cd->", a, gram(v, v, gamma), a))


def expansion_of(model):
    return model.model.vectors, model.model.coefs


@kernel
def exp_all(x, out):
    for i in range(x.size):
        out[i] = exp32(x[i])


@kernel
def log_all(x, out):
    for i in range(x.size):
        out[i] = log32(x[i])


# exp --------------------------------------------------------------------------------------------------------------


def test_exponential_is_right_to_single_precision():
    x = -np.linspace(0.0, 60.0, 50_003).astype(np.float32)
    out = np.empty_like(x)
    exp_all(x, out)
    assert np.abs(out / np.exp(x.astype(float)) - 1.0).max() < 3e-7
    assert out[0] == 1.0


def test_logarithm_is_right_to_single_precision():
    x = np.concatenate([np.geomspace(1e-37, 1e37, 30_003), np.linspace(0.5, 2.0, 30_003)]).astype(np.float32)
    out, wanted = np.empty_like(x), np.log(x.astype(float))
    log_all(x, out)
    assert (np.abs(out - wanted) / np.maximum(np.abs(wanted), 1.0)).max() < 2e-7
    assert not out[x == 1.0].any()


# The table --------------------------------------------------------------------------------------------------------


def degradation(h, ratio, cosine, log_kappa):
    """Return |r phi(v_b) + phi(v_i)|^2 minus `kept`, computed without cancellation."""
    large, small = log_kappa * (1.0 - h) * (1.0 - h), log_kappa * h * h
    lost = -ratio * ratio * np.expm1(2.0 * large) - np.expm1(2.0 * small)
    return lost + 2.0 * ratio * cosine * (math.exp(log_kappa) - np.exp(large + small))


# Loss of the table's h relative to the best h, in units of the smaller vector's square coefficient.
TABLE_BOUND = 1e-4


def exact_loss(ratio, cosine, log_kappa):
    """Return the minimum degradation over h, by brute force and bounded optimisation."""
    grid = np.linspace(-0.2, 1.2, 141)
    values = degradation(grid, ratio, cosine, log_kappa)
    best = grid[int(np.argmin(values))]
    found = minimize_scalar(
        lambda h: degradation(h, ratio, cosine, log_kappa),
        bounds=(best - 0.01, best + 0.01),
        method="bounded",
        options={"xatol": 1e-12},
    )
    return min(found.fun, values.min())


def random_pairs(n, seed):
    rng = np.random.default_rng(seed)
    shares = np.concatenate([rng.uniform(0.5, 1.0, n), 0.5 + 0.01 * rng.random(n), np.full(n, 0.5)])
    kappas = np.concatenate([rng.uniform(1e-6, 1.0, n), np.exp(-2.0) + 0.02 * rng.normal(size=n), rng.random(n)])
    return zip(shares, np.clip(kappas, 1e-9, 1.0), strict=True)


def test_table_loses_next_to_nothing():
    table = merging.table()
    worst = 0.0
    for share, kappa in random_pairs(40, seed=1):
        ratio, log_kappa = min(share / (1.0 - share), 1e6), math.log(kappa)
        h = merging.look_up(table, share, kappa)
        worst = max(worst, degradation(h, ratio, 1.0, log_kappa) - exact_loss(ratio, 1.0, log_kappa))
    assert worst < TABLE_BOUND


def test_pairs_are_compared_by_their_approximate_degradation():
    rng = np.random.default_rng(2)
    for share, kappa in random_pairs(60, seed=2):
        ratio, cosine = min(share / (1.0 - share), 1e6), rng.random()
        found = merging.near_loss(*np.float32([ratio * ratio, ratio * cosine, -math.log(kappa)]))
        least = exact_loss(ratio, cosine, math.log(kappa))
        assert found / (1.0 + found) == pytest.approx(least, rel=0.3, abs=1e-5)


# Merging ----------------------------------------------------------------------------------------------------------


def best_single(vectors, coefs, gamma):
    """Return the minimum degradation of merging all vectors into one, by search."""
    square = float(np.einsum("cb,bd,cd->", coefs, gram(vectors, vectors, gamma), coefs))

    def loss(z):
        return square - float(((coefs @ gram(vectors, z[None], gamma)[:, 0]) ** 2).sum())

    starts = [*vectors, np.average(vectors, axis=0, weights=np.linalg.norm(coefs, axis=0))]
    return min(minimize(loss, start, tol=1e-12).fun for start in starts)


def merged(vectors, coefs, gamma):
    """Return the degradation by maintenance of one vector too many, and the learner."""
    model = learner_with(vectors, coefs, gamma, merges=len(vectors))
    before = expansion_of(model)
    maintain(model)
    return distance(before, expansion_of(model), gamma), model


def test_two_vectors_of_two_classes_merge_as_well_as_can_be():
    rng = np.random.default_rng(6)
    for _ in range(4):
        vectors, coefs = rng.normal(size=(2, 3)), rng.choice([-1.0, 1.0]) * rng.uniform(0.1, 2.0, 2)
        lost, model = merged(vectors, coefs, 0.3)
        best = best_single(vectors, np.vstack([-coefs, coefs]), 0.3)
        assert model.n_support_vectors == 1
        assert lost <= best + 2.0 * TABLE_BOUND * coefs.min() ** 2 + 3e-6 * (coefs**2).sum()


def test_two_vectors_of_many_classes_merge_within_one_percent():
    rng = np.random.default_rng(7)
    tried = 0
    while tried < 4:
        vectors, coefs = rng.normal(size=(2, 3)), rng.normal(size=(4, 2))
        if coefs[:, 0] @ coefs[:, 1] <= 0.0:
            continue
        tried += 1
        lost, model = merged(vectors, coefs, 0.3)
        assert model.n_support_vectors == 1
        assert lost <= 1.01 * best_single(vectors, coefs, 0.3) + 3e-6 * (coefs**2).sum()


def test_merging_several_in_turn_is_near_the_best_point():
    rng = np.random.default_rng(8)
    for _ in range(5):
        vectors, coefs = 0.3 * rng.normal(size=(4, 3)), rng.uniform(0.5, 1.0, 4)
        lost, model = merged(vectors, coefs, 0.3)
        assert model.n_support_vectors == 1
        assert lost <= 1.3 * best_single(vectors, np.vstack([-coefs, coefs]), 0.3) + 1e-5 * coefs.sum() ** 2


def test_of_the_same_sign_the_nearest_are_merged():
    vectors = np.array([[0.0, 0.0], [0.1, 0.0], [0.0, 0.5], [5.0, 5.0], [0.05, 0.0]])
    model = learner_with(vectors, np.array([0.5, 1.0, 1.0, 1.0, -1.0]), merges=3)
    maintain(model)
    kept = model.model.vectors
    assert model.n_support_vectors == 3
    assert [5.0, 5.0] in kept.tolist()
    assert np.float32(0.05) in kept.astype(np.float32)


def test_where_no_other_has_the_sign_the_smallest_is_removed():
    vectors = np.array([[0.0], [1.0], [2.0]])
    model = learner_with(vectors, np.array([1.0, -0.1, 2.0]))
    maintain(model)
    assert sorted(model.model.vectors[:, 0].tolist()) == [0.0, 2.0]


def test_classes_of_opposite_directions_do_not_merge():
    model = learner_with(np.zeros((3, 1)), np.array([[1.0, -1.0, 0.1], [-1.0, 1.0, 0.0], [0.0, 0.0, -0.1]]))
    maintain(model)
    assert model.n_support_vectors == 2


# One step against plain numpy -------------------------------------------------------------------------------------


class Twin:
    """Published learner in double precision; only the merged point is optimised."""

    def __init__(self, n_classes, budget, gamma, rate, l2, loss="hinge", merges=2):
        self.v = np.zeros((0, 0))
        self.a = np.zeros((n_classes, 0))
        self.budget, self.gamma, self.rate, self.l2 = budget, gamma, rate, l2
        self.loss, self.merges, self.t = loss, merges, 1

    def scores(self, x):
        return self.a @ gram(self.v, x[None], self.gamma)[:, 0] if self.v.size else np.zeros(len(self.a))

    def learn(self, x, y):
        f = self.scores(x)
        u = np.zeros(len(f))
        if self.loss == "hinge":
            rivals = np.where(np.arange(len(f)) == y, -np.inf, f)
            if f[y] - rivals.max() < 1.0:
                u[y], u[rivals.argmax()] = 1.0, -1.0
        else:
            p = np.exp(f - f.max()) / np.exp(f - f.max()).sum()
            if 1.0 - p[y] > 0.3:
                u = -p
                u[y] += 1.0
        self.t += 1
        eta = 1.0 / (self.l2 * self.t) if self.rate is None else self.rate
        self.a *= 1.0 - eta * self.l2
        if u.any():
            self.v = np.vstack([self.v.reshape(-1, len(x)), x])
            self.a = np.hstack([self.a, eta * u[:, None]])
        if len(self.v) > self.budget:
            self.maintain()

    def maintain(self):
        sizes = np.linalg.norm(self.a, axis=0)
        i = int(sizes.argmin())
        costs = {}
        for j in range(len(self.v)):
            if j != i and self.a[:, i] @ self.a[:, j] > 0.0:
                square, product = self.a[:, j] @ self.a[:, j], self.a[:, i] @ self.a[:, j]
                far = self.gamma * ((self.v[i] - self.v[j]) ** 2).sum()
                costs[j] = merging.near_loss(*np.float32([square / sizes[i] ** 2, product / sizes[i] ** 2, far]))
        chosen = sorted(costs, key=costs.get)[: self.merges - 1]
        if chosen:
            v, a = self.v[i], self.a[:, i]
            for j in chosen:
                v, a = self.pair(v, a, self.v[j], self.a[:, j])
            self.v[i], self.a[:, i] = v, a
        gone = chosen or [i]
        self.v, self.a = np.delete(self.v, gone, axis=0), np.delete(self.a, gone, axis=1)

    def pair(self, v, a, w, b):
        """Return the point into which two vectors are merged, and its coefficients."""
        log_kappa = -self.gamma * ((v - w) ** 2).sum()
        sizes = np.linalg.norm([a, b], axis=1)
        ratio = sizes.max() / sizes.min()
        h = merging.look_up(merging.table(), ratio / (1.0 + ratio), math.exp(log_kappa))
        if len(a) > 2:
            h = merging.refine(h, ratio, min(a @ b / sizes.prod(), 1.0), log_kappa)
        h = h if sizes[0] >= sizes[1] else 1.0 - h
        return (h * v + (1.0 - h) * w, a * math.exp(log_kappa * (1.0 - h) ** 2) + b * math.exp(log_kappa * h * h))


def blobs(n, n_classes, d, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    y[:n_classes] = np.arange(n_classes)
    return rng.normal(size=(n_classes, d))[y] + 0.7 * rng.normal(size=(n, d)), y


SETTINGS = [
    pytest.param({"budget": 12, "merges": 2}, 2, id="classic"),
    pytest.param({"budget": 12, "merges": 2, "loss": "log"}, 2, id="log"),
    pytest.param({"budget": 20, "merges": 3}, 4, id="four-classes-cascade"),
    pytest.param({"budget": 20, "merges": 3, "loss": "log"}, 4, id="four-classes-log"),
    pytest.param({"budget": 1_000, "rate": None}, 3, id="pegasos-three-classes"),
]


@pytest.mark.parametrize(("settings", "n_classes"), SETTINGS)
def test_steps_are_those_of_the_twin(settings, n_classes):
    """The reference starts with the last class, because the learner waits for it."""
    settings = {"rate": 0.3, **settings}
    rate = settings.pop("rate")
    X, y = blobs(150, n_classes, 3, seed=11)
    twin = Twin(n_classes, gamma=0.4, rate=rate, l2=0.02, **settings)
    model = BSGDClassifier(
        gamma=0.4, scaling="none", metric="fixed", absorb=1.0, learning_rate=rate, l2=0.02, **settings
    )
    for label in range(n_classes):
        model._code(label)
    vectors.open_classes(model.buffer, n_classes)
    for x, label in zip(X, y.tolist(), strict=True):
        x = x.astype(np.float32).astype(float)
        model.learn_one(dict(enumerate(x.tolist())), label)
        twin.learn(x, label)
    assert model.n_support_vectors == len(twin.v) <= settings["budget"]
    expected = np.array([twin.scores(x) for x in X])
    assert model.model.decision_function(X) == pytest.approx(expected, abs=2e-3 * np.abs(expected).max())


def test_a_third_class_ends_the_sharing_of_one_coefficient():
    X, y = blobs(60, 2, 3, seed=12)
    model = BSGDClassifier(budget=100, gamma=0.4, scaling="none")
    model.learn_many(X, y.tolist())
    before = model.model
    model._code(2)
    vectors.open_classes(model.buffer, 3)
    after = model.model
    assert (after.coefs[:2] == before.coefs).all()
    assert (after.coefs[2] == 0.0).all()


# The metric -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
def test_metric_follows_the_gradient(n_classes):
    rng = np.random.default_rng(13)
    X, y = blobs(80, n_classes, 3, seed=13)
    model = BSGDClassifier(budget=200, gamma=0.4, scaling="none", absorb=1.0)
    model.buffer.metric_rate = 1e-6
    model.learn_many(X, y.tolist())
    x = rng.normal(size=3)
    known = model.model
    before = arrays_of(model)["gradient"]
    f = known.decision_function(x[None])[0]
    label = int(f.argmin())
    model.learn_one(dict(enumerate(x.tolist())), label)
    found = (arrays_of(model)["gradient"] - 0.9 * before) / 0.1
    u = np.zeros(n_classes)
    u[label], u[f.argmax()] = 1.0, -1.0
    theta = np.log(known.relevance)

    def objective(theta):
        known.relevance = np.exp(theta)
        return float(u @ known.decision_function(x[None])[0])

    wanted = [(objective(theta + e) - objective(theta - e)) / 2e-5 for e in 1e-5 * np.eye(3)]
    if n_classes == 2:
        # The signed coefficient is counted once.
        wanted = np.array(wanted) / 2.0
    assert found == pytest.approx(np.array(wanted), rel=1e-3, abs=1e-5)


def test_metric_settles_on_chance_and_is_unsettled_by_another_concept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, 4))
    chance, clear = BSGDClassifier(budget=50), BSGDClassifier(budget=50)
    unrest = []
    for i in range(0, 2_000, 50):
        chance.learn_many(X[i : i + 50], rng.integers(0, 2, 50).tolist())
        unrest.append(float(arrays_of(chance)["unrest"]))
    assert np.median(unrest) < metric.SETTLED
    clear.learn_many(X, (X[:, 0] > 0.0).tolist())
    before, relevance = float(arrays_of(clear)["unrest"]), clear.relevance
    clear.learn_many(X[:100], (X[:100, 1] > 0.0).tolist())
    assert relevance[0] > 10.0 * relevance[1]
    assert arrays_of(clear)["unrest"] > max(2.0 * before, metric.SETTLED)


def test_norms_are_updated_with_the_metric():
    X, y = blobs(3_000, 3, 5, seed=14)
    model = BSGDClassifier(budget=30)
    model.buffer.metric_rate = 0.2
    model.learn_many(X, y.tolist())
    relevance = np.array([model.relevance[j] for j in range(X.shape[1])])
    assert relevance.std() > 0.1
    vectors = model.model.vectors
    assert arrays_of(model)["norms"][: len(vectors)] == pytest.approx((vectors**2 @ relevance), rel=1e-4)


def test_norms_and_kernel_values_of_wide_rows_follow_their_definition():
    X, _ = blobs(400, 2, 200, seed=14)
    y = np.arange(400) // 2 % 2  # uninformative, so that every event becomes a vector
    model = BSGDClassifier(budget=150, scaling="none", absorb=1.0)
    model.buffer.metric_rate = 0.2
    model.learn_many(X[:-1], y[:-1].tolist())
    relevance = np.array([model.relevance[j] for j in range(X.shape[1])])
    vectors, n = model.model.vectors, model.n_support_vectors
    assert relevance.std() > 0.01
    assert n * X.shape[1] > expansion.NEAR
    assert arrays_of(model)["norms"][:n] == pytest.approx(vectors**2 @ relevance, rel=1e-4)
    model.predict_many(X[-1:])
    far = (X[-1] - vectors) ** 2 @ relevance
    assert model.buffer.kernel[:n] == pytest.approx(np.exp(-model.buffer.gamma_now * far), rel=1e-3)


def test_gamma_follows_the_data():
    X, y = blobs(500, 2, 5, seed=15)
    model = BSGDClassifier(scaling="none")
    model.learn_many(X, y.tolist())
    assert arrays_of(model)["gamma_now"] == pytest.approx(1.0 / (X**2).sum(axis=1).mean(), rel=1e-5)


@pytest.mark.parametrize(("accuracy", "brings"), [(1.0, True), (0.9, False)])
def test_a_head_that_weighs_little_brings_no_vectors(accuracy, brings):
    # The first model is certain of events like earlier ones; the second, with a tiny step, is not.
    of_two = with_constants(BSGDClassifier, _heads=lambda _: (("hinge", 1.0), ("hinge", 1e-3)))
    model = of_two(absorb=1.0, scaling="none", metric="fixed", gamma=1.0)
    for x, label in ((0.0, 0), (3.0, 1), (0.0, 0)):
        model.learn_one({0: x}, label)
    model = changed(model, {"heads.accuracy": [1.0, accuracy]})
    before = model.n_support_vectors
    model.learn_one({0: 0.1}, 0)
    assert model.n_support_vectors == before + brings
