"""The requests of the API client that concern targets."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

from backend.contracts import api
from backend.domain.errors import ApiNotFoundError
from dashboard.targets_address import TargetList
from dashboard.whatif_requests import Requests

_TIMEOUT_S: Final = 10.0
# A connection test waits until the API has contacted another server. The API limits how long that takes.
_TEST_TIMEOUT_S: Final = 30.0
_SHOWN: Final = 200
"""The number of targets on a page of the list."""


class TargetRequests:
    """The part of the client that concerns targets."""

    async def targets(self: Requests, view: TargetList, *, origin: str | None = None) -> api.Page[api.TargetOut]:
        """Return one page of the targets, oldest first; with an ``origin``, only those that came from there."""
        pairs = (("search", view.search), ("cursor", view.cursor), ("origin", origin))
        query = urlencode([("limit", str(_SHOWN)), *((name, value) for name, value in pairs if value)])
        return await self._get(f"targets?{query}", api.Page[api.TargetOut])

    async def target(self: Requests, target: str) -> api.TargetOut | None:
        """Return one target, or None if it is not there any more."""
        try:
            return await self._get(_path(target), api.TargetOut)
        except ApiNotFoundError:
            return None

    async def test_target(self: Requests, target: api.TargetIn) -> api.TargetTestOut:
        """Test the connection to a target. Nothing is stored."""
        return await self._send("POST", "targets/test", target, api.TargetTestOut, timeout_s=_TEST_TIMEOUT_S)

    async def add_target(self: Requests, target: api.TargetIn) -> api.TargetOut:
        """Add a target. The service tests its connection first."""
        return await self._send("POST", "targets", target, api.TargetOut, timeout_s=_TEST_TIMEOUT_S)

    async def enable_target(self: Requests, target: str, *, is_enabled: bool) -> api.TargetOut:
        """Resume or pause the polling of a target."""
        return await self._send("PATCH", _path(target), api.TargetPatch(is_enabled=is_enabled), api.TargetOut)

    async def change_target(
        self: Requests, target: str, patch: api.TargetPatch, *, version: str | None = None
    ) -> api.TargetOut:
        """Change the fields of a target that ``patch`` contains.

        The API refuses the change if ``version`` is given and the version of the target is now another.
        """
        return await self._send("PATCH", _path(target), patch, api.TargetOut, headers=_match(version))

    async def remove_target(self: Requests, target: str, *, version: str | None = None) -> None:
        """Remove a target. The API refuses it if ``version`` is given and the version of the target is now another."""
        await self._request("DELETE", _path(target), None, _TIMEOUT_S, _match(version))


def _match(version: str | None) -> dict[str, str] | None:
    return None if version is None else {"If-Match": f'"{version}"'}


def _path(target: str) -> str:
    return f"targets/{quote(target, safe='')}"
