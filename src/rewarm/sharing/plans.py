"""Plans: which entries the runs of a program used, in their order, so that the next start can fetch them ahead.

Not promised: that a plan is right. It is a hint, read by whoever starts the same program: what it names wrongly costs
idle bandwidth, what it does not name is fetched when it is asked for.

    <root>/plans/<32 hex>.json               here
    <namespace>/plans/<32 hex>               in a remote; not signed, since it can only name what is checked anyway

    plan := {"version": 1, "program": text, "keys": [64 hex, ...]}

Plans here are bounded: the oldest of more than 1,000 go.

A plan is known by what was started: the script's name (or the module's, under `-m`), and its arguments; and once more
by the script alone, for a start with other arguments. `plan=` gives it a name of the user's own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rewarm import small_files
from rewarm.remote.blobs import Blobs, RemoteError
from rewarm.store.contract import is_key

FOLDER = "plans"
VERSION = 1

# A program of more entries fetches the rest when it asks for them.
KEYS = 5_000
_BYTES = 1 << 20
_PLANS = 1_000


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


def read(root: Path, plan_id: str) -> tuple[str, ...]:
    """The keys of a plan here; none where there is no plan that can be read."""
    with contextlib.suppress(OSError):
        return _keys(small_files.contents(root / FOLDER / f"{plan_id}.json", _BYTES))
    return ()


def fetch(blobs: Blobs, namespace: str, plan_id: str) -> tuple[str, ...]:
    """The keys of a plan in a remote; none where there is no plan that can be read, or no answer."""
    try:
        data = blobs.get(f"{namespace}/{FOLDER}/{plan_id}", limit=_BYTES)
    except RemoteError:
        return ()
    return _keys(data) if data is not None else ()


def write(root: Path, plan_id: str, program: Sequence[str], keys: Iterable[str]) -> bytes | None:
    """Keep a plan here; returns its bytes, or `None` where it cannot be kept, or the one that is there names them all.

    A run that ended early, or took its programs in another order, leaves the plan as it is.
    """
    keys = tuple(keys)
    path = root / FOLDER / f"{plan_id}.json"
    if set(keys) <= set(read(root, plan_id)):
        return None
    data = _bytes(program, keys)
    with contextlib.suppress(OSError):
        small_files.make_folder(path.parent)
        small_files.replace(path, data)
        _bound(path.parent)
        return data
    return None


def _bound(folder: Path) -> None:
    """Remove the oldest plans: a program that is started with other arguments each time leaves one at each start."""
    with os.scandir(folder) as items:
        found = [item for item in items if item.name.endswith(".json")]
    if len(found) > _PLANS:
        found.sort(key=lambda item: item.stat(follow_symlinks=False).st_mtime)
        for item in found[: len(found) - _PLANS * 9 // 10]:
            Path(item).unlink()


def _bytes(program: Sequence[str], keys: Iterable[str]) -> bytes:
    # The name alone: arguments may hold secrets, and a plan goes to others.
    plan = {"version": VERSION, "program": program[0], "keys": list(dict.fromkeys(keys))[:KEYS]}
    return json.dumps(plan, separators=(",", ":")).encode("ascii")


def _keys(data: bytes) -> tuple[str, ...]:
    try:
        plan = json.loads(data)
        keys = plan["keys"] if plan["version"] == VERSION else []
        return tuple(key for key in keys[:KEYS] if isinstance(key, str) and is_key(key))
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()
