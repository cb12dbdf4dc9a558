"""What a learner has learned as a few bytes, and back: the state of one key.

A state begins with a magic word, its version, how many sections it has, and the checksum of all that follows: the
lengths of the sections, and the sections. Those of a learner are

    settings    eight bytes that tell its class, parameters and tables from all others, and one for each of these alone
    schema      the names of columns and the labels, as JSON
    counts      what is counted of columns beside them, as whole numbers; empty as long as there is nothing
    words       those words of its memory that are not zero, and for each that is saved a bit that says whether it is

Most keys of a stream have the same schema: it is read once, and recognised by its bytes from then on, so that a state
is loaded by copying. What is zero, as the memory for support vectors to come, takes a bit a word.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.notices import Notices
from streamsvm.core.state import State
from streamsvm.features.known import logger
from streamsvm.keyed.snapshots import Image
from streamsvm.models import ArchiveError
from streamsvm.models.archive import DAMAGED
from streamsvm.online.archive import encode_param
from streamsvm.online.base import OnlineClassifier

MAGIC = b"svmk"
VERSION = 1
_HEAD = struct.Struct("<4sHHI")

# Of so many schemas the latest are remembered, fewer where learners are so large that they would take more memory.
MOST_SCHEMAS, MOST_BYTES = 1024, 64 << 20
# Learners at rest, of one capacity, that the next keys take: to make one takes ten times as long as to load a state;
# as many are given back at once as were held from one checkpoint to the next. Fewer where they are large, but some.
MOST_FREE, FREE_BYTES, FEW = 10_000, 128 << 20, 4
# In all one in so many more than were ever in use at once, since keys differ in capacity.
SPARE = 10
# Labels of these types that are equal are the same in a schema.
_EXACT = frozenset({str, int, bool})


class KeyStateError(ArchiveError):
    """Bytes that are not the state of a key, are damaged, or were left by another model or a newer version."""


# A state and its sections ----------------------------------------------------------------------------------------


def seal(sections: Sequence[bytes]) -> bytes:
    """Sections as one state.

    Parameters
    ----------
    sections
        At most 65,535.

    Examples
    --------
    >>> unseal(seal([b"one", b"", b"three"]), 3)
    [b'one', b'', b'three']
    """
    rest = b"".join([_lengths(len(sections)).pack(*map(len, sections)), *sections])
    return _HEAD.pack(MAGIC, VERSION, len(sections), zlib.crc32(rest)) + rest


def unseal(data: bytes, n: int) -> list[bytes]:
    """The n sections of a state.

    Parameters
    ----------
    data
        What `seal` gave.
    n
        How many sections there must be.

    Raises
    ------
    KeyStateError
        Where it is something else, of a newer version, or damaged.
    TypeError
        Where it is not bytes.
    """
    if type(data) is not bytes:
        raise TypeError(f"the state of a key must be bytes or None, got {type(data).__name__}")
    if len(data) < _HEAD.size or data[:4] != MAGIC:
        raise KeyStateError(f"not the state of a key: it begins with {data[:4]!r}, not with {MAGIC!r}")
    _, version, n_sections, checksum = _HEAD.unpack_from(data)
    if not 1 <= version <= VERSION:
        raise KeyStateError(
            f"the state of a key has version {version}, this streamsvm reads up to {VERSION}: install a newer one"
        )
    if zlib.crc32(memoryview(data)[_HEAD.size :]) != checksum:
        raise KeyStateError(f"the state of a key is damaged: its {len(data)} bytes do not have their checksum")
    at = _HEAD.size + 4 * n_sections
    if n_sections != n or len(data) < at:
        raise KeyStateError(f"the state of a key has {n_sections} sections, not {n}")
    sections = []
    for length in _lengths(n).unpack_from(data, _HEAD.size):
        sections.append(data[at : at + length])
        at += length
    if at != len(data):
        raise KeyStateError(f"the state of a key has {len(data)} bytes, its sections say {at}")
    return sections


@cache
def _lengths(n: int) -> struct.Struct:
    return struct.Struct(f"<{n}I")


class Settings:
    """What must be as it was when a state was left: told from others by eight bytes, and each by one byte.

    Parameters
    ----------
    values
        Values that JSON can have, by name.

    Examples
    --------
    >>> left = Settings({"n_faces": 4, "l2": 0.01})
    >>> Settings({"n_faces": 4, "l2": 0.01}).check(left.data)
    >>> Settings({"n_faces": 2, "l2": 0.01}).check(left.data)
    Traceback (most recent call last):
    ...
    streamsvm.keyed.packing.KeyStateError: the state of a key was left by a model with another `n_faces`: ...
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._names = list(values)
        digests = [_digest(json.dumps([name, value]).encode(), 8) for name, value in values.items()]
        self.data = _digest(b"".join(digests), 8) + b"".join(digest[:1] for digest in digests)

    def check(self, left: bytes) -> None:
        """Refuse what was left under other settings.

        Parameters
        ----------
        left
            The `data` of those.

        Raises
        ------
        KeyStateError
            Where they differ, with the names of those that do.
        """
        if left == self.data:
            return
        what = "other settings"
        if len(left) == len(self.data):
            differ = (n for n, a, b in zip(self._names, left[8:], self.data[8:], strict=True) if a != b)
            what = "another " + ", ".join(f"`{name}`" for name in differ)
        raise KeyStateError(
            f"the state of a key was left by a model with {what}: go on with the settings that keys began with, or let "
            "them begin anew"
        )


