"""Whether a function may be traced in a thread of its own while the program runs.

Not promised: that whatever it changes in passing is seen. Code is read for what it does to objects that all threads
share: variables of modules that it sets, and lists, dictionaries and sets of modules that it adds to or takes from, as
the stack of handlers in numpyro is. What is changed through an attribute of an object is not seen; for such functions
there is `rewarm.jit(proof="at the start")`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from rewarm.fingerprint.code import code_facts
from rewarm.guards import Seen
from rewarm.guards.places import kind_of_file
from rewarm.guards.seen import Ran

_CHANGES = frozenset(
    {"append", "appendleft", "extend", "extendleft", "insert", "pop", "popleft", "popitem", "remove", "discard"}
    | {"add", "clear", "update", "setdefault", "sort", "reverse", "rotate"}
)
_HOLDERS = (list, dict, set, deque, bytearray)


def what_it_changes(seen: Seen) -> str:
    """What a trace changes in passing that other threads would see, in words; "" where nothing was found."""
    shared = (ran for ran in seen.codes.values() if kind_of_file(ran.code.co_filename) in ("user", "made", "library"))
    return next((found for ran in shared for found in _changed_by(ran)), "")


def _changed_by(ran: Ran) -> Iterator[str]:
    facts = code_facts(ran.code)
    where = f"{ran.scope.get('__name__')}.{ran.code.co_qualname}"
    for store in facts.stores:
        if store.startswith("global "):
            yield f"{where} sets {store}"
    for name, chains in facts.globals.items():
        if isinstance(ran.scope.get(name), _HOLDERS):
            for chain in sorted(chains):
                if len(chain) == 1 and chain[0] in _CHANGES:
                    yield f"{where} calls {name}.{chain[0]}"
