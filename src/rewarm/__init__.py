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
        SpaceError,
        StoreError,
        TraceMismatchError,
        UnsupportedJaxError,
        UntunedError,
    )
    from rewarm.jax_adapter.programs import Program
    from rewarm.jax_adapter.tuner.api import Tuned
    from rewarm.ledger import Event, Seconds, Stats
    from rewarm.ledger.explanation import Change, Explanation, Finding
    from rewarm.tunables.spaces import Range

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
    "Range",
    "RewarmError",
    "Seconds",
    "SettingError",
    "SpaceError",
    "Stats",
    "StoreError",
    "TraceMismatchError",
    "Tuned",
    "UnsupportedJaxError",
    "UntunedError",
    "__version__",
    "abstract",
    "disable",
    "enable",
    "events",
    "jit",
    "key_of",
    "recorded",
    "stats",
    "tunable",
    "tune",
    "tune_options",
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
    tuned_options: bool | None = None,
    untuned: str | None = None,
    summary: bool | None = None,
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
      tuned_options: programs get the options of XLA that `rewarm.tune_options` found for them. Default yes.
      untuned: what a call of a `rewarm.tunable` function is that nobody has tuned here: "default" (its default is used
        and said; the default) or "error".
      summary: one line on standard error at the end of the program says what was saved. Default no.

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
        tuned_options=tuned_options,
        untuned=untuned,
        summary=summary,
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


def jit(
    fun: Any = None,
    /,
    *,
    depends_on: Any = (),
    on_mismatch: str = "raise",
    proof: str = "beside",
    **options: Any,
) -> Any:
    """As `jax.jit`, and a start of the program does not trace what two earlier ones have traced to the same program.

    Not promised: that a trace is skipped, or that skipping it is sound beyond doubt: what a function reads while it is
    traced is guarded as far as it can be followed, and refused where it cannot. So each start without a trace, later a
    share of them, is proved in the background, by a trace beside the program; README.md says what that can find.
    Without rewarm on, inside of `grad`, `vmap` or another `jit`, and in programs of several processes it is `jax.jit`.

    Args:
      fun: the function; without one a decorator is returned.
      depends_on: objects that count beside what the function names, for reads that cannot be followed.
      on_mismatch: what the next call does after a proof has failed: "raise" (a `TraceMismatchError`) or "warn".
      proof: where a start without a trace is proved: "beside" the program, in a thread (default), or "at the start",
        by a trace of every few starts in front of everybody. A function that changes objects in passing which all
        threads share, such as a stack of handlers, is proved at the start in either case, as far as that can be seen.
      **options: those of `jax.jit`: `static_argnums`, `donate_argnums`, `in_shardings`, and so on.

    Returns:
      What `jax.jit` returns, with its methods: `lower`, `trace`, `eval_shape`, `clear_cache`.

    Raises:
      ValueError: `on_mismatch` or `proof` is none of these.
      Exception: what `jax.jit` raises.
    """
    from rewarm.jax_adapter.trace_free.jit import jit as make

    if fun is None:
        return lambda fun: make(fun, depends_on=depends_on, on_mismatch=on_mismatch, proof=proof, options=options)
    return make(fun, depends_on=depends_on, on_mismatch=on_mismatch, proof=proof, options=options)


