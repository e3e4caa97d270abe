"""Tests of the story that ``barrierscope demo`` plays, on a stage whose service the test advances."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from backend.cli import demo
from backend.cli.story import SOURCE_SUBTASKS, BackpressureStory
from backend.contracts.advice import MeasuredOut
from backend.domain.advice import AdviceState, Metric, Topic
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.errors import ApiUnavailableError, HostError
from backend.domain.verdict import Health
from tests.support.api_examples import example

_BEGAN = datetime(2026, 11, 21, 12, tzinfo=UTC)
_URL = "http://127.0.0.1:8050"


class Service:
    """A stage whose service advances by one step each time that the story waits."""

    def __init__(self) -> None:
        self.steps = [
            self.read, self.complete, self.fail_and_judge, self.fire, self.advise_too_early, self.advise_buffers,
            self.advise, self.report_settings, self.recover, self.resolve, self.measure,
        ]  # fmt: skip
        self.subtasks = 1
        self.applied = []
        self.now_s = 0.0
        self._job = None
        self._checkpoints = []
        self._alerts = []
        self._cards = []

    # --- what happens in the service ------------------------------------------------------------------------------

    def read(self):
        self._job = example("job").model_copy(update={"health": Health.TOO_FEW, "name": "orders"})

    def complete(self):
        self._job = self._job.model_copy(update={"health": Health.HEALTHY})
        self._checkpoints = [self._checkpoint(n, 100 + n) for n in range(4)]

    def fail_and_judge(self):
        self._job = self._job.model_copy(update={"health": Health.FAILING})
        self._checkpoints.insert(0, example("checkpoint").model_copy(update={"checkpoint_id": 9}))

    def fire(self):
        self._alerts = [example("alert")]

    def advise_too_early(self):
        self._cards = [self._card(before_ms=108.0)]

    def advise_buffers(self):
        card = self._card(before_ms=3000.0)
        other = {"recommendation": card.recommendation.model_copy(update={"topic": Topic.BUFFERS}), "id": "debloating"}
        self._cards = [card.model_copy(update=other)]

    def advise(self):
        self._cards = [self._card(before_ms=3000.0)]

    def report_settings(self):
        update = {"state": AdviceState.APPLIED, "applied_at": _BEGAN, "can_apply": False}
        self._cards = [self._cards[0].model_copy(update=update)]

    def recover(self):
        self._job = self._job.model_copy(update={"health": Health.HEALTHY})
        self._checkpoints.insert(0, self._checkpoint(10, 228))

    def resolve(self):
        update = {"state": "resolved", "ended_reason": "0 of the last 3 checkpoints expired"}
        self._alerts = [self._alerts[0].model_copy(update=update)]

    def measure(self):
        duration = next(e for e in self._cards[0].recommendation.expected if e.metric is Metric.DURATION)
        row = MeasuredOut(
            metric=Metric.DURATION, unit="ms", predicted=duration.predicted, measured=231, is_inside=True,
            checkpoint_count=5,
        )  # fmt: skip
        update = {"state": AdviceState.VERIFIED, "state_reason": "1 of 1 predictions held", "measured": (row,)}
        self._cards = [self._cards[0].model_copy(update=update)]

    def _checkpoint(self, number, took_ms):
        update = {
            "checkpoint_id": number, "status": CheckpointStatus.COMPLETED, "end_to_end_duration_ms": took_ms,
            "failure_reason": None, "triggered_at": _BEGAN + timedelta(seconds=number),
        }  # fmt: skip
        return example("checkpoint").model_copy(update=update)

    def _card(self, *, before_ms):
        card = example("card").model_copy(update={"can_apply": True, "state": AdviceState.NEW})
        expected = [
            e.model_copy(update={"before": before_ms}) if e.metric is Metric.DURATION else e
            for e in card.recommendation.expected
        ]
        return card.model_copy(update={"recommendation": card.recommendation.model_copy(update={"expected": expected})})

    # --- the stage ------------------------------------------------------------------------------------------------

    def job(self):
        return self._job

    def checkpoints(self, job):
        return self._checkpoints

    def verdict(self, checkpoint):
        return example("verdict")

    def alerts(self, job):
        return self._alerts

    def cards(self, job):
        return self._cards

    def raise_load(self, subtasks):
        self.subtasks = subtasks

    def apply(self, card):
        self.applied.append(card.id)

    def wait(self, seconds):
        self.now_s += seconds
        if self.steps:
            self.steps.pop(0)()


def play(service, between=lambda: None):
    demo.play(
        BackpressureStory(service), _URL, watch=lambda: None, between=between, wait=service.wait,
        now_s=lambda: service.now_s,
    )  # fmt: skip


def test_the_acts_follow_each_other_and_each_names_the_page_that_shows_it(capsys):
    service, pauses = Service(), []

    play(service, between=lambda: pauses.append(len(service.steps)))

    out = capsys.readouterr().out
    titles = [line.partition(": ")[2] for line in out.splitlines() if line.startswith("Act ")]
    assert titles == [
        "A healthy job", "The load rises", "The culprit", "The alert", "The cure", "The change is applied",
        "The job recovers", "The alert is resolved", "Predicted and measured",
    ]  # fmt: skip
    assert len(pauses) == len(titles) - 1, "after the last act, nothing is to come"
    assert service.subtasks == SOURCE_SUBTASKS
    assert service.applied == [example("card").id]
    job, checkpoint = example("job").id, example("checkpoint")
    opened = [line.split(_URL)[1] for line in out.splitlines() if "open " in line]
    assert opened[0] == f"/ui/jobs/{job}"
    assert opened[2] == f"/ui/jobs/{job}/runs/{checkpoint.run_id}/checkpoints/9"
    assert opened[3] == f"/ui/incidents/{example('alert').incident_id}"
    assert opened[4].endswith("/advice")
    assert "Checkpoint 9 expired after 60.0 s; before, the median was 102 ms." in out
    assert "end-to-end duration: at least 3.0 s" in out or "end-to-end duration: 3.0 s" in out, "no early numbers"
    assert "measured 231 ms over 5 checkpoints: inside" in out


def test_an_act_that_does_not_end_is_one_clear_error():
    service = Service()
    del service.steps[3:]

    with pytest.raises(HostError, match=r"the act 'The alert' did not finish: the first alert not seen"):
        play(service)


def test_a_service_that_does_not_answer_for_a_moment_does_not_end_the_story(capsys, monkeypatch):
    service = Service()
    service.steps[:0] = [lambda: None] * 3
    job, misses = service.job, iter(range(3))

    def answer():
        if next(misses, None) is not None:
            raise ApiUnavailableError("connection refused")
        return job()

    monkeypatch.setattr(service, "job", answer)
    play(service)

    assert "Predicted and measured" in capsys.readouterr().out


def test_enter_goes_on_and_the_end_of_standard_input_too(monkeypatch, tmp_path):
    for text in ("\n", ""):
        (tmp_path / "keys").write_text(text)
        watched = []
        with (tmp_path / "keys").open() as keys:
            monkeypatch.setattr("sys.stdin", keys)
            demo._between(None, lambda watched=watched: watched.append(True), "for the next act")
        assert watched == [True]


def test_without_standard_input_the_next_act_begins_at_once(monkeypatch):
    watched = []
    monkeypatch.setattr(demo.sys, "stdin", None)

    demo._between(None, lambda: watched.append(1), "for the next act")

    assert watched == []
