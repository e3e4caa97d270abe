"""Goal: no interleaving of a small job breaks INV-1 to INV-3, or leaves anything behind (T-8).

Method: the state space of ``tests/support/model_check.py``, whole, over the real input handlers; here the smallest
ones, and broken handlers that must be found. The larger ones: ``make model-check``.
"""

from __future__ import annotations

from typing import Any

import pytest

from backend.runtime.elements import Alignment
from backend.runtime.protocols.aligned import Aligned
from backend.runtime.protocols.base import Persist, Resume
from backend.runtime.protocols.unaligned import Unaligned
from tests.support.model_check import ModelError, TooManyStatesError, World, explore


def test_two_aligned_checkpoints_hold_in_every_interleaving() -> None:
    states, _, endings = explore(World(Alignment.ALIGNED, None, 1, expires=False))
    assert states > 500
    assert endings == {"1 completed", "2 completed"}


def test_an_unaligned_checkpoint_holds_in_every_interleaving() -> None:
    states, _, endings = explore(World(Alignment.UNALIGNED, None, 1, checkpoints=1, expires=False))
    assert states > 1_000
    assert endings == {"1 completed"}


def _hasty(self: Any, *, complete: Any) -> list[Any]:
    self._open = frozenset(self._arrived)
    return complete(self)


@pytest.mark.parametrize(
    ("handler", "method", "drop", "alignment", "rule"),
    [
        (Unaligned, "start", Persist, Alignment.UNALIGNED, "INV-2"),
        (Aligned, "_complete", Resume, Alignment.ALIGNED, "INV-9"),
    ],
    ids=["nothing is persisted", "no channel is resumed"],
)
def test_a_handler_that_leaves_a_command_out_is_found(
    handler: Any, method: str, drop: type, alignment: Alignment, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = getattr(handler, method)
    without = lambda *given: [c for c in whole(*given) if not isinstance(c, drop)]  # noqa: E731
    monkeypatch.setattr(handler, method, without)
    with pytest.raises(ModelError, match=rule) as found:
        explore(World(alignment, None, 1, checkpoints=1, expires=False))
    assert found.value.path


def test_an_alignment_that_ends_with_the_first_barrier_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    complete = Aligned._complete
    monkeypatch.setattr(Aligned, "_complete", lambda self: _hasty(self, complete=complete))
    with pytest.raises(ModelError, match=r"INV-2|INV-3"):
        explore(World(Alignment.ALIGNED, None, 1, checkpoints=1, expires=False))


def test_a_space_that_is_too_large_is_given_up() -> None:
    with pytest.raises(TooManyStatesError, match="more than 20"):
        explore(World(Alignment.ALIGNED, None, 2), most=20)
