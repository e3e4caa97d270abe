"""A real Flink that requires a client certificate (``security.ssl.rest.*``), read by collector and command line.

``make test-flink-tls`` downloads Flink and runs this. ``BARRIERSCOPE_FLINK_VERSIONS`` names the folder with the folder
``2.3.0`` of its jars. Without it, or without a JDK, the test is skipped.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from backend.domain.connection import EVERYTHING, ConnectionOptions, Reach, parse_reference
from backend.domain.connection_failure import ConnectionFailure
from backend.domain.errors import UpstreamError
from collectors.probe import probe
from tests.simulators.versions.cluster import Cluster, job_settings, started
from tests.simulators.versions.jobs import JOBS
from tests.support.nginx import Certificates, make_certificates, sign

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.flink]

VERSION = "2.3.0"
_HOME = Path(os.environ.get("BARRIERSCOPE_FLINK_VERSIONS", "/nonexistent")).absolute() / VERSION
_PASSWORD = "canary-store-4c1d"
_NEEDED = ("java", "javac", "keytool", "openssl")


def _missing() -> str | None:
    if not _HOME.is_dir():
        return "BARRIERSCOPE_FLINK_VERSIONS names no folder with Flink 2.3.0; run `make test-flink-tls`"
    absent = [name for name in _NEEDED if shutil.which(name) is None]
    return f"{', '.join(absent)}: not installed" if absent else None


def _stores(certificates: Certificates) -> dict[str, str]:
    """Make the key store and the trust store of Flink, and return the settings that require a client certificate."""
    folder = certificates.folder
    sign(folder, "flink", "DNS:flink.internal,IP:127.0.0.1")
    key_store, trust_store = folder / "flink.p12", folder / "trust.p12"
    made = ("openssl", "pkcs12", "-export", "-name", "flink", "-passout", f"pass:{_PASSWORD}", "-out", str(key_store))
    _run(*made, "-in", str(folder / "flink.pem"), "-inkey", str(folder / "flink.key"))
    trusted = ("-storetype", "PKCS12", "-storepass", _PASSWORD, "-keystore", str(trust_store))
    _run("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", str(folder / "ca.pem"), *trusted)
    rest = {
        "enabled": "true",
        "authentication-enabled": "true",
        "keystore": str(key_store),
        "keystore-password": _PASSWORD,
        "key-password": _PASSWORD,
        "keystore-type": "PKCS12",
        "truststore": str(trust_store),
        "truststore-password": _PASSWORD,
        "truststore-type": "PKCS12",
    }
    return {f"security.ssl.rest.{key}": value for key, value in rest.items()}


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def _client(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.file("ca.pem")))
    context.load_cert_chain(certificates.file("client.pem"), certificates.file("client.key"))
    return context


def _reach(certificates: Certificates, *, client: str | None, ca: str = "ca.pem", name: str | None = None) -> Reach:
    def file(name: str) -> str:
        return f"file:{certificates.file(name)}"

    options = ConnectionOptions(
        ca=parse_reference(file(ca)),
        certificate=None if client is None else parse_reference(file(f"{client}.pem")),
        key=None if client is None else parse_reference(file(f"{client}.key")),
        server_name=name,
    )
    return Reach(policy=EVERYTHING, options=options)


async def _failure(cluster: Cluster, reach: Reach) -> tuple[ConnectionFailure | None, str]:
    with pytest.raises(UpstreamError) as refused:
        await probe(cluster.url, 20.0, kind="flink", reach=reach)
    return getattr(refused.value, "failure", None), str(refused.value)


@pytest.mark.skipif(_missing() is not None, reason=_missing() or "")
async def test_a_flink_with_mutual_tls_is_read_with_a_certificate_and_names_what_is_wrong_without_one(tmp_path):
    certificates = await asyncio.to_thread(make_certificates, tmp_path / "certificates")
    settings = await asyncio.to_thread(_stores, certificates)
    async with started(_HOME, VERSION, more=settings, tls=_client(certificates)) as cluster:
        job = await cluster.submit(JOBS[0].words(job_settings(cluster.folder, VERSION)))
        await cluster.until(job, lambda state: state == "RUNNING", within_s=120)
        good = await probe(cluster.url, 20.0, kind="flink", reach=_reach(certificates, client="client"))
        named = _reach(certificates, client="client", name="flink.internal")
        by_name = await probe(cluster.url, 20.0, kind="flink", reach=named)
        none = await _failure(cluster, _reach(certificates, client=None))
        foreign = await _failure(cluster, _reach(certificates, client="foreign-client"))
        untrusted = await _failure(cluster, _reach(certificates, client="client", ca="other-ca.pem"))
        misnamed = await _failure(cluster, _reach(certificates, client="client", name="elsewhere.internal"))
        plain = await _failure(replace(cluster, url=cluster.url.replace("https", "http")), Reach())
        shown = await _diagnosed(cluster.url, certificates)

    assert (good.version, by_name.version) == (VERSION, VERSION)
    assert good.running_jobs == (JOBS[0].name,)
    assert [found[0] for found in (none, foreign, untrusted, misnamed, plain)] == [
        ConnectionFailure.TLS_CLIENT_CERTIFICATE,
        ConnectionFailure.TLS_CLIENT_CERTIFICATE,
        ConnectionFailure.TLS_AUTHORITY,
        ConnectionFailure.TLS_NAME,
        ConnectionFailure.REDIRECT,
    ]
    assert f"a redirect to {cluster.url}/config" in plain[1]
    assert shown[0] == 0, shown[1]
    assert f"Flink {VERSION} · 1 job" in shown[1]
    assert _PASSWORD not in str((none, foreign, untrusted, misnamed, plain, shown))


async def _diagnosed(url: str, certificates: Certificates) -> tuple[int, str]:
    """Run the command of ``docs/targets.md``."""
    options = {"--ca": "ca.pem", "--cert": "client.pem", "--key": "client.key"}
    listed = [word for name, file in options.items() for word in (name, str(certificates.file(file)))]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "backend.cli", "diagnose", url, "--quick", *listed),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, said.decode()
