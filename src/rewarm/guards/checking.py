"""Whether guards hold in this process.

Not promised: that a trace would give the same program: what guards do not see, only a trace can find.

Everything here is bounded by what was recorded: no folder is searched and no module imported. What was looked at
stays for the process (files of packages, which count as they were when first looked at).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rewarm.errors import NotFingerprintableError
from rewarm.fingerprint.digest import PYTHON
from rewarm.guards.holdings import text_of
from rewarm.guards.libraries import at_name, functions_of_class, is_anchored
from rewarm.guards.making import NotGuardableError, adapted, content, is_missing, seed
from rewarm.guards.origins import MISSING, origin_of
from rewarm.guards.owners import installed
from rewarm.guards.recording import environment_value
from rewarm.guards.records import Guards, digest_of
from rewarm.guards.roots import ran_in, walk_root
from rewarm.guards.rules import Rules


class Change(NamedTuple):
    """One thing that is not as it was.

    Attributes:
      what: in words.
      was: then.
      now: now.
    """

    what: str
    was: str
    now: str


def check(root: object, guards: Guards, rules: Rules) -> list[Change]:
    """What has changed since the guards were made; nothing if they hold."""
    facts = guards.facts
    changes = list(_python(facts))
    if changes:  # the code of another Python is other code throughout
        return changes
    infos = dict(_infos(facts["packages"]))
    installed().expect(infos.values())
    return [
        *_packages(facts["packages"], infos),
        *_memory(facts),
        *_surroundings(facts),
        *_states(facts, rules),
        *_root(root, facts, rules),
    ]


def _python(facts: Mapping[str, Any]) -> Iterator[Change]:
    if facts["python"] != PYTHON:
        yield Change("Python", facts["python"], PYTHON)
    if facts["optimised"] != sys.flags.optimize:
        yield Change("Python's flag -O", str(facts["optimised"]), str(sys.flags.optimize))
    if facts["seed"] is not None and facts["seed"] != seed():
        yield Change("the order of sets (PYTHONHASHSEED)", facts["seed"], seed())


def _infos(packages: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Where each distribution is installed, if it is."""
    sites = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    for info in packages:
        for site in sites:
            folder = f"{os.path.realpath(site)}/{info}"
            if os.path.isdir(folder):  # noqa: PTH112 - text, for speed
                yield info, folder
                break


def _packages(packages: Mapping[str, Any], infos: Mapping[str, str]) -> Iterator[Change]:
    for info, (identity, files) in packages.items():
        name = info.removesuffix(".dist-info").replace("-", " ")
        folder = infos.get(info)
        if folder is None:
            yield Change(f"the package {name}", "installed", "not installed, or in another version")
            continue
        wheel = installed().wheel(folder)
        if wheel is None:
            yield Change(f"the package {name}", "as its wheel has it", "its files were changed")
        elif digest_of(wheel.owner.identity) != identity:
            yield Change(f"the package {name}", identity[:12], digest_of(wheel.owner.identity)[:12])
        else:
            site = os.path.dirname(folder)  # noqa: PTH120
            for file in files:
                if installed().find(f"{site}/{file}") is None:
                    yield Change(file, "as its wheel has it", "changed")


def _memory(facts: Mapping[str, Any]) -> Iterator[Change]:
    """Modules that are not imported yet have nothing to compare: their files count."""
    for module, name, _ in _held(facts["anchors"]):
        if not is_anchored(module, name):
            yield Change(f"{module}.{name}", "as its file has it", "replaced in memory")
    for module, name, origin in _held(facts["origins"]):
        value = _value(module, name)
        now = origin_of(value)
        if now != origin and not (value is MISSING and _is_made_later(module)):
            yield Change(f"{module}.{name}", origin, now or "something else")
    for module, name, digest in _held(facts["classes"]):
        if digest_of(functions_of_class(at_name(module, name))) != digest:
            yield Change(f"the methods of {module}.{name}", "as its file has them", "replaced in memory")
    for module, name, (digest, without) in _held(facts["values"]):
        value = _value(module, name)
        text = text_of(value, without)
        if digest_of(text) != digest and not (value is MISSING and _is_made_later(module)):
            yield Change(f"the value of {module}.{name}", digest[:12], text[:200])


def _is_made_later(module: str) -> bool:
    """Whether a module makes its attributes when they are asked for (PEP 562): one that is not there is as it was."""
    return "__getattr__" in getattr(sys.modules[module], "__dict__", ())


def _held(facts: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Module, name, and what is known of it, for modules that are imported."""
    for module, names in facts.items():
        if module in sys.modules:
            yield from ((module, name, names[name] if isinstance(names, dict) else "") for name in names)


def _value(module: str, name: str) -> Any:
    scope: dict[str, Any] = getattr(sys.modules[module], "__dict__", {})
    return at_name(module, name) if "." in name else scope.get(name, MISSING)


def _surroundings(facts: Mapping[str, Any]) -> Iterator[Change]:
    for name, digest in facts["environment"].items():
        value = environment_value(name)
        now = None if value is None else digest_of(value)
        if now != digest:
            yield Change(f"the environment variable {name}", _set(digest), _set(now))
    for path, digest in facts["files"].items():
        found = content(path)
        if found != digest:
            yield Change(f"the file {path}", _there(digest), _there(found))
    for module in facts["missing"]:
        if not is_missing(module):
            yield Change(f"the module {module}", "not there", "there")


def _set(digest: str | None) -> str:
    return "not set" if digest is None else f"set to something of digest {digest[:12]}"


def _there(digest: str | None) -> str:
    return "not there" if digest is None else f"of digest {digest[:12]}"


def _states(facts: Mapping[str, Any], rules: Rules) -> Iterator[Change]:
    known = {one.prefix for one in rules.adapters}
    for prefix, digest in facts["adapters"].items():
        used = [one for one in rules.adapters if one.prefix == prefix]
        what = f"the state of {prefix}"
        if prefix not in known or prefix not in sys.modules:
            yield Change(what, digest[:12], "nobody can say")
            continue
        try:
            now = adapted(used, rules)[prefix]
        except NotGuardableError as error:
            yield Change(what, digest[:12], str(error))
            continue
        if now != digest:
            yield Change(what, digest[:12], now[:12])


def _root(root: object, facts: Mapping[str, Any], rules: Rules) -> Iterator[Change]:
    try:
        found = walk_root(root, rules, ran_in(facts["ran"]))
    except NotFingerprintableError as error:
        yield Change(f"{error.found} ({error.path})", "could be identified", error.reason)
        return
    if found.digest == facts["root"]:
        return
    # First by what each part is, then (the order in which things are met may count) by all of each.
    for which in (1, 2):
        was, now = _numbered(facts["parts"], which), _numbered(found.parts, which)
        names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
        if names:
            yield from (Change(name, was.get(name, "not there"), now.get(name, "not there")) for name in names)
            return
    yield Change("the order of what the function leads to", facts["root"][:12], found.digest[:12])


def _numbered(parts: Any, which: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in parts:
        name, short, count = part[0], part[which], 1
        while name in found:
            count += 1
            name = f"{part[0]} ({count})"
        found[name] = short
    return found
