"""Settings as the user says them: arguments and variables, read and checked. The only file that reads the environment.

Not promised: that a setting given to `rewarm.enable` survives another call of it (each call states all of them). What
is in force after JAX's own options and the defaults had their say is in `in_force.py`.

Imports next to nothing: JAX's plugin discovery comes here in every process, also where rewarm is off.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rewarm import setting_values as values
from rewarm.errors import SettingError

if TYPE_CHECKING:
    from rewarm.in_force import HostOptions, Said, Settings

# ---------------------------------------------------------------------------------------------------------------
# From arguments and from the environment

# Variable, parser, what is expected. Plain tuples: making a class costs more time than everything else here.
_Form = tuple[str, Callable[[Any], Any], str]

_FORMS: Mapping[str, _Form] = {
    "directory": ("REWARM_DIR", values.as_directory, "a path of a local directory"),
    "min_compile_seconds": ("REWARM_MIN_COMPILE_SECONDS", values.as_seconds, "seconds, 0 or more"),
    "min_entry_bytes": ("REWARM_MIN_ENTRY_BYTES", values.as_bytes, "bytes, 0 or more, or -1"),
    "metadata_in_key": ("REWARM_METADATA_IN_KEY", values.as_bool, "true or false"),
    "check_contents": ("REWARM_CHECK_CONTENTS", values.as_bool, "true or false"),
    "strict": ("REWARM_STRICT", values.as_bool, "true or false"),
    "explain": ("REWARM_EXPLAIN", values.as_bool, "true or false"),
    "salt": ("REWARM_SALT", values.as_text, "text"),
    "extra_files": ("REWARM_EXTRA_FILES", values.as_files, f"paths of local files, divided by {os.pathsep!r}"),
    "extra_variables": ("REWARM_EXTRA_VARIABLES", values.as_names, "names of variables, divided by commas"),
    "compression_level": ("REWARM_COMPRESSION_LEVEL", values.as_level, "a zstd level from 1 to 22"),
    "max_size": ("REWARM_MAX_SIZE", values.as_size, values.SIZE),
    "max_age": ("REWARM_MAX_AGE", values.as_age, values.AGE),
    "max_entries": (
        "REWARM_MAX_ENTRIES",
        values.as_count,
        "a whole number of entries, 1 or more, or none for no bound",
    ),
    "shared": ("REWARM_SHARED", values.as_bool, "true or false"),
    "verify_sample": ("REWARM_VERIFY_SAMPLE", values.as_share, "a share of the hits, from 0 to 1"),
    "load_check": ("REWARM_LOAD_CHECK", values.as_load_check, "subprocess, or none"),
    "load_ahead": ("REWARM_LOAD_AHEAD", values.as_load_ahead, "true or false, or early"),
    "remote": ("REWARM_REMOTE", values.as_addresses, "addresses of remotes, divided by commas, or none"),
    "namespace": ("REWARM_NAMESPACE", values.as_namespace, values.NAMESPACE),
    "read_namespaces": ("REWARM_READ_NAMESPACES", values.as_namespaces, f"divided by commas, each {values.NAMESPACE}"),
    "upload_seconds": ("REWARM_UPLOAD_SECONDS", values.as_seconds, "seconds, 0 or more"),
    "signing_key": ("REWARM_SIGNING_KEY", values.as_secret, "a secret key, or the path of a file that holds one"),
    "signing_command": ("REWARM_SIGNING_COMMAND", values.as_text, "a command that prints a secret key"),
    "trusted_keys": ("REWARM_TRUSTED_KEYS", values.as_entries, "public keys, or paths of files, divided by commas"),
    "autotune": ("REWARM_AUTOTUNE", values.as_bool, "true or false"),
    "autotune_incomplete": ("REWARM_AUTOTUNE_INCOMPLETE", values.as_incomplete, values.INCOMPLETE),
    "autotune_lock": ("REWARM_AUTOTUNE_LOCK", values.as_lock, "the path of a lock file, or none"),
    "autotune_lock_policy": ("REWARM_AUTOTUNE_LOCK_POLICY", values.as_lock_policy, "error or warn"),
    "tuned_options": ("REWARM_TUNED_OPTIONS", values.as_bool, "true or false"),
    "untuned": ("REWARM_UNTUNED", values.as_untuned, "default or error"),
    "summary": ("REWARM_SUMMARY", values.as_bool, "true or false"),
}

_SWITCH = "REWARM"
_STATS = "REWARM_STATS"
# Who watches: read by `metrics/starting.py`, as texts.
_WATCHING = ("REWARM_METRICS_TEXTFILE", "REWARM_METRICS_SECONDS", "REWARM_OPENTELEMETRY", "REWARM_LOG")
VARIABLES: tuple[str, ...] = (_SWITCH, _STATS, *_WATCHING, *(variable for variable, _, _ in _FORMS.values()))


def say(**arguments: Any) -> Said:
    """The user's settings: `arguments` (those that are not `None`) over the environment.

    Raises:
      SettingError: an argument or a `REWARM_*` variable has an unknown name or a value that cannot be used.
    """
    unknown = [name for name in arguments if name not in _FORMS]
    if unknown:
        raise SettingError(_unknown(f"rewarm.enable: unknown setting {unknown[0]!r}", unknown[0], _FORMS))
    from rewarm.in_force import Said

    given = _environment()
    for name, value in arguments.items():
        if value is not None:
            given[name] = _parsed(f"rewarm.enable({name}=...)", value, _FORMS[name])
    return Said(**given)


def _environment() -> dict[str, Any]:
    return {
        name: _parsed(form[0], os.environ[form[0]], form) for name, form in _FORMS.items() if os.environ.get(form[0])
    }


def _parsed(where: str, value: Any, form: _Form) -> Any:
    _, parse, expected = form
    try:
        return parse(value)
    except (ValueError, TypeError, OverflowError) as error:
        # The parser's own words where it has some; those of int() and float() say nothing to a user.
        words = str(error) if "local directory" in str(error) else expected
        raise SettingError(f"{where}: expected {words}, found {_short(value)}") from None


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # a number with more digits than Python prints
        return f"a {type(value).__name__} too long to print"
    return text if len(text) <= 100 else f"{text[:97]}..."


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
    return bool(_parsed(_SWITCH, switch, (_SWITCH, values.as_bool, "1 or 0 (on or off)")))


def stats_at_exit() -> str:
    """What `REWARM_STATS` asks for at exit: "text", "json", or "" for nothing.

    Anything but a false word counts as yes.
    """
    word = os.environ.get(_STATS, "").strip().lower()
    return "" if word in values.FALSE else "json" if word == "json" else "text"


def no_color() -> bool:
    """Whether `NO_COLOR` asks for output without colours (https://no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def watching() -> dict[str, str]:
    """The variables that ask for metrics and structured logs, as they are set; mostly none is."""
    return {name: text for name in _WATCHING if (text := os.environ.get(name, "").strip())}


def secret_variables() -> frozenset[str]:
    """The `REWARM_*` variables whose values nothing which others may read shows."""
    from rewarm.in_force import MAY_BE_SECRET

    return frozenset(_FORMS[name][0] for name in MAY_BE_SECRET)


def unknown_variables() -> list[str]:
    """One line for each `REWARM_*` variable that rewarm does not know, such as a misspelt one."""
    return [
        _unknown(f"unknown variable {name} is ignored", name, VARIABLES)
        for name in sorted(os.environ)
        if name.startswith("REWARM_") and name not in VARIABLES
    ]


def unwatched(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without what asks for metrics and logs: of a child that is rewarm's own, and that is not what the
    user watches. It would put its numbers in the place of his program's."""
    return {name: value for name, value in environment.items() if name not in _WATCHING}


def child_environment(directory: Path | None, stats: str, load_check: str | None = None) -> dict[str, str]:
    """The environment of this process, with rewarm turned on in it: what `rewarm run` hands on.

    Raises:
      SettingError: `load_check` cannot be used.
    """
    environment = {**os.environ, _SWITCH: "1"}
    if directory is not None:
        environment["REWARM_DIR"] = str(directory)
    if stats:
        environment[_STATS] = stats
    if load_check is not None:
        variable, _, _ = form = _FORMS["load_check"]
        environment[variable] = _parsed("--load-check", load_check, form) or "none"
    return environment


def load_check_environment() -> dict[str, str]:
    """The environment of a child that loads entries: this one, without taking a GPU's memory for itself."""
    return {**unwatched(os.environ), "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


# What a process with candidates does not do for itself.
_NOT_OF_CANDIDATES = (_STATS, "REWARM_SUMMARY", *_WATCHING, "REWARM_LOAD_CHECK", "REWARM_UNTUNED")


def untuned_is_error(said_: Said | None) -> bool:
    """Whether a tunable function that nobody has tuned for its arguments is an error, also while rewarm is off.

    Raises:
      SettingError: `REWARM_UNTUNED` cannot be used.
    """
    if said_ is not None:
        return said_.untuned == "error"
    text = os.environ.get("REWARM_UNTUNED")
    return bool(text) and _parsed("REWARM_UNTUNED", text, _FORMS["untuned"]) == "error"


def tuning_environment(directory: Path | None) -> dict[str, str]:
    """The environment of a child in which candidates run: with the cache in this directory and without remotes; without
    a cache where there is none. It takes no GPU's memory for itself."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_OF_CANDIDATES}
    kept |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "REWARM_REMOTE": "none"}
    if directory is None:
        return {**kept, _SWITCH: "0"}
    return {**kept, _SWITCH: "1", "REWARM_DIR": str(directory)}


def directory_of_command(given: str | None) -> Path:
    """The directory that a command looks after: `--dir`, else what a program in this environment would use.

    Raises:
      SettingError: `--dir` or a variable cannot be used.
    """
    from rewarm.in_force import Said, resolve

    said = say() if given is None else Said(directory=_parsed("--dir", given, _FORMS["directory"]))
    return resolve(said, _host_options()).directory


def of_command(**options: str | None) -> Settings:
    """What a program in this environment would have in force, with the options of a command over it.

    Args:
      **options: settings by name as they were typed after `--name`; `None` where one was not.

    Raises:
      SettingError: an option or a variable cannot be used.
    """
    from rewarm.in_force import resolve

    typed = {
        name: _parsed(f"--{'dir' if name == 'directory' else name.replace('_', '-')}", value, _FORMS[name])
        for name, value in options.items()
        if value is not None
    }
    return resolve(say()._replace(**typed), _host_options())


def _host_options() -> HostOptions:
    """What the environment says to JAX, as far as a command without JAX can read it."""
    from rewarm.in_force import HostOptions

    bound = os.environ.get("JAX_COMPILATION_CACHE_MAX_SIZE", "").strip()
    return HostOptions(
        directory=os.environ.get("JAX_COMPILATION_CACHE_DIR") or None,
        max_size=int(bound) if bound.lstrip("-").isdecimal() else -1,
    )


# ---------------------------------------------------------------------------------------------------------------
# What others read from the environment and what counts for identity


def variable_is_set(name: str) -> bool:
    """Whether a variable of the environment is set to anything: how an explicit default of JAX is told."""
    return name in os.environ


def variables(names: Iterable[str]) -> dict[str, str]:
    """Those of these variables of the environment that are set to anything; their values may be secrets."""
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def digest_of_variable(name: str) -> str:
    """What stands for the value of a variable that the user declared: its SHA-256, since it may be a secret."""
    import hashlib

    value = os.environb.get(os.fsencode(name)) if os.supports_bytes_environ else os.environ.get(name, "").encode()
    return "unset" if value is None else hashlib.sha256(value).hexdigest()


def libtpu_arguments() -> str:
    """`LIBTPU_INIT_ARGS`: options that act inside libtpu and never show in the compile options."""
    return os.environ.get("LIBTPU_INIT_ARGS", "")


def xla_flags() -> str:
    """`XLA_FLAGS` as the environment has it now; the content of the file, where it names one."""
    flags = os.environ.get("XLA_FLAGS", "")
    if not flags or flags.lstrip().startswith("--"):
        return flags
    try:
        return Path(flags.strip()).read_text(errors="replace")
    except OSError:
        return flags


# Variables that change from one start to the next and that no program decides anything by.
_VOLATILE = ("PWD", "OLDPWD", "SHLVL", "_", "TERM", "COLUMNS", "LINES", "WINDOWID", "REWARM_STATS", "REWARM_SUMMARY",
    "INVOCATION_ID")  # fmt: skip
_VOLATILE_KINDS = ("SSH_", "TERM_", "XDG_SESSION", "TMUX", "STY", "PYTEST_")

# What launchers of several processes set, and JAX asks for in its own list of clusters.
_LAUNCHERS = ("JAX_COORDINATOR_ADDRESS", "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "OMPI_MCA_orte_hnp_uri",
    "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_STEP_NODELIST", "SLURM_PROCID", "TPU_WORKER_ID",
    "CLOUD_TPU_TASK_ID", "MEGASCALE_COORDINATOR_ADDRESS", "JOB_COMPLETION_INDEX", "RANK", "LOCAL_RANK",
    "WORLD_SIZE")  # fmt: skip


def has_launcher() -> bool:
    """Whether the environment looks as if this process was one of several."""
    return any(name in os.environ for name in _LAUNCHERS)


class Place(NamedTuple):
    """Which of several processes a launcher made this one.

    Attributes:
      id: what the launcher calls all of them together.
      rank: from 0.
      ranks: how many there are.
    """

    id: str
    rank: int
    ranks: int


# Of each launcher: what is one for all its processes, the rank, and how many there are.
_RANKED = (
    (("SLURM_JOB_ID", "SLURM_STEP_ID"), "SLURM_PROCID", "SLURM_NTASKS"),
    (("PMIX_NAMESPACE",), "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    (("MASTER_ADDR", "MASTER_PORT"), "RANK", "WORLD_SIZE"),
)


def launched_as() -> Place | None:
    """What Slurm, Open MPI or torchrun say of this process; `None` where it is not one of several of theirs."""
    for names, rank, ranks in _RANKED:
        said = [os.environ.get(name, "") for name in (*names, rank, ranks)]
        if all(said) and said[-1].isdecimal() and said[-2].isdecimal() and int(said[-1]) > 1:
            return Place(".".join(said[:-2]), int(said[-2]), int(said[-1]))
    return None


def digest_of_environment() -> str:
    """What tells one environment from another, but for what changes at each start. Nothing can be read from it."""
    import hashlib

    kept = [f"{name}={value}" for name, value in os.environ.items() if not _is_volatile(name)]
    return hashlib.sha256("\0".join(sorted(kept)).encode("utf-8", "surrogateescape")).hexdigest()


def _is_volatile(name: str) -> bool:
    return name in _VOLATILE or name.startswith(_VOLATILE_KINDS)


# XLA:CPU makes no larger pool of threads than this. Source: /proc under `NPROC` 255 to 2000, and object files, which
# are the same for 256 and more (JAX 0.10.2 and 0.12.0.1).
MOST_CPU_THREADS = 256


def cpu_threads() -> int:
    """How many threads XLA:CPU takes for its pool: `NPROC`, else the processors this process may run on; 256 at most.

    Source: the CPU client's default thread pool size (xla/pjrt/cpu), and runs under `taskset` and `NPROC`, whose
    object files and last bits differ.
    """
    named = os.environ.get("NPROC", "").strip()
    if named.isdecimal() and int(named) > 0:
        return min(int(named), MOST_CPU_THREADS)
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MOST_CPU_THREADS)
    return min(os.cpu_count() or 1, MOST_CPU_THREADS)


def tool_search_path() -> str:
    """`PATH`, where XLA:GPU looks for ptxas and nvlink."""
    return os.environ.get("PATH", "")


def tpu_library_path() -> str | None:
    """`TPU_LIBRARY_PATH`: a libtpu in place of the installed one."""
    return os.environ.get("TPU_LIBRARY_PATH") or None
