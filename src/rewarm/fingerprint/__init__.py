"""A content digest of Python code and values: equal in every process while nothing changed that can change behaviour.

Not promised: an answer. Whatever cannot be followed, or may not stay as it is, is refused with the way to it.

Seen: code with the defaults, closures and globals that it and the code nested in it name, and all that these lead to;
classes with all of their methods; instances by class and state. Code of Python's pure modules and of unmodified
installations of a few distributions (`allowed.py`) counts by name.

Not seen, so that whoever makes a key must know of it:

* settings that trusted code reads: JAX's configuration and trace context, numpy's error state;
* registries in trusted code: lowering rules and pytree registrations, unless given as `companions`;
* trusted code that was patched in memory, unless where the user's code names it;
* what code does to the containers that it captures: their contents at the time of the fingerprint count;
* the seed of string hashes (PYTHONHASHSEED): code that iterates over a set of strings depends on it.

`getattr` with a name that is computed is followed on ordinary objects, which count as a whole. On modules it cannot
be: a module that code uses in any way but by naming its attributes is refused, or (pure and trusted ones) counts as a
whole, and then no code on the way may name an attribute that reads files, devices or hidden state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from rewarm.fingerprint.node import Context, Reducer
from rewarm.fingerprint.trust import TRUSTED, Trusted
from rewarm.fingerprint.walk import Budget, Walk

__all__ = ["Fingerprint", "Reducer", "Trusted", "fingerprint"]

_NO_REDUCERS: Mapping[type, Reducer] = MappingProxyType({})


class Fingerprint(NamedTuple):
    """The digest of a value, and what it is made of.

    Attributes:
      digest: 64 hexadecimal digits.
      parts: how each function and captured thing was reached, and a short text that changes if it does. For people:
        which part changed. Captured strings and numbers are shown as they are.
      unordered: whether code on the way may go through a set of strings or objects, in an order that is another in
        each process unless PYTHONHASHSEED is fixed. Where results may depend on it, add `hash("")` of some text.
    """

    digest: str
    parts: dict[str, str]
    unordered: bool = False


def fingerprint(
    value: object,
    *,
    name: str = "value",
    reducers: Mapping[type, Reducer] = _NO_REDUCERS,
    companions: Callable[[type], object] | None = None,
    trusted: Trusted = TRUSTED,
) -> Fingerprint:
    """The fingerprint of a function, or of anything.

    Args:
      value: what to identify.
      name: what paths in messages and `parts` start with.
      reducers: type to a function that gives a plain structure to count in place of its instances. One for a base
        class also serves derived classes, which then count with class and attributes too.
      companions: from a class of the user to what belongs to it without being in it, such as its registration as a
        pytree; `None` for nothing.
      trusted: whose code counts by name.

    Raises:
      NotFingerprintableError: something on the way cannot be identified.
    """
    walk = Walk(Context(trusted, reducers, companions), Budget())
    digest = walk.digest(value, (None, name)).hex()
    return Fingerprint(digest, walk.explain(), walk.unordered)
