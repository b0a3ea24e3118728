"""Where the entries of a run go besides the local store: into remotes, and into a bundle.

Not promised: that others can read what arrived there; that is a matter of their keys and namespaces.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rewarm.errors import RewarmError
from rewarm.in_force import Settings
from rewarm.prewarm.failures import Failure, Failures
from rewarm.prewarm.report import Report
from rewarm.prewarm.work import Outcome
from rewarm.store import LocalStore
from rewarm.telling import say_nothing


@dataclass(frozen=True)
class Pushed:
    """What became of the entries in one remote.

    Attributes:
      place: the remote, without secrets.
      arrived: how many were sent; those that were there already do not count.
      problems: why others did not arrive.
      failures: how many programs the others are told of that do not compile.
      passed_over: how many were not sent, since they are not known to be made here.
    """

    place: str
    arrived: int
    problems: tuple[str, ...] = ()
    failures: int = 0
    passed_over: int = 0


@dataclass(frozen=True)
class Afterwards:
    """What was done with the entries.

    Attributes:
      bundle: the file that was written, or `None`.
      bundled: how many entries are in it.
      not_bundled: how many are not, since they are not known to be made here.
      lost: how many are not, since they were gone when it was written.
      wrong: why nothing more was done; "" where nothing was wrong.
    """

    pushed: tuple[Pushed, ...] = ()
    bundle: Path | None = None
    bundled: int = 0
    not_bundled: int = 0
    lost: int = 0
    wrong: str = ""

    @property
    def is_good(self) -> bool:
        """Whether everything arrived."""
        return not self.wrong and not self.lost and not any(one.problems for one in self.pushed)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        pushed = [
            {
                "remote": one.place,
                "sent": one.arrived,
                "failures": one.failures,
                "problems": list(one.problems),
                "passed_over": one.passed_over,
            }
            for one in self.pushed
        ]
        told = {"entries": self.bundled, "passed_over": self.not_bundled, "lost": self.lost}
        bundle = None if self.bundle is None else {"file": str(self.bundle), **told}
        return {"pushed": pushed, "bundle": bundle, "wrong": self.wrong or None}

    def lines(self) -> Iterator[str]:
        """For people."""
        from rewarm.sharing.sync import NOT_MADE_LINE

        for one in self.pushed:
            more = f", and {one.failures} failures, which others do not repeat" if one.failures else ""
            yield f"{one.place}: {one.arrived} entries sent{more}"
            yield from (f"{one.place}: did not arrive: {problem}" for problem in one.problems)
            if one.passed_over:
                yield f"{one.place}: {one.passed_over} {NOT_MADE_LINE}"
        if self.bundle is not None:
            yield f"{self.bundle}: {self.bundled} entries"
        if self.not_bundled:
            advice = "rewarm bundle save --update --all takes them, with your signature"
            yield f"{self.bundle}: {self.not_bundled} passed over, since not known to be made here; {advice}"
        if self.lost:
            yield f"{self.bundle}: {self.lost} are missing, since they are gone from the directory"
        if self.wrong:
            yield self.wrong


def after(report: Report, in_force: Settings, *, push: bool, bundle: Path | None) -> Afterwards:
    """Send the entries of a run to every remote that is written to, and write them into a bundle.

    Whatever goes wrong is told in what is returned, so that the report of the work is not lost; of a bundle that
    cannot be written nothing is left.
    """
    store = LocalStore(in_force.directory, shared=in_force.shared)
    done = Afterwards()
    try:
        if push and not report.check:
            for one in _pushed(report, in_force, store):
                done = replace(done, pushed=(*done.pushed, one))
    except Exception as error:  # noqa: BLE001 - told
        done = replace(done, wrong=f"cannot push: {_words(error)}")
    if bundle is None or not report.keys:
        return done
    try:
        return _bundled(done, bundle, report, in_force, store)
    except FileExistsError:  # since a moment ago
        wrong = f"{bundle} is there already; name another, or remove it"
    except Exception as error:  # noqa: BLE001 - told
        wrong = f"cannot write {bundle}: {_words(error)}"
    return replace(done, wrong="; ".join(one for one in (done.wrong, wrong) if one))


def _bundled(done: Afterwards, bundle: Path, report: Report, in_force: Settings, store: LocalStore) -> Afterwards:
    from rewarm.sharing import bundle as bundles
    from rewarm.sharing.key_settings import keyring_of
    from rewarm.sharing.made import made_by

    made = made_by(in_force, store)
    saved = bundles.save(bundle, store, report.keys, keyring_of(in_force), made=made, only_new=True)
    bundled, passed_over = len(saved.added), len(saved.passed_over)
    lost = len(report.keys) - bundled - passed_over
    return replace(done, bundle=bundle, bundled=bundled, not_bundled=passed_over, lost=lost)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) if isinstance(error, RewarmError) else f"{type(error).__name__}: {error}"


def _pushed(report: Report, in_force: Settings, store: LocalStore) -> Iterator[Pushed]:
    from rewarm.prewarm import ahead_notes
    from rewarm.remote.blobs import RemoteError
    from rewarm.sharing import sync
    from rewarm.sharing.made import made_by
    from rewarm.sharing.opening import open_tiers

    told: list[str] = []
    failed = {place: (sent, problems) for place, sent, problems in _failures_sent(report, in_force)}
    for tier in open_tiers(in_force, told.append):
        if not tier.writes:
            continue
        try:
            sent = list(sync.push(store, tier, report.keys, made=made_by(in_force, store)))
        except RemoteError as error:
            yield Pushed(tier.place, 0, (error.reason,))
            continue
        new = [one.key for one in sent if one.problem is None]
        unnoted = list(ahead_notes.send(tier, store, new))
        failures, more = failed.get(tier.place, (0, ()))
        passed_over = sum(one.problem == sync.NOT_MADE for one in sent)
        problems = dict.fromkeys(
            (*(one.problem for one in sent if one.problem not in (None, sync.NOT_MADE)), *unnoted, *more)
        )
        yield Pushed(tier.place, len(new), tuple(str(one) for one in problems), failures, passed_over)


def _failures_sent(report: Report, in_force: Settings) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """The failures that this directory remembers of this run, and those that it has mended, are told to the others."""
    from rewarm.prewarm.shared_failures import send

    here, now = Failures(in_force.directory), time.time()
    found: dict[str, tuple[str, str, str, Failure]] = {}
    for one in report.results:
        if one.key is None:
            continue
        known = here.known(one.key) if one.outcome is Outcome.FAILED and not one.remembered else None
        if known is None and one.mended:
            known = Failure("it compiles", now, now)
        if known is not None:
            found[one.key] = (one.key, one.program, one.job.where, known)
    return send(list(found.values()), in_force, say_nothing)
