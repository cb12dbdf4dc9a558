"""The next batch of a source, read by a thread of its own while this one is worked on."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from connectors.events import Apart, Batch, Source

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

LEAST_EVENTS = 256
"""To hand a batch over takes some 30 us, as long as to read so many events: smaller ones are not read ahead."""


def read_ahead(source: Source) -> Generator[Batch]:
    """The batches of a source in order, as iterating gives them; one batch ahead wherever the source says `is_apart`.

    What a batch has to say, its position too, is settled as it is read, and an error comes after the batches before it.
    Once this is closed nothing is read any more.

    Parameters
    ----------
    source
        To be read to its end, or until this is closed.

    Examples
    --------
    >>> from connectors import open_source
    >>> sum(map(len, read_ahead(open_source("synthetic:sea?n=1000"))))
    1000
    """
    batches, apart = iter(source), source if isinstance(source, Apart) else None
    with ExitStack() as until_closed:
        reader: ThreadPoolExecutor | None = None
        following: Future[Batch | None] | None = None
        while (batch := next(batches, None) if following is None else following.result()) is not None:
            following = None
            if apart is not None and apart.is_apart and len(batch) >= LEAST_EVENTS:
                reader = reader or until_closed.enter_context(_one_thread())
                following = reader.submit(next, batches, None)
            yield batch


def _one_thread() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, thread_name_prefix="streamsvm-reader")
