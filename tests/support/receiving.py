"""A receiver of alerts over real HTTP on a free port.

The receiver responds as the test sets it up, and stores the requests.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.waiting import PATIENCE_S


@dataclass
class Post:
    """One request that arrived in full, and the status with which it was answered."""

    path: str
    headers: dict[str, str]
    body: Any
    status: int


@dataclass
class Receiving:
    """The receiver. It responds to each request with ``status``. While ``released`` is not set, it does not respond."""

    url: str = ""
    status: int = 200
    location: str | None = None
    answer: bytes = b""
    posts: list[Post] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.released.set()

    @property
    def taken(self) -> list[Post]:
        """The requests that got a successful status."""
        return [p for p in self.posts if 200 <= p.status < 300]

    def pages(self) -> list[tuple[str, str]]:
        """Return (message key, status) of each successful request, in the order of arrival."""
        return [(p.headers["Idempotency-Key"], p.body["status"]) for p in self.taken]


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiving]:
    """Run a receiver during the ``with`` block."""
    box = Receiving()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            box.posts.append(Post(self.path, dict(self.headers), json.loads(content), box.status))
            box.released.wait(PATIENCE_S)
            try:
                self.send_response(box.status)
                if box.location is not None:
                    self.send_header("Location", box.location)
                self.send_header("Content-Length", str(len(box.answer)))
                self.end_headers()
                self.wfile.write(box.answer)
            except OSError:
                # The client has disconnected.
                return

        def log_message(self, *_: object) -> None:
            """Do not log to standard error."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        allow_reuse_address = True

    server = Server(("127.0.0.1", port), Handler)
    box.url = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield box
    finally:
        box.released.set()
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)
