"""What a run ends with: the report, the summary and the picture, where they were asked for."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TextIO

from connectors.options import split_url
from streamsvm.models.archive import replacing
from streamsvm.run.errors import RunError
from streamsvm.run.plot import plot
from streamsvm.run.report import summary, text
from streamsvm.run.runner import Report


def deliver(args: argparse.Namespace, report: Report) -> list[Exception]:
    """Print and write all that was asked for, as far as that can be done; what failed is returned."""
    failures: list[Exception] = []
    for name, write in (("report", _print_text), ("summary", _write_summary), ("plot", _draw)):
        try:
            write(args, report)
        except BrokenPipeError as error:
            failures.append(error)
        except OSError as error:
            place = getattr(args, name, None) or "standard output"
            failures.append(RunError(f"{name}: {place}: cannot be written: {error.strerror or error}"))
    return failures


def _print_text(args: argparse.Namespace, report: Report) -> None:

    taken = any(split_url(url or "")[0] == "-" for url in (args.out, args.rejected))
    if not args.quiet:
        stream = sys.stderr if taken else sys.stdout
        if stream is not None:  # as where standard output is closed
            print(_encodable(text(report), stream), file=stream, flush=True)


def _encodable(shown: str, stream: TextIO) -> str:
    """A text in letters that a terminal knows."""
    try:
        shown.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return shown.translate({ord("µ"): "u", ord("…"): "..."})
    return shown


def _write_summary(args: argparse.Namespace, report: Report) -> None:
    if args.summary:
        figures = json.dumps(summary(report), indent=2, ensure_ascii=False) + "\n"
        with replacing(args.summary) as file:
            file.write(figures.encode("utf-8", errors="backslashreplace"))


def _draw(args: argparse.Namespace, report: Report) -> None:
    if args.plot:
        plot(report, args.plot)
