"""Lists the targets in the format of Prometheus' ``http_sd``. What it lists can be read by another Barrierscope."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import SplitResult, urlsplit

from backend.contracts.target_list import TargetGroupOut
from backend.domain.target import TargetOrigin
from backend.store.targets.targets import TargetRecord

_PORTS: Final = {"http": 80, "https": 443}
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_]", re.ASCII)


def groups_of(targets: Iterable[TargetRecord], *, kind: str | None = None) -> list[TargetGroupOut]:
    """Return a group for each target that is asked over HTTP and is not paused, ordered by address."""
    read = [t for t in targets if t.is_enabled and t.origin is not TargetOrigin.PUSH and kind in (None, t.kind)]
    addressed = [(t, urlsplit(t.url)) for t in sorted(read, key=lambda t: t.url)]
    # A target may also be a folder of event logs, which has no host and no port.
    return [_group(target, parts) for target, parts in addressed if parts.scheme in _PORTS]


def _group(target: TargetRecord, parts: SplitResult) -> TargetGroupOut:
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    labels = {_label(name): value for name, value in sorted(target.labels.items()) if not _label(name).startswith("__")}
    labels["__scheme__"] = parts.scheme
    if parts.path:
        labels["__metrics_path__"] = parts.path
    labels |= {
        "__meta_barrierscope_target": target.id,
        "__meta_barrierscope_name": target.name,
        "__meta_barrierscope_kind": target.kind,
        "__meta_barrierscope_state": target.state.value,
        "__meta_barrierscope_url": target.url,
    }
    address = f"{shown}:{parts.port or _PORTS[parts.scheme]}"
    return TargetGroupOut(targets=[address], labels=labels)


def _label(name: str) -> str:
    """Return a name that Prometheus accepts for a label."""
    found = _NOT_IN_A_NAME.sub("_", name)
    return f"_{found}" if not found or found[0].isdecimal() else found
