"""Asks a target once who it is and what runs there: the answer of a test connection. Stores nothing.

Found by the ``api`` role through the entry point ``barrierscope.roles: probe``; the bounds are those of the collector's
own transport, so what passes here is read the same way afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.contracts import flink
from backend.domain.errors import TargetUnavailableError
from backend.domain.observation import Engine, JobState
from collectors.flink import document, parse
from collectors.flink.client import open_transport

_JOBS_MAX = 50


@dataclass(frozen=True, slots=True)
class Probed:
    """Who answered, and the names of the jobs that run there (the first of them, where there are many)."""

    engine: Engine
    version: str | None
    running_jobs: tuple[str, ...]


async def probe(url: str, timeout_s: float) -> Probed:
    """Ask the target at ``url``.

    Raises:
        InvalidInputError: ``url`` is no http(s) address.
        TargetUnavailableError: it did not answer, or not within ``timeout_s`` for each of the two questions.
        TargetProtocolError: it answered, but not as a Flink does.

    """
    try:
        async with open_transport(url, timeout_s=timeout_s) as transport:
            info = parse.engine_info(document.read(await transport.get(flink.CONFIG), url=transport.url))
            answer = document.read(await transport.get(flink.JOBS_OVERVIEW), url=transport.url)
            entries = parse.jobs_overview(answer)
    except OSError as error:
        raise TargetUnavailableError(url=url, reason=type(error).__name__) from None
    running = [e.name for e in entries if e.state is not JobState.ENDED]
    return Probed(info.engine, info.version, tuple(sorted(running)[:_JOBS_MAX]))
