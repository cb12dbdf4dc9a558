"""Checks of what is asked for, without what it takes to do it."""

from __future__ import annotations

from streamsvm.parameters import check_between, check_choice

KINDS = ("share", "recall", "precision")
"""What may be wanted of alarms."""


def check_alarms(kind: str, wanted: float) -> None:
    """Refuse what are no alarms.

    Parameters
    ----------
    kind, wanted
        As `Alarms` has them.

    Raises
    ------
    ValueError
        Where there is no such kind, or the share is not between 0 and 1.
    """
    check_choice("kind", kind, KINDS)
    check_between("wanted", wanted, 0.0, 1.0)
