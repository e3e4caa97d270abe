"""The pages of an engine's own web UI, as paths below the address of the UI.

The paths have the placeholders of ``backend.domain.links``, and ``{state}``: ``running`` or ``completed``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from backend.domain.errors import WrongRootError
from backend.domain.text import clean

_SHOWN_MAX = 200


def without_page(text: str) -> str | None:
    """Return an address without its query and fragment. Return None if it has neither of them, or is no address.

    The fragment of an address that was copied from a browser is a page of the web UI, such as ``/#/overview``.
    """
    try:
        parts = urlsplit(text.strip())
    except ValueError:
        return None
    if not (parts.query or parts.fragment):
        return None
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def page_error(text: str, root: str) -> WrongRootError:
    """Return the error for ``text``, the address of a page. ``root`` is the right root, without credentials."""
    fragment = urlsplit(text.strip()).fragment
    shown = clean(f"{root}/#{fragment}" if fragment else f"{root}/?…", length_max=_SHOWN_MAX)
    return WrongRootError(url=shown, reason="this is a page of a web UI", root=root)


class WebUi(StrEnum):
    """A web UI whose paths are known."""

    FLINK = "flink"
    """Flink since 1.15. The path of a job states whether the job runs."""
    FLINK_1_14 = "flink-1.14"
    """Flink before 1.15."""


@dataclass(frozen=True, slots=True)
class UiPage:
    """One page of a web UI. A page of a live process exists only while the run has not ended."""

    name: str
    path: str
    is_of_process: bool = False


def _flink(job: str) -> tuple[UiPage, ...]:
    vertex = f"{job}/overview/{{vertex_id}}"
    return (
        UiPage("Flink: job", f"{job}/overview"),
        UiPage("Flink: checkpoints", f"{job}/checkpoints"),
        UiPage("Flink: subtasks", f"{vertex}/subtasks"),
        UiPage("Flink: back pressure", f"{vertex}/backpressure", is_of_process=True),
        UiPage("Flink: TaskManager log", "#/task-manager/{taskmanager}/logs", is_of_process=True),
    )


PAGES: Final[Mapping[WebUi, tuple[UiPage, ...]]] = {
    WebUi.FLINK: _flink("#/job/{state}/{run}"),
    WebUi.FLINK_1_14: _flink("#/job/{run}"),
}
"""The pages of each web UI, in the order in which they are offered."""
