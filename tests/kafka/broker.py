"""Kafka broker on loopback for tests: one process in KRaft mode.

``python tests/kafka/broker.py`` starts a broker on localhost:9092 and stops it at Ctrl-C. With ``--brokers 3`` it
starts a cluster, on this port and the next ones. It needs Java 17 and Maven, which downloads the broker once (43 MB) to
~/.cache/streamsvm-kafka.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

POM = Path(__file__).with_name("pom.xml")
READY_S = 60.0
ARCHIVE_S = 20.0
_BRIEF = ("-XX:TieredStopAtLevel=1", "-Xshare:auto")
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/logs
num.partitions=3
offsets.topic.num.partitions=5
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
log.retention.ms=-1
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
broker.session.timeout.ms=6000
broker.heartbeat.interval.ms=400
metadata.max.idle.interval.ms=0
"""


_SECURED = """\
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},\
PASSWORD://127.0.0.1:{password},SECURED://127.0.0.1:{secured},TLS://127.0.0.1:{tls}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},\
PASSWORD://127.0.0.1:{password},SECURED://127.0.0.1:{secured},TLS://127.0.0.1:{tls}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,\
PASSWORD:SASL_PLAINTEXT,SECURED:SASL_SSL,TLS:SSL
listener.name.password.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.password.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required {users};
listener.name.password.scram-sha-256.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secured.sasl.enabled.mechanisms=PLAIN
listener.name.secured.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required {users};
ssl.keystore.type=PEM
ssl.keystore.location={folder}/keystore.pem
listener.name.tls.ssl.truststore.type=PEM
listener.name.tls.ssl.truststore.location={folder}/certificate.pem
listener.name.tls.ssl.client.auth=required
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:CN=localhost;User:{super}
"""

_CLUSTERED = """\
node.id={node}
controller.quorum.voters={voters}
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
broker.session.timeout.ms={session_ms}
broker.heartbeat.interval.ms={heartbeat_ms}
"""


class NoBroker(Exception):
    """Why no broker is available."""


