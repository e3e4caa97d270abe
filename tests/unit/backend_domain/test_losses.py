"""Tests of the texts of lost output: what a text says can be read from it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backend.domain import losses
from backend.domain.losses import Loss

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("rows", "transactions"), [(1, 1), (6705, 12)])
def test_the_numbers_of_a_loss_are_read_from_its_text(rows, transactions):
    text = f"sink/1: {losses.EXCEPTION}: {losses.timed_out(rows, transactions, 900_000)}"

    assert losses.read(AT, text) == Loss(AT, text, transactions, rows, 900_000)


@pytest.mark.parametrize(("count", "words"), [(1, "1 transaction"), (3, "3 transactions")])
def test_of_commits_that_a_connector_gave_up_only_their_number_is_known(count, words):
    text = losses.given_up("Sink: Committer", count)

    assert losses.read(AT, text) == Loss(AT, text, count, None, None)
    assert losses.said([Loss(AT, text, count, None, None)]) == words
    assert losses.row_count([Loss(AT, "", 1, 5, 1), Loss(AT, "", 1, None, None)]) is None


def test_other_exceptions_are_no_losses():
    assert losses.read(AT, "sink/1: InducedFailure: 3 rows in 2 transactions") is None


def test_losses_are_added_up():
    found = [Loss(AT, "", 2, 500, 1), Loss(AT, "", 1, 1, 1)]

    assert losses.said(found) == "501 rows in 3 transactions"
    assert losses.said([Loss(AT, "", 1, 1, 1)]) == "1 row in 1 transaction"
