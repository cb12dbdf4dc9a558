"""Keys of events and labels as texts, and a notice where none of one side is found on the other."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.held import Texts
from streamsvm.models import encode_label

MANY_LABELS = 1_000  # a warning comes where so many labels find no event
_KEPT = 1_000  # keys of each side


class KeyExamples:
    """Keys of events and of labels that came first, to tell why no label finds its event.

    Examples
    --------
    >>> examples = KeyExamples()
    >>> examples.add(["7", "8"], ["000007"])
    >>> examples.notice({"labels": 1, "answered": 0, "late": 0, "repeated": 0, "corrected": 0}).partition(";")[0]
    "none of 1 labels has found its event: keys of events are such as '7', keys of labels such as '000007'"
    """

    def __init__(self) -> None:
        self._sides: tuple[dict[str, str], dict[str, str]] = {}, {}  # how a key reads without zeros etc.: the key

    def add(self, of_events: Sequence[Any], of_labels: Sequence[Any]) -> None:
        """Keep some of these keys."""
        for found, keys in zip(self._sides, (of_events, of_labels), strict=True):
            for key in key_texts(keys[: max(_KEPT - len(found), 0)]):
                found.setdefault(_plain(key), key)

    def notice(self, counts: Mapping[str, int]) -> str:
        """What to say where no label has found its event, by the counts of the join; empty for nothing."""
        of_events, of_labels = self._sides
        found = sum(counts[name] for name in ("answered", "late", "repeated", "corrected"))
        if found or not of_events or not of_labels:
            return ""
        alike = next((plain for plain in of_labels if plain in of_events), None)
        if alike is not None and of_events[alike] == of_labels[alike]:
            return ""  # their times keep them apart
        keys = [side[alike] if alike is not None else next(iter(side.values())) for side in self._sides]
        return (
            f"none of {counts['labels']:,} labels has found its event: keys of events are such as {keys[0]!r}, keys of "
            f"labels such as {keys[1]!r}; they must be equal as texts (do both streams mean the same by the key?)"
        )


def _plain(key: str) -> str:
    """A key without what often differs between two sources: blanks, leading zeros, decimals, cases, quotes."""
    text = key.strip().strip("\"'").casefold()
    with contextlib.suppress(ValueError, OverflowError):
        number = float(text)
        if number.is_integer() and abs(number) < 2.0**53:
            return str(int(number))
    return text.lstrip("0")


def key_texts(keys: Sequence[Any]) -> Sequence[str]:
    """Keys as texts."""
    return keys if isinstance(keys, Texts) or set(map(type, keys)) <= {str} else list(map(key_text, keys))


def key_text(key: Any) -> str:
    """A key as a text, in which 17 and "17" are the same.

    Raises
    ------
    TypeError
        For what has no text of its own.

    Examples
    --------
    >>> key_text(17), key_text("17"), key_text(17.0), key_text(("a", 1))
    ('17', '17', '17', '{"tuple": ["a", 1]}')
    """
    if type(key) is str:
        return key
    if isinstance(key, float) and key.is_integer():
        key = int(key)
    if isinstance(key, bytes):
        return key.decode("utf-8", "surrogateescape")
    if isinstance(key, int | float | str) and not isinstance(key, bool):
        return str(key)
    return json.dumps(encode_label(key))
