"""Comparison of the features that a model has learned with those that it is given."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

_SHOWN = 5
# So many events in a row without a single known feature raise a warning.
_MOST_STRANGE = 10


class FeatureMismatchError(ValueError):
    """Rows whose features are not those that the model has learned.

    Attributes
    ----------
    missing
        Names that the model has learned and the rows lack.
    new
        Names of the rows that the model has not learned.
    """

    def __init__(self, message: str, missing: Iterable[Any] = (), new: Iterable[Any] = ()) -> None:
        self.missing, self.new = list(missing), list(new)
        super().__init__(message)


def compare(
    known: Collection[Any],
    given: Sequence[Any],
    *,
    complete: bool = True,
    open_ended: bool = False,
    table: bool = False,
) -> tuple[int, str]:
    """What to say of names that are not in common, and how loud: a level of `logging`, and a text or nothing.

    Less than half in common is a warning. So are names of a table where some are missing and others new, as they have
    been renamed perhaps. Either of these by itself is an information.

    Parameters
    ----------
    known
        Names that the model has learned.
    given
        Names of the rows.
    complete
        Whether rows are expected to have all names, as those of a table do and sparse ones do not.
    open_ended
        Whether names that the model does not know are expected.
    table
        Whether each row has all of the names, so that every difference means something.

    Raises
    ------
    FeatureMismatchError
        Where none is in common.

    Examples
    --------
    >>> compare(["a", "b", "c"], ["a", "x"])
    (30, '1 of the 3 features that the model has learned is given: missing are b, c; new are x')
    >>> compare(["a", "b", "c"], ["a", "b"], table=True)
    (20, '2 of the 3 features that the model has learned are given: missing are c')
    """
    if not known:
        return logging.INFO, ""
    new = [name for name in given if name not in known]
    n_common = len(given) - len(new)
    there = set(given)
    missing = [name for name in known if name not in there]
    if not n_common:
        form = str if {*map(str, new)}.isdisjoint(map(str, missing)) else repr  # 1 and '1'
        raise FeatureMismatchError(
            f"the model has learned none of the {len(given)} features that it is given ({_listed(new, form)}), but "
            f"{_listed(missing, form)}: rename them, or use the model that belongs to them",
            missing,
            new,
        )
    are_few = (complete and 2 * n_common < len(known)) or (not open_ended and 2 * n_common < len(given))
    if not are_few and not (table and (missing or (new and not open_ended))):
        return logging.INFO, ""
    verb = "is" if n_common == 1 else "are"
    parts = [f"{word} are {_listed(names)}" for word, names in (("missing", missing), ("new", new)) if names]
    text = f"{n_common} of the {len(known)} features that the model has learned {verb} given: {'; '.join(parts)}"
    return logging.WARNING if are_few or (missing and new) else logging.INFO, text


def check_width(learned: int | None, given: int) -> None:
    """Refuse an array of another width than those that were learned, as scikit-learn does.

    Raises
    ------
    FeatureMismatchError
        With both widths in the message.
    """
    if learned is not None and given != learned:
        raise FeatureMismatchError(
            f"X has {given} features, but the model is expecting {learned} features as input, as many as the arrays "
            "that it learned have: features that come and go need names, as of dicts or data frames",
            range(given, learned),
            range(learned, given),
        )


class Strangers:
    """Counts events in a row of which no feature is known, to warn once."""

    def __init__(self) -> None:
        self.count = 0  # to be set to 0 where an event has one
        self.notice = ""

    def come(self, names: Iterable[Any], n: int) -> bool:
        """Count events without any; whether to warn now, with `notice`."""
        self.count += n
        if self.notice or self.count < _MOST_STRANGE:
            return False
        self.notice = (
            f"{self.count} events in a row have no feature that the model has learned, but such as "
            f"{_listed(list(names))}: they are predicted from the frequencies of the classes alone"
        )
        return True


def _listed(names: Sequence[Any], form: Callable[[Any], str] = str) -> str:
    more = f", ... ({len(names)} in all)" if len(names) > _SHOWN else ""
    return ", ".join(map(form, names[:_SHOWN])) + more
