"""For any measured numbers, advice is complete, its intervals are in order, and its settings are valid."""

from __future__ import annotations

from hypothesis import given, note, settings
from hypothesis import strategies as st

from backend.advisor import advise
from backend.advisor.advice import Interval
from backend.advisor.proposing import broken_bound
from backend.advisor.recommending import topics_of
from backend.contracts.advice import AdviceOut
from backend.contracts.advice_text import as_markdown, as_text
from backend.domain.advice import Metric, Topic
from backend.domain.engines import FLINK, RUNTIME, SPARK, flink
from tests.property.test_analysis_verdict_properties import evidences
from tests.support.advised_jobs import EXACTLY_ONCE, readings, slow_run
from tests.support.handwritten_jobs import CHAIN, detail, failed, held_back, job

DELAYS = st.lists(st.integers(0, 30_000), min_size=4, max_size=4)


def is_ordered(interval: Interval) -> bool:
    return 0.0 <= interval.low <= interval.value <= interval.high


@settings(max_examples=40)
@given(
    evidences(),
    st.sampled_from([flink, lambda _: RUNTIME, lambda _: SPARK]),
    st.sampled_from([None, "1.13.2", "1.20.5", "2.3.0", "odd"]),
)
def test_every_job_gets_one_answer_on_each_topic(evidence, engine_in, version):
    advice = advise(evidence, engine=engine_in(version), version=version)

    topics = [a.topic for a in (*advice.recommendations, *advice.silences)]
    assert len(topics) == len(set(topics))
    assert set(topics) == set(topics_of(engine_in(version)))
    assert all(s.reason for s in advice.silences)


@st.composite
def runs(draw):
    found = []
    for n in range(1, draw(st.integers(5, 9))):
        late = sorted(draw(st.lists(st.integers(0, 20_000), min_size=2, max_size=2)))
        rows = dict(zip(CHAIN, ([5] * 4, [late[0]] * 4, [late[1] + i for i in draw(DELAYS)]), strict=True))
        if draw(st.integers(0, 3)):
            found.append(held_back(n, rows, alignment=draw(st.integers(0, 3_000))))
        else:
            details = [detail(v, first=[None if d > 3_000 else d for d in row]) for v, row in rows.items()]
            found.append(failed(n, *details, after_ms=3_001))
    return found


@settings(max_examples=40)
@given(runs(), st.integers(0, 3_000_000), st.sampled_from([0.5, 0.8, 1.0]))
def test_intervals_are_in_order_and_the_proposed_settings_are_recognised_when_applied(run, queued, held):
    advice = advise(job(run, readings(held, queued), config=EXACTLY_ONCE), engine=FLINK, version="1.20.5")
    out = AdviceOut.model_validate(advice)
    assert AdviceOut.model_validate_json(out.model_dump_json()) == out
    assert as_markdown(out.recommendations, out.silences)
    assert as_text(out.recommendations, out.silences, width=80)
    for found in advice.recommendations:
        note(found.headline)
        assert found.evidence
        # No setting of the newest release gives one vertex more subtasks.
        assert found.changes or (found.topic is Topic.PARALLELISM and found.how_to.steps)
        assert all(is_ordered(e.predicted) for e in found.expected), found.expected
        assert found.expected or all(text.startswith("no prediction of ") for text in found.unpredicted)
        assert broken_bound(EXACTLY_ONCE, job().topology, found.proposed) is None
        ratio = next((e for e in found.expected if e.metric is Metric.EXPIRED), None)
        assert ratio is None or ratio.predicted.high <= 1.0
        timeout = found.proposed.aligned_timeout_ms or 0
        assert timeout <= 2_500, "half of the interval"


@settings(max_examples=15)
@given(st.integers(5, 10), st.integers(1, 5_000_000))
def test_longer_queues_never_lower_the_predicted_persisted_bytes(count, queued):
    def persisted(size):
        advice = advise(job(slow_run(count), readings(1.0, size), config=EXACTLY_ONCE), engine=FLINK, version=None)
        return [e.predicted.value for r in advice.recommendations for e in r.expected if e.metric is Metric.PERSISTED]

    less, more = persisted(queued), persisted(queued * 2)
    assert not less or not more or less[0] <= more[0]
