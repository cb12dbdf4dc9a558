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
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from connectors.notices import Notices
from streamsvm.core.schema import Number
from streamsvm.core.state import State
from streamsvm.core.template import Template
from streamsvm.features.known_features import logger
from streamsvm.keyed.key_state import KeyStateError
from streamsvm.keyed.snapshots import Snapshots
from streamsvm.models.archive import CORRUPT_ERRORS
from streamsvm.online.base import OnlineClassifier
from streamsvm.online.saving import encode_param
from streamsvm.parameters import ParameterError, ParameterTypeError

# Maximum memory of cached schemas with their learners. Learners are reused, because creating one takes about as long as
# loading a state. A checkpoint releases all learners used since the last one.
CACHE_BYTES = 192 << 20
# Maximum number of predictions of an untrained key without memory of its own.
MOST_BLANK = 64
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
        An untrained learner with these columns and labels. The learners of keys are copies.
    free
        Learners that are not in use, by the arrangement of their memory. Schemas with equal arrangements share them.
    """

    def __init__(
        self, data: bytes, learner: OnlineClassifier, free: dict[tuple[Any, ...], list[OnlineClassifier]]
    ) -> None:
        self.data, self._learner = data, learner
        self.extent, self.capacity = learner.schema_size, learner.capacity
        self.template = Template(learner.buffer)
        self.snapshots, self.n_bytes = Snapshots(self.template), self.template.n_bytes
        self.free = free.setdefault((self.n_bytes, *(each.layout for each in self.template.placed.all())), [])

    def new(self) -> OnlineClassifier:
        """Return an untrained learner."""
        return self._learner.twin_with(self.template.copy())

    def free_learner(self) -> OnlineClassifier | None:
        """Return a free learner, untrained again, if there is one."""
        if not self.free:
            return None
        learner = self.free.pop()
        self.template.reset(learner.buffer)
        learner.share_schema(self._learner)
        return learner


@dataclass(slots=True, eq=False)
class KeyModel:
    """Learner of a key.

    Parameters
    ----------
    learner
        The learner.
    schema
        The columns and labels of the learner when it was last packed or unpacked.
    n_blank
        For a learner that predicts for all untrained keys, the number of predictions of this key; else -1.
    """

    learner: OnlineClassifier
    schema: KeySchema
    n_blank: int = -1

    @property
    def has_grown(self) -> bool:
        """Whether the learner has names, labels or memory that its schema lacks."""
        schema, learner = self.schema, self.learner
        return schema.extent != learner.schema_size or schema.capacity != learner.capacity


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
        self.schemas: OrderedDict[bytes, KeySchema] = OrderedDict()
        self._free: dict[tuple[Any, ...], list[OnlineClassifier]] = {}
        self._cached_bytes = 0
        self._notices = Notices(logger)  # each warning is given once for all keys
        self._nothing = self._schema(model.schema())
        self.settings: dict[str, Any] = {"class": self._class.__name__, TABLES: _tables(model.buffer)}
        self.settings |= {name: encode_param(value) for name, value in self._params.items()}
        self._digests = {name: _digest([name, value], _DIGEST) for name, value in self.settings.items()}
        self._settings = b"".join(self._digests.values())
        self._blank = self._nothing.new()
        self._first: dict[Any, bytes] = {}

    def begin(self, n_blank: int = 0, schema: KeySchema | None = None) -> KeyModel:
        """Return an untrained learner after a number of predictions.

        An untrained learner has no columns, so every event leaves the same memory.
        """
        schema = schema or self._nothing
        learner = self._untrained(schema)
        for _ in range(n_blank):
            learner.answer_one({})
        return KeyModel(learner, schema)

    def blank(self) -> KeyModel:
        """Return a model whose learner predicts for all untrained keys."""
        return KeyModel(self._blank, self._nothing, 0)

    def answer_one(self, model: KeyModel, x: dict[Any, Any]) -> tuple[Any, float | None, Sequence[float]]:
        """Predict an event, see `OnlineClassifier.answer_one`.

        Parameters
        ----------
        model
            The model of the key.
        x
            Features by name.
        """
        found = model.learner.answer_one(x)
        if model.n_blank >= 0:
            model.n_blank += 1
            if model.n_blank == MOST_BLANK:
                self._own(model)
        return found

    def learn_one(self, model: KeyModel, x: dict[Any, Any], label: Any) -> None:
        """Learn an event; a key has a learner of its own from its first one on.

        First events of different keys usually have equal columns. The schema of this event is then cached.

        Parameters
        ----------
        model
            The model of the key.
        x, label
            The event.
        """
        if model.n_blank >= 0:
            self._own(model, self._first_schema(x, label))
        model.learner.learn_one(x, label)

    def _own(self, model: KeyModel, schema: KeySchema | None = None) -> None:
        """Give a key that has none a learner of its own."""
        own = self.begin(model.n_blank, schema)
        model.learner, model.schema, model.n_blank = own.learner, own.schema, -1

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
            schema = self._schema(data)
            learner = self._untrained(schema)
            schema.snapshots.put(learner.buffer, packed)
            learner.restore_counts(counts)
            learner.check_buffer()
        except CORRUPT_ERRORS as error:
            raise KeyStateError(f"not the state of a {self._class.__name__} of one key: {error}") from error
        return KeyModel(learner, schema)

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
        if model.n_blank >= 0:
            own = self.begin(model.n_blank)
            sections = self.pack(own)
            self.release(own)
            return sections
        learner = model.learner
        if model.has_grown:
            model.schema = self._schema(learner.schema())
            if not model.schema.template.fits(learner.buffer):
                learner.use_memory(model.schema.template.copy(), model.schema.capacity)
        memory = model.schema.snapshots.take(learner.buffer)
        return [self._settings, model.schema.data, learner.counts(), memory]

    def release(self, model: KeyModel) -> None:
        """Release a learner for other keys, without changes since the last `pack`.

        Parameters
        ----------
        model
            The learner, which must not be used afterwards.
        """
        schema = model.schema
        if model.n_blank >= 0 or model.has_grown or self.schemas.get(schema.data) is not schema:
            return
        if self._cached_bytes + schema.n_bytes <= CACHE_BYTES:
            schema.free.append(model.learner)
            self._cached_bytes += schema.n_bytes

    def __reduce__(self) -> Any:
        # Engines send packers to their workers, without the caches.
        return Packer, (self._class(**self._params),)

    # Schemas -----------------------------------------------------------------------------------------------------

    def _schema(self, data: bytes) -> KeySchema:
        """Return the schema of a section, cached."""
        found = self.schemas.get(data)
        if found is None:
            learner = self._class(**self._params).with_schema(data, self._notices)
            found = self.schemas[data] = KeySchema(data, learner, self._free)
            self._cached_bytes += found.n_bytes
            while self._cached_bytes > CACHE_BYTES and len(self.schemas) > 2:
                oldest = self.schemas.popitem(last=False)[1]
                self._cached_bytes -= (1 + len(oldest.free)) * oldest.n_bytes
                oldest.free.clear()
        else:
            self.schemas.move_to_end(data)
        return found

    def _untrained(self, schema: KeySchema) -> OnlineClassifier:
        """Return an untrained learner, which may be a free one."""
        learner = schema.free_learner()
        if learner is None:
            return schema.new()
        self._cached_bytes -= schema.n_bytes
        return learner

    def _first_schema(self, x: dict[Any, Any], label: Any) -> KeySchema | None:
        """Return the schema after a first event, None unless names and values are simple.

        Names must be strings, and values numbers other than NaN.
        """
        names, values = tuple(x), x.values()
        if type(label) not in _EXACT or not set(map(type, values)) <= {float, int} or math.isnan(sum(values)):
            return None
        data = self._first.get((names, type(label), label))
        if data is None:
            learner = self._nothing.new()
            if not set(map(type, names)) <= {str} or len(names) > learner.max_features:
                return None
            learner.learn_one(x, label)
            data = learner.schema()
            if len(self._first) == MOST_FIRST:
                self._first.clear()
            self._first[names, type(label), label] = data
        return self._schema(data)


def _tables(state: State) -> str:
    """Return a hash of the schemas of a state, with their start values."""
    schemas = [each.schema for each in state.all()]
    numbers = {(schema.name, name, number.start) for schema in schemas for name, number in schema.of(Number)}
    tables = {(schema.name, schema.digest, repr(schema.array_starts)) for schema in schemas}
    return _digest([sorted(tables), sorted(numbers)], 8).hex()


def _digest(content: Any, size: int) -> bytes:
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=size).digest()
