"""rewarm makes a JAX program start warm: a persistent compilation cache beside an unmodified JAX.

Not promised: that a cached program traces faster (tracing and lowering still run, but for `rewarm.jit`), or anything
about programs that JAX compiled before rewarm was on. See README.md for the three ways to turn it on.
"""

from __future__ import annotations

# Not from typing, which alone costs more than the rest of this file; type checkers know the name.
TYPE_CHECKING = False

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from typing import Any

    from rewarm.errors import (
        BadEntryError,
        ContentsDifferError,
        NotCacheableError,
        RewarmError,
        SettingError,
        StoreError,
        TraceMismatchError,
        UnsupportedJaxError,
    )
    from rewarm.jax_adapter.programs import Program
    from rewarm.ledger import Event, Seconds, Stats
    from rewarm.ledger.explanation import Change, Explanation, Finding

__version__ = "0.1.0"

__all__ = [
    "BadEntryError",
    "Change",
    "ContentsDifferError",
    "Event",
    "Explanation",
    "Finding",
    "NotCacheableError",
    "Program",
    "RewarmError",
    "Seconds",
    "SettingError",
    "Stats",
    "StoreError",
    "TraceMismatchError",
    "UnsupportedJaxError",
    "__version__",
    "abstract",
    "disable",
    "enable",
    "events",
    "jit",
    "key_of",
    "recorded",
    "stats",
]


def enable(
    directory: str | os.PathLike[str] | None = None,
    *,
    min_compile_seconds: float | None = None,
    min_entry_bytes: int | None = None,
    metadata_in_key: bool | None = None,
    check_contents: bool | None = None,
    strict: bool | None = None,
    explain: bool | None = None,
    salt: str | None = None,
    extra_files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    extra_variables: str | Sequence[str] | None = None,
    compression_level: int | None = None,
    max_size: int | str | None = None,
    max_age: float | str | None = None,
    max_entries: int | str | None = None,
    shared: bool | None = None,
    verify_sample: float | None = None,
    load_check: str | None = None,
    load_ahead: bool | str | None = None,
    remote: str | Sequence[str] | None = None,
    namespace: str | None = None,
    read_namespaces: str | Sequence[str] | None = None,
    upload_seconds: float | None = None,
    signing_key: str | None = None,
    signing_command: str | None = None,
    trusted_keys: str | Sequence[str] | None = None,
    autotune: bool | None = None,
    autotune_incomplete: str | None = None,
    autotune_lock: str | os.PathLike[str] | None = None,
    autotune_lock_policy: str | None = None,
) -> None:
    """Turn the cache on, or change its settings; both act at the next compile.

    Not promised: effect on programs that JAX has already compiled, or that an earlier call's arguments stay (each
    call states all of them). A setting that is not given comes from its `REWARM_*` variable, else from JAX's own
    option where you set that, else from its default.

    Args:
      directory: the local store. Default: `REWARM_DIR`; else `<jax_compilation_cache_dir>/rewarm` when you set JAX's
        directory; else the per-user cache folder. Made at first use, mode 0700.
      min_compile_seconds: store only what took at least this long to compile, in seconds. Default 0.
      min_entry_bytes: store only entries of at least this many bytes on disk. Default 0: all.
      metadata_in_key: source locations count in the key. Default no.
      check_contents: the first use of each stored key compiles again and compares; raises when they differ.
      strict: raise where the cache fails, instead of one log line.
      explain: log misses, and what is not stored, at WARNING.
      salt: text that goes into every key.
      extra_files: files (or folders) whose content goes into every key, looked at anew for each program.
      extra_variables: variables of the environment whose value goes into every key.
      compression_level: of zstd, 1 to 22. Default 3. Not part of any key.
      max_size: bound on the bytes of all entries, a number or text such as "10GiB"; 0 stores nothing, "none" is no
        bound. Default: 10 GiB, or a tenth of the disk's free room where that is less.
      max_age: seconds after its last use that an entry goes, or text such as "30d". Default: no bound.
      max_entries: bound on the number of entries. Default 100,000.
      shared: the directory is a group's: it may be others' and writable by them, and what is made in it is theirs too.
        Everybody who may write to it can run code in your process. Default no: such a directory is refused.
      verify_sample: share of the hits, from 0 to 1, that are compiled again in the background and compared. Default 0.
      load_check: "subprocess": each new entry is loaded once in a child process, and dropped if that ends the child.
      load_ahead: entries that earlier starts of this program used are read and loaded in threads, before they are asked
        for. Default yes. "early": for CPUs also before the program makes JAX's client, where a start looks like the
        last one; not for a program that sets `XLA_FLAGS` after this by what it reads elsewhere than in the environment.
      remote: addresses of remotes, the nearest first, such as "s3://bucket/prefix?region=eu-west-1"; "none" for none.
        What the local directory has not is looked for there, and what is compiled here goes there.
      namespace: the part of the remotes that is written to. Default "main".
      read_namespaces: the parts that are read, in this order. Default: the one that is written to.
      upload_seconds: how long the end of the program waits for entries that are still on their way. Default 30.
      signing_key: the secret key that entries are signed with, or the path of its file. Default: the user's own
        (`rewarm keys`).
      signing_command: a command that prints the secret key, called when the first entry is signed.
      trusted_keys: public keys whose entries are accepted, or paths of files, beside those that `rewarm keys` lists.
      autotune: XLA:GPU gets a directory of tuning results that is checked, shared and kept, where JAX would give it
        one. Default yes.
      autotune_incomplete: what happens to an executable that was compiled with incomplete tuning, once complete tuning
        is at hand: "refuse" (it is compiled anew; the default), "refresh" (in the background), or "serve".
      autotune_lock: a lock file (`rewarm autotune lock`): XLA has the results that it pins, and no others; "none" for
        none.
      autotune_lock_policy: what a fusion outside the lock is: "error" (the default) or "warn".

    Raises:
      SettingError: a value cannot be used.
      UnsupportedJaxError: `strict`, and this JAX is not one that rewarm knows.
    """
    from rewarm.jax_adapter import activation

    activation.enable(
        directory,
        min_compile_seconds=min_compile_seconds,
        min_entry_bytes=min_entry_bytes,
        metadata_in_key=metadata_in_key,
        check_contents=check_contents,
        strict=strict,
        explain=explain,
        salt=salt,
        extra_files=extra_files,
        extra_variables=extra_variables,
        compression_level=compression_level,
        max_size=max_size,
        max_age=max_age,
        max_entries=max_entries,
        shared=shared,
        verify_sample=verify_sample,
        load_check=load_check,
        load_ahead=load_ahead,
        remote=remote,
        namespace=namespace,
        read_namespaces=read_namespaces,
        upload_seconds=upload_seconds,
        signing_key=signing_key,
        signing_command=signing_command,
        trusted_keys=trusted_keys,
        autotune=autotune,
        autotune_incomplete=autotune_incomplete,
        autotune_lock=autotune_lock,
        autotune_lock_policy=autotune_lock_policy,
    )


