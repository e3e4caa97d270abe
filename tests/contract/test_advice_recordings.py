"""The advice of ``diagnose`` on recordings of a real Flink 1.20.5, and its reasons if it gives no advice."""

from __future__ import annotations

import json
import re
from functools import cache

import pytest

from backend.advisor.recommending import topics_of
from backend.domain.engines import flink
from collectors import diagnose
from tests.support.recorded_flink import RECORDINGS, RecordedFlink, recording, served

# Persisted bytes of the smallest and the largest checkpoint of recording C2, which is the job of B2 with unaligned
# checkpoints.
PERSISTED_BYTES = (3_266_650, 3_578_441)
UNALIGNED_MS = 36
LAST = "slow-stage-2 -> sink: Writer"


pytestmark = pytest.mark.usefixtures("diagnose_without_pauses")


def advice_on(capsys, name, at_s=58.0):
    with served(RecordedFlink(RECORDINGS / name, at_s)) as url:
        assert diagnose.run(url, job=None, output_format="json") == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    return job["advice"]


@cache
def running(name):
    return [35.0, 47.0, 58.0, recording(RECORDINGS / name).last_running_s]


def on_mode(advice):
    (found,) = [r for r in advice["recommendations"] if r["topic"] == "mode"]
    return found


def of(recommendation, metric):
    return next(e for e in recommendation["expected"] if e["metric"] == metric)


@pytest.mark.parametrize(
    ("name", "natural_ms"),
    # Every checkpoint of recording E expires at its timeout of 3 s.
    [("B2", 4_000), ("E", 3_000)],
)
def test_unaligned_checkpoints_are_advised_for_the_recordings_with_queues_at_any_moment(capsys, name, natural_ms):
    for at_s in running(name):
        advice = advice_on(capsys, name, at_s)
        found = on_mode(advice)
        where = f"{name} at {at_s} s"

        proposed = found["proposed"]
        assert proposed["mode"] in ("unaligned", "aligned-with-timeout"), where
        assert (proposed["aligned_timeout_ms"] or 0) < natural_ms / 5, where
        persisted = of(found, "persisted_bytes")["predicted"]
        duration = of(found, "end_to_end_duration_ms")["predicted"]
        assert persisted["low"] < PERSISTED_BYTES[0] < PERSISTED_BYTES[1] < persisted["high"], where
        assert persisted["high"] < 2 * PERSISTED_BYTES[1], "an interval that holds everything says nothing"
        natural = (proposed["aligned_timeout_ms"] or 0) + UNALIGNED_MS
        assert duration["low"] <= natural <= duration["high"] < 1_000, where
        assert not any(c["key"] == "execution.checkpointing.timeout" for c in found["changes"]), where
        assert "raise the checkpoint timeout" not in json.dumps(found).lower(), where


def test_the_prediction_for_unaligned_holds_for_the_recording_of_the_unaligned_job(capsys):
    """Recording C2 is the job of B2 with unaligned checkpoints. Its 16 checkpoints took 25 to 82 ms."""
    found = on_mode(advice_on(capsys, "B2"))
    (at_once,) = [c for c in found["candidates"] if c["mode"] == "unaligned"]

    assert at_once["duration_ms"]["low"] <= 25 < 82 <= at_once["duration_ms"]["high"]
    assert at_once["persisted_bytes"]["low"] <= PERSISTED_BYTES[0]
    assert PERSISTED_BYTES[1] <= at_once["persisted_bytes"]["high"]


def test_no_checkpoint_is_predicted_to_expire(capsys):
    found = on_mode(advice_on(capsys, "E"))
    expired, duration = of(found, "expired_ratio"), of(found, "end_to_end_duration_ms")

    assert (expired["before"], expired["predicted"]["high"]) == (1.0, 0.0)
    assert duration["is_before_at_least"]


