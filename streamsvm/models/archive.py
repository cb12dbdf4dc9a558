"""Archives: files of arrays with a header, written atomically and validated.

An archive is a file in the safetensors format. It has the length of a JSON table in 8 bytes, the table with type, shape
and offsets of each array, and the arrays. The metadata of the table contain the header as JSON, and a checksum. An
archive contains only data; loading executes nothing. It is written to a temporary file and renamed. A reader, or a
restart after a crash, therefore finds either the old file or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import math
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from connectors.outputs.results import check_link, sync_directory

FORMAT = "streamsvm"
VERSION = 2
CHECKPOINT = "Checkpoint"
"""The class in the header of checkpoints, which are not models."""
_METADATA = "__metadata__"
_NO_CHECKSUM = "0" * 8
_MOST_TABLE = 100_000_000
_TYPES = {"BOOL": np.dtype(bool), "F32": np.dtype(np.float32), "F64": np.dtype(np.float64)}
_TYPES |= {f"{kind.upper()}{8 * n}": np.dtype(f"<{kind}{n}") for kind in "iu" for n in (1, 2, 4, 8)}
_TYPE_NAMES = {dtype: name for name, dtype in _TYPES.items()}

# Exceptions that foreign or damaged content may raise.
CORRUPT_ERRORS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, RecursionError)


class ArchiveError(ValueError):
    """The file is not an archive, is damaged, or was written by a newer version.

    Attributes
    ----------
    reason
        "damaged", "foreign", "version", "class", "settings", or "content" for values that do not fit.
    """

    def __init__(self, message: str, reason: str = "content") -> None:
        super().__init__(message)
        self.reason = reason


# Labels and names ------------------------------------------------------------------------------------------------


def encode_label(label: Any) -> Any:
    """Encode a label as JSON that keeps its type.

    Labels true, 1, 1.0, "1", null and tuples of these stay distinct. Numpy scalars become Python ones.

    Raises
    ------
    TypeError
        For any other type.

    Examples
    --------
    >>> encode_label((True, 1, 1.0, "1", None))
    {'tuple': [True, 1, {'float': '0x1.0000000000000p+0'}, '1', None]}
    >>> decode_label(encode_label((True, 1, 1.0, "1", None)))
    (True, 1, 1.0, '1', None)
    """
    if isinstance(label, np.generic):
        label = label.item()
    kind = type(label)
    if label is None or kind in (bool, int, str):
        return label
    if kind is float:
        return {"float": label.hex()}
    if kind is tuple:
        return {"tuple": [encode_label(part) for part in label]}
    raise TypeError(
        f"{label!r} of type {kind.__name__} cannot be saved: labels and feature names on disk may be bool, int, float, "
        "str, None, and tuples of these"
    )


def decode_label(value: Any) -> Any:
    """Decode a label."""
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return float.fromhex(value["float"])
        if set(value) == {"tuple"}:
            return tuple(decode_label(part) for part in value["tuple"])
    if isinstance(value, dict | list):
        raise ArchiveError(f"{value!r} is not a label")
    return value


def decode_labels(values: Any) -> list[Any]:
    """Decode the labels of classes, which must be distinct, and not NaN or None."""
    if type(values) is not list:
        raise ArchiveError("the classes are not a list")
    labels = [decode_label(value) for value in values]
    if len(set(labels)) < len(labels) or any(label is None or label != label for label in labels):
        raise ArchiveError("two classes have the same label, or one has none")
    return labels


def whole(value: Any, low: int = 0, high: int = 1 << 62) -> int:
    """Return a whole number of an archive; refuse other values."""
    if type(value) is not int or not low <= value <= high:
        raise ArchiveError(f"{value!r} is not a whole number from {low} to {high}")
    return value


def real(value: Any, low: float = 0.0, high: float = 1e300) -> float:
    """Return a number of an archive; refuse other values."""
    if type(value) not in (int, float) or not low <= value <= high:
        raise ArchiveError(f"{value!r} is not a number from {low:g} to {high:g}")
    return float(value)


def reals(array: NDArray[Any], n_dimensions: int) -> NDArray[np.float64]:
    """Return a copy of an array of an archive; refuse invalid values except NaN."""
    if array.dtype != np.float64 or array.ndim != n_dimensions or ((array < 0.0) | (array > 1e300)).any():
        raise ArchiveError(f"numbers of shape {array.shape} and type {array.dtype}, or not from 0 to 1e+300")
    return array.copy()


def check_names(arrays: Mapping[str, Any], expected: set[str]) -> None:
    """Raise ValueError for missing or surplus arrays."""
    if missing := sorted(expected - set(arrays)):
        raise ValueError(f"the array {missing[0]!r} is missing")
    if surplus := sorted(set(arrays) - expected):
        raise ValueError(f"there is an array {surplus[0]!r}, which is unknown")


# Archives --------------------------------------------------------------------------------------------------------


def write_archive(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write header and arrays to `path` atomically and durably.

    Symbolic links are followed; devices and other special files are not replaced.

    Raises
    ------
    TypeError
        If an array contains objects, or the header is not JSON.
    OSError
        If writing fails; the old file is unchanged.
    """
    check_link(os.fspath(path))
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "exists and is not a regular file", str(path))
    text = json.dumps({"format": FORMAT, "version": VERSION, **header}, sort_keys=True, allow_nan=False)
    table: dict[str, Any] = {_METADATA: {"crc32": _NO_CHECKSUM, FORMAT: text}}
    parts, at = [], 0
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        if array.dtype not in _TYPE_NAMES:
            raise TypeError(f"array {name!r} of type {array.dtype} cannot be saved")
        offsets = [at, at + array.nbytes]
        table[name] = {"dtype": _TYPE_NAMES[array.dtype], "shape": array.shape, "data_offsets": offsets}
        parts.append(array.reshape(-1).view(np.uint8).data)
        at += array.nbytes
    head = json.dumps(table, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)  # the format aligns arrays
    checksum = zlib.crc32(head)
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    head = head.replace(_NO_CHECKSUM.encode(), b"%08x" % checksum, 1)
    with replacing(path) as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for part in parts:
            file.write(part)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Context with a temporary file that replaces `path` when it is on disk.

    An error in the context leaves `path` unchanged. Symbolic links are followed. Devices and other special files are
    written directly.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    OSError
        If writing fails.
    """
    check_link(os.fspath(path))
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        with path.open("wb") as device:
            yield device
        return
    clear_halfway(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with _locked(temporary) as file:
            if path.exists():  # readers of the new file must be readers of the old one
                os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & path.stat().st_mode & 0o777)
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.filename == str(temporary):
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def clear_halfway(path: Path) -> None:
    """Remove temporary files of killed writers, which hold no locks.

    Parameters
    ----------
    path
        The file.
    """
    for halfway in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with contextlib.suppress(OSError), halfway.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            halfway.unlink()


def _locked(path: Path) -> IO[bytes]:
    """Open a new file and lock it, if the file system has locks."""
    while True:
        file = path.open("wb")
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process removed it before it was locked


def is_saved_model(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins like a saved model, complete or not."""
    try:
        with open(path, "rb", opener=_open) as file:
            header, _, _ = _read_head(path, file)
    except (OSError, *CORRUPT_ERRORS):
        return False
    return header.get("class") != CHECKPOINT


