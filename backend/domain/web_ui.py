"""The pages of an engine's own web UI, as paths below the address of the UI.

The paths have the placeholders of ``backend.domain.links``, and those of an engine: ``{state}``, which is
``running`` or ``completed``, and those of Spark's applications, queries, executions, jobs and stages.
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
    SPARK_DRIVER = "spark-driver"
    """The UI of a driver of Spark, which exists while its application runs."""
    SPARK_HISTORY = "spark-history"
    """The UI of a history server of Spark. ``{app_attempt}`` is left out of a path if the application has none."""


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


def _spark(root: str, *, is_of_process: bool) -> tuple[UiPage, ...]:
    return (
        UiPage("Spark: query", f"{root}StreamingQuery/statistics/?id={{query_run}}", is_of_process),
        UiPage("Spark: batch", f"{root}SQL/execution/?id={{execution}}", is_of_process),
        UiPage("Spark: job", f"{root}jobs/job/?id={{spark_job}}", is_of_process),
        UiPage("Spark: longest stage", f"{root}stages/stage/?id={{stage}}&attempt={{stage_attempt}}", is_of_process),
    )


APP_ATTEMPT: Final = "{app_attempt}/"
PAGES: Final[Mapping[WebUi, tuple[UiPage, ...]]] = {
    WebUi.FLINK: _flink("#/job/{state}/{run}"),
    WebUi.FLINK_1_14: _flink("#/job/{run}"),
    WebUi.SPARK_DRIVER: _spark("", is_of_process=True),
    WebUi.SPARK_HISTORY: _spark("history/{app}/{app_attempt}/", is_of_process=False),
}
"""The pages of each web UI, in the order in which they are offered."""
