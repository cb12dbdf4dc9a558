"""One model and many threads: correct results, and undisturbed learning."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from streamsvm import (
    BSGDClassifier,
    CPMClassifier,
    DecidingClassifier,
    DelayedClassifier,
    RefitClassifier,
    StreamSVMClassifier,
)
from streamsvm.refit import Every
from tests.learners import MAKERS, knowledge

pytestmark = pytest.mark.usefixtures("lasting_process")

N_THREADS = 8
LEARNERS = ("cpm", "bsgd", "blend")
EVERYONE = MAKERS | {
    "blend": lambda: StreamSVMClassifier(budget=30, label_autocorrelation=False),
    "delayed": lambda: DelayedClassifier(BSGDClassifier(budget=30)),
}


def events(n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Events that mostly have all names, for the fast path; some lack one."""
    rng = np.random.default_rng(seed)
    X = [dict(zip("pqrs", row, strict=True)) for row in rng.normal(size=(n, 4)).tolist()]
    for x in X[1::5]:
        del x["q"]
    return X


def label(x: dict[str, Any]) -> str:
    return "a" if x["p"] * x["s"] > 0.3 else "b" if x["r"] > 0.0 else "c"


def trained(kind: str, n: int = 300) -> Any:
    model = EVERYONE[kind]()
    for x in events(n):
        model.learn_one(x, label(x))
    return model


@pytest.fixture(autouse=True)
def turns() -> Iterator[None]:
    """Switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*tasks: Callable[[], None]) -> None:
    """Run tasks concurrently. Raise the first exception here."""
    start, raised = threading.Barrier(len(tasks)), list[BaseException]()

    def run(task: Callable[[], None]) -> None:
        start.wait()
        try:
            task()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def meanwhile(learn: Callable[[], None], ask: Callable[[], None]) -> None:
    """Learn in one thread. Ask in four others until it ends."""
    done = threading.Event()

    def learn_to_the_end() -> None:
        try:
            learn()
        finally:
            done.set()

    def ask_until_then() -> None:
        while not done.is_set():
            ask()

    together(learn_to_the_end, *[ask_until_then] * 4)


def ways(model: Any) -> list[Callable[[dict[str, Any]], Any]]:
    """All ways to predict an event."""
    found = [model.predict_one, model.predict_proba_one]
    if not isinstance(model, DecidingClassifier):
        model.predict_set_one({"p": 0.0}, 0.9)
        found.append(lambda x: model.predict_set_one(x, 0.9))
    if not isinstance(model, DelayedClassifier):
        rows = events(10, seed=9)
        found.append(lambda x: [str(model.predict_many([x, *rows])[0])])
        found.append(lambda x: model.predict_proba_many([x, *rows])[0].tolist())
    return found


@pytest.mark.parametrize("kind", EVERYONE)
def test_many_threads_get_their_own_answers(kind):
    model, asked = trained(kind), events(25, seed=1)
    expected = [[ask(x) for x in asked] for ask in ways(model)]
    wrong = []

    def ask_all(thread: int) -> None:
        for k in range(3):
            i = (thread + k) % len(expected)
            ask = ways(model)[i]
            wrong.extend(x for x, answer in zip(asked, expected[i], strict=True) if ask(x) != answer)

    together(*(lambda thread=thread: ask_all(thread) for thread in range(N_THREADS)))
    assert not wrong


@pytest.mark.parametrize("kind", LEARNERS)
def test_concurrent_predictions_do_not_change_learning(kind):
    """New columns, categories and classes move the memory during predictions."""
    stream, asked = events(240, seed=2), events(30, seed=3)
    for i, x in enumerate(stream):
        x |= {f"late{i // 20}": 1.0, **({"u": f"text{i % 37}"} if i >= 120 else {})}
    labels = [f"{label(x)}{i // 40}" for i, x in enumerate(stream)]
    alone, served = EVERYONE[kind](), EVERYONE[kind]()

    def learn(model: Any) -> None:
        for i in range(0, len(stream), 20):
            model.learn_many(stream[i : i + 10], labels[i : i + 10])
            for x, y in zip(stream[i + 10 : i + 20], labels[i + 10 : i + 20], strict=True):
                model.learn_one(x, y)

    def ask() -> None:
        for x in asked:
            assert served.predict_one(x) in {None, *labels}
            shares = served.predict_proba_one(x)
            assert not shares or sum(shares.values()) == pytest.approx(1.0)
        assert len(served.predict_many(asked)) == len(asked)

    learn(alone)
    meanwhile(lambda: learn(served), ask)
    assert knowledge(served) == knowledge(alone)


def test_plain_events_learned_by_one_thread_are_as_learned_alone():
    stream = [{name: x[name] for name in ("p", "r", "s")} for x in events(600, seed=4)]
    labels, asked = list(map(label, stream)), stream[:50]
    alone, served = (RefitClassifier(CPMClassifier(), "newton", trigger=Every(500), delay=64) for _ in range(2))

    def learn(model: Any) -> None:
        for x, y in zip(stream, labels, strict=True):
            model.learn_one(x, y)

    def ask() -> None:
        for x in asked:
            served.predict_proba_one(x)
            served.predict_one(x)

    learn(alone)
    meanwhile(lambda: learn(served), ask)
    assert knowledge(served.model) == knowledge(alone.model)
    assert served.predict_many(asked).tolist() == alone.predict_many(asked).tolist()


def test_labels_by_key_from_several_threads_are_all_learned():
    model, stream = DelayedClassifier(CPMClassifier()), events(160, seed=5)

    def serve(thread: int) -> None:
        for i in range(thread, len(stream), N_THREADS):
            model.predict_one(stream[i], key=i)
            model.learn_one(i, label(stream[i]))

    together(*(lambda thread=thread: serve(thread) for thread in range(N_THREADS)))
    assert model.n_pending == 0
    assert model.model.n_events_learned == len(stream)


def test_a_copy_has_a_lock_of_its_own():
    for kind in EVERYONE:
        model = trained(kind, 50)
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            with model._lock:
                together(lambda twin=twin: twin.predict_one(events(1)[0]))
