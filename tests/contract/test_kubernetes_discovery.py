"""Flink clusters in Kubernetes are found by the official client, at a small API server of these tests.

No real cluster was at hand. ``tests/support/kubernetes_server.py`` does what Kubernetes documents.
"""

from __future__ import annotations

import asyncio
import shutil
from contextlib import asynccontextmanager

import pytest

from backend.domain.address_rules import AddressRules
from backend.domain.connection import ANYWHERE, ConnectionOptions, Reach, parse_reference
from backend.domain.discovery import KubernetesSd, TargetTemplate
from backend.domain.pod_ends import PodEnd
from collectors.discovery.watch import finder_of
from tests.support.kubernetes_server import (
    blue_green,
    flink_deployment,
    killed,
    kubeconfig,
    reconciled,
    serving_kubernetes,
    session_job,
    snapshot,
    spark_application,
    task_manager_pod,
)

pytestmark = pytest.mark.anyio


class Notes:
    """Keeps the newest note of a finder, and lets a test wait for one."""

    def __init__(self):
        self.newest = None
        self.problem = None
        self.problems = []
        self.lacking = None
        self.least_count = None
        self.news = []
        self._noted = asyncio.Event()

    def found(self, found):
        self.newest, self.problem = found, None
        self.least_count = min(len(found.targets), self.least_count or len(found.targets))
        self._noted.set()

    def happened(self, news):
        self.news += news
        self._noted.set()

    def lacks(self, problem):
        self.lacking = problem
        self._noted.set()

    def failed(self, problem):
        self.problem = problem
        self.problems.append(problem)
        self._noted.set()

    @property
    def names(self):
        return None if self.newest is None else {t.name for t in self.newest.targets}

    async def until(self, is_so):
        async with asyncio.timeout(30):
            while not is_so():
                self._noted.clear()
                await self._noted.wait()


async def no_pause(seconds, stop):
    # The pauses of the product are seconds. One round of the loop lets the server work.
    await asyncio.sleep(0.01)


@pytest.fixture
async def server():
    async with serving_kubernetes() as running:
        yield running


@pytest.fixture
def section(server, tmp_path):
    def of(**changes):
        options = {"namespaces": ("flink",), "kubeconfig": kubeconfig(server, tmp_path)} | changes
        return KubernetesSd("cluster", "eu-1", **options)

    return of


@asynccontextmanager
async def finding(section, limits=ANYWHERE):
    notes = Notes()
    finder = finder_of(section, limits, no_pause)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(finder.run(notes, asyncio.Event()))
        try:
            yield notes
        finally:
            task.cancel()


async def test_a_deployment_is_found_with_the_identity_of_its_jobs(server, section):
    await server.put(flink_deployment("payments", spec={"ingress": {"template": "{{name}}.flink.example"}}))
    await server.put(flink_deployment("early", status={"jobManagerDeploymentStatus": "DEPLOYING"}))
    await server.put(flink_deployment("elsewhere", "other"))
    async with finding(section()) as notes:
        await notes.until(lambda: notes.names)

    (target,) = notes.newest.targets
    assert (target.url, target.ui_url) == ("http://payments-rest.flink.svc:8081", "http://payments.flink.example")
    assert target.labels == {"deployment": "eu-1/flink/payments", "cluster": "eu-1", "namespace": "flink"}
    assert not target.is_paused
    assert notes.problem is None


async def test_changes_are_seen_while_they_happen(server, section):
    async with finding(section()) as notes:
        await notes.until(lambda: notes.newest is not None)
        await server.put(flink_deployment("a", status={"jobManagerDeploymentStatus": "DEPLOYING"}))
        await server.put(flink_deployment("a"))
        await notes.until(lambda: notes.names == {"flink/a"})
        await server.put(flink_deployment("a", status={"lifecycleState": "SUSPENDED"}))
        await notes.until(lambda: notes.newest.targets[0].is_paused)
        await server.delete("flinkdeployments", "flink", "a")
        await notes.until(lambda: notes.names == set())


