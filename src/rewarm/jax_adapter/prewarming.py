"""Filling the cache for devices that need not be there: one program of a plan, lowered, identified, compiled, stored.

Not promised: that what is stored runs on a real machine of that description; its key and its bytes are made in the same
way as there, by the same code (`session.py`, `requests.py`, `cache/`), and nothing is loaded here.

JAX is asked to compile the program as any program asks it; what comes to the compile step is taken from there, and the
compile is ended before JAX would load what it made.

Tuning results of described GPUs. XLA tunes nothing without a device: it takes the results that it is given, and for
other fusions the first configuration that compiles. So the program is compiled under XLA's option that fails where a
result is missing. If it does, it is compiled twice more: as it is, for the entry, and with XLA's dump of what it looks
up, for the names of the fusions that lack a result, which go into the entry's header. Never with the dump alone, since
an executable obeys the dump's options again where it is loaded. XLA keeps results in a table of the process, which the
order of the compiles allows for; a process is to fill one program of a GPU.
"""

from __future__ import annotations

import functools
import logging
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from rewarm import targets
from rewarm.autotune import xla_errors
from rewarm.cache import AHEAD, NO_KEY, Filled, Request
from rewarm.coordination import SingleFlight
from rewarm.errors import RewarmError
from rewarm.jax_adapter import described, plans, seam, tuning
from rewarm.jax_adapter.dumped import instructions
from rewarm.jax_adapter.managed import PATIENCE
from rewarm.jax_adapter.requests import note_flags
from rewarm.jax_adapter.seam import Call
from rewarm.jax_adapter.seam import tuning as said
from rewarm.jax_adapter.session import Runs, Session
from rewarm.ledger import Ledger
from rewarm.ledger.runs import BadRunError, iterate_events
from rewarm.ledger.runs import runs as ledger_runs

if TYPE_CHECKING:
    from rewarm.identity import KeyComponents
    from rewarm.in_force import Said
    from rewarm.jax_adapter.managed import Managed
    from rewarm.jax_adapter.seam import JaxOptions

logger = logging.getLogger("rewarm")

# What XLA logs with TF_CPP_VMODULE=config_assigner_pass=1 (JAX 0.11 and later).
_COUNTED = re.compile(rb"cache stats: hits=(\d+), misses=(\d+)")
_DUMPED = "xla_gpu_dump_autotuned_instructions"


class UntunedError(RewarmError, RuntimeError):
    """A program has fusions without a tuning result, and such are not wanted."""


@dataclass(frozen=True)
class Wanted:
    """How programs are to be filled in.

    Attributes:
      compile: whether to make what is not there, or only to look.
      tuned: whether programs with a fusion that has no tuning result are refused.
      target: of `rewarm.targets`: results of the legacy formats are named after a GPU's description.
      log: the file that XLA logs to, as it counts look-ups there.
      begins: is told the key of a program that is about to be compiled.
      may: is asked before that, and raises where it is not to be.
    """

    compile: bool = True
    tuned: bool = False
    target: str = ""
    log: Path | None = None
    begins: Callable[[str], None] = lambda _: None
    may: Callable[[str], None] = lambda _: None


def devices(target: str, topology: str) -> list[Any]:
    """JAX's devices of a target in a topology, of all processes; where this JAX describes no CPU, those of this host.

    Raises:
      TargetError, UnknownTargetError, TopologyError: there is no such target or topology.
      RewarmError: this JAX cannot describe it; the message says what to do.
    """
    found = targets.named(target)
    shape = found.topology(topology)
    obstacle = described.obstacle(found)
    if obstacle is None:
        return list(described.devices(found, shape))
    if found.source != "this host" or shape.processes > 1:
        raise RewarmError(obstacle)
    import jax

    attached: list[Any] = jax.local_devices(backend="cpu")
    if len(attached) < shape.devices:
        raise RewarmError(f"{obstacle}; and this process has {len(attached)} devices, not {shape.devices}")
    return attached[: shape.devices]


class Done(NamedTuple):
    """What came of one program.

    Attributes:
      filled: what the cache says.
      differs: in what these devices are not those on which the same program ran, as far as this directory knows of a
        run; part of keys, each of them.
      notes: what else there is to say of how it was made.
    """

    filled: Filled
    differs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class _Ended(Exception):  # noqa: N818 - not an error: it ends a compile that JAX must not go on with
    def __init__(self, done: Done) -> None:
        super().__init__(done)
        self.done = done