def disable() -> None:
    """Turn the cache off and leave JAX exactly as it was found. Harmless when it is off."""
    from rewarm.jax_adapter import activation

    activation.disable()


def stats() -> Stats:
    """The numbers of this process so far: a frozen snapshot."""
    from rewarm.jax_adapter import activation

    return activation.stats()


def events() -> list[Event]:
    """One record per request of this process, oldest first; the newest 100,000."""
    from rewarm.jax_adapter import activation

    return activation.events_so_far()


def key_of(jitted: Any, *args: Any, **kwargs: Any) -> str:
    """The key of `jitted` for these arguments, 64 hexadecimal digits, without compiling it.

    Not promised: that tracing is free; `jitted` is traced and lowered, as `jitted.lower(*args, **kwargs)` does.
    Works whether rewarm is on or off, and takes the settings in force.

    Args:
      jitted: what `jax.jit` returned.
      *args: its arguments, arrays or `jax.ShapeDtypeStruct`.
      **kwargs: its keyword arguments.

    Raises:
      NotCacheableError: the program has no key; the message says why.
      TypeError: `jitted` is not a jitted function.
    """
    from rewarm.jax_adapter.keys import key_of as find

    return find(jitted, *args, **kwargs)


def jit(fun: Any = None, /, *, depends_on: Any = (), on_mismatch: str = "raise", **options: Any) -> Any:
    """As `jax.jit`, and a start of the program does not trace what two earlier ones have traced to the same program.

    Not promised: that a trace is skipped, or that skipping it is sound beyond doubt: what a function reads while it is
    traced is guarded as far as it can be followed, and refused where it cannot. So each start without a trace, later a
    share of them, is proved in the background, by a trace beside the program; README.md says what that can find.
    Without rewarm on, inside of `grad`, `vmap` or another `jit`, and in programs of several processes it is `jax.jit`.

    Args:
      fun: the function; without one a decorator is returned.
      depends_on: objects that count beside what the function names, for reads that cannot be followed.
      on_mismatch: what the next call does after a proof has failed: "raise" (a `TraceMismatchError`) or "warn".
      **options: those of `jax.jit`: `static_argnums`, `donate_argnums`, `in_shardings`, and so on.

    Returns:
      What `jax.jit` returns, with its methods: `lower`, `trace`, `eval_shape`, `clear_cache`.

    Raises:
      ValueError: `on_mismatch` is neither.
      Exception: what `jax.jit` raises.
    """
    from rewarm.jax_adapter.trace_free.jit import jit as make

    if fun is None:
        return lambda fun: make(fun, depends_on=depends_on, on_mismatch=on_mismatch, options=options)
    return make(fun, depends_on=depends_on, on_mismatch=on_mismatch, options=options)


