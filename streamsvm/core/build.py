"""Build of the compiled library of all entry points, for one processor level.

``python -m streamsvm.core.build`` writes the library into the package. This is the only module that depends on how
numba links compiled functions. It is tested with the version NEWEST_TESTED.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils, config
from numba.core.codegen import _parse_refprune_flags
from numba.core.llvm_bindings import create_pass_builder
from numba.extending import intrinsic
from numba.np.numpy_support import as_dtype

from streamsvm.core.access_numba import PackedType, SharesType, StateType, array_view
from streamsvm.core.cache import NEWEST_TESTED
from streamsvm.core.deferred import use_numba
from streamsvm.core.entry_points import find
from streamsvm.core.library import LIBRARY, MERGING, kernel_sources, sources_key
from streamsvm.core.linkage import Internal

_PACKAGE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Target:
    """Processors that the code is compiled for.

    Parameters
    ----------
    triple
        Target triple of LLVM.
    cpu
        Processor of LLVM.
    check
        C expression that is true if the processor can execute the code.
    """

    triple: str
    cpu: str
    check: str


_HAS = " && ".join(
    f'__builtin_cpu_supports("{name}")' for name in ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
)
TARGETS = {
    "x86-64-v3": Target("x86_64-unknown-linux-gnu", "x86-64-v3", _HAS),
    "x86-64": Target("x86_64-unknown-linux-gnu", "x86-64", "1"),
    "aarch64": Target("aarch64-unknown-linux-gnu", "generic", "1"),
}
# Functions that the linker finds in the C library, or in the C module.
EXTERNAL = {*("exp", "log", "sqrt", "memcpy", "memmove", "memset"), "streamsvm_failed"}
_I64 = ir.IntType(64)


# Functions of integers ------------------------------------------------------------------------------------------------


def _kind(argument: Any) -> str:
    """Return the kind of an argument, as in `library.c`."""
    if isinstance(argument, StateType):
        return "s"
    if isinstance(argument, PackedType):
        return "p"
    if isinstance(argument, types.Array):
        code = memoryview(np.empty(0, as_dtype(argument.dtype)).data).format
        return f"a{argument.ndim}{ {'l': 'q', 'L': 'Q'}.get(code, code) }"
    return {types.int64: "i", types.float64: "d", types.boolean: "b"}[argument]


def _result_kind(result: Any) -> str:
    if isinstance(result, SharesType):
        return "l"
    if isinstance(result, types.Integer):
        return "i"
    return {types.none: "n", types.float32: "d", types.float64: "d", types.boolean: "b"}[result]


def _reader(arguments: tuple[Any, ...]) -> Any:
    """Return a function for kernels that reads arguments from 8-byte words."""

    def read(_: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            words = builder.inttoptr(values[0], _I64.as_pointer())
            at = iter(range(1 << 10))

            def word() -> Any:
                return builder.load(builder.gep(words, [_I64(next(at))]))

            made = [_read(context, builder, argument, word) for argument in arguments]
            return context.make_tuple(builder, signature.return_type, made)

        return types.Tuple(arguments)(types.int64), codegen

    return intrinsic(read)


def _read(context: Any, builder: Any, argument: Any, word: Any) -> Any:
    if isinstance(argument, types.Array):
        start, shape = word(), [word() for _ in range(argument.ndim)]
        return array_view(context, builder, argument, start, shape, as_dtype(argument.dtype).itemsize)
    if isinstance(argument, PackedType):
        packed = cgutils.create_struct_proxy(argument)(context, builder)
        packed.start, packed.size = word(), word()
        return packed._getvalue()
    kind, value = context.get_value_type(argument), word()
    if isinstance(argument, StateType):
        return builder.inttoptr(value, kind)
    if argument == types.boolean:
        return builder.trunc(value, kind)
    return builder.bitcast(value, kind)


def _writer(results: list[Any]) -> Any:
    """Return a function for kernels that writes a result to 8-byte words.

    Its compilation appends the type of the result to `results`.
    """

    def write(_: Any, address: Any, result: Any) -> Any:
        results.append(result)

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            _write(context, builder, builder.inttoptr(values[0], _I64.as_pointer()), values[1], result)
            return context.get_dummy_value()

        return types.void(types.int64, result), codegen

    return intrinsic(write)


def _write(context: Any, builder: Any, place: Any, value: Any, result: Any) -> None:
    if isinstance(result, SharesType):
        shares = cgutils.create_struct_proxy(result)(context, builder, value=value)
        builder.store(shares.start, place)
        builder.store(shares.size, builder.gep(place, [_I64(1)]))
    elif isinstance(result, types.Float):
        value = value if value.type == ir.DoubleType() else builder.fpext(value, ir.DoubleType())
        builder.store(value, builder.bitcast(place, value.type.as_pointer()))
    elif result != types.none:
        extend = builder.sext if getattr(result, "signed", False) else builder.zext
        builder.store(value if value.type == _I64 else extend(value, _I64), place)


def _of_words(function: Any, arguments: tuple[Any, ...], results: list[Any]) -> Any:
    """Return a wrapper that calls an entry point by two addresses.

    These are the addresses of the 8-byte words of the arguments and of the result.
    """
    read, write = _reader(arguments), _writer(results)

    def call(words: int, result: int) -> None:
        write(result, function(*read(words)))

    return call


# Compilation ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Compiled:
    """Object code of an entry point, and its row in the table of `library.c`."""

    code: bytes
    symbol: str
    row: str
    n_arguments: int


def _compile_as(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Compile a function that is only called from compiled code."""
    options: Any = {"forceinline": False, "fastmath": False, "error_model": "python", "_nrt": False}
    internal = numba.njit(nogil=True, pipeline_class=Internal, **options)(function)
    internal.compile(arguments)
    return internal.overloads[arguments]


