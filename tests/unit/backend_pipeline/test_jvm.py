"""Tests of the tie between the JVM of Spark and the process that starts it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress

import pyspark.java_gateway
import pytest

from backend.pipeline.jvm import java_options, jvm_of_this_process
from tests.support.waiting import PATIENCE_S

# PySpark starts the JVM as this script starts ``sleep``.
_DRIVER = (
    "import signal, sys, time; from pathlib import Path; import pyspark.java_gateway as gateway\n"
    "from backend.pipeline.jvm import jvm_of_this_process\n"
    "with jvm_of_this_process(Path('.')):\n"
    "    ignore = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    "    jvm = gateway.Popen(['sleep', '600'], stdin=-1, preexec_fn=ignore)\n"
    "print(jvm.pid, flush=True); time.sleep(600)"
)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_a_jvm_that_no_longer_reacts_ends_when_its_driver_is_killed():
    with subprocess.Popen([sys.executable, "-c", _DRIVER], stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        handle = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGSTOP)
            driver.kill()
            driver.wait(PATIENCE_S)

            assert select.select([handle], [], [], 30)[0], "the JVM outlived its driver"
        finally:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)


def test_pyspark_is_unchanged_after_the_start_of_the_jvm(tmp_path):
    before = pyspark.java_gateway.Popen, tempfile.tempdir

    with jvm_of_this_process(tmp_path):
        assert tempfile.gettempdir() == str(tmp_path)

    assert (pyspark.java_gateway.Popen, tempfile.tempdir) == before


def test_a_folder_with_a_space_or_a_quote_is_one_option_of_java(tmp_path):
    assert java_options(tmp_path / 'a "b"').startswith(f'"-Djava.io.tmpdir={tmp_path}/a \\"b\\"" ')
