"""``barrierscope start``: starts a job in a running live runtime, also from a checkpoint that ``simulate`` saved.

The runtime checks everything again. The job file and the checkpoint are read here first, so that a wrong file is named
before anything is sent.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backend.cli import saved_checkpoints
from backend.cli.options import OutputFormat, job_file, job_spec, say
from backend.domain.errors import ApiRefusedError, ApiUnavailableError, FieldProblem, InvalidInputError

if TYPE_CHECKING:
    from backend.cli.answers import Answer, Answers
    from backend.runtime.snapshot.saved import RestoreOptions
    from backend.settings import Settings

_TIMEOUT_S = 60.0
_PLACE = "runtime:/"
"""The locations of checkpoints in the live runtime begin with this."""
_FIX = "start it with `barrierscope up` or `barrierscope runtime`, or pass its address with --runtime"


def start(
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="Job file (TOML), or name of a demo job; not needed with a location."),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Continue from a file of `simulate --save-checkpoint`, or from a location, runtime:/<job>/chk-7.",
        ),
    ] = None,
    allow_non_restored: Annotated[
        bool, typer.Option("--allow-non-restored", help="Leave out the state of operators that the job has no longer.")
    ] = False,
    at_own_risk: Annotated[
        bool, typer.Option("--at-own-risk", help="Allow what could lose or repeat output, or not be readable.")
    ] = False,
    claim: Annotated[
        bool | None, typer.Option("--claim/--no-claim", help="Let the new job own the checkpoint in the runtime.")
    ] = None,
    runtime: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Root of the live runtime's REST. [default: BARRIERSCOPE_RUNTIME_PORT, or that of the running `up`]",
        ),
    ] = None,
    output_format: Annotated[OutputFormat, typer.Option("--format", help="text or json")] = OutputFormat.TEXT,
) -> None:
    """Start a job in a running live runtime, such as that of `up`, with or without a checkpoint to begin from."""
    from backend.cli.answers import Answers, NoAnswerError
    from backend.settings import load_settings

    body, origin, options = _wanted(
        job, from_, allows_non_restored=allow_non_restored, is_at_own_risk=at_own_risk, is_claimed=claim
    )
    content = None
    if origin is not None and not origin.startswith(_PLACE):
        saved_checkpoints.read(Path(origin))
        content = Path(origin).read_bytes()
    settings = load_settings()
    root, fix = (runtime, _FIX) if runtime else _found_address(settings)
    root = root.rstrip("/")
    try:
        answers = Answers(f"{root}/", settings.token(), deadline_s=_TIMEOUT_S)
    except NoAnswerError as error:
        problem = f"{root!r} is not a URL ({error})"
        allowed = "such as http://127.0.0.1:18050/runtime/v1"
        raise InvalidInputError([FieldProblem("--runtime", problem, allowed)], what="option") from None
    with answers:
        place = origin
        if content is not None:
            place = str(_ask(answers, root, "uploads", content, fix)["location"])
        if place is not None:
            body |= {
                "savepointPath": place,
                "allowNonRestoredState": options.allows_non_restored,
                "atOwnRisk": options.is_at_own_risk,
                "claimMode": "CLAIM" if options.is_claimed else "NO_CLAIM",
            }
        job_id = str(_ask(answers, root, "jobs", json.dumps(body), fix)["jobid"])
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps({"job_id": job_id, "from": origin}, indent=2))
        return
    name = body["job"]["name"] if "job" in body else "the job"
    say(f"{name} runs as {job_id}" + ("" if origin is None else f", from {origin}"))


def _found_address(settings: Settings) -> tuple[str, str]:
    """Return the root without ``--runtime``, and what to do if it does not answer.

    It is at the port that is set, or that of the newest running ``up``, or at the usual port.
    """
    from backend.cli.running import chosen, running_ups

    usual = f"http://127.0.0.1:{settings.runtime_port}/runtime/v1"
    if "runtime_port" in settings.model_fields_set:
        return usual, "start it with `barrierscope runtime`, or unset BARRIERSCOPE_RUNTIME_PORT to use a running `up`"
    newest = chosen(running_ups(settings), option="--runtime", with_runtime=True)
    if newest is None or newest.runtime_url is None:
        return usual, f"no `up` of this user announces live jobs; {_FIX}"
    return newest.runtime_url, _FIX


def _wanted(
    job: str | None, origin: str | None, *, allows_non_restored: bool, is_at_own_risk: bool, is_claimed: bool | None
) -> tuple[dict[str, Any], str | None, RestoreOptions]:
    """Return the body of the request without the checkpoint, then the checkpoint's file or location, and the options.

    Raises:
        InvalidInputError: there is no job, a file of it is invalid, or an option has no checkpoint to be about.
        PlanError: the job cannot run.
    """
    from backend.runtime.engine.jobfile import read_document
    from backend.runtime.snapshot.saved import RestoreOptions

    is_place = origin is not None and origin.startswith(_PLACE)
    if job is None:
        if not is_place:
            allowed = "a job file (TOML) or a demo job; only --from runtime:/... starts the same job again"
            raise InvalidInputError([FieldProblem("JOB", "is missing", allowed)], what="option")
        return {}, origin, RestoreOptions(allows_non_restored, is_at_own_risk, bool(is_claimed))
    spec = job_spec(job)
    document = read_document(job_file(job))
    begun = saved_checkpoints.restore_of(
        spec,
        job,
        origin,
        allows_non_restored=allows_non_restored,
        is_at_own_risk=is_at_own_risk,
        is_claimed=is_claimed,
    )
    if begun is None:
        return {"job": document}, None, RestoreOptions()
    path, options = begun
    # A location is not a path, which would be relative to the job file.
    given = origin or (spec.restore.origin if spec.restore else "")
    return {"job": document}, given if given.startswith(_PLACE) else str(path), options


def _ask(answers: Answers, root: str, path: str, content: str | bytes, fix: str) -> dict[str, Any]:
    """Send a request, and return the object in the answer. ``fix`` says what to do if the runtime does not answer.

    Raises:
        ApiUnavailableError: the runtime does not answer, or another program does.
        ApiRefusedError: the runtime refuses the request.
    """
    from backend.cli.answers import NoAnswerError

    try:
        answer = answers.ask("POST", path, content=content)
    except NoAnswerError as error:
        raise ApiUnavailableError(f"the live runtime at {root} does not answer ({error}); {fix}") from None
    found = _object(answer)
    if answer.is_success and ("location" if path == "uploads" else "jobid") in found:
        return found
    told = found.get("errors")
    if not isinstance(told, list) or not told:
        raise ApiUnavailableError(
            f"{answer.url} returned HTTP {answer.status}, which is not an answer of a live runtime"
        )
    text = "; ".join(map(str, told))
    raise ApiUnavailableError(text) if answer.status >= 500 else ApiRefusedError(text)


def _object(answer: Answer) -> dict[str, Any]:
    try:
        found = json.loads(answer.content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
