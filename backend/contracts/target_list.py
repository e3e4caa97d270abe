"""The list of targets for Prometheus and others, in the format of ``http_sd``."""

from __future__ import annotations

from backend.contracts.model import Model


class TargetGroupOut(Model):
    """One target as a group of Prometheus' ``http_sd``.

    Labels of the target keep their names, with ``_`` for signs that Prometheus does not allow in a name. Labels that
    begin with ``__`` are for relabelling: ``__scheme__``, ``__metrics_path__`` (the prefix of the path), and
    ``__meta_barrierscope_`` with ``target``, ``name``, ``kind``, ``state`` and ``url``.
    """

    targets: list[str]
    """Host and port of the engine's REST API."""
    labels: dict[str, str]
