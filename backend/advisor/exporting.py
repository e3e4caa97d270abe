"""Writes changed settings in the forms in which people deploy jobs, to copy or to pipe into another command.

Values are quoted for the reader of each form: the shell, YAML, TOML or SQL.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend.advisor.advice import Change
from backend.advisor.engine_settings import process_of
from backend.domain.engines import EngineCapabilities, SettingsFormat

_SPARK: Final = "spark."
"""Keys of Spark's configuration begin so. Other settings of a query are calls in its code."""
_AT_THE_END: Final = (
    "at the end of conf/config.yaml; a flat key there replaces the nested one, but replace a flat one that is there"
)
_OPTIONS_NOTE: Final = "in front of the jar or the script"


@dataclass(frozen=True, slots=True)
class Export:
    """Changed settings in one form. ``where`` says where the text goes, and what it does not cover."""

    format: SettingsFormat
    title: str
    text: str
    where: str


def exports_of(engine: EngineCapabilities, changes: Sequence[Change]) -> tuple[Export, ...]:
    """Return the changed settings in each form that the engine takes.

    A form that can express none of the changes is left out.
    """
    exports = (_export(engine, wanted, changes) for wanted in engine.settings_formats)
    return tuple(export for export in exports if export is not None)


def _export(engine: EngineCapabilities, wanted: SettingsFormat, changes: Sequence[Change]) -> Export | None:
    pairs = [(change.key, change.proposed) for change in changes]
    if not pairs:
        return None
    match wanted:
        case SettingsFormat.CONFIG_YAML:
            # Tried with ``GlobalConfiguration`` of 1.19 to 2.3. A later flat key replaces a nested one, and a block or
            # key that is there twice is an error.
            return Export(wanted, "config.yaml", _lines(pairs), _AT_THE_END)
        case SettingsFormat.FLINK_CONF:
            where = "conf/flink-conf.yaml; replace these keys if it has them"
            return Export(wanted, "flink-conf.yaml", "\n".join(f"{k}: {v}" for k, v in pairs), where)
        case SettingsFormat.FLINK_DEPLOYMENT:
            rows = "\n".join(f"    {k}: {json.dumps(v, ensure_ascii=False)}" for k, v in pairs)
            where = "kubectl patch flinkdeployment NAME --type merge --patch-file FILE; the operator restarts the job"
            return Export(wanted, "FlinkDeployment patch", f"spec:\n  flinkConfiguration:\n{rows}", where)
        case SettingsFormat.FLINK_SQL:
            own, rest = _of_jobs(engine, pairs)
            text = "\n".join(f"SET {_sql(k)} = {_sql(v)};" for k, v in own)
            return Export(wanted, "SQL SET", text, f"in front of the statement{rest}") if own else None
        case SettingsFormat.FLINK_OPTIONS:
            own, rest = _of_jobs(engine, pairs)
            text = " ".join(shlex.quote(f"-D{k}={v}") for k, v in own)
            return Export(wanted, "-D options", text, f"flink run, {_OPTIONS_NOTE}{rest}") if own else None
        case SettingsFormat.SPARK_OPTIONS:
            conf = [(k, v) for k, v in pairs if k.startswith(_SPARK)]
            coded = [k for k, _ in pairs if not k.startswith(_SPARK)]
            rest = f"; not for {', '.join(coded)}, which the query's code sets" if coded else ""
            text = " ".join(f"--conf {shlex.quote(f'{k}={v}')}" for k, v in conf)
            return Export(wanted, "--conf options", text, f"spark-submit, {_OPTIONS_NOTE}{rest}") if conf else None
        case SettingsFormat.JOB_FILE:
            rows = "\n".join(f"{k} = {json.dumps(v, ensure_ascii=False)}" for k, v in pairs)
            return Export(wanted, "job file", f"[config]\n{rows}", "the job's TOML file")
        case SettingsFormat.SIMULATE_OPTIONS:
            text = " ".join(f"--set {shlex.quote(f'{k}={v}')}" for k, v in pairs)
            return Export(wanted, "--set options", text, "barrierscope simulate, after the job file")


def _of_jobs(engine: EngineCapabilities, pairs: Sequence[tuple[str, str]]) -> tuple[list[tuple[str, str]], str]:
    """Return the settings that a single job can have, and words for those that it cannot."""
    own = [(key, value) for key, value in pairs if process_of(engine, key) is None]
    others = [key for key, _ in pairs if process_of(engine, key) is not None]
    return own, f"; not for {', '.join(others)}, which the cluster reads when it starts" if others else ""


def _lines(pairs: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"{key}: {_yaml(value)}" for key, value in pairs)


def _yaml(value: str) -> str:
    # Words, numbers and durations such as ``500 ms`` mean the same with and without quotes.
    is_plain = value[:1].isalnum() and all(c.isalnum() or c in " ._/-" for c in value)
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def _sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
