"""Sends requests to the API for the command line, and reads the answers with limits. Another program may answer.

An answer has the limit of ``diagnose``'s answers, counted after decompression (``backend.domain.bounded_body``). The
deadline is for the whole answer. The timeouts of httpx are for each piece, so an answer that arrives byte by byte would
never reach them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from backend.domain.bounded_body import BODY_MAX_BYTES, BodyRefusedError, BoundedBody

if TYPE_CHECKING:
    import httpx


@dataclass(frozen=True, slots=True)
class Answer:
    """One whole answer. ``content`` is decompressed."""

    url: str
    status: int
    content: bytes

    @property
    def is_success(self) -> bool:
        """Whether the status means success."""
        return 200 <= self.status < 300


class NoAnswerError(Exception):
    """The program at the address does not answer, or its answer exceeds a limit."""


class Answers:
    """A client of the API at ``root``. Use it as a context manager. It must not be used within an event loop.

    Raises:
        NoAnswerError: ``root`` is not a URL.
    """

    def __init__(self, root: str, token: str | None, *, deadline_s: float) -> None:
        import httpx

        headers = {"Accept-Encoding": "gzip"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._deadline_s = deadline_s
        self._runner = asyncio.Runner()
        try:
            self._http = httpx.AsyncClient(base_url=root, headers=headers, timeout=deadline_s, trust_env=False)
        except httpx.InvalidURL as error:
            raise NoAnswerError(str(error)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._runner.run(self._http.aclose())
        finally:
            self._runner.close()

    def ask(self, method: str, path: str, *, content: str | bytes | None = None, if_match: str | None = None) -> Answer:
        """Send a request, with text as JSON and bytes as a file, and return the answer.

        ``if_match`` is the version that the subject of the request must still have.

        Raises:
            NoAnswerError: there is no whole answer within the deadline, or it is larger than 8 MiB.
        """
        return self._runner.run(self._asked(method, path, content, if_match))

    async def _asked(self, method: str, path: str, content: str | bytes | None, if_match: str | None) -> Answer:
        import httpx

        kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        headers = {"Content-Type": kind} if content is not None else {}
        headers |= {"If-Match": f'"{if_match}"'} if if_match is not None else {}
        try:
            async with (
                asyncio.timeout(self._deadline_s),
                self._http.stream(method, path, content=content, headers=headers) as response,
            ):
                return Answer(str(response.url), response.status_code, await _body(response))
        except TimeoutError:
            raise NoAnswerError(f"no whole answer within {self._deadline_s:g} s") from None
        except BodyRefusedError as error:
            raise NoAnswerError(error.reason) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NoAnswerError(str(error) or type(error).__name__) from None


async def _body(response: httpx.Response) -> bytes:
    body = BoundedBody(response.headers.get("Content-Encoding", ""), size_max=BODY_MAX_BYTES)
    async for chunk in response.aiter_raw():
        body.feed(chunk)
    return body.whole()
