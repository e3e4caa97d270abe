"""The section ``discovery`` of ``targets.yaml``: where more targets are found, and how they are read.

It has the parts that the targets of the file have too: times, links and connections.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from backend.contracts.connection import ConnectionDoc
from backend.contracts.links import LinkTemplates
from backend.contracts.model import Model, OneLine, StrictBool
from backend.domain.address_rules import is_rule
from backend.domain.connection import PLAIN, ConnectionOptions, problems_of
from backend.domain.declared_target import INTERVAL_MAX_S, INTERVAL_MIN_S, DeclaredLink
from backend.domain.discovery import (
    EVERY_MAX_S,
    EVERY_MIN_S,
    KUBERNETES_KINDS,
    Discovery,
    FileSd,
    HttpSd,
    KubernetesSd,
    TargetTemplate,
)
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.flink_options import duration_ms
from backend.domain.target_url import normalised_url

_SECTIONS_MAX: Final = 50
_NAMESPACE: Final = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
_CLUSTER: Final = r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$"
_LIMITS: Final = {"allowed": 'hosts such as ["*.flink.example"]', "namespaces": "namespaces such as [payments]"}
_HAS_TLS_OR_NOT: Final = "https://"
"""The addresses of a section's targets are not known yet, so the options are checked as those of a TLS connection."""


def _time(text: str, least_s: float, most_s: float) -> str:
    ms = duration_ms(text) if not text.strip().isdecimal() else None
    if ms is None or not least_s * 1000 <= ms <= most_s * 1000:
        allowed = f"a number with a unit from {least_s:g}s to {most_s:g}s, such as 5s or 500ms"
        raise PydanticCustomError("interval", "is not a time; write {allowed}", {"allowed": allowed})
    return text


def _rule(text: str) -> str:
    if not is_rule(text):
        raise PydanticCustomError("rule", "is no host; write a name, *.NAME, an address or a network")
    return text


Interval = Annotated[str, AfterValidator(lambda v: _time(v, INTERVAL_MIN_S, INTERVAL_MAX_S))]
Every = Annotated[str, AfterValidator(lambda v: _time(v, EVERY_MIN_S, EVERY_MAX_S))]
SectionName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
Allowed = Annotated[list[Annotated[str, Field(max_length=253), AfterValidator(_rule)]], Field(max_length=200)]


def seconds_of(text: str) -> float:
    """Return the seconds of a checked time."""
    return (duration_ms(text) or 0) / 1000


class FoundDoc(Model):
    """How the targets that a section finds are read. The keys are those of a target."""

    kind: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")] = "flink"
    interval: Interval | None = None
    links: LinkTemplates = []
    paused: StrictBool = False
    connection: ConnectionDoc | None = None


class FileSdDoc(Model):
    """A section that reads files in the format of Prometheus' ``file_sd``."""

    name: SectionName
    """Name of the section, which no other section has."""
    files: Annotated[list[Annotated[str, Field(min_length=1, max_length=1000)]], Field(min_length=1, max_length=100)]
    """Paths of JSON or YAML files. ``*`` may stand in the last part."""
    allowed: Allowed = []
    """The hosts that found targets may have. Required if ``targets`` has a connection."""
    targets: FoundDoc = FoundDoc()


class HttpSdDoc(Model):
    """A section that asks a server in the format of Prometheus' ``http_sd``."""

    name: SectionName
    url: Annotated[str, Field(max_length=2000)]
    """Address of the list. It may have a query."""
    every: Every = "60s"
    """Time between two requests."""
    connection: ConnectionDoc | None = None
    """How requests reach the server of the list."""
    allowed: Allowed = []
    targets: FoundDoc = FoundDoc()


