"""Described devices that say which memories they have, as attached ones do.

Not promised: that a machine has these memories and no others; `described` says where it knows them from.

XLA's topologies of CPUs and GPUs name no memories (those of TPUs do), and JAX takes a sharding's kind of memory away,
without a word, where its devices name none: what a program keeps on the host would be compiled as if it stayed on the
device. So JAX is given stand-ins for such devices. They say the same as the devices behind them, and which memories
there are. Where XLA itself wants devices they are taken out again (`real`, `real_list`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any


class _Kind(str):
    """A kind of memory. JAX asks for its `kind`, and jaxlib compares the whole with a text."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """Its name."""
        return str(self)


class _Device:
    """A described device with memories."""

    def __init__(self, device: Any, kinds: Sequence[str]) -> None:
        self._rewarm_real = device
        self._rewarm_kinds = tuple(map(_Kind, kinds))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rewarm_real, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._rewarm_real)

    def default_memory(self) -> _Kind:
        """Where arrays lie unless a program says otherwise."""
        return self._rewarm_kinds[0]

    def addressable_memories(self) -> list[_Kind]:
        """All that there are."""
        return list(self._rewarm_kinds)

    def memory(self, kind: str) -> _Kind:
        """The one of this kind."""
        return next(one for one in self._rewarm_kinds if one == kind)

    def __repr__(self) -> str:
        return repr(self._rewarm_real)

    def __str__(self) -> str:
        return str(self._rewarm_real)


def with_memories(devices: Sequence[Any], kinds: Sequence[str]) -> list[Any]:
    """Stand-ins for described devices that name no memories, with memories of these kinds, the default one first."""
    _keep_from_jax()
    return [_Device(device, kinds) for device in devices]


def _keep_from_jax() -> None:
    """From now on JAX's own compile step, which a function asks that computes while it is traced, refuses stand-ins, as
    it would fail for described devices. Asked about one further on, jaxlib would end the process."""
    from jax._src import compiler

    original = compiler.compile_or_get_cached
    if getattr(original, "rewarm_refuses", False):
        return

    @functools.wraps(original)
    def compile_or_get_cached(*arguments: Any, **named: Any) -> Any:
        listed = named["executable_devices"] if "executable_devices" in named else arguments[_LISTED]
        if any(type(device) is _Device for device in listed):
            raise RuntimeError(f"{listed[0]} is only described, and nothing can be computed there")
        return original(*arguments, **named)

    compile_or_get_cached.rewarm_refuses = True  # type: ignore[attr-defined]
    compiler.compile_or_get_cached = compile_or_get_cached


# Where the list of devices stands among the arguments of JAX's function (`compile_step`).
_LISTED = 5


def names_memories(device: Any) -> bool:
    """Whether a device says which memories it has."""
    from jax._src.lib import _jax

    try:
        device.default_memory()
    except _jax.JaxRuntimeError:
        return False
    return True


def real(devices: Sequence[Any]) -> list[Any]:
    """The devices themselves, where there are stand-ins among them."""
    return [device._rewarm_real if type(device) is _Device else device for device in devices]


def real_list(devices: Any) -> Any:
    """A `DeviceList` of the devices themselves; the same object where there is no stand-in in it."""
    from jax._src.lib import xla_client

    if any(type(device) is _Device for device in devices):
        return xla_client.DeviceList(tuple(real(list(devices))))
    return devices
