"""Runs code as on a machine where only some of the installed distributions exist."""

from __future__ import annotations

# This program refuses to import a top-level module that is not in one of the distributions of its first argument.
ONLY_THESE_PACKAGES = """
import importlib.abc, importlib.metadata, re, sys
kept = set(sys.argv.pop(1).split(","))
name = lambda text: re.sub(r"[-_.]+", "-", text).lower()
owners = importlib.metadata.packages_distributions()
absent = {module for module, of in owners.items() if not kept & {name(o) for o in of}}
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {fullname!r} here", name=fullname)
sys.meta_path.insert(0, Absent())
assert {"pytest", "hypothesis"} <= absent
"""
