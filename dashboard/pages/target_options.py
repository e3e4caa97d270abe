"""The fields of the form of targets for what only some targets need: credentials by reference, TLS, proxy and more."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from dash import ALL, State, dcc, html
from dash.development.base_component import Component

from backend.contracts.api import TargetOut
from dashboard.components.attributes import attrs

_REFERENCE = "env:NAME or file:PATH"
# The name of each field, its label, an example, and the group under which it stands.
_FIELDS: Final = (
    ("bearer", "Bearer token", _REFERENCE, "Credentials"),
    ("user", "User", "barrierscope", "Credentials"),
    ("password", "Password", _REFERENCE, "Credentials"),
    ("headers", "Headers, one on each line", "X-Api-Key=env:NAME", "Credentials"),
    ("ca", "Trusted authorities", "file:ca.pem", "TLS"),
    ("certificate", "Client certificate", "file:client.pem", "TLS"),
    ("key", "Key of the certificate", "file:client.key", "TLS"),
    ("server_name", "Name in the server's certificate", "flink.internal", "TLS"),
    ("proxy", "Proxy", "http://proxy:3128", "Proxy"),
    ("proxy_user", "User for the proxy", "", "Proxy"),
    ("proxy_password", "Password for the proxy", _REFERENCE, "Proxy"),
    ("kind", "Kind", "flink or spark", "Target"),
    ("labels", "Labels, one on each line", "deployment=orders\nenvironment=prod", "Target"),
    ("interval_s", "Seconds between two readings", "2", "Target"),
    ("ui_url", "Address of the web UI in browsers", "https://flink-ui.example", "Target"),
)
_LISTS: Final = ("labels", "headers")
"""The fields that have a line for each pair of a name and a value."""
# In a value, this may be the begin of another pair, as people write lists on one line.
_NEXT_PAIR = re.compile(r",\s*[^\s,=][^,=]*=")
HINT: Final = (
    "Credentials are written as references, never as values: env:NAME is a variable of the service, file:PATH a file of"
    " it. The operator of Barrierscope decides which of them may be named here."
)
GROUPS: Final = ("Credentials", "TLS", "Proxy", "Target")
ADDING: Final = "target-option"
"""The form that adds a target."""


class WrongOptionError(ValueError):
    """A field of the form is wrong. The text names it, and does not repeat its value."""


def fields() -> Component:
    """Return the closed part of the form with all fields."""
    return html.Details(
        [html.Summary("Credentials, TLS, proxy and more"), html.P(HINT, className="hint"), *groups()],
        className="target-options",
    )


def groups(
    values: Mapping[str, str] = MappingProxyType({}),
    *,
    form: str = ADDING,
    shown: Sequence[str] = GROUPS,
    without: Sequence[str] = (),
    is_fixed: bool = False,
) -> list[Component]:
    """Return the fields of the groups ``shown``, with their values. ``form`` is the form that they belong to.

    The fields named in ``without`` are left out. If ``is_fixed``, nobody can write into them.
    """
    return [
        html.Fieldset(
            [
                html.Legend(group),
                html.Div(
                    [
                        _field(name, label, "" if is_fixed else example, values.get(name, ""), form, is_fixed=is_fixed)
                        for name, label, example, of in _FIELDS
                        if of == group and name not in without
                    ],
                    className="target-options-fields",
                ),
            ],
            className="target-options-group",
        )
        for group in shown
    ]


def _field(name: str, label: str, example: str, value: str, form: str, *, is_fixed: bool) -> Component:
    shared: dict[str, Any] = {"value": value, "placeholder": example, "disabled": is_fixed}
    if name in _LISTS:
        box: Component = dcc.Textarea(
            id={"type": form, "name": name},
            maxLength=20_000,
            rows=max(2, min(8, value.count("\n") + 1)),
            className="comment",
            **shared,
            **attrs({"spellCheck": "false"}),
        )
    else:
        box = dcc.Input(
            id={"type": form, "name": name},
            type="text",
            maxLength=2000,
            autoComplete="off",
            debounce=False,
            **shared,
            **attrs({"spellCheck": "false"}),
        )
    return html.Label([label, box], className="field")


def states(form: str = ADDING) -> dict[str, Any]:
    """Return the states of a callback that reads the fields of a form, for ``read``."""
    place = {"type": form, "name": ALL}
    return {"options": State(place, "value"), "names": State(place, "id")}


def values_of(target: TargetOut) -> dict[str, str]:
    """Return what the fields contain for a target. ``read`` makes the same values of it."""
    found: dict[str, str | None] = {
        "kind": target.kind,
        "labels": _joined(target.labels),
        "interval_s": None if target.interval_s is None else f"{target.interval_s:g}",
        "ui_url": target.ui_url,
    }
    if (connection := target.connection) is not None:
        plain = ("bearer", "ca", "certificate", "key", "server_name")
        found |= {name: getattr(connection, name) for name in plain}
        found["headers"] = _joined(connection.headers or {})
        if connection.basic is not None:
            found |= {"user": connection.basic.user, "password": connection.basic.password}
        if (proxy := connection.proxy) is not None:
            found |= {"proxy": proxy.url, "proxy_user": proxy.user, "proxy_password": proxy.password}
    return {name: value for name, value in found.items() if value}


def _joined(pairs: Mapping[str, str]) -> str:
    return "\n".join(f"{name}={_written(value)}" for name, value in pairs.items())


def _written(value: str) -> str:
    """Return a value as ``_value`` reads it: in double quotes if it would else be another one, or two."""
    is_quoted = len(value) > 1 and value[0] == value[-1] == '"'
    return f'"{value}"' if is_quoted or value != value.strip() or _NEXT_PAIR.search(value) else value


def read(
    options: Sequence[str | None] | None,
    names: Sequence[Mapping[str, str]] | None,
    *,
    stored: TargetOut | None = None,
) -> dict[str, Any]:
    """Return the fields of ``TargetIn`` that the form sets.

    A list of pairs that shows what is ``stored`` stays as it is, because a name in it may contain ``=``.

    Raises:
        WrongOptionError: a field has a form that the API could not tell apart from another mistake.
    """
    given = {i["name"]: (v or "").strip() for i, v in zip(names or (), options or (), strict=True)}
    value = {name: text for name, text in given.items() if text}
    kept = _kept_pairs(stored, value)
    document: dict[str, Any] = {name: value[name] for name in ("kind", "ui_url") if name in value}
    if "labels" in value:
        document["labels"] = kept["labels"] if "labels" in kept else _pairs(value["labels"], "Labels")
    if "interval_s" in value:
        try:
            document["interval_s"] = float(value["interval_s"])
        except ValueError:
            raise WrongOptionError("Seconds between two readings: write a number, such as 5.") from None
    if connection := _connection(value, kept):
        document["connection"] = connection
    return document


def _kept_pairs(stored: TargetOut | None, value: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the stored labels and headers that the form shows unchanged."""
    if stored is None:
        return {}
    headers = {} if stored.connection is None else stored.connection.headers or {}
    pairs = {"labels": dict(stored.labels), "headers": dict(headers)}
    return {name: found for name, found in pairs.items() if value.get(name, "") == _joined(found).strip()}


