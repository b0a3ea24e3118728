"""What stands for a GPU client that mocks: described devices, taken for attached ones. Run by children alone.

python mocked_program.py CACHE [mock] [job]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import rewarm


@jax.jit
def summed(x: Any) -> Any:
    return (x @ x.T).sum()


def argument(devices: list[Any]) -> Any:
    rows = NamedSharding(Mesh(np.array(devices), ("d",)), PartitionSpec("d"))
    return jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=rows)


def plan(devices: list[Any]) -> Iterator[Any]:
    yield rewarm.Program(summed, argument(devices))


def main() -> None:
    from rewarm import targets
    from rewarm.jax_adapter import described, distributed, seam
    from rewarm.jax_adapter.seam.memories import real

    target = targets.named("h200")
    # JAX's own objects: attached devices are no stand-ins.
    devices = real(described.devices(target, target.topology("2x2x1")))
    if "mock" in sys.argv:
        jax.config.update("jax_mock_gpu_topology", "2 x 2 x 1")
    if "job" in sys.argv:
        seam.job_client = object
    seam.backend_obstacle = lambda _: None
    distributed.is_described = lambda _: False
    asked: list[Any] = []
    alone = seam.tune_alone

    def tune_alone(call: Any) -> None:
        before = list(call.compile_options.env_option_overrides)
        alone(call)
        asked.extend(row for row in call.compile_options.env_option_overrides if row not in before)

    seam.tune_alone = tune_alone
    rewarm.enable(sys.argv[1])
    summed.lower(argument(devices)).compile()
    events = [(event.key, event.outcome, event.stored) for event in rewarm.events()]
    print(json.dumps({"events": events, "left": dict(rewarm.stats().left_to_jax), "asked": asked}))


if __name__ == "__main__":
    main()
