"""What a remote really does for this directory's processes, found out once a day and kept beside the cache.

Not promised: that it is so now. It decides nothing but whether leases are worth asking for; what is found out on the
way (a bucket that is missing, writing that is refused) the guard of the remote has said by then.

    <root>/remotes/<16 hex>.json    {"version": 1, "place": text, "time": seconds, "only_new": bool, "may_delete": bool}
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from pathlib import Path
from typing import NamedTuple

from rewarm import small_files
from rewarm.remote.probe import probe
from rewarm.sharing.tier import RemoteTier

FOLDER = "remotes"
VERSION = 1

# Seconds. A bucket's rights and a server's version change on a scale of days.
_GOOD_FOR = 86_400.0
_BYTES = 4096
_KEPT = 100


class Known(NamedTuple):
    """What was found out.

    Attributes:
      only_new: a put with `only_new` leaves what is there.
      may_delete: what was put can be removed.
    """

    only_new: bool
    may_delete: bool


def read(root: Path, tier: RemoteTier) -> Known | None:
    """What was found out within the last day; `None`: nothing, or nothing that can be read."""
    try:
        told = json.loads(small_files.contents(_path(root, tier), _BYTES))
        age = time.time() - float(told["time"])
        if told["version"] == VERSION and told["place"] == tier.identity and 0 <= age < _GOOD_FOR:
            return Known(told["only_new"] is True, told["may_delete"] is True)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        pass
    return None


def find_out(root: Path, tier: RemoteTier) -> Known | None:
    """Look at the remote, in six requests at most, and keep what was found; `None`: it did not say.

    Race: processes that start at once all look. Of what they find one is kept.
    """
    found = probe(tier.blobs, listing=False, under=f"{tier.namespaces.write}/probes")
    if found.only_new is None:
        return None
    known = Known(found.only_new, found.may_delete is True)
    told = {"version": VERSION, "place": tier.identity, "time": time.time(), **known._asdict()}
    path = _path(root, tier)
    with contextlib.suppress(OSError):
        small_files.make_folder(path.parent)
        small_files.replace(path, json.dumps(told).encode("utf-8", "replace"))
        _bound(path.parent)
    return known


def _bound(folder: Path) -> None:
    found = sorted(folder.glob("*.json"), key=lambda path: path.lstat().st_mtime)
    for path in found[:-_KEPT]:
        path.unlink()


def _path(root: Path, tier: RemoteTier) -> Path:
    about = f"{tier.identity} {tier.namespaces.write}"
    return root / FOLDER / f"{hashlib.sha256(about.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}.json"
