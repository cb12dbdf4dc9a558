"""States in compiled code: a numba type with the schema's entries as attributes.

A value of this type is the address of a state record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    NativeValue,
    box,
    infer_getattr,
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    lower_setattr_generic,
    make_attribute_wrapper,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.arrayobj import populate_array
from numba.np.numpy_support import from_dtype

from streamsvm.core.schema import SCHEMAS, Array, Number, Schema, SchemaEntry, Substate
from streamsvm.core.state import State


class StateType(types.Type):
    """Numba type of a state: the address of its record."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        super().__init__(name=f"State({schema})")

    @property
    def key(self) -> str:
        """Schema name; numba distinguishes the types by it."""
        return self.schema


@register_model(StateType)
class _StateModel(models.OpaqueModel):
    """Pointer to the record."""


@typeof_impl.register(State)
def _typeof(state: State, _: Any) -> StateType:
    return StateType(state.schema.name)


@unbox(StateType)
def _unbox(kind: StateType, state: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(state, "address")
    value = c.builder.inttoptr(c.pyapi.long_as_longlong(address), c.context.get_value_type(kind))
    c.pyapi.decref(address)
    return NativeValue(value, is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred()))


@infer_getattr
class _Attributes(AttributeTemplate):
    key = StateType

    def generic_resolve(self, kind: StateType, name: str) -> Any:  # type: ignore[override]
        entry = SCHEMAS[kind.schema].entries.get(name)
        return None if entry is None else _type_of(entry)


def _type_of(entry: SchemaEntry) -> Any:
    if isinstance(entry, Number):
        return from_dtype(np.dtype(entry.dtype))
    if isinstance(entry, Array):
        return types.Array(from_dtype(entry.element), len(entry.dims), "C")
    return StateType(entry.schema.name)


def _field(builder: Any, schema: Schema, state: Any, name: str, kind: Any) -> Any:
    """Return a pointer to a field of the record."""
    place = builder.gep(state, [ir.IntType(64)(schema.offset(name))])
    return builder.bitcast(place, kind.as_pointer())


def _fixed(builder: Any, schema: Schema, state: Any, name: str) -> Any:
    """Load an address or a size of an array.

    The load is marked invariant, because these values do not change while compiled code runs. The compiler then moves
    it out of loops.
    """
    value = builder.load(_field(builder, schema, state, name, ir.IntType(64)))
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


@lower_getattr_generic(StateType)
def _get(context: Any, builder: Any, kind: StateType, state: Any, name: str) -> Any:
    schema = SCHEMAS[kind.schema]
    entry, out = schema.entries[name], _type_of(schema.entries[name])
    value_type = context.get_value_type(out)
    if isinstance(entry, Number):
        return builder.load(_field(builder, schema, state, name, value_type))
    address = _fixed(builder, schema, state, f"{name}@")
    if isinstance(entry, Substate):
        return builder.inttoptr(address, value_type)
    shape = [_fixed(builder, schema, state, f"{name}@{k}") for k in range(len(entry.dims))]
    return array_view(context, builder, out, address, shape, entry.element.itemsize)


@lower_builtin("__array__", types.Array)
def _array_of(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """Return a reference to an array unchanged.

    Numba looks this conversion up for each access. Without it, numba searches all its registries each time.
    """
    return values[0]


def array_view(context: Any, builder: Any, kind: Any, address: Any, shape: list[Any], n_bytes: int) -> Any:
    """Build an array view of memory that the view does not own."""
    array, size = context.make_array(kind)(context, builder), ir.IntType(64)(n_bytes)
    strides = [size]
    for n in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], n, flags=("nsw",)))
    data = builder.inttoptr(address, array.data.type)
    populate_array(array, data=data, shape=shape, strides=strides, itemsize=size, meminfo=None)
    return array._getvalue()


@lower_setattr_generic(StateType)
def _set(context: Any, builder: Any, signature: Any, values: Any, name: str) -> None:
    state, value = values
    schema = SCHEMAS[signature.args[0].schema]
    builder.store(value, _field(builder, schema, state, name, value.type))


