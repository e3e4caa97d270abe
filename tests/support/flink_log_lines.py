"""Writes lines of Flink's logs as its versions write them, for tests of ``diagnose --log``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

JOB: Final = "8f5c0e2b3d4a4f6b9c1d2e3f4a5b6c7d"
VERTEX: Final = "cbc357ccb763df2852fee8c4fc7d55f2"
GRAPH: Final = "5" * 32
START: Final = datetime(2024, 3, 5, 12, 0, 0)  # noqa: DTZ001 - a log's times have no zone
ZONE: Final = timedelta(hours=2)
COORDINATOR: Final = "org.apache.flink.runtime.checkpoint.CheckpointCoordinator"
FAILURES: Final = "org.apache.flink.runtime.checkpoint.CheckpointFailureManager"
EXECUTION: Final = "org.apache.flink.runtime.executiongraph.ExecutionGraph"
TASK: Final = "org.apache.flink.runtime.taskmanager.Task"


def attempt(subtask: int, number: int = 0) -> str:
    """Return the id of an execution attempt as Flink 1.16 and later write it."""
    return f"{GRAPH}_{VERTEX}_{subtask}_{number}"


def line(at_s: float, text: str, *, level: str = "INFO", logger: str = COORDINATOR, trace: str = "") -> str:
    """Return a line in the pattern of Flink's default configuration, ``at_s`` seconds after the start."""
    at = START + timedelta(seconds=at_s)
    head = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d} {level:<5} {logger:<60} [] - {text}\n"
    return head + (f"{trace}\n" if trace else "")


def triggered(number: int, at_s: float, *, kind: str = "CHECKPOINT", job: str = JOB) -> str:
    """Return the line of a trigger. The clock of the log is two hours ahead of UTC."""
    ms = round(1000 * (START - ZONE + timedelta(seconds=at_s)).replace(tzinfo=UTC).timestamp()) - 3
    return line(at_s, f"Triggering checkpoint {number} (type={kind}) @ {ms} for job {job}.")


def completed(number: int, at_s: float, took_ms: int = 2_000, *, job: str = JOB) -> str:
    """Return the line of a completed checkpoint as Flink 1.14 and later write it."""
    text = f"({5_000_000} bytes, checkpointDuration={took_ms} ms, finalizationTime=7 ms)."
    return line(at_s, f"Completed checkpoint {number} for job {job} {text}")


def expired(number: int, at_s: float) -> str:
    """Return the lines of an expired checkpoint."""
    return line(at_s, f"Checkpoint {number} of job {JOB} expired before completing.") + line(
        at_s,
        f"Failed to trigger or complete checkpoint {number} for job {JOB}. (1 consecutive failed attempts so far)",
        level="WARN",
        logger=FAILURES,
        trace="org.apache.flink.runtime.checkpoint.CheckpointException: Checkpoint expired before completing.\n"
        f"\tat {COORDINATOR}$CheckpointCanceller.run(CheckpointCoordinator.java:2216) [flink-dist-1.20.0.jar:1.20.0]",
    )


def late(number: int, at_s: float, subtask: int) -> str:
    """Return the line of an acknowledgement that came after the checkpoint had expired."""
    return line(
        at_s,
        f"Received late message for now expired checkpoint attempt {number} from task {attempt(subtask)} of job {JOB}"
        " at container_e01_1_1_01_000002 @ host-a (dataPort=41245).",
        level="WARN",
    )


def declined(number: int, at_s: float, subtask: int, trace: str) -> str:
    """Return the lines of a declined checkpoint."""
    text = f"Decline checkpoint {number} by task {attempt(subtask)} of job {JOB} at tm-1 @ host-a (dataPort=41245)."
    return line(at_s, text, trace=trace)


def task_switched(at_s: float, subtask: int, new: str, *, logger: str = EXECUTION, number: int = 0) -> str:
    """Return the line of a task that changes its state."""
    return line(
        at_s, f"window ({subtask + 1}/4) ({attempt(subtask, number)}) switched from RUNNING to {new}.", logger=logger
    )


def restarted(at_s: float, trace: str, *, old: str = "RUNNING", new: str = "RESTARTING") -> str:
    """Return the lines of a job that begins to restart."""
    return line(at_s, f"Job orders ({JOB}) switched from state {old} to {new}.", logger=EXECUTION, trace=trace)


FENCED: Final = (
    "org.apache.flink.util.FlinkRuntimeException: Committing one of transactions failed, logging first encountered"
    " failure\n\tat a.B.c(B.java:1)\nCaused by: org.apache.kafka.common.errors.ProducerFencedException: Producer"
    " attempted an operation with an old epoch. Either there is a newer producer with the same transactionalId, or the"
    " producer's transaction has been expired by the broker.\n\t... 12 more"
)
SLOW_DOWN: Final = (
    "org.apache.flink.runtime.checkpoint.CheckpointException: Asynchronous task checkpoint failed.\n"
    "\tat org.apache.flink.streaming.runtime.tasks.AsyncCheckpointRunnable.handleExecutionException(A.java:320)\n"
    "Caused by: java.lang.Exception: Could not materialize checkpoint 4 for operator window (3/4)#0.\n"
    "Caused by: java.io.IOException: Could not flush and close the file system output stream to s3://a/chk/1 in"
    " order to obtain the stream state handle\n"
    "Caused by: com.amazonaws.services.s3.model.AmazonS3Exception: Please reduce your request rate. (Service: Amazon"
    " S3; Status Code: 503; Error Code: SlowDown)"
)
