"""Base class of the online learners.

It handles labels, encoding, rows and saving around one compiled step per learner.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from inspect import signature
from typing import Any

import numpy as np

from streamsvm.decide.changes import ModelSummary, Spread
from streamsvm.features.rows import Floats
from streamsvm.features.scaler import NONE
from streamsvm.locks import LearnerLock, locked
from streamsvm.models.saved import LOADABLE
from streamsvm.mutation import FixedParameter
from streamsvm.online.calibration import noise_of
from streamsvm.online.saving import SavedLearner
from streamsvm.parameters import ParameterTypeError


class OnlineClassifier(SavedLearner):
    """Base of the online learners.

    Labels have any hashable type; a class is added with its first learned event. Features are encoded by
    `FeatureSpace`.

    Thread-safe: threads may predict with one model while others train it. A single event is one compiled call that
    holds the GIL. All other calls take the lock of the learner. A call keeps the memory it works on alive, even if the
    learner grows meanwhile.

    A subclass defines `_new_state` and sets `_kernels` to its kernel module. `CODE` of that module names the entry
    points.
    """

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def memory_size(self) -> int:
        """Number of integers stored per event at prediction to learn its label late."""
        return 0

    @property
    def noise(self) -> float:
        """Estimated share of random labels, which caps probabilities.

        It is 0 while the estimate does not reduce the log loss.
        """
        return noise_of(self._state.calibration)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_kernels" in cls.__dict__:
            LOADABLE[cls.__name__] = cls
            for name in set(signature(cls).parameters) - {name for kind in cls.__mro__ for name in vars(kind)}:
                setattr(cls, name, FixedParameter(name))

    @property
    def n_features_in_(self) -> int | None:
        """Number of columns of learned arrays, or None.

        Arrays with another number of columns are refused. It is None if no arrays were learned.
        """
        return self._space.mismatches.width

    @n_features_in_.setter
    def n_features_in_(self, width: int | None) -> None:
        self._space.mismatches.width = width

    def check_names(self, X: Any) -> None:
        """Warn if few features of the first rows of a stream are known.

        Parameters
        ----------
        X
            A table, a list of dicts, or `SparseRows`.

        Raises
        ------
        FeatureMismatchError
            If no feature is known.
        """
        self._space.mismatches.check_names(X)

    def summary(self) -> ModelSummary:
        """Return a summary of features and classes, for `changes` to compare later."""
        leaders = self.leaders() if hasattr(self, "leaders") else []
        return ModelSummary(
            self.n_events_learned,
            self.spreads(),
            dict(getattr(self, "relevance", {})),
            self._shares_of_classes(),
            leaders[0]["member"] if leaders and self.n_events_learned else "",
            float(getattr(self, "autocorrelation_weight", 0.0)),
        )

    def spreads(self, names: Collection[Hashable] | None = None, most: int | None = None) -> dict[Hashable, Spread]:
        """Return running statistics of columns.

        Parameters
        ----------
        names
            Names of columns; None for all.
        most
            Maximum number of columns, in order of appearance; None for all.

        Returns
        -------
        dict of Spread
            Statistics by column name; empty without scaling.
        """
        rows, space = self._rows, self._space
        found: dict[Hashable, Spread] = {}
        wanted = None if names is None else set(names)
        for j, name in enumerate(space.names if rows.scaling != NONE else ()):
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
        """Return the share of each class."""
        counts = self._state.classes.learned[: len(self.labels.codes)].tolist()
        return dict(zip(self.classes_, counts, strict=True))

    @property
    def notices(self) -> list[str]:
        """Warnings given so far: features left out, and labels that look like mistakes."""
        return self._space.notices() + self.labels.notices

    @locked
    def keep_categories(self, names: Sequence[Hashable]) -> None:
        """Treat the strings of these features as categories from now on.

        Parameters
        ----------
        names
            Names of features, which are added to `categories`. By default, features with mostly new strings are left
            out.
        """
        self.__dict__["categories"] = tuple(dict.fromkeys((*(self.categories or ()), *names))) or None
        self._own_space().texts.keep(names)

    @property
    def lock(self) -> LearnerLock:
        """Lock of the learner, held from loading an event to learning it."""
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

    def _by_relevance(self, values: Floats) -> dict[Any, float]:
        """Return the relevance of the first columns by name, the largest first."""
        space = self._space
        order = np.argsort(-values, kind="stable").tolist()
        return {space.names[j]: float(values[j]) for j in order if not space.is_dead(j)}

    def _relevances(self) -> Floats | None:
        """Return the relevance of the first columns in the learned metric, or None."""
        return None


def check_categories(categories: Any) -> tuple[Hashable, ...] | None:
    """Return names as a tuple, or None without names.

    River cannot clone an empty tuple.
    """
    if categories is None:
        return None
    if isinstance(categories, str) or not isinstance(categories, Iterable):
        raise ParameterTypeError("categories", f"must be a tuple of feature names, got {categories!r}")
    return tuple(categories) or None