def state_at(schema: Schema) -> Callable[[int], Any]:
    """Return a function for kernels that converts an address to a state."""
    kind = StateType(schema.name)

    def at(_: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return builder.inttoptr(values[0], context.get_value_type(kind))

        return kind(types.int64), codegen

    return intrinsic(at)  # type: ignore[return-value]


@intrinsic
def address_of(_: Any, state: Any) -> Any:
    """Return the address of a state, to pass to separately compiled functions."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.ptrtoint(values[0], ir.IntType(64))

    return types.int64(state), codegen


# Rows -----------------------------------------------------------------------------------------------------------------


def _array_at(element: Any) -> Callable[[int, int], Any]:
    """Return a function for kernels that views n 8-byte elements at an address."""
    kind = types.Array(element, 1, "C")

    def at(_: Any, address: Any, n: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return array_view(context, builder, kind, values[0], [values[1]], 8)

        return kind(types.int64, types.int64), codegen

    return intrinsic(at)  # type: ignore[return-value]


values_at, columns_at = _array_at(types.float64), _array_at(types.int64)


@intrinsic
def element_address(_: Any, array: Any, i: Any) -> Any:
    """Return the address of element i of a one-dimensional array."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        return builder.ptrtoint(builder.gep(array.data, [values[1]]), ir.IntType(64))

    return types.int64(array, types.int64), codegen


# Values of a single event ---------------------------------------------------------------------------------------------


class PackedType(types.Type):
    """Numba type of the values of an event, packed as `bytes`.

    Each call owns its packed values, so threads do not share a buffer.
    """

    def __init__(self) -> None:
        super().__init__(name="Packed")


class SharesType(types.Type):
    """Numba type of numbers that are returned to Python as a list.

    The list is built before the interpreter lock can pass to another thread.
    """

    def __init__(self) -> None:
        super().__init__(name="Shares")


PACKED, SHARES = PackedType(), SharesType()


@register_model(PackedType)
class _PackedModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("start", types.intp), ("size", types.intp)])


@register_model(SharesType)
class _SharesModel(models.StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("start", types.intp), ("size", types.intp)])


make_attribute_wrapper(PackedType, "start", "start")
make_attribute_wrapper(PackedType, "size", "size")


@unbox(PackedType)
def _unbox_packed(kind: PackedType, packed: Any, c: Any) -> NativeValue:
    start, size = cgutils.alloca_once(c.builder, c.pyapi.cstring), cgutils.alloca_once(c.builder, c.pyapi.py_ssize_t)
    is_ok = c.pyapi.bytes_as_string_and_size(packed, start, size)
    found = cgutils.create_struct_proxy(kind)(c.context, c.builder)
    found.start = c.builder.ptrtoint(c.builder.load(start), ir.IntType(64))
    found.size = c.builder.load(size)
    return NativeValue(found._getvalue(), is_error=c.builder.not_(is_ok))


@intrinsic
def packed_values(_: Any, packed: Any) -> Any:
    """View the packed values of an event as a float64 array."""
    kind = types.Array(types.float64, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        found = cgutils.create_struct_proxy(PACKED)(context, builder, value=values[0])
        return array_view(context, builder, kind, found.start, [builder.lshr(found.size, ir.IntType(64)(3))], 8)

    return kind(packed), codegen


@box(SharesType)
def _box_shares(kind: SharesType, shares: Any, c: Any) -> Any:
    found = cgutils.create_struct_proxy(kind)(c.context, c.builder, value=shares)
    values = c.builder.inttoptr(found.start, ir.DoubleType().as_pointer())
    made = c.pyapi.list_new(found.size)
    with c.builder.if_then(cgutils.is_not_null(c.builder, made)), cgutils.for_range(c.builder, found.size) as loop:
        value = c.builder.load(c.builder.gep(values, [loop.index]))
        c.pyapi.list_setitem(made, loop.index, c.pyapi.float_from_double(value))
    return made


@intrinsic
def shares_of(_: Any, array: Any, n: Any) -> Any:
    """Return the first n numbers of an array as a value that boxes to a list."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, values[0])
        shares = cgutils.create_struct_proxy(SHARES)(context, builder)
        shares.start, shares.size = builder.ptrtoint(array.data, ir.IntType(64)), values[1]
        return shares._getvalue()

    return SHARES(array, types.intp), codegen


# Memory and bits ------------------------------------------------------------------------------------------------------


@intrinsic
def move(_: Any, row: Any, to: Any, start: Any, n: Any) -> Any:
    """Copy n elements of a row to another position; the ranges may overlap.

    Copies `row[start : start + n]` to `row[to : to + n]`. Elements have 8 bytes.
    """

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        target, source = (builder.gep(data, [at]) for at in values[1:3])
        cgutils.raw_memmove(builder, target, source, values[3], ir.IntType(64)(8))
        return context.get_dummy_value()

    return types.void(row, types.uint64, types.uint64, types.int64), codegen


@intrinsic
def lowest_bit(_: Any, bits: Any) -> Any:
    """Return the position of the lowest set bit."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.cttz(values[0], context.get_value_type(types.boolean)(1))

    return types.uint64(types.uint64), codegen
