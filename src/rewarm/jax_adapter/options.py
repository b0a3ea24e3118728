"""The bridge from JAX's options of its persistent cache to rewarm's settings.

Not promised: to notice an option that was set to exactly JAX's default by `jax.config.update` before rewarm was on.
"""

from __future__ import annotations

from rewarm import settings
from rewarm.in_force import HostOptions
from rewarm.jax_adapter.seam import JaxOptions

_MIN_COMPILE_VARIABLE = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


def host_options(options: JaxOptions) -> HostOptions:
    """What the user told JAX, in rewarm's terms.

    JAX's own default of 1 second for the smallest compile time does not carry over: with rewarm on and nothing said,
    small programs are stored too.
    """
    said_threshold = options.min_compile_seconds_set or settings.variable_is_set(_MIN_COMPILE_VARIABLE)
    return HostOptions(
        directory=options.cache_dir or None,
        min_compile_seconds=float(options.min_compile_seconds) if said_threshold else None,
        min_entry_bytes=options.min_entry_bytes or None,
        metadata_in_key=options.metadata_in_key,
        check_contents=options.check_contents,
        raise_errors=options.raise_errors,
        explain_misses=options.explain_misses,
        max_size=options.max_size,
    )
