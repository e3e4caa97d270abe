"""Start a session cluster of one Flink version on this machine, with Flink's own defaults, and start and stop its jobs.

The configuration contains addresses and ports of the loopback interface, folders, memory and slots. Everything else is
Flink's default: among others, how often metrics are fetched, how long answers are kept, the buffers and the settings of
checkpoints. A job passes its own settings.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.simulators.versions.jars import is_before

SOURCES = Path(__file__).parent / "java"
_START_S = 240.0
_STOP_S = 15.0
_PAUSE_S = 0.5
_ENDED = ("CANCELED", "FINISHED", "FAILED")
# What Flink's own start scripts pass to Java 17 from Flink 1.17 on (env.java.opts.all).
_OPENED = (
    *(f"java.{name}" for name in ("lang", "net", "io", "nio", "lang.reflect", "text", "time", "util")),
    *(f"java.util.concurrent{name}" for name in ("", ".atomic", ".locks")),
    "sun.nio.ch",
)
_EXPORTED = ("java.base/sun.net.util", "java.rmi/sun.rmi.registry", "java.security.jgss/sun.security.krb5")
_JAVA_OPTIONS = (
    *(f"--add-exports={package}=ALL-UNNAMED" for package in _EXPORTED),
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
)
_LOG = """rootLogger.level = INFO
rootLogger.appenderRef.f.ref = F
appender.f.name = F
appender.f.type = File
appender.f.fileName = ${sys:log.file}
appender.f.layout.type = PatternLayout
appender.f.layout.pattern = %d{HH:mm:ss,SSS} %-5p %-60c %x - %m%n
"""
_SIZES = {
    "taskmanager.memory.process.size": "2600m",
    "taskmanager.memory.managed.size": "416m",
    "taskmanager.memory.network.min": "400m",
    "taskmanager.memory.network.max": "400m",
    "jobmanager.memory.process.size": "1200m",
    "taskmanager.numberOfTaskSlots": "52",
}


class RefusedError(Exception):
    """The cluster refused a request. The text is its answer."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running session cluster."""

    version: str
    url: str
    folder: Path
    session: aiohttp.ClientSession
    jar_id: str

    async def json(self, method: str, path: str, **given: Any) -> Any:
        """Send a request, and return the JSON of the answer.

        Raises:
            RefusedError: the answer is not a success.
        """
        async with self.session.request(method, self.url + path, **given) as answer:
            if answer.status >= 300:
                raise RefusedError(f"{method} {path}: {answer.status} {(await answer.text())[:3000]}")
            return await answer.json()

    async def submit(self, words: Sequence[str]) -> str:
        """Start a job with these arguments, and return its id."""
        body = {"entryClass": "versions.VersionsJob", "programArgsList": list(words)}
        answer = await self.json("POST", f"/jars/{self.jar_id}/run", json=body)
        return str(answer["jobid"])

    async def state(self, job_id: str) -> str:
        """Return the state of a job, in Flink's words."""
        return str((await self.json("GET", f"/jobs/{job_id}"))["state"])

    async def cancel(self, job_id: str) -> None:
        """Cancel a job, and wait until it has ended."""
        async with self.session.patch(f"{self.url}/jobs/{job_id}?mode=cancel"):
            pass
        await self.until(job_id, lambda state: state in _ENDED, within_s=60)

    async def until(self, job_id: str, holds: Callable[[str], bool], *, within_s: float) -> None:
        """Wait until the state of the job is one that is waited for.

        Raises:
            TimeoutError: it was not, for so long.
        """

        async def is_reached() -> bool:
            return holds(await self.state(job_id))

        await _until(is_reached, within_s=within_s)

    async def stop_with_savepoint(self, job_id: str) -> None:
        """Stop a job with a savepoint. This returns when Flink has accepted the request."""
        body = {"targetDirectory": (self.folder / "savepoints").as_uri(), "drain": False}
        await self.json("POST", f"/jobs/{job_id}/stop", json=body)

    async def settings(self) -> dict[str, str]:
        """Return the settings that the cluster reports."""
        return {row["key"]: row["value"] for row in await self.json("GET", "/jobmanager/config")}


