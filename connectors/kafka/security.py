"""Whether brokers will talk with these settings of TLS and SASL, and if not, why.

The client tries again whatever a broker refuses, says in the end that nobody answered, and often misses the reason, as
brokers close the connection right behind it. So what can be looked at here is checked before anything is asked, and
then each broker is asked once, on a connection of its own, with the client's own messages and mechanisms.
"""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from connectors.errors import ConnectorError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

_ANSWER_S = 3.0  # that a broker may take; one that takes longer is left to the client
_NO_SASL, _OTHER_MECHANISM = 34, 33  # error codes of the protocol
_PACKAGES = {"GSSAPI": "gssapi", "AWS_MSK_IAM": "botocore"}
_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_crlfile")


class _Refused(Exception):
    """Raised if a broker rejects the connection settings."""


# Before anything is asked ----------------------------------------------------------------------------------------


def check_settings(name: str, options: Mapping[str, Any]) -> None:
    """Raise ConnectorError for invalid settings, such as missing files or mechanisms."""
    protocol = options.get("security_protocol", PROTOCOLS[0])
    if protocol not in PROTOCOLS:
        raise ConnectorError(f"{name}: `security_protocol` must be one of {', '.join(PROTOCOLS)}")
    if _with_password(protocol):
        _check_mechanism(name, options)
    if _with_tls(protocol):
        tls_context(name, options)


def _with_tls(protocol: str) -> bool:
    return protocol.endswith("SSL")


def _with_password(protocol: str) -> bool:
    return protocol.startswith("SASL")


def _check_mechanism(name: str, options: Mapping[str, Any]) -> None:
    from kafka.net.sasl import SASL_MECHANISMS

    mechanism = str(options.get("sasl_mechanism"))
    if mechanism not in SASL_MECHANISMS:
        raise ConnectorError(
            f"{name}: with security_protocol={options['security_protocol']}, `sasl_mechanism` must be one of "
            f"{', '.join(sorted(SASL_MECHANISMS))}" + (f", not {mechanism!r}" if options.get("sasl_mechanism") else "")
        )
    package = _PACKAGES.get(mechanism)
    if package is not None and importlib.util.find_spec(package) is None:
        raise ConnectorError(f"{name}: sasl_mechanism={mechanism} needs the package {package}: pip install {package}")
    needed = ["sasl_plain_username", "sasl_plain_password"] if _is_checked(mechanism) else []
    needed += ["sasl_oauth_token_provider"] if mechanism == "OAUTHBEARER" else []
    if missing := [key for key in needed if not options.get(key)]:
        raise ConnectorError(
            f"{name}: sasl_mechanism={mechanism} needs `{missing[0]}`, best in a file: client=FILE.toml"
        )
    if _is_checked(mechanism) and (odd := [key for key in needed if not isinstance(options[key], str)]):
        raise ConnectorError(f"{name}: option `{odd[0]}` must be a text: in a file, in quotes")


def _is_checked(mechanism: str) -> bool:
    """Return whether a test login is possible without side effects."""
    return mechanism == "PLAIN" or mechanism.startswith("SCRAM")


def tls_context(name: str, options: Mapping[str, Any]) -> ssl.SSLContext:
    """Create the SSL context of the client; raise ConnectorError for an invalid option."""
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
        raise ConnectorError(f"{name}: option `{option}`: {path} {what}") from None
    except OSError as error:
        raise ConnectorError(f"{name}: option `{option}`: {path}: {error.strerror or 'cannot be read'}") from None


# Asking ----------------------------------------------------------------------------------------------------------


def check_welcome(name: str, servers: Sequence[str], options: Mapping[str, Any]) -> None:
    """Raise ConnectorError if all brokers that respond reject the settings.

    This returns as soon as one broker accepts them.
    """
    if options.get("proxy_url") or options.get("socks5_proxy"):
        return
    pool = ThreadPoolExecutor(len(servers))
    try:
        asked = {pool.submit(_try, name, server, options): server for server in servers}
        refusals = []
        for done in as_completed(asked):
            error = done.exception()
            if error is None:
                return
            if isinstance(error, _Refused):
                refusals.append(f"{asked[done]} {error}")
            elif not isinstance(error, OSError):
                raise error
    finally:
        pool.shutdown(wait=False)
    if refusals:
        raise ConnectorError(f"{name}: {min(refusals)}")


def _try(name: str, server: str, options: Mapping[str, Any]) -> None:
    """Connect to a broker up to the login, then disconnect."""
    protocol = options.get("security_protocol", PROTOCOLS[0])
    context = tls_context(name, options) if _with_tls(protocol) else None
    try:
        with _Line(server, context) as line:
            code, mechanisms = line.offer(options.get("sasl_mechanism") or "")
            found = _protocol(context is not None, code)
            if found != protocol:
                raise _Refused(_other(found, protocol))
            if _with_password(protocol):
                _log_in(line, code, mechanisms, options)
    except ssl.SSLCertVerificationError as error:
        raise _Refused(_untrusted(error, options)) from None
    except (OSError, _Garbled) as error:
        if isinstance(error, TimeoutError | ConnectionRefusedError):
            raise
        reason = getattr(error, "reason", None) or ""
        if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
            raise _Refused(_unknown_client(options)) from None
        spoken = _spoken(server)
        if spoken is not None and spoken != protocol:
            raise _Refused(_other(spoken, protocol)) from None
        if isinstance(error, _Garbled):
            raise _Refused("answers, but not as a Kafka broker does: is it the right port?") from None
        if spoken is not None and isinstance(error, ssl.SSLError):
            raise _Refused(f"and this client agree on no TLS: {reason or 'the handshake fails'}") from None
        raise


