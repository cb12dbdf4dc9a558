"""Online learners with the scikit-learn interface; it needs the extra `batch`."""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
except ImportError as error:
    raise ImportError("`streamsvm.sklearn` needs scikit-learn: pip install 'streamsvm[batch]'") from error
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    check_X_y,
    column_or_1d,
    validate_data,
)

from streamsvm.ensemble.classifier import StreamSVMClassifier
from streamsvm.features.rows import Floats
from streamsvm.features.tables import table_of_frame
from streamsvm.frames import eager
from streamsvm.online.row_methods import RowMethods
from streamsvm.parameters import ParameterError, ParameterTypeError

__all__ = ["StreamClassifier"]

_NESTED = "learner__"


class StreamClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """scikit-learn classifier around an online learner.

    `fit` learns the rows once, in their order. `partial_fit` learns further rows. Rows are arrays, sparse matrices, or
    data frames with numbers and text. NaN and None are missing values. Predictions do not use label autocorrelation,
    because scikit-learn may pass rows in any order.

    Parameters
    ----------
    learner
        `StreamSVMClassifier`, `BSGDClassifier`, `CPMClassifier` or `RefitClassifier`. The classifier trains a copy and
        does not change the original. None: a `StreamSVMClassifier` with default parameters. Parameters of the learner
        have the prefix `learner__`, for example `learner__effort`.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    learner_
        The fitted learner.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray
        Names of the columns, if X was a data frame with strings as column names.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm.sklearn import StreamClassifier
    >>> X = np.random.default_rng(0).normal(size=(500, 3))
    >>> y = np.where(X[:, 0] > 0.0, "up", "down")
    >>> model = StreamClassifier().set_params(learner__effort="low").fit(X[:400], y[:400])
    >>> model.predict([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]]).tolist(), model.score(X[400:], y[400:]) > 0.9
    (['up', 'down'], True)
    """

    classes_: NDArray[Any]
    learner_: Any
    _columns: list[Any] | None

    def __init__(self, learner: Any = None) -> None:
        self.learner = learner

    def _template(self) -> Any:
        """Return the learner to copy."""
        learner = StreamSVMClassifier() if self.learner is None else self.learner
        if not isinstance(learner, RowMethods):
            wanted = f"must be an online learner of streamsvm, as StreamSVMClassifier(), got {learner!r}"
            raise ParameterTypeError("learner", wanted)
        return learner

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters.

        Parameters
        ----------
        deep
            Whether to also return the parameters of the learner, with names such as `learner__effort`.
        """
        params = {"learner": self.learner}
        if deep and (self.learner is None or isinstance(self.learner, RowMethods)):
            learner = self._template()
            names = inspect.signature(type(learner)).parameters
            params |= {_NESTED + name: getattr(learner, name) for name in names}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the classifier, or of its learner (`learner__effort`).

        Parameters
        ----------
        **params
            Values by name. A parameter of the learner replaces the learner with a copy that has learned nothing.

        Raises
        ------
        ValueError
            If there is no such parameter.
        """
        nested = {name.removeprefix(_NESTED): value for name, value in params.items() if name.startswith(_NESTED)}
        super().set_params(**{name: value for name, value in params.items() if not name.startswith(_NESTED)})
        known = self.get_params()
        for name in nested:
            if _NESTED + name not in known:
                raise ParameterError(name, f"is no parameter of the learner {self.learner!r}")
        if nested:
            self.learner = self._template().clone(nested)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn rows once, in their order, and forget earlier ones.

        Parameters
        ----------
        X
            Rows, shape (n, d): an array, a sparse matrix or a data frame.
        y
            n labels.
        sample_weight
            n weights, not all 0; None for 1 each. Rows of weight 0 are not learned.
        """
        return self._learn(X, y, None, sample_weight, reset=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn further rows.

        Parameters
        ----------
        X, y, sample_weight
            Rows, labels and weights, as for `fit`.
        classes
            Labels to include in `classes_`. Labels of y that are not in `classes` are added when they arrive.
        """
        return self._learn(X, y, classes, sample_weight, reset=not hasattr(self, "learner_"))

    def _learn(self, X: Any, y: Any, classes: Any, sample_weight: Any, reset: bool) -> Self:
        learner = self._template().clone() if reset else self.learner_
        rows, y = self._checked(X, reset, y=y)
        check_classification_targets(y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, y, dtype=np.float64, ensure_non_negative=True)
        known = [] if reset else [self.classes_]
        known += [y] if classes is None else [column_or_1d(classes), y]
        all_classes = np.unique(np.concatenate(known))
        learner.learn_many(rows, y, w=sample_weight)
        self.classes_, self.learner_ = all_classes, learner
        return self

    def _checked(self, X: Any, reset: bool = False, **labels: Any) -> tuple[Any, Any]:
        """Validate rows, and labels if given; return columns by name, and labels."""
        frame = eager(X)
        if reset:
            self._columns = None if frame is None else frame.columns
        if frame is not None:
            validate_data(self, frame.to_native(), reset=reset, skip_check_array=True, **labels)
            self._check_order(frame.columns)
            y = check_X_y(np.zeros((len(frame), 1)), estimator=self, **labels)[1] if labels else None
            columns: Any = table_of_frame(frame).values()
        else:
            checks = {"accept_sparse": "csr", "ensure_all_finite": "allow-nan", "dtype": np.float64}
            found = validate_data(self, X, reset=reset, **labels, **checks)
            X, y = found if labels else (found, None)
            if not (isinstance(X, np.ndarray) and hasattr(self, "feature_names_in_")):
                return X, y
            columns = X.T
        names = getattr(self, "feature_names_in_", range(self.n_features_in_))
        return dict(zip(names, columns, strict=True)), y

    def _check_order(self, names: list[Any]) -> None:
        """Refuse columns in another order; scikit-learn checks only string names."""
        if self._columns is not None and names != self._columns and set(names) == set(self._columns):
            raise ValueError(f"the columns of X must be in the order of `fit`, {self._columns}, and are {names}")

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the labels of rows.

        Parameters
        ----------
        X
            Rows, as for `fit`.

        Returns
        -------
        ndarray, shape (n,)
            Labels. None where a learner with `abstain` abstains; `score` does not accept such predictions.
        """
        check_is_fitted(self, "learner_")
        labels = np.asarray(self.learner_.predict_many(self._checked(X)[0]), object)
        return labels if None in labels else labels.astype(self.classes_.dtype)

    def predict_proba(self, X: Any) -> Floats:
        """Predict the probabilities of the classes.

        Parameters
        ----------
        X
            Rows, as for `fit`.

        Returns
        -------
        ndarray, shape (n, n_classes)
            Probabilities in the order of `classes_`; 0 for classes without a learned row.
        """
        check_is_fitted(self, "learner_")
        found = self.learner_.proba_array(self._checked(X)[0])
        proba = np.zeros((len(found), len(self.classes_)))
        proba[:, np.searchsorted(self.classes_, self.learner_.classes_[: found.shape[1]])] = found
        return proba
