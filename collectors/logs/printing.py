"""Prints what a log tells, as text, JSON or markdown.

Names and exceptions come from foreign programs, so control characters are removed and markdown is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from backend.analysis.words import sentences as say
from backend.contracts.advice_text import escaped
from backend.domain.text import printable
from collectors.logs.findings import Finding, JobFindings, clock, jobs_of, other_messages, store_errors
from collectors.logs.story import Story
from collectors.wrapping import wrapped


@dataclass(frozen=True, slots=True)
class LogAnswer:
    """What was read, and what it tells."""

    story: Story
    file_count: int
    byte_count: int
    jobs: tuple[JobFindings, ...]
    stores: tuple[Finding, ...]
    others: tuple[Finding, ...]

    @classmethod
    def of(cls, story: Story, *, file_count: int, byte_count: int, job: str | None) -> LogAnswer:
        """Return the answer on one job or, if ``job`` is None, on all."""
        return cls(story, file_count, byte_count, jobs_of(story, job), store_errors(story), other_messages(story))


def as_text(answer: LogAnswer) -> str:
    """Return the answer in lines of at most 100 columns."""
    lines = [*wrapped(_headline(answer))]
    for job in answer.jobs:
        lines += ["", *wrapped(job.name), *wrapped(job.summary, "  ")]
        for finding in job.findings:
            lines += _finding(finding)
        if job.missing:
            lines += ["  The log does not show:"]
            lines += [line for text in job.missing for line in wrapped(text, "  - ", "    ")]
    for title, findings in _sections(answer):
        lines += ["", title, *(line for finding in findings for line in _finding(finding))]
    return "\n".join(lines) + "\n"


def _sections(answer: LogAnswer) -> Iterator[tuple[str, Sequence[Finding]]]:
    if answer.stores:
        yield "Errors of stores, disks and credentials, in all lines", answer.stores
    if answer.others:
        yield "Other known messages, in all lines", answer.others


def _headline(answer: LogAnswer) -> str:
    story = answer.story
    versions = f"Flink {say.listed(story.versions)}, " if story.versions else ""
    files = f"{say.count(answer.file_count)} file{'' if answer.file_count == 1 else 's'}"
    span = "" if story.first_at is None or story.last_at is None else (
        f", {clock(story.first_at)} to {clock(story.last_at)}{_zone(story)}"
    )  # fmt: skip
    broken = story.unreadable_count
    unread = f"; {say.count(broken)} broken line{'' if broken == 1 else 's'} left out" if broken else ""
    return f"{versions}{files} of logs, {say.size(answer.byte_count)}{span}{unread}"


def _zone(story: Story) -> str:
    offset = story.offset
    if offset is None:
        return ""
    minutes = round(offset.total_seconds() / 60)
    sign = "-" if minutes < 0 else "+"
    return f" (UTC{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02})" if minutes else " (UTC)"


def _finding(finding: Finding) -> list[str]:
    lines = wrapped(finding.text, "  * ", "    ")
    for label, text in _parts(finding):
        lines += wrapped(f"{label}{text}", "    ", "      ")
    return lines


def _parts(finding: Finding) -> Iterator[tuple[str, str]]:
    yield from (("", text) for text in finding.details)
    if finding.cure:
        yield "cure: ", finding.cure
    if finding.vain:
        yield "does not help: ", finding.vain
    if finding.source:
        yield "source: ", finding.source


def as_document(answer: LogAnswer) -> dict[str, Any]:
    """Return the answer as a JSON object."""
    story = answer.story
    offset = story.offset
    return {
        "files": answer.file_count,
        "bytes": answer.byte_count,
        "versions": story.versions,
        "first_at": story.first_at,
        "last_at": story.last_at,
        "utc_offset_s": None if offset is None else int(offset.total_seconds()),
        "broken_lines": story.unreadable_count,
        "settings": story.settings,
        "jobs": [asdict(job) for job in answer.jobs],
        "store_errors": [asdict(f) for f in answer.stores],
        "other_messages": [asdict(f) for f in answer.others],
    }


def as_json(answer: LogAnswer) -> str:
    """Return ``{"log": {...}}``."""
    return orjson.dumps({"log": as_document(answer)}, option=orjson.OPT_INDENT_2).decode() + "\n"


def as_markdown(answer: LogAnswer) -> str:
    """Return markdown sections, to paste into a ticket."""
    lines = ["## What the log shows", "", f"{escaped(printable(_headline(answer)))}.", ""]
    for job in answer.jobs:
        lines += [f"### {escaped(printable(job.name))}", "", f"{escaped(printable(job.summary))}.", ""]
        lines += [line for finding in job.findings for line in _finding_markdown(finding)]
        if job.missing:
            lines += ["", "The log does not show:", "", *(f"- {escaped(printable(text))}" for text in job.missing)]
        lines.append("")
    for title, findings in _sections(answer):
        lines += [f"### {title}", "", *(line for f in findings for line in _finding_markdown(f)), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _finding_markdown(finding: Finding) -> list[str]:
    parts = [f"  - {label}{escaped(printable(text))}" for label, text in _parts(finding)]
    return [f"- {escaped(printable(finding.text))}", *parts]