class Broker:
    """A broker process with its data in a temporary directory.

    Parameters
    ----------
    port
        Port to listen on; any free one by default.
    brief
        Whether the broker is short-lived: it starts sooner, and is slower later.
    logins
        Users and their passwords. The first user has all permissions, the others have those of ACLs; users without a
        password have all. This adds three listeners, which need openssl: `password` (SASL_PLAINTEXT with PLAIN and
        SCRAM-SHA-256), `secured` (SASL_SSL with PLAIN) and `tls` (SSL, which requires a client certificate).
        `certificate` is trusted by clients and, with its `key`, by the broker.
    member
        Cluster settings of the broker, if it belongs to one. It is then not started.
    """

    def __init__(
        self,
        port: int | None = None,
        *,
        brief: bool = False,
        logins: Mapping[str, str] | None = None,
        member: Member | None = None,
    ) -> None:
        self._jars, self._heap = jars(), "384m" if member else "1g"
        self._brief: tuple[str, ...] = _BRIEF if brief else ()
        self._folder = Path(tempfile.mkdtemp(prefix="streamsvm-kafka-"))
        # The first brief broker archives the classes that it loaded, so that later ones start in half the time.
        self._classes, self._archive = self._jars / "classes.jsa", self._jars / f"{self._folder.name}.jsa"
        has_archive = self._classes.is_file()
        self._archives = brief and not has_archive and os.access(self._jars, os.W_OK)
        if brief and has_archive:
            self._brief += (f"-XX:SharedArchiveFile={self._classes}",)
        ports = free_ports(5)
        self.port = port or ports[0]
        self.address = f"127.0.0.1:{self.port}"
        self._settings = self._folder / "server.properties"
        if member is not None:
            ports[1] = member.controller
        settings = _SETTINGS.format(port=self.port, controller=ports[1], folder=self._folder)
        if member is not None:
            settings += member.settings  # the last of two lines applies
        scram: list[str] = []
        if logins:
            of = {"port": self.port, "controller": ports[1], "password": ports[2], "secured": ports[3], "tls": ports[4]}
            self.password, self.secured, self.tls = (f"127.0.0.1:{of[name]}" for name in ("password", "secured", "tls"))
            self.certificate, self.key = self._certificate()
            users = " ".join(f'user_{user}="{password}"' for user, password in logins.items())
            settings += _SECURED.format(users=users, super=next(iter(logins)), folder=self._folder, **of)
            scram = [f"-S=SCRAM-SHA-256=[name={user},password={password}]" for user, password in logins.items()]
        self._settings.write_text(settings)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            name = cluster_id() if member is None else member.cluster
            self._tool("format", f"--cluster-id={name}", "-c", str(self._settings), *scram)
            if member is None:
                self.start()
        except BaseException:
            self.close()
            raise

    def _certificate(self) -> tuple[Path, Path]:
        """Create a self-signed certificate with its key, and the broker's key store."""
        key, certificate = self._folder / "key.pem", self._folder / "certificate.pem"
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
        command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(command, capture_output=True, check=True)
        (self._folder / "keystore.pem").write_text(key.read_text() + certificate.read_text())
        return certificate, key

    def _tool(self, *arguments: str) -> None:
        command = ["java", *(self._brief or _BRIEF), "-cp", f"{self._jars}/*", "kafka.tools.StorageTool", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._folder)
        if done.returncode < 0 and len(self._brief) > len(_BRIEF):  # Java crashed: the archive is corrupt
            self._brief = _BRIEF
            with contextlib.suppress(OSError):
                self._classes.unlink()
            return self._tool(*arguments)
        if done.returncode:
            raise NoBroker(f"kafka.tools.StorageTool {arguments[0]} failed: {done.stderr or done.stdout}")

    def start(self) -> None:
        """Start the process with the existing data, and wait until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start the process."""
        options = [f"-Xmx{self._heap}", "-XX:+UseSerialGC", *self._brief, "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        options += [f"-XX:ArchiveClassesAtExit={self._archive}"] * self._archives
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                ["java", *options, "-cp", f"{self._jars}/*", "kafka.Kafka", str(self._settings)],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                start_new_session=True,  # Ctrl-C is for the user's process
            )

    def wait(self) -> None:
        """Wait until the broker answers."""
        deadline = time.monotonic() + READY_S
        while not answers(self.address):
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise NoBroker(f"the broker does not start:\n{self.log()[-3000:]}")
            time.sleep(0.05)

    def log(self) -> str:
        """Return the output of the process."""
        return (self._folder / "log").read_text(errors="replace")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Kill the process. The data remains."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Suspend the process: it keeps its connections and does not answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the process."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop the process and remove its data."""
        if self._archives and self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired, OSError):  # a broker may be suspended
                if self._process.wait(ARCHIVE_S) == 128 + signal.SIGTERM:  # otherwise the archive may be incomplete
                    self._archive.replace(self._classes)
            self._archive.unlink(missing_ok=True)
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class Member(NamedTuple):
    """Settings of a broker in a cluster."""

    cluster: str
    controller: int
    settings: str


class Cluster:
    """Brokers with three replicas of each record, of which two must be in sync.

    Parameters
    ----------
    port
        Port of the first broker; the others use the next ones. Any free ports by default.
    brief
        See `Broker`.
    session_ms
        Time in ms after which the cluster replaces a silent broker; by default that of Kafka.
    """

    def __init__(self, port: int | None = None, *, brief: bool = False, session_ms: int = 9000) -> None:
        ports, name = free_ports(6), cluster_id()
        if port is not None:
            ports[:3] = range(port, port + 3)
        voters = ",".join(f"{i + 1}@127.0.0.1:{controller}" for i, controller in enumerate(ports[3:]))
        of = {"voters": voters, "session_ms": session_ms, "heartbeat_ms": session_ms // 5}
        self.brokers: list[Broker] = []
        try:
            for i, controller in enumerate(ports[3:]):
                member = Member(name, controller, _CLUSTERED.format(node=i + 1, **of))
                self.brokers.append(Broker(ports[i], brief=brief, member=member))
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.wait()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        """All addresses, separated by commas."""
        return ",".join(broker.address for broker in self.brokers)

    def settle(self) -> None:
        """Wait until every broker has all replicas, so that one may stop."""
        deadline = time.monotonic() + 2 * READY_S
        while not in_sync(self.address):
            if time.monotonic() > deadline:
                raise NoBroker("the brokers of the cluster do not come in sync")
            time.sleep(0.5)

    def close(self) -> None:
        """Stop the processes and remove their data."""
        for broker in self.brokers:
            broker.close()


def cluster_id() -> str:
    """Create an id without a leading dash, which the tool would parse as an option."""
    while (name := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return name


@contextlib.contextmanager
def admin(addresses: str, **options: Any) -> Iterator[Any]:
    """A client for changes of a cluster."""
    from kafka import KafkaAdminClient

    with contextlib.closing(KafkaAdminClient(bootstrap_servers=addresses.split(","), **options)) as client:
        yield client


def answers(address: str) -> bool:
    """Return whether a broker knows its cluster and can store offsets."""
    from kafka.errors import KafkaError

    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, KafkaError, ValueError):
        with socket.create_connection((host, int(port)), timeout=1):
            pass
        with admin(address, bootstrap_timeout_ms=5000, request_timeout_ms=5000) as client:
            return bool(client.describe_cluster()["brokers"])
    return False


def in_sync(addresses: str) -> bool:
    """Return whether all replicas of each partition are in sync."""
    from kafka.errors import KafkaError

    with contextlib.suppress(KafkaError), admin(addresses, request_timeout_ms=5000) as client:
        partitions = [partition for topic in client.describe_topics() for partition in topic["partitions"]]
        return all(set(each["isr_nodes"]) == set(each["replica_nodes"]) for each in partitions)
    return False


def free_ports(n: int) -> list[int]:
    """Return free ports below the ephemeral range, for restarts on the same port."""
    found: list[int] = []
    candidates = list(range(20_000, 32_000))
    random.SystemRandom().shuffle(candidates)
    for port in candidates:
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == n:
            return found
    raise NoBroker("no port of 20000-31999 is free")


def jars() -> Path:
    """Return the directory of the broker's jars. Maven downloads them the first time."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "streamsvm-kafka"
    folder = cache / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]
    if "java" in missing or (missing and not folder.is_dir()):
        raise NoBroker(f"a Kafka broker needs {' and '.join(missing)}: install Java 17 and Maven")
    if folder.is_dir():  # the cache may be read-only
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "lock"):
        if not folder.is_dir():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent) as halfway:
        target = Path(halfway) / "jars"
        command = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoBroker(f"Maven cannot fetch the broker: {(done.stdout + done.stderr)[-2000:]}")
        target.rename(folder)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Run a broker until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Run a Kafka broker on this machine until Ctrl-C.")
    parser.add_argument("--port", type=int, default=9092)
    parser.add_argument(
        "--topics", default="events,predictions", help="topics to make, of three partitions each (default %(default)s)"
    )
    parser.add_argument("--brokers", type=int, choices=(1, 3), default=1, help="how many (default %(default)s)")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    start = Broker if args.brokers == 1 else Cluster
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(start(args.port)) as broker:
        make_topics(broker.address, *filter(None, args.topics.split(",")), copies=args.brokers)
        print(f"a Kafka broker listens on {broker.address} (Ctrl-C stops it and removes its data)", flush=True)
        signal.pause()


def make_topics(address: str, *names: str, partitions: int = 3, copies: int = 1, **configs: str) -> None:
    """Create topics, and wait until they are available."""
    of = {"num_partitions": partitions, "replication_factor": copies, "configs": configs}
    if names:
        with admin(address) as client:
            client.create_topics(dict.fromkeys(names, of))
            client.wait_for_topics(list(names))


if __name__ == "__main__":
    main()
