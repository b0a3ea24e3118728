"""Fresh processes for the tests: a program is written to a file, run by this Python, and looked at from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# How long an example takes on a busy machine says nothing.
hypothesis.settings.register_profile("rewarm", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("rewarm")

# Before any test imports it: its assertions are to be readable.
pytest.register_assert_rewrite("rewarm.store.conformance", "rewarm.remote.conformance")

# What a developer's shell may hold and a test must not see.
_FOREIGN = ("REWARM", "JAX_", "XLA_", "TF_CPP", "PYTHON", "PYTEST_", "LIBTPU")

# A shell that starts this in the background has Ctrl-C ignored, and nohup SIGHUP, by all that is started here, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Programs named jit_f0, jit_f1, ...: all are asked for, in this order.
MANY = """
    import sys, jax, numpy as np
    def program(number):
        def f(x):
            return x * 2 + number
        f.__name__ = f"f{number}"
        return jax.jit(f)
    print([float(np.asarray(program(number)(np.ones(2, np.float32)))[0]) for number in range(int(sys.argv[1]))])
"""

# Compiles for some seconds, in one program that is large enough for a lease, and says when it begins.
SLOW = """
import jax, numpy as np, jax.numpy as jnp

def f(x):
    for i in range(120):
        x = jnp.tanh(x @ x) * (1 + i)
    return jax.grad(lambda y: (y @ y).sum())(x).sum()

lowered = jax.jit(f).lower(np.ones((16, 16), np.float32))
print("begins", flush=True)
print(float(lowered.compile()(np.ones((16, 16), np.float32))), flush=True)
"""


def first(count: int, values: Iterable[Any], *, long: bool = False) -> list[Any]:
    """Parameters of which so many run by default, and all in the campaigns; in the `long` ones, where it says so."""
    found = list(values)
    marks = [pytest.mark.campaign, *([pytest.mark.long] if long else [])]
    return [*found[:count], *(pytest.param(one, marks=marks) for one in found[count:])]


@dataclass(frozen=True)
class Run:
    """One finished process."""

    code: int
    out: str
    err: str

    @property
    def stats(self) -> dict[str, Any]:
        """The numbers that REWARM_STATS=json printed."""
        lines = [line for line in self.err.splitlines() if line.startswith('{"bytes_read"')]
        assert lines, self.err
        numbers = json.loads(lines[-1])
        assert isinstance(numbers, dict)
        return numbers

    @property
    def json(self) -> Any:
        """The last line of standard output, read as JSON."""
        return json.loads(self.out.splitlines()[-1])

    def warnings(self) -> list[str]:
        """Lines on standard error that rewarm wrote: not its numbers, and not XLA's own lines."""
        foreign = ("cpu_aot_loader", "pjrt_executable.cc", "RewriteRedundant", "TfrtCpuClient")
        return [
            line
            for line in self.err.splitlines()
            if line.strip() and not line.startswith('{"bytes_read"') and not any(word in line for word in foreign)
        ]


def clean_environment(**extra: str) -> dict[str, str]:
    """This environment without anything that steers JAX, XLA or rewarm, plus `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    return {**kept, "JAX_PLATFORMS": "cpu", **extra}


def execute(command: list[str], *, env: Mapping[str, str], cwd: Path, stdin: str | None = None) -> Run:
    """Run a command to its end."""
    done = subprocess.run(
        command, env=dict(env), cwd=cwd, input=stdin, capture_output=True, text=True, timeout=240, check=False
    )
    return Run(done.returncode, done.stdout, done.stderr)


Program = Callable[..., Run]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Runs Python source in a fresh process: `program(source, *argv, REWARM_DIR=...)`.

    Keyword arguments are variables of its environment; `ok=False` accepts another exit code than 0. REWARM_STATS is
    json unless said otherwise.
    """
    count = 0

    def run(source: str, *argv: str, ok: bool = True, cwd: Path = tmp_path, **env: str) -> Run:
        nonlocal count
        count += 1
        path = tmp_path / f"program_{count}.py"
        path.write_text(textwrap.dedent(source))
        done = execute(
            [sys.executable, str(path), *argv], env=clean_environment(**{"REWARM_STATS": "json", **env}), cwd=cwd
        )
        if ok:
            assert done.code == 0, done.err[-4000:]
        return done

    return run


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A directory for the cache that does not exist yet."""
    return tmp_path / "cache"


def entries(cache: Path) -> list[Path]:
    """The files of the entries in a cache directory."""
    return sorted(path for path in cache.glob("[0-9a-f][0-9a-f]/*") if len(path.name) == 64)
