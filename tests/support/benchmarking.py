"""What the benchmarks share: their options, the CPU time of calls and of processes, and ratios of pairs."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

Spread = tuple[float, float, float]
"""A median with the range of the middle half: (median, lower quartile, upper quartile)."""


def parser_of(document: str | None) -> argparse.ArgumentParser:
    """Return the parser of a benchmark's options, with ``--json``. Its help is the docstring of the benchmark."""
    parser = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def print_json(results: Sequence[Any], *, indent: int | None = None) -> None:
    """Print results, which are dataclasses, as one JSON list."""
    print(json.dumps([asdict(result) for result in results], indent=indent))


def print_values(result: Any, *, is_json: bool) -> None:
    """Print the fields of one result, a line each, or as JSON."""
    if is_json:
        print(json.dumps(asdict(result)))
        return
    for name, value in asdict(result).items():
        print(f"{name:<18}{value:>12.1f}" if isinstance(value, float) else f"{name:<18}{value:>12}")


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the quartiles of ``values``."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return middle, low, high


def spread_words(found: Spread) -> str:
    """Return a spread as people read it."""
    return f"{found[0]:.2f} ({found[1]:.2f} to {found[2]:.2f})"


def cpu_s_of(call: Callable[[], object]) -> float:
    """Return the CPU time that a call takes in this process."""
    began_s = time.process_time()
    call()
    return time.process_time() - began_s


def thread_cpu_s(pid: int) -> float:
    """Return the CPU time of the main thread of a process, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def children_cpu_s(pid: int) -> dict[int, float]:
    """Return the CPU time of each process that a process has started: of PostgreSQL's server, one a connection."""
    found: dict[int, float] = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(FileNotFoundError):
            found[int(child)] = thread_cpu_s(int(child))
    return found


def tree_cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of all its descendants, including those that have ended."""
    process = psutil.Process(pid)
    times = [p.cpu_times() for p in (process, *process.children(recursive=True))]
    return float(sum(t.user + t.system + t.children_user + t.children_system for t in times))


def renderers_cpu_s() -> float:
    """Return the CPU time of all renderers of the browser, without the time in which other processes ran."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            if "--type=renderer" in process.cmdline():
                used = process.cpu_times()
                total += used.user + used.system
        except psutil.NoSuchProcess:
            continue
    return total


@contextmanager
def targets_in_a_process(command: Sequence[str]) -> Iterator[list[int]]:
    """Run a command that serves targets and prints the list of their ports as JSON. Yield the ports."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise SystemExit("the targets did not start")
        yield json.loads(line)
    finally:
        process.terminate()
        process.wait(10)
