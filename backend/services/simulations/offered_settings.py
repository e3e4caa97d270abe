"""The settings that a simulation can change: those of the runtime, apart from those that its protocol decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from backend.contracts.simulations import SimulationSettingOut
from backend.runtime.job import config
from backend.runtime.job.setting_words import WORDS

_CP: Final = "execution.checkpointing."
_NET: Final = "taskmanager.network.memory."


class Range(NamedTuple):
    """The range of a slider, and the unit of its values."""

    unit: str
    least: float
    most: float


COMMON: Final[Mapping[str, Range]] = {
    f"{_CP}interval": Range("ms", 500, 30_000),
    f"{_CP}timeout": Range("ms", 500, 60_000),
    f"{_CP}min-pause": Range("ms", 0, 30_000),
    f"{_CP}aligned-checkpoint-timeout": Range("ms", 0, 30_000),
    "runtime.inflight-cap.bytes": Range("bytes", 1_000, 1_000_000),
    f"{_NET}buffers-per-channel": Range("buffers", 0, 16),
    f"{_NET}floating-buffers-per-gate": Range("buffers", 1, 64),
}
"""The common settings, for which sliders are offered, in their order."""

_OWN: Final = config.show(config.RuntimeConfig())


def offered(
    protocols: Mapping[str, Mapping[str, str]], deciding: Mapping[str, str]
) -> Mapping[str, SimulationSettingOut]:
    """Return the settings that some protocol leaves open, the common ones first.

    ``protocols`` has the settings of each protocol, and ``deciding`` the values of the settings that tell protocols
    apart, which hold for a protocol that does not set them.
    """
    simulation_settings = {}
    for key in dict.fromkeys([*COMMON, *WORDS]):
        using = [name for name, own in protocols.items() if _is_open(key, own, deciding)]
        if using:
            simulation_settings[key] = _offered(key, None if len(using) == len(protocols) else using)
    return simulation_settings


def _is_open(key: str, own: Mapping[str, str], deciding: Mapping[str, str]) -> bool:
    """Return whether a request can change a setting of a protocol.

    A protocol decides whether there is a cap or a timeout, and a request its value.
    """
    if key in own:
        return not config.KEYS[key].words
    return key not in deciding and WORDS[key].is_used(config.change(config.RuntimeConfig(), {**deciding, **own}))


def _offered(key: str, using: list[str] | None) -> SimulationSettingOut:
    words, setting = WORDS[key], config.KEYS[key]
    unit, least, most = COMMON.get(key, ("", None, None))
    return SimulationSettingOut(
        key=key,
        title=words.title,
        sentence=words.sentence,
        group=words.group,
        allowed=setting.allowed,
        default=_OWN[key],
        words=list(setting.words),
        unit=unit,
        least=least,
        most=most,
        protocols=using,
    )


def values_of(job: config.RuntimeConfig, offered_: Mapping[str, SimulationSettingOut]) -> dict[str, str]:
    """Return the values of the common settings in a job, and of the others that are not at their default."""
    values = config.show(job, tuple(offered_))
    return {
        key: value
        for key, value in values.items()
        if offered_[key].protocols is None and (key in COMMON or value != _OWN[key])
    }
