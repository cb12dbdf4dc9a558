"""Checkpoints: all state of a run at one moment in one file."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from connectors.errors import ConnectorError, FencedError, UnreachableError
from connectors.events import Position
from connectors.outputs.results import make_directory, sync_directory
from connectors.streams import Sink, Source
from streamsvm.core.library import kind_of_code
from streamsvm.models.archive import CHECKPOINT, CORRUPT_ERRORS, clear_halfway, read_archive, write_archive
from streamsvm.models.codec import SavedState, check_parts, nested, part_of
from streamsvm.run.errors import SetupError, writing
from streamsvm.run.learners import class_path

logger = logging.getLogger(__name__)

_PIECE = re.compile(r"[0-9a-f]{16}-\d+\.safetensors")  # names of files of `delayed.store`
_PLAIN = ("identity", "source", "sinks", "ended", "code")
_STATES = ("model", "metrics", "history")
_REFITS = "streamsvm.refit.classifier.RefitClassifier"  # whose parameters the option --refit has
_ALL_STATES = (*_STATES, "decisions", "notices", "monitor", "late")


@dataclass(slots=True)
class Snapshot:
    """State of a run at one moment.

    Parameters
    ----------
    identity
        Settings that a resumed run must match, by name.
    source
        Progress of the stream, as `BatchProgress.state`.
    sinks
        Durable position of each sink, by role.
    states
        Result of `state` of each part: `model`, `metrics`, `history`, `decisions`, `notices`, `late` with late labels,
        and `monitor` with a monitor.
    ended
        Reason for the end of the run, as in its report; empty while it is running.
    code
        Kind of compiled code that computed it, as `kind_of_code`; empty if unknown.
    """

    identity: dict[str, str]
    source: Position
    sinks: dict[str, Position]
    states: dict[str, SavedState]
    ended: str = ""
    code: str = field(default_factory=kind_of_code)


class Checkpoint:
    """Directory with the last snapshot of a run; a context manager that locks it.

    Parameters
    ----------
    directory
        Directory of the snapshot, created if absent.
    every_events
        Take a snapshot after at least this many events; None uses `every_s` only.
    every_s
        Take a snapshot after at least this many seconds; None uses `every_events` only.
    fresh
        Discard the state of an earlier run.
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
        self.path = self.directory / "checkpoint.safetensors"
        self.pieces = self.directory / "waiting"
        """Where pieces of a snapshot are kept that do not change any more."""
        self.every_events, self.every_s, self.fresh = every_events, every_s, fresh
        self.written_at: float | None = None
        self._written: float | None = None  # monotonic, in contrast to the system clock
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Checkpoint:
        try:
            make_directory(self.directory)
            self._lock = locked_file(self.directory / "lock")
        except FileExistsError as error:
            raise SetupError(f"cannot use {self.directory} for checkpoints: it is not a directory") from error
        except OSError as error:
            raise SetupError(f"cannot use {self.directory} for checkpoints: {error.strerror}") from error
        if self._lock is None:
            what = f"another run uses the checkpoint directory {self.directory}; wait for its end, or use another one"
            raise SetupError(what, "locked")
        clear_halfway(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    @property
    def exists(self) -> bool:
        """Whether there is a snapshot to resume from."""
        return not self.fresh and self.path.exists()

    @property
    def age(self) -> float | None:
        """Seconds since the last snapshot, None without one.

        Changes of the system clock do not affect it.
        """
        if self._written is not None:
            return time.monotonic() - self._written
        return None if self.written_at is None else max(0.0, time.time() - self.written_at)  # of another process

    def due(self, events: int, seconds: float) -> bool:
        """Return whether a snapshot is due, after `events` events since the last."""
        by_events = self.every_events is not None and events >= self.every_events
        return by_events or (self.every_s is not None and seconds >= self.every_s)

    def read(self, identity: dict[str, str]) -> Snapshot | None:
        """Return the snapshot of an earlier run, or None.

        Raises
        ------
        SetupError
            If it was taken with other settings.
        """
        if not self.exists:
            return None
        try:
            snapshot = read_snapshot(self.path)
        except ValueError as error:
            what = f"{error}; use another --checkpoint directory, or --reset to start over"
            raise SetupError(what, "checkpoint", option="--reset") from error
        if changes := _changes(snapshot.identity, identity):
            what = f"the checkpoint in {self.directory} is of a run with other settings: {'; '.join(changes)}. Use the"
            hint = "same settings to resume, another --checkpoint directory, or --reset to start over"
            raise SetupError(f"{what} {hint}", "another run", option="--reset")
        if snapshot.code not in ("", kind_of_code()):
            logger.warning(
                "the checkpoint was computed by code of %s, and this run uses code of %s: the last bits of "
                "results may differ from those of a single kind of code",
                snapshot.code,
                kind_of_code(),
            )
        return snapshot

    def discard(self) -> None:
        """Discard the state of an earlier run."""
        if self.path.exists():
            with writing(f"checkpoint: {self.path}"):
                self.path.unlink()
                sync_directory(self.directory)  # otherwise it may come back after a power failure, without its results
        self.keep_pieces(frozenset())

    def write(self, snapshot: Snapshot) -> None:
        """Replace the snapshot atomically and durably."""
        header = {"class": CHECKPOINT, **{name: getattr(snapshot, name) for name in _PLAIN}}
        header, arrays = nested(snapshot.states, header)
        with writing(f"checkpoint: {self.path}"):
            write_archive(self.path, header, arrays)
        self.written_at, self._written = time.time(), time.monotonic()

    def keep_pieces(self, names: Set[str]) -> None:
        """Remove all pieces that the snapshot does not need."""
        for path in self.pieces.iterdir() if self.pieces.is_dir() else ():
            if path.name not in names and _PIECE.fullmatch(path.name):
                path.unlink()

    @contextlib.contextmanager
    def resuming(self) -> Iterator[None]:
        """Say in errors that the run cannot resume; others leave the checkpoint valid."""
        try:
            yield
        except (UnreachableError, FencedError):
            raise
        except (ConnectorError, OSError) as error:
            what = f"cannot resume from the checkpoint in {self.directory}: {error}"
            raise SetupError(what, "checkpoint") from error
        except CORRUPT_ERRORS as error:  # its checksum was right, so that it is hardly damaged
            what = f"the checkpoint in {self.directory} does not fit this version of streamsvm: {error}"
            hint = "Resume it with the version that wrote it, or use --reset to start over"
            raise SetupError(f"cannot resume: {what}. {hint}", "checkpoint", option="--reset") from error


def identity_of(model: Any, source: Source, sinks: Mapping[str, Sink], settings: Mapping[str, Any]) -> dict[str, str]:
    """Return what a resumed run must match, as text by name.

    Parameters
    ----------
    model, source, sinks
        Model, source, and sinks by role.
    settings
        Settings by option.
    """
    found = {
        "source": source.identity,
        **{f"parameter {name}": value for name, value in model._get_params().items()},
        **{f"--{role.replace('_', '-')}": sink.identity for role, sink in sinks.items()},
        **settings,
    }
    return {"model": class_path(model)} | {name: repr(value) for name, value in found.items()}


def _changes(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Return the differences of two runs, not of parameters if models differ."""
    differing = [name for name in old | new if old.get(name) != new.get(name)]
    if "model" in differing:
        differing = [name for name in differing if not name.startswith("parameter ")]
    option = "--refit: " if _REFITS in (old.get("model"), new.get("model")) else ""
    none, options = "not given", {name: option for name in differing if name.startswith(("model", "parameter "))}
    return [f"{options.get(name, '')}{name} was {old.get(name, none)}, now {new.get(name, none)}" for name in differing]


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot without the lock.

    Raises
    ------
    ValueError
        If it is not a complete checkpoint.
    FileNotFoundError
        If there is none.
    """
    header, arrays = read_archive(path)
    if header.get("class") != CHECKPOINT:
        raise ValueError(f"{path} is not a checkpoint but a {header.get('class')}")
    if absent := {*_PLAIN, *_STATES} - set(header):
        raise ValueError(f"{path} lacks {', '.join(sorted(absent))}")
    if not all(isinstance(header[name], dict) for name in ("identity", "sinks", *_STATES)):
        raise ValueError(f"{path} is not a whole checkpoint")
    try:
        check_parts((header, arrays))
    except ValueError as error:
        what = f"{path} is a checkpoint of another version of streamsvm, which alone can read it"
        raise ValueError(f"{what}: {error}") from error
    states = {part: part_of((header, arrays), part) for part in _ALL_STATES if part in header}
    return Snapshot(states=states, **{name: header[name] for name in _PLAIN})


def locked_file(path: str | os.PathLike[str]) -> IO[bytes] | None:
    """Lock and return a file, created if absent; return None if it is locked.

    Closing the file unlocks it.
    """
    while True:
        file = open(path, "ab")  # noqa: SIM115 - the caller closes it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError:
            file.close()
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(file.fileno())):
                return file
        file.close()  # another process removed it after it was opened


@contextlib.contextmanager
def result_lock(option: str, path: str) -> Iterator[None]:
    """Prevent other runs from writing a file or directory of results.

    The lock is a separate file, because results may be created later or moved into place. If it cannot be created, for
    example in a read-only directory or on a file system without locks, there is no lock.

    Raises
    ------
    SetupError
        If another run holds the lock.
    """
    place = Path(path).resolve()
    beside = place.parent / f".{place.name}.lock"
    file = None
    with contextlib.suppress(OSError):
        file = locked_file(beside)
        if file is None:
            raise SetupError(f"another run writes {option} {path}: wait for its end, or use another name")
    try:
        yield
    finally:
        if file is not None:
            with file, contextlib.suppress(OSError):  # a file that remains is not locked
                beside.unlink()
