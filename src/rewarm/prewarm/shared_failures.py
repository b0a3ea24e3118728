"""Failures of a fleet: what does not compile, said to the others through the remotes.

Not promised: that a failure arrives, or that it is asked for: a remote that does not answer knows none. They are
looked at by `rewarm prewarm` alone and never by a program that runs, so the worst that one can do is that an entry is
not made ahead until its time is over, or until `--retry`.

A failure is an entry of the kind "failure", in the form and under the rules of all others in a remote: signed by who
found it, for one namespace, and refused like one. Its key is made of the program's:

    key        SHA-256 of "rewarm failure" NUL and the 64 digits of the program's key
    section    "failure": {"key":, "program":, "error":, "time":, "expires": seconds since 1970}

It goes with `--push`. What is not the compiler's verdict (`failures.is_verdict`) is neither sent nor believed, and no
failure for longer than a week. One that was mended is sent again, as over.

Races: two that find one failure write the same; of one that failed and one that mended it the later wins, at worst
until the expiry.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence

from rewarm.envelope import Header, open_entry, seal
from rewarm.errors import BadEntryError, SettingError
from rewarm.identity.components import component
from rewarm.in_force import Settings
from rewarm.prewarm.failures import Failure, is_verdict
from rewarm.remote.blobs import RemoteError
from rewarm.sharing.opening import open_tiers
from rewarm.sharing.sync import FAILURE
from rewarm.sharing.tier import RemoteTier
from rewarm.telling import say_nothing

_SECTION = "failure"
# What a worker adds to the compiler's words: a line of the user's own code, which is no one else's business.
_LINE = re.compile(r" \[[^\[\]]*:\d+\]$")
_LARGEST = 64 << 10
_LONGEST = 7 * 86400.0
_CLOCKS_APART = 300.0


def name_of(key: str) -> str:
    """The key of the entry that tells the failure of a program's key."""
    return hashlib.sha256(b"rewarm failure\0" + key.encode("ascii")).hexdigest()


def sealed(key: str, program: str, failure: Failure, target: str) -> bytes:
    """The entry of a failure."""
    told = {"key": key, "program": program, **failure._asdict(), "error": _LINE.sub("", failure.error)}
    header = Header(
        kind=FAILURE,
        key=name_of(key),
        components=(component("failed", key).as_dict(),),
        program=program,
        compile_seconds=0.0,
        created=failure.time,
        producer={},
        target=target,
    )
    return seal(header, {_SECTION: json.dumps(told).encode("ascii")})


def opened(data: bytes, key: str) -> Failure | None:
    """The failure in an entry, while it counts; `None` of anything else.

    Raises:
      BadEntryError: it is no sound entry.
    """
    entry = open_entry(data, name_of(key))
    if entry.header.kind != FAILURE or any(section.raw_length > _LARGEST for section in entry.header.sections):
        raise BadEntryError("it is no failure")
    try:
        told = json.loads(entry.section(_SECTION))
        found = Failure(str(told["error"]), float(told["time"]), float(told["expires"]))
        is_of_it = told["key"] == key
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadEntryError("it is no failure") from None
    now = time.time()
    expires = min(found.expires, found.time + _LONGEST)
    counts = is_of_it and found.time <= now + _CLOCKS_APART and now < expires and is_verdict(found.error)
    return found._replace(expires=expires) if counts else None


class FleetFailures:
    """The failures that the remotes of some settings know. Nothing here raises: whatever is wrong, none is known.

    Args:
      in_force: the settings.
    """

    def __init__(self, in_force: Settings) -> None:
        self._in_force = in_force
        self._tiers: Sequence[RemoteTier] | None = None

    def known(self, key: str) -> Failure | None:
        """The failure of a key, while it counts."""
        for tier in self._opened():
            try:
                data = tier.get(name_of(key), limit=_LARGEST)
                found = None if data is None else opened(data, key)
            except (RemoteError, BadEntryError):
                continue
            if found is not None:
                return found
        return None

    def _opened(self) -> Sequence[RemoteTier]:
        if self._tiers is None:
            try:
                self._tiers = open_tiers(self._in_force, say_nothing, writes=False) if self._in_force.remote else ()
            except (SettingError, RemoteError):  # the program's own look has said so
                self._tiers = ()
            except ImportError:
                self._tiers = ()
        return self._tiers


def send(
    failures: Sequence[tuple[str, str, str, Failure]], in_force: Settings, tell: Callable[[str], None]
) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Tell these failures (key, program, target, failure) to every remote that is written to.

    Yields each remote, how many it has now, and why it has not the others.

    Raises:
      SettingError: an address or a key cannot be used.
    """
    if not failures:
        return
    for tier in open_tiers(in_force, tell):
        if not tier.writes:
            continue
        problems: dict[str, None] = {}
        sent = 0
        for key, program, target, failure in failures:
            try:
                tier.put(name_of(key), sealed(key, program, failure, target))
                sent += 1
            except (RemoteError, BadEntryError) as error:
                problems[error.reason] = None
        yield tier.place, sent, tuple(problems)
