"""Writes a what-if as changes of the engine's settings, and names the parts of it that no setting can make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backend.advisor import rescaling
from backend.advisor.advice import Change, HowTo, Setting
from backend.advisor.engine_settings import changes_of, how_to
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.model.model import JobModel
from backend.domain.advice import Mode
from backend.domain.engines import EngineCapabilities
from backend.domain.topology import Vertex

_UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True)
class Application:
    """How a what-if becomes real.

    ``current`` and ``proposed`` cover the settings that change. ``by_hand`` has a sentence for each part that is no
    setting of a running job, such as a parallelism. ``is_question`` is whether a part cannot be applied at all, such as
    another load.
    """

    current: Setting
    proposed: Setting
    changes: tuple[Change, ...]
    how_to: HowTo
    by_hand: tuple[str, ...] = ()
    is_question: bool = False

    @property
    def is_live(self) -> bool:
        """Whether the engine can make the whole change while the job runs."""
        return bool(self.how_to.patch) and not self.by_hand and not self.is_question


def application(model: JobModel, what_if: WhatIf, engine: EngineCapabilities) -> Application:
    """Return how to make the change of ``what_if``.

    Raises:
        InvalidInputError: the change does not apply to this job.
    """
    old, new = model.settings, changed(model, what_if)
    after = new.settings
    has_other_mode = (old.mode, old.aligned_timeout_ms) != (after.mode, after.aligned_timeout_ms)
    current, proposed = Setting(), Setting()
    if has_other_mode:
        current = Setting(mode=old.mode, aligned_timeout_ms=_whole(old.aligned_timeout_ms))
        proposed = Setting(mode=after.mode, aligned_timeout_ms=_whole(after.aligned_timeout_ms))
    changes = list(changes_of(engine, current, proposed))
    keys = engine.settings
    numbers: dict[str, tuple[int | None, int | None]] = {}
    for name, key, before, then in (
        ("interval_ms", keys.interval, old.interval_ms, after.interval_ms),
        ("min_pause_ms", keys.min_pause, old.min_pause_ms, after.min_pause_ms),
        ("timeout_ms", keys.timeout, old.timeout_ms, after.timeout_ms),
    ):
        if before != then and key is not None:
            numbers[name] = _whole(before), _whole(then)
            changes.append(Change(key, f"{before:g} ms", f"{then:g} ms"))
    cap, new_cap = old.inflight_cap_bytes, after.inflight_cap_bytes
    if cap != new_cap and keys.in_flight_cap is not None:
        changes.append(Change(keys.in_flight_cap, _size(cap), _size(new_cap)))
    target, new_target = model.network.debloat_target_ms, new.network.debloat_target_ms
    is_debloat_changed = target != new_target
    if is_debloat_changed and keys.debloat_enabled is not None and keys.debloat_target is not None:
        if (target is None) is not (new_target is None):
            changes.append(Change(keys.debloat_enabled, str(target is not None).lower(), str(target is None).lower()))
        if new_target is not None:
            before_words = None if target is None else f"{target:g} ms"
            changes.append(Change(keys.debloat_target, before_words, f"{new_target:g} ms"))
    return Application(
        current=_setting(
            current, {n: v[0] for n, v in numbers.items()}, cap, target, cap != new_cap, is_debloat_changed
        ),
        proposed=_setting(
            proposed, {n: v[1] for n, v in numbers.items()}, new_cap, new_target, cap != new_cap, is_debloat_changed
        ),
        changes=tuple(changes),
        how_to=how_to(engine, tuple(changes)),
        by_hand=tuple(_by_hand(model, what_if, engine)),
        is_question=what_if.load_factor != 1.0 or what_if.without_skew or what_if.without_slow_host,
    )


def headline_of(application_: Application) -> str:
    """Return the change in a few words, such as ``Change the mode to unaligned and the interval to 30 s``."""
    proposed = application_.proposed
    parts = []
    if proposed.mode is not None:
        timeout = f" after {_duration(proposed.aligned_timeout_ms)}" if proposed.aligned_timeout_ms else ""
        parts.append(f"the mode to {_MODE_WORDS[proposed.mode]}{timeout}")
    for words, value in (
        ("the interval", proposed.interval_ms),
        ("the minimum pause", proposed.min_pause_ms),
        ("the checkpoint timeout", proposed.timeout_ms),
        ("the debloating target", proposed.debloat_target_ms),
    ):
        if value is not None:
            parts.append(f"{words} to {_duration(value)}")
    if proposed.inflight_cap_bytes is not None:
        parts.append(f"the cap on in-flight data to {proposed.inflight_cap_bytes} bytes")
    if proposed.is_uncapped:
        parts.append("the cap on in-flight data to unlimited")
    if proposed.is_debloat_off:
        parts.append("buffer debloating to off")
    return "Change " + (", ".join(parts[:-1]) + " and " if len(parts) > 1 else "") + parts[-1] if parts else "No change"


_MODE_WORDS = {
    Mode.ALIGNED: "aligned",
    Mode.ALIGNED_WITH_TIMEOUT: "unaligned",
    Mode.UNALIGNED: "unaligned",
}


def _setting(
    base: Setting,
    numbers: dict[str, int | None],
    cap: int | None,
    target: float | None,
    is_cap_changed: bool,
    is_debloat_changed: bool,
) -> Setting:
    return Setting(
        mode=base.mode,
        aligned_timeout_ms=base.aligned_timeout_ms,
        inflight_cap_bytes=cap if is_cap_changed else None,
        debloat_target_ms=_whole(target) if is_debloat_changed else None,
        interval_ms=numbers.get("interval_ms"),
        min_pause_ms=numbers.get("min_pause_ms"),
        timeout_ms=numbers.get("timeout_ms"),
        is_uncapped=is_cap_changed and cap is None,
        is_debloat_off=is_debloat_changed and target is None,
    )


def _by_hand(model: JobModel, what_if: WhatIf, engine: EngineCapabilities) -> Iterator[str]:
    rescaled: list[tuple[Vertex, int]] = []
    for vertex_id, parallelism in what_if.parallelism:
        vertex = model.vertex(vertex_id)
        if parallelism != vertex.parallelism:
            yield (
                f"Change the parallelism of {vertex.name} from {vertex.parallelism} to {parallelism}:"
                " the job restarts from a checkpoint or savepoint."
            )
            rescaled.append((Vertex(vertex.id, vertex.name, vertex.parallelism), parallelism))
    yield from _ways(model, rescaled, engine)
    if what_if.load_factor != 1.0:
        yield f"The load is a question, not a setting: the sources would read {what_if.load_factor:g} times as much."
    if what_if.without_skew:
        yield "No setting removes the skew: it needs other keys, or a pre-aggregation in the job's code."
    if what_if.without_slow_host:
        yield "No setting removes the slow host: move its task manager to another host."


def _ways(model: JobModel, rescaled: Sequence[tuple[Vertex, int]], engine: EngineCapabilities) -> Iterator[str]:
    """Yield how this engine changes these parallelisms, each sentence once."""
    sql = rescaling.is_sql(v.name for v in model.vertices)
    if rescaled and engine.settings.parallelism is not None:
        wanted = ",".join(c.proposed for v, n in rescaled for c in rescaling.changes_of(engine, v, n, sql=sql))
        yield f"Set {engine.settings.parallelism} to {wanted}."
    ways = (w for v, n in rescaled for w in rescaling.steps_of(engine, v, n, sql=sql, adaptive=None))
    yield from dict.fromkeys(ways)


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _size(value: int | None) -> str:
    return _UNLIMITED if value is None else str(value)


def _duration(value_ms: float | None) -> str:
    value = value_ms or 0.0
    return f"{value:g} ms" if value < 1000 else f"{value / 1000:g} s"
