"""``barrierscope targets``: lists, adds, tests, changes, links and removes targets through the running API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from backend.cli import connection_options, targets_check
from backend.cli.options import OutputFormat, help_without_command, pairs, say, seconds
from backend.domain.connection import PLAIN
from backend.domain.errors import ApiRefusedError, ApiUnavailableError, BarrierscopeError, UnknownEntityError

if TYPE_CHECKING:
    from backend.cli.answers import Answer
    from backend.contracts.api import Page, TargetOut
    from backend.contracts.connection import ConnectionDoc
    from backend.contracts.model import Model
    from backend.settings import Settings

    M = TypeVar("M", bound=Model)
    Item = TypeVar("Item", bound=Model)

# This is long enough for a connection test, in which the API waits up to 8 s for each response of the target.
_TIMEOUT_S = 30.0
_PAGE = 200
_PAGES_MAX = 500
"""Pages of one list. A program that always announces another page is not Barrierscope's API."""

Api = Annotated[
    str | None,
    typer.Option("--api", metavar="URL", help="Root of the API. [default: BARRIERSCOPE_API_URL, or the running `up`]"),
]
Format = Annotated[OutputFormat, typer.Option("--format", help="text or json")]
Url = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="REST root of Flink or, with --kind spark, of Spark, such as http://my-flink:8081"
    ),
]
Target = Annotated[str, typer.Argument(metavar="TARGET", help="Id, name or URL of the target.")]
Kind = Annotated[
    str,
    typer.Option(metavar="KIND", help="Collector that reads it: an entry point of the group barrierscope.collectors."),
]

app = typer.Typer(
    help="Add, list, test, change, link and remove targets, through the running API.",
    epilog="Example: barrierscope targets add http://my-flink:8081",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@app.callback()
def _group(context: typer.Context) -> None:
    help_without_command(context)


@app.command(epilog="Example: barrierscope targets add http://my-flink:8081 --name production --label environment=prod")
def add(
    url: Url,
    name: Annotated[str | None, typer.Option(help="Name shown on the pages.")] = None,
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label; may be repeated.")] = None,
    kind: Kind = "flink",
    interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time between two readings [that of the collector].")
    ] = None,
    bearer: connection_options.Bearer = None,
    user: connection_options.User = None,
    headers: connection_options.Headers = None,
    ca: connection_options.Ca = None,
    cert: connection_options.Cert = None,
    key: connection_options.Key = None,
    server_name: connection_options.ServerName = None,
    proxy: connection_options.ProxyUrl = None,
    proxy_user: connection_options.ProxyUser = None,
    api: Api = None,
    output_format: Format = OutputFormat.TEXT,
) -> None:
    """Test the connection to a target and add it. References are read by the service, which allows only some of them.

    A wrong address is refused with the right one, if another path of it is the REST root. A target that does not answer
    now is added.
    """
    from backend.contracts.api import TargetIn, TargetOut

    given = connection_options.Given(
        *(bearer, user, headers or (), ca, cert, key, server_name, proxy), proxy_user=proxy_user
    )
    body = TargetIn.model_construct(
        url=url,
        name=name,
        labels=pairs(label or [], option="--label"),
        kind=kind,
        connection=_connection(given, url),
        interval_s=None if interval is None else seconds(interval, option="--interval", least=0.2, most=3600),
    )
    with Client(api) as client:
        added = client.post("/api/v1/targets", body, TargetOut)
    if output_format is OutputFormat.JSON:
        typer.echo(added.model_dump_json(indent=2))
    else:
        say(f"watching {added.name} ({added.url}) as {added.id}")
        if added.health.reason is not None:
            say(f"it does not answer now, and is read as soon as it does: {added.health.reason}")


@app.command(name="list", epilog="Example: barrierscope targets list --format json")
def list_targets(api: Api = None, output_format: Format = OutputFormat.TEXT) -> None:
    """List the targets and their states."""
    with Client(api) as client:
        targets = list(client.targets())
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps([t.model_dump(mode="json") for t in targets], indent=2))
        return
    if not targets:
        say("no targets; add one with: barrierscope targets add URL")
    for target in targets:
        say(_line(target))


