"""Client options, connections and error messages shared by source and sink."""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.errors import ConnectorError, OptionError, UnreachableError
from connectors.kafka.failures import error_names, is_transient
from connectors.kafka.security import check_settings, check_welcome
from connectors.options import Options

logger = logging.getLogger("connectors.kafka")

CONNECT_S = 10
"""Default timeout of the first response, if `bootstrap_timeout_ms` is not set."""

RESPONSE_S = 10
"""Timeout of a request about offsets or topics."""

SURE_S = 2.0
"""Pause before a second request for a topic that the broker does not know."""

_RIGHTS = {
    "TopicAuthorizationFailed": "READ a topic of events or WRITE one of results",
    "GroupAuthorizationFailed": "READ the group",
    "TransactionalIdAuthorizationFailed": "WRITE the transactional id",
}
_FRAME = 128  # bytes of a one-record batch in addition to its key and value
_SETTINGS = {"reconnect_backoff_max_ms": 1000, "request_timeout_ms": 10_000}
"""Defaults of all clients.

A broker that does not respond delays the others until its timeout.
"""

_CONNECTING = {"socket_connection_setup_timeout_ms": 3000, "socket_connection_setup_timeout_max_ms": 10_000}
_PAUSE_MS = 20
_OURS = {"bootstrap_servers", "enable_auto_commit", "key_deserializer", "value_deserializer", "consumer_timeout_ms"}
_OURS |= {"key_serializer", "value_serializer", "partitioner", "kafka_client", "selector", "acks", "enable_idempotence"}
_OURS |= {"retries", "metric_reporters", "partition_assignment_strategy", "default_offset_commit_callback"}
_OURS |= {"transactional_id"}


_REGISTRY = "schema_registry"
_REGISTRY_OPTIONS = {"basic_auth_user_info", "bearer_auth_token", "ssl_cafile", "ssl_certfile", "ssl_keyfile"}
_REGISTRY_OPTIONS |= {"ssl_password", "ssl_crlfile", "ssl_check_hostname"}


def import_kafka() -> Any:
    """Import the client library."""
    try:
        import kafka
    except ImportError as error:
        raise ConnectorError("Kafka needs kafka-python: pip install 'streamsvm[kafka]'") from error
    logging.getLogger("kafka").addHandler(logging.NullHandler())  # our own messages replace those of the client
    return kafka


def split_address(url: str) -> tuple[str, str]:
    """Split ``kafka://HOST:PORT,HOST:PORT/TOPIC`` into brokers and topic.

    Examples
    --------
    >>> split_address("kafka://a:9092,b:9092/clicks")
    ('a:9092,b:9092', 'clicks')
    """
    servers, slash, topic = url.removeprefix("kafka://").partition("/")
    if "@" in servers:  # and do not repeat what may be a password
        way = "set the options sasl_plain_username and sasl_plain_password, best in a file: client=FILE.toml"
        raise ConnectorError(f"kafka://: remove user and password from the URL; {way}", "address")
    if not servers or not slash or not topic or "/" in topic:
        raise ConnectorError(f"{url}: must read kafka://HOST:PORT,HOST:PORT/TOPIC", "address")
    return servers, topic


def server_list(servers: str | Sequence[str], name: str) -> list[str]:
    """Return the brokers as a list, each with its port."""
    listed = servers.split(",") if isinstance(servers, str) else list(servers)
    for server in listed:
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConnectorError(f"{name}: {server!r} must be HOST:PORT, as in localhost:9092", "address")
    return listed


