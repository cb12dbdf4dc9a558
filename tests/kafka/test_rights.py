"""Permissions of a user: those in the documentation suffice and are needed."""

from __future__ import annotations

import contextlib
import json
import threading
from types import SimpleNamespace

import pytest
from kafka.errors import GroupAuthorizationFailedError

from connectors import ConnectorError, open_sink
from connectors.kafka import KafkaSource, offsets
from connectors.kafka.offsets import Lag
from tests.commands import wait_for
from tests.errors import raises
from tests.kafka.broker import admin
from tests.kafka.conftest import LOGINS, fill, ran, read

RIGHTS = {
    "source": ("TOPIC", "{source}", "READ"),
    "out": ("TOPIC", "{out}", "WRITE"),
    "rejected": ("TOPIC", "{dead}", "WRITE"),
    "transactions": ("TRANSACTIONAL_ID", "streamsvm.{source}.{out}", "WRITE"),
    "mark": ("GROUP", "streamsvm.{source}.{out}", "READ"),
    "lag": ("GROUP", "streamsvm.{source}", "READ"),
}
WHO = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
WHO |= {"sasl_plain_username": "poor", "sasl_plain_password": LOGINS["poor"]}


@pytest.fixture
def place(listeners):
    """The address that requires a login."""
    return listeners.password


@pytest.fixture
def topics(broker, topic):
    made = {"source": topic("events"), "out": topic("out"), "dead": topic("dead", 1)}
    values = [b'{"x":%d,"y":"%d"}' % (i % 7, i % 2) if i % 20 else b"{oops" for i in range(300)]
    fill(broker, made["source"], [(i % 3, b"k", value, 1000 + i) for i, value in enumerate(values)])
    return made


def allow(broker, topics, *rights):
    """Grant the user these permissions and no others."""
    from kafka import admin as of

    kinds, operations, types = of.ResourceType, of.ACLOperation, of.ACLPermissionType
    anything = of.ResourcePatternFilter(kinds.ANY, None, of.ACLResourcePatternType.ANY)
    all_ = of.ACLFilter("User:poor", None, operations.ANY, types.ANY, anything)
    wanted = {(kind, name.format(**topics), operation) for kind, name, operation in map(RIGHTS.__getitem__, rights)}
    acls = [
        of.ACL("User:poor", "*", operations[o], types.ALLOW, of.ResourcePattern(kinds[kind], name))
        for kind, name, o in wanted
    ]
    with admin(broker) as client:
        client.delete_acls([all_])
        client.create_acls(acls)

        def are_set():
            found = [(acl.resource_pattern, acl.operation) for acl in client.describe_acls(all_)[0]]
            return {(p.resource_type.name, p.resource_name, o.name) for p, o in found} == wanted

        wait_for(are_set, "the rights")


def test_the_rights_that_are_listed_are_enough(broker, topics, secured, tmp_path):
    """The run goes through TLS with a password."""
    client = tmp_path / "client.toml"
    client.write_text(client.read_text().replace('"me"', '"poor"').replace(LOGINS["me"], LOGINS["poor"]))

    def asked(which):
        return f"kafka://{secured}/{topics[which]}?client=client.toml"

    kept = ("--model", "cpm", "--param", "n_faces=3", "--checkpoint", "check", "--checkpoint-every", 100)
    run = (asked("source"), "--label", "y", "--quiet", "--at-end", "stop", *kept)
    run += ("--out", asked("out"), "--dead-letter", asked("dead"))
    allow(broker, topics, *RIGHTS)
    assert "right" not in ran(*run, cwd=tmp_path)
    assert len(read(broker, topics["out"])) == 285
    assert len(read(broker, topics["dead"])) == 15
    allow(broker, topics, *set(RIGHTS) - {"lag"})  # the run continues
    said = ran(*run, "--reset", cwd=tmp_path)
    assert said.count("no permission to READ the group") == 1
    assert len(read(broker, topics["out"])) == 570
    assert LOGINS["poor"].encode() not in (tmp_path / "check" / "checkpoint.safetensors").read_bytes()


def test_a_right_that_lacks_is_said_once_though_more_offsets_wait(caplog):
    asked, second = [], threading.Event()

    class Denied:
        name = "kafka://broker"

        def admin(self):
            asked.append("admin")
            second.wait(10)
            raise GroupAuthorizationFailedError("mine")

    lag = Lag(Denied(), "mine")
    lag.publish({0: 1})
    lag.publish({0: 2})
    second.set()
    lag.close()
    lag.publish({0: 3})
    assert (len(asked), len(caplog.records)) == (2, 1)  # once more at the end


def test_the_lag_is_published_again_when_the_right_is_given_back(caplog, monkeypatch):
    denied, committed = [True], []

    class Client:
        def alter_group_offsets(self, group, offsets):
            if denied[0]:
                raise GroupAuthorizationFailedError(group)
            committed.append(offsets)
            return {}

        def close(self):
            pass

    lag = Lag(SimpleNamespace(name="kafka://broker", admin=Client), "mine")
    lag.publish({0: 1})
    wait_for(lambda: lag._call.done(), "the commit", every=0.001)
    denied[0] = False
    lag.publish({0: 2})
    assert not committed  # within a minute of the denial
    lag.close()
    assert committed == [{0: 2}]
    committed.clear()
    caplog.clear()

    monkeypatch.setattr(offsets, "_DENIED_S", 0.0)
    lag = Lag(SimpleNamespace(name="kafka://broker", admin=Client), "mine")
    for denied[0], n in ((True, 1), (True, 2), (False, 3), (True, 4)):
        lag.publish({0: n})
        wait_for(lambda: lag._call.done(), "the commit", every=0.001)
    lag.close()
    assert committed == [{0: 3}]
    assert len(caplog.records) == 2  # once each time that the right is withdrawn


@contextlib.contextmanager
def opened(place, topics, **options):
    """A sink that this user writes."""
    with (
        contextlib.closing(KafkaSource(servers=place, topic=topics["source"], **WHO)) as source,
        contextlib.closing(open_sink(f"kafka://{place}/{topics['out']}", source=source, **WHO, **options)) as sink,
    ):
        yield sink


@pytest.mark.parametrize(
    ("without", "named"),
    [
        ("source", "to READ a topic of events"),
        ("out", "WRITE one of results"),
        ("transactions", "to WRITE the transactional id"),
        ("mark", "to READ the group"),
    ],
)
def test_a_right_that_lacks_is_named(broker, topics, place, without, named):
    allow(broker, topics, *set(RIGHTS) - {without})
    with raises(ConnectorError, named=named), opened(place, topics) as sink:
        sink.write({"partition": [0], "offset": [0], "prediction": ["UP"]})
        sink.flush()


def test_a_topic_that_takes_less_without_the_right_to_ask_how_much(broker, topic, topics, place):
    topics["out"] = topic("out", 1, **{"max.message.bytes": "9000"})
    allow(broker, topics, *RIGHTS)
    rejected = []
    with opened(place, topics, max_request_size=20_000) as sink:
        sink.reject = lambda _, text: rejected.append(json.loads(text)["offset"])
        sink.write({"partition": [0] * 3, "offset": [0, 1, 2], "prediction": ["UP", "long" * 50_000, "long" * 4000]})
        sink.flush()
    [short] = [json.loads(record.value) for record in read(broker, topics["out"])]
    assert short == {"partition": 0, "offset": 0, "prediction": "UP"}
    assert rejected == [1, 2]
