"""Prepares the fast tier in the background, so that neither the start of a process nor its requests wait for it.

A process of its own compiles the simulation and leaves the result in numba's cache: compiling holds the interpreter for
up to seconds at a time, and would leave some 120 MB behind. Then this process loads the result in a thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import structlog

from backend.advisor.choice.choosing import refused
from backend.advisor.simulating import simulate
from backend.advisor.situation import Situation
from backend.advisor.tier_choice import TierChoice
from backend.advisor.twin.fast import compiled_cache, fast
from backend.advisor.twin.tiers.tiers import QuickTiers
from backend.backtest.cards import ChooseFor

_AFTER_S: Final = 5.0
"""The process first starts to serve."""
_TIMEOUT_S: Final = 1800.0
_PROBLEM_MAX: Final = 200
_NICENESS: Final = 10
_RETRIED_AFTER_S: Final = 600.0
"""A process that could not compile tries again after this time."""
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


def choose_compiled(situation: Situation) -> TierChoice:
    """Choose settings by the fast simulation in a thread that may wait for it to be compiled.

    The first call compiles it in a process of its own, which leaves the interpreter to the other threads.
    """
    problem = _compiled.problem()
    if problem is not None:
        return refused(situation, f"the fast simulation could not be compiled ({problem})")
    return choose_or_refuse(simulate, situation)


def choose_or_refuse(choose_for: ChooseFor, situation: Situation) -> TierChoice:
    """Return what ``choose_for`` chooses. If it fails unexpectedly, the log has the error, and nothing is chosen."""
    try:
        return choose_for(situation)
    except Exception as error:  # noqa: BLE001  whatever goes wrong, rules and replayed checkpoints choose
        _log.exception("the fast simulation failed")
        return refused(situation, f"an unexpected error ended the fast simulation ({type(error).__name__})")


class Compiled:
    """Whether this process has compiled the fast tier. A failure may pass, so it tries again after some time."""

    def __init__(self, compile_now: Callable[[], None], now_s: Callable[[], float] = time.monotonic) -> None:
        self._compile = compile_now
        self._now_s = now_s
        self._is_compiled = False
        self._failed: tuple[float, str] | None = None

    def problem(self) -> str | None:
        """Compile if that is due. Return None if the fast tier is compiled, otherwise why it is not."""
        if self._is_compiled:
            return None
        if self._failed is not None and self._now_s() - self._failed[0] < _RETRIED_AFTER_S:
            return self._failed[1]
        try:
            self._compile()
        except Exception as error:  # noqa: BLE001  whatever goes wrong, rules and replayed checkpoints choose
            problem = str(error)[:_PROBLEM_MAX] or type(error).__name__
            self._failed = self._now_s(), problem
            return problem
        self._is_compiled = True
        return None


def _compile_and_load() -> None:
    anyio.run(partial(_compile, _command()))
    fast.prepare()


_compiled = Compiled(_compile_and_load)


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
