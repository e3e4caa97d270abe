"""One POST to a receiver: bounded in time and size, without redirects, without the environment's proxies.

A receiver's address is given by people and hostile until proven otherwise: a redirect could lead anywhere, so it is
refused; of an answer a little is read, for the log, and control characters are taken out. The credential goes into
the Authorization header and nowhere else.
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
"""The credential at a reference (``env:NAME``, ``file:NAME``); None where there is none."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to send, or where that is found; and where the credential is found."""

    url: str
    credential: str | None = None


@dataclass(frozen=True, slots=True)
class Sent:
    """How it went, in words for the log."""

    is_ok: bool
    result: str
    duration_ms: int


class Sender:
    """Sends bodies; one for the life of a process, closed by its owner."""

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
            # An idle connection that a receiver has closed would fail the next send for nothing.
            limits=httpx.Limits(max_connections=50, max_keepalive_connections=0),
        )

    async def post(self, address: Address, body: Json | list[Json], *, key: str | None = None) -> Sent:
        """Send ``body`` as JSON; never raises for what a receiver does. ``key`` is the same for every repetition."""
        headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key is not None else {})
        url = self.address_at(address.url) if is_reference(address.url) else address.url
        if url is None or host_of_secret(url) is None:
            return Sent(False, f"there is no http(s) address at {address.url}", 0)
        hidden = secrets_of(url)
        if address.credential is not None:
            secret = self._secrets(address.credential)
            if secret is None:
                return Sent(False, f"there is no credential at {address.credential}", 0)
            headers["Authorization"] = f"Bearer {secret}"
            hidden = (secret, *hidden)
        began_s = time.perf_counter()
        is_ok, result = False, f"no answer within {self._timeout_s:g} s"
        with anyio.move_on_after(self._timeout_s):
            is_ok, result = await self._attempt(url, orjson.dumps(body), headers, hidden)
        return Sent(is_ok, result, round((time.perf_counter() - began_s) * 1000))

    def address_at(self, reference: str) -> str | None:
        """The address at a reference; None where nothing is there."""
        return self._secrets(reference)

    async def _attempt(
        self, url: str, content: bytes, headers: dict[str, str], hidden: Sequence[str]
    ) -> tuple[bool, str]:
        try:
            async with self._http.stream("POST", url, content=content, headers=headers) as response:
                if response.is_success:
                    return True, f"HTTP {response.status_code}"
                if response.is_redirect:
                    return False, f"HTTP {response.status_code}: a redirect, which is not followed"
                return False, _shown(response.status_code, await _begin_of(response), hidden)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            # The text of an exception may repeat what was sent.
            return False, _failure(error)

    async def aclose(self) -> None:
        """Close what is open."""
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
        # Some repeat what they were sent.
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
            return "the connection broke before an answer"
    return f"not sent ({type(error).__name__})"
