"""The Helm chart: every values file of ``ci`` lints and renders to valid Kubernetes, and each feature works.

Each values file tests one feature. Schema, README, values and the settings of the program must agree.
"""

from __future__ import annotations

import copy
import json
import re
from functools import cache
from pathlib import Path

import kubernetes_validate
import pytest
import typer.main
import yaml
from helm_python.chart import Chart, lint
from helm_python.errors import HelmError

from backend.cli.app import app
from backend.settings import PREFIX, Settings
from tests.packaging.dockerfile import read_dockerfile
from tests.packaging.wheel_environment import ROOT

CHART = ROOT / "helm" / "barrierscope"
# The oldest Kubernetes version that the chart allows, and a current one.
_VERSIONS = ("1.25", "1.33")
_FILES = {path.name.removesuffix("-values.yaml"): path for path in sorted((CHART / "ci").glob("*-values.yaml"))}
_PODS = {"Deployment", "CronJob", "Pod"}
# Settings that no pod needs, with the reason.
_NOT_IN_THE_CHART = {
    "api_url": "the command line's",
    "api_token_file": "pods get the variable, from a secret",
    "xdg_data_home": "of `up`",
    "built_in_spark_demo": "of `up`",
}


@cache
def _values(name: str) -> str:
    return _FILES[name].read_text()


@cache
def _rendered(name: str) -> tuple[tuple[str, str], ...]:
    with Chart.load(CHART) as chart:
        found = chart.render(yaml.safe_load(_values(name)), name="rel", namespace="checkpoints")
    return tuple((Path(path).name, text) for path, text in found.items())


def _render(values: dict) -> list[dict]:
    with Chart.load(CHART) as chart:
        found = chart.render(values, name="rel", namespace="checkpoints")
    return _documents(tuple((Path(path).name, text) for path, text in found.items()))


def _documents(rendered: tuple[tuple[str, str], ...]) -> list[dict]:
    texts = [text for name, text in rendered if name != "NOTES.txt"]
    return [document for text in texts for document in yaml.load_all(text, yaml.CSafeLoader) if document]


@cache
def _manifests(name: str) -> list[dict]:
    return _documents(_rendered(name))


def _of(manifests: list[dict], kind: str, component: str) -> dict:
    (found,) = [m for m in manifests if m["kind"] == kind and _component(m) == component]
    return found


def _component(manifest: dict) -> str:
    return manifest["metadata"]["labels"]["app.kubernetes.io/component"]


def _template(manifest: dict) -> dict:
    match manifest["kind"]:
        case "Deployment":
            return manifest["spec"]["template"]
        case "CronJob":
            return manifest["spec"]["jobTemplate"]["spec"]["template"]
    return manifest


def _pods(name: str) -> list[dict]:
    return [_template(m) for m in _manifests(name) if m["kind"] in _PODS]


def _containers(pod: dict) -> list[dict]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def _environment(container: dict) -> dict[str, dict]:
    return {e["name"]: e for e in container.get("env", [])}


# --- every values file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", _FILES)
def test_a_values_file_lints_without_a_warning(name):
    report = lint(CHART, yaml.safe_load(_values(name)), strict=True, namespace="checkpoints", kube_version="v1.33.0")

    assert [m for m in report["messages"] if m["severity"] > 1] == []
    assert report["errors"] == []


@pytest.mark.parametrize("name", _FILES)
def test_every_manifest_is_valid_kubernetes(name):
    manifests = _manifests(name)

    assert len(manifests) >= 4
    for manifest in manifests:
        for version in _VERSIONS:
            _validate(json.dumps(manifest, sort_keys=True), version)


@cache
def _validate(manifest: str, version: str) -> None:
    # Most manifests are the same for every values file.
    kubernetes_validate.validate(json.loads(manifest), version, strict=True)


def test_the_validation_finds_an_invalid_manifest():
    wrong = _manifests("default")[0] | {"replica": 2}

    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        _validate(json.dumps(wrong), "1.33")


@pytest.mark.parametrize("name", _FILES)
def test_every_container_has_a_confined_security_context_and_limits(name):
    for pod in _pods(name):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in _containers(pod):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert "memory" in container["resources"]["limits"]
            # The only folder that the program writes to.
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]


@pytest.mark.parametrize("name", _FILES)
def test_manifests_refer_to_secrets_and_never_contain_them(name):
    manifests = _manifests(name)

    assert "Secret" not in {m["kind"] for m in manifests}
    for container in [c for pod in _pods(name) for c in _containers(pod)]:
        for variable, entry in _environment(container).items():
            is_secret = re.search(r"TOKEN|PASSWORD|SECRET(?!S_DIR)|_KEY$", variable) is not None
            assert not is_secret or set(entry["valueFrom"]) == {"secretKeyRef"}, variable
            # A URL with a password.
            assert not re.search(r"://[^/@]*:[^/@]*@", entry.get("value", "")), variable


