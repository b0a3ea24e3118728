"""The cost of one request beside JAX's own: building the key, fetching the entry, checking it; without loading it.

Loading (deserialising) is the same call for both and is left out. Measured in one process, the two contestants in
turn at every round, on the call that JAX really made for each program and on the entry that each really stored:

* native: `cache_key.get`, the file cache's `get`, decompression and splitting;
* rewarm: the request's components and key, the store's `get`, the envelope's checks and decompression.

    python benchmarks/overhead.py [--rounds N] [--json FILE]

Exits with 1 when rewarm's median is more than 1.10 times native's on any program. Install `zstandard`, so that the
native contestant is at its best.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import cache_key, compilation_cache, compiler, config
from jax._src.lru_cache import LRUCache

import rewarm
from rewarm import settings
from rewarm.envelope import open_entry
from rewarm.identity import Toolchain
from rewarm.in_force import HostOptions, resolve
from rewarm.jax_adapter import seam
from rewarm.jax_adapter.requests import Identifier
from rewarm.store import LocalStore

BOUND = 1.10


def small(x: jax.Array) -> jax.Array:
    """A program of a few operations."""
    return jnp.tanh(x) @ x


def large(x: jax.Array) -> jax.Array:
    """The gradient of 200 residual layers, not rolled up: some thousands of operations."""

    def loss(x: jax.Array) -> jax.Array:
        for layer in range(200):
            x = x + jnp.tanh(x @ x) * (1 + layer)
        return x.sum()

    return jax.grad(loss)(x)


def record_call(function: Callable[..., Any]) -> seam.Call:
    """The call of JAX's compile step that compiling `function` makes."""
    calls: list[seam.Call] = []
    original = compiler.compile_or_get_cached

    def recording(*arguments: Any) -> Any:
        calls.append(seam.Call(*arguments))
        return original(*arguments)

    compiler.compile_or_get_cached = recording
    try:
        jax.jit(function).lower(jax.ShapeDtypeStruct((16, 16), np.float32)).compile()
    finally:
        compiler.compile_or_get_cached = original
    return calls[-1]


def native_request(folder: Path, call: seam.Call) -> Callable[[], bytes]:
    """What JAX does up to the executable's bytes, on the entry that it stored itself."""
    compression = "zstandard" if compilation_cache.zstandard is not None else "zlib"
    cache = LRUCache(str(folder), max_size=-1)

    def key() -> str:
        return cache_key.get(
            call.computation,
            call.devices,
            call.compile_options,
            call.backend,
            compression,
            config.remove_custom_partitioning_ptr_from_cache_key.value,
        )

    raw = seam.compile_now(call).serialize()
    packed = compilation_cache.compress_executable(compilation_cache.combine_executable_and_time(raw, 1))
    cache.put(key(), packed)

    def request() -> bytes:
        found = cache.get(key())
        assert found is not None
        return compilation_cache.extract_executable_and_time(compilation_cache.decompress_executable(found))[0]

    return request


def rewarm_request(folder: Path, call: seam.Call) -> Callable[[], bytes]:
    """What rewarm does up to the executable's bytes, on the entry that it stored itself."""
    in_force = resolve(settings.say(directory=folder), HostOptions())
    identifier = Identifier(in_force, Toolchain(folder / "libraries.json"))
    store = LocalStore(folder)

    def request() -> bytes:
        components = identifier.request(call).components
        assert components is not None
        key = components.key()
        found = store.get(key)
        assert found is not None
        return open_entry(found, key).section("executable")

    rewarm.enable(folder)
    compiler.compile_or_get_cached(*call)
    rewarm.disable()
    return request


def measure(contestants: dict[str, Callable[[], bytes]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each request, the contestants in turn; the order changes every round."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for name in names:
        contestants[name]()
    for number in range(rounds):
        for name in names if number % 2 else reversed(names):
            since = time.perf_counter()
            contestants[name]()
            times[name].append(time.perf_counter() - since)
    return times


def main() -> int:
    """Measure, print, and say whether the bound holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    told: dict[str, Any] = {"jax": jax.__version__, "python": sys.version.split()[0], "programs": {}}
    zstd = compilation_cache.zstandard is not None
    print(f"jax {jax.__version__}, python {told['python']}, native compression {'zstd' if zstd else 'zlib'}")
    print(f"{'program':<8} {'native':>12} {'rewarm':>12} {'ratio':>7}   median of {arguments.rounds}, ratio per round")
    worst = 0.0
    for function in (small, large):
        with tempfile.TemporaryDirectory() as folder:
            call = record_call(function)
            contestants = {
                "native": native_request(Path(folder) / "native", call),
                "rewarm": rewarm_request(Path(folder) / "rewarm", call),
            }
            times = measure(contestants, arguments.rounds)
        medians = {name: statistics.median(rows) for name, rows in times.items()}
        ratio = statistics.median(ours / theirs for ours, theirs in zip(times["rewarm"], times["native"], strict=True))
        worst = max(worst, ratio)
        told["programs"][function.__name__] = {**medians, "ratio": ratio}
        row = " ".join(f"{medians[name] * 1e6:>9.0f} us" for name in ("native", "rewarm"))
        print(f"{function.__name__:<8} {row} {ratio:>7.2f}")
    print(f"rewarm at most {BOUND:.2f} times native: {'holds' if worst <= BOUND else 'DOES NOT HOLD'}")
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=2))
    return 0 if worst <= BOUND else 1


if __name__ == "__main__":
    raise SystemExit(main())
