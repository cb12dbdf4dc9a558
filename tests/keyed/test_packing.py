"""The packed state of a key is complete to the bit, or is rejected."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from streamsvm import BSGDClassifier, CPMClassifier, DecidingClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.keyed import KeyStateError, packing
from streamsvm.keyed.key_state import VERSION, seal, unseal
from streamsvm.keyed.packing import MOST_BLANK, Packer
from streamsvm.parameters import ParameterError
from tests.errors import raises

LEARNERS = {
    "polytopes": CPMClassifier(),
    "weighed, ranks": CPMClassifier(n_faces=1, scaling="rank", scaling_window=20, class_weight={"b": 2.0}),
    "decayed": CPMClassifier(class_weight={"a": 2.0}, scaling="decayed", max_features=6),
    "kernel": BSGDClassifier(budget=15),
    "fixed": BSGDClassifier(budget=8, metric="fixed", absorb=1.0, scaling="none"),
    "linear": StreamSVMClassifier(members=("linear",), label_autocorrelation=False),
    "low": StreamSVMClassifier(effort="low", budget=10),
    "high": StreamSVMClassifier(effort="high", budget=10),
}


def events(n, seed=0):
    """Events with missing numbers, recurring texts, and late names and classes.

    One column has identifiers.
    """
    rng = np.random.default_rng(seed)
    for i in range(n):
        x = {"size": float(rng.normal()), "count": int(rng.integers(5)), "flag": bool(rng.integers(2))}
        x["color"] = str(rng.choice(["red", "green", "blue"]))
        x["id"] = f"{i:x}-{rng.integers(1 << 40)}"
        if rng.random() < 0.2:
            del x["count"]
        if i > 30:
            x["late"] = float(rng.normal()) if rng.random() < 0.8 else None
        yield x, "c" if i > 60 and rng.random() < 0.2 else "a" if x["size"] > 0 else "b"


def content(learner):
    header, arrays = learner.state()
    return header, {name: array.tobytes() for name, array in arrays.items()}


def packed(learner, n=80, seed=0):
    packer = Packer(learner)
    held = packer.begin()
    for x, y in events(n, seed):
        held.learner.learn_one(x, y)
    return packer, held, packer.pack(held)


@pytest.mark.filterwarnings("ignore:all 6 columns are in use")
@pytest.mark.parametrize("name", LEARNERS)
def test_a_restored_learner_continues_bit_for_bit(name):
    """A learner that is often packed and unpacked equals one that never is."""
    alone, packer, sections = LEARNERS[name].clone(), Packer(LEARNERS[name]), None
    other = packer.begin()
    for i, (x, y) in enumerate(events(70)):
        held = packer.begin() if sections is None else packer.unpack(sections)
        for learner in (held.learner, alone):
            learner.predict_one(x)
        if i % 2:
            sections = packer.pack(held)
            packer.release(held)
            held = packer.unpack(sections)
        shares = [learner.predict_proba_one(x) for learner in (held.learner, alone)]
        assert shares[0] == shares[1]
        for learner in (held.learner, alone, other.learner):
            learner.learn_one(x, y)
        sections = packer.pack(held)
        packer.release(held)
    assert content(packer.unpack(sections).learner) == content(alone)


@pytest.mark.parametrize("n_faces", [1, 4])
def test_small_models_are_small(n_faces):
    """With 20 numbers and two classes; a linear model also has a covariance."""
    for model, most in ((CPMClassifier(n_faces=n_faces), 4_000), (LEARNERS["linear"], 9_000)):
        packer, rng = Packer(model), np.random.default_rng(0)
        held = packer.begin()
        for row in rng.normal(size=(300, 20)):
            held.learner.learn_one({f"feature-{j}": value for j, value in enumerate(row.tolist())}, int(row[0] > 0.0))
        assert sum(map(len, packer.pack(held))) < most


def test_a_first_event_is_learned_as_by_a_separate_model():
    """This holds even if another key had the first event with equal names or labels."""
    packer = Packer(CPMClassifier(class_weight={1: 3.0}))
    firsts = [({"b": 1.0, "a": 2}, 1), ({"b": 1.5, "a": 2}, 1), ({"b": 1.0, "a": 2}, True), ({"a": 2.0}, "x")]
    firsts += [({1: 1.0}, 0), ({True: 1.0}, 0), ({}, 0)]
    firsts += [({"a": value, "b": 1.0}, 0) for value in (float("nan"), "red")]
    for x, label in firsts:
        alone, held = CPMClassifier(class_weight={1: 3.0}), packer.blank()
        for _ in range(2):
            packer.learn_one(held, x, label)
            alone.learn_one(x, label)
        assert content(held.learner) == content(alone)
        packer.release(held)


def test_few_learners_rest(monkeypatch):
    """Only the latest learners are kept; others are unpacked again."""
    monkeypatch.setattr("streamsvm.keyed.packing.CACHE_BYTES", 1)
    packer, states = Packer(CPMClassifier()), []
    for i in range(10):
        held = packer.begin()
        held.learner.learn_one({f"column {i}": 1.0}, i)
        states.append(packer.pack(held))
        packer.release(held)
        assert len(packer.schemas) <= 2
    assert [packer.unpack(state).learner.classes_ for state in states] == [[i] for i in range(10)]


# Refusals --------------------------------------------------------------------------------------------------------


def test_damage_is_refused():
    """A changed bit, or a byte more or less, at any position is rejected."""
    _, _, sections = packed(CPMClassifier())
    state = seal([*sections, b""])
    rng = np.random.default_rng(0)
    for at in [*range(24), *rng.integers(len(state), size=100).tolist()]:
        wrong = bytearray(state)
        wrong[at] ^= 1 << rng.integers(8)
        with pytest.raises(KeyStateError) as caught:
            unseal(bytes(wrong))
        assert caught.value.reason in ("damaged", "foreign", "version")
    for wrong in (state[:-1], state + b"\0", state[:10], b""):
        with pytest.raises(KeyStateError) as caught:
            unseal(wrong)
        assert caught.value.reason in ("damaged", "foreign")


def test_an_invalid_state_is_refused():
    state = seal([b""] * 5)
    with raises(KeyStateError, reason="foreign", named="PK"):
        unseal(b"PK\3\4" + bytes(100))
    with raises(TypeError, named="got str"):
        unseal("svmk")
    for version in (VERSION - 1, VERSION + 1):
        with raises(KeyStateError, reason="version", named=f"version {version}"):
            unseal(state[:4] + struct.pack("<H", version) + state[6:])
    for rest in (b"", struct.pack("<5I", 1, 0, 0, 0, 0)):
        with raises(KeyStateError, reason="damaged"):
            unseal(struct.pack("<4sHI", b"svmk", VERSION, zlib.crc32(rest)) + rest)


@pytest.mark.parametrize("model", [CPMClassifier(), BSGDClassifier(budget=15), LEARNERS["low"]])
def test_sections_that_do_not_fit_are_refused(model):
    """Any content of the sections, with any checksum, gives a learner or an error."""
    packer, _, sections = packed(model)
    rng = np.random.default_rng(0)
    for _ in range(60):
        wrong = list(sections)
        which = int(rng.integers(1, 4))
        section = bytearray(wrong[which]) or bytearray(8)
        for at in rng.integers(len(section), size=3):
            section[at] = rng.integers(256)
        wrong[which] = bytes(section[: -int(rng.integers(1, 9))]) if rng.random() < 0.3 else bytes(section)
        try:
            held = packer.unpack(wrong)
        except KeyStateError:
            continue
        held.learner.predict_one({"size": 1.0})
    again = packer.unpack(sections)
    assert packer.pack(again) == sections


def bitmap_size(held, snapshot):
    """Return the size of the bitmap after the words: nonzero bytes and marks."""
    n = -(-held.schema.snapshots.n_words // 8)
    n_marks = -(-n // 8)
    return n_marks + sum(np.unpackbits(np.frombuffer(snapshot[-n_marks:], np.uint8))[:n].tolist())


def test_values_beyond_their_bounds_are_refused():
    packer, held, sections = packed(CPMClassifier())
    n = bitmap_size(held, sections[3])
    for values in (np.full((len(sections[3]) - n) // 8, np.nan), np.frombuffer(sections[3][:-n]) * 1e300):
        with raises(KeyStateError, reason="content"):
            packer.unpack([*sections[:3], values.tobytes() + sections[3][-n:]])


def test_words_too_few_or_too_many_are_refused():
    packer, held, sections = packed(CPMClassifier())
    n = bitmap_size(held, sections[3])
    words, there = sections[3][:-n], sections[3][-n:]
    for wrong in (words[:-8] + there, words + bytes(8) + there, sections[3][:-1], b""):
        with raises(KeyStateError, reason="content"):
            packer.unpack([*sections[:3], wrong])


def test_another_model_is_refused_by_name():
    _, _, sections = packed(CPMClassifier(n_faces=4))
    with raises(KeyStateError, reason="settings", named="`n_faces`, `l2`"):
        Packer(CPMClassifier(n_faces=3, l2=0.1)).unpack(sections)
    with raises(KeyStateError, reason="settings"):
        Packer(BSGDClassifier()).unpack(sections)


def test_a_key_of_another_version_is_refused_as_such(monkeypatch):
    _, _, sections = packed(CPMClassifier())
    with raises(KeyStateError, reason="version"):  # a parameter is gone
        Packer(CPMClassifier()).unpack([sections[0] + b"and", *sections[1:]])
    monkeypatch.setattr(packing, "_tables", lambda state: "tables of another version")
    for other in (CPMClassifier(), CPMClassifier(n_faces=3)):
        with raises(KeyStateError, reason="version"):
            Packer(other).unpack(sections)


def test_the_order_of_parameters_does_not_matter():
    """A version may change the order of a signature alone."""
    packer, _, (settings, *rest) = packed(CPMClassifier())
    digests = [settings[at : at + 3] for at in range(0, len(settings), 3)]
    again = packer.unpack([b"".join(reversed(digests)), *rest])
    assert packer.pack(again) == [settings, *rest]


@pytest.mark.parametrize("model", [RefitClassifier(CPMClassifier()), DecidingClassifier(CPMClassifier()), object()])
def test_other_models_are_refused(model):
    with raises(TypeError, parameter="model"):
        Packer(model)


def test_a_model_that_has_learned_is_refused():
    model = CPMClassifier()
    model.learn_one({"a": 1.0}, 0)
    with raises(ParameterError, parameter="model"):
        Packer(model)


def test_labels_that_cannot_be_saved_are_refused():
    packer = Packer(CPMClassifier())
    held = packer.begin()
    held.learner.learn_one({"a": 1.0}, frozenset())
    with raises(TypeError, named="frozenset"):
        packer.pack(held)


def test_the_memory_of_free_learners_is_bounded(monkeypatch):
    packer = Packer(CPMClassifier(n_faces=2))
    helds = [packer.begin() for _ in range(40)]
    schema = helds[0].schema
    monkeypatch.setattr("streamsvm.keyed.packing.CACHE_BYTES", 11 * schema.n_bytes)
    for held in helds:
        packer.release(held)
    assert len(schema.free) == 10
    assert packer.begin().learner in [held.learner for held in helds]


@pytest.mark.parametrize("with_texts", [True, False])
@pytest.mark.parametrize("n", [3, MOST_BLANK + 3])
@pytest.mark.parametrize("name", ["polytopes", "low"])
def test_predictions_before_the_first_label_are_counted_as_by_a_separate_model(name, n, with_texts):
    """Untrained keys share a learner; a first label repeats their predictions."""
    packer, alone = Packer(LEARNERS[name]), LEARNERS[name].clone()
    held, packed = packer.blank(), packer.blank()
    for i, (x, y) in enumerate(events(n + 20)):
        if not with_texts:
            x = {column: float(x[column]) for column in ("size", "flag")}
        for model in (held, packed):
            found = packer.answer_one(model, x)
            assert found[:2] == alone.answer_one(x)[:2] if model is held else found
        packed = packer.unpack(packer.pack(packed))
        if i >= n:
            for model in (held, packed):
                packer.learn_one(model, x, y)
            alone.learn_one(x, y)
    assert content(held.learner) == content(packed.learner) == content(alone)


def test_a_new_key_has_no_counts_of_the_key_before_it():
    """Learners are used again; their counts are not in the memory that is reset."""
    packer = Packer(CPMClassifier(max_features=2))
    one, x = packer.blank(), {"a": 1.0, "b": 2.0}
    packer.learn_one(one, x, "yes")
    with pytest.warns(RuntimeWarning, match="all 2 columns"):
        packer.learn_one(one, x | {"c": 3.0}, "yes")
    assert one.learner.counts()
    packer.pack(one)
    packer.release(one)
    other, alone = packer.blank(), CPMClassifier(max_features=2)
    packer.learn_one(other, x, "yes")
    alone.learn_one(x, "yes")
    assert other.learner is one.learner
    assert content(other.learner) == content(alone)


def test_learners_of_schemas_that_left_the_cache_are_not_counted(monkeypatch):
    packer, helds = Packer(CPMClassifier()), []
    monkeypatch.setattr("streamsvm.keyed.packing.CACHE_BYTES", 8 * packer.begin().schema.n_bytes)
    for i in range(30):
        helds.append(packer.blank())
        packer.learn_one(helds[-1], {f"of {i}": 1.0}, "yes")
    for held in helds:
        packer.release(held)
    for _ in range(30):
        packer.release(packer.begin())
    kept = list(packer.schemas.values())
    n_free = sum(map(len, {id(schema.free): schema.free for schema in kept}.values()))
    assert packer._cached_bytes == (len(kept) + n_free) * kept[0].n_bytes


def test_free_learners_serve_keys_with_other_columns_of_equal_number():
    packer, model = Packer(CPMClassifier(class_weight={"no": 3.0})), CPMClassifier(class_weight={"no": 3.0})
    one, other = packer.blank(), packer.blank()
    packer.learn_one(one, {"a": 1.0, "b": 2.0}, "yes")
    packer.pack(one)
    packer.release(one)
    for label in ("no", "yes"):
        packer.learn_one(other, {"c": 3.0, "d": 5.0}, label)
        model.learn_one({"c": 3.0, "d": 5.0}, label)
    assert other.learner is one.learner
    assert content(other.learner) == content(model)


def test_a_label_of_one_key_is_not_known_to_the_next_one():
    packer, x = Packer(CPMClassifier()), {"a": 1.0, "b": 2.0}
    one = packer.blank()
    packer.learn_one(one, x, "yes")
    packed = packer.pack(one)
    packer.learn_one(one, x, "no")
    packer.pack(one)
    packer.release(one)
    other = packer.unpack(packed)
    assert other.learner is one.learner
    assert other.learner.classes_ == ["yes"]
    assert packer.pack(other) == packed