def job_settings(folder: Path, version: str) -> dict[str, str]:
    """Return the settings of every job: a checkpoint interval, the place of checkpoints, and a restart strategy."""
    is_old = is_before(version, "2.0")
    checkpoints = (folder / "checkpoints").as_uri()
    return {
        "execution.checkpointing.interval": "3s",
        ("restart-strategy" if is_old else "restart-strategy.type"): "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "2s",
        ("state.checkpoints.dir" if is_old else "execution.checkpointing.dir"): checkpoints,
    }


@asynccontextmanager
async def started(
    home: Path, version: str, *, more: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Cluster]:
    """Run a cluster of the version whose distribution is in ``home``. At the end, remove its processes and files.

    ``more`` are settings of the cluster that an advice asks for. If they protect the REST API, ``tls`` reaches it.
    """
    folder = Path(tempfile.mkdtemp(prefix="barrierscope-flink-"))
    try:
        async with AsyncExitStack() as stack:
            rest, rpc = _free_port(), _free_port()
            _configure(folder, version, _ports(rest, rpc) | dict(more or {}))
            jar = _compiled(home, version, folder)
            await _start_processes(stack, home, folder)
            connector = aiohttp.TCPConnector(ssl=True if tls is None else tls)
            session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60), connector=connector)
            await stack.enter_async_context(session)
            url = f"{'http' if tls is None else 'https'}://127.0.0.1:{rest}"
            await _await_slots(session, url, folder)
            yield Cluster(version, url, folder, session, await _uploaded(session, url, jar))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ports(rest: int, rpc: int) -> dict[str, str]:
    return {"rest.port": str(rest), "rest.bind-port": str(rest), "jobmanager.rpc.port": str(rpc)}


def _configure(folder: Path, version: str, own: Mapping[str, str]) -> None:
    for name in ("conf", "log", "tmp", "checkpoints", "savepoints", "changelog"):
        (folder / name).mkdir()
    hosts = ("jobmanager.rpc.address", "jobmanager.bind-host", "taskmanager.host", "taskmanager.bind-host")
    addresses = dict.fromkeys((*hosts, "rest.address", "rest.bind-address"), "127.0.0.1")
    # A job can enable the changelog state backend, but the place of its files is a setting of the cluster.
    changelog = {"state.backend.changelog.storage": "filesystem", "dstl.dfs.base-path": (folder / "changelog").as_uri()}
    settings = {**addresses, **_SIZES, **changelog, "io.tmp.dirs": str(folder / "tmp"), **own}
    name = "flink-conf.yaml" if is_before(version, "1.19") else "config.yaml"
    (folder / "conf" / name).write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    (folder / "conf" / "log4j.properties").write_text(_LOG)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _compiled(home: Path, version: str, folder: Path) -> Path:
    """Compile the jobs against this version, and return the jar."""
    sources = [path for path in sorted(SOURCES.glob("*.java")) if _has(version, path.stem)]
    classes = folder / "classes"
    # Flink 1.13 and 1.14 cannot read the classes of functions that are compiled for Java 17.
    options = ["-nowarn", "-Xlint:none", "--release", "11", "-cp", f"{home}/lib/*", "-d", str(classes)]
    command = ["javac", *options, *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"Flink {version}: {done.stderr}")
    jar = folder / "versions-job.jar"
    with zipfile.ZipFile(jar, "w") as out:
        for path in classes.rglob("*.class"):
            out.write(path, path.relative_to(classes))
    return jar


def _has(version: str, java_class: str) -> bool:
    return java_class != "LegacyNumbers" or is_before(version, "2.0")


async def _start_processes(stack: AsyncExitStack, home: Path, folder: Path) -> None:
    path = f"{home}/lib/*"
    options, resources = _task_manager_options(home, folder)
    runtime = "org.apache.flink.runtime"
    manager = f"{runtime}.entrypoint.StandaloneSessionClusterEntrypoint"
    await _start(stack, folder, "jobmanager", ["-Xmx600m", "-cp", path], manager, [])
    worker = f"{runtime}.taskexecutor.TaskManagerRunner"
    await _start(stack, folder, "taskmanager", [*options, "-cp", path], worker, resources)


