"""What is in force for one compilation, from what the user said to rewarm and to JAX.

Not promised: that it stays. Three parties speak, so there are two steps. `Said` holds what the user told rewarm
itself: arguments of `enable`, over `REWARM_*` variables (`settings.py`). `Settings` is what is in force: `Said`, over
JAX's own options where the user set those, over the defaults. The second step is taken again whenever an option of
JAX changes, so a setting takes effect at the next compile.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

_DEFAULT_MAX_SIZE = 10 << 30

# Costs are measured up to this many (benchmarks/store_scale.py).
DEFAULT_MAX_ENTRIES = 100_000


class Said(NamedTuple):
    """What the user told rewarm; `None` means "not said"."""

    directory: Path | None = None
    min_compile_seconds: float | None = None
    min_entry_bytes: int | None = None
    metadata_in_key: bool | None = None
    check_contents: bool | None = None
    strict: bool | None = None
    explain: bool | None = None
    salt: str | None = None
    extra_files: tuple[Path, ...] | None = None
    extra_variables: tuple[str, ...] | None = None
    compression_level: int | None = None
    max_size: int | None = None
    max_age: float | None = None
    max_entries: int | None = None
    shared: bool | None = None
    verify_sample: float | None = None
    load_check: str | None = None
    load_ahead: str | None = None
    remote: tuple[str, ...] | None = None
    namespace: str | None = None
    read_namespaces: tuple[str, ...] | None = None
    upload_seconds: float | None = None
    signing_key: str | None = None
    signing_command: str | None = None
    trusted_keys: tuple[str, ...] | None = None
    autotune: bool | None = None
    autotune_incomplete: str | None = None
    autotune_lock: Path | None = None
    autotune_lock_policy: str | None = None
    tuned_options: bool | None = None
    untuned: str | None = None
    summary: bool | None = None


class HostOptions(NamedTuple):
    """The options of JAX that concern one machine; `None` where the user left JAX's default."""

    directory: str | None = None
    min_compile_seconds: float | None = None
    min_entry_bytes: int | None = None
    metadata_in_key: bool = False
    check_contents: bool = False
    raise_errors: bool = False
    explain_misses: bool = False
    max_size: int = -1


