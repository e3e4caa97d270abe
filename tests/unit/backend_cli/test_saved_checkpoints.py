"""Tests of ``simulate --save-checkpoint`` and ``--from``: what a user does with a checkpoint, and what is refused."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backend.cli.app import run
from backend.runtime.demo import demo_path

_SIMPLE = """
name = "orders"
seed = 7
[config]
execution.checkpointing.interval = "300 ms"
execution.checkpointing.unaligned.enabled = {unaligned}
{config}
[[vertex]]
id = "source"
kind = "source"
parallelism = 2
rate = 2000
limit = {limit}
[[vertex]]
id = "work"
kind = "{kind}"
parallelism = {parallelism}
cost_us = {cost_us}
[[edge]]
from = "source"
to = "work"
partitioner = "{partitioner}"
{more}
"""
_DEFAULTS = {
    "unaligned": "true",
    "config": "",
    "limit": 2000,
    "kind": "map+sink",
    "parallelism": 2,
    "cost_us": 2000,
    "partitioner": "rebalance",
    "more": "",
}

Simulate = Callable[..., dict[str, Any]]


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., str]:
    """Write a job file with some changes, and return its path."""

    def write(**changes: object) -> str:
        path = tmp_path / "job.toml"
        path.write_text(_SIMPLE.format(**(_DEFAULTS | changes)))
        return str(path)

    return write


@pytest.fixture
def saved(tmp_path: Path) -> str:
    return str(tmp_path / "orders.ckpt")


@pytest.fixture
def simulate(capsys: pytest.CaptureFixture[str]) -> Simulate:
    """Run ``simulate``, and return its document."""

    def simulated(*arguments: str) -> dict[str, Any]:
        assert run(["simulate", *arguments, "--format", "json"]) == 0, capsys.readouterr().err
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    return simulated


def _refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert run(["simulate", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, "a refusal is one line"
    return captured.err


def _output(document: dict[str, Any]) -> tuple[int, str]:
    return document["committed_records"], document["committed_hash"]


def test_a_fix_is_rolled_forward_from_an_unaligned_checkpoint_under_backpressure(job, saved, simulate):
    """Row 44. The fixed job is faster, has other parallelism and works off what was in flight. Nothing is committed
    twice or lost, compared with a run without interruption.
    """
    slow, whole = job(), simulate(job(), "--duration", "5s")
    before = simulate(slow, "--duration", "1s", "--save-checkpoint", saved)
    after = simulate(job(cost_us=200, parallelism=3), "--duration", "3s", "--from", saved)
    assert after["begun_from"]["kind"] == "unaligned checkpoint"
    assert after["begun_from"]["persisted_bytes"] > 10_000, "there is backpressure"
    assert after["began_at_us"] == before["virtual_time_us"] == 1_000_000
    assert 0 < before["committed_records"] < 2000 == whole["committed_records"]
    assert _output(after) == _output(whole)


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ('"execution.checkpointing.mode" = "AT_LEAST_ONCE"', "at-least-once checkpoint"),
        ('"runtime.chandy-lamport.enabled" = true', "Chandy-Lamport checkpoint"),
    ],
)
def test_a_saved_checkpoint_is_named_by_its_mode_or_protocol(job, saved, simulate, config, kind):
    before = job(unaligned="false", config=config, cost_us=500)
    simulate(before, "--duration", "800ms", "--save-checkpoint", saved)

    begun_from = simulate(before, "--duration", "100ms", "--from", saved)["begun_from"]

    assert begun_from["kind"] == kind


def test_the_graph_is_changed_from_an_aligned_checkpoint_and_not_from_an_unaligned_one(job, saved, simulate, capsys):
    """Rows 46 and 70."""
    more = '[[vertex]]\nid = "extra"\nkind = "map+sink"\n[[edge]]\nfrom = "source"\nto = "extra"\npartitioner = "hash"'
    whole = simulate(job(), "--duration", "5s")
    simulate(job(unaligned="false", cost_us=500), "--duration", "800ms", "--save-checkpoint", saved)
    changed = simulate(job(partitioner="shuffle"), "--duration", "5s", "--from", saved)
    assert changed["begun_from"]["kind"] == "aligned checkpoint"
    assert _output(changed) == _output(whole)
    extended = simulate(job(more=more), "--duration", "5s", "--from", saved)
    assert [vertex["id"] for vertex in extended["vertices"]] == ["source", "work", "extra"]
    assert sum(extended["vertices"][2]["records_in"]) > 0
    simulate(job(), "--duration", "1s", "--save-checkpoint", saved)
    refusal = _refusal(capsys, job(partitioner="shuffle"), "--from", saved)
    assert "GR-2 at 'source -> work': the checkpoint has data in flight on this rebalance edge" in refusal


def test_changed_operators_at_data_in_flight_need_a_word_of_the_user(job, saved, simulate, capsys):
    simulate(job(kind="keyed+sink", partitioner="hash"), "--duration", "1s", "--save-checkpoint", saved)
    command = (job(partitioner="hash"), "--from", saved, "--duration", "1s")
    assert "GR-1 at 'work': the checkpoint has state of operator 'work:keyed'" in _refusal(capsys, *command)
    allowed = (*command, "--allow-non-restored")
    assert "GR-2 at 'work': its operators changed" in _refusal(capsys, *allowed)
    begun_from = simulate(*allowed, "--at-own-risk")["begun_from"]
    assert (begun_from["at_own_risk"], begun_from["left_out"]) == (["work"], ["work:keyed"])
    assert run(["simulate", *allowed, "--at-own-risk"]) == 0
    assert "left out: the state of work:keyed, which the job does not have (GR-1)" in capsys.readouterr().out
    # The same in the job file. Its path is relative to the job file.
    restore = f'[restore]\nfrom = "{Path(saved).name}"\nallow_non_restored = true\nat_own_risk = true'
    assert simulate(job(partitioner="hash", more=restore), "--duration", "1s")["begun_from"]["at_own_risk"] == ["work"]


def test_nothing_new_may_run_before_an_operator_that_had_finished(job, saved, simulate, capsys):
    """Row 128. The source and its sink have finished when the checkpoint is taken, and another source goes on."""
    beside = """[[vertex]]
