"""Checks of the TLS and SASL settings, with the reason for a refusal.

The client repeats refused requests until a timeout and often loses the reason, because brokers close the connection
after it. Settings are therefore checked here first. Then each broker gets one login on a separate connection, with the
messages and mechanisms of the client.
"""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from connectors.errors import ConnectorError, OptionError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_RESPONSE_S = 3.0  # timeout of a response; the client waits for slower brokers
_NO_SASL, _OTHER_MECHANISM = 34, 33  # error codes of the protocol
_PACKAGES = {"GSSAPI": "gssapi", "AWS_MSK_IAM": "botocore"}
Ask = Callable[[Any], Any]
_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")
_BROKERS = set[str]()  # addresses at which a broker has answered


class _SettingRefused(Exception):
    """Raised if a broker rejects the connection settings; has the option to change."""

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message)
        self.option = option


# Settings ----------------------------------------------------------------------------------------------------------


def check_settings(name: str, options: Mapping[str, Any]) -> None:
    """Raise ConnectorError for invalid settings, such as missing files or mechanisms."""
    protocol = options.get("security_protocol", PROTOCOLS[0])
    if protocol not in PROTOCOLS:
        raise OptionError(name, "security_protocol", f"must be one of {', '.join(PROTOCOLS)}")
    if protocol.startswith("SASL"):
        _check_mechanism(name, options)
    if protocol.endswith("SSL"):
        tls_context(name, options)


def _check_mechanism(name: str, options: Mapping[str, Any]) -> None:
    from kafka.net.sasl import SASL_MECHANISMS

    mechanism = str(options.get("sasl_mechanism"))
    if mechanism not in SASL_MECHANISMS:
        what = f"must be one of {', '.join(sorted(SASL_MECHANISMS))}, not {mechanism!r}"
        raise OptionError(name, "sasl_mechanism", f"{what}, for security_protocol={options['security_protocol']}")
    package = _PACKAGES.get(mechanism)
    if package is not None and importlib.util.find_spec(package) is None:
        raise ConnectorError(f"{name}: sasl_mechanism={mechanism} needs the package {package}: pip install {package}")
    needed = ["sasl_plain_username", "sasl_plain_password"] if _is_checked(mechanism) else []
    needed += ["sasl_oauth_token_provider"] if mechanism == "OAUTHBEARER" else []
    if missing := [key for key in needed if not options.get(key)]:
        what = f"is missing for sasl_mechanism={mechanism}; set it in a file: client=FILE.toml"
        raise OptionError(name, missing[0], what, "needs")
    if _is_checked(mechanism) and (odd := [key for key in needed if not isinstance(options[key], str)]):
        raise OptionError(name, odd[0], "must be a text: in a file, in quotes")


def _is_checked(mechanism: str) -> bool:
    """Return whether a test login is possible without side effects."""
    return mechanism == "PLAIN" or mechanism.startswith("SCRAM")


def tls_context(name: str, options: Mapping[str, Any]) -> ssl.SSLContext:
    """Create the SSL context of the client; ConnectorError for invalid options."""
    if options.get("ssl_context") is not None:
        given: ssl.SSLContext = options["ssl_context"]
        return given
    authority, certificate, key, revoked = (options.get(option) for option in _FILES)
    for option in _FILES:
        if options.get(option):
            with _file(name, option, options[option]), open(options[option], "rb"):
                pass
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = bool(options.get("ssl_check_hostname", True))
    if authority:
        with _file(name, "ssl_cafile", authority):
            context.load_verify_locations(authority)
    else:
        context.load_default_certs()
    if certificate:
        with _file(name, "ssl_certfile" if not key else "ssl_keyfile", key or certificate):
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(certificate, key, options.get("ssl_password") or "")
    if revoked:
        with _file(name, "ssl_crlfile", revoked):
            context.load_verify_locations(revoked)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


