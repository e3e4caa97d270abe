"""Credentials that the targets file, its lists and Kubernetes hold are searched for in all that a run leaves behind.

The role ``collect`` runs as a process. Its targets, the server of its list and the API server of Kubernetes answer with
errors that repeat the credentials they got. Then the canaries are searched for in its log, its metrics, every table of
PostgreSQL and every answer of the API.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import sys
from contextlib import asynccontextmanager
from urllib.parse import quote

import httpx
import pytest
import yaml
from aiohttp import web
from sqlalchemy import text

from backend.settings import PREFIX
from tests.packaging.wheel_environment import ROOT
from tests.support.kubernetes_server import (
    flink_deployment,
    kubeconfig,
    reconciled,
    serving_kubernetes,
    snapshot,
)
from tests.support.recorded_flink import serve_app
from tests.support.running_up import free_port
from tests.support.serving import api_over, asking
from tests.support.waiting import PATIENCE_S

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

CANARY = "canary-71c3e0"
OF = {
    name: f"{CANARY}-{name}" for name in ("bearer", "basic", "header", "proxy", "sd", "query", "kube", "spec", "path")
}
_TABLES = text("SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'")


@asynccontextmanager
async def echoing():
    """Serve answers that repeat the credentials of their request, in bodies, headers and addresses."""
    heard = set()

    async def answer(request):
        given = " ".join([*request.headers.values(), request.query_string])
        for word in given.split():
            with contextlib.suppress(ValueError):
                given += " " + base64.b64decode(word, validate=True).decode()
        heard.update(name for name, canary in OF.items() if canary in given)
        word = request.path.split("/")[1]
        status = int(word) if word.isdecimal() else 500
        if status == 302:
            return web.Response(status=302, headers={"Location": f"http://127.0.0.1/{quote(given)}?{quote(given)}"})
        if status == 200:
            return web.Response(text=f'{{"errors": ["{given}"', content_type="application/json")
        return web.json_response({"errors": [given]}, status=status)

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)
    async with serve_app(app) as url:
        yield url, heard


def _targets_file(folder, url, kubernetes):
    (folder / "basic").write_text(OF["basic"])
    credentials = {"bearer": "env:BEARER", "headers": {"X-Key": "env:HEADER"}}
    basic = {"basic": {"user": "me", "password": "file:basic"}, "headers": {"X-Key": "env:HEADER"}}
    proxied = {"proxy": {"url": url, "user": "me", "password": "env:PROXY"}}
    document = {
        "source": "canaries",
        "targets": [
            *({"url": f"{url}/{status}", "connection": credentials} for status in (401, 403, 500, 302, 200)),
            {"url": f"{url}/400", "connection": basic},
            {"url": f"{url}/404", "kind": "spark", "connection": credentials},
            {"url": "http://proxied.example", "connection": proxied | credentials},
            {"url": "http://missing.example", "connection": {"bearer": "env:NOT_SET"}},
        ],
        "discovery": {
            "http_sd": [
                {"name": "list", "url": f"{url}/403/sd?token={OF['query']}", "connection": {"bearer": "env:SD"}},
                {"name": "other", "url": f"{url}/200/sd?token={OF['query']}", "connection": {"bearer": "env:SD"}},
            ],
            "kubernetes": [
                {"name": "eu", "kubeconfig": kubernetes},
                {"name": "spark", "kubeconfig": kubernetes, "targets": {"kind": "spark"}},
            ],
        },
    }
    (folder / "targets.yaml").write_text(yaml.safe_dump(document))


@asynccontextmanager
async def collecting(database, folder, port):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(PREFIX)} | {
        "PYTHONPATH": str(ROOT),
        f"{PREFIX}DATABASE_URL": database,
        **{name.upper(): OF[name] for name in ("bearer", "header", "proxy", "sd")},
    }
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "backend.cli", "collect", "--targets", str(folder / "targets.yaml")),
            f"--metrics-port={port}",
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _until(engine, query, count):
    async with asyncio.timeout(3 * PATIENCE_S):
        while True:
            async with engine.connect() as connection:
                found = await connection.scalar(text(query))
            if found >= count:
                return
            await asyncio.sleep(0.2)


async def _everything(engine, clock, port):
    """Return all that is stored, exposed and answered, by where it is."""
    found = {}
    async with engine.connect() as connection:
        for table in await connection.scalars(_TABLES):
            rows = await connection.scalars(text(f"SELECT to_jsonb(t)::text FROM {table} t LIMIT 1000"))
            found[f"table {table}"] = "\n".join(rows)
    async with httpx.AsyncClient() as client:
        found["metrics"] = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    async with asking(api_over(engine, clock)) as client:
        paths = ["targets", "targets/sd", "jobs", "board", "alerts", "status"]
        ids = [row["id"] for row in (await client.get("/api/v1/targets")).json()["items"]]
        for path in [*paths, *(f"targets/{i}" for i in ids)]:
            found[f"API {path}"] = (await client.get(f"/api/v1/{path}")).text
    return found


async def test_no_credential_is_in_logs_metrics_tables_or_answers_after_a_run(engine, database, clock, tmp_path):
    port = free_port()
    spec = {"image": "i:1", "flinkConfiguration": {"s3.secret-key": OF["spec"]}, "job": {"args": [OF["spec"]]}}
    async with echoing() as (url, heard), serving_kubernetes() as server:
        server.token = OF["kube"]
        path = f"s3://key:{OF['path']}@bucket/savepoint-1"
        status = reconciled(1_796_047_200_000, spec) | {"jobStatus": {"upgradeSavepointPath": path}}
        await server.put(
            flink_deployment("payments", status=status, spec={"flinkConfiguration": spec["flinkConfiguration"]})
        )
        await server.put(snapshot("s", "payments", status={"path": path}))
        server.forbidden = {("pods", None), ("sparkapplications", None)}
        _targets_file(tmp_path, url, kubeconfig(server, tmp_path))
        async with collecting(database, tmp_path, port) as process:
            await _until(engine, "SELECT count(*) FROM target_health WHERE reason IS NOT NULL", 10)
            await _until(engine, "SELECT count(*) FROM target_sources WHERE problem IS NOT NULL", 3)
            await _until(engine, "SELECT count(*) FROM target_sources WHERE history_problem IS NOT NULL", 1)
            await _until(engine, "SELECT count(*) FROM cluster_states", 1)
            found = await _everything(engine, clock, port)
            # What a signal makes it write is searched too.
            process.terminate()
            await asyncio.wait_for(process.wait(), PATIENCE_S)

    found["log"] = (tmp_path / "log").read_text(errors="replace")
    assert {place for place, content in found.items() if CANARY in content} == set()
    # The search finds something: the credentials were sent, and the places have content.
    assert heard >= {"bearer", "basic", "header", "sd", "query"}
    assert "missing.example" in found["table targets"]
    assert "HTTP 403" in found["table target_sources"]
    assert "barrierscope_target_source_up" in found["metrics"]
    assert len(found["log"].splitlines()) > 5
