"""Settings: what the user said, and what is in force. The only file that reads the environment.

Not promised: that a setting given to `rewarm.enable` survives another call of it (each call states all of them).

Two steps, since three parties speak. `Said` holds what the user told rewarm itself: arguments of `enable`, over
`REWARM_*` variables. `Settings` is what is in force for one compilation: `Said`, over JAX's own options where the
user set those, over the defaults. The second step is taken again whenever an option of JAX changes, so a setting
takes effect at the next compile.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewarm.errors import SettingError

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


@dataclass(frozen=True, slots=True)
class Said:
    """What the user told rewarm; `None` means "not said"."""

    directory: Path | None = None
    min_compile_seconds: float | None = None
    min_entry_bytes: int | None = None
    metadata_in_key: bool | None = None
    check_contents: bool | None = None
    strict: bool | None = None
    explain: bool | None = None
    salt: str | None = None
    compression_level: int | None = None


@dataclass(frozen=True, slots=True)
class HostOptions:
    """The options of JAX that concern one machine; `None` where the user left JAX's default."""

    directory: str | None = None
    min_compile_seconds: float | None = None
    min_entry_bytes: int | None = None
    metadata_in_key: bool = False
    check_contents: bool = False
    raise_errors: bool = False
    explain_misses: bool = False
    max_size: int = -1


@dataclass(frozen=True, slots=True)
class Settings:
    """What is in force for one compilation.

    Attributes:
      directory: absolute path of the local store.
      min_compile_seconds: store only what took at least this long to compile, in seconds.
      min_entry_bytes: store only entries of at least this many bytes, as they lie on disk; 0 or less: all.
      metadata_in_key: source locations count in the key.
      check_contents: the first use of each stored key in a process compiles again and compares.
      strict: raise where the cache fails, instead of a log line.
      explain: log misses and what is not stored at WARNING instead of DEBUG.
      salt: text that goes into every key.
      compression_level: of zstd, 1 to 22.
      max_size: JAX's bound in bytes; 0 turns storing and looking up off, less than 0 is no bound.
    """

    directory: Path
    min_compile_seconds: float
    min_entry_bytes: int
    metadata_in_key: bool
    check_contents: bool
    strict: bool
    explain: bool
    salt: str
    compression_level: int
    max_size: int


def resolve(said: Said, host: HostOptions) -> Settings:
    """What is in force: the user's word to rewarm, over the user's word to JAX, over the defaults."""
    return Settings(
        directory=_directory(said, host),
        min_compile_seconds=_first(said.min_compile_seconds, host.min_compile_seconds, 0.0),
        min_entry_bytes=_first(said.min_entry_bytes, host.min_entry_bytes, 0),
        metadata_in_key=_first(said.metadata_in_key, host.metadata_in_key),
        check_contents=_first(said.check_contents, host.check_contents),
        strict=_first(said.strict, host.raise_errors),
        explain=bool(said.explain) or host.explain_misses,
        salt=_first(said.salt, ""),
        compression_level=_first(said.compression_level, 3),
        max_size=host.max_size,
    )


def _first(*choices: Any) -> Any:
    return next(choice for choice in choices if choice is not None)


def _directory(said: Said, host: HostOptions) -> Path:
    if said.directory is not None:
        return said.directory
    if host.directory:
        return Path(host.directory).expanduser().absolute() / "rewarm"
    return default_directory()


def default_directory() -> Path:
    """The per-user directory: the platform's cache folder, or one under the temporary folder.

    The second is for a uid without a home (no `HOME`, no passwd entry), as containers have it.
    """
    import tempfile

    import platformdirs

    path = platformdirs.user_cache_path("rewarm", appauthor=False)
    if path.is_absolute():
        return path
    return Path(tempfile.gettempdir()) / f"rewarm-{os.getuid() if hasattr(os, 'getuid') else 'user'}"


# ---------------------------------------------------------------------------------------------------------------
# From arguments and from the environment


def _as_directory(value: Any) -> Path:
    text = os.fspath(value)
    if not isinstance(text, str) or not text:
        raise ValueError("a path of a local directory")
    if "://" in text:
        raise ValueError("a path of a local directory, not a URL")
    return Path(text).expanduser().absolute()


def _as_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE | _FALSE:
        return value.strip().lower() in _TRUE
    raise ValueError("true or false (also 1 or 0, yes or no, on or off)")


def _as_seconds(value: Any) -> float:
    number = float(value) if not isinstance(value, bool) else -1.0
    if not 0.0 <= number < float("inf"):
        raise ValueError("seconds, 0 or more")
    return number


def _as_bytes(value: Any) -> int:
    number = int(value) if not isinstance(value, (bool, float)) else -2
    if number < -1:
        raise ValueError("a whole number of bytes, 0 or more (or -1 for no restriction)")
    return number


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("text")
    return value


def _as_level(value: Any) -> int:
    number = int(value) if not isinstance(value, (bool, float)) else 0
    if not 1 <= number <= 22:
        raise ValueError("a zstd level from 1 to 22")
    return number


@dataclass(frozen=True, slots=True)
class _Form:
    variable: str
    parse: Callable[[Any], Any]
    expected: str


