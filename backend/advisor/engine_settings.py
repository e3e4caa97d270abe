"""Writes a change of settings in the engine's own keys: the changed lines, the body of a PATCH, and the rollback.

An engine that cannot change the settings of a running job reads them when a job starts. A change then needs a restart
of the job. A setting that only the cluster's processes read needs a restart of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from backend.advisor.advice import Change, HowTo, Setting
from backend.domain.advice import Mode
from backend.domain.engines import EngineCapabilities, Rescaling

_UNLIMITED = "unlimited"
_NO_SETTING = "no file: no setting makes this change"
_CHANGELOG_STORAGE = "filesystem"
"""Flink's default, ``memory``, is not for production."""
# Read in the jars of 1.15 to 2.3: ``TaskExecutor`` reads the storage of the changelog from the configuration of its
# process only, and ``SchedulerUtils`` the number of retained checkpoints.
_OF_TASK_MANAGERS = ("taskmanager.", "state.changelog.storage", "state.backend.changelog.storage")
_OF_CHANGELOG_STORE = ("state.changelog.dstl.", "dstl.")
_OF_JOB_MANAGER = ("jobmanager.", "cluster.", "execution.checkpointing.num-retained", "state.checkpoints.num-retained")


def _ms(value: int) -> str:
    return f"{value} ms"


def _flag(value: bool) -> str:
    return str(value).lower()


# The settings that are one key each: the fields of ``Setting`` and of ``SettingKeys``, and how a value is written.
_PLAIN: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("debloat_period_ms", "debloat_period", _ms),
    ("floating_buffer_count", "floating_buffers", str),
    ("state_backend", "state_backend", str),
    ("is_incremental", "incremental", _flag),
    ("has_changelog", "changelog", _flag),
    ("batch_offset_count", "batch_offsets", str),
    ("batch_file_count", "batch_files", str),
    ("interval_ms", "interval", _ms),
    ("min_pause_ms", "min_pause", _ms),
    ("timeout_ms", "timeout", _ms),
    ("tolerable_failed_count", "tolerable_failures", str),
    ("retained_count", "retained", str),
    ("max_concurrent", "max_concurrent", str),
)


def process_of(engine: EngineCapabilities, key: str) -> str | None:
    """Return which process alone reads a setting when it starts; None if it can be an option of a job."""
    if key.startswith((*_OF_TASK_MANAGERS, *_OF_CHANGELOG_STORE)):
        return "every task manager"
    is_override = engine.rescaling is Rescaling.CLUSTER_SETTING and key == engine.settings.parallelism
    return "the JobManager" if is_override or key.startswith(_OF_JOB_MANAGER) else None


def changes_of(engine: EngineCapabilities, current: Setting, proposed: Setting) -> tuple[Change, ...]:
    """Return one ``Change`` for each engine setting that must change to get from ``current`` to ``proposed``.

    A mode or timeout that stays the same is left out.
    """
    changes: list[Change] = []
    if proposed.mode is not None:
        changes += _mode_changes(engine, current, proposed)
    keys = engine.settings
    if (proposed.inflight_cap_bytes is not None or proposed.is_uncapped) and keys.in_flight_cap is not None:
        changes.append(Change(keys.in_flight_cap, _cap(current.inflight_cap_bytes), _cap(proposed.inflight_cap_bytes)))
    if proposed.debloat_target_ms is not None and keys.debloat_enabled is not None and keys.debloat_target is not None:
        changes.append(Change(keys.debloat_enabled, None, "true"))
        changes.append(Change(keys.debloat_target, None, f"{proposed.debloat_target_ms} ms"))
    for field, name, written in _PLAIN:
        key, before, after = getattr(keys, name), getattr(current, field), getattr(proposed, field)
        if after is not None and key is not None and after != before:
            changes.append(Change(key, None if before is None else written(before), written(after)))
    if proposed.has_changelog and keys.changelog_storage is not None:
        changes.append(Change(keys.changelog_storage, None, _CHANGELOG_STORAGE))
        if proposed.changelog_directory is not None and keys.changelog_directory is not None:
            changes.append(Change(keys.changelog_directory, None, proposed.changelog_directory))
    if proposed.parallelism is not None and keys.parallelism is not None:
        count, vertex_id = current.parallelism, proposed.vertex_id
        before_words = None if count is None else _parallelism(count, vertex_id)
        changes.append(Change(keys.parallelism, before_words, _parallelism(proposed.parallelism, vertex_id)))
    return tuple(changes)


