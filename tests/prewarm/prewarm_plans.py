"""Plans for the tests of pre-warming, and the same programs run: never imported by a test, only by children."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
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
    print(json.dumps(run_alone() if "alone" in sys.argv else run(jax.devices())), flush=True)
