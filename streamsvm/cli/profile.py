"""``streamsvm profile``: write the reference profile of a stream."""

from __future__ import annotations

import os

from streamsvm.cli.terminal import complain
from streamsvm.names import shown
from streamsvm.run.config import RunConfig

_MOST_NAMES = 10


def main(config: RunConfig, _started: float) -> int:
    """Read the stream, write the profile, and return the exit code."""
    config.validate()
    from streamsvm.run.errors import RunError
    from streamsvm.run.profiles import ReadStream, profile_of

    stream, path = ReadStream(config), str(config.out)
    profile = profile_of(stream)
    try:
        profile.save(path)
    except OSError as error:
        raise RunError(f"--out {path}: cannot be written: {error.strerror or error}") from error
    rejected = f", {stream.n_rejected:,} records rejected" if stream.n_rejected else ""
    if not config.quiet:
        print(f"{os.path.normpath(path)}: {len(profile.columns):,} features of {stream.n_events:,} events{rejected}")
        if dependent := [shown(column.name) for column in profile.columns if not column.is_stationary]:
            more = f" and {len(dependent) - _MOST_NAMES:,} more" if len(dependent) > _MOST_NAMES else ""
            why = "dates, or values that depend on each other for as long as these events"
            print(f"  values not compared: {', '.join(dependent[:_MOST_NAMES])}{more} ({why})")
    if stream.example is None or stream.n_rejected <= stream.n_events:
        return 0
    return complain(f"more than half of the records were rejected, the first one: {stream.example.reason}", 3)
