"""What the children of the tests of described devices run: keys, and what is compiled, of a few programs.

    python described_programs.py ATTACHED|[[TARGET, TOPOLOGY], ...] [compile] [only=PROGRAM]

An answer is one line of JSON: for each kind of devices, each program's key, its target component and, with `compile`,
a digest of its object files and the CPU that it was made for.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

ATTACHED = "attached"


class Asked(Exception):  # noqa: N818 - ends a compile
    """What JAX would compile."""

    def __init__(self, call: Any) -> None:
        super().__init__()
        self.call = call


def programs(devices: list[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name, jitted function, argument; the last two for one process of a job."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

    def alone(x: Any) -> Any:  # divided among threads: other object files for each number of them
        return jax.scipy.special.gammaln(x) * 2

    def calls(x: Any) -> Any:
        return jax.pure_callback(lambda y: np.asarray(y) * 2, jax.ShapeDtypeStruct((8,), jnp.float32), x)

    def summed(x: Any) -> Any:
        return jnp.tanh(x).sum()

    first = SingleDeviceSharding(devices[0])
    yield "alone", jax.jit(alone), jax.ShapeDtypeStruct((1, 1234567), jnp.float32, sharding=first)
    yield "calls", jax.jit(calls), jax.ShapeDtypeStruct((8,), jnp.float32, sharding=first)
    every = NamedSharding(Mesh(np.array(devices), ("d",)), PartitionSpec("d"))
    yield "summed", jax.jit(summed), jax.ShapeDtypeStruct((1024,), jnp.float32, sharding=every)


def answers(devices: list[Any], *, compile_: bool, only: str = "") -> dict[str, dict[str, Any]]:
    """What is asked for by each program that these devices can run."""
    from rewarm import settings
    from rewarm.coordination import SingleFlight
    from rewarm.jax_adapter import seam
    from rewarm.jax_adapter.session import Runs, Session
    from rewarm.ledger import Ledger

    ledger = Ledger()
    session = Session(settings.say(), seam.read_options(), ledger, SingleFlight(), Runs(ledger))
    found = {}
    for name, jitted, argument in programs(devices):
        if not only or name == only:
            request = session.identifier.request(asked(jitted, argument))
            assert request.components is not None, request.unkeyable
            told = {row.name: row for row in request.components.rows}
            found[name] = {"key": request.components.key(), "target": told["target"].value}
            if compile_:
                found[name] |= made(request)
    return found


def asked(jitted: Any, argument: Any) -> Any:
    """The call of JAX's compile step."""
    from rewarm.jax_adapter import seam

    original = seam.current()

    def instead(*arguments: Any, **named: Any) -> NoReturn:
        given = dict(zip(seam.Call._fields, arguments, strict=False)) | named
        raise Asked(seam.Call(**{"pgle_profiler": None, **given}))

    seam.install(instead)
    try:
        jitted.lower(argument).compile()
    except Asked as stopped:
        return stopped.call
    finally:
        seam.install(original)
    raise AssertionError("nothing was asked for")


def made(request: Any) -> dict[str, Any]:
    from rewarm.identity import machine_of_executable
    from rewarm.jax_adapter.executables import object_files

    data = request.serialise(request.compile())
    machine = machine_of_executable(data)
    return {
        # Of a program that only calls the host there are none.
        "code": hashlib.sha256(b"".join(object_files(data))).hexdigest(),
        "features": None if machine is None else sorted(machine.features),
    }


def main() -> None:
    import jax

    compile_ = "compile" in sys.argv
    only = next((word.removeprefix("only=") for word in sys.argv if word.startswith("only=")), "")
    if sys.argv[1] == ATTACHED:
        print(json.dumps(answers(jax.devices(), compile_=compile_, only=only)))
        return
    from rewarm import targets
    from rewarm.jax_adapter import described

    told = {}
    for name, topology in json.loads(sys.argv[1]):
        target = targets.named(name)
        devices = described.devices(target, target.topology(topology))
        told[topology] = {
            **answers(devices, compile_=compile_, only=only),
            "devices": [[device.id, device.process_index, device.device_kind] for device in devices],
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
