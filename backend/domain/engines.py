"""What an engine can do, and what its targets report.

Every observation carries these capabilities, and the store keeps them with each run. Code that depends on an engine
checks a capability and never compares engine names. So a collector can add an engine that no other code knows by name.
The engines whose collectors ship with Barrierscope are at the end of this module.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from backend.domain import flink_options
from backend.domain.channel import Channel
from backend.domain.web_ui import WebUi


class RestoreRules(StrEnum):
    """The set of rules that decides what a checkpoint can be restored into."""

    FLINK = "flink"
    RUNTIME = "runtime"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingKeys:
    """The engine's configuration keys for the settings that can be changed; None for a setting that does not exist."""

    unaligned: str | None = None
    unaligned_forced: str | None = None
    aligned_timeout: str | None = None
    in_flight_cap: str | None = None
    debloat_enabled: str | None = None
    debloat_target: str | None = None
    debloat_period: str | None = None
    timeout: str | None = None
    interval: str | None = None
    min_pause: str | None = None
    tolerable_failures: str | None = None
    retained: str | None = None
    floating_buffers: str | None = None
    state_backend: str | None = None
    incremental: str | None = None
    changelog: str | None = None
    changelog_storage: str | None = None
    changelog_directory: str | None = None
    max_concurrent: str | None = None
    interruptible_timers: str | None = None
    parallelism: str | None = None
    batch_offsets: str | None = None
    batch_files: str | None = None


class Rescaling(StrEnum):
    """How the parallelism of one vertex is changed."""

    JOB_SETTING = "job-setting"
    """By a setting of the job, or of the cluster (``SettingKeys.parallelism``)."""
    CLUSTER_SETTING = "cluster-setting"
    """By a setting that is read from the cluster's configuration only."""
    CODE = "code"
    """In the job's code. No setting has an effect on one vertex."""


