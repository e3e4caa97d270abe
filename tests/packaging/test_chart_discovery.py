"""The chart's discovery: the file of the collector, and what its account may read."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from helm_python.errors import HelmError

from backend.contracts.targets_file import parse_targets
from backend.domain.discovery import HttpSd, KubernetesSd
from backend.domain.kubernetes_cluster import Kind
from tests.packaging.rendered_chart import (
    component_of,
    manifest_of,
    manifests_of,
    put,
    render,
    template_of,
    values_text,
)

_GOOD = yaml.safe_load(values_text("discovery"))
_RESOURCES = [kind.plural for kind in Kind]


def _of_kind(manifests, kind):
    return [m for m in manifests if m["kind"] == kind and component_of(m) == "collector"]


def _account(manifests, component="collector"):
    spec = template_of(manifest_of(manifests, "Deployment", component))["spec"]
    return spec["serviceAccountName"], spec["automountServiceAccountToken"]


def test_the_collector_reads_the_sections_of_the_values():
    (config,) = _of_kind(manifests_of("discovery"), "ConfigMap")
    declared = parse_targets(config["data"]["targets.yaml"].encode(), where=Path("/targets.yaml"))

    assert declared.targets == ()
    http, kubernetes = declared.discoveries
    assert isinstance(http, HttpSd)
    assert isinstance(kubernetes, KubernetesSd)
    assert kubernetes.namespaces == ("payments", "orders")


def _rules(manifests, kind="Role"):
    return [
        {(group, resource) for rule in role["rules"] for group in rule["apiGroups"] for resource in rule["resources"]}
        for role in _of_kind(manifests, kind)
    ]


def test_only_the_collector_may_read_flinks_resources_and_pods_in_each_namespace():
    manifests = manifests_of("discovery")
    roles, bindings = _of_kind(manifests, "Role"), _of_kind(manifests, "RoleBinding")

    assert [r["metadata"]["namespace"] for r in roles] == ["payments", "orders"]
    for role, binding in zip(roles, bindings, strict=True):
        read = {"verbs": ["get", "list", "watch"]}
        assert role["rules"] == [
            {"apiGroups": ["flink.apache.org"], "resources": _RESOURCES} | read,
            {"apiGroups": [""], "resources": ["pods"]} | read,
        ]
        assert binding["metadata"]["namespace"] == role["metadata"]["namespace"]
        assert binding["roleRef"]["kind"] == "Role"
        assert binding["subjects"][0] | {"kind": "ServiceAccount"} == {
            "kind": "ServiceAccount",
            "name": "rel-barrierscope-collector",
            "namespace": "checkpoints",
        }
    assert _account(manifests) == ("rel-barrierscope-collector", True)
    assert _account(manifests, "api") == ("rel-barrierscope", False)
    assert not _of_kind(manifests, "ClusterRole")


def test_each_namespace_has_the_rights_that_its_sections_need():
    sections = [
        {"name": "a", "namespaces": ["x"], "history": False},
        {"name": "b", "namespaces": ["y"], "targets": {"kind": "spark"}},
        {"name": "c", "namespaces": ["z"]},
        {"name": "d", "namespaces": ["z"], "targets": {"kind": "spark"}},
    ]
    flink = {("flink.apache.org", kind.plural) for kind in Kind if kind is not Kind.SNAPSHOT}
    history = {("flink.apache.org", Kind.SNAPSHOT.plural), ("", "pods")}
    spark = {("sparkoperator.k8s.io", "sparkapplications")}

    assert _rules(render(put(_GOOD, "discovery.kubernetes", sections))) == [flink, spark, flink | history | spark]
    everywhere = [*sections, {"name": "e", "targets": {"kind": "spark"}}]
    (rules,) = _rules(render(put(_GOOD, "discovery.kubernetes", everywhere)), "ClusterRole")
    assert rules == flink | history | spark


def test_a_section_of_all_namespaces_has_a_role_of_the_cluster():
    values = put(_GOOD, "discovery.kubernetes", [{"name": "eu"}, {"name": "us", "namespaces": ["payments"]}])
    manifests = render(values)
    (role,), (binding,) = _of_kind(manifests, "ClusterRole"), _of_kind(manifests, "ClusterRoleBinding")

    assert role["metadata"] | {"labels": {}} == {"name": "checkpoints-rel-barrierscope-collector", "labels": {}}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert not _of_kind(manifests, "Role")


@pytest.mark.parametrize("section", [{"name": "eu", "kubeconfig": "/etc/eu"}, None])
def test_without_a_section_of_this_cluster_the_collector_has_no_access_to_it(section):
    manifests = render(put(_GOOD, "discovery.kubernetes", [section] if section else []))

    assert not [m for kind in ("Role", "ClusterRole", "ServiceAccount") for m in _of_kind(manifests, kind)]
    assert _account(manifests) == ("rel-barrierscope", False)


def test_existing_accounts_and_roles_are_used_if_the_chart_may_make_none():
    manifests = render(put(put(_GOOD, "rbac.create", False), "serviceAccount", {"create": False, "name": "mine"}))

    assert not [m for kind in ("Role", "ServiceAccount") for m in _of_kind(manifests, kind)]
    assert _account(manifests) == ("mine", True)


def test_a_discovery_without_allowed_hosts_is_refused_with_the_cure():
    with pytest.raises(HelmError, match=r"access.allowedTargets: name the hosts"):
        render(put(_GOOD, "access.allowedTargets", []))


@pytest.mark.parametrize("wrong", [{"consul": []}, {"kubernetes": [{}]}, {"kubernetes": {}}, []])
def test_a_section_of_another_form_is_refused(wrong):
    with pytest.raises(HelmError, match=r"discovery|'file_sd', 'http_sd', 'kubernetes'"):
        render(put(_GOOD, "discovery", wrong))


@pytest.mark.parametrize("component", ["collector", "trial"])
def test_a_discovery_without_targets_is_mounted_and_the_account_may_read_the_cluster(component):
    values = put(put(_GOOD, "trial", {"enabled": component == "trial"}), "database", {})
    manifests = render(values if component == "trial" else _GOOD)
    (config,) = [m for m in manifests if m["kind"] == "ConfigMap" and "targets.yaml" in m["data"]]
    spec = template_of(manifest_of(manifests, "Deployment", component))["spec"]
    container = spec["containers"][0]
    environment = {e["name"]: e.get("value") for e in container["env"]}
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == "targets"]
    (volume,) = [v for v in spec["volumes"] if v["name"] == "targets"]
    bindings = [m for m in manifests if m["kind"] == "RoleBinding"]

    assert environment["BARRIERSCOPE_TARGETS_FILE"] == f"{mount['mountPath']}/targets.yaml"
    assert environment["BARRIERSCOPE_ALLOWED_TARGETS"].startswith("*.payments.svc,")
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    assert spec["automountServiceAccountToken"] is True
    assert {b["subjects"][0]["name"] for b in bindings} == {spec["serviceAccountName"]}
