"""Output that a job lost although its checkpoints completed: its transactions could no longer be committed.

A sink commits its transactions after a checkpoint. A transaction that is older than its timeout by then was ended by
the external system, so what it held is lost. No checkpoint fails because of that. The reference runtime reports a loss
as an exception after which the job goes on. Flink only counts the commits that a connector gave up, without rows and
reason. Both become the text of an event of the job, so ``read`` gets the numbers back from the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

EXCEPTION: Final = "RowsLost"
"""The name of the exception by which the reference runtime reports a loss."""

_TIMEOUT: Final = re.compile(
    EXCEPTION + r": (\d{1,18}) rows? in (\d{1,18}) transactions? lost: .* older than the timeout of (\d{1,18}) ms"
)

_GIVEN_UP: Final = re.compile(r"CommitsFailed: (\d{1,18}) transactions? failed to commit")


@dataclass(frozen=True, slots=True)
class Loss:
    """One loss: how many transactions, with how many rows, were older than the timeout.

    If only their number is known, as of Flink, ``row_count`` and ``timeout_ms`` are None.
    """

    at: datetime
    text: str
    transaction_count: int
    row_count: int | None
    timeout_ms: int | None


def timed_out(row_count: int, transaction_count: int, timeout_ms: int) -> str:
    """Return the message of a loss by the timeout of transactions, without the name of the exception."""
    held = _held(row_count, transaction_count)
    return f"{held} lost: committed after a checkpoint, when older than the timeout of {timeout_ms} ms"


def given_up(sink: str, transaction_count: int) -> str:
    """Return the text of a loss of which only the number of transactions is known.

    ``sink`` is the name of the vertex.
    """
    return f"{sink}: CommitsFailed: {_transactions(transaction_count)} failed to commit and will not be tried again"


def read(at: datetime, text: str) -> Loss | None:
    """Return the loss that a text tells, or None if it tells none."""
    if match := _TIMEOUT.search(text):
        return Loss(at, text, int(match[2]), int(match[1]), int(match[3]))
    match = _GIVEN_UP.search(text)
    return None if match is None else Loss(at, text, int(match[1]), None, None)


def said(losses: Sequence[Loss]) -> str:
    """Return in words what these losses took: ``6705 rows in 12 transactions``, or only the transactions."""
    rows, transactions = row_count(losses), sum(x.transaction_count for x in losses)
    return _transactions(transactions) if rows is None else _held(rows, transactions)


def row_count(losses: Sequence[Loss]) -> int | None:
    """Return how many rows these losses took, or None if that is not known of each."""
    known = [x.row_count for x in losses if x.row_count is not None]
    return sum(known) if len(known) == len(losses) else None


def _held(rows: int, transactions: int) -> str:
    return f"{rows} row{'' if rows == 1 else 's'} in {_transactions(transactions)}"


def _transactions(count: int) -> str:
    return f"{count} transaction{'' if count == 1 else 's'}"
