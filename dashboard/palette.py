"""Defines the colours of the light and the dark theme, and the words and icons for states.

The colours are those of Okabe and Ito, which people with the common kinds of colour blindness can distinguish. That of
unaligned checkpoints is their reddish purple, darker, so that a line of it is seen on white. Colour is never the only
sign of a meaning: a status also has an icon and a word, and a segment has its position and its hover text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from backend.domain.checkpoint import CheckpointStatus
from backend.domain.verdict import Health, Phase

ALIGNED = "#0072B2"
UNALIGNED = "#A24C93"
FAILED = "#D55E00"
"""A failure, a limit that is exceeded, and what the verdict names."""
CONTRAST = "#D55E00"
"""A second series beside a blue one. It has no meaning."""
ACKED = "#009E73"
IN_TRANSIT = "#E69F00"

CHANDY_LAMPORT = "#56B4E9"
AT_LEAST_ONCE_COLOR = "#8A93A3"

PHASE_COLORS: dict[Phase, str] = {
    Phase.START_DELAY: "#E69F00",
    Phase.ALIGNMENT: "#CC79A7",
    Phase.SYNC: "#F0E442",
    Phase.ASYNC: "#56B4E9",
    Phase.ACK_WAIT: "#8A93A3",
}
PHASE_WORDS: dict[Phase, str] = {
    Phase.START_DELAY: "start delay",
    Phase.ALIGNMENT: "alignment",
    Phase.SYNC: "sync",
    Phase.ASYNC: "async",
    Phase.ACK_WAIT: "ack wait",
}


class Tone(StrEnum):
    """The colour and weight of a badge or message."""

    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    INFO = "info"
    QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours that a figure takes from the page's theme."""

    name: str
    text: str
    muted: str
    grid: str
    border: str
    surface: str
    unknown: str
    """The fill colour for what is missing or has not been reached. Bars in this colour are hatched."""
    outline: str
    """A thin line around fills, so that light fills have a visible edge."""
    path: str
    """Colour of the critical path."""
    idle: str
    busy: str
    bad: str
    """Colour of text about a failure or a limit. The colour of its line would be too pale for text."""


LIGHT = Theme(
    name="light",
    text="#1b2330",
    muted="#5b6677",
    grid="#e6e9ef",
    border="#cdd3dd",
    surface="#ffffff",
    unknown="#b6bdc9",
    outline="rgba(27,35,48,0.45)",
    path="#1b2330",
    idle="#dfe4ec",
    busy="#46536a",
    bad="#9c3f00",
)
DARK = Theme(
    name="dark",
    text="#e8ecf3",
    muted="#9aa5b8",
    grid="#2a3342",
    border="#3a4557",
    surface="#171e29",
    unknown="#5b6678",
    outline="rgba(10,14,20,0.7)",
    path="#ffffff",
    idle="#2f3a4b",
    busy="#a9b7cf",
    bad="#ffab78",
)


def theme(name: str | None) -> Theme:
    """Return the theme called ``name``, or the light theme if there is no theme of that name."""
    return DARK if name == "dark" else LIGHT


HEALTH_WORDS: dict[Health, str] = {
    Health.HEALTHY: "healthy",
    Health.SLOW: "slow",
    Health.FAILING: "failing",
    Health.RESTARTING: "restarting",
    Health.INTERMITTENT: "intermittent",
    Health.TOO_FEW: "too few checkpoints",
    Health.OFF: "checkpointing off",
}
HEALTH_ICONS: dict[Health, str] = {
    Health.HEALTHY: "check",
    Health.SLOW: "hourglass",
    Health.FAILING: "cross",
    Health.RESTARTING: "swap",
    Health.INTERMITTENT: "warning",
    Health.TOO_FEW: "question",
    Health.OFF: "pause",
}
STATUS_WORDS: dict[CheckpointStatus, str] = {
    CheckpointStatus.COMPLETED: "completed",
    CheckpointStatus.FAILED: "failed",
    CheckpointStatus.IN_PROGRESS: "in progress",
}
STATUS_ICONS: dict[CheckpointStatus, str] = {
    CheckpointStatus.COMPLETED: "check",
    CheckpointStatus.FAILED: "cross",
    CheckpointStatus.IN_PROGRESS: "progress",
}
