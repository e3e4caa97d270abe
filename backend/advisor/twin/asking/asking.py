"""Reads a what-if from settings as people and engines write them, and lists the settings that a what-if can change.

Each setting has a name of ours (``interval``). Most have a key of the engine (``execution.checkpointing.interval``)
too. A duration is written like ``500 ms`` or ``10 min`` and a size like ``64 kb``, as in Flink's configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from math import isfinite
from typing import Final

from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import problems_without_job, timeout_stops_at_senders
from backend.advisor.twin.model.model import JobModel, VertexModel
from backend.domain import flink_options
from backend.domain.advice import Mode
from backend.domain.engines import FLINK, RUNTIME, EngineCapabilities, flink
from backend.domain.errors import FieldProblem, InvalidInputError
from backend.domain.ids import VertexId
from backend.runtime.core.units import DURATION_WORDS, SIZE_WORDS, duration_us, size_bytes

OFF: Final = "off"
PARALLELISM: Final = "parallelism"
_MODES: Final = tuple(m.value for m in Mode)
_TRUE, _FALSE = "true", "false"
_LOAD_WORDS = 'a factor such as "1.5", or a percentage such as "150 %"'
_VALUES_MAX: Final = 24
# A range is divided into equal ratios instead of equal steps if its end is this many times its begin.
_WIDE: Final = 8
_DURATIONS_MS: Final = (0, 100, 200, 500, *(n * 1000 for n in (1, 2, 3, 5, 10, 15, 20, 30, 60, 120, 180, 300, 600)))
_CAPS_BYTES: Final = tuple((1 << 10) * n for n in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536))
_LOADS: Final = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0)
_PARALLELISMS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
_PARALLELISM_FACTOR: Final = 4
_LONGEST_MS: Final = 365 * 86_400_000.0
"""Longer times have the wrong unit, or mean that there is no limit."""
_NEAREST_COUNT: Final = 3
_NEAREST_MIN: Final = 0.6
_ENGINES: Final = (FLINK, flink("1.14"), RUNTIME)
"""The engines that a what-if knows. The first one has the keys that most people use, and 1.14 those of old versions."""
_ALL_NAMES: Final = "barrierscope whatif --help lists all names"
_ENGINE_KEYS: Final = "or the engine's own keys of these"


class Name(StrEnum):
    """Our names of the settings. The parallelism of a vertex is ``parallelism.`` followed by its id or name."""

    MODE = "mode"
    ALIGNED_TIMEOUT = "aligned-timeout"
    CAP = "in-flight-cap"
    DEBLOATING = "debloating"
    INTERVAL = "interval"
    MIN_PAUSE = "min-pause"
    TIMEOUT = "checkpoint-timeout"
    LOAD = "load"
    WITHOUT_SKEW = "without-skew"
    WITHOUT_SLOW_HOST = "without-slow-host"


class Unit(StrEnum):
    """The unit of a setting's value."""

    MODE = "mode"
    MS = "ms"
    BYTES = "bytes"
    SUBTASKS = "subtasks"
    FACTOR = "factor"
    FLAG = "flag"


