"""Access control in front of the API and the pages.

If only this machine can reach the service, there is no login, but requests for another host name (DNS rebinding) and
requests from pages of another site are refused. Otherwise each request needs the token. Scripts send it as a bearer
token. People enter it once on the login page, which sets a cookie with a signed session. The cookie never contains the
token.

Invariants: a value sent as a token, right or wrong, never appears in a response, a log or a redirect. A request with a
cookie can change something only if it comes from a page of this service.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, quote, urlsplit

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.access.attempts import Attempts
from backend.access.authority import LOOPBACK, malformed_header, without_port
from backend.access.sessions import MAX_AGE_S, Sessions, is_same
from backend.api import login_page
from backend.api.problems import problem
from backend.api.splitter import PAGES
from backend.contracts.api import ProblemField
from backend.metrics.page import METRICS_PATH

LOGIN_PATH = "/login"
LOGOUT_PATH = "/logout"
_COOKIE = "barrierscope_session"
_FORM_MAX_BYTES = 8192
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_PORTS = {"http": 80, "https": 443}
# The values of Sec-Fetch-Site for a request from a page of another site, or of another port of this host. Such a page
# may only link to the service.
_ELSEWHERE = frozenset({"cross-site", "same-site"})
_FRAMED = frozenset({"iframe", "frame", "object", "embed"})
_HEADERS = {"Host": "one header with NAME or NAME:PORT", "Origin": "null or SCHEME://NAME[:PORT]"}
# Program code of the pages. It contains no data, so browsers may keep it although it is served only to requests with
# a session or the token.
_CODE = ("/ui/assets/", "/ui/_dash-component-suites/")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The access rules of the service. ``token`` is None if the service listens on loopback only.

    ``hosts`` are accepted host names in addition to those of loopback. ``public_url`` is the address that browsers use
    (``https://barrierscope.example``). Behind a proxy, it differs from the address in the request.
    """

    token: str | None
    hosts: frozenset[str] = frozenset()
    public_url: str | None = None


@dataclass(frozen=True, slots=True)
class _Wrong:
    """The reason for refusing a request. ``pointer`` is the header that is missing or wrong."""

    slug: str
    pointer: str
    detail: str
    challenge: str = ""