class Settings(NamedTuple):
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
      extra_files: files whose content goes into every key.
      extra_variables: variables of the environment whose value goes into every key.
      compression_level: of zstd, 1 to 22.
      threshold_said: the user chose `min_compile_seconds`, so nothing else about time keeps an entry out.
      max_size: bound on the bytes of all entries; 0 turns storing and looking up off, less than 0 is no bound, `None`
        stands for the default, which depends on the disk (see `default_max_size`).
      max_age: seconds after its last use that an entry goes; less than 0 is no bound.
      max_entries: bound on the number of entries; less than 0 is no bound.
      shared: the directory is a group's: others may write to it, and they are trusted.
      verify_sample: share of the hits that are compiled again beside the program and compared.
      load_check: "subprocess": each new entry is loaded once in a child process; "" for no check.
      load_ahead: "yes": entries that earlier starts of the program used are read and loaded in threads, before they are
        asked for; "early": also before the program makes a client; "": not.
      remote: addresses of remotes, the nearest first; each may hold credentials.
      namespace: where in a remote entries are written.
      read_namespaces: where in a remote entries are read, in this order.
      upload_seconds: how long the end of a program waits for entries that are still on their way to a remote.
      signing_key: a secret key, or the path of its file; "" for the one in the user's folder of keys.
      signing_command: a command that prints a secret key; "" for none.
      trusted_keys: public keys, or paths of their files, beside those in the user's folder of keys.
      autotune: XLA:GPU gets a directory of tuning results that rewarm looks after, where JAX would give it one.
      autotune_incomplete: what to do with an executable that was compiled with incomplete tuning, once complete tuning
        is at hand: "refuse", "refresh" or "serve" (`autotune.states.Incomplete`).
      autotune_lock: a lock file, whose tuning is the only one; `None` for none.
      autotune_lock_policy: what a fusion outside the lock is: "error" or "warn".
      tuned_options: programs get the options of XLA that `rewarm.tune_options` found for them.
      untuned: what a call of a tunable function is that nobody has tuned here: "default" (its default) or "error".
      summary: one line at the end of the program says what was saved.
    """

    directory: Path
    min_compile_seconds: float
    min_entry_bytes: int
    metadata_in_key: bool
    check_contents: bool
    strict: bool
    explain: bool
    salt: str
    extra_files: tuple[Path, ...]
    extra_variables: tuple[str, ...]
    compression_level: int
    threshold_said: bool
    max_size: int | None
    max_age: float
    max_entries: int
    shared: bool
    verify_sample: float
    load_check: str
    load_ahead: str
    remote: tuple[str, ...]
    namespace: str
    read_namespaces: tuple[str, ...]
    upload_seconds: float
    signing_key: str
    signing_command: str
    trusted_keys: tuple[str, ...]
    autotune: bool = True
    autotune_incomplete: str = "refuse"
    autotune_lock: Path | None = None
    autotune_lock_policy: str = "error"
    tuned_options: bool = True
    untuned: str = "default"
    summary: bool = False

    def without_secrets(self) -> dict[str, Any]:
        """By name, without what may hold a secret: for records that others may read."""
        return {name: value for name, value in self._asdict().items() if name not in MAY_BE_SECRET}


# Settings that nothing which others may read shows: addresses may hold credentials.
MAY_BE_SECRET = ("remote", "signing_key", "signing_command", "trusted_keys")
_NAMESPACE = "main"


def resolve(said: Said, host: HostOptions) -> Settings:
    """What is in force: the user's word to rewarm, over the user's word to JAX, over the defaults."""
    return Settings(
        directory=_directory(said, host),
        min_compile_seconds=_first(said.min_compile_seconds, host.min_compile_seconds, 0.0),
        min_entry_bytes=_first(said.min_entry_bytes, host.min_entry_bytes, 0),
        metadata_in_key=_first(said.metadata_in_key, host.metadata_in_key),
        check_contents=_first(said.check_contents, host.check_contents),
        strict=_first(said.strict, host.raise_errors),
        explain=_first(said.explain, host.explain_misses),
        salt=_first(said.salt, ""),
        extra_files=_first(said.extra_files, ()),
        extra_variables=_first(said.extra_variables, ()),
        compression_level=_first(said.compression_level, 3),
        threshold_said=said.min_compile_seconds is not None or host.min_compile_seconds is not None,
        max_size=said.max_size if said.max_size is not None else host.max_size if host.max_size >= 0 else None,
        max_age=_first(said.max_age, -1.0),
        max_entries=_first(said.max_entries, DEFAULT_MAX_ENTRIES),
        shared=_first(said.shared, False),
        verify_sample=_first(said.verify_sample, 0.0),
        load_check=_first(said.load_check, ""),
        load_ahead=_first(said.load_ahead, "yes"),
        remote=_first(said.remote, (host.directory,) if _is_url(host.directory) else ()),
        namespace=_first(said.namespace, _NAMESPACE),
        read_namespaces=_first(said.read_namespaces, (_first(said.namespace, _NAMESPACE),)),
        upload_seconds=_first(said.upload_seconds, 30.0),
        signing_key=_first(said.signing_key, ""),
        signing_command=_first(said.signing_command, ""),
        trusted_keys=_first(said.trusted_keys, ()),
        autotune=_first(said.autotune, True),
        autotune_incomplete=_first(said.autotune_incomplete, "refuse"),
        autotune_lock=None if said.autotune_lock in (None, Path()) else said.autotune_lock,
        autotune_lock_policy=_first(said.autotune_lock_policy, "error"),
        tuned_options=_first(said.tuned_options, True),
        untuned=_first(said.untuned, "default"),
        summary=_first(said.summary, False),
    )


def default_max_size(free: int, held: int) -> int:
    """The bound in bytes where the user sets none: 10 GiB, or a tenth of the disk's room where that is less.

    What is there already may stay up to 10 GiB: a disk that others fill for a while stops a store from growing, and is
    no reason to throw away what it holds.

    Args:
      free: bytes that the disk has left.
      held: bytes that the store holds already, which are room too.
    """
    return min(_DEFAULT_MAX_SIZE, max((free + held) // 10, held))


def _first(*choices: Any) -> Any:
    return next(choice for choice in choices if choice is not None)


def _directory(said: Said, host: HostOptions) -> Path:
    if said.directory is not None:
        return said.directory
    if host.directory and not _is_url(host.directory):
        # Not Path.expanduser, which raises where there is no such home.
        return Path(os.path.expanduser(host.directory)).absolute() / "rewarm"  # noqa: PTH111
    return default_directory()


def _is_url(directory: str | None) -> bool:
    """Whether JAX's directory is a place that only JAX's own file layer, or a remote, can reach."""
    return directory is not None and "://" in directory


def default_directory() -> Path:
    """The per-user directory: the platform's cache folder, or one under the temporary folder.

    The second is for a user without a home, or with one that he may not write to, as containers have it.
    """
    import platformdirs

    try:
        path = platformdirs.user_cache_path("rewarm", appauthor=False)
    except RuntimeError:  # no home
        path = Path()
    if path.is_absolute() and _can_be_made(path):
        return path
    return temporary_directory()


def temporary_directory() -> Path:
    """The user's own folder in the temporary folder, which need not be there yet."""
    import tempfile

    return Path(tempfile.gettempdir()) / f"rewarm-{os.getuid() if hasattr(os, 'getuid') else 'user'}"


def _can_be_made(path: Path) -> bool:
    """Whether a folder is there for this user, or he may make it."""
    there = next((place for place in (path, *path.parents) if os.path.lexists(place)), path)
    return os.access(there, os.R_OK | os.X_OK if there == path else os.W_OK | os.X_OK)
