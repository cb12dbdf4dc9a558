from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.commands import Command, completed, wait_for
from tests.kafka import broker as starter

Make = Callable[..., str]


LOGINS = {"me": "hunter2", "poor": "hunter4"}
"""Users and passwords. The first has all permissions, the other those of ACLs."""


def start_broker(**options: Any) -> Any:
    """Start a separate broker; without Java, skip the test, or fail in `CI`."""
    try:
        return starter.Broker(brief=True, **options)
    except starter.NoBroker as error:
        if os.environ.get("CI"):
            pytest.fail(f"no Kafka broker: {error}")
        pytest.skip(f"no Kafka broker ({error}), and STREAMSVM_KAFKA=host:port names none")


@pytest.fixture(autouse=True)
def nothing_goes_on() -> Iterator[None]:
    """Check that a test leaves no threads behind, such as that of a producer."""
    before = set(threading.enumerate())
    yield
    wait_for(lambda: before >= set(threading.enumerate()), "the end of the threads of the test", every=0.01)


_STARTED = pytest.StashKey[Any]()


@pytest.fixture(scope="session")
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The shared broker if this process started it.

    Several folders have this fixture; a process has one broker.
    """
    pytest.importorskip("kafka")
    if "STREAMSVM_KAFKA" in os.environ:
        return None
    if _STARTED not in request.config.stash:
        folder, stack = tmp_path_factory.getbasetemp(), contextlib.ExitStack()
        found = stack.enter_context(shared(folder if "PYTEST_XDIST_WORKER" not in os.environ else folder.parent))
        request.config.stash[_STARTED] = found
        request.config.add_cleanup(stack.close)
    return request.config.stash[_STARTED]


_LISTENERS = ("address", "password", "secured", "tls", "certificate", "key")


@contextlib.contextmanager
def shared(folder: Path) -> Iterator[Any]:
    """A broker for all test processes, started by the first, ended after the last."""
    place, own, me = folder / "broker.json", None, folder / f"broker-user-{os.getpid()}"
    with starter.locked(folder / "broker.lock"):
        if not place.exists():
            own = start_broker(logins=LOGINS if shutil.which("openssl") else None)
            place.write_text(json.dumps({name: str(getattr(own, name)) for name in _LISTENERS if hasattr(own, name)}))
        me.touch()
    try:
        yield SimpleNamespace(**json.loads(place.read_text()))
    finally:
        me.unlink()
        while own is not None:
            with starter.locked(folder / "broker.lock"):
                if not list(folder.glob("broker-user-*")):
                    place.unlink()
                    own.close()
                    own = None
            time.sleep(0.1)


@pytest.fixture(scope="session")
def broker(started: Any) -> str:
    """The address of the shared broker."""
    return os.environ["STREAMSVM_KAFKA"] if started is None else started.address


@pytest.fixture(scope="session")
def listeners(started: Any) -> Any:
    """The shared broker with listeners that require a password or TLS."""
    if started is None or not hasattr(started, "secured"):
        pytest.skip("needs openssl, and a broker of its own")
    return started


@pytest.fixture
def secured(listeners: Any, tmp_path: Path) -> str:
    """Address of the shared broker with TLS; `client.toml` has the password."""
    lines = {"security_protocol": "SASL_SSL", "ssl_cafile": listeners.certificate, "sasl_mechanism": "PLAIN"}
    lines |= {"sasl_plain_username": "me", "sasl_plain_password": LOGINS["me"]}
    (tmp_path / "client.toml").write_text("".join(f'{name} = "{value}"\n' for name, value in lines.items()))
    return str(listeners.secured)


@pytest.fixture
def topic(broker: str) -> Make:
    """Create topics for one test: `topic("events", partitions=3)`."""

    return functools.partial(new_topic, broker)


def new_topic(broker: str, name: str, partitions: int = 3, **configs: str) -> str:
    """Create a topic; return its name, which begins with the given one."""
    name = f"{name}-{uuid.uuid4().hex[:8]}"
    starter.make_topics(broker, name, partitions=partitions, **configs)
    return name


def recreate(address: str, topic: str, partitions: int = 3) -> None:
    """Delete a topic, and create it again."""
    from kafka.errors import TopicAlreadyExistsError

    with starter.admin(address) as client:
        client.delete_topics([topic])

    def made() -> bool:
        with contextlib.suppress(TopicAlreadyExistsError):
            starter.make_topics(address, topic, partitions=partitions)
            return True
        return False

    wait_for(made, "the end of the old one")


def fill(address: str, topic: str, rows: Sequence[tuple[int, Any, Any, int]], **options: Any) -> None:
    """Send records: partition, key, value, timestamp."""
    from kafka import KafkaProducer

    settings = {"linger_ms": 20, "batch_size": 1 << 17, "max_request_size": 1 << 22, **options}
    producer = KafkaProducer(bootstrap_servers=address.split(","), **settings)
    futures = [producer.send(topic, v, key=k, partition=p, timestamp_ms=t) for p, k, v, t in rows]
    producer.flush()
    for future in futures:
        future.get(timeout=60)
    producer.close()


def read(address: str, topic: str, *, committed: bool = True) -> list[Any]:
    """Return all records of a topic by partition."""
    from kafka import KafkaConsumer, TopicPartition

    level = "read_committed" if committed else "read_uncommitted"
    consumer = KafkaConsumer(bootstrap_servers=address.split(","), isolation_level=level, enable_auto_commit=False)
    with contextlib.closing(consumer):
        tps = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        ends = consumer.end_offsets(tps)
        records: list[Any] = []
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for some in consumer.poll(timeout_ms=200, max_records=10_000).values():
                records += some
        return sorted(records, key=lambda record: (record.partition, record.offset))


class Run(Command):
    """A run whose output goes to a file."""

    def __init__(self, *arguments: Any, cwd: Path) -> None:
        self._log = cwd / f"{uuid.uuid4().hex}.log"
        self._log.touch()
        super().__init__("run", *arguments, cwd=cwd, stdout=self._log, stderr=self._log)

    @property
    def log(self) -> str:
        """The output so far."""
        return self._log.read_text()

    @property
    def over(self) -> bool:
        return self.poll() is not None

    def until(self, what: Callable[[], Any], seconds: float = 120.0) -> None:
        """Wait until a condition holds, while the run goes on."""
        deadline = time.monotonic() + seconds
        while not what():
            assert not self.over, self.log
            assert time.monotonic() < deadline, f"nothing happened:\n{self.log}"
            time.sleep(0.1)

    def killed_when(self, what: Callable[[], Any]) -> bool:
        """Kill the run when a condition holds. Return whether it was still running."""
        while not self.over and not what():
            time.sleep(0.02)
        self.send_signal(signal.SIGKILL)
        return self.wait() == -signal.SIGKILL

    def wait(self, timeout: float | None = 120.0) -> int:
        """Return the exit code."""
        try:
            return super().wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.log}") from None


def ran(*arguments: Any, cwd: Path, code: int = 0) -> str:
    """Run the command line to its end, with this exit code. Return its output."""
    with Run(*arguments, cwd=cwd) as run:
        assert run.wait() == code, run.log
        assert "Traceback" not in run.log
        return run.log


def command_fixture(name: str, **defaults: Any) -> Any:
    """A fixture that runs a command to its end, with this exit code."""

    @pytest.fixture
    def run(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
        def call(
            *arguments: Any, code: int = 0, cwd: Path = tmp_path, timeout: float = 60, **how: Any
        ) -> subprocess.CompletedProcess[str]:
            done = completed(name, *arguments, cwd=cwd, timeout=timeout, **defaults | how)
            assert done.returncode == code, done.stderr
            return done

        return call

    return run


run = command_fixture("run")