def _task_manager_options(home: Path, folder: Path) -> tuple[list[str], list[str]]:
    """Return what Flink's own program computes for the TaskManager: the options of Java, and the arguments."""
    path = f"{home}/bin/bash-java-utils.jar:{home}/lib/*"
    program = "org.apache.flink.runtime.util.bash.BashJavaUtils"
    command = ["java", "-cp", path, program, "GET_TM_RESOURCE_PARAMS", "--configDir", str(folder / "conf")]
    done = subprocess.run(command, capture_output=True, text=True)
    mark = "BASH_JAVA_UTILS_EXEC_RESULT:"
    lines = (done.stdout + done.stderr).splitlines()
    told = [line.partition(mark)[2].split() for line in lines if mark in line]
    if len(told) != 2:
        raise SystemExit(f"the memory of the TaskManager cannot be computed: {done.stdout}{done.stderr}")
    return told[0], told[1]


async def _start(
    stack: AsyncExitStack, folder: Path, name: str, options: Sequence[str], main: str, arguments: Sequence[str]
) -> None:
    log = folder / "log" / name
    properties = {
        "log.file": f"{log}.log",
        "log4j.configurationFile": f"file:{folder}/conf/log4j.properties",
        "java.io.tmpdir": str(folder / "tmp"),
    }
    given = [f"-D{key}={value}" for key, value in properties.items()]
    command = ["nice", "-n", "5", "java", *_JAVA_OPTIONS, *options, *given]
    command += [main, "--configDir", str(folder / "conf"), *arguments]
    out = stack.enter_context(await asyncio.to_thread(Path(f"{log}.out").open, "w"))
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, env=_environment(folder)
    )
    stack.push_async_callback(_stop, process)


def _environment(folder: Path) -> Mapping[str, str]:
    return {**os.environ, "FLINK_CONF_DIR": str(folder / "conf"), "FLINK_PLUGINS_DIR": str(folder / "plugins")}


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End a process: first ask it to, then force it."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        await asyncio.wait_for(process.wait(), _STOP_S)
    except TimeoutError:
        process.kill()
        await process.wait()


async def _await_slots(session: aiohttp.ClientSession, url: str, folder: Path) -> None:
    async def has_slots() -> bool:
        return await _slots(session, url) > 0

    try:
        await _until(has_slots, within_s=_START_S)
    except TimeoutError:
        raise SystemExit(f"the cluster did not start\n{log_tail(folder)}") from None


async def _until(holds: Callable[[], Awaitable[bool]], *, within_s: float) -> None:
    for _ in range(round(within_s / _PAUSE_S)):
        if await holds():
            return
        await asyncio.sleep(_PAUSE_S)
    raise TimeoutError


async def _slots(session: aiohttp.ClientSession, url: str) -> int:
    try:
        async with session.get(f"{url}/overview") as answer:
            return int((await answer.json())["slots-total"]) if answer.status == 200 else 0
    except aiohttp.ClientError:
        return 0


async def _uploaded(session: aiohttp.ClientSession, url: str, jar: Path) -> str:
    content = await asyncio.to_thread(jar.read_bytes)
    form = aiohttp.FormData()
    form.add_field("jarfile", content, filename=jar.name, content_type="application/x-java-archive")
    async with session.post(f"{url}/jars/upload", data=form) as answer:
        if answer.status >= 300:
            raise SystemExit(f"the jar was refused: {await answer.text()}")
        return str((await answer.json())["filename"]).rpartition("/")[2]


def log_tail(folder: Path, count: int = 30) -> str:
    """Return the last lines of the cluster's logs, for a message about a failure."""
    texts = [f"== {path.name}\n" + "\n".join(path.read_text().splitlines()[-count:]) for path in folder.glob("log/*")]
    return "\n".join(texts)


def say(text: str) -> None:
    """Print a line about the progress to standard error."""
    print(text, file=sys.stderr, flush=True)
