"""Returns the page of a cause: how it looks, how it differs from others, what cures it and what does not."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from backend.contracts.causes import CausePageOut
from backend.domain.errors import UnknownEntityError
from backend.domain.verdict import VerdictKind

CAUSES: Final = tuple(kind.value for kind in VerdictKind)


def cause_page(cause: str) -> CausePageOut:
    """Return the page of a cause.

    Raises:
        UnknownEntityError: there is no such cause.
    """
    if cause not in CAUSES:
        raise UnknownEntityError(kind="cause", id=cause)
    return CausePageOut(cause=cause, markdown=cause_path(cause).read_text(encoding="utf-8"))


def cause_path(cause: str) -> Path:
    """Return the path of the page of a cause.

    In a checkout, the page is in ``docs`` next to the ``backend`` folder. In an installed wheel, it is in
    ``backend/_causes``.
    """
    backend = Path(__file__).resolve().parents[1]
    beside = backend.parent / "docs" / "causes" / f"{cause}.md"
    return beside if beside.is_file() else backend / "_causes" / f"{cause}.md"
