"""What the tuner needs of JAX: options of a compile, added and taken away, and those that a device's defaults have.

Not promised: that XLA takes an option; it says so where it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewarm.jax_adapter.seam.compile_step import Call


def plain_compile_options() -> bytes:
    """The serialised options of a program for one device about which nothing is said."""
    from jax._src.lib import xla_client

    options: bytes = xla_client.CompileOptions().SerializeAsString()
    return options


def overrides_of(call: Call) -> dict[str, Any]:
    """What `compiler_options=` and the like say for this compile, by name."""
    return dict(call.compile_options.env_option_overrides)


def set_overrides(call: Call, overrides: Mapping[str, Any]) -> None:
    """Have a compile take these, in place of what it had."""
    call.compile_options.env_option_overrides = list(overrides.items())
