"""Prometheus' own tools accept the rules and the dashboard, and every rule is tested in both directions.

``tests/integration/prometheus_rules`` has the tests that promtool runs. If ``BARRIERSCOPE_REQUIRE_PROMETHEUS`` is set,
these tests fail on a machine without Prometheus. Otherwise, those that need it are skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from backend.alerting.evaluation import identity_of
from backend.alerting.rules import rule_of
from backend.metrics.registry import PREFIX
from tests.packaging.wheel_environment import ROOT
from tests.support.alert_signals import job_signal
from tests.support.prometheus import DASHBOARD, PROMTOOL, RULE_FILES, missing, panel_expressions, panels, rules_of

DOCUMENT = (ROOT / "docs" / "prometheus.md").read_text()
TESTS = Path(__file__).parent / "prometheus_rules"
_NEEDED = pytest.mark.skipif(missing() is not None, reason=missing() or "")
_OURS = re.compile(rf"\b{PREFIX}\w+")


def _tests_of(rule_file: Path) -> Path:
    return TESTS / rule_file.name.removeprefix("rules-")


def without_both(rules: list[dict], tests: list[dict]) -> list[str]:
    """Return the names of the rules that lack a test in which they fire, or one in which they do not."""
    found: dict[str, set[bool]] = {rule["alert"]: set() for rule in rules}
    for case in [case for test in tests for case in test["alert_rule_test"]]:
        found.setdefault(case["alertname"], set()).add(bool(case["exp_alerts"]))
    return [name for name, ways in found.items() if ways != {True, False}]


@_NEEDED
@pytest.mark.parametrize("rules", RULE_FILES, ids=lambda p: p.stem)
def test_promtool_accepts_the_rules_and_their_tests_pass(rules, tmp_path):
    for path in (rules, _tests_of(rules)):
        shutil.copy(path, tmp_path)
    for command in (("check", "rules", rules.name), ("test", "rules", _tests_of(rules).name)):
        done = subprocess.run([PROMTOOL, *command], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("rules", RULE_FILES, ids=lambda p: p.stem)
def test_every_rule_has_a_test_in_which_it_fires_and_one_in_which_it_does_not(rules):
    document = yaml.safe_load(_tests_of(rules).read_text())

    assert document["rule_files"] == [rules.name]
    assert without_both(rules_of(rules), document["tests"]) == []


def test_a_rule_with_a_test_in_one_direction_only_is_found():
    fires = {"alertname": "One", "exp_alerts": [{"exp_labels": {}}]}
    is_quiet = {"alertname": "Two", "exp_alerts": []}

    assert without_both([{"alert": "One"}], [{"alert_rule_test": [fires]}]) == ["One"]
    assert without_both([{"alert": "Two"}], [{"alert_rule_test": [is_quiet]}]) == ["Two"]
    assert without_both([{"alert": "Three"}], []) == ["Three"]


def test_every_rule_says_what_is_wrong_and_how_bad_it_is():
    for rule in [rule for path in RULE_FILES for rule in rules_of(path)]:
        assert rule["alert"].startswith("Barrierscope")
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert {"summary", "description"} <= set(rule["annotations"])


def test_the_dashboard_is_one_that_grafana_loads():
    dashboard = json.loads(DASHBOARD.read_text())
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in dashboard["panels"]]

    assert dashboard["schemaVersion"] >= 36
    assert dashboard["uid"] == "barrierscope"
    # Grafana's import sets the id of the dashboard. A fixed one would replace another dashboard.
    assert "id" not in dashboard
    assert len({p["id"] for p in dashboard["panels"]}) == len(dashboard["panels"])
    assert len(set(places)) == len(places)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in dashboard["panels"])
    assert {v["name"] for v in dashboard["templating"]["list"]} == {"datasource", "target", "job_name"}
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["title"]
        assert panel["description"]
        assert [t["datasource"]["uid"] for t in panel["targets"]] == ["${datasource}"] * len(panel["targets"])


def test_the_dashboard_and_the_rules_show_no_metric_with_a_label_that_prometheus_sets_of_itself():
    texts = [e.text for e in panel_expressions()] + [r["expr"] for path in RULE_FILES for r in rules_of(path)]

    assert len(texts) > 30
    assert all(_OURS.search(text) for text in texts)


@_NEEDED
def test_the_scrape_configuration_and_the_command_of_the_document_work(tmp_path):
    blocks = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.S)
    (scrape,) = [b for b in blocks if b.startswith("scrape_configs")]
    (tmp_path / "prometheus.yml").write_text(scrape)
    (checked,) = [line for line in re.findall(r"```sh\n(.*?)```", DOCUMENT, re.S) if line.startswith("promtool")]

    for command, folder in (([PROMTOOL, "check", "config", "prometheus.yml"], tmp_path), (checked.split(), ROOT)):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("amtool") is None, reason="amtool is missing; apt-get install prometheus-alertmanager")
def test_alertmanager_routes_by_the_labels_of_the_document(tmp_path):
    (config,) = [b for b in re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.S) if b.startswith("route:")]
    (tmp_path / "am.yml").write_text(config)
    signal = job_signal(flink_job_id="8f2b")
    labels = identity_of(rule_of("CheckpointStuck"), signal, {signal.target_id: {"namespace": "payments"}}).labels

    for sent, receiver in ((labels, "payments"), ({**labels, "namespace": "other"}, "default")):
        words = [f"{name}={value}" for name, value in sent.items()]
        command = ["amtool", "config", "routes", "test", "--config.file", tmp_path / "am.yml", *words]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stdout.strip()) == (0, receiver), done.stderr
