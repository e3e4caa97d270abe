"""The pages of an engine's own web UI, as paths below the address of the UI.

The paths have the placeholders of ``backend.domain.links``, and ``{state}``: ``running`` or ``completed``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


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
