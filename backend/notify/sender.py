"""One POST to a receiver, with limits on time and size, without redirects and without the environment's proxies.

Users enter the addresses of receivers, so answers are not trusted. A redirect could lead to any address and is refused.
Only the begin of an answer is read, for the log, and its control characters are removed. The credential is sent only in
the Authorization header.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio
import httpx
import orjson

from backend.alerting.payloads import Json
from backend.notify.addresses import host_of_secret, is_reference, secrets_of

_TIMEOUT_S = 10.0
_ANSWER_MAX_BYTES = 2_000
_ANSWER_SHOWN = 200

Secrets = Callable[[str], str | None]
"""Returns the credential at a reference (``env:NAME``, ``file:NAME``), or None."""


@dataclass(frozen=True, slots=True)
class Address:
    """A URL, or a reference to one, and a reference to the credential."""

    url: str
    credential: str | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of a POST. ``result`` is for the log."""

    is_ok: bool
    result: str
    duration_ms: int


class Sender:
    """Sends message bodies. A process has one, and its owner closes it."""

    def __init__(
        self, secrets: Secrets, *, timeout_s: float = _TIMEOUT_S, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._secrets = secrets
        self._timeout_s = timeout_s
        self._http = httpx.AsyncClient(
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=False,
            transport=transport,
            headers={"User-Agent": "barrierscope"},
            # No idle connections: the next send would fail if the receiver has closed one.
            limits=httpx.Limits(max_connections=50, max_keepalive_connections=0),
        )

    async def post(self, address: Address, body: Json | list[Json], *, key: str | None = None) -> Sent:
        """Send ``body`` as JSON. Errors of the receiver are not raised. ``key`` is the same for every attempt."""
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key is not None else {})
        url = self.address_at(address.url) if is_reference(address.url) else address.url
        if url is None or host_of_secret(url) is None:
            return Sent(False, f"no http(s) address at {address.url}", 0)
        hidden = secrets_of(url)
        if address.credential is not None:
            secret = self._secrets(address.credential)
            if secret is None:
                return Sent(False, f"no credential at {address.credential}", 0)
            headers["Authorization"] = f"Bearer {secret}"
            hidden = (secret, *hidden)
        began_s = time.perf_counter()
        is_ok, result = False, f"no answer within {self._timeout_s:g} s"
        with anyio.move_on_after(self._timeout_s):
            is_ok, result = await self._attempt(url, orjson.dumps(body), headers, hidden)
        return Sent(is_ok, result, round((time.perf_counter() - began_s) * 1000))

    def address_at(self, reference: str) -> str | None:
        """The address at a reference, or None."""
        return self._secrets(reference)

    async def _attempt(
        self, url: str, content: bytes, headers: dict[str, str], hidden: Sequence[str]
    ) -> tuple[bool, str]:
        try:
            async with self._http.stream("POST", url, content=content, headers=headers) as response:
                if response.is_success:
                    return True, f"HTTP {response.status_code}"
                if response.is_redirect:
                    return False, f"HTTP {response.status_code}: redirects are not followed"
                return False, _shown(response.status_code, await _begin_of(response), hidden)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            # The exception's text is not used, because it may repeat the request.
            return False, _failure(error)

    async def aclose(self) -> None:
        """Close the HTTP client."""
        await self._http.aclose()


async def _begin_of(response: httpx.Response) -> bytes:
    body = b""
    async for chunk in response.aiter_raw(chunk_size=_ANSWER_MAX_BYTES):
        body += chunk
        if len(body) >= _ANSWER_MAX_BYTES:
            break
    return body[:_ANSWER_MAX_BYTES]


def _shown(status: int, body: bytes, hidden: Sequence[str]) -> str:
    text = body.decode("utf-8", "replace")
    for secret in hidden:
        # Some receivers repeat the request in their answer.
        text = text.replace(secret, "…")
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return f"HTTP {status}: {text[:_ANSWER_SHOWN]}" if text else f"HTTP {status}"


def _failure(error: Exception) -> str:
    match error:
        case httpx.ConnectError():
            return "cannot connect"
        case httpx.TimeoutException():
            return "no answer in time"
        case httpx.RemoteProtocolError() | httpx.ReadError():
            return "the connection closed before an answer"
    return f"not sent ({type(error).__name__})"
