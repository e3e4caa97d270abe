"""The API of the stack that ``up`` runs, as ``up`` asks it: does it answer, and is there something to look at?"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import httpx

    from backend.contracts.api import JobOut, Page, TargetOut

    T = TypeVar("T", JobOut, TargetOut)

_TIMEOUT_S = 5.0


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
        """Whether the target at ``root`` has a job with a checkpoint to look at; a paused one is not waited for."""
        from backend.contracts.api import JobOut, Page, TargetOut

        try:
            targets = self._items("/api/v1/targets?limit=100", Page[TargetOut])
            target = next((t for t in targets if t.url == root), None)
            if target is None or not target.is_enabled:
                return target is not None
            jobs = self._items(f"/api/v1/jobs?limit=20&target={target.id}", Page[JobOut])
        except ValueError:
            return False
        return any(job.sparkline for job in jobs)

    def _items(self, path: str, page: type[Page[T]]) -> list[T]:
        answer = self._get(path)
        return [] if answer is None else page.model_validate_json(answer.content).items

    def _get(self, path: str) -> httpx.Response | None:
        import httpx

        try:
            answer = self._http.get(path)
        except httpx.HTTPError:
            return None
        return answer if answer.is_success else None
