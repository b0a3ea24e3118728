"""The `callbacks` component: the Python of `custom_partitioning`, which runs while a program compiles, by content.

Not promised: a value for every callback. What cannot be followed is not guessed: it is a `NotFingerprintableError`
that names the object which stood in the way, and the program is compiled and not stored.

What decides the result of such a callback: the functions themselves with all that they reach, the static arguments,
the trees of arguments and results, the mesh, and the options of JAX that shape a trace, since the callback returns a
function that JAX traces there and then.
"""

from __future__ import annotations

from typing import Any

from rewarm.errors import NotFingerprintableError
from rewarm.jax_adapter import seam
from rewarm.jax_adapter.jax_values import classes_of, companions, reducers, trace_context


def callbacks_value(addresses: tuple[str, ...]) -> list[dict[str, Any]]:
    """The component's value: for each call its digest, and digests of its parts.

    Args:
      addresses: what the calls' configurations hold, in the order of the program.

    Raises:
      NotFingerprintableError: something that takes part cannot be identified by content.
    """
    reducers()  # first: it imports parts of JAX, and such an import can add an option to those of a trace
    context = trace_context()
    return [{**_content(address), "context": context} for address in addresses]


def _content(address: str) -> dict[str, Any]:
    call = seam.partitioning_call(address)
    if call is None:
        raise NotFingerprintableError("custom_partitioning", "a call", "its Python is gone")
    call = {**call, "classes": classes_of(call["in_tree"], call["out_tree"])}
    # Imported when a program needs it: few do.
    from rewarm.fingerprint import fingerprint

    found = fingerprint(call, name="custom_partitioning", reducers=reducers(), companions=companions)
    parts = dict(found.parts)
    if found.unordered:
        # The order of such a set may be that of the program. With a fixed PYTHONHASHSEED this is one value.
        parts["the order of sets (PYTHONHASHSEED)"] = f"{hash('rewarm') & 0xFFFF_FFFF:08x}"
    return {"digest": found.digest, "parts": parts}
