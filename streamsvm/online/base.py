"""What all online learners share: labels, encoding, batches, and saving, around one compiled step."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from streamsvm.decide.changes import Moment, Spread
from streamsvm.features import scaler as scaling
from streamsvm.features.rows import Floats
from streamsvm.locks import LearnerLock, locked
from streamsvm.models.saved import LOADABLE
from streamsvm.online.calibration import noise_of
from streamsvm.online.schema import SchemaLearner


class OnlineClassifier(SchemaLearner):
    """Base of the online learners.

    Labels are of any hashable type; a class begins when its first event is learned. Features are as `FeatureSpace` has
    them.

    Thread-safe: any number of threads may predict with one model, single events or rows, while others learn; each call
    gives what it would give by itself. A single event is one compiled call that keeps the interpreter's lock; all else
    takes the learner's `_lock`. Memory that a learner has outgrown is there as long as a call has it.

    A subclass names its kernel file, `_kernels`, with the `CODE` that its `rows` have the addresses of, and gives
    `_new_state`.
    """

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def is_composed(self) -> bool:
        """Whether it has refits or costs: then its parts learn, and it has no memory of its own."""
        return False

    @property
    def memory_size(self) -> int:
        """How many numbers it has to remember of the moment at which an event was predicted, to learn it late."""
        return 0

    @property
    def noise(self) -> float:
        """The share of labels that are as if drawn at random, by which probabilities are bounded; 0 while for none.

        Learned as the stream runs, and heard where probabilities are better for it.
        """
        return noise_of(self._state.calibration)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_kernels" in cls.__dict__:
            LOADABLE[cls.__name__] = cls

    @property
    def n_features_in_(self) -> int | None:
        """How many columns the arrays have that were learned, None where none were; others are refused."""
        return self._space.mismatches.width

    @n_features_in_.setter
    def n_features_in_(self, width: int | None) -> None:
        self._space.mismatches.width = width

    def check_names(self, X: Any) -> None:
        """Compare the features of the first rows of a stream with those that were learned; warn where few are known.

        Parameters
        ----------
        X
            A table, a list of dicts, or `SparseRows`.

        Raises
        ------
        FeatureMismatchError
            Where none is known.
        """
        self._space.mismatches.check_names(X)

    def moment(self) -> Moment:
        """What it knows now, for `changes` to compare with later: a few numbers for each feature and class."""
        leaders = self.leaders() if hasattr(self, "leaders") else []
        return Moment(
            self.n_events_learned,
            self.spreads(),
            dict(getattr(self, "relevance", {})),
            self._shares_of_classes(),
            leaders[0]["member"] if leaders and self.n_events_learned else "",
            float(getattr(self, "autocorrelation_trust", 0.0)),
        )

    def spreads(self, names: Collection[Hashable] | None = None, most: int | None = None) -> dict[Hashable, Spread]:
        """What running scaling knows of the values of columns; nothing where there is none.

        Parameters
        ----------
        names
            Of which columns; None for all.
        most
            Of so many of them, in order of arrival; None for all.
        """
        rows, space = self._rows, self._space
        found: dict[Hashable, Spread] = {}
        wanted = None if names is None else set(names)
        for j, name in enumerate(space.names if rows.scaling != scaling.NONE else ()):
            if len(found) == most:
                break
            n = 0.0 if wanted is not None and name not in wanted else float(rows.present[j])
            if n == 0.0 or space.is_dead(j):
                continue
            if space.is_indicator[j]:
                found[name] = Spread(n, math.nan, math.nan)
                continue
            less = float(rows.total[j] / rows.count[j])
            variance = max(float(rows.squares[j] / rows.count[j]) - less * less, 0.0)
            found[name] = Spread(n, float(rows.shift[j]) + less, math.sqrt(variance), bool(rows.decay < 1.0))
        return found

    def _shares_of_classes(self) -> dict[Any, float]:
        """How often each class came."""
        counts = self._state.classes.learned[: len(self.labels.codes)].tolist()
        return dict(zip(self.classes_, counts, strict=True))

    @property
    def notices(self) -> list[str]:
        """What it has warned of, once each: features left out, and labels that look like mistakes."""
        return self._space.notices() + self.labels.notices

    @locked
    def keep_categories(self, names: Sequence[Hashable]) -> None:
        """Take the strings under these names for categories from now on, as `categories` does from the start.

        Parameters
        ----------
        names
            Names of features whose texts are mostly new, such as identifiers, which are left out otherwise.
        """
        self.categories = tuple(dict.fromkeys((*(self.categories or ()), *names))) or None
        self._own_space().texts.keep(names)

    @property
    def lock(self) -> LearnerLock:
        """Lock of the learner, to be held from loading an event to learning it."""
        return self._lock

    def column_relevance(self) -> Floats | None:
        """Relevance of each column in the learned metric, None without one."""
        found, space = self._relevances(), self._space
        if found is None:
            return None
        relevance = np.zeros(len(space.names))
        relevance[: len(found)] = found
        relevance[[j for j in range(len(found)) if space.is_dead(j)]] = 0.0
        return relevance

    def _relevances(self) -> Floats | None:
        """The part of each of the first columns in a learned metric, 0 of the others; None where there is none."""
        return None


def check_categories(categories: Any) -> tuple[Hashable, ...] | None:
    """Names as a tuple, whatever they came in; None where there are none, since River cannot clone an empty one."""
    if categories is None:
        return None
    if isinstance(categories, str) or not isinstance(categories, Iterable):
        raise TypeError(f"`categories` must be a tuple of feature names, got {categories!r}")
    return tuple(categories) or None
