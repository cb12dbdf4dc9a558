"""Labels of texts: classes, integers and missing labels."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from connectors.columns.cells import MISSING, MISSING_NUMBERS, Memo
from connectors.notices import Notices

_WORD = "none"  # also a frequent class name
_PLAINLY_MISSING = frozenset({"", "?"})

logger = logging.getLogger("connectors")


def label_of(text: str) -> int | str:
    """Convert a label to int if that is reversible, so that labels stay distinct.

    Examples
    --------
    >>> label_of("7"), label_of("07"), label_of("7.0")
    (7, '07', '7.0')
    """
    try:
        number = int(text)
    except ValueError:
        return text
    return number if str(number) == text else text


class Labels(Memo):
    """Cache of labels by text, with None for missing labels.

    Texts that may be either a class or a missing label are logged.

    Parameters
    ----------
    missing
        Markers of missing labels.
    notices
        Collection of warnings.
    convert
        Function that converts other texts.
    """

    def __init__(self, missing: frozenset[str], notices: Notices, convert: Callable[[str], Any] = label_of) -> None:
        super().__init__(self._meaning)
        self._missing, self._notices, self._label_of = missing, notices, convert
        self._told: set[str] = set()

    def _meaning(self, text: str) -> Any:
        label = None if text in self._missing else self._label_of(text)
        if label is None and text not in _PLAINLY_MISSING | self._told:
            self._told.add(text)
            if text.casefold() == _WORD and self._missing == MISSING:
                self._notices.say(
                    f"the label {text!r} is taken as missing, so that its events have no label: --set missing='?' "
                    "makes it a class (and leaves only the empty text and ? missing)"
                )
            else:
                logger.info("the label %r is taken as missing; if it names a class, set missing= to other texts", text)
        elif text in MISSING_NUMBERS and label is not None and self._missing == MISSING:
            logger.info(
                "the label %r is taken as a class; if it stands for a missing label, set missing=%s", text, text
            )
        return label
