"""Errors in TLS and SASL settings are reported at once, with specific messages."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from connectors import ConnectorError, open_sink
from connectors.kafka import KafkaSource
from connectors.kafka.security import check_settings, check_welcome
from tests.kafka.conftest import LOGINS

pytest.importorskip("kafka")

TLS = {"security_protocol": "SSL", "ssl_cafile": "{cert}"}
PLAIN = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "me", "sasl_plain_password": LOGINS["me"]}
SCRAM = PLAIN | {"sasl_mechanism": "SCRAM-SHA-256"}
CLEAR, SECURED = {"security_protocol": "SASL_PLAINTEXT"}, {"security_protocol": "SASL_SSL", "ssl_cafile": "{cert}"}
WRONG = {"sasl_plain_password": "hunter3"}
KEY = {"ssl_certfile": "{cert}", "ssl_keyfile": "{key}"}


@pytest.fixture(scope="module")
def places(started, tmp_path_factory) -> dict[str, str]:
    """Addresses of the listeners, and valid and invalid files."""
    if started is None or not hasattr(started, "secured"):
        pytest.skip("needs openssl, and a broker of its own")
    folder = tmp_path_factory.mktemp("keys")
    other = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other"]
    subprocess.run(
        [*other, "-keyout", folder / "other.key", "-out", folder / "other.pem"], check=True, capture_output=True
    )
    locked = [
        "openssl",
        "rsa",
        "-aes256",
        "-passout",
        "pass:hunter5",
        "-in",
        started.key,
        "-out",
        folder / "locked.key",
    ]
    subprocess.run(locked, check=True, capture_output=True)
    (folder / "text.pem").write_text("hunter6")
    found = {name: getattr(started, name) for name in ("address", "password", "secured", "tls")}
    return found | {"cert": str(started.certificate), "key": str(started.key), "folder": str(folder)}


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
    "password wanted": ("password", {}, "speaks SASL_PLAINTEXT, not PLAINTEXT.*with sasl_mechanism and credentials"),
    "tls and password wanted": ("secured", {}, "speaks SASL_SSL, not PLAINTEXT"),
    "tls wanted": ("tls", {}, "speaks SSL, not PLAINTEXT: say security_protocol=SSL"),
    "no tls there": ("address", TLS, "speaks PLAINTEXT, not SSL"),
    "no password there": ("address", CLEAR | PLAIN, "speaks PLAINTEXT, not SASL_PLAINTEXT"),
    "tls for the password": ("secured", CLEAR | PLAIN, "speaks SASL_SSL, not SASL_PLAINTEXT"),
    "password for the tls": ("secured", TLS, "speaks SASL_SSL, not SSL"),
    "plain, wrong password": ("password", CLEAR | PLAIN | WRONG, "refuses user 'me' with this password: with PLAIN"),
    "scram, wrong password": ("password", CLEAR | SCRAM | WRONG, "knows the user 'me', but refuses the password"),
    "scram, no such user": ("password", CLEAR | SCRAM | {"sasl_plain_username": "nobody"}, "knows no user 'nobody'"),
    "mechanism not taken": ("secured", SECURED | SCRAM, "does not take sasl_mechanism=SCRAM-SHA-256: it takes PLAIN"),
    "wrong authority": (
        "secured",
        SECURED | PLAIN | {"ssl_cafile": "{folder}/other.pem"},
        "shows a certificate that is not trusted by ssl_cafile=.*other.pem",
    ),
    "no authority": (
        "secured",
        {"security_protocol": "SASL_SSL"} | PLAIN,
        "shows a certificate that is not trusted by default .self-signed",
    ),
    "certificate wanted": ("tls", TLS, "asks for a certificate: give `ssl_certfile`"),
    "certificate not known": (
        "tls",
        TLS | {"ssl_certfile": "{folder}/other.pem", "ssl_keyfile": "{folder}/other.key"},
        "does not accept the certificate of ssl_certfile=.*other.pem",
    ),
}


@pytest.mark.parametrize(("listener", "options", "message"), REFUSALS.values(), ids=REFUSALS)
def test_what_a_broker_refuses(places, listener, options, message):
    with pytest.raises(ConnectorError, match=f"{places[listener]} {message}") as caught:
        KafkaSource(servers=places[listener], topic="t", **filled(options, places))
    assert "hunter" not in str(caught.value)


def test_a_certificate_for_another_host(places):
    port = places["secured"].rpartition(":")[2]
    asked = filled(SECURED | PLAIN, places)
    with pytest.raises(ConnectorError, match="shows a certificate for another host"):
        open_sink(f"kafka://127.1:{port}/t", **asked)
    check_welcome("here", [f"127.1:{port}"], asked | {"ssl_check_hostname": False})


LOCAL = {
    "no such authority": (TLS | {"ssl_cafile": "/nowhere.pem"}, "`ssl_cafile`: /nowhere.pem: No such file"),
    "no such certificate": (TLS | {"ssl_certfile": "/nowhere.pem"}, "`ssl_certfile`: /nowhere.pem: No such file"),
    "no such key": (TLS | {"ssl_certfile": "{cert}", "ssl_keyfile": "/nowhere.key"}, "`ssl_keyfile`: /nowhere.key: No"),
    "no such list": (TLS | {"ssl_crlfile": "/nowhere.crl"}, "`ssl_crlfile`: /nowhere.crl: No such file"),
    "no authority in it": (TLS | {"ssl_cafile": "{folder}/text.pem"}, "`ssl_cafile`: .*text.pem holds nothing"),
    "no key in it": (TLS | KEY | {"ssl_keyfile": "{folder}/text.pem"}, "`ssl_keyfile`: .*text.pem holds no"),
    "key of another": (TLS | KEY | {"ssl_keyfile": "{folder}/other.key"}, "is the key of another certificate"),
    "key without password": (TLS | KEY | {"ssl_keyfile": "{folder}/locked.key"}, "is `ssl_password` right"),
    "key with a wrong one": (
        TLS | KEY | {"ssl_keyfile": "{folder}/locked.key", "ssl_password": "hunter3"},
        "is `ssl_password` right",
    ),
    "no such mechanism": (CLEAR | PLAIN | {"sasl_mechanism": "PLANE"}, "`sasl_mechanism` must be one of.*not 'PLANE'"),
    "no mechanism": (CLEAR, "with security_protocol=SASL_PLAINTEXT, `sasl_mechanism` must be one of"),
    "no user": (CLEAR | {"sasl_mechanism": "PLAIN"}, "PLAIN needs `sasl_plain_username`"),
    "no password": (CLEAR | SCRAM | {"sasl_plain_password": ""}, "SCRAM-SHA-256 needs `sasl_plain_password`"),
    "a number for a password": (CLEAR | PLAIN | {"sasl_plain_password": 1}, "`sasl_plain_password` must be a text"),
    "no token": (CLEAR | {"sasl_mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs `sasl_oauth_token_provider`"),
    "no such protocol": ({"security_protocol": "TLS"}, "`security_protocol` must be one of PLAINTEXT, SSL"),
}


@pytest.mark.parametrize(("options", "message"), LOCAL.values(), ids=LOCAL)
def test_what_is_wrong_here_is_said_before_anything_is_asked(places, monkeypatch, options, message):
    monkeypatch.setattr("socket.create_connection", None)
    with pytest.raises(ConnectorError, match=message) as caught:
        KafkaSource(servers="127.0.0.1:1", topic="t", **filled(options, places))
    assert "hunter" not in str(caught.value)


def test_one_broker_that_talks_is_enough(places):
    refusing, away = places["password"], "127.0.0.1:1"
    check_welcome("here", [away, refusing, places["address"]], {})
    check_welcome("here", [away], {})  # this is retried, but not here
    with pytest.raises(ConnectorError, match=f"{refusing} speaks"):
        check_welcome("here", [away, refusing], {})