class SettingsFormat(StrEnum):
    """A form in which an engine, or what deploys it, takes settings."""

    CONFIG_YAML = "config-yaml"
    """Lines of Flink's ``config.yaml``."""
    FLINK_CONF = "flink-conf"
    """Lines of ``flink-conf.yaml``, which Flink reads before 1.19."""
    FLINK_DEPLOYMENT = "flink-deployment"
    """A patch of a ``FlinkDeployment`` of the Kubernetes operator."""
    FLINK_SQL = "flink-sql"
    """``SET`` statements of the SQL client."""
    FLINK_OPTIONS = "flink-options"
    """``-D`` options of ``flink run``."""
    SPARK_OPTIONS = "spark-options"
    """``--conf`` options of ``spark-submit``."""
    JOB_FILE = "job-file"
    """Lines of a job file of the reference runtime."""
    SIMULATE_OPTIONS = "simulate-options"
    """``--set`` options of ``barrierscope simulate``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCapabilities:
    """One engine. ``kind`` is its name in the store and in the API, such as ``flink``. ``name`` is shown to people."""

    kind: str
    name: str
    source: str
    """The source of the readings as a phrase, such as ``REST API of the cluster``."""
    channel: Channel | None = None
    """The kind of channel, if several targets can report one run; then the run's id at the engine identifies it."""
    is_pushed: bool = False
    """Whether the engine's jobs send their own readings, with times from their own clocks.

    No collector polls such jobs.
    """
    has_unique_run_ids: bool = False
    """Whether the engine's run id alone identifies a run. If not, the start time of the run is part of the identity."""
    is_micro_batched: bool = False
    """Whether each checkpoint is a micro-batch."""
    has_barriers: bool = False
    """Whether barriers flow through the job graph, so that alignment and checkpoint modes exist."""
    has_subtasks: bool = False
    """Whether the engine reports the values of each subtask in a checkpoint."""
    has_channel_events: bool = False
    """Whether the engine reports the barrier events of each channel."""
    overtakes_everywhere: bool = False
    """Whether unaligned barriers also overtake data on broadcast and pointwise exchanges."""
    sets_options_in_code: bool = False
    """Whether options of a job are set in its code or when it is submitted, and in no file of the engine."""
    can_apply_settings_live: bool = False
    """Whether settings can be changed while a job runs."""
    can_trigger_savepoints: bool = False
    """Whether a request triggers a savepoint of a running job."""
    can_abort_checkpoints: bool = False
    """Whether a request aborts a checkpoint in progress."""
    can_continue_jobs: bool = False
    """Whether requests stop a job with a savepoint, and start it again from a checkpoint or savepoint."""
    can_dump_threads: bool = False
    """Whether a request returns the threads of the process that runs a subtask."""
    can_sample_stacks: bool = False
    """Whether a request returns sampled stacks of one subtask, for a flame graph."""
    web_ui: WebUi | None = None
    """The engine's own web UI; None if it has none, or if its paths are not known."""
    restore_rules: RestoreRules | None = None
    """The rules for restoring a checkpoint; None if a person cannot choose which checkpoint to restore."""
    restores_savepoints: bool = False
    """Whether a restart after a failure restores a savepoint that is younger than the newest checkpoint."""
    is_flink_release: bool = False
    """Whether the version that the engine reports is one of Flink's releases, whose published errors it then has."""
    aligned_timeout_stops_at_senders: bool = False
    """Whether an aligned timeout has no effect on a barrier that waits in the output buffers of its sender."""
    rescaling: Rescaling | None = None
    """How the parallelism of one vertex is changed; None if only ``SettingKeys.parallelism`` says so, or nothing."""
    has_resource_requirements: bool = False
    """Whether a request changes the parallelism of a running job, if the cluster's scheduler is the adaptive one."""
    settings: SettingKeys = field(default_factory=SettingKeys)
    settings_release: str | None = None
    """The release whose keys ``settings`` has, if they are not known for the engine's own version."""
    settings_file: str | None = None
    """The file for the settings that take effect when a job starts; None if there is no such file."""
    settings_formats: tuple[SettingsFormat, ...] = ()
    """The forms in which changed settings can be exported for this engine, the most usual one first."""

    @property
    def has_unaligned_checkpoints(self) -> bool:
        """Whether the barriers of a checkpoint can overtake data."""
        return self.settings.unaligned is not None

    @property
    def has_aligned_timeout(self) -> bool:
        """Whether an aligned checkpoint can become unaligned at a configured time, wherever its barriers wait."""
        return self.settings.aligned_timeout is not None and not self.aligned_timeout_stops_at_senders

    @property
    def has_in_flight_cap(self) -> bool:
        """Whether the in-flight data of an unaligned checkpoint can be limited in bytes."""
        return self.settings.in_flight_cap is not None

    @property
    def has_buffer_debloating(self) -> bool:
        """Whether the engine can adapt the size of buffers to the time that the receiver needs to consume them."""
        return self.settings.debloat_enabled is not None and self.settings.debloat_target is not None


# --- the engines whose collectors ship with Barrierscope ----------------------------------------------------------

_CHECKPOINTING = "execution.checkpointing."
_MEMORY = "taskmanager.network.memory."
_DEBLOAT = f"{_MEMORY}buffer-debloat."
_FILE_SINCE = (1, 19)
NEWEST_FLINK: Final = (2, 3)
"""The newest release of Flink that Barrierscope was compared with."""
_STATE_IN_PATH_SINCE = (1, 15)
_STACKS_OF_SUBTASKS_SINCE = (1, 17)
# CheckpointCoordinator.completePendingCheckpoint adds savepoints to the store of recovery before this version only.
_SAVEPOINTS_APART_SINCE = (1, 15)
_TIMEOUT_AT_SENDERS_SINCE = (1, 16)
"""FLINK-27251: since then an aligned timeout also reaches a barrier in the output buffers of its sender."""
_REQUIREMENTS_SINCE = (1, 18)
_JOB_OVERRIDES_SINCE = (1, 19)
_OVERRIDES_IGNORED_SINCE = (2, 0)
"""Since then a job is submitted as a graph of streams, to which ``Dispatcher`` applies no overrides."""

