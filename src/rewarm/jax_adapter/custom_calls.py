"""Functions that a program calls by name, and what they need before an executable that calls them is loaded.

Not promised: that a function does what it did when the entry was made. An executable holds the name; the function is
whatever this process has registered under it, as it would be for a program that was just compiled.

What was seen on CPU with JAX 0.9, 0.10, 0.11 and 0.12, in fresh processes that load from bytes (`tests/adapter/
test_custom_calls.py` does it again):

* a name that is not registered, typed or untyped: the load fails with NOT_FOUND, and nothing ends the process. So
  nothing is refused by looking at names, which would have to know what XLA handles itself (Sharding, ApproxTopK, ...);
  the runtime's own word is taken.
* LAPACK in a process that has not lowered a program with it: the load succeeds, and the first run ends the process
  (SIGSEGV): jaxlib's kernels are registered at once and find their functions only while lowering. JAX 0.9 does not
  do so for programs from `jax.export` either. `prepare` does it.
* an untyped function (registered with `api_version=0`), loaded by JAX 0.9: it is handed a list of results where the
  function expects the only one, so it writes over the stack, and the program has wrong results. Not in JAX 0.10 and
  later. `obstacle` names such programs.
* a library that was built anew: the executable calls the new one.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from rewarm.identity import Program
from rewarm.jax_adapter import seam

_CALLS = frozenset({"stablehlo.custom_call", "mhlo.custom_call"})
_LAPACK = b"lapack_"
_NOT_FOUND = re.compile(
    r"No FFI handler registered for (\S+) on|No registered implementation for .*custom call to (\S+)"
)


def prepare(platform: str, program: Program) -> None:
    """See to it that the functions which a program calls can be called. Must come before the first run.

    Next to nothing for a program without custom calls, and where JAX has done it already (3 microseconds).
    """
    prepare_for(platform, lapack=may_call_lapack(program.kinds, program.canonical))


def prepare_for(platform: str, *, lapack: bool) -> None:
    """As `prepare`, for a program of which only this is known: whether it calls LAPACK."""
    if platform == "cpu" and lapack:
        seam.initialise_lapack()


def may_call_lapack(kinds: Collection[str], canonical: bytes) -> bool:
    """Whether a program with these operations and this canonical form may call functions of LAPACK."""
    return not _CALLS.isdisjoint(kinds) and _LAPACK in canonical


def obstacle(platform: str, program: Program) -> str | None:
    """Why executables of a program must not be loaded by this JAX, or `None`."""
    if platform != "cpu" or not _calls(program) or not seam.version().startswith("0.9."):
        return None
    # A name is a string of the bytecode, as it is. One that only looks like it costs a hit.
    found = [name for name in seam.untyped_targets() if name.encode("utf-8", "surrogateescape") in program.canonical]
    if not found:
        return None
    return f"it calls {min(found)}, registered without XLA's FFI, which JAX 0.9 cannot load"


def missing_target(error: BaseException) -> str | None:
    """The function that the runtime did not find while it loaded an executable, or `None` for any other error."""
    found = _NOT_FOUND.search(str(error))
    return (found[1] or found[2]) if found is not None else None


def _calls(program: Program) -> bool:
    return not _CALLS.isdisjoint(program.kinds)
