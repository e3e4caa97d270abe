"""Shows through which channels a query is read, which values of a batch each of them gave, and where they disagree."""

from __future__ import annotations

from collections.abc import Sequence

from dash import html
from dash.development.base_component import Component

from backend.contracts.api import JobDetailOut
from backend.contracts.channels import BatchChannelOut, ChannelOut, DisagreementOut
from backend.contracts.micro_batches import MicroBatchOut
from backend.domain.channel import Channel
from dashboard.components import cards, status
from dashboard.figures import micro_batch
from dashboard.palette import Tone

_NONE = "reported the batch too; nothing of it is shown"
_SHOWN_MAX = 10
_PHASES = {phase.value: words for phase, words in micro_batch.WORDS.items()}
_TITLE = "Channels"
_HINT = "several targets report this query; it is one job, and each batch is one row"


def read_from(channels: Sequence[ChannelOut]) -> list[Component | str]:
    """Build the parts of the source line that name the channels of a job, each with the age of its newest report."""
    if not channels:
        return []
    parts: list[Component | str] = ["Read from: "]
    for number, channel in enumerate(channels):
        is_alarming = channel.is_speaking and channel.state.value != "ended"
        parts += [", "] if number else []
        parts.append(cards.age(_named(channel), channel.heard_at, is_alarming=is_alarming))
    return parts


def of_job(job: JobDetailOut) -> Component | None:
    """Build the card of a job with several channels; return None if there is only one."""
    if len(job.channels) < 2:
        return None
    heads = ("Channel", "Says", "Heard")
    body = [
        html.Tr(
            [
                html.Td(_named(channel), className="channel"),
                html.Td(_state(channel)),
                html.Td(cards.age("", channel.heard_at, is_alarming=channel.is_speaking)),
            ]
        )
        for channel in job.channels
    ]
    found = [d for batch in job.batches for d in batch.disagreements]
    return cards.card(_TITLE, [_table(heads, body), *_disagreements(found)], hint=_HINT)


def of_batch(batch: MicroBatchOut) -> Component | None:
    """Build the card of a batch that several channels reported; return None if only one did."""
    if not batch.channels:
        return None
    body = [
        html.Tr([html.Td(_named(channel), className="channel"), html.Td(in_words(channel.values) or _NONE)])
        for channel in batch.channels
    ]
    return cards.card(
        _TITLE, [_table(("Channel", "Values that are shown"), body), *_disagreements(batch.disagreements)]
    )


def in_words(names: Sequence[str]) -> str:
    """Return the names of values, those of one subject together and the phases in the words of their chart.

    ``status, phases (plan, run the query), state (rows, stores)`` is short enough to be read.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        subject, rest = _subject_of(name)
        groups.setdefault(subject, []).extend([rest] if rest else [])
    return ", ".join(f"{subject} ({', '.join(parts)})" if parts else subject for subject, parts in groups.items())


def _subject_of(name: str) -> tuple[str, str]:
    first, _, rest = name.partition(" ")
    if first == "phase":
        return "phases", _PHASES.get(rest, rest)
    if first == "state":
        return "state", rest
    number, _, field = rest.partition(" ")
    return (f"source {number}", field) if first == "source" and field else (name, "")


def _named(channel: ChannelOut | BatchChannelOut) -> str:
    """Return the kind of a channel and the name of its target. That of a listener is the deployment."""
    if channel.channel is Channel.LISTENER or channel.target_name is None:
        return str(channel.channel)
    return f"{channel.channel} {channel.target_name}"


def _state(channel: ChannelOut) -> str:
    word = "removed or paused" if not channel.is_watched else channel.state.value
    return f"{word} (this one decides the state that the job shows)" if channel.is_speaking else word


def _table(heads: Sequence[str], body: Sequence[Component]) -> Component:
    table = html.Table(
        [html.Thead(html.Tr([html.Th(head) for head in heads])), html.Tbody(body)], className="plain-table"
    )
    return html.Div(table, className="table-scroll")


def _disagreements(found: Sequence[DisagreementOut]) -> list[Component]:
    shown = [html.Li([status.badge("disagree", "warning", Tone.WARN), " ", d.sentence]) for d in found[-_SHOWN_MAX:]]
    if not shown:
        return []
    left_out = len(found) - len(shown)
    more = [html.P(f"and {left_out} more in older batches", className="hint")] if left_out else []
    return [
        html.P("The channels report different values; the first one is shown.", className="spaced"),
        html.Ul(shown),
        *more,
    ]
