"""How many settings of a what-if each tier predicts in a second, for a job of 6 vertices with 16 subtasks each.

The job is held back by its last vertex, so its queues are full: the case with the most to simulate. Three settings take
turns: aligned, unaligned, and unaligned after a second. The CPU time of this process is counted. ``--runtime`` adds the
reference runtime, which takes minutes. A ratio compares a tier with the fast tier in the same run.

The fast tier's target is 100 ms for a setting, and 2 s for 50 settings. The 50 settings run on two threads, and their
CPU time is divided by two: it is the time that they take on two idle cores.

``--cimba DIR`` builds cimba, a library for discrete-event simulation in C, from its source in DIR (3.0.0 of
github.com/ambonvik/cimba; gcc and nasm on x86-64 Linux), and measures a bare pipeline of the same shape on it: as many
steps of as many subtasks, with queues of the same length. It has no buffers that channels share, no credits, no
barriers and no checkpoints.

    python benchmarks/twin_bench.py [--rounds 5] [--runtime] [--gate] [--cimba DIR]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from backend.advisor.advice import Interval
from backend.advisor.twin.fast.fast import prepare, scale_of, simulate_fast
from backend.advisor.twin.model.model import (
    CheckpointSettings,
    EdgeModel,
    JobModel,
    NetworkModel,
    Partitioning,
    SourceModel,
    StoreModel,
    VertexModel,
)
from backend.advisor.twin.model.outcomes import Tier
from backend.advisor.twin.model.rates import throughput_of
from backend.advisor.twin.tiers.predicting import simulated
from backend.domain.advice import Mode
from backend.domain.ids import VertexId
from tests.support.benchmarking import cpu_s_of

_VERTICES, _SUBTASKS, _SETTINGS = 6, 16, 50
_MS_MAX, _ALL_S_MAX = 100.0, 2.0


def job(settings: CheckpointSettings) -> JobModel:
    """Return the job: 160 000 records a second, all exchanges by hash, and a last vertex that limits the sources."""

    def vertex(number: int) -> VertexModel:
        service_us = 5.0 if number == 0 else 100.0 if number == _VERTICES - 1 else 40.0
        return VertexModel(
            id=VertexId(f"v{number}"),
            name=f"v{number}",
            service_us=(service_us,) * _SUBTASKS,
            input_shares=(1 / _SUBTASKS,) * _SUBTASKS,
            source=SourceModel(rate_per_s=None) if number == 0 else None,
            sync_ms=(2.0,) * _SUBTASKS,
            upload_bytes=(1e6,) * _SUBTASKS,
        )

    vertices = tuple(map(vertex, range(_VERTICES)))
    pairs = pairwise(vertices)
    return JobModel(
        vertices=vertices,
        edges=tuple(
            EdgeModel(source=a.id, target=b.id, partitioning=Partitioning.HASH, record_bytes=200.0) for a, b in pairs
        ),
        network=NetworkModel(),
        store=StoreModel(bytes_per_ms=1e5, latency_ms=10.0),
        settings=settings,
        trigger_delay_ms=Interval(3.0, 1.0, 10.0),
    )


def jobs() -> list[JobModel]:
    """Return the job under the three settings."""
    aligned = CheckpointSettings(mode=Mode.ALIGNED, aligned_timeout_ms=None, interval_ms=60_000.0, timeout_ms=600_000.0)
    unaligned = replace(aligned, mode=Mode.UNALIGNED)
    return [job(s) for s in (aligned, unaligned, replace(unaligned, aligned_timeout_ms=1000.0))]


def _cimba(folder: Path | None, rounds: int) -> list[float] | str:
    """Return the CPU time of each run of the pipeline on cimba in milliseconds, or why there is none."""
    if folder is None:
        return "not measured, see --cimba"
    missing = [name for name in ("gcc", "nasm") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    with tempfile.TemporaryDirectory() as built:
        program = _build_cimba(folder, Path(built))
        return [float(_output(program, *_pipeline()).splitlines()[-1].split()[2]) for _ in range(rounds)]


def _pipeline() -> list[str]:
    """Return the arguments of the pipeline: the fast tier's steps, and queues as long as the job's."""
    model = jobs()[0]
    checkpoints = len(simulate_fast(model).checkpoints)
    scale, network = scale_of(model, checkpoints), model.network
    at_once = int(network.segment_bytes / scale.grain / model.edges[0].record_bytes)
    buffers = network.exclusive_buffers_per_channel * _SUBTASKS + network.floating_buffers_per_gate
    virtual_ms = scale.warm_up_ms + checkpoints * scale.between_ms
    steps = round(throughput_of(model).steps_per_ms / at_once * virtual_ms)
    costs = [v.service_us[0] / 1000 * at_once for v in model.vertices]
    return [str(v) for v in (_VERTICES, _SUBTASKS, buffers * scale.grain, steps, *costs)]


def _build_cimba(folder: Path, built: Path) -> Path:
    """Build the pipeline with cimba's own options for benchmarks, without its profile."""
    for name in ("exponential", "normal"):
        parts = (folder / f"codegen/calc_{name}.c", folder / "codegen/calc_utils.c")
        _output("gcc", "-O2", "-w", "-o", built / name, *parts, "-lm")
        (built / f"cmi_random_{name[:3]}_zig.inc").write_text(_output(built / name), encoding="utf-8")
    port = folder / "src/port/x86-64/linux"
    for part in port.glob("*.asm"):
        _output("nasm", "-DNMXCSR", "-f", "elf64", part, "-o", built / f"{part.stem}.o")
    defined = ("-DNDEBUG", "-DNLOGINFO", "-DNASSERT", "-DNMXCSR", "-D_POSIX_C_SOURCE=200809L")
    # gcc 12 has no bool and no static_assert of its own in C.
    language = ("-std=c2x", "-include", "stdbool.h", "-include", "assert.h", "-w")
    headers = [f"-I{part}" for part in (folder / "include", folder / "src", built)]
    sources = [Path(__file__).with_name("cimba_pipeline.c"), *(folder / "src").glob("*.c"), *port.glob("*.c")]
    fast = ("-O3", "-flto", "-ftls-model=initial-exec")
    _output("gcc", *language, *fast, *defined, *headers, *sources, *built.glob("*.o"), "-o", built / "pipeline", "-lm")
    return built / "pipeline"


