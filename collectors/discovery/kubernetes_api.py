"""Follows one kind of object in Kubernetes by the official client: a list, and then a watch from its version on.

A watch that ends or is cut goes on from its last version. If the API server has forgotten that version (410 Gone), the
objects are listed anew. So an object that vanished meanwhile is noticed. Source:
https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson
import yaml
from kubernetes_asyncio import client, config
from kubernetes_asyncio.client.exceptions import ApiException
from kubernetes_asyncio.config import ConfigException

from backend.domain.discovery import KubernetesSd
from backend.domain.kubernetes_cluster import Key, key_of
from collectors.base import Pause

PAGE_MAX: Final = 500
_OBJECTS_MAX: Final = 20_000
_WATCH_S: Final = 300
_BACKOFF_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
_OK, _GONE, _UNAUTHORISED, _FORBIDDEN, _NOT_FOUND = 200, 410, 401, 403, 404
_LIST_S: Final = aiohttp.ClientTimeout(total=30)

Document = Mapping[str, Any]


class UnauthorisedError(Exception):
    """The credentials are no longer valid, so the client has to be opened again."""


class ClientError(Exception):
    """There is no client. ``reason`` is a sentence."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object. ``group`` is "" for the objects of Kubernetes itself.

    ``operator`` is what defines the kind, for messages. A section may leave out what ``is_history``. A kind that
    ``may_be_unknown`` is empty if nothing defines it, because older operators have no such kind.
    """

    group: str
    version: str
    plural: str
    operator: str
    may_be_unknown: bool = False
    is_history: bool = False

    def path(self, namespace: str | None) -> str:
        """Return the path of the list, in one namespace or in all."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}/{self.plural}" if namespace is None else f"{root}/namespaces/{namespace}/{self.plural}"


@dataclass(frozen=True, slots=True)
class Scope:
    """What one list and its watch contain. ``namespace`` is None for all; ``selector`` is "" for none."""

    resource: Resource
    namespace: str | None
    selector: str

    def __str__(self) -> str:
        where = "all namespaces" if self.namespace is None else f"namespace {self.namespace}"
        return f"{self.resource.plural} in {where}"


@asynccontextmanager
async def open_api(section: KubernetesSd) -> AsyncIterator[client.ApiClient]:
    """Open the client of a section: with its kubeconfig, or with the service account of this pod.

    Raises:
        ClientError: the configuration cannot be used.
    """
    configuration = client.Configuration()
    try:
        if section.kubeconfig is None:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await config.load_kube_config(
                config_file=section.kubeconfig,
                context=section.context,
                client_configuration=configuration,
                persist_config=False,
            )
        api = client.ApiClient(configuration)
    except ConfigException as error:
        if section.kubeconfig is None:
            reason = "this process is no pod with a service account; name a kubeconfig in the section"
        else:
            reason = f"{section.kubeconfig} cannot be used: {str(error).splitlines()[0][:200]}"
        raise ClientError(reason) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError, yaml.YAMLError) as error:
        # The client does not check the form of a kubeconfig.
        raise ClientError(f"{section.kubeconfig} cannot be used ({type(error).__name__})") from None
    async with api:
        yield api