id = "beside"
kind = "source"
rate = 10
[[vertex]]
id = "end"
kind = "sink"
[[edge]]
from = "beside"
to = "end"
partitioner = "hash"
"""
    done = {"limit": 40, "cost_us": 10}
    simulate(job(more=beside, **done), "--duration", "1s", "--save-checkpoint", saved)
    new = '[[vertex]]\nid = "new"\nkind = "source"\nrate = 10\n'
    new += '[[edge]]\nfrom = "new"\nto = "work"\npartitioner = "hash"\n'
    refusal = _refusal(capsys, job(more=beside + new, **done), "--duration", "1s", "--from", saved)
    assert "FN-18 at 'work': it had finished, but its input 'new' had not" in refusal


@pytest.mark.parametrize("stop", ["suspend", "drain"])
def test_a_job_that_was_stopped_with_a_savepoint_is_resumed(stop, job, saved, simulate):
    """Row 131."""
    whole = simulate(job(), "--duration", "5s")
    stops = f'[[savepoint]]\nat = "500 ms"\nstop = "{stop}"'
    stopped = simulate(job(more=stops), "--duration", "3s", "--save-checkpoint", saved)
    assert stopped["status"] == "FINISHED"
    resumed = simulate(job(), "--duration", "5s", "--from", saved)
    assert resumed["begun_from"]["kind"] == "canonical savepoint"
    assert 0 < stopped["committed_records"] < 2000
    assert _output(resumed) == _output(whole)


def test_a_claimed_checkpoint_is_continued_and_deleted_and_another_one_is_left_alone(job, saved, simulate, tmp_path):
    """IN-16. Only a claimed checkpoint's files are the base of the next one, and only it is deleted."""
    incremental = 'execution.checkpointing.incremental = true\nruntime.state-backend = "changelog"'
    keyed = {"kind": "keyed+sink", "partitioner": "hash", "unaligned": "false"}
    command = job(**keyed, cost_us=10, config=incremental, limit=10_000)
    before = simulate(command, "--duration", "3s", "--save-checkpoint", saved)["checkpoints"][-1]
    content, later = Path(saved).read_bytes(), tmp_path / "later.ckpt"
    left = simulate(command, "--duration", "1s", "--from", saved, "--save-checkpoint", str(later))
    assert Path(saved).read_bytes() == content
    # A run that saves nothing leaves the only checkpoint that there is.
    simulate(command, "--duration", "1s", "--from", saved, "--claim")
    assert Path(saved).read_bytes() == content
    claimed = simulate(command, "--duration", "1s", "--from", saved, "--claim", "--save-checkpoint", str(later))
    assert not Path(saved).exists()
    first_of_left, first_of_claimed = left["checkpoints"][0], claimed["checkpoints"][0]
    assert (first_of_left["is_incremental"], first_of_claimed["is_incremental"]) == (False, True)
    assert first_of_left["written_bytes"] == first_of_left["state_bytes"]
    assert first_of_claimed["written_bytes"] < before["state_bytes"] / 2 < first_of_claimed["state_bytes"] / 2
    # The chain of files is complete without the file that is gone.
    again = simulate(command, "--duration", "1s", "--from", str(later), "--claim", "--save-checkpoint", str(later))
    assert later.exists()
    assert _output(again)[0] > _output(claimed)[0]
    # Another backend cannot continue the files, so that its first checkpoint is full.
    other = simulate(command, "--set", "runtime.state-backend=sst", "--duration", "1s", "--from", str(later), "--claim")
    assert not other["checkpoints"][0]["is_incremental"]


