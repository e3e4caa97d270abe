"""Play back what ``make test-versions --record`` kept: the answers of one Flink version to ``diagnose``, for many jobs.

The rows are those of ``recorded_flink``, and say for which job they were asked. Time is virtual. It moves with the
pauses of ``diagnose``, and with each answer to the time at which Flink gave it. So the readings have the distances that
they had on the cluster, on which their freshness depends.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from backend.domain.errors import TargetProtocolError
from collectors import diagnose
from collectors.diagnosis_print import Answer

FOLDER = Path(__file__).resolve().parent.parent / "contract" / "recordings_clusters"

# A request is answered by the recorded answer of this time, if there is one. A collector of another version may ask
# less or more than the recorded one, so an answer that comes much later is not for this request.
_SAME_S = 5.0


class RecordedCluster:
    """A ``FlinkTransport`` over the rows of one job."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.url = "recording://cluster"
        self._began_at = datetime.fromtimestamp(rows[0]["t"] - rows[0]["dt"], UTC)
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            self._rows[row["path"]].append(row)
        self._at_s = 0.0

    def now(self) -> datetime:
        return self._began_at + timedelta(seconds=self._at_s)

    def monotonic_s(self) -> float:
        return self._at_s

    async def sleep(self, seconds: float) -> None:
        self._at_s += seconds

    async def get(self, path: str) -> bytes:
        row = self._row(path)
        if row is None:
            raise TargetProtocolError(url=self.url + path, reason="HTTP 404: not recorded", status=404)
        self._at_s = max(self._at_s, _answered_s(row))
        if row["status"] != 200:
            reason = f"HTTP {row['status']}: {row['body']['errors'][0]}"
            raise TargetProtocolError(url=self.url + path, reason=reason, status=row["status"])
        return orjson.dumps(row["body"])

    def _row(self, path: str) -> dict[str, Any] | None:
        rows = self._rows.get(path) or self._with_metrics(path)
        later = (row for row in rows if self._at_s <= _answered_s(row) <= self._at_s + _SAME_S)
        earlier = (row for row in reversed(rows) if _answered_s(row) < self._at_s)
        return next(later, None) or next(earlier, None)

    def _with_metrics(self, path: str) -> list[dict[str, Any]]:
        """Return the answers of a request for metrics that was recorded with other names, reduced to these names."""
        bare, is_query, names = path.partition("?get=")
        if not is_query:
            return []
        wanted = set(names.split(","))
        rows = [row for known, rows in self._rows.items() if known.startswith(f"{bare}?get=") for row in rows]
        found = [row for row in rows if row["status"] == 200]
        reduced = [{**row, "body": [m for m in row["body"] if m["id"] in wanted]} for row in found]
        return sorted(reduced, key=_answered_s)


def _answered_s(row: dict[str, Any]) -> float:
    return float(row["dt"] + row["ms"] / 1000)


@cache
def _read(folder: Path, version: str) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    with gzip.open(folder / version / "rest.jsonl.gz") as lines:
        for line in lines:
            row = orjson.loads(line)
            rows[row["job"]].append(row)
    return orjson.loads((folder / version / "run.json").read_bytes()), rows


async def diagnosed(version: str, job: str, folder: Path = FOLDER) -> Answer:
    """Run ``diagnose`` on one job of a recorded version."""
    run, rows = _read(folder, version)
    cluster = RecordedCluster(rows[job])
    return await diagnose.answer_of(
        cluster, job=run["jobs"][job], show_step=lambda text: None, clock=cluster, sleep=cluster.sleep
    )


def recorded(folder: Path = FOLDER) -> Iterator[tuple[str, str]]:
    """Return every recorded version with each of its jobs, oldest version first."""
    versions = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    for version in sorted(versions, key=lambda name: [int(part) for part in name.split(".")]):
        run = orjson.loads((folder / version / "run.json").read_bytes())
        yield from ((version, job) for job in run["jobs"])
