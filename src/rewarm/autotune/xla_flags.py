"""`XLA_FLAGS` as XLA reads it, and the places of tuning results that it can name.

Not promised: that a build knows a flag; XLA ends a program that gives it one which it does not know. The three flags
here are in every build that rewarm supports.

XLA keeps tuning results in two ways. The directory way has one file for each fusion, is read and written fusion by
fusion, and any number of processes may share it. The file way loads one file at the first compile and writes another
one whole. With both, the file decides whatever the directory has (JAX 0.12.0.1), and nothing says so: the two together
are refused.

The grammar (XLA's `parse_flags_from_env`): a value of `XLA_FLAGS` that begins with "-" is flags, any other one names a
file that holds them. Flags are divided by blanks. A quote right behind "=" runs to the same quote again; between double
quotes a backslash takes the meaning from the next letter. Reading ends at the first thing that is no flag.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rewarm.errors import SettingError

DIRECTORY = "xla_gpu_per_fusion_autotune_cache_dir"
LOAD = "xla_gpu_load_autotune_results_from"
DUMP = "xla_gpu_dump_autotune_results_to"
REQUIRE = "xla_gpu_require_complete_aot_autotune_results"
NEW_FORMAT = "xla_gpu_use_new_autotune_cache_format"
LEVEL = "xla_gpu_autotune_level"
_OTHER_DIRECTORY = "xla_gpu_experimental_autotuner_cache_dir"
_MODE = "xla_gpu_experimental_autotune_cache_mode"

# With one of these XLA times nothing and takes the first configuration that compiles (`GetConfigAssignerOptions` of its
# source), and from JAX 0.11 on it passes Triton's results over.
DETERMINISTIC = ("xla_gpu_deterministic_ops", "xla_gpu_exclude_nondeterministic_ops")

# What says where results come from and go to, and whether one must be there for each fusion.
_WHERE = frozenset({DIRECTORY, LOAD, DUMP, REQUIRE, _OTHER_DIRECTORY, _MODE})
_DUMPS = "xla_dump_"

_BLANKS = " \t\r\n\v\f"
_NAME = re.compile(r"--?[A-Za-z0-9_-]*")
_NEEDS_QUOTES = re.compile(r"""[\s"'\\]""")

_WORKSPACE, _OUTPUTS = "TEST_WORKSPACE", "TEST_UNDECLARED_OUTPUTS_DIR"
_BUILT = re.compile(r"bazel-out/[^/]+/(?:bin|genfiles)/")


class Flag(NamedTuple):
    """One flag; `value` is `None` where it has no "="."""

    name: str
    value: str | None


class Named(NamedTuple):
    """Which places for tuning results some flags name; empty for none."""

    directory: str = ""
    load: str = ""
    dump: str = ""


def parsed(text: str) -> tuple[list[Flag], str]:
    """The flags of a text, and what is left where XLA stops reading; nearly always nothing."""
    flags: list[Flag] = []
    at = _skip(text, 0)
    while at < len(text) and text[at] == "-":
        flag, at = _flag(text, at)
        flags.append(flag)
        at = _skip(text, at)
    return flags, text[at:]


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _flag(text: str, at: int) -> tuple[Flag, int]:
    name = _NAME.match(text, at)
    assert name is not None  # it begins with "-"
    end = name.end()
    if text[end : end + 1] == "=" and text[end + 1 : end + 2] in ("'", '"'):
        value, end = _quoted(text, end + 1)
        return Flag(name[0].lstrip("-"), value), end
    while end < len(text) and text[end] not in _BLANKS:
        end += 1
    said, equals, value = text[at:end].partition("=")
    return Flag(said.lstrip("-"), value if equals else None), end


def _quoted(text: str, at: int) -> tuple[str, int]:
    quote, letters, at = text[at], [], at + 1
    while at < len(text) and text[at] != quote:
        if quote == '"' and text[at] == "\\" and at + 1 < len(text):
            at += 1
        letters.append(text[at])
        at += 1
    return "".join(letters), at + 1


