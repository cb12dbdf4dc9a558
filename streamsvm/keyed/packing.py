"""Compact binary format of a learner: the state of one key.

A state starts with a magic word, its version, and a checksum of the rest. The rest is the lengths of the sections,
followed by the sections. A learner has the sections

    settings    hashes of its class, state tables and parameters
    schema      names of columns, and labels, as JSON
    counts      counters of columns and classes that are not in memory, as JSON; empty if all are 0
    words       snapshot of its memory, see `streamsvm.keyed.snapshots`

Most keys of a stream share a schema. It is parsed once and then recognised by its bytes, so loading a state is mostly
copying. Zeros, such as memory reserved for support vectors, take one bit per word.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from connectors.notices import Notices
from streamsvm.core.state import State
from streamsvm.features.known_features import logger
from streamsvm.keyed.key_state import KeyStateError
from streamsvm.keyed.snapshots import Snapshots
from streamsvm.models.archive import CORRUPT_ERRORS
from streamsvm.online.base import OnlineClassifier
from streamsvm.online.saving import encode_param
from streamsvm.parameters import ParameterError, ParameterTypeError

# Maximum memory of the learners of cached schemas, and of free learners. Free learners are reused, because creating one
# takes ten times as long as loading a state. A checkpoint releases all learners used since the last one.
SCHEMA_BYTES, FREE_BYTES = 64 << 20, 128 << 20
# Maximum number of cached first events.
MOST_FIRST = 1024
# Bytes of the hash of a setting.
_DIGEST = 3
# Setting that differs only between versions of streamsvm, or together with the class.
TABLES = "state tables"
# Types of labels that are encoded equally if they are equal.
_EXACT = frozenset({str, int, bool})


class KeySchema:
    """Columns and labels shared by many keys.

    Parameters
    ----------
    data
        The schema section of a state.
    learner
        An untrained learner with these columns and labels, used only as a template.
    """

    def __init__(self, data: bytes, learner: OnlineClassifier) -> None:
        self.data, self.learner = data, learner
        self.extent, self.capacity = learner.schema_size, learner.capacity
        self.snapshots, self.n_bytes = Snapshots(learner.buffer), learner.buffer.n_bytes


@dataclass(slots=True, eq=False)
class KeyModel:
    """Learner of a key.

    Parameters
    ----------
    learner
        The learner.
    schema
        The columns and labels of the learner when it was last packed or unpacked.
    """

    learner: OnlineClassifier
    schema: KeySchema

    @property
    def has_grown(self) -> bool:
        """Whether the learner has names or labels that its schema lacks."""
        return self.schema.extent != self.learner.schema_size


class Packer:
    """Packs and unpacks learners with the settings of a model.

    An unpacked learner continues bit for bit like the packed one. Parsed schemas and free learners are cached for other
    keys.

    Parameters
    ----------
    model
        An untrained learner of this package.

    Raises
    ------
    TypeError
        If the model has another type, or parameters that cannot be saved.
    ValueError
        If the model is trained.

    Examples
    --------
    >>> from streamsvm import CPMClassifier
    >>> packer = Packer(CPMClassifier())
    >>> own = packer.begin()
    >>> for i in range(100):
    ...     own.learner.learn_one({"size": float(i % 2)}, "large" if i % 2 else "small")
    >>> sections = packer.pack(own)
    >>> packer.release(own)
    >>> sum(map(len, sections)) < 1_000, packer.unpack(sections).learner.predict_one({"size": 1.0})
    (True, 'large')
    """

    def __init__(self, model: OnlineClassifier) -> None:
        if not isinstance(model, OnlineClassifier) or model.parts:
            raise ParameterTypeError(
                "model",
                "of each key must be a CPMClassifier, BSGDClassifier or StreamSVMClassifier without `refit`, `cost` "
                f"and `abstain`, got {type(model).__name__}",
            )
        if model.n_events_learned or model.classes_:
            raise ParameterError(
                "model",
                f"has learned {model.n_events_learned} events, but each key starts untrained: pass an untrained "
                "model, and use `prior_model` for a common prior model",
            )
        self._class, self._params = type(model), model._get_params()
        self.settings: dict[str, Any] = {"class": self._class.__name__, TABLES: _tables(model.buffer)}
        self.settings |= {name: encode_param(value) for name, value in self._params.items()}
        self._digests = {name: _digest([name, value], _DIGEST) for name, value in self.settings.items()}
        self._settings = b"".join(self._digests.values())
        self.schemas: OrderedDict[bytes, KeySchema] = OrderedDict()
        self.free: dict[tuple[int, int], list[KeyModel]] = defaultdict(list)
        self._schema_bytes = self._free_bytes = 0
        self._notices = Notices(logger)  # each warning is given once for all keys
        self._nothing = self._schema(model.schema())
        # An untrained learner has no columns, so every prediction leaves the same memory. If this equals the memory
        # before the prediction, one blank learner serves all untrained keys.
        blank = KeyModel(self._nothing.learner.empty_twin(), self._nothing)
        blank.learner.predict_one({})
        snapshots = self._nothing.snapshots
        self._blank = blank if snapshots.take(blank.learner.blocks) == snapshots.empty else None
        self._first: dict[Any, bytes] = {}

    def begin(self) -> KeyModel:
        """Return an untrained learner."""
        return self._load(self._nothing, self._nothing.snapshots.empty, b"")

    def blank(self) -> KeyModel:
        """Return the learner that predicts for untrained keys; see `ready` for learning."""
        return self._blank or self.begin()

    def ready(self, model: KeyModel, x: dict[Any, Any], label: Any) -> KeyModel:
        """Return the learner of a key, a separate one from its first learned event on.

        First events of different keys usually have equal columns. The schema of this event is then cached, and a free
        learner with enough capacity is often available.

        Parameters
        ----------
        model
            The current learner of the key.
        x, label
            The event to learn next.
        """
        if model is not self._blank:
            return model
        schema = self._first_schema(x, label) or self._nothing
        return self._load(schema, schema.snapshots.empty, b"")

    def unpack(self, sections: Sequence[bytes]) -> KeyModel:
        """Restore the learner of a key; call `release` when it is no longer needed.

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
        if settings != self._settings:
            self._check_settings(settings)
        try:
            model = self._load(self._schema(data), packed, counts)
            model.learner.check_buffer()
        except CORRUPT_ERRORS as error:
            raise KeyStateError(f"not the state of a {self._class.__name__} of one key: {error}") from error
        return model

    def _check_settings(self, settings: bytes) -> None:
        """Raise an error unless a state has these settings, in any order."""
        found = {settings[at : at + _DIGEST] for at in range(0, len(settings), _DIGEST)}
        differ = [name for name, digest in self._digests.items() if digest not in found]
        if "class" not in differ and (TABLES in differ or len(settings) != len(self._settings)):
            raise KeyStateError(
                "the state of a key was written by another version of streamsvm: use that version, or start over",
                "version",
            )
        if names := [f"`{name}`" for name in differ if name != TABLES]:
            raise KeyStateError(
                f"the state of a key was written by a model with another {', '.join(names)}: use the settings "
                "that the keys started with, or start over",
                "settings",
            )

    def pack(self, model: KeyModel) -> list[bytes]:
        """Return the sections of a learner's state.

        Parameters
        ----------
        model
            The learner, which remains usable.

        Raises
        ------
        TypeError
            If a label or feature name has a type that cannot be saved.
        """
        learner = model.learner
        if model.has_grown:
            model.schema = self._schema(learner.schema())
        memory = model.schema.snapshots.take(learner.blocks)
        return [self._settings, model.schema.data, learner.counts(), memory]

    def release(self, model: KeyModel) -> None:
        """Release a learner for other keys, without changes since the last `pack`.

        Parameters
        ----------
        model
            The learner, which must not be used afterwards.
        """
        if model is self._blank or model.has_grown:
            return
        self.free[model.schema.capacity].append(model)
        self._free_bytes += model.schema.n_bytes
        while self._free_bytes > FREE_BYTES:
            self._free_bytes -= max(self.free.values(), key=len).pop().schema.n_bytes

    def __reduce__(self) -> Any:
        # Engines send packers to their workers, without the caches.
        return Packer, (self._class(**self._params),)

    # Schemas -----------------------------------------------------------------------------------------------------

    def _schema(self, data: bytes) -> KeySchema:
        """Return the schema of a section, cached."""
        found = self.schemas.get(data)
        if found is None:
            found = self.schemas[data] = KeySchema(data, self._class(**self._params).with_schema(data, self._notices))
            self._schema_bytes += found.n_bytes
            while self._schema_bytes > SCHEMA_BYTES and len(self.schemas) > 2:
                self._schema_bytes -= self.schemas.popitem(last=False)[1].n_bytes
        else:
            self.schemas.move_to_end(data)
        return found

    def _first_schema(self, x: dict[Any, Any], label: Any) -> KeySchema | None:
        """Return the schema after a first event, None unless names and values are simple.

        Names must be strings, and values numbers other than NaN.
        """
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
            if len(self._first) == MOST_FIRST:
                self._first.clear()
            self._first[names, type(label), label] = data
        return self._schema(data)

    def _load(self, schema: KeySchema, packed: bytes, counts: bytes) -> KeyModel:
        """Return a learner with this schema and memory."""
        if free := self.free[schema.capacity]:
            model = free.pop()
            self._free_bytes -= model.schema.n_bytes
        else:
            model = KeyModel(schema.learner.empty_twin(), schema)
        if model.schema is not schema:
            model.learner.share_schema(schema.learner)
            model.schema = schema
        schema.snapshots.put(model.learner.blocks, packed)
        model.learner.restore_counts(counts)
        return model


def _tables(state: State) -> str:
    """Return a hash of the schemas of a state."""
    return _digest(sorted({(each.schema.name, each.schema.digest) for each in state.all()}), 8).hex()


def _digest(content: Any, size: int) -> bytes:
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=size).digest()
