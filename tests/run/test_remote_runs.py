"""Runs over files of a web server, killed and resumed, without secrets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamsvm import cli
from tests.commands import ran_here
from tests.connectors.web import Web, cut, serving, status
from tests.run.conftest import has_size, killed, write_stream

N = 3_000


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with serving() as web:
        yield web


@pytest.mark.slow
@pytest.mark.usefixtures("unsynced")
def test_killed_and_resumed(web, tmp_path):
    url = web.put("/in.csv.gz", write_stream(tmp_path / "in.csv.gz", N, broken=True).read_bytes())
    arguments = ["run", f"{url}#batch_size=50", "--label", "y", "--types", "a:number", "--quiet", "--out", "out.csv"]
    plain, broken = tmp_path / "plain", tmp_path / "broken"
    for folder in (plain, broken):
        folder.mkdir()
    ran_here(*arguments, cwd=plain, check=True)
    whole = (plain / "out.csv").read_bytes()
    arguments += ["--checkpoint", "check", "--checkpoint-every", "100"]
    web.faults = [cut(20_000), status(503)]
    assert killed(*arguments, cwd=broken, when=lambda: has_size(broken / "out.csv", len(whole) / 2))
    ran_here(*arguments, cwd=broken, check=True)
    assert (broken / "out.csv").read_bytes() == whole
    web.put("/in.csv.gz", web.files["/in.csv.gz"])
    assert ran_here(*arguments, cwd=broken).returncode == 2


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