@app.command(name="test", epilog="Example: barrierscope targets test http://my-flink:8081")
def try_target(
    url: Url,
    kind: Kind = "flink",
    bearer: connection_options.Bearer = None,
    user: connection_options.User = None,
    headers: connection_options.Headers = None,
    ca: connection_options.Ca = None,
    cert: connection_options.Cert = None,
    key: connection_options.Key = None,
    server_name: connection_options.ServerName = None,
    proxy: connection_options.ProxyUrl = None,
    proxy_user: connection_options.ProxyUser = None,
    api: Api = None,
    output_format: Format = OutputFormat.TEXT,
) -> None:
    """Read a target once from the machine of the API, and store nothing. Exit code 1 if the target is not readable."""
    from backend.contracts.api import TargetIn, TargetTestOut

    given = connection_options.Given(
        *(bearer, user, headers or (), ca, cert, key, server_name, proxy), proxy_user=proxy_user
    )
    with Client(api) as client:
        body = TargetIn.model_construct(url=url, labels={}, kind=kind, connection=_connection(given, url))
        answer = client.post("/api/v1/targets/test", body, TargetTestOut)
    if output_format is OutputFormat.JSON:
        typer.echo(answer.model_dump_json(indent=2))
    elif answer.is_ok:
        jobs = ", ".join(answer.running_jobs) or "none"
        engine = answer.summary or f"{answer.engine} {answer.engine_version}"
        say(f"{url}: {engine}, {answer.duration_ms} ms; running jobs: {jobs}")
    else:
        problem = answer.problem or "no answer"
        cure = f"; {answer.cure}" if answer.cure else ""
        say((problem if problem.startswith(url) else f"{url}: {problem}") + cure)
    if not answer.is_ok:
        raise typer.Exit(1)


app.command(epilog="Example: barrierscope targets check targets.yaml")(targets_check.check)


@app.command(epilog="Example: barrierscope targets change production --bearer file:token --interval 5s")
def change(
    target: Target,
    name: Annotated[str | None, typer.Option(help="Name shown on the pages.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Add or replace a label; may be repeated.")
    ] = None,
    removed_labels: Annotated[
        list[str] | None, typer.Option("--remove-label", metavar="KEY", help="Remove a label; may be repeated.")
    ] = None,
    interval: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time between two readings; 0s for that of the collector.")
    ] = None,
    is_enabled: Annotated[
        bool | None, typer.Option("--resume/--pause", help="Read the target again, or read it no longer.")
    ] = None,
    is_plain: Annotated[
        bool, typer.Option("--plain", help="Remove the stored credentials, TLS files and proxy first.")
    ] = False,
    bearer: connection_options.Bearer = None,
    user: connection_options.User = None,
    headers: connection_options.Headers = None,
    ca: connection_options.Ca = None,
    cert: connection_options.Cert = None,
    key: connection_options.Key = None,
    server_name: connection_options.ServerName = None,
    proxy: connection_options.ProxyUrl = None,
    proxy_user: connection_options.ProxyUser = None,
    api: Api = None,
    output_format: Format = OutputFormat.TEXT,
) -> None:
    """Change a target that was added by the API. What is not named stays.

    The address stays too, because jobs and their history belong to it: add a target with the new one, and remove this
    one. A target of a file or a discovery is changed there.
    """
    from backend.contracts.api import TargetIn, TargetOut, TargetPatch, TargetTestOut
    from backend.contracts.connection import ConnectionDoc

    given = connection_options.Given(
        *(bearer, user, headers or (), ca, cert, key, server_name, proxy), proxy_user=proxy_user
    )
    added = pairs(label or [], option="--label")
    is_connected_anew = is_plain or given != connection_options.Given()
    with Client(api) as client:
        found = _one(client, target)
        labels = dict(found.labels)
        for one in removed_labels or []:
            if labels.pop(one, None) is None:
                raise UnknownEntityError(kind="label", id=one)
        stored = PLAIN if is_plain or found.connection is None else found.connection.options()
        connection = None
        if is_connected_anew:
            connection = ConnectionDoc.of_options(connection_options.checked(given.options(stored), found.url))
        body = TargetPatch.model_construct(
            name=name,
            labels=labels | added if added or removed_labels else None,
            is_enabled=is_enabled,
            connection=connection,
            interval_s=None if interval is None else seconds(interval, option="--interval", least=0.0, most=3600),
        )
        if not body.model_dump(exclude_none=True):
            raise ApiRefusedError("nothing to change; pass an option, such as --name (see --help)")
        changed = client.patch(f"/api/v1/targets/{found.id}", body, TargetOut, version=found.version or None)
        answer = None
        if is_connected_anew and changed.is_enabled:
            tried = TargetIn.model_construct(
                url=changed.url, labels={}, kind=changed.kind, connection=changed.connection
            )
            answer = client.post("/api/v1/targets/test", tried, TargetTestOut)
    if output_format is OutputFormat.JSON:
        typer.echo(changed.model_dump_json(indent=2))
        return
    say(f"changed {changed.name} ({changed.url})")
    if answer is not None:
        cure = f"; {answer.cure}" if answer.cure else ""
        said = f"it does not answer now: {answer.problem}{cure}"
        say("it answers with this connection" if answer.is_ok else said)


