"""The command of an executor on Kubernetes has the values that Spark passes in environment variables."""

from __future__ import annotations

import pytest

from backend.domain.errors import HostError
from backend.pipeline.executor import executor_command

_GIVEN = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:41000",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_EXECUTOR_POD_NAME": "barrierscope-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_CONF_DIR": "/opt/spark/conf",
}


def _command(**more: str) -> list[str]:
    return executor_command(_GIVEN | more, java_home="/java", spark_home="/spark")


def test_the_command_connects_to_the_driver_as_the_executor_of_the_pod():
    command = _command()

    assert command[:5] == ["/java/bin/java", "-Xms1024m", "-Xmx1024m", "-cp", "/opt/spark/conf:/spark/jars/*"]
    assert command[5].endswith("KubernetesExecutorBackend")
    assert dict(zip(command[6::2], command[7::2], strict=True)) == {
        "--driver-url": "spark://CoarseGrainedScheduler@10.0.0.7:41000",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.9",
        "--resourceProfileId": "0",
        "--podName": "barrierscope-exec-3",
    }


def test_java_options_keep_the_order_of_their_numbers_and_their_spaces():
    options = {f"SPARK_JAVA_OPT_{n}": f"-Dx{n}=a b" for n in (10, 2, 0)}

    assert _command(**options)[1:4] == ["-Dx0=a b", "-Dx2=a b", "-Dx10=a b"]


def test_a_start_without_spark_names_the_missing_variables():
    with pytest.raises(HostError, match="SPARK_DRIVER_URL, SPARK_EXECUTOR_ID"):
        executor_command({}, java_home="/java", spark_home="/spark")
