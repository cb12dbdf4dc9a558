"""Add pictures and raw results of the simulations to the site for its links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

SIMULATIONS = Path(__file__).resolve().parents[1] / "simulations"
FOLDERS = ("pictures", "results")


def on_files(files: Files, config: Any) -> Files:
    """Add the files to the site."""
    for folder in FOLDERS:
        for path in sorted((SIMULATIONS / folder).glob("*.*")):
            if path.suffix in (".png", ".json", ".parquet"):
                files.append(File.generated(config, f"{folder}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Change links to the places in the site."""
    up = "../" * page.file.src_uri.count("/")
    return re.sub(rf"\]\((?:\.\./)+simulations/({'|'.join(FOLDERS)})/", rf"]({up}\1/", markdown)
