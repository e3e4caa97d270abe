"""Renders the Helm chart with the values files in its folder ``ci``, and finds parts of the manifests."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path

import jsonschema_rs
import kubernetes_validate
import yaml
from helm_python.chart import Chart

from tests.packaging.wheel_environment import ROOT

CHART = ROOT / "helm" / "barrierscope"
# The oldest Kubernetes version that the chart supports, and a current version.
VERSIONS = ("1.25", "1.33")
FILES = {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*-values.yaml"))}
PODS = {"Deployment", "CronJob", "Pod"}


OPERATOR = "monitoring.coreos.com/"
# The fields of the Prometheus operator's kinds that the chart uses, from the operator's API reference (v1). Kubernetes
# itself does not know these kinds.
_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_OPERATOR_KINDS = {
    "ServiceMonitor": {
        "type": "object",
        "additionalProperties": False,
        "required": ["selector", "endpoints"],
        "properties": {
            "jobLabel": {"type": "string"},
            "selector": {"type": "object", "additionalProperties": False, "properties": {"matchLabels": _TEXTS}},
            "endpoints": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "port": {"type": "string"},
                        "path": {"type": "string", "pattern": "^/"},
                        "interval": {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"},
                        "honorLabels": {"type": "boolean"},
                    },
                },
            },
        },
    },
    "PrometheusRule": {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "groups": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["name", "rules"],
                    "properties": {
                        "name": {"type": "string"},
                        "rules": {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                "type": "object",
                                "additionalProperties": False,
                                "required": ["alert", "expr"],
                                "properties": {
                                    "alert": {"type": "string"},
                                    "expr": {"type": "string"},
                                    "for": {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"},
                                    "labels": _TEXTS,
                                    "annotations": _TEXTS,
                                },
                            },
                        },
                    },
                },
            }
        },
    },
}


@cache
def values_text(name: str) -> str:
    """Return the text of a values file in ``ci``."""
    return FILES[name].read_text()


@cache
def rendered(name: str) -> tuple[tuple[str, str], ...]:
    """Return the name and the text of each file that the chart makes from a values file."""
    with Chart.load(CHART) as chart:
        found = chart.render(yaml.safe_load(values_text(name)), name="rel", namespace="checkpoints")
    return tuple((Path(path).name, text) for path, text in found.items())


def render(values: dict) -> list[dict]:
    """Return the manifests that the chart makes from these values."""
    with Chart.load(CHART) as chart:
        found = chart.render(values, name="rel", namespace="checkpoints")
    return documents(tuple((Path(path).name, text) for path, text in found.items()))


def documents(rendered: tuple[tuple[str, str], ...]) -> list[dict]:
    texts = [text for name, text in rendered if name != "NOTES.txt"]
    return [document for text in texts for document in yaml.load_all(text, yaml.CSafeLoader) if document]


@cache
def manifests_of(name: str) -> list[dict]:
    """Return the manifests that the chart makes from a values file."""
    return documents(rendered(name))


def manifest_of(manifests: list[dict], kind: str, component: str) -> dict:
    """Return the only manifest of a kind and a component."""
    (found,) = [m for m in manifests if m["kind"] == kind and component_of(m) == component]
    return found


def component_of(manifest: dict) -> str:
    """Return the component of a manifest."""
    return manifest["metadata"]["labels"]["app.kubernetes.io/component"]


def template_of(manifest: dict) -> dict:
    """Return the pod of a manifest that makes pods."""
    match manifest["kind"]:
        case "Deployment":
            return manifest["spec"]["template"]
        case "CronJob":
            return manifest["spec"]["jobTemplate"]["spec"]["template"]
    return manifest


def pods_of(name: str) -> list[dict]:
    """Return all pods that the chart makes from a values file."""
    return [template_of(m) for m in manifests_of(name) if m["kind"] in PODS]


def containers_of(pod: dict) -> list[dict]:
    """Return all containers of a pod."""
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def environment_of(container: dict) -> dict[str, dict]:
    """Return a container's variables by name."""
    return {e["name"]: e for e in container.get("env", [])}


@cache
def validate(manifest: str, version: str) -> None:
    """Fail if a manifest, as JSON text, is invalid for this version of Kubernetes."""
    # The validation is cached, because most manifests are the same in every values file.
    document = json.loads(manifest)
    if document["apiVersion"].startswith(OPERATOR):
        jsonschema_rs.validator_for(_OPERATOR_KINDS[document["kind"]]).validate(document["spec"])
        return
    kubernetes_validate.validate(document, version, strict=True)


def put(values: dict, path: str, value: object) -> dict:
    changed = copy.deepcopy(values)
    *above, last = path.split(".")
    place = changed
    for name in above:
        place = place.setdefault(name, {})
    place[last] = value
    return changed
