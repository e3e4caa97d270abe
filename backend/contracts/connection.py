"""The JSON of a target's connection: credentials by reference, TLS, and a proxy. It is the same in API and in files."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from backend.contracts.model import Model, OneLine
from backend.domain.address_rules import is_host
from backend.domain.connection import (
    HEADERS_MAX,
    REFERENCE_ALLOWED,
    ConnectionOptions,
    parse_reference,
)
from backend.domain.errors import InvalidInputError
from backend.domain.target_url import normalised_url


def _checked(text: str) -> str:
    try:
        return str(parse_reference(text))
    except ValueError as error:
        problem = {"problem": str(error), "allowed": REFERENCE_ALLOWED}
        raise PydanticCustomError("reference", "{problem}; write {allowed}", problem) from None


def _named(text: str) -> str:
    if not is_host(text):
        raise PydanticCustomError("server_name", "is not a host name")
    return text.lower()


def _proxy_url(text: str) -> str:
    try:
        url, _ = normalised_url(text)
    except InvalidInputError as error:
        problem = error.problems[0]
        told = {"problem": problem.problem, "allowed": "http://HOST:PORT"}
        raise PydanticCustomError("proxy_url", "{problem}; write {allowed}", told) from None
    if not url.startswith("http://") or url.count("/") > 2:
        raise PydanticCustomError("proxy_url", "is not the address of an HTTP proxy; write http://HOST:PORT")
    return url


ReferenceText = Annotated[str, Field(max_length=1200, examples=["env:FLINK_TOKEN"]), AfterValidator(_checked)]
FileText = Annotated[str, Field(max_length=1200, examples=["file:/etc/flink/ca.pem"]), AfterValidator(_checked)]
_User = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^:\x00-\x1f]+$"), OneLine]


class BasicDoc(Model):
    """A user and a password for HTTP basic authentication."""

    user: _User
    password: ReferenceText


class ProxyDoc(Model):
    """A forward proxy. For an ``https://`` target, it is asked for a tunnel (CONNECT)."""

    url: Annotated[str, Field(max_length=2000, examples=["http://proxy:3128"]), AfterValidator(_proxy_url)]
    user: _User | None = None
    """User for the proxy. It requires ``password``."""
    password: ReferenceText | None = None


class SameTarget(Model):
    """A change of a target. Its address and its kind stay, because its jobs and their history belong to them."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_identity(cls, document: object) -> object:
        for name in ("url", "kind"):
            if isinstance(document, dict) and name in document:
                problem = f"{name} cannot be changed, because jobs and their history belong to it; add another target"
                raise PydanticCustomError("identity", "{problem}", {"problem": problem})
        return document


class ConnectionDoc(Model):
    """How requests reach a target. Each credential is a reference, ``env:NAME`` or ``file:PATH``, never a value.

    A file is read again when it changes.
    """

    bearer: ReferenceText | None = None
    """Bearer token."""
    basic: BasicDoc | None = None
    """User and password."""
    headers: Annotated[
        dict[Annotated[str, Field(max_length=100)], ReferenceText] | None, Field(max_length=HEADERS_MAX)
    ] = None
    """Extra headers of every request, by name."""
    ca: FileText | None = None
    """File with the certificates of the authorities that are trusted instead of those of the system (PEM)."""
    certificate: FileText | None = None
    """File with the client certificate (PEM)."""
    key: FileText | None = None
    """File with the key of the client certificate (PEM, not encrypted)."""
    server_name: Annotated[str | None, Field(max_length=253), AfterValidator(lambda v: v and _named(v))] = None
    """The name that the server's certificate must have, if it is not that of the address."""
    proxy: ProxyDoc | None = None

    @classmethod
    def of_options(cls, options: ConnectionOptions) -> Self:
        """Return the document of these options."""
        return cls.model_validate(options.document())

    def options(self) -> ConnectionOptions:
        """Return the options of this document. What no single field shows is checked by ``problems_of``."""
        return ConnectionOptions.of(self.model_dump(exclude_none=True))

    def half_proxy(self) -> str | None:
        """Return which of the proxy's user and password is missing; None if both or none are set."""
        if self.proxy is None or (self.proxy.user is None) == (self.proxy.password is None):
            return None
        return "password" if self.proxy.password is None else "user"
