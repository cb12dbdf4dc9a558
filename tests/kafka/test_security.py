"""Errors in TLS and SASL settings are reported at once, with specific messages."""

from __future__ import annotations

import socketserver
import subprocess
import threading
from typing import Any

import pytest

from connectors import ConnectorError, open_sink
from connectors.kafka import KafkaSource, security
from connectors.kafka.clients import Brokers, describe
from connectors.kafka.security import check_settings, check_welcome
from tests.errors import raises
from tests.kafka.conftest import LOGINS

errors = pytest.importorskip("kafka.errors")

TLS = {"security_protocol": "SSL", "ssl_cafile": "{cert}"}
PLAIN = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "me", "sasl_plain_password": LOGINS["me"]}
SCRAM = PLAIN | {"sasl_mechanism": "SCRAM-SHA-256"}
CLEAR, SECURED = {"security_protocol": "SASL_PLAINTEXT"}, {"security_protocol": "SASL_SSL", "ssl_cafile": "{cert}"}
WRONG = {"sasl_plain_password": "hunter3"}
KEY = {"ssl_certfile": "{cert}", "ssl_keyfile": "{key}"}


@pytest.fixture(scope="module")
def places(listeners, tmp_path_factory) -> dict[str, str]:
    """Addresses of the listeners, and valid and invalid files."""
    folder = tmp_path_factory.mktemp("keys")
    other = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other"]
    other += ["-keyout", folder / "other.key", "-out", folder / "other.pem"]
    locked = ["rsa", "-aes256", "-passout", "pass:hunter5", "-in", listeners.key, "-out", folder / "locked.key"]
    for arguments in (other, locked):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)
    (folder / "text.pem").write_text("hunter6")
    found = {name: getattr(listeners, name) for name in ("address", "password", "secured", "tls")}
    return found | {"cert": str(listeners.certificate), "key": str(listeners.key), "folder": str(folder)}


def filled(options: dict[str, Any], places: dict[str, str]) -> dict[str, Any]:
    return {key: value.format(**places) if isinstance(value, str) else value for key, value in options.items()}


@pytest.mark.parametrize(
    ("listener", "options"),
    [
        ("address", {}),
        ("password", CLEAR | PLAIN),
        ("password", CLEAR | SCRAM),
        ("secured", SECURED | PLAIN),
        ("tls", TLS | KEY),
        ("tls", TLS | KEY | {"ssl_keyfile": "{folder}/locked.key", "ssl_password": "hunter5"}),
    ],
)
def test_brokers_talk_with_the_right_settings(places, listener, options):
    check_settings("here", filled(options, places))
    check_welcome("here", [places[listener]], filled(options, places))


REFUSALS = {
    "password wanted": ("password", {}, "security_protocol", "speaks SASL_PLAINTEXT, not PLAINTEXT"),
    "tls wanted": ("tls", {}, "security_protocol", "speaks SSL, not PLAINTEXT"),
    "no password there": ("address", CLEAR | PLAIN, "security_protocol", "speaks PLAINTEXT, not SASL_PLAINTEXT"),
    "tls for the password": ("secured", CLEAR | PLAIN, "security_protocol", "speaks SASL_SSL, not SASL_PLAINTEXT"),
    "plain, wrong password": ("password", CLEAR | PLAIN | WRONG, "sasl_plain_password", "'me'"),
    "scram, wrong password": ("password", CLEAR | SCRAM | WRONG, "sasl_plain_password", "'me'"),
    "scram, no such user": (
        "password",
        CLEAR | SCRAM | {"sasl_plain_username": "nobody"},
        "sasl_plain_username",
        "'nobody'",
    ),
    "mechanism not taken": ("secured", SECURED | SCRAM, "sasl_mechanism", "takes PLAIN"),
    "wrong authority": ("secured", SECURED | PLAIN | {"ssl_cafile": "{folder}/other.pem"}, "ssl_cafile", "other.pem"),
    "no authority": ("secured", {"security_protocol": "SASL_SSL"} | PLAIN, "ssl_cafile", "self-signed"),
    "certificate wanted": ("tls", TLS, "ssl_certfile", "asks for a certificate"),
    "certificate not known": (
        "tls",
        TLS | {"ssl_certfile": "{folder}/other.pem", "ssl_keyfile": "{folder}/other.key"},
        "ssl_certfile",
        "other.pem",
    ),
}


