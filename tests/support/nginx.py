"""Run nginx on free ports in front of a target, with certificates that the tests make, and a small forward proxy.

``missing`` returns the reason to skip a test, if nginx or openssl is not installed.
"""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.running_up import free_port
from tests.support.waiting import until

# Debian installs nginx into a folder that is not on the path of every user.
PROGRAM = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
_OPENSSL = shutil.which("openssl")

TOKEN, USER, PASSWORD, KEY = "canary-bearer-7f3a", "barrierscope", "canary-password-91cc", "canary-header-5d20"
"""What nginx wants. The tests search for these texts where no secret may be."""

LOGIN_PAGE = "<html><form action=/login><input name=user><input type=password name=p></form></html>"


def missing() -> str | None:
    """Return why tests that need nginx must be skipped, or None if they can run.

    If BARRIERSCOPE_REQUIRE_NGINX is set, these tests are never skipped. They fail if nginx is not installed.
    """
    if (PROGRAM is not None and _OPENSSL is not None) or os.environ.get("BARRIERSCOPE_REQUIRE_NGINX"):
        return None
    return "nginx or openssl is missing; apt-get install nginx-light openssl"


@dataclass(frozen=True)
class Certificates:
    """The files of one certificate authority and of the certificates that it has signed, each with its key."""

    folder: Path

    def file(self, name: str) -> Path:
        """Return a file, such as ``ca.pem`` or ``client.key``."""
        return self.folder / name


def make_certificates(folder: Path) -> Certificates:
    """Make an authority, and certificates for this machine: a good, an expired and a foreign one, and a client's."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("ca", "other-ca"):
        _openssl(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")),
        )
    here = "DNS:localhost,IP:127.0.0.1"
    sign(folder, "server", here)
    sign(folder, "expired", here, days=-1)
    sign(folder, "elsewhere", "DNS:flink.internal")
    sign(folder, "client", "DNS:client")
    sign(folder, "foreign-client", "DNS:client", ca="other-ca")
    return Certificates(folder)


def sign(folder: Path, name: str, names: str, *, ca: str = "ca", days: int = 2) -> None:
    """Make a certificate for ``names``, signed by ``ca``, or make it anew."""
    request, extensions = folder / f"{name}.csr", folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName={names}\n")
    _openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
        *("-keyout", str(folder / f"{name}.key"), "-out", str(request)),
    )
    _openssl(
        *("x509", "-req", "-in", str(request), "-CA", str(folder / f"{ca}.pem"), "-CAkey", str(folder / f"{ca}.key")),
        *("-CAcreateserial", "-days", str(days), "-extfile", str(extensions), "-out", str(folder / f"{name}.pem")),
    )


def _openssl(*arguments: str) -> None:
    assert _OPENSSL is not None, "BARRIERSCOPE_REQUIRE_NGINX is set, but openssl is missing"
    subprocess.run([_OPENSSL, *arguments], check=True, capture_output=True)


@dataclass(frozen=True)
class Front:
    """The addresses that nginx serves."""

    root: str
    """TLS with a good certificate. The paths below it are those of ``_LOCATIONS``."""
    expired: str
    elsewhere: str
    mutual: str
    plain: str


_LOCATIONS = """
    location /flink/ {{ proxy_pass {upstream}/; }}
    location /bearer/ {{ if ($http_authorization != "Bearer {token}") {{ return 401; }} proxy_pass {upstream}/; }}
    location /basic/ {{ auth_basic "x"; auth_basic_user_file {folder}/htpasswd; proxy_pass {upstream}/; }}
    location /key/ {{ if ($http_x_api_key != "{key}") {{ return 403; }} proxy_pass {upstream}/; }}
    location /broken/ {{ return 503; }}
    location /login-page/ {{ default_type text/html; return 200 '{login}'; }}
    location /html/ {{ default_type text/html; return 200 '<html>hello</html>'; }}
    location /login-redirect/ {{ return 302 /sso/login?next=$uri; }}
    location /away/ {{ return 307 {away}$request_uri; }}
    location / {{ return 404; }}
