"""Checks of the remotes in force: whether they answer, what may be done there, and what that comes to.

Not promised: that a remote does for a program what it did for the check, an hour or a host away. Each is looked at
once, with one small blob that is put and removed again where it is written to; a program does the same once a day.

A remote that does not answer costs its own deadline, up to three times where it dies in between. All are looked at at
once. What is said here is made of places, which have no credentials, and of reasons, which have none either.
"""

from __future__ import annotations

import ipaddress
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rewarm.doctor import keys
from rewarm.doctor.check import Check, counted, some
from rewarm.doctor.facts import Facts
from rewarm.errors import RewarmError
from rewarm.in_force import Settings
from rewarm.ledger.runs import BadRunError, RunInfo, runs
from rewarm.remote.address import Address
from rewarm.remote.blobs import TOO_LARGE, RemoteError
from rewarm.remote.opening import MissingClientError, client_of, open_blobs
from rewarm.remote.probe import Findings, probe
from rewarm.remote.redis_blobs import RedisBlobs
from rewarm.remote.workers import LetGoError, NoThreadError, TimeUpError, Workers
from rewarm.sharing import RemoteTier
from rewarm.sharing.opening import open_tier, parsed
from rewarm.telling import say_nothing
from rewarm.trust import Keyring

_CLOCKS_APART = 60.0
_AT_ONCE = 8

# How many runs are looked at for what happened once.
_RUNS = 20


class _Seen(NamedTuple):
    """One remote that was looked at.

    Attributes:
      address: of it.
      tier: it, opened.
      found: what was found.
      eviction: of a Redis server: its bound in bytes and what it does there; `None` where it does not tell.
    """

    address: Address
    tier: RemoteTier
    found: Findings
    eviction: tuple[int, str] | None


def checks(facts: Facts) -> Iterator[Check]:
    """All of this file, and of the keys; nothing where no remote is named."""
    in_force = facts.in_force
    if not isinstance(in_force, Settings) or not in_force.remote:
        return
    addresses, wrong = _addresses(in_force)
    yield from wrong
    opened: list[tuple[Address, RemoteTier]] = []
    for address in addresses:
        tier = _opened(address, in_force, facts)
        if isinstance(tier, Check):
            yield tier
        else:
            opened.append((address, tier))
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rewarm-doctor") as pool:
        seen = list(pool.map(_look, opened))
    for one in seen:
        yield from _of_one(one)
    yield from of_earlier_runs(facts, {one.tier.place for one in seen})
    yield from _one_compile(seen)
    yield from _namespaces(in_force, addresses)
    yield from keys.checks(facts, in_force, addresses)


# -- before anybody is asked ---------------------------------------------------------------------------------------


def _addresses(in_force: Settings) -> tuple[list[Address], list[Check]]:
    addresses, wrong = [], []
    for text in in_force.remote:
        try:
            addresses += parsed((text,))
        except RewarmError as error:
            found = f"{error}; programs go on without any remote"
            wrong.append(Check("remote", "problem", found, "correct REWARM_REMOTE"))
    return addresses, wrong


def _opened(address: Address, in_force: Settings, facts: Facts) -> RemoteTier | Check:
    """The remote, without keys, which no look at it needs; or what stands in the way."""
    library = client_of(address)
    if library and facts.seen and library not in facts.seen["versions"]:
        found = f"{address} needs {library}, which is not installed in {facts.seen['executable']}"
        advice = f'{shlex.quote(facts.seen["executable"])} -m pip install "rewarm[remote]"'
        return Check("remote", "problem", f"{found}; programs go on without any remote", advice)
    try:
        return open_tier(address, in_force, Keyring(), say_nothing)
    except MissingClientError as error:
        return Check("remote", "note", f"{address} is not looked at: {error}", "install it for this command, too")
    except RewarmError as error:
        return Check("remote", "problem", f"{error}; programs go on without any remote", "correct REWARM_REMOTE")


def _look(one: tuple[Address, RemoteTier]) -> _Seen:
    address, tier = one
    # Where a program puts its own: rights may be given for one namespace alone.
    space = tier.namespaces.write if tier.writes else next(iter(tier.namespaces.read), tier.namespaces.write)
    found = probe(tier.blobs, write=tier.writes, deadline=address.deadline, under=f"{space}/probes")
    ask = found.may_write and address.scheme in ("redis", "rediss")
    seen = _Seen(address, tier, found, _eviction(address) if ask else None)
    tier.blobs.close()
    return seen


