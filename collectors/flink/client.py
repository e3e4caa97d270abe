"""Sends HTTP requests to a target with Flink's REST API, with limits against hostile or broken targets.

There are at most two connections, with a total timeout and a connect timeout. Redirects, cookies and proxies from the
environment are not used, so credentials are sent to the target's own origin only. A body is counted *after*
decompression and refused beyond ``BODY_MAX_BYTES``. So an endless response or a gzip bomb takes no more memory than
this limit. A URL may contain credentials; messages show it without them.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final

import aiohttp
import orjson
from aiohttp import AddrInfoType
from yarl import URL

from backend.domain.address_rules import AddressRules
from backend.domain.bounded_body import BODY_MAX_BYTES, PIECE_BYTES, BodyRefusedError, BoundedBody
from backend.domain.connection import ANYWHERE, Reach
from backend.domain.connection_failure import ConnectionFailure, of_status
from backend.domain.errors import FieldProblem, InvalidInputError, TargetProtocolError, TargetUnavailableError
from backend.domain.target_url import scheme_problem
from backend.domain.text import clean
from collectors.credentials import CredentialError, Credentials
from collectors.flink.echoes import without_echoes
from collectors.flink.failures import connection_failure
from collectors.http_date import ahead_of
from collectors.wall_clock import WallClock

CONNECTIONS_MAX: Final = 2
_CONNECT_TIMEOUT_MAX_S = 5.0
_REASON_MAX = 300
_ERROR_BODY_MAX_BYTES = 64 * 1024
_ACCEPTED = 202
_PROXY_CREDENTIALS = 407
_OF_PROXY = (502, 503, 504)
_BAD_REQUEST = 400
# What nginx and others answer to a request over TLS without an accepted client certificate, and without TLS.
_WANTS_CERTIFICATE = re.compile(rb"No required SSL certificate|SSL certificate error", re.IGNORECASE)
_WANTS_TLS = re.compile(rb"plain HTTP request was sent to HTTPS port", re.IGNORECASE)
_PASSWORD_FIELD = re.compile(rb"""type\s*=\s*["']?password""", re.IGNORECASE)
_LOGIN = re.compile(r"log[-_]?in|sign[-_]?in|sso|auth|saml", re.IGNORECASE)
_ALLOWED = "http:// or https:// with a host, without query and fragment"


