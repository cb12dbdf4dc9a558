"""Addresses of streams: paths and URLs, with options as a query."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from connectors.errors import ConnectorError, OptionError

_WEB = ("http://", "https://")
STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "sftp", "ssh", "memory")
"""Schemes of files in object stores and on SFTP servers, read through fsspec."""

_QUERY = {mark: re.compile(rf"\{mark}(?=\w[\w.-]*=|[\w-]*(?:&|$))") for mark in "?#"}
"""Start of the options of a URL: a mark before a name.

Other question marks belong to a glob.
"""


def split_url(url: str) -> tuple[str, dict[str, Any]]:
    """Split a URL into a path and query options.

    The name of an existing file is not split. An option with two values is refused.

    The query of a web address belongs to its server. Options follow a ``#``, which is never sent.

    Examples
    --------
    >>> split_url("a.csv?label=y&types=x:category")
    ('a.csv', {'label': 'y', 'types': 'x:category'})
    >>> split_url("part-?.csv?label=y")
    ('part-?.csv', {'label': 'y'})
    >>> split_url("https://host/a.csv?signature=x#label=y")
    ('https://host/a.csv?signature=x', {'label': 'y'})
    """
    url = url.removeprefix("file://")
    is_web = url.lower().startswith(_WEB)
    mark = "#" if is_web else "?"
    found = None if not is_web and os.path.exists(url) else _QUERY[mark].search(url)
    if found is None:
        return url, {}
    path, given = url[: found.start()], parse_qsl(url[found.end() :], keep_blank_values=True)
    query = dict(given)
    if twice := next((name for name, value in given if query[name] != value), None):
        raise OptionError(printable(path), twice, "is in the URL twice: give it once", "twice")
    return path, query


def split_urls(urls: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Split the URLs of several files into paths and the query options of all files.

    Examples
    --------
    >>> split_urls(["a.csv?label=y", "b.csv"])
    (['a.csv', 'b.csv'], {'label': 'y'})
    """
    paths, query = list[str](), dict[str, Any]()
    for url in urls:
        path, more = split_url(url)
        if clash := next((name for name in more if query.get(name, more[name]) != more[name]), None):
            raise OptionError(url, clash, "holds for all files of the source: give it once")
        paths.append(path)
        query |= more
    return paths, query


def is_remote(path: str) -> bool:
    """Return whether a path is the URL of a file on a server or in an object store."""
    scheme, colons, _ = path.partition("://")
    return bool(colons) and scheme.lower() in ("http", "https", *STORES)


def check_address(path: str) -> None:
    """Refuse a web address with an invalid port before any message names it.

    What looks like a port may be a part of a password that is not encoded.

    Raises
    ------
    ConnectorError
        If the address is not valid.
    """
    if not path.lower().startswith(_WEB):
        return
    try:
        _ = urlsplit(path).port
    except ValueError:
        what = "is no valid web address: check host and port, and encode user and password (%2F for /, %3F for ?)"
        raise ConnectorError(f"{path.partition(':')[0]}://...: {what}", "value") from None


def printable(path: str) -> str:
    """Return a path as valid Unicode, with undecodable bytes as ``\\xff``.

    URLs lose their credentials, and web addresses their query, too.

    Examples
    --------
    >>> printable("https://me:hunter2@host/a.csv?signature=x"), printable("sftp://me:hunter2@host/a.csv")
    ('https://host/a.csv', 'sftp://host/a.csv')
    """
    scheme, colons, rest = path.partition("://")
    if colons:
        rest = rest.partition("?")[0] if path.lower().startswith(_WEB) else rest
        host, slash, key = rest.partition("/")
        path = scheme + colons + host.rpartition("@")[2] + slash + key
    return os.fsencode(path).decode("utf-8", "backslashreplace")
