"""The options for the connection to a target that several commands share, and the user's own file of targets.

Credentials are references, ``env:NAME`` or ``file:PATH``, because other users of the machine can read a command line.
A certificate or key may be written as a plain path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backend.domain.connection import (
    PLAIN,
    REFERENCE_ALLOWED,
    BasicAuth,
    ConnectionOptions,
    Proxy,
    Reach,
    Reference,
    ReferenceKind,
    parse_reference,
    problems_of,
)
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.target_url import normalised_url

if TYPE_CHECKING:
    from backend.domain.declared_target import DeclaredTarget
    from backend.settings import Settings

Bearer = Annotated[
    str | None, typer.Option("--bearer", metavar="REF", help="Bearer token: env:NAME or file:PATH, never the token.")
]
User = Annotated[
    str | None,
    typer.Option("--user", metavar="USER=REF", help="User, and where the password is: env:NAME or file:PATH."),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=REF", help="Extra header: env:NAME or file:PATH. May be repeated."),
]
Ca = Annotated[str | None, typer.Option("--ca", metavar="FILE", help="Authorities to trust instead of the system's.")]
Cert = Annotated[str | None, typer.Option("--cert", metavar="FILE", help="Client certificate (PEM).")]
Key = Annotated[str | None, typer.Option("--key", metavar="FILE", help="Key of the client certificate (PEM).")]
ServerName = Annotated[
    str | None, typer.Option("--server-name", metavar="NAME", help="Name in the server's certificate.")
]
ProxyUrl = Annotated[str | None, typer.Option("--proxy", metavar="URL", help="Forward proxy, http://HOST:PORT.")]
ProxyUser = Annotated[
    str | None, typer.Option("--proxy-user", metavar="USER=REF", help="User for the proxy, and where the password is.")
]


@dataclass(frozen=True, slots=True)
class Given:
    """The options of a command line as they were written."""

    bearer: str | None = None
    user: str | None = None
    headers: Sequence[str] = ()
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    server_name: str | None = None
    proxy: str | None = None
    proxy_user: str | None = None

    def options(self, base: ConnectionOptions = PLAIN) -> ConnectionOptions:
        """Return ``base`` with the options that were given.

        Raises:
            InvalidInputError: an option is wrong. No error repeats a value that may be a secret.
        """
        connection_options = base
        if self.bearer is not None:
            connection_options = replace(connection_options, bearer=_reference(self.bearer, "--bearer"), basic=None)
        if self.user is not None:
            connection_options = replace(connection_options, basic=_auth(self.user, "--user"), bearer=None)
        if self.headers:
            added = [_pair(text, "--header") for text in self.headers]
            names = {name.lower() for name, _ in added}
            kept = tuple((name, value) for name, value in connection_options.headers if name.lower() not in names)
            connection_options = replace(connection_options, headers=(*kept, *added))
        if self.ca is not None:
            connection_options = replace(connection_options, ca=_file(self.ca, "--ca"))
        if self.cert is not None:
            connection_options = replace(connection_options, certificate=_file(self.cert, "--cert"))
        if self.key is not None:
            connection_options = replace(connection_options, key=_file(self.key, "--key"))
        if self.server_name is not None:
            connection_options = replace(connection_options, server_name=self.server_name)
        if self.proxy is not None:
            connection_options = replace(connection_options, proxy=Proxy(_proxy_url(self.proxy)))
        if self.proxy_user is not None:
            if connection_options.proxy is None:
                raise _refused("--proxy-user", "is set without a proxy", "--proxy too")
            connection_options = replace(
                connection_options, proxy=replace(connection_options.proxy, auth=_auth(self.proxy_user, "--proxy-user"))
            )
        return connection_options


_OPTIONS = {
    "basic": "--user",
    "bearer": "--bearer",
    "ca": "--ca",
    "certificate": "--cert",
    "key": "--key",
    "server_name": "--server-name",
}


def checked(options: ConnectionOptions, url: str) -> ConnectionOptions:
    """Return ``options`` if they fit together and fit the address.

    Raises:
        InvalidInputError: they do not. The problems name the options.
    """
    problems = [
        FieldProblem(_OPTIONS.get(p.field, "--header"), p.problem, p.allowed)
        for p in problems_of(options, url.strip().lower())
    ]
    if problems:
        raise InvalidInputError(problems, what="option")
    return options


def reach_of(options: ConnectionOptions) -> Reach:
    """Return what a command of this machine needs to connect to a target: every reference may be read."""
    from backend.settings import credential_environment

    return Reach(options=options, environment=credential_environment())


def own_target(text: str, settings: Settings) -> DeclaredTarget | None:
    """Return the target of the user's own file that has this name or address, or None.

    The file is ``targets.yaml`` in the user's folder of configuration, and need not exist.

    Raises:
        InvalidInputError: the file is wrong, or several of its targets have this name.
    """
    path = settings.config_home() / "targets.yaml"
    if not text or not path.is_file():
        return None
    from backend.contracts.targets_file import read_targets_file

    targets = read_targets_file(path).targets
    named = [t for t in targets if t.name == text]
    if len(named) > 1:
        raise _refused("URL", f"{len(named)} targets in {path} are called {text!r}", "the address of one")
    if named:
        return named[0]
    try:
        url, _ = normalised_url(text)
    except InvalidInputError:
        return None
    return next((t for t in targets if t.url == url), None)


def _reference(text: str, option: str) -> Reference:
    try:
        return parse_reference(text)
    except ValueError as error:
        raise _refused(option, str(error), REFERENCE_ALLOWED) from None


def _file(text: str, option: str) -> Reference:
    if not text.strip():
        raise _refused(option, "is empty", "the path of a file")
    if text.startswith("file:"):
        return _reference(text, option)
    return Reference(ReferenceKind.FILE, str(Path(text).expanduser().absolute()))


def _pair(text: str, option: str) -> tuple[str, Reference]:
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise _refused(option, "is not NAME=REF", f"NAME={REFERENCE_ALLOWED}")
    return name.strip(), _reference(value, option)


def _auth(text: str, option: str) -> BasicAuth:
    return BasicAuth(*_pair(text, option))


def _proxy_url(text: str) -> str:
    try:
        url, _ = normalised_url(text)
    except InvalidInputError as error:
        raise _refused("--proxy", error.problems[0].problem, "http://HOST:PORT") from None
    if not url.startswith("http://") or url.count("/") > 2:
        raise _refused("--proxy", "is not the address of an HTTP proxy", "http://HOST:PORT")
    return url


def _refused(option: str, problem: str, allowed: str) -> InvalidInputError:
    return InvalidInputError([FieldProblem(option, problem, allowed)], what="option")
