"""The lines in which the command line says what a change of a running job would send where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from backend.contracts.advice import DryRunOut


def lines_of(tried: DryRunOut, title: str) -> Iterator[str]:
    """Yield the lines of one dry run under a title."""
    yield title
    yield f"  to {tried.target} ({tried.url}), run {tried.engine_run_id}"
    yield from (f"  {c.key}: {c.current or 'not known'} -> {c.proposed}" for c in tried.changes)
    if tried.is_accepted:
        yield "  the target was asked and accepts it; nothing was changed"
    else:
        yield f"  would be refused: {'; '.join(tried.refusals)}"
