"""Workers for one function and one set of arguments: children, or this process where none can be had.

Not promised: a child. Where the function, an argument or a variant has no name that another process can import, or the
device is one that only one process may hold, candidates run here, and the record is flagged "not isolated".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rewarm import settings
from rewarm.jax_adapter import seam
from rewarm.jax_adapter.session import Session
from rewarm.jax_adapter.tuner import bench, conditions, loading
from rewarm.jax_adapter.tuner.arguments import Arguments
from rewarm.jax_adapter.tuner.loading import NotImportableError, Slot, Spec
from rewarm.jax_adapter.tuner.worker import Child, Here, NotStartedError, Patience, Worker

logger = logging.getLogger("rewarm")

KEYWORDS, OPTIONS = "keywords", "options"
_SHARE = 0.8
_NICE = 5


class Wanted(NamedTuple):
    """What is to run.

    Attributes:
      function: it.
      mode: `KEYWORDS` or `OPTIONS`: what a choice is.
      arguments: of the call.
      inputs: sets of arrays in the order of its leaves; times are taken on the first.
      choices: all objects that a choice may hold, by label, which must be sent.
      default: the choice that all are compared with.
      content: fingerprint of the function and the choices; "" where it has none.
      tolerance: see `checking.difference`.
      device: where it runs.
      memory: bytes that a child may take; `None`: most of what there is.
    """

    function: Any
    mode: str
    arguments: Arguments
    inputs: Sequence[Sequence[Any]]
    choices: Mapping[str, Any]
    default: Any
    content: str
    tolerance: float | None
    device: Any
    memory: int | None


class Workers:
    """Starts workers, as often as one has died.

    Args:
      wanted: what they run.
      session: whose cache they share; `None`: none.
      patience: seconds for each step.
      isolate: whether children are to be tried.

    Attributes:
      why_here: why there are no children; "" where there are.
    """

    def __init__(self, wanted: Wanted, session: Session | None, patience: Patience, *, isolate: bool = True) -> None:
        self._wanted = wanted
        self._patience = patience
        self._spec: Spec | None = None
        self._environment = settings.tuning_environment(None if session is None else session.settings.directory)
        self._had_child = False
        self._program: str | None = None
        self.why_here = "" if isolate else "isolate=False"
        if isolate:
            try:
                self._spec = _spec(wanted, cached=session is not None)
            except NotImportableError as error:
                self.why_here = str(error)

    def start(self) -> Worker:
        """A worker to which nothing was prepared yet.

        Raises:
          NotStartedError: children ran before in this session, and no other one can be had.
        """
        if self._spec is not None:
            try:
                child = Child(self._spec, self._environment, self._patience)
            except NotStartedError as error:
                if self._had_child:  # what a child was needed for must not come here
                    raise
                self.why_here = str(error)
                self._spec = None
            else:
                self._had_child = True
                return child
        wanted = self._wanted
        make = (bench.by_keywords if wanted.mode == KEYWORDS else bench.by_options)(wanted.function, wanted.arguments)
        return Here(bench.Bench(make, wanted.inputs, wanted.tolerance, str(wanted.device.platform)))

    def is_same(self, program: str) -> bool:
        """Whether a worker's default is the program that it is in this process, as far as that can be found out."""
        if self._program is None:
            self._program = _program(self._wanted)
        return self._program in ("", program)

    def stay_here(self, why: str) -> None:
        """Start no more children."""
        self._spec, self.why_here = None, why

    @property
    def timer(self) -> str:
        """How calls are timed, in words."""
        return bench.TIMERS.get(str(self._wanted.device.platform), bench.QUEUED)

    def compilers(self, count: int) -> list[Child]:
        """Children that compile ahead into the cache that all share; none where that would be of no use."""
        if self._spec is None or not self._spec.cached:
            return []
        found = []
        for _ in range(count):
            try:
                found.append(Child(self._spec, self._environment, self._patience, nice=_NICE))
            except NotStartedError:
                break
        return found


def _program(wanted: Wanted) -> str:
    """The default's program as it is traced here; "" where that fails, which the worker says better."""
    of = bench.program_by_keywords if wanted.mode == KEYWORDS else bench.program_by_options
    try:
        # As a child has them: whether an array is bound to a device is part of a program.
        leaves = loading.received(loading.sent(wanted.inputs[0]), wanted.device)
        return of(wanted.function, wanted.arguments, wanted.default, leaves)
    except Exception:
        logger.debug("rewarm: the default cannot be traced here", exc_info=True)
        return ""


def _spec(wanted: Wanted, *, cached: bool) -> Spec:
    import sys

    choices = {label: loading.pickled(one, "a variant of the space") for label, one in wanted.choices.items()}
    slots = [Slot(number) for number in range(len(wanted.arguments.leaves))]
    at_hand = conditions.memory_at_hand()
    memory = wanted.memory if wanted.memory is not None else int((at_hand or 0) * _SHARE)
    return Spec(
        path=[one or str(Path.cwd()) for one in sys.path],
        argv=list(sys.argv),
        reference=loading.reference_of(wanted.function),
        content=wanted.content,
        choices=choices,
        mode=wanted.mode,
        arguments=loading.pickled(wanted.arguments.rebuild(slots), "an argument"),
        inputs=loading.pickled([loading.sent(leaves) for leaves in wanted.inputs], "an argument"),
        tolerance=wanted.tolerance,
        device=(str(wanted.device.platform), int(wanted.device.id)),
        config=config_of_jax(),
        memory=memory,
        cached=cached,
    )


def config_of_jax() -> dict[str, Any]:
    """JAX's options that shape a trace and whose values can be sent."""
    import jax

    names = {name for name, _ in seam.options_of_a_trace()}
    plain = (bool, int, float, str)
    return {name: value for name, value in jax.config.values.items() if name in names and type(value) in plain}
