"""All a run needs to go on after it was killed, in one file, of one moment."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from connectors.events import Position
from streamsvm.models.archive import CHECKPOINT, check_names, clear_halfway, read_archive, write_archive
from streamsvm.models.codec import State, nested, part_of
from streamsvm.run.errors import RunError, SetupError
from streamsvm.run.locks import lock

_PIECE = re.compile(r"[0-9a-f]{16}-\d+\.npz")  # names of files of `pending.store`
_PLAIN = ("identity", "source", "sinks")
_STATES = ("model", "metrics", "history")
_IF_ANY = ("late", "decisions")


@dataclass(slots=True)
class Snapshot:
    """A moment of a run.

    Parameters
    ----------
    identity
        The settings that must be the same for a run to go on from here, by name.
    source
        How far the stream has been taken, as `BatchProgress.state` has it.
    sinks
        What was durable of each sink, by its role.
    states
        What `state` of each part gave: `model`, `metrics`, `history`, `decisions`, and `late` where labels come later.
    ended
        Why the run was over, as of its report; empty while it was not.
    """

    identity: dict[str, str]
    source: Position
    sinks: dict[str, Position]
    states: dict[str, State]
    ended: str = ""


class Checkpoint:
    """A directory with the last snapshot of a run, held by one process at a time, from `with` to its end.

    Parameters
    ----------
    directory
        Where the snapshot lives; made if absent.
    every_events
        Take a snapshot after at least this many events; None leaves it to `every_s`.
    every_s
        Take a snapshot after at least this many seconds; None leaves it to `every_events`.
    fresh
        Discard what an earlier run left.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        every_events: int | None = None,
        every_s: float | None = 5.0,
        fresh: bool = False,
    ) -> None:
        self.directory = Path(directory)
        self.path = self.directory / "checkpoint.npz"
        self.pieces = self.directory / "waiting"
        """Where pieces of a snapshot are kept that do not change any more."""
        self.every_events, self.every_s, self.fresh = every_events, every_s, fresh
        self.written_at: float | None = None
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Checkpoint:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = lock(self.directory / "lock")
        except OSError as error:
            raise SetupError(f"cannot use {self.directory} for checkpoints: {error.strerror}") from error
        if self._lock is None:
            raise SetupError(
                f"another run holds the checkpoint directory {self.directory}; wait for it, or give another one"
            )
        clear_halfway(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    @property
    def exists(self) -> bool:
        """Whether there is a snapshot to go on from."""
        return not self.fresh and self.path.exists()

    def due(self, events: int, seconds: float) -> bool:
        """Whether it is time for a snapshot, so many events and seconds after the last."""
        by_events = self.every_events is not None and events >= self.every_events
        return by_events or (self.every_s is not None and seconds >= self.every_s)

    def read(self, identity: dict[str, str]) -> Snapshot | None:
        """The snapshot an earlier run left, or None.

        Raises
        ------
        SetupError
            Where it was taken with other settings.
        """
        if not self.exists:
            return None
        try:
            snapshot = read_snapshot(self.path)
        except ValueError as error:
            raise SetupError(f"{error}; give another --checkpoint directory, or --reset to start over") from error
        self._compare(snapshot.identity, identity)
        return snapshot

    def discard(self) -> None:
        """Forget what an earlier run left."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self.keep_pieces(frozenset())

    def write(self, snapshot: Snapshot) -> None:
        """Replace the snapshot, atomically and durably."""
        header = {"class": CHECKPOINT, **{name: getattr(snapshot, name) for name in (*_PLAIN, "ended")}}
        header, arrays = nested(snapshot.states, header, "/")
        with writing(self.path):
            write_archive(self.path, header, arrays)
        self.written_at = time.time()

    def keep_pieces(self, names: Set[str]) -> None:
        """Remove all pieces but those that the snapshot needs."""
        for path in self.pieces.iterdir() if self.pieces.is_dir() else ():
            if path.name not in names and _PIECE.fullmatch(path.name):
                path.unlink()

    def _compare(self, old: dict[str, str], new: dict[str, str]) -> None:
        differing = [name for name in old | new if old.get(name) != new.get(name)]
        if differing:
            changes = "; ".join(
                f"{name} was {old.get(name, 'not given')}, now {new.get(name, 'not given')}" for name in differing
            )
            raise SetupError(
                f"the checkpoint in {self.directory} is of another run: {changes}. "
                "Give the same settings to go on, another --checkpoint directory, or --reset to start over"
            )


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Errors say that a checkpoint was to be written there."""
    try:
        yield
    except OSError as error:
        raise RunError(f"checkpoint: {path}: cannot be written: {error.strerror or error}") from error


def read_snapshot(path: Path) -> Snapshot:
    """What was left there, whoever holds it.

    Raises
    ------
    ValueError
        Where it is no checkpoint, or not a whole one.
    FileNotFoundError
        Where there is none.
    """
    header, arrays = read_archive(path)
    if header.get("class") != CHECKPOINT:
        raise ValueError(f"{path} is not a checkpoint but holds a {header.get('class')}")
    if absent := {*_PLAIN, *_STATES} - set(header):
        raise ValueError(f"{path} lacks {', '.join(sorted(absent))}")
    if not all(isinstance(header[name], dict) for name in ("identity", "sinks", *_STATES)):
        raise ValueError(f"{path} is not a whole checkpoint")
    parts = tuple(f"{part}/" for part in (*_STATES, *_IF_ANY))
    check_names(arrays, {name for name in arrays if name.startswith(parts)})
    states = {part: part_of((header, arrays), part, "/") for part in (*_STATES, *_IF_ANY) if part in header}
    return Snapshot(header["identity"], header["source"], header["sinks"], states, str(header.get("ended", "")))
