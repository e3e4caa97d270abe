"""Every error this project raises on purpose.

* BarrierscopeError
  + DomainError                the input or the state is wrong; retrying will not help
    - InvalidInputError          one field of a document, option or body: which, what was wrong, what is allowed
    - UnknownEntityError         no such target, job, run, checkpoint ...
    - ConflictError              it clashes with what is there
    - PlanError                  a job graph or a configuration the runtime must refuse; names rule, vertex and fix
      - CorruptCheckpointError     what was read of a checkpoint is not what was written
    - ProtocolViolationError     a task broke the checkpoint protocol (a bug, or a broken variant under test)
    - LeadershipLostError        another evaluator has taken over; nothing was written
    - ApiRefusedError            our own API, asked by a client, said the request is wrong
  + UpstreamError              something outside us failed; retrying may help
    - TargetUnavailableError     a target did not answer, or not in time
    - TargetProtocolError        a target answered, but not as its kind answers
    - StoreUnavailableError      PostgreSQL is away
    - PipelineFailedError        Spark did not do what it was asked
    - ApiUnavailableError        our own API does not answer a client, or not as ours does
  + HostError                  this machine: a port, a folder, a program; one line tells what to do

Errors carry fields, not only text. They are translated once: ``api/problems.py`` for HTTP, ``cli.py`` for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class BarrierscopeError(Exception):
    """Root of the tree; never raised itself."""


class DomainError(BarrierscopeError):
    """The input or the state is wrong; the same call fails again."""


class UpstreamError(BarrierscopeError):
    """Something outside this process failed; the same call may succeed later."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing wrong with one field.

    ``field`` is a dotted path into the document (``vertex[2].parallelism``), ``allowed`` says what would do.
    """

    field: str
    problem: str
    allowed: str | None = None

    def __str__(self) -> str:
        tail = f" (allowed: {self.allowed})" if self.allowed else ""
        return f"{self.field}: {self.problem}{tail}"


class InvalidInputError(DomainError):
    """A document, option or body is malformed; every problem found is listed."""

    def __init__(self, problems: Sequence[FieldProblem], *, what: str = "input") -> None:
        self.problems = tuple(problems)
        self.what = what
        super().__init__(f"invalid {what}: " + "; ".join(str(p) for p in self.problems))


class UnknownEntityError(DomainError):
    """Nothing of this kind has this id."""

    def __init__(self, *, kind: str, id: object) -> None:
        self.kind = kind
        self.id = str(id)
        super().__init__(f"no {kind} {self.id!r}")


class ConflictError(DomainError):
    """The request clashes with what is stored."""

    def __init__(self, message: str, *, kind: str) -> None:
        self.kind = kind
        super().__init__(message)


class PlanError(DomainError):
    """A job graph or configuration that must be refused.

    ``rule`` is the id in runtime.md (``G-6``), ``vertex`` the vertex or edge it concerns, ``fix`` what to change.
    """

    def __init__(self, message: str, *, rule: str, vertex: str | None, fix: str) -> None:
        self.rule = rule
        self.vertex = vertex
        self.fix = fix
        where = f" at {vertex!r}" if vertex else ""
        super().__init__(f"{rule}{where}: {message}; {fix}")


class CorruptCheckpointError(PlanError):
    """A checkpoint that must not be restored: what was read is not what was written. ``part`` says where."""

    def __init__(self, message: str, *, part: str) -> None:
        self.part = part
        super().__init__(message, rule="CK-3", vertex=None, fix="restore another checkpoint or savepoint")


class ProtocolViolationError(DomainError):
    """A task did what the checkpoint protocol forbids."""

    def __init__(self, message: str, *, rule: str, subtask: str | None = None) -> None:
        self.rule = rule
        self.subtask = subtask
        super().__init__(f"{rule}{f' at {subtask}' if subtask else ''}: {message}")


class LeadershipLostError(DomainError):
    """Another process evaluates alerts now; what this one would have written, it did not."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        super().__init__(f"{holder} no longer evaluates alerts: another has taken over")


class TargetUnavailableError(UpstreamError):
    """A target refused the connection, did not resolve or did not answer in time."""

    def __init__(self, *, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"{url}: {reason}")


class TargetProtocolError(UpstreamError):
    """A target answered with something its kind never answers (HTML, half a JSON, 200 MB, HTTP 500)."""

    def __init__(self, *, url: str, reason: str, status: int | None = None) -> None:
        self.url = url
        self.reason = reason
        self.status = status
        super().__init__(f"{url}: {reason}")


class StoreUnavailableError(UpstreamError):
    """PostgreSQL does not answer."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the store does not answer: {reason}")


class PipelineFailedError(UpstreamError):
    """A Spark job failed, or the session ended under it; what had been moved into place stays, the rest is redone."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the pipeline failed: {reason}")


class ApiRefusedError(DomainError):
    """Our API refused a client's request; the message is the problem document's."""


class ApiUnavailableError(UpstreamError):
    """Our API does not answer a client, or something else answers in its place."""


class HostError(BarrierscopeError):
    """This machine is not as needed (port taken, folder unwritable or in use): ``what`` and ``fix``, one line."""

    def __init__(self, what: str, *, fix: str) -> None:
        self.what = what
        self.fix = fix
        super().__init__(f"{what}; {fix}")
