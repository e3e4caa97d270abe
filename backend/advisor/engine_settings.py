"""Names of settings for each engine and version: the diff of a change, the body of a PATCH, and the rollback.

Flink reads checkpoint settings when a job starts, so a change needs a restart of the job; a change of the network
memory needs a restart of the task managers. The reference runtime uses the same names and changes them while it runs.
Before Flink 1.19, ``unaligned.enabled`` was ``unaligned``; ``aligned-checkpoint-timeout`` and debloating exist since
1.14.
"""

from __future__ import annotations

import re

from backend.advisor.advice import Change, HowTo, Setting
from backend.domain.advice import Mode
from backend.domain.observation import Engine

_CP = "execution.checkpointing."
TIMEOUT_KEY = f"{_CP}aligned-checkpoint-timeout"
CAP_KEY = "runtime.inflight-cap.bytes"
_DEBLOAT = "taskmanager.network.memory.buffer-debloat."
DEBLOAT_ENABLED_KEY = f"{_DEBLOAT}enabled"
DEBLOAT_TARGET_KEY = f"{_DEBLOAT}target"
_FILE_SINCE = (1, 19)
_TIMEOUT_SINCE = (1, 14)
_UNLIMITED = "unlimited"


def version_of(text: str | None) -> tuple[int, int] | None:
    """Major and minor version in an engine's version string; None if there are none."""
    found = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(found[1]), int(found[2])) if found else None


def can_time_out(engine: Engine, version: str | None) -> bool:
    """Whether an aligned checkpoint can become unaligned at a given age, counted from its trigger."""
    known = version_of(version)
    return engine is Engine.RUNTIME or known is None or known >= _TIMEOUT_SINCE


def can_debloat(engine: Engine, version: str | None) -> bool:
    """Whether the engine can size its buffers by drain time (buffer debloating)."""
    known = version_of(version)
    return engine is Engine.FLINK and (known is None or known >= _TIMEOUT_SINCE)


def unaligned_key(engine: Engine, version: str | None) -> str:
    """The key that enables unaligned checkpoints."""
    known = version_of(version)
    is_old = engine is Engine.FLINK and known is not None and known < _FILE_SINCE
    return f"{_CP}unaligned" if is_old else f"{_CP}unaligned.enabled"


def changes_of(engine: Engine, version: str | None, current: Setting, proposed: Setting) -> tuple[Change, ...]:
    """The changed settings, one line each; unchanged settings are left out."""
    found: list[Change] = []
    if proposed.mode is not None:
        found += _mode_changes(engine, version, current, proposed)
    if proposed.inflight_cap_bytes is not None:
        before = _UNLIMITED if current.inflight_cap_bytes is None else str(current.inflight_cap_bytes)
        found.append(Change(CAP_KEY, before, str(proposed.inflight_cap_bytes)))
    if proposed.debloat_target_ms is not None:
        found.append(Change(DEBLOAT_ENABLED_KEY, None, "true"))
        found.append(Change(DEBLOAT_TARGET_KEY, None, f"{proposed.debloat_target_ms} ms"))
    return tuple(found)


def how_to(engine: Engine, version: str | None, changes: tuple[Change, ...]) -> HowTo:
    """The lines of the change, the file they belong to, and the rollback."""
    lines = tuple(f"{c.key}: {c.proposed}" for c in changes)
    back = tuple(f"{c.key}: {c.current}" if c.current is not None else f"# remove {c.key}" for c in changes)
    if engine is Engine.RUNTIME:
        return HowTo(
            file="settings of the running job (PATCH)",
            lines=lines,
            rollback_lines=back,
            needs_restart=False,
            patch={c.key: c.proposed for c in changes},
            rollback_patch={c.key: c.current for c in changes if c.current is not None},
        )
    known = version_of(version)
    is_old = known is not None and known < _FILE_SINCE
    where = "conf/flink-conf.yaml" if is_old else "conf/config.yaml"
    who = "every task manager" if any(c.key.startswith("taskmanager.") for c in changes) else "the job"
    return HowTo(
        file=f"{where}, or -D options of the job; settings made in the job's code override both; restart {who}",
        lines=lines,
        rollback_lines=back,
        needs_restart=True,
    )


def _mode_changes(engine: Engine, version: str | None, current: Setting, proposed: Setting) -> list[Change]:
    found: list[Change] = []
    was_on, is_on = current.mode not in (None, Mode.ALIGNED), proposed.mode is not Mode.ALIGNED
    if was_on is not is_on:
        found.append(Change(unaligned_key(engine, version), str(was_on).lower(), str(is_on).lower()))
    if is_on and proposed.aligned_timeout_ms is not None and can_time_out(engine, version):
        before = current.aligned_timeout_ms
        if before != proposed.aligned_timeout_ms or not was_on:
            # The engine does not report the timeout while unaligned checkpoints are off; its default is 0.
            found.append(Change(TIMEOUT_KEY, f"{before or 0} ms", f"{proposed.aligned_timeout_ms} ms"))
    return found
