"""The routes for targets."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Response

from backend.api import examples
from backend.api.deps import LIMIT, Cursor, Given, Limit, TargetId
from backend.contracts import api
from backend.contracts.target_list import TargetGroupOut

router = APIRouter(prefix="/targets", tags=["targets"])

Wanted = Annotated[api.TargetIn, Body(openapi_examples={"flink": {"value": examples.read("target_in")}})]
Patch = Annotated[api.TargetPatch, Body(openapi_examples={"pause": {"value": {"is_enabled": False}}})]


@router.get("", responses=examples.page_of("target"))
async def list_targets(services: Given, cursor: Cursor = None, limit: Limit = LIMIT) -> api.Page[api.TargetOut]:
    """List the targets, oldest first, with their health and the cost of reading them."""
    return await services.targets.page(cursor=cursor, limit=limit)


@router.get("/sd", responses=examples.list_of("target_group"))
async def list_for_prometheus(
    services: Given, kind: Annotated[str | None, Query(max_length=40)] = None
) -> list[TargetGroupOut]:
    """List the targets that are read, in the format of Prometheus' `http_sd`. Credentials are not in it.

    `kind` limits the list to targets of one kind.
    """
    return await services.targets.groups(kind=kind)


@router.post("", status_code=201, responses=examples.of("target", status=201))
async def add_target(wanted: Wanted, services: Given, request: Request, response: Response) -> api.TargetOut:
    """Test the connection and add a target. 409 if a target with this address exists.

    422 if something else answers at the address; the problem names the right root if it is at another path. A target
    that does not answer now is added, and `health.reason` says why.
    """
    added = await services.targets.add(wanted)
    response.headers["Location"] = f"{request.url.path.rstrip('/')}/{added.id}"
    return added


@router.post("/test", responses=examples.of("target_test"))
async def try_target(wanted: Wanted, services: Given) -> api.TargetTestOut:
    """Read a target once from this service's machine, and store nothing. ``problem`` contains the error.

    If the target answers at another path of this address, ``root`` is the right address.
    """
    return await services.targets.test(wanted)


@router.get("/{target}", responses=examples.of("target"))
async def read_target(target: TargetId, services: Given) -> api.TargetOut:
    """Return one target."""
    return await services.targets.get(target)


@router.patch("/{target}", responses=examples.of("target"))
async def change_target(target: TargetId, patch: Patch, services: Given) -> api.TargetOut:
    """Change the name, labels, links, interval or connection of a target, pause it or resume it.

    Absent fields stay unchanged. 422 if the body has `url` or `kind`, because jobs and their history belong to them.
    409 if a file or a discovery declares the target: it is changed there.
    With the `links_version` that was read, links that someone else changed meanwhile are not overwritten.
    """
    return await services.targets.change(target, patch)


@router.delete("/{target}", status_code=204)
async def remove_target(target: TargetId, services: Given) -> None:
    """Remove a target. Its history stays until retention drops it."""
    await services.targets.remove(target)
