"""The file ``targets.yaml``: what its keys mean, and how it is read. ``docs/reference/targets.yaml`` shows every key.

The file is the operator's, so it may name every address, variable and file. It is read by PyYAML's safe loader, which
makes no objects. Each problem is told with its line, and no problem repeats a value that may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, StringConstraints, ValidationError

from backend.contracts.api import Labels
from backend.contracts.connection import BasicDoc, ConnectionDoc, ProxyDoc
from backend.contracts.discovery import (
    DiscoveryDoc,
    FileSdDoc,
    FoundDoc,
    HttpSdDoc,
    Interval,
    KubernetesDoc,
    options_of,
    seconds_of,
)
from backend.contracts.links import LinkTemplate, LinkTemplates
from backend.contracts.model import Model, OneLine, StrictBool
from backend.contracts.yaml_lines import Lines, Place, composed, dotted, invalid, whole
from backend.domain.declared_target import DeclaredLink, DeclaredTarget
from backend.domain.discovery import DeclaredFile, Discovery
from backend.domain.engines import SPARK
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.target_url import is_folder, is_store, normalised_folder, normalised_store, normalised_url

SIZE_MAX_BYTES: Final = 2 * 2**20
TARGETS_MAX: Final = 5_000
DEFAULT_SOURCE: Final = "targets.yaml"
_PROBLEMS_MAX = 20
_SOURCE = re.compile(r"""^source:\s*["']?([A-Za-z0-9][A-Za-z0-9._-]{0,99})["']?\s*(?:#.*)?$""", re.MULTILINE)


class TargetDoc(Model):
    """One target of the file."""

    url: Annotated[str, Field(max_length=2000)]
    """Root of the REST API of Flink or Spark, with the prefix of a proxy's path. Without user and password."""
    kind: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")] = "flink"
    """The collector that reads the target."""
    name: Annotated[Annotated[str, OneLine] | None, Field(min_length=1, max_length=200)] = None
    """Name on the pages. Without it, the address is shown."""
    labels: Labels = {}
    """Texts by name. The label ``deployment`` is part of the identity of the target's jobs."""
    interval: Interval | None = None
    """Time between two readings, such as ``5s``. Without it, that of the collector."""
    ui_url: Annotated[str | None, Field(max_length=2000)] = None
    """Address of the engine's web UI in browsers, if it is not ``url``."""
    links: LinkTemplates = []
    """Links that the pages offer for the target's jobs, each with ``name`` and ``url``."""
    paused: StrictBool = False
    """Whether the target is listed, but not read."""
    connection: ConnectionDoc | None = None
    """Credentials by reference, TLS and proxy."""


class TargetsFile(Model):
    """The whole file."""

    source: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$"), Field(max_length=100)] = (
        DEFAULT_SOURCE
    )
    """Name of this set of targets. Two collectors with different files need different names."""
    targets: Annotated[list[TargetDoc], Field(max_length=TARGETS_MAX)] = []
    discovery: DiscoveryDoc | None = None
    """Where more targets are found."""


_NESTED: Final[Mapping[tuple[type[Model], str], type[Model]]] = {
    (TargetsFile, "targets"): TargetDoc,
    (TargetsFile, "discovery"): DiscoveryDoc,
    (DiscoveryDoc, "file_sd"): FileSdDoc,
    (DiscoveryDoc, "http_sd"): HttpSdDoc,
    (DiscoveryDoc, "kubernetes"): KubernetesDoc,
    (KubernetesDoc, "targets"): FoundDoc,
    (FileSdDoc, "targets"): FoundDoc,
    (HttpSdDoc, "targets"): FoundDoc,
    (HttpSdDoc, "connection"): ConnectionDoc,
    (FoundDoc, "links"): LinkTemplate,
    (FoundDoc, "connection"): ConnectionDoc,
    (TargetDoc, "links"): LinkTemplate,
    (TargetDoc, "connection"): ConnectionDoc,
    (ConnectionDoc, "basic"): BasicDoc,
    (ConnectionDoc, "proxy"): ProxyDoc,
}


def read_targets_file(path: Path) -> DeclaredFile:
    """Read and check the file.

    Raises:
        InvalidInputError: the file cannot be read, or something in it is wrong. Each problem names the line.
    """
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_MAX_BYTES + 1)
    except OSError as error:
        raise whole(path, f"cannot be read ({error.strerror})") from None
    if len(content) > SIZE_MAX_BYTES:
        raise whole(path, f"is larger than {SIZE_MAX_BYTES // 2**20} MiB")
    return parse_targets(content, where=path)


def source_in(path: Path) -> str | None:
    """Return the name of the set from a file that may be wrong otherwise, or None if it has none."""
    try:
        match = _SOURCE.search(path.read_text(encoding="utf-8")[:SIZE_MAX_BYTES])
    except (OSError, ValueError):
        return None
    return None if match is None else match[1]


