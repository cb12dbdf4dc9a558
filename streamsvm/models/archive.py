"""Files of arrays with a small header: written whole or not at all, and checked as they are read.

An archive is a zip file with a member `header.json` and one `.npy` member an array, all stored as they are, one after
the other, so that a file holds no more than its own size. It holds data only: loading checks it and executes nothing.
It is written beside its place and moved there whole, so that a reader, or the next start after a crash, finds either
the old file or the new.
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
"""The class that checkpoints of runs name in their header, which is that of no model."""
# One fixed time for all members: the same content gives the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)

# What content that no program of ours wrote may raise while something is made of it.
DAMAGED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, RecursionError)


class ArchiveError(ValueError):
    """A file that is not an archive, is damaged, or was written by a newer version."""


# Labels and names ------------------------------------------------------------------------------------------------


def encode_label(label: Any) -> Any:
    """A label as JSON that keeps its type: true, 1, 1.0, "1", null and tuples of these stay apart.

    Numpy scalars become Python ones.

    Raises
    ------
    TypeError
        For any other type, naming it.

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
    """The label that `encode_label` was given."""
    if isinstance(value, dict):
        if set(value) == {"float"}:
            return float.fromhex(value["float"])
        if set(value) == {"tuple"}:
            return tuple(decode_label(part) for part in value["tuple"])
    if isinstance(value, dict | list):
        raise ArchiveError(f"{value!r} is not a label")
    return value


def decode_labels(values: Any) -> list[Any]:
    """The labels of classes: each one only once, and none NaN or None."""
    if type(values) is not list:
        raise ArchiveError("the classes are not a list")
    labels = [decode_label(value) for value in values]
    if len(set(labels)) < len(labels) or any(label is None or label != label for label in labels):
        raise ArchiveError("two classes have the same label, or one has none")
    return labels


def whole(value: Any, low: int = 0, high: int = 1 << 62) -> int:
    """A whole number of an archive, which is refused beyond its bounds."""
    if type(value) is not int or not low <= value <= high:
        raise ArchiveError(f"{value!r} is not a whole number from {low} to {high}")
    return value


def real(value: Any, low: float = 0.0, high: float = 1e300) -> float:
    """A number of an archive, which is refused beyond its bounds."""
    if type(value) not in (int, float) or not low <= value <= high:
        raise ArchiveError(f"{value!r} is not a number from {low:g} to {high:g}")
    return float(value)


def reals(array: NDArray[Any], n_dimensions: int, low: float = 0.0, high: float = 1e300) -> NDArray[np.float64]:
    """Numbers of an archive, which are refused beyond their bounds; NaN stands for what is not known."""
    if array.dtype != np.float64 or array.ndim != n_dimensions or ((array < low) | (array > high)).any():
        raise ArchiveError(f"numbers of shape {array.shape} and type {array.dtype}, or not from {low:g} to {high:g}")
    return array.copy()


def check_names(arrays: Mapping[str, Any], expected: set[str]) -> None:
    """Refuse arrays that are missing, or that nobody asked for."""
    if missing := sorted(expected - set(arrays)):
        raise ValueError(f"the array {missing[0]!r} is missing")
    if surplus := sorted(set(arrays) - expected):
        raise ValueError(f"there is an array {surplus[0]!r}, which has no place here")


# Archives --------------------------------------------------------------------------------------------------------