def test_a_run_may_end_and_continue_many_times(job, saved, simulate):
    whole = simulate(job(), "--duration", "5s")
    simulate(job(), "--duration", "700ms", "--save-checkpoint", saved)
    for duration in ("1500ms", "1500ms", "5s"):
        last = simulate(job(), "--duration", duration, "--from", saved, "--save-checkpoint", saved)
    assert _output(last) == _output(whole)
    assert last["virtual_time_us"] == 8_700_000


def test_a_run_by_sizes_saves_the_same_checkpoint(job, saved, simulate, tmp_path):
    simulate(job(), "--duration", "1s", "--save-checkpoint", saved)
    simulate(job(), "--duration", "1s", "--size-only", "--save-checkpoint", str(tmp_path / "sized.ckpt"))
    assert Path(saved).read_bytes() == (tmp_path / "sized.ckpt").read_bytes()


def test_a_file_that_is_no_sound_checkpoint_is_refused_in_one_line(job, saved, simulate, capsys):
    simulate(job(), "--duration", "1s", "--save-checkpoint", saved)
    content = Path(saved).read_bytes()
    middle = len(content) // 2
    broken = {
        b"": "is not a checkpoint",
        b"\x80\x04\x95 no pickle": "is not a checkpoint",
        content[:10]: "the first line of",
        content[:middle]: "is cut off",
        content + b"more": "is damaged",
        content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]: "is damaged",
        content.replace(b"checkpoint 1 ", b"checkpoint 2 ", 1): "has format 2, and this version",
    }
    for given, told in broken.items():
        Path(saved).write_bytes(given)
        refusal = _refusal(capsys, job(), "--from", saved)
        assert told in refusal
        assert "orders.ckpt" in refusal
    Path(saved).unlink()
    assert "cannot read" in _refusal(capsys, job(), "--from", saved)


def test_options_that_contradict_each_other_are_refused_before_the_run(job, saved, simulate, capsys):
    simulate(job(), "--duration", "1s", "--save-checkpoint", saved)
    assert "--from: is missing" in _refusal(capsys, job(), "--no-claim")
    assert "a run with the seed 7" in _refusal(capsys, job(), "--from", saved, "--seed", "8")
    assert "exists and is not a checkpoint" in _refusal(capsys, job(), "--save-checkpoint", job())
    assert "is not a folder" in _refusal(capsys, job(), "--save-checkpoint", f"{saved}/none")
    assert run(["simulate", job(), "--duration", "10ms", "--save-checkpoint", f"{saved}2"]) == 2
    assert "no checkpoint of this run is complete" in capsys.readouterr().err


def test_the_text_names_the_checkpoints_and_what_happened_to_them(job, saved, capsys, tmp_path):
    later = str(tmp_path / "later.ckpt")
    assert run(["simulate", job(), "--duration", "1s", "--save-checkpoint", saved]) == 0
    name = "unaligned checkpoint 3 of orders, "
    told = capsys.readouterr().out.splitlines()[-1]
    assert told.startswith(name)
    assert told.endswith(f"is saved in {saved}")
    command = ["simulate", job(), "--duration", "2s", "--from", saved, "--claim", "--save-checkpoint", later]
    assert run(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "orders: 2.0 s of virtual time, seed 7"
    assert lines[1].startswith(f"continued from {name}")
    assert re.search(r"; records committed: \d+, \d+ of them before$", lines[2]), lines[2]
    assert lines[-1] == f"the claimed checkpoint in {saved} is deleted: a newer one is saved"


def test_a_file_that_cannot_be_written_or_deleted_is_named_and_no_file_of_others_is_touched(
    job, saved, capsys, tmp_path, monkeypatch
):
    later = tmp_path / "later.ckpt"
    assert run(["simulate", job(), "--duration", "1s", "--save-checkpoint", saved]) == 0
    command = ["simulate", job(), "--duration", "2s", "--from", saved, "--claim", "--save-checkpoint", str(later)]
    others = tmp_path / f".later.ckpt.{os.getpid()}.part"
    others.write_text("of someone else")
    assert run(command) != 0
    assert f"cannot write {others}: File exists" in capsys.readouterr().err
    assert (others.read_text(), later.exists()) == ("of someone else", False)
    others.unlink()

    unlink = Path.unlink

    def refuses(path: Path, missing_ok: bool = False) -> None:
        if path == Path(saved):
            raise PermissionError(1, "Operation not permitted")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuses)
    assert run(command) != 0
    assert f"cannot delete {saved}: Operation not permitted" in capsys.readouterr().err
    assert later.exists()


