"""Files of web servers (http, https), read by ranges where servers support these."""

from __future__ import annotations

import base64
import contextlib
import http.client
import logging
import re
import socket
import ssl
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from connectors.errors import ConnectorError
from connectors.remote.files import RemoteFile, TransientError, attempt

TIMEOUT_S = 30.0
"""How long a server may send nothing before the request counts as failed."""
_RETRIED = (408, 425, 429)
_SIZE = re.compile(r"bytes (?:\*|(\d+)-\d+)/(\d+|\*)")
_UNSAFE = (http.client.HTTPException, OSError)

logger = logging.getLogger("connectors")


class WebFile(RemoteFile):
    """A file of a web server, read by one request as long as it is sequential.

    A user and password in the URL are sent by basic authentication, only to that server.
    """

    _response: Any = None

    def __init__(self, url: str) -> None:
        super().__init__(url)
        parts = urlsplit(url)
        user, at, host = parts.netloc.rpartition("@")
        self._authorization = f"Basic {base64.b64encode(unquote(user).encode()).decode()}" if at else None
        path = quote(parts.path, safe="/%:=&;+,$@!*'()~")
        self._url = parts._replace(netloc=host, path=path, fragment="").geturl()
        self._at = 0
        self._is_new = True
        attempt(self.name, lambda: self._request(0))
        self._is_new = False

    def _fetch(self, start: int, n: int) -> bytes:
        if self._response is None or self._at != start:
            self._request(start)
        if self._response is None:  # behind the end
            return b""
        with self._transient():
            data: bytes = self._response.read(n)
        if not data and self.size is not None:
            self._disconnect()
            raise TransientError("the answer ended early")
        self._at += len(data)
        return data

    def _request(self, start: int) -> None:
        """Request the file from an offset on."""
        self._disconnect()
        request = urllib.request.Request(self._url)
        request.add_header("Accept-Encoding", "identity")
        request.add_header("User-Agent", "streamsvm")
        request.add_header("Range", f"bytes={start}-")
        if self._authorization is not None:
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            with self._transient():
                response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416 and (self._is_new or self.size is None):  # an offset at the end
                    self.size = start
                    return
                if error.code == 416:
                    self._check("shorter")
                raise self._refused(error.code, error.reason) from None
        self._response = response
        try:
            self._take(response, start)
        except BaseException:
            self._disconnect()
            raise

    def _take(self, response: Any, start: int) -> None:
        """Check an answer, and move it to an offset."""
        if response.headers.get_content_type() == "text/html":
            raise ConnectorError(f"{self.name}: is a web page: give the URL of the file itself", "web page")
        length = response.headers.get("Content-Length")
        size = None if length is None else int(length)
        self._look(response.headers, start, size)
        if response.status == 206:
            self._at = start
            return
        self._at = 0
        if start:
            logger.warning("%s: the server has no ranges; downloading the first %s bytes again", self.name, start)
        while self._at < start:
            with self._transient():
                data = response.read(min(start - self._at, 1 << 18))
            if not data:
                raise TransientError("the answer ended early")
            self._at += len(data)

    def _look(self, headers: Any, start: int, size: int | None = None) -> None:
        """Take size and version from the first answer, or compare them."""
        if (found := _SIZE.match(headers.get("Content-Range", ""))) is not None:
            if found[1] is not None and int(found[1]) != start:
                raise TransientError(f"the server sent bytes from {found[1]} on instead of {start}")
            size = int(found[2]) if found[2] != "*" else None
        modified = headers.get("Last-Modified")
        version = headers.get("ETag") or (f"{size} bytes, {modified}" if size is not None and modified else None)
        if self._is_new:
            self.size, self.version = size, version
        self._check(version)
        if size != self.size:
            self._check("another size")

    @contextlib.contextmanager
    def _transient(self) -> Any:
        """Raise errors of the connection as transient ones."""
        try:
            yield
        except urllib.error.HTTPError:
            raise
        except _UNSAFE as error:
            self._disconnect()
            cause = getattr(error, "reason", None) or error
            if self._is_new and isinstance(cause, ssl.SSLCertVerificationError):
                what = f"the certificate is not trusted: {cause.verify_message}"
                raise ConnectorError(f"{self.name}: {what}; set SSL_CERT_FILE if it is your own", "ssl") from None
            if self._is_new and isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME:
                raise ConnectorError(f"{self.name}: no such host", "missing") from None
            raise TransientError(f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__) from error

    def _refused(self, code: int, reason: object) -> Exception:
        """Return the error of an HTTP status."""
        if code in _RETRIED or code >= 500:
            return TransientError(f"HTTP status {code} ({reason})")
        if code in (404, 410):
            return ConnectorError(f"{self.name}: no such file (HTTP status {code})", "missing")
        if code in (401, 403, 407):
            what = f"access is refused (HTTP status {code}): check user and password or the signature of the URL"
            return ConnectorError(f"{self.name}: {what}", "credentials")
        return ConnectorError(f"{self.name}: cannot be read: HTTP status {code} ({reason})", "http")

    def _disconnect(self) -> None:
        response, self._response = self._response, None
        if response is not None:
            response.close()