class KubernetesDoc(Model):
    """A section that watches the resources of flink-kubernetes-operator or, for ``targets.kind: spark``, of Kubeflow's
    spark-operator.
    """

    name: SectionName
    cluster: Annotated[str | None, Field(min_length=1, max_length=63, pattern=_CLUSTER)] = None
    """Name of the Kubernetes cluster, a part of the identity of its jobs. Without it, the name of the section."""
    namespaces: Annotated[list[Annotated[str, Field(pattern=_NAMESPACE)]], Field(max_length=200)] = []
    """The namespaces that are read. Without them, all."""
    selector: Annotated[str, Field(max_length=1000), OneLine] = ""
    """Label selector, such as ``team=payments``. Without it, every object."""
    kubeconfig: Annotated[str | None, Field(min_length=1, max_length=1000)] = None
    """File with the access to the cluster. Without it, the service account of the collector's pod."""
    context: Annotated[str | None, Field(min_length=1, max_length=200)] = None
    """Context in the kubeconfig. Without it, the current one."""
    history: StrictBool = True
    """Whether upgrades, snapshots and the ends of pods are read for the history of the jobs."""
    targets: FoundDoc = FoundDoc()


class DiscoveryDoc(Model):
    """The sections that find targets."""

    file_sd: Annotated[list[FileSdDoc], Field(max_length=_SECTIONS_MAX)] = []
    http_sd: Annotated[list[HttpSdDoc], Field(max_length=_SECTIONS_MAX)] = []
    kubernetes: Annotated[list[KubernetesDoc], Field(max_length=_SECTIONS_MAX)] = []

    def sections(self, folder: Path) -> tuple[Discovery, ...]:
        """Return the sections. Relative paths are relative to ``folder``.

        Raises:
            InvalidInputError: something is wrong. The fields are relative to this document.
        """
        problems: list[FieldProblem] = []
        found: list[Discovery] = []
        for n, one in enumerate(self.file_sd):
            with _Collecting(problems, f"file_sd.{n}"):
                found.append(_file_sd(one, folder))
        for n, other in enumerate(self.http_sd):
            with _Collecting(problems, f"http_sd.{n}"):
                found.append(_http_sd(other, folder))
        for n, cluster in enumerate(self.kubernetes):
            with _Collecting(problems, f"kubernetes.{n}"):
                found.append(_kubernetes(cluster, folder))
        names = [(f"{kind}.{n}.name", s.name) for kind, s, n in self._named()]
        for n, (place, name) in enumerate(names):
            if name in [earlier for _, earlier in names[:n]]:
                problems.append(FieldProblem(place, f"is the name of another section too: {name}", "another name"))
        if problems:
            raise InvalidInputError(problems)
        return tuple(found)

    def _named(self) -> list[tuple[str, FileSdDoc | HttpSdDoc | KubernetesDoc, int]]:
        return [
            *(("file_sd", s, n) for n, s in enumerate(self.file_sd)),
            *(("http_sd", s, n) for n, s in enumerate(self.http_sd)),
            *(("kubernetes", s, n) for n, s in enumerate(self.kubernetes)),
        ]


class _Collecting:
    """Adds the problems of a section to a list, with the place of the section, and goes on."""

    def __init__(self, problems: list[FieldProblem], place: str) -> None:
        self._problems = problems
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, InvalidInputError):
            return False
        told = (FieldProblem(f"{self._place}.{p.field}", p.problem, p.allowed) for p in error.problems)
        self._problems.extend(told)
        return True


def _file_sd(document: FileSdDoc, folder: Path) -> FileSd:
    patterns = tuple(str(PurePosixPath(folder) / name) for name in document.files)
    for n, pattern in enumerate(patterns):
        if "*" in str(PurePosixPath(pattern).parent):
            raise InvalidInputError([FieldProblem(f"files.{n}", "has * in the name of a folder", "* in the last part")])
        if PurePosixPath(pattern).suffix not in (".json", ".yaml", ".yml"):
            raise InvalidInputError([FieldProblem(f"files.{n}", "is neither JSON nor YAML", "*.json, *.yaml, *.yml")])
    template = _template(document.targets, folder, allowed=document.allowed)
    return FileSd(document.name, patterns, tuple(document.allowed), template)


