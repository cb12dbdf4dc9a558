"""Client of a schema registry with Confluent's API: schemas by id."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from connectors.errors import ConnectorError, OptionError, UnreachableError
from connectors.kafka.clients import registry_options
from connectors.kafka.security import tls_context
from connectors.options import Options

USER_INFO = "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"
"""Environment variable with USER:PASSWORD."""
_WAY = f"set {USER_INFO}, or basic_auth_user_info in the table [schema_registry] of client=FILE.toml"
_RESPONSE_S = 5.0
_MOST_BYTES = 1 << 24  # of a response
_MOST_REFERENCES = 1000
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_TRANSIENT = (404, 408, 429)  # besides all errors of the server; 404 without an error code is from a proxy


class UnknownSchemaError(ValueError):
    """Raised if the registry has no such schema."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry.

    Parameters
    ----------
    kind
        AVRO, JSON or PROTOBUF.
    text
        The schema.
    references
        Name and schema of each reference, including indirect ones; each follows those that it needs.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaRegistry:
    """Get schemas over HTTP or HTTPS.

    Parameters
    ----------
    options
        Options of a stream. `registry` is one or several URLs, separated by commas; the next one is tried if one does
        not respond. `client` is a file of client options with the table `schema_registry`.

    Raises
    ------
    ConnectorError
        If a URL or a setting is invalid.
    """

    def __init__(self, options: Options) -> None:
        name, urls = options.name, options.text("registry") or ""  # which is refused
        settings = registry_options(name, options.peek("client"))
        self._name, self._urls = name, [_checked(name, url) for url in urls.split(",")]
        self._headers = {"Accept": _ACCEPT, **_authorization(name, settings)}
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if any(url.startswith("https:") for url in self._urls):
            handlers.append(urllib.request.HTTPSHandler(context=tls_context(name, settings)))
        self._is_known = False  # to be a registry
        self._opener = urllib.request.build_opener(*handlers)

    def __str__(self) -> str:
        return f"the schema registry {','.join(self._urls)}"

    def check(self) -> None:
        """Check that a registry responds and accepts the credentials.

        Raises
        ------
        UnreachableError
            If none responds.
        ConnectorError
            If the response is not that of a schema registry, or the credentials are rejected.
        """
        try:
            found = self._get("/schemas/types")
        except UnknownSchemaError:
            found = None
        if not isinstance(found, list):
            raise self._strange()
        self._is_known = True

    def schema(self, number: int, form: str = "") -> RegisteredSchema:
        """Get a schema by id.

        Parameters
        ----------
        number
            The id.
        form
            The parameter `format` of the request, such as serialized for descriptors of Protobuf.

        Raises
        ------
        UnknownSchemaError
            If there is no schema with this id.
        UnreachableError
            If no registry responds.
        """
        query = f"?format={form}" if form else ""
        found = self._schema_at(f"/schemas/ids/{number}{query}")
        references = tuple(self._references(found, query, {}))
        return RegisteredSchema(str(found.get("schemaType") or "AVRO").upper(), found["schema"], references)

    def _references(self, found: Mapping[str, Any], query: str, seen: dict[str, None]) -> Iterator[tuple[str, str]]:
        """Yield the references of a schema, each after those that it needs itself."""
        for each in found.get("references") or ():
            try:
                path = f"/subjects/{quote(each['subject'], safe='')}/versions/{int(each['version'])}{query}"
                name = str(each["name"])
            except (KeyError, TypeError, ValueError):
                raise self._strange() from None
            if path in seen:
                continue
            seen[path] = None
            if len(seen) > _MOST_REFERENCES:
                raise ConnectorError(f"{self._name}: {self}: a schema with more than {_MOST_REFERENCES:,} references")
            below = self._schema_at(path)
            yield from self._references(below, query, seen)
            yield name, below["schema"]

    def _schema_at(self, path: str) -> Mapping[str, Any]:
        found = self._get(path)
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise self._strange()
        return found

    def _get(self, path: str) -> Any:
        """Get JSON from the first registry that responds."""
        for url in self._urls[:-1]:
            with contextlib.suppress(UnreachableError):
                return self._get_from(url, path)
        return self._get_from(self._urls[-1], path)

    def _get_from(self, url: str, path: str) -> Any:
        request = urllib.request.Request(url + path, headers=self._headers)
        try:
            with self._opener.open(request, timeout=_RESPONSE_S) as answer:
                return json.loads(answer.read(_MOST_BYTES))
        except urllib.error.HTTPError as error:
            with contextlib.closing(error):
                is_unknown = error.code == 404 and _says_unknown(error)
            raise self._refusal(url, path, error.code, is_unknown) from None
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", error)
            if isinstance(cause, ssl.SSLCertVerificationError):
                what = f"{url} shows a certificate that is not trusted ({cause.verify_message})"
                way = "set ssl_cafile in the table [schema_registry] of client=FILE.toml"
                raise ConnectorError(f"{self._name}: the schema registry {what}: {way}", "refused") from None
            what = f"the schema registry {url} does not respond: {cause or type(cause).__name__}"
            raise UnreachableError(f"{self._name}: {what}", "no answer", option="registry") from None
        except (ValueError, RecursionError):
            raise self._strange() from None

    def _refusal(self, url: str, path: str, code: int, is_unknown: bool) -> Exception:
        """Return the exception for a status code."""
        if is_unknown:
            return UnknownSchemaError(f"the schema registry {url} has no {path.split('?')[0]}")
        if code in (401, 403):
            what = f"is {url}, which rejects the credentials (HTTP {code}): {_WAY}"
            return OptionError(self._name, "registry", what, "refused")
        text = f"{self._name}: the schema registry {url} responds with HTTP {code}"
        if code >= 500 or (code in _TRANSIENT and self._is_known):
            return UnreachableError(text, "no answer", option="registry")
        return ConnectorError(f"{text}; check the URL", "refused", option="registry")

    def _strange(self) -> ConnectorError:
        what = f"is {','.join(self._urls)}, which responds, but not as a schema registry: check port and path"
        return OptionError(self._name, "registry", f"{what} (Apicurio: /apis/ccompat/v7)", "no registry")


def _says_unknown(error: urllib.error.HTTPError) -> bool:
    """Return whether a response says that there is no such schema."""
    try:
        found = json.loads(error.read(_MOST_BYTES))
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and str(found.get("error_code")).startswith("404")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Reject redirects, because the request has credentials."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _checked(name: str, url: str) -> str:
    """Return a URL without trailing slash; errors do not show its credentials."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        what = "must be http://HOST:PORT or https://HOST:PORT, with a path if the registry has one"
        raise OptionError(name, "registry", what)
    if "@" in parts.netloc:
        raise OptionError(name, "registry", f"must not contain user and password: {_WAY}", "address")
    return url.rstrip("/")


def _authorization(name: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the header with the credentials, if there are any."""
    token = settings.get("bearer_auth_token")
    user_info = settings.get("basic_auth_user_info") or os.environ.get(USER_INFO)
    if token and settings.get("basic_auth_user_info"):
        what = "has both basic_auth_user_info and bearer_auth_token in the table [schema_registry]: remove one"
        raise OptionError(name, "client", what)
    if token:
        return {"Authorization": f"Bearer {token}"}
    if not user_info:
        return {}
    if ":" not in str(user_info):
        raise OptionError(name, "basic_auth_user_info", "of the schema registry must be USER:PASSWORD")
    return {"Authorization": f"Basic {base64.b64encode(str(user_info).encode()).decode()}"}
