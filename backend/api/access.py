"""Who may ask: the one gate before API and pages.

While only this machine can reach the service there is no login, but a request made to another name (DNS rebinding) or
by a page of another site is refused. Everywhere else each request needs the token: scripts as a bearer, people once on
the login page, which sets a cookie that holds a keyed digest of the token and never the token itself.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.api.problems import problem

LOGIN_PATH = "/login"
_COOKIE = "barrierscope_session"
_COOKIE_MAX_AGE_S = 12 * 3600
_FORM_MAX_BYTES = 4096
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})
_FORM = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Barrierscope: log in</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>:root{{color-scheme:light dark}}body{{font:16px/1.5 system-ui,sans-serif;max-width:24rem;margin:15vh auto;
padding:0 1rem}}label{{display:block}}input,button{{font:inherit;width:100%;box-sizing:border-box;padding:.5rem;
margin:.4rem 0}}</style></head>
<body><h1>Barrierscope</h1><p role="status">{message}</p><form method="post" action="/login">
<label for="token">API token</label><input id="token" name="token" type="password" autocomplete="current-password"
required autofocus><button>Log in</button></form></body></html>
"""
_FORM_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """``token`` None: loopback only. ``hosts`` are the names the service may be asked under then."""

    token: str | None
    hosts: frozenset[str] = frozenset()


class Access:
    """ASGI middleware before everything else."""

    def __init__(self, app: ASGIApp, rules: AccessRules) -> None:
        self._app = app
        self._token = rules.token
        self._hosts = _LOOPBACK | rules.hosts
        # Keyed by the token: whoever reads the cookie cannot make the token of it.
        self._session = "" if rules.token is None else _digest(rules.token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            # Nothing here speaks it.
            await send({"type": "websocket.close", "code": 1008})
            return
        refusal = self._foreign(scope) or await self._login(scope, receive) or self._unknown(scope)
        await (refusal or self._app)(scope, receive, send)

    def _foreign(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if self._token is None and _without_port(host) not in self._hosts:
            detail = f"this service is not known as {host[:100]!r}; ask it as 127.0.0.1 or localhost"
            return problem(403, "foreign-host", detail, instance=scope["path"])
        if origin is not None and urlsplit(origin).netloc != host:
            return problem(403, "foreign-origin", "pages of another site may not ask here", instance=scope["path"])
        return None

    async def _login(self, scope: Scope, receive: Receive) -> Response | None:
        if self._token is None or scope["path"] != LOGIN_PATH:
            return None
        if scope["method"] in ("GET", "HEAD"):
            return _form("This service needs its API token.")
        if scope["method"] != "POST":
            return problem(405, "method-not-allowed", "GET or POST", headers={"Allow": "GET, POST"})
        given = await _form_token(Request(scope, receive))
        if given is None or not _is_same(given, self._token):
            return _form("That is not the token.", 401)
        answer = RedirectResponse("/ui/", 303)
        is_secure = scope.get("scheme") == "https"
        answer.set_cookie(
            _COOKIE, self._session, max_age=_COOKIE_MAX_AGE_S, httponly=True, samesite="strict", secure=is_secure
        )
        return answer

    def _unknown(self, scope: Scope) -> Response | None:
        if self._token is None:
            return None
        headers = Headers(scope=scope)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _is_same(given.strip(), self._token):
            return None
        if _is_same(_cookie(headers.get("cookie", "")), self._session):
            return None
        if scope["path"].startswith("/api/") or scope["method"] not in ("GET", "HEAD"):
            detail = "a bearer token is needed: Authorization: Bearer ..."
            challenge = {"WWW-Authenticate": 'Bearer realm="barrierscope"'}
            return problem(401, "token-needed", detail, instance=scope["path"], headers=challenge)
        return RedirectResponse(LOGIN_PATH, 303)


async def _form_token(request: Request) -> str | None:
    body = b""
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _FORM_MAX_BYTES:
                return None
    except ClientDisconnect:
        return None
    values = parse_qs(body.decode("utf-8", "replace")).get("token", [])
    return values[0] if values else None


def _form(message: str, status: int = 200) -> Response:
    headers = {"Content-Security-Policy": _FORM_POLICY, "Cache-Control": "no-store", "X-Frame-Options": "DENY"}
    return HTMLResponse(_FORM.format(message=message), status, headers=headers)


def _digest(token: str) -> str:
    return hmac.new(token.encode(), b"barrierscope session 1", hashlib.sha256).hexdigest()


def _is_same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(_COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _without_port(host: str) -> str:
    name, sign, port = host.rpartition(":")
    return (name if sign and port.isdecimal() else host).lower()
