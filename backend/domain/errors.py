"""Every error that this project raises on purpose.

* BarrierscopeError
  + DomainError                the input or the state is wrong, so a retry would fail again
    - InvalidInputError          a document, an option or a body is malformed; lists every invalid field
    - UnknownEntityError         no such target, job, run, checkpoint ...
    - ConflictError              the request conflicts with stored data
    - TooLargeError              the request would cost more than a limit allows; the message has the fix
    - NotModelledError           the evidence on a job is too little for a model of it; the message has the fix
    - PlanError                  the runtime refuses a job graph or a configuration: rule, vertex and fix
      - CorruptCheckpointError     the data of a checkpoint differs from what was written
    - ProtocolViolationError     a task broke the checkpoint protocol (a bug, or a broken variant under test)
    - LeadershipLostError        another evaluator has taken over; nothing was written
    - ApiRefusedError            our own API refused a client's request
      - ApiNotFoundError           what the client requested does not exist
  + UpstreamError              something outside this process failed, so a retry may succeed
    - TargetUnavailableError     a target did not respond in time
    - TargetProtocolError        a target's response is not valid for its kind of target
      - WrongRootError             another path of the same address is the one to use
    - StoreUnavailableError      PostgreSQL does not respond
      - StoreBusyError             no connection to PostgreSQL became free in time
      - StoreFullError             the disk of PostgreSQL is full
    - PipelineFailedError        a Spark job failed
    - ApiUnavailableError        our own API does not respond to a client, or another program responds instead
  + RateLimitedError           the caller sends too many requests, so a retry after some time may succeed
  + HostError                  a port, a folder or a program of this machine is not usable; the message has the fix
    - DiskFullError              a disk of this machine is full

Errors have fields in addition to their text. ``api/problems.py`` translates them for HTTP, and ``cli/app.py`` for the
command line.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backend.domain.connection_failure import ConnectionFailure


class BarrierscopeError(Exception):
    """The base class of every error here. It is never raised itself."""


class DomainError(BarrierscopeError):
    """The input or the state is wrong, so the same call would fail again."""


class UpstreamError(BarrierscopeError):
    """Something outside this process failed, so the same call may succeed later."""


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """A problem with one field of an input.

    ``field`` is a dotted path into the document (``vertex[2].parallelism``). ``allowed`` describes the valid values.
    """

    field: str
    problem: str
    allowed: str | None = None

    def __str__(self) -> str:
        tail = f" (allowed: {self.allowed})" if self.allowed else ""
        return f"{self.field}: {self.problem}{tail}"


class InvalidInputError(DomainError):
    """A document, option or body is malformed. ``problems`` lists every problem that was found."""

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
    """The request conflicts with stored data. ``kind`` identifies the sort of conflict."""

    def __init__(self, message: str, *, kind: str) -> None:
        self.kind = kind
        super().__init__(message)


class TooLargeError(DomainError):
    """The request would cost more than a limit allows. ``field`` is the field to change, and ``fix`` how."""

    def __init__(self, what: str, problem: str, *, field: str, fix: str) -> None:
        self.what = what
        self.problem = problem
        self.field = field
        self.fix = fix
        super().__init__(f"the {what} is too large: {problem}; {fix}")


class NotModelledError(DomainError):
    """A job cannot be modelled from what was collected. ``fix`` is what would help."""

    def __init__(self, problem: str, *, fix: str) -> None:
        self.problem = problem
        self.fix = fix
        super().__init__(f"the job cannot be modelled: {problem}; {fix}")


class PlanError(DomainError):
    """The runtime refuses a job graph or a configuration.

    ``problem`` is the refusal as a sentence, ``rule`` the id of the violated rule in runtime.md (``G-6``), ``vertex``
    the vertex or edge, and ``fix`` what to change.
    """

    def __init__(self, message: str, *, rule: str, vertex: str | None, fix: str) -> None:
        self.problem = message
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
    """A task broke the checkpoint protocol. This is a bug, or a variant that is broken on purpose and under test."""

    def __init__(self, message: str, *, rule: str, subtask: str | None = None) -> None:
        self.rule = rule
        self.subtask = subtask
        super().__init__(f"{rule}{f' at {subtask}' if subtask else ''}: {message}")


class LeadershipLostError(DomainError):
    """Another process has taken over the evaluation of alerts. This process has written nothing."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        super().__init__(f"{holder} no longer evaluates alerts: another has taken over")


