"""What `--json` of the commands for sharing, tuning and pre-warming prints; `json_forms.py` has the others.

Not promised: the forms in `OF_COMPILER` where XLA's CUDA compiler is not (tools/cuda-compiler).
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.extend(str(Path(__file__).resolve().parents[1] / name) for name in ("", "autotune"))

from tuning_samples import NEW, OLD

import cuda_compilers
from conftest import clean_environment, execute

Say = Callable[..., Any]
OF_COMPILER = {"autotune-check", "autotune-lock-check"}
SLOW = ("autotune-", "tune-", "prewarm", "target-show-against")  # how the names of those begin that take a minute

PLAN = """
    import jax, numpy as np, rewarm
    def plan():
        x = jax.ShapeDtypeStruct((8,), np.float32)
        yield rewarm.Program(jax.jit(lambda x: x * 2 + 1), x, name="good")
        yield rewarm.Program(jax.jit(lambda x: x @ np.ones(7)), x, name="bad")
    def product():
        x = jax.ShapeDtypeStruct((1024, 1024), jax.numpy.bfloat16)
        yield jax.jit(lambda p, q: p @ q), (x, x)
    def uncovered():
        x = jax.ShapeDtypeStruct((2048, 1024), jax.numpy.bfloat16)
        yield jax.jit(lambda p: p @ p.T), (x,)
"""

KERNELS = """
    import jax.numpy as jnp, rewarm
    @rewarm.tunable(space={"chunk": [64, 256]}, default={"chunk": 64})
    def total(x, *, chunk):
        return x.reshape(-1, chunk).sum(axis=1).sum()
