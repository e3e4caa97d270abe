"""Builds the command of a Spark executor in a pod that Spark creates on Kubernetes from the image of Barrierscope.

Spark describes the executor in environment variables and starts the image with the argument ``executor``. The image of
the Spark project reads them in its entry point script; this module does the same for ours. The executor therefore has
the Python, the packages and the Spark of the driver. This module does not import pyspark.
"""

from __future__ import annotations

from collections.abc import Mapping

from backend.domain.errors import HostError

_OPTION = "SPARK_JAVA_OPT_"
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
# Each option of the executor's program, with the environment variable that contains its value.
_ARGUMENTS = (
    ("--driver-url", "SPARK_DRIVER_URL"),
    ("--executor-id", "SPARK_EXECUTOR_ID"),
    ("--cores", "SPARK_EXECUTOR_CORES"),
    ("--app-id", "SPARK_APPLICATION_ID"),
    ("--hostname", "SPARK_EXECUTOR_POD_IP"),
    ("--resourceProfileId", "SPARK_RESOURCE_PROFILE_ID"),
    ("--podName", "SPARK_EXECUTOR_POD_NAME"),
)
_MEMORY = "SPARK_EXECUTOR_MEMORY"
# The folder with Spark's settings, and further jars, as Spark names them in the pod.
_BEFORE, _AFTER = ("SPARK_CONF_DIR",), ("SPARK_CLASSPATH", "SPARK_EXTRA_CLASSPATH")


def executor_command(environment: Mapping[str, str], *, java_home: str, spark_home: str) -> list[str]:
    """Return the program and the arguments of the executor that ``environment`` describes.

    Raises:
        HostError: Spark did not start this process.
    """
    missing = [name for name in (*(variable for _, variable in _ARGUMENTS), _MEMORY) if name not in environment]
    if missing:
        raise HostError(
            f"{', '.join(missing)} not set", fix="Spark starts this command on Kubernetes, with --master k8s://"
        )
    names = (name for name in environment if name.startswith(_OPTION))
    options = [environment[name] for name in sorted(names, key=lambda name: int(name.removeprefix(_OPTION)))]
    jars = [*_set(environment, _BEFORE), f"{spark_home}/jars/*", *_set(environment, _AFTER)]
    memory = environment[_MEMORY]
    return [
        f"{java_home}/bin/java",
        *options,
        *(f"-Xms{memory}", f"-Xmx{memory}"),
        *("-cp", ":".join(jars)),
        _BACKEND,
        *(text for option, variable in _ARGUMENTS for text in (option, environment[variable])),
    ]


def _set(environment: Mapping[str, str], names: tuple[str, ...]) -> list[str]:
    return [environment[name] for name in names if environment.get(name)]
