"""Which functions have machine code of their own: the exported ones, that are called from outside of compiled code.

Numba makes each function into a library, with all that it calls: optimised, with machine code and wrappers for Python,
kept on disk. What a caller calls is optimised again with it, at each level. Here a function that compiled code calls is
*internal*: typed and lowered once, and optimised only as a part of exported ones, which halves the time to compile. A
function may be both.
"""

from __future__ import annotations

from typing import Any, ClassVar

from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _Library(JITCodeLibrary):
    """The code of a function; if it is exported, with that of all it calls."""

    is_internal = False

    def finalize(self) -> None:
        if self.is_internal:
            self._finalized = True
            return
        self._linking_libraries = self._reached()
        super().finalize()

    def _optimize_functions(self, module: Any) -> None:
        if self.is_internal:  # it is optimised as a part of its callers
            module.data_layout = self._codegen._data_layout
        else:
            super()._optimize_functions(module)

    def _optimize_final_module(self) -> None:
        # Numba's cheap passes before these inline for the sake of reference counts, which hot loops have none of.
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)

    def _reached(self) -> list[Any]:
        """The libraries it needs, and those that these need."""
        found: dict[Any, None] = {}
        waiting = list(self._linking_libraries)
        while waiting:
            library = waiting.pop()
            if library not in found:
                found[library] = None
                waiting += library._linking_libraries
        return list(found)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "exported_lowering"
    is_internal: ClassVar[bool] = False

    def run_pass(self, state: Any) -> bool:
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        state.library.is_internal = self.is_internal
        return bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class _InternalLowering(_Lowering):
    _name = "internal_lowering"
    is_internal = True

    def run_pass(self, state: Any) -> bool:
        flags = state.flags
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        super().run_pass(state)
        # What callers find it by, in place of a compiled function: a built-in one that is like no other.
        key = list[None]().append
        state.targetctx.insert_user_function(key, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=key)
        return True


class Exported(CompilerBase):
    """Compiles a function to be called from outside."""

    _lowering: ClassVar[type[Any]] = _Lowering

    def define_pipelines(self) -> list[Any]:
        """Numba's passes, but for the last."""
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (self._lowering if kind is NativeLowering else kind, meaning) for kind, meaning in pipeline.passes
        ]
        pipeline.finalize()
        return [pipeline]


class Internal(Exported):
    """Compiles a function to be called by compiled code alone."""

    _lowering = _InternalLowering


def link_internally(exported: Any, internal: Any) -> None:
    """Let compiled code that calls a function call the internal one.

    Numba compiles a function anew for each constant it is called with, which more than doubles the time: here it is
    compiled once for all values.
    """
    exported.get_call_template = lambda args, kws: internal.get_call_template(tuple(map(types.unliteral, args)), kws)
    exported.get_overload = internal.get_overload
