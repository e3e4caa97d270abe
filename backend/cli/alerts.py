"""``barrierscope alerts`` and ``barrierscope receivers``: manage alerts, silences and receivers through the API."""

from __future__ import annotations

import getpass
import json
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from backend.cli.options import OutputFormat, help_without_command, pairs, say, seconds
from backend.cli.targets import Api, Client, Format
from backend.domain.advice import with_action
from backend.domain.errors import UnknownEntityError
from backend.domain.receivers import TRAITS, ReceiverKind
from backend.domain.text import capitalised

if TYPE_CHECKING:
    from backend.contracts.alerts import AlertOut

_SHOWN_MAX = 200
_ADDRESSES = ", or the ".join(f"{traits.address} of {traits.noun}" for traits in TRAITS.values())

app = typer.Typer(
    help="List alerts and manage silences, through the running API.",
    epilog="Example: barrierscope alerts --format json",
    invoke_without_command=True,
    rich_markup_mode=None,
)
receivers = typer.Typer(
    help="Add, list, test and remove the receivers of alerts, through the running API.",
    epilog="Example: barrierscope receivers add http://alertmanager:9093 --name on-call",
    invoke_without_command=True,
    rich_markup_mode=None,
)


@app.callback()
def _alerts(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Include resolved alerts.")] = False,
    api: Api = None,
    output_format: Format = OutputFormat.TEXT,
) -> None:
    if context.invoked_subcommand is not None:
        return
    from backend.alerting.lifecycle import AlertState
    from backend.contracts.alerts import AlertOut
    from backend.contracts.api import Page

    states = "" if every else f"&state={AlertState.PENDING}&state={AlertState.FIRING}"
    with Client(api) as client:
        alerts = list(client.pages(f"/api/v1/alerts?limit={_SHOWN_MAX}{states}", Page[AlertOut], most=_SHOWN_MAX))
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps([a.model_dump(mode="json") for a in alerts], indent=2))
        return
    if all(a.severity == "none" for a in alerts):
        say("no alerts are pending or firing" if not every else "no alerts yet")
    for alert in alerts:
        if alert.severity != "none":
            say(_line(alert))
            if alert.ended_at is None:
                say(f"    {with_action(alert.description, alert.action)}")


@app.command(epilog='Example: barrierscope alerts silence job_name=orders --for 2h --reason "planned migration"')
def silence(
    matchers: Annotated[
        list[str], typer.Argument(metavar="LABEL=VALUE", help="Labels that an alert must have, all of them.")
    ],
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="Duration: 30min, 2h, 1d.")],
    reason: Annotated[str, typer.Option(help="Reason, shown to every user.")],
    author: Annotated[str | None, typer.Option(help="Author of the silence. [you]")] = None,
    api: Api = None,
    output_format: Format = OutputFormat.TEXT,
) -> None:
    """Stop delivery of matching alerts for a time. They are still evaluated and shown."""
    from backend.contracts.alerts import MatcherOut, SilenceIn, SilenceOut
    from backend.store.wall_clock import WallClock

    ends_at = WallClock().now() + timedelta(seconds=seconds(duration, option="--for", least=1.0))
    labels = pairs(matchers, option="LABEL=VALUE")
    body = SilenceIn.model_construct(
        matchers=[MatcherOut.model_construct(name=k, value=v) for k, v in labels.items()],
        starts_at=None,
        ends_at=ends_at,
        reason=reason,
        author=author or getpass.getuser(),
    )
    with Client(api) as client:
        added = client.post("/api/v1/silences", body, SilenceOut)
    if output_format is OutputFormat.JSON:
        typer.echo(added.model_dump_json(indent=2))
    else:
        until = added.ends_at.strftime("%Y-%m-%d %H:%M:%S UTC")
        say(f"{added.id}: silences {added.hidden_count} alerts now, until {until}")


@app.command(epilog="Example: barrierscope alerts unsilence s2c9d8e7f6a5b4c31")
def unsilence(
    silence_id: Annotated[str, typer.Argument(metavar="SILENCE", help="Id of the silence.")], api: Api = None
) -> None:
    """End a silence now."""
    with Client(api) as client:
        client.delete(f"/api/v1/silences/{silence_id}")
    say(f"{silence_id} has ended")


@receivers.callback()
def _receivers(context: typer.Context) -> None:
    help_without_command(context)


