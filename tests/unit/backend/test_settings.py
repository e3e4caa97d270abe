"""Tests of the settings: the environment is read once, and an error names the variable and its allowed range."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.domain.errors import InvalidInputError
from backend.settings import PREFIX, Settings, load_settings

# The name of each numeric setting must show whether it is a size, a time or a count. Port numbers are none of these.
_UNITLESS = {"port", "runtime_port"}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PORT", "0"),
        ("PORT", "65536"),
        ("PORT", "http"),
        ("RUNTIME_PORT", "-1"),
        ("POLL_INTERVAL_S", "0.1"),
        ("RUNTIME_WARM_UP_S", "-1"),
        ("RETENTION_MAX_AGE_DAYS", "0"),
        ("RETENTION_MAX_SIZE_MIB", "1"),
        ("RETENTION_ARRAYS_MAX_AGE_DAYS", "0"),
        ("RETENTION_RULES", "environment=dev"),
        ("RETENTION_RULES", "environment=dev:0"),
        ("RETENTION_RULES", "environment=dev:2,prod:30"),
        ("LOG_LEVEL", "loud"),
        ("API_URL", "ftp://x"),
        ("HOST", ""),
        ("PUBLIC_URL", "barrierscope.example"),
        ("PUBLIC_URL", "https://barrierscope.example/behind/a/path"),
        ("PUBLIC_URL", "https://user@barrierscope.example"),
        ("TRUSTED_PROXIES", "*"),
        ("TRUSTED_PROXIES", "10.0.0.0/8,ingress"),
        ("PUBLIC_URL", "https://[::zz]"),
        ("PUBLIC_URL", "https://barrierscope.example:65536"),
        ("PUBLIC_URL", "https://barrierscope..example"),
        ("RUNTIME_ALLOWED_HOSTS", "runtime,*"),
        ("ALLOWED_TARGETS", "http://flink:8081"),
        ("ALLOWED_RECEIVERS", "10.0.0.0/33"),
    ],
)
def test_a_value_out_of_bounds_names_its_variable(monkeypatch, variable, value):
    monkeypatch.setenv(PREFIX + variable, value)

    with pytest.raises(InvalidInputError) as refused:
        load_settings()

    assert [p.field for p in refused.value.problems] == [PREFIX + variable]


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("ALLOWED_TARGETS", "flink,flink:8081", "'flink:8081' is not a host name, *.NAME, an IP address or a network"),
        ("ALLOWED_RECEIVERS", "*", "'*' is not a host name, *.NAME, an IP address or a network"),
        ("RUNTIME_ALLOWED_HOSTS", "a\x1b[31m", r"'a\x1b[31m' is not a host name or an IP address"),
        ("TRUSTED_PROXIES", "ingress", "'ingress' is not an IP address or a network"),
        ("PUBLIC_URL", "http://a..b", "the host or the port of 'http://a..b' is not valid"),
    ],
)
def test_a_wrong_entry_of_a_list_is_named_in_one_line(monkeypatch, variable, value, message):
    monkeypatch.setenv(PREFIX + variable, value)

    with pytest.raises(InvalidInputError) as refused:
        load_settings()

    assert str(refused.value) == f"invalid environment: {PREFIX}{variable}: {message}"


def test_every_bad_variable_is_listed_at_once(monkeypatch):
    monkeypatch.setenv(PREFIX + "PORT", "0")
    monkeypatch.setenv(PREFIX + "LOG_LEVEL", "loud")

    with pytest.raises(InvalidInputError) as refused:
        load_settings()

    assert {p.field for p in refused.value.problems} == {PREFIX + "PORT", PREFIX + "LOG_LEVEL"}


def test_a_secret_is_not_shown():
    assert "hunter2" not in repr(Settings(api_token="hunter2", database_url="postgresql://u:hunter2@h/d"))


_TOKEN = "0123456789abcdef"


@pytest.mark.parametrize("text", ["short", "x" * 513, "sixteen letters ", "sixteen-lettersä", "sixteen\nletters!"])
@pytest.mark.parametrize("is_file", [False, True])
def test_a_bad_token_names_its_place_and_what_is_allowed_and_is_not_repeated(monkeypatch, tmp_path, text, is_file):
    if is_file:
        (tmp_path / "token").write_text(text + "!")
    monkeypatch.setenv(*(("BARRIERSCOPE_API_TOKEN_FILE", str(tmp_path / "token")) if is_file else _set(text)))

    with pytest.raises(InvalidInputError) as refused:
        load_settings().token()

    (problem,) = refused.value.problems
    assert problem.field == ("BARRIERSCOPE_API_TOKEN_FILE" if is_file else "BARRIERSCOPE_API_TOKEN")
    assert "16 to 512 visible ASCII characters" in str(problem.allowed)
    assert text not in str(refused.value)


def _set(text):
    return "BARRIERSCOPE_API_TOKEN", text


def test_an_empty_token_is_none():
    assert Settings(api_token="", api_token_file="").token() is None


def test_the_token_is_read_from_a_file_without_the_line_end(tmp_path):
    (tmp_path / "token").write_text(_TOKEN + "\n")

    assert Settings(api_token_file=tmp_path / "token").token() == _TOKEN


def test_an_empty_file_is_no_token_and_an_error(tmp_path):
    (tmp_path / "token").write_text("\n")

    with pytest.raises(InvalidInputError, match="BARRIERSCOPE_API_TOKEN_FILE: is empty"):
        Settings(api_token_file=tmp_path / "token").token()


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidInputError, match="cannot be read"):
        Settings(api_token_file=tmp_path / "token").token()


def test_a_token_and_a_file_are_one_too_many(tmp_path):
    with pytest.raises(InvalidInputError, match="BARRIERSCOPE_API_TOKEN is set too"):
        Settings(api_token=_TOKEN, api_token_file=tmp_path / "token").token()


def test_every_number_says_its_unit():
    numbers = {n for n, f in Settings.model_fields.items() if f.annotation in (int, float)} - _UNITLESS

    assert numbers
    assert all(n.endswith(("_s", "_days", "_mib")) for n in numbers)


def test_the_data_folder_is_the_one_set(monkeypatch, tmp_path):
    monkeypatch.setenv(PREFIX + "DATA_DIR", str(tmp_path))

    assert load_settings().data_dir_or_default() == tmp_path


def test_the_data_folder_of_root_is_where_the_database_user_can_reach_it(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)

    assert load_settings().data_dir_or_default() == Path("/var/lib/barrierscope")


def test_the_data_folder_of_a_user_is_under_the_data_home(monkeypatch, tmp_path):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_settings().data_dir_or_default() == tmp_path / ".local" / "share" / "barrierscope"

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    assert load_settings().data_dir_or_default() == tmp_path / "xdg" / "barrierscope"

    # The XDG standard says that a relative folder is invalid and must be ignored.
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert load_settings().data_dir_or_default() == tmp_path / ".local" / "share" / "barrierscope"


def test_an_empty_data_folder_is_none_and_not_the_current_folder(monkeypatch):
    monkeypatch.setenv(PREFIX + "DATA_DIR", "")

    assert load_settings().data_dir is None
