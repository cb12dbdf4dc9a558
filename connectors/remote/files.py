"""Files of web servers, object stores and SFTP servers, read by ranges of bytes.

Web servers are read by `connectors.remote.web`, all others through fsspec.
"""

from __future__ import annotations

import io
import logging
import re
import time
from abc import abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from connectors.addresses import printable
from connectors.errors import ConnectorError, UnreachableError, without_secrets
from connectors.text.bytestreams import CHUNK, ByteStream
from connectors.text.opening import opened

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

T = TypeVar("T")
RETRY_S = 60.0
"""How long failed requests are repeated before the run ends."""
PAUSE_S, _LONGEST_PAUSE_S = 0.25, 8.0
WEB = ("http", "https")

WARNED_FILES: set[str] = set()  # files whose failed requests were reported

logger = logging.getLogger("connectors")


class TransientError(Exception):
    """Raised for a failed request that may succeed later."""


def attempt(name: str, request: Callable[[], T]) -> T:
    """Return the result of a request, which is repeated after transient errors.

    Parameters
    ----------
    name
        Name of the file in messages.
    request
        Function that sends the request.

    Raises
    ------
    UnreachableError
        If requests failed for `RETRY_S` seconds.
    """
    started, pause = time.monotonic(), PAUSE_S
    while True:
        try:
            return request()
        except TransientError as error:
            if time.monotonic() - started + pause > RETRY_S:
                what = f"no answer for {RETRY_S:.0f} s: {error}: start the run again to continue"
                raise UnreachableError(f"{name}: {what}", "unreachable") from error
            level = logging.DEBUG if name in WARNED_FILES or pause > PAUSE_S else logging.WARNING
            WARNED_FILES.add(name)
            logger.log(level, "%s: %s; failed requests are retried for up to %.0f s each", name, error, RETRY_S)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_S)


class RemoteFile(io.RawIOBase):
    """Binary file on a server, with random access.

    It must not change while it is read.

    Attributes
    ----------
    name
        URL without credentials and query.
    size
        Size in bytes; None if unknown.
    version
        What the server tells of its version: the ETag, or size and time of the last modification. None if unknown.
    block
        Bytes to read sequentially in one request.
    """

    size: int | None = None
    version: str | None = None
    block: int = CHUNK

    def __init__(self, url: str) -> None:
        super().__init__()
        self.name = printable(url)
        self._offset = self._start = 0
        self._block = b""

    def _read_at(self, start: int, n: int) -> bytes:
        """Return up to `n` bytes from an offset, none only at the end.

        Raises
        ------
        ConnectorError
            If the file changed or cannot be read.
        UnreachableError
            If requests failed for `RETRY_S` seconds.
        """
        if self.size is not None:
            n = min(n, self.size - start)
        return attempt(self.name, lambda: self._fetch(start, n)) if n > 0 else b""

    @abstractmethod
    def _fetch(self, start: int, n: int) -> bytes:
        """Return up to n > 0 bytes of one request; TransientError if it fails early."""

    def _check(self, version: str | None) -> None:
        """Raise ConnectorError if this is not the version that was opened."""
        if version != self.version:
            what = "changed while it was read; start the run again, with --reset if it has a checkpoint"
            raise ConnectorError(f"{self.name}: {what}", "changed")

    def _disconnect(self) -> None:
        """Close connections."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to an offset."""
        if whence == io.SEEK_END and self.size is None:
            what = "the server does not tell the size: download the file first"
            raise ConnectorError(f"{self.name}: {what}", "no size")
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self.size}[whence] or 0
        self._offset = start + offset
        return self._offset

    def tell(self) -> int:
        """Return the offset."""
        return self._offset

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read bytes into a buffer; return their number."""
        view = memoryview(buffer).cast("B")
        if not self._start <= self._offset < self._start + len(self._block):
            self._block, self._start = self._read_at(self._offset, self.block), self._offset
        first = self._offset - self._start
        data = self._block[first : first + len(view)]
        view[: len(data)] = data
        self._offset += len(data)
        return len(data)

    def close(self) -> None:
        """Close connections."""
        if not self.closed:
            self._disconnect()
        super().close()


def open_remote(url: str) -> RemoteFile:
    """Open a URL of a web server or an object store.

    Raises
    ------
    ConnectorError
        If there is no such file, or it cannot be read.
    """
    if url.partition("://")[0].lower() in WEB:
        from connectors.remote.web import WebFile

        return WebFile(url)
    return StoreFile(url)


def open_remote_bytes(url: str, *, follow: bool = False) -> ByteStream:
    """Open a URL as a byte stream, decompressed if it is compressed."""
    name = printable(url)
    if follow:
        raise ConnectorError(f"{name}: at_end=wait is for growing local files", "packed", option="at_end")
    file = open_remote(url)
    return opened(file, name, lambda: file.size, file.version)  # type: ignore[arg-type] # a raw file


def open_random(url: str) -> io.BufferedReader:
    """Open a URL as a binary file with random access.

    Raises
    ------
    ConnectorError
        If it cannot be read, or the server does not tell its size.
    """
    return io.BufferedReader(open_remote(url), 1 << 20)


PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "adlfs"),
    **dict.fromkeys(("sftp", "ssh"), "paramiko"),
    "memory": "fsspec",
}
"""Packages that fsspec needs, by scheme."""
_UNIQUE = ("ETag", "etag", "generation")
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")
_VERSIONS = (*_UNIQUE, *_TIMES)
# Names, because the packages of the stores need not be installed.
_TRANSIENT = re.compile(
    "(Endpoint|Client)?Connect(ion|ionClosed|Timeout|or)Error|ReadTimeoutError|HTTPClientError|ClientOSError|"
    "ResponseStreamingError|IncompleteReadError|ClientPayloadError|ServerDisconnectedError|ServiceRe(quest|sponse)Error|"
    "EndpointConnectionError|SSHException|FSTimeoutError"
)
_REFUSED = re.compile(
    "(No|Partial)CredentialsError|ClientAuthenticationError|AuthenticationException|DefaultCredentialsError|"
    "RefreshError|ProfileNotFound|TokenRetrievalError"
)


def _filesystem(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it.

    Credentials come from the environment, as in fsspec.

    Raises
    ------
    ConnectorError
        If the package is not installed, or there are no credentials.
    """
    name, scheme = printable(url), url.partition("://")[0].lower()
    try:
        import fsspec.core
    except ImportError as error:
        what = f"{scheme}:// needs fsspec: pip install 'streamsvm[remote]'"
        raise ConnectorError(f"{name}: {what}", "no fsspec") from error
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        package = PACKAGES[scheme]
        raise ConnectorError(f"{name}: needs {package}: pip install {package}", f"no {package}") from error
    except Exception as error:
        raise _failure(url, error) from error
    return system, path


