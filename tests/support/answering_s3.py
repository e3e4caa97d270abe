"""A server that answers a reader of S3 as a test wants, which moto's server does not. It notes what is asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

LAST_MODIFIED = "2026-01-01T00:00:{:02d}.000Z"


@dataclass
class Answer:
    """A response. ``pieces`` are sent one after the other, until the reader hangs up."""

    pieces: Iterable[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class AnsweringS3:
    """``asked`` has the path and the headers of each request, ``sent_bytes`` what was sent."""

    answer: Callable[[str, dict[str, list[str]]], Answer]
    endpoint: str = ""
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    sent_bytes: int = 0


@contextmanager
def answering_s3(answer: Callable[[str, dict[str, list[str]]], Answer]) -> Iterator[AnsweringS3]:
    """Run a server whose answer to a path and its query is that of ``answer``."""
    server = AnsweringS3(answer)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
            parts = urlsplit(self.path)
            found = server.answer(parts.path, parse_qs(parts.query))
            self.send_response(found.status)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                for piece in found.pieces:
                    self.wfile.write(piece)
                    server.sent_bytes += len(piece)
            except OSError:
                return

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            return

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    server.endpoint = f"http://127.0.0.1:{listening.server_port}"
    try:
        yield server
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


def page(entries: Iterable[tuple[str, int, int]], *, bucket: str, token: str | None = None) -> bytes:
    """Return a list of objects: each key, its size in bytes, and the second in which it was changed."""
    contents = "".join(
        f"<Contents><Key>{key}</Key><LastModified>{LAST_MODIFIED.format(second)}</LastModified>"
        f"<Size>{size}</Size></Contents>"
        for key, size, second in entries
    )
    more = "" if token is None else f"<NextContinuationToken>{token}</NextContinuationToken>"
    is_cut = "false" if token is None else "true"
    return (
        f'<?xml version="1.0"?><ListBucketResult><Name>{bucket}</Name><KeyCount>1</KeyCount>'
        f"<IsTruncated>{is_cut}</IsTruncated>{more}{contents}</ListBucketResult>"
    ).encode()
