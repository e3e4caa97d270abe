"""The settings ``BARRIERSCOPE_*`` with their defaults, units and bounds. Only this module reads the environment.

Other modules receive values. An option on the command line overrides a setting, and a setting overrides its default.
A value out of bounds raises ``InvalidInputError`` with the name of the variable and the allowed values.
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


# Too long to guess, and valid in an HTTP header.
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
    """Address on which the API and the pages listen. Any other than loopback needs ``api_token``."""
    port: Port = 8050
    """Port of the API and the pages."""
    api_url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")] = "http://127.0.0.1:8050"
    """Address of the running API for the commands that use it, such as ``barrierscope targets``."""
    api_token: Annotated[SecretStr | None, BeforeValidator(_none_if_empty)] = None
    """Bearer token of the API. It is needed to listen on, or to reach, an address that is not loopback."""
    api_token_file: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """File with the bearer token, instead of ``api_token``."""
    public_url: Annotated[
        Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+/?$")] | None, BeforeValidator(_none_if_empty)
    ] = None
    """Public address of the pages behind a proxy: ``https://barrierscope.example``, without a path."""
    trusted_proxies: Annotated[str, AfterValidator(_networks)] = ""
    """Comma-separated addresses or networks of proxies whose ``X-Forwarded-For`` and ``-Proto`` are trusted."""
    database_url: Annotated[SecretStr | None, BeforeValidator(_none_if_empty)] = None
    """PostgreSQL for the roles that are started one by one; ``up`` starts its own."""
    data_dir: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """Data folder of ``up``: database, logs and run files."""
    runtime_host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address of the live runtime's REST."""
    runtime_port: Port = 18050
    """Port of the live runtime's REST."""
    runtime_warm_up_s: Annotated[float, Field(ge=0, le=3600)] = 20.0
    """Virtual seconds that the live runtime runs at its start, so that there is a history."""
    runtime_allowed_hosts: str = ""
    """Comma-separated host names that the live runtime's REST accepts in addition to its address and loopback."""
    built_in_target: str | None = None
    """Root of the live runtime that ``up`` runs. ``migrate`` registers it, or removes it if this is empty."""
    built_in_spark_demo: Annotated[bool | None, BeforeValidator(_none_if_empty)] = None
    """Whether ``up`` runs its Spark demo. If it is false, ``migrate`` removes the demo's target."""
    poll_interval_s: Annotated[float, Field(ge=0.2, le=3600)] = 2.0
    """Time between two readings of a target."""
    retention_max_age_days: Annotated[float, Field(gt=0, le=3660)] = 7.0
    """Checkpoints older than this are deleted."""
    rollup_retention_max_age_days: Annotated[float, Field(gt=0, le=36600)] = 90.0
    """Hourly rollups older than this are deleted. They are kept at least as long as checkpoints."""
    retention_max_size_mib: Annotated[int, Field(ge=64, le=100_000_000)] = 2048
    """The oldest days are deleted while the store is larger than this."""
    allowed_targets: str = ""
    """Comma-separated hosts or networks allowed for targets added through the API, if it listens beyond loopback."""
    alert_interval_s: Annotated[float, Field(ge=0.2, le=3600)] = 5.0
    """Time between two evaluations of the alert rules."""
    alertmanager_urls: str = ""
    """Comma-separated roots of Alertmanagers that receive every alert."""
    allowed_receivers: str = ""
    """Comma-separated hosts or networks allowed for receivers added through the API, if it listens beyond loopback."""
    secrets_dir: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """Folder with the files for the credentials of receivers (``file:NAME``)."""
    heartbeat_file: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """File that a long-running role touches every 5 s; a probe checks its age."""
    log_level: LogLevel = LogLevel.INFO
    """Least severe log line that is written."""
    xdg_data_home: Annotated[Path | None, Field(validation_alias="XDG_DATA_HOME")] = None
    """Folder for user data in the XDG standard; ``~/.local/share`` if it is not set."""

    def token(self) -> str | None:
        """The API's bearer token, from the variable or the file.

        Raises:
            InvalidInputError: both are set, the file cannot be read, or its content is not a valid token. The error
                does not contain the token.

        """
        if self.api_token_file is None:
            return None if self.api_token is None else _token(self.api_token.get_secret_value(), "API_TOKEN")
        if self.api_token is not None:
            raise _environment("API_TOKEN_FILE", f"{PREFIX}API_TOKEN is set too", "one of the two")
        try:
            text = self.api_token_file.expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise _environment("API_TOKEN_FILE", f"{self.api_token_file} cannot be read ({why})", None) from None
        return _token(text.strip(), "API_TOKEN_FILE")

    def data_dir_or_default(self) -> Path:
        """The data folder: the setting; or ``/var/lib/barrierscope`` for root; or else a folder in XDG's data home."""
        if self.data_dir is not None:
            return self.data_dir.expanduser().absolute()
        # For root, the database server runs as another user, which must be able to enter every folder above its data.
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
        problem = (
            "is empty"
            if not text
            else f"has {len(text)} characters, or contains characters that a header does not allow"
        )
        raise _environment(name, problem, _VISIBLE_ALLOWED)
    return text


def _environment(name: str, problem: str, allowed: str | None) -> InvalidInputError:
    return InvalidInputError([FieldProblem(PREFIX + name, problem, allowed)], what="environment")


def names(text: str) -> tuple[str, ...]:
    """The parts of a comma-separated setting."""
    return tuple(part for part in (p.strip() for p in text.split(",")) if part)


def secret_at(reference: str, folder: Path | None) -> str | None:
    """The credential at ``env:BARRIERSCOPE_SECRET_...`` or at ``file:NAME`` in ``folder``; None if there is none.

    Other references are not allowed: a user who may add a receiver must not read other variables and files through it.
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
    """The environment for a child process: a copy of this one with the given settings, by field name."""
    return dict(os.environ) | {PREFIX + name.upper(): value for name, value in values.items()}
