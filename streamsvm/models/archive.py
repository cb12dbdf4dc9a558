"""Archives: files of arrays with a small header, written atomically and validated on loading.

An archive is a zip file with a member `header.json` and one `.npy` member per array, stored without compression, so
that its content is no larger than the file. It holds data only; loading executes nothing. It is written to a temporary
file and renamed, so that a reader, or a restart after a crash, finds either the old file or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import math
import os
import re
import stat
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from connectors.results import check_link

FORMAT = "streamsvm"
VERSION = 1
_HEADER = "header.json"
CHECKPOINT = "Checkpoint"
"""The class in the header of checkpoints, which are not models."""
# A fixed time for all members, so that equal content gives equal bytes.
_TIME = (1980, 1, 1, 0, 0, 0)

# Exceptions that foreign or damaged content may raise.
DAMAGED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, RecursionError)


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
    """Encode a label as JSON that keeps its type: true, 1, 1.0, "1", null and tuples of these stay distinct.

    Numpy scalars become Python ones.

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
    """Check a whole number of an archive."""
    if type(value) is not int or not low <= value <= high:
        raise ArchiveError(f"{value!r} is not a whole number from {low} to {high}")
    return value


def real(value: Any, low: float = 0.0, high: float = 1e300) -> float:
    """Check a number of an archive."""
    if type(value) not in (int, float) or not low <= value <= high:
        raise ArchiveError(f"{value!r} is not a number from {low:g} to {high:g}")
    return float(value)


def reals(array: NDArray[Any], n_dimensions: int, low: float = 0.0, high: float = 1e300) -> NDArray[np.float64]:
    """Check an array of numbers of an archive; NaN means unknown."""
    if array.dtype != np.float64 or array.ndim != n_dimensions or ((array < low) | (array > high)).any():
        raise ArchiveError(f"numbers of shape {array.shape} and type {array.dtype}, or not from {low:g} to {high:g}")
    return array.copy()


def check_names(arrays: Mapping[str, Any], expected: set[str]) -> None:
    """Raise ValueError for missing or surplus arrays."""
    if missing := sorted(expected - set(arrays)):
        raise ValueError(f"the array {missing[0]!r} is missing")
    if surplus := sorted(set(arrays) - expected):
        raise ValueError(f"there is an array {surplus[0]!r}, which has no place here")


# Archives --------------------------------------------------------------------------------------------------------


