"""Robotics simulation with MuJoCo MJX: one of several small mechanisms, a batch of them, stepped forward."""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import mujoco
from _result import print_result
from mujoco import mjx

_HINGE = '<joint type="hinge" axis="0 1 0" damping="0.05"/><geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.03"/>'

MECHANISMS = {
    "pendulum": f'<body pos="0 0 1">{_HINGE}</body>',
    "double_pendulum": f'<body pos="0 0 1">{_HINGE}<body pos="0 0 -0.4">{_HINGE}</body></body>',
    "cart_pole": (
        '<body pos="0 0 1"><joint type="slide" axis="1 0 0"/><geom type="box" size="0.2 0.1 0.05"/>'
        f"<body>{_HINGE}</body></body>"
    ),
    "ball": '<body pos="0 0 0.5"><freejoint/><geom type="sphere" size="0.1"/></body><geom type="plane" size="5 5 1"/>',
    "arm": f'<body pos="0 0 1">{_HINGE}' + f'<body pos="0 0 -0.4">{_HINGE}' * 5 + "</body>" * 6,
}


def load(name: str) -> mujoco.MjModel:
    """Builds the mechanism; those with contacts have them with the floor only."""
    return mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{MECHANISMS[name]}</worldbody></mujoco>")


def main() -> None:
    """Simulates the batch; the result is every position of every step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mechanism", choices=MECHANISMS, default="pendulum")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    mechanism = load(arguments.mechanism)
    model, start = mjx.put_model(mechanism), mjx.make_data(mechanism)

    def rollout(push: jax.Array) -> jax.Array:
        def advance(data: mjx.Data, _: None) -> tuple[mjx.Data, jax.Array]:
            data = mjx.step(model, data)
            return data, data.qpos

        moving = start.replace(qvel=start.qvel + push)
        return jax.lax.scan(advance, moving, None, length=arguments.steps)[1]

    pushes = jnp.linspace(-0.5, 0.5, arguments.batch)
    print_result(jax.jit(jax.vmap(rollout))(pushes))


if __name__ == "__main__":
    main()
