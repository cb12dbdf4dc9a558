"""Pictures of the simulations, where pages that are read in the checkout find them: the site takes them along."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

PICTURES = Path(__file__).resolve().parents[1] / "simulations" / "pictures"


def on_files(files: Files, config: Any) -> Files:
    """Add the pictures as files of the site."""
    for picture in sorted(PICTURES.glob("*.png")):
        files.append(File.generated(config, f"pictures/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Have pages name them where they are in the site."""
    up = "../" * page.file.src_uri.count("/")
    return re.sub(r"\]\((?:\.\./)+simulations/pictures/", f"]({up}pictures/", markdown)
