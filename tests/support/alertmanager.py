"""Run Debian's Alertmanager on a free port during a ``with`` block.

``missing`` returns the reason to skip a test, if Alertmanager is not installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.running_up import free_port
from tests.support.waiting import until

PROGRAM = shutil.which("prometheus-alertmanager")
_CONFIG = """
route: {{receiver: pager, group_by: ["..."], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers: [{{name: pager, webhook_configs: [{{url: "{pager}", send_resolved: true}}]}}]
"""


def missing() -> str | None:
    """Return why tests that need Alertmanager must be skipped, or None if they can run.

    If BARRIERSCOPE_REQUIRE_ALERTMANAGER is set, these tests are never skipped. They fail if Alertmanager is not
    installed.
    """
    if PROGRAM is not None or os.environ.get("BARRIERSCOPE_REQUIRE_ALERTMANAGER"):
        return None
    return "prometheus-alertmanager is missing; apt-get install prometheus-alertmanager"


@contextmanager
def alertmanager(folder: Path, *, pager: str) -> Iterator[str]:
    """Run Alertmanager and yield its root URL.

    It sends alerts to the webhook at ``pager`` and stores its state in ``folder``.
    """
    assert PROGRAM is not None, "BARRIERSCOPE_REQUIRE_ALERTMANAGER is set, but prometheus-alertmanager is missing"
    config, url = folder / "alertmanager.yml", f"http://127.0.0.1:{free_port()}"
    config.write_text(_CONFIG.format(pager=pager))
    options = [
        f"--config.file={config}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
    ]
    with (folder / "log").open("w") as log, subprocess.Popen([PROGRAM, *options], stdout=log, stderr=log) as process:
        try:
            until(lambda: _is_ready(url), "Alertmanager answers")
            yield url
        finally:
            process.kill()


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", trust_env=False).is_success
    except httpx.HTTPError:
        return False