def write_archive(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write header and arrays to `path` atomically and durably.

    Symbolic links are followed; devices and other special files are not replaced.

    Raises
    ------
    TypeError
        For an array of objects, or a header that is not JSON.
    OSError
        Where writing fails; the old file is then unchanged.
    """
    check_link(os.fspath(path))
    path = Path(path).resolve()
    if path.exists() and not path.is_file():
        raise FileExistsError(errno.EEXIST, "exists and is not a regular file", str(path))
    text = json.dumps({"format": FORMAT, "version": VERSION, **header}, indent=1, sort_keys=True, allow_nan=False)
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_HEADER, _TIME), text)
        for name in sorted(arrays):
            with archive.open(zipfile.ZipInfo(f"{name}.npy", _TIME), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(arrays[name], order="C"), allow_pickle=False)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Context with a temporary file that replaces `path` when it is complete and on disk; an error changes nothing.

    Symbolic links are followed. Devices and other special files are written directly.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    OSError
        Where writing fails.
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
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def clear_halfway(path: Path) -> None:
    """Remove temporary files of killed writers, whose locks are free.

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
    """Open a new file and lock it, where the file system has locks."""
    while True:
        file = path.open("wb")
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process removed it before it was locked


def is_saved_model(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins like a saved model, complete or not."""
    try:
        with open(path, "rb", opener=_open) as file:
            *_, length, n_name, n_more = _BEFORE_MEMBER.unpack(file.read(_BEFORE_MEMBER.size))
            name = file.read(n_name + n_more)[:n_name]
            if name != _HEADER.encode() or length > os.fstat(file.fileno()).st_size:
                return False
            header = json.loads(file.read(length))
    except (OSError, struct.error, *DAMAGED):
        return False
    return isinstance(header, dict) and header.get("format") == FORMAT and header.get("class") != CHECKPOINT


def check_replaced(path: str | os.PathLike[str]) -> None:
    """Raise FileExistsError for a file that is neither empty nor a saved model."""
    if os.path.isfile(path) and os.path.getsize(path) and not is_saved_model(path):
        what = "exists and is not a model saved by streamsvm: give another name, or replace it with overwrite=True"
        raise FileExistsError(errno.EEXIST, what, str(path))


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read header and arrays of an archive; sizes are checked against the file's before anything is read.

    Raises
    ------
    ArchiveError
        For a damaged or foreign file, or one of a newer version.
    FileNotFoundError, PermissionError
        For a file that is missing or not readable.
    """
    try:
        with open(path, "rb", opener=_open) as file:
            size = os.fstat(file.fileno()).st_size
            _check_end(file, size)
            archive = zipfile.ZipFile(file)
            members = _members(archive, size)
            header = _read_header(archive, members.pop(_HEADER, None), size)
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise ArchiveError(f"{path} is not a streamsvm file: its header names no such format", "foreign")
            version = header.get("version")
            if type(version) is not int or not 1 <= version <= VERSION:
                raise ArchiveError(
                    f"{path} has format version {version!r}, this streamsvm reads up to {VERSION}: install a newer one",
                    "version",
                )
            arrays = {name.removesuffix(".npy"): _read_array(archive, member) for name, member in members.items()}
    except (ArchiveError, FileNotFoundError, PermissionError):
        raise
    except (OSError, EOFError, RuntimeError, struct.error, zipfile.BadZipFile, *DAMAGED) as error:
        raise ArchiveError(f"{path} is not a whole streamsvm file: {error}", "damaged") from error
    return header, arrays


# Layout of a local file header, and of the end record of a zip file.
_BEFORE_MEMBER, _END = struct.Struct("<4s5H3I2H"), struct.Struct("<4s4H2IH")
_UTF8 = 0x800
_MEMBER_NAME = re.compile(r"[\w./-]+\.npy", re.ASCII)
_MOST_MEMBERS = 10_000
_ARRAY_HEADER = re.compile(
    rb"\{'descr': '(\|b1|[|<][iu]1|<[iu][248]|<f[48])', 'fortran_order': False, "
    rb"'shape': \((|\d{1,19},|\d{1,19}(?:, \d{1,19}){1,7})\), \} *\n"
)
# Approximate bytes of a JSON value in memory; limit of a header, fixed and as a multiple of the file's size.
_VALUE_BYTES, _HEADER_BYTES, _HEADER_TIMES = 64, 1 << 24, 4


def _open(path: str, flags: int) -> int:
    """Open a regular file only, because pipes block and devices may be endless."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArchiveError(f"{path} is not a whole streamsvm file: it is not a regular file", "damaged")
    return descriptor


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Check and return the members by name; uncompressed members cannot be larger than the file."""
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.orig_filename
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & ~_UTF8:
            raise ValueError(f"{name!r} is packed or encrypted")
        if name in members or not (name == _HEADER or _MEMBER_NAME.fullmatch(name)):
            raise ValueError(f"{name!r} is there twice, or has no place here")
        members[name] = member
    if min((member.header_offset for member in members.values()), default=0) > 0:
        raise ValueError("there is more in it than its members")
    if sum(member.file_size for member in members.values()) > size:
        raise ValueError("its members are longer than the file")
    return members


def _check_end(file: IO[bytes], size: int) -> None:
    """Check the end record and the number of members before the directory is read."""
    if size < _END.size:
        raise ValueError("it is no zip file, or its end is missing")
    file.seek(size - _END.size)
    mark, *_, n_here, n_members, _, _, comment = _END.unpack(file.read(_END.size))
    if mark != b"PK\5\6" or comment or n_here != n_members:
        raise ValueError("it is no zip file, or its end is missing")
    if n_members > _MOST_MEMBERS:
        raise ValueError(f"it has {n_members} members")


def _read_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo | None, size: int) -> Any:
    """Parse strict JSON."""
    if member is None:
        raise ValueError(f"it has no {_HEADER}")
    text = archive.read(member)
    n_values = sum(map(text.count, (b",", b"[", b"{")))
    if len(text) + _VALUE_BYTES * n_values > _HEADER_BYTES + _HEADER_TIMES * size:
        raise ValueError("the header is longer than its arrays allow")
    return json.loads(text.decode(), parse_constant=_refuse_constant, object_pairs_hook=_distinct)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} in the header")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("a name is there twice in the header")
    return content


def _read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Read an array of numbers or booleans in C order."""
    name = member.filename
    with archive.open(member) as file:
        mark = file.read(10)
        if mark[:8] != b"\x93NUMPY\1\0" or len(mark) < 10:
            raise ValueError(f"{name!r} is no array")
        described = file.read(int.from_bytes(mark[8:], "little"))
        found = _ARRAY_HEADER.fullmatch(described)
        if found is None:
            raise ValueError(f"{name!r} is no array of numbers by rows")
        dtype, shape = np.dtype(found[1].decode()), tuple(int(n) for n in found[2].split(b",") if n)
        if math.prod(shape) * dtype.itemsize != member.file_size - len(mark) - len(described):
            raise ValueError(f"{name!r} has another size than its shape {shape}")
        array = np.empty(shape, dtype)
        content = array.reshape(-1).view(np.uint8)
        if file.readinto(content.data) != len(content):  # type: ignore[attr-defined]
            raise ValueError(f"{name!r} is damaged")
        file.read(1)  # zipfile checks the CRC at the end
    if dtype.kind == "b" and content.max(initial=0) > 1:
        raise ValueError(f"{name!r} holds other values than true and false")
    return array
