"""Measures the CPU time of collecting and storing one poll of a target, compared with a scrape by Prometheus.

Many targets, each on its own port, play back the same recording of a Flink job at the speed of the benchmark. A round
polls every target several times with the product's collector, and stores every observation in PostgreSQL. From one
poll to the next, the recording advances by two seconds. Then Prometheus scrapes the same ports with its shortest
usual interval. The page that Prometheus scrapes has as many bytes as a poll received on average, and contains the
subtasks' values of checkpoints. A poll of Flink's REST API needs several requests and a scrape needs one, so the
benchmark prints the number of requests of both.

Rounds alternate (A B A B ...), so that a busy machine affects both. The CPU time is that of our process plus that of
all processes of PostgreSQL, and that of Prometheus. A ratio is the median over the pairs, with the smallest and the
largest ratio.

Prometheus is found on the PATH, or named with --prometheus or by the variable PROMETHEUS. On Debian, ``apt-get
download prometheus`` and ``dpkg -x`` unpack it without installing a service. Without it, only our own costs are
printed.

    python benchmarks/collect_bench.py [--targets 60] [--pairs 3] [--recording B2] [--prometheus PROGRAM] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import uvloop

from backend.cli.garbage import collect_garbage_less_often
from backend.domain.target import TargetOrigin
from backend.store.ingest import IngestWriter
from backend.store.postgres.connections import create_store_engine
from backend.store.targets.targets import NewTarget, TargetRepository
from backend.store.wall_clock import WallClock
from collectors.flink.client import open_transport
from collectors.flink.collector import FlinkCollector
from tests.support.benchmarking import parser_of, targets_in_a_process, tree_cpu_s
from tests.support.databases import Databases, temporary_server
from tests.support.plain_http import Connection
from tests.support.recorded_flink import NAMES, RECORDINGS, RecordedFlink

_POLL_EVERY_S = 2.0
_SCRAPE_EVERY_S = 1.0
_SCRAPE_FOR_S = 8.0
_WARM_POLLS = 5
_IN_FLIGHT = 16
_TIMEOUT_S = 30.0


# --- the targets: one process, one port for each target -----------------------------------------------------------


class Targets:
    """The responses of all targets. All are at the same instant of the same recording."""

    def __init__(self, name: str, now: datetime) -> None:
        self.flink = RecordedFlink(RECORDINGS / name)
        self.flink = RecordedFlink(RECORDINGS / name, self.flink.recording.begins_s, now=now)
        self.step = 0
        self.request_count = 0
        self.sent_bytes = 0
        self.page_bytes = 0
        self._answers: dict[str, bytes] = {}

    def response(self, path: str) -> bytes:
        """Return the whole HTTP response to a GET of ``path``."""
        if path.startswith("/benchmark/"):
            return _http(200, self._command(path.removeprefix("/benchmark/")))
        answer = self._answers.get(path)
        if answer is None:
            answer = self._answers[path] = self._made(path)
        self.request_count += 1
        self.sent_bytes += len(answer) - answer.index(b"\r\n\r\n") - 4
        return answer

    def _made(self, path: str) -> bytes:
        if path == "/metrics":
            return _http(200, self._page(), kind=b"text/plain; version=0.0.4")
        status, body = self.flink.answer(path)
        return _http(status, orjson.dumps(body))

    def _command(self, command: str) -> bytes:
        name, _, value = command.partition("/")
        if name == "at":
            self.flink.at_s = float(value)
            self.step += 1
            self._answers.clear()
        elif name == "page":
            self.page_bytes = int(value)
            self._answers.clear()
        counts = {"request_count": self.request_count, "sent_bytes": self.sent_bytes}
        self.request_count = self.sent_bytes = 0
        return orjson.dumps(counts)

    def _page(self) -> bytes:
        """Return a page of metrics with about ``page_bytes`` bytes.

        It has the values of the subtasks for as many checkpoints as fit.
        """
        lines: list[str] = []
        room = self.page_bytes
        for line in _metric_lines(self.flink):
            room -= len(line) + 1
            if room < 0:
                break
            lines.append(line)
        return ("\n".join(lines) + "\n").encode()


def _metric_lines(flink: RecordedFlink) -> Iterator[str]:
    paths = sorted(p for p in flink.recording.times if "/subtasks/" in p and "/checkpoints/details/" in p)
    for n, path in enumerate(paths):
        found = flink.recording.last(path, flink.recording.end_s)
        if found is None or found[0] != 200:
            continue
        vertex = path.rpartition("/")[2][:8]
        for row in found[1]["subtasks"]:
            for name, value in sorted(_numbers(row)):
                # A position instead of the checkpoint's id keeps the number of series constant, as in a real exporter.
                yield f'flink_checkpoint_{name}{{vertex="{vertex}",subtask="{row["index"]}",age="{n}"}} {value}'


def _numbers(row: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}_")
        elif isinstance(value, int) and not isinstance(value, bool) and name != "index":
            yield prefix + name, value


def _http(status: int, body: bytes, *, kind: bytes = b"application/json; charset=UTF-8") -> bytes:
    head = b"HTTP/1.1 %d x\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (status, kind, len(body))
    return head + body


async def _serve(name: str, count: int, now: datetime) -> None:
    targets = Targets(name, now)
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(lambda: Connection(targets.response), "127.0.0.1", 0) for _ in range(count)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    print(json.dumps(ports), flush=True)
    await asyncio.Event().wait()


def _served(name: str, count: int, now: datetime) -> AbstractContextManager[list[int]]:
    """Serve the targets in a process of their own, which yields their ports."""
    command = [sys.executable, __file__, "--serve", now.isoformat(), "--recording", name, "--targets", str(count)]
    return targets_in_a_process(command)


def _command(ports: Sequence[int], text: str) -> dict[str, int]:
    """Send a command to the targets. Return what they sent since the previous command."""
    with urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/benchmark/{text}", timeout=_TIMEOUT_S) as answer:
        counts: dict[str, int] = json.loads(answer.read())
        return counts


# --- the two sides ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Round:
    """The cost of one round of the collector or of Prometheus, per poll or scrape of one target."""

    requests: float
    received_bytes: float
    client_cpu_us: float
    server_cpu_us: float

    @property
    def cpu_us(self) -> float:
        """The CPU time of the collector and PostgreSQL, or of Prometheus."""
        return self.client_cpu_us + self.server_cpu_us


class Collecting:
    """Our side: a collector for each target, and one writer."""

    def __init__(self, url: str, server_pid: int, ports: Sequence[int], recorded: RecordedFlink) -> None:
        self._url = url
        self._server_pid = server_pid
        self._ports = ports
        self._recorded = recorded
        self._collectors: list[FlinkCollector] = []
        self.stored_count = 0

    async def __aenter__(self) -> Collecting:
        self._engine = create_store_engine(self._url, plans_once=True)
        self._writer = IngestWriter(self._engine)
        self._stack = AsyncExitStack()
        repository = TargetRepository(self._engine)
        for port in self._ports:
            url = f"http://127.0.0.1:{port}"
            target = await repository.add(NewTarget(url, str(port), TargetOrigin.API), at=self._recorded.now)
            transport = await self._stack.enter_async_context(open_transport(url, timeout_s=_TIMEOUT_S))
            collector = FlinkCollector(transport, target_id=target.id, monotonic_s=self._recorded.monotonic_s)
            self._collectors.append(collector)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        await self._engine.dispose()

    async def round(self, polls: int) -> Round:
        """Poll every target ``polls`` times."""
        _command(self._ports, f"at/{self._recorded.at_s}")
        began_s, server_s = time.process_time(), tree_cpu_s(self._server_pid)
        request_count = sent_bytes = 0
        limit = asyncio.Semaphore(_IN_FLIGHT)
        for _ in range(polls):
            await asyncio.gather(*(self._poll(c, limit) for c in self._collectors))
            self._recorded.at_s += _POLL_EVERY_S
            counts = _command(self._ports, f"at/{self._recorded.at_s}")
            request_count += counts["request_count"]
            sent_bytes += counts["sent_bytes"]
        number = polls * len(self._collectors)
        client_s, server_s = time.process_time() - began_s, tree_cpu_s(self._server_pid) - server_s
        return Round(request_count / number, sent_bytes / number, 1e6 * client_s / number, 1e6 * server_s / number)

    async def _poll(self, collector: FlinkCollector, limit: asyncio.Semaphore) -> None:
        async with limit:
            result = await self._writer.write(await collector.collect(self._recorded.now))
            self.stored_count += result.new_count


class Scraping:
    """The peer: Prometheus with all targets, and its storage in ``folder``."""

    def __init__(self, program: str, folder: Path, ports: Sequence[int]) -> None:
        self._program = program
        self._folder = folder
        self._ports = ports

    def round(self, page_bytes: int) -> Round:
        """Let Prometheus scrape all targets for some seconds, with pages of ``page_bytes``."""
        _command(self._ports, f"page/{page_bytes}")
        data = Path(tempfile.mkdtemp(dir=self._folder))
        (data / "prometheus.yml").write_text(
            f"global: {{scrape_interval: {_SCRAPE_EVERY_S:g}s, scrape_timeout: {_SCRAPE_EVERY_S:g}s}}\n"
            f"scrape_configs: [{{job_name: targets, static_configs: "
            f"[{{targets: [{', '.join(f'127.0.0.1:{p}' for p in self._ports)}]}}]}}]\n"
        )
        command = [
            self._program,
            f"--config.file={data / 'prometheus.yml'}",
            f"--storage.tsdb.path={data / 'data'}",
            "--web.listen-address=127.0.0.1:0",
            "--log.level=error",
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            # The first scrapes create all series, which costs more than the later ones.
            time.sleep(3 * _SCRAPE_EVERY_S)
            _command(self._ports, f"page/{page_bytes}")
            before_s = tree_cpu_s(process.pid)
            time.sleep(_SCRAPE_FOR_S)
            counts = _command(self._ports, f"page/{page_bytes}")
            cpu_s = tree_cpu_s(process.pid) - before_s
        finally:
            process.terminate()
            process.wait(30)
        number = counts["request_count"]
        if number < len(self._ports):
            raise SystemExit(f"Prometheus made only {number} scrapes of {len(self._ports)} targets")
        return Round(1.0, counts["sent_bytes"] / number, 1e6 * cpu_s / number, 0.0)


# --- the measurement ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """The medians over all pairs. ``ratio`` is our CPU time divided by that of Prometheus, or None without a peer."""

    recording: str
    targets: int
    pairs: int
    polls: int
    ours: Round
    prometheus: Round | None
    ratio: tuple[float, float, float] | None
    load: float


async def _measure(databases: Databases, server_pid: int, program: str | None, options: argparse.Namespace) -> Result:
    name, pairs = options.recording, options.pairs
    now = WallClock().now() - timedelta(minutes=5)
    recorded = RecordedFlink(RECORDINGS / name)
    recorded = RecordedFlink(RECORDINGS / name, recorded.recording.begins_s, now=now)
    left_s = recorded.recording.last_running_s - recorded.at_s - (_WARM_POLLS + 1) * _POLL_EVERY_S
    polls = int(left_s / _POLL_EVERY_S / pairs)
    if polls < 1:
        raise SystemExit(f"the recording {name} is too short for {pairs} pairs")
    ours: list[Round] = []
    peers: list[Round] = []
    folder = Path(tempfile.mkdtemp(prefix="barrierscope-bench-"))
    try:
        with _served(name, options.targets, now) as ports, databases.migrated() as url:
            async with Collecting(url, server_pid, ports, recorded) as collecting:
                # The first polls read the backlog, and create connections, partitions and query plans.
                await collecting.round(_WARM_POLLS)
                for _ in range(pairs):
                    ours.append(await collecting.round(polls))
                    if program is not None:
                        page_bytes = round(statistics.median(r.received_bytes for r in ours))
                        peers.append(await asyncio.to_thread(Scraping(program, folder, ports).round, page_bytes))
                if not collecting.stored_count:
                    raise SystemExit("no checkpoint was stored")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    ratios = [o.cpu_us / p.cpu_us for o, p in zip(ours, peers, strict=False)]
    ratio = (statistics.median(ratios), min(ratios), max(ratios)) if ratios else None
    middle = _middle(peers) if peers else None
    return Result(name, options.targets, pairs, polls, _middle(ours), middle, ratio, os.getloadavg()[0])


def _middle(rounds: Sequence[Round]) -> Round:
    def of(get: Callable[[Round], float]) -> float:
        return round(statistics.median(map(get, rounds)), 2)

    return Round(
        of(lambda r: r.requests),
        of(lambda r: r.received_bytes),
        of(lambda r: r.client_cpu_us),
        of(lambda r: r.server_cpu_us),
    )


def _print(result: Result) -> None:
    ours, peer = result.ours, result.prometheus
    print(
        f"recording {result.recording}, {result.targets} targets, {result.pairs} pairs of {result.polls} polls,"
        f" load {result.load:.1f}\n"
        f"  collect and store: {ours.cpu_us:.0f} us CPU a poll (collector {ours.client_cpu_us:.0f}, PostgreSQL"
        f" {ours.server_cpu_us:.0f}), {ours.requests:.2f} requests, {ours.received_bytes:.0f} bytes"
    )
    if peer is None or result.ratio is None:
        print("  Prometheus: skipped, because there is no such program on the PATH (see --help)")
        return
    print(
        f"  Prometheus: {peer.cpu_us:.0f} us CPU a scrape, {peer.requests:.0f} request,"
        f" {peer.received_bytes:.0f} bytes\n"
        f"  x Prometheus: {result.ratio[0]:.2f} [{result.ratio[1]:.2f} to {result.ratio[2]:.2f}]"
    )


def main(arguments: Sequence[str]) -> None:
    """Run the benchmark and print its result."""
    parser = parser_of(__doc__)
    parser.add_argument("--targets", type=int, default=60, help="number of targets [60]")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of rounds [3]")
    parser.add_argument("--recording", choices=NAMES, default="B2", help="the recording of Flink to play back [B2]")
    parser.add_argument("--prometheus", default=os.environ.get("PROMETHEUS", "prometheus"), help="the program")
    parser.add_argument("--serve", metavar="NOW", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        asyncio.run(_serve(options.recording, options.targets, datetime.fromisoformat(options.serve)))
        return
    # The role does this too.
    collect_garbage_less_often()
    with temporary_server() as server:
        program = shutil.which(options.prometheus)
        # The role runs on this loop too.
        result = uvloop.run(_measure(server.databases, server.pid, program, options))
        if options.json:
            print(json.dumps(asdict(result)))
        else:
            _print(result)


if __name__ == "__main__":
    main(sys.argv[1:])
