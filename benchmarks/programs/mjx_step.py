"""Robotics simulation with MuJoCo MJX: a batch of humanoids, stepped forward under random controls.

The model is the humanoid that MJX ships: 27 degrees of freedom, 21 motors, contacts with the floor.
"""

from __future__ import annotations

import argparse
import functools
from importlib import resources

import jax
import jax.numpy as jnp
import mujoco
from _result import print_result
from mujoco import mjx

Trajectory = tuple[jax.Array, jax.Array]


def load_humanoid() -> mujoco.MjModel:
    """Reads the humanoid from the installed package."""
    path = resources.files("mujoco.mjx") / "test_data" / "humanoid" / "humanoid.xml"
    return mujoco.MjModel.from_xml_path(str(path))


def rollout(model: mjx.Model, start: mjx.Data, key: jax.Array, steps: int) -> Trajectory:
    """Simulates one humanoid from a jittered pose; returns its positions and velocities after each step."""
    pose_key, control_key = jax.random.split(key)
    pose = start.qpos + 0.01 * jax.random.normal(pose_key, start.qpos.shape)
    controls = jax.random.uniform(control_key, (steps, model.nu), minval=-0.4, maxval=0.4)

    def advance(data: mjx.Data, control: jax.Array) -> tuple[mjx.Data, Trajectory]:
        data = mjx.step(model, data.replace(ctrl=control))
        return data, (data.qpos, data.qvel)

    _, trajectory = jax.lax.scan(advance, start.replace(qpos=pose), controls)
    return trajectory


def main() -> None:
    """Simulates all humanoids at once; the result is every position and velocity of every step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--humanoids", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    humanoid = load_humanoid()
    model, start = mjx.put_model(humanoid), mjx.make_data(humanoid)
    keys = jax.random.split(jax.random.key(0), arguments.humanoids)
    simulate = jax.jit(jax.vmap(functools.partial(rollout, steps=arguments.steps), in_axes=(None, None, 0)))
    positions, velocities = simulate(model, start, keys)
    print("mean height of the torsos after the last step", jnp.mean(positions[:, -1, 2]))
    print_result({"positions": positions, "velocities": velocities})


if __name__ == "__main__":
    main()
