"""Defines the settings ``BARRIERSCOPE_*`` with their defaults, units and bounds.

Only this module reads the environment; other modules receive the values. An option on the command line overrides a
setting, and a setting overrides its default. A value out of bounds raises ``InvalidInputError`` with the name of the
variable and the allowed values.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from backend.domain.address_rules import is_host, is_rule
from backend.domain.connection import CredentialPolicy
from backend.domain.errors import FieldProblem, InvalidInputError

PREFIX = "BARRIERSCOPE_"
SECRET_PREFIX = PREFIX + "SECRET_"

Port = Annotated[int, Field(ge=1, le=65535)]


class LogLevel(StrEnum):
    """The severities of log lines. Lines that are less severe than the configured level are not written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


# A token of this form is too long to guess, and is valid in an HTTP header.
_VISIBLE = re.compile(r"[!-~]{16,512}", re.ASCII)
_VISIBLE_ALLOWED = "16 to 512 visible ASCII characters; for example the output of `openssl rand -hex 32`"


_PREFIX_FORM = re.compile(r"[A-Z][A-Z0-9_]{2,99}", re.ASCII)
_AGE_RULE = re.compile(r"(?P<label>[^=,:\s]+)=(?P<value>[^,]*):(?P<days>\d+(\.\d+)?)", re.ASCII)
_AGE_MAX_DAYS = 3660


def _none_if_empty(value: object) -> object:
    # An empty variable counts as not set. Otherwise Path("") would be the current folder.
    return None if value == "" else value


def _networks(value: str) -> str:
    for part in names(value):
        try:
            ipaddress.ip_network(part, strict=False)
        except ValueError:
            raise ValueError(f"{part!r} is not an IP address or a network") from None
    return value


