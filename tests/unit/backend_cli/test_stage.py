"""Tests of the stage of a story: what it leaves behind if it is interrupted, and how long it waits."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from backend.cli import stage
from backend.cli.stage import LiveStage
from backend.domain.errors import HostError
from tests.support.api_examples import example


class Service:
    """A service that has a target of somebody else, and is interrupted before it answers with the new target."""

    def __init__(self) -> None:
        self.stored = [example("target").model_copy(update={"id": "other", "labels": {"deployment": "prod"}})]
        self.removed = []

    def post(self, _path, body, _kind):
        self.stored.append(example("target").model_copy(update={"id": "new", "labels": dict(body.labels)}))
        raise KeyboardInterrupt

    def targets(self):
        return iter(self.stored)

    def delete(self, path):
        self.removed.append(path)

    def __exit__(self, *_):
        pass


@pytest.fixture
def of_service(monkeypatch):
    made = LiveStage("http://127.0.0.1:8050", port=8050, tell=lambda *_: None)
    service = Service()
    monkeypatch.setattr(made, "_client", service)
    yield made, service
    made.close()


def test_a_target_that_the_service_stored_before_ctrl_c_is_removed_without_its_answer(of_service):
    made, service = of_service
    with pytest.raises(KeyboardInterrupt):
        made._add_target()

    made.close()

    assert service.removed == ["/api/v1/targets/new"]


def test_a_stage_that_added_no_target_removes_none(of_service):
    made, service = of_service

    made.close()

    assert service.removed == []


def test_a_role_that_never_becomes_ready_ends_the_start_with_an_error(of_service, monkeypatch):
    made, _ = of_service
    minutes = itertools.count()
    quick = SimpleNamespace(monotonic=lambda: 60.0 * next(minutes), sleep=lambda _: None)
    monkeypatch.setattr(stage, "time", quick)

    with pytest.raises(HostError, match="runtime is not ready after 600 s"):
        made._await("runtime", lambda: False)
