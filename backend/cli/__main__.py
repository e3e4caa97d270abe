"""``python -m backend.cli``: the command with which ``up`` starts its roles."""

from __future__ import annotations

from backend.cli import main

if __name__ == "__main__":
    main()