@receivers.command(epilog="Example: barrierscope receivers add http://pager/hook --kind webhook --name pager")
def add(
    url: Annotated[str, typer.Argument(metavar="URL", help=f"{capitalised(_ADDRESSES)}.")],
    name: Annotated[str, typer.Option(help="Name shown in the delivery log.")],
    kind: Annotated[ReceiverKind, typer.Option(help=" or ".join(ReceiverKind))] = ReceiverKind.ALERTMANAGER,
    credential: Annotated[
        str | None,
        typer.Option(metavar="REFERENCE", help="Location of its bearer token: env:BARRIERSCOPE_SECRET_X or file:NAME."),
    ] = None,
    api: Api = None,
    output_format: Format = OutputFormat.TEXT,
) -> None:
    """Add a receiver of alerts."""
    from backend.contracts.alerts import ReceiverIn, ReceiverOut

    body = ReceiverIn.model_construct(name=name, kind=kind.value, url=url, credential=credential)
    with Client(api) as client:
        added = client.post("/api/v1/receivers", body, ReceiverOut)
    if output_format is OutputFormat.JSON:
        typer.echo(added.model_dump_json(indent=2))
    else:
        say(f"alerts are sent to {added.name} ({added.url}) as {added.id}")


@receivers.command(name="list", epilog="Example: barrierscope receivers list --format json")
def list_receivers(api: Api = None, output_format: Format = OutputFormat.TEXT) -> None:
    """List the receivers, and the number of messages due to each."""
    from backend.contracts.alerts import ReceiverOut
    from backend.contracts.api import Page

    with Client(api) as client:
        found = list(client.pages("/api/v1/receivers?limit=200", Page[ReceiverOut]))
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps([r.model_dump(mode="json") for r in found], indent=2))
        return
    if not found:
        say("no receivers; add one with: barrierscope receivers add URL --name NAME")
    for receiver in found:
        say(f"{receiver.id}  {receiver.name}  {receiver.kind} {receiver.url}  {receiver.due_count} due")


@receivers.command(name="test", epilog="Example: barrierscope receivers test on-call")
def try_receiver(
    receiver: Annotated[str, typer.Argument(metavar="RECEIVER", help="Id or name of the receiver.")],
    api: Api = None,
    output_format: Format = OutputFormat.TEXT,
) -> None:
    """Send a test alert that is already resolved. Exit code 1 if the receiver does not accept it."""
    from backend.contracts.alerts import ReceiverTestOut

    with Client(api) as client:
        answer = client.post(f"/api/v1/receivers/{_id_of(client, receiver)}/test", None, ReceiverTestOut)
    if output_format is OutputFormat.JSON:
        typer.echo(answer.model_dump_json(indent=2))
    else:
        say(f"{receiver}: {answer.result}, {answer.duration_ms} ms")
    if not answer.is_ok:
        raise typer.Exit(1)


@receivers.command(epilog="Example: barrierscope receivers remove on-call")
def remove(
    receiver: Annotated[str, typer.Argument(metavar="RECEIVER", help="Id or name of the receiver.")], api: Api = None
) -> None:
    """Remove a receiver. Its deliveries stay in the log."""
    with Client(api) as client:
        client.delete(f"/api/v1/receivers/{_id_of(client, receiver)}")
    say(f"removed {receiver}")


def _id_of(client: Client, receiver: str) -> str:
    from backend.contracts.alerts import ReceiverOut
    from backend.contracts.api import Page

    for found in client.pages("/api/v1/receivers?limit=200", Page[ReceiverOut]):
        if receiver in (found.id, found.name):
            return found.id
    raise UnknownEntityError(kind="receiver", id=receiver)


def _line(alert: AlertOut) -> str:
    since = alert.fired_at or alert.began_at
    from backend.contracts.freshness import stale_line

    marks: Sequence[str] = [m for m, is_so in (("silenced", alert.silenced_by), ("unknown", alert.is_unknown)) if is_so]
    if (old := stale_line(alert.freshness)) is not None:
        marks = [*marks, old]
    state = f"{alert.state}{' (' + ', '.join(marks) + ')' if marks else ''}"
    return f"{since:%Y-%m-%d %H:%M:%S}  {state}  {alert.severity}  {alert.rule}  {alert.summary}  {alert.permalink}"
