"""Lists the test files of each area of the product: ``make test AREA=...`` runs those of one area.

``python -m tests.areas AREA`` prints them. An area is a list of patterns. A pattern is a glob under ``tests``, and
with a leading ``!`` it excludes files. An area contains every kind of test. ``quick`` is the selection for ``make
test-quick``: tests without PostgreSQL, browser, JVM or a long run.
"""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parent

_NOT_RUNTIME = (
    "!simulation/test_advice_calibration.py",
    "!simulation/test_twin_*.py",
    "!simulation/test_alert_lifecycle.py",
    "!simulation/test_early_warning.py",
    "!simulation/test_regret.py",
    "!simulation/test_collector_*.py",
    "!simulation/test_verdicts_of_the_demo_jobs.py",
)

AREAS = {
    "runtime": (
        "unit/backend_runtime/**",
        "unit/backend_experiments/**",
        "unit/simulators/**",
        "conformance/*",
        "property/test_runtime_elements.py",
        "property/test_scrambling_in_lanes.py",
        "simulation/*",
        "packaging/test_runtime_imports.py",
        *_NOT_RUNTIME,
    ),
    "live": ("unit/backend_live/**", "contract/test_runtime_*.py", "integration/test_built_in_target.py"),
    "store": (
        "unit/backend_store/**",
        "unit/backend_domain/**",
        "integration/test_embedded_postgres.py",
        "integration/test_ingest*.py",
        "integration/test_migrations.py",
        "integration/test_backup.py",
        "integration/test_downsampling.py",
        "integration/test_rewriting.py",
        "integration/test_export.py",
        "integration/test_partitions_visited.py",
        "integration/test_retention.py",
        "integration/test_schema_check.py",
        "integration/test_store_*.py",
        "contract/*_stored.py",
    ),
    "api": (
        "unit/backend_api/**",
        "unit/backend_contracts/**",
        "integration/test_large_checkpoints.py",
        "unit/backend_access/**",
        "unit/backend_services/**",
        "contract/test_openapi.py",
        "contract/*_served.py",
        "integration/test_annotations.py",
        "integration/test_cap_curves.py",
        "integration/test_simulations.py",
        "integration/test_what_if.py",
        "integration/test_checkpoint_actions.py",
        "integration/test_links.py",
        "integration/test_growth.py",
        "integration/test_history.py",
        "integration/test_api.py",
        "integration/test_comparing.py",
        "integration/test_comparing_sides.py",
        "integration/test_comparing_windows.py",
        "integration/test_findings_once.py",
        "integration/test_judging.py",
        "integration/test_fleet_refresh.py",
        "integration/test_freshness.py",
        "integration/test_refused_addresses.py",
        "integration/test_roles_with_a_token.py",
        "integration/test_subtask_matrix.py",
        "integration/test_pressure_history.py",
        "integration/test_growth.py",
        "contract/test_refused_addresses.py",
        "contract/test_routes_by_role.py",
    ),
    "cli": (
        "unit/backend/**",
        "unit/backend_cli/**",
        "e2e/test_cli.py",
        "e2e/test_up*.py",
        "packaging/test_settings_documented.py",
    ),
    "collectors": (
        "unit/collectors/**",
        "unit/collectors_*/**",
        "simulation/test_collector_*.py",
        "contract/test_flink_*.py",
        "contract/test_spark_*.py",
        "contract/test_diagnose_*.py",
        "contract/test_collectors.py",
        "integration/test_collecting_without_postgres.py",
        "integration/test_target_leases.py",
        "integration/test_declared_targets.py",
        "integration/test_many_targets.py",
        "integration/test_discovery.py",
        "integration/test_cluster_history.py",
        "integration/test_discovered_fleet.py",
        "contract/test_found_addresses.py",
        "integration/test_canaries.py",
        "integration/test_collect_killed_in_a_reload.py",
        "contract/test_kubernetes_discovery.py",
        "integration/test_target_credentials_api.py",
        "contract/test_target_connections.py",
        "integration/test_toy_collector.py",
        "integration/test_other_runs.py",
        "integration/test_restored_from.py",
        "integration/test_spark_causes.py",
        "integration/test_spark_checkpoint_folders.py",
        "integration/test_spark_jar.py",
        "integration/test_spark_listener_runs.py",
        "integration/test_spark_within_two_polls.py",
        "integration/test_spark_work.py",
    ),
    "dashboard": (
        "unit/dashboard/**",
        "unit/support/**",
        "contract/test_pages_*.py",
        "e2e/test_login.py",
        "e2e/test_pages*.py",
        "e2e/test_every_page.py",
        "e2e/test_second_engine.py",
        "e2e/test_pictures.py",
    ),
    "advisor": (
        "unit/backend_advisor/**",
        "property/test_advice_properties.py",
        "simulation/test_advice_calibration.py",
        "contract/test_advice_recordings.py",
        "contract/test_twin_*.py",
        "simulation/test_twin_*.py",
        "simulation/test_regret.py",
        "integration/test_advice.py",
        "integration/test_auto_roll_back.py",
        "integration/test_setting_choices.py",
        "packaging/test_advice_document.py",
    ),
    "metrics": (
        "unit/backend_metrics/**",
        "unit/backend_services/metrics/**",
        "unit/backend_api/test_metering.py",
        "unit/backend_cli/test_metrics_port.py",
        "integration/test_metrics.py",
        "integration/test_prometheus_rules.py",
        "e2e/test_prometheus.py",
        "packaging/test_chart_metrics.py",
    ),
    "alerting": (
        "unit/backend_alerting/**",
        "unit/backend_notify/**",
        "unit/backend_backtest/**",
        "simulation/test_early_warning.py",
        "simulation/test_alert_lifecycle.py",
        "integration/test_alert_*.py",
        "integration/test_incidents*.py",
        "integration/test_real_alertmanager.py",
        "integration/test_joined_channels.py",
        "integration/test_spark_silence.py",
        "integration/test_unreadable_jobs.py",
    ),
    "analysis": (
        "unit/backend_analysis/**",
        "property/test_analysis_*.py",
        "property/test_log_buckets.py",
        "simulation/test_verdicts_of_the_demo_jobs.py",
        "contract/test_diagnose_recordings.py",
        "contract/test_public_cases*.py",
        "packaging/test_diagnosis_document.py",
    ),
    "pipeline": (
        "unit/backend_pipeline/**",
        "integration/test_rollups*.py",
        "integration/test_backtest.py",
        "integration/test_backtest_api.py",
        "integration/test_fleet_what_if.py",
        "property/test_log_buckets.py",
    ),
    "docs": ("packaging/*", "conformance/test_protocol_document.py"),
}

