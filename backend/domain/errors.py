"""Every error that this project raises on purpose.

* BarrierscopeError
  + DomainError                the input or the state is wrong; a retry fails again
    - InvalidInputError          fields of a document, option or body: name, problem, allowed values
    - UnknownEntityError         no such target, job, run, checkpoint ...
    - ConflictError              the request conflicts with stored data
    - PlanError                  the runtime refuses a job graph or a configuration: rule, vertex and fix
      - CorruptCheckpointError     the data of a checkpoint differs from what was written
    - ProtocolViolationError     a task broke the checkpoint protocol (a bug, or a broken variant under test)
    - LeadershipLostError        another evaluator has taken over; nothing was written
    - ApiRefusedError            our own API refused a client's request
  + UpstreamError              something outside this process failed; a retry may succeed
    - TargetUnavailableError     a target did not answer in time
    - TargetProtocolError        a target's answer does not fit its kind
    - StoreUnavailableError      PostgreSQL does not answer
    - PipelineFailedError        a Spark job failed
    - ApiUnavailableError        our own API does not answer a client, or another program does
  + HostError                  a port, a folder or a program of this machine, with the fix in the message

Errors have fields, not only text. ``api/problems.py`` translates them for HTTP, ``cli/app.py`` for the command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class BarrierscopeError(Exception):
    """Root of the tree. It is not raised itself."""


class DomainError(BarrierscopeError):
    """The input or the state is wrong; the same call fails again."""


class UpstreamError(BarrierscopeError):
    """Something outside this process failed; the same call may succeed later."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """A problem with one field.

    ``field`` is a dotted path into the document (``vertex[2].parallelism``). ``allowed`` describes valid values.
    """

    field: str
    problem: str
    allowed: str | None = None

    def __str__(self) -> str:
        tail = f" (allowed: {self.allowed})" if self.allowed else ""
        return f"{self.field}: {self.problem}{tail}"


class InvalidInputError(DomainError):
    """A document, option or body is malformed. Every problem found is listed."""

    def __init__(self, problems: Sequence[FieldProblem], *, what: str = "input") -> None:
        self.problems = tuple(problems)
        self.what = what
        super().__init__(f"invalid {what}: " + "; ".join(str(p) for p in self.problems))


class UnknownEntityError(DomainError):
    """No entity of this kind has this id."""

    def __init__(self, *, kind: str, id: object) -> None:
        self.kind = kind
        self.id = str(id)
        super().__init__(f"no {kind} {self.id!r}")


class ConflictError(DomainError):
    """The request conflicts with stored data."""

    def __init__(self, message: str, *, kind: str) -> None:
        self.kind = kind
        super().__init__(message)


class PlanError(DomainError):
    """A job graph or configuration that the runtime refuses.

    ``rule`` is the id in runtime.md (``G-6``), ``vertex`` the vertex or edge, ``fix`` what to change.
    """

    def __init__(self, message: str, *, rule: str, vertex: str | None, fix: str) -> None:
        self.rule = rule
        self.vertex = vertex
        self.fix = fix
        where = f" at {vertex!r}" if vertex else ""
        super().__init__(f"{rule}{where}: {message}; {fix}")


class CorruptCheckpointError(PlanError):
    """A checkpoint cannot be restored because ``part`` of it differs from what was written."""

    def __init__(self, message: str, *, part: str) -> None:
        self.part = part
        super().__init__(message, rule="CK-3", vertex=None, fix="restore another checkpoint or savepoint")


class ProtocolViolationError(DomainError):
    """A task broke the checkpoint protocol."""

    def __init__(self, message: str, *, rule: str, subtask: str | None = None) -> None:
        self.rule = rule
        self.subtask = subtask
        super().__init__(f"{rule}{f' at {subtask}' if subtask else ''}: {message}")


class LeadershipLostError(DomainError):
    """Another process evaluates alerts now. This one has written nothing."""

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
    """A target's answer does not fit its kind (HTML, incomplete JSON, 200 MB, HTTP 500)."""

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
    """A Spark job failed, or its session ended. Stored hours stay; the next run computes the rest."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the pipeline failed: {reason}")


class ApiRefusedError(DomainError):
    """Our API refused a client's request. The message is from the problem document."""


class ApiUnavailableError(UpstreamError):
    """Our API does not answer a client, or another program answers at its address."""


class HostError(BarrierscopeError):
    """A problem of this machine, such as a port in use or a folder that is not writable, with its fix; one line."""

    def __init__(self, what: str, *, fix: str) -> None:
        self.what = what
        self.fix = fix
        super().__init__(f"{what}; {fix}")
