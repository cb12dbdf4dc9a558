"""Values with registered schemas: a server, its failures, runs with a broker."""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import struct
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.errors import ConnectorError, UnreachableError
from connectors.kafka.registered import RegistryValues, value_format
from connectors.kafka.schemas import USER_INFO
from connectors.options import Options
from tests.connectors.streams import avro, avro_schema
from tests.connectors.web import listening
from tests.errors import raises
from tests.kafka.conftest import Run, fill, ran, read

pytest.importorskip("fastavro")


V1 = avro_schema(x="int", y="string")
V2 = avro_schema(x="double", z=["null", "string"], geo="com.ex.Geo", y="string")
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
GEO = avro_schema(lat="double", price=MONEY) | {"name": "Geo"}
WHOLE = {**V2, "fields": [f | {"type": GEO} if f["name"] == "geo" else f for f in V2["fields"]]}


class Registry:
    """A server of the part of the protocol that consumers use.

    Attributes
    ----------
    schemas, subjects, serialized
        Responses by schema id, by path of a subject, and by path if serialized descriptors are asked for.
    asked
        Paths of the requests so far, and the credentials of the last one.
    status
        Status code of all responses, if it is not 200.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, Any] = {}
        self.subjects: dict[str, Any] = {}
        self.serialized: dict[str, Any] = {}
        self.asked: list[str] = []
        self.credentials: str | None = None
        self.status, self.types, self.location = 200, b'["JSON", "PROTOBUF", "AVRO"]', ""
        self.port, self._listening = 0, contextlib.ExitStack()
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.port = self._listening.enter_context(listening(self.answer, self.port))

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = handler.path.split("?")[0]
        self.asked.append(path)
        self.credentials = handler.headers["Authorization"]
        found: Any = self.subjects.get(path)
        found = self.serialized.get(path, found) if "format=serialized" in handler.path else found
        if path.startswith("/schemas/ids/"):
            found = found or self.schemas.get(int(path.rpartition("/")[2]))
        body = self.types if path == "/schemas/types" else json.dumps(found or {"error_code": 40403}).encode()
        body = b"<html>" if self.status == 404 else body
        status = self.status if self.status != 200 else 200 if found or body is self.types else 404
        handler.send_response(status)
        if self.location:
            handler.send_header("Location", self.location)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def stop(self) -> None:
        self._listening.close()

    def add(self, number: int, schema: Any, kind: str | None = None, **more: Any) -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas[number] = {"schema": text, **({} if kind is None else {"schemaType": kind}), **more}


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr("connectors.kafka.registered.SURE_S", 0.0)
    made = Registry()
    made.add(1, V1)
    made.subjects["/subjects/geo%2F1/versions/3"] = {"schema": json.dumps(GEO), "id": 7}
    made.add(2, V2, references=[{"name": "com.ex.Geo", "subject": "geo/1", "version": 3}])
    made.add(3, {"type": "object"}, "JSON")
    made.add(4, 'syntax = "proto3"; message P { double x = 1; }', "PROTOBUF")
    made.add(5, '{"type": "record"}')
    yield made
    made.stop()


def framed(number: int, body: bytes, size: int = 4) -> bytes:
    return b"\0" + number.to_bytes(size, "big") + body


OLD = framed(1, avro(V1, {"x": 3, "y": "UP"}))
NEW = framed(2, avro(WHOLE, {"x": 1.5, "z": None, "geo": {"lat": 2.0, "price": Decimal("1.25")}, "y": "DOWN"}))
JSON = framed(3, b'{"x": {"a": 5}, "y": "UP"}')


def values_of(registry: Registry, **options: Any) -> RegistryValues:
    return RegistryValues(Options("kafka://h:1/t", {"registry": registry.url, "label": "y"} | options))


def prepare(values: RegistryValues, given: Sequence[bytes]) -> bool:
    return values.prepare([SimpleNamespace(value=value, headers=()) for value in given])


def rows(values: RegistryValues, given: Sequence[bytes]) -> list[dict[str, Any]]:
    assert prepare(values, given)
    got = values.read(given)
    assert got.bad == {}
    return got.features


def test_versions_and_formats_of_one_topic_are_read_by_their_schemas(registry: Registry) -> None:
    values = values_of(registry)
    for _ in range(2):
        new = {"x": 1.5, "z": None, "geo.lat": 2.0, "geo.price": 1.25}
        assert rows(values, [OLD, NEW, JSON, OLD]) == [{"x": 3}, new, {"x.a": 5}, {"x": 3}]
    assert sorted(registry.asked) == [*(f"/schemas/ids/{n}" for n in (1, 2, 3)), "/subjects/geo%2F1/versions/3"]


def test_a_schema_of_the_reader_converts_all_versions(registry: Registry, tmp_path: Path) -> None:
    wanted = avro_schema(n="double", y="string")
    wanted["fields"][0]["aliases"] = ["x"]
    wanted["fields"].append({"name": "geo", "type": ["null", GEO], "default": None})
    (tmp_path / "event.avsc").write_text(json.dumps(wanted))
    values = values_of(registry, schema=str(tmp_path / "event.avsc"))
    assert rows(values, [OLD, NEW]) == [{"n": 3.0, "geo": None}, {"n": 1.5, "geo.lat": 2.0, "geo.price": 1.25}]


def test_malformed_values_cost_themselves_only(registry: Registry) -> None:
    given = {
        "plain": b'{"x": 1}',
        "short": b"\0\0\0",
        "unknown": framed(99, b"\0"),
        "eight": framed(1, OLD[5:], 8),
        "protobuf": framed(4, b"\0"),
        "no schema": framed(5, b"\0"),
        "damaged": OLD[:-1],
        "too long": OLD + b"!",
        "no JSON": framed(3, b"{oops"),
        "no text": framed(3, b"\xff"),
        "no object": framed(3, b"[1]"),
    }
    values = values_of(registry)
    all_values = [OLD, *given.values(), OLD]
    assert prepare(values, all_values)
    got = values.read(all_values)
    assert [got.features[0], got.features[-1]] == [{"x": 3}, {"x": 3}]
    assert sorted(got.bad) == list(range(1, len(given) + 1))
    reasons = dict(zip(given, got.bad.values(), strict=True))
    assert "not framed" in reasons["plain"]
    assert "/schemas/ids/99" in reasons["unknown"]
    assert "id_bytes=8" in reasons["eight"]
    assert "serialized descriptors" in reasons["protobuf"]
    assert "schema id 1: not Avro" in reasons["damaged"]


def test_without_protobuf_its_values_are_refused_and_not_rejected(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with raises(ConnectorError, reason="no protobuf", named="streamsvm[protobuf]"):
        prepare(values_of(registry), [OLD, framed(4, b"\0")])
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with raises(ConnectorError, reason="no fastavro"):
        values_of(registry)


def descriptor(**fields: Any) -> Any:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    return FileDescriptorProto(syntax="proto3", **fields)


def serialized(file: Any) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def test_protobuf_by_serialized_descriptors(registry: Registry) -> None:
    pytest.importorskip("google.protobuf")
    lat = {"name": "lat", "number": 1, "type": 1, "label": 1}
    geo = descriptor(package="geo", message_type=[{"name": "Geo", "field": [lat]}])
    fields = [
        {"name": "x", "number": 1, "type": 1, "label": 1},
        {"name": "n", "number": 2, "type": 3, "label": 1, "proto3_optional": True, "oneof_index": 0},
        {"name": "at", "number": 3, "type": 11, "label": 1, "type_name": ".google.protobuf.Timestamp"},
        {"name": "geo", "number": 4, "type": 11, "label": 1, "type_name": ".geo.Geo"},
        {"name": "l", "number": 5, "type": 5, "label": 3},
        {"name": "e", "number": 6, "type": 14, "label": 1, "type_name": ".ex.E"},
        {"name": "b", "number": 7, "type": 12, "label": 1},
    ]
    inner = {"name": "Inner", "field": fields, "oneof_decl": [{"name": "_n"}]}
    values = [{"name": "RED", "number": 0}, {"name": "BLUE", "number": 1}]
    file = descriptor(
        package="ex",
        dependency=["geo.proto", "google/protobuf/timestamp.proto"],
        message_type=[{"name": "Other"}, {"name": "Outer", "nested_type": [inner]}],
        enum_type=[{"name": "E", "value": values}],
    )
    registry.subjects["/subjects/geo/versions/1"] = {"schema": "source"}
    registry.serialized["/subjects/geo/versions/1"] = {"schema": serialized(geo)}
    references = [{"name": "geo.proto", "subject": "geo", "version": 1}]
    registry.serialized["/schemas/ids/4"] = {"schema": serialized(file), "references": references}
    body = b"\x09" + struct.pack("<d", 1.5) + b"\x1a\x02\x08\x05" + b"\x22\x09\x09" + struct.pack("<d", 2.0)
    body += b"\x2a\x02\x07\x08" + b"\x30\x01" + b"\x3a\x01\xff"
    indices = b"\x04\x02\x00"  # two of them: 1, 0
    reader = values_of(registry, lists="length,mean")
    row = {"x": 1.5, "at": "1970-01-01T00:00:05Z", "geo.lat": 2.0, "l.length": 2, "l.mean": 7.5, "e": "BLUE", "b": "ff"}
    empty = {"x": 0.0, "l.length": 0, "e": "RED", "b": None}
    given = [indices + body, indices + b"\x10\x2a", b"\0"]
    assert rows(reader, [*(framed(4, one) for one in given), OLD]) == [row, empty | {"n": 42}, {}, {"x": 3}]
    wrong = [framed(4, each) for each in (b"", b"\x80", b"\x02\x7f", b"\xfe\x7f", indices + b"\x09\x01")]
    assert list(reader.read(wrong).bad) == [0, 1, 2, 3, 4]


def test_ids_of_eight_bytes(registry: Registry) -> None:
    assert rows(values_of(registry, id_bytes=8), [framed(1, OLD[5:], 8)]) == [{"x": 3}]


def test_json_in_frames_needs_no_registry() -> None:
    values = value_format(Options("t", {"framed": "yes"}))
    got = values.read([JSON, b'{"x": 1}'])
    assert (got.features, list(got.bad)) == ([{"x.a": 5, "y": "UP"}, {}], [1])


def test_known_schemas_work_while_the_registry_is_down_and_others_wait(registry: Registry) -> None:
    values = values_of(registry)
    values.registry.check()
    assert prepare(values, [OLD])
    registry.status = 503
    assert prepare(values, [OLD])
    for failure in (503, 429, 404, None):  # 404 of a proxy, which has no error code
        registry.status = failure or 503
        if failure is None:
            registry.stop()
        with raises(UnreachableError, reason="no answer", named=registry.url):
            prepare(values, [OLD, NEW])
    registry.status = 200
    registry.start()
    assert len(rows(values, [OLD, NEW])) == 2


def test_an_unknown_schema_is_requested_again(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("connectors.kafka.registered.SURE_S", 60.0)
    monkeypatch.setattr("connectors.kafka.registered.RETRY_S", 0.0)
    values, late = values_of(registry), framed(6, OLD[5:])
    assert not prepare(values, [late])
    registry.add(6, V1)
    assert rows(values, [late]) == [{"x": 3}]


@pytest.mark.parametrize(
    ("settings", "environment", "sent"),
    [
        ("", {}, None),
        ("", {USER_INFO: "me:hunter2"}, "Basic bWU6aHVudGVyMg=="),
        ('basic_auth_user_info = "me:hunter2"', {USER_INFO: "you:x"}, "Basic bWU6aHVudGVyMg=="),
        ('bearer_auth_token = "abc"', {USER_INFO: "you:x"}, "Bearer abc"),
    ],
)
def test_credentials(
    registry: Registry,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: str,
    environment: dict[str, str],
    sent: str | None,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "client.toml").write_text(f'sasl_mechanism = "PLAIN"\n[schema_registry]\n{settings}\n')
    values = values_of(registry, client=str(tmp_path / "client.toml"))
    values.registry.check()
    assert registry.credentials == sent
    registry.status = 401
    with raises(ConnectorError, reason="refused", option="registry") as refused:
        values.registry.check()
    assert not isinstance(refused.value, UnreachableError)
    assert "hunter2" not in str(refused.value)


def test_other_servers_than_registries_are_refused_at_the_start(registry: Registry) -> None:
    values = values_of(registry)
    for types in (b"<html>", b'{"a": 1}', b"[" * 100_000):
        registry.types = types
        with raises(ConnectorError, reason="no registry", option="registry"):
            values.registry.check()
    registry.status = 404
    with raises(ConnectorError, reason="refused", option="registry"):
        values_of(registry).registry.check()
    registry.status, registry.location = 302, "http://127.0.0.1:1/"
    with raises(ConnectorError, reason="refused", named="302"):
        values.registry.check()


def test_options_that_do_not_fit_are_refused(registry: Registry, tmp_path: Path) -> None:
    for url in ("", "localhost:8081", "ftp://h", "http://", "http://h:x", "http://h?a=1"):
        with raises(ConnectorError, reason="value", option="registry"):
            value_format(Options("t", {"registry": url}))
    with raises(ConnectorError, reason="address", option="registry") as refused:
        value_format(Options("t", {"registry": "http://me:hunter2@h:1"}))
    assert "hunter2" not in str(refused.value)
    with raises(ConnectorError, reason="value", option="registry"):
        value_format(Options("t", {"registry": registry.url, "format": "csv"}))
    with raises(ConnectorError, reason="needs", option="id_bytes"):
        value_format(Options("t", {"id_bytes": 8}))
    (tmp_path / "client.toml").write_text('[schema_registry]\npassword = "hunter2"\n')
    with raises(ConnectorError, reason="unknown", option="password"):
        values_of(registry, client=str(tmp_path / "client.toml"))


def records(n: int, first: int = 0) -> list[tuple[int, Any, Any, int]]:
    given = []
    for i in range(first, first + n):
        label = "UP" if i * 7 % 10 < 5 else "DOWN"
        body = avro(V1, {"x": i * 7 % 10, "y": label})
        if i % 3 == 1:
            geo = {"lat": float(i % 4), "price": Decimal("1.25")}
            body = avro(WHOLE, {"x": float(i * 7 % 10), "z": None, "geo": geo, "y": label})
        given.append((i % 2, b"k", framed(1 + (i % 3 == 1), body), 1_750_000_000_000 + i))
    return given


@pytest.mark.slow
def test_a_run_waits_for_a_registry_that_is_down(broker: str, topic: Any, registry: Registry, tmp_path: Path) -> None:
    source, out = topic("events", partitions=2), topic("out", partitions=1)
    fill(broker, source, [one for one in records(90) if one[2][4] == 1])
    url = f"kafka://{broker}/{source}?registry={registry.url}"
    arguments = ("--label", "y", "--model", "cpm", "--quiet", "--out", f"kafka://{broker}/{out}")
    registry.stop()
    said = ran(url, *arguments, "--set", "broker-timeout=1", cwd=tmp_path, code=75)
    assert registry.url in said
    registry.start()
    with Run(url, *arguments, cwd=tmp_path) as run:
        run.until(lambda: len(read(broker, out)) == 60)
        registry.stop()
        fill(broker, source, [one for one in records(90, 90) if one[2][4] == 2])
        run.until(lambda: "no schema registry available" in run.log)
        registry.start()
        run.until(lambda: len(read(broker, out)) == 90)
        run.send_signal(signal.SIGTERM)
        assert run.wait() == 143, run.log
    assert "rejected" not in run.log