def _http_sd(document: HttpSdDoc, folder: Path) -> HttpSd:
    address, mark, query = document.url.strip().partition("?")
    url, _ = normalised_url(address, what="discovery")
    if mark and (not query.isascii() or not query.isprintable() or " " in query or "#" in query):
        raise InvalidInputError([FieldProblem("url", "has a query with signs that an address cannot have", "%XX")])
    if address.rstrip().endswith("/") and urlsplit(url).path:
        # The address of a target has no slash at its end. A list is one resource, and its slash counts.
        url += "/"
    connection = options_of(document.connection, url, folder)
    template = _template(document.targets, folder, allowed=document.allowed)
    every_s, allowed = seconds_of(document.every), tuple(document.allowed)
    return HttpSd(document.name, url, query, every_s, connection, allowed, template)


def _kubernetes(document: KubernetesDoc, folder: Path) -> KubernetesSd:
    if document.context is not None and document.kubeconfig is None:
        raise InvalidInputError([FieldProblem("context", "is used with a kubeconfig only", "kubeconfig: PATH")])
    if document.targets.kind not in KUBERNETES_KINDS:
        problem = f"is not read in Kubernetes: {document.targets.kind}"
        raise InvalidInputError([FieldProblem("targets.kind", problem, " or ".join(KUBERNETES_KINDS))])
    template = _template(document.targets, folder, limit="namespaces", allowed=document.namespaces)
    return KubernetesSd(
        name=document.name,
        cluster=document.cluster or document.name,
        namespaces=tuple(dict.fromkeys(document.namespaces)),
        selector=document.selector.strip(),
        kubeconfig=None if document.kubeconfig is None else str(PurePosixPath(folder) / document.kubeconfig),
        context=document.context,
        has_history=document.history,
        template=template,
    )


def _template(document: FoundDoc, folder: Path, *, allowed: list[str], limit: str = "allowed") -> TargetTemplate:
    with _Prefixed("targets"):
        connection = options_of(document.connection, _HAS_TLS_OR_NOT, folder)
    if connection != PLAIN and not allowed:
        problem = "is missing: each found target receives the credentials of targets.connection, so they are limited"
        raise InvalidInputError([FieldProblem(limit, problem, _LIMITS[limit])])
    return TargetTemplate(
        kind=document.kind,
        interval_s=None if document.interval is None else seconds_of(document.interval),
        links=tuple(DeclaredLink(link.name, link.url) for link in document.links),
        is_paused=document.paused,
        connection=connection,
    )


def options_of(document: ConnectionDoc | None, url: str, folder: Path) -> ConnectionOptions:
    """Return the options of a connection to ``url``, with absolute paths, so that each process finds the files.

    Raises:
        InvalidInputError: something is wrong. The fields begin with ``connection``.
    """
    if document is None:
        return PLAIN
    half = document.half_proxy()
    if half is not None:
        problem = FieldProblem(f"connection.proxy.{half}", "is missing", "both user and password, or none")
        raise InvalidInputError([problem])
    options = document.options()
    if problems := problems_of(options, url):
        raise InvalidInputError([FieldProblem(f"connection.{p.field}", p.problem, p.allowed) for p in problems])
    return _absolute(options, folder)


def _absolute(options: ConnectionOptions, folder: Path) -> ConnectionOptions:
    document = options.document()

    def placed(value: object) -> object:
        if isinstance(value, dict):
            return {key: placed(v) for key, v in value.items()}
        if isinstance(value, str) and value.startswith("file:"):
            return f"file:{PurePosixPath(folder) / value.removeprefix('file:')}"
        return value

    return ConnectionOptions.of(placed(document))  # type: ignore[arg-type]


class _Prefixed:
    """Puts a name before the fields of the problems that are raised inside."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidInputError):
            told = [FieldProblem(f"{self._name}.{p.field}", p.problem, p.allowed) for p in error.problems]
            raise InvalidInputError(told) from None
