"""Files of web servers, object stores and SFTP servers."""

from __future__ import annotations
