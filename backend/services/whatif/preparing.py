"""Prepares the fast tier in the background, so that neither the start of a process nor its requests wait for it.

A process of its own compiles the simulation and leaves the result in numba's cache: compiling holds the interpreter for
up to seconds at a time, and would leave some 120 MB behind. Then this process loads the result in a thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Final

import anyio
import anyio.to_thread
import structlog

from backend.advisor.choosing import choose, refused
from backend.advisor.situation import Situation
from backend.advisor.tier_choice import TierChoice
from backend.advisor.twin import compiled_cache, fast
from backend.services.whatif.tiers import QuickTiers

_AFTER_S: Final = 5.0
"""The process first starts to serve."""
_TIMEOUT_S: Final = 1800.0
_PROBLEM_MAX: Final = 200
_NICENESS: Final = 10
# From <sys/prctl.h>.
_PR_SET_PDEATHSIG: Final = 1

_log = structlog.get_logger(__name__)


async def prepare_fast_tier(
    tiers: QuickTiers,
    *,
    after_s: float = _AFTER_S,
    command: Sequence[str] | None = None,
    load: Callable[[], None] = fast.prepare,
) -> None:
    """Compile the fast tier, and let ``tiers`` use it. If that fails, ``tiers`` says why."""
    tiers.begin()
    try:
        await anyio.sleep(after_s)
        with anyio.fail_after(_TIMEOUT_S):
            await _compile(command or _command())
            await anyio.to_thread.run_sync(load, abandon_on_cancel=True)
    except Exception as error:  # noqa: BLE001  whatever goes wrong, the service goes on without the fast tier
        problem = str(error)[:_PROBLEM_MAX] or type(error).__name__
        _log.warning("the fast tier of what-ifs cannot be used", reason=problem)
        tiers.finish(problem)
        return
    _log.info("the fast tier of what-ifs is ready")
    tiers.finish()


def compile_for(parent_pid: int) -> None:
    """Compile in this process, which ends with the one that waits for it."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before prctl took effect.
    if os.getppid() == parent_pid:
        os.nice(_NICENESS)
        fast.prepare()


def choose_compiled(known: Situation) -> TierChoice:
    """Choose settings by the fast simulation in a thread that may wait for it to be compiled.

    The first call compiles it in a process of its own, which leaves the interpreter to the other threads.
    """
    problem = _compiled_problem()
    if problem is not None:
        return refused(known, f"the fast simulation could not be compiled ({problem})")
    return choose(known)


@cache
def _compiled_problem() -> str | None:
    try:
        anyio.run(partial(_compile, _command()))
        fast.prepare()
    except Exception as error:  # noqa: BLE001  whatever goes wrong, rules and replayed checkpoints choose
        return str(error)[:_PROBLEM_MAX] or type(error).__name__
    return None


def _command() -> Sequence[str]:
    code = f"from {__name__} import compile_for; compile_for({os.getpid()})"
    return sys.executable, "-P", "-c", code


async def _compile(command: Sequence[str]) -> None:
    folder = await anyio.to_thread.run_sync(compiled_cache.own_root)
    more = {} if folder is None else {compiled_cache.CACHE_VARIABLE: folder}
    done = await anyio.run_process(list(command), check=False, env={**os.environ, **more})
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"the compiler ended with code {done.returncode}")
