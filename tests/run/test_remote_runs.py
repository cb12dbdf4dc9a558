"""Runs over files of a web server, without secrets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamsvm import cli
from tests.connectors.web import Web, serving, status
from tests.run.conftest import write_stream


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with serving() as web:
        yield web


def test_secrets_are_nowhere(web, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    data = write_stream(tmp_path / "in.csv", 300, broken=True).read_bytes()
    web.requests.clear()
    url = web.put("/in.csv", data).replace("//", "//me:hunter2@") + "?sig=hunter2&X-Amz-Signature=hunter2"
    arguments = ["run", url, "--label", "y", "--checkpoint", "check", "--out", "out.csv", "--types", "a:number"]
    assert cli.main([*arguments, "--summary", "summary.json", "--plot", "plot.svg", "--save", "model"]) == 0
    web.faults = [status(403)]
    assert cli.main(arguments) == 2
    assert cli.main(["run", url, "--label", "y", "--out", url]) == 2
    assert cli.main(["run", url.replace("in.csv", "in"), "--label", "y"]) == 2
    assert "Authorization" in web.requests[0]
    assert "hunter2" not in "".join(capfd.readouterr())
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 6
    assert not [path for path in written if b"hunter2" in path.read_bytes()]


@pytest.mark.parametrize("option", ["--save", "--summary", "--plot", "--checkpoint"])
def test_other_results_are_local(option, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "synthetic:sea?n=10", option, "s3://me:hunter2@bucket/x.png"]) == 2
    error = capsys.readouterr().err
    assert option in error
    assert "hunter2" not in error
    assert not list(tmp_path.iterdir())
