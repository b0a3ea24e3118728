"""What of a recording speaks against keeping its result, and what of it becomes a guard: pure functions.

Not promised: that a C function does nothing beside what its name says; the lists are in `harmless.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

from rewarm.fingerprint.walk import where
from rewarm.guards import harmless
from rewarm.guards.places import kind_of_file
from rewarm.guards.seen import Called, Effect, Seen

_CODE = (".py", ".pyc", ".so", ".pyd")

# What numpy takes the time for.
_CLOCK = frozenset({"now", "today"})


class Objection(NamedTuple):
    """Something that was done while the function was traced, and that the next process may not see again.

    Attributes:
      path: who did it.
      found: what.
      reason: why that cannot be guarded.
    """

    path: str
    found: str
    reason: str


def objections(seen: Seen) -> Iterator[Objection]:
    """All of them, in no order that means anything."""
    for call in seen.calls.values():
        if not call.importing and (reason := _against_call(call)) is not None:
            yield Objection(where(call.asker or call.code), f"a call of {call.module}.{call.name}", reason)
    for effect in seen.effects.values():
        if not effect.importing and (reason := _against_effect(effect)) is not None:
            yield Objection(where(effect.code) if effect.code else "Python", f"{effect.event} {effect.what}", reason)
    for (what, name), code in seen.changes.items():
        if what not in seen.unchanged:
            reason = f"it changes {what} while it is traced, which a start without a trace would not"
            yield Objection(where(code), f"a call of {name}", reason)
    for ran in seen.user_code():
        if "datetime64" in ran.code.co_names and not _CLOCK.isdisjoint(filter(_is_text, ran.code.co_consts)):
            yield Objection(where(ran.code), "numpy.datetime64 of now", harmless.why_not("time", ""))
    if seen.whole_environment:
        yield Objection("the environment", "all variables at once", "others that come and go would count")


def _against_call(call: Called) -> str | None:  # noqa: PLR0911 - one line per rule
    if harmless.is_random(call.module):
        return "a random number is another in each process"
    kind = kind_of_file(call.asker.co_filename) if call.asker is not None else "python"
    if call.module == "atexit":
        is_users = call.asker is call.code and kind in ("user", "made")
        return "it changes what is done when the process ends while it is traced" if is_users else None
    if kind == "jax" or harmless.may_be_called(call.module, call.name):
        return None
    if (call.module, call.name, call.code.co_name) == ("builtins", "hash", "__hash__"):
        return None  # dictionaries and sets find the same things whatever the hash is
    is_direct = call.asker is call.code
    caller = str(call.scope.get("__name__"))
    if not is_direct and harmless.may_python_call(call.module, call.name, caller):
        return None
    if kind == "library" and harmless.may_library_call(call.module, call.name, call.home):
        return None
    if kind == "made" and harmless.may_python_call(call.module, call.name, "dataclasses"):
        return None
    return harmless.why_not(call.module, call.name)


def _is_text(value: object) -> bool:
    return type(value) is str


def _against_effect(effect: Effect) -> str | None:
    kind = kind_of_file(effect.code.co_filename) if effect.code is not None else "python"
    if kind == "jax" or harmless.is_known_effect(effect.event, effect.home):
        return None
    if effect.event == "import":
        failed = effect.what not in sys.modules
        return "a module that is not there now may be there later" if failed and kind == "user" else None
    if effect.event == "open":
        if effect.writes and "__pycache__" not in effect.what:
            return "a file is written whenever the function is traced, and would not be"
        return None
    if effect.event == "pickle.find_class":
        return "what pickled data names cannot be followed"
    return "it reaches outside the program"


def files_read(seen: Seen) -> list[str]:
    """Files whose content counts: not those of code, which counts as such."""
    found = set()
    for effect in seen.effects.values():
        if effect.event != "open" or effect.writes or effect.importing:
            continue
        is_code = effect.what.endswith(_CODE) and kind_of_file(effect.what) != "user"
        if not is_code and not harmless.is_known_effect(effect.event, effect.home) and not _is_of_jax(effect):
            found.add(effect.what)
    return sorted(found)


def _is_of_jax(effect: Effect) -> bool:
    """Whether JAX itself reads, such as its cache: not numpy, which reads what it is told to."""
    return effect.home.partition(".")[0] in ("jax", "jaxlib")


def imports_failed(seen: Seen) -> list[str]:
    """Modules that a library tried to import and did not find."""
    return sorted(
        {
            effect.what
            for effect in seen.effects.values()
            if effect.event == "import" and effect.what not in sys.modules and effect.code is not None
            if kind_of_file(effect.code.co_filename) == "library"
        }
    )
