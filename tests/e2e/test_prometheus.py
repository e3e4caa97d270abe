"""Debian's Prometheus reads a running ``barrierscope up``: every panel and rule has values with the labels it names.

The test uses the same instance as other tests, because a start is slow. It passes whatever targets they left there.

The commands and the expressions of ``docs/prometheus.md`` work too. If ``BARRIERSCOPE_REQUIRE_PROMETHEUS`` is set,
these tests fail on a machine without Prometheus. Otherwise, they are skipped.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
import yaml

from backend.cli.stack import METERED
from backend.metrics.registry import PREFIX
from collectors.discovery.metrics import source_metrics
from collectors.targets_file import WatchState
from tests.packaging.wheel_environment import ROOT
from tests.support.prometheus import (
    PROMTOOL,
    RULE_FILES,
    Expression,
    Prometheus,
    missing,
    panel_expressions,
    prometheus,
    rules_of,
)
from tests.support.running_up import Up
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")

DOCUMENT = (ROOT / "docs" / "prometheus.md").read_text()
_COMPARISON = re.compile(r"\s(?:>=?|<|==)\s(?:bool\s)?")


def flink_exporter(job_id: str) -> ThreadingHTTPServer:
    """Return a server with the metrics of a job as Flink's own exporter writes them: ``orders-eu`` as ``orders_eu``.

    Two JobManagers report the job, and two targets of Barrierscope read its cluster.
    """
    lines = ["# TYPE flink_jobmanager_job_numRestarts gauge"]
    lines += [
        f'flink_jobmanager_job_numRestarts{{host="{host}",job_id="{job_id}",job_name="orders_eu"}} {count}'
        for host, count in (("jm-1", 3.0), ("jm-2", 2.0))
    ]
    lines += ["# TYPE barrierscope_job_info gauge"]
    lines += [
        f'barrierscope_job_info{{job_name="orders-eu",target="{target}",engine="flink",mode="aligned",'
        f'flink_job_id="{job_id}"}} 1.0'
        for target in ("eu", "eu-again")
    ]
    body = ("\n".join(lines) + "\n").encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def flink() -> Iterator[str]:
    server = flink_exporter("8f2b1c0d9e7a4b6c8d0e1f2a3b4c5d6e")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def scrape_of(document: str, addresses: list[str]) -> list[dict]:
    """Return the scrape configuration of the document, with the addresses of the test."""
    (block,) = [b for b in re.findall(r"```yaml\n(.*?)```", document, re.S) if b.startswith("scrape_configs")]
    (config,) = yaml.safe_load(block)["scrape_configs"]
    # The operator adds the namespace of the pod to what it scrapes. It must not become that of a job.
    return [config | {"static_configs": [{"targets": addresses, "labels": {"namespace": "pods"}}]}]


def without_comparison(text: str) -> str:
    """Return what an expression of a rule compares, which has values even if nothing is wrong."""
    if text.startswith("absent("):
        return text.removeprefix("absent(").removesuffix(")")
    return _COMPARISON.split(text, maxsplit=1)[0]


def named(rule: dict) -> frozenset[str]:
    """Return the labels that the texts of a rule name."""
    return frozenset(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))


def answers(server: Prometheus, expression: Expression) -> bool:
    """Return whether an expression has values, all of which have the labels that it names."""
    found = server.ask(expression.asked)
    return bool(found) and all(expression.labels <= set(sample["metric"]) for sample in found)


def has_no_forecast(up: Up) -> bool:
    """Return whether the size of a day is not known yet, as in the first two hours of an instance."""
    return up.get("/api/v1/status")["history"]["held_days"] is None


_FORECAST = "barrierscope_store_held_seconds"

# A spool, waiting messages and a history that is too short exist only while something is wrong.
_ONLY_IN_TROUBLE = {"BarrierscopeDeliveriesWaiting"}


def test_every_panel_and_rule_has_values_with_the_labels_that_it_names(live_up, tmp_path, flink):
    up = live_up()
    addresses = [f"127.0.0.1:{port}" for port in live_up.metrics_ports]
    scrape = [*scrape_of(DOCUMENT, addresses), {"job_name": "flink", "static_configs": [{"targets": [flink]}]}]
    with prometheus(tmp_path, scrape, rules=RULE_FILES) as server:
        until(lambda: len(server.ask("barrierscope_build_info")) == len(METERED), "Prometheus reads every role")
        roles = {s["metric"]["role"] for s in server.ask("barrierscope_build_info")}
        assert roles == set(METERED)
        rules = [r for path in RULE_FILES for r in rules_of(path)]
        asked = [
            *panel_expressions(),
            *(Expression(r["alert"], without_comparison(r["expr"]), named(r)) for r in rules),
        ]
        for expression in [e for e in asked if e.where not in _ONLY_IN_TROUBLE]:
            # The request to the API also gives the panels of requests something to show.
            until(
                lambda e=expression: (has_no_forecast(up) and _FORECAST in e.text) or answers(server, e),
                f"{expression.where}: {expression}",
            )
        # Prometheus itself evaluates the rules as they are.
        found = [r for g in server.get("/api/v1/rules")["groups"] for r in g["rules"]]
        assert {r["name"] for r in found} == {r["alert"] for r in rules}
        assert [r["lastError"] for r in found if r.get("lastError")] == []
        failing = 'ALERTS{alertname="BarrierscopeCheckpointsFail", job_name="orders-aligned"}'
        until(lambda: server.ask(failing), "a rule for jobs fires")
        (alert, *_) = server.ask(failing)
        assert alert["metric"]["target"] == "demo"

        _no_series_has_a_label_that_prometheus_renames(server)
        _the_join_of_the_document_works(server)
        _the_document_lists_every_metric_and_no_other(server, {_FORECAST} if has_no_forecast(up) else set())
    _promtool_finds_no_fault(f"http://{addresses[2]}/metrics")
    _the_api_has_metrics_too(up)


def _no_series_has_a_label_that_prometheus_renames(server: Prometheus) -> None:
    labels = server.get("/api/v1/labels")
    assert not [name for name in labels if name.startswith("exported_")]
    assert {s["metric"]["namespace"] for s in server.ask("barrierscope_jobs")} == {"pods"}
    assert not [s for s in server.ask("barrierscope_job_health") if "namespace" in s["metric"]]


def _the_join_of_the_document_works(server: Prometheus) -> None:
    (join,) = [b for b in re.findall(r"```promql\n(.*?)```", DOCUMENT, re.S) if "flink_" in b]
    found = {(s["metric"]["job_name"], s["metric"]["target"], s["value"][1]) for s in server.ask(join)}
    assert found == {("orders-eu", "eu", "3"), ("orders-eu", "eu-again", "3")}


def _the_document_lists_every_metric_and_no_other(server: Prometheus, unknown: set[str]) -> None:
    table = DOCUMENT.split("## What there is")[1].split("## Rules")[0]
    described = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.+?) \|", table, re.M))))
    names = {n.removeprefix(PREFIX) for n in server.get("/api/v1/label/__name__/values") if n.startswith(PREFIX)}
    exported = {re.sub(r"_seconds_(bucket|sum|count)$", "_seconds", name) for name in names}
    # These exist where a file declares targets. The instance of the tests has none.
    of_files = {f"{m.name}_total" if m.type == "counter" else m.name for m in source_metrics(WatchState(), {})}
    exported |= {name.removeprefix(PREFIX) for name in of_files}
    without_value = {name.removeprefix(PREFIX) for name in unknown}
    of_trouble = {"alert_oldest_due_delivery_timestamp_seconds", "alert_delivery_attempts_total"}
    assert exported ^ described <= of_trouble | without_value


def _promtool_finds_no_fault(address: str) -> None:
    text = httpx.get(address, trust_env=False, timeout=60.0).text
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True)
    # Names of the Python client and of whole numbers without a unit are not ours to change.
    faults = [line for line in done.stderr.splitlines() if line.startswith("barrierscope_")]
    assert faults == []


def _the_api_has_metrics_too(up) -> None:
    text = up.page("/metrics").text
    assert 'barrierscope_build_info{role="api"' in text
    assert 'route="/api/v1/status"' in text