"""

_CONFIG = """
daemon off; master_process off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  ssl_session_cache off;
  server {{ listen 127.0.0.1:{good} ssl; ssl_certificate {certs}/server.pem; ssl_certificate_key {certs}/server.key;
    {locations} }}
  server {{ listen 127.0.0.1:{expired} ssl; ssl_certificate {certs}/expired.pem;
    ssl_certificate_key {certs}/expired.key; {locations} }}
  server {{ listen 127.0.0.1:{elsewhere} ssl; ssl_certificate {certs}/elsewhere.pem;
    ssl_certificate_key {certs}/elsewhere.key; {locations} }}
  server {{ listen 127.0.0.1:{mutual} ssl; ssl_certificate {certs}/server.pem; ssl_certificate_key {certs}/server.key;
    ssl_client_certificate {certs}/ca.pem; ssl_verify_client on; {locations} }}
  server {{ listen 127.0.0.1:{plain}; {locations} }}
}}
"""


@contextmanager
def nginx(
    folder: Path, certificates: Certificates, upstream: str, *, away: str = "http://127.0.0.1:9"
) -> Iterator[Front]:
    """Run nginx in front of ``upstream``, and yield its addresses. ``away`` is where it redirects to."""
    assert PROGRAM is not None, "BARRIERSCOPE_REQUIRE_NGINX is set, but nginx is missing"
    folder.mkdir(parents=True, exist_ok=True)
    names = ("good", "expired", "elsewhere", "mutual", "plain")
    ports = {name: free_port() for name in names}
    (folder / "htpasswd").write_text(f"{USER}:{{PLAIN}}{PASSWORD}\n")
    locations = _LOCATIONS.format(
        upstream=upstream.rstrip("/"), token=TOKEN, key=KEY, folder=folder, login=LOGIN_PAGE, away=away
    )
    config = folder / "nginx.conf"
    config.write_text(_CONFIG.format(folder=folder, certs=certificates.folder, locations=locations, **ports))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([PROGRAM, "-p", str(folder), "-c", str(config)], stdout=log, stderr=log)
        try:
            until(lambda: all(_listens(port) for port in ports.values()), "nginx listens")
            root = {name: f"https://localhost:{port}" for name, port in ports.items()}
            yield Front(
                root["good"], root["expired"], root["elsewhere"], root["mutual"], f"http://localhost:{ports['plain']}"
            )
        finally:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class ForwardProxy:
    """A forward proxy for tunnels (CONNECT) and for plain requests. ``asked`` has the first line of each request."""

    url: str = ""
    asked: list[str] = field(default_factory=list)
    needs: str | None = None
    """The ``user:password`` that it wants; None if it wants none."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            line, *headers = head.decode("latin-1").split("\r\n")
            self.asked.append(line)
            wanted = None if self.needs is None else base64.b64encode(self.needs.encode()).decode()
            if wanted is not None and f"Proxy-Authorization: Basic {wanted}" not in headers:
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
            else:
                await self._pass_on(line, headers, reader, writer)
            await writer.drain()
        writer.close()

    async def _pass_on(
        self, line: str, headers: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        method, target, _ = line.split(" ", 2)
        host, _, port = target.removeprefix("http://").partition("/")[0].rpartition(":")
        there, back = await asyncio.open_connection(host.strip("[]"), int(port))
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            path = "/" + target.removeprefix("http://").partition("/")[2]
            kept = [h for h in headers if not h.lower().startswith(("proxy-", "connection:"))]
            back.write("\r\n".join([f"{method} {path} HTTP/1.1", "Connection: close", *kept]).encode())
        await asyncio.gather(_copy(reader, back), _copy(there, writer))
        back.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.write_eof()


@asynccontextmanager
async def forward_proxy(*, needs: str | None = None) -> AsyncIterator[ForwardProxy]:
    """Run a forward proxy on a free port."""
    proxy = ForwardProxy(needs=needs)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