@pytest.mark.parametrize("name", _FILES)
def test_selectors_match_only_the_pods_of_their_component(name):
    manifests = _manifests(name)
    pods = {_component(m): _template(m)["metadata"]["labels"] for m in manifests if m["kind"] in _PODS}
    selectors = []
    for manifest in manifests:
        spec = manifest.get("spec", {})
        match manifest["kind"]:
            case "Deployment" | "PodDisruptionBudget":
                selectors.append((manifest, spec["selector"]["matchLabels"]))
            case "Service":
                selectors.append((manifest, spec["selector"]))
            case "NetworkPolicy":
                selectors.append((manifest, spec["podSelector"]["matchLabels"]))

    assert len(selectors) >= 3
    for manifest, selector in selectors:
        assert "helm.sh/chart" not in selector
        found = [c for c, labels in pods.items() if selector.items() <= labels.items()]
        assert found == [_component(manifest)]


@pytest.mark.parametrize("name", _FILES)
def test_pods_that_need_the_database_wait_for_its_tables(name):
    for pod in _pods(name):
        (container,) = pod["spec"]["containers"]
        needs_store = "BARRIERSCOPE_DATABASE_URL" in _environment(container)
        before = pod["spec"].get("initContainers", [])

        assert [c["name"] for c in before] == (["migrate"] if needs_store else [])
        for migrate in before:
            assert migrate["args"][:2] == ["migrate", "--wait"]
            assert migrate["image"] == container["image"]
            own, of_migrate = _environment(container), _environment(migrate)
            for variable in ("BARRIERSCOPE_DATABASE_URL", "PGPASSWORD"):
                assert own.get(variable) == of_migrate.get(variable)


@cache
def _commands() -> dict[str, object]:
    return dict(typer.main.get_command(app).commands)


@pytest.mark.parametrize("name", _FILES)
def test_every_command_exists_and_accepts_its_options(name):
    for container in [c for pod in _pods(name) for c in _containers(pod)]:
        command, words = _commands(), container["args"]
        found = command[words[0]]
        if hasattr(found, "commands") and len(words) > 1:
            found = found.commands[words[1]]
        known = {option for parameter in found.params for option in parameter.opts}
        assert {w.partition("=")[0] for w in words if w.startswith("--")} <= known, words


@pytest.mark.parametrize("name", _FILES)
def test_every_variable_is_a_setting(name):
    known = {PREFIX + field.upper() for field in Settings.model_fields} | {"PGPASSWORD", "TZ"}

    for container in [c for pod in _pods(name) for c in _containers(pod)]:
        assert set(_environment(container)) <= known


def test_every_setting_is_in_the_chart_or_in_the_list_of_exceptions():
    templates = "\n".join(path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file())
    missing = {n for n in Settings.model_fields if PREFIX + n.upper() not in templates}

    assert missing == set(_NOT_IN_THE_CHART)


@pytest.mark.parametrize("name", _FILES)
def test_the_program_accepts_the_settings_of_the_chart(name, monkeypatch):
    for field in Settings.model_fields:
        monkeypatch.delenv(PREFIX + field.upper(), raising=False)
    for container in [c for pod in _pods(name) for c in _containers(pod)]:
        given = {k: e["value"] for k, e in _environment(container).items() if "value" in e and k.startswith(PREFIX)}
        Settings(**{k.removeprefix(PREFIX).lower(): v for k, v in given.items()})


# --- what a feature does ------------------------------------------------------------------------------------------


def test_the_liveness_probe_does_not_use_the_database_and_the_readiness_probe_does():
    (container,) = _template(_of(_manifests("default"), "Deployment", "api"))["spec"]["containers"]

    assert (
        container["startupProbe"]["httpGet"]["path"] == container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    )
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"


@pytest.mark.parametrize("component", ["collector", "alert"])
def test_a_role_without_a_server_is_probed_by_the_age_of_its_heartbeat_file(component):
    (container,) = _template(_of(_manifests("default"), "Deployment", component))["spec"]["containers"]

    assert _environment(container)["BARRIERSCOPE_HEARTBEAT_FILE"]["value"].startswith("/tmp/")
    assert all(
        "$BARRIERSCOPE_HEARTBEAT_FILE" in container[p]["exec"]["command"][2] for p in ("startupProbe", "livenessProbe")
    )


def test_a_digest_takes_precedence_over_a_tag():
    images = {c["image"] for pod in _pods("digest") for c in _containers(pod)}

    assert images == {"registry.example/barrierscope@sha256:" + "a" * 64}


def test_without_a_tag_the_image_has_the_version_of_the_chart():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert {c["image"] for pod in _pods("default") for c in _containers(pod)} == {f"barrierscope:{chart['appVersion']}"}


