"""Byte stream of a ZIP archive with one file."""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import IO

from connectors.columns.cells import listed
from connectors.errors import ConnectorError
from connectors.text.bytestreams import FileStream

_SHOWN = 3  # names of files in a message
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError)


class ZipStream(FileStream):
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

    def __init__(self, file: IO[bytes], name: str, version: str | None = None) -> None:
        try:
            archive = zipfile.ZipFile(io.BufferedReader(file, 1 << 20))  # type: ignore[type-var] # a raw file
            about = self._only_member(archive, name)
            super().__init__(archive.open(about), name, lambda: about.file_size, version)
        except (*_DAMAGED, NotImplementedError) as error:
            raise ConnectorError(f"{name}: the ZIP archive cannot be read: {error}", "damaged") from error
        self.member = about.filename
        """Name of the file in the archive."""
        self._outer = file

    def _only_member(self, archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
        found = [each for each in archive.infolist() if not each.is_dir()]
        if any(each.filename == "[Content_Types].xml" for each in found):
            raise ConnectorError(f"{name}: is a spreadsheet: save it as CSV", "spreadsheet")
        found = [each for each in found if not each.filename.startswith("__MACOSX/")]
        if len(found) != 1:
            names = listed((each.filename for each in found), _SHOWN, str)
            what = f"the ZIP archive holds {len(found)} files{names and f' ({names})'}: extract the one you want"
            raise ConnectorError(f"{name}: {what}", "several")
        if found[0].flag_bits & 1:
            raise ConnectorError(f"{name}: the ZIP archive is encrypted: unpack it", "encrypted")
        return found[0]

    def read(self, wait_s: float) -> bytes | None:
        try:
            return super().read(wait_s)
        except _DAMAGED as error:
            self.damage = f"ZIP archive is damaged: {error}"
            return None

    def seek(self, offset: int) -> bool:
        self.damage = None
        try:
            return super().seek(offset)
        except _DAMAGED as error:
            self.damage = f"ZIP archive is damaged: {error}"
            return True

    def close(self) -> None:
        super().close()
        self._outer.close()
