"""Display of names from outside, such as labels and features."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from connectors.columns import cells

_MOST = 40


def shown(name: Any, most: int = _MOST) -> str:
    """Return a name on one line, truncated to `most` characters.

    Unprintable characters, such as control characters or unpaired surrogates, are escaped.

    Examples
    --------
    >>> print(shown("two\\nlines"), shown("x" * 100, most=5))
    two\\nlines xxxx…
    """
    text = str(name)[: most + 1]
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def feature(name: Any) -> Any:
    """Return the display name of a column, with its string or "is missing".

    Examples
    --------
    >>> feature(("device", "web")), feature(("speed", None)), feature("temperature"), feature(3)
    ('device = web', 'speed is missing', 'temperature', 3)
    """
    if not (isinstance(name, tuple) and len(name) == 2):
        return name
    return f"{name[0]} is missing" if name[1] is None else f"{name[0]} = {name[1]}"


def listed(names: Iterable[Any], most: int = 8, form: Callable[[str], str] = str) -> str:
    """Return the first names of some columns.

    Examples
    --------
    >>> listed(["a", ("device", "web")]), listed("abc", 1, repr)
    ('a, device = web', "'a' and 2 more")
    """
    return cells.listed(names, most, lambda name: form(shown(feature(name))))
