"""The chart's metrics: the ports, the services, and what the Prometheus operator and Grafana find."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest
import yaml
from helm_python.errors import HelmError

from tests.packaging.rendered_chart import (
    CHART,
    component_of,
    environment_of,
    manifest_of,
    manifests_of,
    put,
    render,
    template_of,
    validate,
    values_text,
)

_METERED = ["api", "collector", "alert", "lab", "runtime"]
_GOOD = yaml.safe_load(values_text("metrics"))


def _of_kind(kind, name="metrics"):
    return [m for m in manifests_of(name) if m["kind"] == kind]


def test_without_the_setting_no_pod_serves_metrics_and_the_cluster_needs_no_custom_resources():
    kinds = {m["kind"] for m in manifests_of("default")}

    assert not kinds & {"ServiceMonitor", "PrometheusRule", "ConfigMap"}
    assert "METRICS" not in json.dumps(manifests_of("default"))


@pytest.mark.parametrize("component", _METERED)
def test_each_component_serves_metrics_at_the_port_that_its_service_names(component):
    (container,) = template_of(manifest_of(manifests_of("metrics"), "Deployment", component))["spec"]["containers"]
    (service,) = [s for s in _of_kind("Service") if s["metadata"]["name"] == f"rel-barrierscope-{component}-metrics"]
    (port,) = [p for p in container["ports"] if p["name"] == "metrics"]
    environment = environment_of(container)

    assert port["containerPort"] == int(environment["BARRIERSCOPE_METRICS_PORT"]["value"]) == 9464
    assert environment["BARRIERSCOPE_METRICS_HOST"]["value"] == "0.0.0.0"
    assert service["spec"]["ports"][0]["targetPort"] == "metrics"
    assert service["spec"]["clusterIP"] == "None"


def test_the_service_monitor_selects_the_services_of_metrics_and_no_other():
    (monitor,) = _of_kind("ServiceMonitor")
    selector = monitor["spec"]["selector"]["matchLabels"]
    found = [s for s in _of_kind("Service") if selector.items() <= s["metadata"]["labels"].items()]
    (endpoint,) = monitor["spec"]["endpoints"]

    assert [component_of(s) for s in found] == _METERED
    assert all(s["metadata"]["name"].endswith("-metrics") for s in found)
    assert {p["name"] for s in found for p in s["spec"]["ports"]} == {endpoint["port"]}
    assert endpoint["honorLabels"] is True, "the namespace of a target must not become that of the pod"
    assert (endpoint["interval"], monitor["metadata"]["labels"]["release"]) == ("15s", "kube-prometheus-stack")


def test_the_rules_are_those_of_the_files_and_the_rules_for_jobs_are_off_by_default():
    found = {m["metadata"]["name"]: m["spec"] for m in _of_kind("PrometheusRule")}
    files = {n: yaml.safe_load((CHART / "files" / f"rules-{n}.yaml").read_text()) for n in ("service", "jobs")}
    fewer = render(put(_GOOD, "metrics.prometheusRule.jobs", False))

    assert found == {f"rel-barrierscope-{name}": spec for name, spec in files.items()}
    assert [m["metadata"]["name"] for m in fewer if m["kind"] == "PrometheusRule"] == ["rel-barrierscope-service"]
    assert yaml.safe_load((CHART / "values.yaml").read_text())["metrics"]["prometheusRule"]["jobs"] is False


def test_the_dashboard_is_the_file_and_the_sidecar_of_grafana_finds_it():
    (board,) = _of_kind("ConfigMap")

    assert json.loads(board["data"]["barrierscope.json"]) == json.loads(
        (CHART / "files" / "dashboard.json").read_text()
    )
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_network_policies_admit_only_prometheus_to_the_metrics():
    peers = _GOOD["metrics"]["from"]
    reaches = {component_of(m): m["spec"]["ingress"] for m in _of_kind("NetworkPolicy")}

    for component in _METERED:
        rules = [r for r in reaches[component] if {"protocol": "TCP", "port": "metrics"} in r["ports"]]
        assert [r["from"] for r in rules] == [peers]
    assert reaches["pipeline"] == []


@pytest.mark.parametrize("value", ["serviceMonitor.enabled", "prometheusRule.enabled", "dashboard.enabled"])
def test_what_needs_metrics_is_refused_while_there_are_none(value):
    with pytest.raises(HelmError, match=r"only with metrics\.enabled"):
        render(put(put(yaml.safe_load(values_text("default")), f"metrics.{value}", True), "metrics.enabled", False))


def test_the_validation_finds_a_field_that_the_operator_does_not_know():
    (monitor,) = _of_kind("ServiceMonitor")
    wrong = monitor | {"spec": monitor["spec"] | {"endpoint": []}}

    with pytest.raises(jsonschema_rs.ValidationError, match="endpoint"):
        validate(json.dumps(wrong), "1.33")
