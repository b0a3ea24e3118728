"""Where the entries of a run go besides the local store: into remotes, and into a bundle.

Not promised: that others can read what arrived there; that is a matter of their keys and namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewarm.in_force import Settings
from rewarm.prewarm.report import Report
from rewarm.store import LocalStore


@dataclass(frozen=True)
class Pushed:
    """What became of the entries in one remote.

    Attributes:
      place: the remote, without secrets.
      arrived: how many were sent; those that were there already do not count.
      problems: why others did not arrive.
    """

    place: str
    arrived: int
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Afterwards:
    """What was done with the entries.

    Attributes:
      bundle: the file that was written, or `None`.
      bundled: how many entries are in it.
    """

    pushed: tuple[Pushed, ...] = ()
    bundle: Path | None = None
    bundled: int = 0

    @property
    def is_good(self) -> bool:
        """Whether everything arrived."""
        return not any(one.problems for one in self.pushed)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        pushed = [{"remote": one.place, "sent": one.arrived, "problems": list(one.problems)} for one in self.pushed]
        bundle = None if self.bundle is None else {"file": str(self.bundle), "entries": self.bundled}
        return {"pushed": pushed, "bundle": bundle}

    def lines(self) -> Iterator[str]:
        """For people."""
        for one in self.pushed:
            yield f"{one.place}: {one.arrived} entries sent"
            yield from (f"{one.place}: did not arrive: {problem}" for problem in one.problems)
        if self.bundle is not None:
            yield f"{self.bundle}: {self.bundled} entries"


def after(report: Report, in_force: Settings, *, push: bool, bundle: Path | None) -> Afterwards:
    """Send the entries of a run to every remote that is written to, and write them into a bundle.

    Raises:
      SettingError: an address or a key cannot be used.
      OSError: the bundle cannot be written.
    """
    from rewarm.sharing import bundle as bundles
    from rewarm.sharing.opening import keyring_of

    store = LocalStore(in_force.directory, shared=in_force.shared)
    pushed = tuple(_pushed(report, in_force, store)) if push and not report.check else ()
    if bundle is None or not report.keys:
        return Afterwards(pushed)
    added = bundles.save(bundle, store, report.keys, keyring_of(in_force))
    return Afterwards(pushed, bundle, len(added))


def _pushed(report: Report, in_force: Settings, store: LocalStore) -> Iterator[Pushed]:
    from rewarm.remote.blobs import RemoteError
    from rewarm.sharing import sync
    from rewarm.sharing.opening import open_tiers

    told: list[str] = []
    for tier in open_tiers(in_force, told.append):
        if not tier.writes:
            continue
        try:
            sent = list(sync.push(store, tier, report.keys))
        except RemoteError as error:
            yield Pushed(tier.place, 0, (error.reason,))
            continue
        problems = dict.fromkeys(one.problem for one in sent if one.problem is not None)
        yield Pushed(tier.place, sum(one.problem is None for one in sent), tuple(problems))