class TargetUnavailableError(UpstreamError):
    """A target refused the connection, has an unknown host name, or did not respond in time.

    ``failure`` is what failed; None if that is not known.
    """

    def __init__(self, *, url: str, reason: str, failure: ConnectionFailure | None = None) -> None:
        self.url = url
        self.reason = reason
        self.failure = failure
        super().__init__(f"{url}: {reason}")


class TargetProtocolError(UpstreamError):
    """A target's response is not valid for its kind of target (HTML, incomplete JSON, 200 MB, HTTP 500).

    ``is_passing`` is whether the response looks like that of a proxy or of a broken connection. The same request may
    then get a valid response at once. ``redirected_to`` is the path of a redirect that stays on the target's origin.
    ``failure`` is what failed.
    """

    def __init__(
        self,
        *,
        url: str,
        reason: str,
        status: int | None = None,
        is_passing: bool = False,
        redirected_to: str | None = None,
        failure: ConnectionFailure = ConnectionFailure.NOT_THIS_KIND,
    ) -> None:
        self.url = url
        self.reason = reason
        self.status = status
        self.is_passing = is_passing
        self.redirected_to = redirected_to
        self.failure = failure
        super().__init__(f"{url}: {reason}")


class WrongRootError(TargetProtocolError):
    """The address is not the root of the target's API, and ``root`` is. ``of`` is what ``root`` is the root of."""

    def __init__(self, *, url: str, reason: str, root: str, of: str = "the target") -> None:
        self.root = root
        super().__init__(url=url, reason=f"{reason}; the REST root of {of} is {root}")


class StoreUnavailableError(UpstreamError):
    """PostgreSQL does not respond. ``kind`` identifies the sort of trouble, and ``summary`` describes it."""

    kind = "unavailable"
    summary = "the store does not answer"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{self.summary}: {reason}")


class StoreBusyError(StoreUnavailableError):
    """PostgreSQL may respond, but no connection to it became free in time."""

    kind = "busy"
    summary = "no connection to the store is free"


class StoreFullError(StoreUnavailableError):
    """PostgreSQL responds, but its disk is full, so it stores nothing."""

    kind = "full"
    summary = "the disk of the store is full"


class PipelineFailedError(UpstreamError):
    """A Spark job failed, or its session ended.

    Rollups that were already stored stay; the next run computes the others.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the pipeline failed: {reason}")


class ApiRefusedError(DomainError):
    """Our API refused a client's request. The text is taken from the problem document.

    ``parts`` are the problem and a sentence for each wrong field; empty if no field is wrong. ``fields`` has what is
    wrong with each field, by its name. ``kind`` is the last part of the type of the problem, which does not change
    between versions.
    """

    def __init__(
        self,
        text: str,
        parts: tuple[str, ...] = (),
        *,
        kind: str | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        self.parts = parts
        self.kind = kind
        self.fields = dict(fields or {})
        super().__init__(text)


class ApiNotFoundError(ApiRefusedError):
    """Our API knows no job, checkpoint or alert with the requested id."""


class ApiUnavailableError(UpstreamError):
    """Our API does not respond to a client, or another program responds at its address.

    ``kind`` is the last part of the type of the problem, if our API sent one. It is ``upstream`` if our API responds,
    but a target does not.
    """

    def __init__(self, text: str, *, kind: str | None = None) -> None:
        self.kind = kind
        super().__init__(text)


class RateLimitedError(BarrierscopeError):
    """The caller sends too many requests of this kind. A request after ``retry_after_s`` seconds may succeed."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message)


class HostError(BarrierscopeError):
    """A problem of this machine, such as a port in use or a folder that is not writable. The text includes a fix."""

    def __init__(self, what: str, *, fix: str) -> None:
        self.what = what
        self.fix = fix
        super().__init__(f"{what}; {fix}")


FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
"""The error numbers that an ``OSError`` has if a disk is full or a quota is exhausted."""


class DiskFullError(HostError):
    """The disk is full. The same call may succeed when there is room."""
