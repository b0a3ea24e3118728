"""Which function, by name and content, and what else decides how fast it is: device, compiler, libraries.

Not promised: that a function has a case. What cannot be identified by content is measured and used in this process, and
nothing is kept of it. The target is one device: the default one, or that on which the arguments lie; under `jax.jit` it
is the default one, since a trace does not know its devices.

Code of installed libraries counts by name here; their versions are in `libraries`, so that a record that is of no use
any more can say which of the two changed.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import platform as host_platform
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rewarm.errors import NotFingerprintableError
from rewarm.fingerprint import Trusted, fingerprint
from rewarm.fingerprint.allowed import DISTRIBUTIONS
from rewarm.fingerprint.trust import TRUSTED, Owner
from rewarm.jax_adapter import seam
from rewarm.jax_adapter.jax_values import companions, reducers
from rewarm.jax_adapter.requests import Kind
from rewarm.jax_adapter.session import Session
from rewarm.tunables.records import Case

_KINDS_KEPT = 16


class Place(NamedTuple):
    """Where a case is measured: digests for its key, and what they stand for, for people.

    Attributes:
      target, toolchain, libraries: digests.
      about: names and versions.
    """

    target: str
    toolchain: str
    libraries: str
    about: dict[str, str]


class _ByName(Trusted):
    """As the fingerprints of keys have it, but without versions in the digest."""

    def owner(self, module: str) -> Owner | None:
        found = TRUSTED.owner(module)
        if found is None or not found.distribution:
            return found
        return Owner(found.distribution, found.distribution)


_BY_NAME = _ByName()


def name_of(function: Any, given: str | None = None) -> str:
    """ "module:qualname", or the name that the user gave."""
    if given:
        return given
    inner = innermost(function)
    module = str(getattr(inner, "__module__", None) or "unknown")
    if module == "__main__" and (spec := getattr(sys.modules.get("__main__"), "__spec__", None)) is not None:
        module = str(spec.name)
    return f"{module}:{getattr(inner, '__qualname__', None) or type(inner).__qualname__}"


def innermost(function: Any) -> Any:
    """What a partial or a wrapper holds, which has the name."""
    for _ in range(20):
        inner = function.func if isinstance(function, functools.partial) else getattr(function, "__wrapped__", None)
        if inner is None:
            break
        function = inner
    return function


def content_of(function: Any, variants: Any = ()) -> str:
    """The fingerprint of a function with all that it reaches, and of the variants in its space, 64 hex digits.

    Raises:
      NotFingerprintableError: something on the way cannot be identified; the message says what.
    """
    found = fingerprint(
        (function, variants) if variants else function,
        name="the tuned function",
        reducers=reducers(),
        companions=companions,
        trusted=_BY_NAME,
    )
    if found.unordered:
        raise NotFingerprintableError("the tuned function", "a set", "its order is another in each process")
    return found.digest


_for = threading.local()


@contextmanager
def traced_for(device: Any) -> Iterator[None]:
    """Within it, this thread traces for that device, whatever the default one is."""
    before = getattr(_for, "device", None)
    _for.device = device
    try:
        yield
    finally:
        _for.device = before


def device_of(leaves: Sequence[Any]) -> Any:
    """The device that a call is for: that of the first array which is committed to one, else the default one.

    Raises:
      ValueError: an array lies on several devices.
    """
    import jax

    if (said := getattr(_for, "device", None)) is not None:
        return said
    for leaf in leaves:
        if isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer) and leaf.committed:
            devices = leaf.devices()
            if len(devices) > 1:
                raise ValueError(
                    f"an argument lies on {len(devices)} devices; tune the function of one of them, as it is called "
                    "inside of jax.shard_map, with the shapes of one shard"
                )
            return next(iter(devices))
    chosen = jax.config.jax_default_device
    if chosen is None or isinstance(chosen, str):
        return jax.local_devices(backend=chosen or None)[0]
    return chosen


def place_of(session: Session, device: Any) -> Place:
    """Digests of a device, of its compiler and of the libraries that make programs.

    Raises:
      Exception: they cannot be found out.
    """
    return _place(session, device)


@functools.lru_cache(_KINDS_KEPT)
def _place(session: Session, device: Any) -> Place:
    client = device.client
    kind = _kind(session, device)
    versions = libraries()
    about = {
        "device": str(device.device_kind) if device.platform != "cpu" else cpu_name(),
        "platform": str(device.platform),
        "jaxlib": seam.jaxlib_version(),
        "compiler": str(client.platform_version).replace("\n", " ")[:200],
        **{name: value.split(" ")[1] if " " in value else value for name, value in versions.items()},
    }
    digest = hashlib.sha256(json.dumps(versions, sort_keys=True).encode()).hexdigest()
    return Place(kind.target, kind.toolchain, digest, about)


def _kind(session: Session, device: Any) -> Kind:
    import numpy as np

    placed = np.empty((1, 1), dtype=object)
    placed[0, 0] = device
    options = seam.plain_compile_options()
    return session.identifier.kind_of(seam.Call(device.client, None, placed, None, (), None, None), options)


@functools.cache
def libraries() -> dict[str, str]:
    """Which JAX, NumPy and the like make programs here, by content where that can be proven."""
    found = {"python": host_platform.python_version()}
    for name in sorted(DISTRIBUTIONS - {"jaxlib", "scipy"}):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        owner = TRUSTED.owner(name)
        found[name] = owner.identity if owner is not None else f"{name} {getattr(module, '__version__', 'unknown')}"
    return found


@functools.cache
def cpu_name() -> str:
    """The processor's name, for people."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123 - not a file to keep
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return host_platform.processor() or host_platform.machine()


def case_of(kernel: str, content: str, arguments: str, place: Place) -> Case:
    """The case of a function, its arguments and where it runs.

    Raises:
      ValueError: its name or its arguments have too long a text.
    """
    return Case(kernel, content, arguments, place.target, place.toolchain, place.libraries)
