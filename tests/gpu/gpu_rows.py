"""What only a GPU can show of rewarm's tuning, as rows of a table: `python tests/gpu/gpu_rows.py`.

Not promised: anything about speed. Each row is one thing that the rest of the tests can only hold against a GPU that is
described. Public commands do everything: `rewarm autotune ...`, and a small model that runs with `REWARM=1`.

Exit codes: 0 every row holds; 1 a row does not; 2 the check could not be run; 3 there is no GPU that JAX can use.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NO_GPU, NOT_RUN, FAILED = 3, 2, 1
_FOREIGN = ("REWARM", "JAX_", "XLA_", "TF_CPP")

MODEL = '''
import os
import jax, jax.numpy as jnp

def step(p, q, r, w):
    """Two parts that share nothing, so that a change of the second leaves the first's fusions as they are."""
    return jax.nn.softmax(jax.nn.gelu(p @ q) @ q, axis=-1), jnp.tanh(r @ w)

WIDTH = 768 if os.environ.get("MODEL") == "changed" else 512
SHAPES = [(1024, 1024), (1024, 1024), (512, 1024), (1024, WIDTH)]

def programs():
    yield "step", jax.jit(step), tuple(jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in SHAPES)

if __name__ == "__main__":
    keys = jax.random.split(jax.random.key(0), len(SHAPES))
    given = [jax.random.normal(key, shape).astype(jnp.bfloat16) for key, shape in zip(keys, SHAPES)]
    sums = [float(part.astype("float32").sum()) for part in jax.jit(step)(*given)]
    print(jax.default_backend(), *(round(one) for one in sums))