async def test_a_session_cluster_whose_job_manager_fails_stays_a_target(server, section):
    await server.put(flink_deployment("a"))
    async with finding(section()) as notes:
        await notes.until(lambda: notes.names == {"flink/a"})
        await server.put(flink_deployment("a", status={"jobManagerDeploymentStatus": "ERROR"}))
        # The next object shows that the change before it was seen.
        await server.put(flink_deployment("b"))
        await notes.until(lambda: "flink/b" in notes.names)
        assert notes.names == {"flink/a", "flink/b"}
        await server.delete("flinkdeployments", "flink", "a")
        await notes.until(lambda: notes.names == {"flink/b"})


async def test_blue_and_green_and_session_clusters_are_chosen_by_what_the_selector_matches(server, section):
    for color in ("blue", "green"):
        await server.put(flink_deployment(f"pay-{color}", owner="pay"))
    await server.put(flink_deployment("session"))
    await server.put(flink_deployment("mine", labels={"team": "a"}))
    await server.put(flink_deployment("other", labels={"team": "b"}))
    await server.put(blue_green("pay", team="a"))
    await server.put(session_job("job", "session", team="a"))
    async with finding(section(selector="team=a")) as notes:
        await notes.until(lambda: notes.names and len(notes.names) == 4)

    assert notes.names == {"flink/pay-blue", "flink/pay-green", "flink/session", "flink/mine"}
    of_pay = [t.labels for t in notes.newest.targets if "pay" in t.name]
    assert {(x["deployment"], x["color"]) for x in of_pay} == {("eu-1/flink/pay", c) for c in ("blue", "green")}


async def test_a_long_list_comes_in_pages_and_a_token_that_expires_begins_it_anew(server, section):
    for n in range(7):
        await server.put(flink_deployment(f"a{n}"))
    server.page_max = 3
    async with finding(section()) as notes:
        await notes.until(lambda: notes.names and len(notes.names) == 7)
    assert sum("continue=" in path for path in server.asked) == 2


async def test_an_expired_version_is_listed_anew_and_what_vanished_meanwhile_is_noticed(server, section):
    for name in ("a", "b"):
        await server.put(flink_deployment(name))
    async with finding(section()) as notes:
        await notes.until(lambda: notes.names == {"flink/a", "flink/b"})
        lists = server.list_count
        server.is_down = True
        await server.cut()
        # The cut itself may be the first problem, because it can end an answer in its middle.
        await notes.until(lambda: "503" in (notes.problem or ""))
        await server.delete("flinkdeployments", "flink", "a")
        server.forget()
        assert notes.names == {"flink/a", "flink/b"}
        server.is_down = False
        await notes.until(lambda: notes.names == {"flink/b"} and notes.problem is None)
    assert server.list_count > lists
    # Kubernetes forgets versions as a matter of course, so that is no problem.
    assert not [problem for problem in notes.problems if "410" in problem or "version" in problem]


async def test_a_watch_that_is_cut_goes_on_without_a_new_list(server, section):
    await server.put(flink_deployment("a"))
    async with finding(section()) as notes:
        await notes.until(lambda: notes.names == {"flink/a"})
        # Snapshots and pods are read too, and the targets do not wait for them.
        async with asyncio.timeout(30):
            while server.watch_count < 5:  # noqa: ASYNC110 -- a watch that begins brings no note
                await asyncio.sleep(0.01)
        lists, watches = server.list_count, server.watch_count
        await server.cut()
        await server.put(flink_deployment("b"))
        await notes.until(lambda: notes.names == {"flink/a", "flink/b"})
        assert server.list_count == lists
        assert server.watch_count > watches
        assert notes.least_count == 1