# They run whole jobs, terminals or thousands of drawn cases, and took a large part of the time of the quick selection.
_NOT_QUICK = (
    "!conformance/test_continued_jobs.py",
    "!conformance/test_endings_of_a_running_flink.py",
    "!contract/test_diagnose_recordings.py",
    "!contract/test_diagnose_watch.py",
    "!contract/test_runtime_measurements.py",
    "!contract/test_runtime_rest_shapes.py",
    "!property/test_advice_properties.py",
    "!property/test_analysis_arrays.py",
    "!property/test_analysis_sentences_that_count.py",
    "!property/test_analysis_verdict_properties.py",
    "!unit/backend_advisor/choice/test_choosing.py",
    "!unit/backend_advisor/twin/fast/test_fast.py",
    "!unit/backend_advisor/twin/model/test_contradictions.py",
    "!unit/backend_advisor/twin/tiers/test_tiers.py",
    "!unit/backend_backtest/test_jobs.py",
    "!unit/backend_cli/test_saved_checkpoints.py",
    "!unit/backend_cli/test_what_if.py",
    "!unit/backend_experiments/*",
    "!unit/backend_services/simulations/test_cap_curves.py",
    "!unit/backend_services/simulations/test_catalog.py",
    "!unit/backend_services/simulations/test_simulating.py",
    "!unit/backend_services/whatif/test_confirming.py",
)

QUICK = (
    "unit/**",
    "property/*",
    "conformance/*",
    "contract/test_diagnose_*.py",
    "contract/test_flink_faults.py",
    "contract/test_flink_polling.py",
    "contract/test_pages_*.py",
    "contract/test_runtime_*.py",
    "packaging/test_*_document.py",
    "packaging/test_architecture.py",
    "packaging/test_runtime_imports.py",
    "packaging/test_settings_documented.py",
    "packaging/test_unit_layout.py",
    "simulation/test_alert_lifecycle.py",
    "simulation/test_collector_loop.py",
    "simulation/test_lost_messages.py",
    "simulation/test_savepoints.py",
    *_NOT_QUICK,
)


def files(patterns: tuple[str, ...]) -> list[str]:
    """Return the test files that the patterns select, sorted, relative to the root of the repository."""
    chosen: set[Path] = set()
    for pattern in sorted(patterns, key=lambda p: p.startswith("!")):
        found = {path for path in TESTS.glob(pattern.removeprefix("!")) if path.is_file()}
        found |= {path for folder in TESTS.glob(pattern.removeprefix("!")) for path in folder.glob("test_*.py")}
        chosen = chosen - found if pattern.startswith("!") else chosen | found
    return sorted(str(p.relative_to(TESTS.parent)) for p in chosen if p.name.startswith("test_") and p.suffix == ".py")


def main(area: str) -> int:
    """Print the test files of an area and return 0.

    For an unknown area, print one line on stderr and return exit code 2.
    """
    patterns = {**AREAS, "quick": QUICK}.get(area)
    if patterns is None:
        print(f"make: {area!r} is not an area; the areas are {' '.join(AREAS)}", file=sys.stderr)
        return 2
    print(*files(patterns), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
