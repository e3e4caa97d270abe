"""``barrierscope advise JOB``: prints the recommendations for a job, through the running API."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from backend.cli.dry_runs import lines_of
from backend.cli.options import ReportFormat, say
from backend.cli.targets import Api, Client
from backend.domain.engines import SettingsFormat
from backend.domain.errors import FieldProblem, InvalidInputError

if TYPE_CHECKING:
    from backend.contracts.advice import CardOut, DryRunOut, JobAdviceOut

_WIDTH = 98


def advise(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name or id of the job.")],
    api: Api = None,
    export: Annotated[
        SettingsFormat | None,
        typer.Option(
            "--export", help="Print only the settings that open advice changes, in a form to copy or to pipe."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print what applying each open card would send, and what refuses it."),
    ] = False,
    output_format: Annotated[ReportFormat, typer.Option("--format", help="text, json or markdown")] = ReportFormat.TEXT,
) -> None:
    """Print the recommendations for a job, their predicted effects, and the results of earlier changes."""
    from backend.contracts.advice import DryRunOut, JobAdviceOut

    if dry_run and export is not None:
        problem = FieldProblem("--export", "it cannot be combined with --dry-run", "one of the two")
        raise InvalidInputError([problem], what="option")
    if dry_run and output_format is ReportFormat.MARKDOWN:
        problem = FieldProblem("--format", "a dry run has no markdown", "text, json")
        raise InvalidInputError([problem], what="option")
    with Client(api) as client:
        root = f"/api/v1/jobs/{client.job_id(job)}"
        answer = client.get(f"{root}/advice", JobAdviceOut)
        open_cards = [card for card in answer.cards if card.state.is_open] if dry_run else []
        tried = [client.get(f"{root}/recommendations/{card.id}/dry-run", DryRunOut) for card in open_cards]
    if dry_run:
        if output_format is ReportFormat.JSON:
            typer.echo("[" + ",".join(one.model_dump_json() for one in tried) + "]")
        else:
            say(*_tried(open_cards, tried))
    elif export is not None:
        typer.echo(_exported(answer, export))
    elif output_format is ReportFormat.JSON:
        typer.echo(answer.model_dump_json(indent=2))
    else:
        lines = _markdown(answer) if output_format is ReportFormat.MARKDOWN else _text(answer)
        say(*"\n".join(lines).split("\n"))


def _tried(open_cards: Sequence[CardOut], tried: Sequence[DryRunOut]) -> list[str]:
    if not tried:
        return ["no advice is open, so nothing would be sent"]
    return [
        line
        for card, one in zip(open_cards, tried, strict=True)
        for line in lines_of(one, card.recommendation.headline)
    ]


def _exported(answer: JobAdviceOut, wanted: SettingsFormat) -> str:
    exports = [e for card in answer.cards if card.state.is_open for e in card.exports]
    texts = [e.text for e in exports if e.format is wanted]
    if len(texts) == 1:
        return texts[0]
    if texts:
        # The texts of two cards may not be valid together, such as two documents with the same key.
        problem = FieldProblem("--export", f"{answer.job} has {len(texts)} open cards", "copy one from the page Advice")
    else:
        known = ", ".join(dict.fromkeys(e.format.value for e in exports)) or "none, because no advice is open"
        problem = FieldProblem("--export", f"no open advice for {answer.job} has the form {wanted.value}", known)
    raise InvalidInputError([problem], what="option")


def _text(answer: JobAdviceOut) -> list[str]:
    from backend.contracts import advice_text
    from backend.contracts.freshness import stale_line

    lines = [f"{answer.job} ({answer.job_id}), {answer.considered_count} checkpoints considered"]
    if (old := stale_line(answer.freshness, answer.as_of)) is not None:
        lines.append(old)
    lines += [] if answer.chosen_by is None else textwrap.wrap(answer.chosen_by.text, _WIDTH)
    lines.append("")
    for card in answer.cards:
        lines.append(f"{card.id}  {advice_text.state_words(card)}")
        if card.state.is_open:
            lines += advice_text.as_text([card.recommendation], [], width=_WIDTH)
        else:
            lines += [f"  {line}" for line in _outcome(card)]
            lines.append("")
    return lines + advice_text.as_text([], answer.silences, width=_WIDTH)


def _markdown(answer: JobAdviceOut) -> list[str]:
    from backend.contracts import advice_text
    from backend.contracts.freshness import stale_line

    lines = [f"### Advice on {advice_text.escaped(answer.job)}", ""]
    if (old := stale_line(answer.freshness, answer.as_of)) is not None:
        lines += [advice_text.escaped(old), ""]
    for card in answer.cards:
        state = advice_text.escaped(advice_text.state_words(card))
        if card.state.is_open:
            lines += [f"Card `{card.id}` is {state}", ""]
            lines += advice_text.as_markdown([card.recommendation], [])
        else:
            lines += [
                f"#### {advice_text.escaped(card.recommendation.headline)}",
                "",
                f"Card `{card.id}` is {state}",
                "",
            ]
            lines += [f"- {advice_text.escaped(line)}" for line in _outcome(card)[1:]]
            lines.append("")
    return lines + advice_text.as_markdown([], answer.silences)


def _outcome(card: CardOut) -> list[str]:
    from backend.contracts.advice_text import measured_words, metric_words

    return [
        card.recommendation.headline,
        *(f"{metric_words(m.metric)}: {measured_words(m)}" for m in card.measured),
    ]
