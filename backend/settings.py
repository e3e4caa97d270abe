"""The only reader of the environment: every ``BARRIERSCOPE_*`` setting with its default, unit and bounds.

Everything else receives values. Options of the command line override a setting; a setting overrides its default.
A value out of bounds is an ``InvalidInputError`` that names the variable and what is allowed.
"""

from __future__ import annotations

import ipaddress
import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from backend.domain.errors import FieldProblem, InvalidInputError

PREFIX = "BARRIERSCOPE_"
SECRET_PREFIX = PREFIX + "SECRET_"

Port = Annotated[int, Field(ge=1, le=65535)]


class LogLevel(StrEnum):
    """The least severe log line that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


# Long enough that guessing is hopeless, and such that it can stand in a header.
_VISIBLE = re.compile(r"[!-~]{16,512}", re.ASCII)
_VISIBLE_ALLOWED = "16 to 512 visible ASCII characters; for example the output of `openssl rand -hex 32`"


def _none_if_empty(value: object) -> object:
    # Path("") would be the current folder.
    return None if value == "" else value


def _networks(value: str) -> str:
    for part in names(value):
        ipaddress.ip_network(part, strict=False)
    return value


class SecretKind(StrEnum):
    """The places that a reference to a credential can name."""

    ENVIRONMENT = "env"
    FILE = "file"


class Settings(BaseSettings):
    """Settings of every role. Each is read from ``BARRIERSCOPE_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address the API and the pages listen on. Any other than loopback demands ``api_token``."""
    port: Port = 8050
    """Port of the API and the pages."""
    api_url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")] = "http://127.0.0.1:8050"
    """Where ``barrierscope targets`` finds the running API."""
    api_token: Annotated[SecretStr | None, BeforeValidator(_none_if_empty)] = None
    """Bearer token of the API; needed to listen on, or to reach, an address that is not loopback."""
    api_token_file: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """File that holds the bearer token, instead of ``api_token``."""
    public_url: Annotated[
        Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+/?$")] | None, BeforeValidator(_none_if_empty)
    ] = None
    """Where people find the pages when a proxy stands before them: ``https://barrierscope.example``, without a path."""
    trusted_proxies: Annotated[str, AfterValidator(_networks)] = ""
    """Comma-separated addresses or networks of proxies whose ``X-Forwarded-For`` and ``-Proto`` are believed."""
    database_url: Annotated[SecretStr | None, BeforeValidator(_none_if_empty)] = None
    """PostgreSQL of the roles run one by one; ``up`` brings its own."""
    data_dir: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """Folder of ``up``: database, logs, run files."""
    runtime_host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address of the live runtime's REST."""
    runtime_port: Port = 18050
    """Port of the live runtime's REST."""
    runtime_warm_up_s: Annotated[float, Field(ge=0, le=3600)] = 20.0
    """Virtual seconds the live runtime runs ahead at its start, so that there is history at first sight."""
    runtime_allowed_hosts: str = ""
    """Comma-separated names the live runtime's REST may be asked under besides its address and loopback."""
    built_in_target: str | None = None
    """Root of the live runtime that ``up`` runs; ``migrate`` registers it, or removes it where this is empty."""
    built_in_spark_demo: Annotated[bool | None, BeforeValidator(_none_if_empty)] = None
    """Whether `up` runs its Spark demo; where it does not, `migrate` removes the demo's target."""
    poll_interval_s: Annotated[float, Field(ge=0.2, le=3600)] = 2.0
    """How often a target is read."""
    retention_max_age_days: Annotated[float, Field(gt=0, le=3660)] = 7.0
    """Checkpoints older than this are dropped."""
    rollup_retention_max_age_days: Annotated[float, Field(gt=0, le=36600)] = 90.0
    """Hourly rollups older than this are dropped; they are kept at least as long as checkpoints."""
    retention_max_size_mib: Annotated[int, Field(ge=64, le=100_000_000)] = 2048
    """The oldest days are dropped while the store is larger than this."""
    allowed_targets: str = ""
    """Comma-separated hosts or networks that targets added through the API may have when not on loopback only."""
    alert_interval_s: Annotated[float, Field(ge=0.2, le=3600)] = 5.0
    """How often the alert rules are evaluated."""
    alertmanager_urls: str = ""
    """Comma-separated roots of Alertmanagers that every alert is sent to."""
    allowed_receivers: str = ""
    """Comma-separated hosts or networks that receivers added through the API may have when not on loopback only."""
    secrets_dir: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """Folder of the files that the credential of a receiver may be in (``file:NAME``)."""
    heartbeat_file: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """File that every role which goes on touches each 5 s while it is alive, for a probe that looks at its age."""
    log_level: LogLevel = LogLevel.INFO
    """Least severe log line that is written."""
    xdg_data_home: Annotated[Path | None, Field(validation_alias="XDG_DATA_HOME")] = None
    """The desktop standard's folder for data of a user; ``~/.local/share`` where it is not set."""

    def token(self) -> str | None:
        """The API's bearer token, from the variable or the file.

        Raises:
            InvalidInputError: both are set, the file cannot be read, or what is there is no token. It is not repeated.

        """
        if self.api_token_file is None:
            return None if self.api_token is None else _token(self.api_token.get_secret_value(), "API_TOKEN")
        if self.api_token is not None:
            raise _environment("API_TOKEN_FILE", f"{PREFIX}API_TOKEN is set as well", "one of the two")
        try:
            text = self.api_token_file.expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise _environment("API_TOKEN_FILE", f"{self.api_token_file} cannot be read ({why})", None) from None
        return _token(text.strip(), "API_TOKEN_FILE")

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
    is_secret = field is not None and "Secret" in str(field.annotation)
    return FieldProblem(variable, error["msg"] if is_secret else f"{error['msg']}, got {str(error['input'])!r}")


def _token(text: str, name: str) -> str:
    if not _VISIBLE.fullmatch(text):
        problem = "is empty" if not text else f"has {len(text)} characters, or some that cannot stand in a header"
        raise _environment(name, problem, _VISIBLE_ALLOWED)
    return text


def _environment(name: str, problem: str, allowed: str | None) -> InvalidInputError:
    return InvalidInputError([FieldProblem(PREFIX + name, problem, allowed)], what="environment")


def names(text: str) -> tuple[str, ...]:
    """The parts of a comma-separated setting."""
    return tuple(part for part in (p.strip() for p in text.split(",")) if part)


def secret_at(reference: str, folder: Path | None) -> str | None:
    """The credential at a reference: ``env:BARRIERSCOPE_SECRET_...`` or ``file:NAME`` in ``folder``; None: none there.

    Only these can be referred to: whoever may add a receiver must not read every variable and file through it.
    """
    kind, _, name = reference.partition(":")
    if kind == SecretKind.ENVIRONMENT and name.startswith(SECRET_PREFIX):
        return os.environ.get(name) or None
    if kind == SecretKind.FILE and folder is not None and name and name == Path(name).name:
        try:
            return (folder / name).read_text(encoding="utf-8").strip() or None
        except (OSError, ValueError):
            return None
    return None


def child_environment(**values: str) -> dict[str, str]:
    """The environment for a child process: this one's, with settings (by field name) put in or replaced."""
    return dict(os.environ) | {PREFIX + name.upper(): value for name, value in values.items()}
