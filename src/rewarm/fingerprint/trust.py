"""Whose code a module is: of a distribution that can be proven unmodified, of Python itself, or somebody's.

Not promised: a defence against somebody who patches trusted code in memory. What counts is what was installed:
the hashes in the wheel's RECORD, compared with the files' sizes and, for the module in question, with its content.

RECORD: https://packaging.python.org/en/latest/specifications/recording-installed-packages/
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from rewarm.fingerprint.allowed import DISTRIBUTIONS, IMPURE, IMPURE_PURE, PURE_BUILTINS, PURE_FUNCTIONS, PURE_MODULES
from rewarm.fingerprint.digest import PYTHON

_STDLIB = Path(os.__file__).resolve().parent
_CODE = (".py", ".so", ".pyd", ".dll", ".dylib")


class Owner(NamedTuple):
    """Who answers for a module's code.

    Attributes:
      identity: name, version and content, as one line.
      distribution: the distribution's name, or "" for Python.
    """

    identity: str
    distribution: str


PYTHON_OWNER = Owner(f"python {PYTHON}", "")


class Trusted:
    """Distributions whose code counts by name, and what their RECORDs say.

    Looked at once per process and distribution: files that are changed later do not change the code in memory.

    Args:
      distributions: their names, each also the name of its import package.
    """

    def __init__(self, distributions: Iterable[str] = DISTRIBUTIONS) -> None:
        self._names = frozenset(distributions)
        self._wheels: dict[str, Wheel | None] = {}
        self._owners: dict[str, tuple[ModuleType | None, Owner | None]] = {}

    def owner(self, module: str) -> Owner | None:
        """The owner of the module of this name, or `None` for code that must be followed."""
        present = sys.modules.get(module)
        known = self._owners.get(module)
        if known is not None and known[0] is present:
            return known[1]
        owner = self._find(module, present)
        self._owners[module] = (present, owner)
        return owner

    def _find(self, module: str, present: ModuleType | None) -> Owner | None:
        if module in PURE_MODULES:
            return PYTHON_OWNER if present is not None and of_python(present) else None
        top = module.partition(".")[0]
        if top not in self._names:
            return None
        file = getattr(present, "__file__", None)
        if file is None:  # a module inside an extension module
            parent = module.rpartition(".")[0]
            return self.owner(parent) if parent else None
        wheel = self._wheel(top)
        return wheel.owner if wheel is not None and wheel.holds(Path(file)) else None

    def _wheel(self, name: str) -> Wheel | None:
        if name not in self._wheels:
            try:
                self._wheels[name] = _open_wheel(name)
            except (OSError, ValueError, csv.Error):
                self._wheels[name] = None
        return self._wheels[name]

    def objection(self, owner: Owner, module: str, name: str) -> str | None:
        """Why a name of the owner's does not count by name after all, or `None`: what it gives depends on more."""
        return impure(owner, module, name)

    def is_listed(self, module: str) -> bool:
        """Whether the module belongs to a distribution that is trusted by name, proven or not."""
        return module.partition(".")[0] in self._names


TRUSTED = Trusted()


def of_python(module: ModuleType) -> bool:
    """Whether a module is Python's own and not one that has taken such a name."""
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    if origin in ("built-in", "frozen"):
        return True
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return module.__name__ == "builtins"
    path = Path(file).resolve()
    return path.is_relative_to(_STDLIB) and not {"site-packages", "dist-packages"} & set(path.parts)


def single_owner(module: str, name: str) -> Owner | None:
    """Python, for the few functions that count by name though their module does not."""
    present = sys.modules.get(module)
    listed = (module, name) in PURE_FUNCTIONS and present is not None and of_python(present)
    return PYTHON_OWNER if listed else None


def impure(owner: Owner, module: str, name: str) -> str | None:
    """Why a function that its owner's name would vouch for is not a function of its arguments, or `None`."""
    leaf = name.rpartition(".")[2]
    if module == "builtins":
        return None if leaf in PURE_BUILTINS else f"the builtin {leaf} reads or does what lies outside its arguments"
    lists = IMPURE if owner.distribution else IMPURE_PURE
    words = lists.get(owner.distribution or module, frozenset())
    bad = next((word for word in (leaf, *module.split(".")[1:]) if word in words), None)
    return None if bad is None else f"{module}.{leaf} reads what lies outside its arguments"


class Wheel:
    """One installed distribution whose code files have the sizes that its RECORD says.

    Attributes:
      owner: who answers for its code.
      rows: path below the site folder to hash and size, of each file of code.
    """

    def __init__(self, site: Path, owner: Owner, rows: dict[str, tuple[str, int]]) -> None:
        self.owner = owner
        self._site = site
        self.rows = rows

    def holds(self, file: Path) -> bool:
        """Whether the file came with the wheel: Python code by its hash, an extension (too large) by its size."""
        try:
            name = file.resolve().relative_to(self._site).as_posix()
            if name not in self.rows:
                return False
            if file.suffix != ".py":
                return True
            return hashlib.sha256(file.read_bytes()).digest() == decoded(self.rows[name][0])
        except (OSError, ValueError):
            return False


def _open_wheel(name: str) -> Wheel | None:
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return None
    site = Path(file).resolve().parent.parent
    start = re.sub(r"[-_.]+", "_", name).lower() + "-"
    found = [info for info in site.iterdir() if info.name.lower().startswith(start) and info.suffix == ".dist-info"]
    return open_installed(found[0], name) if len(found) == 1 else None


def open_installed(info: Path, name: str, *, beside: frozenset[str] = frozenset()) -> Wheel | None:
    """The distribution of one `.dist-info` folder, `None` if it cannot be proven unmodified.

    Args:
      info: the folder.
      name: what to call the distribution.
      beside: folders of the site folder that do not count, though the RECORD has files in them.

    Raises:
      OSError: something of it cannot be read.
      ValueError: its RECORD is not as it should be; csv.Error likewise.
    """
    if _is_local(info):
        return None
    site = info.parent
    rows = {path: row for path, row in _rows(info / "RECORD").items() if path.partition("/")[0] not in beside}
    # Sizes only: reading a thousand files costs too much. The content of the module in question is compared later.
    if not rows or any(os.stat(f"{site}/{path}").st_size != size for path, (_, size) in rows.items()):  # noqa: PTH116
        return None
    version = info.name.removesuffix(".dist-info").rpartition("-")[2]
    # Not RECORD's own bytes: each installer adds rows of its own.
    content = hashlib.sha256(repr(sorted(rows.items())).encode()).hexdigest()
    return Wheel(site, Owner(f"{name} {version} {content}", name), rows)


def _is_local(info: Path) -> bool:
    try:
        return "dir_info" in json.loads((info / "direct_url.json").read_bytes())
    except FileNotFoundError:
        return False


def _rows(record: Path) -> dict[str, tuple[str, int]]:
    """Path to hash and size, of the files that hold code.

    Raises:
      ValueError: a file of code has no hash or no size, so nothing can be said.
    """
    with record.open(newline="", encoding="utf-8") as lines:
        rows = [row for row in csv.reader(lines) if row and row[0].endswith(_CODE) and not row[0].startswith("..")]
    for row in rows:
        if len(row) != 3 or not row[1].startswith("sha256="):
            raise ValueError(f"a row of {record} cannot be read")
    return {path: (digest, int(size)) for path, digest, size in rows}


def decoded(digest: str) -> bytes:
    """The bytes of a hash in a RECORD."""
    value = digest.partition("=")[2]
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
