"""``python -m backend.cli``: how ``up`` starts its roles, whatever the environment's scripts are called."""

from __future__ import annotations

from backend.cli import main

if __name__ == "__main__":
    main()
