"""Cache of the most recently used keys."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from streamsvm.keyed.classifier import KeyedClassifier
from streamsvm.keyed.key_events import Key
from streamsvm.parameters import check_number


class LiveKeys:
    """LRU cache of unpacked keys, which avoids unpacking and packing a state for every event.

    Parameters
    ----------
    keyed
        The classifier.
    load
        Function that returns the state of a key, None if there is none.
    save
        Function that stores the state of a key.
    max_live
        Maximum number of keys in the cache. If there are more, the least recently used key is saved and removed.

    Examples
    --------
    >>> from streamsvm import CPMClassifier
    >>> store = {}
    >>> live = LiveKeys(KeyedClassifier(CPMClassifier()), store.get, store.__setitem__, max_live=2)
    >>> for i in range(40):
    ...     for customer in "abc":
    ...         answers = live.step(customer, [{"amount": float(i % 2), "label": i % 2}])
    >>> live.flush()
    >>> sorted(store), live.step("b", [{"amount": 1.0}])[0]["prediction"]
    (['a', 'b', 'c'], 1)
    """

    def __init__(
        self,
        keyed: KeyedClassifier,
        load: Callable[[Any], bytes | None],
        save: Callable[[Any, bytes], None],
        max_live: int = 10_000,
    ) -> None:
        check_number("max_live", max_live, 1, whole=True)
        self.keyed = keyed
        self.max_live = max_live
        self._load, self._save = load, save
        self._keys: OrderedDict[Hashable, Key] = OrderedDict()
        self._changed: dict[Hashable, Key] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def step(self, key: Hashable, events: Sequence[Mapping[Any, Any]]) -> list[dict[str, Any]]:
        """Predict the next events of a key, and learn those with a label.

        Parameters
        ----------
        key
            The key.
        events
            Features by name, including the label.

        Returns
        -------
        list of dict
            The answers, see `KeyedClassifier.step`.

        Raises
        ------
        KeyStateError
            If the loaded state is corrupt, or was written by another model or a newer version.
        """
        found = self._keys.get(key)
        if found is None:
            found = self._wake(key)
        else:
            self._keys.move_to_end(key)
        if events:
            self._changed[key] = found
        return [self.keyed.answer(found, event) for event in events]

    def flush(self) -> None:
        """Save all keys that changed since their last save; call this before the engine commits."""
        for key, found in self._changed.items():
            self._save(key, self.keyed.pack(found))
        self._changed.clear()

    def drop(self, belongs: Callable[[Any], bool] | None = None) -> None:
        """Remove keys without saving them, for example after a revoked partition or a failed transaction.

        Parameters
        ----------
        belongs
            Function that returns whether to remove a key; None for all keys.
        """
        for key in [key for key in self._keys if belongs is None or belongs(key)]:
            self._changed.pop(key, None)
            self.keyed.let_go(self._keys.pop(key))

    def _wake(self, key: Hashable) -> Key:
        """Load a key, after removing the least recently used one if the cache is full."""
        while len(self._keys) >= self.max_live:
            oldest, found = next(iter(self._keys.items()))
            if oldest in self._changed:
                self._save(oldest, self.keyed.pack(found))
                del self._changed[oldest]
            self.keyed.let_go(self._keys.pop(oldest))
        found = self._keys[key] = self.keyed.wake(self._load(key))
        return found
