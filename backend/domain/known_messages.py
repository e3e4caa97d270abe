"""Known messages of exceptions: what each one means, what cures it and what does not.

The table is the file ``known_messages.toml``. It has messages as Flink, Kafka, Spark, the stores and the table formats
print them. A message is found by a regular expression in one line of an exception. If several messages match, the one
that comes first in the table explains the exception, because more specific messages come first. The explanations are
our own words. ``source`` names where the message or its cure is documented.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("known_messages.toml")

# Of a longer line, the rest is not searched, so that a hostile line costs a limited time.
_LINE_MAX: Final = 4_000
_TIMEOUT: Final = re.compile(r"transaction[._ ]timeout(?:\.ms)?'?\s?(?:\(|of )(\d{1,12})\s?ms")


class MessageCause(StrEnum):
    """The kinds of causes that known messages tell."""

    TRANSACTION = "transaction"
    """A transaction was older than its timeout, or its broker ended it for another reason."""
    TRANSACTION_SETTING = "transaction-setting"
    TRANSACTION_ID = "transaction-id"
    ACCESS = "access"
    OUTSIDE = "outside"
    RECORD = "record"
    INPUT = "input"
    STORE_THROTTLED = "store-throttled"
    STORE_CONNECTIONS = "store-connections"
    STORE_FULL = "store-full"
    STORE_MISSING = "store-missing"
    STORE_BROKEN = "store-broken"
    STORE_WRITE = "store-write"
    DISK_FULL = "disk-full"
    OPEN_FILES = "open-files"
    RESTORE = "restore"
    MESSAGE_SIZE = "message-size"
    FINISHED_TASKS = "finished-tasks"
    MEMORY = "memory"
    RESOURCES = "resources"
    STUCK_TASK = "stuck-task"
    COORDINATOR = "coordinator"
    HOST_LOST = "host-lost"
    PROGRAM = "program"
    TABLE_CONFLICT = "table-conflict"
    TABLE_COMMIT = "table-commit"
    TWO_QUERIES = "two-queries"
    CHECKPOINT_FAILURES = "checkpoint-failures"

    @property
    def is_of_checkpoints(self) -> bool:
        """Whether checkpoints, or their settings or files, have a part in this cause, even if each completes."""
        return self in _OF_CHECKPOINTS

    @property
    def is_of_store(self) -> bool:
        """Whether the exception is one of a store or disk, which may be that of the checkpoints or another."""
        return self in _OF_STORE


_OF_STORE = frozenset(
    {
        MessageCause.STORE_THROTTLED,
        MessageCause.STORE_CONNECTIONS,
        MessageCause.STORE_FULL,
        MessageCause.STORE_MISSING,
        MessageCause.STORE_BROKEN,
        MessageCause.STORE_WRITE,
        MessageCause.DISK_FULL,
    }
)
_OF_CHECKPOINTS = _OF_STORE | {
    MessageCause.TRANSACTION,
    MessageCause.TRANSACTION_SETTING,
    MessageCause.TRANSACTION_ID,
    # The rights may be those on the checkpoint folder.
    MessageCause.ACCESS,
    MessageCause.RESTORE,
    MessageCause.MESSAGE_SIZE,
    MessageCause.FINISHED_TASKS,
    MessageCause.COORDINATOR,
    # A sink commits after each checkpoint, and a shorter interval gives more commits.
    MessageCause.TABLE_CONFLICT,
    MessageCause.TABLE_COMMIT,
    MessageCause.TWO_QUERIES,
    MessageCause.CHECKPOINT_FAILURES,
}


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """One entry of the table.

    ``means`` and ``cure`` are sentences without a capital letter and a full stop. ``vain`` is what does not help; it
    may be empty. ``before`` has the ids of later entries that match some of the same lines with another cause.
    """

    id: str
    cause: MessageCause
    pattern: re.Pattern[str]
    means: str
    cure: str
    vain: str
    versions: str
    source: str
    before: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The explanation in short texts, for rows of evidence."""
        vain = (f"what does not help: {self.vain}",) if self.vain else ()
        return (
            f"what it means: {self.means}",
            f"what cures it: {self.cure}",
            *vain,
            f"known message: {self.versions}; source: {self.source}",
        )


@cache
def messages() -> tuple[KnownMessage, ...]:
    """Return the table, in the order in which messages are compared with an exception."""
    rows = tomllib.loads(FILE.read_text(encoding="utf-8"))["message"]
    return tuple(
        KnownMessage(
            id=row["id"],
            cause=MessageCause(row["cause"]),
            pattern=re.compile(row["match"]),
            means=row["means"],
            cure=row["cure"],
            vain=row["vain"],
            versions=row["versions"],
            source=row["source"],
            before=tuple(row.get("before", ())),
        )
        for row in rows
    )


@cache
def _any() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{m.pattern.pattern})" for m in messages()))


def explained(exception: str) -> KnownMessage | None:
    """Return the known message that explains an exception, which may be a whole stack trace; None if there is none."""
    return first_of(exception.splitlines())


def first_of(lines: Iterable[str]) -> KnownMessage | None:
    """Return the first message of the table that matches one of the lines."""
    # Most lines of a stack trace match nothing. One search over all patterns finds that out.
    candidates = [line for each in lines if _any().search(line := each[:_LINE_MAX])]
    if not candidates:
        return None
    return next((m for m in messages() if any(m.pattern.search(line) for line in candidates)), None)


def transaction_timeout_ms(text: str) -> int | None:
    """Return the timeout of transactions that a message of the sink names; None if it names none."""
    match = _TIMEOUT.search(text[: 100 * _LINE_MAX])
    return None if match is None else int(match[1])
