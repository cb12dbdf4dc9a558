"""Progress within a batch."""

from __future__ import annotations

from connectors.events import Batch, Origins
from connectors.progress import BatchProgress


def batch(places: list[tuple[int, int]], end: int) -> Batch:
    columns = {"partition": [p for p, _ in places], "offset": [offset for _, offset in places]}
    return Batch([{}] * len(places), [None] * len(places), Origins({}, columns), {"end": end})


def test_progress_ends_after_the_batch_even_if_taken_events_were_removed():
    places = [(0, 10), (1, 10), (0, 11), (1, 11), (0, 12), (1, 12)]
    _, progress = BatchProgress({"end": 0}).take(batch(places, 3), 4)
    for removed in range(1, 5):
        first, second = places[removed:5], places[5:]
        rest, after = BatchProgress.from_state(progress.state()).rest(batch(first, 2))
        more, last = after.rest(batch(second, 3))
        assert [*rest.origins.columns["offset"], *more.origins.columns["offset"]] == [12, 12]
        assert last == BatchProgress({"end": 3})
