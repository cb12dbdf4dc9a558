"""Workers on Quix Streams: predictions equal those of a single process."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from types import SimpleNamespace

import pytest

pytest.importorskip("quixstreams")
pytest.importorskip("kafka")

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from kafka import KafkaConsumer
from quixstreams.exceptions import PartitionAssignmentError

from connectors.columns.nested import Flattening
from connectors.errors import ConnectorError, UnreachableError
from connectors.notices import Notices
from connectors.options import Options
from streamsvm import BSGDClassifier, CPMClassifier
from streamsvm.cli.per_key import connection_of
from streamsvm.core import clock
from streamsvm.keyed import KeyedClassifier
from streamsvm.keyed import topics as topics_module
from streamsvm.keyed.handler import Handler, Stream
from streamsvm.keyed.packing import TABLES
from streamsvm.keyed.quix import MAX_KEYS, Application, ModelCache, apply_keyed
from streamsvm.keyed.topics import StopAtEnd, check_letters, check_settings, count_partitions
from streamsvm.keyed.worker import check_first_events, lag_of
from streamsvm.run.config import Url
from tests.commands import ran_here
from tests.errors import raises
from tests.kafka.conftest import LOGINS, fill, read, starter
from tests.keyed.fleet import (
    FIELD,
    LABEL,
    TEMPORARY,
    Expected,
    Worker,
    arguments,
    customers,
    dying,
    faults,
    hurried,
    nested,
    predicted,
    states,
    wait_for,
)

PARTITIONS = 3  # the engine opens a database for each


@pytest.fixture
def start(tmp_path):
    """Start workers with short pauses. They are killed at the end."""
    workers = []

    def one(name, *arguments):
        workers.append(Worker(tmp_path / name, *arguments, prepare=hurried))
        return workers[-1]

    yield one
    for worker in workers:
        worker.kill()


@pytest.fixture
def topics(topic):
    """Topics of events, predictions and rejected events."""
    return [topic(name, partitions=PARTITIONS) for name in ("events", "predictions", "aside")]


def test_a_worker_dies_one_joins_and_one_leaves(broker, topics, start):
    records = list(customers(900, 60, PARTITIONS))
    expected, given = Expected(records), arguments(broker, *topics, "tellers")
    [port] = starter.free_ports(1)
    workers = [start("one", *given), start("two", *given, f"--set=metrics-port={port}")]
    fill(broker, topics[0], records[:500])
    wait_for(lambda: predicted(broker, topics[1]) > 200, tended=workers)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        shown = answer.read().decode()
    wanted = {"streamsvm_events_total", "streamsvm_state_bytes_total", "streamsvm_lag"}
    assert wanted <= set(re.findall(r"\w+", shown))
    workers[0].kill()
    workers.append(start("three", *given))
    fill(broker, topics[0], records[500:750])
    wait_for(lambda: predicted(broker, topics[1]) > 600, tended=workers)
    leaving = workers.pop(1)
    code = leaving.leave(signal.SIGHUP)
    assert code == 128 + signal.SIGHUP or (code == TEMPORARY and "kafka topic" in leaving.log), leaving.log
    fill(broker, topics[0], records[750:])
    wait_for(lambda: not faults(expected, broker, *topics[1:], "tellers"), tended=workers)
    for worker in workers:
        worker.kill()
    assert faults(expected, broker, *topics[1:], "tellers") == []


def test_a_suspended_worker_does_not_repeat_predictions_of_others(broker, topics, start):
    records = list(customers(600, 60, PARTITIONS))
    given, expected = [*arguments(broker, *topics, "frozen"), "--checkpoint-every", "2s"], Expected(records)

    def answered():  # offsets would include aborted records
        return len(read(broker, topics[1]))

    workers = [start(name, *given) for name in ("one", "two")]
    fill(broker, topics[0], records[:200])
    wait_for(lambda: answered() >= 200, tended=workers)
    fill(broker, topics[0], records[200:450])
    time.sleep(0.5)
    workers[0].stand_still()  # it waits for more, with uncommitted answers
    wait_for(lambda: answered() >= 450, tended=workers[1:])
    workers[0].go_on()
    fill(broker, topics[0], records[450:])
    wait_for(lambda: answered() >= len(expected.answers), tended=workers)
    for worker in workers:
        worker.kill()
    assert faults(expected, broker, *topics[1:], "frozen") == []


def test_commits_beside_the_transaction_of_a_dead_worker_are_not_missed(broker, topics, tmp_path, run):
    records, flat = nested(list(customers(600, 30, PARTITIONS)))
    given = [*arguments(broker, *topics, "hanging"), "--at-end", "stop"]
    fill(broker, topics[0], records[:350])
    (tmp_path / "dies").mkdir()
    run(*given, cwd=tmp_path / "dies", prepare=dying, code=9)
    for i, some in enumerate(([], records[350:])):  # the second has no local state, as on another machine
        fill(broker, topics[0], some)
        (tmp_path / str(i)).mkdir()
        run(*given, cwd=tmp_path / str(i), timeout=100)
    assert faults(Expected(flat), broker, *topics[1:], "hanging") == []


def test_a_clock_that_brokers_refuse_is_named(broker, topics, topic, run):
    fill(broker, topics[0], list(customers(50, 20, PARTITIONS)))
    topics[1] = topic("predictions", **{"message.timestamp.before.max.ms": "1"})  # all records arrive later
    done = run(*arguments(broker, *topics, "clock"), "--at-end", "stop", prepare=hurried, code=TEMPORARY)
    assert "check the clock" in done.stderr


def test_a_topic_with_other_keys_is_refused_or_repartitioned(broker, topics, tmp_path, run):
    records = list(customers(500, 20, PARTITIONS))
    elsewhere = [
        (i % PARTITIONS, b"%d" % i, value.replace(f'"{FIELD}":'.encode(), b'"who":{"is":').replace(b",", b"},", 1), t)
        for i, (_, _, value, t) in enumerate(records)
    ]
    fill(broker, topics[0], [*elsewhere, (0, b"1", b'{"f0":1.0}', records[-1][-1])])
    given = [*arguments(broker, *topics, "other"), "--at-end", "stop"]
    given[given.index("--field") + 1] = "who.is"
    done = run(*given, code=2)
    assert "its key in Kafka is '" in done.stderr
    assert "--repartition" in done.stderr
    done = run(*given, "--repartition", timeout=100)
    written = [json.loads(record.value) for record in read(broker, topics[1])]
    places = [(i % PARTITIONS, i // PARTITIONS) for i in range(len(records))]
    assert sorted((r["partition"], r["offset"]) for r in written) == sorted(places)
    assert sorted(r["time"] for r in written) == [t for *_, t in records]
    [aside] = [json.loads(record.value) for record in read(broker, topics[2])]
    assert "no key: 'who.is'" in aside["reason"]
    consumer = KafkaConsumer(bootstrap_servers=broker)
    [between] = [name for name in consumer.topics() if name.startswith("repartition__other--")]
    consumer.close()
    assert all(time.time() - record.timestamp / 1000 < 200 for record in read(broker, between))
    assert len(states(broker, "other")) == 20


def test_late_labels_match_events_of_any_size(broker, topics, topic, tmp_path, run):
    labels = topic("labels", partitions=PARTITIONS)
    keyed = KeyedClassifier(CPMClassifier(), label=LABEL, ignore=(FIELD,), join="order")
    events, late, of_key = [], [], {}
    for i, (partition, key, value, _) in enumerate(customers(400, 20, PARTITIONS)):
        event = json.loads(value)
        label = {FIELD: event[FIELD], "order": i, LABEL: event[LABEL]}
        event |= {"order": i, LABEL: "to be left out"}
        events.append((partition, key, json.dumps(event).encode(), 1000 * i))
        late.append((partition, key, json.dumps(label | {"more": 1}).encode(), 1000 * i + 30_500))
        of_key.setdefault(key, []).extend([(1000 * i, event | {LABEL: None}), (1000 * i + 30_500, label)])
    for i in range(400, 403):  # together larger than the default limit of a record
        event = {FIELD: "wide", "order": i, **{f"x{j}": 0.5 + j for j in range(25_000)}}
        events.append((0, b"wide", json.dumps(event).encode(), 1000 * i))
        of_key.setdefault(b"wide", []).append((1000 * i, event))
    events.append((0, b"wide", b"\xff" * 300_000, 1000 * 403))  # four times as long when rejected
    fill(broker, topics[0], events)
    fill(broker, labels, late)
    more = ["--label-source", f"kafka://{broker}/{labels}", "--join", "order", "--at-end", "stop"]
    done = run(*arguments(broker, *topics, "late"), *more, timeout=100)
    written = [json.loads(record.value) for record in read(broker, topics[1])]
    assert len(written) == 403
    assert "label" not in written[0]
    [aside] = [json.loads(record.value) for record in read(broker, topics[2])]
    offset = len(events) - 1 - sum(e[0] != 0 for e in events)
    assert (aside["partition"], aside["offset"], aside["raw"]) == (0, offset, None)
    assert aside["raw_too_large"] == "1,200,000 characters"
    expected = {}
    for key, records in of_key.items():
        _, expected[key] = keyed.step(None, [record for _, record in sorted(records, key=lambda pair: pair[0])])
    assert states(broker, "late") == expected
    more[1] = f"kafka://{broker}/{topic('few', partitions=2)}"
    done = run(*arguments(broker, *topics, "few"), *more, code=2)
    assert "has 2 partitions" in done.stderr


def test_idle_keys_are_reset_and_removed(broker, topics, tmp_path, run):
    minutes = [(name, t) for name in ("idle", "back") for t in range(1, 10)] + [("back", 100)]
    minutes += [("busy", t) for t in (*range(1, 200, 5), 201)]
    rows = [
        (0, name.encode(), json.dumps({FIELD: name, "x": t % 2, LABEL: "ab"[t % 2]}).encode(), 60_000 * t)
        for name, t in sorted(minutes, key=lambda pair: pair[1])
    ]
    fill(broker, topics[0], rows)
    given = [*arguments(broker, *topics, "idle"), "--key-ttl", "60m", "--checkpoint-every", "10", "--at-end", "stop"]
    run(*given, timeout=100)
    written = [(r, json.loads(r.value)) for r in read(broker, topics[1])]
    answers = [(record.key, value["time"], value["prediction"]) for record, value in written]
    assert all(time.time() - record.timestamp / 1000 < 200 for record, _ in written)
    assert {(key, t // 60_000) for key, t, prediction in answers if prediction is None} == {
        *((name, 1) for name in (b"idle", b"back", b"busy")),
        (b"back", 100),
    }
    assert set(states(broker, "idle")) == {b"back", b"busy"}
    run(*given, timeout=100)  # one more worker, without a partition
    assert len(read(broker, topics[1])) == len(rows)


def enlarge(broker, topic, partitions):
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(10)


def spread(records, partitions):
    """Partition by a hash of the key, as producers do."""
    return [(int(key[1:]) % partitions, key, value, t) for _, key, value, t in records]


def test_more_partitions_are_noticed_by_all_workers_and_keys_take_their_state_with_them(broker, topic, start):
    names = [topic(name, partitions=2) for name in ("events", "predictions", "aside")]
    records = list(customers(600, 20, 2))
    given = arguments(broker, *names, "wider")
    workers = [start(name, *given) for name in ("one", "two")]
    fill(broker, names[0], records[:300])
    wait_for(lambda: len(read(broker, names[1])) >= 299, tended=workers)
    enlarge(broker, names[0], 4)
    wait_for(lambda: all(worker.starts > 1 for worker in workers), tended=workers)
    fill(broker, names[0], spread(records[300:], 4))
    expected = Expected(records[:300] + spread(records[300:], 4))
    wait_for(lambda: not faults(expected, broker, *names[1:], "wider"), seconds=60, tended=workers)
    assert "Traceback" not in "".join(worker.log for worker in workers)
    assert all(worker.starts <= 3 for worker in workers)


def test_keys_move_repeatedly_with_unread_events_and_a_kill_before_the_commit(broker, topic, tmp_path, run):
    names = [topic(name, partitions=2) for name in ("events", "predictions", "aside")]
    records = list(customers(480, 24, 2))
    records = records[:120] + spread(records[120:280], 3) + spread(records[280:], 6)
    given = [*arguments(broker, *names, "moves"), "--at-end", "stop"]

    def take(some, folder, **options):
        fill(broker, names[0], some)
        (tmp_path / folder).mkdir(exist_ok=True)
        run(*given, cwd=tmp_path / folder, timeout=100, **options)

    take(records[:120], "one")
    enlarge(broker, names[0], 3)
    time.sleep(0.5)
    take(records[120:200], "one", prepare=dying, code=9)
    take([], "one", prepare=hurried)
    fill(broker, names[0], records[200:280])  # unread at the time of the enlargement
    enlarge(broker, names[0], 6)
    time.sleep(0.5)
    take(records[280:380], "two", prepare=hurried)  # without local state
    take(records[380:], "one", prepare=hurried)
    assert faults(Expected(records), broker, *names[1:], "moves") == []


def test_a_full_disk_and_another_model_are_refused_and_change_nothing(broker, topics, tmp_path, run):
    records = list(customers(900, 300, PARTITIONS))
    fill(broker, topics[0], records[:800])
    given = [*arguments(broker, *topics, "one-model"), "--at-end", "stop"]
    done = run(*given, timeout=100, prepare=hurried, most_bytes=50_000, code=1)
    assert "Traceback" not in done.stderr
    done = run(*given, timeout=100)
    fill(broker, topics[0], records[800:])
    done = run(*given, "--param", "n_faces=5", code=2)
    assert "n_faces" in done.stderr
    assert "Traceback" not in done.stderr
    done = run(*given, timeout=100)
    assert faults(Expected(records), broker, *topics[1:], "one-model") == []


def test_a_worker_ends_at_the_end_although_brokers_were_away_for_a_moment(monkeypatch):
    answers = iter([UnreachableError("no broker"), 2, KafkaException("no answer"), 2])

    def found(*_):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    stopped = threading.Event()
    app = SimpleNamespace(config=SimpleNamespace(consumer_group="g"), stop=stopped.set)
    monkeypatch.setattr(topics_module, "query_consumer", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(topics_module, "count_partitions", found)
    monkeypatch.setattr(topics_module, "end_offsets", lambda client, topic, n: [5] * n)
    monkeypatch.setattr(topics_module, "is_unprocessed", lambda *_: False)
    with StopAtEnd(app, ["events", "labels"]):
        assert stopped.wait(20)


def test_the_lag_after_a_start_is_that_of_committed_offsets():
    class Consumer:
        def assignment(self):
            return [TopicPartition("events", 0)]

        def position(self, tps):
            return [TopicPartition("events", 0, -1001)]

        def committed(self, tps, timeout):
            return [TopicPartition("events", 0, 900)]

        def get_watermark_offsets(self, tp, timeout=None, cached=False):
            return (-1001, -1001) if cached else (0, 1000)

    assert lag_of(Consumer(), ["events"]) == {0: 100}


@pytest.fixture
def handler(monkeypatch):
    """Return a function that creates a handler without a broker, and what it sends."""
    sent, place = [], SimpleNamespace(topic="events", partition=0, offset=0)
    monkeypatch.setattr("streamsvm.keyed.handler.message_context", lambda: place)

    def make(cache=None, **more):
        stream, keyed = Stream("events", FIELD, rejected="aside", **more), KeyedClassifier(CPMClassifier(), label=LABEL)
        send = lambda topic, value, key, partition: sent.append(json.loads(value) | {"key": key})  # noqa: E731
        return Handler(stream, keyed, cache or ModelCache(keyed), send, {"aside": 1_000_000})

    return make, sent


def test_a_nested_label_is_refused_as_in_other_runs(handler):
    make, sent = handler
    nested = {FIELD: "c1", "x": 1.0, LABEL: {"a": 1}}
    make().process(json.dumps(nested).encode(), b"c1", 0, None, None)
    [aside] = sent
    assert f"the label '{LABEL}' is nested" in aside["reason"]


@pytest.mark.parametrize(("key", "repartition"), [(b"", True), (None, False)])
def test_a_dead_letter_of_an_event_without_a_key_has_none(handler, key, repartition):
    make, sent = handler
    make(repartition=repartition).process(b"no JSON", key, 0, None, None)
    assert [letter["key"] for letter in sent] == [None]


def test_nested_events_are_flattened(handler):
    make, sent = handler
    seen = []
    cache = SimpleNamespace(step=lambda _, event, __: seen.append(event) or {"prediction": "up", "score": 1.0})
    flattening = Flattening(Options("events", {"flatten": 2}), (), (FIELD, LABEL), Notices())
    taken = make(cache, flattening=flattening)
    for event in ({"a": {"b": 1.0, "c": [1]}, LABEL: "up"}, {"a": {"b": {"d": {}}}}):
        taken.process(json.dumps({FIELD: "c1"} | event).encode(), b"c1", 0, None, None)
    assert seen == [{"a.b": 1.0, "a.c.length": 1, LABEL: "up"}]
    [rejected] = sent
    assert "flatten=3" in rejected["reason"]


def test_key_and_time_may_be_nested():
    flattening = Flattening(Options("events", {}), (), (FIELD, LABEL), Notices())
    stream = Stream("events", "who.is", repartition=True, flattening=flattening)
    keyed = KeyedClassifier(CPMClassifier(), label=LABEL, time="at.ms", time_unit="ms", key_ttl=60)
    assert stream.key_of(b'{"who": {"is": 17}}') == b"17"
    assert stream.event_time(b'{"at": {"ms": 1500}}', keyed, 7) == 1500
    assert stream.event_time(b'{"at": 1500}', keyed, 7) == 7


@pytest.mark.parametrize("label", ["", LABEL])
def test_a_label_that_no_event_has_is_reported_once(handler, caplog, label):
    taken = handler[0](SimpleNamespace(step=lambda *_: {"prediction": None, "score": 0.0}))
    for i in range(1100):
        event = {FIELD: "c1", "x": 1.0} | ({label: "a"} if label and i == 999 else {})
        taken.process(json.dumps(event).encode(), b"c1", 0, None, None)
    taken.check_labels()
    assert len(caplog.records) == (not label)
    assert taken.labelled == bool(label)


def test_a_worker_logs_its_progress(handler, caplog):
    taken = handler[0](SimpleNamespace(step=lambda *_: {"prediction": "a", "score": 0.9}))
    for label in "aab":
        taken.process(json.dumps({FIELD: "c1", LABEL: label}).encode(), b"c1", 0, None, None)
    with caplog.at_level("INFO"):
        taken.log_progress()
    assert caplog.messages == ["3 events of this worker, accuracy 0.6667, recent accuracy 0.6667 (last 3)"]


@pytest.mark.parametrize(("field", "n"), [(FIELD, 0), ("misspelt", 1)])
def test_a_field_that_no_first_event_has_is_reported(caplog, field, n):
    first = [SimpleNamespace(value=lambda: b'{"%s": "c1"}' % FIELD.encode(), key=lambda: b"c1")] * 2
    check_first_events(Stream("events", field), KeyedClassifier(CPMClassifier(), label=LABEL), first)
    assert len(caplog.records) == n


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_is_refused_for_dead_letters(policy):
    with raises(ConnectorError, reason="compacted", named="letters"):
        check_letters("letters", {"letters": {"cleanup.policy": policy}, "out": {}})
    check_letters("letters", {"letters": {"cleanup.policy": "delete"}, "out": {"cleanup.policy": policy}})
    check_letters(None, {})


def test_settings_of_a_group_are_compared_with_those_of_its_first_worker(monkeypatch):
    app, first = SimpleNamespace(config=SimpleNamespace(consumer_group="g")), KeyedClassifier(CPMClassifier(l2=0.25))
    began = first.settings | {"--label": "y"}
    record = SimpleNamespace(value=lambda: json.dumps(began).encode())
    monkeypatch.setattr(topics_module, "_records", lambda _: [record])
    check_settings(app, began)
    with raises(ConnectorError, reason="settings", named="l2 0.25, not 0.5: "):
        check_settings(app, began | KeyedClassifier(CPMClassifier(l2=0.5)).settings)
    with raises(ConnectorError, reason="settings", named="class 'CPMClassifier', not 'BSGDClassifier'"):
        check_settings(app, KeyedClassifier(BSGDClassifier()).settings | {"--label": "y"})
    with raises(ConnectorError, reason="settings", named="--label 'y', not 'z': "):
        check_settings(app, began | {"--label": "z"})
    for other in ({"a new parameter": 1}, {TABLES: "other"}):
        with raises(ConnectorError, reason="version"):
            check_settings(app, began | other)


def test_a_parent_that_knows_no_feature_of_the_first_events_is_refused():
    def first():
        for event in ({FIELD: "c1", "renamed": 1.0, LABEL: "a"}, {FIELD: "c2", "other": 2.0}):
            value, key = json.dumps(event).encode(), event[FIELD].encode()
            yield SimpleNamespace(value=lambda value=value: value, key=lambda key=key: key)

    parent = CPMClassifier()
    parent.learn_many([{"f0": 1.0}, {"f0": -1.0}], ["a", "b"])
    stream, keyed = Stream("events", FIELD), KeyedClassifier(CPMClassifier(), label=LABEL, prior_model=parent)
    with raises(ConnectorError, reason="features", option="--prior-model", named="f0"):
        check_first_events(stream, keyed, first())
    parent.learn_one({"other": 1.0}, "a")
    check_first_events(stream, keyed, first())


def test_compiling_is_in_no_figure_of_a_worker(handler):
    def step(*_):
        with clock.compiling():
            time.sleep(0.05)
        return {"prediction": None, "score": 0.0}

    slow = handler[0](SimpleNamespace(step=step))
    slow.process(b'{"x": 1.0}', b"c1", 0, None, None)
    assert slow.events == 1
    assert slow.seconds < 0.04


def test_ten_lines_of_python_do_the_same_as_the_command_line(broker, topics, tmp_path):
    records = [one for one in customers(400, 20, PARTITIONS) if one[2] != b"{"]
    fill(broker, topics[0], records)
    keyed = KeyedClassifier(CPMClassifier(), label=LABEL, ignore=(FIELD,))
    found = {}
    for name, step in {
        "each": lambda sdf: sdf.apply(keyed, stateful=True),
        "cached": lambda sdf: apply_keyed(sdf, keyed, max_keys=5),
    }.items():
        app = Application(broker, consumer_group=name, state_dir=tmp_path, loglevel=None)
        step(app.dataframe(app.topic(topics[0], key_deserializer="bytes")))
        answers = app.run(count=len(records), metadata=True)
        assert len(answers) == len(records)
        found[name] = states(broker, name)
    assert found["cached"] == found["each"] == Expected(records).states


def test_workers_go_through_tls_with_a_password(secured, broker, topics, tmp_path, run):
    """Events, predictions, changelog and requests use TLS; errors hide passwords."""
    records = list(customers(600, 20, PARTITIONS))
    fill(broker, topics[0], records)
    url, *given = [*arguments(secured, *topics, "secured"), "--at-end", "stop"]
    done = run(f"{url}?client=client.toml", *given, timeout=100)
    assert faults(Expected(records), broker, *topics[1:], "secured") == []
    (tmp_path / "wrong.toml").write_text((tmp_path / "client.toml").read_text().replace(LOGINS["me"], "hunter3"))
    done = run(f"{url}?client=wrong.toml", *given, code=2)
    assert "hunter3" not in done.stderr
    assert "refuses user 'me' with this password" in done.stderr


PASSWORD = {"security_protocol": "SASL_PLAINTEXT", "sasl_plain_username": "me", "sasl_plain_password": LOGINS["me"]}
WITH_KEY = {"security_protocol": "SSL", "ssl_cafile": "{certificate}", "ssl_certfile": "{certificate}"}


@pytest.mark.parametrize(
    ("listener", "options"),
    [
        ("password", PASSWORD | {"sasl_mechanism": "SCRAM-SHA-256"}),
        ("tls", WITH_KEY | {"ssl_keyfile": "{key}"}),
        ("tls", WITH_KEY | {"ssl_keyfile": "{locked}", "ssl_password": "hunter5"}),
    ],
)
def test_options_of_a_url_have_the_names_of_the_engine(listeners, topic, tmp_path, listener, options):
    given, locked = ["openssl", "rsa", "-aes256", "-passout", "pass:hunter5"], tmp_path / "locked.key"
    subprocess.run([*given, "-in", listeners.key, "-out", locked], check=True, capture_output=True)
    files = {"certificate": listeners.certificate, "key": listeners.key, "locked": locked}
    query = urllib.parse.urlencode({name: value.format(**files) for name, value in options.items()})
    address = getattr(listeners, listener)
    connection = connection_of(Url(f"kafka://{address}/events?{query}"), address)
    app = Application(connection, consumer_group="g", state_dir=tmp_path, loglevel=None)
    assert count_partitions(app, topic("events", partitions=2)) == 2


def test_memory_of_partitions_and_prefetched_events_is_bounded(tmp_path):
    app = Application("127.0.0.1:1", consumer_group="g", state_dir=tmp_path, loglevel=None)
    options, mib = app.config.rocksdb_options, 1024 * 1024
    assert options.write_buffer_size * options.max_write_buffer_number == 16 * mib  # per partition
    assert options.block_cache_size == 64 * mib
    assert app.config.consumer_extra_config["queued.max.messages.kbytes"] == 16 * 1024
    assert app.config.commit_every == MAX_KEYS == inspect.signature(ModelCache).parameters["max_keys"].default


@pytest.mark.parametrize("replaced", [SystemError, PartitionAssignmentError])
def test_errors_during_a_rebalance_are_reported(replaced, monkeypatch, tmp_path):
    """The messages of client and engine only say that there was an error."""

    def fail(*_):
        raise KafkaException("no coordinator")

    def run(app):
        with contextlib.suppress(KafkaException):
            app._on_revoke(None, [])
        raise replaced("poll returned NULL without setting an exception")

    monkeypatch.setattr("quixstreams.Application._on_revoke", fail)
    monkeypatch.setattr("quixstreams.Application.run", run)
    app, gone = Application("127.0.0.1:1", consumer_group="g", state_dir=tmp_path, loglevel=None), []
    app.when_gone.append(lambda: gone.append(True))
    with raises(KafkaException, named="no coordinator"):
        app.run()
    assert gone == [True]


@pytest.mark.parametrize(
    "name", ["Application._on_lost", "Application._process_message", "models.TopicManager._internal_name"]
)
def test_an_engine_without_a_replaced_method_is_refused(name, monkeypatch, tmp_path):
    monkeypatch.delattr(f"quixstreams.{name}")
    with raises(ImportError, named=name.rpartition(".")[2]):
        Application("127.0.0.1:1", consumer_group="g", state_dir=tmp_path, loglevel=None)


REFUSED = {
    "--field customer --consumer-group g --label y --join order": "--join needs --label-source",
    "--field customer --consumer-group g --label y --prior-model no.svm": "--prior-model no.svm: ",
    "--field customer --label y": "--consumer-group NAME is missing",
    "--field customer --consumer-group g --label y --refit trees": "unrecognized arguments: --refit",
    "--field y --consumer-group g --label y": "--label y: is also --field",
    "--field customer --consumer-group g --label y --out a.csv": "--out a.csv: must be a Kafka topic",
    "--field customer --consumer-group g --label y --out kafka://other:1/p": "must be on the brokers of SOURCE",
    "--field customer --consumer-group g --label y --model river.naive_bayes.GaussianNB": "per-key: ",
}


@pytest.mark.parametrize("given", REFUSED)
def test_inconsistent_settings_are_refused_before_any_request(given, tmp_path):
    done = ran_here("per-key", "kafka://127.0.0.1:1/events", *given.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert REFUSED[given] in done.stderr


def test_temporary_errors_are_distinguished_from_permanent_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(topics_module, "RESPONSE_S", 0.5)
    given = ["--field", "customer", "--consumer-group", "g", "--label", "y", "--model", "cpm"]
    done = ran_here("per-key", "kafka://127.0.0.1:1/events", *given, cwd=tmp_path)
    assert done.returncode == 75
    assert "no broker responds: 127.0.0.1:1: " in done.stderr
    with socket.create_server(("0.0.0.0", 0)) as taken:
        given += ["--set", f"metrics-port={taken.getsockname()[1]}"]
        done = ran_here("per-key", "kafka://127.0.0.1:1/events", *given, cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot listen there" in done.stderr