def client_options(options: Options, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the Kafka client; they override ``client=FILE.toml``.

    Parameters
    ----------
    defaults
        Default configuration of the client, which gives the known options and their types.
    """
    path = options.text("client")
    known = set(defaults) - _OURS
    given = client_file(options.name, path)
    if strange := sorted(set(given) - known):
        raise OptionError(str(path), strange[0], "is not one of the Kafka client that can be set here", "unknown")
    given |= {key: options.value(key) for key in sorted(known) if options.has(key)}
    options.allow(known)
    client = {key: _typed(options.name, key, value, defaults[key]) for key, value in given.items()}
    check_settings(options.name, client)
    return client


def client_file(name: str, path: str | None) -> dict[str, Any]:
    """Read client options from a TOML file, without those of a schema registry.

    Parameters
    ----------
    name
        Name of the stream in messages.
    path
        Path of the file.
    """
    return {key: value for key, value in _toml(name, path).items() if key != _REGISTRY}


def registry_options(name: str, path: str | None) -> dict[str, Any]:
    """Read the table `schema_registry` of a client file."""
    found: dict[str, Any] = _toml(name, path).get(_REGISTRY, {})
    strange = sorted(set(found) - _REGISTRY_OPTIONS) if isinstance(found, dict) else [_REGISTRY]
    if strange:
        allowed = ", ".join(sorted(_REGISTRY_OPTIONS))
        what = f"is not one of a schema registry; the table may have {allowed}"
        raise OptionError(str(path), strange[0], what, "unknown")
    return found


def _toml(name: str, path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise OptionError(name, "client", f"is {path}: {error.strerror}", "read") from error
    except (ValueError, RecursionError):
        # The message of the parser may contain a part of the file, such as a secret.
        what = f'is {path}, which is not TOML (lines as sasl_mechanism = "PLAIN")'
        raise OptionError(name, "client", what, "not TOML") from None


def _typed(name: str, key: str, value: Any, default: Any) -> Any:
    """Convert a text to the type of the default value; return other values unchanged."""
    if not isinstance(value, str):
        return value
    if isinstance(default, bool):
        return Options(name, {key: value}).flag(key, default)
    if key == "api_version":
        return tuple(int(part) for part in value.split(".") if part.isdecimal())
    if isinstance(default, int | float) or key.endswith("_bytes"):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
            return int(number) if int(number) == number else number
        raise OptionError(name, key, f"must be a number, got {value!r}")
    return value


def named_servers(servers: str | Sequence[str], topic: str) -> tuple[list[str], str]:
    """Return the brokers as a list, and the URL of a topic without options."""
    listed = server_list(servers, f"kafka topic {topic}")
    return listed, f"kafka://{','.join(listed)}/{topic}"


@contextlib.contextmanager
def convert_errors(name: str, doing: str, may_pass: Callable[[BaseException], bool] = is_transient) -> Iterator[None]:
    """Convert client errors to ConnectorError, or UnreachableError if transient."""
    from kafka.errors import KafkaError

    try:
        yield
    except (KafkaError, OSError, ValueError, TypeError, RuntimeError) as error:
        kind = UnreachableError if may_pass(error) else ConnectorError
        raise kind(f"{name}: {doing}: {describe(error)}") from error


def describe(error: BaseException) -> str:
    """Describe a client error in one line."""
    kind = type(error).__name__.removesuffix("Error")
    text = str(error)
    text = text.split("] ", 1)[-1] if text.startswith("[Error") else text
    while text.startswith(name := type(error).__name__):
        text = text.removeprefix(name).removeprefix(":").strip()
    shown = f"{kind}: {text}" if text and text != "None" else kind
    if kind == "UnsupportedCodec":
        return f"{shown}; the libraries of all codecs come with pip install 'streamsvm[kafka]'"
    if kind == "SaslAuthenticationFailed":
        return f"{shown}; check `sasl_plain_username` and `sasl_plain_password`"
    if "InvalidTimestampError" in error_names(error):
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        return f"{shown}; check the clock of this machine: its time is {now} UTC"
    return f"{shown} (the user lacks the right, an ACL, to {_RIGHTS[kind]})" if kind in _RIGHTS else shown


def connect(name: str, servers: Sequence[str], make: Any, options: Mapping[str, Any]) -> Any:
    """Create a client, which connects to a broker within the timeout."""
    from kafka.errors import KafkaError, KafkaTimeoutError

    settings = {"bootstrap_timeout_ms": CONNECT_S * 1000, **_SETTINGS, **options}
    # The client may wait for a broker that does not respond, so it starts with one that does.
    first = check_welcome(name, servers, settings)
    try:
        return _make(make, servers if first is None else [first], settings)
    except KafkaTimeoutError as error:
        what = f"no broker responded within {settings['bootstrap_timeout_ms'] / 1000:g} s"
        if unknown := unknown_hosts(servers):
            message = f"{name}: {what}: unknown host {' and '.join(unknown)}: check the name"
            raise UnreachableError(message, "unknown host") from error
        way = "check that one runs there, and check the port, `security_protocol` and credentials"
        raise UnreachableError(f"{name}: {what}: {way} ({describe(error)})", "no answer") from error
    except (KafkaError, OSError, ValueError, TypeError, AssertionError, RuntimeError) as error:
        raise ConnectorError(f"{name}: the Kafka client refuses: {describe(error)}") from error


def unknown_hosts(servers: Sequence[str]) -> list[str]:
    """Return the host names for which there is no address."""
    unknown = []
    for server in servers:
        host = server.rpartition(":")[0].strip("[]")
        try:
            socket.getaddrinfo(host, None)
        except socket.gaierror:
            unknown.append(host)
    return unknown


def _make(make: Any, servers: Sequence[str], settings: Mapping[str, Any]) -> Any:
    """Create a client; on failure, close its connections and thread."""
    made: list[Any] = []

    def network(**config: Any) -> Any:
        made.append(_network()(**{**config, **_CONNECTING}))
        return made[0]

    try:
        return make(bootstrap_servers=list(servers), kafka_client=network, **settings)
    except BaseException:
        for client in made:
            client.close()
        raise


@functools.cache
def _network() -> type[Any]:
    """Return a network client that reports connection errors as not ready."""
    from kafka.errors import KafkaConnectionError
    from kafka.net.compat import KafkaNetClient

    class Network(KafkaNetClient):  # type: ignore[misc]
        def await_ready(self, node_id: Any, timeout_ms: float = 30_000) -> bool:
            """Return whether a broker is connected in time.

            A producer that receives the error, for example because its coordinator stopped, loses its current request
            and waits for the response forever.
            """
            try:
                return bool(super().await_ready(node_id, timeout_ms))
            except KafkaConnectionError:
                self.poll(timeout_ms=_PAUSE_MS)  # otherwise a producer without brokers would ask again without a pause
                return False

    return Network


@dataclass(frozen=True, slots=True)
class Brokers:
    """Addresses of brokers and client options.

    Parameters
    ----------
    name
        Name of the stream in messages.
    servers
        Broker addresses.
    client
        Client options.
    """

    name: str
    servers: list[str]
    client: Mapping[str, Any]

    def open(self, kind: str, **settings: Any) -> Any:
        """Create a client, such as KafkaConsumer, with the settings that it supports."""
        make = getattr(import_kafka(), kind)
        shared = {key: value for key, value in {**self.client, **settings}.items() if key in make.DEFAULT_CONFIG}
        return connect(self.name, self.servers, make, shared)

    def admin(self, **settings: Any) -> Any:
        """Create an admin client."""
        return self.open("KafkaAdminClient", **settings)

    def find_topic(self, client: Any, topic: str) -> tuple[Topic | None, str]:
        """Return a topic (None if it does not exist) and the cluster id."""
        found = describe_topic(client, self.name, topic)
        with convert_errors(self.name, "the cluster cannot be described"):
            return found, client.describe_cluster()["cluster_id"]

    def find_deleted(self, topics: Mapping[str, int]) -> str | None:
        """Return a topic that does not exist, else None.

        The topics have their former numbers of partitions: a topic with fewer ones has been deleted and recreated. A
        second request confirms the result, because brokers that start may not know a topic yet.

        Raises
        ------
        ConnectorError
            If the brokers refuse the password or certificate.
        """
        if missing := self._missing(topics):
            time.sleep(SURE_S)
            missing = self._missing(missing)
        return next(iter(missing), None)

    def _missing(self, topics: Mapping[str, int]) -> dict[str, int]:
        try:
            with contextlib.closing(self.admin(bootstrap_timeout_ms=2000)) as client:
                found = {topic: describe_topic(client, self.name, topic) for topic in topics}
                return {
                    topic: n for topic, n in topics.items() if (of := found[topic]) is None or len(of.partitions) < n
                }
        except ConnectorError as error:
            if error.reason == "refused":  # the client itself would report a timeout
                raise
            return {}


@dataclass(frozen=True, slots=True)
class Topic:
    """Partitions of a topic, and its id if known.

    The id changes if the topic is deleted and created again.
    """

    partitions: list[int]
    id: str | None


def describe_topic(client: Any, name: str, topic: str) -> Topic | None:
    """Describe a topic without creating it; return None if it does not exist."""
    from kafka.errors import for_code

    with convert_errors(name, "the topic cannot be described"):
        found = client.describe_topics([topic])[0]
        kind = for_code(found["error_code"])
        if kind.__name__ == "UnknownTopicOrPartitionError":
            return None
        if found["error_code"]:
            raise kind(f"topic {topic!r}")
        partitions = sorted(partition["partition_index"] for partition in found["partitions"])
    return Topic(partitions, None if found.get("topic_id") is None else str(found["topic_id"]))


def topic_setting(client: Any, topic: str, setting: str) -> str:
    """Return a setting of a topic, an empty text if it is unknown."""
    from kafka.admin import ConfigResource
    from kafka.errors import KafkaError

    resource = ConfigResource("topic", topic, [setting])
    try:
        return str(client.describe_configs([resource], config_filter="all")["topic"][topic][setting]["value"])
    except (KafkaError, KeyError, TypeError):
        return ""


def largest_record(client: Any, topic: str) -> int | None:
    """Return the maximum size of a record (key and value), None if it is unknown."""
    size = topic_setting(client, topic, "max.message.bytes")
    return int(size) - _FRAME if size.isdecimal() else None
