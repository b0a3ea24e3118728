"""Loading an executable: the functions it calls by name, and clients of another process.

Not promised: that every target has a function; `custom_calls.py` refuses what has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def untyped_targets() -> list[str]:
    """The names of functions for CPU that were registered in this process with an interface older than XLA's FFI."""
    from jax._src.lib import xla_client

    # A typed one is a mapping of stages to functions. Takes 50 microseconds.
    return [name for name, found in xla_client.custom_call_targets("Host").items() if not isinstance(found, dict)]


def initialise_lapack() -> None:
    """Have jaxlib find LAPACK's functions, as lowering a program that calls them does."""
    from jax._src.lib import lapack

    lapack._lapack.initialize()


def client_with(platform: str, devices: Sequence[int]) -> Any:
    """The client of a platform whose devices have these ids, in a process where JAX has not made any yet.

    Raises:
      Exception: what JAX raises where there is no such platform.
      ValueError: a device has none of these ids.
    """
    import jax

    jax.config.update("jax_platforms", {"gpu": "cuda,cpu"}.get(platform, platform))
    if platform == "cpu" and len(devices) and max(devices) > 0:
        jax.config.update("jax_num_cpu_devices", max(devices) + 1)
    found = jax.local_devices(backend=platform)
    _of_ids(found, devices)
    return found[0].client


def client_in_use(platform: str) -> Any | None:
    """The client that JAX uses for a platform now, or `None`. Only once there are clients: else it makes some."""
    from jax._src import xla_bridge

    return next((client for client in xla_bridge.backends().values() if client.platform == platform), None)


def load_bytes(client: Any, raw: bytes, devices: Sequence[int], options: bytes) -> Any:
    """Load a serialised executable on these devices of a client; without host callbacks, so it must not be run.

    Raises:
      Exception: what JAX raises.
    """
    from jax._src.lib import xla_client

    placed = xla_client.DeviceList(tuple(_of_ids(client.local_devices(), devices)))
    return client.deserialize_executable(raw, placed, xla_client.CompileOptions.ParseFromString(options))


def placed(client: Any, devices: Sequence[int], shape: Sequence[int], options: bytes) -> tuple[Any, Any, Any]:
    """Devices of a client as JAX hands them to its compile step: an array of this shape, a list, and the options.

    Raises:
      ValueError: a device is not there.
      Exception: the options are none.
    """
    import numpy
    from jax._src.lib import xla_client

    found = _of_ids(client.local_devices(), devices)
    array = numpy.empty(len(found), dtype=object)
    array[:] = found
    return array.reshape(shape), xla_client.DeviceList(tuple(found)), xla_client.CompileOptions.ParseFromString(options)


def _of_ids(devices: Sequence[Any], wanted: Sequence[int]) -> list[Any]:
    by_id = {device.id: device for device in devices}
    lacking = sorted(set(wanted) - by_id.keys())
    if lacking:
        raise ValueError(f"there is no device {lacking[0]}; there are {sorted(by_id)}")
    return [by_id[one] for one in wanted]
