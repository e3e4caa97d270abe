"""Call a single callback of a Dash application over HTTP, as a browser does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from types import TracebackType
from typing import Any

import httpx
from dash.development.base_component import Component

from dashboard.app import content_security_policy, create_dash
from dashboard.asgi import DashboardApp
from dashboard.client import ApiClient
from tests.support.fake_api import FakeApi

_CALLBACKS = "/ui/_dash-dependencies"
_UPDATE = "/ui/_dash-update-component"
LOOK = {"look.data": {"theme": "light", "zone": "UTC"}}
"""The inputs of all pages for a viewer who chose the light theme and UTC."""


class _Application:
    """The application of all tests of a process. Creating one takes longer than most tests.

    It keeps nothing between requests but what its client keeps of answers, and that is dropped for each test.
    """

    def __init__(self) -> None:
        self._fake: FakeApi | None = None
        self.dependencies: list[dict[str, Any]] = []
        """All callbacks. They are the same for each test."""
        self._client = ApiClient(transport=httpx.MockTransport(self._handle), base_url="http://api.test")
        dash = create_dash(self._client, has_login=False)
        policy = content_security_policy(dash)
        self._served = DashboardApp(dash.server, content_security_policy=policy, close=self._client.close)

    def over(self, fake: FakeApi) -> DashboardApp:
        """Return the application over a fake API."""
        self._fake = fake
        self._client._kept.clear()
        return self._served

    def is_over(self, fake: FakeApi) -> bool:
        """Return whether the application is over this fake API."""
        return self._fake is fake

    def _handle(self, request: httpx.Request) -> httpx.Response:
        assert self._fake is not None
        return self._fake.handle(request)


_application = cache(_Application)


class DashCalls:
    """The dashboard over a fake API. A test calls its callbacks through its ASGI application.

    One fake API is served at a time: that of the newest instance.
    """

    def __init__(self, fake: FakeApi) -> None:
        self.fake = fake
        self.app = _application().over(fake)
        transport = httpx.ASGITransport(app=self.app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://ui.test")
        self._dependencies: list[dict[str, Any]] = []

    async def __aenter__(self) -> DashCalls:
        application = _application()
        application.dependencies = application.dependencies or (await self.http.get(_CALLBACKS)).json()
        self._dependencies = application.dependencies
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.aclose()

    async def call(self, output: str, values: Mapping[str, object], *, by: str) -> dict[str, dict[str, Any]] | None:
        """Call one callback, and return its response, or None if the callback changes nothing.

        The callback has the output ``output`` and the input ``by``, both written as ``id.property``. ``values`` are
        the values of its inputs and states. Inputs and states without a value are null.
        """
        assert _application().is_over(self.fake), "a newer instance serves its fake API now"
        body = request_of(self._dependencies, output, values, by=by)
        answer = await self.http.post(_UPDATE, content=json.dumps(body), headers={"Content-Type": "application/json"})
        if answer.status_code == 204:
            return None
        assert answer.status_code == 200, answer.text[:2000]
        response: dict[str, dict[str, Any]] = expanded(answer.json()["response"])
        return response


def request_of(
    dependencies: Sequence[dict[str, Any]], output: str, values: Mapping[str, object], *, by: str
) -> dict[str, Any]:
    """Return the request by which a browser calls one callback. ``dependencies`` are all callbacks of the application.

    The other arguments are those of ``DashCalls.call``.
    """
    found = next(d for d in dependencies if _is_it(d, output, by))
    is_many = found["output"].startswith("..")
    names = found["output"].strip(".").split("...") if is_many else [found["output"]]
    outputs = [_output(name, values) for name in names]
    return {
        "output": found["output"],
        "outputs": outputs if is_many else outputs[0],
        "inputs": [_value(i, values) for i in found["inputs"]],
        "state": [_value(s, values) for s in found["state"]],
        "changedPropIds": [by],
    }


def _is_it(dependency: dict[str, Any], output: str, by: str) -> bool:
    is_server = dependency.get("clientside_function") is None
    listens = any(_name(i) == by or _pattern(i, by) for i in dependency["inputs"])
    return is_server and listens and output in dependency["output"]


def _output(name: str, values: Mapping[str, object]) -> object:
    """Return an output. An output whose id is a pattern stands for the ids of its type among ``values``."""
    id_, _, prop = name.rpartition(".")
    if not id_.startswith("{"):
        return {"id": id_, "property": prop}
    own = [json.loads(k.rpartition(".")[0]) for k in values if k.startswith("{") and k.endswith(f".{prop}")]
    return [{"id": i, "property": prop} for i in own if i["type"] == json.loads(id_)["type"]]


def _value(one: dict[str, Any], values: Mapping[str, object]) -> object:
    if one["id"].startswith("{"):
        pattern = json.loads(one["id"])
        if not any(isinstance(part, list) for part in pattern.values()):
            return {"id": pattern, "property": one["property"], "value": values.get(_name(one))}
        given = [(k, v) for k, v in values.items() if k.startswith("{")]
        listed = []
        for key, value in given:
            own = json.loads(key.rpartition(".")[0])
            if own["type"] == pattern["type"]:
                listed.append({"id": own, "property": one["property"], "value": value})
        return listed
    return {"id": one["id"], "property": one["property"], "value": values.get(_name(one))}


def expanded(value: Any) -> Any:
    """Return the JSON of components with the elements of every ``Markup`` as components of Dash."""
    if isinstance(value, list):
        parts = [(v, expanded(v)) for v in value]
        return [p for v, part in parts for p in (part if _is_markup(v) and isinstance(part, list) else [part])]
    if not isinstance(value, dict):
        return value
    if _is_markup(value):
        found = [_component(node) for node in value["props"]["nodes"]]
        return found[0] if len(found) == 1 else found
    return {key: expanded(inner) for key, inner in value.items()}


def _is_markup(value: object) -> bool:
    return isinstance(value, dict) and value.get("type") == "Markup"


def _component(node: Any) -> Any:
    if not isinstance(node, list):
        return node
    tag, attributes, *children = node
    inner = [_component(c) for c in children]
    props = attributes | ({"children": inner[0] if len(inner) == 1 else inner} if inner else {})
    if tag == "link":
        return {"type": "Link", "namespace": "dash_core_components", "props": props}
    return {"type": tag.capitalize(), "namespace": "dash_html_components", "props": props}


def _name(one: dict[str, Any]) -> str:
    return f"{one['id']}.{one['property']}"


def _pattern(one: dict[str, Any], by: str) -> bool:
    if not by.startswith("{") or not one["id"].startswith("{"):
        return False
    own, pattern = json.loads(by.rpartition(".")[0]), json.loads(one["id"])
    return bool(own["type"] == pattern["type"])


def job_values(job: str) -> dict[str, object]:
    """Return the inputs of a job's page."""
    return LOOK | {"job-route.data": {"job": job}, "job-log.aria-pressed": "false"}