def abstract(tree: Any, *, sharding: Any = None, mesh: Any = None) -> Any:
    """Abstract arguments for `rewarm.Program`: a pytree of arrays, or what `jax.eval_shape` returns, without values.

    Not promised: a sharding for devices that are not those of the program. An array's own sharding names the devices
    that it lies on here, so it is dropped, unless `mesh` says what stands in their place.

    Args:
      tree: a pytree. Arrays, NumPy arrays and numbers become `jax.ShapeDtypeStruct` of the type that JAX gives them;
        other leaves stay as they are.
      sharding: of all leaves, or a pytree of shardings of which each holds for what is below it; `None`: the leaf's own
        where it is a `ShapeDtypeStruct`, else none. With `mesh` a `PartitionSpec` will do.
      mesh: of the program's devices. Arrays with a `NamedSharding` are divided over it as they are here.

    Raises:
      TypeError, ValueError: `sharding` is none, or does not fit the tree.
    """
    from rewarm.jax_adapter.programs import abstract as made

    return made(tree, sharding=sharding, mesh=mesh)


def recorded(
    jitted: Any,
    /,
    *like: Any,
    on: Any = None,
    key: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    name: str | None = None,
    compiler_options: Any = None,
    **keywords: Any,
) -> Program:
    """A `rewarm.Program` with the arguments that `jitted` had in the newest run that this cache directory knows.

    Not promised: what is in no compiled program: arguments that the function does not use, static ones, and whether the
    type of a number was weak (it is taken for an array's). Give the arguments then; of those that are given what the
    run had counts for shapes, types and shardings, and they say the rest.

    Args:
      jitted: what `jax.jit` returned; runs know it by its name.
      *like: nothing, and the arguments are made of the names of their leaves (dicts, and lists for all that has
        numbers); or all of them, as the function takes them, such as `jax.eval_shape` returns.
      on: a mesh whose axes have the names that the run's had, and any sizes, over which arguments are divided as they
        were; for a program of one device, that device.
      key: the start of the key that is meant, where programs of one name differ (`rewarm ls`).
      directory: where the run was kept. Default: as for `enable`.
      name, compiler_options: as for `Program`.
      **keywords: as `like`.

    Raises:
      RecordError (a ValueError): no run, or a record that does not say enough; the message says what to give.
      TypeError: `jitted` is not a function.
    """
    from rewarm.jax_adapter.recorded import recorded as made

    return made(
        jitted,
        *like,
        on=on,
        key=key,
        directory=directory,
        name=name,
        compiler_options=compiler_options,
        **keywords,
    )


def __getattr__(name: str) -> Any:
    # Errors and records are imported when first named, so that `import rewarm` costs next to nothing.
    import importlib

    if name == "Program":
        return importlib.import_module("rewarm.jax_adapter.programs").Program
    if name in {"Event", "Seconds", "Stats"}:
        return getattr(importlib.import_module("rewarm.ledger"), name)
    if name in {"Change", "Explanation", "Finding"}:
        return getattr(importlib.import_module("rewarm.ledger.explanation"), name)
    if name in __all__:
        return getattr(importlib.import_module("rewarm.errors"), name)
    raise AttributeError(f"module 'rewarm' has no attribute {name!r}")
