"""The Helm chart: every values file in ``ci`` lints and renders to valid Kubernetes manifests, and each feature works.

Each values file tests one feature. The schema, the README, the values and the program's settings must agree.
"""

from __future__ import annotations

import json
import re
import tomllib
from functools import cache

import kubernetes_validate
import pytest
import typer.main
import yaml
from helm_python.chart import lint
from helm_python.errors import HelmError

from backend.cli.app import app
from backend.settings import PREFIX, Settings
from tests.packaging.dockerfile import read_dockerfile
from tests.packaging.rendered_chart import (
    CHART,
    FILES,
    PODS,
    VERSIONS,
    component_of,
    containers_of,
    environment_of,
    manifest_of,
    manifests_of,
    pods_of,
    put,
    render,
    rendered,
    template_of,
    validate,
    values_text,
)
from tests.packaging.wheel_environment import ROOT

# Settings that no pod needs, with the reason for each.
_NOT_IN_THE_CHART = {
    "api_url": "the command line's",
    "api_token_file": "pods get the variable, from a secret",
    "xdg_config_home": "of `diagnose`",
    "xdg_data_home": "of `up`",
    "xdg_runtime_dir": "of `up`",
    "xdg_state_home": "of `up`",
    "built_in_spark_demo": "of `up`",
}


# --- every values file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_values_file_lints_without_a_warning(name):
    report = lint(
        CHART, yaml.safe_load(values_text(name)), strict=True, namespace="checkpoints", kube_version="v1.33.0"
    )

    assert [m for m in report["messages"] if m["severity"] > 1] == []
    assert report["errors"] == []


@pytest.mark.parametrize("name", FILES)
def test_every_manifest_is_valid_kubernetes(name):
    manifests = manifests_of(name)

    assert len(manifests) >= 4
    for manifest in manifests:
        for version in VERSIONS:
            validate(json.dumps(manifest, sort_keys=True), version)


def test_the_validation_finds_an_invalid_manifest():
    wrong = manifests_of("default")[0] | {"replica": 2}

    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        validate(json.dumps(wrong), "1.33")


@pytest.mark.parametrize("name", FILES)
def test_every_container_has_a_confined_security_context_and_limits(name):
    for pod in pods_of(name):
        spec = pod["spec"]
        creates_pods = spec["serviceAccountName"] == "rel-barrierscope-pipeline"
        reads_flink = spec["serviceAccountName"] == "rel-barrierscope-collector"
        assert spec["automountServiceAccountToken"] is (creates_pods or reads_flink)
        assert reads_flink == (name == "discovery" and "collector" in pod["metadata"]["labels"].values())
        assert creates_pods == (name == "spark-on-kubernetes" and "pipeline" in pod["metadata"]["labels"].values())
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in containers_of(pod):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert "memory" in container["resources"]["limits"]
            # This is the only folder that the program writes to.
            assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]


@pytest.mark.parametrize("name", FILES)
def test_manifests_refer_to_secrets_and_never_contain_them(name):
    manifests = manifests_of(name)

    assert "Secret" not in {m["kind"] for m in manifests}
    for container in [c for pod in pods_of(name) for c in containers_of(pod)]:
        for variable, entry in environment_of(container).items():
            is_secret = re.search(r"TOKEN|PASSWORD|SECRET(?!S_DIR)|_KEY$", variable) is not None
            assert not is_secret or set(entry["valueFrom"]) == {"secretKeyRef"}, variable
            # No value may be a URL that contains a password.
            assert not re.search(r"://[^/@]*:[^/@]*@", entry.get("value", "")), variable


@pytest.mark.parametrize("name", FILES)
def test_selectors_match_only_the_pods_of_their_component(name):
    manifests = manifests_of(name)
    pods = {component_of(m): template_of(m)["metadata"]["labels"] for m in manifests if m["kind"] in PODS}
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

    assert len(selectors) >= (2 if name == "trial" else 3)
    for manifest, selector in selectors:
        assert "helm.sh/chart" not in selector
        found = [c for c, labels in pods.items() if selector.items() <= labels.items()]
        assert found == [component_of(manifest)]


@pytest.mark.parametrize("name", FILES)
def test_pods_that_need_the_database_wait_for_its_tables(name):
    for pod in pods_of(name):
        (container,) = pod["spec"]["containers"]
        needs_store = "BARRIERSCOPE_DATABASE_URL" in environment_of(container)
        before = pod["spec"].get("initContainers", [])

        assert [c["name"] for c in before] == (["migrate"] if needs_store else [])
        for migrate in before:
            assert migrate["args"][:2] == ["migrate", "--wait"]
            assert migrate["image"] == container["image"]
            own, of_migrate = environment_of(container), environment_of(migrate)
            for variable in ("BARRIERSCOPE_DATABASE_URL", "PGPASSWORD"):
                assert own.get(variable) == of_migrate.get(variable)