'''


class NoGpuError(Exception):
    """JAX finds no GPU; the words say what it said."""


class CannotRunError(Exception):
    """A command that the check needs did not do what it is for."""


@dataclass(frozen=True)
class Row:
    """One line of the table. `holds` is `None` for a row that could not be asked, or that only tells."""

    name: str
    holds: bool | None
    said: str


@dataclass
class Check:
    """A folder of its own, one cache directory after another, and a time by which all must be done."""

    folder: Path
    platform: str
    until: float
    rows: list[Row] = field(default_factory=list)
    place: str = ""
    answer: str = ""

    # -- doing things ------------------------------------------------------------------------------------------

    def execute(self, command: list[str], ok: tuple[int, ...] = (0,), **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a command with nothing of the caller's settings."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        left = max(1.0, self.until - time.monotonic())
        try:
            done = subprocess.run(
                command,
                env={**kept, **extra},
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=left,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CannotRunError(f"{' '.join(command[:6])} was not done in the time for the check") from None
        if done.returncode not in ok:
            raise CannotRunError(f"{' '.join(command[:6])} ended with {done.returncode}: {done.stderr.strip()[-600:]}")
        return done

    def rewarm(self, *words: str, ok: tuple[int, ...] = (0,), **extra: str) -> subprocess.CompletedProcess[str]:
        return self.execute([sys.executable, "-m", "rewarm", *words], ok, **extra)

    def run(self, cache: str, **extra: str) -> Ran:
        """The model with rewarm on, and one remote for all cache directories."""
        given = {
            "JAX_PLATFORMS": self.platform,
            "REWARM": "1",
            "REWARM_DIR": str(self.folder / cache),
            "REWARM_MIN_COMPILE_SECONDS": "0",
            "REWARM_REMOTE": f"file://{self.folder / 'remote'}?trust=store",
            "REWARM_STATS": "json",
            "REWARM_UPLOAD_SECONDS": "20",
            # XLA says in its log how many look-ups found a result.
            "TF_CPP_MIN_LOG_LEVEL": "0",
            "TF_CPP_VMODULE": "config_assigner=1,config_assigner_pass=1,autotuner_cache=2",
        }
        return Ran(self.execute([sys.executable, "model.py"], **{**given, **extra}))

    def results(self, cache: str) -> dict[str, tuple[int, int]]:
        """The tuning results of a cache directory by name, with what tells a file from one that replaced it."""
        listed = json.loads(self.rewarm("autotune", "ls", "--dir", str(self.folder / cache), "--json").stdout or "[]")
        entries = listed["entries"] if isinstance(listed, dict) else listed
        statuses = {one["name"]: Path(one["source"]["path"]).stat() for one in entries}
        return {name: (status.st_ino, status.st_mtime_ns) for name, status in statuses.items()}

    def states(self, cache: str) -> list[dict[str, Any]]:
        """The executables of a cache directory, by the tuning that they were compiled with."""
        told = json.loads(self.rewarm("autotune", "status", "--dir", str(self.folder / cache), "--json").stdout)
        return list(told["executables"])


class Ran:
    """One run of the model."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.out = done.stdout.strip()
        lines = [line for line in done.stderr.splitlines() if line.startswith('{"bytes_read"')]
        if not lines:
            raise CannotRunError(f"rewarm was not on in the model: {done.stderr.strip()[-600:]}")
        self.stats: dict[str, Any] = json.loads(lines[-1])
        counted = re.findall(r"cache stats: hits=(\d+), misses=(\d+)", done.stderr)
        self.looked_up = (sum(int(hits) for hits, _ in counted), sum(int(misses) for _, misses in counted))
        self.legacy_misses = len(re.findall(r"Autotune cache miss", done.stderr))
        self.is_counted = bool(counted)


# ---------------------------------------------------------------------------------------------------------------
# The rows


def attached(check: Check) -> Iterator[Row]:
    """Which device, and the place that rewarm has for it."""
    description = check.folder / "this-device.txtpb"
    words = ["autotune", "env", "--this-device", "--dir", str(check.folder / "first"), "--format", "json"]
    done = check.rewarm(*words, ok=(0, 1))
    if done.returncode:
        raise NoGpuError(done.stderr.strip().removeprefix("Error: "))
    check.place = Path(json.loads(done.stdout)["XLA_FLAGS"].partition("=")[2].strip('"')).parent.name
    done = check.rewarm(*words, "--describe", str(description), ok=(0, 1))
    name = re.search(r'device_description_str: "([^"]*)"', description.read_text()) if description.exists() else None
    yield Row("a GPU", True, f"{name[1] if name else 'whose description this JAX does not tell'}; place {check.place}")


def write_path(check: Check) -> Iterator[Row]:
    """XLA tunes into the place, and what it tuned is kept."""
    ran = check.run("first")
    found = check.results("first")
    folder = check.folder / "first" / "autotune" / check.place / "xla"
    yield Row("XLA writes results into the managed place", bool(found) and folder.is_dir(), f"{len(found)} in {folder}")
    listed = json.loads(check.rewarm("ls", "--dir", str(check.folder / "first"), "--json").stdout)
    hints = {one.name for one in (folder.parent / "batches").glob("*")}
    kept = hints & {one["key"] for one in listed}
    said = f"{len(kept)} entries; the model answered {ran.out}"
    yield Row("results are kept as entries of the store", bool(kept), said)
    check.answer = ran.out
    states = check.states("first")
    complete = bool(states) and all(one["state"] == "complete" for one in states)
    said = ", ".join(sorted({one["state"] for one in states})) or "no executable says how it was tuned"
    yield Row("executables say that their tuning is complete", complete, said)


def key_match(check: Check) -> Iterator[Row]:
    """The keys that rewarm works out are those that XLA uses, for the attached device and for its description."""
    place = check.folder / "first" / "autotune" / check.place
    made = [one.name for one in (place / "xla").glob("*") if re.fullmatch("[0-9a-f]{16}", one.name)]
    wanted = check.place.rpartition("-")[2]
    description = check.folder / "this-device.txtpb"
    folder = "XLA's folder for the device is the one that rewarm works out"
    if not made:
        yield Row(folder, None, "legacy formats have none")
    elif not description.exists():
        yield Row(folder, None, f"this JAX does not tell what the device is, and XLA calls it {made[0]}")
    else:
        yield Row(folder, made == [wanted], f"{', '.join(made)}; rewarm: {wanted}")
    if not description.exists():
        yield Row("a described device looks up the same results", None, "this JAX does not tell a description")
        return
    words = ["model.py:programs", "--target", str(description), "--cache", str(check.folder / "first"), "--json"]
    # Without a visible GPU: JAX would compile for a described one through an attached one like it, and tune there.
    done = check.rewarm("autotune", "check", *words, ok=(0, 1), CUDA_VISIBLE_DEVICES="", JAX_PLATFORMS="cpu")
    counts = json.loads(done.stdout)["counts"] if done.stdout.startswith("{") else {"needed": 0}
    said = ", ".join(f"{count} {name}" for name, count in counts.items() if count) or done.stderr.strip()[-300:]
    yield Row("a described device looks up the same results", done.returncode == 0 and counts["needed"] > 0, said)
    yield from data_sheet(description)


def data_sheet(description: Path) -> Iterator[Row]:
    """Whether a description by name, from a data sheet, has this device's keys. Either may be; the row only tells."""
    from rewarm.autotune import targets

    here = targets.device(description)
    for name in targets.names():
        if name.upper() in here.name.upper():
            there = targets.device(name).text
            same = "has the keys of this one" if there == here.text else f"is {there}, and this is {here.text}"
            yield Row(f"(only tells) --target {name}", None, same)


def fresh_start(check: Check) -> Iterator[Row]:
    """A second process takes the executables from the cache and answers the same."""
    before, ran = check.results("first"), check.run("first")
    hits, misses = ran.stats["hits"], ran.stats["misses"]
    said = f"{hits} hits, {misses} misses, and the answer {'is the same' if ran.out == check.answer else ran.out}"
    holds = hits > 0 and not misses and ran.out == check.answer
    yield Row("a fresh start takes every executable from the cache", holds, said)
    yield Row("a fresh start tunes nothing", check.results("first") == before, f"{len(before)} results, as before")


def changed_fusion(check: Check) -> Iterator[Row]:
    """A change of one fusion tunes that one, and no other."""
    before = check.results("first")
    check.run("first", MODEL="changed")
    after = check.results("first")
    check.run("scratch", MODEL="changed", REWARM_REMOTE="none")
    expected = sorted(set(check.results("scratch")) - set(before))
    new = sorted(set(after) - set(before))
    stayed = all(after.get(name) == status for name, status in before.items())
    others = "the others stayed" if stayed else "others were written anew"
    said = f"{len(new)} new of {len(after)}, {len(expected)} expected; {others}"
    yield Row("after a change only what changed is tuned", bool(new) and new == expected and stayed, said)


KERNEL = """
import json, sys
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt
import rewarm

def body(x, y, out):
    out[...] = jnp.exp(x[...]) * y[...] + x[...]

@rewarm.tunable(space={"block": [16, 128, 1024], "warps": [1, 4]}, default={"block": 16, "warps": 4})
def fused(x, y, *, block, warps):
    spec = pl.BlockSpec((block,), lambda i: (i,))
    return pl.pallas_call(body, out_shape=x, grid=(x.size // block,), in_specs=[spec, spec], out_specs=spec,
                          compiler_params=plt.CompilerParams(num_warps=warps))(x, y)

if __name__ == "__main__":
    described = jax.ShapeDtypeStruct((1 << 22,), jnp.float32)
    tuned = rewarm.tune(fused, None, described, described, budget=25)
    flags = list(tuned.record.flags)
    failed = [[one.outcome, one.reason] for one in tuned.record.trials if not one.seconds and one.outcome != "timed"]
    print(json.dumps({"winner": tuned.winner, "ratio": tuned.ratio, "measured": tuned.measured, "flags": flags,
                      "failed": failed, "timer": tuned.record.environment["timer"], "kept": not tuned.not_kept}))
"""


def tuned_kernel(check: Check) -> Iterator[Row]:
    """A kernel of Pallas is timed here, in children, and what won is there for the next process."""
    name = "rewarm.tune times a Pallas kernel, and a second process has its winner"
    if check.platform == "cpu":
        yield Row(name, None, "Pallas compiles for Triton on GPUs alone")
        return
    (check.folder / "kernel.py").write_text(KERNEL)
    settings = {"JAX_PLATFORMS": check.platform, "REWARM": "1", "REWARM_DIR": str(check.folder / "kernels")}
    first, second = (
        json.loads(check.execute([sys.executable, "kernel.py"], **settings).stdout.splitlines()[-1]) for _ in range(2)
    )
    holds = first["measured"] and first["kept"] and not second["measured"] and second["winner"] == first["winner"]
    said = f"{first['winner']} {first['ratio']:.2f}x, {first['timer']}; {', '.join(first['flags']) or 'no flags'}"
    yield Row(name, holds and not first["failed"], said + (f"; failed: {first['failed']}" if first["failed"] else ""))


def empty_disk(check: Check) -> Iterator[Row]:
    """Another host, here an empty directory, gets the results from the remote and tunes nothing.

    With another salt the executables are others, so they are compiled there.
    """
    ran = check.run("second", REWARM_SALT="another")
    wanted, found = set(check.results("first")), set(check.results("second"))
    new = sum(one["new"] or 0 for one in check.states("second"))
    compiled = ran.stats["misses"]
    said = f"{len(found)} results of {len(wanted)} are there, {compiled} compiled, {new} tuned"
    yield Row("an empty disk gets the results from the remote", bool(found) and found <= wanted and compiled > 0, said)
    if ran.is_counted:
        hits, misses = ran.looked_up
        yield Row("and XLA tunes nothing there", bool(hits) and not misses and not new, f"{hits} hits, {misses} misses")
    else:
        yield Row("and XLA tunes nothing there", bool(found) and not new and not ran.legacy_misses, f"{new} tuned")


GROUPS: tuple[Callable[[Check], Iterator[Row]], ...] = (
    attached,
    write_path,
    key_match,
    fresh_start,
    changed_fusion,
    empty_disk,
    tuned_kernel,
)

READING = """
How to read it. "ok": it holds. "FAILS": rewarm's promise does not hold on this GPU; please report the line with the
output of `rewarm autotune env --this-device`. "-": it could not be asked here, or only tells something.
  managed place      XLA's write path: without it nothing that this machine tunes is kept
  folder, described  keys: where these fail, results made or checked without a GPU do not serve this one
  fresh start        an executable from the cache, loaded and run; the answer must be the same
  change, empty disk what a team shares: only what is new is ever tuned, and by one host
  Pallas             `rewarm.tune` times a kernel's block sizes here, and a second process has the winner
"""


def checked(folder: Path, platform: str, seconds: float, tell: Callable[[Row], None]) -> list[Row]:
    """All rows, each told as it comes.

    Raises:
      NoGpuError: there is nothing to check on.
    """
    (folder / "model.py").write_text(MODEL)
    (folder / "remote").mkdir()
    check = Check(folder, platform, time.monotonic() + seconds)
    for group in GROUPS:
        if platform == "cpu" and group is attached:
            continue
        try:
            for row in group(check):
                check.rows.append(row)
                tell(row)
        except (CannotRunError, OSError, KeyError, ValueError) as wrong:
            row = Row(group.__name__.replace("_", " "), False, f"could not be run: {wrong}")
            check.rows.append(row)
            tell(row)
    return check.rows


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--seconds", type=float, default=230.0, help="how long all rows may take together")
    asked.add_argument("--json", action="store_true", help="print the rows as JSON at the end")
    asked.add_argument("--platform", default="cuda", help="cpu: a rehearsal, in which the rows about tuning fail")
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="rewarm-gpu-check-") as name:
        try:
            rows = checked(Path(name), given.platform, given.seconds, _silent if given.json else print_row)
        except NoGpuError as wrong:
            print(f"There is no GPU here that JAX can use, so nothing was checked: {wrong}", file=sys.stderr)
            return NO_GPU
        except CannotRunError as wrong:
            print(f"The check could not be run: {wrong}", file=sys.stderr)
            return NOT_RUN
    failed = sum(row.holds is False for row in rows)
    if given.json:
        print(json.dumps([row.__dict__ for row in rows], indent=2))
    else:
        print(READING)
        print(f"{len(rows)} rows, {failed} fail")
    return FAILED if failed else 0


def _silent(_row: Row) -> None:
    """With --json all rows are told at the end."""


def print_row(row: Row) -> None:
    mark = {True: "ok", False: "FAILS", None: "-"}[row.holds]
    print(f"{mark:<6} {row.name:<64} {row.said}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
