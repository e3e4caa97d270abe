"""What the pages say of the channels of a query."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from backend.contracts.channels import BatchChannelOut, ChannelOut, ChannelValueOut, DisagreementOut
from backend.domain.channel import Channel
from backend.domain.observation import JobState
from dashboard.components import channels
from tests.support.dash_calls import texts
from tests.support.fake_api import FakeApi
from tests.support.fake_spark import STATELESS, add_spark

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
LISTENER = ChannelOut(
    target_id="t1",
    target_name="etl",
    channel=Channel.LISTENER,
    state=JobState.RUNNING,
    heard_at=AT,
    is_speaking=True,
    is_watched=True,
)
HISTORY = LISTENER.model_copy(
    update={
        "target_id": "t2",
        "target_name": "cluster",
        "channel": Channel.HISTORY_SERVER,
        "is_speaking": False,
        "heard_at": AT - timedelta(seconds=12),
    }
)


def differing(number):
    values = [
        ChannelValueOut(target_id="t1", target_name="etl", channel=Channel.LISTENER, text="100"),
        ChannelValueOut(target_id="t2", target_name="cluster", channel=Channel.HISTORY_SERVER, text="120"),
    ]
    sentence = f"Batch {number}: input rows 100 (listener), 120 (history server)"
    return DisagreementOut(name="input rows", values=values, sentence=sentence)


def job(found, disagreements=()):
    made = add_spark(FakeApi(now=lambda: AT)).jobs[STATELESS].detail
    batches = [batch.model_copy(update={"disagreements": []}) for batch in made.batches]
    batches[-1] = batches[-1].model_copy(update={"disagreements": list(disagreements)})
    return made.model_copy(update={"channels": found, "batches": batches})


def test_the_source_line_names_each_channel_with_the_age_of_its_newest_report():
    parts = channels.read_from([LISTENER, HISTORY])

    assert texts(parts) == "Read from: listener , history server cluster"
    ages = [part.children[-1] for part in parts if not isinstance(part, str)]
    assert [getattr(age, "data-instant") for age in ages] == [AT.isoformat(), (AT - timedelta(seconds=12)).isoformat()]


def test_a_job_with_one_channel_has_no_card_of_them():
    assert channels.of_job(job([LISTENER])) is None


def test_the_card_of_a_job_says_what_each_channel_reports_and_where_they_differ():
    words = texts(channels.of_job(job([LISTENER, HISTORY.model_copy(update={"is_watched": False})], [differing(7)])))

    assert "running (this one decides the state that the job shows)" in words
    assert "removed or paused" in words
    assert "Batch 7: input rows 100 (listener), 120 (history server)" in words


def test_of_many_differences_the_newest_are_listed_and_the_others_counted():
    words = texts(channels.of_job(job([LISTENER, HISTORY], [differing(n) for n in range(14)])))

    assert "and 4 more in older batches" in words
    assert "Batch 3:" not in words
    assert "Batch 4:" in words
    assert "Batch 13:" in words


def test_the_card_of_a_batch_says_which_values_are_from_which_channel():
    batch = job([]).batches[0]
    named = [
        BatchChannelOut(target_id="t1", target_name="etl", channel=Channel.LISTENER, values=["status", "input rows"]),
        BatchChannelOut(target_id="t3", target_name="etl:4040", channel=Channel.DRIVER, values=[]),
    ]

    assert channels.of_batch(batch) is None
    words = texts(channels.of_batch(batch.model_copy(update={"channels": named})))
    assert "listener status, input rows" in words
    assert "driver etl:4040 reported the batch too; nothing of it is shown" in words


def test_the_values_of_a_batch_are_grouped_by_subject_and_its_phases_have_the_words_of_the_chart():
    named = ("status", "phase add-batch", "state rows", "input rows", "state stores", "phase later", "state size")

    assert channels.in_words(named) == "status, phases (run the query, later), state (rows, stores, size), input rows"
    assert channels.in_words(("source 1 rows", "source 2 rows", "source")) == "source 1 (rows), source 2 (rows), source"
    assert channels.in_words(()) == ""
