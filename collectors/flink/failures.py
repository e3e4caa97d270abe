"""Tells which step of a connection failed, from the exceptions of the HTTP library and of OpenSSL."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from typing import Final

import aiohttp

from backend.domain.connection_failure import ConnectionFailure
from backend.domain.text import clean

_REASON_MAX: Final = 300
# The codes of X509_verify_cert: what is wrong with the certificate of a server.
_OF_TIME: Final = {9: "is not valid yet", 10: "has expired"}
_OF_NAME: Final = (62, 64)
# The alerts that a server sends if it wants a client certificate, or another one.
_OF_CLIENT: Final = (
    *("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "CERTIFICATE_UNKNOWN"),
    *("CERTIFICATE_EXPIRED", "UNSUPPORTED_CERTIFICATE", "CERTIFICATE_REVOKED", "ACCESS_DENIED"),
)
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


def connection_failure(error: Exception) -> tuple[ConnectionFailure, str]:
    """Return what failed, and a sentence on it, for an exception of a request that got no answer."""
    tls = _tls_error(error)
    if isinstance(tls, ssl.SSLCertVerificationError):
        return _of_certificate(tls)
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return ConnectionFailure.PROXY, f"cannot connect to the proxy: {os_reason(error.os_error)}"
    if tls is not None:
        return _of_tls(tls)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _of_os(error.os_error), f"cannot connect: {os_reason(error.os_error)}"
    return ConnectionFailure.LOST, f"connection lost ({type(error).__name__})"


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the error of OpenSSL behind an exception of the library, or None if there is none."""
    for _ in range(5):
        if error is None:
            return None
        # The library's errors are errors of OpenSSL too, but without its code and reason.
        if isinstance(error, aiohttp.ClientConnectorCertificateError):
            error = error.certificate_error
        elif isinstance(error, aiohttp.ClientConnectorError):
            error = error.os_error
        elif isinstance(error, ssl.SSLError):
            return error
        else:
            error = error.__cause__ or error.__context__
    return None


def _of_certificate(error: ssl.SSLCertVerificationError) -> tuple[ConnectionFailure, str]:
    if error.verify_code in _OF_TIME:
        return ConnectionFailure.TLS_EXPIRED, f"no TLS connection: the certificate {_OF_TIME[error.verify_code]}"
    if error.verify_code in _OF_NAME:
        return ConnectionFailure.TLS_NAME, "no TLS connection: the certificate is for another name"
    why = clean(str(error.verify_message or "it cannot be verified"), length_max=_REASON_MAX)
    return ConnectionFailure.TLS_AUTHORITY, f"no TLS connection: the certificate is not trusted ({why})"


def _of_tls(error: ssl.SSLError) -> tuple[ConnectionFailure, str]:
    reason = error.reason or ""
    if "ALERT" in reason and any(part in reason for part in _OF_CLIENT):
        text = f"no TLS connection: the server requires a client certificate, or another one ({_spoken(reason)})"
        return ConnectionFailure.TLS_CLIENT_CERTIFICATE, text
    if reason in _NO_TLS:
        return ConnectionFailure.TLS, "no TLS connection: the port does not speak TLS"
    return ConnectionFailure.TLS, f"no TLS connection ({_spoken(reason) or type(error).__name__})"


def _spoken(reason: str) -> str:
    return reason.replace("_", " ").lower()


def _of_os(error: OSError) -> ConnectionFailure:
    if isinstance(error, socket.gaierror):
        return ConnectionFailure.NAME
    if error.errno == errno.ECONNREFUSED:
        return ConnectionFailure.REFUSED
    if "is not allowed here" in str(error):
        return ConnectionFailure.ADDRESS
    return ConnectionFailure.NO_CONNECTION


def os_reason(error: OSError) -> str:
    """Return the reason of an error of the operating system, without the address."""
    # The library's text repeats the address and hides the reason behind "Connect call failed". So the reason is taken
    # from the error's code.
    if isinstance(error, socket.gaierror):
        return "the name does not resolve"
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return clean(str(error).strip().partition("\n")[0], length_max=_REASON_MAX)
