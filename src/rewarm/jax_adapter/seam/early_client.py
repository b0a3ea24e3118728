"""The CPU client, made before JAX makes one, and handed to JAX if it then asks for the very same.

Not promised: that it is ever used. What JAX asks for is decided when JAX asks: where an argument differs, or the
caller's `surroundings` (what the client read of the environment), JAX gets a client of its own and this one goes.

`xla_client.make_cpu_client` has had one signature in JAX 0.9 to 0.12, and is called by name through its module.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

_lock = threading.RLock()
_here = threading.local()


class _Made(NamedTuple):
    arguments: tuple[Any, ...]
    surroundings: Any
    client: Any


class _Place:
    """What stands in the place of JAX's function."""

    def __init__(self) -> None:
        self.original: Callable[..., Any] | None = None
        self.made: _Made | None = None
        self.surroundings: Callable[[], Any] = tuple
        self.heard: Callable[[], object] = bool

    def make(self, *arguments: Any, **named: Any) -> Any:
        """See `xla_client.make_cpu_client`."""
        assert self.original is not None
        asked = arguments, named
        if getattr(_here, "is_ahead", False):
            client = self.original(*arguments, **named)
            self.made = _Made(asked, self.surroundings(), client)
            return client
        self.heard()
        with _lock:  # one that is being made is waited for: it takes milliseconds
            made, self.made = self.made, None
        if made is not None and made.arguments == asked and made.surroundings == self.surroundings():
            return made.client
        del made
        return self.original(*arguments, **named)


_place = _Place()


def hear_of_cpu_client(heard: Callable[[], object], surroundings: Callable[[], Any]) -> None:
    """Call `heard` when JAX makes a CPU client. `surroundings`: what a client reads beside its arguments."""
    from jax._src.lib import xla_client

    with _lock:
        _place.heard, _place.surroundings = heard, surroundings
        if getattr(xla_client, "make_cpu_client", None) not in (None, _place.make):
            _place.original = xla_client.make_cpu_client
            xla_client.make_cpu_client = _place.make


def make_cpu_client_ahead() -> None:
    """Make the client that JAX would make now, unless it has made one.

    Raises:
      Exception: what JAX raises.
    """
    from jax._src import xla_bridge

    with _lock:
        if _place.original is None or _place.made is not None or xla_bridge._backends:
            return
        _here.is_ahead = True
        try:
            xla_bridge.make_cpu_client()
        finally:
            _here.is_ahead = False


def client_ahead() -> Any | None:
    """The client that was made ahead and that JAX has not asked for yet."""
    made = _place.made
    return made.client if made is not None else None


def forget_client_ahead() -> None:
    """In a child of fork its threads are not there."""
    global _lock  # noqa: PLW0603 - a thread of the parent may have held it
    _lock = threading.RLock()
    _place.made = None


def put_back_cpu_client() -> None:
    """Leave JAX as it was found, unless somebody else has replaced its function since."""
    from jax._src.lib import xla_client

    with _lock:
        if _place.original is not None and xla_client.make_cpu_client == _place.make:
            xla_client.make_cpu_client = _place.original
            _place.original, _place.made = None, None
