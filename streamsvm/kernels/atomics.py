"""What threads share: words that are read, written and taken as a whole, and ways to wait.

A word is an element of an array of int64. Who reads one also finds what had been written, to whatever memory, before it
was put there, on every processor.
"""

from __future__ import annotations

import os
import time
from threading import Lock
from typing import Any

from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic

_ALIGNMENT = 8
_lock = Lock()


def _place(context: Any, builder: Any, signature: Any, values: Any) -> Any:
    """A pointer to an element, of the array and the tuple of indices that come first."""
    array = context.make_array(signature.args[0])(context, builder, values[0])
    indices = cgutils.unpack_tuple(builder, values[1])
    return cgutils.get_item_pointer(context, builder, signature.args[0], array, indices, wraparound=False)


def _typed_look(_: Any, array: Any, index: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load_atomic(_place(context, builder, signature, values), "acquire", _ALIGNMENT)

    return types.int64(array, index), codegen


def _typed_put(_: Any, array: Any, index: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        builder.store_atomic(values[2], _place(context, builder, signature, values), "release", _ALIGNMENT)
        return context.get_dummy_value()

    return types.void(array, index, types.int64), codegen


def _typed_take(_: Any, array: Any, index: Any, before: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place = _place(context, builder, signature, values)
        return builder.extract_value(builder.cmpxchg(place, values[2], values[3], "acq_rel", "acquire"), 1)

    return types.boolean(array, index, types.int64, types.int64), codegen


def _plain_put(array: Any, index: Any, value: int) -> None:
    array[index] = value


def _plain_take(array: Any, index: Any, before: int, value: int) -> bool:
    with _lock:
        is_taken = bool(array[index] == before)
        if is_taken:
            array[index] = value
    return is_taken


def _either(typed: Any, plain: Any) -> Any:
    """What compiled code calls, or what does without the compiler."""
    return plain if config.DISABLE_JIT else typed


_GIVE_WAY, _PAUSE = ("SwitchToThread", "Sleep") if os.name == "nt" else ("sched_yield", "usleep")

# look(array, index): the word at a tuple of indices.
look = _either(intrinsic(_typed_look), lambda array, index: int(array[index]))
# put(array, index, value): write it.
put = _either(intrinsic(_typed_put), _plain_put)
# take(array, index, before, value): write it if it is as before; returns whether it was, to one of all who try.
take = _either(intrinsic(_typed_take), _plain_take)
# give_way(): let another thread have the processor, if one wants it.
give_way = _either(types.ExternalFunction(_GIVE_WAY, types.int32()), lambda: time.sleep(0.0))
# pause(n): sleep n microseconds; on Windows milliseconds.
pause = _either(types.ExternalFunction(_PAUSE, types.int32(types.uint32)), lambda n: time.sleep(1e-6 * n))
