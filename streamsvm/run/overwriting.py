"""Refusal to replace files that no run has written."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable

from streamsvm.models.archive import is_saved_model
from streamsvm.run.errors import SetupError

MADE_BY = "streamsvm"
"""What pictures say of what made them."""
# The metadata of PNG, SVG and PDF as matplotlib writes them.
_IN_PICTURES = (f"Software\0{MADE_BY}", f"<dc:title>{MADE_BY}</dc:title>", f"/Creator ({MADE_BY})")
_IN_SUMMARIES = {"model", "source", "events", "process"}


def check_overwriting(args: argparse.Namespace) -> None:
    """Refuse to replace what is not recognised, except with `--overwrite`; results are looked at by their sinks."""
    recognised: dict[str, Callable[[str], bool]] = {"save": is_saved_model, "summary": is_summary, "plot": is_picture}
    for name, is_own in recognised.items():
        path = getattr(args, name)
        if args.overwrite or not path or not os.path.isfile(path) or not os.path.getsize(path):
            continue
        if not is_own(path):
            raise SetupError(
                f"--{name} {path}: exists and was not written by --{name}: give another name, or replace it with "
                "--overwrite"
            )


def is_summary(path: str) -> bool:
    """Whether a file holds the figures of a run."""
    try:
        with open(path, encoding="utf-8") as file:
            figures = json.load(file)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(figures, dict) and figures.keys() >= _IN_SUMMARIES


def is_picture(path: str) -> bool:
    """Whether a file is a picture of a run, which says so in its metadata."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return False
    return any(mark.encode() in data for mark in _IN_PICTURES)
