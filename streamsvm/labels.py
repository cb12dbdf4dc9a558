"""Labels: validation, conversion from containers, and notices on their spelling."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from connectors.columns.cells import listed
from connectors.columns.strings import CategoricalColumn, numbers_of
from connectors.notices import Notice
from streamsvm.frames import eager

if TYPE_CHECKING:
    import narwhals as nw

_MOST_SHOWN = 5
_FRACTION_OF_ZERO = re.compile(r"([+-]?\d+)\.0*")
_IS_LABEL = {str, int, bool}  # every value of these types is a label
_NUMPY = (np.str_, np.bool_, np.integer, np.floating)
_TIMES = (np.datetime64, np.timedelta64)
_PLAIN: tuple[tuple[Any, Any], ...] = ((str, str.__str__), (int, int), (float, float))
_MOST_COMPARED = 250  # with more labels, these are probably identifiers


class LabelCodes(dict[Any, int]):
    """Numbers of labels in order of appearance; a new label gets the next number.

    Examples
    --------
    >>> codes = LabelCodes()
    >>> codes.of(["b", "a", "b"]).tolist(), codes["c"], list(codes)
    ([0, 1, 0], 2, ['b', 'a', 'c'])
    """

    def __missing__(self, label: Any) -> int:
        code = self[label] = len(self)
        return code

    @classmethod
    def of_labels(cls, labels: Iterable[Any]) -> LabelCodes:
        """Return the codes of distinct labels in order."""
        return cls((label, code) for code, label in enumerate(labels))

    def of(self, labels: Sequence[Any]) -> NDArray[np.int64]:
        """Return the numbers of labels."""
        found = numbers_of(labels, self)
        for i in np.flatnonzero(found < 0).tolist():
            found[i] = self[labels[i]]
        return found


def is_nan(value: Any) -> bool:
    """Return whether a value is NaN, or pandas' NaT or NA."""
    try:
        return type(value).__name__ == "NAType" or bool(value != value)
    except (TypeError, ValueError):  # an array, or a column of a frame
        return False


def is_label(value: Any) -> bool:
    """Return whether a value names a class: it is neither None nor NaN."""
    return value is not None and not is_nan(value)


def check_label(value: Any, name: str = "the label") -> None:
    """Raise an error if a value cannot be learned as a label.

    The message calls it by its name.

    Raises
    ------
    TypeError
        If the value is not hashable, for example a list, or a time of numpy.
    ValueError
        If the value is None or NaN.
    """
    if not _can_be_hashed(value):
        raise unhashable(value)
    if isinstance(value, _TIMES):
        raise TypeError(f"{name} is a {type(value).__name__} of numpy: {_AS_TEXT}")
    if not is_label(value):
        kind = "None" if value is None else "NaN"
        raise ValueError(f"{name} is {kind}: an event without a label can only be predicted")


def as_label(value: Any) -> Any:
    """Validate a new label, and convert `Enum` members and numpy scalars to values.

    Members of string and number enumerations are converted, because they equal their values.

    Raises
    ------
    TypeError, ValueError
        As in `check_label`.
    """
    if type(value) in _IS_LABEL:
        return value
    check_label(value)
    if isinstance(value, _NUMPY):  # equal to labels of an array, whose values are plain, too
        return value.item()
    if isinstance(value, Enum):
        for kind, convert in _PLAIN:
            if isinstance(value, kind):
                return convert(value)
    return value


def unhashable(value: Any) -> TypeError:
    """Return the error for a label of an unhashable type."""
    kind = type(value).__name__
    return TypeError(f"a label must be a single value that can be hashed, such as a string or a number, got {kind}")


def labels_of(y: Any) -> Sequence[Any]:
    """Return the labels of any container with one label per row.

    Encoded labels (`CategoricalColumn`) are returned unchanged.

    Raises
    ------
    TypeError, ValueError
        If y contains no labels, or several per row.
    """
    if isinstance(y, list | CategoricalColumn):
        return y
    if isinstance(y, np.ndarray):
        return list(_column_of_array(y).tolist())
    if (series := _as_series(y)) is not None:
        return _values_of(series)
    for name in ("to_list", "tolist", "to_pylist"):
        if hasattr(y, name):
            return list(getattr(y, name)())
    if isinstance(y, str | bytes | bytearray | Mapping | Set) or not isinstance(y, Iterable) or hasattr(y, "tocsr"):
        raise TypeError(f"labels of type {type(y).__name__} are not supported: {_WANTED}")
    return list(y)


def coded_labels(y: Any) -> CategoricalColumn:
    """Return labels as codes of distinct values.

    Raises
    ------
    TypeError, ValueError
        As in `labels_of`, and if a label is not hashable.
    """
    labels = labels_of(y)
    try:
        coded = CategoricalColumn.by_value(labels)
    except (TypeError, ValueError, OverflowError):  # values that cannot be hashed, or compared with others
        _check_types(labels)
        raise
    if any(isinstance(value, _TIMES) for value in coded.values):
        _check_types(labels)
    return coded


def _check_types(labels: Sequence[Any]) -> None:
    """Raise an error that names the first row with a label of an unsupported type."""
    for row, label in enumerate(labels):
        if not _can_be_hashed(label):
            raise TypeError(f"the label of row {row} is of type {type(label).__name__}: {_WANTED}")
        if isinstance(label, _TIMES) and is_label(label):
            check_label(label, f"the label of row {row}")


def _can_be_hashed(label: Any) -> bool:
    try:
        hash(label)
    except (TypeError, ValueError):  # a timedelta64 without a unit
        return False
    return True