_OPTIONS: Final = {
    "unaligned": f"{_CHECKPOINTING}unaligned.enabled",
    "unaligned_forced": f"{_CHECKPOINTING}unaligned.forced",
    "aligned_timeout": f"{_CHECKPOINTING}aligned-checkpoint-timeout",
    "debloat_enabled": f"{_DEBLOAT}enabled",
    "debloat_target": f"{_DEBLOAT}target",
    "debloat_period": f"{_DEBLOAT}period",
    "timeout": f"{_CHECKPOINTING}timeout",
    "interval": f"{_CHECKPOINTING}interval",
    "min_pause": f"{_CHECKPOINTING}min-pause",
    "tolerable_failures": f"{_CHECKPOINTING}tolerable-failed-checkpoints",
    "retained": f"{_CHECKPOINTING}num-retained",
    "floating_buffers": f"{_MEMORY}floating-buffers-per-gate",
    "state_backend": "state.backend.type",
    "incremental": f"{_CHECKPOINTING}incremental",
    "changelog": "state.changelog.enabled",
    "changelog_storage": "state.changelog.storage",
    "changelog_directory": "state.changelog.dstl.dfs.base-path",
    "max_concurrent": f"{_CHECKPOINTING}max-concurrent-checkpoints",
    "interruptible_timers": f"{_CHECKPOINTING}unaligned.interruptible-timers.enabled",
    "parallelism": "pipeline.jobvertex-parallelism-overrides",
}
"""For each field of ``SettingKeys``, the option of Flink under its newest name."""


def flink(version: str | None = None) -> EngineCapabilities:
    """Return the capabilities of Flink.

    ``version`` is the engine's own text. None or an unknown text means the newest version. The keys of the settings are
    those of the version, from the table of ``flink_options``. Since 1.14 buffer debloating exists. Since 1.15 the web
    UI has other paths for running and for completed jobs, and a failure restores no savepoint. Since 1.17 flame graphs
    show single subtasks. An aligned timeout reaches every barrier since 1.16. The parallelism of one vertex can be
    overridden in 1.17 to 1.20, by a job itself since 1.19. Since 1.18 a request changes it if the scheduler is the
    adaptive one.
    """
    known = release_of(version)
    release = flink_options.nearest(known or flink_options.releases()[-1])

    def is_since(first: tuple[int, int]) -> bool:
        return known is None or known >= first

    has_new_file = is_since(_FILE_SINCE)
    return EngineCapabilities(
        kind="flink",
        name="Flink",
        source="REST API of the cluster",
        has_barriers=True,
        has_subtasks=True,
        can_trigger_savepoints=True,
        can_dump_threads=True,
        can_sample_stacks=is_since(_STACKS_OF_SUBTASKS_SINCE),
        web_ui=WebUi.FLINK if is_since(_STATE_IN_PATH_SINCE) else WebUi.FLINK_1_14,
        restore_rules=RestoreRules.FLINK,
        restores_savepoints=not is_since(_SAVEPOINTS_APART_SINCE),
        is_flink_release=True,
        aligned_timeout_stops_at_senders=does_aligned_timeout_stop_at_senders(version),
        rescaling=_rescaling(release),
        has_resource_requirements=is_since(_REQUIREMENTS_SINCE),
        settings=_keys(release),
        settings_release=None if release == known else ".".join(map(str, release)),
        settings_file="conf/config.yaml" if has_new_file else "conf/flink-conf.yaml",
        settings_formats=(
            SettingsFormat.CONFIG_YAML if has_new_file else SettingsFormat.FLINK_CONF,
            SettingsFormat.FLINK_DEPLOYMENT,
            SettingsFormat.FLINK_SQL,
            SettingsFormat.FLINK_OPTIONS,
        ),
    )


def _keys(release: flink_options.Release) -> SettingKeys:
    """Return the keys under which a release of Flink reads the settings that have an effect there."""
    found = {field: flink_options.option(name, release) for field, name in _OPTIONS.items()}
    keys = {field: option.key for field, option in found.items() if option is not None}
    if "changelog_directory" not in keys:
        # Releases before 1.15 know the key of the changelog, but have no store that keeps it.
        keys = {field: key for field, key in keys.items() if not field.startswith("changelog")}
    if _rescaling(release) is Rescaling.CODE:
        keys.pop("parallelism", None)
    return SettingKeys(**keys)


def _rescaling(release: flink_options.Release) -> Rescaling:
    if release >= _OVERRIDES_IGNORED_SINCE or flink_options.option(_OPTIONS["parallelism"], release) is None:
        return Rescaling.CODE
    return Rescaling.JOB_SETTING if release >= _JOB_OVERRIDES_SINCE else Rescaling.CLUSTER_SETTING


