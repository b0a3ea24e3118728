"""What a caller tells the guards: types that it knows better, state of libraries, what the user declared.

Not promised: anything about their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rewarm.fingerprint import Reducer


class Adapter(NamedTuple):
    """State of a library that decides how its code behaves, such as a stack of contexts.

    Attributes:
      prefix: a module of the library; only once it is imported is there any state.
      state: gives a plain structure to count in full.
    """

    prefix: str
    state: Callable[[], object]


class Rules(NamedTuple):
    """What the caller knows better.

    Attributes:
      reducers: type to function, as of `fingerprint`.
      companions: what belongs to a class without being in it.
      adapters: state of libraries.
      depends_on: what the user declared: objects that count like the function itself.
      digest_protocol: a method by which a class says itself what counts of an instance.
    """

    reducers: Mapping[type, Reducer]
    companions: Callable[[type], object] | None
    adapters: tuple[Adapter, ...] = ()
    depends_on: tuple[object, ...] = ()
    digest_protocol: str = "__rewarm_digest__"
