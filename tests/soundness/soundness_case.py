"""What a row of the table is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# What becomes of a change at the next start.
TRACED, REFUSED, PROOF = "traced", "refused", "proof"
# What becomes of an edit that changes nothing.
SKIPPED = "skipped"

_NOTHING: Mapping[str, str] = {}


class Case(NamedTuple):
    """One program, and one thing that is another at its next start.

    Attributes:
      change: in words.
      program: the program file, `main.py`; the imports of jax, jax.numpy, numpy, os and sys stand before it.
      edits: text of A, and what stands in its place in B; in any file.
      expect: `TRACED`: the guards see it. `REFUSED`: A is traced at each start, so nothing is believed. `PROOF`: the
        trace is skipped, and a trace beside the program finds out. `SKIPPED`: nothing changes, and it is skipped.
      note: for the page.
      files: other files of A, by path.
      more: files that only B has; an empty text removes one.
      env: variables of A.
      env_b: variables that are others in B; with an empty value not set.
      argv: arguments of A and of B.
      flags: of Python, in B alone.
      cwd: the folder below the program's in which B starts.
      moved: B lies in another folder.
      varies: each start's result is another, so it is not compared with that of the process of its own.
      retraced: for an edit that changes nothing: it is traced all the same, and `note` says why.
      needs: libraries that must be installed.
    """

    change: str
    program: str
    edits: tuple[tuple[str, str], ...] = ()
    expect: str = TRACED
    note: str = ""
    files: Mapping[str, str] = _NOTHING
    more: Mapping[str, str] = _NOTHING
    env: Mapping[str, str] = _NOTHING
    env_b: Mapping[str, str] = _NOTHING
    argv: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    flags: tuple[str, ...] = ()
    cwd: str = ""
    moved: bool = False
    varies: bool = False
    retraced: bool = False
    needs: tuple[str, ...] = ()


def case(change: str, program: str, *edits: tuple[str, str], expect: str = TRACED, **rest: object) -> Case:
    """A row."""
    return Case(change, program, edits, expect, **rest)  # type: ignore[arg-type]