def compile_entry(name: str, target: str) -> Compiled:
    """Compile an entry point for a target."""
    use_numba()
    entry = find(name)
    symbol = "streamsvm_" + name.replace(".", "_")
    if not hasattr(entry.function, "compile"):
        found, n = _compile_as(entry.function, entry.arguments), len(entry.arguments)
        kinds, result, releases = "NULL", "n", 0
    else:
        results: list[Any] = []
        found, n = _compile_as(_of_words(entry.function, entry.arguments, results), (types.int64,) * 2), 2
        kinds = f'"{"".join(map(_kind, entry.arguments))}"'
        result = _result_kind(results[-1])
        releases = int(entry.function.targetoptions.get("nogil", False))
    row = f"{{\"{name}\", {kinds}, {len(entry.arguments)}, '{result}', {releases}, (void (*)(void)){symbol}}}"
    module = _linked(found.library, _exported(symbol, found.fndesc.llvm_func_name, n))
    return Compiled(_machine_code(module, symbol, TARGETS[target]), symbol, row, n)


def _exported(symbol: str, native: str, n: int) -> str:
    """Return LLVM code of an exported function with n words as arguments.

    It calls numba's function `native` and reports its status.

    No array owns memory here, so there are no references to count.
    """
    parameters = ", ".join(f"i64 %a{i}" for i in range(n))
    return f"""
        declare i32 @"{native}"(ptr, ptr{", i64" * n})
        declare void @streamsvm_failed(i32)
        define linkonce_odr void @NRT_incref(ptr %memory) alwaysinline {{ ret void }}
        define linkonce_odr void @NRT_decref(ptr %memory) alwaysinline {{ ret void }}
        define void @{symbol}({parameters}) {{
            %result = alloca ptr
            %exception = alloca ptr
            %status = call i32 @"{native}"(ptr %result, ptr %exception, {parameters})
            %is_ok = icmp eq i32 %status, 0
            br i1 %is_ok, label %end, label %failed
        failed:
            call void @streamsvm_failed(i32 %status)
            br label %end
        end:
            ret void
        }}"""


def _linked(library: Any, exported: str) -> str:
    """Link a library with everything that it calls."""
    module = llvm.parse_assembly(exported)
    for each in (library, *library.reached()):
        module.link_in(each._get_module_for_linking(), preserve=True)
    return str(module)


