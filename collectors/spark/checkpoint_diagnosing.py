"""Implements ``barrierscope diagnose --spark-checkpoint``: what the checkpoint folders of Spark queries prove."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import orjson

from backend.contracts.advice_text import escaped
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.fail_on import FailOn
from backend.domain.text import capitalised, printable
from collectors.diagnosis_print import DiagnosisFormat
from collectors.finishing import EXIT_OK, Met, Outcome, with_members
from collectors.spark.checkpoint_findings import Finding, FolderFindings, Level, findings_of, shared_queries
from collectors.spark.checkpoint_folder import read_folder
from collectors.wrapping import wrapped


def run(
    folders: Sequence[str], *, job: str | None, output_format: str, fail_on: FailOn | None = None, is_alone: bool = True
) -> int:
    """Print what the folders prove. Return 0, or the code of ``--fail-on``.

    ``is_alone`` is False if the command line names a target or files too.

    Raises:
        InvalidInputError: something else is named too, or a folder is no checkpoint folder of a streaming query.
    """
    if not is_alone or job is not None:
        problem = FieldProblem(
            "--spark-checkpoint",
            "checkpoint folders are read alone",
            "neither a URL nor --log, --event-log or --job with them",
        )
        raise InvalidInputError([problem], what="option")
    try:
        wanted = DiagnosisFormat(output_format)
    except ValueError:
        problem = FieldProblem("--format", f"{output_format!r} is not a valid value", ", ".join(DiagnosisFormat))
        raise InvalidInputError([problem], what="option") from None
    now = datetime.fromtimestamp(time.time(), UTC)
    read = [read_folder(name) for name in dict.fromkeys(folders)]
    found = [findings_of(folder, now=now) for folder in read]
    shared = shared_queries(read)
    outcome = None if fail_on is None else outcome_of(found, shared, fail_on)
    text = printed(found, shared, wanted)
    sys.stdout.write(with_members(text, {}, outcome) if wanted is DiagnosisFormat.JSON else text)
    if outcome is None:
        return EXIT_OK
    outcome.complain()
    return outcome.exit_code


def outcome_of(found: Sequence[FolderFindings], shared: Sequence[Finding], fail_on: FailOn) -> Outcome:
    """Judge the folders by the condition of ``--fail-on``.

    ``failing``: Spark refuses to start the query. ``slow`` and ``advice``: there is any other trouble too.
    """
    levels = {Level.BLOCKS} if fail_on is FailOn.FAILING else {Level.BLOCKS, Level.TROUBLE}
    met = [
        Met(folder.path, next(one.text for one in folder.findings if one.level in levels))
        for folder in found
        if any(one.level in levels for one in folder.findings)
    ]
    met += [Met("", one.text) for one in shared if one.level in levels]
    return Outcome(fail_on, tuple(met))


def printed(found: Sequence[FolderFindings], shared: Sequence[Finding], output_format: DiagnosisFormat) -> str:
    """Return the whole output. It ends with a line break."""
    match output_format:
        case DiagnosisFormat.JSON:
            document = {"spark_checkpoints": [asdict(one) for one in found], "shared": [asdict(one) for one in shared]}
            return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"
        case DiagnosisFormat.MARKDOWN:
            return "\n".join(_markdown(found, shared)) + "\n"
        case DiagnosisFormat.TEXT:
            return "\n".join(_text(found, shared)) + "\n"


def _text(found: Sequence[FolderFindings], shared: Sequence[Finding]) -> Iterator[str]:
    for number, folder in enumerate(found):
        if number:
            yield ""
        yield printable(folder.path)
        yield from wrapped(f"{_query(folder)}. {_sentence(folder.summary)}.", "  ")
        for one in folder.findings:
            yield from wrapped(one.text, "  * ", "    ")
            if one.cure:
                yield from wrapped(f"cure: {one.cure}", "    ", "      ")
        yield "  The folder shows:"
        wide = max(len(fact.name) for fact in folder.facts)
        for fact in folder.facts:
            basis = "" if fact.basis == "measured" else f" ({fact.basis})"
            lead = f"    {printable(fact.name):{wide}}  "
            yield from wrapped(f"{fact.text}{basis}", lead, " " * len(lead))
        yield "  The folder does not show:"
        for text in folder.missing[:-1]:
            yield from wrapped(text, "  - ", "    ")
        yield from wrapped(f"{_sentence(folder.missing[-1])}.", "  ")
    for one in shared:
        yield from ("", *wrapped(f"{_sentence(one.text)}.", "", "  "), *wrapped(f"cure: {one.cure}", "  ", "    "))


def _markdown(found: Sequence[FolderFindings], shared: Sequence[Finding]) -> Iterator[str]:
    for folder in found:
        yield from (
            f"### {_safe(folder.path)}",
            "",
            f"{_safe(_query(folder))}. {_safe(_sentence(folder.summary))}.",
            "",
        )
        for one in folder.findings:
            yield f"- {_safe(one.text)}"
            if one.cure:
                yield f"  - cure: {_safe(one.cure)}"
        yield from ("", "| the folder shows | | |", "| --- | --- | --- |")
        for fact in folder.facts:
            yield f"| {_safe(fact.name)} | {_safe(fact.text)} | {fact.basis} |"
        yield from ("", "The folder does not show:", "", *(f"- {_safe(text)}" for text in folder.missing), "")
    for one in shared:
        yield from (f"- {_safe(one.text)}", f"  - cure: {_safe(one.cure)}")


def _query(folder: FolderFindings) -> str:
    return "A query without an id" if folder.query_id is None else f"Query {folder.query_id}"


def _sentence(text: str) -> str:
    return capitalised(text)


def _safe(text: str) -> str:
    return escaped(printable(text))
