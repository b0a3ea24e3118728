"""`rewarm prewarm` in a fresh process."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from conftest import Run, clean_environment, execute

PLANS = Path(__file__).with_name("prewarm_plans.py")

# Whether this JAX makes devices of a CPU that is only described.
DESCRIBES_CPUS = tuple(map(int, importlib.metadata.version("jax").split(".")[:2])) >= (0, 11)


class Filled(NamedTuple):
    """What the command said."""

    run: Run
    told: dict[str, Any]

    @property
    def outcomes(self) -> dict[str, str]:
        """By program."""
        return {one["program"] or one["plan"]: one["outcome"] for one in self.told["programs"]}

    def why(self, program: str) -> str:
        """Of one program."""
        return str(next(one["why"] for one in self.told["programs"] if one["program"] == program))


def command(plan: str, *options: str, target: str = "host") -> list[str]:
    """The command line for a plan of these tests."""
    return [sys.executable, "-m", "rewarm", "prewarm", f"{PLANS}:{plan}", "--target", target, *options]


def prewarm(cache: Path, plan: str, *options: str, target: str = "host", **environment: str) -> Filled:
    """Run it to its end; exit codes are the test's to judge."""
    words = command(plan, "--dir", str(cache), "--json", *options, target=target)
    done = execute(words, env=clean_environment(**environment), cwd=cache.parent)
    return Filled(done, json.loads(done.out) if done.out.startswith("{") else {})


def attached(cache: Path | None, devices: int, *arguments: str) -> dict[str, Any]:
    """The same programs, run as a user's would be on so many devices of this host."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    extra = {"XLA_FLAGS": flags, **({"REWARM_DIR": str(cache)} if cache is not None else {})}
    done = execute([sys.executable, str(PLANS), *arguments], env=clean_environment(**extra), cwd=PLANS.parent)
    assert done.code == 0, done.err[-3000:]
    told = done.json
    assert isinstance(told, dict)
    return told
