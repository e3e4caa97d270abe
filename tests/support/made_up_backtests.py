"""A fake of the API's backtests: a queue without a worker, in which each reading advances the state."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import httpx

from backend.contracts.backtests import BacktestIn, BacktestOut, BacktestResultOut, WarningOut
from backend.contracts.simulations import SimulationState
from backend.domain.advice import AdviceState
from backend.domain.backtest import Part
from backend.domain.verdict import VerdictKind
from tests.support.api_examples import example
from tests.support.made_up_queues import MadeUpQueue

COMPLETED = "b0000000000000001"
_KEPT = timedelta(days=1)


class MadeUpBacktests(MadeUpQueue[BacktestOut]):
    """Fake backtests."""

    what = "backtest"

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        super().__init__(now=now)
        self._add(COMPLETED, "jruntime", BacktestIn())
        self.complete(COMPLETED)

    def answer(self, method: str, parts: list[str], body: bytes) -> Any:
        """Respond to a request, or return None if it is not about backtests."""
        match method, parts:
            case "POST", ["jobs", job, "backtests"]:
                return self._add(f"b{len(self.known):016}", job, BacktestIn.model_validate_json(body))
            case "GET", ["jobs", _, "backtests", name]:
                return self.read(name)
            case "DELETE", ["jobs", _, "backtests", name]:
                self.cancel(name)
                return httpx.Response(204)
            case _:
                return None

    def _add(self, name: str, job: str, wanted: BacktestIn) -> BacktestOut:
        self.known[name] = BacktestOut(
            id=name, job_id=job, request=wanted, state=SimulationState.QUEUED, progress_ratio=0.0, queue_position=0,
            queued_at=self._now(), started_at=None, ended_at=None, expires_at=None, as_of=self._now(),
        )  # fmt: skip
        return self.known[name]

    def complete(self, name: str) -> None:
        """Give a backtest its result."""
        now, parts = self._now(), self.of(name).request.parts
        whole = result()
        asked = {part.value: getattr(whole, part.value) if part in parts else None for part in Part}
        ended = {"started_at": now, "ended_at": now, "expires_at": now + _KEPT, "queue_position": None}
        done = BacktestResultOut.model_validate(asked)
        self.set(name, state=SimulationState.COMPLETED, progress_ratio=1.0, result=done, **ended)


def result() -> BacktestResultOut:
    """Return a result with two causes, a card that was applied and one that was not, and three warnings."""
    found = example("backtest").result
    assert found is not None
    verdict, advice, warning = found.verdict, found.advice, found.warning
    first = verdict.episodes[0]
    later = first.model_copy(
        update={
            "kind": VerdictKind.STRAGGLER, "subtasks": [2], "sentence": "Subtask 2 is slower than its siblings.",
            "first_at": first.last_at + timedelta(minutes=1), "last_at": first.last_at + timedelta(minutes=3),
            "said_count": 5, "checkpoint_count": 6, "unnamed_count": 2, "held_count": 8, "stored_count": 0,
        }
    )  # fmt: skip
    card = advice.cards[0]
    proposed = [p.model_copy(update={"measured": None, "is_inside": None}) for p in card.predictions]
    other = card.model_copy(
        update={
            "headline": "Lengthen the interval to 1 min", "predictions": proposed, "state": AdviceState.EXPIRED,
            "state_reason": "the rules no longer give it", "applied_at": None, "effect": None,
            "opened_at": card.opened_at + timedelta(minutes=2),
        }
    )  # fmt: skip
    warnings = [
        WarningOut(
            checkpoint_id=40 + i, run_id=first.run_id, at=first.last_at + timedelta(seconds=30 * i),
            age_ms=1_000.0 + 200 * i, timeout_ms=3_000.0, expiry_ratio=0.9, is_expired=i != 1,
            ended_after_ms=3_000.0 if i != 1 else 2_400.0,
        )
        for i in range(3)
    ]  # fmt: skip
    score = warning.predicted.model_copy(
        update={
            "expired_count": 2, "caught_count": 2, "recall_ratio": 1.0, "lead_median_ratio": 0.6, "page_count": 2,
            "false_page_count": 1,
        }
    )  # fmt: skip
    plain = score.model_copy(update={"lead_median_ratio": 0.2, "false_page_count": 0})
    return BacktestResultOut(
        warning=warning.model_copy(update={"predicted": score, "plain_rule": plain, "warnings": warnings}),
        verdict=verdict.model_copy(update={"episodes": [first, later], "episode_count": 2}),
        advice=advice.model_copy(update={"cards": [card, other], "opened_count": 2, "withdrawn_count": 1}),
    )
