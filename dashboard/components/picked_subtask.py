"""Shows the subtask that the viewer picked in the phase chart: its numbers, and its host and ids, ready to copy."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from backend.contracts.api import CheckpointDetailOut, JobDetailOut, SubtaskPhasesOut
from backend.domain.verdict import Basis
from dashboard import text
from dashboard.components import cards, inspection, status


def panel(detail: CheckpointDetailOut, job: JobDetailOut, picked: str | None) -> list[Component]:
    """Build the numbers and ids of the picked subtask.

    Without a valid pick, build a hint that explains how to pick one.
    """
    vertex_id, _, index = (picked or "").rpartition(":")
    vertex = next((v for v in detail.vertices if v.vertex_id == vertex_id), None)
    subtask = next((s for s in vertex.subtasks if str(s.subtask) == index), None) if vertex else None
    if vertex is None or subtask is None:
        words = "Click a bar to see the numbers, host and ids of its subtask. The keys < and > go to the neighbours."
        return [html.Span(words, className="hint")]
    placed = next((v for v in job.vertices if v.id == vertex_id), None)
    manager = _at(placed.task_managers, subtask.subtask) if placed else None
    host = subtask.host or (_at(placed.hosts, subtask.subtask) if placed else None)
    can_read = detail.capabilities.can_dump_threads or detail.capabilities.can_sample_stacks
    return [
        html.B(f"{text.short(vertex.vertex, 40)} subtask {subtask.subtask}"),
        *_numbers(subtask),
        _copy("vertex id", vertex.vertex_id),
        _copy("host", host),
        _copy("TaskManager", manager),
        *([inspection.buttons(detail.capabilities, vertex_id, subtask.subtask, place="picked")] if can_read else []),
    ]


def _numbers(s: SubtaskPhasesOut) -> list[Component]:
    def one(word: str, value: int | None, basis: Basis) -> Component:
        return html.Span([f"{word} ", html.B(text.duration(value)), " ", status.basis(basis)])

    if s.has_finished:
        return [html.Span("had finished before the checkpoint, so it took no part")]
    numbers = [one("first barrier", s.first_barrier_ms, s.first_barrier_basis or Basis.MEASURED)]
    if s.first_barrier_resolution_ms is not None:
        numbers.append(html.Span(f"± {text.duration(s.first_barrier_resolution_ms)}", className="hint"))
    return [
        *numbers,
        one("alignment", s.alignment_duration_ms, Basis.MEASURED),
        one("sync", s.sync_duration_ms, Basis.MEASURED),
        one("async", s.async_duration_ms, Basis.MEASURED),
        one("ack", s.ack_ms, Basis.MEASURED),
        html.Span(["persisted ", html.B(text.size(s.persisted_bytes))]),
    ]


def _at(values: list[str | None], index: int) -> str | None:
    return values[index] if index < len(values) else None


def _copy(word: str, value: str | None) -> Component:
    if not value:
        return html.Span([f"{word} ", html.Span(text.MISSING, title="not reported")], className="hint")
    return html.Span(
        [
            html.Span(f"{word} ", className="hint"),
            html.Code(text.short(value, 36)),
            " ",
            cards.copy_button("Copy", value, label=f"copy {word}"),
        ]
    )
