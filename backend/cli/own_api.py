"""Lets ``up`` check whether the roles are ready, by requests to the API that it has started."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from backend.cli.answers import Answer
    from backend.contracts.api import TargetOut

_TIMEOUT_S = 5.0
_TARGETS = "/api/v1/targets?limit=100"


class OwnApi:
    """A client of the API at ``url``. Use it as a context manager."""

    def __init__(self, url: str, token: str | None) -> None:
        from backend.cli.answers import Answers

        self._http = Answers(url, token, deadline_s=_TIMEOUT_S)

    def __enter__(self) -> OwnApi:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.__exit__()

    def is_ready(self) -> bool:
        """Return whether the API responds and reaches the store.

        Only readiness is checked. An error of another part of the API does not prevent the start, because the pages
        must then show it.
        """
        return self._get("/health/ready") is not None

    def is_runtime_ready(self, root: str) -> bool:
        """Return whether the monitoring REST of the live runtime at ``root`` responds."""
        return self._get(f"{root}/overview") is not None

    def has_read(self, root: str) -> bool:
        """Return whether ``up`` can stop waiting for the first data of the target at ``root``.

        That is so if a job of the target has a finished checkpoint, or if the target is paused.
        """
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
        """Return the target with the address ``root``, or None. Every page of the list is searched.

        Raises:
            ValueError: the response does not come from Barrierscope's API.
        """
        from backend.contracts.api import Page, TargetOut

        path: str | None = _TARGETS
        while path is not None:
            answer = self._get(path)
            if answer is None:
                return None
            page = Page[TargetOut].model_validate_json(answer.content)
            target = next((t for t in page.items if t.url == root), None)
            if target is not None:
                return target
            path = None if page.next is None else f"{_TARGETS}&cursor={quote(page.next)}"
        return None

    def _get(self, path: str) -> Answer | None:
        from backend.cli.answers import NoAnswerError

        try:
            answer = self._http.ask("GET", path)
        except NoAnswerError:
            return None
        return answer if answer.is_success else None