def how_to(engine: EngineCapabilities, changes: tuple[Change, ...], steps: tuple[str, ...] = ()) -> HowTo:
    """Return the configuration lines of the changes, the file for these lines, and the lines of the rollback.

    ``steps`` are what a person does in place of these lines, or in addition to them.
    """
    line = _option if engine.sets_options_in_code else _line
    lines = tuple(line(c.key, c.proposed) for c in changes)
    back = tuple(line(c.key, c.current) if c.current is not None else f"# remove {c.key}" for c in changes)
    if engine.can_apply_settings_live:
        return HowTo(
            file="settings of the running job (PATCH)",
            lines=lines,
            rollback_lines=back,
            needs_restart=False,
            patch={c.key: c.proposed for c in changes},
            rollback_patch={c.key: c.current for c in changes if c.current is not None},
            steps=steps,
        )
    if engine.sets_options_in_code:
        where = "the query's code, and options of its submission; restart the query"
        return HowTo(file=where, lines=lines, rollback_lines=back, needs_restart=True, steps=steps)
    if not changes:
        return HowTo(file=_NO_SETTING, lines=(), rollback_lines=(), needs_restart=True, steps=steps)
    where = engine.settings_file or "the engine's settings file"
    return HowTo(
        file=f"{where}{_way(engine, changes)}{_assumed(engine)}",
        lines=lines,
        rollback_lines=back,
        needs_restart=True,
        steps=steps,
    )


def _way(engine: EngineCapabilities, changes: tuple[Change, ...]) -> str:
    """Return whether options of the job can make the changes, and what is restarted."""
    processes = list(dict.fromkeys(p for c in changes if (p := process_of(engine, c.key)) is not None))
    if not processes:
        return ", or -D options of the job; settings made in the job's code override both; restart the job"
    own = [c.key for c in changes if process_of(engine, c.key) is None]
    other = f"; {', '.join(own)} can be -D options of the job as well" if own else "; options of a job have no effect"
    return f" of the cluster{other}; restart {' and '.join(processes)}"


def _assumed(engine: EngineCapabilities) -> str:
    """Return for which release the keys are, if they are not known for the engine's own version."""
    if engine.settings_release is None:
        return ""
    return f"; these are the keys of {engine.name} {engine.settings_release}: those of its own version are not known"


def _line(key: str, value: str) -> str:
    return f"{key}: {value}"


def _option(key: str, value: str) -> str:
    """Write a setting as an option of the submission, or as a call in the code of the query."""
    call, _, name = key.partition(".")
    match call:
        case "trigger":
            return f'.{call}({name}="{value.replace(" ms", " milliseconds")}")'
        case "option":
            return f'.{call}("{name}", {value})'
    return f"--conf {key}={value}"


def _cap(value: int | None) -> str:
    return _UNLIMITED if value is None else str(value)


def _parallelism(count: int, vertex_id: str | None) -> str:
    return str(count) if vertex_id is None else f"{vertex_id}:{count}"


def _mode_changes(engine: EngineCapabilities, current: Setting, proposed: Setting) -> list[Change]:
    changes: list[Change] = []
    keys = engine.settings
    was_on, is_on = current.mode not in (None, Mode.ALIGNED), proposed.mode is not Mode.ALIGNED
    if was_on is not is_on and keys.unaligned is not None:
        changes.append(Change(keys.unaligned, str(was_on).lower(), str(is_on).lower()))
    if is_on and proposed.is_unaligned_forced and keys.unaligned_forced is not None:
        changes.append(Change(keys.unaligned_forced, None, "true"))
    if is_on and proposed.aligned_timeout_ms is not None and keys.aligned_timeout is not None:
        before = current.aligned_timeout_ms
        if before != proposed.aligned_timeout_ms or not was_on:
            # The engine reports no timeout while unaligned checkpoints are off, so the default of 0 is shown as the
            # old value.
            changes.append(Change(keys.aligned_timeout, f"{before or 0} ms", f"{proposed.aligned_timeout_ms} ms"))
    return changes
