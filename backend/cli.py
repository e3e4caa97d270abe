"""The console command `barrierscope`: one subcommand a role or a question; composition only, no rules."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    raise SystemExit("not composed yet")
