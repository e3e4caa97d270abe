"""The stage of a story: the service that shows it, and a live runtime that runs its job.

Without a given service, ``barrierscope up`` is started in a temporary folder, without the demo jobs. The job runs in a
live runtime of the story's own, which is added to the service as a target. When the stage is left, the target is
removed, every process is stopped, and the folder is deleted.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.cli.listening import check_port
from backend.cli.own_api import OwnApi
from backend.cli.supervisor import Role, Supervisor, role_command
from backend.cli.targets import Client
from backend.domain.errors import ApiUnavailableError, BarrierscopeError, HostError
from backend.runtime.demo import STORY
from backend.settings import load_settings

if TYPE_CHECKING:
    from backend.contracts.advice import CardOut
    from backend.contracts.alerts import AlertOut
    from backend.contracts.api import CheckpointOut, JobOut, VerdictOut

_SOURCE = "Source: orders"
# The runtime simulates this time when it starts, so that the service finds completed checkpoints.
_WARM_UP = "30s"
_WATCH_INTERVAL_S = 0.1
_UP_STOP_TIMEOUT_S = 40.0
# A start takes less than a minute, and a few minutes on a machine that has much to do.
_START_MAX_S = 600.0
_REST_TIMEOUT_S = 10.0
_SHOWN_MAX = 50
Tell = Callable[[str], None]


class LiveStage:
    """The processes of a story, and what its acts read from the service. Use it as a context manager.

    ``url`` is the address of a running service. With None, a service is started on ``port``. ``tell`` is called with
    the steps of the start.
    """

    def __init__(self, url: str | None, *, port: int, tell: Tell) -> None:
        self.url = (url or f"http://127.0.0.1:{port}").rstrip("/")
        self._is_own = url is None
        self._port = port
        self._tell = tell
        self._folder = Path(tempfile.mkdtemp(prefix="barrierscope-demo-"))
        self._supervisor = Supervisor(self._folder, lambda _: None, lambda _: None)
        self._client = Client(self.url)
        self._runtime = f"http://127.0.0.1:{_free_port()}/runtime/v1"
        self._target_id: str | None = None
        # A job is identified by deployment and name. With a new label, each story has a new job.
        self._labels = {"deployment": f"story-{secrets.token_hex(4)}"}
        self._is_target_asked = False

    def __enter__(self) -> LiveStage:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the target from a service that keeps running, stop every process, and delete the folder."""
        try:
            if self._is_target_asked and not self._is_own:
                with contextlib.suppress(BarrierscopeError):
                    self._remove_target()
            self._is_target_asked = False
            self._client.__exit__()
            self._supervisor.stop()
        except KeyboardInterrupt:
            # On a second Ctrl-C, kill the processes instead of stopping them in order. The sweeper of `up` then ends
            # the roles of `up`.
            self._supervisor.kill()
            raise
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def watch(self) -> None:
        """Restart a process that has ended. The owner calls this often."""
        self._supervisor.watch()

    # --- the start ------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._is_own:
            check_port("127.0.0.1", self._port, option="--port")
            self._tell("starting PostgreSQL, the API with the pages, the collector and the alerts")
            options = ("--port", str(self._port), "--data-dir", str(self._folder / "data"), "--poll-interval", "1s")
            command = role_command("up", "--no-demo", "--no-spark-demo", *options)
            self._supervisor.start(Role("up", command, dict(os.environ), _UP_STOP_TIMEOUT_S))
        port = self._runtime.split(":")[2].partition("/")[0]
        command = role_command("runtime", "--port", port, "--job", STORY, "--warm-up", _WARM_UP)
        self._supervisor.start(Role("runtime", command, dict(os.environ)))
        with OwnApi(self.url, load_settings().token()) as api:
            if self._is_own:
                self._await("up", api.is_ready)
            self._await("runtime", lambda: api.is_runtime_ready(self._runtime))
        self._add_target()

    def _await(self, name: str, is_ready: Callable[[], bool]) -> None:
        until_s = time.monotonic() + _START_MAX_S
        while not is_ready():
            if time.monotonic() > until_s:
                raise HostError(
                    f"{name} is not ready after {_START_MAX_S:.0f} s ({self._supervisor.last_words(name)})",
                    fix="start the story again when the machine has less to do",
                )
            if self._supervisor.failures(name):
                words = self._supervisor.last_words(name)
                raise HostError(f"{name} did not start ({words})", fix="mend that and start the story again")
            self.watch()
            time.sleep(_WATCH_INTERVAL_S)

    def _add_target(self) -> None:
        from backend.contracts.api import TargetIn, TargetOut

        body = TargetIn.model_construct(url=self._runtime, name="story", labels=self._labels, kind="flink")
        self._is_target_asked = True
        self._target_id = self._client.post("/api/v1/targets", body, TargetOut).id

    def _remove_target(self) -> None:
        """Remove the target. If Ctrl-C came before the service answered with its id, find it by its label."""
        known = self._target_id
        target_ids = [t.id for t in self._client.targets() if t.labels == self._labels] if known is None else [known]
        for target in target_ids:
            self._client.delete(f"/api/v1/targets/{target}")
        self._target_id = None

    # --- what the acts read and do ----------------------------------------------------------------------------------

    def job(self) -> JobOut | None:
        """Return the job of the story, or None while the service does not know it."""
        from backend.contracts.api import JobOut, Page

        found = self._client.get(f"/api/v1/jobs?limit=20&target={self._target_id}", Page[JobOut]).items
        return found[0] if found else None

    def checkpoints(self, job: JobOut) -> Sequence[CheckpointOut]:
        """Return the newest checkpoints of the job's current run, newest first."""
        from backend.contracts.api import CheckpointOut, Page

        found = self._client.get(f"/api/v1/jobs/{job.id}/checkpoints?limit={_SHOWN_MAX}", Page[CheckpointOut]).items
        return [c for c in found if c.run_id == job.run_id]

    def verdict(self, checkpoint: CheckpointOut) -> VerdictOut:
        """Return the verdict on a checkpoint."""
        from backend.contracts.api import CheckpointDetailOut

        return self._client.get(checkpoint.link, CheckpointDetailOut).verdict

    def alerts(self, job: JobOut) -> Sequence[AlertOut]:
        """Return the newest alerts of the job, in any state, newest first."""
        from backend.contracts.alerts import AlertOut
        from backend.contracts.api import Page

        return self._client.get(f"/api/v1/alerts?limit={_SHOWN_MAX}&job={job.id}", Page[AlertOut]).items

    def cards(self, job: JobOut) -> Sequence[CardOut]:
        """Return the current recommendations for the job."""
        from backend.contracts.advice import JobAdviceOut

        return self._client.get(f"/api/v1/jobs/{job.id}/advice", JobAdviceOut).cards

    def apply(self, card: CardOut) -> None:
        """Apply a recommendation to the running job."""
        from backend.contracts.advice import CardOut

        self._client.post(f"/api/v1/jobs/{card.job_id}/recommendations/{card.id}/apply", None, CardOut)

    def raise_load(self, subtasks: int) -> None:
        """Give the source of the running job this many subtasks, by the runtime's REST."""
        import httpx

        try:
            with httpx.Client(base_url=self._runtime, timeout=_REST_TIMEOUT_S, trust_env=False) as rest:
                job = _json(rest.get("/jobs/overview"))["jobs"][0]["jid"]
                source = next(v["id"] for v in _json(rest.get(f"/jobs/{job}"))["vertices"] if v["name"] == _SOURCE)
                wanted = _json(rest.get(f"/jobs/{job}/resource-requirements"))
                wanted[source]["parallelism"]["upperBound"] = subtasks
                _json(rest.put(f"/jobs/{job}/resource-requirements", json=wanted))
        except httpx.HTTPError as error:
            raise ApiUnavailableError(f"the runtime at {self._runtime} does not answer ({error})") from None


def _json(answer: Any) -> Any:
    return answer.raise_for_status().json()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
