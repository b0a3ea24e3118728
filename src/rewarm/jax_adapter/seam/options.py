"""JAX's options of its persistent cache, and the hooks by which users add to its keys.

Not promised: that an option which holds JAX's default was not set by the user to just that.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

# JAX's default of jax_persistent_cache_min_compile_time_secs. The option cannot say whether it was set; the object
# that it holds can, once it is another one.
_DEFAULT_MIN_COMPILE_SECONDS = 1.0


class JaxOptions(NamedTuple):
    """JAX's options of its persistent cache, as they are for this thread now."""

    cache_dir: str | None
    enabled: bool
    min_compile_seconds: float
    min_compile_seconds_set: bool
    min_entry_bytes: int
    metadata_in_key: bool
    check_contents: bool
    raise_errors: bool
    explain_misses: bool
    log_compiles: bool
    max_size: int
    share_binary: bool
    profile_guided: bool


@functools.cache
def holders() -> Any:
    from jax._src import config

    return config


_first_min_compile_seconds: object = None


def remember_defaults() -> None:
    """Keep the object that stands for "not set", so that a later update to the same number shows."""
    global _first_min_compile_seconds  # noqa: PLW0603 - one fact of the process, like the option it belongs to
    if _first_min_compile_seconds is None:
        _first_min_compile_seconds = holders().persistent_cache_min_compile_time_secs.value


def read_options() -> JaxOptions:
    """JAX's options as they are for this thread now."""
    config = holders()
    threshold = config.persistent_cache_min_compile_time_secs.value
    untouched = threshold == _DEFAULT_MIN_COMPILE_SECONDS and threshold is _first_min_compile_seconds
    return JaxOptions(
        cache_dir=config.compilation_cache_dir.value,
        enabled=config.enable_compilation_cache.value,
        min_compile_seconds=threshold,
        min_compile_seconds_set=not untouched,
        min_entry_bytes=config.persistent_cache_min_entry_size_bytes.value,
        metadata_in_key=config.compilation_cache_include_metadata_in_key.value,
        check_contents=config.compilation_cache_check_contents.value,
        raise_errors=config.raise_persistent_cache_errors.value,
        explain_misses=config.explain_cache_misses.value,
        log_compiles=config.log_compiles.value,
        max_size=config.compilation_cache_max_size.value,
        share_binary=config.share_binary_between_hosts.value,
        profile_guided=bool(
            (config.enable_pgle.value and config.pgle_profiling_runs.value > 0)
            or config.compilation_cache_expect_pgle.value
        ),
    )


@functools.cache
def _cache_key() -> Any:
    from jax._src import cache_key

    return cache_key


def flag_prefixes() -> tuple[str, ...]:
    """What was given to `cache_key.add_flag_prefixes`."""
    return tuple(_cache_key().get_flag_prefixes())


def salt_of_hooks(arguments: Sequence[str]) -> tuple[str, ...]:
    """What the user's hooks add to a key: `cache_key.custom_hook()`, then, sorted, the program arguments with a prefix
    that was given to `cache_key.add_flag_prefixes`."""
    cache_key = _cache_key()
    prefixes = flag_prefixes()
    flags = sorted(argument for argument in arguments if argument.startswith(prefixes)) if prefixes else []
    return (str(cache_key.custom_hook()), *flags)