@app.command(epilog="Example: barrierscope targets remove production")
def remove(
    target: Target,
    api: Api = None,
    output_format: Format = OutputFormat.TEXT,
) -> None:
    """Remove a target. Its history stays until the retention limits delete it."""
    with Client(api) as client:
        found = _one(client, target)
        client.delete(f"/api/v1/targets/{found.id}", version=found.version or None)
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps({"removed": found.id}))
    else:
        say(f"no longer watching {found.name} ({found.url})")


@app.command(
    epilog="Example: barrierscope targets links production --set 'Grafana=https://grafana.example/d/tm?var-tm={taskmanager}'"
)
def links(
    target: Target,
    wanted: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=TEMPLATE", help="Add or replace a link; may be repeated.")
    ] = None,
    removed: Annotated[
        list[str] | None, typer.Option("--remove", metavar="NAME", help="Remove a link; may be repeated.")
    ] = None,
    ui_url: Annotated[
        str | None,
        typer.Option(
            "--ui-url", metavar="URL", help='Address of the engine\'s web UI in browsers; "" for that of the target.'
        ),
    ] = None,
    api: Api = None,
    output_format: Format = OutputFormat.TEXT,
) -> None:
    """List or change the links that the pages offer for the jobs of a target."""
    from backend.contracts.api import TargetOut, TargetPatch
    from backend.contracts.links import LinkTemplate

    added = pairs(wanted or [], option="--set")
    with Client(api) as client:
        patch = _one(client, target)
        templates = {link.name: link.url for link in patch.links}
        for name in removed or []:
            if templates.pop(name, None) is None:
                raise UnknownEntityError(kind="link", id=name)
        if added or removed or ui_url is not None:
            # The templates are not checked here. The API checks them, so that every client gets the same messages.
            body = TargetPatch.model_construct(
                links=[LinkTemplate.model_construct(name=n, url=u) for n, u in (templates | added).items()],
                ui_url=ui_url,
                links_version=patch.links_version,
            )
            patch = client.patch(f"/api/v1/targets/{patch.id}", body, TargetOut)
    if output_format is OutputFormat.JSON:
        shown = {"ui_url": patch.ui_url, "links": [link.model_dump() for link in patch.links]}
        typer.echo(json.dumps(shown, indent=2))
        return
    say(f"web UI: {patch.ui_url or 'at the address of the target'}")
    for link in patch.links:
        say(f"{link.name}: {link.url}")
    if not patch.links:
        say("no links; add one with: --set NAME=TEMPLATE")


def _connection(given: connection_options.Given, url: str) -> ConnectionDoc | None:
    from backend.contracts.connection import ConnectionDoc

    options = connection_options.checked(given.options(), url)
    return None if options == PLAIN else ConnectionDoc.of_options(options)


def _one(client: Client, target: str) -> TargetOut:
    targets = [t for t in client.targets() if target in (t.id, t.name, t.url, t.url.rstrip("/"))]
    if not targets:
        raise UnknownEntityError(kind="target", id=target)
    if len(targets) > 1:
        ids = ", ".join(t.id for t in targets)
        raise ApiRefusedError(f"{target!r} matches {len(targets)} targets; pass one of these ids: {ids}")
    return targets[0]


def _line(target: TargetOut) -> str:
    health = target.health
    state = health.state if health.reason is None else f"{health.state}: {health.reason}"
    cost = f", {target.cost.requests_per_poll:.1f} requests a poll" if target.cost else ""
    version = f" {target.engine} {target.engine_version or ''}".rstrip() if target.engine else ""
    return f"{target.id}  {target.name}  {target.url} {version}  {state}{cost}"