def check_replaced(path: str | os.PathLike[str]) -> None:
    """Raise FileExistsError for a file that is neither empty nor a saved model."""
    if os.path.isfile(path) and os.path.getsize(path) and not is_saved_model(path):
        what = "exists and is not a model saved by streamsvm: use another name, or overwrite=True"
        raise FileExistsError(errno.EEXIST, what, str(path))


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read header and arrays of an archive.

    Sizes are checked against the size of the file before arrays are allocated.

    Raises
    ------
    ArchiveError
        If the file is damaged, or of another format or version.
    FileNotFoundError, PermissionError
        If the file does not exist or is not readable.
    """
    arrays: dict[str, NDArray[Any]] = {}
    try:
        with open(path, "rb", opener=_open) as file:
            header, table, head = _read_head(path, file)
            stated = table.pop(_METADATA)["crc32"]
            checksum = zlib.crc32(head.replace(stated.encode(), _NO_CHECKSUM.encode(), 1))
            at, n_bytes = 0, os.fstat(file.fileno()).st_size - file.tell()
            for name, entry in table.items():
                dtype, shape = _TYPES[entry["dtype"]], tuple(entry["shape"])
                offsets = [at, at + math.prod(shape) * dtype.itemsize]
                if entry["data_offsets"] != offsets or offsets[1] > n_bytes:
                    raise ValueError(f"{name!r} has another size than its shape {shape}")
                array = arrays[name] = np.empty(shape, dtype)
                content = array.reshape(-1).view(np.uint8).data
                file.readinto(content)
                checksum = zlib.crc32(content, checksum)
                if dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
                    raise ValueError(f"{name!r} contains values other than true and false")
                at = offsets[1]
            if at != n_bytes or stated != f"{checksum:08x}":
                raise ValueError("its content fails the checksum")
    except (ArchiveError, FileNotFoundError, PermissionError):
        raise
    except (OSError, *CORRUPT_ERRORS) as error:
        raise ArchiveError(f"{path} is not a whole streamsvm file: {error}", "damaged") from error
    return header, arrays


def _open(path: str, flags: int) -> int:
    """Open a regular file only, because pipes block and devices may be endless."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArchiveError(f"{path} is not a whole streamsvm file: it is not a regular file", "damaged")
    return descriptor


def _read_head(path: str | os.PathLike[str], file: IO[bytes]) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Read the header and the table of arrays; also return the bytes of the table."""
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if not 0 < length <= min(os.fstat(file.fileno()).st_size - 8, _MOST_TABLE):
        if first.startswith(b"PK\3\4"):  # not before, because a length may begin with these bytes
            what = f"{path} is a zip file of an earlier version of streamsvm: save the model again"
            raise ArchiveError(what, "version")
        raise ValueError("it has no table of arrays")
    head = file.read(length)
    table = json.loads(head)
    header = json.loads(table[_METADATA][FORMAT], parse_constant=_refuse_constant)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ArchiveError(f"{path} is not a streamsvm file: its header is of another format", "foreign")
    if type(header.get("version")) is not int or header["version"] != VERSION:
        raise ArchiveError(
            f"{path} has format version {header.get('version')!r}, this streamsvm reads {VERSION}: install the version "
            "of streamsvm that wrote it",
            "version",
        )
    return header, table, head


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} in the header")
