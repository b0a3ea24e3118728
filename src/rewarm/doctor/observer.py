"""Watches a program's compiles: a plugin of JAX, copied into a folder that the program's `PYTHONPATH` begins with.

Not promised: more than what happens after JAX asked its plugins, which it does before its first compile.

It runs alone, as `jax_plugins/rewarm_observer.py` in that folder, and writes there too: a line of JSON for each compile
as it happens, so that a program which is killed has told what it did.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

_COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"
_folder = Path(__file__).resolve().parent.parent
_lock = threading.Lock()
_served = 0


def initialize() -> None:
    """What JAX calls."""
    import atexit

    import jax.monitoring

    jax.monitoring.register_event_duration_secs_listener(_heard)
    atexit.register(_end)


def _heard(event: str, seconds: float, **said: Any) -> None:
    if event != _COMPILE_EVENT:
        return
    global _served
    with _lock:
        numbers = _numbers()
        served = 0 if numbers is None else numbers["requests"] + sum(numbers["left_to_jax"].values())
        past, _served = served <= _served, served
    record = {"program": str(said.get("fun_name", "unknown")), "seconds": seconds, "past": past}
    _write({**record, "enabled": _enabled()})


def _enabled() -> bool:
    """Whether JAX's own switch lets anything be cached, at this moment and in this thread."""
    import jax

    return bool(getattr(jax.config, "jax_enable_compilation_cache", True))


def _numbers() -> dict[str, Any] | None:
    """What rewarm counted so far; `None` while it was never on."""
    activation = sys.modules.get("rewarm.jax_adapter.activation")
    numbers: dict[str, Any] | None = activation.stats().as_dict() if activation is not None else None
    return numbers


def _end() -> None:
    activation = sys.modules.get("rewarm.jax_adapter.activation")
    events = activation.events_so_far() if activation is not None else []
    told = [
        {
            "program": event.program,
            "outcome": event.outcome,
            "not_stored": event.not_stored,
            "quarantined": event.quarantined,
            "compile": event.seconds.compile,
        }
        for event in events[:20_000]
    ]
    _write({"stats": _numbers(), "events": told})


def _write(record: dict[str, Any]) -> None:
    try:
        with (_folder / f"observed-{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")
    except OSError:
        pass  # a full disk is the program's trouble, and another check's
