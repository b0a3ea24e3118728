"""From a recording to guards, or to a refusal that says what stood in the way.

Not promised: guards for everything that can be traced. What cannot be followed is refused by name.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from rewarm.errors import NotFingerprintableError, RewarmError
from rewarm.fingerprint.digest import PYTHON
from rewarm.fingerprint.walk import where
from rewarm.guards.judging import files_read, imports_failed, objections
from rewarm.guards.libraries import held_by
from rewarm.guards.owners import installed
from rewarm.guards.places import kind_of_file, kind_of_module
from rewarm.guards.recording import environment_value
from rewarm.guards.records import Guards, digest_of
from rewarm.guards.roots import Root, code_digest, ran_in, walk_root
from rewarm.guards.rules import Adapter, Rules
from rewarm.guards.seen import Ran, Seen

_PROTOCOL = "give its class a method __rewarm_digest__ that returns plain values, or pass it as an argument"
_OUTSIDE = "do it outside the function and pass the result as an argument"
# Bytes of one file that count by content.
MAX_FILE = 64 << 20
_NOT_ON_DISK = ("/dev/", "/proc/", "/sys/")
# The time zone.
_OF_C = ("TZ",)
_MADE_BY_PYTHON = "__create_fn__.<locals>."


class NotGuardableError(RewarmError, TypeError):
    """A traced function depends on something that the next process cannot check.

    Attributes:
      path: who reads it, or how it was reached.
      found: what it is.
      reason: why it cannot be guarded.
      advice: what to do.
    """

    def __init__(self, path: str, found: str, reason: str, advice: str) -> None:
        super().__init__(path, found, reason, advice)
        self.path = path
        self.found = found
        self.reason = reason
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.found} ({self.path}): {self.reason}; {self.advice}"


def root_digest(root: object, rules: Rules) -> str:
    """What a function leads to, to be compared before and after it is traced.

    Raises:
      NotGuardableError: something on the way cannot be identified.
    """
    return _walked(root, rules, (), strictly=False).digest


def guards_of(root: object, seen: Seen, rules: Rules) -> Guards:
    """The guards of what was recorded.

    Args:
      root: the function that was traced.
      seen: the recording of its tracing and lowering.
      rules: what the caller knows better.

    Raises:
      NotGuardableError: it depends on something that cannot be checked.
    """
    followed = list(_followed_codes(seen))
    ran = sorted({code_digest(one.code) for one in followed})
    walked = _walked(root, rules, ran, strictly=True)
    _refuse_side_channels(seen)
    _refuse_unvisited(followed, walked, seen)
    held = held_by(seen)
    return Guards(
        {
            "python": PYTHON,
            "optimised": sys.flags.optimize,
            "seed": seed() if walked.unordered else None,
            "root": walked.digest,
            "parts": [list(part) for part in walked.parts],
            "ran": ran,
            "packages": {info: [digest_of(identity), files] for info, (identity, files) in held.files.items()},
            "anchors": held.anchors,
            "origins": held.origins,
            "values": {
                module: {name: [digest_of(text), without] for name, (text, without) in names.items()}
                for module, names in held.values.items()
            },
            "classes": {
                module: {name: digest_of(text) for name, text in names.items()}
                for module, names in held.classes.items()
            },
            "environment": {
                name: None if value is None else digest_of(value)
                for name, value in sorted({**_read_by_c(), **seen.environment}.items())
            },
            "files": _contents(files_read(seen)),
            "adapters": adapted(_used(rules.adapters, seen), rules),
            "missing": imports_failed(seen),
        }
    )


def _read_by_c() -> dict[str, str | None]:
    """Variables of the environment that C reads, which nobody sees."""
    return {name: environment_value(name) for name in _OF_C}


def _walked(root: object, rules: Rules, ran: Iterable[str], *, strictly: bool) -> Root:
    try:
        return walk_root(root, rules, ran_in(ran), strictly=strictly)
    except NotFingerprintableError as error:
        advice = _PROTOCOL if error.found.startswith("an object of type") else _OUTSIDE
        if "a module used as a value" in error.reason:
            advice = "name what is used of it (module.name)"
        raise NotGuardableError(error.path, error.found, error.reason, advice) from error


def _refuse_side_channels(seen: Seen) -> None:
    found = sorted(set(objections(seen)))
    if found:
        raise NotGuardableError(*found[0], _OUTSIDE)


def _followed_codes(seen: Seen) -> Iterator[Ran]:
    """What ran of the user's, and of what no distribution answers for."""
    for one in seen.codes.values():
        file = one.code.co_filename
        kind = kind_of_file(file)
        if kind in ("user", "made") or (kind in ("jax", "library") and installed().find(file) is None):
            yield one


