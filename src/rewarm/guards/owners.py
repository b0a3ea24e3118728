"""Whose code a module is, among all that is installed: of which distribution, proven by its RECORD.

Not promised: a defence against somebody who patches a library in memory (`libraries.py` looks for that) or who writes
a RECORD of his own.

Code of Python's own modules counts by name here, also of those that are not pure: what they do outside the program is
seen by the recording. Their C functions count only where `harmless.py` has them.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import BuiltinFunctionType, ModuleType

import rewarm
from rewarm.fingerprint import Trusted
from rewarm.fingerprint.allowed import PURE_MODULES
from rewarm.fingerprint.trust import PYTHON_OWNER, Owner, Wheel, decoded, of_python, open_installed
from rewarm.guards.harmless import answers_from_outside, may_be_named, may_name_of_c

_SITES = ("site-packages", "dist-packages")
# What careless wheels put beside their package, where they overwrite each other's. Code there is the user's.
_BESIDE = frozenset({"benchmarks", "doc", "docs", "examples", "scripts", "test", "tests"})


# A function of rewarm's is one of JAX's as far as a trace is concerned, wherever it is installed.
_OURS = Owner(f"rewarm {rewarm.__version__}", "rewarm")


class Installed:
    """The distributions of this process's site folders; what was looked at stays."""

    def __init__(self) -> None:
        self._wheels: dict[str, Wheel | None] = {}
        self._tops: dict[str, dict[str, list[str]]] = {}
        self._files: dict[str, tuple[str, str] | None] = {}
        self._known: dict[tuple[str, str], list[str]] = {}

    def wheel(self, info: str) -> Wheel | None:
        """The distribution of a `.dist-info` folder, if it is proven."""
        if info not in self._wheels:
            try:
                name = Path(info).name.partition("-")[0].lower()
                self._wheels[info] = open_installed(Path(info), name, beside=_BESIDE)
            except (OSError, ValueError, csv.Error):
                self._wheels[info] = None
        return self._wheels[info]

    def expect(self, infos: Iterable[str]) -> None:
        """Look into these first: what was recorded says which distributions there are, so none is searched for."""
        for info in infos:
            wheel = self.wheel(info)
            site = os.path.dirname(info)  # noqa: PTH120 - text
            for top in {path.partition("/")[0] for path in (wheel.rows if wheel is not None else ())}:
                self._known.setdefault((site, top), []).append(info)

    def find(self, file: str) -> tuple[str, str] | None:
        """The `.dist-info` folder of a file's distribution and the file's path in it, proven by content; or `None`."""
        if file not in self._files:
            self._files[file] = self._find(file)
        return self._files[file]

    def _find(self, file: str) -> tuple[str, str] | None:
        site, name = split(file)
        if not site:
            return None
        top = name.partition("/")[0]
        for info in self._known.get((site, top), ()):
            if self._is_of(info, name):
                return info, name
        for info in self._of_site(site).get(top, ()):
            if self._is_of(info, name):
                return info, name
        return None

    def _is_of(self, info: str, name: str) -> bool:
        wheel = self.wheel(info)
        row = wheel.rows.get(name) if wheel is not None else None
        if row is None:
            return False
        if not name.endswith(".py"):  # too large to read; its size is known
            return True
        try:
            with open(f"{os.path.dirname(info)}/{name}", "rb") as file:  # noqa: PTH120, PTH123 - many at each start
                return hashlib.file_digest(file, "sha256").digest() == decoded(row[0])
        except OSError:
            return False

    def _of_site(self, site: str) -> dict[str, list[str]]:
        """Top folder or file to the distributions that have something in it."""
        if site not in self._tops:
            tops: dict[str, list[str]] = {}
            for record in Path(site).glob("*.dist-info/RECORD"):
                for top in _tops(record):
                    tops.setdefault(top, []).append(str(record.parent))
            self._tops[site] = tops
        return self._tops[site]


def _tops(record: Path) -> set[str]:
    try:
        lines = record.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return set()
    return {line.partition(",")[0].partition("/")[0].strip('"') for line in lines}


@functools.lru_cache(maxsize=1 << 14)
def split(file: str) -> tuple[str, str]:
    """A file's site folder and its path in it; empty for a file that is in none."""
    real = os.path.realpath(file)
    for site in _SITES:
        mark = f"/{site}/"
        if mark in real:
            folder, _, name = real.rpartition(mark)
            return f"{folder}/{site}", name
    return "", ""


@functools.cache
def installed() -> Installed:
    """The one of this process."""
    return Installed()


class Owners(Trusted):
    """All distributions count by name; so does Python.

    Args:
      strictly: refuse the name of whatever reads what lies outside its arguments, also where a recording would see it.
    """

    def __init__(self, *, strictly: bool = False) -> None:
        super().__init__(())
        self._strictly = strictly
        self._of: dict[str, tuple[ModuleType | None, Owner | None]] = {}

    def owner(self, module: str) -> Owner | None:
        present = sys.modules.get(module)
        known = self._of.get(module)
        if known is not None and known[0] is present:
            return known[1]
        found = self._owner_of(module, present)
        self._of[module] = (present, found)
        return found

    def _owner_of(self, module: str, present: ModuleType | None) -> Owner | None:
        if present is None:
            return None
        if module.partition(".")[0] in sys.stdlib_module_names or module in PURE_MODULES:
            return PYTHON_OWNER if module != "__main__" and of_python(present) else None
        if module.partition(".")[0] == _OURS.distribution:
            return _OURS
        file = getattr(present, "__file__", None)
        if not isinstance(file, str):
            parent = module.rpartition(".")[0]
            return self.owner(parent) if parent and not getattr(present, "__path__", None) else None
        found = installed().find(file)
        wheel = installed().wheel(found[0]) if found is not None else None
        return wheel.owner if wheel is not None else None

    def is_listed(self, module: str) -> bool:
        return self.owner(module) is not None

    def objection(self, owner: Owner, module: str, name: str) -> str | None:
        usual = super().objection(owner, module, name)
        if self._strictly and usual is not None:
            return usual
        if usual is not None and not may_be_named(owner.distribution or "python", module, name):
            return usual
        if not owner.distribution and module not in PURE_MODULES and not name:
            return "a module used as a value: which of its attributes count cannot be told"
        if not owner.distribution and answers_from_outside(module, name):
            return f"{module}.{name} answers by what lies outside the program"
        if not owner.distribution and module not in PURE_MODULES and _is_of_c(module, name):
            allowed = may_name_of_c(module, name, strictly=self._strictly)
            return None if allowed else f"{module}.{name} is a C function that may read anything"
        return None


def _is_of_c(module: str, name: str) -> bool:
    held = getattr(sys.modules.get(module), name, None) if name and "." not in name else None
    return isinstance(held, BuiltinFunctionType)
