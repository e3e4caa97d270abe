"""The options of a Spark cluster are checked before anything starts, and give the number of tasks."""

from __future__ import annotations

import pytest

from backend.domain.errors import InvalidInputError
from backend.pipeline.cluster import Cluster, cluster_of

_NONE = {"python": None, "archive": None, "url_file": None}


def test_settings_of_spark_may_contain_equals_signs():
    cluster = cluster_of("spark://host:7077", **_NONE, conf=["spark.a=b=c", "spark.empty="])

    assert cluster.conf == {"spark.a": "b=c", "spark.empty": ""}
    assert not cluster.is_local


def test_every_invalid_option_is_reported(tmp_path):
    with pytest.raises(InvalidInputError) as refused:
        cluster_of("mesos://x", python=None, archive=tmp_path, url_file=None, conf=["a=b", "spark.x"])

    assert [p.field for p in refused.value.problems] == ["--master", "--archive", "--conf", "--conf"]


@pytest.mark.parametrize(
    ("cluster", "tasks"),
    [
        (Cluster(), 2),
        (Cluster("local[*]"), 2),
        (Cluster("spark://host:7077"), 16),
        (Cluster("k8s://https://host", conf={"spark.default.parallelism": "48"}), 48),
        (Cluster("k8s://https://host", conf={"spark.default.parallelism": "0"}), 1),
    ],
)
def test_the_number_of_tasks_is_that_of_sparks_setting(cluster, tasks):
    assert cluster.tasks == tasks
