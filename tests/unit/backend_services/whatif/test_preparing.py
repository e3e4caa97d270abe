"""The preparation of the fast tier: what compiles it, and what is said if that fails."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from backend.advisor.twin import compiled_cache
from backend.advisor.twin.outcomes import Tier
from backend.services.whatif.preparing import prepare_fast_tier
from backend.services.whatif.tiers import QuickTiers

pytestmark = pytest.mark.anyio


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-I", "-c", code


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
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.slow
async def test_what_the_usual_process_compiles_is_loaded():
    tiers = QuickTiers()

    await prepare_fast_tier(tiers, after_s=0.0)

    assert tiers.tier is Tier.FAST
