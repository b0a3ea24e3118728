"""The executable of a record, out of the cache, with JAX's own dispatch around it.

Not promised: that it is there. Everything of the key but the program is worked out anew, as for any request: where the
compiler, the device, an option's file or the salt have changed since the record, there is another key, and no hit.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from rewarm.cache import Request
from rewarm.identity import Component
from rewarm.jax_adapter import custom_calls, executables, seam
from rewarm.jax_adapter.requests import Identifier, producer
from rewarm.jax_adapter.seam import Call
from rewarm.jax_adapter.session import Session
from rewarm.jax_adapter.trace_free.at_hand import at_the_end_of
from rewarm.jax_adapter.trace_free.records import Record


class Served(NamedTuple):
    """An executable that is ready to be run.

    Attributes:
      mesh: JAX's `MeshExecutable`.
      out_tree: of the results.
    """

    mesh: Any
    out_tree: Any


class NotServedError(Exception):
    """The record cannot be used; the text says why.

    Attributes:
      of_no_use: nor will it be at another start, so that it is to be made anew.
    """

    def __init__(self, why: str, *, of_no_use: bool = False) -> None:
        super().__init__(why)
        self.of_no_use = of_no_use


class Found(NamedTuple):
    """A record whose key is still what its program has here.

    Attributes:
      record: it.
      call: what JAX would call the compiler with, but for the program.
      request: what the cache is asked for.
    """

    record: Record
    call: Call
    request: Request[Any]


def found(session: Session, record: Record) -> Found:
    """A record whose guards hold, if it can be used here.

    Raises:
      NotServedError: its devices are not here, or the compiler, an option, a file that one names or the salt changed,
        so that its program has another key now.
    """
    try:
        call = _call_of(record)
        request = session.known(call, functools.partial(_request, session.identifier, record))
    except Exception as error:
        raise NotServedError(f"it is of no use here: {error}") from error
    assert request.components is not None
    if request.components.key() != record.key:
        raise NotServedError("the compiler, the device, an option or the salt is another one")
    return Found(record, call, request)


def serve(session: Session, one: Found, roots: Sequence[object]) -> Served:
    """The executable of a record. `roots`: the function, and what its guards were told that it depends on.

    Raises:
      NotServedError: it is not to be had.
    """
    try:
        custom_calls.prepare_for(one.record.place.platform, lapack=one.record.place.lapack)
        executable = session.find(one.request)
        if executable is None:
            raise NotServedError("its executable is no longer in the cache")
        find = functools.partial(at_the_end_of, roots=roots)
        return Served(*seam.put_together(one.record.parts, executable, one.call.backend, find))
    except NotServedError:
        raise
    except Exception as error:
        raise NotServedError(f"it cannot be loaded: {type(error).__name__}: {error}", of_no_use=True) from error


def _call_of(record: Record) -> Call:
    """What JAX would call the compiler with, but for the program."""
    place = record.place
    client = seam.client_in_use(place.platform)
    if client is None:
        raise ValueError(f"there is no device of the kind {place.platform}")
    devices, listed, options = seam.placed(client, place.devices, place.shape, place.options)
    return Call(client, None, devices, options, (), listed, None)


def _request(identifier: Identifier, record: Record, call: Call) -> Request[Any]:
    """The request of a record, with everything but the program as it is now."""
    since = time.perf_counter()
    known = identifier.known(call, Component("program", record.program))
    return Request(
        program=record.name,
        components=known.components,
        unkeyable=None,
        key_seconds=time.perf_counter() - since,
        compile=_cannot_compile,
        serialise=_cannot_compile,
        load=functools.partial(executables.load, call, known.machine),
        same=functools.partial(executables.same_code, call.backend.platform),
        producer=producer(),
        target=known.target,
        place=known.place,
        turns=False,
        spares_trace=True,
    )


def _cannot_compile(*_: Any) -> Any:
    raise NotServedError("there is no program to compile")