def checkpoint_values(job: str, number: int, **more: object) -> dict[str, object]:
    """Return the inputs of a checkpoint's page, with ``more`` added."""
    route = {"job": job, "run": f"r{job[1:]}", "checkpoint": number}
    return LOOK | {"cp-route.data": route, "gantt-sort.value": "topology", "gantt-path.aria-pressed": "true"} | more


def elements(answer: Mapping[str, Mapping[str, Any]], id_: str) -> Any:
    """Return what an answer shows in the ``Markup`` with this id, as components of Dash."""
    return expanded({"type": "Markup", "props": {"nodes": answer[id_]["nodes"]}})


def pressed(kind: str, of: str, **words: str) -> dict[str, object]:
    """Return what a callback gets when a button of ``dashboard.components.presses`` is pressed."""
    return {f"{kind}.n_clicks": 1, f"{kind}-pressed.data": {"of": of, **words}}


def texts(component: object) -> str:
    """Return the text of a component, or of its JSON form, in reading order."""
    if isinstance(component, Component):
        return texts(component.to_plotly_json())  # type: ignore[no-untyped-call]
    if isinstance(component, list):
        return " ".join(" ".join(texts(c) for c in component).split())
    if isinstance(component, dict):
        return texts(component.get("props", {}).get("children"))
    return "" if component is None else str(component)