def does_aligned_timeout_stop_at_senders(version: str | None) -> bool:
    """Return whether an aligned timeout of this version of Flink misses barriers in the output buffers of their sender.

    Source: FLINK-27251. A version that is not known is taken for the newest.
    """
    known = release_of(version)
    return known is not None and known < _TIMEOUT_AT_SENDERS_SINCE


def release_of(text: str | None) -> tuple[int, int] | None:
    """Return the first two numbers of an engine's version text, or None if it does not begin with two numbers."""
    match = re.match(r"(\d+)\.(\d+)", text or "")
    return (int(match[1]), int(match[2])) if match else None


FLINK: Final = flink()

RUNTIME: Final = EngineCapabilities(
    kind="runtime",
    name="Reference runtime",
    source="reference runtime",
    has_barriers=True,
    has_subtasks=True,
    has_channel_events=True,
    overtakes_everywhere=True,
    can_apply_settings_live=True,
    can_trigger_savepoints=True,
    can_abort_checkpoints=True,
    can_continue_jobs=True,
    restore_rules=RestoreRules.RUNTIME,
    settings=SettingKeys(
        unaligned=f"{_CHECKPOINTING}unaligned.enabled",
        aligned_timeout=f"{_CHECKPOINTING}aligned-checkpoint-timeout",
        in_flight_cap="runtime.inflight-cap.bytes",
        debloat_enabled=f"{_DEBLOAT}enabled",
        debloat_target=f"{_DEBLOAT}target",
        debloat_period=f"{_DEBLOAT}period",
        timeout=f"{_CHECKPOINTING}timeout",
        interval=f"{_CHECKPOINTING}interval",
        min_pause=f"{_CHECKPOINTING}min-pause",
        tolerable_failures=f"{_CHECKPOINTING}tolerable-failed-checkpoints",
        incremental=f"{_CHECKPOINTING}incremental",
    ),
    settings_formats=(SettingsFormat.JOB_FILE, SettingsFormat.SIMULATE_OPTIONS),
)

SPARK: Final = EngineCapabilities(
    kind="spark",
    name="Spark",
    source="the listener in the query's driver",
    channel=Channel.LISTENER,
    is_pushed=True,
    has_unique_run_ids=True,
    is_micro_batched=True,
    sets_options_in_code=True,
    settings=SettingKeys(
        interval="trigger.processingTime",
        state_backend="spark.sql.streaming.stateStore.providerClass",
        changelog="spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
        parallelism="spark.sql.shuffle.partitions",
        batch_offsets="option.maxOffsetsPerTrigger",
        batch_files="option.maxFilesPerTrigger",
    ),
    settings_formats=(SettingsFormat.SPARK_OPTIONS,),
)


def _read_without_touching(channel: Channel, source: str, web_ui: WebUi | None = None) -> EngineCapabilities:
    return replace(SPARK, source=source, channel=channel, is_pushed=False, web_ui=web_ui)


SPARK_HISTORY: Final = _read_without_touching(
    Channel.HISTORY_SERVER, "the event log at Spark's history server", WebUi.SPARK_HISTORY
)
SPARK_DRIVER: Final = _read_without_touching(Channel.DRIVER, "the REST API of the query's driver", WebUi.SPARK_DRIVER)
SPARK_FOLDER: Final = _read_without_touching(Channel.EVENT_LOGS, "a folder of event logs")
SPARK_CHECKPOINT: Final = _read_without_touching(Channel.CHECKPOINT_FOLDER, "the checkpoint folder of a query")
"""Spark, read without touching the job. What is read then has times of our clock, and a collector polls it."""


def described(kind: str, version: str | None = None) -> EngineCapabilities:
    """Return the capabilities of an engine, derived from its ``kind`` and, if it is known, its ``version``.

    Rows that were written before the store kept capabilities have no more than these two values.
    """
    known = {"flink": flink(version), RUNTIME.kind: RUNTIME, SPARK.kind: SPARK}
    return known.get(kind) or EngineCapabilities(kind=kind, name=kind, source=kind)
