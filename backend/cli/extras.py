"""Names the extra of the distribution that contains a missing package.

Without extras, what is installed suffices for ``diagnose`` and for the commands that talk to a running service.
"""

from __future__ import annotations

import re
from importlib import metadata

from backend.domain.errors import HostError

_OWN = ("backend", "collectors", "dashboard")
_EXTRAS = ("server", "spark")
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)[^;]*;.*\bextra *== *['\"](?P<extra>\w+)['\"]")


def missing_package(error: ModuleNotFoundError) -> HostError | None:
    """Return the error that names the extra to install, or None if the missing module is one of Barrierscope's own."""
    module = (error.name or "").partition(".")[0]
    if not module or module in _OWN:
        return None
    what = f"this needs the package {module}, which is not installed"
    return HostError(what, fix=f"run `pip install '{_with_extra(module)}'`")


def _with_extra(module: str) -> str:
    """Return the requirement of pip that installs ``module``. What no requirement names is needed by the server."""
    for text in metadata.requires("barrierscope") or ():
        found = _REQUIREMENT.match(text)
        name = found["name"] if found else re.split(r"[^\w.-]", text)[0]
        extra = found["extra"] if found else ""
        if re.sub(r"[-.]", "_", name).lower() == module.lower() and extra in ("", *_EXTRAS):
            needed = {"": "", "server": "[server]", "spark": "[server,spark]"}[extra]
            return f"barrierscope{needed}"
    return "barrierscope[server]"
