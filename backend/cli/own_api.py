"""The API of the stack that ``up`` runs, as ``up`` asks it: is it ready, and are the demo jobs a target of it?

It may not decide anything a person could not do by ``barrierscope targets``: it uses the same paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backend.domain.errors import ApiUnavailableError

if TYPE_CHECKING:
    import httpx

    from backend.contracts.api import TargetOut

_TIMEOUT_S = 5.0
_PAGE = 200
_DEMO_NAME = "demo"
# A job is its deployment and its name: with this label the demo jobs keep their history when their port changes.
_DEMO_LABELS = {"deployment": "demo"}


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

    def has_checkpoints(self) -> bool:
        """Whether there is a job with a checkpoint to look at."""
        from backend.contracts.api import JobOut, Page

        answer = self._get("/api/v1/jobs?limit=20")
        if answer is None:
            return False
        try:
            jobs = Page[JobOut].model_validate_json(answer.content).items
        except ValueError:
            return False
        return any(job.sparkline for job in jobs)

    def watch_demo(self, root: str | None) -> None:
        """Make ``root`` the one demo target that is watched; None: there are no demo jobs this time.

        Raises:
            ApiUnavailableError: the API does not do what is asked.

        """
        known = [target for target in self._targets() if target.labels == _DEMO_LABELS]
        for target in known:
            if target.url != root:
                # Another port, or no demo this time: nothing answers there any more. The history stays.
                self._change("DELETE", f"/api/v1/targets/{target.id}")
        if root is not None and root not in {target.url for target in known}:
            body: dict[str, object] = {"url": root, "name": _DEMO_NAME, "labels": _DEMO_LABELS}
            self._change("POST", "/api/v1/targets", body)

    def _targets(self) -> list[TargetOut]:
        from backend.contracts.api import Page, TargetOut

        found: list[TargetOut] = []
        path = f"/api/v1/targets?limit={_PAGE}"
        while True:
            page = Page[TargetOut].model_validate_json(self._change("GET", path).content)
            found += page.items
            if page.next is None:
                return found
            path = f"/api/v1/targets?limit={_PAGE}&cursor={page.next}"

    def _change(self, method: str, path: str, body: dict[str, object] | None = None) -> httpx.Response:
        import httpx

        try:
            return self._http.request(method, path, json=body).raise_for_status()
        except httpx.HTTPStatusError as error:
            raise ApiUnavailableError(
                f"{method} {path} answered {error.response.status_code}: {error.response.text[:300]}"
            ) from None
        except httpx.HTTPError as error:
            raise ApiUnavailableError(f"{method} {path}: {error}") from None

    def _get(self, path: str) -> httpx.Response | None:
        import httpx

        try:
            answer = self._http.get(path)
        except httpx.HTTPError:
            return None
        return answer if answer.is_success else None