def _log_in(line: _Line, code: int, mechanisms: Sequence[str], options: Mapping[str, Any]) -> None:
    from kafka.net.sasl import get_sasl_mechanism

    mechanism, user = options["sasl_mechanism"], options.get("sasl_plain_username")
    if code == _OTHER_MECHANISM:
        raise _Refused(f"does not take sasl_mechanism={mechanism}: it takes {', '.join(sorted(mechanisms))}")
    if not _is_checked(mechanism):
        return
    login = get_sasl_mechanism(mechanism)(**options)
    rounds = 0
    while not login.is_done():
        answer = line.authenticate(login.auth_bytes())
        if answer is None:
            break
        rounds += 1
        login.receive(answer)
    else:
        return
    if mechanism == "PLAIN":
        raise _Refused(
            f"refuses user {user!r} with this password: with PLAIN, brokers do not say whether there is no such user "
            "or `sasl_plain_password` is wrong"
        )
    if rounds == 0:
        raise _Refused(f"knows no user {user!r} for sasl_mechanism={mechanism}")
    raise _Refused(f"knows the user {user!r}, but refuses the password: `sasl_plain_password` is wrong")


def _protocol(tls: bool, code: int) -> str:
    """Return the security protocol of a port by its error code for a SASL mechanism."""
    return ("" if code == _NO_SASL else "SASL_") + ("SSL" if tls else "PLAINTEXT")


def _spoken(server: str) -> str | None:
    """Return the security protocol of a port, None if it is unknown."""
    blind = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
    for context in (None, blind):
        try:
            with _Line(server, context) as line:
                return _protocol(context is not None, line.offer("")[0])
        except ssl.SSLError as error:
            if "ALERT" in (error.reason or ""):  # as where it asks for a certificate
                return "SSL"
        except (OSError, _Garbled):
            continue
    return None


def _other(found: str, protocol: str) -> str:
    return f"speaks {found}, not {protocol}: say security_protocol={found}" + (
        ", with sasl_mechanism and credentials" if _with_password(found) and not _with_password(protocol) else ""
    )


def _untrusted(error: ssl.SSLCertVerificationError, options: Mapping[str, Any]) -> str:
    why = error.verify_message.rstrip(".")
    if "match" in why or "not valid for" in why:
        return f"shows a certificate for another host ({why}); ask it by a name in it, or say ssl_check_hostname=no"
    authority = options.get("ssl_cafile")
    trusted = "by default" if authority is None else f"by ssl_cafile={authority}"
    return f"shows a certificate that is not trusted {trusted} ({why}): is `ssl_cafile` that of its authority?"


def _unknown_client(options: Mapping[str, Any]) -> str:
    certificate = options.get("ssl_certfile")
    if certificate is None:
        return "asks for a certificate: give `ssl_certfile` and `ssl_keyfile`"
    return f"does not accept the certificate of ssl_certfile={certificate}"


class _Garbled(Exception):
    """Raised if a response is not valid Kafka protocol."""


class _Line:
    """Connection to a broker for a few requests."""

    def __init__(self, server: str, context: ssl.SSLContext | None) -> None:
        from kafka.protocol.parser import KafkaProtocol

        host, _, port = server.rpartition(":")
        host = host.strip("[]")
        self._socket = socket.create_connection((host, int(port)), _ANSWER_S)
        if context is not None:
            try:
                self._socket = context.wrap_socket(self._socket, server_hostname=host.rstrip("."))
            except BaseException:
                self._socket.close()
                raise
        self._parser = KafkaProtocol(client_id="streamsvm", receive_message_max_bytes=1 << 20)

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def offer(self, mechanism: str) -> tuple[int, list[str]]:
        """Offer a SASL mechanism; return the error code and the supported mechanisms."""
        from kafka.protocol.sasl import SaslHandshakeRequest

        answer = self._ask(SaslHandshakeRequest(mechanism=mechanism, version=1))
        return answer.error_code, list(answer.mechanisms or ())

    def authenticate(self, token: bytes) -> bytes | None:
        """Perform one round of the login; return None if the broker rejects it."""
        from kafka.protocol.sasl import SaslAuthenticateRequest

        answer = self._ask(SaslAuthenticateRequest(token, version=1))
        return None if answer.error_code else answer.auth_bytes

    def _ask(self, request: Any) -> Any:
        from kafka.errors import KafkaError

        self._parser.send_request(request)
        self._socket.sendall(self._parser.send_bytes())
        while True:
            data = self._socket.recv(4096)
            if not data:
                raise ConnectionResetError("closed without an answer")
            try:
                if answers := self._parser.receive_bytes(data):
                    return answers[0][1]
            except (KafkaError, ValueError, EOFError) as error:
                raise _Garbled from error
