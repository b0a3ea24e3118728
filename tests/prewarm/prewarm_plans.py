"""Plans for the tests of pre-warming, and the same programs run: never imported by a test, only by children."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import io_callback
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import rewarm

FAST = {"xla_cpu_enable_fast_math": True}


@jax.jit
def step(w: Any, x: Any) -> Any:
    """A train step whose gradients are added up over the devices."""

    def loss(w: Any) -> Any:
        return (jnp.tanh(x @ w) ** 2).sum()

    value, slope = jax.value_and_grad(loss)(w)
    return value, w - 0.01 * slope


@jax.jit
def scaled(x: Any, by: Any) -> Any:
    return x * by + 1


def places(devices: list[Any]) -> tuple[Any, Any]:
    mesh = Mesh(np.array(devices), ("d",))
    return NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("d"))


def weights() -> Any:
    return np.linspace(-1, 1, 16 * 8, dtype=np.float32).reshape(16, 8)


def batch(devices: int) -> Any:
    return np.linspace(0, 1, 4 * devices * 16, dtype=np.float32).reshape(4 * devices, 16)


def plan(devices: list[Any]) -> Iterator[Any]:
    everywhere, rows = places(devices)
    w = rewarm.abstract(weights(), sharding=everywhere)
    x = rewarm.abstract(batch(len(devices)), sharding=rows)
    yield rewarm.Program(step, w, x, name="train step")
    yield rewarm.Program(step, w, x, name="fast", compiler_options=FAST)


def alone() -> Iterator[Any]:
    """A program of one device, with arguments that nobody has put anywhere."""
    yield rewarm.Program(scaled, *rewarm.abstract((np.ones(5, np.float32), 2.0)))


def many() -> Iterator[Any]:
    for number in range(6):
        x = jax.ShapeDtypeStruct((64, 64), jnp.float32)
        yield rewarm.Program(jax.jit(lambda x, number=number: jnp.sin(x @ x + number).sum(0)), x, name=f"p{number}")


def failing() -> Iterator[Any]:
    yield from alone()
    yield rewarm.Program(jax.jit(lambda x: x @ x), jax.ShapeDtypeStruct((3, 4), jnp.float32), name="bad shapes")
    yield rewarm.Program(
        scaled, jax.ShapeDtypeStruct((4,), jnp.float32), 2.0, name="no option", compiler_options={"xla_none": 1}
    )
    yield rewarm.Program(jax.jit(lambda x: x + 2), jax.ShapeDtypeStruct((4,), jnp.float32), name="after")


def ending() -> Iterator[Any]:
    """One that ends the process while it is traced."""

    def end(x: Any) -> Any:
        os.kill(os.getpid(), int(os.environ["END_WITH"]))
        time.sleep(60)  # the kernel may give the signal to another thread, a moment later
        return x

    yield rewarm.Program(jax.jit(end), jax.ShapeDtypeStruct((4,), jnp.float32), name="ends it")
    yield from alone()


def raising() -> Iterator[Any]:
    yield from alone()
    raise RuntimeError("the plan's own")


def computing() -> Iterator[Any]:
    """One that computes on the device while it is traced."""

    def f(x: Any) -> Any:
        with jax.ensure_compile_time_eval():
            number = float(jnp.arange(3.0).sum())
        return x * number

    yield rewarm.Program(jax.jit(f), jax.ShapeDtypeStruct((4,), jnp.float32), name="computing")


def on_the_host(rows: Any) -> dict[str, Any]:
    """Programs that keep something in the host's memory, each in another way, and one that does not."""
    host = rows.with_memory_kind("pinned_host")
    offloads = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["hidden"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    @functools.partial(jax.checkpoint, policy=offloads)
    def layer(x: Any) -> Any:
        return jnp.cos(checkpoint_name(jnp.sin(x) * 3, "hidden"))

    return {
        "plain": jax.jit(lambda x: x * 2),
        "put": jax.jit(lambda x: jax.device_put(x * 2, host)),
        "out": jax.jit(lambda x: x * 2, out_shardings=host),
        "remat": jax.jit(jax.grad(lambda x: layer(x).sum())),
    }


def offloading(devices: list[Any]) -> Iterator[Any]:
    _, rows = places(devices)
    x = rewarm.abstract(batch(len(devices)), sharding=rows)
    for name, function in on_the_host(rows).items():
        yield rewarm.Program(function, x, name=name)
    yield rewarm.Program(
        jax.jit(lambda x: x + 1), rewarm.abstract(x, sharding=rows.with_memory_kind("pinned_host")), name="in"
    )


def run_offloading(devices: list[Any]) -> dict[str, Any]:
    _, rows = places(devices)
    x = jax.device_put(batch(len(devices)), rows)
    values = {name: float(np.asarray(function(x)).sum()) for name, function in on_the_host(rows).items()}
    values["in"] = float(
        np.asarray(jax.jit(lambda x: x + 1)(jax.device_put(x, rows.with_memory_kind("pinned_host")))).sum()
    )
    return {"values": values, "events": [(one.program, one.outcome) for one in rewarm.events()]}


def calling(devices: list[Any]) -> Iterator[Any]:
    """Programs that call Python back."""
    x = jax.ShapeDtypeStruct((8,), jnp.float32)

    def printed(x: Any) -> Any:
        jax.debug.print("sum {}", x.sum())
        return x + 1

    def told(x: Any) -> Any:
        io_callback(print, None, x)
        return x + 2

    yield rewarm.Program(jax.jit(printed), x, name="debug.print")
    yield rewarm.Program(jax.jit(told), x, name="io_callback")
    yield rewarm.Program(jax.jit(lambda x: jax.pure_callback(np.sin, x, x) + 3), x, name="pure_callback")


def deciding() -> Iterator[Any]:
    """One that decides by the devices of its process while it is traced, and one that does not."""

    def f(x: Any) -> Any:
        return x * 2 if jax.default_backend() == "cpu" else x * 3

    yield rewarm.Program(jax.jit(f), jax.ShapeDtypeStruct((4,), jnp.float32), name="decides")
    yield rewarm.Program(jax.jit(jax.nn.gelu), jax.ShapeDtypeStruct((4,), jnp.float32), name="does not")


def attached() -> Iterator[Any]:
    """A program for a device of this process, although others were described."""
    here = jax.sharding.SingleDeviceSharding(jax.devices("cpu")[0])
    yield rewarm.Program(scaled, jax.ShapeDtypeStruct((4,), jnp.float32, sharding=here), 2.0)


def slow() -> Iterator[Any]:
    """A quick one, and one that compiles for many seconds."""

    def f(x: Any) -> Any:
        for number in range(400):
            x = jnp.tanh(x @ x) * (1 + number)
        return jax.grad(lambda y: (y @ y).sum())(x).sum()

    yield from alone()
    yield rewarm.Program(jax.jit(f), jax.ShapeDtypeStruct((16, 16), jnp.float32), name="slow")


def run(devices: list[Any]) -> dict[str, Any]:
    """The programs of `plan`, run as a program of the user's would; what they gave, and what rewarm did."""
    everywhere, rows = places(devices)
    whole_w, whole_x = weights(), batch(len(devices))
    w = jax.make_array_from_callback(whole_w.shape, everywhere, lambda index: whole_w[index])
    x = jax.make_array_from_callback(whole_x.shape, rows, lambda index: whole_x[index])
    value, moved = step(w, x)
    fast, _ = step.lower(w, x).compile(compiler_options=FAST)(w, x)
    return {
        "value": float(np.asarray(value.addressable_data(0))),
        "moved": np.asarray(moved.addressable_data(0)).tolist(),
        "fast": float(np.asarray(fast.addressable_data(0))),
        "events": [(event.program, event.outcome) for event in rewarm.events()],
    }


def run_alone() -> dict[str, Any]:
    value = scaled(np.arange(5, dtype=np.float32), 2.0)
    return {"value": np.asarray(value).tolist(), "events": [(one.program, one.outcome) for one in rewarm.events()]}


if __name__ == "__main__":
    what = {"alone": lambda _: run_alone(), "offloading": run_offloading}.get(sys.argv[-1], run)
    print(json.dumps(what(jax.devices())), flush=True)
