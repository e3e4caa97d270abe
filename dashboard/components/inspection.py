"""Shows what was read from the process of a running subtask: the buttons that request it, and the threads."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from backend.contracts.engines import CapabilitiesOut
from backend.contracts.inspection import ThreadDumpOut, ThreadOut
from dashboard import text
from dashboard.components import cards, status
from dashboard.components.attributes import attrs
from dashboard.palette import Tone
from dashboard.stacks import Owner, method_of, owner_of, short

_BUTTON = "inspect"
THREADS, STACKS = "threads", "stacks"


def buttons(engine: CapabilitiesOut, vertex: str | None, subtask: int | None, *, place: str) -> Component:
    """Build the buttons that read the threads and the sampled stacks of a subtask.

    ``place`` keeps the ids apart if a page has the buttons twice. A button that can do nothing is inactive, and the
    reason stands next to it.
    """
    reasons = [_reason(engine, vertex, subtask, is_offered=o) for o in _offered(engine)]
    rows = ((THREADS, "stack", "Thread dump"), (STACKS, "flame", "Flame graph"))
    children: list[Component] = [
        html.Button(
            [status.icon(icon), html.Span(word)],
            id={"type": _BUTTON, "what": what, "vertex": vertex or "", "subtask": subtask or 0, "place": place},
            type="button",
            className="button",
            disabled=reason is not None,
            title=reason or f"{word.lower()} of subtask {subtask}, read from the engine now",
        )
        for (what, icon, word), reason in zip(rows, reasons, strict=True)
    ]
    told = dict.fromkeys(r for r in reasons if r is not None)
    if told:
        children.append(html.Span("; ".join(told), className="hint"))
    return html.Div(children, className="inspect-buttons")


def _offered(engine: CapabilitiesOut) -> tuple[bool, bool]:
    return engine.can_dump_threads, engine.can_sample_stacks


def _reason(engine: CapabilitiesOut, vertex: str | None, subtask: int | None, *, is_offered: bool) -> str | None:
    if not any(_offered(engine)):
        return f"{engine.name} offers no thread dumps and no flame graphs"
    if not is_offered:
        return "this version of the engine offers no flame graphs of subtasks"
    if vertex is None or subtask is None:
        return "the verdict names no subtask; pick one in the chart of phases"
    return None


def threads_card(dump: ThreadDumpOut, *, has_all: bool) -> Component:
    """Build the card of a thread dump: each thread with its state and its stack, and buttons to copy them."""
    own = [t for t in dump.threads if t.is_of_subtask]
    everything = "\n\n".join(t.stack for t in dump.threads)
    tools = [
        cards.copy_button("Copy", everything, label="Copy all shown threads"),
        html.Button(
            "Only this subtask" if has_all else f"All {dump.thread_count} threads",
            id="cp-threads-all",
            className="button",
            title="show the other threads of the TaskManager too",
            **attrs({"aria-pressed": "true" if has_all else "false"}),
        ),
    ]
    where = " on ".join(p for p in (f"TaskManager {dump.task_manager}", dump.host) if p)
    told = f"{text.short(dump.vertex, 40)} subtask {dump.subtask}, now"
    body: list[Component] = [
        html.P([f"{where}, ", cards.age("read", dump.as_of, is_alarming=False)], className="hint"),
        *(_thread(t, is_open=t.is_of_subtask and t is own[0]) for t in dump.threads),
    ]
    if not dump.threads:
        body.append(
            html.P(
                f"None of the {dump.thread_count} threads of the TaskManager has the name of this subtask.",
                className="empty-state",
            )
        )
    return cards.card("Threads", body, tools=tools, hint=told)


def _thread(thread: ThreadOut, *, is_open: bool) -> Component:
    lines = thread.stack.split("\n")
    own = next((m for line in lines if (m := method_of(line)) and owner_of(m) is Owner.JOB), None)
    head: list[Component] = [html.B(text.short(thread.name, 90), title=thread.name)]
    if (state := _state(lines[0])) is not None:
        head.append(status.badge(state, "play" if state == "runnable" else "clock", Tone.QUIET))
    if own is not None:
        head.append(html.Span(["in ", html.Code(short(own))], title=own))
    stack = html.Pre([_line(line) for line in lines], className="thread-stack", tabIndex=0)
    copying = cards.copy_button("Copy", thread.stack, label=f"Copy the stack of {thread.name}")
    return html.Details(
        [html.Summary(head), html.Div([copying, stack], className="thread-stack")], open=is_open, className="thread"
    )


def _state(line: str) -> str | None:
    """Return the state in the first line, ``"name" Id=79 TIMED_WAITING on ...``; None if it is not there."""
    words = line.rpartition('"')[2].split()
    state = next((w for w in words[1:2] if w.isupper()), None)
    return None if state is None else state.replace("_", " ").lower()


def _line(line: str) -> Component:
    method = method_of(line)
    owner = None if method is None else owner_of(method)
    return html.Span(f"{line}\n", className="of-job" if owner is Owner.JOB else None)
