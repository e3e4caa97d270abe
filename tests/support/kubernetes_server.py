"""A small Kubernetes API server for tests: lists in pages, watches, 410 Gone, 403 and 401, as the documentation says.

It serves the custom resources in ``flink_crds`` and checks each object against their schemas, as a real one does. It
does what https://kubernetes.io/docs/reference/using-api/api-concepts/ promises, and was not compared with a real one.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml
from aiohttp import web

from tests.support.recorded_flink import serve_app

GROUP = "flink.apache.org"
SPARK_GROUP = "sparkoperator.k8s.io"
TOKEN = "token-of-the-tests"
_CRDS = Path(__file__).parent / "flink_crds"
_LOADER = yaml.CSafeLoader


@cache
def _validators() -> dict[str, tuple[str, Any]]:
    """Return the kind and the validator of each resource, by its plural."""
    found = {}
    for path in sorted(_CRDS.glob("*.yaml")):
        crd = yaml.load(path.read_text(), Loader=_LOADER)
        (version,) = crd["spec"]["versions"]
        assert version["name"] in ("v1beta1", "v1beta2")
        schema = version["schema"]["openAPIV3Schema"]
        found[crd["spec"]["names"]["plural"]] = (crd["spec"]["names"]["kind"], jsonschema_rs.validator_for(schema))
    return found


class KubernetesServer:
    """The state of the server. A test puts and deletes objects, and breaks things."""

    def __init__(self) -> None:
        self.url = ""
        self.token = TOKEN
        """The token of every request; "" accepts requests without one."""
        self.forbidden: set[tuple[str, str | None]] = set()
        """Plurals and namespaces whose list and watch are answered by 403."""
        self.unknown: set[str] = set()
        """Plurals that no CRD defines here."""
        self.page_max = 500
        self.asked: list[str] = []
        self.list_count = 0
        self.watch_count = 0
        self.is_down = False
        self._version = 100
        self._forgotten = 0
        self._objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._events: list[tuple[int, str, str, dict[str, Any]]] = []
        self._happened = asyncio.Condition()
        self._cut = 0
        self._ending = False

    async def put(self, document: dict[str, Any]) -> None:
        """Create or change an object, after a check against its schema."""
        plural = f"{document['kind'].lower()}s"
        if plural != "pods":
            kind, validator = _validators()[plural]
            assert kind == document["kind"]
            validator.validate(document)
        key = (plural, document["metadata"]["namespace"], document["metadata"]["name"])
        await self._note("MODIFIED" if key in self._objects else "ADDED", key, document)

    async def delete(self, plural: str, namespace: str, name: str) -> None:
        """Delete an object."""
        await self._note("DELETED", (plural, namespace, name), self._objects[plural, namespace, name])

    async def _note(self, event: str, key: tuple[str, str, str], document: dict[str, Any]) -> None:
        self._version += 1
        stored = copy.deepcopy(document)
        stored["metadata"]["resourceVersion"] = str(self._version)
        if event == "DELETED":
            del self._objects[key]
        else:
            self._objects[key] = stored
        self._events.append((self._version, key[0], event, stored))
        async with self._happened:
            self._happened.notify_all()

    def forget(self) -> None:
        """Compact: no watch can go on from an earlier version than the present one."""
        self._forgotten = self._version
        self._events.clear()

    async def cut(self) -> None:
        """Cut every watch in the middle."""
        self._cut += 1
        async with self._happened:
            self._happened.notify_all()

    async def end(self) -> None:
        """End every watch, so that the server can stop."""
        self._ending = True
        await self.cut()

    # --- HTTP -----------------------------------------------------------------------------------------------------

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a list or a watch."""
        plural, namespace = request.match_info["plural"], request.match_info.get("namespace")
        self.asked.append(request.path_qs)
        if self.is_down:
            return web.Response(status=503, text="the server is starting")
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized")
        if plural in self.unknown or plural not in ("pods", *_validators()):
            return web.Response(status=404, text="404 page not found\n")
        if (plural, namespace) in self.forbidden:
            return _status(403, "Forbidden")
        selector = request.query.get("labelSelector", "")
        if "watch" in request.query and request.query["watch"].lower() == "true":
            return await self._watch(request, plural, namespace, selector)
        return self._list(request, plural, namespace, selector)

    def _list(self, request: web.Request, plural: str, namespace: str | None, selector: str) -> web.Response:
        self.list_count += 1
        begin, version = 0, self._version
        if token := request.query.get("continue"):
            begin, version = json.loads(token)
            if version < self._forgotten:
                return _status(410, "Expired")
        limit = min(int(request.query.get("limit", "500")), self.page_max)
        items = [o for k, o in sorted(self._objects.items()) if k[0] == plural and _matches(o, namespace, selector)]
        rest = len(items) - begin - limit
        meta = {"resourceVersion": str(version)}
        if rest > 0:
            meta |= {"continue": json.dumps([begin + limit, version]), "remainingItemCount": rest}
        page = {"kind": f"{_kind_of(plural)}List", "metadata": meta, "items": items[begin:][:limit]}
        return web.json_response(page)

    async def _watch(
        self, request: web.Request, plural: str, namespace: str | None, selector: str
    ) -> web.StreamResponse:
        self.watch_count += 1
        version, cut = int(request.query["resourceVersion"]), self._cut
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if version < self._forgotten:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
            await _send(response, "ERROR", status)
            return response
        while not self._ending:
            if cut != self._cut:
                assert request.transport is not None
                request.transport.abort()
                return response
            for number, of, event, document in [*self._events]:
                if number > version and of == plural and _matches(document, namespace, selector):
                    await _send(response, event, document)
            if self._version > version:
                version = self._version
                bookmark = {"kind": _kind_of(plural), "metadata": {"resourceVersion": str(version)}}
                await _send(response, "BOOKMARK", bookmark)
            async with self._happened:
                if self._version == version and cut == self._cut and not self._ending:
                    await self._happened.wait()
        return response


