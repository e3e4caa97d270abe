"""The OpenAPI document is complete, its examples fit their schemas, and the API follows it for generated requests."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from jsonschema_rs import Draft202012Validator
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from backend.contracts import alerts, api, incidents, spark
from backend.contracts.whatif import PREDICTION_GONE
from backend.domain.target import TargetOrigin
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import (
    NOW,
    SINK,
    SOURCE,
    SteppingClock,
    completed,
    failed,
    in_progress,
    job,
    observation,
    pressure,
    progress,
)
from tests.support.serving import api_over
from tests.support.waiting import PATIENCE_S

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
METHODS = ("get", "post", "patch", "delete")


@pytest.fixture(scope="module")
def served(databases) -> Iterator[str]:
    """Serve the API in a thread, over a store with one job, and yield the address for synchronous clients."""
    with databases.migrated() as url:
        started, box = threading.Event(), {}
        thread = threading.Thread(target=lambda: asyncio.run(_serve(url, box, started)))
        thread.start()
        try:
            assert started.wait(PATIENCE_S), "the server did not start"
            yield box["url"]
        finally:
            box["server"].should_exit = True
            thread.join(PATIENCE_S)


async def _serve(url, box, started) -> None:
    engine, clock = create_store_engine(url), SteppingClock()
    target = await TargetRepository(engine).add(NewTarget("http://flink:8081", "flink", TargetOrigin.API), at=NOW)
    seen = replace(
        job([completed(1), failed(2), in_progress(3, acknowledged_count=4, with_details=True)]),
        pressure=(pressure(SOURCE, NOW), pressure(SINK, NOW, busy=1.0)),
        progress=(progress(3, 4, NOW),),
    )
    await IngestWriter(engine, clock=clock).write(observation(target.id, seen))
    server = uvicorn.Server(uvicorn.Config(api_over(engine, clock), log_config=None))
    # The socket accepts connections from here on. A client that connects before the server runs waits in the backlog.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        box |= {"server": server, "url": f"http://127.0.0.1:{listening.getsockname()[1]}"}
        started.set()
        await server.serve(sockets=[listening])
    await engine.dispose()


@pytest.fixture(scope="module")
def document(served):
    return httpx.get(f"{served}/api/v1/openapi.json", timeout=PATIENCE_S).json()


def _operations(document):
    for path, methods in document["paths"].items():
        for method in METHODS:
            if method in methods:
                yield path, method, methods[method]


def test_every_path_of_the_contract_is_described(document):
    promised = {
        line.split("``")[1].split("?")[0]
        for line in f"{api.__doc__}\n{alerts.__doc__}\n{incidents.__doc__}\n{spark.__doc__}".splitlines()
        if line.startswith("* ``")
    }

    assert set(document["paths"]) == promised


def test_every_operation_has_a_description_an_id_and_problems(document):
    ids = []
    for path, method, operation in _operations(document):
        assert operation["description"], (path, method)
        assert "application/problem+json" in operation["responses"]["default"]["content"], (path, method)
        assert "422" not in operation["responses"], "the API does not use FastAPI's own error shape"
        ids.append(operation["operationId"])
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("path", ["apply", "accept"])
def test_the_problem_that_a_shown_prediction_is_no_longer_kept_is_described(document, path):
    described = document["paths"][f"/api/v1/jobs/{{job}}/whatif/{path}"]["post"]["description"]

    assert f"409 with the type `{PREDICTION_GONE}`" in described


def test_every_answer_has_an_example_that_fits_its_schema(document):
    checked = 0
    for path, method, operation in _operations(document):
        for status, response in operation["responses"].items():
            content = response.get("content", {}).get("application/json")
            if content is None or not status.startswith("2"):
                continue
            schema = {**content["schema"], "components": document["components"]}
            errors = [e.message for e in Draft202012Validator(schema).iter_errors(content["example"])]
            assert errors == [], f"{method} {path}: {errors}"
            checked += 1
    assert checked >= 18


@pytest.mark.parametrize("examples", [4, pytest.param(30, marks=pytest.mark.slow)])
def test_generated_requests_get_the_described_answers(served, examples):
    schema = schemathesis.openapi.from_url(f"{served}/api/v1/openapi.json", timeout=PATIENCE_S)
    known, checked = _known(served), []

    for result in schema.get_all_operations():
        operation = result.ok()

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def ask(case):
            # Send each request once with generated ids, and once with existing ids.
            drawn = dict(case.path_parameters or {})
            for parameters in (drawn, {k: known[k] for k in drawn}):
                case.path_parameters = parameters
                answer = case.call_and_validate(timeout=PATIENCE_S, checks=CHECKS)
                checked.append(answer.status_code)

        ask()
    assert len(checked) > 200
    assert {200, 404, 422} <= set(checked), sorted(set(checked))


def _known(served):
    (row,) = httpx.get(f"{served}/api/v1/jobs", timeout=PATIENCE_S).json()["items"]
    known = {"job": row["id"], "run": row["run_id"], "checkpoint": 2, "target": row["target_id"]}
    # The store has none of these, so the ids are unknown. Alert rules always exist.
    absent = {
        "recommendation": "anone",
        "alert": "enone",
        "silence": "snone",
        "receiver": "rnone",
        "annotation": "nnone",
        "incident": "inone",
        "confirmation": "wnone",
        "backtest": "bnone",
        "curve": "cnone",
    }
    subtask = {"vertex": SINK, "subtask": 1}
    wanted = {"shape": "healthy", "protocol": "aligned"}
    queued = httpx.post(f"{served}/api/v1/simulations", json=wanted, timeout=PATIENCE_S).json()
    return (
        known
        | absent
        | {"rule": "CheckpointExpired", "cause": "capacity", "simulation": queued["id"], "number": 0}
        | subtask
    )