class Filler:
    """Fills the cache of these settings, in a process that does nothing else."""

    def __init__(self, wanted: Wanted, said_: Said) -> None:
        seam.probe()
        note_flags()
        seam.remember_defaults()
        self._session = _Session(said_, seam.read_options()._replace(enabled=True), wanted)

    def fill(self, program: plans.Program, devices: Sequence[Any]) -> Done:
        """Have an entry for one program.

        Raises:
          PlanError: the program is not for these devices.
          UntunedError: it lacks tuning results.
          RewarmError: the cache failed, or `wanted.may` refuses.
          Exception: what the user's code raises while it is traced, and what the compiler raises.
        """
        notes: list[str] = []
        with seam.hearing_of_devices() as heard:
            lowered = plans.lowered(program, devices, notes)
        if devices[0].platform != "cpu":
            notes += [
                f"asks for jax.{name}() while it is traced [{line}], which says this host's CPU here: where it decides "
                "by that, a run asks for another program"
                for name, line in heard.items()
            ]
        try:
            with asked_instead(functools.partial(self._answer, program, frozenset(devices))):
                lowered.compile(compiler_options=program.compiler_options or None)
        except _Ended as ended:
            return ended.done._replace(notes=tuple(notes))
        raise RewarmError(f"JAX {seam.version()} did not ask for {program.name} to be compiled")

    def _answer(self, program: plans.Program, devices: frozenset[Any], call: Call) -> NoReturn:
        plans.refuse_others(program, devices, call.flat_devices())
        raise _Ended(self._session.fill(call))


@contextmanager
def asked_instead(answer: Callable[[Call], NoReturn]) -> Iterator[None]:
    """Within it, whatever JAX would compile is for `answer`, which raises."""
    original = seam.current()

    def stand_in(
        backend: Any,
        computation: Any,
        devices: Any,
        compile_options: Any,
        host_callbacks: Any,
        executable_devices: Any,
        pgle_profiler: Any = None,
    ) -> NoReturn:
        answer(Call(backend, computation, devices, compile_options, host_callbacks, executable_devices, pgle_profiler))

    seam.install(stand_in)
    try:
        yield
    finally:
        seam.install(original)


class _Session(Session):
    """A session whose calls are filled in and not served."""

    def __init__(self, said_: Said, options: JaxOptions, wanted: Wanted) -> None:
        ledger = Ledger()
        self._about = _about(wanted.target)
        super().__init__(said_, options, ledger, SingleFlight(), Runs(ledger, {AHEAD: self._about}))
        self._wanted = wanted

    def fill(self, call: Call) -> Done:
        if self._options.profile_guided:
            return Done(Filled(None, NO_KEY, "profile-guided compilation is on"))
        if self._options.cache_dir and "://" in self._options.cache_dir:
            seam.hide_url(call, self._options.cache_dir)
        cache = self._open()
        tuned = self._tuned(call)
        request = self.identifier.request(call)
        if said.is_described(call.backend):
            request = request._replace(again=None, place=None)
        if tuned is not None:
            request = tuned.on(request)
        if isinstance(tuned, _Deviceless):
            request = request._replace(beside=tuned.beside)
        if request.components is not None:
            key = request.components.key()
            request = request._replace(compile=functools.partial(self._compile, key, request.compile))
        request = request._replace(producer={**request.producer, AHEAD: self._about})
        differs = self._differs(request)
        return Done(cache.fill(request, compile_=self._wanted.compile), differs)

    def _differs(self, request: Request[Any]) -> tuple[str, ...]:
        """In what the machine on which the program ran is another; nothing where one was the same, or none is known."""
        if request.components is None or request.evidence is None:
            return ()
        from rewarm.explain import Catalogue

        try:
            structure = ""  # programs of this content are all that is asked for
            digests = {row.name: row.digest for row in request.components.rows}
            catalogue = Catalogue(self.settings.directory)
            known = [one for one in catalogue.alike(request.program, digests, structure) if AHEAD not in one.producer]
            found = _of_targets(request.components, [(one.components, catalogue.value) for one in known])
            # The catalogue knows runs that missed; one that was served this very entry was on this target.
            return () if found and request.components.key() in self._served else found
        except Exception:  # the catalogue is a hint
            logger.debug("rewarm: what ran before cannot be compared", exc_info=True)
            return ()

    @functools.cached_property
    def _served(self) -> frozenset[str]:
        """The keys whose entries were served to programs, as far as the runs of this directory say."""
        keys: set[str] = set()
        for run in ledger_runs(self.settings.directory):
            if AHEAD not in run.about:
                with suppress(BadRunError):
                    keys.update(str(event["key"]) for event in iterate_events(run.path) if _is_hit(event))
        return frozenset(keys)

    def _compile(self, key: str, inner: Callable[[], Any]) -> Any:
        self._wanted.may(key)
        self._wanted.begins(key)
        return inner()

    def _tuned(self, call: Call) -> tuning.Compile | None:
        found = super()._tuned(call)
        if found is None or not said.is_described(call.backend):
            return found
        return _Deviceless(found, self._wanted)


def _is_hit(event: Mapping[str, Any]) -> bool:
    return event.get("outcome") == "hit" and event.get("key") is not None


def _about(name: str) -> str:
    """A target in a few words, for entries. A file is named without its folder: the path is nobody else's."""
    if not name:
        return "devices of the plan's own"
    target = targets.named(name)
    return f"{target.name} ({'captured' if target.reported is not None else target.source})"


