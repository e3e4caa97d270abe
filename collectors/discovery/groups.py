"""Reads lists of targets in the format of Prometheus' ``file_sd`` and ``http_sd``.

A list whose form is wrong is not taken at all. An entry whose address or label is wrong or not allowed is left out with
a sentence, and the others are taken. Source: https://prometheus.io/docs/prometheus/latest/http_sd/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from backend.contracts.api import Labels
from backend.domain.address_rules import AddressRules
from backend.domain.declared_target import DeclaredTarget
from backend.domain.discovery import FOUND_MAX, Found, TargetTemplate
from backend.domain.errors import InvalidInputError
from backend.domain.target_url import normalised_url
from backend.domain.text import clean

_LABELS: Final[TypeAdapter[dict[str, str]]] = TypeAdapter(Labels)
_NAME_MAX: Final = 200
_SHOWN_MAX: Final = 200


class ListError(Exception):
    """A list cannot be taken. ``reason`` is a sentence."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class AllowedHosts:
    """Which hosts the found targets of a section may have: those of the section, and those of the service."""

    def __init__(self, allowed: Iterable[str], service: AddressRules) -> None:
        hosts = tuple(allowed)
        self._section = AddressRules(is_everything_allowed=not hosts, allowed=hosts)
        self._service = service

    def refusal(self, host: str) -> str | None:
        """Return why ``host`` is refused, with the cure; None if it is allowed."""
        if not self._section.allows_host(host):
            return "the host is not one of `allowed` in the section"
        if not self._service.allows_host(host):
            return "the host is not allowed here; add it to BARRIERSCOPE_ALLOWED_TARGETS"
        return None


def found_in(documents: Iterable[Any], template: TargetTemplate, hosts: AllowedHosts) -> Found:
    """Return the targets of several lists. The first entry with an address counts. Every entry counts as a target.

    Raises:
        ListError: a list has another form, or there are too many targets.
    """
    targets: dict[str, DeclaredTarget] = {}
    left_out: list[str] = []
    for n, (address, labels) in enumerate(_entries(documents)):
        if n >= FOUND_MAX:
            raise ListError(f"has more than {FOUND_MAX} targets")
        try:
            target = _target(address, labels, template, hosts)
        except _LeftOutError as error:
            left_out.append(f"{clean(address, length_max=_SHOWN_MAX)!r} {error}")
            continue
        targets.setdefault(target.url, target)
    return Found(tuple(targets.values()), tuple(left_out))


def declared(
    url: str,
    name: str,
    labels: Mapping[str, str],
    template: TargetTemplate,
    *,
    ui_url: str | None = None,
    is_paused: bool = False,
) -> DeclaredTarget:
    """Return a found target with what its section says. ``url`` is normalised."""
    return DeclaredTarget(
        url=url,
        name=clean(name, length_max=_NAME_MAX),
        kind=template.kind,
        labels=dict(labels),
        interval_s=template.interval_s,
        ui_url=ui_url,
        links=template.links,
        is_paused=template.is_paused or is_paused,
        connection=template.connection,
    )


class _LeftOutError(Exception):
    """An entry is no target. The text follows its address."""


def _entries(documents: Iterable[Any]) -> Iterable[tuple[str, Mapping[str, str]]]:
    for document in documents:
        if not isinstance(document, list):
            raise ListError("is not a list of groups, such as " + '[{"targets": ["flink:8081"], "labels": {}}]')
        for n, group in enumerate(document):
            addresses = group.get("targets") if isinstance(group, dict) else None
            if not isinstance(addresses, list) or not all(isinstance(a, str) for a in addresses):
                raise ListError(f"has a group without the list `targets` of texts, the one with number {n}")
            labels = group.get("labels") or {}
            if not isinstance(labels, dict) or not all(
                isinstance(k, str) and isinstance(v, str) for k, v in labels.items()
            ):
                raise ListError(f"has a group whose `labels` are not texts by name, the one with number {n}")
            for address in addresses:
                yield address, labels


def _target(address: str, labels: Mapping[str, str], template: TargetTemplate, hosts: AllowedHosts) -> DeclaredTarget:
    scheme, path = labels.get("__scheme__", "http"), labels.get("__metrics_path__", "")
    if "/" in address or "@" in address:
        raise _LeftOutError("is not HOST:PORT; a path is the label __metrics_path__, and https the label __scheme__")
    if path and not path.startswith("/"):
        raise _LeftOutError("has a __metrics_path__ that does not begin with /")
    try:
        url, host = normalised_url(f"{scheme}://{address}{path}")
    except InvalidInputError as error:
        raise _LeftOutError(error.problems[0].problem) from None
    if (refusal := hosts.refusal(host)) is not None:
        raise _LeftOutError(f"is left out: {refusal}")
    if template.connection.has_tls and url.startswith("http://"):
        raise _LeftOutError("has no label __scheme__ with the value https, and the section's connection has TLS")
    try:
        kept = _LABELS.validate_python({k: v for k, v in labels.items() if not k.startswith("__")})
    except ValidationError:
        raise _LeftOutError("has more than 32 labels") from None
    return declared(url, kept.get("deployment") or url.partition("://")[2], kept, template)