class Client:
    """A client of the API. It turns each error response of the API into an exception of Barrierscope."""

    def __init__(self, api: str | None) -> None:
        from backend.cli.answers import Answers, NoAnswerError
        from backend.settings import load_settings

        settings = load_settings()
        self._root = (api or _found_address(settings)).rstrip("/")
        try:
            self._http = Answers(self._root, settings.token(), deadline_s=_TIMEOUT_S)
        except NoAnswerError as error:
            raise ApiUnavailableError(
                f"--api {api!r} is not a URL ({error}); for example http://127.0.0.1:8050"
            ) from None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.__exit__()

    def targets(self) -> Iterator[TargetOut]:
        """Yield every target, and read the pages of the list as needed."""
        from backend.contracts.api import Page, TargetOut

        yield from self.pages(f"/api/v1/targets?limit={_PAGE}", Page[TargetOut])

    def pages(self, path: str, kind: type[Page[Item]], *, most: int | None = None) -> Iterator[Item]:
        """Yield at most ``most`` items of the list at ``path``. Read its pages as needed.

        ``path`` must contain a query, because the cursor is appended with ``&``.
        """
        cursor, count = "", 0
        for _ in range(_PAGES_MAX):
            page = self._parse(self._send("GET", f"{path}{cursor}"), kind)
            for found in page.items:
                yield found
                count += 1
                if count == most:
                    return
            if page.next is None:
                return
            cursor = f"&cursor={page.next}"
        raise ApiUnavailableError(f"{self._root} lists more than {_PAGES_MAX} pages, which Barrierscope's API does not")

    def job_id(self, job: str) -> str:
        """Return the id of the job with this name or id.

        Raises:
            UnknownEntityError: there is no such job.
            ApiRefusedError: several jobs have this name.
        """
        from backend.contracts.api import JobOut, Page

        rows = self.pages(f"/api/v1/jobs?limit={_PAGE}", Page[JobOut])
        job_ids = [row.id for row in rows if job in (row.id, row.name)]
        if not job_ids:
            raise UnknownEntityError(kind="job", id=job)
        if len(job_ids) > 1:
            raise ApiRefusedError(f"{job!r} matches {len(job_ids)} jobs; pass one of these ids: {', '.join(job_ids)}")
        return job_ids[0]

    def get(self, path: str, answer: type[M]) -> M:
        """Send a GET request and parse the response."""
        return self._parse(self._send("GET", path), answer)

    def post(self, path: str, body: Model | None, answer: type[M]) -> M:
        """Send ``body`` in a POST request and parse the response."""
        return self._parse(self._send("POST", path, content=None if body is None else body.model_dump_json()), answer)

    def patch(self, path: str, body: Model, answer: type[M], *, version: str | None = None) -> M:
        """Send the set fields of ``body`` in a PATCH request and parse the response.

        The API refuses the request if a ``version`` is given and the subject now has another one.
        """
        content = body.model_dump_json(exclude_none=True)
        return self._parse(self._send("PATCH", path, content=content, if_match=version), answer)

    def delete(self, path: str, *, version: str | None = None) -> None:
        """Send a DELETE request. The API refuses it if a ``version`` is given and the subject now has another one."""
        self._send("DELETE", path, if_match=version)

    def _send(self, method: str, path: str, *, content: str | None = None, if_match: str | None = None) -> Answer:
        from backend.cli.answers import NoAnswerError

        try:
            answer = self._http.ask(method, path, content=content, if_match=if_match)
        except NoAnswerError as error:
            fix = "start it with `barrierscope up`, or pass its address with --api"
            raise ApiUnavailableError(f"the API at {self._root} does not answer ({error}); {fix}") from None
        if answer.is_success:
            return answer
        raise _refusal(answer)

    def _parse(self, answer: Answer, model: type[M]) -> M:
        from pydantic import ValidationError

        try:
            return model.model_validate_json(answer.content)
        except ValidationError:
            raise ApiUnavailableError(f"{answer.url} did not return an answer of Barrierscope's API") from None


def _found_address(settings: Settings) -> str:
    """Return the address of the API without ``--api``: the setting, the newest running ``up``, or the usual address.

    If it is that of a running ``up``, say so on standard error.
    """
    if "api_url" in settings.model_fields_set:
        return settings.api_url
    from backend.cli.running import chosen, running_ups

    newest = chosen(running_ups(settings), option="--api")
    return settings.api_url if newest is None else newest.url


def _refusal(answer: Answer) -> BarrierscopeError:
    from pydantic import ValidationError

    from backend.contracts.api import Problem

    try:
        problem = Problem.model_validate_json(answer.content)
    except ValidationError:
        return ApiUnavailableError(
            f"{answer.url} returned HTTP {answer.status}, which is not an answer of Barrierscope's API"
        )
    fields = [f"{e.pointer}: {e.detail}" + (f" (allowed: {e.allowed})" if e.allowed else "") for e in problem.unsaid]
    text = "; ".join([problem.detail, *fields])
    return ApiUnavailableError(text) if problem.status >= 500 else ApiRefusedError(text)
