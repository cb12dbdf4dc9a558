"""Registry of connectors: all can be opened, and appear in help and checks."""

from __future__ import annotations

import pytest

from connectors import ConnectorError, Source, open_sink, open_source, registry
from connectors.options import Options
from connectors.outputs.files import NullSink
from connectors.registry import Connector, SinkSettings, connector_of, is_place, register
from connectors.synthetic.source import open_synthetic
from streamsvm import cli
from tests.errors import raises


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> list[SinkSettings]:
    """Register a connector. Returns the settings of its sinks."""
    opened: list[SinkSettings] = []

    def sink(path: str, options: Options, settings: SinkSettings) -> NullSink:
        options.finish()
        opened.append(settings)
        return NullSink()

    def source(path: str, options: Options) -> Source:
        return open_synthetic(path.removeprefix("memory:"), options)

    monkeypatch.setattr(registry, "_table", registry._table.copy())
    register(Connector("memory", source, sink, scheme="memory:", labelled=True))
    return opened


def test_a_registered_connector_is_opened_by_its_scheme(memory):
    source = open_source("memory:sea?n=20")
    assert sum(len(batch) for batch in source) == 20
    open_sink("memory:a", resume=True, source=source)
    assert memory == [SinkSettings(resume=True, source=source)]
    with raises(ConnectorError, reason="unknown", option="lable"):
        open_sink("memory:a?lable=y")


def test_a_registered_connector_works_in_a_run(memory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = ["--model", "cpm", "--quiet"]
    assert cli.main(["run", "memory:sea?n=20", "--out", "memory:a", *model]) == 0
    assert len(memory) == 1
    assert list(tmp_path.iterdir()) == []  # no file is created next to what is not a file


@pytest.mark.parametrize(
    ("path", "options", "name"),
    [
        ("a.CSV", {}, "csv"),
        ("a.tsv.gz", {}, "tsv"),
        ("-", {}, "csv"),
        ("-", {"format": "svmlight"}, "libsvm"),
        ("a.csv", {"format": "json"}, "jsonl"),
        ("kafka://a:9092/t", {"format": "csv"}, "kafka"),
    ],
)
def test_a_stream_is_recognized_by_scheme_then_format_then_suffix(path, options, name):
    assert connector_of(path, Options(path, options)).name == name


def test_only_files_and_directories_are_places(tmp_path):
    assert is_place(str(tmp_path / "new.csv"))
    assert is_place(str(tmp_path))
    assert not any(is_place(path) for path in ("-", "/dev/null", "null:", "kafka://a:9092/t", "other://x"))