def tunable(
    function: Any = None,
    /,
    *,
    space: Any,
    default: Any = None,
    constraints: Any = None,
    name: str | None = None,
    nearest: bool = False,
) -> Any:
    """Have keyword parameters of a function chosen by what was tuned: `@rewarm.tunable(space={"block": [32, 64]})`.

    Not promised: a good choice. What nobody has tuned on this device, with this compiler and these libraries, has the
    default, and a line says so once; `rewarm.tune` tunes it. Inside of `jax.jit`, `vmap`, `grad` and `shard_map` the
    choice is made while tracing, by the shapes and types that the function sees there, and is part of the program. JAX
    keeps traces in memory, so a winner that is found later acts at the next trace, or at the next start. With rewarm
    off it is the function with its default.

    Args:
      function: a function that JAX can trace, with a keyword parameter for each parameter of the space; without one a
        decorator is returned.
      space: parameter -> its values: a list of numbers, text, bools, `None` or functions (variants of the algorithm), a
        mapping of labels to objects, `rewarm.Range(low, high, step=, log=)`, or a function of the abstract arguments
        that gives one of these; or one function of the abstract arguments that gives all of it.
      default: a value for each parameter; by default the first of each.
      constraints: a function, or several, that take parameters and arguments by name and say whether they go together.
      name: what its records go by. Default: module and name of the function.
      nearest: untuned shapes get the winner of the nearest tuned ones, of the same types, device and compiler.

    Returns:
      A function with the same signature. A parameter of the space that a caller gives is used, once it was checked.

    Raises:
      SpaceError: the space cannot be used; the message names the parameter and the good values.
      UntunedError (when called): nobody has tuned it, and `untuned` is "error".
    """
    from rewarm.jax_adapter.tuner.tunable import tunable as make

    return make(function, space=space, default=default, constraints=constraints, name=name, nearest=nearest)


def tune(
    function: Any,
    space: Any = None,
    /,
    *args: Any,
    default: Any = None,
    constraints: Any = None,
    budget: float = 60.0,
    trials: int | None = None,
    tolerance: float | None = None,
    inputs: Any = None,
    confidence: float = 0.95,
    effect: float = 0.01,
    seed: int = 0,
    strict: bool = False,
    isolate: bool = True,
    again: bool = False,
    optimiser: str | None = None,
    memory: int | None = None,
    patience: float = 20.0,
    progress: bool | None = None,
    deadline: float | None = None,
    name: str | None = None,
    **kwargs: Any,
) -> Tuned:
    """Find what is fastest for these arguments on this device, and keep it: `rewarm.tune(f, None, x)` for a `tunable`.

    Not promised: the best of a large space, or that a winner is faster on other values of the arguments. The default
    stays unless another candidate gives the same results (within the tolerance, on two inputs) and is faster beyond
    noise, in the search and then in each of two or three fresh processes. What is known already is not measured
    again; a candidate that was added is measured alone. Candidates run in child processes, so one that crashes, hangs
    or takes all memory ends there and is not tried again for 30 days; functions that cannot be imported (lambdas,
    closures) run in this process, and the record is flagged "not isolated". With rewarm off nothing is kept.

    Args:
      function: a `rewarm.tunable`, or any function with keywords that JAX can trace.
      space: as for `rewarm.tunable`; `None`: that of the tunable.
      *args: the arguments: arrays, or `jax.ShapeDtypeStruct`, in whose place values are made (never zeros).
      default, constraints: as for `rewarm.tunable`.
      budget: seconds, all together. Default 60.
      trials: how many candidates at most. Default: no bound.
      tolerance: how far results may be from the default's, relative to the largest magnitude in them. Default: by type,
        1e-4 for float32, 2e-2 for bfloat16 and so on; whole numbers must be equal.
      inputs: a list of tuples of arguments to measure and compare on, instead of `args`.
      confidence: with which a winner is faster. Default 0.95.
      effect: the smallest difference that counts, relative. Default 0.01.
      seed: of all that is drawn.
      strict: a noisy session is refused (`NoisyError`) instead of flagged.
      isolate: candidates run in child processes. Default yes.
      again: measure what is known, too.
      optimiser: "optuna": it proposes candidates in large spaces (`pip install 'rewarm[tune]'`).
      memory: bytes that a child may take. Default: most of what is free.
      patience: seconds that one call of a candidate may take.
      progress: show what is done on standard error. Default: where that is a terminal.
      deadline: in a job of several processes, seconds that the others wait for rank 0. Default: the budget.
      name: as for `rewarm.tunable`.
      **kwargs: named arguments of the function.

    Returns:
      `Tuned`: `winner`, `ratio`, `record`, `show()`.

    Raises:
      SpaceError: the space cannot be used.
      DefaultFailedError (a RewarmError): the default itself cannot run.
      NoisyError (a RewarmError): see `strict`.
      KeyboardInterrupt: what was measured until then is kept.
    """
    from rewarm.jax_adapter.tuner.api import Options
    from rewarm.jax_adapter.tuner.api import tune as run

    options = Options(
        budget=budget,
        trials=trials,
        tolerance=tolerance,
        inputs=inputs,
        confidence=confidence,
        effect=effect,
        seed=seed,
        strict=strict,
        isolate=isolate,
        again=again,
        optimiser=optimiser,
        memory=memory,
        patience=patience,
        progress=progress,
        deadline=deadline,
    )
    return run(function, space, args, kwargs, options, default=default, constraints=constraints, name=name)