def _output(*command: object) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def main(arguments: list[str] | None = None) -> int:
    """Print the table. Return 1 if ``--gate`` is given and the fast tier misses a target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runtime", action="store_true", help="measure the reference runtime too: minutes")
    parser.add_argument("--gate", action="store_true", help="fail if the fast tier misses a target")
    parser.add_argument(
        "--cimba", type=Path, metavar="DIR", help="measure a bare pipeline on cimba, whose source is here"
    )
    options = parser.parse_args(arguments)
    models = jobs()
    began = time.process_time()
    prepare()
    print(f"preparing the fast tier: {time.process_time() - began:.1f} s of CPU")
    taken: dict[Tier, list[float]] = {}
    for tier in (Tier.FORMULAS, Tier.FAST):
        rounds = [1000 * cpu_s_of(lambda m=m, t=tier: simulated(m, t)) for _ in range(options.rounds) for m in models]  # type: ignore[misc]
        taken[tier] = rounds
    if options.runtime:
        taken[Tier.RUNTIME] = [1000 * cpu_s_of(partial(simulated, models[0], Tier.RUNTIME, seeds=(1,)))]
    fast_ms = statistics.median(taken[Tier.FAST])
    print(f"{'tier':<10}{'ms a setting':>14}{'worst':>10}{'settings/s':>12}{'to fast':>10}")
    for tier, values in taken.items():
        middle = statistics.median(values)
        ratio = f"{fast_ms / middle:.3g} x"
        print(f"{tier.value:<10}{middle:>14.1f}{max(values):>10.1f}{1000 / middle:>12.3g}{ratio:>10}")
    bare = _cimba(options.cimba, options.rounds)
    if isinstance(bare, str):
        print(f"cimba, a bare pipeline: {bare}")
    else:
        middle = statistics.median(bare)
        print(f"{'cimba':<10}{middle:>14.1f}{max(bare):>10.1f}{1000 / middle:>12.3g}{fast_ms / middle:>8.3g} x  (bare)")
    before = time.process_time()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda n: simulated(models[n % 3], Tier.FAST), range(_SETTINGS)))
    all_s = (time.process_time() - before) / 2
    print(f"{_SETTINGS} settings on two threads: {all_s:.2f} s on two idle cores (target {_ALL_S_MAX:g} s)")
    is_met = fast_ms <= _MS_MAX and all_s <= _ALL_S_MAX
    return 1 if options.gate and not is_met else 0


if __name__ == "__main__":
    sys.exit(main())