_WANTED = "pass one label per row, as a list, an array or a series"
_AS_TEXT = "convert labels to strings"


def _column_of_array(y: NDArray[Any]) -> NDArray[Any]:
    if y.dtype.names is not None and len(y.dtype.names) == 1:
        y = y[y.dtype.names[0]]
    if y.dtype.names is not None or not (y.ndim == 1 or (y.ndim == 2 and y.shape[1] == 1)):
        raise ValueError(f"labels of shape {y.shape} and type {y.dtype} are not one for each row: {_WANTED}")
    if y.dtype.kind in "mM":  # `tolist` returns numbers of nanoseconds
        raise TypeError(f"labels of type {y.dtype}: {_AS_TEXT}")
    return y.reshape(-1)


def _as_series(y: Any) -> nw.Series[Any] | None:
    """Return a series of any library, or the only column of a table, else None."""
    import narwhals as nw

    if hasattr(y, "__arrow_c_array__") and hasattr(y, "to_pylist"):  # an array of pyarrow
        import pyarrow

        y = pyarrow.chunked_array([y])
    found = nw.from_native(y, pass_through=True, allow_series=True)
    if isinstance(found, nw.Series):
        return found
    if (frame := eager(y)) is None:
        return None
    if len(frame.columns) != 1:
        raise ValueError(f"the frame of labels has {len(frame.columns)} columns, {frame.columns[:5]}: {_WANTED}")
    return frame.get_column(frame.columns[0])


def _values_of(series: nw.Series[Any]) -> list[Any]:
    """Return the values of a series; refuse times that a Python object rounds."""
    import narwhals as nw

    labels = series.to_list()
    if series.dtype.is_temporal():
        known = series.drop_nulls()
        rounded = nw.new_series("", known.to_list(), known.dtype, backend=known.implementation)
        if not (rounded == known).all():
            raise TypeError(f"labels of type {series.dtype} differ by less than a microsecond: {_AS_TEXT}")
    return labels


def twin_of(label: Any, known: Iterable[Any]) -> Any:
    """Return a known label that differs from this one only in spelling, or None.

    Spelling means surrounding spaces, upper and lower case of words, string or number, and a fraction of zeros.

    Examples
    --------
    >>> twin_of("up ", ["down", "up"]), twin_of("Up", ["up"]), twin_of("7", [7]), twin_of("7.0", [7])
    ('up', 'up', 7, 7)
    >>> twin_of("a", ["A"]), twin_of("7.5", [7]), twin_of("07", [7])  # letters and codes may be classes of their own
    (None, None, None)
    """
    bare = _bare(label)
    return next((other for other in known if _bare(other) == bare and other != label), None)


def _twin_notice(label: Any, other: Any) -> str:
    shown = [repr(one.item() if isinstance(one, np.generic) else one) for one in (other, label)]
    return (
        f"the labels {shown[0]} and {shown[1]} are two classes that differ only in spelling: use one spelling "
        "if they are the same class"
    )


def twin_notices(labels: Sequence[Any]) -> list[str]:
    """Return notices for labels that differ from an earlier one only in spelling.

    Only the first few hundred labels are compared.
    """
    return [_twin_notice(label, other) for other, label in twins_in(labels[:_MOST_COMPARED])]


def twins_in(texts: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Iterate over pairs of texts or labels that differ only in spelling."""
    first: dict[str, Any] = {}
    for text in texts:
        other = first.setdefault(_bare(text), text)
        if other != text:
            yield other, text


def new_label_notice(label: Any, known: Collection[Any]) -> str | None:
    """Return a notice if a new label differs from a known one only in spelling.

    Return None otherwise. With several hundred known labels nothing is compared.
    """
    if len(known) >= _MOST_COMPARED or (other := twin_of(label, known)) is None:
        return None
    return _twin_notice(label, other)


def stranger_notices(labels: Sequence[Any], classes: Sequence[Any]) -> list[Notice]:
    """Return notices for labels that are not classes of a model that does not learn.

    Only the first few hundred such labels are reported.

    Examples
    --------
    >>> [notice[:60] for notice in stranger_notices(["UP", "down"], ["up", "down"])]
    ["the label 'UP' differs from the class 'up' of the model only"]
    """
    known = set(classes)
    found = []
    for label in [label for label in labels if label not in known][:_MOST_COMPARED]:
        twin = twin_of(label, classes[:_MOST_COMPARED])
        if twin is None:
            few = listed(classes, _MOST_SHOWN)
            form = (
                "the label {name!r} is not a class of the model ({few}), which does not learn: its events count as "
                "errors"
            )
            found.append(Notice.of(form, label, few=few))
        else:
            form = (
                "the label {name!r} differs from the class {twin!r} of the model only in spelling, and its events "
                "count as errors: spell labels as in training"
            )
            found.append(Notice.of(form, label, twin=twin))
    return found


def are_fractional(labels: Sequence[Any]) -> bool:
    """Return whether most labels are fractional numbers, which suggests regression.

    Examples
    --------
    >>> are_fractional(["3.467", 2.5, "12"]), are_fractional([1, 2, 3.0, "a"])
    (True, False)
    """
    return 2 * sum(map(_has_fraction, labels)) > len(labels)


def _has_fraction(label: Any) -> bool:
    try:
        number = float(label)
    except (TypeError, ValueError, OverflowError):
        return False
    return math.isfinite(number) and not number.is_integer()


def _bare(label: Any) -> str:
    text = str(label).strip()
    whole = _FRACTION_OF_ZERO.fullmatch(text)
    text = whole[1] if whole else text
    return text.casefold() if len(text) > 1 else text
