"""Read the configuration options of each Flink version from its own jars, and write the table of those that concern us.

``make flink-options [FLINK="1.15 2.3"]`` does it. For each version it downloads the jars (some hundred megabytes,
which are deleted afterwards), reads every ``ConfigOption`` that their classes declare, and keeps the options about
checkpoints, state, buffers, restarts, parallelism and metrics. Versions that are not named keep what the table says.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from backend.domain import flink_options
from tests.simulators import flink_code
from tests.simulators.versions.jars import chosen

_JARS = ("flink-dist", "flink-table", "flink-statebackend", "log4j-api", "log4j-core", "log4j-slf4j")
_CONCERNS: Final = re.compile(
    r"execution\.(checkpointing|state-recovery)\..*|state\.(backend|changelog|checkpoint|checkpoints|savepoints)(\..*)?"
    r"|state\.checkpoint-storage|dstl\.dfs\.base-path|taskmanager\.network\.memory\..*"
    r"|taskmanager\.memory\.segment-size|restart-strategy(\..*)?|parallelism\.default"
    r"|pipeline\.(max-parallelism|jobvertex-parallelism-overrides)|table\.exec\.resource\.default-parallelism"
    r"|table\.exec\.mini-batch\..*|jobmanager\.scheduler|scheduler-mode|web\.checkpoints\.history"
    r"|metrics\.fetcher\.update-interval|rest\.flamegraph\.enabled|taskmanager\.state\.local\..*"
)
# Options that only tune a store's own client or a cache are left out.
_LEFT_OUT: Final = re.compile(
    r"state\.backend\.(rocksdb|forst)\.(?!localdir$|memory\.managed$|timer-service\.factory$).*|.*dstl\.dfs\.(?!base-path$).*"
)
_DURATION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?")

Option = tuple[str, str, str | None, tuple[str, ...]]
"""Key, type, default, and the keys under which it is read as well."""


def options_of(jars: Path) -> set[Option]:
    """Return the options that the classes of these jars declare and that concern us."""
    wanted = [str(path) for path in sorted(jars.glob("flink-*.jar"))]
    found = set()
    for line in flink_code.drive(jars, "OptionsHarness", wanted):
        for text in line.split("\u001f") if line else ():
            key, kind, default, others = text.split("\t")
            if _CONCERNS.fullmatch(key) and not _LEFT_OUT.fullmatch(key):
                found.add((key, kind, _written(default), tuple(others.split())))
    return found


def table(by_version: Mapping[str, Iterable[Option]]) -> list[list[object]]:
    """Return the rows of the table: an option of one or more versions, with the versions."""
    versions: dict[Option, list[str]] = {}
    for version in sorted(by_version, key=_order):
        for option in by_version[version]:
            versions.setdefault(option, []).append(version)
    rows = sorted(versions.items(), key=lambda item: (item[0][0], _order(item[1][0]), item[0][1]))
    return [[key, kind, default, list(others), " ".join(names)] for (key, kind, default, others), names in rows]


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _written(default: str) -> str | None:
    """Return a default as people write it: a duration as ``200 ms``; None for no default."""
    found = _DURATION.fullmatch(default)
    if found is None or default == "PT":
        return default or None
    ms = round((float(found[1] or 0) * 3600 + float(found[2] or 0) * 60 + float(found[3] or 0)) * 1000)
    return f"{ms} ms"


def _known() -> dict[str, set[Option]]:
    found: dict[str, set[Option]] = {}
    if flink_options.FILE.is_file():
        for key, kind, default, others, versions in json.loads(flink_options.FILE.read_text())["options"]:
            for version in versions.split():
                found.setdefault(version, set()).add((key, kind, default, tuple(others)))
    return found


def main(wanted: Iterable[str]) -> None:
    """Read the named versions from their jars, one after the other, and write the table."""
    by_version = _known()
    for version in wanted:
        with tempfile.TemporaryDirectory() as folder:
            flink_code.fetch(Path(folder), version, _JARS)
            found = options_of(Path(folder) / version)
        for other in [v for v in by_version if _order(v)[:2] == _order(version)[:2]]:
            del by_version[other]
        by_version[version] = found
        print(f"{version}: {len(found)} options")
        flink_options.FILE.write_text(_text(by_version))


def _text(by_version: Mapping[str, Iterable[Option]]) -> str:
    head = {
        "made": "by `make flink-options` from the ConfigOptions that the classes in the jars of each release declare",
        "columns": ["key", "type", "default", "other keys that Flink reads as this one", "releases"],
        "releases": sorted(by_version, key=_order),
    }
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in table(by_version))
    lines = [f"{json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    return "\n".join(["{", *lines, '"options": [', rows, "]", "}", ""])


if __name__ == "__main__":
    main(chosen(" ".join(sys.argv[1:])))
