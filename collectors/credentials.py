"""Reads the credentials of a target where its references name them, for each request anew.

A file is read again for each request, and certificates whenever one of their files changes, so rotated tokens and
certificates are used without a restart. Messages name the reference, never the value. A file must be a regular one of
at most ``SIZE_MAX_BYTES``, so that a pipe or a device cannot block the reader.
"""

from __future__ import annotations

import base64
import os
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from backend.domain.connection import BasicAuth, Reach, Reference, ReferenceKind

SIZE_MAX_BYTES: Final = 64 * 1024
_CERTIFICATES_MAX_BYTES: Final = 8 * 2**20

_Signature = tuple[tuple[str, int, int, int], ...]


class CredentialError(Exception):
    """A reference cannot be read. ``reason`` is a sentence without the value."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class ProxyAt:
    """The proxy of a request: its address, and the headers for it alone."""

    url: str
    headers: Mapping[str, str] = field(repr=False)


class Credentials:
    """The credentials of one target. ``reach`` says where they are found, and what may be read."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._tls: ssl.SSLContext | None = None
        self._tls_of: _Signature | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers that authorise a request.

        Raises:
            CredentialError: a reference cannot be read.
        """
        options = self._reach.options
        by_name = {name: self._header(reference) for name, reference in options.headers}
        if options.bearer is not None:
            by_name["Authorization"] = f"Bearer {self._header(options.bearer)}"
        if options.basic is not None:
            by_name["Authorization"] = self._basic(options.basic)
        return by_name

    def pair(self) -> tuple[str, str] | None:
        """Return the user and the password, or None if there are none. Raises ``CredentialError``."""
        basic = self._reach.options.basic
        return None if basic is None else (basic.user, self._value(basic.password))

    def ca_path(self) -> str | None:
        """Return the path of the file with the trusted authorities, or None for those of the system.

        Raises:
            CredentialError: the file cannot be read.
        """
        ca = self._reach.options.ca
        if ca is None:
            return None
        path = self._path(ca)
        self._looked_at("ca", path)
        return path

    def proxy(self) -> ProxyAt | None:
        """Return the proxy, or None if there is none. Raises ``CredentialError``."""
        proxy = self._reach.options.proxy
        if proxy is None:
            return None
        return ProxyAt(proxy.url, {} if proxy.auth is None else {"Proxy-Authorization": self._basic(proxy.auth)})

    def tls(self) -> ssl.SSLContext | None:
        """Return the context of TLS connections, or None for the one with the authorities of the system.

        Raises:
            CredentialError: a certificate or key cannot be read or does not fit.
        """
        options = self._reach.options
        if options.ca is None and options.certificate is None:
            return None
        paths = {name: self._path(r) for name, r in options.references if name in ("ca", "certificate", "key")}
        signature = tuple((name, *self._looked_at(name, path)) for name, path in paths.items())
        if self._tls is None or signature != self._tls_of:
            self._tls, self._tls_of = _context(paths), signature
        return self._tls

    def _basic(self, auth: BasicAuth) -> str:
        pair = f"{auth.user}:{self._value(auth.password)}"
        return "Basic " + base64.b64encode(pair.encode()).decode()

    def _header(self, reference: Reference) -> str:
        value = self._value(reference)
        if not value.isascii():
            raise CredentialError(f"{reference} has characters that a header does not allow")
        return value

    def _value(self, reference: Reference) -> str:
        if reference.kind is ReferenceKind.ENVIRONMENT:
            self._must_be_allowed(reference)
            text = self._reach.environment.get(reference.name)
            if text is None:
                raise CredentialError(f"the variable of {reference} is not set in this process")
        else:
            text = self._text(reference)
        text = text.strip()
        if not text:
            raise CredentialError(f"{reference} is empty")
        if not text.isprintable():
            raise CredentialError(f"{reference} has a line break or a control character in it")
        return text

    def _text(self, reference: Reference) -> str:
        path = self._path(reference)
        try:
            # Without O_NONBLOCK, opening a pipe would wait for its writer.
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise CredentialError(f"{reference} is not a regular file")
                content = file.read(SIZE_MAX_BYTES + 1)
        except OSError as error:
            raise CredentialError(f"{reference} cannot be read ({error.strerror})") from None
        if len(content) > SIZE_MAX_BYTES:
            raise CredentialError(f"{reference} is larger than {SIZE_MAX_BYTES // 1024} KiB")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            raise CredentialError(f"{reference} is not text") from None

    def _path(self, reference: Reference) -> str:
        """Return the path of a file that may be read. A link must not lead out of the folder of the policy."""
        self._must_be_allowed(reference)
        policy = self._reach.policy
        path = policy.path(reference)
        if policy.is_everything_allowed or policy.folder is None:
            return path
        real, folder = os.path.realpath(path), os.path.realpath(policy.folder)
        if not real.startswith(folder.rstrip("/") + "/"):
            raise CredentialError(f"{reference} is a link to a file outside of {policy.folder}")
        return path

    def _must_be_allowed(self, reference: Reference) -> None:
        if (refusal := self._reach.policy.refusal(reference)) is not None:
            raise CredentialError(refusal)

    def _looked_at(self, name: str, path: str) -> tuple[int, int, int]:
        try:
            found = os.stat(path)
        except OSError as error:
            raise CredentialError(f"{name} file:{path} cannot be read ({error.strerror})") from None
        if not stat.S_ISREG(found.st_mode) or found.st_size > _CERTIFICATES_MAX_BYTES:
            raise CredentialError(f"{name} file:{path} is not a regular file of at most 8 MiB")
        return found.st_mtime_ns, found.st_ino, found.st_size


def _context(paths: Mapping[str, str]) -> ssl.SSLContext:
    ca, certificate, key = paths.get("ca"), paths.get("certificate"), paths.get("key")
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        raise CredentialError(f"ca file:{ca} has no certificates that can be read ({_why(error)})") from None
    if certificate is None:
        return context
    try:
        # Without a function for the password, OpenSSL would ask for that of an encrypted key on the terminal.
        context.load_cert_chain(certificate, key, password=_no_password)
    except _EncryptedError:
        raise CredentialError(f"key file:{key} is encrypted; write it without a password") from None
    except (OSError, ValueError) as error:
        what = f"certificate file:{certificate} and key file:{key}"
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise CredentialError(f"{what} do not belong together") from None
        raise CredentialError(f"{what} cannot be read ({_why(error)})") from None
    return context


class _EncryptedError(Exception):
    """OpenSSL asks for the password of a key."""


def _no_password() -> str:
    raise _EncryptedError


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return getattr(error, "strerror", None) or type(error).__name__
