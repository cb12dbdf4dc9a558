"""What learners with the same columns and labels have in common: their schema, and what is counted of its columns.

One learner can take the place of another of the same schema by its memory alone: that is how those at rest are used
again for the keys of a stream.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from connectors.notices import Notices
from streamsvm.core.state import State
from streamsvm.features.scaler import ROOM
from streamsvm.features.texts import Recurrence
from streamsvm.models import ArchiveError
from streamsvm.models.archive import decode_labels, encode_label
from streamsvm.online.base import OnlineClassifier
from streamsvm.online.classes import Classes


def extent(learner: OnlineClassifier) -> tuple[int, int, int]:
    """What changes with each new column or label, and each name that is left out from now on."""
    space = learner._space
    return len(space.names), len(learner.labels), len(space.left_out)


def knows(learner: OnlineClassifier, label: Any) -> bool:
    """Whether a label has come."""
    return label in learner.labels.codes


def describe(learner: OnlineClassifier) -> bytes:
    """Columns and labels as a section."""
    space = learner._space
    said = {
        "names": [encode_label(name) for name in space.names],
        "indicators": [j for j, is_indicator in enumerate(space.is_indicator) if is_indicator],
        "left_out": [[encode_label(name), kind] for name, kind in space.left_out.items()],
        "classes": [encode_label(label) for label in learner.classes_],
    }
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def with_schema(learner: OnlineClassifier, data: bytes, notices: Notices) -> OnlineClassifier:
    """A learner that has learned nothing, with columns and labels as `describe` gave them; notices are said there."""
    learner._make_room(ROOM)  # what one learner has learned is put into the memory of another
    said = json.loads(data)
    header = {"names": said["names"], "n_refused": 0, "left_out": said["left_out"], "watched": []}
    indicators = np.zeros(len(said["names"]), bool)
    indicators[np.array(said["indicators"], np.intp)] = True
    learner._restore_space(header, indicators)
    learner._space.said = notices
    learner.labels = Classes(decode_labels(said["classes"]))
    learner._space.columns.set_fast_path()
    learner._grow()
    for code, label in enumerate(learner.classes_):
        learner._weight_class(label, code)
    learner._follow_space()
    return learner


def memory(learner: OnlineClassifier) -> State:
    """All that is learned; a learner that grows takes another."""
    return learner._state


def capacity(learner: OnlineClassifier) -> tuple[int, int]:
    """For how many columns and classes there is room."""
    return learner._capacity


def twin(learner: OnlineClassifier) -> OnlineClassifier:
    """Another of the same schema, with memory of its own, in which nothing is."""
    return learner._another()


def share_names(learner: OnlineClassifier, other: OnlineClassifier) -> None:
    """Have the schema of another learner of the same capacity, whatever the memory holds."""
    learner._share_names(other)


def accept(learner: OnlineClassifier) -> None:
    """Refuse what was put into its memory and no stream can have left; bring up to date what follows from it."""
    learner._accept(learner._state)


def counts(learner: OnlineClassifier) -> bytes:
    """What is counted of columns: how many were refused, where there were many classes, and names that are watched.

    A name stands there as its first column.
    """
    space = learner._space
    if not (space.texts.watched or space.n_refused or learner.labels.many_at):
        return b""
    numbers = [space.n_refused, learner.labels.many_at]
    for name, found in space.texts.watched.items():
        numbers += [
            min(space.columns.strings[name].values()),
            found.before,
            found.seen,
            len(found.again),
            *sorted(found.again),
        ]
    return np.array(numbers, np.int64).tobytes()


def recall(learner: OnlineClassifier, counts: bytes) -> None:
    """Take over what is counted of columns."""
    space = learner._space
    if not counts:
        if space.texts.watched or space.n_refused or learner.labels.many_at:
            learner._own_space().recall(0, {})
            learner.labels.many_at = 0
        return
    numbers = np.frombuffer(counts, np.int64).tolist()
    n_refused, learner.labels.many_at = numbers[:2]
    watched, i = {}, 2
    while i < len(numbers):
        column, before, seen, n_again = numbers[i : i + 4]
        if min(column, n_again) < 0 or not space.is_indicator[column]:
            raise ArchiveError("what is counted of columns is not what can be counted")
        watched[space.names[column][0]] = Recurrence(before, seen, set(numbers[i + 4 : i + 4 + n_again]))
        i += 4 + n_again
    learner._own_space().recall(n_refused, watched)