@cache
def _commands() -> dict[str, object]:
    return dict(typer.main.get_command(app).commands)


@pytest.mark.parametrize("name", FILES)
def test_every_command_exists_and_accepts_its_options(name):
    for container in [c for pod in pods_of(name) for c in containers_of(pod)]:
        command, words = _commands(), container["args"]
        found = command[words[0]]
        if hasattr(found, "commands") and len(words) > 1:
            found = found.commands[words[1]]
        known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {w.partition("=")[0] for w in words if w.startswith("--")} <= known, words


@pytest.mark.parametrize("name", FILES)
def test_every_variable_is_a_setting(name):
    known = {PREFIX + field.upper() for field in Settings.model_fields} | {"PGPASSWORD", "TZ", "POD_IP", "POD_NAME"}

    for container in [c for pod in pods_of(name) for c in containers_of(pod)]:
        assert set(environment_of(container)) <= known


def test_every_setting_is_in_the_chart_or_in_the_list_of_exceptions():
    templates = "\n".join(path.read_text() for path in (CHART / "templates").rglob("*") if path.is_file())
    missing = {n for n in Settings.model_fields if PREFIX + n.upper() not in templates}

    assert missing == set(_NOT_IN_THE_CHART)


@pytest.mark.parametrize("name", FILES)
def test_the_program_accepts_the_settings_of_the_chart(name, monkeypatch):
    for field in Settings.model_fields:
        monkeypatch.delenv(PREFIX + field.upper(), raising=False)
    for container in [c for pod in pods_of(name) for c in containers_of(pod)]:
        given = {k: e["value"] for k, e in environment_of(container).items() if "value" in e and k.startswith(PREFIX)}
        Settings(**{k.removeprefix(PREFIX).lower(): v for k, v in given.items()})


# --- what each feature does ---------------------------------------------------------------------------------------


def test_the_liveness_probe_does_not_use_the_database_and_the_readiness_probe_does():
    (container,) = template_of(manifest_of(manifests_of("default"), "Deployment", "api"))["spec"]["containers"]

    assert (
        container["startupProbe"]["httpGet"]["path"] == container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    )
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"


@pytest.mark.parametrize("component", ["collector", "alert", "lab"])
def test_a_role_without_a_server_is_probed_by_the_age_of_its_heartbeat_file(component):
    (container,) = template_of(manifest_of(manifests_of("default"), "Deployment", component))["spec"]["containers"]

    assert environment_of(container)["BARRIERSCOPE_HEARTBEAT_FILE"]["value"].startswith("/tmp/")
    assert all(
        "$BARRIERSCOPE_HEARTBEAT_FILE" in container[p]["exec"]["command"][2] for p in ("startupProbe", "livenessProbe")
    )


def test_a_digest_takes_precedence_over_a_tag():
    images = {c["image"] for pod in pods_of("digest") for c in containers_of(pod)}

    assert images == {"registry.example/barrierscope@sha256:" + "a" * 64}


def test_without_a_tag_the_image_has_the_version_of_the_chart():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert {c["image"] for pod in pods_of("default") for c in containers_of(pod)} == {
        f"barrierscope:{chart['appVersion']}"
    }


def test_database_settings_in_parts_keep_the_password_in_its_secret():
    (container,) = template_of(manifest_of(manifests_of("database-parts"), "Deployment", "collector"))["spec"][
        "containers"
    ]
    environment = environment_of(container)

    url = "postgresql://barrierscope%40example@postgres.databases.svc:5432/checkpoints?sslmode=verify-full"
    assert environment["BARRIERSCOPE_DATABASE_URL"]["value"] == url
    assert environment["PGPASSWORD"]["valueFrom"]["secretKeyRef"] == {
        "name": "postgres-credentials",
        "key": "postgres-password",
    }