_FORMS: Mapping[str, _Form] = {
    "directory": _Form("REWARM_DIR", _as_directory, "a path of a local directory"),
    "min_compile_seconds": _Form("REWARM_MIN_COMPILE_SECONDS", _as_seconds, "seconds, 0 or more"),
    "min_entry_bytes": _Form("REWARM_MIN_ENTRY_BYTES", _as_bytes, "bytes, 0 or more, or -1"),
    "metadata_in_key": _Form("REWARM_METADATA_IN_KEY", _as_bool, "true or false"),
    "check_contents": _Form("REWARM_CHECK_CONTENTS", _as_bool, "true or false"),
    "strict": _Form("REWARM_STRICT", _as_bool, "true or false"),
    "explain": _Form("REWARM_EXPLAIN", _as_bool, "true or false"),
    "salt": _Form("REWARM_SALT", _as_text, "text"),
    "compression_level": _Form("REWARM_COMPRESSION_LEVEL", _as_level, "a zstd level from 1 to 22"),
}

_SWITCH = "REWARM"
_STATS = "REWARM_STATS"
VARIABLES: tuple[str, ...] = (_SWITCH, _STATS, *(form.variable for form in _FORMS.values()))


def say(**arguments: Any) -> Said:
    """The user's settings: `arguments` (those that are not `None`) over the environment.

    Raises:
      SettingError: an argument or a `REWARM_*` variable has an unknown name or a value that cannot be used.
    """
    unknown = [name for name in arguments if name not in _FORMS]
    if unknown:
        raise SettingError(_unknown(f"rewarm.enable: unknown setting {unknown[0]!r}", unknown[0], _FORMS))
    given = dataclasses.asdict(from_environment())
    for name, value in arguments.items():
        if value is not None:
            given[name] = _parsed(f"rewarm.enable({name}=...)", value, _FORMS[name])
    return Said(**given)


def from_environment() -> Said:
    """The user's settings as the `REWARM_*` variables give them.

    Raises:
      SettingError: a variable has a value that cannot be used.
    """
    values = {
        name: _parsed(form.variable, os.environ[form.variable], form)
        for name, form in _FORMS.items()
        if os.environ.get(form.variable)
    }
    return Said(**values)


def _parsed(where: str, value: Any, form: _Form) -> Any:
    try:
        return form.parse(value)
    except (ValueError, TypeError) as error:
        # The parser's own words where it has some; those of int() and float() say nothing to a user.
        words = str(error) if "local directory" in str(error) else form.expected
        raise SettingError(f"{where}: expected {words}, found {value!r}") from None


def _unknown(what: str, name: str, good: Mapping[str, Any] | tuple[str, ...]) -> str:
    import difflib

    close = difflib.get_close_matches(name, list(good), n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{what}{hint} Good names: {', '.join(sorted(good))}"


def environment_mentions_rewarm() -> bool:
    """Whether the environment may turn rewarm on; a cheap look that never fails."""
    return bool(os.environ.get(_SWITCH) or os.environ.get("REWARM_DIR"))


def environment_asks() -> bool:
    """Whether the environment turns rewarm on: `REWARM=1`, or `REWARM_DIR` set and `REWARM` not 0.

    Raises:
      SettingError: `REWARM` is neither true nor false.
    """
    switch = os.environ.get(_SWITCH)
    if switch is None or not switch.strip():
        return bool(os.environ.get("REWARM_DIR"))
    return bool(_parsed(_SWITCH, switch, _Form(_SWITCH, _as_bool, "1 or 0 (on or off)")))


def stats_at_exit() -> str:
    """What `REWARM_STATS` asks for at exit: "text", "json", or "" for nothing.

    Anything but a false word counts as yes.
    """
    word = os.environ.get(_STATS, "").strip().lower()
    return "" if word in _FALSE else "json" if word == "json" else "text"


def unknown_variables() -> list[str]:
    """One line for each `REWARM_*` variable that rewarm does not know, such as a misspelt one."""
    return [
        _unknown(f"unknown variable {name} is ignored", name, VARIABLES)
        for name in sorted(os.environ)
        if name.startswith("REWARM_") and name not in VARIABLES
    ]


def child_environment(directory: Path | None, stats: str) -> dict[str, str]:
    """The environment of this process, with rewarm turned on in it: what `rewarm run` hands on."""
    environment = {**os.environ, _SWITCH: "1"}
    if directory is not None:
        environment["REWARM_DIR"] = str(directory)
    if stats:
        environment[_STATS] = stats
    return environment


def directory_of_command(given: Path | None) -> Path:
    """The directory that a command looks after: `--dir`, else what a program in this environment would use.

    Raises:
      SettingError: `REWARM_DIR` cannot be used.
    """
    said = Said(directory=given.expanduser().absolute()) if given is not None else from_environment()
    return _directory(said, HostOptions(directory=os.environ.get("JAX_COMPILATION_CACHE_DIR") or None))


# ---------------------------------------------------------------------------------------------------------------
# What others read from the environment and what counts for identity


def variable_is_set(name: str) -> bool:
    """Whether a variable of the environment is set to anything: how an explicit default of JAX is told."""
    return name in os.environ


def libtpu_arguments() -> str:
    """`LIBTPU_INIT_ARGS`: options that act inside libtpu and never show in the compile options."""
    return os.environ.get("LIBTPU_INIT_ARGS", "")


def xla_flags() -> str:
    """`XLA_FLAGS` as the environment has it now."""
    return os.environ.get("XLA_FLAGS", "")


def tool_search_path() -> str:
    """`PATH`, where XLA:GPU looks for ptxas and nvlink."""
    return os.environ.get("PATH", "")


def tpu_library_path() -> str | None:
    """`TPU_LIBRARY_PATH`: a libtpu in place of the installed one."""
    return os.environ.get("TPU_LIBRARY_PATH") or None
