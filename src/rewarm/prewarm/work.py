"""What there is to do, and what came of it.

Not promised: that two jobs have different programs; a key that is there already is found there.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Job:
    """A plan, for one target in one topology. One worker process serves one job.

    Attributes:
      plan: `module:function` or `path/file.py:function`.
      target: a name of `rewarm.targets`, or the path of a description.
      platform: "cpu", "cuda" or "tpu".
      topology: as the target writes it.
      environment: variables that the worker has, over those of this process.
      programs_of_worker: how many programs one process may compile; 0 for no bound.
    """

    plan: str
    target: str
    platform: str
    topology: str
    environment: Mapping[str, str]
    programs_of_worker: int = 0

    @property
    def where(self) -> str:
        """A few words."""
        return f"{self.target} {self.topology}"


@dataclass(frozen=True)
class Wanted:
    """How all jobs are to be done.

    Attributes:
      check: only look.
      tuned: refuse programs with a fusion that has no tuning result.
      retry: also compile what is remembered as failing.
      only: names of programs; `None`: all.
      forget_after: how long a failure is remembered, in seconds.
    """

    check: bool = False
    tuned: bool = False
    retry: bool = False
    only: tuple[str, ...] | None = None
    forget_after: float = 86400.0


class Outcome(enum.StrEnum):
    """What came of one program."""

    STORED = "stored"
    PRESENT = "present"
    MISSING = "missing"
    """It was only looked for."""
    FAILED = "failed"
    """It could not be traced or does not compile."""
    UNTUNED = "untuned"
    """It lacks tuning results, and such are refused."""
    EVICTED = "evicted"
    """It was there, and was gone again when the run ended."""
    NOT_STORED = "not stored"
    """It compiles, and the settings or the directory keep it out."""
    NO_KEY = "no key"
    """It cannot be cached at all."""

    @property
    def is_good(self) -> bool:
        """Whether the entry is there."""
        return self in (Outcome.STORED, Outcome.PRESENT)


@dataclass(frozen=True)
class Result:
    """What came of one program of a job; of a job that could not be begun, `program` is "".

    Attributes:
      line: "file:line" of the plan, where that is known.
      why: the reason where the entry is not there.
      remembered: it failed before, and was not tried again.
      seconds: of lowering, compiling and storing.
      compile_seconds: that a hit of the entry spares.
      bytes: of the entry, where it was written.
      fusions, untuned: of a GPU: how many look-ups of tuning results there were, and how many found none; `None` where
        that is not known.
      tuning: "complete", "incomplete", ... (`autotune.states`); "" for other platforms.
      memory: the most that the worker had, in bytes.
      mended: it was remembered as failing, and compiles.
      notes: what else is to be said of how it was made.
      differs: in what the target is not the machine on which the program ran, where a run is known: the key is
        another's.
    """

    job: Job
    program: str
    outcome: Outcome
    line: str = ""
    key: str | None = None
    why: str = ""
    remembered: bool = False
    seconds: float = 0.0
    compile_seconds: float = 0.0
    bytes: int = 0
    fusions: int | None = None
    untuned: int | None = None
    tuning: str = ""
    memory: int = 0
    mended: bool = False
    notes: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "plan": self.job.plan,
            "target": self.job.target,
            "topology": self.job.topology,
            "program": self.program or None,
            "line": self.line or None,
            "outcome": self.outcome.value,
            "key": self.key,
            "why": self.why or None,
            "remembered": self.remembered,
            "seconds": round(self.seconds, 3),
            "compile_seconds": round(self.compile_seconds, 3),
            "bytes": self.bytes,
            "tuning": {"state": self.tuning, "fusions": self.fusions, "untuned": self.untuned} if self.tuning else None,
            "memory": self.memory,
            "notes": list(self.notes),
            "differs": list(self.differs),
        }


def of_answer(job: Job, answer: Mapping[str, Any]) -> Result:
    """The result that a worker tells."""
    told = {**answer, "outcome": Outcome(answer["outcome"])}
    told |= {name: tuple(answer.get(name, ())) for name in ("notes", "differs")}
    return Result(job, **told)
