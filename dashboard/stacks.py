"""Reads the methods in stacks of the JVM: whose code a method is, and how it is shown in little space."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from backend.contracts.inspection import FrameOut


class Owner(StrEnum):
    """Whose code a method is."""

    JOB = "job"
    ENGINE = "engine"
    PLATFORM = "platform"


_ENGINE: Final = ("org.apache.flink.", "org.apache.pekko.", "akka.", "org.rocksdb.", "org.apache.kafka.")
_PLATFORM: Final = ("java.", "javax.", "jdk.", "sun.", "com.sun.", "scala.")
_AT = "\tat "


def owner_of(method: str) -> Owner:
    """Return whose code a method is, by the package in its name. A name without a package counts as the platform's."""
    if method.startswith(_ENGINE):
        return Owner.ENGINE
    if method.startswith(_PLATFORM) or "." not in method:
        return Owner.PLATFORM
    return Owner.JOB


def short(method: str) -> str:
    """Return the class and the method, without packages: ``Slow.processElement:134``."""
    return ".".join(method.rsplit(".", 2)[-2:])


def method_of(line: str) -> str | None:
    """Return the method in a line of a printed stack, or None if the line has none.

    The line is such as ``\\tat app//org.example.Map.map(Map.java:7)``. The loader and the module before ``/`` are cut
    off.
    """
    if not line.startswith(_AT):
        return None
    shown = line.removeprefix(_AT).partition("(")[0]
    head, slash, rest = shown.rpartition("//") if "//" in shown else shown.partition("/")
    # The class of a lambda has a slash in its own name: "Task$$Lambda$929/0x0".
    return rest if slash and "$" not in head else shown


def hottest(frames: Sequence[FrameOut]) -> FrameOut | None:
    """Return the innermost method of the job's own code on the path that most samples share, or None.

    The path ends where no method has half of all samples.
    """
    if not frames or not frames[0].sample_count:
        return None
    children: dict[int, list[int]] = {}
    for number, frame in enumerate(frames):
        if frame.parent is not None:
            children.setdefault(frame.parent, []).append(number)
    found, at = None, 0
    while below := children.get(at):
        at = max(below, key=lambda n: frames[n].sample_count)
        if frames[at].sample_count * 2 < frames[0].sample_count:
            break
        if owner_of(frames[at].name) is Owner.JOB:
            found = frames[at]
    return found