class Access:
    """ASGI middleware that checks the host, the origin and the token or session of every request.

    ``is_page`` returns whether there is a page at a path, which begins with ``/ui/``. A viewer who asks for a page
    without ``/ui`` gets to it after the login.
    """

    def __init__(
        self,
        app: ASGIApp,
        rules: AccessRules,
        *,
        is_page: Callable[[str], bool] = lambda _: False,
        now_s: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._public = urlsplit(rules.public_url) if rules.public_url else None
        public = frozenset() if self._public is None else frozenset({without_port(self._public.netloc)})
        self._hosts = LOOPBACK | rules.hosts | public
        # Without a public URL, the host names that a proxy or a cluster uses are not known, so every name is
        # accepted.
        self._is_any_host_own = rules.token is not None and rules.public_url is None
        self._gate = (
            None
            if rules.token is None
            else _Gate(rules.token, Sessions(rules.token, now_s), Attempts(monotonic), is_page)
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            if await self._is_admitted(scope, receive):
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": 1008})
            return
        send = _guarded(send, is_secret=self._gate is not None and not scope["path"].startswith(_CODE))
        refusal = _malformed(scope) or self._foreign(scope)
        if refusal is None and self._gate is not None:
            refusal = await self._gate.admit(scope, receive, is_secure=self._is_secure(scope))
        await (refusal or self._app)(scope, receive, send)

    async def _is_admitted(self, scope: Scope, receive: Receive) -> bool:
        """Return whether a WebSocket may be opened: only by a page of this service, with the right to read.

        Browsers let every site open a WebSocket to every other site, and send the cookies. They always send the origin
        too, so the origin decides.
        """
        opening = {**scope, "type": "http", "method": "GET"}
        if "origin" not in Headers(scope=opening) or _malformed(opening) or self._foreign(opening):
            return False
        is_known = scope["path"] not in (LOGIN_PATH, LOGOUT_PATH)
        return is_known and (
            self._gate is None or await self._gate.admit(opening, receive, is_secure=self._is_secure(scope)) is None
        )

    def _foreign(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        host, origin = headers.get("host", ""), headers.get("origin")
        has_bearer = self._gate is not None and "authorization" in headers
        if not (self._is_any_host_own or has_bearer or without_port(host) in self._hosts):
            ask = "127.0.0.1 or localhost" if self._public is None else self._public.netloc
            detail = f"{host[:100]!r} is not a host name of this service; use {ask}"
            return problem(403, "foreign-host", detail, instance=path)
        if (origin is not None and not self._is_own(origin, host)) or _is_from_elsewhere(scope["method"], headers):
            return problem(403, "foreign-origin", "requests from pages of another site are not allowed", instance=path)
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        parts = urlsplit(origin)
        if not parts.netloc:
            return False
        if self._public is not None and (parts.scheme, _with_port(parts.scheme, parts.netloc)) == (
            self._public.scheme,
            _with_port(self._public.scheme, self._public.netloc),
        ):
            return True
        return parts.scheme in _DEFAULT_PORTS and parts.netloc.lower() == host.lower()

    def _is_secure(self, scope: Scope) -> bool:
        """Return whether the browser uses TLS, to this service or to a proxy in front of it."""
        if scope.get("scheme") in ("https", "wss"):
            return True
        host = without_port(Headers(scope=scope).get("host", ""))
        return self._public is not None and self._public.scheme == "https" and host not in LOOPBACK


@dataclass(frozen=True, slots=True)
class _Gate:
    """Handles login and logout, and checks the token or session of all other requests."""

    token: str
    sessions: Sessions
    attempts: Attempts
    is_page: Callable[[str], bool]

    async def admit(self, scope: Scope, receive: Receive, *, is_secure: bool) -> Response | None:
        """Return the refusal, redirect or login page, or None if the request is admitted."""
        method, path = scope["method"], scope["path"]
        if path == LOGIN_PATH:
            if method == "POST":
                return await self._log_in(scope, receive, is_secure=is_secure)
            return self._ask(scope) if method in ("GET", "HEAD") else _method_not_allowed(path, "GET, HEAD, POST")
        if path == LOGOUT_PATH:
            return _log_out(is_secure=is_secure) if method == "POST" else _method_not_allowed(path, "POST")
        return self._refuse(scope)

    def _ask(self, scope: Scope) -> Response:
        after = parse_qs(scope["query_string"].decode("latin-1")).get("next", [login_page.AFTER_LOGIN])[0]
        after = login_page.without(after, self.token)
        if self.sessions.is_open(_cookie(Headers(scope=scope).get("cookie", ""))):
            return RedirectResponse(login_page.own_page(after), 303)
        return login_page.form("This service needs its API token.", after=after)

    async def _log_in(self, scope: Scope, receive: Receive, *, is_secure: bool) -> Response:
        given, after = await _filled_in(Request(scope, receive))
        after = login_page.without(after, self.token)
        # The token is compared before the limit on wrong tokens is checked, because another client at the same
        # address may have sent the wrong tokens.
        if given is None or not is_same(given, self.token):
            if wait_s := self.attempts.wait_s(_address(scope)):
                words = f"The token is wrong, and too many were. Try again in {wait_s} s."
                return login_page.form(words, after=after, status=429, headers={"Retry-After": str(wait_s)})
            self._note_wrong(scope, given or "")
            return login_page.form("The token is wrong.", after=after, status=401)
        answer = RedirectResponse(login_page.own_page(after), 303)
        name = _cookie_name(is_secure=is_secure)
        answer.set_cookie(
            name, self.sessions.open(), max_age=MAX_AGE_S, httponly=True, samesite="strict", secure=is_secure
        )
        return answer

    def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        given = headers.get("authorization")
        if given is not None:
            return self._check_bearer(scope, given)
        cookie = _cookie(headers.get("cookie", ""))
        if self.sessions.is_open(cookie):
            return self._check_own_page(scope, headers)
        is_for_scripts = scope["path"].startswith("/api/") or scope["path"] == METRICS_PATH
        if is_for_scripts or scope["method"] not in ("GET", "HEAD"):
            if cookie:
                return _unauthorized(scope, _Wrong("session-ended", "Cookie", "the session has ended; log in again"))
            detail = "a bearer token is required: Authorization: Bearer TOKEN"
            return _unauthorized(scope, _Wrong("token-needed", "Authorization", detail))
        page = login_page.without(self._meant(_page(scope)), self.token)
        if headers.get("sec-fetch-site") == "cross-site":
            return login_page.step(page)
        return RedirectResponse(f"{LOGIN_PATH}?next={quote(login_page.own_page(page), safe='/')}", 303)

    def _meant(self, page: str) -> str:
        own = PAGES + page
        return own if not page.startswith(PAGES + "/") and self.is_page(own.partition("?")[0]) else page

    def _check_bearer(self, scope: Scope, header: str) -> Response | None:
        scheme, _, given = header.partition(" ")
        given = given.strip()
        if scheme.lower() != "bearer" or not given:
            detail = "the header does not have the form: Bearer TOKEN"
            return _unauthorized(scope, _Wrong("token-needed", "Authorization", detail, 'error="invalid_request"'))
        # The token is compared before the limit on wrong tokens is checked, because another client at the same
        # address may have sent the wrong tokens.
        if is_same(given, self.token):
            return None
        if wait_s := self.attempts.wait_s(_address(scope)):
            detail = f"too many wrong tokens from this address; try again in {wait_s} s"
            headers = {"Retry-After": str(wait_s)}
            return problem(429, "too-many-attempts", detail, instance=scope["path"], headers=headers)
        self._note_wrong(scope, given)
        detail = "the bearer token is wrong"
        return _unauthorized(scope, _Wrong("token-wrong", "Authorization", detail, 'error="invalid_token"'))

    def _check_own_page(self, scope: Scope, headers: Headers) -> Response | None:
        # A foreign origin was refused earlier. Here, the request must prove that it comes from a page of this
        # service.
        is_proven = "origin" in headers or headers.get("sec-fetch-site") == "same-origin"
        if scope["method"] in _READING or is_proven:
            return None
        detail = "a session may change something only from the pages of this service; scripts must send the token"
        return problem(403, "foreign-origin", detail, instance=scope["path"])

    def _note_wrong(self, scope: Scope, given: str) -> None:
        address = _address(scope)
        self.attempts.note_wrong(address, given)
        is_damped = self.attempts.wait_s(address) > 0
        _log.warning("a wrong token was sent", address=address, path=scope["path"], is_damped=is_damped)


def _log_out(*, is_secure: bool) -> Response:
    answer = RedirectResponse(LOGIN_PATH, 303)
    answer.delete_cookie(_cookie_name(is_secure=is_secure), secure=is_secure, httponly=True, samesite="strict")
    return answer


def _unauthorized(scope: Scope, wrong: _Wrong) -> Response:
    challenge = ", ".join(part for part in ('Bearer realm="barrierscope"', wrong.challenge) if part)
    field = ProblemField(pointer=wrong.pointer, detail=wrong.detail)
    headers = {"WWW-Authenticate": challenge, "Cache-Control": "no-store"}
    return problem(401, wrong.slug, wrong.detail, instance=scope["path"], errors=[field], headers=headers)


def _method_not_allowed(path: str, allowed: str) -> Response:
    return problem(405, "method-not-allowed", f"{path} allows {allowed}", instance=path, headers={"Allow": allowed})


def _malformed(scope: Scope) -> Response | None:
    name = malformed_header(Headers(scope=scope))
    if name is None:
        return None
    field = ProblemField(pointer=name, detail="is missing, repeated or malformed", allowed=_HEADERS[name])
    detail = f"the header {name} is missing, repeated or malformed"
    return problem(400, "malformed-header", detail, instance=scope["path"], errors=[field])


def _is_from_elsewhere(method: str, headers: Headers) -> bool:
    """Return whether the browser reports that the request comes from another site and is not a plain link."""
    if headers.get("sec-fetch-site") not in _ELSEWHERE:
        return False
    is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") not in _FRAMED
    return not (is_link and method in _READING)


def _guarded(send: Send, *, is_secret: bool) -> Send:
    """Add headers to every response.

    With them, browsers do not guess the content type, and other sites cannot embed the response. If ``is_secret``,
    neither browsers nor proxies store it.
    """

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.setdefault("X-Content-Type-Options", "nosniff")
            headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
            if is_secret:
                headers["Cache-Control"] = "no-store"
        await send(message)

    return send_with_headers


async def _filled_in(request: Request) -> tuple[str | None, str]:
    """Return the token in the submitted form (None if there is none), and the page to show after login."""
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _FORM_MAX_BYTES:
                return None, login_page.AFTER_LOGIN
    except ClientDisconnect:
        return None, login_page.AFTER_LOGIN
    values = parse_qs(body.decode("utf-8", "replace"))
    token = values.get("token", [None])[0]
    return token.strip() if token else None, values.get("next", [login_page.AFTER_LOGIN])[0]


def _page(scope: Scope) -> str:
    """Return the path and the query of the request."""
    path, query = scope.get("raw_path") or scope["path"].encode(), scope["query_string"]
    return b"?".join(part for part in (path, query) if part).decode("latin-1")


def _cookie_name(*, is_secure: bool) -> str:
    # With this prefix, browsers reject the cookie if it comes over plain HTTP or from another host of the domain.
    return f"__Host-{_COOKIE}" if is_secure else _COOKIE


def _cookie(header: str) -> str:
    try:
        cookies = SimpleCookie(header)
    except CookieError:
        return ""
    return next((cookies[name].value for name in (f"__Host-{_COOKIE}", _COOKIE) if name in cookies), "")


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _with_port(scheme: str, netloc: str) -> str:
    host = without_port(netloc)
    port = netloc[len(host) + 1 :] or str(_DEFAULT_PORTS.get(scheme, ""))
    return f"{host}:{port}"
