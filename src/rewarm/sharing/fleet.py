"""One host of a fleet compiles a program: which remote keeps the leases, and which programs are worth one.

Not promised: that only one compiles. Leases are asked for where a remote is written to that keeps to `only_new`, and
for programs whose compilation is likely to cost much more than the asking. Without a lease everybody compiles, as
without a remote.

Leases are asked of the first such remote alone, which is the same for all hosts with the same settings. A host that
only reads, or has no key to sign with where others ask for one, asks for none: what it compiled, nobody would get. One
that is not going to keep what it compiles is not to ask (`policy.is_likely_kept`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rewarm import policy
from rewarm.coordination import FleetLeases, Lead, seat_of
from rewarm.sharing import known_places
from rewarm.sharing.forks import renew_in_child
from rewarm.sharing.known_places import Known
from rewarm.sharing.tier import RemoteTier
from rewarm.telling import Teller

# Who waits for another host's compilation does so for this long, in seconds. Leases are not signed: whoever may write
# to the remote can keep others waiting until then, once for each program and start.
_PATIENCE = 900.0

# A wait that is longer than this, in seconds, says what it is for, once in a process.
_SILENT_FOR = 2.0

# How many requests finding out about a remote takes.
_LOOKS = 6


class Fleet:
    """The leases of one session. Safe for any number of threads. No method raises.

    Args:
      tiers: the remotes, the nearest first.
      root: the cache directory, or `None` where nothing can be written to it.
    """

    def __init__(self, tiers: Sequence[RemoteTier], root: Path | None) -> None:
        self._root = root
        self._written = [tier for tier in tiers if tier.writes]
        self._known: dict[str, Known | None] = {}
        self._asked: set[str] = set()
        self._leases: dict[str, FleetLeases] = {}
        self._teller = Teller()
        self._renew()
        renew_in_child(self, Fleet._renew)
        self._unsure = [tier for tier in self._written if tier.keeps_only_new is None]
        if root is not None:
            self._known = {tier.identity: known_places.read(root, tier) for tier in self._unsure}

    def _renew(self) -> None:
        self._looking = threading.Lock()

    def find_out(self) -> None:
        """Look at the remotes of which nothing is known, or not any more, once; takes some round trips."""
        with self._looking:
            for tier in self._unsure:
                if (
                    self._root is not None
                    and tier.identity not in self._asked
                    and self._known.get(tier.identity) is None
                ):
                    self._asked.add(tier.identity)
                    self._known[tier.identity] = known_places.find_out(self._root, tier)

    def lead(self, key: str, size: int, found: Callable[[RemoteTier], bool]) -> contextlib.AbstractContextManager[Lead]:
        """Lead `key` among the hosts, or wait for the one that does; see `FleetLeases.lead`.

        Args:
          key: of a program that no remote has.
          size: of the program, in bytes.
          found: whether a remote has the entry by now; who finds it has it in the local store.
        """
        tier = self._keeper()
        if tier is None and any(policy.is_worth_a_lease(size, _LOOKS * one.round_trip) for one in self._unsure):
            self.find_out()
            tier = self._keeper()
        if tier is None:
            return contextlib.nullcontext(Lead("alone", 0.0, "no remote keeps leases"))
        if not policy.is_worth_a_lease(size, tier.round_trip):
            return contextlib.nullcontext(Lead("alone", 0.0, "it is not worth a lease"))
        leases = self._leases_of(tier)
        if leases is None:
            return contextlib.nullcontext(Lead("alone", 0.0, "what is compiled here cannot be signed"))
        return leases.lead(key, self._look(tier, found))

    def keep(self, key: str) -> tuple[RemoteTier, Callable[[], None]] | None:
        """Inside the block of a leader: let the lease last until what is returned is called, which is to be done when
        the entry is in that remote. `None`: there is no lease."""
        for tier in self._written:
            leases = self._leases.get(tier.identity)
            if leases is not None and key in leases.leading:
                return tier, leases.keep(key)
        return None

    def close(self) -> None:
        """The process ends: wait until the leases that ended are withdrawn, for two seconds at most."""
        for leases in self._leases.values():
            leases.close()

    def _look(self, tier: RemoteTier, found: Callable[[RemoteTier], bool]) -> Callable[[], bool]:
        since = time.monotonic()

        def look() -> bool:
            if time.monotonic() - since > _SILENT_FOR:
                line = "waiting for a program that is compiled on another host, or in another directory of this one"
                line = f"{line} (its lease is in {tier.place})"
                self._teller.tell(f"{line}, for {_PATIENCE:.0f} s at most", kind="waits")
            return found(tier)

        return look

    def _keeper(self) -> RemoteTier | None:
        return next((tier for tier in self._written if self._keeps_leases(tier)), None)

    def _keeps_leases(self, tier: RemoteTier) -> bool:
        if tier.keeps_only_new is not None:
            return tier.keeps_only_new
        known = self._known.get(tier.identity)
        return known is not None and known.only_new and known.may_delete

    def _leases_of(self, tier: RemoteTier) -> FleetLeases | None:
        """The leases in a remote; `None`: nothing that is put there would be accepted by anybody."""
        leases = self._leases.get(tier.identity)
        if leases is None:
            signer = tier.publishes_as()
            if signer is None:
                return None
            made = FleetLeases(
                tier.blobs,
                tier.namespaces.write,
                enforces=True,
                patience=_PATIENCE,
                seat="" if self._root is None else seat_of(self._root),
                signer=signer,
                accepts=tier.would_accept,
            )
            leases = self._leases.setdefault(tier.identity, made)
        return leases
