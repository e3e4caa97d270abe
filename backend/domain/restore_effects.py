"""What a restore changed for the records of a job, in words: after a restart, and after a start from a checkpoint.

Operators may meet restored records with another watermark than before. At-least-once mode processes some records twice.
A restore without channel state drops the records in flight. None of this fails a checkpoint, so it must be told. The
live runtime reports it like an exception after which the job goes on. It becomes the text of an event of the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from backend.domain import spelling

EXCEPTION: Final = "RestoreEffect"
"""The name of the exception by which the reference runtime reports an effect."""

_TOLD: Final = re.compile(EXCEPTION + ": after the (start|restart) ")


def told(costs: Mapping[str, int | None], when: str, *, says_unknown: bool = True) -> Iterator[str]:
    """Yield a sentence for each effect of a restore. ``costs``: ``Restart.costs``; ``when``: such as *after the start*.

    With ``says_unknown``, a sentence says so if the watermark of the checkpoint has not been reached again.
    """
    lost, repeated = costs["lost_channel_bytes"] or 0, costs["repeated_records"] or 0
    if lost:
        yield f"{when}, {spelling.size(lost)} of records in flight are lost: channel state was not restored"
    if repeated:
        yield f"{when}, {repeated} records were processed again although the state contains them: at-least-once mode"
    without, met = costs["records_before_watermark"], costs["records_with_other_watermark"]
    if without is None:
        if says_unknown:
            yield f"{when}, the watermark of the checkpoint has not been reached again"
    elif without:
        stored = "no operator stores the watermark"
        if met != without:
            stored = f"without store_watermark it would be {without}"
        yield f"{when}, {met} records met another watermark than before: {stored}"


def read(text: str) -> str | None:
    """Return the sentence if the text of an exception reports an effect, else None."""
    match = _TOLD.search(text)
    return None if match is None else text[match.start() + len(EXCEPTION) + 2 :]