@dataclass(frozen=True, slots=True)
class TargetUrl:
    """A target's address: the root URL without credentials, and the credentials as the value of a header."""

    root: URL
    authorization: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The address for messages, without credentials."""
        return str(self.root).rstrip("/")


def parse_target_url(text: str) -> TargetUrl:
    """Parse an address as a person writes it.

    Raises:
        InvalidInputError: ``text`` is not an http(s) address. The message does not repeat ``text``, which may
            contain credentials.
    """
    try:
        url = URL(text.strip())
        port = url.port
    except (ValueError, TypeError):
        raise _refused("is not an address") from None
    if url.scheme not in {"http", "https"}:
        raise _refused(scheme_problem(text))
    if not url.host or port is None:
        raise _refused("has no host")
    if url.query_string or url.fragment:
        raise _refused("has a query or fragment")
    has_credentials = url.user is not None or url.password is not None
    authorization = aiohttp.encode_basic_auth(url.user or "", url.password or "", "utf-8") if has_credentials else None
    return TargetUrl(url.with_user(None), authorization)


def _refused(problem: str) -> InvalidInputError:
    return InvalidInputError([FieldProblem("url", problem, _ALLOWED)], what="target")


@asynccontextmanager
async def open_transport(
    url: str, *, timeout_s: float, reach: Reach = ANYWHERE, engine: str = "Flink"
) -> AsyncIterator[AiohttpTransport]:
    """Open a transport to the target at ``url``. Its connections are closed when the context ends.

    It connects only to addresses that ``reach`` allows, with its credentials, certificates and proxy. ``engine`` is
    what should answer there, for messages.

    Raises:
        InvalidInputError: ``url`` is not an http(s) address.
    """
    target = parse_target_url(url)
    _check_host_behind_proxy(target, reach)
    headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "barrierscope"}
    if target.authorization is not None:
        headers["Authorization"] = target.authorization
    proxy = reach.options.proxy
    connected = target.root if proxy is None else URL(proxy.url)
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            limit=CONNECTIONS_MAX,
            limit_per_host=CONNECTIONS_MAX,
            socket_factory=partial(_socket_to, reach.rules, connected.raw_host or ""),
        ),
        timeout=aiohttp.ClientTimeout(total=timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_MAX_S)),
        # This module decompresses a body in pieces and counts the bytes. The library would decompress a whole chunk
        # at once.
        auto_decompress=False,
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        max_line_size=16 * 1024,
        max_field_size=16 * 1024,
    )
    async with session:
        yield AiohttpTransport(session, target, timeout_s=timeout_s, reach=reach, engine=engine)


def _check_host_behind_proxy(target: TargetUrl, reach: Reach) -> None:
    """Check the host of a target that a proxy connects to. No socket of this process is connected to it."""
    host = target.root.raw_host or ""
    if reach.options.proxy is not None and not reach.rules.allows_host(host):
        raise TargetUnavailableError(
            url=target.shown, reason=f"the host {host} is not allowed here", failure=ConnectionFailure.ADDRESS
        )


def _socket_to(rules: AddressRules, host: str, info: AddrInfoType) -> socket.socket:
    """Return a socket for the address in ``info``, to which ``host`` resolved.

    Raise an error if the address is not allowed. The library connects the socket to exactly this address, so no second
    look-up of the name can give another one.
    """
    family, kind, protocol, _, (address, *_) = info
    if not rules.allows(host, str(address)):
        raise OSError(f"{host} is at {address}, which is not allowed here")
    return socket.socket(family, kind, protocol)


class AiohttpTransport:
    """Implements ``FlinkTransport`` with one aiohttp session."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        target: TargetUrl,
        *,
        timeout_s: float,
        reach: Reach = ANYWHERE,
        engine: str = "Flink",
    ) -> None:
        self._session = session
        self._engine = engine
        self._credentials = Credentials(reach)
        self._server_name = reach.options.server_name
        self._shown = target.shown
        self._root = str(target.root).rstrip("/")
        self._timeout_s = timeout_s
        self.clock_ahead: timedelta | None = None
        """By how much the clock of what answers is ahead of ours, from its newest answer with a date."""

    @property
    def url(self) -> str:
        """The target's root URL, without credentials."""
        return self._shown

    async def get(self, path: str) -> bytes:
        """Return the body of a response with status 200; see ``FlinkTransport``."""
        return await self._ask("GET", path)

    async def patch(self, path: str, body: bytes, *, token: str | None = None) -> bytes:
        """Send a PATCH request with JSON, and return the body of a response with status 200.

        If ``token`` is not None, send it as a bearer token. This raises the same errors as ``get``.
        """
        return await self._ask("PATCH", path, body, _json_headers(token))

    async def post(self, path: str, body: bytes, *, token: str | None = None) -> bytes:
        """Send a POST request with JSON, and return the body of a response with status 200 or 202; see ``patch``."""
        return await self._ask("POST", path, body, _json_headers(token))

    async def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        where = self._shown + path.partition("?")[0]
        async with self._asked(method, path, where, body, headers) as response:
            return await self._body(response, where)

    @asynccontextmanager
    async def stream(
        self, path: str, *, accept: str, wait_s: float
    ) -> AsyncIterator[Callable[[int], Awaitable[bytes]]]:
        """Open a response of any size with status 200. Yield a function that returns its next bytes, b"" at the end.

        ``wait_s`` limits the time until the next bytes arrive, not the time of the whole response. The body is asked
        for without compression. This raises the same errors as ``get``, also while the body is read.
        """
        where = self._shown + path.partition("?")[0]
        headers = {"Accept": accept, "Accept-Encoding": "identity"}
        timeout = aiohttp.ClientTimeout(total=None, connect=min(wait_s, _CONNECT_TIMEOUT_MAX_S), sock_read=wait_s)
        async with self._asked("GET", path, where, None, headers, timeout=timeout) as response:
            await self._check(response, where)
            if encoding := response.headers.get("Content-Encoding", "").strip().lower().replace("identity", ""):
                reason = f"the answer is encoded as {clean(encoding, length_max=40)!r}, which was not asked for"
                raise TargetProtocolError(url=where, reason=reason)
            yield response.content.read

    @asynccontextmanager
    async def _asked(
        self,
        method: str,
        path: str,
        where: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        **more: Any,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        url = URL(self._root + path, encoded=True)
        try:
            options = self._options(headers)
        except CredentialError as error:
            raise TargetUnavailableError(url=where, reason=error.reason, failure=ConnectionFailure.CREDENTIAL) from None
        with self._told(where):
            async with self._session.request(
                method, url, data=body, allow_redirects=False, **options, **more
            ) as response:
                ahead = ahead_of(response.headers, WallClock().now())
                self.clock_ahead = self.clock_ahead if ahead is None else ahead
                yield response

    @contextmanager
    def _told(self, where: str) -> Iterator[None]:
        """Turn the errors of the HTTP library into ours."""
        try:
            yield
        except TimeoutError:
            raise TargetUnavailableError(
                url=where, reason=f"no answer within {self._timeout_s:g} s", failure=ConnectionFailure.TIMEOUT
            ) from None
        except aiohttp.ClientHttpProxyError as error:
            reason = f"the proxy answers HTTP {error.status}{_of_proxy_status(error.status)}"
            raise TargetUnavailableError(url=where, reason=reason, failure=ConnectionFailure.PROXY) from None
        except aiohttp.ClientPayloadError:
            raise TargetProtocolError(
                url=where,
                reason="the answer broke off in the middle",
                is_passing=True,
                failure=ConnectionFailure.LOST,
            ) from None
        except (aiohttp.ClientConnectionError, ssl.SSLError) as error:
            failure, reason = connection_failure(error)
            raise TargetUnavailableError(url=where, reason=reason, failure=failure) from None
        except (aiohttp.ClientError, ValueError) as error:
            raise TargetProtocolError(url=where, reason=f"does not speak HTTP ({type(error).__name__})") from None

    def _options(self, headers: Mapping[str, str] | None) -> dict[str, Any]:
        """Return the arguments of a request that depend on the credentials, which are read now.

        ``headers`` win over those of the credentials: a token for a change is that of the live runtime.
        """
        options: dict[str, Any] = {"headers": self._credentials.headers() | dict(headers or {})}
        if (context := self._credentials.tls()) is not None:
            options["ssl"] = context
        if self._server_name is not None:
            options["server_hostname"] = self._server_name
        if (proxy := self._credentials.proxy()) is not None:
            options["proxy"] = proxy.url
            # A tunnel is asked for by a request of its own. A request without TLS goes to the proxy itself.
            if self._root.startswith("https://"):
                options["proxy_headers"] = proxy.headers
            else:
                options["headers"] |= proxy.headers
        return options

    async def _body(self, response: aiohttp.ClientResponse, where: str) -> bytes:
        await self._check(response, where)
        return await _read(response, where, size_max=BODY_MAX_BYTES)

    async def _check(self, response: aiohttp.ClientResponse, where: str) -> None:
        """Raise an error if the response is a redirect, a failure or a page."""
        if 300 <= response.status < 400:
            shown = _redirected(response)
            reason = f"answers by a redirect{shown}; give its real address"
            raise TargetProtocolError(
                url=where,
                reason=reason,
                status=response.status,
                is_passing=True,
                redirected_to=_path_of(response),
                failure=ConnectionFailure.LOGIN_PAGE if "login page" in shown else ConnectionFailure.REDIRECT,
            )
        if response.status not in (200, _ACCEPTED if response.method == "POST" else 200):
            raise await _refused_by(response, where, self._engine)
        if response.content_type == "text/html":
            body = await _read(response, where, size_max=_ERROR_BODY_MAX_BYTES, is_cut=True)
            is_login = bool(_PASSWORD_FIELD.search(body))
            page = "answers with a login page" if is_login else "answers HTML"
            raise TargetProtocolError(
                url=where,
                reason=f"{page}, not {self._engine}'s JSON",
                status=response.status,
                is_passing=True,
                failure=ConnectionFailure.LOGIN_PAGE if is_login else ConnectionFailure.NOT_THIS_KIND,
            )


async def _refused_by(response: aiohttp.ClientResponse, where: str, engine: str) -> TargetProtocolError:
    """Return the error for a status that means a failure.

    A proxy answers 502, 503 or 504 if it does not reach the engine for a moment. Flink sends its errors as JSON.
    """
    body = await _read(response, where, size_max=_ERROR_BODY_MAX_BYTES, is_cut=True)
    # The text is cut afterwards, because a credential that was cut would not be recognized.
    detail = clean(_without_echoes(_error_line(body), response), length_max=_REASON_MAX + 2)
    is_passing = response.status in _OF_PROXY and not detail
    if is_passing:
        detail = f" of a proxy, which does not reach {engine}"
    failure = of_status(response.status)
    if response.status == _BAD_REQUEST and _WANTS_CERTIFICATE.search(body):
        # nginx completes the handshake, and answers the request with this status.
        failure, detail = ConnectionFailure.TLS_CLIENT_CERTIFICATE, ": the server requires another client certificate"
    elif response.status == _BAD_REQUEST and _WANTS_TLS.search(body):
        failure, detail = ConnectionFailure.TLS, ": the port speaks TLS, so the address begins with https://"
    elif failure is ConnectionFailure.PROXY:
        detail = _of_proxy_status(response.status)
    return TargetProtocolError(
        url=where,
        reason=f"HTTP {response.status}{detail}",
        status=response.status,
        is_passing=is_passing,
        failure=failure,
    )


def _redirected(response: aiohttp.ClientResponse) -> str:
    """Return where a redirect leads, without query and credentials, which may be secret."""
    try:
        to = URL(response.headers.get("Location", ""))
        shown = str(to.with_user(None).with_query(None).with_fragment(None) if to.host else to.path)
    except (ValueError, TypeError):
        return ""
    if not shown:
        return ""
    login = " (a login page)" if _LOGIN.search(shown) else ""
    shown = _without_echoes(shown, response)
    return f" to {clean(shown, length_max=_REASON_MAX)}{login}"


def _without_echoes(text: str, response: aiohttp.ClientResponse) -> str:
    return without_echoes(text, response.request_info.headers, response.request_info.url)


def _path_of(response: aiohttp.ClientResponse) -> str | None:
    """Return the path of a redirect that stays on the origin of the request. It is not followed."""
    try:
        to = response.url.join(URL(response.headers.get("Location", "")))
        return to.raw_path if to.origin() == response.url.origin() else None
    except (ValueError, TypeError):
        return None


async def _read(response: aiohttp.ClientResponse, where: str, *, size_max: int, is_cut: bool = False) -> bytes:
    """Return the decompressed body.

    If the body exceeds ``size_max``, raise an error or, with ``is_cut``, return only its beginning.
    """
    try:
        body = BoundedBody(response.headers.get("Content-Encoding", ""), size_max=size_max, is_cut=is_cut)
        async for chunk in response.content.iter_chunked(PIECE_BYTES):
            if not body.feed(chunk):
                # The rest of the body stays unread, so the connection cannot be used again.
                response.close()
                break
        return body.whole()
    except BodyRefusedError as error:
        response.close()
        raise TargetProtocolError(url=where, reason=error.reason, is_passing=error.is_passing) from None


def _json_headers(token: str | None) -> dict[str, str]:
    headers = {"Content-Type": "application/json"}
    return headers if token is None else headers | {"Authorization": f"Bearer {token}"}


def _error_line(body: bytes) -> str:
    """Return the first line of Flink's ``{"errors": [...]}`` or of WebHDFS' exception, without its stack traces.

    Return "" for any other body.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(document, dict):
        return ""
    errors, remote = document.get("errors"), document.get("RemoteException")
    found = errors if isinstance(errors, list) else [remote.get("message")] if isinstance(remote, dict) else []
    lines = [e for e in found if isinstance(e, str) and e.strip()]
    return f": {lines[0].strip().splitlines()[0]}" if lines else ""


def _of_proxy_status(status: int) -> str:
    return ": it wants other credentials" if status == _PROXY_CREDENTIALS else ", and does not reach the target"
