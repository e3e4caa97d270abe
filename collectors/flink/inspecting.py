"""Reads thread dumps and flame graphs from Flink's REST API, with the limits of the collector's transport.

Flink answers a request for a flame graph with status 200 in every case. A negative ``endTimestamp`` then says why there
is none: the vertex has ended (-1), the setting switches flame graphs off (-2), or the samples are being taken (-3).
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Final
from urllib.parse import quote

from backend.domain.connection import Reach
from backend.domain.errors import ConflictError, TargetProtocolError
from backend.domain.inspection import (
    FlameGraph,
    Frame,
    Inspected,
    InspectionRequest,
    ReadThreads,
    SampleStacks,
    Thread,
    ThreadDump,
)
from backend.domain.text import clean_lines
from collectors.flink.client import open_transport
from collectors.flink.document import Document, read

_ENDED, _DISABLED, _SAMPLING = -1, -2, -3
_UNKNOWN_PLACES = (404, 500)
FRAMES_MAX: Final = 4000
_NAME_MAX = 500
_STACK_MAX = 100_000
_SWITCHED_OFF = (
    "flame graphs are switched off in this Flink: set rest.flamegraph.enabled: true in conf/config.yaml"
    " (conf/flink-conf.yaml before 1.19), and restart the JobManager"
)
# The texts in front of the name of a subtask in the names of the threads that serve it.
_SERVING = (" for ", " - ", " writer ")


async def inspect(
    url: str, engine_run_id: str, request: InspectionRequest, timeout_s: float, *, reach: Reach
) -> Inspected:
    """Return the threads or stacks that ``request`` asks for.

    Raises:
        ConflictError: flame graphs are switched off, the subtask has ended, or its TaskManager is gone.
        InvalidInputError: ``url`` is not an http(s) address.
        TargetUnavailableError: the target did not answer within ``timeout_s`` seconds.
        TargetProtocolError: the response is not one that Flink sends.
    """
    is_dump = isinstance(request, ReadThreads)
    path = _threads_path(request) if isinstance(request, ReadThreads) else _stacks_path(engine_run_id, request)
    async with open_transport(url, timeout_s=timeout_s, reach=reach) as transport:
        try:
            body = await transport.get(path)
        except TargetProtocolError as error:
            if error.status not in _UNKNOWN_PLACES:
                raise
            what = "TaskManager" if is_dump else "subtask"
            text = f"Flink cannot read this {what}, which may be gone: {error.reason}"
            raise ConflictError(text, kind="place-gone") from None
        document = read(body, url=transport.url + path.partition("?")[0])
    return threads_in(document, request) if isinstance(request, ReadThreads) else stacks_in(document)


def _threads_path(request: ReadThreads) -> str:
    return f"/taskmanagers/{quote(request.task_manager, safe='')}/thread-dump"


def _stacks_path(engine_run_id: str, request: SampleStacks) -> str:
    run, vertex = quote(engine_run_id, safe=""), quote(request.vertex_id, safe="")
    return f"/jobs/{run}/vertices/{vertex}/flamegraph?type={request.type.value}&subtaskindex={request.subtask}"


def threads_in(document: Document, request: ReadThreads) -> ThreadDump:
    """Read the answer of ``/taskmanagers/:id/thread-dump``. The stacks are texts that Flink has formatted."""
    threads = []
    for row in document.get("threadInfos").items():
        name, stack = row.get("threadName").text(length_max=_NAME_MAX), row.get("stringifiedThreadInfo")
        if not isinstance(stack.value, str):
            raise stack.fail("is not text")
        shown = clean_lines(stack.value, length_max=_STACK_MAX).strip("\n")
        threads.append(Thread(name, shown, _is_of(request, name)))
    return ThreadDump(tuple(threads))


def _is_of(request: ReadThreads, name: str) -> bool:
    """Return whether a thread runs the subtask, or serves it, such as ``OutputFlusher for map (2/4)#0``."""
    head, found, attempt = name.rpartition(f"{request.vertex} ({request.subtask + 1}/{request.parallelism})#")
    # The name of another vertex may end with the name of this one ("Source: map" ends with "map"), so the text in front
    # of the name is checked too.
    return bool(found) and attempt.isdecimal() and (not head or head.endswith(_SERVING))


def stacks_in(document: Document) -> FlameGraph:
    """Read the answer of ``/jobs/:id/vertices/:id/flamegraph``. Of a very large tree, the deepest frames are left out.

    Raises:
        ConflictError: flame graphs are switched off, or the vertex has ended.
    """
    at = document.get("endTimestamp")
    state = at.whole()
    if state == _DISABLED:
        raise ConflictError(_SWITCHED_OFF, kind="flame-graphs-disabled")
    if state == _ENDED:
        raise ConflictError("the vertex has ended, so its subtasks have no stacks", kind="job-ended")
    root = document.find("data")
    return FlameGraph(None) if state == _SAMPLING or root is None else _flattened(root, at.instant_known())


def _flattened(root: Document, sampled_at: datetime) -> FlameGraph:
    """Return the tree as a list, level by level. It is not read recursively, because a stack may be very deep."""
    frames: list[Frame] = []
    left_out_count = 0
    waiting: deque[tuple[Document, int | None]] = deque([(root, None)])
    while waiting:
        node, parent = waiting.popleft()
        if len(frames) >= FRAMES_MAX:
            left_out_count += 1
        else:
            frames.append(Frame(node.get("name").text(length_max=_NAME_MAX), node.get("value").count(), parent))
        # The frames below one that is left out are left out too, and only counted.
        children = node.find("children")
        waiting.extend((child, len(frames) - 1) for child in (() if children is None else children.items()))
    return FlameGraph(sampled_at, tuple(frames), left_out_count)
