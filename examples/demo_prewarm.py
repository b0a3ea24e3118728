"""Shows pre-warming: the cache is filled for machines that are not there, and the real programs start warm on them.

    python examples/demo_prewarm.py

`plan` below is the plan. `rewarm prewarm` fills an empty cache with it for this host's CPU with 1, 2 and 8 devices, and
for a job of two processes with 2 devices each, all in processes that are none of these. Then the training program (the
same functions, with real arrays) runs on 1, 2 and 8 devices, and as a real job of two processes. Exits with status 1 if
any of them compiled anything of the plan, or computed something else than without a cache.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
WIDTH, LAYERS, ROWS, STEPS = 128, 8, 32, 5


# -- the model: what a user writes ---------------------------------------------------------------------------------


def start() -> dict[str, Any]:
    """Returns the parameters to begin with, as NumPy arrays."""
    import numpy as np

    random = np.random.default_rng(0)
    scale = WIDTH**-0.5
    return {
        f"layer {number}": (random.standard_normal((WIDTH, WIDTH)) * scale).astype(np.float32)
        for number in range(LAYERS)
    }


def data(devices: int) -> Any:
    """Returns a batch for so many devices."""
    import numpy as np

    return np.random.default_rng(1).standard_normal((ROWS * devices, WIDTH)).astype(np.float32)


def train_step(params: dict[str, Any], batch: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the loss, and the parameters after one step."""
    import jax
    import jax.numpy as jnp

    def loss(params: dict[str, Any]) -> Any:
        x = batch
        for name in sorted(params):
            x = x + jnp.tanh(x @ params[name])
        return jnp.mean(x**2)

    value, slopes = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, slope: p - 0.05 * slope, params, slopes)


def places(devices: Sequence[Any]) -> tuple[Any, Any]:
    """Returns the shardings: parameters lie everywhere, the batch is divided."""
    import jax
    import numpy as np

    mesh = jax.sharding.Mesh(np.array(devices), ("data",))
    spec = jax.sharding.PartitionSpec
    return jax.sharding.NamedSharding(mesh, spec()), jax.sharding.NamedSharding(mesh, spec("data"))


def jitted(devices: Sequence[Any]) -> Any:
    """Returns the step for these devices."""
    import jax

    everywhere, _ = places(devices)
    return jax.jit(train_step, out_shardings=(everywhere, everywhere))


def plan(devices: list[Any]) -> Iterator[Any]:
    """The plan: the same function, with arguments that have a shape and a place and no values."""
    import rewarm

    everywhere, divided = places(devices)
    yield rewarm.Program(
        jitted(devices),
        rewarm.abstract(start(), sharding=everywhere),
        rewarm.abstract(data(len(devices)), sharding=divided),
    )


def train(devices: list[Any]) -> list[float]:
    """Trains for some steps, and returns the losses."""
    import jax
    import numpy as np

    everywhere, divided = places(devices)

    def placed(value: Any, place: Any) -> Any:
        return jax.make_array_from_callback(value.shape, place, lambda index: value[index])

    params = {name: placed(value, everywhere) for name, value in start().items()}
    batch = placed(data(len(devices)), divided)
    step, losses = jitted(devices), []
    for _ in range(STEPS):
        loss, params = step(params, batch)
        losses.append(float(np.asarray(loss.addressable_data(0))))
    return losses


def program(arguments: list[str]) -> None:
    """The training program: `train`, or `train RANK RANKS PORT`."""
    import jax

    if arguments:
        rank, ranks, port = map(int, arguments)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=ranks, process_id=rank)
    since = time.perf_counter()
    losses = train(sorted(jax.devices(), key=lambda device: (device.process_index, device.id)))
    import rewarm

    stats = rewarm.stats()
    said = {"losses": losses, "seconds": time.perf_counter() - since, "hits": stats.hits, "misses": stats.misses}
    print(json.dumps(said), flush=True)


# -- the demo ------------------------------------------------------------------------------------------------------


