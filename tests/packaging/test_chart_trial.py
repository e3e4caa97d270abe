"""The chart's trial: one pod with its own PostgreSQL on a volume, and nothing that the production layout has."""

from __future__ import annotations

import re

import pytest
import yaml
from helm_python.errors import HelmError

from tests.packaging.rendered_chart import (
    CHART,
    containers_of,
    environment_of,
    manifest_of,
    manifests_of,
    put,
    render,
    rendered,
    template_of,
    values_text,
)
from tests.packaging.wheel_environment import ROOT

_TRIAL = yaml.safe_load(values_text("trial"))


def _pod():
    return template_of(manifest_of(manifests_of("trial"), "Deployment", "trial"))


def test_one_value_is_enough_and_makes_one_pod_with_a_volume():
    manifests = render({"trial": {"enabled": True}})

    assert sorted(m["kind"] for m in manifests) == ["Deployment", "PersistentVolumeClaim", "ServiceAccount"]
    deployment = manifest_of(manifests, "Deployment", "trial")
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (1, {"type": "Recreate"})
    (container,) = containers_of(template_of(deployment))
    assert container["args"] == ["up", "--no-spark-demo", "--demo"]


def test_without_it_the_chart_is_as_before():
    kinds = {(m["kind"], m["metadata"]["labels"]["app.kubernetes.io/component"]) for m in manifests_of("default")}

    assert {("Deployment", c) for c in ("api", "collector", "alert", "lab")} <= kinds
    assert not {kind for kind, component in kinds if component == "trial"}
    assert "PersistentVolumeClaim" not in {kind for kind, _ in kinds}


def test_the_data_is_on_the_volume_in_a_folder_that_postgresql_accepts():
    spec = _pod()["spec"]
    (container,) = spec["containers"]
    claim = manifest_of(manifests_of("trial"), "PersistentVolumeClaim", "trial")
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}

    data_dir = environment_of(container)["BARRIERSCOPE_DATA_DIR"]["value"]
    assert data_dir.startswith(mounts["data"] + "/")
    (volume,) = [v for v in spec["volumes"] if v["name"] == "data"]
    assert volume["persistentVolumeClaim"] == {"claimName": claim["metadata"]["name"]}
    assert claim["spec"]["resources"] == {"requests": {"storage": "2Gi"}}
    assert claim["spec"]["storageClassName"] == "fast"
    # Otherwise the cluster makes the files of the database writable for the group at each start.
    assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"


def test_what_is_stored_fits_the_default_volume():
    size = yaml.safe_load((CHART / "values.yaml").read_text())["trial"]["storage"]["size"]
    (container,) = containers_of(_pod())
    stored_mib = int(environment_of(container)["BARRIERSCOPE_RETENTION_MAX_SIZE_MIB"]["value"])

    # Besides what is stored, PostgreSQL has its log and what it has not vacuumed yet.
    assert 2 * stored_mib <= int(size.removesuffix("Gi")) * 1024


def test_only_the_pod_itself_reaches_the_pages_so_that_no_token_is_needed():
    (container,) = containers_of(_pod())
    environment = environment_of(container)

    assert not {"BARRIERSCOPE_HOST", "BARRIERSCOPE_API_TOKEN"} & set(environment)
    assert "--host" not in container["args"]
    manifests = manifests_of("trial")
    assert not {"Service", "Ingress"} & {m["kind"] for m in manifests}
    assert manifest_of(manifests, "NetworkPolicy", "trial")["spec"]["ingress"] == []


def test_the_targets_of_the_values_are_read_with_their_credentials():
    (container,) = containers_of(_pod())
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    file = environment_of(container)["BARRIERSCOPE_TARGETS_FILE"]["value"]
    document = manifest_of(manifests_of("trial"), "ConfigMap", "trial")["data"]

    assert file == f"{mounts['targets']}/targets.yaml"
    assert yaml.safe_load(document["targets.yaml"])["targets"] == _TRIAL["targets"]
    assert mounts["flink-credentials"] == "/etc/flink-credentials"


def test_the_notes_say_how_to_open_it_and_how_to_remove_it():
    (notes,) = [text for name, text in rendered("trial") if name == "NOTES.txt"]
    name = manifest_of(manifests_of("trial"), "Deployment", "trial")["metadata"]["name"]

    assert f"port-forward deployment/{name} 8050" in notes
    assert "http://127.0.0.1:8050" in notes
    assert "It reads 1 target of" in notes
    assert "uninstall rel" in notes
    assert "token" not in notes


@pytest.mark.parametrize(
    ("component", "value"),
    [
        ("ingress", {"enabled": True, "hosts": [{"host": "a.example"}]}),
        ("autoscaling", {"enabled": True}),
        ("metrics", {"enabled": True}),
        ("runtime", {"enabled": True}),
    ],
)
def test_what_a_trial_cannot_have_is_refused_with_its_name(component, value):
    with pytest.raises(HelmError, match=rf"{component}\.enabled: not with trial\.enabled"):
        render(put(_TRIAL, component, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [("trial.replicas", 2), ("trial.storage.size", "much"), ("trial.enabled", "yes"), ("trial.storage.path", "/data")],
)
def test_an_invalid_value_is_refused_with_its_name(path, value):
    with pytest.raises(HelmError) as refused:
        render(put(_TRIAL, path, value))

    assert path.split(".")[-1] in str(refused.value)


def test_all_documents_say_that_collectors_share_the_targets():
    texts = {
        path.name: " ".join(path.read_text().replace("#", " ").split())
        for path in (CHART / "README.md", CHART / "values.yaml", ROOT / "docs/deploy.md", ROOT / "docs/sizing.md")
    }

    for name, text in texts.items():
        assert re.search(r"[Cc]ollectors?(?: |, which |\. Several replicas )share the targets", text), name
        assert not re.search(r"collectors[^.]* (?:do not|would not|not) do more", text), name
