"""The pipeline in the Helm chart: its pods and those of executors, their rights, and the options for a cluster."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
import yaml
from helm_python.errors import HelmError

from tests.packaging.rendered_chart import (
    VERSIONS,
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


def _spark_options(name: str) -> tuple[list[str], dict[str, str]]:
    """Return the arguments of the pipeline without the settings of Spark, and these settings."""
    (container,) = template_of(manifest_of(manifests_of(name), "CronJob", "pipeline"))["spec"]["containers"]
    arguments = container["args"]
    settings = [value for option, value in pairwise(arguments) if option == "--conf"]
    others = [a for a in arguments if a != "--conf" and a not in settings]
    return others, dict(text.split("=", 1) for text in settings)


def test_a_pipeline_on_kubernetes_creates_executors_from_the_same_image_and_a_confined_pod():
    manifests = manifests_of("spark-on-kubernetes")
    _, settings = _spark_options("spark-on-kubernetes")
    spec = template_of(manifest_of(manifests, "CronJob", "pipeline"))["spec"]

    assert settings["spark.kubernetes.container.image"] == spec["containers"][0]["image"]
    assert settings["spark.kubernetes.namespace"] == "checkpoints"
    assert settings["spark.executor.instances"] == "4"
    names = {"$(POD_IP)": "spark.driver.host", "$(POD_NAME)": "spark.kubernetes.driver.pod.name"}
    for variable, setting in names.items():
        assert settings[setting] == variable
        assert variable[2:-1] in environment_of(spec["containers"][0])
    (text,) = manifest_of(manifests, "ConfigMap", "pipeline")["data"].values()
    executor = yaml.safe_load(text)
    for version in VERSIONS:
        named = executor | {"metadata": executor["metadata"] | {"name": "executor"}}
        validate(json.dumps(named, sort_keys=True), version)
    assert executor["spec"]["automountServiceAccountToken"] is False
    assert executor["spec"]["securityContext"] == spec["securityContext"]
    assert executor["spec"]["nodeSelector"] == spec["nodeSelector"]
    (container,) = executor["spec"]["containers"]
    assert container["name"] == settings["spark.kubernetes.executor.podTemplateContainerName"]
    assert container["securityContext"] == spec["containers"][0]["securityContext"]
    folder = {m["name"]: m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}["executor-template"]
    (key,) = manifest_of(manifests, "ConfigMap", "pipeline")["data"]
    assert settings["spark.kubernetes.executor.podTemplateFile"] == f"{folder}/{key}"


def test_a_pipeline_on_kubernetes_may_create_pods_in_its_namespace_and_no_other_component_may():
    manifests = manifests_of("spark-on-kubernetes")
    (subject,) = manifest_of(manifests, "RoleBinding", "pipeline")["subjects"]
    accounts = {template_of(m)["spec"]["serviceAccountName"] for m in manifests if m["kind"] == "Deployment"}

    assert subject["name"] == template_of(manifest_of(manifests, "CronJob", "pipeline"))["spec"]["serviceAccountName"]
    assert subject["name"] not in accounts
    assert not {"ClusterRole", "ClusterRoleBinding"} & {m["kind"] for m in manifests}
    assert not {"Role", "RoleBinding", "ConfigMap"} & {m["kind"] for m in manifests_of("spark-cluster")}
    reached = {component_of(m): m["spec"]["ingress"] for m in manifests if m["kind"] == "NetworkPolicy"}
    ((peers,),) = [rule["from"] for rule in reached["pipeline"]]
    executor = yaml.safe_load(manifest_of(manifests, "ConfigMap", "pipeline")["data"]["executor.yaml"])
    assert peers["podSelector"]["matchLabels"].items() <= executor["metadata"]["labels"].items()


def test_executors_get_the_credentials_of_the_database_by_reference_only():
    others, settings = _spark_options("spark-on-kubernetes")
    folder = settings["spark.kubernetes.executor.secrets.barrierscope-database"]
    assert others[others.index("--executor-url-file") + 1] == f"{folder}/url"
    values = yaml.safe_load(values_text("spark-on-kubernetes"))
    parts = yaml.safe_load(values_text("database-parts"))["database"]
    manifests = render(values | {"database": parts})
    (container,) = template_of(manifest_of(manifests, "CronJob", "pipeline"))["spec"]["containers"]

    named = f"{parts['existingSecret']}:{parts.get('passwordKey', 'password')}"
    assert f"spark.kubernetes.executor.secretKeyRef.PGPASSWORD={named}" in container["args"]
    assert "--executor-url-file" not in container["args"]


def test_a_pipeline_on_a_cluster_elsewhere_is_reached_by_its_executors():
    others, settings = _spark_options("spark-cluster")
    reached = {
        component_of(m): m["spec"]["ingress"] for m in manifests_of("spark-cluster") if m["kind"] == "NetworkPolicy"
    }

    assert others == ["pipeline", "rollups", "--master", "spark://spark.example:7077"]
    assert settings == {"spark.driver.host": "$(POD_IP)", "spark.cores.max": "8"}
    assert reached["pipeline"] == [{}]
    assert _spark_options("default") == (["pipeline", "rollups"], {})


def test_executors_on_a_cluster_elsewhere_get_packages_python_and_url_as_the_values_name_them():
    others, _ = _spark_options("spark-archive")
    values = yaml.safe_load(values_text("spark-archive"))["pipeline"]
    spec = template_of(manifest_of(manifests_of("spark-archive"), "CronJob", "pipeline"))["spec"]
    mounts = {m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
    options = dict(zip(others[2::2], others[3::2], strict=True))

    assert options == {
        "--master": values["master"],
        "--archive": values["archive"],
        "--executor-python": values["executorPython"],
        "--executor-url-file": values["executorUrlFile"],
    }
    assert values["archive"].rpartition("/")[0] in mounts


@pytest.mark.parametrize("name", ["archive", "executorPython", "executorUrlFile"])
@pytest.mark.parametrize("master", ["", "local[2]", "k8s://https://kubernetes.default.svc"])
def test_options_of_executors_elsewhere_are_refused_without_such_a_cluster(name, master):
    with pytest.raises(HelmError, match=rf"pipeline\.{name}"):
        render(put(put(yaml.safe_load(values_text("default")), "pipeline.master", master), f"pipeline.{name}", "/a"))