def write_archive(path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write header and arrays to `path`, whole or not at all, and on disk when this returns.

    A symbolic link is followed; what is no regular file, such as a device, is not replaced.

    Raises
    ------
    TypeError
        For an array of objects, or a header that is not JSON.
    OSError
        Where the file system refuses; the old file is then untouched.
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
    """A file to write that takes the place of `path` once it is whole and on disk; after an error all is as it was.

    A symbolic link is followed. What is no regular file, such as a device, cannot be replaced, and is written to.

    Parameters
    ----------
    path
        What is to be written.

    Raises
    ------
    OSError
        Where the file system refuses.
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
            if path.exists():  # who may not read the old file may not read the new one
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
    """Remove what processes left beside a file that were killed while they wrote it: nobody holds it any more.

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
    """A new file, held by a lock as long as it is open, where the file system has locks."""
    while True:
        file = path.open("wb")
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # it was taken for a left one before it was locked


def is_saved_model(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins with the header of what `save` writes, whatever is missing behind it."""
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
    """Refuse to replace a file that `save` has not written, unless it is empty.

    Raises
    ------
    FileExistsError
        Where there is one.
    """
    if os.path.isfile(path) and os.path.getsize(path) and not is_saved_model(path):
        what = "exists and is not a model saved by streamsvm: give another name, or replace it with overwrite=True"
        raise FileExistsError(errno.EEXIST, what, str(path))


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of an archive.

    All sizes are checked against that of the file before anything is read.

    Raises
    ------
    ArchiveError
        Where the file is damaged, foreign, or of a newer version.
    FileNotFoundError, PermissionError
        Where there is none, or it may not be read.
    """
    try:
        with open(path, "rb", opener=_open) as file:
            size = os.fstat(file.fileno()).st_size
            _check_end(file, size)
            archive = zipfile.ZipFile(file)
            members = _members(archive, size)
            header = _read_header(archive, members.pop(_HEADER, None), size)
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise ArchiveError(f"{path} is not a streamsvm file: its header names no such format")
            version = header.get("version")
            if type(version) is not int or not 1 <= version <= VERSION:
                raise ArchiveError(
                    f"{path} has format version {version!r}, this streamsvm reads up to {VERSION}: install a newer one"
                )
            arrays = {name.removesuffix(".npy"): _read_array(archive, member) for name, member in members.items()}
    except (ArchiveError, FileNotFoundError, PermissionError):
        raise
    except (OSError, EOFError, RuntimeError, struct.error, zipfile.BadZipFile, *DAMAGED) as error:
        raise ArchiveError(f"{path} is not a whole streamsvm file: {error}") from error
    return header, arrays


# What stands before a member, and at the end of a zip file.
_BEFORE_MEMBER, _END = struct.Struct("<4s5H3I2H"), struct.Struct("<4s4H2IH")
_UTF8 = 0x800
_MEMBER_NAME = re.compile(r"[\w./-]+\.npy", re.ASCII)
_MOST_MEMBERS = 10_000
_ARRAY_HEADER = re.compile(
    rb"\{'descr': '(\|b1|[|<][iu]1|<[iu][248]|<f[48])', 'fortran_order': False, "
    rb"'shape': \((|\d{1,19},|\d{1,19}(?:, \d{1,19}){1,7})\), \} *\n"
)
# A value of JSON takes about so many bytes in memory; a header may take so many, and so many times its file.
_VALUE_BYTES, _HEADER_BYTES, _HEADER_TIMES = 64, 1 << 24, 4


def _open(path: str, flags: int) -> int:
    """Open a regular file; a pipe would be waited for, and a device might never end."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ArchiveError(f"{path} is not a whole streamsvm file: it is not a regular file")
    return descriptor


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The members by name. They are stored unpacked and one after another, so reading takes no more than the file."""
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
    """Refuse a file that does not end as a zip file does, or of very many members, before its directory is read."""
    if size < _END.size:
        raise ValueError("it is no zip file, or its end is missing")
    file.seek(size - _END.size)
    mark, *_, n_here, n_members, _, _, comment = _END.unpack(file.read(_END.size))
    if mark != b"PK\5\6" or comment or n_here != n_members:
        raise ValueError("it is no zip file, or its end is missing")
    if n_members > _MOST_MEMBERS:
        raise ValueError(f"it has {n_members} members")


def _read_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo | None, size: int) -> Any:
    """What JSON says, without its extensions."""
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
    """An array as numpy writes it, of numbers or truth values, by rows."""
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
        file.read(1)  # at its end the checksum is compared
    if dtype.kind == "b" and content.max(initial=0) > 1:
        raise ValueError(f"{name!r} holds other values than true and false")
    return array
