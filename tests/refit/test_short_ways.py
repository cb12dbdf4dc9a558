"""Shortcuts to refits: a parameter of the classifier, and its archives."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys

import pytest

import streamsvm
from streamsvm import CPMClassifier, RefitClassifier, StreamSVMClassifier
from streamsvm.models import ArchiveError
from streamsvm.online.saving import encode_param
from streamsvm.refit import Every, Latest
from tests.errors import raises
from tests.learners import check_with_river

pytestmark = pytest.mark.usefixtures("lasting_process")

SMALL = {"trigger": Every(200), "delay": 64, "window": Latest(200)}


def test_river():
    check_with_river(RefitClassifier(CPMClassifier(n_faces=2), "newton", **SMALL))


def test_without_refits_the_classifier_is_unchanged():
    model = StreamSVMClassifier(effort="low", refit=None)
    assert type(model) is StreamSVMClassifier
    assert type(model.clone()) is StreamSVMClassifier
    assert all(f"{name}=" in repr(model) for name in inspect.signature(StreamSVMClassifier).parameters)
    assert "refit=None" in repr(model)


def test_clones_begin_to_have_refits_and_cease_to():
    plain = StreamSVMClassifier(budget=20)
    refitted = plain.clone({"refit": "newton"})
    assert (refitted.refit, refitted.budget, refitted.refits) == ("newton", 20, [])
    assert refitted.clone({"refit": None}).refit_totals() is None


class Leveled(StreamSVMClassifier):
    def __init__(self, level=1, solver="newton"):
        super().__init__("low", refit=solver, class_weight={True: 2.0})
        self.level, self.solver = level, solver


def test_subclasses_with_their_own_parameters_have_refits(tmp_path):
    model = Leveled(level=3)
    model.learn_many([{"a": float(i % 3)} for i in range(800)], [i % 3 == 1 for i in range(800)])
    assert len(model.refits) == 1
    model.save(tmp_path / "model.svm")
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), Leveled.load(tmp_path / "model.svm")):
        assert (twin.level, twin.solver, len(twin.refits)) == (3, "newton", 1)
        assert twin.predict_proba_one({"a": 1.0}) == model.predict_proba_one({"a": 1.0})
    assert model.clone({"level": 4}).level == 4


def test_an_archive_may_not_have_refits_around_refits(tmp_path):
    header, arrays = RefitClassifier(CPMClassifier(), "newton").state()
    nested = header | {"learner": header}
    arrays = {f"learner.{name}" if name.startswith("learner.") else name: array for name, array in arrays.items()}
    with pytest.raises(ArchiveError):
        streamsvm.loading.from_state(nested, arrays)


def test_an_archive_of_a_classifier_cannot_say_that_it_has_refits():
    header, arrays = StreamSVMClassifier(effort="low").state()
    header["params"]["refit"] = encode_param("newton")
    with pytest.raises(ArchiveError):
        streamsvm.loading.from_state(header, arrays)


@pytest.mark.parametrize("module", ["sklearn", "threadpoolctl"])
def test_without_scikit_learn_the_missing_package_is_named_at_once(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with raises(ImportError, named="streamsvm[batch]"):
        RefitClassifier(CPMClassifier(), "newton")


def test_other_settings_of_refits_are_refused():
    with raises(TypeError, named="windows"):
        StreamSVMClassifier(refit={"windows": 7})
