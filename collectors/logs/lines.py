"""Parses one line of a log: the time, the level, the text and the stack trace after it.

A line is in the pattern of Flink's default ``log4j.properties``,
``%d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %-60c %x - %m%n``, or in one like it, or it is a JSON object, as the JSON layouts of
log4j and logback write it. A container's runtime may have put its own prefix or JSON object around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson

from backend.domain.text import clean, clean_lines
from collectors.file_blocks import TRACE_BYTES, Hit

_TIME: Final = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
# Some configurations write no date.
_CLOCK: Final = re.compile(r"^\W{0,2}(\d\d):(\d\d):(\d\d)[.,](\d{3})\b")
NO_DATE: Final = datetime(1900, 1, 1)  # noqa: DTZ001 - it stands for an unknown date
"""The day of times that are written without a date."""
_LEVEL: Final = re.compile(r"\b(TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b")
_LEVEL_FIRST: Final = re.compile(rf"\W{{0,2}}{_LEVEL.pattern}")
_OF_TRACE: Final = re.compile(r"\s|(?:Caused by|Suppressed): |[\w.$]{1,300}(?:Exception|Error)\b")
# The time begins within so many characters, after the prefixes of container runtimes and shippers.
_HEAD_MAX: Final = 200
# What is put before every line: the container (docker compose, kubectl --prefix), the time (kubectl --timestamps), and
# with the time, the stream and whether the line is whole (the files of container runtimes, CRI).
_PREFIX: Final = re.compile(
    r"(?P<container>[\w.-]{1,100} {1,40}\| ?|\[pod/[^] ]{1,200}\] )?"
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?P<stream>(?:stdout|stderr) [FP] )?)?"
)
_OWN_TIME: Final = re.compile(r"\W{0,2}(?:\d{4}[-/]\d\d[-/]\d\d[ T])?\d\d:\d\d:\d\d")
_PREFIX_MAX: Final = 40
_SAME_HEAD: Final = 4
_TRACE_LINES_MAX: Final = 300
_MESSAGE_KEYS: Final = ("message", "msg", "log", "@message", "formattedMessage")
_TIME_KEYS: Final = ("@timestamp", "timestamp", "time", "ts", "timeMillis", "date")
_LEVEL_KEYS: Final = ("level", "log.level", "severity", "levelname")
_TRACE_KEYS: Final = ("stack_trace", "stackTrace", "error.stack_trace", "thrown", "exception", "error", "throwable")
_TEXT_KEYS: Final = ("extendedStackTrace", "stackTrace", "stacktrace", "stack_trace", "message")
_NESTED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a log. ``at`` is as written: without a zone if the log does not name one, else in UTC."""

    at: datetime
    level: str
    text: str
    trace: str = ""

    @property
    def is_problem(self) -> bool:
        """Whether the record is a warning or an error."""
        return self.level in ("WARN", "WARNING", "ERROR", "FATAL")


def record_of(hit: Hit) -> Record | None:
    """Return the record; None if the line is not the beginning of one."""
    line = clean(hit.line.decode("utf-8", "replace"), length_max=TRACE_BYTES)
    opening = _opening(line)
    if opening is not None:
        record = _of_json(line[opening:], hit, 0)
        if record is not None:
            return record
    length = _prefix_length(line)
    return _of_prefixed(line, length, hit) if length else _of_text(line, _trace(hit, None))


def _opening(line: str) -> int | None:
    """Return where the JSON object of the line begins; None if the line is none."""
    at = line.find("{", 0, _HEAD_MAX)
    return at if at >= 0 and line.rstrip().endswith("}") and '"' in line[at : at + 3] else None


def _prefix_length(line: str) -> int:
    """Return the length of what a container's runtime or a tool put before the line."""
    if line[10:11] == " " and line[:1].isdigit():
        # The pattern of Flink's default configuration.
        return 0
    match = _PREFIX.match(line)
    if match is None:
        return 0
    is_sure = match["container"] is not None or match["stream"] is not None
    # A time alone is that of the record, unless another time follows.
    return match.end() if is_sure or _OWN_TIME.match(line, match.end()) is not None else 0


def _of_prefixed(line: str, length: int, hit: Hit) -> Record | None:
    own = line[length:]
    is_begun = _begins_record(own) or _LEVEL_FIRST.match(own) is not None
    if not is_begun and _OF_TRACE.match(own) is not None:
        return None
    trace = _trace(hit, _without_prefix) if is_begun else ""
    record = _of_text(own, trace)
    if record is None or record.at.date() == NO_DATE.date():
        record = _of_text(line, trace) or record
    # Any other line may be of a stack trace. It is no problem of its own, since the record before it has it too.
    return record if record is None or is_begun else replace(record, level="")


def _of_text(line: str, trace: str) -> Record | None:
    times = _times(line[:_HEAD_MAX])
    if times is None:
        return None
    at, end = times
    level = _LEVEL.search(line, end, end + _HEAD_MAX)
    _, dash, text = line[end:].partition(" - ")
    return Record(at, "" if level is None else level[1], text if dash else line[end:].strip(), trace)


def _times(head: str) -> tuple[datetime, int] | None:
    """Return the last time at the beginning of the line, and its end: a time before it is of a shipper's prefix."""
    if head[10:11] == " " and head[23:24] == " ":
        # The pattern of Flink's default configuration.
        try:
            return datetime.fromisoformat(head[:23]), 23
        except ValueError:
            pass
    if (clock := _clock(head)) is not None:
        return clock
    last = None
    for found in _TIME.finditer(head):
        # A time further on belongs to the text.
        if found.start() - (0 if last is None else last.end()) > _PREFIX_MAX:
            break
        at = _instant(found)
        if at is None:
            continue
        last, result = found, (at, found.end())
    return None if last is None else result


