"""One pass through the whole service: ``barrierscope up`` watches the cluster, and its API is compared with Flink.

Everything is in the pass: collector, store, services and API. It needs the PostgreSQL that ``up`` brings along.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import httpx

from tests.simulators.versions.comparison import Compared, detail_names, detail_of, header_names, is_of
from tests.support.running_up import Up, checkpoints_of, jobs_of, temporary_up

_WATCH_S = 50.0
Verdicts = dict[str, Mapping[str, Any]]


def through_api(url: str, ids: Mapping[str, str]) -> tuple[Verdicts, Compared]:
    """Watch the cluster for a while, and return the verdict of each job, and the values compared with Flink's."""
    compared = Compared()
    with temporary_up("--no-demo") as up, httpx.Client(timeout=30.0, trust_env=False) as flink:
        httpx.post(f"http://127.0.0.1:{up.port}/api/v1/targets", json={"url": url}, timeout=30.0).raise_for_status()
        time.sleep(_WATCH_S)
        own = jobs_of(up)
        verdicts = {name: up.get(f"/api/v1/jobs/{own[name]}/verdict") for name in ids if name in own}
        for name in verdicts:
            for _ in _compared(up, name, own[name], f"{url}/jobs/{ids[name]}", flink, compared):
                pass
    return {name: verdict for name, verdict in verdicts.items() if verdict is not None}, compared


def _compared(up: Up, name: str, job: str, root: str, flink: httpx.Client, into: Compared) -> Iterator[None]:
    history = {c["id"]: c for c in flink.get(f"{root}/checkpoints").json().get("history", ())}
    for (run, number), checkpoint in checkpoints_of(up, job).items():
        entry = history.get(number)
        if entry is None or entry["status"] == "IN_PROGRESS":
            continue
        where = f"API, {name} {number}"
        into.check(f"{where}: triggered_at", _ms(checkpoint["triggered_at"]), entry["trigger_timestamp"])
        for ours, theirs in header_names(entry).items():
            if theirs in entry and ours in checkpoint:
                into.check(f"{where}: {theirs}", checkpoint[ours], entry[theirs])
        detail = up.get(f"/api/v1/jobs/{job}/runs/{run}/checkpoints/{number}")
        for vertex in detail["vertices"] if detail is not None else ():
            answer = flink.get(f"{root}/checkpoints/details/{number}/subtasks/{vertex['vertex_id']}")
            if answer.is_success and is_of(entry, answer.json()):
                _compare_vertex(f"{where}, {entry['status']}, {vertex['vertex_id']}", vertex, answer.json(), into)
        yield


def _compare_vertex(where: str, vertex: Mapping[str, Any], answer: Mapping[str, Any], into: Compared) -> None:
    rows = detail_of(dict(answer))
    names = [name for name in detail_names(dict(answer)) if name in vertex["subtasks"][0]]
    for subtask in vertex["subtasks"]:
        row = rows.get(subtask["subtask"])
        if row is None or not subtask["is_acknowledged"]:
            continue
        for name in names:
            into.check(f"{where} {subtask['subtask']}: {name}", subtask[name], row[name])


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
