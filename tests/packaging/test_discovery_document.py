"""The examples of ``docs/discovery.md`` are read as the document says, by Barrierscope and by Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from backend.contracts.targets_file import parse_targets
from backend.domain.address_rules import EVERYWHERE
from backend.domain.discovery import TargetTemplate
from backend.domain.ids import target_id
from collectors.discovery.groups import AllowedHosts, found_in
from tests.packaging.wheel_environment import ROOT
from tests.support.waiting import PATIENCE_S

DOCUMENT = (ROOT / "docs" / "discovery.md").read_text()
_BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)


def _blocks(language):
    return [text for name, text in _BLOCKS if name == language]


def test_each_section_is_one_of_the_targets_file():
    sections = [text for text in _blocks("yaml") if text.startswith("discovery:")]
    names = [s.name for text in sections for s in parse_targets(text.encode(), where=Path("/t.yaml")).discoveries]

    assert names == ["fleet", "consul", "eu", "eu-spark"]


def test_the_list_is_found_as_the_document_says():
    (text,) = _blocks("json")
    (target,) = found_in([json.loads(text)], TargetTemplate(), AllowedHosts((), EVERYWHERE)).targets

    assert (target.url, target.name) == ("https://flink:8081/payments", "payments")


@pytest.mark.skipif(shutil.which("promtool") is None, reason="Prometheus is not installed")
def test_prometheus_probes_the_rest_api_of_each_listed_target(tmp_path):
    (text,) = [text for text in _blocks("yaml") if text.startswith("scrape_configs:")]
    config = yaml.safe_load(text)
    (job,) = config["scrape_configs"]
    assert job.pop("http_sd_configs")[0]["url"].endswith("/api/v1/targets/sd")
    url = "https://flink:8081/payments"
    labels = {"__scheme__": "https", "__metrics_path__": "/payments", "__meta_barrierscope_url": url}
    group = {"targets": ["flink:8081"], "labels": labels | {"__meta_barrierscope_target": target_id(url=url)}}
    (tmp_path / "list.json").write_text(json.dumps([group]))
    job["file_sd_configs"] = [{"files": [str(tmp_path / "list.json")]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = ("promtool", "check", "service-discovery", "--timeout=2s", str(tmp_path / "prometheus.yml"), "flink-rest")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    ((found),) = json.loads(done.stdout)

    assert found["labels"]["__address__"] == "blackbox:9115"
    assert (found["labels"]["__scheme__"], found["labels"]["__metrics_path__"]) == ("http", "/probe")
    assert found["labels"]["__param_target"] == f"{url}/overview"
    assert found["labels"]["target"] == target_id(url=url)
