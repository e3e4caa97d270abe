"""The only reader of the environment: every ``BARRIERSCOPE_*`` setting with its default, unit and bounds.

Everything else receives values. Options of the command line override a setting; a setting overrides its default.
A value out of bounds is an ``InvalidInputError`` that names the variable and what is allowed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from backend.domain.errors import FieldProblem, InvalidInputError

PREFIX = "BARRIERSCOPE_"

Port = Annotated[int, Field(ge=1, le=65535)]
LogLevel = Literal["debug", "info", "warning", "error"]


def _none_if_empty(value: object) -> object:
    # Path("") would be the current folder.
    return None if value == "" else value


class Settings(BaseSettings):
    """Settings of every role. Each is read from ``BARRIERSCOPE_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address the API and the pages listen on. Any other than loopback demands ``api_token``."""
    port: Port = 8050
    """Port of the API and the pages."""
    api_url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")] = "http://127.0.0.1:8050"
    """Where ``barrierscope targets`` finds the running API."""
    api_token: SecretStr | None = None
    """Bearer token of the API; needed to listen on, or to reach, an address that is not loopback."""
    database_url: SecretStr | None = None
    """PostgreSQL of the roles run one by one; ``up`` brings its own."""
    data_dir: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """Folder of ``up``: database, logs, run files."""
    runtime_host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address of the live runtime's REST."""
    runtime_port: Port = 18050
    """Port of the live runtime's REST."""
    runtime_warm_up_s: Annotated[float, Field(ge=0, le=3600)] = 20.0
    """Virtual seconds the live runtime runs ahead at its start, so that there is history at first sight."""
    built_in_target: str | None = None
    """Root of the live runtime that ``up`` runs; ``migrate`` registers it, or removes it where this is empty."""
    poll_interval_s: Annotated[float, Field(ge=0.2, le=3600)] = 2.0
    """How often a target is read."""
    retention_max_age_days: Annotated[float, Field(gt=0, le=3660)] = 7.0
    """Checkpoints older than this are dropped."""
    retention_max_size_mib: Annotated[int, Field(ge=64, le=100_000_000)] = 2048
    """The oldest days are dropped while the store is larger than this."""
    allowed_targets: str = ""
    """Comma-separated hosts or networks that targets added through the API may have when not on loopback only."""
    log_level: LogLevel = "info"
    """Least severe log line that is written."""
    xdg_data_home: Annotated[Path | None, Field(validation_alias="XDG_DATA_HOME")] = None
    """The desktop standard's folder for data of a user; ``~/.local/share`` where it is not set."""

    def data_dir_or_default(self) -> Path:
        """The data folder: the one set; else ``/var/lib/barrierscope`` as root, else under XDG's data home."""
        if self.data_dir is not None:
            return self.data_dir.expanduser().absolute()
        # As root, the database server runs as another user, who must be able to enter every folder above its data.
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            return Path("/var/lib/barrierscope")
        home = self.xdg_data_home if self.xdg_data_home and self.xdg_data_home.is_absolute() else None
        return (home or Path.home() / ".local" / "share") / "barrierscope"


def load_settings() -> Settings:
    """Read the environment once.

    Raises:
        InvalidInputError: a variable is malformed or out of bounds; every such variable is listed.

    """
    try:
        return Settings()
    except ValidationError as error:
        problems = [_problem(dict(e)) for e in error.errors(include_url=False)]
        raise InvalidInputError(problems, what="environment") from None


def _problem(error: dict[str, Any]) -> FieldProblem:
    name = str(error["loc"][0]) if error["loc"] else "?"
    field = Settings.model_fields.get(name)
    variable = name if field is None or field.validation_alias else PREFIX + name.upper()
    return FieldProblem(variable, f"{error['msg']}, got {str(error['input'])!r}")


def child_environment(**values: str) -> dict[str, str]:
    """The environment for a child process: this one's, with settings (by field name) put in or replaced."""
    return dict(os.environ) | {PREFIX + name.upper(): value for name, value in values.items()}