@asynccontextmanager
async def serving_kubernetes() -> AsyncIterator[KubernetesServer]:
    """Serve an empty API server on a free port."""
    server = KubernetesServer()
    app = web.Application()
    for base in (f"/apis/{GROUP}/v1beta1", f"/apis/{SPARK_GROUP}/v1beta2", "/api/v1"):
        app.router.add_get(base + "/{plural}", server.handle)
        app.router.add_get(base + "/namespaces/{namespace}/{plural}", server.handle)
    async with serve_app(app) as server.url:
        try:
            yield server
        finally:
            await server.end()


def kubeconfig(server: KubernetesServer, folder: Path) -> str:
    """Write a kubeconfig for the server, and return its path."""
    path = folder / "kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        "clusters": [{"name": "tests", "cluster": {"server": server.url}}],
        "users": [{"name": "tests", "user": {"token": server.token}}],
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def flink_deployment(name: str, namespace: str = "flink", **changes: Any) -> dict[str, Any]:
    """Return a FlinkDeployment that is ready. ``changes`` are ``labels``, ``owner``, ``spec`` and ``status``."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": changes.get("labels", {})}
    if "owner" in changes:
        owner = {"apiVersion": f"{GROUP}/v1beta1", "kind": "FlinkBlueGreenDeployment", "name": changes["owner"]}
        metadata["ownerReferences"] = [owner | {"uid": "1"}]
    status = {"jobManagerDeploymentStatus": "READY", "lifecycleState": "STABLE", "jobStatus": {"jobId": "a" * 32}}
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "FlinkDeployment",
        "metadata": metadata,
        "spec": {"flinkVersion": "v2_0", "flinkConfiguration": {}} | changes.get("spec", {}),
        "status": status | changes.get("status", {}),
    }


def session_job(name: str, deployment: str, namespace: str = "flink", **labels: str) -> dict[str, Any]:
    """Return a FlinkSessionJob that runs in a deployment."""
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "FlinkSessionJob",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"deploymentName": deployment, "job": {"jarURI": "https://x/y.jar"}},
    }


def blue_green(name: str, namespace: str = "flink", **labels: str) -> dict[str, Any]:
    """Return a FlinkBlueGreenDeployment. Its children are deployments with the ``owner`` of its name."""
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "FlinkBlueGreenDeployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"template": {"spec": {"flinkVersion": "v2_0"}}},
    }


def snapshot(name: str, of: str, namespace: str = "flink", **changes: Any) -> dict[str, Any]:
    """Return a FlinkStateSnapshot of a deployment, a completed savepoint, with ``changes``."""
    status = {"state": "COMPLETED", "path": "s3://bucket/savepoint-1", "resultTimestamp": "2026-11-30T14:00:00Z"}
    spec = {"jobReference": {"kind": "FlinkDeployment", "name": of}, "savepoint": {}}
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "FlinkStateSnapshot",
        "metadata": {"name": name, "namespace": namespace, "labels": changes.get("labels", {}), "uid": f"uid-{name}"},
        "spec": spec | changes.get("spec", {}),
        "status": status | changes.get("status", {}),
    }


def task_manager_pod(name: str, cluster: str, namespace: str = "flink", **status: Any) -> dict[str, Any]:
    """Return the pod of a TaskManager with this status."""
    labels = {"app": cluster, "component": "taskmanager", "type": "flink-native-kubernetes"}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"kind": "Pod", "metadata": metadata, "status": {"phase": "Running", "podIP": "10.1.2.3"} | status}


def killed(reason: str = "OOMKilled", at: str = "2026-11-30T14:00:00Z", code: int = 137) -> dict[str, Any]:
    """Return the part of a pod's status that says that its container ended."""
    ended = {"terminated": {"reason": reason, "exitCode": code, "finishedAt": at}}
    return {"containerStatuses": [{"name": "flink-main-container", "restartCount": 1, "lastState": ended}]}


