"""Internal linkage: functions called only by compiled code get no machine code.

Numba compiles each function into a library together with everything it calls, including Python wrappers and a cache
entry. Callees are therefore optimised again at each level of calls. Here a function called by compiled code is
*internal*: it is typed and lowered once and optimised only as a part of *exported* functions. This halves the
compilation time. A function may be both.
"""

from __future__ import annotations

from typing import Any, ClassVar

from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import AnnotateTypes, InlineOverloads, NativeLowering, NopythonRewrites
from numba.core.untyped_passes import (
    FindLiterallyCalls,
    InlineClosureLikes,
    InlineInlinables,
    LiteralPropagationSubPipelinePass,
    LiteralUnroll,
    MakeFunctionToJitFunction,
    RewriteDynamicRaises,
    WithLifting,
)


class _Library(JITCodeLibrary):
    """Code of one function; for an exported function, including everything it calls."""

    is_internal = False

    def finalize(self) -> None:
        if self.is_internal:
            self._finalized = True
            return
        self._linking_libraries = self.reached()
        super().finalize()

    def _optimize_functions(self, module: Any) -> None:
        if self.is_internal:  # its callers optimise it
            module.data_layout = self._codegen._data_layout
        else:
            super()._optimize_functions(module)

    def _optimize_final_module(self) -> None:
        # Skip numba's preliminary passes: they inline to remove reference counts, and hot loops have none.
        manager, builder = self._codegen._module_pass_manager()
        manager.run(self._final_module, builder)

    def reached(self) -> list[Any]:
        """Return all libraries this one depends on, directly or indirectly."""
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
        # Callers look the function up by this key: a bound method that is equal to no other object.
        key = list[None]().append
        state.targetctx.insert_user_function(key, state.cr.fndesc, [state.library])
        state.cr = state.cr._replace(cfunc=key)
        return True


# Passes for closures, comprehensions, expressions of arrays and other things that kernels do not contain. Each
# analyses every function again.
_UNUSED = {
    *(AnnotateTypes, FindLiterallyCalls, InlineClosureLikes, InlineInlinables, InlineOverloads),
    *(LiteralPropagationSubPipelinePass, LiteralUnroll, MakeFunctionToJitFunction, NopythonRewrites),
    *(RewriteDynamicRaises, WithLifting),
}


class Exported(CompilerBase):
    """Compiler pipeline for a function called from outside compiled code."""

    _lowering: ClassVar[type[Any]] = _Lowering

    def define_pipelines(self) -> list[Any]:
        """Return numba's passes without the unused ones, with another lowering pass."""
        pipeline = DefaultPassBuilder.define_nopython_pipeline(self.state)
        pipeline.passes = [
            (self._lowering if kind is NativeLowering else kind, meaning)
            for kind, meaning in pipeline.passes
            if kind not in _UNUSED
        ]
        pipeline.finalize()
        return [pipeline]


class Internal(Exported):
    """Compiler pipeline for a function called only by compiled code."""

    _lowering = _InternalLowering


def link_internally(exported: Any, internal: Any) -> None:
    """Make compiled callers use the internal version of a function.

    Numba specialises a function for each literal argument, which more than doubles the compilation time. Here literal
    types are replaced by their plain types, so one version serves all values.
    """
    exported.get_call_template = lambda args, kws: internal.get_call_template(tuple(map(types.unliteral, args)), kws)
    exported.get_overload = internal.get_overload