def _eviction(address: Address) -> tuple[int, str] | None:
    blobs = open_blobs(address)
    if not isinstance(blobs, RedisBlobs):
        return None
    workers = Workers("doctor", threads=1, stuck_limit=1)
    try:
        return workers.call(blobs.eviction, time.monotonic() + address.deadline)
    except (RemoteError, TimeUpError, LetGoError, NoThreadError):
        return None
    finally:
        blobs.close()
        workers.retire(for_good=True)


# -- what was found ------------------------------------------------------------------------------------------------


def _of_one(one: _Seen) -> Iterator[Check]:
    yield _answer(one)
    yield from _clock(one)
    yield from _in_the_open(one)
    yield from _room(one)


def _answer(one: _Seen) -> Check:
    found, place = one.found, one.tier.place
    if found.place_exists is False:
        advice = "make it, or correct the address; rewarm makes no bucket and no folder"
        return Check("remote", "problem", f"{place}: {found.reason}", advice)
    if not found.reachable:
        told = f"{place} does not answer: {found.reason or 'no reason'} ({found.seconds:.1f} s)"
        advice = "look at the address, the network, and the server; programs pass it over"
        return Check("remote", "problem", told, advice)
    if found.throttled:
        return _throttled(one)
    if not found.may_read:
        advice = "look at the credentials and rights; s3:// takes them from the environment or its query"
        advice = advice if one.address.scheme == "s3" else "look at the credentials and rights"
        return Check("remote", "problem", f"{place} cannot be read: {found.reason or 'it does not say why'}", advice)
    return _well(one) if found.may_write or not one.tier.writes else _unwritten(one)


def _unwritten(one: _Seen) -> Check:
    found, place = one.found, one.tier.place
    if found.may_write is None:  # it was not refused
        told = f"{place} is read, and whether it can be written to is not known: {found.reason or 'no reason'}"
        return Check("remote", "note", told, "look at the network and the server, and try again later")
    told = f"{place} is read, and cannot be written to: {found.reason or 'it does not say why'}"
    return Check("remote", "note", told, "say ?write=no if that is meant, else look at the rights")


def _throttled(one: _Seen) -> Check:
    """Rights are not the trouble, but how much is asked of it, by whomever."""
    done = " it is read;" if one.found.may_read else ""
    done = " it is read and written;" if one.found.may_read and one.found.may_write else done
    told = f"{one.tier.place} asks for fewer requests:{done} {one.found.reason}"
    advice = "try again later; if it goes on, raise its limit: programs pass it over for as long as it asks"
    return Check("remote", "note" if one.found.may_read else "problem", told, advice)


def _well(one: _Seen) -> Check:
    found, writes = one.found, one.tier.writes
    done = "read and written" if writes else "only read, as its address says (write=no)"
    told = f"{one.tier.place} is {done}; looked at in {found.seconds * 1000:.0f} ms"
    lacks = []
    if found.may_list is False:
        lacks.append("list (rewarm ls and gc --remote, and sync pull, do not work there)")
    if writes and found.may_delete is False:
        lacks.append("remove (rewarm gc --remote does not work there)")
    if not lacks:
        return Check("remote", "ok", told)
    told = f"{told}; it does not {' or '.join(lacks)}"
    if one.address.scheme in ("http", "https"):  # which has no lists
        return Check("remote", "ok", told)
    return Check("remote", "note", told, "give the right to, if these are wanted")


def _clock(one: _Seen) -> Iterator[Check]:
    offset = one.found.clock_offset
    if offset is None or abs(offset) < _CLOCKS_APART:
        return
    told = f"the clock of {one.tier.place} is {abs(offset):.0f} s {'ahead of' if offset > 0 else 'behind'} this host's"
    advice = "set both by NTP: gc --remote goes by its clock, and object stores refuse whoever is 15 minutes off"
    yield Check("clocks", "note", told, advice)


def _in_the_open(one: _Seen) -> Iterator[Check]:
    """Whether somebody between here and there sees all of it."""
    url = one.address.options.get("endpoint", one.address.url)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "redis") or _is_here(parts.hostname or ""):
        return
    told = f"what goes to {one.tier.place} and comes from it is not encrypted, credentials neither ({parts.scheme}://)"
    better = "https://" if parts.scheme == "http" else "rediss://"
    yield Check("encryption", "note", told, f"spell it {better}, unless nobody else is on that network")


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _room(one: _Seen) -> Iterator[Check]:
    """Whether a Redis server makes room for itself."""
    if one.eviction is None:
        return
    bound, policy = one.eviction
    advice = "on a server that holds nothing else: maxmemory, and maxmemory-policy allkeys-lru"
    expires = policy.startswith("volatile") and "ttl" in one.address.options
    if not bound:
        yield Check("redis", "note", f"{one.tier.place} has no maxmemory: it grows as long as there is memory", advice)
    elif not (policy.startswith("allkeys") or expires):
        told = f"{one.tier.place} has maxmemory-policy {policy}: once it is full it takes no more"
        yield Check("redis", "note", told, advice)