def _digest(data: bytes, size: int) -> bytes:
    return hashlib.blake2b(data, digest_size=size).digest()


# Learners --------------------------------------------------------------------------------------------------------


class Held:
    """A learner that works for a key, and what is needed to pack it.

    Parameters
    ----------
    learner
        The learner.
    schema
        Its columns and labels when it was packed or unpacked last.
    """

    __slots__ = ("_blocks", "_state", "learner", "schema")

    def __init__(self, learner: OnlineClassifier, schema: Schema) -> None:
        self.learner, self.schema = learner, schema
        self._state: State | None = None
        self._blocks: list[NDArray[np.uint64]] = []

    @property
    def blocks(self) -> list[NDArray[np.uint64]]:
        """Its memory; a learner that grows takes another."""
        if self._state is not self.learner.buffer:
            self._state = self.learner.buffer
            self._blocks = self._state.blocks()
        return self._blocks

    @property
    def has_grown(self) -> bool:
        """Whether there are columns, labels or names left out that are not in its schema."""
        return self.schema.extent != self.learner.schema_size


class Schema:
    """Columns and labels that many keys share.

    Parameters
    ----------
    data
        The section that says so.
    learner
        One with these columns and labels that has learned nothing else, and never will.

    Attributes
    ----------
    after : dict
        The sections of schemas with further labels, by these.
    """

    def __init__(self, data: bytes, learner: OnlineClassifier) -> None:
        self.data, self.learner = data, learner
        self.extent, self.capacity = learner.schema_size, learner.capacity
        memory = learner.buffer
        self.blocks, self.image, self.n_bytes = memory.blocks(), Image(memory), memory.n_bytes
        self.after: dict[Any, bytes] = {}


