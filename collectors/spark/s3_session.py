"""The HTTP session of the client for S3, with the limits that the other targets have.

aiobotocore follows a redirect to any address and sends the token of the session along, and it reads an answer whole,
however long it is. Here no redirect is followed, and an answer that is not streamed has at most ``BODY_MAX_BYTES``.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Final

from backend.domain.bounded_body import BODY_MAX_BYTES, PIECE_BYTES

_REGION: Final = "x-amz-bucket-region"
_PAGES: Final = (b"<!doctype html", b"<html")


class TooLargeAnswerError(ValueError):
    """S3 has sent more than ``BODY_MAX_BYTES`` as a list or as an error. The text is a sentence."""

    def __init__(self) -> None:
        super().__init__(f"an answer of S3 is larger than {BODY_MAX_BYTES // 2**20} MiB")


class RedirectedError(ValueError):
    """What answers has named another address, and it is no region of S3. ``status`` is that of the answer."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(f"redirected by {status}")


class PageError(ValueError):
    """A page for people has answered, such as that of a login, and not S3."""


@cache
def guarded_session() -> type[Any]:
    """Return the class for ``http_session_cls`` of aiobotocore, which belongs to the extra ``s3``."""
    base: Any = import_module("aiobotocore.httpsession").AIOHTTPSession

    class GuardedSession(base):  # type: ignore[misc]
        """The session of aiobotocore without redirects, and with a limit on what is read whole."""

        async def _get_session(self, proxy_url: str | None) -> _WithoutRedirects:
            return _WithoutRedirects(await super()._get_session(proxy_url))

        async def send(self, request: Any) -> Any:
            is_streamed, request.stream_output = request.stream_output, True
            try:
                answer = await super().send(request)
            finally:
                request.stream_output = is_streamed
            if 300 <= answer.status_code < 400 and _REGION not in answer.headers:
                # botocore would ask for the region of the bucket, which is redirected as well, without end.
                answer.raw.close()
                raise RedirectedError(answer.status_code)
            if not is_streamed or answer.status_code >= 300:
                # The property ``content`` of the answer would read all of it.
                answer._content = await _bounded(answer.raw)
                # botocore would take it for an answer of S3 that broke off, with the status 500.
                if _is_page(answer):
                    raise PageError
            return answer

    return GuardedSession


class _WithoutRedirects:
    """Sends requests by a session of aiohttp and follows no redirect."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def request(self, method: str, **options: Any) -> Any:
        return await self._session.request(method, **options | {"allow_redirects": False})


def _is_page(answer: Any) -> bool:
    begin = answer._content[:200].lstrip().lower()
    return "text/html" in answer.headers.get("content-type", "").lower() or begin.startswith(_PAGES)


async def _bounded(response: Any) -> bytes:
    """Return the body of a response of aiohttp. Its connection is given back, or closed if the body is too large."""
    body = bytearray()
    try:
        async for piece in response.content.iter_chunked(PIECE_BYTES):
            body += piece
            if len(body) > BODY_MAX_BYTES:
                raise TooLargeAnswerError
    except BaseException:
        response.close()
        raise
    return bytes(body)
