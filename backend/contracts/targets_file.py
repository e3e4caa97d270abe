"""The file ``targets.yaml``: what its keys mean, and how it is read. ``docs/reference/targets.yaml`` shows every key.

The file is the operator's, so it may name every address, variable and file. It is read by PyYAML's safe loader, which
makes no objects. Each problem is told with its line, and no problem repeats a value that may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError

from backend.contracts.api import Labels
from backend.contracts.connection import BasicDoc, ConnectionDoc, ProxyDoc
from backend.contracts.links import LinkTemplate, LinkTemplates
from backend.contracts.model import Model, OneLine, StrictBool
from backend.contracts.yaml_lines import Lines, Place, composed, dotted, invalid, whole
from backend.domain.connection import PLAIN, ConnectionOptions, problems_of
from backend.domain.declared_target import INTERVAL_MAX_S, INTERVAL_MIN_S, DeclaredLink, DeclaredSet, DeclaredTarget
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.flink_options import duration_ms
from backend.domain.target_url import normalised_url

SIZE_MAX_BYTES: Final = 2 * 2**20
TARGETS_MAX: Final = 5_000
DEFAULT_SOURCE: Final = "targets.yaml"
_PROBLEMS_MAX = 20
_SOURCE = re.compile(r"""^source:\s*["']?([A-Za-z0-9][A-Za-z0-9._-]{0,99})["']?\s*(?:#.*)?$""", re.MULTILINE)
_INTERVAL_ALLOWED = f"a number with a unit from {INTERVAL_MIN_S:g}s to {INTERVAL_MAX_S:g}s, such as 5s or 500ms"


def _interval(text: str) -> str:
    ms = duration_ms(text) if not text.strip().isdecimal() else None
    if ms is None or not INTERVAL_MIN_S * 1000 <= ms <= INTERVAL_MAX_S * 1000:
        raise PydanticCustomError("interval", "is not a time; write {allowed}", {"allowed": _INTERVAL_ALLOWED})
    return text


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
    interval: Annotated[str | None, AfterValidator(lambda v: v and _interval(v))] = None
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
    targets: Annotated[list[TargetDoc], Field(max_length=TARGETS_MAX)]


_NESTED: Final[Mapping[tuple[type[Model], str], type[Model]]] = {
    (TargetsFile, "targets"): TargetDoc,
    (TargetDoc, "links"): LinkTemplate,
    (TargetDoc, "connection"): ConnectionDoc,
    (ConnectionDoc, "basic"): BasicDoc,
    (ConnectionDoc, "proxy"): ProxyDoc,
}


def read_targets_file(path: Path) -> DeclaredSet:
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
        found = _SOURCE.search(path.read_text(encoding="utf-8")[:SIZE_MAX_BYTES])
    except (OSError, ValueError):
        return None
    return None if found is None else found[1]


def parse_targets(content: bytes, *, where: Path) -> DeclaredSet:
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
    found: list[DeclaredTarget] = []
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
        found.append(declared)
    if problems:
        raise _of_problems(problems, lines, where)
    return DeclaredSet(document.source, tuple(found))


def _declared(target: TargetDoc, folder: Path) -> DeclaredTarget:
    url, host = normalised_url(target.url)
    ui_url = None if target.ui_url is None else normalised_url(target.ui_url, field="ui_url")[0]
    options = PLAIN
    if target.connection is not None:
        half = target.connection.half_proxy()
        if half is not None:
            problem = FieldProblem(f"connection.proxy.{half}", "is missing", "both user and password, or none")
            raise InvalidInputError([problem])
        options = target.connection.options()
        if problems := problems_of(options, url):
            raise InvalidInputError([FieldProblem(f"connection.{p.field}", p.problem, p.allowed) for p in problems])
    return DeclaredTarget(
        url=url,
        name=target.name or url.partition("://")[2] or host,
        kind=target.kind,
        labels=target.labels,
        interval_s=None if target.interval is None else (duration_ms(target.interval) or 0) / 1000,
        ui_url=ui_url,
        links=tuple(DeclaredLink(link.name, link.url) for link in target.links),
        is_paused=target.paused,
        connection=_absolute(options, folder),
    )


def _absolute(options: ConnectionOptions, folder: Path) -> ConnectionOptions:
    """Return the options with absolute paths, so that each process finds the files."""
    document = options.document()

    def placed(value: object) -> object:
        if isinstance(value, dict):
            return {key: placed(v) for key, v in value.items()}
        if isinstance(value, str) and value.startswith("file:"):
            return f"file:{PurePosixPath(folder) / value.removeprefix('file:')}"
        return value

    return ConnectionOptions.of(placed(document))  # type: ignore[arg-type]


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
