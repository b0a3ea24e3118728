"""Every kind of program that the cache must serve, run one after the other; prints what each gave and asked for.

Run as a program of its own: `python kinds.py` prints one JSON object, kind to {digest, events}.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import rewarm

X = np.arange(16, dtype=np.float32).reshape(4, 4) / 7


def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()), ("d",))


def jit() -> Any:
    return jax.jit(lambda x: jnp.tanh(x @ x))(X)


def grad() -> Any:
    return jax.jit(jax.grad(lambda x: (jnp.sin(x) @ x).sum()))(X)


def grad_of_jit() -> Any:
    """The parts of a linearised function are programs whose arguments have no names."""
    return jax.grad(jax.jit(lambda x: jnp.sin(x).sum()))(X)


def vmap() -> Any:
    return jax.jit(jax.vmap(lambda row: jnp.sort(row * row)))(X)


def sharded() -> Any:
    x = jax.device_put(X, NamedSharding(mesh(), P("d")))
    return jax.jit(lambda a: (a @ a.T).sum(0), out_shardings=NamedSharding(mesh(), P()))(x)


def propagated() -> Any:
    """The compiler chooses the output's sharding, which a loaded executable must tell as well."""
    x = jax.device_put(X, NamedSharding(mesh(), P("d")))
    result = jax.jit(lambda a: jnp.sin(a) * 2)(x)
    return result, str(result.sharding.spec)


def shard_map() -> Any:
    mapped = jax.shard_map(lambda a: jax.lax.psum(a * 2, "d"), mesh=mesh(), in_specs=P("d"), out_specs=P())
    return jax.jit(mapped)(X)


def pmap() -> Any:
    return jax.pmap(lambda a: jax.lax.psum(a * 3, "i"), axis_name="i")(X)


def constants() -> Any:
    table = jnp.asarray(np.random.RandomState(0).randn(64, 64), dtype=jnp.float32)
    return jax.jit(lambda x: table @ x)(np.ones((64, 2), np.float32))


def donated() -> Any:
    return jax.jit(lambda x: x * 2 + 1, donate_argnums=0)(jnp.asarray(X))


def prng() -> Any:
    key = jax.random.key(0)
    split = jax.jit(jax.random.split)(key)
    return jax.jit(lambda k: jax.random.normal(k, (8,)))(split[0]), jax.random.key_data(split)


def ahead_of_time() -> Any:
    compiled = jax.jit(lambda x: jnp.cumsum(x, axis=0)).lower(X).compile()
    return compiled(X), sorted(compiled.cost_analysis() or {})


def linear_algebra() -> Any:
    square = X @ X.T + np.eye(4, dtype=np.float32) * 5
    return jax.jit(jnp.linalg.cholesky)(square), jax.jit(jnp.linalg.eigh)(square)[0]


def control_flow() -> Any:
    def body(carry: Any, _: Any) -> tuple[Any, Any]:
        return jnp.where(carry > 2, carry / 2, carry * 1.5), carry.sum()

    return jax.jit(lambda x: jax.lax.scan(body, x, None, length=7))(X)


def other_device() -> Any:
    def placed(x: Any) -> Any:
        return jnp.tanh(x @ x) - 1

    return [jax.jit(placed)(jax.device_put(X, device)) for device in jax.devices()[1:3]]


def pure_callback() -> Any:
    shape = jax.ShapeDtypeStruct((4, 4), np.float32)
    factor = float(os.environ.get("FACTOR", "2"))
    return jax.jit(lambda a: jax.pure_callback(lambda v: np.asarray(v) * np.float32(factor), shape, a) + 1)(X)


def io_callback() -> Any:
    shape = jax.ShapeDtypeStruct((4, 4), np.float32)
    return jax.jit(lambda a: jax.experimental.io_callback(lambda v: np.asarray(v) * 3, shape, a))(X)


def buffer_callback() -> Any:
    from jax.experimental.buffer_callback import buffer_callback

    def triple(context: Any, out: Any, x: Any) -> None:
        np.asarray(out)[...] = np.asarray(x) * 3

    return jax.jit(buffer_callback(triple, jax.ShapeDtypeStruct((4, 4), np.float32)))(X)


def debug_print() -> Any:
    seen: list[float] = []

    def shout(a: Any) -> Any:
        jax.debug.print("value {}", a[0, 1])
        jax.debug.callback(lambda v: seen.append(float(v)), a.sum())
        return a + 1

    result = jax.jit(shout)(X)
    jax.effects_barrier()
    return result, seen


def does_not_compile() -> Any:
    try:
        jax.jit(lambda x: x + 1, compiler_options={"xla_no_such_option": "1"})(X)
    except Exception as error:
        return [type(error).__name__, "xla_no_such_option" in str(error)]
    return ["compiled"]


def threads() -> Any:
    """Eight threads, each with a function of its own that lowers to the same program."""
    results: list[Any] = [None] * 8
    start = threading.Barrier(8)

    def work(number: int) -> None:
        def same(x: Any) -> Any:
            for step in range(40):
                x = jnp.sin(x) * step + x
            return x

        start.wait()
        results[number] = np.asarray(jax.jit(same)(X))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return results


KINDS: dict[str, Callable[[], Any]] = {
    function.__name__: function
    for function in (
        jit,
        grad,
        grad_of_jit,
        vmap,
        sharded,
        propagated,
        shard_map,
        pmap,
        constants,
        donated,
        prng,
        ahead_of_time,
        linear_algebra,
        control_flow,
        other_device,
        pure_callback,
        io_callback,
        buffer_callback,
        debug_print,
        does_not_compile,
        threads,
    )
}


def digest(value: Any) -> str:
    """SHA-256 of all that a kind gave, bit by bit."""
    total = hashlib.sha256()
    for leaf in jax.tree.leaves(value):
        total.update(leaf.encode() if isinstance(leaf, str) else np.asarray(leaf).tobytes())
    return total.hexdigest()


def main() -> None:
    told, done = {}, 0
    for name, kind in KINDS.items():
        value = digest(kind())
        events = rewarm.events()
        told[name] = {"digest": value, "events": [event.as_dict() for event in events[done:]]}
        done = len(events)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
