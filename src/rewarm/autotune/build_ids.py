"""What a build of XLA is known by in the names of places, and which generation of formats such a place has.

Not promised: that a name is true. A user says what his program's XLA is called, and two builds under one name have one
place.
"""

from __future__ import annotations

import re

from rewarm.autotune.formats import builds
from rewarm.autotune.formats.model import Family

_LONGEST = 64
_OTHER_LETTERS = re.compile(r"[^A-Za-z0-9._]+")
_PLAIN = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{_LONGEST - 1}}}")
_OF_JAX = re.compile(r"(jax-([0-9][0-9.]*[0-9])(?:-[0-9a-f]{12})?)(?:-(legacy|new))?")
_MINOR_OF_NEW = (0, 11)


def build_id(name: str, digest: str = "") -> str:
    """What a build of XLA is known by in the names of places; different names, or digests, have different ones.

    Args:
      name: for people: "jax-0.12.0.1", "tensorflow-2.20", whatever the user calls his program's XLA.
      digest: of the library that holds the compiler, hexadecimal: it tells builds apart, and the name is shortened and
        made plain. "" where the name alone does, which must be plain, then.

    Raises:
      ValueError: the name is not plain.
    """
    if digest:
        return f"{_OTHER_LETTERS.sub('-', name).strip('-.')[:_LONGEST] or 'unknown'}-{digest[:12]}"
    if not _PLAIN.fullmatch(name):
        raise ValueError(
            f"expected a name of letters, digits, '.', '_' and '-', at most {_LONGEST} of them, that begins with a "
            f"letter or a digit, found {name!r:.100}"
        )
    return name


def jax_of(build: str) -> str:
    """The JAX release that a build id names; "" where it names none."""
    found = _OF_JAX.fullmatch(build)
    return found[2] if found else ""


def default_family(jax: str) -> Family:
    """Which formats a JAX release uses by default; of one that is not known, the new ones if it is newer."""
    known = builds.build_of(jax)
    if known is not None:
        return known.default
    numbers = tuple(int(part) for part in jax.split(".")[:2] if part.isdecimal())
    return Family.LEGACY if numbers and numbers < _MINOR_OF_NEW else Family.NEW


def family_of(build: str) -> Family | None:
    """Which formats the places of a build have; `None` for a build of a user's own name, which may use either."""
    found = _OF_JAX.fullmatch(build)
    if found is None:
        return None
    return Family(found[3]) if found[3] else default_family(found[2])


def with_family(build: str, family: Family) -> str:
    """The id of the same build where it uses these formats: what it does not use by default is in its name."""
    found = _OF_JAX.fullmatch(build)
    if found is None:
        return build
    return found[1] if default_family(found[2]) is family else f"{found[1]}-{family.value}"