"""


def sharing(folder: Path, say: Say) -> Iterator[tuple[str, Any]]:
    """In a directory with entries and a key."""
    (folder / "remote").mkdir()
    remote = ("--remote", f"file://{folder / 'remote'}")
    yield "sync", say("sync", "push", *remote, "--json")
    yield "sync", say("sync", "both", "--verify", *remote, "--json")
    yield "sync", say("sync", "pull", *remote, "--dir", str(folder / "second"), "--json")
    yield "ls-remote", say("ls", *remote, "--json")
    yield "ls-remote", say("ls", *remote, "--headers", "--json")
    yield "gc-remote", say("gc", *remote, "--max-age", "1d", "--dry-run", "--json")
    bundle = str(folder / "a.bundle")
    yield "bundle-save", say("bundle", "save", bundle, "--json")
    yield "bundle-save", say("bundle", "save", bundle, "--update", "--json")
    yield "bundle-show", say("bundle", "show", bundle, "--json")
    yield "bundle-load", say("bundle", "load", bundle, "--dir", str(folder / "third"), "--json")
    yield "gc-remote", say("gc", *remote, "--max-size", "1", "--json")


def traces(say: Say) -> Iterator[tuple[str, Any]]:
    """In a directory in which a program with `rewarm.jit` ran several times."""
    yield "explain-trace", say("explain", "--trace", "lambda", "--json")


def prewarming(folder: Path, say: Say) -> Iterator[tuple[str, Any]]:
    """In any directory."""
    (folder / "plans.py").write_text(textwrap.dedent(PLAN))
    wanted = ("prewarm", "plans.py:plan", "--target", "host", "--json")
    yield "prewarm", say(*wanted, "--check", code=(1,))
    yield "prewarm", say(*wanted, code=(1,))
    yield "prewarm", say(*wanted, "--only", "good", "--against", "x86-64-v3", "--bundle", str(folder / "plan.bundle"))
    yield "target-show-against", say("target", "show", "h100", "--against", "h200", "--json", code=(1,))


def tuning(folder: Path, say: Say) -> Iterator[tuple[str, Any]]:
    """In any directory."""
    (folder / "kernels.py").write_text(textwrap.dedent(KERNELS))
    yield "tune-run", say("tune", "run", "kernels.py:total", "--shapes", "f32[4096]", "--budget", "20", "--json")
    yield "tune-ls", say("tune", "ls", "--json")
    yield "tune-show", say("tune", "show", "total", "--json")
    yield "tune-check", say("tune", "check", "--json", code=(0, 1))
    yield "tune-export", say("tune", "export", "-o", "tuned.lock", "--json")
    yield "tune-import", say("tune", "import", "tuned.lock", "--dir", str(folder / "tuned"), "--json")
    from test_tune_commands import a_case, a_record, fill

    undecided = a_record(a_case("f32[2048,512]"), comparison=None, winner=None)
    records = ("--dir", str(fill(folder / "records", a_record(), undecided)), "--json")
    for kernel in (("2048",), ("1024",)):
        yield "tune-show", say("tune", "show", "attention", "--arguments", *kernel, *records)
    yield "tune-ls", say("tune", "ls", *records)
    yield "tune-check", say("tune", "check", "--function", "kernels.py:total", *records, code=(1,))
    yield "tune-prune", say("tune", "prune", "--all", "--kernel", "total", "--dry-run", "--json")


def autotuning(folder: Path, say: Say) -> Iterator[tuple[str, Any]]:
    """In any directory."""
    new, legacy, older = (
        shutil.copytree(NEW / "mlp_128x128" / "new_dir", folder / "new_dir", copy_function=shutil.copyfile),
        shutil.copyfile(NEW / "mlp_128x128" / "legacy_load.pb", folder / "legacy.pb"),
        shutil.copyfile(OLD / "mlp_128x128" / "legacy_load.pb", folder / "older.pb"),
    )
    (folder / "torn.pb").write_bytes(legacy.read_bytes()[:-9])
    built, elsewhere = ("--for-build", "jax-0.12.0.1"), ("--target", "h200", "--build", "tensorflow-2.20")
    meant = ("--jax", "0.12.0.1", "--target", "h200")
    for source in (new, legacy):
        yield "autotune-ls", say("autotune", "ls", str(source), "--json")
    first = say("autotune", "ls", str(legacy), "--json")[0]
    yield "autotune-show", say("autotune", "show", first["name"], str(legacy), "--json")
    yield "autotune-validate", say("autotune", "validate", str(legacy), *meant, "--json", code=(0, 1))
    yield "autotune-validate", say("autotune", "validate", "torn.pb", "--json", code=(1,))
    yield "autotune-merge", say("autotune", "merge", str(legacy), str(older), "-o", "all.pb", "--json")
    yield "autotune-convert", say("autotune", "convert", str(legacy), "-o", "legacy.textproto", "--json")
    yield "autotune-diff", say("autotune", "diff", str(legacy), str(older), "--json")
    yield "autotune-prune", say("autotune", "prune", "all.pb", *meant, "--dry-run", "--json")
    yield "autotune-import", say("autotune", "import", str(new), *built, "--json")
    yield "autotune-import", say("autotune", "import", str(legacy), *built, "--target", "h200", "--lossy", "--json")
    yield "autotune-ls", say("autotune", "ls", "--json")
    yield "autotune-export", say("autotune", "export", "-o", "exported", "--to", "new-dir", "--json")
    yield "autotune-status", say("autotune", "status", "--json")
    yield "autotune-env", say("autotune", "env", *elsewhere, "--format", "json")
    yield "autotune-run", say("autotune", "run", *elsewhere, "--json", "--", "true", errors=True)
    unusable = ("--dir", str(legacy), *elsewhere, "--json", "--", "true")
    yield "autotune-run", say("autotune", "run", *unusable, errors=True)
    yield "autotune-lock", say("autotune", "lock", str(legacy), *meant, "-o", "all.lock", "--json")


def compiled(folder: Path, say: Say) -> Iterator[tuple[str, Any]]:
    """What a plan looks up, by the compiler; nothing where it is not."""
    compiler = cuda_compilers.find()
    if compiler is None:
        return
    env = {name: value for name, value in compiler.environment().items() if name not in clean_environment()}
    plan, target, new = "plans.py:product", ("--target", "h200", "--json"), str(folder / "new_dir")
    yield "autotune-check", say("autotune", "check", plan, "--cache", new, "--all", *target, code=(0, 1), env=env)
    old = str(folder / "older.pb")
    serving = old if compiler.jax.startswith(("0.9.", "0.10.")) else new
    yield "autotune-check", say("autotune", "check", plan, "--cache", old, *target, code=(0, 1), env=env)
    made = say("autotune", "lock", plan, serving, *target, "-o", "part.lock", "--partial", code=(0, 1), env=env)
    yield "autotune-lock", made
    for one in (plan, "plans.py:uncovered"):
        held = ("--check", "part.lock", *target)
        yield "autotune-lock-check", say("autotune", "lock", one, *held, code=(0, 1), env=env)


def slow_outputs(folder: Path) -> Iterator[tuple[str, Any]]:
    """Those of `SLOW`, in a directory that is made for them."""
    env = clean_environment(REWARM_DIR=str(folder / "cache"), XDG_CONFIG_HOME=str(folder / "config"), HOME=str(folder))
    say = sayer(folder, env)
    for some in (prewarming, tuning, autotuning, compiled):
        yield from some(folder, say)


def sayer(folder: Path, env: dict[str, str]) -> Say:
    """Calls the command, and returns what it printed as JSON: on standard error with `errors`."""

    def say(*arguments: str, code: tuple[int, ...] = (0,), errors: bool = False, env: dict[str, str] = env) -> Any:
        command = [sys.executable, "-m", "rewarm", *arguments]
        done = execute(command, env={**base, **env}, cwd=folder)
        assert done.code in code, (arguments, done.code, done.err)
        return json.loads(done.err if errors else done.out)

    base = env
    return say
