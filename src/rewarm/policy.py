"""What is worth storing: pure functions over frozen records. They return decisions and touch nothing.

Not promised: that what is admitted stays. Both of JAX's thresholds must hold for an entry to be written.
"""

from __future__ import annotations

from typing import NamedTuple

TOO_QUICK = "compiled faster than min_compile_seconds"
TOO_SMALL = "smaller than min_entry_bytes"
SWITCHED_OFF = "jax_compilation_cache_max_size is 0"
TOO_LARGE = "larger than jax_compilation_cache_max_size"


class Thresholds(NamedTuple):
    """The user's limits on what is stored.

    Attributes:
      min_compile_seconds: an entry must have taken at least this long to compile.
      min_entry_bytes: an entry must be at least this large on disk; JAX's -1 ("no restriction") and 0 ("the cache
        may choose") both admit every size, since a local directory has no size it does better without.
      max_size: the whole cache's bound in bytes; less than 0 is none. One entry above it can never fit.
    """

    min_compile_seconds: float
    min_entry_bytes: int
    max_size: int = -1


def refuse_by_time(compile_seconds: float, thresholds: Thresholds) -> str | None:
    """Why an executable that took `compile_seconds` is not stored, or `None`. JAX's rule: `<` refuses."""
    return TOO_QUICK if compile_seconds < thresholds.min_compile_seconds else None


def refuse_by_size(entry_bytes: int, thresholds: Thresholds) -> str | None:
    """Why an entry of `entry_bytes` is not stored, or `None`."""
    if entry_bytes < thresholds.min_entry_bytes:
        return TOO_SMALL
    if 0 <= thresholds.max_size < entry_bytes:
        return TOO_LARGE
    return None
