"""What a disk may hold after a power failure at any moment of a recorded history.

A synced change is durable. Any subset of the others may be, with the bytes of a write in any subset of its sectors.
Only a rename is atomic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator

from tests.faults.contents import Contents, Mark, Names, Sync, Tree, Truncate, Write
from tests.faults.disk import Disk

Pending = list[Write | Truncate | Names]
Choice = Callable[[Write | Truncate | Names], Iterable[Write | Truncate | Names]]
"""What reaches the disk of a change that is not synced."""


def moments(disk: Disk) -> Iterator[tuple[int, Contents, Pending]]:
    """Yield, for each number of recorded changes, the durable and pending state."""
    durable, pending = disk.start, list[Write | Truncate | Names]()
    yield 0, durable, pending
    for n, change in enumerate(disk.history, 1):
        if isinstance(change, Sync):
            durable = durable.copy()
            for one in pending:
                if _is_synced(one, change.node):
                    durable.change(one)
            pending = [one for one in pending if not _is_synced(one, change.node)]
        elif not isinstance(change, Mark):
            pending = [*pending, change]
        yield n, durable, pending


def _is_synced(change: Write | Truncate | Names, node: int) -> bool:
    if isinstance(change, Names):
        return any(folder == node for (folder, _), _ in change.names)
    return change.node == node


def survivor(durable: Contents, pending: Pending, choose: Choice) -> Tree:
    """Return what a disk holds after a power failure, with a choice per change.

    The choice concerns changes that are not synced.
    """
    found = durable.copy()
    for change in pending:
        for one in choose(change):
            found.change(one)
    return found.tree()


def choices(pending: Pending, rng: random.Random, n_random: int) -> Iterator[Choice]:
    """Yield ways to decide about changes that are not synced.

    They are all, none, names only, data only, all but one, one only, torn, and random.
    """
    yield lambda change: [change]
    yield lambda change: []
    yield lambda change: [change] if isinstance(change, Names) else []
    yield lambda change: [] if isinstance(change, Names) else [change]
    for one in pending:
        yield lambda change, one=one: [] if change is one else [change]
        yield lambda change, one=one: [change] if change is one else []
    yield lambda change: [change] if isinstance(change, Names) else torn(rng, change)
    for _ in range(n_random):
        share = rng.random()
        yield lambda change, share=share: torn(rng, change) if rng.random() < share else _one_of(rng, change)


def _one_of(rng: random.Random, change: Write | Truncate | Names) -> Pending:
    return [change] if rng.random() < 0.5 else []


def torn(rng: random.Random, change: Write | Truncate | Names) -> Pending:
    """Return some sectors of a write. The file may have its new size without them."""
    if not isinstance(change, Write):
        return _one_of(rng, change)
    size, found = rng.choice((1, 64, 512, 4096)), list[Write | Truncate | Names]()
    end = change.offset + len(change.data)
    if rng.random() < 0.5:  # the size is known to the disk before the data
        found.append(Write(change.node, end, b""))
    for at in range(change.offset // size * size, end, size):
        if rng.random() < 0.5:
            first = max(at, change.offset)
            found.append(Write(change.node, first, change.data[first - change.offset : at + size - change.offset]))
    return found