def written(name: str, value: str) -> str:
    """One flag with its value, as `parsed` and XLA read it back."""
    if not value or _NEEDS_QUOTES.search(value):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'--{name}="{escaped}"'
    return f"--{name}={value}"


def named(flags: str | Iterable[str]) -> Named:
    """Which places some flags name: those of `XLA_FLAGS`, or the arguments of a command. The last one of a name counts.

    An argument is taken for a flag where it begins with "--xla_gpu_"; a value may be the next argument.
    """
    found = parsed(flags)[0] if isinstance(flags, str) else _of_arguments(list(flags))
    said = {flag.name: flag.value or "" for flag in found}
    return Named(said.get(DIRECTORY, ""), said.get(LOAD, ""), said.get(DUMP, ""))


def new_format(flags: str) -> bool | None:
    """Whether `XLA_FLAGS` ask for the new formats of results; `None` where they say nothing of it."""
    return switches(flags).get(NEW_FORMAT)


def switches(flags: str) -> dict[str, bool]:
    """What `XLA_FLAGS` turn on or off, by name. Of options that are no such thing: whether they are "true" or "1"."""
    return {one.name: one.value is None or one.value.lower() in ("true", "1") for one in parsed(flags)[0]}


def says_where(name: str) -> bool:
    """Whether an option says where results come from or go to, or what is dumped: who compiles for them says that."""
    return name in _WHERE or name.startswith(_DUMPS)


def turns_off(name: str, value: object) -> bool:
    """Whether an option keeps XLA from timing anything, and changes nothing else."""
    return name == LEVEL and str(value) == "0"


def elsewhere(flags: str) -> str:
    """These flags for a command that says by itself where results lie and in which formats, and that is to tune.

    What XLA would not read, behind the first thing that is no flag, is left out as well.
    """
    kept = (one for one in parsed(flags)[0] if not says_where(one.name) and one.name != NEW_FORMAT)
    return " ".join(
        f"--{one.name}" if one.value is None else written(one.name, one.value)
        for one in kept
        if not turns_off(one.name, one.value)
    )


def _of_arguments(arguments: Sequence[str]) -> list[Flag]:
    found = []
    for at, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.startswith("-") and name.lstrip("-") in (DIRECTORY, LOAD, DUMP):
            following = arguments[at + 1] if at + 1 < len(arguments) else ""
            found.append(Flag(name.lstrip("-"), value if equals else following))
    return found


def with_flags(existing: str, added: Mapping[str, str]) -> str:
    """The flags that are there, as they are, and then those that are added.

    Raises:
      SettingError: XLA would not read the whole of what is there, so what is behind it would have no effect.
    """
    _, left = parsed(existing)
    if left:
        raise SettingError(
            f"XLA_FLAGS: expected flags that begin with --, found {left[:60]!r}, where XLA stops reading; "
            "take it out, or put it in quotes behind the = of its flag"
        )
    ours = (written(name, value) for name, value in added.items())
    return " ".join([part for part in [existing.strip(_BLANKS)] if part] + list(ours))


def refuse_others(existing: str, arguments: Iterable[str] = (), *, way: str) -> None:
    """See to it that nobody else has named a place, where rewarm is about to.

    Args:
      existing: `XLA_FLAGS`.
      arguments: of the command that is about to run.
      way: "directory" or "file", that of rewarm.

    Raises:
      SettingError: `XLA_FLAGS` or the arguments name one; the message has the reason and what to do.
    """
    for where, found in (("XLA_FLAGS", named(existing)), ("the command's arguments", named(arguments))):
        if found.directory and way == "directory":
            raise SettingError(
                f"{where}: --{DIRECTORY} names {found.directory} already, and rewarm is to give XLA a directory of its "
                "own; take the flag out (rewarm autotune import brings in what is there)"
            )
        if found.load or found.dump or found.directory:
            raise SettingError(_mixed(where, found, way))