@contextlib.contextmanager
def _file(name: str, option: str, path: str) -> Iterator[None]:
    """Convert errors to messages that name option and file, without OpenSSL's text.

    That text may contain a secret.
    """
    try:
        yield
    except ssl.SSLError as error:
        reason = error.reason or ""
        if reason == "KEY_VALUES_MISMATCH":
            what = "is the key of another certificate than that in `ssl_certfile`"
        elif option in ("ssl_keyfile", "ssl_certfile"):
            what = "holds no certificate or key that can be read (PEM; is `ssl_password` right?)"
        else:
            what = "holds nothing that can be read (PEM: a text that begins with -----BEGIN)"
        raise OptionError(name, option, f"is {path}, which {what}", "content") from None
    except OSError as error:
        raise OptionError(name, option, f"is {path}: {error.strerror or 'cannot be read'}", "read") from None


# Brokers ---------------------------------------------------------------------------------------------------------


def check_welcome(name: str, servers: Sequence[str], options: Mapping[str, Any]) -> str | None:
    """Return the first broker that accepts the settings; None if no broker responds.

    Raises
    ------
    ConnectorError
        If all brokers that respond reject the settings.
    """
    if options.get("proxy_url") or options.get("socks5_proxy"):
        return None
    pool = ThreadPoolExecutor(len(servers))
    try:
        attempts = {pool.submit(_try, name, server, options): server for server in servers}
        refusals = []
        for done in as_completed(attempts):
            error = done.exception()
            if error is None:
                return attempts[done]
            if isinstance(error, _SettingRefused):
                refusals.append((f"{attempts[done]} {error}", error.option))
            elif not isinstance(error, OSError):
                raise error
    finally:
        pool.shutdown(wait=False)
    if refusals:
        message, option = min(refusals)
        raise ConnectorError(f"{name}: {message}", "refused", option=option)
    return None


def _try(name: str, server: str, options: Mapping[str, Any]) -> None:
    """Connect to a broker up to the login, then disconnect."""
    protocol = options.get("security_protocol", PROTOCOLS[0])
    if (spoken := _protocol_of(server, protocol)) != protocol:
        is_login = spoken.startswith("SASL") and not protocol.startswith("SASL")
        more = ", with sasl_mechanism and credentials" if is_login else ""
        what = f"speaks {spoken}, not {protocol}: set security_protocol={spoken}{more}"
        raise _SettingRefused(what, "security_protocol")
    if protocol == PROTOCOLS[0]:
        return
    try:
        with _connected(server, tls_context(name, options) if protocol.endswith("SSL") else None) as ask:
            answer = _offer(ask, options.get("sasl_mechanism") or "")
            if answer.error_code == _OTHER_MECHANISM:
                taken = ", ".join(sorted(answer.mechanisms))
                what = f"does not take sasl_mechanism={options['sasl_mechanism']}: it takes {taken}"
                raise _SettingRefused(what, "sasl_mechanism")
            if protocol.startswith("SASL") and _is_checked(options["sasl_mechanism"]):
                _log_in(ask, options)
    except ssl.SSLCertVerificationError as error:
        raise _untrusted(error, options) from None
    except ssl.SSLError as error:
        reason, certificate = error.reason or "the handshake fails", options.get("ssl_certfile")
        if "ALERT" not in reason or not ("CERT" in reason or "UNKNOWN_CA" in reason):
            raise _SettingRefused(f"and this client agree on no TLS: {reason}", "") from None
        what = "asks for a certificate: give `ssl_certfile` and `ssl_keyfile`"
        what = what if certificate is None else f"does not accept the certificate of ssl_certfile={certificate}"
        raise _SettingRefused(what, "ssl_certfile") from None


