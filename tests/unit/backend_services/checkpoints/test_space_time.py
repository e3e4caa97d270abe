"""Tests of the diagram's sentences about the cut, and about the source of its times."""

from __future__ import annotations

import pytest

from backend.analysis.measures.cut import CutCheck, CutProblem
from backend.analysis.space_time.folding import Diagram
from backend.domain.barriers import ChannelId
from backend.domain.cut import CutError, CutState
from backend.domain.ids import VertexId
from backend.domain.topology import Topology, Vertex
from backend.domain.verdict import Basis
from backend.services.checkpoints.space_time import _NOT_READ, space_time_out

A, B = VertexId("a"), VertexId("b")
TOPOLOGY = Topology((Vertex(A, "Source: orders", 2),))


def out(check, **more):
    basis = Basis.RECONSTRUCTED if check is None else Basis.MEASURED
    return space_time_out(Diagram((), (), False, ()), basis, check, 5.0, TOPOLOGY, **more)


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (CutCheck(CutState.CONSISTENT, 1, 1), "none is lost or repeated: checked on 1 channel."),
        (CutCheck(CutState.INCOMPLETE, 8, 3), "checked on 3 of 8 channels, which show no error."),
        (CutCheck(CutState.UNCHECKED, 8, 0), "the trace does not contain the positions"),
        (None, "The cut cannot be checked: the engine does not report channels."),
    ],
)
def test_the_sentence_says_what_was_checked(check, sentence):
    assert sentence in out(check).cut.sentence


def test_problems_are_summed_by_error_and_the_worst_are_named():
    problems = tuple(
        CutProblem(ChannelId(A, B, n, 0), CutError.LOST if n % 2 else CutError.BACKWARDS, 100 - n) for n in range(30)
    )
    cut = out(CutCheck(CutState.INCONSISTENT, 40, 40, problems)).cut
    assert cut.sentence == (
        "The cut is not consistent: 1290 bytes on 15 of 40 channels crossed it backwards;"
        " 1275 bytes on 15 of 40 channels would be lost by a restore."
    )
    assert (cut.problem_count, len(cut.problems), cut.problems[0].source) == (30, 20, "Source: orders")
    # The graph of a redeployed job may lack a vertex of the checkpoint.
    assert cut.problems[0].target == "b"


def test_events_that_were_not_read_in_time_are_not_blamed_on_the_engine():
    found = out(None, why=_NOT_READ)
    assert "larger than the collector accepts" in found.cut.sentence
    assert "larger than the collector accepts, so an arrow shows" in found.note