def _of_targets(
    components: KeyComponents, known: Sequence[tuple[Mapping[str, str], Callable[[str], Any]]]
) -> tuple[str, ...]:
    """The items in which a target differs from that of the newest run of the same program on as many devices."""
    from rewarm.explain.components import changes_in

    own = {row.name: row for row in components.rows}
    target, program = own["target"], own["program"].digest
    found: tuple[str, ...] = ()
    for digests, value_of in known:
        if digests.get("program") != program:
            continue
        if digests.get("target") == target.digest:
            return ()
        value = value_of(digests.get("target", ""))
        alike = isinstance(value, dict) and all(value.get(name) == target.value[name] for name in ("platform", "shape"))
        if alike and not found:
            changes = changes_in("target", value, target.value, ({}, {}))
            found = tuple(
                f"{one.item}: {one.before or 'nothing'} there, {one.after or 'nothing'} here" for one in changes
            )
    return found


class _Deviceless(tuning.Compile):
    """One call for described GPUs: how complete its tuning is gets found out, and said."""

    def __init__(self, found: tuning.Compile, wanted: Wanted) -> None:
        super().__init__(found._tuning, found._call, found._lock)
        self._wanted = wanted
        self._managed: Managed | None = None
        self._fusions: int | None = None
        self._beside = 0.0

    def beside(self) -> float:
        """How many seconds of the compile went into finding out what the entry does not need."""
        return self._beside

    def told(self) -> Mapping[str, Any] | None:
        """See `cache.Tuned`."""
        record = super().told()
        if record is None or self._fusions is None:
            return record
        return {**record, "fusions": self._fusions, "untuned": len(self._missing)}

    def _give(self, patience: float = PATIENCE) -> Managed | None:
        self._managed = super()._give(patience)
        return self._managed

    def _compile(self, inner: Callable[[], Any]) -> Any:
        since = time.perf_counter()
        try:
            executable = self._required_compile(inner)
        except Exception as error:
            lacks = xla_errors.lacking(str(error))
            if lacks is None:
                raise
            self._missing = self._names_missing(inner) or (lacks,)
            self._beside = time.perf_counter() - since
            if self._wanted.tuned:
                raise UntunedError(
                    f"{len(self._missing)} of its {self._fusions or 'many'} fusions have no tuning result, such as "
                    f"{lacks}"
                ) from None
            return super()._compile(inner)
        self._required = True
        return executable

    def _compile_locked(self, inner: Callable[[], Any]) -> Any:
        since = self._logged()
        executable = super()._compile_locked(inner)
        self._fusions = self._counted(since)
        if self._missing and self._wanted.tuned:
            raise UntunedError(self._missing[0])
        return executable

    def _required_compile(self, inner: Callable[[], Any]) -> Any:
        since = self._logged()
        options = self._call.compile_options
        before = list(options.env_option_overrides)
        said.say(self._call, said.REQUIRE, True)
        try:
            executable = super()._compile(inner)
        finally:
            options.env_option_overrides = before
        self._fusions = self._counted(since)
        return executable

    def _names_missing(self, inner: Callable[[], Any]) -> tuple[str, ...]:
        """The fusions that have no result, by the names of the files that would hold them."""
        looked_up = self._looked_up(inner)
        place = None if self._managed is None else self._managed.place
        at_hand = frozenset() if place is None else place.names()
        self._fusions = len(looked_up)
        names = dict.fromkeys(name for text, legacy, _ in looked_up if (name := self._name(text, legacy)) is not None)
        return tuple(name for name in names if name not in at_hand)

    def _name(self, text: str, legacy: str) -> str | None:
        from rewarm.autotune.formats import Family, build_of, keys

        build = build_of(seam.version())
        if build is not None and build.default is Family.LEGACY:
            device = keys.device_of_target(targets.named(self._wanted.target).config_for(seam.version()))
            return keys.legacy_digest(device.legacy, legacy, build.entry_version)
        return keys.fingerprint128(text)

    def _looked_up(self, inner: Callable[[], Any]) -> list[tuple[str, str, str]]:
        options = self._call.compile_options
        before = list(options.env_option_overrides)
        with tempfile.TemporaryDirectory(prefix="rewarm-prewarm-") as folder:
            dump = {"xla_dump_to": folder, _DUMPED: True, "xla_dump_hlo_module_re": "^$"}
            options.env_option_overrides = [*before, *dump.items()]
            try:
                inner()
                return list(instructions(Path(folder)))
            finally:
                options.env_option_overrides = before

    def _logged(self) -> int:
        return 0 if self._wanted.log is None else self._wanted.log.stat().st_size

    def _counted(self, since: int) -> int | None:
        """How many look-ups XLA has logged since; `None` where it does not."""
        if self._wanted.log is None:
            return None
        with self._wanted.log.open("rb") as file:
            file.seek(since)
            found = _COUNTED.findall(file.read())
        return sum(int(hits) + int(misses) for hits, misses in found) if found else None
