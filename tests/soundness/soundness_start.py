"""One start of a program of the table: run by its last line, and told by the environment what to do.

The program has `f`, and may have `ARGS`, `OPTIONS` (of jit), or instead of all these `calls(jit)`, which yields each
jitted function with its arguments. SOUNDNESS is "truth" (what a trace by `jax.jit` gives: key and result, rewarm off)
or "start" (what `rewarm.jit` gives, and what became of it).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

Jit = Callable[..., Any]
_PROOF = 60.0


def start(space: dict[str, Any]) -> None:
    """Do what is asked for, and print what came of it as one line of JSON."""
    print(json.dumps(_truth(space) if os.environ["SOUNDNESS"] == "truth" else _start(space)))


def _calls(space: dict[str, Any], jit: Jit) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    import numpy as np

    if "calls" in space:
        yield from space["calls"](jit)
    else:
        yield (
            jit(space["f"], **space.get("OPTIONS", {})),
            space.get("ARGS", (np.arange(1, 5, dtype=np.float32),)),
        )


def _result(value: Any) -> str:
    """All bits of a result, and its types."""
    import jax
    import numpy as np

    leaves, tree = jax.tree_util.tree_flatten(value)
    found = [str(tree)]
    for leaf in leaves:
        data = np.asarray(leaf)
        found.append(f"{data.dtype} {data.shape} {hashlib.sha256(data.tobytes()).hexdigest()[:16]}")
    return " ".join(found)


def _truth(space: dict[str, Any]) -> dict[str, Any]:
    import jax

    import rewarm

    told = []
    for jitted, arguments in _calls(space, jax.jit):
        key = rewarm.key_of(jitted, *arguments)
        told.append([key, _result(jitted(*arguments))])
    return {"calls": told}


def _start(space: dict[str, Any]) -> dict[str, Any]:
    import rewarm

    told, made = [], []
    for jitted, arguments in _calls(space, rewarm.jit):
        before = dict(rewarm.stats().jitted)
        result = _result(jitted(*arguments))
        after = rewarm.stats().jitted
        ways = [way for way, count in after.items() if count != before.get(way, 0) and not way.startswith("proof")]
        told.append([ways[0] if ways else "", result])
        made.append((jitted, arguments))
    _wait_for_proofs(sum(way == "skipped" for way, _ in told))
    error = ""
    again = []
    for jitted, arguments in made:
        try:
            again.append(_result(jitted(*arguments)))
        except rewarm.TraceMismatchError as raised:
            error = str(raised)
            again.append(_result(jitted(*arguments)))
    return {"calls": told, "error": error, "again": again, "jitted": dict(rewarm.stats().jitted)}


def _wait_for_proofs(count: int) -> None:
    import rewarm

    until = time.monotonic() + _PROOF
    while time.monotonic() < until:
        done = sum(number for way, number in rewarm.stats().jitted.items() if way.startswith("proof"))
        if done >= count:
            return
        time.sleep(0.05)
