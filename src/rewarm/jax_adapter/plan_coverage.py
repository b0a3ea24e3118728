"""Whether tuning entries cover a plan: the compiler is asked with the entries at hand, and what it looked up is judged.

Not promised: which entry is to blame where a program compiles without the entries and not with them; the compiler's own
words are passed on.

XLA itself has the last word: with the file or folder as it is, or what rewarm would give it, and told to fail for each
fusion without a result, it must compile every program before a plan is said to be covered.

The compiler is asked again, at most `_ROUNDS` times, where only the text of a fusion tells that its entry is not fit
for it (a library's result on a Triton fusion, which XLA takes in silence): what that entry did to the program is not to
count. And once without any entries where a program does not compile with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from rewarm import settings
from rewarm.autotune import coverage, targets, xla_flags
from rewarm.autotune.coverage import Coverage, Needed, Reader, Reason
from rewarm.autotune.formats import BUILDS, Build, Family, TuningEntry, build_of
from rewarm.autotune.sources import Loaded
from rewarm.jax_adapter import tuning_places
from rewarm.jax_adapter.libraries import cuda_compiler
from rewarm.jax_adapter.lookups import Compiled, Lookups, LookupsError, NotAskedError, jax_version, lookups, no_compiler
from rewarm.targets import topologies

_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Failure:
    """A program that did not compile.

    Attributes:
      with_entries: it compiles without the entries, so one of them is to blame.
    """

    program: str
    error: str
    with_entries: bool


@dataclass(frozen=True, slots=True)
class Checked:
    """The answer for a plan.

    Attributes:
      coverage: of the fusions of all programs that compiled, with or without the entries.
      programs: in the plan's order.
      unjudged: how many entries serve none of what was compiled, where that was not the whole plan: nobody can say
        whether the rest of it needs them, so they are not in the surplus.
    """

    coverage: Coverage
    programs: tuple[Compiled, ...]
    failures: tuple[Failure, ...] = field(default=())
    unjudged: int = 0

    @classmethod
    def of(
        cls, coverage: Coverage, programs: tuple[Compiled, ...], failures: tuple[Failure, ...], *, is_whole: bool
    ) -> Checked:
        """The answer; `is_whole`: all programs of the plan were asked for."""
        if is_whole and not failures:
            return cls(coverage, programs)
        kept = tuple(one for one in coverage.surplus if one.reason is not Reason.NOT_NEEDED)
        unjudged = len(coverage.surplus) - len(kept)
        return cls(replace(coverage, surplus=kept), programs, failures, unjudged)

    @property
    def is_complete(self) -> bool:
        """Whether every program compiles and each of its fusions is covered."""
        return self.coverage.is_complete and not self.failures


class Installed(NamedTuple):
    """The CUDA compiler that is installed here; `place` is its build id in managed places."""

    build: Build
    place: str


def installed() -> Installed:
    """The compiler that is installed beside JAX. Imports no JAX.

    Raises:
      LookupsError: there is no JAX, no compiler, or one whose keys are not known.
    """
    jax_version()
    try:
        version, place = cuda_compiler().version, tuning_places.installed_build()
    except OSError as wrong:  # with FileNotFoundError, which says that there is none
        raise LookupsError(no_compiler(str(wrong))) from None
    build = build_of(version)
    if build is None:
        known = ", ".join(one.jax for one in BUILDS)
        raise LookupsError(
            f"the CUDA compiler of JAX {version} is none whose tuning keys are known ({known}); nothing is guessed for "
            "another"
        )
    return Installed(build, place)


def check(
    plan: str,
    target: str,
    sources: Sequence[Loaded],
    *,
    topology: str = "1x1x1",
    only: Iterable[str] | None = None,
    tell: Callable[[str], None] = lambda _: None,
    to_lock: bool = False,
) -> Checked:
    """Judge entries against a plan.

    Args:
      plan: see `plans`.
      target: a name of `targets`, or the path of a description.
      sources: where entries come from.
      topology: as JAX has it ("1x2x4"), or "8", the devices of one process.
      only, tell: see `lookups.lookups`.
      to_lock: they are to become a lock, so rewarm will say to XLA in which formats they are, as it does with a lock.

    Raises:
      LookupsError: the compiler could not be asked, or the plan has no program, or none of a name.
      TopologyError: no such topology.
      UnknownTargetError, TuningFormatError: the target is none.
      MissingLibraryError: protobuf is not there.
    """
    shape = topologies.parsed("cuda", "", None, topology).text
    build, place = installed()
    is_lock = to_lock or (bool(sources) and all(one.is_lock for one in sources))
    family = family_to_lock(build, sources) if to_lock else _family(build, sources, is_lock=is_lock)
    reader = Reader(build, targets.device(target), family, place)
    names = None if only is None else list(only)
    ask = _Asking(plan, targets.description(target, build.jax), reader, shape, names, tell, is_lock)
    given = sources[0].path if len(sources) == 1 and sources[0].is_xlas and not is_lock else None
    usable = coverage.usable(sources, reader)
    strict, refusals = ask.strictly(usable, given) if usable else (Lookups((), ()), ())
    if usable and not refusals:
        judged = coverage.judge(strict.needed, sources, reader)
        if judged.is_complete:
            return Checked.of(judged, strict.programs, (), is_whole=names is None)
    found, failures, judged = _in_rounds(ask, sources, reader)
    if judged.is_complete and not failures:
        failures = refusals
    return Checked.of(judged, found.programs, failures, is_whole=names is None)


def family_to_lock(build: Build, sources: Sequence[Loaded]) -> Family:
    """In which formats a lock is to be made: those that `XLA_FLAGS` ask for, else as the entries are."""
    asked = xla_flags.new_format(settings.xla_flags())
    return coverage.family_for(build, sources) if asked is None else tuning_places.family_of(build.jax, asked)


def _family(build: Build, sources: Sequence[Loaded], *, is_lock: bool) -> Family:
    """Which formats XLA looks into: what a lock is in, for rewarm tells it; else what `XLA_FLAGS` ask for."""
    if is_lock:
        return coverage.family_for(build, sources)
    return tuning_places.family_of(build.jax, xla_flags.new_format(settings.xla_flags()))


def _in_rounds(
    ask: _Asking, sources: Sequence[Loaded], reader: Reader
) -> tuple[Lookups, tuple[Failure, ...], Coverage]:
    excluded: list[TuningEntry] = []
    for _ in range(_ROUNDS):
        entries = coverage.usable(sources, reader, excluded)
        found, failures = ask.with_entries(entries)
        judged = coverage.judge(found.needed, sources, reader)
        given = set(entries)
        unfit = [one.entry for one in judged.surplus if one.reason is Reason.CORRUPT and one.entry in given]
        if not unfit:
            break
        excluded += unfit
    return found, failures, judged


@dataclass(frozen=True, slots=True)
class _Asking:
    """What does not change from one question to the next."""

    plan: str
    target: str
    reader: Reader
    topology: str
    only: Iterable[str] | None
    tell: Callable[[str], None]
    is_lock: bool

    def strictly(self, entries: Sequence[TuningEntry], given: Path | None) -> tuple[Lookups, tuple[Failure, ...]]:
        """What is looked up where XLA is to fail for each fusion without a result, and which programs it refuses."""
        try:
            found = self._ask(entries, self.only, given, require=True)
            failed = found.errors
        except NotAskedError:
            raise
        except LookupsError as wrong:
            found, failed = Lookups((), ()), {"": str(wrong)}
        as_it_is = f", given {given} as it is" if given is not None else ""
        words = f"XLA does not take every result that is needed{as_it_is}: "
        return found, tuple(Failure(name, words + error, True) for name, error in failed.items())

    def with_entries(self, entries: Sequence[TuningEntry]) -> tuple[Lookups, tuple[Failure, ...]]:
        """What is looked up with these entries; of a program that fails with them, what is without."""
        try:
            found = self._ask(entries, self.only)
            failed = found.errors
        except LookupsError as wrong:
            if not entries or isinstance(wrong, NotAskedError):
                raise
            found, failed = Lookups((), ()), {"": str(wrong)}
        if not failed or not entries:
            return found, tuple(Failure(name, error, False) for name, error in failed.items())
        alone = self._ask((), self.only if "" in failed else failed)
        failures = [
            Failure(name, alone.errors.get(name, error), name not in alone.errors) for name, error in failed.items()
        ]
        return _together(found, alone), tuple(failures)

    def _ask(
        self,
        entries: Sequence[TuningEntry],
        only: Iterable[str] | None,
        given: Path | None = None,
        *,
        require: bool = False,
    ) -> Lookups:
        return lookups(
            *(self.plan, self.target, self.reader.build, self.reader.family),
            topology=self.topology,
            entries=() if given is not None else entries,
            given=given,
            require=require,
            family_decides=self.is_lock,
            only=only,
            tell=self.tell,
        )


def _together(found: Lookups, alone: Lookups) -> Lookups:
    """Both, with the programs of the second in the place of those of the first."""
    again = {one.name: one for one in alone.programs}
    programs = [again.pop(one.name, one) for one in found.programs]
    needed: dict[str, Needed] = {}
    for one in (*found.needed, *alone.needed):
        known = needed.get(one.text)
        names = tuple(dict.fromkeys((*known.programs, *one.programs))) if known else one.programs
        needed[one.text] = Needed(one.text, one.legacy, known.name if known else one.name, names)
    return Lookups((*programs, *again.values()), tuple(needed.values()))