def _clock(head: str) -> tuple[datetime, int] | None:
    """Return the time of a line that has no date, and its end."""
    match = _CLOCK.search(head)
    if match is None:
        return None
    hour, minute, second, ms = (int(match[i]) for i in range(1, 5))
    if hour > 23 or minute > 59 or second > 59:
        return None
    return NO_DATE.replace(hour=hour, minute=minute, second=second, microsecond=1_000 * ms), match.end()


def _instant(match: re.Match[str]) -> datetime | None:
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    fraction = (match[7] or "0")[:6].ljust(6, "0")
    try:
        at = datetime(year, month, day, hour, minute, second, int(fraction))  # noqa: DTZ001 - the log names no zone
        return at if match[8] is None else (at - _zone(match[8])).replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        # No calendar has the day, or it is not between the years 1 and 9999 in UTC.
        return None


def _zone(text: str) -> timedelta:
    """Return what a clock in this zone shows minus UTC: of ``Z``, ``+0200`` or ``+02:00``."""
    if text == "Z":
        return timedelta(0)
    digits = text[1:].replace(":", "")
    return (1 if text[0] == "+" else -1) * timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))


def _trace(hit: Hit, unwrap: Callable[[str], str | None] | None) -> str:
    """Return the lines that follow up to the next record, without the lines of code of the stack trace.

    ``unwrap`` returns a line as it was written to the container's output; None if it was not.
    """
    is_alike = hit.line[:_SAME_HEAD] == hit.block[hit.begin : hit.begin + _SAME_HEAD] and hit.line[:1].isdigit()
    if unwrap is None and is_alike:
        # The next line begins with the same year or hour.
        return ""
    kept: list[str] = []
    for raw in hit.lines_after(_TRACE_LINES_MAX):
        line: str | None = raw.decode("utf-8", "replace").rstrip("\r")
        if unwrap is not None and line:
            line = unwrap(line)
        if line is None or _begins_record(line):
            break
        if line.strip() and not line.lstrip().startswith(("at ", "... ")):
            kept.append(line)
    return clean_lines("\n".join(kept), length_max=TRACE_BYTES) if kept else ""


def _without_prefix(line: str) -> str | None:
    """Return the line without its prefix; None if it begins with a level, as a record does that has no other time."""
    match = _PREFIX.match(line)
    own = line if match is None else line[match.end() :]
    return own if _LEVEL_FIRST.match(own) is None else None


def _unwrapped(line: str) -> str | None:
    """Return the text of a container runtime's own JSON object; None if the line is not one."""
    opening = _opening(line)
    try:
        document = None if opening is None else orjson.loads(line[opening:])
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict) or _first(document, _LEVEL_KEYS) is not None:
        return None
    text = _first(document, _MESSAGE_KEYS)
    if not isinstance(text, str):
        return None
    return text.rstrip("\r\n")


def _begins_record(line: str) -> bool:
    has_time = _TIME.search(line[:60]) is not None or _CLOCK.search(line[:20]) is not None
    return line.startswith("{") or (has_time and _LEVEL.search(line[:_HEAD_MAX]) is not None)


def _of_json(line: str, hit: Hit, depth: int) -> Record | None:
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(document, dict) or depth >= _NESTED_MAX:
        return None
    text = _first(document, _MESSAGE_KEYS)
    if not isinstance(text, str):
        text = text.get("message") if isinstance(text, dict) else None
    if not isinstance(text, str):
        return None
    inner = clean(text.strip(), length_max=TRACE_BYTES)
    if inner.startswith("{") and (nested := _of_json(inner, hit, depth + 1)) is not None:
        return nested
    at = _json_time(document)
    if at is None or _first(document, _LEVEL_KEYS) is None:
        # A container's runtime put the line into its own object.
        return _of_text(inner, _trace(hit, _unwrapped))
    level = _first(document, _LEVEL_KEYS)
    return Record(at, str(level).upper(), inner, _json_trace(document))


def _first(document: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    for key in keys:
        if document.get(key) is not None:
            return document[key]
        outer, dot, inner = key.partition(".")
        if dot and isinstance(document.get(outer), dict) and document[outer].get(inner) is not None:
            return document[outer][inner]
    return None


def _json_time(document: Mapping[str, Any]) -> datetime | None:
    instant = document.get("instant")
    if isinstance(instant, dict) and isinstance(instant.get("epochSecond"), int):
        nanos = instant.get("nanoOfSecond")
        return _of_epoch_ms(1000 * instant["epochSecond"] + (nanos / 1e6 if isinstance(nanos, int) else 0))
    value = _first(document, _TIME_KEYS)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _of_epoch_ms(value if value > 1e11 else 1000 * value)
    match = _TIME.search(value) if isinstance(value, str) else None
    return None if match is None else _instant(match)


def _of_epoch_ms(ms: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _json_trace(document: Mapping[str, Any]) -> str:
    value = _first(document, _TRACE_KEYS)
    if isinstance(value, dict):
        value = next((v for key in _TEXT_KEYS if isinstance(v := value.get(key), str)), None)
    return _trace(Hit(b"", value.encode("utf-8", "replace")), None) if isinstance(value, str) else ""
