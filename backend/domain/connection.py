"""How requests reach a target: credentials by reference, TLS, and a proxy.

A reference names an environment variable (``env:NAME``) or a file (``file:PATH``). Only references are stored, sent
and shown. A collector reads the value for each request, and drops it. Invariant: no value of this module contains a
secret, so each of them may be logged and stored.

Whoever writes a reference decides which variable or file is read, and the address decides who receives it. So a
reference from the API is allowed only by ``CredentialPolicy``. The operator's own files and the command line may name
everything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Any, Final, Self

from backend.domain.address_rules import EVERYWHERE, AddressRules
from backend.domain.errors import FieldProblem
from backend.domain.target import TargetOrigin

REFERENCE_ALLOWED: Final = "env:NAME, or file:PATH"
FILE_ALLOWED: Final = "file:PATH"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", re.ASCII)
_PATH_MAX = 1000
HEADERS_MAX: Final = 20
_WITHOUT_TLS: Final = {"http": "https", "webhdfs": "swebhdfs"}
_OF_S3: Final = {"basic", "ca"}
# The client sets these headers itself, and a second value would change where a request or its body ends.
_OWN_HEADERS: Final = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer", "expect"),
        *("content-type", "accept", "accept-encoding", "proxy-authorization", "proxy-connection", "keep-alive"),
    }
)


class ReferenceKind(StrEnum):
    """What a reference names: an environment variable, or a file."""

    ENVIRONMENT = "env"
    FILE = "file"


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """The place of a credential. It is written ``env:NAME`` or ``file:PATH``."""

    kind: ReferenceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def parse_reference(text: str) -> Reference:
    """Parse ``env:NAME`` or ``file:PATH``.

    Raises:
        ValueError: ``text`` is no reference. The message does not repeat ``text``, which may be the secret itself.
    """
    kind, sign, name = text.strip().partition(":")
    if not sign or kind not in set(ReferenceKind):
        raise ValueError("is not a reference: credentials are never written here, only where they are found")
    if kind == ReferenceKind.ENVIRONMENT and not _VARIABLE.fullmatch(name):
        raise ValueError("names no environment variable after env:")
    if kind == ReferenceKind.FILE and (not name or len(name) > _PATH_MAX or not name.isprintable()):
        raise ValueError("names no file after file:")
    return Reference(ReferenceKind(kind), name)


@dataclass(frozen=True, slots=True)
class BasicAuth:
    """A user, and where the password is found."""

    user: str
    password: Reference


@dataclass(frozen=True, slots=True)
class Proxy:
    """A forward proxy at an ``http://`` address, and the credentials for it. ``auth`` is None if it needs none."""

    url: str
    auth: BasicAuth | None = None


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How requests reach a target. Without any option, a request has no credentials and takes no proxy.

    ``ca`` is a file with the certificates of the authorities that are trusted instead of those of the system.
    ``certificate`` and ``key`` are the files of the client certificate, both PEM. ``server_name`` is the name that is
    asked for in TLS and that the certificate must have, if it is not that of the address.
    """

    bearer: Reference | None = None
    basic: BasicAuth | None = None
    headers: tuple[tuple[str, Reference], ...] = ()
    ca: Reference | None = None
    certificate: Reference | None = None
    key: Reference | None = None
    server_name: str | None = None
    proxy: Proxy | None = None

    @property
    def references(self) -> tuple[tuple[str, Reference], ...]:
        """All references, each with the name of its field."""
        basic = None if self.basic is None else self.basic.password
        proxy = None if self.proxy is None or self.proxy.auth is None else self.proxy.auth.password
        named: list[tuple[str, Reference | None]] = [
            ("bearer", self.bearer),
            ("basic.password", basic),
            *((f"headers.{name}", value) for name, value in self.headers),
            ("ca", self.ca),
            ("certificate", self.certificate),
            ("key", self.key),
            ("proxy.password", proxy),
        ]
        return tuple((name, reference) for name, reference in named if reference is not None)

    @property
    def has_tls(self) -> bool:
        """Whether an option is set that only a TLS connection uses."""
        return any(v is not None for v in (self.ca, self.certificate, self.key, self.server_name))

    def document(self) -> dict[str, Any]:
        """Return the options as JSON, with references as texts. Options that are not set are left out."""
        found: dict[str, Any] = {
            "bearer": _text(self.bearer),
            "basic": self.basic and {"user": self.basic.user, "password": str(self.basic.password)},
            "headers": {name: str(value) for name, value in self.headers} or None,
            "ca": _text(self.ca),
            "certificate": _text(self.certificate),
            "key": _text(self.key),
            "server_name": self.server_name,
            "proxy": self.proxy and _proxy_document(self.proxy),
        }
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """Return the options of a document that ``document`` returned. Unknown fields are ignored."""
        basic, proxy = document.get("basic"), document.get("proxy")
        headers: Mapping[str, str] = document.get("headers") or {}
        return cls(
            bearer=_reference(document.get("bearer")),
            basic=None if basic is None else BasicAuth(basic["user"], parse_reference(basic["password"])),
            headers=tuple((name, parse_reference(value)) for name, value in headers.items()),
            ca=_reference(document.get("ca")),
            certificate=_reference(document.get("certificate")),
            key=_reference(document.get("key")),
            server_name=document.get("server_name"),
            proxy=None if proxy is None else _proxy(proxy),
        )


PLAIN: Final = ConnectionOptions()
"""No credentials, the certificates of the system, and no proxy."""


def _text(reference: Reference | None) -> str | None:
    return None if reference is None else str(reference)


def _reference(text: str | None) -> Reference | None:
    return None if text is None else parse_reference(text)


def _proxy_document(proxy: Proxy) -> dict[str, str]:
    auth = {} if proxy.auth is None else {"user": proxy.auth.user, "password": str(proxy.auth.password)}
    return {"url": proxy.url} | auth


def _proxy(document: Mapping[str, str]) -> Proxy:
    auth = None
    if "user" in document and "password" in document:
        auth = BasicAuth(document["user"], parse_reference(document["password"]))
    return Proxy(document["url"], auth)


def problems_of(options: ConnectionOptions, url: str) -> tuple[FieldProblem, ...]:
    """Return what is wrong with the options of the target at ``url``, which is normalised. No problem repeats a value.

    The fields are relative to the options.
    """
    problems = []
    if options.bearer is not None and options.basic is not None:
        problems.append(
            FieldProblem("basic", "is set in addition to bearer, and a request has one Authorization", "one of the two")
        )
    if (options.certificate is None) != (options.key is None):
        missing, given = ("key", "certificate") if options.key is None else ("certificate", "key")
        problems.append(FieldProblem(missing, f"is missing, and {given} is set", "both, or none"))
    problems += [
        FieldProblem(name, "is not a file: TLS reads certificates and keys from files", FILE_ALLOWED)
        for name, reference in options.references
        if name in ("ca", "certificate", "key") and reference.kind is not ReferenceKind.FILE
    ]
    if options.has_tls and (scheme := url.partition("://")[0]) in _WITHOUT_TLS:
        names = [n for n in ("ca", "certificate", "key", "server_name") if getattr(options, n) is not None]
        problem = f"is used by TLS only, and the address begins with {scheme}://"
        problems.append(FieldProblem(names[0], problem, f"{_WITHOUT_TLS[scheme]}://"))
    if url.startswith("s3://"):
        others = sorted(options.document().keys() - _OF_S3)
        problems += [FieldProblem(name, "is not used for S3", " and ".join(sorted(_OF_S3))) for name in others]
    problems += _header_problems(options)
    return tuple(problems)


def _header_problems(options: ConnectionOptions) -> list[FieldProblem]:
    field_problems = []
    names = [name.lower() for name, _ in options.headers]
    has_authorization = options.bearer is not None or options.basic is not None
    for name, _ in options.headers:
        where = f"headers.{name[:100]}" if _HEADER.fullmatch(name) else "headers"
        if not _HEADER.fullmatch(name):
            field_problems.append(
                FieldProblem(where, "has a name that is not that of an HTTP header", "letters, digits and -")
            )
        elif name.lower() in _OWN_HEADERS:
            field_problems.append(FieldProblem(where, "is set by Barrierscope itself", "another header"))
        elif name.lower() == "authorization" and has_authorization:
            field_problems.append(FieldProblem(where, "is set by bearer or basic too", "one of them"))
        elif names.count(name.lower()) > 1:
            field_problems.append(FieldProblem(where, "is set twice", "one value"))
    if len(names) > HEADERS_MAX:
        field_problems.append(FieldProblem("headers", f"has {len(names)} headers", f"at most {HEADERS_MAX}"))
    return field_problems


@dataclass(frozen=True, slots=True)
class CredentialPolicy:
    """Which references are allowed: all, or variables that begin with ``env_prefix`` and files in ``folder``.

    None allows no variable or no file.
    """

    is_everything_allowed: bool
    env_prefix: str | None = None
    folder: str | None = None

    def refusal(self, reference: Reference) -> str | None:
        """Return why a reference is not allowed, with the rule; None if it is allowed."""
        if self.is_everything_allowed:
            return None
        if reference.kind is ReferenceKind.ENVIRONMENT:
            if self.env_prefix and reference.name.startswith(self.env_prefix) and reference.name != self.env_prefix:
                return None
        elif self.folder is not None and _is_below(reference.name, self.folder):
            return None
        return f"{reference} may not be read for a target that is added through the API: {self.rule}"

    @property
    def rule(self) -> str:
        """What is allowed, as a sentence for people."""
        if self.is_everything_allowed:
            return "every variable and every file may be read"
        variables = (
            f"of the variables only those that begin with {self.env_prefix}"
            if self.env_prefix
            else "no variable (BARRIERSCOPE_TARGET_CREDENTIALS_ENV_PREFIX is not set)"
        )
        files = (
            f"of the files only those in {self.folder}"
            if self.folder
            else "no file (BARRIERSCOPE_TARGET_CREDENTIALS_DIR is not set)"
        )
        return f"{variables}, and {files}"

    def path(self, reference: Reference) -> str:
        """Return the path of an allowed file reference. A relative path is one in ``folder``, if there is one."""
        if self.is_everything_allowed or self.folder is None:
            return reference.name
        return str(PurePosixPath(self.folder) / reference.name)


def _is_below(name: str, folder: str) -> bool:
    path = PurePosixPath(folder) / name
    return ".." not in path.parts and PurePosixPath(folder) in path.parents


EVERYTHING: Final = CredentialPolicy(is_everything_allowed=True)
"""Allows every reference: those of the operator's files and of the command line."""

NOTHING: Final = CredentialPolicy(is_everything_allowed=False)
"""Allows no reference. This is the default for targets that are added through the API."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What is needed to connect to a target beside its address.

    ``rules`` are the allowed addresses, ``options`` the credentials, TLS and proxy, ``policy`` the references that may
    be read, and ``environment`` the variables that they name.
    """

    rules: AddressRules = EVERYWHERE
    options: ConnectionOptions = PLAIN
    policy: CredentialPolicy = EVERYTHING
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def towards(self, options: ConnectionOptions, origin: TargetOrigin) -> Reach:
        """Return the reach of a target with ``options``.

        If the operator declared the target, no address and no reference is refused. If a discovery found it, no
        reference is refused, because the operator named those.
        """
        rules = EVERYWHERE if origin.is_trusted else self.rules
        policy = EVERYTHING if origin.has_operators_credentials else self.policy
        return Reach(rules, options, policy, self.environment)


ANYWHERE: Final = Reach()
"""Every address, without credentials."""
