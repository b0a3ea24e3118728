"""Cases, records and stores for the tests of the tuner."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from rewarm.tunables.records import Case, Comparison, Record, Trial

WHEN = 1.7e9
DEFAULT = {"block": 32}
FASTER = Comparison(1.5, 1.4, 1.6, "faster", 0.95, 40)


def digest(text: str) -> str:
    """64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def a_case(arguments: str = "f32[1024,512]", kernel: str = "kernels:attention", **changed: str) -> Case:
    """A case; `content="2"` and the like change what a digest is of."""
    said = {name: digest(name + changed.get(name, "")) for name in ("content", "target", "toolchain", "libraries")}
    return Case(kernel=kernel, arguments=arguments, **said)


def a_trial(block: int = 64, seconds: tuple[float, ...] = (0.002, 0.0021), **more: Any) -> Trial:
    """One candidate."""
    return Trial({"block": block}, **{"outcome": "timed", "seconds": seconds, "when": WHEN, **more})


def a_record(case: Case | None = None, winner: Mapping[str, Any] | None = None, **more: Any) -> Record:
    """A decided record, whose winner is 64."""
    said: dict[str, Any] = {
        "default": DEFAULT,
        "winner": {"block": 64} if winner is None else winner,
        "trials": (a_trial(32, (0.003, 0.0031)), a_trial(64)),
        "comparison": FASTER,
        "environment": {"load": 0.25, "timer": "wall"},
        "when": WHEN,
        "inputs": "generated, seed 0",
        "tolerance": {"float32": 1e-5},
        "about": {"device": "cpu x2", "jax": "0.12.0.1", "jaxlib": "0.12.0.1"},
    }
    return Record(case or a_case(), **{**said, **more})