@pytest.mark.parametrize(("listener", "options", "option", "named"), REFUSALS.values(), ids=REFUSALS)
def test_settings_that_a_broker_refuses(places, listener, options, option, named):
    with raises(ConnectorError, reason="refused", option=option, named=named) as caught:
        KafkaSource(servers=places[listener], topic="t", **filled(options, places))
    assert places[listener] in str(caught.value)
    assert "hunter" not in str(caught.value)


def test_a_password_that_is_refused_later_is_no_missing_topic(places):
    options = filled(CLEAR | PLAIN | WRONG, places)
    with raises(ConnectorError, reason="refused", option="sasl_plain_password"):
        Brokers("here", [places["password"]], options).find_deleted({"t": 0})


def test_a_refused_login_is_described_once():
    failed = errors.SaslAuthenticationFailedError
    said = describe(failed("SaslAuthenticationFailedError: Invalid username or password"))
    assert said.count("Failed") == 1
    assert "`sasl_plain_password`" in said


def test_a_certificate_for_another_host(places):
    port = places["secured"].rpartition(":")[2]
    asked = filled(SECURED | PLAIN, places)
    with raises(ConnectorError, reason="refused", option="ssl_check_hostname"):
        open_sink(f"kafka://127.1:{port}/t", **asked)
    check_welcome("here", [f"127.1:{port}"], asked | {"ssl_check_hostname": False})


LOCAL = {
    "no such authority": (TLS | {"ssl_cafile": "/nowhere.pem"}, "read", "ssl_cafile"),
    "no such list": (TLS | {"ssl_crlfile": "/nowhere.crl"}, "read", "ssl_crlfile"),
    "no authority in it": (TLS | {"ssl_cafile": "{folder}/text.pem"}, "content", "ssl_cafile"),
    "no key in it": (TLS | KEY | {"ssl_keyfile": "{folder}/text.pem"}, "content", "ssl_keyfile"),
    "key of another": (TLS | KEY | {"ssl_keyfile": "{folder}/other.key"}, "content", "ssl_keyfile"),
    "key without password": (TLS | KEY | {"ssl_keyfile": "{folder}/locked.key"}, "content", "ssl_keyfile"),
    "key with a wrong one": (
        TLS | KEY | {"ssl_keyfile": "{folder}/locked.key", "ssl_password": "hunter3"},
        "content",
        "ssl_keyfile",
    ),
    "no such mechanism": (CLEAR | PLAIN | {"sasl_mechanism": "PLANE"}, "value", "sasl_mechanism"),
    "no mechanism": (CLEAR, "value", "sasl_mechanism"),
    "no user": (CLEAR | {"sasl_mechanism": "PLAIN"}, "needs", "sasl_plain_username"),
    "no password": (CLEAR | SCRAM | {"sasl_plain_password": ""}, "needs", "sasl_plain_password"),
    "a number for a password": (CLEAR | PLAIN | {"sasl_plain_password": 1}, "value", "sasl_plain_password"),
    "no token": (CLEAR | {"sasl_mechanism": "OAUTHBEARER"}, "needs", "sasl_oauth_token_provider"),
    "no such protocol": ({"security_protocol": "TLS"}, "value", "security_protocol"),
}


@pytest.mark.parametrize(("options", "reason", "option"), LOCAL.values(), ids=LOCAL)
def test_local_mistakes_are_reported_before_any_request(places, monkeypatch, options, reason, option):
    monkeypatch.setattr("socket.create_connection", None)
    with raises(ConnectorError, reason=reason, option=option) as caught:
        KafkaSource(servers="127.0.0.1:1", topic="t", **filled(options, places))
    assert "hunter" not in str(caught.value)


def test_one_broker_that_talks_is_enough(places):
    refusing, away = places["password"], "127.0.0.1:1"
    check_welcome("here", [away, refusing, places["address"]], {})
    check_welcome("here", [away], {})  # this is retried, but not here
    with raises(ConnectorError, reason="refused", option="security_protocol", named=refusing):
        check_welcome("here", [away, refusing], {})


class BadGateway(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(1000)
        self.request.sendall(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")


def test_a_port_that_answers_in_http_is_refused_unless_a_broker_has_answered_there(monkeypatch):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), BadGateway) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        try:
            with raises(ConnectorError, reason="refused", named=f"{address} answers, but not as a Kafka broker"):
                check_welcome("here", [address], {})
            monkeypatch.setattr(security, "_BROKERS", {address})
            assert check_welcome("here", [address], {}) is None
        finally:
            server.shutdown()