# -- what they come to, together -----------------------------------------------------------------------------------


def _one_compile(seen: Sequence[_Seen]) -> Iterator[Check]:
    """Whether the hosts of a fleet can agree on who compiles: see `sharing/fleet.py`."""
    written = [one for one in seen if one.tier.writes and one.found.may_write]
    if not written:
        return
    keeper = next((one for one in written if _keeps_leases(one)), None)
    if keeper is not None:
        told = f"{keeper.tier.place} keeps leases (conditional put): of many hosts one compiles a program"
        yield Check("one compile", "ok", told)
        return
    places = some([one.tier.place for one in written])
    told = f"{places} cannot keep leases ({_why_no_leases(written)}): each host compiles what no other has stored yet"
    advice = "nothing to do for one host; for a fleet name an object store, a folder or Redis beside it"
    yield Check("one compile", "note", told, advice)


def _keeps_leases(one: _Seen) -> bool:
    """Whether programs ask it for leases, and are right to."""
    if one.tier.keeps_only_new is None:
        return bool(one.found.only_new and one.found.may_delete)
    return one.tier.keeps_only_new and bool(one.found.only_new)


def _why_no_leases(written: Sequence[_Seen]) -> str:
    overwrites = any(one.found.only_new is False for one in written)
    return "a conditional put overwrites" if overwrites else "what was put cannot be removed, or there was no answer"


def _namespaces(in_force: Settings, addresses: Sequence[Address]) -> Iterator[Check]:
    if in_force.namespace in in_force.read_namespaces or not any(address.write for address in addresses):
        return
    read = some(list(in_force.read_namespaces)) or "none"
    told = f"entries go to the namespace {in_force.namespace} of a remote, and are read from: {read}"
    advice = "name it in REWARM_READ_NAMESPACES, too, unless what is made here is for others alone"
    yield Check("namespaces", "note", told, advice)


def of_traffic(stats: Mapping[str, Any], when: str) -> Iterator[Check]:
    """What a run says of its remotes: entries that were refused, and requests without an answer."""
    rows = stats.get("remotes")
    for row in rows if isinstance(rows, list | tuple) else ():
        place = row.get("place") if isinstance(row, Mapping) else None
        if place is None:
            continue
        for reason, count in _counts(row.get("refused")):
            advice = "rewarm keys ls says who is trusted; rewarm ls --remote --headers shows what is there"
            refused = f"{counted(count, f'entry of {place} was', f'entries of {place} were')} refused {when}: {reason}"
            yield Check("refused", "note", refused, advice)
        for reason, count in _counts(row.get("failures")):
            if reason == TOO_LARGE:
                yield _too_large(place, count, when)
                continue
            advice = "see the checks of the remote above"
            yield Check("remote", "note", f"{counted(count, 'request')} to {place} failed {when}: {reason}", advice)


def of_earlier_runs(facts: Facts, places: Set[str]) -> Iterator[Check]:
    """What was too large for one of these remotes, before the last run, of which `of_traffic` says the same.

    No later run speaks of it: an entry is sent once, by who made it.
    """
    told = set(_too_large_in(facts.run))
    try:
        earlier = runs(facts.directory)[:_RUNS]
    except BadRunError:
        return
    for run in earlier:
        for place, count in _too_large_in(run).items():
            if place in places and place not in told:
                told.add(place)
                when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started))
                yield _too_large(place, count, f"in the run of {when}")


def _too_large_in(run: RunInfo | None) -> dict[str, int]:
    """How many entries were too large for a remote, by its place."""
    rows = run.stats.get("remotes") if run is not None and run.stats is not None else None
    found = {}
    for row in rows if isinstance(rows, list | tuple) else ():
        count = dict(_counts(row.get("failures"))).get(TOO_LARGE) if isinstance(row, Mapping) else None
        if count:
            found[str(row.get("place"))] = count
    return found


def _too_large(place: str, count: int, when: str) -> Check:
    told = f"{counted(count, 'entry was', 'entries were')} too large for {place} {when}, and did not arrive there"
    advice = "raise its limit (nginx: client_max_body_size), then rewarm sync push; until then each host compiles them"
    return Check("too large", "note", told, advice)


def _counts(told: Any) -> list[tuple[str, int]]:
    if not isinstance(told, Mapping):
        return []
    return sorted((str(reason), count) for reason, count in told.items() if isinstance(count, int))
