"""Run Debian's Prometheus on a free port during a ``with`` block, and ask it for the values of expressions.

``missing`` returns the reason to skip a test, if Prometheus is not installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.packaging.wheel_environment import ROOT
from tests.support.running_up import free_port
from tests.support.waiting import PATIENCE_S, until

PROGRAM = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
FILES = ROOT / "helm" / "barrierscope" / "files"
RULE_FILES = sorted(FILES.glob("rules-*.yaml"))
DASHBOARD = FILES / "dashboard.json"
_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")


def missing() -> str | None:
    """Return why tests that need Prometheus must be skipped, or None if they can run.

    If BARRIERSCOPE_REQUIRE_PROMETHEUS is set, these tests are never skipped. They fail if Prometheus is not installed.
    """
    if (PROGRAM and PROMTOOL) or os.environ.get("BARRIERSCOPE_REQUIRE_PROMETHEUS"):
        return None
    return "prometheus is missing; apt-get install prometheus"


@dataclass(frozen=True)
class Expression:
    """An expression of a panel or of a rule, and the labels that its legend or its texts name."""

    where: str
    text: str
    labels: frozenset[str]

    @property
    def asked(self) -> str:
        """The expression as Grafana sends it, with every target and job chosen."""
        text = self.text.replace("$__rate_interval", "30s")
        return re.sub(r"\$(target|job_name)\b", ".*", text)


def panels() -> list[dict[str, Any]]:
    """Return the panels of the dashboard, without the rows."""
    return [p for p in json.loads(DASHBOARD.read_text())["panels"] if p["type"] != "row"]


def panel_expressions() -> list[Expression]:
    """Return every expression of the dashboard."""
    return [
        Expression(panel["title"], target["expr"], frozenset(_LABEL.findall(target["legendFormat"])))
        for panel in panels()
        for target in panel["targets"]
    ]


def rules_of(path: Path) -> list[dict[str, Any]]:
    """Return the rules in a file."""
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


class Prometheus:
    """A running Prometheus, which ``http`` asks."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression now, each with ``metric`` and ``value``."""
        answer = self._http.post("/api/v1/query", data={"query": expression}).json()
        assert answer["status"] == "success", answer
        result = answer["data"]["result"]
        return [{"metric": {}, "value": result}] if answer["data"]["resultType"] == "scalar" else result

    def get(self, path: str) -> Any:
        """Return the data at a path of the API."""
        return self._http.get(path).json()["data"]


@contextmanager
def prometheus(folder: Path, scrape: Sequence[dict[str, Any]], *, rules: Sequence[Path] = ()) -> Iterator[Prometheus]:
    """Run Prometheus with these scrape configurations and rule files, and yield it.

    It stores its data in ``folder``.
    """
    assert PROGRAM is not None, "BARRIERSCOPE_REQUIRE_PROMETHEUS is set, but prometheus is missing"
    config, url = folder / "prometheus.yml", f"http://127.0.0.1:{free_port()}"
    every = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    names = [str(path) for path in rules]
    config.write_text(yaml.safe_dump({"global": every, "rule_files": names, "scrape_configs": list(scrape)}))
    options = [
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
    ]
    with (folder / "log").open("w") as log, subprocess.Popen([PROGRAM, *options], stdout=log, stderr=log) as process:
        try:
            until(lambda: _is_ready(url), "Prometheus answers")
            with httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False) as http:
                yield Prometheus(http)
        finally:
            process.kill()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", trust_env=False).is_success
    except httpx.HTTPError:
        return False
