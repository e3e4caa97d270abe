"""Tests of what a custom resource says of a Flink cluster: its address, its identity, and when it can be read."""

from __future__ import annotations

import pytest

from backend.domain.kubernetes_cluster import (
    Kind,
    UnreadableError,
    chosen,
    cluster_of,
    instant_of,
    is_readable,
    run_id_of,
)
from tests.support.address_forms import FORMS
from tests.support.kubernetes_server import blue_green, flink_deployment, session_job


def test_the_address_is_the_rest_service_with_its_port():
    assert cluster_of(flink_deployment("payments")).url == "http://payments-rest.flink.svc:8081"
    other = flink_deployment("a", spec={"flinkConfiguration": {"rest.port": "9081", "security.ssl.rest.enabled": True}})
    assert cluster_of(other).url == "https://a-rest.flink.svc:9081"
    nested = flink_deployment("a", spec={"flinkConfiguration": {"rest": {"port": 7081}}})
    assert cluster_of(nested).url == "http://a-rest.flink.svc:7081"


@pytest.mark.parametrize("port", ["0", "65536", "-1", "x", "8081/..@169.254.169.254", "８０", "9" * 5000, None])
def test_a_port_that_is_none_is_refused(port):
    with pytest.raises(UnreadableError, match="port"):
        cluster_of(flink_deployment("a", spec={"flinkConfiguration": {"rest.port": port}}))


def test_no_form_of_a_hostile_address_can_be_a_name_or_a_namespace():
    assert len(FORMS) >= 300
    for form in FORMS:
        for name, namespace in ((form, "flink"), ("a", form), (f"a@{form}", "flink"), ("a", f"x.{form}")):
            if not form.isascii() or not form.replace("-", "").isalnum():
                with pytest.raises(UnreadableError, match="name"):
                    cluster_of(flink_deployment(name, namespace))
                continue
            # A word of letters and digits is a label of the name, and never a host of its own.
            try:
                assert cluster_of(flink_deployment(name, namespace)).url.endswith(".svc:8081")
            except UnreadableError:
                continue


def test_blue_and_green_have_the_identity_of_their_parent():
    blue, green = (cluster_of(flink_deployment(f"pay-{c}", owner="pay")) for c in ("blue", "green"))

    assert (blue.owner, green.owner) == ("pay", "pay")
    assert (blue.color, green.color) == ("blue", "green")
    assert cluster_of(flink_deployment("pay")).color is None


@pytest.mark.parametrize(
    ("status", "readable"),
    [
        ({}, True),
        ({"jobManagerDeploymentStatus": "DEPLOYING"}, False),
        ({"jobManagerDeploymentStatus": "DEPLOYED_NOT_READY"}, False),
        ({"jobManagerDeploymentStatus": "MISSING", "jobStatus": {"jobId": "a"}}, False),
        ({"jobManagerDeploymentStatus": "ERROR", "jobStatus": {"startTime": "1"}}, True),
        ({"jobManagerDeploymentStatus": "ERROR", "clusterInfo": {"flink-version": "2.0.0"}}, True),
        ({"jobManagerDeploymentStatus": "DEPLOYING", "clusterInfo": {}}, False),
        ({"jobManagerDeploymentStatus": "DEPLOYING", "jobStatus": {"startTime": "1"}}, True),
    ],
)
def test_a_cluster_is_readable_once_its_job_manager_was_ready(status, readable):
    assert is_readable(flink_deployment("a", status=status)) is readable


@pytest.mark.parametrize(
    ("ingress", "url"),
    [
        ({"template": "{{name}}.{{namespace}}.flink.k8s.io"}, "http://a.flink.flink.k8s.io"),
        ({"template": "flink.k8s.io/{{namespace}}/{{name}}(/|$)(.*)"}, "http://flink.k8s.io/flink/a"),
        ({"template": "https://flink.k8s.io/{{Name}}", "tls": [{"hosts": ["x"]}]}, "https://flink.k8s.io/a"),
        ({"template": "/{{namespace}}/{{name}}(/|$)(.*)"}, None),
        ({}, None),
        ("x", None),
    ],
)
def test_the_web_ui_is_where_the_ingress_is(ingress, url):
    assert cluster_of(flink_deployment("a", spec={"ingress": ingress})).ui_url == url


def test_the_selector_chooses_a_deployment_itself_by_a_session_job_or_by_a_parent():
    keys = [("flink", n) for n in ("a", "session", "pay-blue", "pay-green", "other")] + [("x", "session")]
    objects = {
        Kind.DEPLOYMENT: [flink_deployment("a"), flink_deployment("gone")],
        Kind.SESSION_JOB: [session_job("j", "session")],
        Kind.BLUE_GREEN: [blue_green("pay")],
    }

    assert chosen(objects, keys) == {("flink", n) for n in ("a", "session", "pay-blue", "pay-green")}


@pytest.mark.parametrize("document", [{}, {"metadata": 1}, {"metadata": {"name": 1, "namespace": []}, "spec": "x"}])
def test_an_object_of_another_form_is_no_cluster(document):
    assert not is_readable(document)
    with pytest.raises(UnreadableError):
        cluster_of(document)


@pytest.mark.parametrize(
    "value",
    ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-11-30T14:00:00", "later", 5, None],
)
def test_a_time_that_nothing_can_have_happened_at_is_none(value):
    assert instant_of(value) is None
    assert instant_of("2026-11-30T14:00:00Z").isoformat() == "2026-11-30T14:00:00+00:00"


@pytest.mark.parametrize("value", ["", "a\0", "a" * 31, "a" * 33, "A" * 32, "g" * 32, "a" * 31 + "\0", 5, None])
def test_only_32_hexadecimal_digits_are_the_id_of_a_run(value):
    assert run_id_of(value) is None
    assert run_id_of("0f" * 16) == "0f" * 16
