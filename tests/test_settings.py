"""Settings: every one from an argument and from the environment, who has the last word, and what is refused."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import rewarm
from rewarm import in_force, settings
from rewarm.errors import SettingError
from rewarm.in_force import HostOptions, Said, resolve

VARIABLES = {
    "directory": "REWARM_DIR",
    "min_compile_seconds": "REWARM_MIN_COMPILE_SECONDS",
    "min_entry_bytes": "REWARM_MIN_ENTRY_BYTES",
    "metadata_in_key": "REWARM_METADATA_IN_KEY",
    "check_contents": "REWARM_CHECK_CONTENTS",
    "strict": "REWARM_STRICT",
    "explain": "REWARM_EXPLAIN",
    "salt": "REWARM_SALT",
    "extra_files": "REWARM_EXTRA_FILES",
    "extra_variables": "REWARM_EXTRA_VARIABLES",
    "compression_level": "REWARM_COMPRESSION_LEVEL",
    "max_size": "REWARM_MAX_SIZE",
    "max_age": "REWARM_MAX_AGE",
    "max_entries": "REWARM_MAX_ENTRIES",
    "shared": "REWARM_SHARED",
    "verify_sample": "REWARM_VERIFY_SAMPLE",
    "load_check": "REWARM_LOAD_CHECK",
    "load_ahead": "REWARM_LOAD_AHEAD",
    "remote": "REWARM_REMOTE",
    "namespace": "REWARM_NAMESPACE",
    "read_namespaces": "REWARM_READ_NAMESPACES",
    "upload_seconds": "REWARM_UPLOAD_SECONDS",
    "signing_key": "REWARM_SIGNING_KEY",
    "signing_command": "REWARM_SIGNING_COMMAND",
    "trusted_keys": "REWARM_TRUSTED_KEYS",
    "autotune": "REWARM_AUTOTUNE",
    "autotune_incomplete": "REWARM_AUTOTUNE_INCOMPLETE",
    "autotune_lock": "REWARM_AUTOTUNE_LOCK",
    "autotune_lock_policy": "REWARM_AUTOTUNE_LOCK_POLICY",
    "tuned_options": "REWARM_TUNED_OPTIONS",
    "untuned": "REWARM_UNTUNED",
    "summary": "REWARM_SUMMARY",
}
TRUTH = ("metadata_in_key", "check_contents", "strict", "explain", "shared", "autotune")
TRUE_WORDS = ("1", "true", "True", "TRUE", "yes", "on", " On ")
FALSE_WORDS = ("0", "false", "no", "off", "OFF")

GOOD_TEXTS: list[tuple[str, str, Any]] = [
    ("directory", "/var/cache/x", Path("/var/cache/x")),
    ("min_compile_seconds", "0", 0.0),
    ("min_compile_seconds", "1.5", 1.5),
    ("min_compile_seconds", "1e-3", 0.001),
    ("min_entry_bytes", "0", 0),
    ("min_entry_bytes", "-1", -1),
    ("min_entry_bytes", "4096", 4096),
    ("salt", "my salt", "my salt"),
    ("salt", " ", " "),
    ("extra_files", "/data/a:/data/b", (Path("/data/a"), Path("/data/b"))),
    ("extra_files", ":/data/a: ", (Path("/data/a"),)),
    ("extra_variables", "B, A,A,", ("A", "B")),
    ("compression_level", "1", 1),
    ("compression_level", "22", 22),
    ("max_size", "0", 0),
    ("max_size", "4096", 4096),
    ("max_size", "500MB", 500 * 1000**2),
    ("max_size", "10GiB", 10 << 30),
    ("max_size", " 1.5 gib ", 3 << 29),
    ("max_size", "2T", 2 << 40),
    ("max_size", "64k", 64 << 10),
    ("max_size", "none", -1),
    ("max_size", "-1", -1),
    ("max_size", "unlimited", -1),
    ("max_age", "90", 90.0),
    ("max_age", "12h", 12 * 3600.0),
    ("max_age", "30d", 30 * 86400.0),
    ("max_age", "2 w", 14 * 86400.0),
    ("max_age", "10min", 600.0),
    ("max_age", "none", -1.0),
    ("max_entries", "1000", 1000),
    ("max_entries", "none", -1),
    ("verify_sample", "0", 0.0),
    ("verify_sample", "0.01", 0.01),
    ("verify_sample", "1", 1.0),
    ("load_check", "subprocess", "subprocess"),
    ("load_check", "Subprocess", "subprocess"),
    ("load_check", "none", ""),
    ("load_check", "0", ""),
    ("load_ahead", "Early", "early"),
    ("load_ahead", "on", "yes"),
    ("load_ahead", "no", ""),
    *[(name, word, True) for name in TRUTH for word in TRUE_WORDS],
    *[(name, word, False) for name in TRUTH for word in FALSE_WORDS],
    (
        "remote",
        "s3://bucket/prefix?region=x, redis://127.0.0.1:1/0,",
        ("s3://bucket/prefix?region=x", "redis://127.0.0.1:1/0"),
    ),
    ("remote", "none", ()),
    ("namespace", " pr-12 ", "pr-12"),
    ("read_namespaces", "pr-12,main", ("pr-12", "main")),
    ("upload_seconds", "0", 0.0),
    ("signing_key", "rewarm-hmac-secret:AA==", "rewarm-hmac-secret:AA=="),
    ("signing_command", "vault read key", "vault read key"),
    ("trusted_keys", "/keys/a.pub, rewarm-ed25519:AA== CI", ("/keys/a.pub", "rewarm-ed25519:AA== CI")),
    ("autotune_incomplete", "refresh", "refresh"),
    ("autotune_incomplete", " Refuse ", "refuse"),
    ("autotune_incomplete", "serve", "serve"),
    ("autotune_lock", "/src/h200.lock", Path("/src/h200.lock")),
    ("autotune_lock", "none", Path()),
    ("autotune_lock_policy", "error", "error"),
    ("autotune_lock_policy", "warn", "warn"),
    ("tuned_options", "0", False),
    ("tuned_options", "1", True),
    ("untuned", "error", "error"),
    ("untuned", "default", "default"),
    ("summary", "1", True),
    ("summary", "off", False),
]
GOOD_VALUES: list[tuple[str, Any, Any]] = [
    *GOOD_TEXTS,
    ("directory", Path("/var/cache/x"), Path("/var/cache/x")),
    ("min_compile_seconds", 2, 2.0),
    ("min_compile_seconds", 0.25, 0.25),
    ("min_entry_bytes", 7, 7),
    ("min_entry_bytes", -1, -1),
    ("salt", "", ""),
    ("extra_files", Path("/data/a"), (Path("/data/a"),)),
    ("extra_files", ["/data/a", Path("/data/b")], (Path("/data/a"), Path("/data/b"))),
    ("extra_files", [], ()),
    ("extra_variables", ["B", "A"], ("A", "B")),
    ("extra_variables", (), ()),
    ("compression_level", 19, 19),
    ("max_size", 10 << 30, 10 << 30),
    ("max_size", 1e9, 10**9),
    ("max_size", -1, -1),
    ("max_age", 0.5, 0.5),
    ("max_age", -1, -1.0),
    ("max_entries", 7, 7),
    ("verify_sample", 0.5, 0.5),
    ("load_check", False, ""),
    ("load_ahead", False, ""),
    ("load_ahead", True, "yes"),
    ("load_ahead", "early", "early"),
    *[(name, value, value) for name in TRUTH for value in (True, False)],
    ("remote", ["s3://bucket"], ("s3://bucket",)),
    ("remote", (), ()),
    ("namespace", "main", "main"),
    ("read_namespaces", ["a", "b"], ("a", "b")),
    ("upload_seconds", 5, 5.0),
    ("signing_key", b"rewarm-hmac-secret:AA==", "rewarm-hmac-secret:AA=="),
    ("signing_command", "vault", "vault"),
    ("trusted_keys", ("a", "b"), ("a", "b")),
    ("autotune_lock", Path("/src/h200.lock"), Path("/src/h200.lock")),
]
NO_TRUTH: tuple[Any, ...] = (1, 0, 0.0, [])
BAD_TEXTS: list[tuple[str, str]] = [
    ("directory", "gs://bucket/cache"),
    ("directory", "file:///var/cache"),
    ("directory", "~no-such-user-of-this-machine/cache"),
    ("min_compile_seconds", "-1"),
    ("min_compile_seconds", "nan"),
    ("min_compile_seconds", "inf"),
    ("min_compile_seconds", "1 s"),
    ("min_compile_seconds", "soon"),
    ("min_entry_bytes", "-2"),
    ("min_entry_bytes", "1.5"),
    ("min_entry_bytes", "4k"),
    ("compression_level", "0"),
    ("compression_level", "23"),
    ("compression_level", "-1"),
    ("compression_level", "3.0"),
    ("compression_level", "best"),
    ("max_size", "-2"),
    ("max_size", "10 gigs"),
    ("max_size", "GiB"),
    ("max_size", "nan"),
    ("max_size", "inf"),
    ("max_size", "9e99"),
    ("max_size", "1e400"),
    ("max_age", "0"),
    ("max_age", "0d"),
    ("max_age", "soon"),
    ("max_age", "3 months"),
    ("max_entries", "0"),
    ("max_entries", "1.5"),
    ("max_entries", "10k"),
    ("verify_sample", "2"),
    ("verify_sample", "-0.1"),
    ("verify_sample", "1%"),
    ("verify_sample", "nan"),
    ("load_check", "thread"),
    ("load_ahead", "late"),
    ("load_check", "1"),
    *[(name, word) for name in TRUTH for word in ("2", "-1", "y", "maybe", "truee")],
]
BAD_VALUES: list[tuple[str, Any]] = [
    *BAD_TEXTS,
    ("directory", ""),
    ("directory", b"/var/cache"),
    ("directory", 7),
    ("directory", ["/var/cache"]),
    ("directory", "/var/cache/nul\0byte"),
    ("min_compile_seconds", True),
    ("min_compile_seconds", -0.001),
    ("min_compile_seconds", float("nan")),
    ("min_compile_seconds", float("inf")),
    ("min_compile_seconds", 10**400),
    ("min_compile_seconds", [1.0]),
    ("min_entry_bytes", 1.5),
    ("min_entry_bytes", True),
    ("min_entry_bytes", -2),
    ("min_entry_bytes", [1]),
    ("salt", 7),
    ("salt", b"salt"),
    ("extra_files", 7),
    ("extra_files", [7]),
    ("extra_files", [""]),
    ("extra_files", "s3://bucket/a"),
    ("extra_variables", 7),
    ("extra_variables", "A=1"),
    ("extra_variables", [""]),
    ("compression_level", 0),
    ("compression_level", 23),
    ("compression_level", 3.0),
    ("compression_level", True),
    ("max_size", True),
    ("max_size", [1]),
    ("max_size", b"1"),
    ("max_age", True),
    ("max_age", 0),
    ("max_age", -2),
    ("max_entries", 0),
    ("max_entries", False),
    ("verify_sample", True),
    ("verify_sample", 1.0001),
    ("verify_sample", float("nan")),
    ("load_check", True),
    ("load_ahead", 2),
    *[(name, value) for name in TRUTH for value in NO_TRUTH],
    ("remote", 3),
    ("namespace", "a/b"),
    ("namespace", "../main"),
    ("namespace", 3),
    ("read_namespaces", "main,a b"),
    ("read_namespaces", 3),
    ("upload_seconds", -1),
    ("signing_key", 3),
    ("signing_command", 3),
    ("trusted_keys", 3),
    ("autotune", "maybe"),
    ("autotune_incomplete", "ignore"),
    ("autotune_lock", "s3://bucket/x.lock"),
    ("autotune_lock_policy", "ignore"),
    ("tuned_options", "perhaps"),
    ("untuned", "nearest"),
    ("summary", "perhaps"),
]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("REWARM", "JAX_")):
            monkeypatch.delenv(name)


def short(value: object) -> str:
    """How a case is called in reports."""
    return repr(value)[:40]


def refused(call: Any, **arguments: Any) -> str:
    """The message of the `SettingError` that a call raises."""
    with pytest.raises(SettingError) as caught:
        call(**arguments)
    return str(caught.value)


# ---------------------------------------------------------------------------------------------------------------
# One setting


def test_the_tables_of_this_test_cover_every_setting() -> None:
    names = list(Said._fields)
    assert list(VARIABLES) == names
    for cases in (GOOD_TEXTS, GOOD_VALUES, BAD_VALUES):
        assert {case[0] for case in cases} == set(names)


def test_enable_and_the_readme_have_every_setting() -> None:
    assert {*VARIABLES} - {"directory"} == {*inspect.signature(rewarm.enable).parameters} - {"directory"}
    assert rewarm.enable.__doc__ is not None
    readme = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    for name, variable in VARIABLES.items():
        assert f"\n      {name}: " in rewarm.enable.__doc__
        assert f"| `{name}` | `{variable}`" in readme


@pytest.mark.parametrize(("name", "value", "expected"), GOOD_VALUES)
def test_a_good_argument_is_taken(name: str, value: Any, expected: Any) -> None:
    assert settings.say(**{name: value}) == Said(**{name: expected})


@pytest.mark.parametrize(("name", "text", "expected"), GOOD_TEXTS)
def test_a_good_variable_is_taken(name: str, text: str, expected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES[name], text)
    assert settings.say() == Said(**{name: expected})
    assert settings.say() == Said(**{name: expected})


@pytest.mark.parametrize(("name", "value"), BAD_VALUES, ids=short)
def test_a_bad_argument_is_refused_with_what_and_expected_and_found(name: str, value: Any) -> None:
    message = refused(settings.say, **{name: value})
    assert message.startswith(f"rewarm.enable({name}=...): expected ")
    shown = repr(value) if len(repr(value)) <= 100 else f"{repr(value)[:97]}..."
    assert message.endswith(f", found {shown}")
    assert settings._FORMS[name][2] in message


@pytest.mark.parametrize(("name", "text"), BAD_TEXTS)
def test_a_bad_variable_is_refused_with_what_and_expected_and_found(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLES[name], text)
    for call in (settings.say,):
        message = refused(call)
        assert message.startswith(f"{VARIABLES[name]}: expected ")
        assert message.endswith(f", found {text!r}")


def test_a_url_is_told_to_be_one() -> None:
    assert "not a URL" in refused(settings.say, directory="s3://bucket")


@pytest.mark.parametrize("name", VARIABLES)
def test_an_empty_variable_says_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES[name], "")
    assert settings.say() == Said()


@pytest.mark.parametrize("name", VARIABLES)
def test_none_says_nothing(name: str) -> None:
    assert settings.say(**{name: None}) == Said()


def test_setting_errors_are_value_errors() -> None:
    assert issubclass(SettingError, ValueError)


# ---------------------------------------------------------------------------------------------------------------
# Names


@pytest.mark.parametrize(
    ("name", "meant"),
    [("dir", None), ("directroy", "directory"), ("min_compile_secs", "min_compile_seconds"), ("Strict", "strict")],
)
def test_an_unknown_argument_is_refused_with_a_suggestion(name: str, meant: str | None) -> None:
    message = refused(settings.say, **{name: 1})
    assert f"unknown setting {name!r}" in message
    assert ("did you mean" in message) == (meant is not None)
    assert meant is None or f"did you mean {meant}?" in message
    for good in VARIABLES:
        assert good in message


def test_an_unknown_variable_is_told_with_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.unknown_variables() == []
    monkeypatch.setenv("REWARM_DIRECTORY", "/x")
    monkeypatch.setenv("REWARM_STRICKT", "1")
    monkeypatch.setenv("REWARMING", "not ours")
    lines = settings.unknown_variables()
    assert len(lines) == 2
    assert lines[0].startswith("unknown variable REWARM_DIRECTORY is ignored")
    assert "did you mean REWARM_STRICT?" in lines[1]
    assert "REWARM_COMPRESSION_LEVEL" in lines[1]


def test_every_known_variable_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in settings.VARIABLES:
        monkeypatch.setenv(name, "1")
    assert settings.unknown_variables() == []
    watching = {"REWARM_METRICS_TEXTFILE", "REWARM_METRICS_SECONDS", "REWARM_OPENTELEMETRY", "REWARM_LOG"}
    assert set(VARIABLES.values()) | {"REWARM", "REWARM_STATS"} | watching == set(settings.VARIABLES)


# ---------------------------------------------------------------------------------------------------------------
# Precedence

# Setting, variable's text, what it says, another value as an argument, JAX's option, JAX's value, default.
PRECEDENCE: list[tuple[str, str, Any, Any, str | None, Any, Any]] = [
    ("min_compile_seconds", "2", 2.0, 0.0, "min_compile_seconds", 3.0, 0.0),
    ("min_entry_bytes", "20", 20, 0, "min_entry_bytes", 30, 0),
    ("metadata_in_key", "1", True, False, "metadata_in_key", True, False),
    ("check_contents", "1", True, False, "check_contents", True, False),
    ("strict", "1", True, False, "raise_errors", True, False),
    ("explain", "1", True, False, "explain_misses", True, False),
    ("salt", "from the environment", "from the environment", "", None, None, ""),
    ("compression_level", "9", 9, 1, None, None, 3),
    ("max_size", "1GiB", 1 << 30, 1 << 20, "max_size", 5 << 20, None),
    ("max_size", "none", -1, 1 << 20, "max_size", 5 << 20, None),
    ("max_age", "1d", 86400.0, 60.0, None, None, -1.0),
    ("max_entries", "10", 10, 20, None, None, 100_000),
    ("shared", "1", True, False, None, None, False),
    ("verify_sample", "0.25", 0.25, 1.0, None, None, 0.0),
    ("load_check", "subprocess", "subprocess", "none", None, None, ""),
    ("load_ahead", "early", "early", "yes", None, None, "yes"),
]


@pytest.mark.parametrize(("name", "text", "said", "argument", "option", "theirs", "default"), PRECEDENCE)
def test_argument_over_environment_over_jax_over_default(
    name: str,
    text: str,
    said: Any,
    argument: Any,
    option: str | None,
    theirs: Any,
    default: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def in_force(host: HostOptions, **arguments: Any) -> Any:
        return getattr(resolve(settings.say(**arguments), host), name)

    jax = HostOptions(**{option: theirs}) if option else HostOptions()
    assert in_force(HostOptions()) == default
    if option:
        assert in_force(jax) == theirs
    given = {"none": ""}.get(argument, argument)
    assert in_force(jax, **{name: argument}) == given, "an argument stands over JAX"
    monkeypatch.setenv(VARIABLES[name], text)
    assert in_force(HostOptions()) == said
    assert in_force(jax) == said
    assert in_force(jax, **{name: argument}) == given, "an argument stands over the environment"


@pytest.mark.parametrize("name", TRUTH)
def test_a_false_variable_stands_over_jax(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = HostOptions(metadata_in_key=True, check_contents=True, raise_errors=True, explain_misses=True)
    monkeypatch.setenv(VARIABLES[name], "0")
    assert getattr(resolve(settings.say(), jax), name) is False


def test_the_directory_of_rewarm_over_that_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = HostOptions(directory="/of/jax")

    def directory(host: HostOptions, **arguments: Any) -> Path:
        return resolve(settings.say(**arguments), host).directory

    assert directory(HostOptions()) == in_force.default_directory()
    assert directory(jax) == Path("/of/jax/rewarm"), "beside JAX's own entries, not among them"
    assert directory(HostOptions(directory="")) == in_force.default_directory()
    monkeypatch.setenv("REWARM_DIR", "/of/environment")
    assert directory(jax) == Path("/of/environment")
    assert directory(jax, directory="/of/argument") == Path("/of/argument")


def test_an_argument_hides_a_good_variable_of_its_own_setting_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARM_SALT", "environment")
    monkeypatch.setenv("REWARM_STRICT", "1")
    assert settings.say(salt="argument") == Said(salt="argument", strict=True)


def test_the_bound_of_jax_is_carried_over() -> None:
    assert resolve(Said(), HostOptions()).max_size is None, "JAX's -1 cannot be told from unset: the default"
    assert resolve(Said(), HostOptions(max_size=0)).max_size == 0
    assert resolve(Said(), HostOptions(max_size=7)).max_size == 7


@pytest.mark.parametrize(
    ("free", "held", "bound"),
    [
        (1 << 40, 0, 10 << 30),
        (50 << 30, 0, 5 << 30),
        (45 << 30, 5 << 30, 5 << 30),
        (0, 0, 0),
        (100 << 30, 0, 10 << 30),
        (0, 1 << 20, 1 << 20),
        (9 << 30, 2 << 30, 2 << 30),
        (0, 50 << 30, 10 << 30),
    ],
)
def test_the_default_bound_is_ten_gibibytes_or_a_tenth_of_the_disk(free: int, held: int, bound: int) -> None:
    assert in_force.default_max_size(free, held) == bound


def test_a_threshold_that_was_chosen_is_known_as_such() -> None:
    assert not resolve(Said(), HostOptions()).threshold_said
    assert resolve(Said(min_compile_seconds=0.0), HostOptions()).threshold_said
    assert resolve(Said(), HostOptions(min_compile_seconds=2.0)).threshold_said


def test_the_options_of_a_command_stand_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARM_MAX_SIZE", "1GiB")
    monkeypatch.setenv("REWARM_MAX_AGE", "1d")
    found = settings.of_command(max_size="5MiB", max_entries=None)
    assert (found.max_size, found.max_age, found.max_entries) == (5 << 20, 86400.0, 100_000)
    monkeypatch.delenv("REWARM_MAX_SIZE")
    monkeypatch.setenv("JAX_COMPILATION_CACHE_MAX_SIZE", "12345")
    assert settings.of_command().max_size == 12345
    with pytest.raises(SettingError, match=r"--max-size: expected bytes, .*10GiB.*, found 'much'"):
        settings.of_command(max_size="much")


# ---------------------------------------------------------------------------------------------------------------
# Directories


def test_a_relative_directory_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings.say(directory="cache").directory == tmp_path / "cache"
    monkeypatch.setenv("REWARM_DIR", "./deep/cache")
    assert settings.say().directory == tmp_path / "deep" / "cache"
    found = resolve(Said(), HostOptions(directory="of-jax")).directory
    assert found == tmp_path / "of-jax" / "rewarm"
    monkeypatch.chdir("/")
    assert found.is_absolute()


def test_a_tilde_is_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert settings.say(directory="~/cache").directory == Path("/home/someone/cache")
    assert resolve(Said(), HostOptions(directory="~/jax")).directory == Path("/home/someone/jax/rewarm")


def test_the_default_follows_the_platforms_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("the cache folder of this platform is not named by XDG_CACHE_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert in_force.default_directory() == tmp_path / "xdg" / "rewarm"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "someone"))
    assert in_force.default_directory() == tmp_path / "someone" / ".cache" / "rewarm"


@pytest.mark.parametrize("home", ["", " ", "relative/home", "~", "/"])
@pytest.mark.parametrize("variable", ["HOME", "XDG_CACHE_HOME"])
def test_the_default_is_absolute_whatever_the_environment_says(
    variable: str, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(variable, home)
    assert in_force.default_directory().is_absolute()


HOMELESS_USER = 54321
_DEFAULT_OF_A_HOMELESS_USER = f"""
import os, tempfile, platformdirs
from rewarm import in_force, settings
from rewarm.in_force import HostOptions, Said, resolve
platformdirs.user_cache_path("warm up the imports")
os.setgroups([]); os.setgid({HOMELESS_USER}); os.setuid({HOMELESS_USER})
print(in_force.default_directory())
print(resolve(Said(), HostOptions()).directory)
"""


def _can_become(user: int) -> bool:
    import pwd

    try:
        pwd.getpwuid(user)
    except KeyError:
        return os.getuid() == 0
    return False


@pytest.mark.parametrize("home", [None, "/", "/nonexistent", "/root/not/his"])
def test_a_user_without_home_and_passwd_entry_has_a_default(tmp_path: Path, home: str | None) -> None:
    if not _can_become(HOMELESS_USER):
        pytest.skip("no right to become a user without a passwd entry")
    environment = {name: value for name, value in os.environ.items() if name not in {"HOME", "XDG_CACHE_HOME"}}
    if home is not None:
        environment["HOME"] = home
    done = subprocess.run(
        [sys.executable, "-c", _DEFAULT_OF_A_HOMELESS_USER],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(Path(tempfile.gettempdir()) / f"rewarm-{HOMELESS_USER}")] * 2


def test_a_command_looks_where_a_program_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings.directory_of_command(None) == in_force.default_directory()
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/of/jax")
    assert settings.directory_of_command(None) == Path("/of/jax/rewarm")
    monkeypatch.setenv("REWARM_DIR", "/of/environment")
    assert settings.directory_of_command(None) == Path("/of/environment")
    assert settings.directory_of_command(Path("given")) == tmp_path / "given"
    monkeypatch.setenv("REWARM_DIR", "gs://bucket")
    assert "not a URL" in refused(lambda: settings.directory_of_command(None))


# ---------------------------------------------------------------------------------------------------------------
# The switch


@pytest.mark.parametrize(
    ("variables", "mentions", "asks"),
    [
        ({}, False, False),
        ({"REWARM": ""}, False, False),
        ({"REWARM": " "}, True, False),
        ({"REWARM": "1"}, True, True),
        ({"REWARM": "on"}, True, True),
        ({"REWARM": "0"}, True, False),
        ({"REWARM_DIR": "/x"}, True, True),
        ({"REWARM_DIR": "/x", "REWARM": ""}, True, True),
        ({"REWARM_DIR": "/x", "REWARM": "off"}, True, False),
        ({"REWARM_DIR": ""}, False, False),
        ({"REWARM_STRICT": "1"}, False, False),
    ],
    ids=str,
)
def test_the_environment_turns_rewarm_on(
    variables: dict[str, str], mentions: bool, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert settings.environment_mentions_rewarm() is mentions
    assert settings.environment_asks() is asks


def test_a_switch_that_is_neither_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARM", "perhaps")
    assert refused(settings.environment_asks).startswith("REWARM: expected ")


@pytest.mark.parametrize(
    ("word", "form"),
    [(None, ""), ("", ""), ("0", ""), ("off", ""), ("1", "text"), ("json", "json"), ("JSON", "json"), ("text", "text")],
)
def test_the_form_of_the_numbers_at_exit(word: str | None, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if word is not None:
        monkeypatch.setenv("REWARM_STATS", word)
    assert settings.stats_at_exit() == form


def test_a_child_is_turned_on_and_keeps_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARM", "0")
    monkeypatch.setenv("REWARM_SALT", "salt")
    plain = settings.child_environment(None, "")
    assert (plain["REWARM"], plain["REWARM_SALT"]) == ("1", "salt")
    assert "REWARM_DIR" not in plain
    assert "REWARM_STATS" not in plain
    told = settings.child_environment(Path("/x"), "json")
    assert (told["REWARM_DIR"], told["REWARM_STATS"]) == ("/x", "json")
    assert os.environ["REWARM"] == "0"


def test_the_threads_of_the_cpu_client(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    for text, threads in (("", allowed), ("x", allowed), ("0", allowed), ("7", 7)):
        monkeypatch.setenv("NPROC", text)
        assert settings.cpu_threads() == threads


def test_flags_in_a_file_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    flags = tmp_path / "flags"
    flags.write_text("--xla_fuel=fusion=1")
    for given, seen in (("--a=b", "--a=b"), ("", ""), (str(flags), "--xla_fuel=fusion=1"), ("nowhere", "nowhere")):
        monkeypatch.setenv("XLA_FLAGS", given)
        assert settings.xla_flags() == seen
