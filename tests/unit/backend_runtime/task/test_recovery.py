"""Tests of the end of a sender's recovered output on a channel."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from backend.runtime.core.elements import WatermarkStatus
from backend.runtime.task.recovery import Recovery


@pytest.mark.parametrize(
    ("was_idle", "is_rescaled", "told", "watermark_us"),
    [
        (True, False, [(WatermarkStatus(is_idle=False), True)], 700),
        (False, False, [], 700),
        (False, True, [], -1),
        (True, True, [(WatermarkStatus(is_idle=False), True)], -1),
    ],
)
def test_what_the_recovered_data_said_of_idleness_and_watermarks_ends_with_it(
    was_idle, is_rescaled, told, watermark_us
):
    """RC-2: the sender's new attempt starts as active, and after a rescale it may read other splits."""
    seen: list[tuple[WatermarkStatus, bool]] = []
    ended: list[bool] = []
    channel: Any = SimpleNamespace(
        index=0, is_idle=was_idle, watermark_us=700, key=SimpleNamespace(edge=2), end_virtual=lambda: ended.append(True)
    )
    task = SimpleNamespace(
        event_time=SimpleNamespace(
            on_status=lambda _, status, *, counts_at_once: seen.append((status, counts_at_once))
        ),
        gate=SimpleNamespace(channels=[channel, None]),
    )
    recovery: Any = SimpleNamespace(_seen=set(), _task=task, _rescaled={2} if is_rescaled else set())

    Recovery.on_completion(recovery, channel)

    assert (seen, channel.watermark_us, recovery._seen, ended) == (told, watermark_us, {0}, [True])