class StorePath:
    """A file or directory of a store.

    Parameters
    ----------
    url
        Its URL.

    Attributes
    ----------
    name
        URL without credentials.
    system, path
        The file system of fsspec, and the path in it.
    """

    def __init__(self, url: str) -> None:
        self.name, self._url = printable(url), url
        self.system, self.path = attempt(self.name, lambda: _filesystem(url))

    def retry(self, request: Callable[[], T]) -> T:
        """Return the result of a request, which is repeated after transient errors.

        Raises
        ------
        ConnectorError
            If it fails.
        """

        def requested() -> T:
            try:
                self.system.invalidate_cache()
                return request()
            except Exception as error:
                raise _failure(self._url, error) from error

        return attempt(self.name, requested)

    def exists(self) -> bool:
        """Return whether it exists."""
        return bool(self.retry(lambda: self.system.exists(self.path)))


def _failure(url: str, error: Exception) -> Exception:
    """Return the error of a failed request: transient or not."""
    kind, name = type(error).__name__, printable(url)
    text = without_secrets(error).replace(url, name)
    if isinstance(error, FileNotFoundError):
        return ConnectorError(f"{name}: no such file", "missing")
    if isinstance(error, PermissionError) or _REFUSED.fullmatch(kind):
        return ConnectorError(f"{name}: access is refused: check the credentials ({kind}: {text})", "credentials")
    if isinstance(error, OSError | EOFError) or _TRANSIENT.fullmatch(kind):
        return TransientError(f"{kind}: {text}")
    return ConnectorError(f"{name}: cannot be accessed: {kind}: {text}", "store")


def list_files(url: str) -> list[tuple[str, int, float]]:
    """Return URL, size and modification time of the files of a directory or glob.

    Raises
    ------
    ConnectorError
        If there is no such directory, or it cannot be listed.
    """
    place = StorePath(url)
    find, path = place.system.find if url.endswith("/") else place.system.glob, place.path
    listed: dict[str, Any] = place.retry(lambda: dict(find(path, detail=True)))
    found = {path: about for path, about in listed.items() if about["type"] == "file"}
    start = url.rstrip("/").removesuffix(path.rstrip("/"))  # scheme, host and credentials
    return [(start + path, int(about["size"]), _modified(about)) for path, about in found.items()]


def _modified(about: dict[str, Any]) -> float:
    """Return the time of the last modification in seconds since 1970, 0 if unknown."""
    found = next((about[key] for key in _TIMES if about.get(key) is not None), 0.0)
    if isinstance(found, str):
        found = datetime.fromisoformat(found)
    return found.timestamp() if isinstance(found, datetime) else float(found)


class StoreFile(RemoteFile):
    """File of an object store, read in blocks; its version is checked at each block."""

    block = 1 << 23

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._place = StorePath(url)
        self.size, self.version = self._look()

    def _look(self) -> tuple[int, str]:
        """Return size and version."""
        about = self._place.retry(lambda: self._place.system.info(self._place.path))
        if about["type"] == "directory":
            what = "is a directory: end the URL in / to read its files"
            raise ConnectorError(f"{self.name}: {what}", "directory")
        size = int(about["size"])
        key = next((key for key in _VERSIONS if about.get(key) is not None), None)
        version = "" if key is None else str(about[key])
        return size, version if key in _UNIQUE else f"{size} bytes, {version}"

    def _fetch(self, start: int, n: int) -> bytes:
        place = self._place
        data = bytes(place.retry(lambda: place.system.cat_file(place.path, start=start, end=start + n)))
        self._check(self._look()[1])
        if len(data) != n:
            raise TransientError(f"the answer has {len(data)} bytes instead of {n}")
        return data