class ScopeFollower:
    """Keeps the objects of one scope. ``objects`` is None until the first list was read wholly.

    ``reduced`` returns the parts of an object that are kept. ``seen`` gets these parts of each object that a list or an
    event has, also of one that is deleted.
    """

    def __init__(
        self,
        api: client.ApiClient,
        scope: Scope,
        changed: Callable[[], None],
        *,
        pause: Pause,
        reduced: Callable[[Document], Document] = lambda document: document,
        seen: Callable[[Document], None] = lambda document: None,
    ) -> None:
        self._api = api
        self.scope = scope
        self._changed = changed
        self._pause = pause
        self._reduced = reduced
        self._seen = seen
        self._version = ""
        self._failures = 0
        self.objects: dict[Key, Document] | None = None
        self.problem: str | None = None
        self.is_forbidden = False
        """Whether the account lacks the right. It says something only while there is a problem."""

    async def run(self, stop: asyncio.Event) -> None:
        """Follow until ``stop`` is set.

        Raises:
            UnauthorisedError: open another client.
        """
        while not stop.is_set():
            try:
                if not self._version:
                    await self._list()
                if self._version:
                    await self._watch()
                    continue
                self._failures = len(_BACKOFF_S)
            except _GoneError:
                self._version = ""
                self._failures = max(self._failures, 1)
            except ApiException as error:
                if error.status == _UNAUTHORISED:
                    raise UnauthorisedError from None
                self._failed(_told(error, self.scope), is_forbidden=error.status == _FORBIDDEN)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                # What is known stays. The watch goes on from its version once the server is back.
                self._failed(f"the API server does not answer ({type(error).__name__})")
            except (ValueError, _UnexpectedError) as error:
                self._version = ""
                self._failed(f"the answer is not one of Kubernetes ({error})"[:200])
            await self._pause(_BACKOFF_S[min(max(self._failures, 1), len(_BACKOFF_S)) - 1], stop)

    def _failed(self, reason: str, *, is_forbidden: bool = False) -> None:
        self._failures += 1
        self.problem, self.is_forbidden = f"{self.scope}: {reason}", is_forbidden
        self._changed()

    def _ask(self, timeout: Any, **options: str) -> Any:
        if self.scope.selector:
            options["labelSelector"] = self.scope.selector
        return self._api.call_api(
            self.scope.resource.path(self.scope.namespace),
            "GET",
            query_params=list(options.items()),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
            _preload_content=False,
            _return_http_data_only=True,
            _request_timeout=timeout,
        )

    async def _list(self) -> None:
        found: dict[Key, Document] = {}
        token = ""
        while True:
            page = await self._page(token)
            if page is None:
                # The operator is of a version without this kind.
                self._listed({}, "")
                return
            items, meta = page.get("items"), page.get("metadata")
            if not isinstance(items, list) or not isinstance(meta, dict):
                raise _UnexpectedError("a list without items")
            found |= {key_of(item): self._reduced(item) for item in items if isinstance(item, dict)}
            if len(found) > _OBJECTS_MAX:
                raise _UnexpectedError(f"more than {_OBJECTS_MAX} objects")
            token = meta.get("continue") or ""
            if not token:
                break
        self._listed(found, str(meta.get("resourceVersion") or ""))

    async def _page(self, token: str) -> dict[str, Any] | None:
        more = {"continue": token} if token else {}
        response = await self._ask(_LIST_S, limit=str(PAGE_MAX), **more)
        async with response:
            if response.status == _GONE:
                # The token of the next page has expired, so the list begins anew.
                raise _GoneError
            if response.status == _NOT_FOUND and self.scope.resource.may_be_unknown and not self.objects:
                return None
            if response.status != _OK:
                raise ApiException(status=response.status)
            body = await response.read()
        page = await asyncio.to_thread(orjson.loads, body)
        if not isinstance(page, dict):
            raise _UnexpectedError("no document")
        # The items of a list do not repeat their kind.
        kind = str(page.get("kind") or "").removesuffix("List")
        for item in page.get("items") or ():
            if isinstance(item, dict):
                item.setdefault("kind", kind)
        return page

    def _listed(self, found: dict[Key, Document], version: str) -> None:
        self.objects, self._version = found, version
        for document in found.values():
            self._seen(document)
        self._failures, self.problem = 0, None
        self._changed()

    async def _watch(self) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_WATCH_S + 30)
        response = await self._ask(
            timeout,
            watch="true",
            resourceVersion=self._version,
            allowWatchBookmarks="true",
            timeoutSeconds=str(_WATCH_S),
        )
        try:
            if response.status == _GONE:
                raise _GoneError
            if response.status != _OK:
                raise ApiException(status=response.status)
            if self.problem is not None:
                self.problem = None
                self._changed()
            async for line in response.content:
                self._event(orjson.loads(line))
                self._failures = 0
        finally:
            response.close()

    def _event(self, event: Any) -> None:
        document = event.get("object") if isinstance(event, dict) else None
        if not isinstance(document, dict) or self.objects is None:
            raise _UnexpectedError("an event without an object")
        kind = event.get("type")
        if kind == "ERROR":
            if document.get("code") == _GONE:
                raise _GoneError
            raise _UnexpectedError(f"the watch ended with the code {document.get('code')}")
        self._version = str((document.get("metadata") or {}).get("resourceVersion") or self._version)
        if kind == "BOOKMARK":
            # Nothing has changed, and what is known is current.
            self._changed()
            return
        document = self._reduced(document)
        if kind == "DELETED":
            self.objects.pop(key_of(document), None)
        elif kind in ("ADDED", "MODIFIED"):
            self.objects[key_of(document)] = document
        self._seen(document)
        self._changed()


class _GoneError(Exception):
    """The API server has forgotten the version from which the watch would go on."""


class _UnexpectedError(Exception):
    """The answer has another form than Kubernetes documents."""


def right_to(namespace: str | None) -> str:
    """Return what gives an account the right to read in a namespace or, for None, in all of them."""
    if namespace is None:
        return "a ClusterRole and a ClusterRoleBinding have to allow it, or the section has to name its namespaces"
    return "a Role and a RoleBinding in this namespace have to allow it"


def _told(error: ApiException, scope: Scope) -> str:
    match error.status:
        case 403:
            more = ", or write history: false in the section" if scope.resource.is_history else ""
            cure = right_to(scope.namespace) + more
            return f"HTTP 403: the account may not get, list and watch them; {cure}"
        case 404:
            return f"HTTP 404: the API server does not know them; is {scope.resource.operator} installed?"
        case 400:
            return "HTTP 400: the API server refuses the request; is the selector right?"
    return f"the API server answers HTTP {error.status}"