class Packer:
    """Packs what learners with the settings of a model have learned, and unpacks it.

    A learner that was unpacked goes on as the one that was packed, to the bit. What is known of a schema, and a few
    learners at rest, are kept for the keys to come.

    Parameters
    ----------
    model
        A learner of this package that has learned nothing.
    more
        Further settings that must be as they were when a state was left, by name.

    Raises
    ------
    TypeError
        Where the model is of another kind, or its parameters cannot be saved.
    ValueError
        Where it has learned something.

    Examples
    --------
    >>> from streamsvm import CPMClassifier
    >>> packer = Packer(CPMClassifier())
    >>> held = packer.begin()
    >>> for i in range(100):
    ...     held.learner.learn_one({"size": float(i % 2)}, "large" if i % 2 else "small")
    >>> state = seal(packer.pack(held))
    >>> packer.give_back(held)
    >>> len(state) < 1_000, packer.unpack(unseal(state, 4)).learner.predict_one({"size": 1.0})
    (True, 'large')
    """

    def __init__(self, model: OnlineClassifier, more: Mapping[str, Any] | None = None) -> None:
        if not isinstance(model, OnlineClassifier) or model.is_composed:
            raise TypeError(
                "the model of each key must be a CPMClassifier, BSGDClassifier or StreamSVMClassifier without `refit`, "
                f"`cost` and `abstain`, got {type(model).__name__}"
            )
        if model.n_events_learned or model.classes_:
            raise ValueError(
                f"the model has learned {model.n_events_learned} events, but each key begins with nothing: give one "
                "that has learned nothing, and what all keys begin from as `parent`"
            )
        self._class, self._params, self._more = type(model), model._get_params(), dict(more or {})
        own = {k: encode_param(v) for k, v in self._params.items()}
        what = {"class": self._class.__name__, "state tables": _tables(model.buffer)}
        self.settings: dict[str, Any] = what | own | self._more
        self._settings = Settings(self.settings)
        self._schemas: OrderedDict[bytes, Schema] = OrderedDict()
        self._n_bytes = 0
        self._free: dict[tuple[int, int], list[Held]] = {}
        self._said = Notices(logger)  # once for all keys
        self._n_free = self._n_used = self._most_used = 0  # learners at rest, in use, and most in use at once
        self._nothing = self._schema(model.schema())
        # As long as nothing is known no event has a column, and what a prediction leaves behind is always the same.
        blank = Held(self._nothing.learner.empty_twin(), self._nothing)
        blank.learner.predict_one({})
        is_blank = self._nothing.image.take(blank.blocks) == self._nothing.image.take(self._nothing.blocks)
        self._blank = blank if is_blank else None
        self._first: dict[Any, bytes] = {}

    def begin(self) -> Held:
        """A learner that has learned nothing."""
        return self._begin(self._nothing)

    def blank(self) -> Held:
        """What answers for all keys that have learned nothing; what learns, for one of them, is given by `ready`."""
        return self._blank or self.begin()

    def ready(self, held: Held, x: dict[Any, Any], label: Any) -> Held:
        """The learner of a key, one of its own from its first event on.

        Keys begin with events of the same columns. What they have to grow to is known then, and learners with room for
        it are at hand.

        Parameters
        ----------
        held
            The learner so far.
        x, label
            What it is to learn next.
        """
        if held is not self._blank:
            return held
        return self._begin(self._first_schema(x, label) or self._nothing)

    def unpack(self, sections: Sequence[bytes]) -> Held:
        """The learner of a key, to be given back when it is not needed any more.

        Parameters
        ----------
        sections
            What `pack` gave.

        Raises
        ------
        KeyStateError
            Where they were left by a learner with other settings, or are not what `pack` gives.
        """
        settings, data, counts, packed = sections
        self._settings.check(settings)
        try:
            held = self._borrow(self._schema(data))
            learner = held.learner
            held.schema.image.put(held.blocks, packed)
            learner.check_buffer()
            learner.restore_counts(counts)
        except DAMAGED as error:
            raise KeyStateError(f"not the state of a {self._class.__name__} of one key: {error}") from error
        return held

    def pack(self, held: Held) -> list[bytes]:
        """What a learner has learned.

        Parameters
        ----------
        held
            The learner, which can go on afterwards.

        Raises
        ------
        TypeError
            Where a label or the name of a feature is of a type that cannot be saved.
        """
        learner = held.learner
        if held.has_grown:
            held.schema = self._grown(held)
        return [self._settings.data, held.schema.data, learner.counts(), held.schema.image.take(held.blocks)]

    def give_back(self, held: Held) -> None:
        """Take a learner that has been packed, or is to be forgotten, for another key.

        Parameters
        ----------
        held
            The learner, which must not be used any more.
        """
        if held is self._blank:
            return
        self._n_used -= 1
        schema = held.schema
        free = self._free.setdefault(schema.capacity, [])
        if not held.has_grown and len(free) < max(FEW, min(MOST_FREE, FREE_BYTES // schema.n_bytes)):
            free.append(held)
            self._n_free += 1

    def __reduce__(self) -> Any:
        # Engines send it to their workers: what it has met so far stays here.
        return Packer, (self._class(**self._params), self._more)

    # Schemas -----------------------------------------------------------------------------------------------------

    def _schema(self, data: bytes) -> Schema:
        """What is known of a schema by the section that says it."""
        found = self._schemas.get(data)
        if found is None:
            found = self._schemas[data] = Schema(data, self._class(**self._params).with_schema(data, self._said))
            self._n_bytes += found.n_bytes
            while len(self._schemas) > MOST_SCHEMAS or (self._n_bytes > MOST_BYTES and len(self._schemas) > 2):
                self._n_bytes -= self._schemas.popitem(last=False)[1].n_bytes
        else:
            self._schemas.move_to_end(data)
        return found

    def _grown(self, held: Held) -> Schema:
        """The schema of a learner that has met more than its own says."""
        before, learner = held.schema, held.learner
        (n_columns, n_labels, n_left_out), now = before.extent, learner.schema_size
        more = tuple((type(label), label) for label in learner.classes_[n_labels:])
        if (n_columns, n_left_out) != (now[0], now[2]) or not all(kind in _EXACT for kind, _ in more):
            return self._schema(learner.schema())
        if more not in before.after:
            before.after[more] = learner.schema()
        return self._schema(before.after[more])

    def _first_schema(self, x: dict[Any, Any], label: Any) -> Schema | None:
        """The schema of a learner whose first event this is; None where it has more than numbers under names."""
        names, values = tuple(x), x.values()
        if type(label) not in _EXACT or not set(map(type, values)) <= {float, int} or math.isnan(sum(values)):
            return None
        data = self._first.get((names, type(label), label))
        if data is None:
            if not set(map(type, names)) <= {str} or len(names) > self._nothing.learner.max_features:
                return None
            learner = self._nothing.learner.empty_twin()
            learner.learn_one(x, label)
            data = learner.schema()
            if len(self._first) == MOST_SCHEMAS:
                self._first.clear()
            self._first[names, type(label), label] = data
        return self._schema(data)

    def _begin(self, schema: Schema) -> Held:
        held = self._borrow(schema)
        schema.image.clear(held.blocks)
        held.learner.restore_counts(b"")
        return held

    def _borrow(self, schema: Schema) -> Held:
        """A learner with columns and labels; what its memory holds is of another key."""
        self._n_used += 1
        self._most_used = max(self._most_used, self._n_used)
        free = self._free.get(schema.capacity)
        if not free:
            self._let_go()
            return Held(schema.learner.empty_twin(), schema)
        held = free.pop()
        self._n_free -= 1
        if held.schema is not schema:
            held.learner.share_schema(schema.learner)
            held.schema = schema
        return held

    def _let_go(self) -> None:
        """Drop learners at rest where there are clearly more in all than were ever in use at once.

        A key that grows gives back a learner of more capacity than it took: without this bound, those would add up.
        """
        most = self._most_used + max(FEW, self._most_used // SPARE)
        while self._n_free and self._n_used + self._n_free > most:
            max(self._free.values(), key=len).pop()
            self._n_free -= 1


def _tables(state: State) -> str:
    """What tells the tables of a state from others."""
    schemas_of = {each.schema.name: each.schema for each in state.all()}
    said = [
        (name, key, str(getattr(entry, "element", getattr(entry, "dtype", ""))), getattr(entry, "dims", ()))
        for name, schema in sorted(schemas_of.items())
        for key, entry in schema.entries.items()
    ]
    return _digest(repr(said).encode(), 8).hex()
