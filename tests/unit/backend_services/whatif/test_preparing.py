"""The preparation of the fast tier: what compiles it, and what is said if that fails."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import anyio
import anyio.to_thread
import pytest

from backend.advisor.twin.fast import compiled_cache
from backend.advisor.twin.model.outcomes import Tier
from backend.advisor.twin.tiers.tiers import QuickTiers
from backend.services.whatif import preparing
from backend.services.whatif.preparing import Compiled, prepare_fast_tier
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-I", "-c", code


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def prepared(code: str, load=lambda: None) -> QuickTiers:
    tiers = QuickTiers()
    await prepare_fast_tier(tiers, after_s=0.0, command=python(code), load=load)
    return tiers


async def test_the_fast_tier_answers_once_another_process_has_compiled_it_and_this_one_has_loaded_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(compiled_cache, "own_root", lambda: str(tmp_path))
    tiers = QuickTiers()
    seen = []

    def load() -> None:
        seen.extend([tiers.tier, *(f.name for f in tmp_path.iterdir())])

    code = f"import os, pathlib; pathlib.Path(os.environ['{compiled_cache.CACHE_VARIABLE}'], 'compiled').touch()"
    await prepare_fast_tier(tiers, after_s=0.0, command=python(code), load=load)

    assert seen == [Tier.FORMULAS, "compiled"]
    assert tiers.tier is Tier.FAST
    assert compiled_cache.CACHE_VARIABLE not in os.environ or os.environ[compiled_cache.CACHE_VARIABLE] != str(tmp_path)


@pytest.mark.parametrize(
    ("code", "words"),
    [("raise OSError('no space left on device')", "no space left on device"), ("import os; os._exit(9)", "code 9")],
)
async def test_without_a_compiler_formulas_answer_and_say_why(code: str, words: str):
    tiers = await prepared(code)

    assert tiers.tier is Tier.FORMULAS
    assert words in (tiers.why_not or "")


async def test_compiled_code_that_cannot_be_loaded_is_not_used():
    def load() -> None:
        raise MemoryError

    assert "MemoryError" in ((await prepared("pass", load)).why_not or "")


async def test_the_event_loop_runs_while_it_compiles_and_a_stop_ends_the_compiler(tmp_path: Path):
    """The child would wait for ever, so only the stop ends it."""
    began = tmp_path / "began"
    os.mkfifo(began)
    code = f"import os; f = open({str(began)!r}, 'w'); f.write(str(os.getpid())); f.close(); os.read(os.pipe()[0], 1)"
    tiers = QuickTiers()
    async with anyio.create_task_group() as group:
        group.start_soon(partial(prepare_fast_tier, tiers, after_s=0.0, command=python(code), load=lambda: None))
        child = int(await anyio.to_thread.run_sync(began.read_text))
        assert "still being compiled" in (tiers.why_not or "")
        group.cancel_scope.cancel()
    # If the stop comes while the child is still being started, the loop takes the ended child in a moment later.
    await anyio.to_thread.run_sync(until, lambda: not is_there(child), "the compiler has ended")


def test_a_compiler_that_failed_once_is_tried_again_after_some_time():
    now_s, answers = [0.0], [OSError("no space left on device"), None, OSError("it is not asked again")]
    count = 0

    def compile_now() -> None:
        nonlocal count
        count += 1
        error = answers[count - 1]
        if error is not None:
            raise error

    compiled = Compiled(compile_now, lambda: now_s[0])
    assert [compiled.problem(), compiled.problem()] == ["no space left on device"] * 2
    assert count == 1
    now_s[0] = 3600.0
    assert compiled.problem() is None
    now_s[0] = 36000.0
    assert compiled.problem() is None
    assert count == 2


def test_an_unexpected_error_of_the_simulation_is_a_refusal_and_ends_no_backtest(monkeypatch: pytest.MonkeyPatch):
    def fail(_: object) -> None:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr(preparing, "_compiled", Compiled(lambda: None))
    monkeypatch.setattr(preparing, "simulate", fail)
    known = SimpleNamespace(recorded=(), evidence=SimpleNamespace(now=None, config=None), series=None)

    choice = preparing.choose_compiled(known)  # type: ignore[arg-type]

    assert choice.best is None
    assert choice.why_not == "an unexpected error ended the fast simulation (ZeroDivisionError)"


@pytest.mark.slow
async def test_what_the_usual_process_compiles_is_loaded():
    tiers = QuickTiers()

    await prepare_fast_tier(tiers, after_s=0.0)

    assert tiers.tier is Tier.FAST