def _machine_code(text: str, symbol: str, target: Target) -> bytes:
    """Optimise a module as numba does, and return its object code."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    options: dict[str, Any] = {"cpu": target.cpu, "opt": 3, "reloc": "pic", "codemodel": "default"}
    machine = llvm.Target.from_triple(target.triple).create_target_machine(**options)
    text = re.sub(r"^target (triple|datalayout) = .*$", "", text, flags=re.M)
    module = llvm.parse_assembly(f'target triple = "{target.triple}"\n{text}')
    module.data_layout = str(machine.target_data)
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = "internal"
    vectorising = {"loop_vectorize": config.LOOP_VECTORIZE, "slp_vectorize": config.SLP_VECTORIZE}
    builder = create_pass_builder(machine, opt=3, **vectorising)
    manager = builder.getModulePassManager()
    manager.add_refprune_pass(_parse_refprune_flags())
    manager.run(module, builder)
    for function in module.functions:
        if function.is_declaration:
            if not function.name.startswith("llvm.") and function.name not in EXTERNAL:
                raise ValueError(f"{symbol} needs {function.name}, which the library does not have")
        elif function.name != symbol:
            function.linkage = "internal"
    return bytes(machine.emit_object(module))


# Linking --------------------------------------------------------------------------------------------------------------


def _header(compiled: Sequence[Compiled], target: str) -> str:
    """Return the table of entry points for `library.c`."""
    sources = [path.relative_to(_PACKAGE).as_posix() for path in kernel_sources()]
    declared = [f"HIDDEN extern void {each.symbol}({', '.join(['int64_t'] * each.n_arguments)});" for each in compiled]
    constants = {"KEY": sources_key(sources), "SOURCES": " ".join(sources), "TARGET": target}
    return "\n".join(
        [
            *(f'#define {name} "{value}"' for name, value in constants.items()),
            f"#define IS_SUPPORTED {TARGETS[target].check}",
            f"#define N_ENTRIES {len(compiled)}",
            *declared,
            "static const Entry ENTRIES[] = {",
            *(f"    {each.row}," for each in compiled),
            "};",
        ]
    )


def link(compiled: Sequence[Compiled], target: str, path: Path) -> None:
    """Compile the C module, and link it with the object code of entry points."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "entries.h").write_text(_header(compiled, target))
        for each in compiled:
            (folder / f"{each.symbol}.o").write_bytes(each.code)
        compiler = shlex.split(os.environ.get("CC", "gcc"))
        include = [f"-I{folder}", f"-I{sysconfig.get_path('include')}"]
        part = path.with_name(f".{path.name}.{os.getpid()}")
        command = [*compiler, *["-O2", "-fPIC", "-shared", "-Wall", "-Wl,--gc-sections,-s", "-o"], str(part), *include]
        subprocess.run(
            [*command, str(Path(__file__).with_name("library.c")), *map(str, folder.glob("*.o")), "-lm"], check=True
        )
        part.replace(path)


def build(target: str, path: Path, jobs: int, modules: str) -> None:
    """Build the compiled library of entry points, and save the table of merges.

    Parameters
    ----------
    target
        Name of the processor level, a key of `TARGETS`.
    path
        File of the library. The table of merges is saved in the same folder.
    jobs
        Number of processes.
    modules
        Regular expression of the names of entry points.
    """
    names = [entry.name for entry in importlib.import_module("streamsvm.loading").entry_points(everything=True)]
    names = [name for name in names if re.match(modules, name)]
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        compiled = list(pool.map(compile_entry, names, [target] * len(names)))
    link(compiled, target, path)
    np.save(path.with_name(MERGING), importlib.import_module("streamsvm.budgeted.merging").table())


def main() -> None:
    """Run the command line of the build."""
    if not numba.__version__.startswith(f"{NEWEST_TESTED}."):
        raise SystemExit(f"the library is built with numba {NEWEST_TESTED}; this is {numba.__version__}")
    parser = argparse.ArgumentParser(prog="python -m streamsvm.core.build", description=__doc__)
    parser.add_argument("--target", choices=TARGETS, default="x86-64-v3", help="processor level")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes")
    parser.add_argument("--modules", default="", help="regular expression of modules with entry points; all by default")
    parser.add_argument("path", type=Path, nargs="?", default=Path(__file__).with_name(f"{LIBRARY}.abi3.so"))
    options = parser.parse_args()
    build(options.target, options.path, options.jobs, options.modules)
    print(f"{options.path}: {options.path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
