"""Changes of files, and what directories contain after them."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OPEN = io.open  # before a recorder replaces it
ROOT = 0  # number of the root directory


@dataclass(frozen=True)
class Write:
    """Bytes written to a file at an offset."""

    node: int
    offset: int
    data: bytes


@dataclass(frozen=True)
class Truncate:
    """New size of a file."""

    node: int
    size: int


@dataclass(frozen=True)
class Names:
    """Names in directories that changed at once: the new node of each, or None."""

    names: tuple[tuple[tuple[int, str], int | None], ...]


@dataclass(frozen=True)
class Sync:
    """Sync of a file or directory."""

    node: int


@dataclass(frozen=True)
class Mark:
    """Moment at which the program may rely on what it has synced."""

    value: Any


Change = Write | Truncate | Names | Sync | Mark
Tree = dict[str, bytes | None]
"""Content by path below the root: None for directories, targets for links."""


def overwritten(content: bytes, change: Write | Truncate) -> bytes:
    """Return the content of a file after a change."""
    if isinstance(change, Truncate):
        return content[: change.size].ljust(change.size, b"\0")
    end = change.offset + len(change.data)
    return content[: change.offset].ljust(change.offset, b"\0") + change.data + content[end:]


@dataclass
class Contents:
    """Files and directories as nodes; directories have negative numbers.

    Files have content, and directories have names.
    """

    files: dict[int, bytes] = field(default_factory=dict)
    names: dict[tuple[int, str], int] = field(default_factory=dict)
    n_nodes: int = 0

    @classmethod
    def of(cls, root: Path) -> Contents:
        """Return the contents of a directory."""
        found = cls()
        for path in sorted(root.rglob("*")):
            node = found.new(is_folder=path.is_dir() and not path.is_symlink())
            found.names[found.find(path.parent, root), path.name] = node
            if path.is_symlink():
                found.files[node] = f"-> {os.readlink(path)}".encode()
            elif node > 0:
                with OPEN(path, "rb") as file:
                    found.files[node] = file.read()
        return found

    def copy(self) -> Contents:
        """Return a copy."""
        return Contents(dict(self.files), dict(self.names), self.n_nodes)

    def new(self, *, is_folder: bool) -> int:
        """Return a new node without a name."""
        self.n_nodes += 1
        return -self.n_nodes if is_folder else self.n_nodes

    def content(self, node: int) -> bytes:
        """Return the content of a file."""
        return self.files.get(node, b"")

    def find(self, path: Path, root: Path) -> int:
        """Return the node of a path."""
        node = ROOT
        for name in path.relative_to(root).parts:
            node = self.names[node, name]
        return node

    def change(self, change: Change) -> None:
        """Apply a change at once."""
        if isinstance(change, Write | Truncate):
            self.files[change.node] = overwritten(self.content(change.node), change)
        elif isinstance(change, Names):
            for name, node in change.names:
                self.names.pop(name, None)
                if node is not None:
                    self.names[name] = node

    def tree(self) -> Tree:
        """Return all reachable files and directories by path."""
        found: Tree = {}
        todo = [(ROOT, "")]
        while todo:
            folder, prefix = todo.pop()
            for (parent, name), node in self.names.items():
                if parent == folder:
                    found[prefix + name] = None if node < 0 else self.content(node)
                    if node < 0:
                        todo.append((node, f"{prefix}{name}/"))
        return dict(sorted(found.items()))


def write_tree(tree: Tree, root: Path) -> None:
    """Create files and directories."""
    root.mkdir(parents=True)
    for name, content in tree.items():
        if content is None:
            (root / name).mkdir()
        elif content.startswith(b"-> "):
            (root / name).symlink_to(content[3:].decode())
        else:
            (root / name).write_bytes(content)
