"""Shows a job of several processes on CPUs: each start compiles a program once, and a warm one never.

    python examples/several_processes.py [RANKS]

Starts so many processes (2 by default) with `jax.distributed`, twice, with one cache that begins empty. Each rank holds
a part of the data; every step averages over all of them. Exits with status 1 if a rank of the warm job compiled
anything, or if two ranks, or the two jobs, did not compute the same, bit by bit.

On a cluster `REWARM_DIR` is a folder of each host, and `REWARM_REMOTE` what they share; the program stays as it is.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROWS, WIDTH, STEPS = 64, 256, 5


# -- the program: what a user writes -------------------------------------------------------------------------------


def train(rank: int, ranks: int, port: int) -> None:
    """Trains a linear layer on all ranks together, and prints the losses and what rewarm did, as JSON."""
    since = time.perf_counter()
    import jax
    import jax.numpy as jnp
    import numpy as np

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=ranks, process_id=rank)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    divided = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    def step(weights: jax.Array, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss, slope = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(batch @ w) - batch) ** 2))(weights)
        return weights - 0.1 * slope, loss

    jitted = jax.jit(step, out_shardings=(everywhere, everywhere))
    data = np.random.default_rng(0).standard_normal((ROWS * ranks, WIDTH)).astype(np.float32)
    batch = jax.make_array_from_callback(data.shape, divided, lambda index: data[index])
    zeros = np.zeros((WIDTH, WIDTH), np.float32)
    weights = jax.make_array_from_callback(zeros.shape, everywhere, lambda index: zeros[index])
    losses = []
    for _ in range(STEPS):
        weights, loss = jitted(weights, batch)
        losses.append(float(np.asarray(loss.addressable_data(0))))

    import rewarm

    stats = rewarm.stats()
    told = {"losses": losses, "seconds": time.perf_counter() - since, "hits": stats.hits, "misses": stats.misses}
    print(json.dumps(told), flush=True)


# -- the demo ------------------------------------------------------------------------------------------------------


class DemoError(RuntimeError):
    """The demo did not show what it is there to show; the message is one line for people."""


def environment(cache: Path) -> dict[str, str]:
    """Returns the caller's environment with rewarm in this cache, one device for each rank."""
    foreign = ("REWARM", "JAX_", "XLA_FLAGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "JAX_PLATFORMS": "cpu", "REWARM_DIR": str(cache)}


def job(name: str, ranks: int, cache: Path) -> list[dict[str, Any]]:
    """Runs one job to its end, and returns what its ranks said."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    started: list[subprocess.Popen[str]] = []
    try:
        for rank in range(ranks):
            words = [sys.executable, __file__, "train", str(rank), str(ranks), str(port)]
            started.append(subprocess.Popen(words, env=environment(cache), stdout=subprocess.PIPE, text=True))
        outputs = [process.communicate(timeout=300)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    if any(process.returncode for process in started):
        raise DemoError(f"a rank of the {name} job failed")
    said = [json.loads(output.splitlines()[-1]) for output in outputs]
    for rank, one in enumerate(said):
        print(
            f"{name:5} rank {rank}: {one['hits']:3} hits {one['misses']:3} misses {one['seconds']:7.2f} s", flush=True
        )
    return said


def demo(ranks: int) -> None:
    """Runs cold, runs warm, and compares."""
    with tempfile.TemporaryDirectory(prefix="rewarm-demo-") as folder:
        cold, warm = (job(name, ranks, Path(folder)) for name in ("cold", "warm"))
    if any(one["misses"] or not one["hits"] for one in warm):
        raise DemoError("a rank of the warm job compiled something")
    if any(one["losses"] != cold[0]["losses"] for one in (*cold, *warm)):
        raise DemoError("the losses differ")
    print("ok: the warm job compiled nothing, and all losses are the same, bit by bit")


def main() -> int:
    """Runs the demo, or one rank, and returns the exit status."""
    if sys.argv[1:2] == ["train"]:
        train(*map(int, sys.argv[2:5]))
        return 0
    try:
        demo(int(sys.argv[1]) if sys.argv[1:] else 2)
    except DemoError as error:
        print(f"several_processes: FAILED: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
