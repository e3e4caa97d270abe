"""Builds the panel of the checkpoint in progress (V8): its speed, its predicted finish, and what it waits for.

Both the page of a job and the page of an open checkpoint have the panel. The store ``<page>-progress-target``
contains the checkpoint that the panel shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from dash import dcc, html
from dash.development.base_component import Component

from backend.contracts.checkpoint_actions import ActionOut
from backend.contracts.progress import PendingOut, ProgressOut
from backend.domain.checkpoint_action import CheckpointAction
from backend.domain.progress import Outlook
from backend.domain.text import capitalised
from dashboard import routes, text
from dashboard.components import advice_cards, cards, confirming, status
from dashboard.components.attributes import attrs
from dashboard.palette import Tone

_PENDING_MAX = 8
ACTION_WORDS = {
    CheckpointAction.EXTEND_TIMEOUT: "Extend the timeout",
    CheckpointAction.SWITCH_TO_UNALIGNED: "Switch to unaligned",
    CheckpointAction.SAVEPOINT: "Take a savepoint",
    CheckpointAction.ABORT: "Abort",
    CheckpointAction.STOP: "Stop with savepoint",
    CheckpointAction.START: "Start from this checkpoint",
}
_ACTION_ICONS = {
    CheckpointAction.EXTEND_TIMEOUT: "clock",
    CheckpointAction.SWITCH_TO_UNALIGNED: "swap",
    CheckpointAction.SAVEPOINT: "store",
    CheckpointAction.ABORT: "cross",
    CheckpointAction.STOP: "store",
    CheckpointAction.START: "play",
}
_OUTLOOKS = {
    Outlook.FINISHES: ("clock", Tone.INFO),
    Outlook.TIMES_OUT: ("warning", Tone.WARN),
    Outlook.UNKNOWN: ("question", Tone.QUIET),
}


def panel(page: str) -> html.Div:
    """Build the panel without data. Its ids begin with ``page``, because each page has its own panel."""
    actions = [
        html.Fieldset(
            id=f"{page}-progress-actions",
            className="bare progress-actions",
            **attrs({"aria-label": "Actions on the checkpoint"}),
        ),
        html.Div(id=f"{page}-action-message", **attrs({"aria-live": "polite"})),
    ]
    head = [
        html.Div(id=f"{page}-progress-message"),
        html.Div(id=f"{page}-progress-head", className="progress-head"),
    ]
    # The part scrolls, so the keyboard must reach it.
    waiting = html.Div(
        id=f"{page}-progress-waiting",
        className="progress-waiting",
        tabIndex=0,
        role="region",
        **attrs({"aria-label": "subtasks that have not acknowledged"}),
    )
    # The newest checkpoint of a job has often ended, and then there are no actions. At the end of the card, their place
    # is no gap.
    is_of_job = page == "job"
    return html.Div(
        [
            cards.chart(
                f"{page}-acks",
                "Newest checkpoint" if is_of_job else "In progress",
                before=html.Div(head if is_of_job else [*head, *actions]),
                after=html.Div([waiting, *actions], className="progress-end") if is_of_job else waiting,
                height_px=210,
            ),
            confirming.dialog(f"{page}-action", "Act on the checkpoint", "Confirm", icon="check", has_name=True),
            dcc.Store(id=f"{page}-progress-target"),
            dcc.Store(id=f"{page}-progress-digest"),
        ],
        id=f"{page}-progress-panel",
    )


def head(progress: ProgressOut, *, is_last: bool = False, phases: Sequence[Sequence[str]] = ()) -> list[Component]:
    """Build the head of the panel: the checkpoint, the judgement with its rule, and the time left.

    A judgement states whether the checkpoint is progressing, slow or stuck. If ``is_last``, no other checkpoint
    follows, so the panel need not have room for the head of a checkpoint in progress. ``phases`` are the largest
    values of an ended checkpoint, which stand where a checkpoint in progress has its prediction.
    """
    is_over = progress.status.is_terminal
    tone = status.JUDGEMENT_TONES[progress.judgement]
    href = routes.checkpoint(progress.job_id, progress.run_id, progress.checkpoint_id)
    acked = f"{progress.acknowledged} of {progress.total}"
    return [
        html.Div(
            [
                dcc.Link(f"Checkpoint {progress.checkpoint_id}", href=href, className="strong-link"),
                status.checkpoint_status(progress.status)
                if is_over
                else status.badge(progress.judgement, status.JUDGEMENT_ICONS[progress.judgement], tone),
            ],
            className="progress-title is-last" if is_last else "progress-title",
        ),
        cards.facts(
            [
                cards.fact("Acknowledged", acked),
                cards.fact("Took" if is_over else "So far", text.duration(progress.elapsed_ms)),
                _countdown(progress),
                *_expiry(progress),
                *([cards.fact(word, value) for word, value in phases] if is_over else [_unaligned(progress)]),
            ]
        ),
        *_finish(progress),
        # Of a checkpoint that has ended, the rule says no more than its status.
        *([] if is_over else [html.P(progress.judgement_rule, className="rule", title=progress.judgement_rule)]),
    ]


def actions(page: str, progress: ProgressOut) -> list[Component]:
    """Build a button for each action.

    An action that is not possible now has an inactive button, with the reason below it. Of a checkpoint that has ended,
    the job's page also has links to what is known about it.
    """
    links = _links(progress) if progress.status.is_terminal and page == "job" else []
    buttons = [*links, *(_button(page, a) for a in progress.actions)]
    if not buttons:
        return []
    reasons = [f"{ACTION_WORDS[a.action]} is not possible: {why(a)}." for a in progress.actions if not a.is_possible]
    return [
        html.Div(buttons, className="action-buttons"),
        *([html.P(" ".join(reasons), className="hint")] if reasons else []),
    ]


def why(action: ActionOut) -> str:
    """Return why an action is not possible, with the rule behind it if there is one."""
    return f"{action.reason}" if action.rule is None else f"{action.reason} ({action.rule})"


def _links(progress: ProgressOut) -> list[Component]:
    key = progress.job_id, progress.run_id, progress.checkpoint_id
    own = (progress.run_id, progress.checkpoint_id)
    hints = {
        "compare": "compare with the last healthy checkpoint before this one, or with another one",
        "lanes": "barriers between subtasks over time, and the cut",
    }
    return [
        cards.link_button("Phases", routes.checkpoint(*key), "straggler", hint="phases and barrier front"),
        cards.link_button("Compare", routes.comparison(progress.job_id, own), "compare", hint=hints["compare"]),
        cards.link_button("Space-time", routes.space_time(*key), "lanes", hint=hints["lanes"]),
    ]


def _button(page: str, action: ActionOut) -> Component:
    return html.Button(
        [status.icon(_ACTION_ICONS[action.action]), html.Span(ACTION_WORDS[action.action])],
        id={"type": f"{page}-act", "action": action.action.value},
        type="button",
        disabled=not action.is_possible,
        title=action.effect if action.is_possible else why(action),
        className="button",
    )


def question(job: str, progress: ProgressOut, action: ActionOut) -> list[Component]:
    """Build what the viewer confirms: the action, the job, the checkpoint and the settings that change."""
    what = html.P(
        [
            html.B(ACTION_WORDS[action.action]),
            f" (checkpoint {progress.checkpoint_id} of job ",
            html.B(job),
            ") now?",
        ]
    )
    changes = [advice_cards.changes_diff(action.changes)] if action.changes else []
    return [what, *changes, html.P(action.effect, className="hint")]


def _finish(progress: ProgressOut) -> list[Component]:
    """Build the sentence with the predicted finish of the checkpoint, or with the reason why there is none yet."""
    finish = progress.finish
    if finish is None:
        return _earlier(progress)
    icon, tone = _OUTLOOKS[finish.outlook]
    words = f"{capitalised(finish.words)}."
    mark = [] if finish.outlook is Outlook.UNKNOWN else [status.basis(finish.basis)]
    return [
        html.P([status.icon(icon), html.Span([words, " ", *mark])], className=f"finish tone-text-{tone}", title=words)
    ]


def _earlier(progress: ProgressOut) -> list[Component]:
    """Build the sentence that compares a checkpoint that has ended with earlier ones, whose curves the chart has."""
    ends = sorted(curve[-1].elapsed_ms for curve in progress.past_acks if curve)
    if not progress.status.is_terminal or not ends:
        return []
    whose = f"{len(ends)} earlier completed checkpoints" if len(ends) > 1 else "the completed checkpoint before it"
    low, high = text.duration(ends[0]), text.duration(ends[-1])
    when = low if low == high else f"{low} to {high}"
    words = f"The last acknowledgement of {whose} came {when} after the trigger."
    return [html.P([status.icon("clock"), html.Span(words)], className="finish tone-text-quiet")]


def _expiry(progress: ProgressOut) -> list[html.Div]:
    """Build the probability that the checkpoint reaches its timeout, beside when a plain rule would warn."""
    finish = progress.finish
    if finish is None or finish.expiry_ratio is None or finish.plain_rule_ms is None:
        return []
    hint = f"at this age; a rule by age alone warns after {text.duration(finish.plain_rule_ms)}"
    value = "< 1 %" if finish.expiry_ratio < 0.01 else text.percent(finish.expiry_ratio)
    return [cards.fact("Reaches its timeout", value, basis=finish.basis, hint=hint)]


def _unaligned(progress: ProgressOut) -> html.Div:
    label, found = "Unaligned now would persist", progress.unaligned_now
    if found is None:
        is_reported = progress.queued_bytes is not None
        why = "the queues in front of the barriers were not read" if is_reported else "no queued bytes are reported"
        return cards.fact(label, text.MISSING, hint=why)
    hint = f"{text.size(found.low)} to {text.size(found.high)}: the bytes queued in front of the barriers"
    if not found.high:
        hint = "no bytes are queued in front of the barriers"
    return cards.fact(label, text.size(found.value), basis=found.basis, hint=hint)


def _countdown(progress: ProgressOut) -> html.Div:
    if progress.status.is_terminal or progress.timeout_ms is None or progress.times_out_at is None:
        hint = "no timeout is configured" if progress.timeout_ms is None else "configured"
        return cards.fact("Timeout", text.duration(progress.timeout_ms), basis=None, hint=hint)
    left = html.Span(
        className="countdown fact-value",
        title="until the timeout",
        **attrs({"data-deadline": progress.times_out_at.isoformat()}),
    )
    return html.Div([html.Dt(f"Time left of {text.duration(progress.timeout_ms)}"), html.Dd(left)], className="fact")


def waiting(progress: ProgressOut) -> Component:
    """Build the table of the vertices that the checkpoint waits for, the most likely cause first."""
    if not progress.waiting_on:
        return html.P("Every subtask has acknowledged.", className="hint")
    title = "Never acknowledged" if progress.status.is_terminal else "Waiting on"
    head_row = html.Thead(
        html.Tr([html.Th(title), html.Th("Acked", className="right"), html.Th("Subtasks"), html.Th("Barrier")])
    )
    return html.Table([head_row, html.Tbody([_row(p) for p in progress.waiting_on])], className="plain-table waiting")


def _row(pending: PendingOut) -> html.Tr:
    hosts = sorted({h for h in pending.hosts if h})
    where = f"on {', '.join(hosts[:4])}" if hosts else "host not reported"
    return html.Tr(
        [
            html.Td(text.short(pending.vertex, 26), title=pending.vertex),
            html.Td(f"{pending.acknowledged}/{pending.total}", className="right number"),
            html.Td(text.subtasks(pending.pending, most=_PENDING_MAX), title=where, className="number"),
            html.Td(_barrier(pending)),
        ]
    )


def _barrier(pending: PendingOut) -> str:
    """Return what is known about the barrier at the subtasks that have not acknowledged."""
    firsts = [v for v in pending.first_barrier_ms if v is not None]
    aligning = [v for v in pending.aligning_ms if v is not None]
    parts = []
    if aligning:
        parts.append(f"{len(aligning)} aligning, up to {text.duration(max(aligning))}")
    if firsts:
        parts.append(
            f"first at {text.duration(min(firsts))}" + (f" to {text.duration(max(firsts))}" if len(firsts) > 1 else "")
        )
    unknown = len(pending.pending) - len(firsts)
    if unknown and not aligning:
        parts.append(f"{unknown} not reached, or not reported")
    return "; ".join(parts) or text.MISSING
