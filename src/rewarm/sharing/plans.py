"""Plans: which entries the runs of a program used, in their order, so that the next start can fetch them ahead.

Not promised: that a plan is right. It is a hint, read by whoever starts the same program: what it names wrongly costs
idle bandwidth, what it does not name is fetched when it is asked for.

    <root>/plans/<32 hex>.json               here
    <namespace>/plans/<32 hex>               in a remote; not signed, since it can only name what is checked anyway

    plan := {"version": 1, "program": text, "keys": [64 hex, ...], "packs": [32 hex, ...], "packed": [int, ...]}

"packed" says for each key by its number which of the packs holds it, -1 for none (`packs.py`); a plan may lack both.
A plan in a remote names packs of that remote alone. So one that lies here also has

    "at": {place: {"packs": [32 hex, ...], "packed": [int, ...]}, ...}

for each remote that it went to: not all of them have the same packs.

Plans here are bounded: the oldest of more than 1,000 go. A plan that nothing changes is sent again after a week: a
bucket may have a rule by which what is old goes.

A plan is known by what was started: the script's name (or the module's, under `-m`), and its arguments; and once more
by the script alone, for a start with other arguments. `plan=` gives it a name of the user's own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rewarm import small_files
from rewarm.remote.blobs import Blobs, RemoteError
from rewarm.sharing import packs
from rewarm.store.contract import is_key

FOLDER = "plans"
VERSION = 1

# A program of more entries fetches the rest when it asks for them.
KEYS = 5_000
_BYTES = 1 << 20
_PLANS = 1_000

# How many remotes a plan here knows the packs of.
_PLACES = 8
_PLACE = re.compile("[0-9a-f]{16}")

# In seconds; well below the shortest age at which buckets are told to remove anything.
_SENT_AGAIN_AFTER = 7 * 86_400.0


class Plan(NamedTuple):
    """What a start is likely to want.

    Attributes:
      keys: of entries, in the order in which they were used.
      packed: in which pack an entry lies, by its key; not all of them do.
      at: the same for each remote (`place_of`) of which that is known.
    """

    keys: tuple[str, ...] = ()
    packed: Mapping[str, str] = MappingProxyType({})
    at: Mapping[str, Mapping[str, str]] = MappingProxyType({})


NOTHING = Plan()


def ids_of(program: Sequence[str]) -> tuple[str, ...]:
    """The ids under which the plan of a program is kept, the most exact first; none for a program without a name.

    `program` is its name, and its arguments.
    """
    if not program or not program[0]:
        return ()
    return tuple(dict.fromkeys((_id(program), _id(program[:1]))))


def program_now() -> tuple[str, ...]:
    """What was started: the name of the script or module, and the arguments."""
    module = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None)
    arguments = [str(argument) for argument in getattr(sys, "argv", [])]
    script = Path(arguments[0]).name if arguments else ""
    name = module.removesuffix(".__main__") if module else script
    return () if name in ("", "-c", "-") else (name, *arguments[1:])


def _id(words: Sequence[str]) -> str:
    framed = json.dumps(list(words), ensure_ascii=True)
    return hashlib.sha256(f"rewarm plan 1 {framed}".encode()).hexdigest()[:32]


def place_of(identity: str, namespace: str) -> str:
    """What stands for a namespace of a remote in a plan here."""
    return hashlib.sha256(f"{identity} {namespace}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


def read(root: Path, plan_id: str) -> Plan:
    """A plan here; `NOTHING` where there is none that can be read."""
    with contextlib.suppress(OSError):
        data = small_files.contents(_path(root, plan_id), _BYTES)
        plan = _plan(data)
        return plan._replace(at=_at(json.loads(data))) if plan.keys else plan
    return NOTHING


def fetch(blobs: Blobs, namespace: str, plan_id: str) -> Plan:
    """A plan in a remote; `NOTHING` where there is none that can be read, or no answer."""
    try:
        data = blobs.get(f"{namespace}/{FOLDER}/{plan_id}", limit=_BYTES)
    except RemoteError:
        return NOTHING
    return _plan(data) if data is not None else NOTHING


def write(root: Path, plan_id: str, program: Sequence[str], plan: Plan) -> dict[str, bytes]:
    """Keep a plan here; returns the bytes that the remotes of `plan.at` are to have, but for those that have them.

    A run that ended early, or took its programs in another order, leaves the plan as it is, but for new packs. Where
    the plan cannot be kept, no remote is to have it.
    """
    path, before = _path(root, plan_id), read(root, plan_id)
    changed = set(plan.at)
    if set(plan.keys) <= set(before.keys):
        at = {place: {**before.at.get(place, {}), **packed} for place, packed in plan.at.items()}
        changed = {place for place, packed in at.items() if packed != before.at.get(place, {})}
        if not changed and plan.packed.items() <= before.packed.items():
            resent = plan.at if _is_due(path) else ()
            return {place: _bytes(program, Plan(before.keys, before.at.get(place, {}))) for place in resent}
        plan = Plan(before.keys, {**before.packed, **plan.packed}, at)
    plan = plan._replace(at={**plan.at, **{place: one for place, one in before.at.items() if place not in plan.at}})
    with contextlib.suppress(OSError):
        small_files.make_folder(path.parent)
        small_files.replace(path, _bytes(program, plan, all_places=True))
        # A program that is started with other arguments each time leaves one at each start.
        small_files.keep_newest(path.parent, ".json", _PLANS)
        return {place: _bytes(program, Plan(plan.keys, plan.at[place])) for place in changed}
    return {}


def _path(root: Path, plan_id: str) -> Path:
    return root / FOLDER / f"{plan_id}.json"


def _is_due(path: Path) -> bool:
    """Whether a plan was last sent long ago; from now on it counts as sent."""
    with contextlib.suppress(OSError):
        if abs(time.time() - path.stat().st_mtime) > _SENT_AGAIN_AFTER:
            os.utime(path)
            return True
    return False


def _bytes(program: Sequence[str], plan: Plan, *, all_places: bool = False) -> bytes:
    keys = list(dict.fromkeys(plan.keys))[:KEYS]
    # The name alone: arguments may hold secrets, and a plan goes to others.
    told: dict[str, Any] = {"version": VERSION, "program": program[0], "keys": keys, **_numbered(keys, plan.packed)}
    if all_places and plan.at:
        told["at"] = {place: _numbered(keys, packed) for place, packed in list(plan.at.items())[:_PLACES]}
    return json.dumps(told, separators=(",", ":")).encode("ascii")


def _numbered(keys: Sequence[str], packed: Mapping[str, str]) -> dict[str, Any]:
    names = list(dict.fromkeys(packed[key] for key in keys if key in packed))[: packs.MOST]
    numbers = {name: number for number, name in enumerate(names)}
    return {"packs": names, "packed": [numbers.get(packed.get(key, ""), -1) for key in keys]}


def _plan(data: bytes) -> Plan:
    try:
        told = json.loads(data)
        keys = told["keys"] if told["version"] == VERSION else []
        return Plan(tuple(key for key in keys[:KEYS] if isinstance(key, str) and is_key(key)), _packed(told, keys))
    except (ValueError, TypeError, KeyError, RecursionError):
        return NOTHING


def _at(told: dict[str, Any]) -> dict[str, dict[str, str]]:
    try:
        said = list(told.get("at", {}).items())[:_PLACES]
        return {place: _packed(one, told["keys"]) for place, one in said if _PLACE.fullmatch(place)}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _packed(told: dict[str, Any], keys: list[Any]) -> dict[str, str]:
    names, numbers = told.get("packs", [])[: packs.MOST], told.get("packed", [])[:KEYS]
    return {
        key: names[number]
        for key, number in zip(keys, numbers, strict=False)
        if type(number) is int and 0 <= number < len(names) and packs.is_name(names[number])
    }