def tune_options(
    jitted: Any,
    /,
    *args: Any,
    space: Any = None,
    numerics: bool = False,
    budget: float = 120.0,
    trials: int | None = None,
    tolerance: float | None = None,
    inputs: Any = None,
    confidence: float = 0.95,
    effect: float = 0.02,
    seed: int = 0,
    strict: bool = False,
    isolate: bool = True,
    again: bool = False,
    optimiser: str | None = None,
    memory: int | None = None,
    patience: float = 60.0,
    progress: bool | None = None,
    deadline: float | None = None,
    **kwargs: Any,
) -> Tuned:
    """Find options of XLA with which one program is faster on this device, and have later starts compile it with them.

    Not promised: that any option helps. The winner is kept under the program's identity (the canonical program, device,
    compiler, and all other options), so a changed program has its own options again. Later starts with rewarm on, of
    any process, compile that program with them, and say so in events, statistics and the log; `rewarm.disable()`, the
    setting `tuned_options=False` or `REWARM_TUNED_OPTIONS=0` is without.

    What is not listed here (budget, trials, tolerance, inputs, confidence, effect, seed, strict, isolate, again,
    optimiser, memory, patience, progress, deadline) is as for `rewarm.tune`.

    Args:
      jitted: what `jax.jit` returned.
      *args: its arguments, as for `rewarm.tune`.
      space: option -> values, such as `{"xla_cpu_prefer_vector_width": [128, 256]}`; `None` as a value leaves the
        option away. Default: a short list for the platform, of options that do not change what is computed.
      numerics: the default list also has options that may change results, such as fast mathematics.
      **kwargs: named arguments.

    Raises:
      TypeError: `jitted` is not a jitted function.
      NotCacheableError: the program has no identity.
      SpaceError, DefaultFailedError, NoisyError, KeyboardInterrupt: as for `rewarm.tune`.
    """
    from rewarm.jax_adapter.tuner.api import Options
    from rewarm.jax_adapter.tuner.options import tune_options as run

    options = Options(
        budget=budget,
        trials=trials,
        tolerance=tolerance,
        inputs=inputs,
        confidence=confidence,
        effect=effect,
        seed=seed,
        strict=strict,
        isolate=isolate,
        again=again,
        optimiser=optimiser,
        memory=memory,
        patience=patience,
        progress=progress,
        deadline=deadline,
    )
    return run(jitted, args, kwargs, options, space=space, numerics=numerics)


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


def load_ipython_extension(ipython: Any) -> None:
    """What `%load_ext rewarm` calls: gives a notebook `%rewarm on`, `off`, `stats`, `events` and `explain`."""
    from rewarm.notebook.magic import load

    load(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """What `%unload_ext rewarm` calls; the cache stays as it is."""
    from rewarm.notebook.magic import unload

    unload(ipython)


def __getattr__(name: str) -> Any:
    # Errors and records are imported when first named, so that `import rewarm` costs next to nothing.
    import importlib

    if name == "Program":
        return importlib.import_module("rewarm.jax_adapter.programs").Program
    if name == "Range":
        return importlib.import_module("rewarm.tunables.spaces").Range
    if name == "Tuned":
        return importlib.import_module("rewarm.jax_adapter.tuner.api").Tuned
    if name in {"Event", "Seconds", "Stats"}:
        return getattr(importlib.import_module("rewarm.ledger"), name)
    if name in {"Change", "Explanation", "Finding"}:
        return getattr(importlib.import_module("rewarm.ledger.explanation"), name)
    if name in __all__:
        return getattr(importlib.import_module("rewarm.errors"), name)
    raise AttributeError(f"module 'rewarm' has no attribute {name!r}")
