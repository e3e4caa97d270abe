"""Output that a job lost although its checkpoints completed: its transactions could no longer be committed.

A sink commits its transactions after a checkpoint. A transaction that is older than its timeout by then was ended by
the external system, so what it held is lost. No checkpoint fails because of that. The reference runtime reports a loss
as an exception after which the job goes on. Flink only counts commits that failed. Both become the text of one event of
the job, so ``read`` gets the numbers back from the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

EXCEPTION: Final = "RowsLost"
"""The name of the exception by which the reference runtime reports a loss."""

_TIMEOUT: Final = re.compile(
    EXCEPTION + r": (\d{1,18}) rows? in (\d{1,18}) transactions? lost: .* older than the timeout of (\d{1,18}) ms"
)
_COMMITS: Final = re.compile(EXCEPTION + r": (\d{1,18}) commits? failed, and what")


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss. ``row_count`` and ``timeout_ms`` are None if the engine does not tell them."""

    at: datetime
    text: str
    transaction_count: int
    row_count: int | None = None
    timeout_ms: int | None = None


def timed_out(row_count: int, transaction_count: int, timeout_ms: int) -> str:
    """Return the message of a loss by the timeout of transactions, without the name of the exception."""
    rows = f"{row_count} row{'' if row_count == 1 else 's'}"
    held = f"{transaction_count} transaction{'' if transaction_count == 1 else 's'}"
    return f"{rows} in {held} lost: committed after a checkpoint, when older than the timeout of {timeout_ms} ms"


def failed_commits(count: int) -> str:
    """Return the text of commits that the engine counts as failed, and does not try again."""
    return f"{EXCEPTION}: {count} commit{'' if count == 1 else 's'} failed, and what they held is lost"


def read(at: datetime, text: str) -> Loss | None:
    """Return the loss that a text tells, or None if it tells none."""
    if (found := _TIMEOUT.search(text)) is not None:
        return Loss(at, text, int(found[2]), int(found[1]), int(found[3]))
    if (found := _COMMITS.search(text)) is not None:
        return Loss(at, text, int(found[1]))
    return None


def rows_of(losses: Iterable[Loss]) -> int | None:
    """Return how many rows these losses have together, or None if a count is missing."""
    counts = [loss.row_count for loss in losses]
    return None if None in counts else sum(c for c in counts if c is not None)


def said(losses: Sequence[Loss]) -> str:
    """Return in words what these losses took: ``6705 rows in 12 transactions``. There is one loss at least."""
    rows, transactions = rows_of(losses), sum(loss.transaction_count for loss in losses)
    if rows is None:
        return f"what {transactions} commit{'' if transactions == 1 else 's'} held"
    held = f"{transactions} transaction{'' if transactions == 1 else 's'}"
    return f"{rows} row{'' if rows == 1 else 's'} in {held}"
