"""What is said of a setting that is not taken: mistyped, not built, or fixed while the job runs (Appendix B). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from backend.domain.errors import FieldProblem

_NOT_BUILT = (
    "execution.checkpointing.file-merging.",
    "execution.checkpointing.incremental",
    "runtime.finish-protocol",
    "runtime.initiation",
    "runtime.protocol",
    "runtime.spilling",
    "runtime.state-backend",
)


def not_taken(name: str, field: str, taken: Sequence[str], *, is_known: bool) -> FieldProblem:
    """Why ``name`` at ``field`` is none of those ``taken``, and which of them is meant."""
    if is_known:
        return FieldProblem(field, "cannot change while the job runs", ", ".join(taken))
    if name.startswith(_NOT_BUILT):
        return FieldProblem(field, "is a setting of what is not built here", "leave it out")
    # Who has mistyped one looks for that one, not for seventy.
    return FieldProblem(field, "is not a setting", ", ".join(get_close_matches(name, taken, cutoff=0.8) or taken))
