"""The spool keeps observations in order on disk, whatever ends the process or damages the end of its files."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from backend.domain.errors import HostError
from backend.domain.ids import TargetId
from backend.domain.observation import Observation, Shed
from collectors.spool import Spool
from tests.support.clusters import ROOT
from tests.support.observations import completed, job, observation
from tests.support.seeds import over_seeds
from tests.support.waiting import PATIENCE_S

MIB = 2**20


def numbered(number: int, target: str = "t", *, checkpoints: int = 1) -> Observation:
    """Return an observation that is recognized by ``number``."""
    whole = observation(TargetId(target), job([completed(number + n) for n in range(checkpoints)]))
    return replace(whole, cost=replace(whole.cost, request_count=number), shed=Shed(detail_count=number))


def opened(folder: Path, *, size_max_bytes: int = MIB, segment_max_bytes: int = 4 * MIB) -> Spool:
    return Spool(folder, size_max_bytes=size_max_bytes, monotonic_s=lambda: 0.0, segment_max_bytes=segment_max_bytes)


def drained(spool: Spool) -> list[int]:
    """Remove all observations and return their numbers."""
    numbers = []
    while len(spool):
        batch = spool.oldest(3)
        numbers += [o.cost.request_count for o in batch]
        spool.remove(len(batch))
    return numbers


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.spool"))


def test_the_waiting_observations_of_one_target_are_read_in_order_and_stay(tmp_path):
    spool = opened(tmp_path)
    for n in range(6):
        spool.append(numbered(n, f"t{n % 2}"))
    assert list(spool.waiting(TargetId("t1"))) == [numbered(n, "t1") for n in (1, 3, 5)]
    assert list(spool.waiting(TargetId("t2"))) == []
    assert len(spool) == 6


def test_observations_come_back_whole_and_in_order_and_nothing_stays_on_disk(tmp_path):
    spool = opened(tmp_path, segment_max_bytes=2_000)
    wanted = [numbered(n, f"t{n % 4}") for n in range(20)]
    for one in wanted:
        assert spool.append(one)
    assert len(segments(tmp_path)) > 2
    assert spool.size_bytes == sum(p.stat().st_size for p in segments(tmp_path))
    found = []
    while len(spool):
        batch = spool.oldest(16)
        assert len({o.target_id for o in batch}) == len(batch) == min(4, len(spool))
        found += batch
        spool.remove(len(batch))
    assert found == wanted
    assert segments(tmp_path) == []
    assert spool.size_bytes == 0
    assert not spool.holds(TargetId("t1"))
    assert spool.append(numbered(99))
    assert spool.holds(TargetId("t"))
    spool.close()


def test_another_process_finds_what_was_left_and_continues_behind_it(tmp_path):
    first = opened(tmp_path, segment_max_bytes=2_000)
    for n in range(10):
        first.append(numbered(n))
    first.close()
    second = opened(tmp_path, segment_max_bytes=2_000)
    second.append(numbered(10))
    assert drained(second) == list(range(11))
    second.close()


def test_a_full_spool_refuses_and_takes_again_once_there_is_room(tmp_path):
    spool = opened(tmp_path, size_max_bytes=20_000, segment_max_bytes=4_000)
    taken = 0
    while spool.append(numbered(taken)):
        taken += 1
    assert taken > 3
    assert sum(p.stat().st_size for p in segments(tmp_path)) <= 20_000
    spool.remove(taken // 2)
    assert spool.append(numbered(taken))
    assert drained(spool) == [*range(taken // 2, taken), taken]
    spool.close()


def test_only_one_process_may_use_a_folder(tmp_path):
    first = opened(tmp_path)
    with pytest.raises(HostError, match="another process uses"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


def test_a_folder_that_is_not_writable_is_an_error_with_a_fix(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="name another folder"):
        opened(tmp_path / "file" / "spool")


def test_a_write_that_fails_leaves_the_spool_usable(tmp_path, monkeypatch):
    spool = opened(tmp_path)
    assert spool.append(numbered(0))
    whole = os.write
    monkeypatch.setattr(os, "write", lambda file, data: whole(file, data[: len(data) // 2]))
    assert not spool.append(numbered(1))
    monkeypatch.undo()
    assert spool.append(numbered(2))
    spool.close()
    again = opened(tmp_path)
    assert drained(again) == [0, 2]
    again.close()


def test_a_record_of_another_version_is_skipped(tmp_path, monkeypatch):
    spool = opened(tmp_path)
    spool.append(numbered(0))
    with monkeypatch.context() as other:
        other.setattr("collectors.spool._OBSERVATION.dump_json", lambda _: b'{"other": 1}', raising=False)
        other.setattr("collectors.spool._OBSERVATION", OtherVersion())
        spool.append(numbered(1))
    spool.append(numbered(2))
    assert drained(spool) == [0, 2]
    spool.close()


class OtherVersion:
    def dump_json(self, _: Observation) -> bytes:
        return b'{"other": 1}'


@over_seeds(20, more=200)
def test_damage_at_any_byte_loses_only_records_from_there_to_the_end_of_the_segment(tmp_path, seed: int) -> None:
    rnd = random.Random(seed)
    spool = opened(tmp_path, segment_max_bytes=3_000)
    ends = []
    for n in range(12):
        spool.append(numbered(n))
        ends.append((segments(tmp_path)[-1], segments(tmp_path)[-1].stat().st_size))
    spool.close()
    path = segments(tmp_path)[-1]
    size = path.stat().st_size
    at = rnd.randrange(size)
    if rnd.random() < 0.5:
        os.truncate(path, at)
    else:
        whole = bytearray(path.read_bytes())
        whole[at] ^= 1 << rnd.randrange(8)
        path.write_bytes(whole)
    again = opened(tmp_path)
    wanted = [n for n, (file, end) in enumerate(ends) if file != path or end <= at]
    assert again.append(numbered(12))
    assert drained(again) == [*wanted, 12], f"seed={seed}"
    again.close()


_WRITER = """
import sys
from pathlib import Path
from tests.unit.collectors.test_spool import numbered, opened
spool = opened(Path(sys.argv[1]), size_max_bytes=2**30, segment_max_bytes=20_000)
n = 0
while True:
    spool.append(numbered(n, checkpoints=1 + n % 50))
    print(n, flush=True)
    n += 1
