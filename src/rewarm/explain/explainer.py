"""Explains misses as they happen, and keeps what later misses will be compared with.

Not promised: every detail while the program runs. A miss may cost 50 ms for this at most, so a large program's lines
are not compared here; `rewarm explain` does that afterwards, from the entries.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from rewarm.cache import AHEAD, CANNOT_READ, Request
from rewarm.envelope import open_entry
from rewarm.errors import BadEntryError, StoreError
from rewarm.explain import nearest, programs
from rewarm.explain.catalogue import NOT_STORED, STORED, Catalogue, Remembered, shortened
from rewarm.explain.components import changes_in
from rewarm.explain.difference import compare_programs, listing_of, summarise
from rewarm.explain.programs import Difference
from rewarm.identity.program import Listing, list_operations, shape_of
from rewarm.ledger import Event
from rewarm.ledger.explanation import Change, Explanation, Finding
from rewarm.store import Store
from rewarm.telling import one_line

logger = logging.getLogger("rewarm")

# Listing a program takes some 20 microseconds for each operation, of some 12 bytes. Two programs of this many bytes are
# compared in about 20 ms; larger ones when somebody asks.
INLINE_BYTES = 3 * 1024

# What comparing lines may take of a start, unless the user asked for explanations: this many seconds, and a hundredth
# of what the misses took to compile. A cold start of a hundred small programs would else pay a tenth for what nobody
# reads.
_FREE_SECONDS = 0.05
_SHARE = 0.01

_SHAPES_SHOWN = 5
_STARTED = time.time()

# Two processes that start together compile the same; within this many seconds one may have stored what the other
# has just looked for.
_MEANWHILE = 3600.0

_UNKNOWN = Finding("unfinished", "not compared while it runs; rewarm explain says where they differ")

# The bytecode's digests do not tell a constant from another attribute.
_CONSTANTS = Finding("constants", "the same operations with other constants, or another attribute such as an axis")


class Explainer:
    """Explains the misses of one store. Safe for any number of threads; never raises.

    Args:
      store: where entries lie; `None`: nothing is compared.
      catalogue: what was seen before.
      thorough: compare the lines of small programs whatever it takes; else only within a hundredth of compiling.
    """

    def __init__(self, store: Store | None, catalogue: Catalogue, *, thorough: bool = True) -> None:
        self._store = store
        self._catalogue = catalogue
        self._thorough = thorough
        self._asked = threading.local()
        self._compared_for = 0.0
        self._compiled_for = 0.0

    def explain(self, request: Request[Any], reason: str, quarantined: str | None) -> Explanation:
        """Why `request` is a miss, besides the `reason` that the cache has."""
        if request.components is None:
            return _said("unkeyable", reason, f"it cannot have a key: {reason}")
        if request.bypass is not None:
            return _said("bypassed", reason, f"not looked up: {reason}")
        if self._store is None or request.evidence is None or reason.startswith(CANNOT_READ):
            return _said("unfinished", reason)
        try:
            one = _remembered(request)
            self._asked.about = request, one  # the thread that asks remembers it too, a compile later
            return self._compared(request, one, quarantined)
        except Exception as error:
            logger.debug("rewarm: no explanation for %s", request.program, exc_info=True)
            return _said("unfinished", f"it cannot be explained: {type(error).__name__}: {error}")

    def remember(self, request: Request[Any], event: Event) -> None:
        """Keep a finished miss for later ones."""
        self._compiled_for += event.seconds.compile
        if request.components is None or request.evidence is None or event.key is None or self._store is None:
            return
        try:
            why = event.not_stored or ""
            outcome = STORED if event.stored else NOT_STORED
            asked, known = getattr(self._asked, "about", (None, None))
            one = known if known is not None and asked is request else _remembered(request)
            self._asked.about = None, None
            values = {row.digest: row.value for row in request.components.rows if row.value is not None}
            self._catalogue.remember(one._replace(outcome=outcome, why=why, time=event.time), values)
        except Exception:
            logger.debug("rewarm: cannot remember %s", request.program, exc_info=True)

    # -- inside ------------------------------------------------------------------------------------------------

    def _compared(self, request: Request[Any], wanted: Remembered, quarantined: str | None) -> Explanation:
        known = self._catalogue.alike(wanted.program, wanted.components, wanted.structure)
        before = next((one for one in known if one.key == wanted.key), None)
        if quarantined is not None:
            text = f"its entry was not usable and was put aside: {quarantined}"
            return _said("quarantined", text, nearest=wanted.key)
        if before is not None:
            return self._was_here(before, wanted.time)
        one = nearest.nearest(wanted, known)
        if one is None:
            text = "no program of this name, content or structure was seen in this directory"
            return _said("new", text, f"a program never seen before: {text}")
        differs = nearest.differing(wanted, one)
        changes, findings = self._differences(request, wanted, one, known, differs)
        summary = summarise(_compared_with(wanted, one, differs), differs, changes, findings)
        return Explanation(summary, one.key, differs, tuple(changes), tuple(findings))

    def _was_here(self, before: Remembered, now: float) -> Explanation:
        """The very same key is remembered."""
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(before.time))
        if before.outcome != STORED:
            text = f"it was compiled here on {when} and not stored: {before.why or 'no reason was kept'}"
            return _said("not stored", text, nearest=before.key)
        assert self._store is not None
        if now - before.time < _MEANWHILE and self._store.get(before.key, use=False) is not None:
            return _said("meanwhile", "another process has stored it meanwhile", nearest=before.key)
        text = f"it was stored here on {when}, and the entry is gone: removed, evicted or cleared since"
        return _said("removed", text, nearest=before.key)

    def _differences(
        self,
        request: Request[Any],
        wanted: Remembered,
        one: Remembered,
        known: Sequence[Remembered],
        differs: tuple[str, ...],
    ) -> tuple[list[Change], list[Finding]]:
        assert request.components is not None
        changes: list[Change] = []
        findings: list[Finding] = []
        after = {row.name: row.value for row in request.components.rows}
        for name in differs:
            if name == "program":
                difference = self._programs(request, wanted, one)
                changes += difference.changes
                findings += _in_context(difference.findings, wanted, known)
            else:
                before = self._catalogue.value(one.components.get(name, ""))
                changes += changes_in(name, before, after.get(name), (one.producer, wanted.producer))
        if "target" in differs and AHEAD in one.producer and AHEAD not in wanted.producer:
            findings.append(Finding("described", _described(one)))
        if one.program != wanted.program:
            findings.append(Finding("renamed", f"it was seen as {one.program}"))
        return changes, findings

    def _programs(self, request: Request[Any], wanted: Remembered, one: Remembered) -> Difference:
        """By their lines where both are small and one is stored, else by their shapes."""
        assert request.evidence is not None
        small = len(request.evidence.canonical) <= INLINE_BYTES
        if small and one.outcome == STORED and self._has_time():
            since = time.perf_counter()
            before = self._stored_listing(one.key)
            found = before and compare_programs(before, list_operations(request.evidence.source()))
            self._compared_for += time.perf_counter() - since
            if found is not None:
                return found
        return Difference((), (_by_shape(wanted, one),))

    def _has_time(self) -> bool:
        return self._thorough or self._compared_for < _FREE_SECONDS + _SHARE * self._compiled_for

    def _stored_listing(self, key: str) -> Listing | None:
        assert self._store is not None
        try:
            data = self._store.get(key, use=False)
            return listing_of(open_entry(data, key), sources=False, limit=INLINE_BYTES) if data is not None else None
        except (BadEntryError, StoreError):
            return None


def _described(one: Remembered) -> str:
    return (
        f"it was compiled ahead for {one.producer[AHEAD]}, which is not this machine (see the changes); rewarm target "
        "capture, run here, writes what this machine is, for rewarm prewarm --target"
    )


def _remembered(request: Request[Any]) -> Remembered:
    assert request.components is not None
    assert request.evidence is not None
    shape = shape_of(request.evidence.canonical)
    return Remembered(
        key=request.components.key(),
        program=request.program,
        time=time.time(),
        outcome=NOT_STORED,
        why="",
        components={row.name: row.digest for row in request.components.rows},
        structure=_with_kinds(shape.structure, request.evidence.kinds),
        attributes=_with_kinds(shape.attributes, request.evidence.kinds),
        operations=shape.operations,
        signature=shortened(request.evidence.signature()),
        producer=request.producer,
        kinds=_with_kinds("", request.evidence.kinds),
        run=f"{os.getpid()} {_STARTED}",
    )


def _with_kinds(digest: str, kinds: Sequence[str]) -> str:
    """A digest that also holds the kinds of operations, which bytecode keeps apart, by number."""
    return hashlib.sha256("\n".join((digest, *kinds)).encode()).hexdigest()[:32]


def _said(kind: str, text: str, summary: str | None = None, *, nearest: str | None = None) -> Explanation:
    """An explanation of one finding."""
    return Explanation(one_line(summary or text), nearest, findings=(Finding(kind, one_line(text)),))


def _compared_with(wanted: Remembered, one: Remembered, differs: tuple[str, ...]) -> str:
    kept = "" if one.outcome == STORED else f", which was not stored ({one.why})"
    what = f"a {wanted.program} that was compiled before" if one.program == wanted.program else f"{one.program}"
    like = "the same program as" if "program" not in differs else "like"
    return f"{like} {what}, key {one.key[:12]}{kept}, but"


def _by_shape(wanted: Remembered, one: Remembered) -> Finding:
    """What the digests of parts of the bytecode tell: not all, and nothing that is not so."""
    same_attributes = wanted.attributes == one.attributes
    if wanted.structure == one.structure and not same_attributes:
        if wanted.signature == one.signature:
            return _CONSTANTS
        return programs.TYPES if programs.same_but_for_width(one.signature, wanted.signature) else programs.SHAPES
    if wanted.structure != one.structure and same_attributes and wanted.operations == one.operations:
        return programs.ORDER
    return programs.OPERATIONS if wanted.kinds != one.kinds else _UNKNOWN


def _in_context(findings: Sequence[Finding], wanted: Remembered, known: Sequence[Remembered]) -> list[Finding]:
    """What the other programs that are remembered add to a finding."""
    seen = nearest.signatures_seen(wanted, known)
    told = [_with_shapes(finding, wanted, seen) for finding in findings]
    runs = nearest.runs_with_others(wanted, known)
    if runs > 1 and any(finding.kind == "constants" for finding in findings):
        text = (
            f"it had other constants in each of the {runs} runs before: likely a time, a random "
            f"seed or an object's address becomes part of the program; pass it as an argument"
        )
        told.append(Finding("varying constant", text))
    return told


def _with_shapes(finding: Finding, wanted: Remembered, seen: Sequence[str]) -> Finding:
    """A finding of shapes with the list of those that were seen."""
    if finding.kind != "shapes" or not seen:
        return finding
    listed = ", ".join(seen[:_SHAPES_SHOWN]) + (" and others" if len(seen) > _SHAPES_SHOWN else "")
    return Finding("shapes", f"{finding.text}: now {wanted.signature}; seen before: {listed}")