def _log_in(ask: Ask, options: Mapping[str, Any]) -> None:
    from kafka.net.sasl import get_sasl_mechanism
    from kafka.protocol.sasl import SaslAuthenticateRequest

    mechanism, user = options["sasl_mechanism"], options.get("sasl_plain_username")
    login, rounds = get_sasl_mechanism(mechanism)(**options), 0
    while not login.is_done():
        answer = ask(SaslAuthenticateRequest(login.auth_bytes(), version=1))
        if answer.error_code:
            what, option = f"knows no user {user!r} for sasl_mechanism={mechanism}", "sasl_plain_username"
            if rounds:
                what, option = f"knows the user {user!r}, but refuses the password", "sasl_plain_password"
            elif mechanism == "PLAIN":  # brokers do not tell which of both is wrong
                what, option = (
                    f"refuses user {user!r} with this password, or there is no such user",
                    "sasl_plain_password",
                )
            raise _SettingRefused(f"{what}: `{option}` is wrong", option)
        rounds += 1
        login.receive(answer.auth_bytes)


def _protocol_of(server: str, protocol: str) -> str:
    """Return the security protocol of a port, trying the configured one first."""
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    is_tls, failure = protocol.endswith("SSL"), None
    for context in (blind, None) if is_tls else (None, blind):
        try:
            with _connected(server, context) as ask:
                sasl = "" if _offer(ask, "").error_code == _NO_SASL else "SASL_"
                _BROKERS.add(server)
                return sasl + ("PLAINTEXT" if context is None else "SSL")
        except (TimeoutError, ConnectionRefusedError):
            raise
        except (OSError, _InvalidResponse) as error:
            if "ALERT" in (getattr(error, "reason", None) or ""):  # for example, the broker requires a certificate
                return protocol if is_tls else "SSL"
            failure = error if failure is None or isinstance(error, _InvalidResponse) else failure
    if isinstance(failure, _InvalidResponse):
        if server in _BROKERS:  # a load balancer without brokers may answer with an error of HTTP
            raise ConnectionError("not a response of a broker") from failure
        raise _SettingRefused("answers, but not as a Kafka broker does: is it the right port?", "")
    assert failure is not None
    raise failure


def _untrusted(error: ssl.SSLCertVerificationError, options: Mapping[str, Any]) -> _SettingRefused:
    why = error.verify_message.rstrip(".")
    if "match" in why or "not valid for" in why:
        message = f"shows a certificate for another host ({why}); ask it by a name in it, or set ssl_check_hostname=no"
        return _SettingRefused(message, "ssl_check_hostname")
    authority = options.get("ssl_cafile")
    trusted = "by default" if authority is None else f"by ssl_cafile={authority}"
    message = f"shows a certificate that is not trusted {trusted} ({why}): is `ssl_cafile` that of its authority?"
    return _SettingRefused(message, "ssl_cafile")


class _InvalidResponse(Exception):
    """Raised if a response is not valid Kafka protocol."""


@contextlib.contextmanager
def _connected(server: str, context: ssl.SSLContext | None) -> Iterator[Ask]:
    """Connect to a broker; yield a function that sends a request and returns a reply."""
    from kafka.errors import KafkaError
    from kafka.protocol.parser import KafkaProtocol

    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    parser = KafkaProtocol(client_id="streamsvm", receive_message_max_bytes=1 << 20)
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(socket.create_connection((host, int(port)), _RESPONSE_S))
        if context is not None:
            line = stack.enter_context(context.wrap_socket(line, server_hostname=host.rstrip(".")))

        def ask(request: Any) -> Any:
            parser.send_request(request)
            line.sendall(parser.send_bytes())
            while data := line.recv(4096):
                try:
                    if answers := parser.receive_bytes(data):
                        return answers[0][1]
                except (KafkaError, ValueError, EOFError) as error:
                    raise _InvalidResponse from error
            raise ConnectionResetError("closed without an answer")

        yield ask


def _offer(ask: Ask, mechanism: str) -> Any:
    """Offer a SASL mechanism; return an error code and the supported mechanisms."""
    from kafka.protocol.sasl import SaslHandshakeRequest

    return ask(SaslHandshakeRequest(mechanism=mechanism, version=1))
