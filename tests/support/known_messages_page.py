"""Writes ``docs/reference/known-messages.md`` from the table of known messages.

    python -m tests.support.known_messages_page > docs/reference/known-messages.md

The page has a message as it is printed (a line of the tests of the table), because that is what people search for.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping

from backend.domain import known_messages

_WIDTH = 120
_SHOWN = 300
_INTRODUCTION = """\
# Known messages

Use this page to look up an exception of Flink, Kafka, Spark, a store or a table format: what it means for a job and its
checkpoints, what cures it and what does not.

A [verdict](../diagnosis.md#known-messages) compares the exceptions of restarts with these messages, and `barrierscope
diagnose --log` those of all lines. If an exception has several of them, the first one on this page
explains it. The page is made from `backend/domain/known_messages.toml`."""


def page(lines: Mapping[str, str]) -> str:
    """Return the page. ``lines`` has a line with each message, as it is printed."""
    return "\n".join([_INTRODUCTION, *_sections(lines)]) + "\n"


def _sections(lines: Mapping[str, str]) -> Iterator[str]:
    for message in known_messages.messages():
        shown = " ".join(re.sub(r"^Caused by: ", "", lines[message.id]).split())
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
        yield f"\n## {message.id}\n"
        yield f"```text\n{textwrap.fill(shown, _WIDTH, break_long_words=False, break_on_hyphens=False)}\n```\n"
        yield from _wrapped(f"Means: {message.means}.")
        yield from _wrapped(f"Cure: {message.cure}.")
        if message.vain:
            yield from _wrapped(f"Does not help: {message.vain}.")
        yield from _wrapped(f"Cause `{message.cause.value}`; {message.versions}. Source: {message.source}.")


def _wrapped(text: str) -> list[str]:
    lines = textwrap.wrap(text, _WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    return [f"{'- ' if i == 0 else '  '}{line}" for i, line in enumerate(lines)]


if __name__ == "__main__":
    from tests.unit.backend_domain.test_known_messages import LINES

    sys.stdout.write(page(LINES))