def _refuse_unvisited(ran: Iterable[Ran], walked: Root, seen: Seen) -> None:
    """Refuses code that ran and that the walk did not come by.

    A function that stands in another one was come by with it only where the other ran meanwhile, and so may have made
    it: one that was made before has closed over what nobody saw.

    Raises:
      NotGuardableError: for the first such code.
    """
    visited: dict[int, CodeType] = {}
    made: set[int] = set()
    for code in walked.codes.values():
        is_maker = seen.has_run(code) or id(code) in walked.kept
        _add_nested(code, visited, made, seen, is_maker=is_maker)
    made.update(map(id, walked.codes.values()))
    names = {code.co_qualname for code in visited.values()}
    lost = [one for one in ran if id(one.code) not in made and not _is_made(one, walked, names)]
    if lost:
        first = min(lost, key=lambda one: (one.code.co_filename, one.code.co_firstlineno))
        if first.code.co_name == "<module>":
            reason = "its module was imported while the function was traced, and will not be there at the next start"
            raise NotGuardableError(
                where(first.code), "the body of a module", reason, "import it before the first call"
            )
        raise NotGuardableError(
            where(first.code),
            f"{first.code.co_qualname} (function)",
            "it ran, and nothing that the traced function names leads to it (a computed attribute, a registry or hook "
            "of a library, a function put into a library)",
            "name it in depends_on=, so that it counts with all that it reads",
        )


def _add_nested(code: CodeType, found: dict[int, CodeType], made: set[int], seen: Seen, *, is_maker: bool) -> None:
    """Code and the code in it, and which of that was made while the outer ran."""
    found[id(code)] = code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if is_maker or not _is_apart(constant):
                made.add(id(constant))
            _add_nested(constant, found, made, seen, is_maker=is_maker or seen.has_run(constant))


def _is_apart(code: CodeType) -> bool:
    """Whether a function of this code may hold what its code does not say: a closure or defaults."""
    return bool(code.co_freevars or code.co_argcount or code.co_kwonlyargcount)


def _is_made(one: Ran, walked: Root, names: set[str]) -> bool:
    """Whether this is code without a file that a library or Python made for a class that counts."""
    if kind_of_file(one.code.co_filename) != "made":
        return False
    home = one.scope.get("__name__")
    # Text that a library or Python executes; the user's own `exec` refuses by itself.
    if one.code.co_qualname in ("<module>", "__create_fn__"):
        return True
    is_method = one.code.co_qualname.startswith(_MADE_BY_PYTHON) or one.code.co_filename.startswith("<generated_")
    is_tuple = isinstance(home, str) and home.startswith("namedtuple_")
    if not is_method and not is_tuple:
        module = sys.modules.get(home) if isinstance(home, str) else None
        return module is not None and vars(module) is one.scope and kind_of_module(str(home)) != "user"
    first: Any = one.first
    if first is None:
        return False
    return any(_counts(cls, walked, names) for cls in first.__mro__[:1])


def _counts(cls: type, walked: Root, names: set[str]) -> bool:
    if id(cls) in walked.classes or cls.__qualname__ in names:
        return True
    return cls.__module__ != "__main__" and kind_of_module(cls.__module__) != "user"


def seed() -> str:
    """What of PYTHONHASHSEED can be seen."""
    return f"{hash('rewarm') & 0xFFFF_FFFF:08x}"


def content(path: str) -> str | None:
    """The digest of a plain file, `None` if it is none or cannot be read."""
    try:
        return digest_of(Path(path).read_bytes()) if Path(path).is_file() else None
    except OSError:
        return None


def _contents(paths: Iterable[str]) -> dict[str, str | None]:
    """The digests of files that were read.

    Raises:
      NotGuardableError: one is too large to be read at each start, or is no file on a disk.
    """
    for path in paths:
        why = ""
        if path.startswith(_NOT_ON_DISK) or (Path(path).exists() and not Path(path).is_file()):
            why = "what it holds is another in each process"
        elif Path(path).exists() and Path(path).stat().st_size > MAX_FILE:
            why = f"it has more than {MAX_FILE >> 20} MB, which would be read at each start"
        if why:
            raise NotGuardableError("opened while it was traced", path, why, _OUTSIDE)
    return {path: content(path) for path in paths}


def _used(adapters: tuple[Adapter, ...], seen: Seen) -> tuple[Adapter, ...]:
    """Those of libraries of which code ran."""
    homes = {str(one.scope.get("__name__")) for one in seen.codes.values()}
    return tuple(
        one for one in adapters if any(home == one.prefix or home.startswith(f"{one.prefix}.") for home in homes)
    )


def adapted(adapters: Iterable[Adapter], rules: Rules) -> dict[str, str]:
    """The state of libraries, by the adapters' prefixes.

    Raises:
      NotGuardableError: something in it cannot be identified.
    """
    found: dict[str, str] = {}
    plain = rules._replace(depends_on=(), adapters=())
    for one in adapters:
        before = found.get(one.prefix, "")
        found[one.prefix] = digest_of(
            before + _walked(_Named(one.state(), one.prefix), plain, (), strictly=False).digest
        )
    return dict(sorted(found.items()))


class _Named:
    """State with a name that a message can show."""

    def __init__(self, state: object, prefix: str) -> None:
        self.state = state
        self.__name__ = f"the state of {prefix}"


def is_missing(module: str) -> bool:
    """Whether a module still is not there."""
    if module in sys.modules:
        return False
    try:
        return importlib.util.find_spec(module) is None
    except (ImportError, ValueError, AttributeError):
        return True