def _rules(value: str) -> str:
    wrong = [part for part in names(value) if not is_rule(part)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not a host name, *.NAME, an IP address or a network")
    return value


def _hosts(value: str) -> str:
    wrong = [part for part in names(value) if not is_host(part.removeprefix("[").removesuffix("]"))]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not a host name or an IP address")
    return value


def _public_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        is_valid = is_host(parts.hostname or "") and parts.port != 0
    except ValueError:
        # The address cannot be parsed: its port is not a number from 0 to 65535, or the brackets of an IPv6 address are
        # wrong.
        is_valid = False
    if not is_valid:
        raise ValueError(f"the host or the port of {value!r} is not valid")
    return value


def _env_prefix(value: str) -> str:
    if not _PREFIX_FORM.fullmatch(value):
        raise ValueError(f"{value!r} is not the beginning of the names of variables, such as FLINK_")
    own = {PREFIX + name.upper() for name in Settings.model_fields} | {SECRET_PREFIX}
    clash = next((name for name in sorted(own) if name.startswith(value)), None)
    if clash is not None:
        raise ValueError(f"{value!r} would give users of the API the value of {clash}; use another beginning")
    return value


def _credentials_folder(value: Path) -> Path:
    if not value.is_absolute() or ".." in value.parts or value == Path("/"):
        raise ValueError(f"{str(value)!r} is not the absolute path of a folder of its own")
    return value


def age_rules(text: str) -> tuple[tuple[str, str, float], ...]:
    """Split age limits of the form ``LABEL=VALUE:DAYS,...`` into (label, value, days).

    Raises:
        ValueError: a part has another form, or its days are not above 0 and at most 3660.
    """
    rules = []
    for part in names(text):
        match = _AGE_RULE.fullmatch(part)
        if match is None or not 0 < float(match["days"]) <= _AGE_MAX_DAYS:
            raise ValueError(f"{part!r} is not LABEL=VALUE:DAYS with more than 0 and at most {_AGE_MAX_DAYS} days")
        rules.append((match["label"], match["value"], float(match["days"])))
    return tuple(rules)


def _age_rules(value: str) -> str:
    age_rules(value)
    return value


class SecretKind(StrEnum):
    """The kinds of places that a reference to a credential can name: an environment variable or a file."""

    ENVIRONMENT = "env"
    FILE = "file"


class Settings(BaseSettings):
    """The settings of all roles. Each setting is read from the variable ``BARRIERSCOPE_<NAME>``."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address on which the API and the pages listen. An address other than loopback requires ``api_token``."""
    port: Port = 8050
    """Port of the API and the pages."""
    api_url: Annotated[str, Field(pattern=r"^https?://[^\s]+$")] = "http://127.0.0.1:8050"
    """Address of the running API for the commands that use it, such as ``barrierscope targets``."""
    api_token: Annotated[SecretStr | None, BeforeValidator(_none_if_empty)] = None
    """Bearer token of the API. It is required to listen on, or to connect to, an address other than loopback."""
    api_token_file: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """File with the bearer token, instead of ``api_token``."""
    public_url: Annotated[
        Annotated[str, Field(pattern=r"^https?://[^\s/?#@]+/?$"), AfterValidator(_public_url)] | None,
        BeforeValidator(_none_if_empty),
    ] = None
    """Public address of the pages behind a proxy, without a path, such as ``https://barrierscope.example``."""
    trusted_proxies: Annotated[str, AfterValidator(_networks)] = ""
    """Comma-separated addresses or networks of proxies whose ``X-Forwarded-For`` and ``-Proto`` headers are trusted."""
    database_url: Annotated[SecretStr | None, BeforeValidator(_none_if_empty)] = None
    """URL of the PostgreSQL database for roles that are started one by one. ``up`` starts its own server."""
    data_dir: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """Folder in which ``up`` stores the database, logs and run files."""
    runtime_host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address on which the live runtime's REST API listens."""
    runtime_port: Port = 18050
    """Port on which the live runtime's REST API listens."""
    runtime_warm_up_s: Annotated[float, Field(ge=0, le=3600)] = 20.0
    """Virtual seconds that the live runtime runs at its start, so that a history exists from the beginning."""
    runtime_allowed_hosts: Annotated[str, AfterValidator(_hosts)] = ""
    """Comma-separated host names that the live runtime's REST API accepts besides its own address and loopback."""
    built_in_target: str | None = None
    """Root URL of the live runtime of ``up``, which ``migrate`` adds as the built-in target.

    If this is empty, ``migrate`` removes the built-in target.
    """
    built_in_spark_demo: Annotated[bool | None, BeforeValidator(_none_if_empty)] = None
    """Whether ``up`` runs its Spark demo. If it is false, ``migrate`` removes the demo's target."""
    poll_interval_s: Annotated[float, Field(ge=0.2, le=3600)] = 2.0
    """Seconds between two polls of a target."""
    spool_dir: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """Folder in which the collector keeps observations while PostgreSQL is slow or unreachable."""
    spool_max_mib: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    """Largest size of the observations in ``spool_dir``, in MiB."""
    retention_max_age_days: Annotated[float, Field(gt=0, le=3660)] = 7.0
    """Checkpoints older than this many days are deleted."""
    rollup_retention_max_age_days: Annotated[float, Field(gt=0, le=36600)] = 90.0
    """Hourly rollups older than this many days are deleted. They are stored at least as long as checkpoints."""
    retention_arrays_max_age_days: Annotated[float, Field(gt=0, le=3660)] = 2.0
    """The arrays of healthy checkpoints older than this many days are deleted, except for samples."""
    retention_rules: Annotated[str, AfterValidator(_age_rules)] = ""
    """Comma-separated ``LABEL=VALUE:DAYS``: age limits for targets with that label. The first match is used."""
    retention_max_size_mib: Annotated[int, Field(ge=64, le=100_000_000)] = 2048
    """While the store is larger than this many MiB, arrays are deleted from its oldest days, and then whole days."""
    allowed_targets: Annotated[str, AfterValidator(_rules)] = ""
    """Comma-separated hosts or networks allowed for targets added through the API or found by a discovery.

    If it is empty, all are allowed if only this machine can reach the API, and none if the API listens beyond loopback
    or if ``public_url`` or ``trusted_proxies`` describes a proxy.
    """
    targets_file: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """File ``targets.yaml`` with targets that ``up`` and ``collect`` read, and read again when it changes."""
    target_credentials_env_prefix: Annotated[
        Annotated[str, AfterValidator(_env_prefix)] | None, BeforeValidator(_none_if_empty)
    ] = None
    """Targets that are added through the API may name variables that begin with this as credentials. Default: none."""
    target_credentials_dir: Annotated[
        Annotated[Path, AfterValidator(_credentials_folder)] | None, BeforeValidator(_none_if_empty)
    ] = None
    """Targets that are added through the API may name files in this folder as credentials. Default: none."""
    auto_roll_back: bool = False
    """Whether a change that Barrierscope sent to a running job is rolled back if the checkpoints are worse after it.

    It is sent once for each change, and at most once a day for each job.
    """
    alert_interval_s: Annotated[float, Field(ge=0.2, le=3600)] = 5.0
    """Seconds between two evaluations of the alert rules."""
    alertmanager_urls: str = ""
    """Comma-separated root URLs of Alertmanagers that receive every alert."""
    allowed_receivers: Annotated[str, AfterValidator(_rules)] = ""
    """Comma-separated hosts or networks allowed for receivers added through the API. The default is that of
    ``allowed_targets``.
    """
    secrets_dir: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """Folder with the files that contain the credentials of receivers. A receiver refers to a file as ``file:NAME``."""
    metrics_port: Annotated[Port | None, BeforeValidator(_none_if_empty)] = None
    """Port on which a role serves ``/metrics`` for Prometheus, without a token. If it is not set, there is none."""
    metrics_host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Address on which ``metrics_port`` listens."""
    heartbeat_file: Annotated[Path | None, BeforeValidator(_none_if_empty)] = None
    """File that a long-running role touches every 5 s, so that a probe can check its age."""
    log_level: LogLevel = LogLevel.INFO
    """Severity of the least severe log lines that are written."""
    xdg_config_home: Annotated[Path | None, Field(validation_alias="XDG_CONFIG_HOME")] = None
    """Folder for configuration in the XDG standard. ``diagnose`` reads ``barrierscope/targets.yaml`` in it."""
    xdg_data_home: Annotated[Path | None, Field(validation_alias="XDG_DATA_HOME")] = None
    """Folder for user data in the XDG standard. If the variable is not set, this is ``~/.local/share``."""
    xdg_runtime_dir: Annotated[Path | None, Field(validation_alias="XDG_RUNTIME_DIR")] = None
    """Folder for the run files of a user in the XDG standard. ``up`` leaves its address there for the commands."""
    xdg_state_home: Annotated[Path | None, Field(validation_alias="XDG_STATE_HOME")] = None
    """Folder for the state of programs in the XDG standard, if the above is not set. Default: ``~/.local/state``."""

    def token(self) -> str | None:
        """Return the API's bearer token from the variable or the file, or None if neither is set.

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

    def credential_policy(self) -> CredentialPolicy:
        """Return which credentials targets that are added through the API may name."""
        folder = self.target_credentials_dir
        return CredentialPolicy(
            is_everything_allowed=False,
            env_prefix=self.target_credentials_env_prefix,
            folder=None if folder is None else str(folder),
        )

    def config_home(self) -> Path:
        """Return the folder of Barrierscope's own configuration files of this user."""
        home = self.xdg_config_home if self.xdg_config_home and self.xdg_config_home.is_absolute() else None
        return (home or Path.home() / ".config") / "barrierscope"

    def data_dir_or_default(self) -> Path:
        """Return the folder for the data of ``up``.

        This is the setting ``data_dir`` if it is set. Otherwise it is ``/var/lib/barrierscope`` for root, and a folder
        in XDG's data home for other users.
        """
        if self.data_dir is not None:
            return self.data_dir.expanduser().absolute()
        # If this process runs as root, the database server runs as another user. That user must be able to enter
        # every parent folder of the data.
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            return Path("/var/lib/barrierscope")
        home = self.xdg_data_home if self.xdg_data_home and self.xdg_data_home.is_absolute() else None
        return (home or Path.home() / ".local" / "share") / "barrierscope"


def load_settings() -> Settings:
    """Read the settings from the environment.

    Raises:
        InvalidInputError: a variable is malformed or out of bounds. The error lists every such variable.
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
    if error["type"] == "value_error":
        # The message of a validator of this module already contains the wrong part of the value, so the value is not
        # added.
        return FieldProblem(variable, str(error["ctx"]["error"]))
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
    """Split a comma-separated setting into its non-empty parts."""
    return tuple(part for part in (p.strip() for p in text.split(",")) if part)


def secret_at(reference: str, folder: Path | None) -> str | None:
    """Return the credential that ``reference`` names, or None if there is none.

    A reference is ``env:BARRIERSCOPE_SECRET_...`` or ``file:NAME``, which is a file in ``folder``. For any other
    reference, return None, because a user who may add a receiver must not be able to read other variables and files
    through it.
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


def credential_environment() -> Mapping[str, str]:
    """Return the variables that references to credentials name. It is read for each request."""
    return os.environ


def child_environment(**values: str) -> dict[str, str]:
    """Return the environment for a child process: a copy of ours plus the settings in ``values``, by field name."""
    return dict(os.environ) | {PREFIX + name.upper(): value for name, value in values.items()}
