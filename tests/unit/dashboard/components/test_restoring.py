"""Tests of the card that shows which changes of the job a checkpoint allows."""

from backend.contracts.restoring import InFlightOut, RestoreUseOut, RestoringOut
from dashboard.components import restoring
from tests.support.dash_calls import texts

_SOURCE = "Flink's documentation: Checkpoints vs. Savepoints"


def test_each_use_has_its_answer_as_a_word_and_its_note():
    found = RestoringOut(
        is_restorable=True,
        sentence="It is an unaligned checkpoint.",
        kinds=["unaligned checkpoint"],
        location="s3://c/chk-7",
        uses=[
            RestoreUseOut(use="rescaling", support="yes", note="redistributed"),
            RestoreUseOut(use="arbitrary job upgrade", support="no"),
            RestoreUseOut(use="schema evolution", support="at own risk"),
            RestoreUseOut(use="state backend change", support=None, note="yes for a canonical savepoint"),
        ],
        in_flight=[InFlightOut(vertex_id="a", vertex="Sink: ledger", persisted_bytes=2048)],
        is_consistent_for_queries=False,
        source=_SOURCE,
    )
    words = texts(restoring.card(found))
    for part in (
        "It is an unaligned checkpoint.", "rescaling", "yes", "redistributed", "no", "at own risk", "not known",
        "yes for a canonical savepoint", "Sink: ledger (2.0 kB)", "s3://c/chk-7", _SOURCE,
        "It cannot serve consistent queries",
    ):  # fmt: skip
        assert part in words, part


def test_what_cannot_be_restored_has_no_table_and_spark_no_card():
    found = RestoringOut(is_restorable=False, sentence="It failed.", kinds=[], source=_SOURCE)
    assert "It failed." in texts(restoring.card(found))
    assert "rescaling" not in texts(restoring.card(found))
    assert restoring.card(None) is None