def reconciled(at_ms: int, spec: dict[str, Any], state: str = "DEPLOYED", stable: dict[str, Any] | None = None) -> Any:
    """Return the status of a deployment whose specification the operator has deployed, in the operator's own form."""
    wrapped = {
        name: json.dumps({"spec": s, "resource_metadata": {"apiVersion": f"{GROUP}/v1beta1", "firstDeployment": False}})
        for name, s in (("lastReconciledSpec", spec), ("lastStableSpec", stable or spec))
    }
    return {"reconciliationStatus": {"reconciliationTimestamp": at_ms, "state": state, **wrapped}}


def spark_application(name: str, namespace: str = "spark", **changes: Any) -> dict[str, Any]:
    """Return a SparkApplication whose driver runs. ``changes`` are ``labels``, ``schedule``, ``state`` and ``info``."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": changes.get("labels", {})}
    if "schedule" in changes:
        metadata["ownerReferences"] = [{"kind": "ScheduledSparkApplication", "name": changes["schedule"], "uid": "1"}]
    info = {"webUIServiceName": f"{name}-ui-svc", "webUIPort": 4040, "podName": f"{name}-driver"}
    return {
        "apiVersion": f"{SPARK_GROUP}/v1beta2",
        "kind": "SparkApplication",
        "metadata": metadata,
        "spec": {"type": "Python", "mode": "cluster"},
        "status": {
            "applicationState": {"state": changes.get("state", "RUNNING")},
            "driverInfo": info | changes.get("info", {}),
            "executionAttempts": 1,
            "submissionID": "8f2b",
            "sparkApplicationId": "spark-1",
        },
    }


def _matches(document: dict[str, Any], namespace: str | None, selector: str) -> bool:
    metadata = document["metadata"]
    labels, wanted = metadata.get("labels", {}), [part.partition("=") for part in selector.split(",") if part]
    return namespace in (None, metadata["namespace"]) and all(
        labels.get(name) == value if equals else name in labels for name, equals, value in wanted
    )


def _kind_of(plural: str) -> str:
    return "Pod" if plural == "pods" else _validators()[plural][0]


def _status(code: int, reason: str) -> web.Response:
    return web.json_response(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}, status=code
    )


async def _send(response: web.StreamResponse, event: str, document: dict[str, Any]) -> None:
    await response.write(json.dumps({"type": event, "object": document}).encode() + b"\n")
