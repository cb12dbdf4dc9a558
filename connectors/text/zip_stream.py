"""Byte stream of a ZIP archive with one file."""

from __future__ import annotations

import zipfile
import zlib
from typing import IO, Any

from connectors.errors import ConnectorError
from connectors.text.bytestreams import CHUNK, ByteStream

_SHOWN = 3  # names of files in a message
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError)


class ZipStream(ByteStream):
    """Content of the only file of a ZIP archive.

    Parameters
    ----------
    file
        The archive as a binary file with random access. It is closed with the stream.
    name
        Its name in messages.
    version
        Version of a remote file.

    Raises
    ------
    ConnectorError
        If the archive is damaged or encrypted, or contains several files.
    """

    damage: str | None = None

    @property
    def member(self) -> str:
        """Name of the file in the archive."""
        return self._about.filename

    def __init__(self, file: IO[bytes], name: str, version: str | None = None) -> None:
        self._file, self._version = file, version
        try:
            self._archive = zipfile.ZipFile(file)
            self._about = self._only_member(name)
            self._member: Any = self._archive.open(self._about)
        except (*_DAMAGED, NotImplementedError) as error:
            raise ConnectorError(f"{name}: the ZIP archive cannot be read: {error}", "damaged") from error

    def _only_member(self, name: str) -> zipfile.ZipInfo:
        found = [each for each in self._archive.infolist() if not each.is_dir()]
        if any(each.filename == "[Content_Types].xml" for each in found):
            raise ConnectorError(f"{name}: is a spreadsheet: save it as CSV", "spreadsheet")
        found = [each for each in found if not each.filename.startswith("__MACOSX/")]
        if len(found) != 1:
            names = ", ".join(each.filename for each in found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
            what = f"the ZIP archive holds {len(found)} files{names and f' ({names})'}: extract the one you want"
            raise ConnectorError(f"{name}: {what}", "several")
        if found[0].flag_bits & 1:
            raise ConnectorError(f"{name}: the ZIP archive is encrypted: unpack it", "encrypted")
        return found[0]

    @property
    def version(self) -> str | None:
        return self._version

    def read(self, wait_s: float) -> bytes | None:
        try:
            data: bytes = self._member.read(CHUNK)
        except _DAMAGED as error:
            self.damage = f"ZIP archive is damaged: {error}"
            return None
        return data or None

    def seek(self, offset: int) -> bool:
        self.damage = None
        self._member.close()
        self._member = self._archive.open(self._about)
        try:
            self._member.seek(offset)
        except _DAMAGED as error:
            self.damage = f"ZIP archive is damaged: {error}"
        return offset <= self._about.file_size

    def fraction(self, offset: int) -> float | None:
        return min(1.0, offset / (self._about.file_size or offset or 1))

    def close(self) -> None:
        self._archive.close()
        self._file.close()
