"""Sends one POST to a receiver, with limits on time and size. It follows no redirects and uses no proxies.

Users enter the addresses of receivers, so responses are not trusted. A redirect could lead to any address, so it is
refused. A name is resolved once, each of its addresses is checked, and the request goes to an address that was checked.
Only the beginning of a response is read, for the log, and its control characters are removed. The credential is sent
only where the kind of the receiver puts it. Proxies from the environment are ignored.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import anyio
import httpx
import orjson

from backend.domain.address_rules import EVERYWHERE, AddressRules
from backend.notify.addresses import host_of_secret, is_reference, secrets_of
from backend.notify.kinds.port import Message

_TIMEOUT_S = 10.0
_ANSWER_MAX_BYTES = 2_000
_ANSWER_SHOWN = 200

Secrets = Callable[[str], str | None]
"""A function that returns the credential at a reference (``env:NAME``, ``file:NAME``), or None."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The outcome of a POST. ``result`` is the text for the delivery log."""

    is_ok: bool
    result: str
    duration_ms: int


@cache
def _trusted() -> ssl.SSLContext:
    """Return the trust in public certificates. Reading them takes longer than all else that a ``Sender`` needs."""
    return httpx.create_ssl_context(trust_env=False)


class Sender:
    """Sends message bodies to receivers. A process has one ``Sender``, and its owner must close it."""

    def __init__(
        self,
        secrets: Secrets,
        rules: AddressRules,
        *,
        timeout_s: float = _TIMEOUT_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """``rules`` apply to every receiver that is not configured."""
        self._secrets = secrets
        self._rules = rules
        self._timeout_s = timeout_s
        self._http = httpx.AsyncClient(
            timeout=timeout_s,
            follow_redirects=False,
            trust_env=False,
            verify=_trusted(),
            transport=transport,
            headers={"User-Agent": "barrierscope"},
            # No idle connections are kept, because the next POST would fail if the receiver has closed the
            # connection.
            limits=httpx.Limits(max_connections=50, max_keepalive_connections=0),
        )

    async def post(self, message: Message, *, credential: str | None = None, is_configured: bool = False) -> Sent:
        """Send the message as JSON. Errors of the receiver are returned, not raised.

        ``credential`` is a reference. ``is_configured`` says that the URL comes from the configuration, so the
        allow-list does not apply to it.
        """
        url = self.address_at(message.url) if is_reference(message.url) else message.url
        if url is None or host_of_secret(url) is None:
            return Sent(False, f"no http(s) address at {message.url}", 0)
        hidden = secrets_of(url)
        if credential is not None:
            secret = self._secrets(credential)
            if secret is None:
                return Sent(False, f"no credential at {credential}", 0)
            message = message.with_credential(message, secret)
            hidden = (secret, *hidden)
        key = {"Idempotency-Key": message.key} if message.key is not None else {}
        headers = {"Content-Type": "application/json", **key, **message.headers}
        began_s = time.perf_counter()
        is_ok, result = False, f"no answer within {self._timeout_s:g} s"
        with anyio.move_on_after(self._timeout_s):
            rules = EVERYWHERE if is_configured else self._rules
            is_ok, result = await self._attempt(rules, url, orjson.dumps(message.body), headers, hidden)
        return Sent(is_ok, result, round((time.perf_counter() - began_s) * 1000))

    def address_at(self, reference: str) -> str | None:
        """Return the address that a reference names, or None if the reference leads to no address."""
        return self._secrets(reference)

    async def _attempt(
        self, rules: AddressRules, url: str, content: bytes, headers: dict[str, str], hidden: Sequence[str]
    ) -> tuple[bool, str]:
        outcome = (False, "the address of the host is not allowed here")
        try:
            places = await _places(url, rules)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return False, _failure(error)
        for place in places:
            try:
                return await self._post(place, content, headers, hidden)
            except httpx.ConnectError as error:
                # The host name may have another IP address that responds, so that address is tried next.
                outcome = (False, _failure(error))
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                # The text of the exception is not used, because it may contain the request with its secrets.
                return False, _failure(error)
        return outcome

    async def _post(
        self, place: _Place, content: bytes, headers: dict[str, str], hidden: Sequence[str]
    ) -> tuple[bool, str]:
        headers, extensions = {**headers, **place.headers}, dict(place.extensions)
        async with self._http.stream(
            "POST", place.url, content=content, headers=headers, extensions=extensions
        ) as response:
            if response.is_success:
                return True, f"HTTP {response.status_code}"
            if response.is_redirect:
                return False, f"HTTP {response.status_code}: redirects are not followed"
            return False, _shown(response.status_code, await _begin_of(response), hidden)

    async def aclose(self) -> None:
        """Close the HTTP client."""
        await self._http.aclose()


@dataclass(frozen=True, slots=True)
class _Place:
    """The URL of one IP address of a host, and what the request needs to name the host itself."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    extensions: Mapping[str, str] = field(default_factory=dict)


async def _places(url: str, rules: AddressRules) -> Sequence[_Place]:
    """Look up the host of ``url``, and return those of its IP addresses that ``rules`` allow.

    If ``rules`` allow everything, return ``url`` itself. Otherwise the IP address replaces the name in the URL, so that
    the HTTP client cannot look up the name again. The server still sees the name, in the Host header and for TLS.
    """
    if rules.is_everything_allowed:
        return [_Place(url)]
    parsed = httpx.URL(url)
    # An international name is looked up in its encoded form, which was checked when the receiver was added.
    host = parsed.raw_host.decode("ascii")
    try:
        found = await anyio.getaddrinfo(host, parsed.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise httpx.ConnectError("the name does not resolve") from None
    addresses = dict.fromkeys(str(place[0]) for *_, place in found)
    headers, extensions = {"Host": parsed.netloc.decode("ascii")}, {"sni_hostname": host}
    return [
        _Place(str(parsed.copy_with(host=address)), headers, extensions)
        for address in addresses
        if rules.allows(host, address)
    ]


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
        # Some receivers repeat the request in their response, so its secrets are removed from the text.
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
