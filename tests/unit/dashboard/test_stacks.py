"""Tests of whose code a method is, and of where most samples are."""

from __future__ import annotations

import pytest

from backend.contracts.inspection import FrameOut
from dashboard.stacks import Owner, hottest, method_of, owner_of, short
from tests.support.api_examples import example


@pytest.mark.parametrize(
    ("method", "owner"),
    [
        ("org.apache.flink.runtime.taskmanager.Task.run:575", Owner.ENGINE),
        ("java.lang.Thread.run:840", Owner.PLATFORM),
        ("jdk.internal.misc.Unsafe.park:-2", Owner.PLATFORM),
        ("root", Owner.PLATFORM),
        ("example.Enrich.processElement:134", Owner.JOB),
        ("javalike.Job.run", Owner.JOB),
    ],
)
def test_the_package_says_whose_code_a_method_is(method, owner):
    assert owner_of(method) is owner


@pytest.mark.parametrize(
    ("line", "method"),
    [
        ("\tat app//org.example.Map.map(Map.java:7)", "org.example.Map.map"),
        ("\tat java.base@17.0.15/java.lang.Thread.run(Thread.java:840)", "java.lang.Thread.run"),
        ("\tat lab.Slow.processElement(Slow.java:164)", "lab.Slow.processElement"),
        ("\tat app//org.x.Task$$Lambda$9/0x7f.run(Unknown Source)", "org.x.Task$$Lambda$9/0x7f.run"),
        ("\tat lab.Task$$Lambda$9/0x7f.run(Unknown Source)", "lab.Task$$Lambda$9/0x7f.run"),
        ("\t-  waiting on java.lang.Object@1", None),
        ('"main" Id=1 WAITING', None),
    ],
)
def test_the_method_is_read_from_a_line_of_a_stack(line, method):
    assert method_of(line) == method


def test_a_method_is_shown_without_its_packages():
    assert short("lab.CheckpointLab$Slow.processElement:134") == "CheckpointLab$Slow.processElement:134"
    assert short("root") == "root"


def test_the_hottest_method_is_the_innermost_of_the_job_on_the_path_of_most_samples():
    frames = example("flame_graph").frames
    found = hottest(frames)
    assert found is not None
    assert (found.name, found.sample_count) == ("example.Enrich.processElement:164", 99)


def test_without_the_jobs_code_in_half_of_the_samples_there_is_no_hottest_method():
    root = FrameOut(name="root", sample_count=10, parent=None)
    assert hottest([]) is None
    assert hottest([root]) is None
    few = [root, *(FrameOut(name=f"a.B.c{n}", sample_count=3, parent=0) for n in range(3))]
    assert hottest(few) is None