def _connection(value: Mapping[str, str], kept: Mapping[str, dict[str, str]]) -> dict[str, Any]:
    plain = ("bearer", "ca", "certificate", "key", "server_name")
    connection: dict[str, Any] = {name: value[name] for name in plain if name in value}
    if "user" in value or "password" in value:
        if not ("user" in value and "password" in value):
            raise WrongOptionError("User and Password: fill in both, or none.")
        connection["basic"] = {"user": value["user"], "password": value["password"]}
    if "headers" in value:
        connection["headers"] = kept["headers"] if "headers" in kept else _pairs(value["headers"], "Headers")
    if "proxy" in value:
        names = {"user": "proxy_user", "password": "proxy_password"}
        connection["proxy"] = {"url": value["proxy"]} | {k: value[n] for k, n in names.items() if n in value}
    elif "proxy_user" in value or "proxy_password" in value:
        raise WrongOptionError("User for the proxy: fill in the address of the proxy too.")
    return connection


def _pairs(text: str, label: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for line in (part.strip() for part in text.split("\n")):
        if not line:
            continue
        name, sign, value = line.partition("=")
        name = name.strip()
        if sign and "," in name:
            cure = "If the name itself has a comma, change it by the API or the command line."
            raise WrongOptionError(f"{label}: write each NAME=VALUE on a line of its own. {cure}")
        if not sign or not name:
            raise WrongOptionError(f"{label}: write NAME=VALUE, each on a line of its own.")
        if name in pairs:
            raise WrongOptionError(f"{label}: {name} is there twice. Remove one of the two lines.")
        pairs[name] = _value(value.strip(), name, label)
    return pairs


def _value(text: str, name: str, label: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    if _NEXT_PAIR.search(text):
        cure = f"If the comma belongs to the value of {name}, write the value in double quotes."
        raise WrongOptionError(f"{label}: write each NAME=VALUE on a line of its own. {cure}")
    return text


def told(target: TargetOut) -> str | None:
    """Return how a target is connected to, in a few words for its row; None if there is nothing to tell."""
    parts = []
    if (connection := target.connection) is not None:
        if connection.bearer is not None:
            parts.append(f"bearer {connection.bearer}")
        if connection.basic is not None:
            parts.append(f"user {connection.basic.user}, password {connection.basic.password}")
        parts += [f"header {name} {value}" for name, value in (connection.headers or {}).items()]
        if connection.certificate is not None:
            parts.append(f"client certificate {connection.certificate}")
        if connection.ca is not None:
            parts.append(f"authorities {connection.ca}")
        if connection.server_name is not None:
            parts.append(f"as {connection.server_name}")
        if connection.proxy is not None:
            parts.append(f"through {connection.proxy.url}")
    if target.interval_s is not None:
        parts.append(f"every {target.interval_s:g} s")
    return "; ".join(parts) or None
