"""What came of it all: sums for people, and JSON.

Not promised: that text keeps its form; JSON does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewarm.prewarm.work import Outcome, Result
from rewarm.telling import one_line


@dataclass(frozen=True)
class Report:
    """The results of a run.

    Attributes:
      results: of each program.
      seconds: that the run took.
      directory: of the cache.
      check: whether it was only looked.
      targets: what is to be said of each target, whatever came of its programs.
      remotes: what is to be said of the remotes that were to be read.
    """

    results: Sequence[Result]
    seconds: float
    directory: str
    check: bool = False
    targets: Mapping[str, Sequence[str]] = field(default_factory=dict)
    remotes: Sequence[str] = ()

    @property
    def is_complete(self) -> bool:
        """Whether the entry of each program is there. A plan without programs is none to be complete of."""
        return bool(self.results) and all(one.outcome.is_good for one in self.results)

    @property
    def keys(self) -> tuple[str, ...]:
        """Of the entries that are there, each once."""
        return tuple(dict.fromkeys(one.key for one in self.results if one.outcome.is_good and one.key is not None))

    def of(self, outcome: Outcome) -> tuple[Result, ...]:
        """The results with this outcome."""
        return tuple(one for one in self.results if one.outcome is outcome)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        counted = Counter(one.outcome for one in self.results)
        return {
            "complete": self.is_complete,
            "check": self.check,
            "directory": self.directory,
            "seconds": round(self.seconds, 3),
            "counts": {outcome.value: counted[outcome] for outcome in Outcome},
            "fusions": {"tuned": self.fusions[0] - self.fusions[1], "untuned": self.fusions[1]},
            "targets": {name: list(lines) for name, lines in self.targets.items()},
            "remotes": list(self.remotes),
            "programs": [one.plain() for one in self.results],
        }

    @property
    def fusions(self) -> tuple[int, int]:
        """How many fusions of GPU programs were looked up, and how many of them had no tuning result, where known."""
        told = [(one.fusions, one.untuned or 0) for one in self.results if one.fusions is not None]
        return sum(all_ for all_, _ in told), sum(untuned for _, untuned in told)

    def lines(self) -> Iterator[str]:
        """The sums."""
        counted = Counter(one.outcome for one in self.results)
        sums = ", ".join(f"{counted[outcome]} {outcome.value}" for outcome in Outcome if counted[outcome])
        yield f"{self.directory}: {len(self.results)} programs: {sums or 'none'}, in {self.seconds:.1f} s"
        all_, untuned = self.fusions
        if all_:
            yield f"{all_} fusions looked up for tuning results: {all_ - untuned} tuned, {untuned} untuned"
        for lines in self.targets.values():
            yield from map(one_line, lines)
        for line in self.remotes:
            yield f"{one_line(line)}; what it may have counts as missing"
        yield from self._differing()

    def _differing(self) -> Iterator[str]:
        """What is said of each target that is not the machine on which its programs ran."""
        found: dict[str, Counter[str]] = {}
        for one in self.results:
            found.setdefault(one.job.where, Counter()).update(one.differs)
        for where, items in found.items():
            if items:
                yield f"{where} is not the machine on which its programs ran, so their keys are others:"
                yield from (f"  {item}" for item in items)


def words_of(result: Result) -> str:
    """One program, in a line or, with a compiler's message, several."""
    name = one_line(result.program or result.job.plan)
    line = f" ({one_line(result.line)})" if result.line and not result.outcome.is_good else ""
    parts = [f"{result.outcome.value:<10} {name}{line}, {result.job.where}"]
    if result.outcome is Outcome.STORED:
        parts.append(f"{result.seconds:.1f} s")
    if result.fusions is not None:
        parts.append(f"{result.fusions - (result.untuned or 0)} of {result.fusions} fusions tuned")
    parts += result.notes
    why = "\n".join(one_line(said) for said in result.why.split("\n"))
    return ", ".join(parts) + (f": {why}" if why else "")
