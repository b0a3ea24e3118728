"""Who asks JAX which devices this process has, while a program for other devices is traced.

Not promised: to hear of everybody. What a module asked when it was imported, or reads elsewhere, does not show.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Of those that ask, what a program decides by.
_ASKING = ("default_backend", "devices", "local_devices", "device_count", "local_device_count")


@contextmanager
def hearing_of_devices() -> Iterator[dict[str, str]]:
    """Within it, functions of JAX by which code outside JAX asked for the default devices, each with its last line."""
    from jax._src import xla_bridge

    original = xla_bridge.get_backend
    library = Path(xla_bridge.__file__).parents[1]
    heard: dict[str, str] = {}

    @functools.wraps(original)
    def get_backend(platform: Any = None) -> Any:
        if platform is None:
            _note(heard, xla_bridge.__file__, library)
        return original(platform)

    xla_bridge.get_backend = get_backend
    try:
        yield heard
    finally:
        xla_bridge.get_backend = original


def _note(heard: dict[str, str], bridge: str, library: Path) -> None:
    asking = sys._getframe(2)
    name = asking.f_code.co_name
    caller = asking.f_back
    while caller is not None and caller.f_code.co_filename == bridge:  # devices() asks for local_devices(), and so on
        name, caller = caller.f_code.co_name, caller.f_back
    if asking.f_code.co_filename != bridge or name not in _ASKING or caller is None:
        return
    if not Path(caller.f_code.co_filename).is_relative_to(library):
        heard[name] = f"{caller.f_code.co_filename}:{caller.f_lineno}"
