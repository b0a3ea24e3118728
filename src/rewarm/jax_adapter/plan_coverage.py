"""Whether tuning entries cover a plan: the compiler is asked with the entries at hand, and what it looked up is judged.

Not promised: which entry is to blame where a program compiles without the entries and not with them; the compiler's own
words are passed on.

The compiler is asked again, at most `_ROUNDS` times, where only the text of a fusion tells that its entry is not fit
for it (a library's result on a Triton fusion, which XLA takes in silence): what that entry did to the program is not to
count. And once without any entries where a program does not compile with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rewarm.autotune import coverage, targets
from rewarm.autotune.coverage import Coverage, Needed, Reader, Reason
from rewarm.autotune.formats import BUILDS, Build, TuningEntry, build_of
from rewarm.autotune.sources import Loaded
from rewarm.jax_adapter import tuning_places
from rewarm.jax_adapter.libraries import cuda_compiler
from rewarm.jax_adapter.lookups import Compiled, Lookups, LookupsError, jax_version, lookups, no_compiler

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
    """

    coverage: Coverage
    programs: tuple[Compiled, ...]
    failures: tuple[Failure, ...] = field(default=())

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
) -> Checked:
    """Judge entries against a plan.

    Args:
      plan: see `plans`.
      target: a name of `targets`, or the path of a description.
      sources: where entries come from.
      topology, only, tell: see `lookups.lookups`.

    Raises:
      LookupsError: the compiler could not be asked.
      UnknownTargetError, TuningFormatError: the target is none.
      MissingLibraryError: protobuf is not there.
    """
    build, place = installed()
    reader = Reader(build, targets.device(target), coverage.family_for(build, sources), place)
    ask = _Asking(plan, targets.description(target, build.jax), reader, topology, only, tell)
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
    return Checked(judged, found.programs, failures)


@dataclass(frozen=True, slots=True)
class _Asking:
    """What does not change from one question to the next."""

    plan: str
    target: str
    reader: Reader
    topology: str
    only: Iterable[str] | None
    tell: Callable[[str], None]

    def with_entries(self, entries: Sequence[TuningEntry]) -> tuple[Lookups, tuple[Failure, ...]]:
        """What is looked up with these entries; of a program that fails with them, what is without."""
        try:
            found = self._ask(entries, self.only)
            failed = found.errors
        except LookupsError as wrong:
            if not entries:
                raise
            found, failed = Lookups((), ()), {"": str(wrong)}
        if not failed or not entries:
            return found, tuple(Failure(name, error, False) for name, error in failed.items())
        alone = self._ask((), None if "" in failed else failed)
        failures = [
            Failure(name, alone.errors.get(name, error), name not in alone.errors) for name, error in failed.items()
        ]
        return _together(found, alone), tuple(failures)

    def _ask(self, entries: Sequence[TuningEntry], only: Iterable[str] | None) -> Lookups:
        build, family = self.reader.build, self.reader.family
        more = {"topology": self.topology, "entries": entries, "only": only, "tell": self.tell}
        return lookups(self.plan, self.target, build, family, **more)  # type: ignore[arg-type]


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
