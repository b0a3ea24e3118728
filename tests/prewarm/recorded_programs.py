"""A program that runs, and plans made of what its run was: only ever run by children of the tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import rewarm


class Moments(NamedTuple):
    first: Any
    second: Any


@jax.jit
def divided(params: Any, batch: Any, *more: Any, rate: Any, unused: Any = None) -> Any:
    hidden = jnp.tanh(batch @ params["layers"][0]["w"] + params["layers"][1])
    return hidden.sum() * rate + more[0].sum()


@jax.jit
def with_moments(state: Any, x: Any, never: Any) -> Any:
    return x * state.first + state.second


@jax.jit
def alone(x: Any, key: Any, weak: Any) -> Any:
    return (x * weak).astype(jnp.float32) + jax.random.normal(key, x.shape)


def mesh_of(devices: list[Any]) -> Mesh:
    return Mesh(np.array(devices).reshape(-1, 2), ("data", "model"))


def run() -> None:
    mesh = mesh_of(jax.devices())

    def put(shape: tuple[int, ...], *parts: Any) -> Any:
        return jax.device_put(np.ones(shape, np.float32), NamedSharding(mesh, PartitionSpec(*parts)))

    params = {"layers": [{"w": put((16, 8), None, "model")}, put((8,))]}
    divided(params, put((32, 16), ("data", "model")), np.ones(3, np.float32), rate=jnp.float32(2))


def run_alone() -> None:
    first = jax.device_put(np.ones(4, np.float16), jax.devices()[0])
    with_moments(Moments(np.ones(4, np.float16), first), first, 3)
    alone(jnp.ones(4, jnp.float16), jax.random.key(0), 2.0)


def plan(devices: list[Any]) -> Iterator[Any]:
    yield rewarm.recorded(divided, on=mesh_of(devices))


def plan_alone(devices: list[Any]) -> Iterator[Any]:
    shape = jax.ShapeDtypeStruct((1,), jnp.int8)  # what the record has counts
    yield rewarm.recorded(with_moments, Moments(shape, shape), shape, 3, on=devices[0], name="moments")
    yield rewarm.recorded(alone, shape, jax.eval_shape(lambda: jax.random.key(0)), 2.0, on=devices[0])


def plan_without_mesh() -> Iterator[Any]:
    yield rewarm.recorded(divided)


def plan_of_other_axes(devices: list[Any]) -> Iterator[Any]:
    yield rewarm.recorded(divided, on=Mesh(np.array(devices), ("rows",)))


def plan_from_names(devices: list[Any]) -> Iterator[Any]:
    yield rewarm.recorded(with_moments, on=devices[0])


def plan_of_too_few(devices: list[Any]) -> Iterator[Any]:
    yield rewarm.recorded(divided, {"layers": []}, on=mesh_of(devices))


def plan_never_run() -> Iterator[Any]:
    yield rewarm.recorded(jax.jit(lambda never_seen: never_seen))


if __name__ == "__main__":
    {"run": run, "alone": run_alone}[sys.argv[1]]()
    print(json.dumps([(one.program, one.outcome, one.key) for one in rewarm.events()]))
