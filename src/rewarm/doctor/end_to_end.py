"""The check that tries it: two processes compile one small program, and the second must find what the first stored.

Not promised: anything about other programs. The processes have this environment, with the cache in a folder of its own
beside the real one, which is removed again.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rewarm import policy, settings
from rewarm.doctor.check import Check, seconds
from rewarm.doctor.directory import scratch_place
from rewarm.doctor.facts import CHILD_SECONDS, Facts, last_line

_PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
def rewarm_doctor(x):
    for _ in range(4):
        x = jnp.tanh(x @ x) + jnp.sort(x, axis=0)
    return x
jax.block_until_ready(jax.jit(rewarm_doctor)(np.ones((16, 16), np.float32)))
"""
_NAME = "end to end"


def check(facts: Facts) -> Check:
    """The check."""
    place = scratch_place(facts.directory)
    if place is None:
        return Check(_NAME, "note", "not tried: nothing can be written to the directory", "see the checks above")
    if not (facts.has_rewarm and facts.seen.get("jax")):
        return Check(_NAME, "note", "not tried: this Python lacks rewarm or JAX", "see the checks above")
    with tempfile.TemporaryDirectory(prefix=".rewarm-doctor-", dir=place, ignore_cleanup_errors=True) as scratch:
        first = _start(facts.python, Path(scratch))
        second = first if isinstance(first, str) else _start(facts.python, Path(scratch))
    if isinstance(first, str) or isinstance(second, str):
        why = first if isinstance(first, str) else second
        return Check(_NAME, "problem", f"a small program does not run: {why}", "run one by itself, and repair that")
    return _told(first, second)


def _start(python: str, directory: Path) -> Mapping[str, Any] | str:
    """The numbers of one process, with its whole time; or why there are none."""
    # A program that holds the accelerator has its memory: this one takes none ahead.
    # Remotes are looked at by themselves, and are no place for this program.
    alone = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "REWARM_REMOTE": "none"}
    environment = {**settings.unwatched(settings.child_environment(directory, "json")), **alone}
    began = time.perf_counter()
    try:
        done = subprocess.run(
            [python, "-P", "-c", _PROGRAM],  # without the current folder, where anything may lie
            env=environment,
            capture_output=True,
            text=True,
            timeout=CHILD_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode:
        return last_line(done.stderr) or f"exit code {done.returncode}"
    for line in reversed(done.stderr.splitlines()):
        try:
            numbers = json.loads(line)
        except ValueError:
            continue
        if isinstance(numbers, dict) and "requests" in numbers:
            said = [line for line in done.stderr.splitlines() if line.startswith("rewarm: ")]
            return {**numbers, "whole": time.perf_counter() - began, "said": said}
    return {"requests": None, "said": [line for line in done.stderr.splitlines() if "rewarm" in line]}


def _told(first: Mapping[str, Any], second: Mapping[str, Any]) -> Check:
    if not first.get("requests"):
        left = ", ".join(first.get("left_to_jax") or {}) or " ".join(first["said"])[:300] or "it never came on"
        return Check(_NAME, "problem", f"rewarm served no program: {left}", "see the checks above")
    if second["hits"] == second["requests"]:
        compiled, loaded = first["seconds_compiling"], second["seconds_loading"]
        whole = f"{first['whole']:.1f} s and {second['whole']:.1f} s in all"
        found = f"one process compiled a small program in {seconds(compiled)}, the next loaded it in {seconds(loaded)}"
        return Check(_NAME, "ok", f"{found} ({whole})")
    reasons = ", ".join(first.get("not_stored") or {}) or " ".join(second["said"])[:300] or "rewarm explain says more"
    found = f"the second process found {second['hits']} of {second['requests']} programs: {reasons}"
    quick = set(first.get("not_stored") or {}) <= {policy.TOO_QUICK, policy.TOO_SMALL, policy.LOADS_SLOWER}
    if first.get("not_stored") and quick:
        return Check(_NAME, "note", found, "lower the thresholds if programs as small as this one are to be stored")
    return Check(
        _NAME, "problem", found, "see the checks above, and the lines that start with rewarm in a program's log"
    )
