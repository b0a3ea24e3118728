"""The key of a program, without compiling it.

Not promised: a key for a program that rewarm would leave to JAX, or that has none.
"""

from __future__ import annotations

from typing import Any

from rewarm.errors import NotCacheableError
from rewarm.jax_adapter import activation

# Makes JAX ask for this program even where it has its executable in memory. It is taken out before the key is built.
_PROBE_OPTION = "rewarm_key_probe"


def key_of(jitted: Any, *args: Any, **kwargs: Any) -> str:
    """See `rewarm.key_of`."""
    if not (callable(jitted) and hasattr(jitted, "lower")):
        raise TypeError(
            f"rewarm.key_of: expected a jitted function, such as jax.jit(f), found {type(jitted).__name__}; "
            f"wrap it: rewarm.key_of(jax.jit(f), *args)"
        )
    capture = captured(jitted.lower(*args, **kwargs))
    request = capture.request
    if request is None:
        raise NotCacheableError(f"rewarm.key_of: this program is left to JAX's own code: {capture.left_to_jax}")
    if request.components is None:
        raise NotCacheableError(f"rewarm.key_of: {request.program} has no key: {request.unkeyable}")
    return request.components.key()


def key_of_lowered(lowered: Any) -> str | None:
    """The key of what `jitted.lower` returned, without compiling it; `None` where it has none."""
    request = captured(lowered).request
    return None if request is None or request.components is None else request.components.key()


def captured(lowered: Any) -> activation.Capture:
    """What compiling it would ask for; nothing is compiled."""
    with activation.capturing(_PROBE_OPTION) as capture:
        lowered.compile(compiler_options={_PROBE_OPTION: True})
    return capture