_UNITS: Final[Mapping[Name, Unit]] = {
    Name.MODE: Unit.MODE,
    Name.ALIGNED_TIMEOUT: Unit.MS,
    Name.CAP: Unit.BYTES,
    Name.DEBLOATING: Unit.MS,
    Name.INTERVAL: Unit.MS,
    Name.MIN_PAUSE: Unit.MS,
    Name.TIMEOUT: Unit.MS,
    Name.LOAD: Unit.FACTOR,
    Name.WITHOUT_SKEW: Unit.FLAG,
    Name.WITHOUT_SLOW_HOST: Unit.FLAG,
}
_CAN_BE_OFF: Final = (Name.CAP, Name.DEBLOATING)
_TITLES: Final[Mapping[Name, str]] = {
    Name.MODE: "Mode",
    Name.ALIGNED_TIMEOUT: "Aligned timeout",
    Name.CAP: "Cap on in-flight data",
    Name.DEBLOATING: "Debloating target",
    Name.INTERVAL: "Interval",
    Name.MIN_PAUSE: "Minimum pause",
    Name.TIMEOUT: "Checkpoint timeout",
    Name.LOAD: "Load",
    Name.WITHOUT_SKEW: "Without the skew",
    Name.WITHOUT_SLOW_HOST: "Without the slow host",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A what-if with the settings that it was read from, under our names and in one way of writing."""

    what_if: WhatIf
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SettingRange:
    """One setting that a what-if can change: its current value, and values to choose from, in ascending order.

    ``why_not`` is why the setting cannot be changed for this job, or None if it can be.
    """

    name: str
    title: str
    unit: Unit
    current: str | None
    values: tuple[str, ...]
    engine_key: str | None = None
    vertex_id: VertexId | None = None
    why_not: str | None = None


def asked_of(model: JobModel, settings: Mapping[str, str], *, where: str = "settings") -> Asked:
    """Return the what-if that ``settings`` describe.

    Raises:
        InvalidInputError: a setting is unknown, is set twice or has no valid value. All such settings are listed.
    """
    reading = _Reading(model, model.engine, where)
    for key, value in settings.items():
        reading.read(key, value.strip())
    return reading.asked()


def problems_of_every_job(settings: Mapping[str, str], *, where: str = "settings") -> list[FieldProblem]:
    """Return what is wrong with ``settings`` for each job of each engine: unknown names, bad values, contradictions.

    The names of vertices, and most limits, depend on the job: ``asked_of`` and ``changed`` find what is wrong there.
    """
    problems = [_problems_of(engine, settings, where) for engine in _ENGINES]
    return min(problems, key=len)


def _problems_of(engine: EngineCapabilities, settings: Mapping[str, str], where: str) -> list[FieldProblem]:
    """Return what is wrong with ``settings`` for each job of ``engine``."""
    reading = _Reading(None, engine, where)
    for key, value in settings.items():
        reading.read(key, value.strip())
    if reading.problems:
        return reading.problems
    what_if = reading.asked().what_if
    return list(names_of(problems_without_job(what_if), settings, where=where))


def varied(model: JobModel, key: str, low: str, high: str, count: int) -> list[Mapping[str, str]]:
    """Return at most ``count`` settings, in which ``key`` goes from ``low`` to ``high``.

    The steps have equal ratios if the range is wide, otherwise equal differences. Values are whole except for the load.

    Raises:
        InvalidInputError: the setting is unknown, cannot be varied, or the range is empty.
    """
    reading = _Reading(model, model.engine, "vary")
    name = reading.name_of(key)
    unit = None if name is None else _UNITS[name] if isinstance(name, Name) else Unit.SUBTASKS
    if unit in (Unit.MODE, Unit.FLAG):
        reading.problems.append(
            FieldProblem("vary.key", f"{key} has no range", "name each of its values as a candidate")
        )
    if unit is None or reading.problems:
        raise InvalidInputError(reading.problems, what="what-if")
    begin, end = (
        _number(unit, text, f"vary.{side}", reading.problems) for side, text in (("low", low), ("high", high))
    )
    if begin is not None and end is not None and begin >= end:
        reading.problems.append(FieldProblem("vary.high", f"{high} is not above {low}", "a larger value"))
    if reading.problems or begin is None or end is None:
        raise InvalidInputError(reading.problems, what="what-if")
    count = min(max(2, count), _VALUES_MAX)
    steps = [i / (count - 1) for i in range(count)]
    is_wide = begin > 0 and end / begin >= _WIDE
    numbers = [begin * (end / begin) ** s if is_wide else begin + (end - begin) * s for s in steps]
    plain = [round(n, 3) if unit is Unit.FACTOR else float(round(n)) for n in numbers]
    return [{key: text_of(unit, n)} for n in dict.fromkeys(plain)]


def settings_of(model: JobModel) -> list[SettingRange]:
    """Return the settings that a what-if can change for this job, in the order in which a page shows them."""
    engine, now, network = model.engine, model.settings, model.network
    current: Mapping[Name, str | None] = {
        Name.MODE: now.mode.value,
        Name.ALIGNED_TIMEOUT: None if now.aligned_timeout_ms is None else text_of(Unit.MS, now.aligned_timeout_ms),
        Name.CAP: OFF if now.inflight_cap_bytes is None else text_of(Unit.BYTES, now.inflight_cap_bytes),
        Name.DEBLOATING: OFF if network.debloat_target_ms is None else text_of(Unit.MS, network.debloat_target_ms),
        Name.INTERVAL: text_of(Unit.MS, now.interval_ms),
        Name.MIN_PAUSE: text_of(Unit.MS, now.min_pause_ms),
        Name.TIMEOUT: text_of(Unit.MS, now.timeout_ms),
        Name.LOAD: "1",
        Name.WITHOUT_SKEW: _FALSE,
        Name.WITHOUT_SLOW_HOST: _FALSE,
    }
    return [
        *(
            SettingRange(
                name=name.value,
                title=_TITLES[name],
                unit=_UNITS[name],
                current=current[name],
                values=_values(name, current[name]),
                engine_key=None if engine is None else engine_key(engine, name),
                why_not=_why_not(model, name),
            )
            for name in Name
        ),
        *(_parallelism_of(vertex) for vertex in model.vertices),
    ]


def engine_key(engine: EngineCapabilities, name: Name) -> str | None:
    """Return the engine's own key of a setting; None if it has none."""
    return {new: key for key, new in _engine_names(engine).items()}.get(name)


def text_of(unit: Unit, value: float) -> str:
    """Return a number as the text of a setting."""
    if unit is Unit.MS:
        return f"{value:g} ms" if value < 1e5 else f"{round(value)} ms"
    if unit is Unit.BYTES:
        return f"{round(value)} b"
    return f"{value:g}"


def _engine_names(engine: EngineCapabilities) -> dict[str, Name]:
    keys = engine.settings
    found = (
        # The key that is asked for by a name comes last.
        (keys.debloat_enabled, Name.DEBLOATING),
        (keys.unaligned, Name.MODE),
        (keys.aligned_timeout, Name.ALIGNED_TIMEOUT),
        (keys.in_flight_cap, Name.CAP),
        (keys.debloat_target, Name.DEBLOATING),
        (keys.interval, Name.INTERVAL),
        (keys.min_pause, Name.MIN_PAUSE),
        (keys.timeout, Name.TIMEOUT),
    )
    return {key: name for key, name in found if key is not None}


def _own_keys(engine: EngineCapabilities, keys: Iterable[str]) -> dict[str, str]:
    """Return the engine's key for each name that any of its releases has for the setting."""
    if not engine.is_flink_release:
        return {key: key for key in keys}
    return {name: key for key in keys for name in flink_options.names_of(key)}


def _why_not(model: JobModel, name: Name) -> str | None:
    engine = model.engine
    match name:
        case Name.MODE if engine is not None and not engine.has_unaligned_checkpoints:
            return f"{engine.name} has no unaligned checkpoints"
        case Name.ALIGNED_TIMEOUT if engine is not None and engine.aligned_timeout_stops_at_senders:
            return timeout_stops_at_senders(engine)
        case Name.ALIGNED_TIMEOUT if engine is not None and not engine.has_aligned_timeout:
            return f"{engine.name} of this version has no aligned timeout"
        case Name.CAP if engine is not None and not engine.has_in_flight_cap:
            return f"{engine.name} has no limit for in-flight data of checkpoints"
        case Name.DEBLOATING if engine is not None and not engine.has_buffer_debloating:
            return f"{engine.name} of this version has no buffer debloating"
        case Name.LOAD if any(v.source is not None and v.source.rate_per_s is None for v in model.vertices):
            return "the rate of a source is not known, because back-pressure or its own speed limits it"
        case Name.WITHOUT_SKEW if all(len(set(v.input_shares)) <= 1 for v in model.vertices):
            return "every subtask of a vertex has the same share of the input"
        case Name.WITHOUT_SLOW_HOST if not any(f > 1.0 for v in model.vertices for f in v.slow_host_factors):
            return "no slow host was found in this job"
    return None


def _values(name: Name, current: str | None) -> tuple[str, ...]:
    unit = _UNITS[name]
    if unit is Unit.MODE:
        return _MODES
    if unit is Unit.FLAG:
        return (_FALSE, _TRUE)
    least = {Name.ALIGNED_TIMEOUT: 0, Name.MIN_PAUSE: 0, Name.DEBLOATING: 100, Name.INTERVAL: 500, Name.TIMEOUT: 500}
    known: Sequence[float] = _LOADS if unit is Unit.FACTOR else _CAPS_BYTES
    if unit is Unit.MS:
        known = [v for v in _DURATIONS_MS if v >= least[name]]
    numbers = {float(v) for v in known}
    if current not in (None, OFF):
        numbers |= {n for n in [_number(unit, current, "", [])] if n is not None}
    texts = tuple(text_of(unit, n) for n in sorted(numbers))
    return (OFF, *texts) if name in _CAN_BE_OFF else texts


def _parallelism_of(vertex: VertexModel) -> SettingRange:
    most = min(vertex.max_parallelism or _PARALLELISMS[-1], max(8, _PARALLELISM_FACTOR * vertex.parallelism))
    values = sorted({p for p in _PARALLELISMS if p <= most} | {vertex.parallelism})
    return SettingRange(
        name=f"{PARALLELISM}.{vertex.id}",
        title=f"Parallelism of {vertex.name}",
        unit=Unit.SUBTASKS,
        current=str(vertex.parallelism),
        values=tuple(str(v) for v in values),
        vertex_id=vertex.id,
    )


class _Reading:
    """Reads settings one after the other, and keeps what is wrong with them.

    Without a model, each name of a vertex is accepted, and a mode that depends on the job stays open.
    """

    def __init__(self, model: JobModel | None, engine: EngineCapabilities | None, where: str) -> None:
        self._model = model
        self._engine = engine
        self._where = where
        self._keys = _engine_names(engine) if engine is not None else {}
        self._own = _own_keys(engine, self._keys) if engine is not None else {}
        self._found = WhatIf()
        self._settings: dict[str, str] = {}
        self._is_overtaking: bool | None = None
        self._debloat: dict[bool, str] = {}
        self.problems: list[FieldProblem] = []

    def read(self, key: str, value: str) -> None:
        name = self.name_of(key)
        if name is None:
            return
        own = self._own.get(key)
        if not isinstance(name, Name):
            self._read_parallelism(key, name, value)
        elif self._engine is not None and own is not None and own == self._engine.settings.unaligned:
            flag = self._flag(key, value)
            if flag is not None and self._is_first(Name.MODE.value, key, value):
                self._is_overtaking = flag
        elif self._engine is not None and own is not None and own == self._engine.settings.debloat_enabled:
            flag = self._flag(key, value)
            if flag is False and self._is_first(name.value, key, OFF):
                self._found = replace(self._found, is_debloat_off=True)
        elif self._is_first(name.value, key, value):
            self._take(name, key, value)

    def asked(self) -> Asked:
        """Return the what-if.

        Raises:
            InvalidInputError: a setting that was read is not valid.
        """
        self._choose_mode()
        if self.problems:
            raise InvalidInputError(self.problems, what="what-if")
        return Asked(self._found, dict(sorted(self._settings.items())))

    def name_of(self, key: str) -> Name | VertexId | None:
        if key in set(Name):
            return Name(key)
        if key in self._own:
            return self._keys[self._own[key]]
        if key.startswith(f"{PARALLELISM}."):
            wanted = key.removeprefix(f"{PARALLELISM}.")
            if self._model is None and wanted:
                return VertexId(wanted)
            of_job = () if self._model is None else self._model.vertices
            vertices = [v for v in of_job if wanted in (v.id, v.name)]
            if len(vertices) == 1:
                return vertices[0].id
            names = ", ".join(f"{PARALLELISM}.{v.id} ({v.name})" for v in of_job) or f"{PARALLELISM}.VERTEX"
            problem = "names several vertices" if vertices else "names no vertex of this job"
            self.problems.append(FieldProblem(self._field(key), problem, names))
            return None
        own = (*(n.value for n in Name), f"{PARALLELISM}.VERTEX")
        near = _nearest(key, [*own, *self._keys])
        # For a mistyped name, the similar ones help more than the list of all.
        known = f"{', '.join(near or own)}; {_ALL_NAMES if near else _ENGINE_KEYS}"
        self.problems.append(FieldProblem(self._field(key), "is not a setting that a what-if can change", known))
        return None

    def _field(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where != "vary" else "vary.key"

    def _is_first(self, name: str, key: str, value: str) -> bool:
        if name in self._settings:
            self.problems.append(FieldProblem(self._field(key), "is set twice", "one value"))
            return False
        self._settings[name] = value
        return True

    def _take(self, name: Name, key: str, value: str) -> None:
        unit = _UNITS[name]
        field = self._field(key)
        if unit is Unit.MODE:
            if value not in _MODES:
                self.problems.append(FieldProblem(field, f"{value!r} is not a mode", ", ".join(_MODES)))
                return
            self._found = replace(self._found, mode=Mode(value))
            return
        if unit is Unit.FLAG:
            flag = self._flag(key, value)
            if flag is None:
                return
            self._settings[name.value] = _TRUE if flag else _FALSE
            is_skew = name is Name.WITHOUT_SKEW
            self._found = (
                replace(self._found, without_skew=flag) if is_skew else replace(self._found, without_slow_host=flag)
            )
            return
        if name in _CAN_BE_OFF and value in (OFF, "unlimited"):
            self._settings[name.value] = OFF
            is_cap = name is Name.CAP
            self._found = (
                replace(self._found, is_uncapped=True) if is_cap else replace(self._found, is_debloat_off=True)
            )
            return
        number = _number(unit, value, field, self.problems)
        if number is None:
            return
        self._settings[name.value] = text_of(unit, number)
        self._found = _with_number(self._found, name, number)

    def _flag(self, key: str, value: str) -> bool | None:
        if value.lower() not in (_TRUE, _FALSE):
            self.problems.append(FieldProblem(self._field(key), f"{value!r} is neither true nor false", "true, false"))
            return None
        return value.lower() == _TRUE

    def _read_parallelism(self, key: str, vertex: VertexId, value: str) -> None:
        if not (value.isascii() and value.isdecimal() and 0 < int(value[:9]) < 1e6 and len(value) < 9):
            self.problems.append(FieldProblem(self._field(key), f"{value!r} is not a number of subtasks", "from 1 on"))
        elif self._is_first(f"{PARALLELISM}.{vertex}", key, str(int(value))):
            self._found = replace(self._found, parallelism=(*self._found.parallelism, (vertex, int(value))))

    def _choose_mode(self) -> None:
        """Derive the mode from the engine's key or from the aligned timeout, if no mode was named."""
        timeout = self._found.aligned_timeout_ms
        if self._is_overtaking is False:
            mode: Mode | None = Mode.ALIGNED
        elif timeout is not None and (self._is_overtaking or self._found.mode is None):
            mode = Mode.ALIGNED_WITH_TIMEOUT if timeout > 0 else Mode.UNALIGNED
        elif self._is_overtaking:
            now = None if self._model is None else self._model.settings
            mode = None if now is None else Mode.ALIGNED_WITH_TIMEOUT if now.aligned_timeout_ms else Mode.UNALIGNED
        else:
            mode = self._found.mode
        if mode is not None:
            self._found = replace(self._found, mode=mode)
            self._settings[Name.MODE.value] = mode.value


def _with_number(what_if: WhatIf, name: Name, number: float) -> WhatIf:
    match name:
        case Name.ALIGNED_TIMEOUT:
            return replace(what_if, aligned_timeout_ms=number)
        case Name.CAP:
            return replace(what_if, inflight_cap_bytes=round(number))
        case Name.DEBLOATING:
            return replace(what_if, debloat_target_ms=number)
        case Name.INTERVAL:
            return replace(what_if, interval_ms=number)
        case Name.MIN_PAUSE:
            return replace(what_if, min_pause_ms=number)
        case Name.TIMEOUT:
            return replace(what_if, timeout_ms=number)
        case Name.LOAD:
            return replace(what_if, load_factor=number)
    raise AssertionError(name)


def _number(unit: Unit, text: str, field: str, problems: list[FieldProblem]) -> float | None:
    """Return a value in the unit of its setting. Add a problem and return None if it has none."""
    try:
        match unit:
            case Unit.MS:
                took_ms = duration_us(text) / 1000
                if took_ms > _LONGEST_MS:
                    problems.append(FieldProblem(field, f"{text[:50]!r} is longer than a year", "at most 365 d"))
                    return None
                return took_ms
            case Unit.BYTES:
                return float(size_bytes(text))
            case Unit.SUBTASKS:
                return float(int(text))
        share = text.removesuffix("%").strip()
        number = float(share) / (100 if text.endswith("%") else 1)
        if not (isfinite(number) and number > 0):
            raise ValueError(text)
        return number
    except ValueError:
        words = {Unit.MS: DURATION_WORDS, Unit.BYTES: SIZE_WORDS, Unit.FACTOR: _LOAD_WORDS}
        allowed = words.get(unit, "a whole number")
        problems.append(FieldProblem(field, f"{text[:50]!r} cannot be read", allowed))
        return None


def _nearest(key: str, names: Sequence[str]) -> list[str]:
    """Return the names that a mistyped one may mean, the nearest first. Engine keys also match by their last parts."""
    wanted, short = key.lower().replace("_", "-"), {name: name.lower() for name in names}
    ends = [low for low in short.values() if low.endswith(f".{wanted}")]
    near = get_close_matches(wanted, short.values(), n=_NEAREST_COUNT, cutoff=_NEAREST_MIN)
    found = dict.fromkeys([*ends, *near])
    return [name for low in found for name in names if short[name] == low][:_NEAREST_COUNT]


def names_of(
    problems: Iterable[FieldProblem], settings: Mapping[str, str], *, where: str = "settings"
) -> Iterator[FieldProblem]:
    """Yield the problems of a ``WhatIf`` with the names of the settings that a caller used."""
    fields = {
        "mode": Name.MODE,
        "aligned_timeout_ms": Name.ALIGNED_TIMEOUT,
        "inflight_cap_bytes": Name.CAP,
        "is_uncapped": Name.CAP,
        "debloat_target_ms": Name.DEBLOATING,
        "is_debloat_off": Name.DEBLOATING,
        "interval_ms": Name.INTERVAL,
        "min_pause_ms": Name.MIN_PAUSE,
        "timeout_ms": Name.TIMEOUT,
        "load_factor": Name.LOAD,
        "without_skew": Name.WITHOUT_SKEW,
        "without_slow_host": Name.WITHOUT_SLOW_HOST,
    }
    for problem in problems:
        name = fields.get(problem.field)
        field = problem.field if name is None else name.value
        field = field.replace("[", ".").removesuffix("]")
        yield replace(problem, field=f"{where}.{field}" if field in settings or name is not None else field)