class DemoError(RuntimeError):
    """The demo did not show what it is there to show; the message is one line for people."""


def environment(cache: Path | None, devices: int) -> dict[str, str]:
    """Returns the caller's environment with so many devices, and rewarm in this cache or off."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("REWARM", "JAX_", "XLA_FLAGS"))}
    flags = f"--xla_force_host_platform_device_count={devices}"
    on = {"REWARM": "0"} if cache is None else {"REWARM_DIR": str(cache)}
    return {**kept, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, **on}


def run(ranks: int, devices: int, cache: Path | None) -> list[dict[str, Any]]:
    """Runs the training program, in one process or as a job, and returns what each process said."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    started = []
    try:
        for rank in range(ranks):
            words = [sys.executable, str(HERE), "train", *([str(rank), str(ranks), port] if ranks > 1 else [])]
            started.append(subprocess.Popen(words, env=environment(cache, devices), stdout=subprocess.PIPE, text=True))
        said = [process.communicate(timeout=300)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    if any(process.returncode for process in started):
        raise DemoError(f"a run with {ranks} processes of {devices} devices failed")
    return [json.loads(one.splitlines()[-1]) for one in said]


def prewarm(cache: Path, topologies: Sequence[str]) -> None:
    """Fills the cache, in a process that has none of these devices."""
    words = [sys.executable, "-m", "rewarm", "prewarm", f"{HERE}:plan", "--target", "host", "--dir", str(cache)]
    words += [part for topology in topologies for part in ("--topology", topology)]
    print(f"--- rewarm {' '.join(words[3:])}")
    clean = environment(None, 1)
    if subprocess.run(words, env=clean, check=False).returncode:
        raise DemoError("rewarm prewarm did not fill the cache")
    if subprocess.run([*words, "--check"], env=clean, check=False, stderr=subprocess.DEVNULL).returncode:
        raise DemoError("rewarm prewarm --check finds something missing right after it was filled")


def compare(topology: str, cache: Path) -> str:
    """Runs one topology with the cache and without, and returns a line about it.

    Raises:
      DemoError: something was compiled, or the results differ.
    """
    ranks, devices = (2, 2) if topology == "2x2" else (1, int(topology))
    warm, cold = run(ranks, devices, cache), run(ranks, devices, None)
    if any(one["misses"] for one in warm) or not all(one["hits"] for one in warm):
        raise DemoError(f"{topology}: something was compiled: {warm}")
    if [one["losses"] for one in warm] != [one["losses"] for one in cold]:
        raise DemoError(f"{topology}: the losses differ: {warm[0]['losses']} and {cold[0]['losses']}")
    hits = sum(one["hits"] for one in warm)
    return f"{topology:>8} {hits:6d} {0:9d} {cold[0]['seconds']:9.2f} {warm[0]['seconds']:9.2f}"


def demo() -> None:
    """Pre-warms, runs everything, and shows it."""
    topologies = ["1", "2", "8"]
    jax = importlib.metadata.version("jax")
    if tuple(map(int, jax.split(".")[:2])) >= (0, 11):
        topologies.append("2x2")
    else:
        print(f"JAX {jax} cannot describe CPUs (0.11 and later can), so the job of two processes is left out")
    with tempfile.TemporaryDirectory(prefix="rewarm-demo-prewarm-") as folder:
        cache = Path(folder)
        prewarm(cache, topologies)
        print("--- the training program, attached")
        print(f"{'devices':>8} {'hits':>6} {'compiled':>9} {'cold s':>9} {'warm s':>9}")
        for topology in topologies:
            print(compare(topology, cache), flush=True)
    print("ok: nothing was compiled, and the losses are the same as without a cache, bit by bit")


def main() -> int:
    """Runs the demo, or the training program, and returns the exit status."""
    if sys.argv[1:2] == ["train"]:
        program(sys.argv[2:])
        return 0
    try:
        demo()
    except DemoError as error:
        print(f"demo-prewarm: FAILED: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