@pytest.mark.parametrize("plural", ["flinkdeployments", "flinksessionjobs", "flinkbluegreendeployments"])
async def test_a_missing_permission_is_told_with_its_cure_and_ends_no_target(server, section, plural):
    await server.put(flink_deployment("a"))
    server.forbidden = {(plural, "flink")}
    async with finding(section()) as notes:
        await notes.until(lambda: notes.problem is not None)
        assert f"{plural} in namespace flink: HTTP 403" in notes.problem
        assert "get, list and watch" in notes.problem
        assert notes.newest is None
        server.forbidden = set()
        await notes.until(lambda: notes.names == {"flink/a"} and notes.problem is None)


_UNREADABLE = (
    "namespace other is not read, and its earlier targets stay as they were last seen: the account may not get, list"
    " and watch {} (HTTP 403); a Role and a RoleBinding in this namespace have to allow it"
)


async def test_a_namespace_that_is_forbidden_is_one_sentence_and_no_problem_of_the_list(server, section):
    await server.put(flink_deployment("a"))
    await server.put(flink_deployment("b", "other"))
    server.forbidden = {("flinksessionjobs", "other"), ("flinkbluegreendeployments", "other")}
    async with finding(section(namespaces=("flink", "other"))) as notes:
        await notes.until(lambda: notes.names is not None)
        assert (notes.names, notes.newest.unread) == ({"flink/a"}, ("other",))
        told = _UNREADABLE.format("flinksessionjobs and flinkbluegreendeployments")
        await notes.until(lambda: notes.newest.left_out == (told,))
        await server.put(flink_deployment("c"))
        await notes.until(lambda: notes.names == {"flink/a", "flink/c"})
        assert notes.newest.left_out == (told,), "it is said as long as it lasts"
        assert (notes.problem, notes.problems) == (None, [])
        server.forbidden = set()
        await notes.until(lambda: notes.names == {"flink/a", "flink/c", "other/b"} and not notes.newest.left_out)
        assert notes.newest.unread == ()
        assert notes.problems == []


async def test_a_right_that_is_taken_away_later_ends_no_target_and_is_said(server, section):
    await server.put(flink_deployment("a"))
    await server.put(flink_deployment("b", "other"))
    async with finding(section(namespaces=("flink", "other"))) as notes:
        await notes.until(lambda: notes.names == {"flink/a", "other/b"})
        server.forbidden = {("flinkdeployments", "other")}
        await server.cut()
        # Other kinds of the namespace are still followed, so the namespace as a whole is not said to be unread.
        said = "flinkdeployments of namespace other are not read any more, and what was seen of them stays: the account"
        # The cut is a problem until the watch goes on.
        await notes.until(lambda: notes.problem is None and "".join(notes.newest.left_out).startswith(said))
        assert (len(notes.newest.left_out), notes.names) == (1, {"flink/a", "other/b"})
        # Without any namespace that it may read, there is no list, and that is a problem.
        server.forbidden |= {("flinkdeployments", "flink")}
        await server.cut()
        await notes.until(lambda: "flinkdeployments in namespace flink: HTTP 403" in (notes.problem or ""))


async def test_an_operator_without_the_newer_kinds_is_enough(server, section):
    await server.put(flink_deployment("a"))
    server.unknown = {"flinkbluegreendeployments", "flinksessionjobs"}
    async with finding(section()) as notes:
        await notes.until(lambda: notes.names == {"flink/a"})
        assert notes.problem is None


async def test_a_cluster_without_the_operator_is_told(server, section):
    server.unknown = {"flinkdeployments"}
    async with finding(section()) as notes:
        await notes.until(lambda: notes.problem is not None and "404" in notes.problem)
        assert "flink-kubernetes-operator" in notes.problem
        assert notes.newest is None


async def test_credentials_that_expired_are_read_again(server, section, tmp_path):
    await server.put(flink_deployment("a"))
    server.token = "another"
    async with finding(section(namespaces=())) as notes:
        server.token = "a third"
        await notes.until(lambda: notes.problem is not None)
        assert "401" in notes.problem
        assert "another" not in notes.problem
        kubeconfig(server, tmp_path)
        await notes.until(lambda: notes.names == {"flink/a"})


