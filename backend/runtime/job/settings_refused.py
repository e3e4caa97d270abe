"""Explains why a setting is refused: mistyped, not implemented, or fixed while a job runs (runtime.md, Appendix B)."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from backend.domain.errors import FieldProblem

_NOT_BUILT = (
    "runtime.initiation",
    "runtime.protocol",
)


def not_taken(name: str, field: str, taken: Sequence[str], *, is_known: bool) -> FieldProblem:
    """Return the reason why the setting ``name`` is refused, and the accepted settings that the user may have meant."""
    if is_known:
        return FieldProblem(field, "cannot change while the job runs", ", ".join(taken))
    if name.startswith(_NOT_BUILT):
        return FieldProblem(field, "is not implemented in this runtime", "leave it out")
    # For a mistyped key, the similar settings help more than the list of all seventy.
    return FieldProblem(field, "is not a setting", ", ".join(get_close_matches(name, taken, cutoff=0.8) or taken))