def test_the_live_runtime_refuses_a_job_file_that_begins_from_a_checkpoint(job, capsys):
    """It has no checkpoints when it starts. ``POST /jobs`` starts a job from one."""
    assert run(["runtime", "--job", job(more='[restore]\nfrom = "orders.ckpt"')]) == 2
    assert "restore: the job 'orders' begins from a checkpoint" in capsys.readouterr().err


def test_the_commands_of_the_documentation_do_what_it_says(job, capsys, tmp_path, monkeypatch):
    """The sections of ``docs/jobs.md`` on checkpoints, with shorter runs."""
    text = (Path(__file__).parents[3] / "docs" / "jobs.md").read_text(encoding="utf-8")
    section = text.partition("## Continuing from a checkpoint")[2].partition("\n## ")[0]
    commands = [line.split() for line in section.splitlines() if line.startswith("barrierscope ")]
    monkeypatch.chdir(tmp_path)
    Path(job()).rename("my-job.toml")
    # The corrected job of the second example: the demo job with a faster vertex.
    slow = demo_path("backpressured-unaligned").read_text(encoding="utf-8")
    Path("my-fix.toml").write_text(slow.replace("cost_us = 4000", "cost_us = 2000"))
    assert len(commands) == 4
    for _, *arguments in commands:
        # The first checkpoint of the demo job is complete after four seconds.
        arguments[arguments.index("--duration") + 1] = "4s" if "--save-checkpoint" in arguments else "500ms"
        assert run(arguments) == 0, capsys.readouterr().err
    assert "continued from unaligned checkpoint" in capsys.readouterr().out


_TAGGED = {"unaligned": "true", "kind": "tag+sink", "partitioner": "hash", "cost_us": 3000}


@pytest.mark.parametrize("stores", [False, True])
def test_a_continuation_tells_how_many_records_met_another_watermark_with_and_without_a_stored_one(
    stores, job, saved, simulate, capsys
):
    """Rows 68 and 69: the watermark is not part of a checkpoint, unless an operator stores it."""
    changed = job(**_TAGGED, config="").replace("job.toml", "tagged.toml")
    text = (
        Path(job(**_TAGGED)).read_text().replace('id = "work"', f'id = "work"\nstore_watermark = {str(stores).lower()}')
    )
    Path(changed).write_text(text)
    simulate(changed, "--duration", "2s", "--save-checkpoint", saved)
    cost = simulate(changed, "--duration", "2s", "--from", saved)["begun_from"]["cost"]
    without, met = cost["records_before_watermark"], cost["records_with_other_watermark"]
    assert without > 10
    assert met == (0 if stores else without)
    assert run(["simulate", changed, "--duration", "2s", "--from", saved]) == 0
    told = f", {met} records met another watermark than before: "
    told += f"without store_watermark it would be {without}" if stores else "no operator stores the watermark"
    assert told in capsys.readouterr().out


def test_a_continuation_tells_what_it_lost_and_what_was_lost_before_it(job, saved, simulate, capsys):
    """Transactions of the first run that the second one commits too late, and data in flight that is not restored."""
    patient = job(config='"runtime.transaction-timeout" = "100 ms"')
    first = simulate(patient, "--duration", "450ms", "--save-checkpoint", saved)
    document = simulate(patient, "--duration", "2s", "--from", saved)
    before = document["begun_from"]["lost_before"]
    assert before == {"transactions": first["lost_transactions"], "records": first["lost_records"]}
    assert 0 < before["records"] < document["lost_records"]
    assert run(["simulate", patient, "--duration", "2s", "--from", saved]) == 0
    assert f"({before['records']} of them before this run)" in capsys.readouterr().out

    number = document["begun_from"]["id"]
    dropping = job(config=f'"execution.checkpointing.recover-without-channel-state.checkpoint-id" = {number}')
    document = simulate(dropping, "--duration", "2s", "--from", saved)
    assert document["begun_from"]["cost"]["lost_channel_bytes"] == document["begun_from"]["persisted_bytes"] > 0
    assert run(["simulate", dropping, "--duration", "2s", "--from", saved]) == 0
    assert f"after the start from id {number}, " in capsys.readouterr().out