def test_the_host_of_the_ingress_is_the_public_address_of_api_and_alert():
    manifests = manifests_of("ingress")
    for component in ("api", "alert"):
        (container,) = template_of(manifest_of(manifests, "Deployment", component))["spec"]["containers"]
        assert environment_of(container)["BARRIERSCOPE_PUBLIC_URL"]["value"] == "https://barrierscope.example"
    backend = manifest_of(manifests, "Ingress", "api")["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]
    service = manifest_of(manifests, "Service", "api")
    assert backend == {"name": service["metadata"]["name"], "port": {"name": service["spec"]["ports"][0]["name"]}}


@pytest.mark.parametrize(
    ("file", "variable", "components", "expected"),
    [
        ("ingress", "ALLOWED_TARGETS", ("api", "collector"), "*.flink.svc,10.20.0.0/16"),
        ("receivers", "ALLOWED_RECEIVERS", ("api", "alert"), "hooks.example"),
        ("ingress", "TRUSTED_PROXIES", ("api",), "10.0.0.0/8,fd00::/8"),
    ],
)
def test_every_role_that_connects_to_an_address_has_the_same_list(file, variable, components, expected):
    for component in ("api", "collector", "alert"):
        (container,) = template_of(manifest_of(manifests_of(file), "Deployment", component))["spec"]["containers"]
        environment = environment_of(container)
        found = environment.get(PREFIX + variable, {}).get("value")

        assert found == (expected if component in components else None)
        # Roles that do not listen need the address of the API, because an empty list allows everything on loopback.
        assert environment["BARRIERSCOPE_HOST"]["value"] == "0.0.0.0"


def test_the_runtime_is_a_target_under_the_name_of_its_service():
    manifests = manifests_of("runtime")
    service = manifest_of(manifests, "Service", "runtime")
    pod = template_of(manifest_of(manifests, "Deployment", "runtime"))["spec"]["containers"][0]
    migrate = template_of(manifest_of(manifests, "Deployment", "api"))["spec"]["initContainers"][0]

    name = service["metadata"]["name"]
    assert environment_of(migrate)["BARRIERSCOPE_BUILT_IN_TARGET"]["value"] == f"http://{name}:18050/runtime/v1"
    assert name in environment_of(pod)["BARRIERSCOPE_RUNTIME_ALLOWED_HOSTS"]["value"].split(",")
    assert pod["args"] == ["runtime", "--job=healthy", "--job=backpressured"]


def test_alert_and_api_have_the_credentials_of_receivers_as_files():
    manifests = manifests_of("receivers")
    for component in ("api", "alert", "collector"):
        spec = template_of(manifest_of(manifests, "Deployment", component))["spec"]
        folder = environment_of(spec["containers"][0]).get("BARRIERSCOPE_SECRETS_DIR", {}).get("value")
        mounted = {m["name"]: m["mountPath"] for m in spec["containers"][0]["volumeMounts"]}
        secrets = [v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v]
        assert (secrets, mounted.get("receivers")) == ((["receiver-credentials"], folder) if folder else ([], None))
        assert bool(folder) is (component != "collector")
    environment = environment_of(template_of(manifest_of(manifests, "Deployment", "alert"))["spec"]["containers"][0])
    assert environment["BARRIERSCOPE_ALERTMANAGER_URLS"]["value"].count("http://") == 2


def test_with_an_autoscaler_the_deployment_has_no_replica_count():
    manifests = manifests_of("autoscaling")

    assert "replicas" not in manifest_of(manifests, "Deployment", "api")["spec"]
    assert (
        manifest_of(manifests, "HorizontalPodAutoscaler", "api")["spec"]["scaleTargetRef"]["name"]
        == "rel-barrierscope-api"
    )
    assert [component_of(m) for m in manifests if m["kind"] == "HorizontalPodAutoscaler"] == ["api"]


def test_settings_of_one_component_reach_only_its_pods():
    manifests = manifests_of("scheduling")
    given, other = (template_of(manifest_of(manifests, "Deployment", c)) for c in ("collector", "api"))
    spec, container = given["spec"], given["spec"]["containers"][0]

    assert (spec["nodeSelector"], spec["priorityClassName"]) == ({"disk": "ssd"}, "high")
    assert spec["tolerations"][0]["key"] == "dedicated"
    assert "podAntiAffinity" in spec["affinity"]
    assert given["metadata"]["annotations"] == {"example.com/team": "streaming"}
    assert given["metadata"]["labels"]["team"] == "streaming"
    assert container["envFrom"] == [{"configMapRef": {"name": "collector-extras"}}]
    assert environment_of(container)["TZ"]["value"] == "UTC"
    assert {v["name"] for v in spec["volumes"]} == {v["name"] for v in container["volumeMounts"]} == {"tmp", "ca"}
    assert not {"nodeSelector", "priorityClassName", "tolerations", "affinity"} & set(other["spec"])


def test_network_policies_admit_only_named_peers_to_the_api_and_readers_to_the_runtime():
    manifests = manifests_of("network-policy")
    reaches = {component_of(m): m["spec"]["ingress"] for m in manifests if m["kind"] == "NetworkPolicy"}

    assert set(reaches) == {"api", "runtime", "collector", "alert", "lab", "pipeline"}
    assert [name for name, ingress in reaches.items() if ingress == []] == ["collector", "alert", "lab", "pipeline"]
    peers = [p["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for p in reaches["runtime"][0]["from"]]
    assert peers == ["api", "collector"]


def test_disabled_components_have_no_manifests():
    kinds = {(m["kind"], component_of(m)) for m in manifests_of("minimal")}

    assert {c for _, c in kinds} == {"api", "collector", "test"}
    assert "ServiceAccount" not in {k for k, _ in kinds}


def test_the_notes_name_the_address_and_the_secret_of_the_token():
    (notes,) = [text for name, text in rendered("ingress") if name == "NOTES.txt"]

    assert "Open https://barrierscope.example" in notes
    assert "get secret barrierscope-access" in notes
    assert "helm --namespace checkpoints test rel" in notes


# --- values that the chart rejects --------------------------------------------------------------------------------

_GOOD = yaml.safe_load(values_text("default"))
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
    ("access.allowedTargets", ["http://flink:8081"]),
    ("access.allowedTargets", ["flink:8081"]),
    ("access.allowedReceivers", ["*"]),
    ("access.existingSecret", "Not_A_Name"),
    ("service.type", "ExternalName"),
    ("retention.maxAgeDays", 0),
    ("retention.maxSizeMib", 1),
    ("retention.arraysMaxAgeDays", 0),
    ("retention.rules", ["environment=dev"]),
    ("collector.pollIntervalS", 0.1),
    ("collector.spoolMaxMib", 0),
    ("pipeline.schedule", "hourly"),
    ("pipeline.master", "yarn"),
    ("pipeline.archive", "packages.tar.gz"),
    ("pipeline.executorPython", "python3 -I"),
    ("pipeline.executorUrlFile", "url"),
    ("pipeline.sparkConf", {"executor.memory": "2g"}),
    ("pipeline.sparkConf", {"spark.cores.max": 8}),
    ("migrations.wait", "soon"),
    ("runtime.replicas", 2),
    ("ingress.hosts", ["barrierscope.example"]),
    ("metrics.port", 0),
    ("metrics.serviceMonitor.interval", "often"),
]


@pytest.mark.parametrize(("path", "value"), _BAD, ids=[f"{p}={v}" for p, v in _BAD])
def test_an_invalid_value_is_refused_with_its_name(path, value):
    with pytest.raises(HelmError) as refused:
        render(put(_GOOD, path, value))

    assert path.split(".")[-1] in str(refused.value)


@pytest.mark.parametrize("path", ["database.existingSecret", "access.existingSecret"])
def test_a_missing_name_of_a_secret_is_refused(path):
    with pytest.raises(HelmError, match=path):
        render(put(_GOOD, path, ""))


def test_an_ingress_without_a_host_is_refused():
    with pytest.raises(HelmError, match=r"ingress\.hosts"):
        render(put(_GOOD, "ingress.enabled", True))


# --- schema, README, package and image agree ----------------------------------------------------------------------


def _paths(values: object, path: str = "") -> set[str]:
    """Return the dotted paths of all values. A value with a structure that Kubernetes defines counts as one path."""
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
    # The README describes a value once, as COMPONENT, if every component has it.
    every = {row.removeprefix("COMPONENT.") for row in rows if row.startswith("COMPONENT.")}
    components = ("api", "collector", "alert", "lab", "pipeline", "runtime")
    described = {r for r in rows if not r.startswith("COMPONENT.")} | {f"{c}.{e}" for c in components for e in every}

    assert len(rows) == len(set(rows))
    assert described == _paths(values)


def test_the_chart_of_a_checkout_has_the_version_of_a_build_without_tags():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]

    # `make release` writes the version of the tag into the packed chart.
    assert chart["version"] == chart["appVersion"] == hatch["version"]["fallback-version"].removesuffix(".dev0")


def test_the_image_agrees_with_the_chart():
    instructions = read_dockerfile((ROOT / "Dockerfile").read_text())
    last = {i.name: i.text for i in instructions}
    context = yaml.safe_load((CHART / "values.yaml").read_text())["podSecurityContext"]

    assert last["USER"] == f"{context['runAsUser']}:{context['runAsGroup']}"
    assert last["ENTRYPOINT"] == '["barrierscope"]'
    assert last["EXPOSE"].split() == ["8050", "18050"]