def test_database_settings_in_parts_keep_the_password_in_its_secret():
    (container,) = _template(_of(_manifests("database-parts"), "Deployment", "collector"))["spec"]["containers"]
    environment = _environment(container)

    url = "postgresql://barrierscope%40example@postgres.databases.svc:5432/checkpoints?sslmode=verify-full"
    assert environment["BARRIERSCOPE_DATABASE_URL"]["value"] == url
    assert environment["PGPASSWORD"]["valueFrom"]["secretKeyRef"] == {
        "name": "postgres-credentials",
        "key": "postgres-password",
    }


def test_the_host_of_the_ingress_is_the_public_address_of_api_and_alert():
    manifests = _manifests("ingress")
    for component in ("api", "alert"):
        (container,) = _template(_of(manifests, "Deployment", component))["spec"]["containers"]
        assert _environment(container)["BARRIERSCOPE_PUBLIC_URL"]["value"] == "https://barrierscope.example"
    backend = _of(manifests, "Ingress", "api")["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    service = _of(manifests, "Service", "api")
    assert backend == {"name": service["metadata"]["name"], "port": {"name": service["spec"]["ports"][0]["name"]}}


def test_the_runtime_is_a_target_under_the_name_of_its_service():
    manifests = _manifests("runtime")
    service = _of(manifests, "Service", "runtime")
    pod = _template(_of(manifests, "Deployment", "runtime"))["spec"]["containers"][0]
    migrate = _template(_of(manifests, "Deployment", "api"))["spec"]["initContainers"][0]

    name = service["metadata"]["name"]
    assert _environment(migrate)["BARRIERSCOPE_BUILT_IN_TARGET"]["value"] == f"http://{name}:18050/runtime/v1"
    assert name in _environment(pod)["BARRIERSCOPE_RUNTIME_ALLOWED_HOSTS"]["value"].split(",")
    assert pod["args"] == ["runtime", "--job=healthy", "--job=backpressured"]


def test_alert_and_api_have_the_credentials_of_receivers_as_files():
    manifests = _manifests("receivers")
    for component in ("api", "alert", "collector"):
        spec = _template(_of(manifests, "Deployment", component))["spec"]
        folder = _environment(spec["containers"][0]).get("BARRIERSCOPE_SECRETS_DIR", {}).get("value")
        mounted = {m["name"]: m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
        secrets = [v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v]
        assert (secrets, mounted.get("receivers")) == ((["receiver-credentials"], folder) if folder else ([], None))
        assert bool(folder) is (component != "collector")
    environment = _environment(_template(_of(manifests, "Deployment", "alert"))["spec"]["containers"][0])
    assert environment["BARRIERSCOPE_ALERTMANAGER_URLS"]["value"].count("http://") == 2


def test_with_an_autoscaler_the_deployment_has_no_replica_count():
    manifests = _manifests("autoscaling")

    assert "replicas" not in _of(manifests, "Deployment", "api")["spec"]
    assert _of(manifests, "HorizontalPodAutoscaler", "api")["spec"]["scaleTargetRef"]["name"] == "rel-barrierscope-api"
    assert [_component(m) for m in manifests if m["kind"] == "HorizontalPodAutoscaler"] == ["api"]


def test_settings_of_one_component_reach_only_its_pods():
    manifests = _manifests("scheduling")
    given, other = (_template(_of(manifests, "Deployment", c)) for c in ("collector", "api"))
    spec, container = given["spec"], given["spec"]["containers"][0]

    assert (spec["nodeSelector"], spec["priorityClassName"]) == ({"disk": "ssd"}, "high")
    assert spec["tolerations"][0]["key"] == "dedicated"
    assert "podAntiAffinity" in spec["affinity"]
    assert given["metadata"]["annotations"] == {"example.com/team": "streaming"}
    assert given["metadata"]["labels"]["team"] == "streaming"
    assert container["envFrom"] == [{"configMapRef": {"name": "collector-extras"}}]
    assert _environment(container)["TZ"]["value"] == "UTC"
    assert {v["name"] for v in spec["volumes"]} == {v["name"] for v in container["volumeMounts"]} == {"tmp", "ca"}
    assert not {"nodeSelector", "priorityClassName", "tolerations", "affinity"} & set(other["spec"])


def test_network_policies_admit_only_named_peers_to_the_api_and_readers_to_the_runtime():
    manifests = _manifests("network-policy")
    reaches = {_component(m): m["spec"]["ingress"] for m in manifests if m["kind"] == "NetworkPolicy"}

    assert set(reaches) == {"api", "runtime", "collector", "alert", "pipeline"}
    assert [name for name, ingress in reaches.items() if ingress == []] == ["collector", "alert", "pipeline"]
    peers = [p["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for p in reaches["runtime"][0]["from"]]
    assert peers == ["api", "collector"]


def test_disabled_components_have_no_manifests():
    kinds = {(m["kind"], _component(m)) for m in _manifests("minimal")}

    assert {c for _, c in kinds} == {"api", "collector", "test"}
    assert "ServiceAccount" not in {k for k, _ in kinds}


def test_the_notes_name_the_address_and_the_secret_of_the_token():
    (notes,) = [text for name, text in _rendered("ingress") if name == "NOTES.txt"]

    assert "Open https://barrierscope.example" in notes
    assert "get secret barrierscope-access" in notes
    assert "helm --namespace checkpoints test rel" in notes


# --- what is refused ----------------------------------------------------------------------------------------------

_GOOD = yaml.safe_load(_values("default"))
_BAD = [
    ("api.replica", 2),
    ("replicas", 2),
    ("api.replicas", 0),
    ("api.replicas", "2"),
    ("alert.replicas", 1.5),
    ("image.digest", "sha256:short"),
    ("image.pullPolicy", "Sometimes"),
    ("logLevel", "loud"),
    ("database.port", 0),
    ("database.password", "hunter2"),
    ("database.host", "user:hunter2@host"),
    ("database.sslMode", "yes"),
    ("access.token", "hunter2"),
    ("access.publicUrl", "barrierscope.example"),
    ("access.trustedProxies", ["*"]),
    ("access.existingSecret", "Not_A_Name"),
    ("service.type", "ExternalName"),
    ("retention.maxAgeDays", 0),
    ("retention.maxSizeMib", 1),
    ("collector.pollIntervalS", 0.1),
    ("pipeline.schedule", "hourly"),
    ("migrations.wait", "soon"),
    ("runtime.replicas", 2),
    ("ingress.hosts", ["barrierscope.example"]),
]


def _put(values: dict, path: str, value: object) -> dict:
    changed = copy.deepcopy(values)
    *above, last = path.split(".")
    place = changed
    for name in above:
        place = place.setdefault(name, {})
    place[last] = value
    return changed


@pytest.mark.parametrize(("path", "value"), _BAD, ids=[f"{p}={v}" for p, v in _BAD])
def test_an_invalid_value_is_refused_with_its_name(path, value):
    with pytest.raises(HelmError) as refused:
        _render(_put(_GOOD, path, value))

    assert path.split(".")[-1] in str(refused.value)


@pytest.mark.parametrize("path", ["database.existingSecret", "access.existingSecret"])
def test_a_missing_name_of_a_secret_is_refused(path):
    with pytest.raises(HelmError, match=path):
        _render(_put(_GOOD, path, ""))


def test_an_ingress_without_a_host_is_refused():
    with pytest.raises(HelmError, match=r"ingress\.hosts"):
        _render(_put(_GOOD, "ingress.enabled", True))


# --- agreement of schema, README, package and image ---------------------------------------------------------------


def _paths(values: object, path: str = "") -> set[str]:
    """Return the dotted paths of all values. A value with a structure of Kubernetes is one path."""
    is_own = path not in ("podSecurityContext", "securityContext") and not path.endswith(
        (".resources", ".capabilities")
    )
    if not isinstance(values, dict) or not values or not is_own:
        return {path}
    return {found for key, value in values.items() for found in _paths(value, f"{path}.{key}" if path else key)}


def _schema_paths(schema: dict, root: dict, path: str = "") -> set[str]:
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if path.endswith(".resources") or "properties" not in schema:
        return {path}
    assert schema["additionalProperties"] is False, path
    below = schema["properties"].items()
    return {found for key, value in below for found in _schema_paths(value, root, f"{path}.{key}" if path else key)}


def test_the_schema_has_exactly_the_values():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert _schema_paths(schema, schema) - {"global"} == _paths(values)


def test_the_readme_describes_exactly_the_values():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    rows = re.findall(r"^\| `([\w.]+)` \|", (CHART / "README.md").read_text(), re.M)
    # Values that every component has are described once.
    every = {row.removeprefix("COMPONENT.") for row in rows if row.startswith("COMPONENT.")}
    components = ("api", "collector", "alert", "pipeline", "runtime")
    described = {r for r in rows if not r.startswith("COMPONENT.")} | {f"{c}.{e}" for c in components for e in every}

    assert len(rows) == len(set(rows))
    assert described == _paths(values)


def test_chart_and_package_have_the_same_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    package = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.M)

    assert package is not None
    assert chart["appVersion"] == package[1]


def test_the_image_agrees_with_the_chart():
    instructions = read_dockerfile((ROOT / "Dockerfile").read_text())
    last = {i.name: i.text for i in instructions}
    context = yaml.safe_load((CHART / "values.yaml").read_text())["podSecurityContext"]

    assert last["USER"] == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert last["ENTRYPOINT"] == '["barrierscope"]'
    assert last["EXPOSE"].split() == ["8050", "18050"]