"""


@over_seeds(1, more=8)
def test_after_kill_9_every_acknowledged_observation_is_there_in_order(tmp_path, seed: int) -> None:
    enough = random.Random(seed).randint(20, 300)
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    acknowledged = -1
    for line in writer.stdout:
        acknowledged = int(line)
        if acknowledged >= enough:
            os.kill(writer.pid, signal.SIGKILL)
    writer.stdout.close()
    writer.wait(PATIENCE_S)
    spool = opened(tmp_path)
    found = drained(spool)
    assert found == list(range(len(found))), f"seed={seed}"
    assert len(found) - 1 in (acknowledged, acknowledged + 1), f"seed={seed}"
    spool.close()


_KILLED_IN_A_WRITE = """
import os, signal, sys
from pathlib import Path
from collectors import spool as module
from tests.unit.collectors.test_spool import numbered, opened
spool = opened(Path(sys.argv[1]), segment_max_bytes=20_000)
for n in range(5):
    spool.append(numbered(n))
    print(n, flush=True)
write = os.write
def half(file, record):
    write(file, record[: int(len(record) * float(sys.argv[2]))])
    os.kill(os.getpid(), signal.SIGKILL)
module.os.write = half
spool.append(numbered(5))
"""


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_process_that_is_killed_in_the_middle_of_a_write_loses_only_what_it_did_not_acknowledge(tmp_path, share):
    command = [sys.executable, "-c", _KILLED_IN_A_WRITE, str(tmp_path), str(share)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.split() == ["0", "1", "2", "3", "4"]

    spool = opened(tmp_path)
    assert spool.append(numbered(5))
    assert drained(spool) == [0, 1, 2, 3, 4, 5]
    spool.close()
