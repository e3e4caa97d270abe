"""Tests of the measure of regret: the loss of a run, its bounds, what is kept of a stopped evaluation, the report."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.simulators import regret, regret_fares
from tests.simulators.regret_fares import Fares
from tests.simulators.regret_jobs import INTERVAL, KINDS, Choice, Drawn, Fare, fare, pooled
from tests.simulators.regret_report import Chosen, Judged, page, table

GOOD = Chosen(settings="interval=4000 ms", loss=0.010, regret=0.0, is_broken=False, expired=0.0, over=0.0)
POOR = replace(GOOD, loss=0.012, regret=0.2, is_broken=True, expired=0.5)


def row(name: str, **chosen: Chosen) -> Judged:
    """Return the result of a job in which all choosers but those given chose well."""
    everyone = dict.fromkeys(("as it is", "advisor", "twin", "twin, 3 tried"), GOOD)
    return Judged(name, GOOD.settings, GOOD.loss, 0.0, 0.0, everyone | chosen)


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_fixes_a_job_that_loads_under_each_setting(kind: str):
    job = Drawn.of(f"{kind}/1")

    for choice in job.grid():
        config = job.spec(choice.config(), seed=1).config
        assert config.is_unaligned == (choice.timeout_ms is not None)
        assert config.cap_bytes == (-1 if choice.cap_bytes is None else choice.cap_bytes)
    assert Drawn.of(f"{kind}/1").vertices == job.vertices
    assert Drawn.of(f"{kind}/2").name != job.name


def test_the_mean_age_of_checkpoints_is_half_of_the_interval_and_their_duration():
    job = Drawn.of("light/0")
    job.between_failures_s = 1.0
    found = fare(job, Choice(4000).config(), seed=1, run_s=140.0)

    # The share is the age in seconds, because a failure comes every second.
    assert found.replay == pytest.approx(2.0, abs=0.4)
    assert found.expired == 0.0
    assert fare(job, Choice(8000).config(), seed=1, run_s=140.0).replay > found.replay + 1.5


def test_a_store_hangs_at_other_times_in_each_run_and_no_other_kind_has_chance():
    job = Drawn.of("noisy_store/1")
    config = job.now.config()
    times = [[f.at_us for f in job.spec(config, seed=seed).faults] for seed in (1, 2, 2)]

    assert len(times[0]) > 5
    assert times[0] != times[1] == times[2]
    assert job.runs > 1
    assert all(Drawn.of(f"{kind}/1").runs == 1 for kind in KINDS if kind != "noisy_store")


def test_runs_under_the_same_settings_count_together():
    one = Fare(work=0.01, replay=0.03, expired=0.5, over=0.0, checkpoints=10)
    other = Fare(work=0.03, replay=0.01, expired=0.0, over=0.2, checkpoints=30)

    assert asdict(pooled([one, other])) == pytest.approx(
        {"work": 0.02, "replay": 0.02, "expired": 0.125, "over": 0.15, "checkpoints": 40}
    )
    # A run in which no checkpoint ended counts as one that was about to expire.
    none = Fare(work=0.01, replay=0.03, expired=1.0, over=0.0, checkpoints=0)
    assert pooled([none, none]).expired == 1.0
    assert pooled([replace(one, expired=0.0), none]).expired == pytest.approx(1 / 11)


def test_a_bound_is_broken_only_beyond_its_slack_and_by_more_than_chance():
    one = Fare(work=0.01, replay=0.01, expired=0.3, over=0.0, checkpoints=100_000)

    assert regret.excess(one, 0.3, 0.0) == 0.0
    assert regret.excess(one, 0.2, 0.0) == pytest.approx(0.05, abs=0.005)
    assert regret.excess(replace(one, over=0.5), 0.3, 0.0) == pytest.approx(0.4, abs=0.005)
    assert regret.excess(replace(one, checkpoints=20), 0.2, 0.0) == 0.0
    assert regret.excess(replace(one, checkpoints=20), 0.0, 0.0) > 0.0
    # A run in which no checkpoint ended counts as one that was about to expire.
    assert regret.excess(replace(one, expired=1.0, checkpoints=0), 0.0, 0.0) > 0.0


def test_results_are_kept_and_a_line_that_was_cut_off_is_done_again(tmp_path: Path):
    line = json.dumps({"code": regret.digest(), **asdict(row("skew/1"))})
    other = json.dumps({"code": "other", **asdict(row("skew/2"))})
    (tmp_path / "jobs.jsonl").write_text(f"{line}\n{other}\n{line[:40]}", encoding="utf-8")

    with regret.kept(tmp_path) as (file, found):
        assert found == {"skew/1": row("skew/1")}
        file.write(f"{line.replace('skew/1', 'skew/3')}\n")
        with pytest.raises(SystemExit, match="another process"), regret.kept(tmp_path):
            pass
    with regret.kept(tmp_path) as (_, found):
        assert sorted(found) == ["skew/1", "skew/3"]


def test_the_runs_of_a_job_are_kept_unless_the_code_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[str] = []

    def counted(job: Drawn, settings: dict[str, str], *, seed: int, run_s: float | None = None) -> Fare:
        made.append(settings[INTERVAL])
        return Fare(work=0.01, replay=0.01 * seed, expired=0.0, over=0.0, checkpoints=20)

    monkeypatch.setattr(regret_fares, "fare", counted)
    job = Drawn.of("light/1")
    first = Fares(job, tmp_path)
    found = first.of(Choice(4000).config(), seed=2)
    first.keep()

    again = Fares(job, tmp_path)
    assert again.of(Choice(4000).config(), seed=2) == found
    assert made == ["4000 ms"]
    again.of(Choice(4000).config(), seed=1)
    assert len(made) == 2
    monkeypatch.setattr(regret_fares, "digest", lambda: "other code")
    Fares(job, tmp_path).of(Choice(4000).config(), seed=2)
    assert len(made) == 3


def test_a_stopped_evaluation_keeps_what_has_ended_and_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked: list[str] = []

    def stops(name: str, *, folder: Path) -> Judged:
        assert folder == tmp_path / "runs"
        asked.append(name)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return row(name)

    monkeypatch.setattr(regret, "judged", stops)
    arguments = ["--jobs", "4", "--processes", "1", "--out", str(tmp_path)]
    assert regret.main(arguments) == 1
    assert "2 of 4 jobs" in capsys.readouterr().out
    assert regret.main(arguments) == 0
    assert asked == ["light/0", "capacity/0", "straggler/0", "straggler/0", "skew/0"]


def test_the_report_says_what_is_missed_and_what_has_not_run():
    rows = [row(f"bursts/{n}") for n in range(9)] + [row("light/9", twin=POOR, advisor=POOR)]
    text, is_good = table(rows)

    assert is_good
    lines = {line[:18].strip(): line for line in text.splitlines()}
    assert lines["twin"].endswith("MISSED")
    assert "1 of 10" in lines["twin"]
    assert lines["twin, 3 tried"].endswith("reached")
    assert "bursts *" in lines
    shown = page(rows, asked=12, command="make eval", code="abc")
    assert "2 of 12 jobs have not run" in shown
    assert "src=" not in shown.partition("<script>")[0]
    assert "Plotly.react" in shown
    assert not table([row("light/0", **dict.fromkeys(("advisor", "twin", "twin, 3 tried"), POOR))])[1]
