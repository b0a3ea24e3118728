"""Whether the remotes of a run are there, and take what it is going to send, before there is any work.

Not promised: that they still are when the work is done.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from rewarm.errors import BadEntryError
from rewarm.in_force import Settings
from rewarm.prewarm.failures import Failure
from rewarm.prewarm.shared_failures import name_of, sealed
from rewarm.remote.blobs import RemoteError
from rewarm.sharing.opening import open_tiers
from rewarm.sharing.tier import RemoteTier
from rewarm.telling import say_nothing
from rewarm.trust import RefusedEntryError, UnusableKeyError

# A key that no program has.
_NOBODY = "0" * 64


def problems(in_force: Settings, *, push: bool) -> Iterator[str]:
    """A line for each remote that does not answer, or, for `push`, in which nothing would arrive.

    Raises:
      SettingError: an address or a key cannot be used.
      MissingClientError: a library is not installed.
    """
    tiers = open_tiers(in_force, say_nothing)
    for tier in tiers:
        if (problem := _problem(tier, sends=push and tier.writes)) is not None:
            yield f"{tier.place}: {problem}"
    if push and not any(tier.writes for tier in tiers):
        yield "each of the remotes that are named says write=no"


def _problem(tier: RemoteTier, *, sends: bool) -> str | None:
    try:
        if sends:
            now = time.time()
            tier.as_put(name_of(_NOBODY), sealed(_NOBODY, "nothing", Failure("", now, now), ""))
        tier.asked_for(name_of(_NOBODY))
    except RefusedEntryError:  # it answers
        return None
    except (RemoteError, BadEntryError) as error:
        return error.reason
    except UnusableKeyError as error:
        return f"it cannot be signed: {error}"
    return None
