"""Compact binary format of a learner: the state of one key.

A state starts with a magic word, its version, the number of sections, and a checksum of the rest. The rest is the
lengths of the sections, followed by the sections. A learner has the sections

    settings    hash of 8 bytes of its class, parameters and state tables, and a hash of 1 byte for each of these
    schema      names of columns, and labels, as JSON
    counts      integer counters of columns that are not in memory; empty if there are none
    words       snapshot of its memory, see `streamsvm.keyed.snapshots`

Most keys of a stream share a schema. It is parsed once and then recognised by its bytes, so loading a state is mostly
copying. Zeros, such as memory reserved for support vectors, take one bit per word.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from connectors.notices import Notices
from streamsvm.core.state import State
from streamsvm.features.known import logger
from streamsvm.keyed.sections import KeyStateError
from streamsvm.keyed.snapshots import Snapshots
from streamsvm.models.archive import DAMAGED
from streamsvm.online.archive import encode_param
from streamsvm.online.base import OnlineClassifier
from streamsvm.parameters import ParameterError, ParameterTypeError

# Maximum number of cached schemas, and maximum memory of their learners.
MOST_SCHEMAS, MOST_BYTES = 1024, 64 << 20
# Maximum number, maximum memory, and minimum number of free learners per capacity. Free learners are reused, because
# creating one takes ten times as long as loading a state. A checkpoint releases all learners used since the last one.
MOST_FREE, FREE_BYTES, FEW = 10_000, 128 << 20, 4
# The total number of learners may exceed the maximum in use by 1 / SPARE, because keys differ in capacity.
SPARE = 10
# Types of labels that are encoded equally if they are equal.
_EXACT = frozenset({str, int, bool})


class Settings:
    """Hashes of the settings with which a state was written: 8 bytes of all settings, and 1 byte of each.

    Parameters
    ----------
    values
        JSON values by name.

    Examples
    --------
    >>> left = Settings({"n_faces": 4, "l2": 0.01})
    >>> Settings({"n_faces": 4, "l2": 0.01}).check(left.data)
    >>> Settings({"n_faces": 2, "l2": 0.01}).check(left.data)
    Traceback (most recent call last):
    ...
    streamsvm.keyed.sections.KeyStateError: the state of a key was left by a model with another `n_faces`: ...
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._names = list(values)
        digests = [_digest(json.dumps([name, value]).encode(), 8) for name, value in values.items()]
        self.data = _digest(b"".join(digests), 8) + b"".join(digest[:1] for digest in digests)

    def check(self, left: bytes) -> None:
        """Raise an error if a state was written with other settings.

        Parameters
        ----------
        left
            The `data` of the state's settings.

        Raises
        ------
        KeyStateError
            If settings differ. The message names them.
        """
        if left == self.data:
            return
        what = "other settings"
        if len(left) == len(self.data):
            differ = (n for n, a, b in zip(self._names, left[8:], self.data[8:], strict=True) if a != b)
            what = "another " + ", ".join(f"`{name}`" for name in differ)
        raise KeyStateError(
            f"the state of a key was left by a model with {what}: go on with the settings that keys began with, or let "
            "them begin anew",
            "settings",
        )


def _digest(data: bytes, size: int) -> bytes:
    return hashlib.blake2b(data, digest_size=size).digest()


class Held:
    """Learner of a key, with the schema needed to pack it.

    Parameters
    ----------
    learner
        The learner.
    schema
        The columns and labels of the learner when it was last packed or unpacked.
    """

    __slots__ = ("_blocks", "_state", "learner", "schema")

    def __init__(self, learner: OnlineClassifier, schema: Schema) -> None:
        self.learner, self.schema = learner, schema
        self._state: State | None = None
        self._blocks: list[NDArray[np.uint64]] = []

    @property
    def blocks(self) -> list[NDArray[np.uint64]]:
        """The memory of the learner; a learner that grows gets another one."""
        if self._state is not self.learner.buffer:
            self._state = self.learner.buffer
            self._blocks = self._state.blocks()
        return self._blocks

    @property
    def has_grown(self) -> bool:
        """Whether the learner has columns, labels or left-out names that are not in the schema."""
        return self.schema.extent != self.learner.schema_size


class Schema:
    """Columns and labels shared by many keys.

    Parameters
    ----------
    data
        The schema section of a state.
    learner
        An untrained learner with these columns and labels, used only as a template.

    Attributes
    ----------
    after : dict
        The schema sections after further labels, by these labels.
    """

    def __init__(self, data: bytes, learner: OnlineClassifier) -> None:
        self.data, self.learner = data, learner
        self.extent, self.capacity = learner.schema_size, learner.capacity
        memory = learner.buffer
        self.blocks, self.snapshots, self.n_bytes = memory.blocks(), Snapshots(memory), memory.n_bytes


