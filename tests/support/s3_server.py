"""A server of S3 for tests: that of moto, on a port of this machine. It notes what is asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "spark-logs"
KEYS = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "secret-of-reader", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass
class S3Server:
    """``asked`` has the method, the path and the range of each request of the reader, ``users`` their key ids."""

    endpoint: str
    client: Any
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    users: set[str] = field(default_factory=set)
    is_noting: bool = True

    def write(self, name: str, content: bytes) -> None:
        """Write an object below ``events/``."""
        self.is_noting = False
        self.client.put_object(Bucket=BUCKET, Key=f"events/{name}", Body=content)
        self.is_noting = True

    def remove(self, name: str) -> None:
        """Delete an object."""
        self.is_noting = False
        self.client.delete_object(Bucket=BUCKET, Key=f"events/{name}")
        self.is_noting = True

    def taken(self) -> list[tuple[str, str, str | None]]:
        """Return what was asked since the last call."""
        asked, self.asked = self.asked, []
        return asked

    def note(self, environ: dict[str, Any]) -> None:
        """Note a request of the reader."""
        if self.is_noting:
            place = environ["PATH_INFO"].removeprefix(f"/{BUCKET}").removeprefix("/events")
            self.asked.append((environ["REQUEST_METHOD"], place, environ.get("HTTP_RANGE")))
            credential = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2]
            self.users.add(credential.partition("/")[0])


@contextmanager
def running_s3() -> Iterator[S3Server]:
    """Run an empty server with one bucket."""
    app = DomainDispatcherApplication(create_backend_app)
    noted: list[S3Server] = []

    def noting(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        for server in noted:
            server.note(environ)
        return app(environ, start)

    listening = make_server("127.0.0.1", 0, noting, threaded=True)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{listening.server_port}"
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="writer",
        aws_secret_access_key="secret-of-writer",
    )
    try:
        client.create_bucket(Bucket=BUCKET)
        server = S3Server(endpoint, client)
        noted.append(server)
        yield server
    finally:
        client.close()
        listening.shutdown()
        thread.join()
        listening.server_close()