def parse_targets(content: bytes, *, where: Path) -> DeclaredFile:
    """Return the targets in ``content``. Relative paths of references are relative to the folder of ``where``.

    Raises:
        InvalidInputError: something is wrong. Each problem names the line in ``where``.
    """
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise whole(where, "is not text in UTF-8") from None
    root, lines = composed(text, where)
    try:
        document = TargetsFile.model_validate(root)
    except ValidationError as error:
        raise _of_problems(_wrong_fields(error), lines, where) from None
    if not document.model_fields_set & {"targets", "discovery"}:
        raise _of_problems([(("targets",), "is missing", None)], lines, where)
    targets: list[DeclaredTarget] = []
    places: dict[str, int] = {}
    problems: list[tuple[Place, str, str | None]] = []
    for n, target in enumerate(document.targets):
        at = ("targets", n)
        try:
            declared = _declared(target, where.absolute().parent)
        except InvalidInputError as error:
            problems += [((*at, *p.field.split(".")), p.problem, p.allowed) for p in error.problems]
            continue
        first = places.setdefault(declared.url, n)
        if first != n:
            problems.append(((*at, "url"), f"is the address of targets[{first}] too", "another address"))
        targets.append(declared)
    sections: tuple[Discovery, ...] = ()
    if document.discovery is not None:
        try:
            sections = document.discovery.sections(where.absolute().parent)
        except InvalidInputError as error:
            problems += [(("discovery", *_parts(p.field)), p.problem, p.allowed) for p in error.problems]
    if problems:
        raise _of_problems(problems, lines, where)
    return DeclaredFile(document.source, tuple(targets), discoveries=sections)


def _parts(field: str) -> Place:
    return tuple(int(part) if part.isdecimal() else part for part in field.split("."))


def _declared(target: TargetDoc, folder: Path) -> DeclaredTarget:
    if is_folder(target.url):
        url = host = _folder(target)
    elif is_store(target.url):
        url = host = _store(target)
    else:
        url, host = normalised_url(target.url)
    ui_url = None if target.ui_url is None else normalised_url(target.ui_url, field="ui_url")[0]
    return DeclaredTarget(
        url=url,
        name=target.name or url.partition("://")[2] or host,
        kind=target.kind,
        labels=target.labels,
        interval_s=None if target.interval is None else seconds_of(target.interval),
        ui_url=ui_url,
        links=tuple(DeclaredLink(link.name, link.url) for link in target.links),
        is_paused=target.paused,
        connection=options_of(target.connection, url, folder),
    )


def _folder(target: TargetDoc) -> str:
    """Return the address of a folder of event logs, which only the operator may declare."""
    if target.kind != SPARK.kind:
        raise InvalidInputError(
            [FieldProblem("url", f"is a folder, which no target of kind {target.kind} is", "spark")]
        )
    if target.connection is not None:
        raise InvalidInputError([FieldProblem("connection", "is of no use, because the url is a folder", "none")])
    return normalised_folder(target.url)


def _store(target: TargetDoc) -> str:
    """Return the address of a folder of event logs in a store, which only the operator may declare."""
    if target.kind != SPARK.kind:
        problem = f"is a folder of a store, which no target of kind {target.kind} is"
        raise InvalidInputError([FieldProblem("url", problem, "spark")])
    return normalised_store(target.url)


def _wrong_fields(error: ValidationError) -> Iterator[tuple[Place, str, str | None]]:
    for found in error.errors(include_url=False, include_input=False):
        path = tuple(part for part in found["loc"] if part != "[key]")
        if found["type"] == "extra_forbidden":
            known = _keys_at(path[:-1])
            close = get_close_matches(str(path[-1]), known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            yield path, f"is not a key of this file{hint}", ", ".join(known)
        elif found["type"] == "missing":
            yield path, "is missing", None
        else:
            yield path, found["msg"], None


def _keys_at(path: Place) -> Sequence[str]:
    model: type[Model] = TargetsFile
    for part in path:
        if isinstance(part, int):
            continue
        kinds = _NESTED.get((model, part))
        if kinds is None:
            return ()
        model = kinds
    return tuple(model.model_fields)


def keys() -> Iterator[str]:
    """Yield every key of the file as a dotted path, such as ``targets.connection.basic.user``."""
    yield from _keys_of(TargetsFile, "")


def _keys_of(model: type[Model], prefix: str) -> Iterator[str]:
    for name in model.model_fields:
        yield prefix + name
        if (nested := _NESTED.get((model, name))) is not None:
            yield from _keys_of(nested, f"{prefix}{name}.")


def _of_problems(problems: Iterable[tuple[Place, str, str | None]], lines: Lines, where: Path) -> InvalidInputError:
    told = [
        FieldProblem(f"{where}:{lines.of(path)}: {dotted(path)}", text, allowed) for path, text, allowed in problems
    ]
    if len(told) > _PROBLEMS_MAX:
        more = FieldProblem(str(where), f"has {len(told) - _PROBLEMS_MAX} more problems")
        told = [*told[:_PROBLEMS_MAX], more]
    return invalid(told)
