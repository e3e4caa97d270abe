"""Makes ``python -m backend.cli`` run the command line. ``up`` starts its roles with this command."""

from __future__ import annotations

from backend.cli import main

if __name__ == "__main__":
    main()