def test_a_recommendation_has_rollback_risks_and_conditions(capsys):
    found = on_mode(advice_on(capsys, "B2"))

    assert found["how_to"]["lines"] == [
        "execution.checkpointing.unaligned.enabled: true",
        "execution.checkpointing.aligned-checkpoint-timeout: 200 ms",
    ]
    assert found["how_to"]["needs_restart"]
    assert found["how_to"]["rollback_lines"]
    assert any("lack of capacity of all 4 subtasks" in text for text in found["will_not_cure"])
    assert found["risks"]
    assert found["withdrawn_if"]
    assert {p["is_met"] for p in found["preconditions"]} == {True, None}
    held = next(r for r in found["evidence"] if r["metric"] == "backpressureRatio")
    assert (held["subtasks"], held["value"] > 0.9) == ([0, 1, 2, 3], True)
    assert all(row["basis"] in ("measured", "reconstructed", "predicted") for row in found["evidence"])
    assert all(e["method"] and e["basis"] == "predicted" for e in found["expected"])


@pytest.mark.parametrize("name", ["A", "H", "C2"])
def test_healthy_checkpoints_get_no_advice_on_the_mode(capsys, name):
    for at_s in running(name)[::2]:
        advice = advice_on(capsys, name, at_s)
        given = {r["topic"] for r in advice["recommendations"]}
        assert given == ({"parallelism"} if name == "C2" else set()), f"{name} at {at_s} s"
        assert given | {s["topic"] for s in advice["silences"]} == {t.value for t in topics_of(flink("1.20.5"))}


def test_a_failing_subtask_is_named_and_no_mode_is_advised(capsys):
    for at_s in running("G"):
        advice = advice_on(capsys, "G", at_s)
        mode = next(s for s in advice["silences"] if s["topic"] == "mode")

        assert advice["recommendations"] == []
        assert (mode["vertex"], mode["subtasks"]) == (LAST, [0]), f"at {at_s} s"


def test_fewer_than_five_checkpoints_are_the_reason_for_no_advice(capsys):
    advice = advice_on(capsys, "B2", recording(RECORDINGS / "B2").begins_s + 10)

    assert advice["considered_count"] < 5
    assert advice["recommendations"] == []
    assert {s["rule"] for s in advice["silences"]} == {"AD-3"}


@pytest.mark.parametrize("output_format", ["text", "markdown"])
def test_the_full_text_and_markdown_show_the_change_the_prediction_and_the_rollback(capsys, output_format):
    with served(RecordedFlink(RECORDINGS / "B2", 58.0)) as url:
        diagnose.run(url, job=None, output_format=output_format, is_verbose=True)
    out = capsys.readouterr().out

    assert "+ execution.checkpointing.aligned-checkpoint-timeout: 200 ms" in out
    assert "- execution.checkpointing.unaligned.enabled: false" in out
    assert "predicted" in out
    assert "undo it" in out


def test_the_short_text_shows_each_proposed_setting_and_each_effect_with_its_interval(capsys):
    advice = advice_on(capsys, "E")
    with served(RecordedFlink(RECORDINGS / "E", 58.0)) as url:
        diagnose.run(url, job=None, output_format="text")
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]

    found = on_mode(advice)
    assert f"change: {found['headline']} (needs a restart)" in lines
    assert {f"+ {c['key']}: {c['proposed']}" for c in found["changes"]} <= set(lines)
    effects = [line for line in lines if line.endswith("predicted")][:3]
    assert [line.partition(":")[0] for line in effects] == [
        "end-to-end duration",
        "persisted in-flight data",
        "checkpoints that expire",
    ]
    assert all(re.search(r" -> .* \(.+ to .+\), predicted$", line) for line in effects)


def test_the_short_text_leaves_out_an_effect_that_is_none(capsys):
    """No checkpoint of B2 expires, and none is predicted to expire, so the text must not mention expiry."""
    with served(RecordedFlink(RECORDINGS / "B2", 58.0)) as url:
        diagnose.run(url, job=None, output_format="text")

    assert "checkpoints that expire" not in capsys.readouterr().out


def test_without_a_recommendation_the_short_text_says_why(capsys):
    advice = advice_on(capsys, "A")
    with served(RecordedFlink(RECORDINGS / "A", 58.0)) as url:
        diagnose.run(url, job=None, output_format="text")

    assert f"change: none, {advice['silences'][0]['reason']}" in " ".join(capsys.readouterr().out.split())
