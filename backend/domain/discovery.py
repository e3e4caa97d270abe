"""Where targets are found beside those that a file lists: each section is a set of targets of its own.

A section is the operator's, and what it finds is not: whoever writes the list or creates the object chooses the address
of a target. So found targets have the origin ``DISCOVERY``: their addresses obey the allow-list of the service and that
of the section, and only the section may name credentials.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from backend.domain.connection import PLAIN, ConnectionOptions
from backend.domain.declared_target import DeclaredLink, DeclaredSet, DeclaredTarget
from backend.domain.target import TargetOrigin

EVERY_MIN_S: Final = 1.0
EVERY_MAX_S: Final = 24 * 3600.0
KUBERNETES_KINDS: Final = ("flink", "spark")
"""The kinds of targets that operators in Kubernetes describe."""
FOUND_MAX: Final = 5_000
"""The largest number of targets that one section may find."""


@dataclass(frozen=True, slots=True)
class TargetTemplate:
    """What every target of a section has beside what was found. The fields are those of ``DeclaredTarget``."""

    kind: str = "flink"
    interval_s: float | None = None
    links: tuple[DeclaredLink, ...] = ()
    is_paused: bool = False
    connection: ConnectionOptions = PLAIN


@dataclass(frozen=True, slots=True)
class FileSd:
    """Files in the format of Prometheus' ``file_sd``. ``patterns`` are absolute paths, with ``*`` in the names."""

    name: str
    patterns: tuple[str, ...]
    allowed: tuple[str, ...] = ()
    template: TargetTemplate = TargetTemplate()

    @property
    def place(self) -> str:
        """Where the list is, for messages."""
        return ", ".join(self.patterns)


@dataclass(frozen=True, slots=True)
class HttpSd:
    """A server that answers in the format of Prometheus' ``http_sd``. ``query`` may be secret, so it is not shown."""

    name: str
    url: str
    query: str = field(default="", repr=False)
    every_s: float = 60.0
    connection: ConnectionOptions = PLAIN
    allowed: tuple[str, ...] = ()
    template: TargetTemplate = TargetTemplate()

    @property
    def place(self) -> str:
        """Where the list is, for messages."""
        return self.url


@dataclass(frozen=True, slots=True)
class KubernetesSd:
    """A Kubernetes cluster with flink-kubernetes-operator. Without ``namespaces``, all are read.

    ``selector`` is a label selector in Kubernetes' own form, "" for every object. ``kubeconfig`` is a path; None means
    the service account of this pod. ``cluster`` is the first part of the identity of every job.
    """

    name: str
    cluster: str
    namespaces: tuple[str, ...] = ()
    selector: str = ""
    kubeconfig: str | None = None
    context: str | None = None
    has_history: bool = True
    """Whether upgrades, snapshots and the ends of pods are read too."""
    template: TargetTemplate = TargetTemplate()

    @property
    def place(self) -> str:
        """Where the objects are, for messages."""
        where = "the cluster of this pod" if self.kubeconfig is None else self.kubeconfig
        return f"Kubernetes ({where})"


Discovery: TypeAlias = FileSd | HttpSd | KubernetesSd


@dataclass(frozen=True, slots=True)
class DeclaredFile(DeclaredSet):
    """What a file declares: its own targets, and the sections that find more."""

    discoveries: tuple[Discovery, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What a section found at one time. ``left_out`` says of each namespace and entry that is not read why.

    ``unread`` are the namespaces that were not read. Their earlier targets stay.
    """

    targets: tuple[DeclaredTarget, ...] = ()
    left_out: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    def declared(self, source: str) -> DeclaredSet:
        """Return the set that replaces the targets of ``source``."""
        return DeclaredSet(source, self.targets, TargetOrigin.DISCOVERY, unread=self.unread)


def source_of(file_source: str, section: str) -> str:
    """Return the name of a section's set. No file can have this name, because it contains a slash."""
    return f"{file_source}/{section}"
