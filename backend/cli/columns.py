"""Lays out a table in columns that are as wide as their widest cell."""

from __future__ import annotations

from collections.abc import Sequence

_GAP = "  "


def lines_of(rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Return the lines of a table. The first ``left`` columns are flush left, the others flush right.

    All rows have the same number of cells.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        _GAP.join(
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