@pytest.mark.parametrize("content", [None, "", "{", "kind: Config", "[]", "clusters: [1]"])
async def test_a_wrong_kubeconfig_is_told(server, section, tmp_path, content):
    one = section()
    path = tmp_path / "kubeconfig"
    path.unlink()
    if content is not None:
        path.write_text(content)
    async with finding(one) as notes:
        await notes.until(lambda: notes.problem is not None)
    assert f"{path} cannot be used" in notes.problem
    assert "\n" not in notes.problem


async def test_without_a_pod_and_a_kubeconfig_the_cure_is_told(section, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    async with finding(section(kubeconfig=None)) as notes:
        await notes.until(lambda: notes.problem is not None)
    assert "name a kubeconfig" in notes.problem


async def test_hostile_names_and_addresses_that_are_not_allowed_are_left_out(server, section):
    await server.put(flink_deployment("a"))
    await server.put(flink_deployment("b", spec={"flinkConfiguration": {"rest.port": "80@169.254.169.254"}}))
    async with finding(section()) as notes:
        await notes.until(lambda: notes.newest is not None)
    assert notes.names == {"flink/a"}
    assert notes.newest.left_out == ("FlinkDeployment flink/b has a rest.port that is no port",)

    async with finding(section(), Reach(AddressRules(False, ("*.other.svc",)))) as notes:
        await notes.until(lambda: notes.newest is not None)
    assert notes.names == set()
    assert "BARRIERSCOPE_ALLOWED_TARGETS" in notes.newest.left_out[0]


async def test_credentials_with_tls_go_to_clusters_with_tls_only(server, section):
    await server.put(flink_deployment("a"))
    await server.put(flink_deployment("b", spec={"flinkConfiguration": {"security.ssl.rest.enabled": "true"}}))
    template = TargetTemplate(connection=ConnectionOptions(ca=parse_reference("file:/ca.pem")))
    async with finding(section(template=template)) as notes:
        await notes.until(lambda: notes.newest is not None)
    assert [t.url for t in notes.newest.targets] == ["https://b-rest.flink.svc:8081"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
async def test_kubectl_reads_the_same_server(server, tmp_path):
    await server.put(flink_deployment("a"))
    # kubectl sends no token without TLS.
    server.token = ""
    path = "/apis/flink.apache.org/v1beta1/namespaces/flink/flinkdeployments?limit=1"
    cache = ("--cache-dir", str(tmp_path / "cache"))
    command = ("kubectl", "--kubeconfig", kubeconfig(server, tmp_path), *cache, "get", "--raw", path)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()

    assert process.returncode == 0
    assert b'"name": "a"' in output


# --- the history of the jobs --------------------------------------------------------------------------------------


def happenings(notes):
    return [n.what.text for n in notes.news if hasattr(n.what, "text")]


async def test_snapshots_and_ends_of_pods_are_noted_for_the_deployment_they_belong_to(server, section):
    await server.put(flink_deployment("payments", spec={"job": {"jarURI": "local:///x.jar"}}))
    await server.put(flink_deployment("session"))
    await server.put(flink_deployment("hidden", "other"))
    async with finding(section()) as notes:
        await notes.until(lambda: notes.names == {"flink/payments", "flink/session"})
        await server.put(snapshot("s1", "payments"))
        await server.put(snapshot("s2", "nobody"))
        await server.put(task_manager_pod("session-taskmanager-1-1", "session", **killed()))
        # From here on the pods are followed: a pod that was deleted before its first list is not seen.
        await notes.until(lambda: any(isinstance(n.what, PodEnd) for n in notes.news))
        await server.put(task_manager_pod("payments-taskmanager-1-1", "payments", **killed()))
        await server.put(task_manager_pod("hidden-taskmanager-1-1", "hidden", **killed()))
        # Flink deletes the pod. What its last state says counts.
        await server.delete("pods", "flink", "payments-taskmanager-1-1")
        await notes.until(lambda: len(happenings(notes)) == 3)
        # The pod is seen again with every change of its status.
        await server.put(task_manager_pod("session-taskmanager-1-1", "session", phase="Failed", **killed()))
        await server.put(flink_deployment("next"))
        await notes.until(lambda: "flink/next" in notes.names)
        await server.cut()
        server.forget()
        await server.put(flink_deployment("last"))
        await notes.until(lambda: "flink/last" in notes.names)

    # An end names its cluster, because blue and green have one deployment.
    assert {n.target_url for n in notes.news if isinstance(n.what, PodEnd)} == {
        "http://payments-rest.flink.svc:8081",
        "http://session-rest.flink.svc:8081",
    }
    found = {(n.deployment, n.what.text) for n in notes.news if hasattr(n.what, "text")}
    killed_for_memory = "OOMKilled, it used more memory than its limit"
    assert found == {
        ("eu-1/flink/payments", "Savepoint s1 completed: s3://bucket/savepoint-1"),
        (
            "eu-1/flink/payments",
            f"pod payments-taskmanager-1-1 of a TaskManager (address 10.1.2.3) ended: {killed_for_memory}",
        ),
        (
            "eu-1/flink/session",
            "pod session-taskmanager-1-1 of a TaskManager of a session cluster (address 10.1.2.3) "
            f"ended: {killed_for_memory}",
        ),
    }
    assert len(happenings(notes)) == 3


async def test_each_settled_state_is_noted_once(server, section):
    first, second = ({"image": f"job:{n}", "job": {"parallelism": 2}} for n in (1, 2))
    await server.put(flink_deployment("a", status=reconciled(1_796_047_200_000, first)))
    async with finding(section()) as notes:
        await notes.until(lambda: len(notes.news) == 1)
        await server.put(flink_deployment("a", status=reconciled(1_796_047_200_000, second, "UPGRADING")))
        await server.put(flink_deployment("a", status=reconciled(1_796_047_260_000, second)))
        await notes.until(lambda: len(notes.news) == 2)
        await server.put(flink_deployment("b"))
        await notes.until(lambda: "flink/b" in notes.names)

    assert [n.what.shown["image"] for n in notes.news] == ["job:1", "job:2"]
    assert {n.deployment for n in notes.news} == {"eu-1/flink/a"}


async def test_the_snapshot_of_a_session_job_is_only_of_its_own_run(server, section):
    await server.put(flink_deployment("session"))
    await server.put(session_job("job", "session") | {"status": {"jobStatus": {"jobId": "b" * 32}}})
    await server.put(snapshot("s", "x", spec={"jobReference": {"kind": "FlinkSessionJob", "name": "job"}}))
    async with finding(section()) as notes:
        await notes.until(lambda: notes.news)

    assert [(n.deployment, n.what.engine_run_ids) for n in notes.news] == [("eu-1/flink/session", ("b" * 32,))]


@pytest.mark.parametrize("plural", ["pods", "flinkstatesnapshots"])
async def test_a_missing_permission_on_the_history_is_told_and_hides_no_target(server, section, plural):
    await server.put(flink_deployment("a"))
    server.forbidden = {(plural, "flink")}
    async with finding(section()) as notes:
        await notes.until(lambda: notes.names and notes.lacking is not None)
        assert notes.names == {"flink/a"}
        assert f"{plural} in namespace flink: HTTP 403" in notes.lacking
        assert "history: false" in notes.lacking
        assert notes.problems == []
        server.forbidden = set()
        await notes.until(lambda: notes.lacking is None)
    asked = len(server.asked)
    async with finding(section(has_history=False)) as notes:
        await notes.until(lambda: notes.names == {"flink/a"})
    assert not [path for path in server.asked[asked:] if "/pods" in path or "snapshots" in path]
    assert notes.problems == []


async def test_an_operator_without_snapshots_has_no_problem(server, section):
    await server.put(flink_deployment("a"))
    server.unknown = {"flinkstatesnapshots"}
    async with finding(section()) as notes:
        await notes.until(lambda: notes.names == {"flink/a"})
        await server.put(flink_deployment("b"))
        await notes.until(lambda: "flink/b" in notes.names)
        assert notes.problem is None


# --- SparkApplications --------------------------------------------------------------------------------------------


@pytest.fixture
def drivers(section):
    def of(**changes):
        template = TargetTemplate(kind="spark", **changes.pop("template", {}))
        return section(**{"namespaces": ("spark",), "template": template} | changes)

    return of


async def test_a_running_driver_is_found_by_the_service_in_its_status(server, drivers):
    await server.put(
        spark_application("orders", labels={"team": "a"}, info={"webUIIngressAddress": "ui.example/orders"})
    )
    await server.put(spark_application("nightly-17", schedule="nightly", labels={"team": "a"}))
    await server.put(spark_application("other", labels={"team": "b"}))
    await server.put(spark_application("done", labels={"team": "a"}, state="COMPLETED"))
    await server.put(spark_application("hidden", labels={"team": "a"}, info={"webUIServiceName": ""}))
    async with finding(drivers(selector="team=a")) as notes:
        await notes.until(lambda: notes.names)

    nightly, orders = notes.newest.targets
    assert (orders.kind, orders.url, orders.ui_url) == (
        "spark",
        "http://orders-ui-svc.spark.svc:4040",
        "http://ui.example/orders",
    )
    assert orders.labels == {
        "deployment": "eu-1/spark/orders",
        "cluster": "eu-1",
        "namespace": "spark",
        "application": "orders",
        "attempt": "1",
        "submission": "8f2b",
    }
    assert (nightly.labels["deployment"], nightly.labels["application"]) == ("eu-1/spark/nightly", "nightly-17")
    assert "SparkApplication spark/hidden has no status.driverInfo.webUIServiceName" in notes.newest.left_out[0]
    assert notes.problem is None
    # Neither pods nor Flink's resources are asked for.
    assert {path.split("?")[0].rpartition("/")[2] for path in server.asked} == {"sparkapplications"}


async def test_a_driver_that_ends_is_no_target_and_one_that_comes_again_is_the_same(server, drivers):
    async with finding(drivers()) as notes:
        await server.put(spark_application("orders"))
        await notes.until(lambda: notes.names == {"spark/orders"})
        (first,) = notes.newest.targets
        await server.put(spark_application("orders", state="FAILING"))
        await notes.until(lambda: notes.newest.targets[0].is_paused)
        await server.put(spark_application("orders"))
        await notes.until(lambda: not notes.newest.targets[0].is_paused)
        assert notes.newest.targets[0].id == first.id
        await server.put(spark_application("orders", state="COMPLETED"))
        await notes.until(lambda: notes.names == set())


async def test_a_missing_permission_or_operator_of_spark_is_told(server, drivers):
    server.forbidden = {("sparkapplications", "spark")}
    async with finding(drivers()) as notes:
        await notes.until(lambda: notes.problem is not None)
        assert "sparkapplications in namespace spark: HTTP 403" in notes.problem
        assert "history" not in notes.problem
        server.forbidden, server.unknown = set(), {"sparkapplications"}
        await notes.until(lambda: "404" in notes.problem)
        assert "spark-operator installed" in notes.problem


async def test_credentials_with_tls_go_to_no_driver(server, drivers):
    await server.put(spark_application("orders"))
    connection = ConnectionOptions(ca=parse_reference("file:/ca.pem"))
    async with finding(drivers(template={"connection": connection})) as notes:
        await notes.until(lambda: notes.newest is not None)
    assert notes.names == set()
    assert "without TLS" in notes.newest.left_out[0]
