"""Permissions of output files, and symbolic links of other users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streamsvm import cli

OUTPUTS = {"--out": "out.jsonl", "--dead-letter": "bad.jsonl", "--save": "model"}
OUTPUTS |= {"--summary": "s.json", "--plot": "p.svg"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("x,y\n" + "1,a\n2,b\nz,a\n" * 20 + "3,a\n" * 60)


def run(**outputs: str) -> int:
    options = [part for option, path in outputs.items() for part in (option, path)]
    return cli.main(["run", "in.csv", "--label", "y", "--types", "x:number", "--model", "cpm", "--quiet", *options])


def test_outputs_follow_the_umask_and_links_of_ones_own_and_stay_private():
    umask = 0o027
    for name in OUTPUTS.values():
        Path(name).symlink_to(f"target.{name}")
    before = os.umask(umask)
    try:
        assert run(**OUTPUTS, **{"--checkpoint": "check"}) == 0
        assert run(**{"--out": "parts.parquet"}) == 0
    finally:
        os.umask(before)
    written = {path: path.lstat().st_mode & 0o777 for path in Path().rglob("*") if not path.is_symlink()}
    targets = [Path(f"target.{name}") for name in OUTPUTS.values()]
    assert {*targets, Path("check")} <= {*written}
    assert all(Path(name).is_symlink() for name in OUTPUTS.values())
    assert not {str(path): oct(mode) for path, mode in written.items() if mode & umask and path != Path("in.csv")}
    for path in targets:
        assert path.stat().st_size > 0
        path.chmod(0o600)
    assert run(**OUTPUTS) == 0
    assert {path.stat().st_mode & 0o777 for path in targets} == {0o600}


@pytest.mark.parametrize("option", OUTPUTS)
def test_a_link_of_another_user_is_not_followed(option, monkeypatch, capsys):
    name = OUTPUTS[option]
    Path("target").touch()
    Path(name).symlink_to("target")
    if os.geteuid() == 0:
        os.lchown(name, 12_345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    assert run(**{option: name}) in (1, 2)
    assert Path("target").read_bytes() == b""
    assert "is a symbolic link of another user" in capsys.readouterr().err
