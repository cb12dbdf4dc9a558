"""Classes of a learner: labels in order of appearance, and warnings about labels."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.strings import CategoricalColumn
from streamsvm.label_order import LabelOrder
from streamsvm.labels import are_fractional, as_label, check_label, is_label, new_label_notice, twin_notices
from streamsvm.parameters import ParameterError

logger = logging.getLogger(__name__)

# Labels look like identifiers with this many classes in fewer than twice as many events.
MANY_CLASSES = 250


class Classes:
    """Labels, numbered in order of first appearance.

    Attributes
    ----------
    codes
        The number of each label.
    by_code
        The labels in order, followed by None, so that index -1 means no prediction.
    many_at
        The number of events learned when the number of classes looked like a mistake; 0 if it did not.
    """

    def __init__(self, labels: Iterable[Any] = ()) -> None:
        self.codes: dict[Hashable, int] = {label: code for code, label in enumerate(labels)}
        self.by_code: list[Any] = [*self.codes, None]
        self.many_at, self._order_notice = 0, ""

    def __len__(self) -> int:
        return len(self.codes)

    def copy(self) -> Classes:
        """Return a copy that shares only the labels."""
        twin = Classes(self.codes)
        twin.many_at, twin._order_notice = self.many_at, self._order_notice
        return twin

    def add(self, label: Any) -> None:
        """Add a new label."""
        label = as_label(label)
        notice = new_label_notice(label, self.codes)
        if notice is not None:
            logger.warning("%s", notice)
        code = len(self.codes)
        self.codes[label] = code  # no call between the two changes, so that Ctrl-C cannot separate them
        self.by_code.insert(code, label)

    def check(self, label: Any, most: int) -> None:
        """Refuse a value that is not a label, and a new label beyond `most`."""
        check_label(label)
        if len(self.codes) >= most and label not in self.codes:
            raise _no_room_for(label, most)

    def without_room(self, labels: CategoricalColumn, learn: NDArray[np.bool_], most: int) -> dict[int, str]:
        """Return the rows with labels beyond `most` classes, with a reason for each."""
        new = list(dict.fromkeys(label for label in labels.take(learn).different() if label not in self.codes))
        refused = set(new[max(most - len(self.codes), 0) :])
        if not refused:
            return {}
        codes = [code for code, label in enumerate(labels.values) if label in refused]
        rows = np.flatnonzero(np.isin(labels.codes, codes) & learn).tolist()
        return {row: str(_no_room_for(labels[row], most)) for row in rows}

    def decode(self, codes: NDArray[np.int64]) -> NDArray[Any]:
        """Return the labels of class numbers, None for -1."""
        labels = np.empty(len(self.by_code), object)
        labels[:] = self.by_code
        return np.asarray(labels[codes])

    def check_count(self, n_before: int, labels: Sequence[Any], n_learned: int) -> None:
        """Warn if a large number of classes looks like a mistake.

        Parameters
        ----------
        n_before
            Number of classes before these labels.
        labels
            Labels to learn.
        n_learned
            Number of events learned before them.
        """
        if n_before < MANY_CLASSES <= len(self.codes):
            n_learned += 1 + labels.index(self.by_code[MANY_CLASSES - 1])
            if n_learned < 2 * MANY_CLASSES or are_fractional(self.by_code):
                self.many_at = n_learned
                logger.warning("%s", _many_notice(n_learned))

    def check_order(self, codes: NDArray[np.int64]) -> None:
        """Warn if the first rows are sorted by label."""
        order = LabelOrder()
        order.add(codes)
        self._order_notice = order.notice(self.by_code)
        if self._order_notice:
            logger.warning("%s", self._order_notice)

    @property
    def notices(self) -> list[str]:
        """Warnings given so far."""
        found = [_many_notice(self.many_at)] if self.many_at else []
        found += [self._order_notice] if self._order_notice else []
        return found + twin_notices(self.by_code[:-1])


def are_labels(labels: CategoricalColumn, unlabelled: bool) -> NDArray[np.bool_]:
    """Return which labels name a class. Unless `unlabelled`, refuse None and NaN."""
    found = np.array(list(map(is_label, labels.values)), bool)[labels.codes]
    if not (unlabelled or found.all()):
        row = int(found.argmin())
        kind = "None" if labels[row] is None else "NaN"
        raise ValueError(f"the label of row {row} is {kind}: drop the row, or use test_then_train")
    return found


def _no_room_for(label: Any, most: int) -> ParameterError:
    text = f"allows {most}: {label!r} is a further class; raise it, unless labels are identifiers"
    return ParameterError("max_classes", text)


def _many_notice(n_learned: int) -> str:
    return (
        f"the label looks like an identifier or a measured number: {MANY_CLASSES} classes in the first "
        f"{n_learned} learned events; every class costs time and memory (check `y`, or --label)"
    )
