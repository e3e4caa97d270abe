"""The page of the alert rules names thresholds in words."""

from __future__ import annotations

import pytest

from backend.alerting.rules import RULES
from dashboard import text
from dashboard.pages import alert_rules
from tests.support.api_examples import example
from tests.support.dash_calls import texts


@pytest.mark.parametrize("name", sorted({t.name for rule in RULES for t in rule.thresholds}))
def test_every_threshold_has_a_label_that_fits_over_its_field(name):
    label = alert_rules.threshold_label(name)

    assert label != name.replace("_", " ")
    # The field is 132 px wide.
    assert len(label) <= 22


def test_a_threshold_of_a_newer_service_keeps_its_name():
    assert alert_rules.threshold_label("lag_max_s") == "lag max s"


def test_a_rule_without_settings_says_so_and_not_that_they_are_missing():
    rule = example("rule").model_copy(update={"name": "Watchdog", "severity": "none"})

    said = texts(alert_rules._rule(rule))

    assert "nothing to set" in said
    assert text.MISSING not in said


def test_a_refused_time_or_threshold_is_named_by_its_label():
    said = alert_rules._with_labels(
        "invalid (for_s: too long; keep_firing_for_s: too short; thresholds.window_ratio: low)"
    )

    assert said == "invalid (Fires after (s): too long; Resolves after (s): too short; Window multiplied by: low)"
