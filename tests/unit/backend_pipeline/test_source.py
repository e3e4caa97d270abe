"""The partitions of a read cover every hour of every job exactly once, and contain no credentials."""

from __future__ import annotations

import random

import pytest
from psycopg.conninfo import conninfo_to_dict

from backend.pipeline.cluster import Cluster
from backend.pipeline.session import database_options, without_password
from backend.pipeline.source import HOUR_S, SPAN_MAX_HOURS, shares


@pytest.mark.parametrize("seed", range(30))
def test_partitions_cover_each_hour_once_for_each_share_of_the_jobs(seed):
    rng = random.Random(seed)
    hours = [HOUR_S * n for n in rng.sample(range(100), rng.randint(1, 60))]
    tasks = rng.choice([1, 2, 16, 48])

    found = shares(hours, tasks=tasks)

    # A hash value belongs to exactly one share of each hour.
    for hash_value in (0, 1, 7, 2**63 - 1):
        covered = [
            second
            for part in found
            if hash_value % part.slices == part.slice
            for second in range(part.start_s, part.end_s, HOUR_S)
        ]
        assert sorted(covered) == sorted(hours), f"seed {seed}"
    assert all(part.end_s - part.start_s <= SPAN_MAX_HOURS * HOUR_S for part in found), f"seed {seed}"


def test_a_read_is_divided_by_hour_first_and_by_job_only_if_there_are_few_hours():
    day = [HOUR_S * n for n in range(24)]

    assert [(p.end_s - p.start_s, p.slices) for p in shares(day, tasks=2)] == [(12 * HOUR_S, 1)] * 2
    assert [(p.end_s - p.start_s, p.slices) for p in shares(day, tasks=16)] == [(HOUR_S, 1)] * 24
    assert [(p.slice, p.slices) for p in shares([0], tasks=4)] == [(n, 4) for n in range(4)]


def test_executors_get_the_url_without_its_passwords():
    url = "postgresql://user:sec%20ret@db:5433/name?sslmode=require&sslpassword=sec%20ret2"

    assert conninfo_to_dict(without_password(url)) == {
        "user": "user",
        "host": "db",
        "port": "5433",
        "dbname": "name",
        "sslmode": "require",
    }
    for cluster in (Cluster(), Cluster("spark://host:7077"), Cluster("spark://host:7077", url_file="/etc/url")):
        with database_options(url, cluster) as options:
            assert "sec" not in "".join(options.values()), cluster
