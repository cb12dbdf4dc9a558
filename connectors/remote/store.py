"""Files of object stores and SFTP servers, through fsspec."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from connectors.addresses import printable
from connectors.errors import ConnectorError, without_secrets
from connectors.remote.files import RemoteFile, TransientError, attempt

T = TypeVar("T")
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


class Place:
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

    def ask(self, request: Callable[[], T]) -> T:
        """Return the result of a request, which is repeated after transient errors.

        Raises
        ------
        ConnectorError
            If it fails.
        """

        def asked() -> T:
            try:
                self.system.invalidate_cache()
                return request()
            except Exception as error:
                raise _failure(self._url, error) from error

        return attempt(self.name, asked)

    def exists(self) -> bool:
        """Return whether it exists."""
        return bool(self.ask(lambda: self.system.exists(self.path)))


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
    place = Place(url)
    find, path = place.system.find if url.endswith("/") else place.system.glob, place.path
    listed: dict[str, Any] = place.ask(lambda: dict(find(path, detail=True)))
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
        self._place = Place(url)
        self.size, self.version = self._look()

    def _look(self) -> tuple[int, str]:
        """Return size and version."""
        about = self._place.ask(lambda: self._place.system.info(self._place.path))
        if about["type"] == "directory":
            what = "is a directory: end the URL in / to read its files"
            raise ConnectorError(f"{self.name}: {what}", "directory")
        size = int(about["size"])
        key = next((key for key in _VERSIONS if about.get(key) is not None), None)
        version = "" if key is None else str(about[key])
        return size, version if key in _UNIQUE else f"{size} bytes, {version}"

    def _fetch(self, start: int, n: int) -> bytes:
        data = bytes(self._place.ask(lambda: self._place.system.cat_file(self._place.path, start=start, end=start + n)))
        self._check(self._look()[1])
        if len(data) != n:
            raise TransientError(f"the answer has {len(data)} bytes instead of {n}")
        return data
