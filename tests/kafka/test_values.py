"""JSON, CSV and Avro values: malformed ones are rejected alone, with a reason."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from connectors.errors import ConnectorError
from connectors.kafka.avro import AvroValues
from connectors.kafka.clients import client_options, server_list, split_address
from connectors.kafka.values import CsvValues, JsonValues
from connectors.options import Options
from tests.connectors.streams import avro, avro_schema
from tests.errors import raises


def options(**given):
    return Options("kafka://h:1/t", given)


def test_ignored_and_declared_names_that_no_json_value_has_are_reported_once():
    reader = JsonValues(options(label="y", ignore="late,gone", types="also_gone:category"))
    for _ in range(3):
        reader.read([b'{"x":%d,"y":"A"}' % x for x in range(3, 0, -1)] * 20)
    [notice] = reader.notices
    assert "'late'" in notice
    assert "in the first 100 events; waiting for it" in notice


def test_json_values():
    values = [b'{"x":1,"c":"red","y":"A"}', b"{oops", b"[1]", b"\xff{}", b'{"x":null}']
    values += [b'{"x":{"z":1},"x.z":2}', b'{"y":[1]}', b""]
    got = JsonValues(options(label="y")).read(values)
    assert sorted(got.bad) == [1, 2, 3, 5, 6, 7]
    assert (got.labels[0], got.labels[4]) == ("A", None)
    assert (got.features[0], got.features[4]) == ({"x": 1, "c": "red"}, {"x": None})
    assert "two fields are named 'x.z'" in got.bad[5]
    assert "the label 'y' is nested" in got.bad[6]
    assert got.bad[1].startswith("not JSON")
    assert "not a JSON object" in got.bad[2]
    assert got.bad[3] == "not valid utf-8"
    assert got.bad[7].startswith("not JSON")


def test_rows_do_not_depend_on_other_rows_of_a_batch():
    values = [b'{"b":1,"a":2.5,"y":"U","no":7}', b'{"a":3,"no":8,"b":-1e3}', b'{"b":null,"a":9007199254740993}']
    rows = [{"b": 1, "a": 2.5}, {"a": 3, "b": -1000.0}, {"b": None, "a": 9007199254740993}]
    for others in ([], [b'{"a":"3","b":true}'], [b'{"b":[]}']):
        got = JsonValues(options(label="y", ignore="no")).read([*values, *others])
        assert repr(got.features[:3]) == repr(rows)
        assert got.labels[:3] == ["U", None, None]


@pytest.mark.parametrize("size", [1, 7, 70, 1000])
def test_number_formats_do_not_depend_on_resumptions(size):
    texts = ["gone" if i % 3 == 0 else f"{i},5" for i in range(250)]
    late = [f"{i},5" if i > 110 else None for i in range(250)]
    contents = [{"t": text, "late": other} for text, other in zip(texts, late, strict=True)]
    rows = [{"op": "r", "before": None, "after": {"x": i, "y": "A", "n": n}} for i, n in enumerate(contents)]
    values = [json.dumps(row).encode() for row in rows]
    values[20:20] = [b"{oops", json.dumps({"op": "d", "before": {"x": 1}, "after": None}).encode()]
    found = []
    for resumed in (False, True):
        reader, features = JsonValues(options(label="y", envelope="debezium")), []
        for start in range(0, len(values), size):
            features += reader.read(values[start : start + size]).features
            if resumed:
                position = json.loads(json.dumps(reader.decided, allow_nan=False))
                reader = JsonValues(options(label="y", envelope="debezium"))
                reader.restore(position)
        found.append(features)
    assert found[0] == found[1]
    assert found[0][-1] == {"x": 249, "n.t": None, "n.late": 249.5}


def test_labels_of_another_type_are_other_classes():
    got = JsonValues(options(label="y")).read([b'{"y":1}', b'{"y":"1"}', b'{"y":true}', b'{"y":9223372036854775809}'])
    assert got.labels == [1, "1", True, 9223372036854775809]


def test_csv_values():
    values = [b"1.5,red,UP", b"2.5,blue", b'1,"a,b",\n', b"oops,red,UP", b"1,a,b\n2,c,d\n", b'1,"a,b']
    got = CsvValues(options(names="x,colour,y", types="colour:category", label="y")).read(values)
    assert sorted(got.bad) == [1, 3, 4, 5]
    assert (got.labels[0], got.labels[2]) == ("UP", None)
    assert got.features["colour"].tolist()[:3:2] == ["red", "a,b"]
    assert got.bad[3] == "'x' is not a number: 'oops'"
    assert got.bad[1] == "2 fields, not 3"
    assert got.bad[4] == "2 records in one value, not 1"


@pytest.mark.parametrize(("said", "meant"), [(";", ";"), ("tab", "\t"), ("\\t", "\t")])
def test_csv_values_are_delimited_as_files_are(said, meant):
    features = CsvValues(options(names="x,z", delimiter=said)).read([f"1{meant}2".encode()]).features
    assert {name: column.tolist() for name, column in features.items()} == {"x": [1.0], "z": [2.0]}


def test_csv_needs_names():
    with raises(ConnectorError, reason="needs", option="names"):
        CsvValues(options())
    with raises(ConnectorError, reason="no column", option="label", column="z"):
        CsvValues(options(names="x,y", label="z"))


MOMENT = {"type": "long", "logicalType": "timestamp-millis"}
SCHEMA = avro_schema(x="double", n=["null", "long"], when=MOMENT, y="string")


@pytest.mark.parametrize("framed", [False, True])
def test_avro_values(tmp_path, framed):
    path = tmp_path / "event.avsc"
    path.write_text(json.dumps(SCHEMA))
    row = {"x": 1.5, "n": None, "when": datetime(2026, 1, 2, tzinfo=UTC), "y": "UP"}
    value = (b"\0\0\0\0\7" if framed else b"") + avro(SCHEMA, row)
    asked = options(schema=str(path), framed=framed, label="y", time="when")
    values = [value, value[:-1], value + b"!", b"", value]
    made = AvroValues(asked)
    got = made.read(values)
    assert got.features[::4] == [{"x": 1.5, "n": None}] * 2
    assert got.labels[::4] == ["UP"] * 2
    assert list(got.times[::4]) == [1767312000000] * 2
    assert sorted(got.bad) == [1, 2, 3]
    assert made.read(values).bad == got.bad  # a resumed run writes equal dead letters


@pytest.mark.parametrize("framed", [False, True])
def test_a_schema_id_in_a_header_is_refused_where_one_is_expected_before_the_value(framed):
    headers = [("a", b"1"), ("__value_schema_id", b"\1" + bytes(range(16)))]
    plain = [SimpleNamespace(key=None, value=b'{"x":1}', headers=headers, partition=0, offset=7, timestamp=5)]
    batch = JsonValues(options(framed=framed)).batch("t", plain, {})
    assert len(batch) == (not framed)
    assert [one.origin["offset"] for one in batch.rejected] == [7] * framed
    if framed:
        assert "__value_schema_id" in batch.rejected[0].reason


def test_avro_needs_a_schema(tmp_path):
    with raises(ConnectorError, reason="needs", option="schema"):
        AvroValues(options())
    (tmp_path / "broken.avsc").write_text("{")
    for name in ("absent.avsc", "broken.avsc"):
        with raises(ConnectorError, reason="schema", option="schema"):
            AvroValues(options(schema=str(tmp_path / name)))


@pytest.mark.parametrize("url", ["kafka://h:1", "kafka://h:1/", "kafka:///t", "kafka://h:1/a/b"])
def test_addresses_that_are_none(url):
    with raises(ConnectorError, reason="address", named=url):
        split_address(url)


def test_a_password_before_the_host_is_refused_and_not_repeated():
    with raises(ConnectorError, reason="address", named="sasl_plain_password") as refused:
        split_address("kafka://me:hunter2@h:1/t")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("server", ["h", "h:", ":1", "h:x", "h:99999"])
def test_servers_have_ports(server):
    with raises(ConnectorError, reason="address", named=server):
        server_list(server, "t")


def test_client_options_take_the_types_of_the_clients(tmp_path):
    defaults = {"fetch_min_bytes": 1, "check_crcs": True, "ssl_password": None, "receive_buffer_bytes": None}
    path = tmp_path / "client.toml"
    path.write_text('ssl_password = "1234"\nfetch_min_bytes = 5\n')
    asked = options(client=str(path), fetch_min_bytes="10", check_crcs="no", receive_buffer_bytes="7")
    given = client_options(asked, defaults)
    assert given == {"ssl_password": "1234", "fetch_min_bytes": 10, "check_crcs": False, "receive_buffer_bytes": 7}


def test_client_options_that_are_none(tmp_path):
    path = tmp_path / "client.toml"
    path.write_text("sasl_plain_password = hunter2")
    with raises(ConnectorError, reason="not TOML", option="client") as refused:
        client_options(options(client=str(path)), {})
    assert "hunter2" not in str(refused.value)
    path.write_text("acks = 1")
    with raises(ConnectorError, reason="unknown", option="acks"):
        client_options(options(client=str(path)), {"acks": -1})
    with raises(ConnectorError, reason="value", option="fetch_min_bytes"):
        client_options(options(fetch_min_bytes="many"), {"fetch_min_bytes": 1})


def test_frames_of_a_schema_registry_are_named_where_they_are_not_expected(tmp_path):
    path, schema = tmp_path / "e.avsc", avro_schema(n=["null", "long"])
    path.write_text(json.dumps(schema))
    framed = b"\0\0\0\1\7" + avro(schema, {"n": 5})
    formats = [AvroValues(options(schema=str(path))), JsonValues(options()), CsvValues(options(names="a,b"))]
    for format_ in formats:
        reason = format_.read([framed]).bad[0]
        assert "schema id 263" in reason
        assert "framed=yes" in reason
    assert "framed" not in formats[0].read([b"\0\0\0\1\7\5"]).bad[0]  # a null, and a value without a header
