"""The routes for targets."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Body, Header, Query, Request, Response

from backend.api import examples
from backend.api.deps import LIMIT, Cursor, Given, Limit, TargetId
from backend.contracts import api
from backend.contracts.target_list import TargetGroupOut
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.target import TargetOrigin
from backend.store.targets.targets import WantedTargets

router = APIRouter(prefix="/targets", tags=["targets"])

Wanted = Annotated[api.TargetIn, Body(openapi_examples={"flink": {"value": examples.read("target_in")}})]
Patch = Annotated[api.TargetPatch, Body(openapi_examples={"pause": {"value": {"is_enabled": False}}})]
IfMatch = Annotated[
    str | None,
    Header(max_length=100, description="The `version` that was read, in quotes: 409 if the version is now another."),
]
Search = Annotated[
    str | None, Query(max_length=200, pattern=r"^[^\x00]*$", description="Part of the name or the address.")
]
_TAG = re.compile(r'(?:W/)?"([^",*]*)"|([^",*\s]+)')
Origin = Annotated[TargetOrigin | None, Query(description="Only targets that came from there.")]


@router.get("", responses=examples.page_of("target"))
async def list_targets(
    services: Given, search: Search = None, origin: Origin = None, cursor: Cursor = None, limit: Limit = LIMIT
) -> api.Page[api.TargetOut]:
    """List the targets, oldest first, with their health and the cost of reading them."""
    return await services.targets.page(WantedTargets(search, origin), cursor=cursor, limit=limit)


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
async def read_target(target: TargetId, services: Given, response: Response) -> api.TargetOut:
    """Return one target. Its version is the ``ETag``."""
    return _tagged(response, await services.targets.get(target))


@router.patch("/{target}", responses=examples.of("target"))
async def change_target(
    target: TargetId, patch: Patch, services: Given, response: Response, if_match: IfMatch = None
) -> api.TargetOut:
    """Change the name, labels, links, interval or connection of a target, pause it or resume it.

    Absent fields stay unchanged. 422 if the body has `url` or `kind`, because jobs and their history belong to them.
    409 if a file or a discovery declares the target: it is changed there.
    With the `version` that was read as `If-Match`, or its `links_version`, nothing that someone else changed meanwhile
    is overwritten.
    """
    return _tagged(response, await services.targets.change(target, patch, version=_version(if_match)))


@router.delete("/{target}", status_code=204)
async def remove_target(target: TargetId, services: Given, if_match: IfMatch = None) -> None:
    """Remove a target. Its history stays until retention drops it.

    With the `version` that was read as `If-Match`, nothing is removed that someone else changed meanwhile.
    """
    await services.targets.remove(target, version=_version(if_match))


def _tagged(response: Response, target: api.TargetOut) -> api.TargetOut:
    response.headers["ETag"] = f'"{target.version}"'
    return target


def _version(if_match: str | None) -> str | None:
    if if_match is None or if_match.strip() == "*":
        return None
    tag = _TAG.fullmatch(if_match.strip())
    if tag is None:
        problem = "is not one version in quotes, nor *"
        allowed = 'the ETag of an earlier answer, for example "6d0f1e9c2b7a4358"'
        raise InvalidInputError([FieldProblem("if-match", problem, allowed)], what="header")
    return tag[1] or tag[2]
