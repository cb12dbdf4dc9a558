"""Streams in and results out: files, standard input and output, and generated streams, each reached by a URL."""

from __future__ import annotations
