"""Whether a function needs to be traced again: what its trace depended on, recorded once and checked at each start.

Not promised: that guards which hold mean an equal program. They cover the user's code and values as far as they can be
followed, the code of libraries by file and in memory, and what the recording saw of the world outside; what escapes
them (state inside C code or a registry of Python's own, the second callee of a call in a library) only a trace finds.
Whoever relies on guards proves them by a trace from time to time.

    with Recorder() as recorder:            # on the thread that traces and lowers
        ...
    guards = guards_of(function, recorder.seen, rules)      # or NotGuardableError, which says what to do
    ...
    changes = check(function, guards, rules)                # in a later process; [] when all hold

A wrong "holds" gives a wrong result, a wrong "does not hold" costs a trace: whatever is not known is refused.
"""

from __future__ import annotations

from rewarm.guards.checking import Change, check
from rewarm.guards.making import NotGuardableError, guards_of, root_digest
from rewarm.guards.recording import Recorder, RecorderError
from rewarm.guards.records import Guards
from rewarm.guards.rules import Adapter, Rules
from rewarm.guards.seen import Seen

__all__ = [
    "Adapter",
    "Change",
    "Guards",
    "NotGuardableError",
    "Recorder",
    "RecorderError",
    "Rules",
    "Seen",
    "check",
    "guards_of",
    "root_digest",
]