class Packer:
    """Packs and unpacks learners with the settings of a model.

    An unpacked learner continues bit for bit like the packed one. Parsed schemas and free learners are cached for other
    keys.

    Parameters
    ----------
    model
        An untrained learner of this package.
    more
        Further settings that must equal those of a state, by name.

    Raises
    ------
    TypeError
        If the model has another type, or parameters that cannot be saved.
    ValueError
        If the model is trained.

    Examples
    --------
    >>> from streamsvm import CPMClassifier
    >>> from streamsvm.keyed.sections import seal, unseal
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
            raise ParameterTypeError(
                "model",
                "of each key must be a CPMClassifier, BSGDClassifier or StreamSVMClassifier without `refit`, `cost` "
                f"and `abstain`, got {type(model).__name__}",
            )
        if model.n_events_learned or model.classes_:
            raise ParameterError(
                "model",
                f"has learned {model.n_events_learned} events, but each key begins with nothing: give one that has "
                "learned nothing, and what all keys begin from as `parent`",
            )
        self._class, self._params, self._more = type(model), model._get_params(), dict(more or {})
        own = {k: encode_param(v) for k, v in self._params.items()}
        what = {"class": self._class.__name__, "state tables": _tables(model.buffer)}
        self.settings: dict[str, Any] = what | own | self._more
        self._settings = Settings(self.settings)
        self._schemas: OrderedDict[bytes, Schema] = OrderedDict()
        self._n_bytes = 0
        self._free: dict[tuple[int, int], list[Held]] = {}
        self._said = Notices(logger)  # each warning is given once for all keys
        self._n_free = self._n_used = self._most_used = 0  # free, in use, and maximum in use
        self._nothing = self._schema(model.schema())
        # An untrained learner has no columns, so every prediction leaves the same memory. If this equals the memory
        # before the prediction, one blank learner serves all untrained keys.
        blank = Held(self._nothing.learner.empty_twin(), self._nothing)
        blank.learner.predict_one({})
        is_blank = self._nothing.snapshots.take(blank.blocks) == self._nothing.snapshots.take(self._nothing.blocks)
        self._blank = blank if is_blank else None
        self._first: dict[Any, bytes] = {}

    def begin(self) -> Held:
        """Return an untrained learner."""
        return self._begin(self._nothing)

    def blank(self) -> Held:
        """Return the learner that predicts for all untrained keys; call `ready` before learning."""
        return self._blank or self.begin()

    def ready(self, held: Held, x: dict[Any, Any], label: Any) -> Held:
        """Return the learner of a key, a separate one from its first learned event on.

        First events of different keys usually have equal columns. The schema of this event is then cached, and a free
        learner with enough capacity is often available.

        Parameters
        ----------
        held
            The current learner of the key.
        x, label
            The event to learn next.
        """
        if held is not self._blank:
            return held
        return self._begin(self._first_schema(x, label) or self._nothing)

    def unpack(self, sections: Sequence[bytes]) -> Held:
        """Restore the learner of a key; call `give_back` when it is no longer needed.

        Parameters
        ----------
        sections
            The result of `pack`.

        Raises
        ------
        KeyStateError
            If the sections are corrupt, or were written with other settings.
        """
        settings, data, counts, packed = sections
        self._settings.check(settings)
        try:
            held = self._borrow(self._schema(data))
            learner = held.learner
            held.schema.snapshots.put(held.blocks, packed)
            learner.check_buffer()
            learner.restore_counts(counts)
        except DAMAGED as error:
            raise KeyStateError(f"not the state of a {self._class.__name__} of one key: {error}") from error
        return held

    def pack(self, held: Held) -> list[bytes]:
        """Return the sections of a learner's state.

        Parameters
        ----------
        held
            The learner, which remains usable.

        Raises
        ------
        TypeError
            If a label or feature name has a type that cannot be saved.
        """
        learner = held.learner
        if held.has_grown:
            held.schema = self._schema(learner.schema())
        return [self._settings.data, held.schema.data, learner.counts(), held.schema.snapshots.take(held.blocks)]

    def give_back(self, held: Held) -> None:
        """Release a learner for use by other keys; changes since the last `pack` are lost.

        Parameters
        ----------
        held
            The learner, which must not be used afterwards.
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
        # Engines send packers to their workers, without the caches.
        return Packer, (self._class(**self._params), self._more)

    # Schemas -----------------------------------------------------------------------------------------------------

    def _schema(self, data: bytes) -> Schema:
        """Cached schema of a section."""
        found = self._schemas.get(data)
        if found is None:
            found = self._schemas[data] = Schema(data, self._class(**self._params).with_schema(data, self._said))
            self._n_bytes += found.n_bytes
            while len(self._schemas) > MOST_SCHEMAS or (self._n_bytes > MOST_BYTES and len(self._schemas) > 2):
                self._n_bytes -= self._schemas.popitem(last=False)[1].n_bytes
        else:
            self._schemas.move_to_end(data)
        return found

    def _first_schema(self, x: dict[Any, Any], label: Any) -> Schema | None:
        """Schema after this first event; None unless it has only string names and numbers other than NaN."""
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
        schema.snapshots.clear(held.blocks)
        held.learner.restore_counts(b"")
        return held

    def _borrow(self, schema: Schema) -> Held:
        """Return a learner with this schema, whose memory still has the data of another key."""
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
        """Delete free learners if there are clearly more in total than were ever in use at once.

        A key that grows returns a learner of larger capacity than it took, so free learners would accumulate.
        """
        most = self._most_used + max(FEW, self._most_used // SPARE)
        while self._n_free and self._n_used + self._n_free > most:
            max(self._free.values(), key=len).pop()
            self._n_free -= 1


def _tables(state: State) -> str:
    """Hash of the schemas of a state."""
    schemas_of = {each.schema.name: each.schema for each in state.all()}
    said = [
        (name, key, str(getattr(entry, "element", getattr(entry, "dtype", ""))), getattr(entry, "dims", ()))
        for name, schema in sorted(schemas_of.items())
        for key, entry in schema.entries.items()
    ]
    return _digest(repr(said).encode(), 8).hex()
