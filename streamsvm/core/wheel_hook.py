"""Build hook for wheels with the compiled library.

STREAMSVM_TARGET names the processor level. Without it, the wheel is a pure one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

TARGET = "STREAMSVM_TARGET"
NUMBA = "numba==0.68.1"


class CompiledLibrary(BuildHookInterface[Any]):
    """Hatchling's build hook that builds the library and adds it to the wheel."""

    def dependencies(self) -> list[str]:
        """Return the requirements of the build, which imports the package."""
        return [NUMBA, *self.metadata.core.dependencies] if os.environ.get(TARGET) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the library for a wheel."""
        target = os.environ.get(TARGET)
        if not target or version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "_library.abi3.so"
        command = [sys.executable, "-m", "streamsvm.core.build", "--target", target, str(path)]
        command += ["--modules", os.environ.get("STREAMSVM_MODULES", "")]  # tests build a part
        subprocess.run(command, cwd=self.root, env={**os.environ, "STREAMSVM_CODE": "numba"}, check=True)
        for file in path.parent.iterdir():
            build_data["force_include"][str(file)] = f"streamsvm/core/{file.name}"
        build_data["pure_python"] = False
        machine = "aarch64" if target == "aarch64" else "x86_64"
        build_data["tag"] = f"cp311-abi3-linux_{machine}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the library outside the wheel."""
        if hasattr(self, "_folder"):
            self._folder.cleanup()
