"""The readiness checks that ``up`` makes through the API it has started."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    import httpx

    from backend.contracts.api import TargetOut

_TIMEOUT_S = 5.0
_TARGETS = "/api/v1/targets?limit=100"


class OwnApi:
    """A client of the API at ``url``. Use as a context manager."""

    def __init__(self, url: str, token: str | None) -> None:
        import httpx

        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S, trust_env=False)

    def __enter__(self) -> OwnApi:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def is_ready(self) -> bool:
        """Whether the API answers and reaches the store."""
        from backend.contracts.api import StatusOut

        answer = self._get("/api/v1/status")
        try:
            return answer is not None and StatusOut.model_validate_json(answer.content).store == "ok"
        except ValueError:
            return False

    def is_runtime_ready(self, root: str) -> bool:
        """Whether the live runtime's REST at ``root`` answers."""
        return self._get(f"{root}/overview") is not None

    def has_read(self, root: str) -> bool:
        """Whether nobody needs to wait for the target at ``root``: a job has a checkpoint, or the target is paused."""
        from backend.contracts.api import JobOut, Page

        try:
            target = self._target(root)
            if target is None or not target.is_enabled:
                return target is not None
            answer = self._get(f"/api/v1/jobs?limit=20&target={target.id}")
            jobs = [] if answer is None else Page[JobOut].model_validate_json(answer.content).items
        except ValueError:
            return False
        return any(job.sparkline for job in jobs)

    def _target(self, root: str) -> TargetOut | None:
        """The target with that address; every page is searched.

        Raises:
            ValueError: the answer is not one of our API.

        """
        from backend.contracts.api import Page, TargetOut

        path: str | None = _TARGETS
        while path is not None:
            answer = self._get(path)
            if answer is None:
                return None
            page = Page[TargetOut].model_validate_json(answer.content)
            found = next((t for t in page.items if t.url == root), None)
            if found is not None:
                return found
            path = None if page.next is None else f"{_TARGETS}&cursor={quote(page.next)}"
        return None

    def _get(self, path: str) -> httpx.Response | None:
        import httpx

        try:
            answer = self._http.get(path)
        except httpx.HTTPError:
            return None
        return answer if answer.is_success else None
