"""Notes beside what was pre-warmed and pushed, so that a machine which misses it can say in what it is another one.

Not promised: that a note arrives, or is asked for: `rewarm explain` alone asks, of a program that its directory has
never seen. Nothing else depends on one; the worst that one can do is a wrong line in an explanation.

A note is an entry of the kind "ahead", in the form and under the rules of all others in a remote: signed by who pushed,
for one namespace, and refused like one. Its key is made of the program's content:

    key        SHA-256 of "rewarm ahead" NUL and the digest of the component "program"
    section    "ahead": {"program": that digest, "key":, "about": the target, "components": {name: [digest, value]}}

Races: of two that were compiled ahead of one program (for two targets) the later is told of.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from rewarm.cache import AHEAD
from rewarm.envelope import Header, open_entry, seal
from rewarm.errors import BadEntryError, SettingError, StoreError
from rewarm.explain import Catalogue
from rewarm.explain.components import changes_in
from rewarm.identity.components import component
from rewarm.in_force import Settings
from rewarm.ledger.explanation import Change, Explanation, Finding
from rewarm.remote.blobs import RemoteError
from rewarm.sharing.opening import open_tiers
from rewarm.sharing.sync import AHEAD_NOTE
from rewarm.sharing.tier import RemoteTier
from rewarm.store import LocalStore
from rewarm.telling import one_line, say_nothing

_SECTION = "ahead"
_LARGEST = 256 << 10

# Of one explanation: each is a question to the remotes.
_MOST = 100


class _Note(NamedTuple):
    about: str
    key: str
    components: Mapping[str, tuple[str, Any]]


def name_of(program: str) -> str:
    """The key of the note on a program of this digest."""
    return hashlib.sha256(b"rewarm ahead\0" + program.encode("ascii")).hexdigest()


def send(tier: RemoteTier, store: LocalStore, keys: Iterable[str]) -> Iterator[str]:
    """Leave a note beside each of these entries that was compiled ahead; yields why one did not arrive."""
    catalogue = Catalogue(store.root)
    for key in keys:
        try:
            data = store.get(key, use=False)
            header = None if data is None else open_entry(data, key).header
            if header is not None and AHEAD in header.producer:
                tier.put(*_sealed(header, catalogue))
        except (RemoteError, BadEntryError) as error:
            yield error.reason
        except StoreError as error:
            yield str(error)


def _sealed(header: Header, catalogue: Catalogue) -> tuple[str, bytes]:
    rows = {str(row["name"]): row for row in header.components}
    program = str(rows["program"]["digest"])
    told = {
        "program": program,
        "key": header.key,
        "about": header.producer[AHEAD],
        "components": {
            name: [row["digest"], row["value"] if "value" in row else catalogue.value(str(row["digest"]))]
            for name, row in rows.items()
        },
    }
    note = Header(
        kind=AHEAD_NOTE,
        key=name_of(program),
        components=(component("noted", program).as_dict(),),
        program=header.program,
        compile_seconds=0.0,
        created=time.time(),
        producer={},
        target=header.target,
    )
    return note.key, seal(note, {_SECTION: json.dumps(told).encode("ascii")})


class AheadNotes:
    """The notes that the remotes of some settings have. Nothing here raises: whatever is wrong, there is none.

    Args:
      in_force: the settings; nothing is asked where they name no remote.
    """

    def __init__(self, in_force: Settings) -> None:
        self._catalogue = Catalogue(in_force.directory)
        self._left = _MOST
        try:
            self._tiers = open_tiers(in_force, say_nothing, writes=False) if in_force.remote else []
        except (SettingError, RemoteError, ImportError):
            self._tiers = []

    def added(self, event: Mapping[str, Any], said: Explanation | None) -> Explanation | None:
        """The explanation of a miss, with what was compiled ahead of the same program where nothing was known."""
        if not self._tiers or said is None or [one.kind for one in said.findings] != ["new"] or self._left <= 0:
            return said
        known = self._catalogue.alike(str(event.get("program")), {}, "")
        own = next((one for one in known if one.key == event.get("key")), None)
        program = "" if own is None else own.components.get("program", "")
        if own is None or not program:
            return said
        self._left -= 1
        note = next((found for tier in self._tiers if (found := _asked(tier, program)) is not None), None)
        if note is None or note.key == own.key:
            return said
        differs = tuple(name for name, digest in own.components.items() if note.components.get(name, [""])[0] != digest)
        changes: list[Change] = []
        for name in differs:
            _, value = note.components.get(name, ("", None))
            changes += changes_in(name, value, self._catalogue.value(own.components[name]), ({}, {}))
        text = (
            f"it was compiled ahead for {note.about}, which is not this machine or not this environment (see the "
            "changes); rewarm target capture, run here, writes what this machine is, for rewarm prewarm --target"
        )
        summary = f"the same program was compiled ahead, key {note.key[:12]}, with another {', '.join(differs)}"
        return Explanation(one_line(summary), None, differs, tuple(changes), (Finding("described", one_line(text)),))


def _asked(tier: RemoteTier, program: str) -> _Note | None:
    name = name_of(program)
    try:
        data = tier.get(name, limit=_LARGEST)
        return None if data is None else _opened(data, name, program)
    except (RemoteError, BadEntryError):
        return None


def _opened(data: bytes, name: str, program: str) -> _Note | None:
    entry = open_entry(data, name)
    if entry.header.kind != AHEAD_NOTE or any(section.raw_length > _LARGEST for section in entry.header.sections):
        return None
    try:
        told = json.loads(entry.section(_SECTION))
        rows = {str(row): (str(digest), value) for row, (digest, value) in told["components"].items()}
        return _Note(str(told["about"]), str(told["key"]), rows) if told["program"] == program else None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