def _mixed(where: str, found: Named, way: str) -> str:
    name = DIRECTORY if found.directory else LOAD if found.load else DUMP
    other = "directory" if name == DIRECTORY else "file"
    if other == way:
        return (
            f"{where}: --{name} names {found.load or found.dump} already, and rewarm is to load and dump here; use the "
            "flags or rewarm's options, not both"
        )
    instead = {
        LOAD: "take the flag out and bring its file in with rewarm autotune import",
        DUMP: "take the flag out and write the file afterwards with rewarm autotune export",
        DIRECTORY: "take the flag out, or name its directory with --rewarm-autotune-load",
    }
    return (
        f"{where}: --{name} asks for tuning results in the {other} way, and rewarm keeps them in the {way} way here. "
        "Together, XLA takes the file's whatever the directory has, and does not say so: "
        f"{instead[name]}"
    )


def xla_caches_of_jax(said: str | None) -> str:
    """What JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES must be, so that JAX does not put a directory of its own over ours.

    With a compilation cache of its own on, JAX gives XLA a directory inside it, which wins over the one in `XLA_FLAGS`
    (jax/_src/compiler.py, `get_compile_options`; its default). The other feature stays as it was asked for.
    """
    kernels = "xla_gpu_kernel_cache_file"
    return kernels if said and (said == "all" or kernels in said) else "none"


def resolved(path: str, environment: Mapping[str, str]) -> Path:
    """A path as XLA's own flags have it in a test that Bazel runs, also where Bazel's `$(execpath ...)` made it.

        TEST_WORKSPACE/x                   $TEST_SRCDIR/$TEST_WORKSPACE/x: a file of the test's data
        TEST_UNDECLARED_OUTPUTS_DIR/x      a file that Bazel keeps after the test
        package/x                          from the working directory, which in a test of Bazel's is TEST_WORKSPACE
        bazel-out/CONFIG/bin/package/x     a built file, by its $(execpath): it lies at TEST_WORKSPACE/package/x
        external/repository/x              another repository's file, by its $(execpath): $TEST_SRCDIR/repository/x

    Args:
      path: what was typed.
      environment: the variables of the test.

    Raises:
      SettingError: a variable that is needed is not set, or Bazel has not expanded what was meant for it.
    """
    if "$(" in path:
        raise SettingError(
            f"{path}: expected a path, found a label that Bazel has not expanded; it expands $(execpath ...) and "
            "$(rootpath ...) in the attributes args and env, of targets that are in data"
        )
    first, slash, rest = path.partition("/")
    if first == _OUTPUTS and slash:
        return Path(_variable(_OUTPUTS, environment, path)) / rest
    if first == _WORKSPACE and slash:
        return _workspace(environment, path) / rest
    return _of_execpath(path, environment) or Path(path)


def _of_execpath(path: str, environment: Mapping[str, str]) -> Path | None:
    """Where a path from the root of Bazel's execution lies for the test; `None` where it is none, or lies there."""
    if "TEST_SRCDIR" not in environment or Path(path).is_absolute() or Path(path).exists():
        return None
    rest = _BUILT.sub("", path, count=1)
    if rest.startswith("external/"):
        return Path(environment["TEST_SRCDIR"]) / rest.removeprefix("external/")
    return _workspace(environment, path) / rest if rest != path else None


def _workspace(environment: Mapping[str, str], path: str) -> Path:
    return Path(_variable("TEST_SRCDIR", environment, path)) / _variable(_WORKSPACE, environment, path)


def _variable(name: str, environment: Mapping[str, str], path: str) -> str:
    value = environment.get(name)
    if not value:
        raise SettingError(f"{path}: expected the variable {name}, which Bazel sets for tests, found it not set")
    return value
