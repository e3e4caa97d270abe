"""Access control for a live runtime that has a token or that other machines can reach: changes need the API's token.

Without a configured token, every change is refused. Reading is open, as in Flink.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import orjson
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from backend.access.attempts import Attempts
from backend.access.sessions import is_same

_READING = frozenset({"GET", "HEAD"})


def guard_changes(app: ASGIApp, token: str | None, *, is_local: bool) -> ASGIApp:
    """Return ``app``, guarded by ``TokenToChange`` unless it has no token and only this machine can reach it."""
    return app if token is None and is_local else TokenToChange(app, token)


class TokenToChange:
    """ASGI middleware that requires the bearer token for every request that is not GET or HEAD."""

    def __init__(self, app: ASGIApp, token: str | None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._token = token
        self._attempts = Attempts(monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = None
        if scope["type"] == "http" and scope["method"] not in _READING:
            refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        if self._token is None:
            return _errors(403, "the runtime was started without BARRIERSCOPE_API_TOKEN, so changes are not allowed")
        client = scope.get("client")
        address = str(client[0]) if client else ""
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        # The token is compared before the limit on wrong tokens is checked, because another client at the same
        # address may have sent the wrong tokens.
        if scheme.lower() == "bearer" and is_same(given.strip(), self._token):
            return None
        if wait_s := self._attempts.wait_s(address):
            return _errors(429, f"too many wrong tokens; try again in {wait_s} s", {"Retry-After": str(wait_s)})
        if given:
            self._attempts.note_wrong(address, given)
        challenge = {"WWW-Authenticate": 'Bearer realm="barrierscope"'}
        return _errors(401, "Authorization: a change needs the bearer token of the API", challenge)


def _errors(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    headers = {"Cache-Control": "no-store"} | (headers or {})
    return Response(orjson.dumps({"errors": [message]}), status, headers, "application/json")
