"""Checks of the last run on disk: what was not stored, what was left to JAX, and what failed.

Not promised: that the next run is like it. Nothing is run here.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rewarm import policy
from rewarm.doctor.check import Check, Verdict, seconds, some
from rewarm.doctor.facts import Facts
from rewarm.doctor.remotes import of_traffic
from rewarm.in_force import Settings

_OTHER_CPU = "made for a CPU with"
_BY_THRESHOLD = (policy.TOO_QUICK, policy.TOO_SMALL)
_FEW_SECONDS = 0.5


def checks(facts: Facts) -> Iterator[Check]:
    """All of this file."""
    run = facts.run
    if run is None:
        yield Check("last run", "note", f"no run is recorded in {facts.directory}", "run a program, then look again")
        yield from _thresholds_alone(facts)
        return
    hits = sum(event.get("outcome") == "hit" for event in facts.events)
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started))
    argv = " ".join(run.argv)[:100]
    found = f"{started}, {run.state}, {argv}: {len(facts.events)} requests, {hits} hits"
    yield Check("last run", "ok", found)
    yield from of_events(facts.events, "in the last run")
    yield from of_stats(run.stats or {}, "in the last run")
    if not any(event.get("not_stored") in _BY_THRESHOLD for event in facts.events):
        yield from _thresholds_alone(facts)


def of_events(events: Iterable[Mapping[str, Any]], when: str) -> Iterator[Check]:
    """What was compiled and not stored, and why; and entries that were refused."""
    spent: dict[str, list[float]] = defaultdict(list)
    compiled = 0.0
    for event in events:
        took = compile_seconds(event)
        compiled += took
        if event.get("not_stored") is not None:
            spent[str(event["not_stored"])].append(took)
    yield from _starved(spent, compiled, when)
    for reason, each in sorted(spent.items(), key=lambda row: -sum(row[1])):
        if reason not in _BY_THRESHOLD:
            yield _not_stored(reason, each, when)
    yield from _refused(events, when)


def compile_seconds(event: Mapping[str, Any]) -> float:
    """What an event of a run says that compiling took; 0 where it says nothing."""
    table = event.get("seconds")
    value = table.get("compile") if isinstance(table, Mapping) else None
    return float(value) if isinstance(value, int | float) else 0.0


def _starved(spent: Mapping[str, list[float]], compiled: float, when: str) -> Iterator[Check]:
    """Thresholds that keep most of what is worth storing out."""
    for reason, variable in zip(_BY_THRESHOLD, ("REWARM_MIN_COMPILE_SECONDS", "REWARM_MIN_ENTRY_BYTES"), strict=True):
        took = spent.get(reason)
        if not took:
            continue
        found = f"{seconds(sum(took))} of {seconds(compiled)} of compiling {when} were not stored: {reason}"
        advice = f"lower {variable}, or what the program sets of JAX's option"
        verdict: Verdict = "problem" if sum(took) > compiled / 2 else "note"
        yield Check("thresholds", verdict, f"{found} ({len(took)} programs)", advice)


def _not_stored(reason: str, took: list[float], when: str) -> Check:
    grave = sum(took) >= _FEW_SECONDS or reason == policy.SWITCHED_OFF or "fail" in reason
    found = f"{len(took)} programs of {seconds(sum(took))} {when} were not stored: {reason}"
    return Check("not stored", "problem" if grave else "note", found, _remedy(reason))


def _remedy(reason: str) -> str:
    for words, advice in (
        (policy.TOO_LARGE, "raise REWARM_MAX_SIZE above the largest program"),
        (policy.SWITCHED_OFF, "raise or unset REWARM_MAX_SIZE and JAX_COMPILATION_CACHE_MAX_SIZE"),
        (policy.LOADS_SLOWER, "nothing to do: it is quicker to compile it than to load it"),
        ("the options ask the compiler to write", "take the dump options out of XLA_FLAGS"),
        ("directory", "look at the checks of the directory above"),
    ):
        if words in reason:
            return advice
    return "rewarm explain says more"


def _refused(events: Iterable[Mapping[str, Any]], when: str) -> Iterator[Check]:
    refused = [str(event["quarantined"]) for event in events if event.get("quarantined")]
    other = sorted({reason for reason in refused if _OTHER_CPU in reason})
    if other:
        found = f"{len(other)} kinds of entries {when} were refused, since they were {_CPU}: {some(other, 2)}"
        yield Check("entries", "problem", found, "give hosts with other CPUs directories of their own")
    rest = [reason for reason in refused if _OTHER_CPU not in reason]
    if rest:
        found = f"{len(rest)} entries {when} were not usable: {some(sorted(set(rest)), 3)}"
        yield Check("entries", "problem", found, "rewarm verify looks at all; see rewarm quarantine ls")


_CPU = "made for another CPU"

# Thresholds that starve the cache whatever the program: few compile for a minute, or to 100 MB.
_HARDLY_ANY = 60.0
_HARDLY_ANY_BYTES = 100_000_000


def of_stats(stats: Mapping[str, Any], when: str) -> Iterator[Check]:
    """What the counters add: errors, what remotes did not do, and programs that rewarm did not serve."""
    if stats.get("errors"):
        found = f"a store, a loader or a serialiser failed {stats['errors']} times {when}"
        yield Check("errors", "problem", found, "the program's log has a line for each kind, which starts with rewarm")
    yield from of_traffic(stats, when)
    left = stats.get("left_to_jax")
    for reason, count in sorted(left.items()) if isinstance(left, Mapping) else ():
        yield Check("left to JAX", "note", f"{count} programs {when} were left to JAX: {reason}", "")


def _thresholds_alone(facts: Facts) -> Iterator[Check]:
    """Thresholds of which no run says what they cost."""
    if not isinstance(facts.in_force, Settings):
        return
    least, smallest = facts.in_force.min_compile_seconds, facts.in_force.min_entry_bytes
    if least <= 0 and smallest <= 0:
        yield Check("thresholds", "ok", "programs of every compile time and size are stored")
        return
    found = f"only what compiles for {least:g} s or longer and has {max(0, smallest)} bytes or more is stored"
    times = [compile_seconds(event) for event in facts.events]
    starved = sum(took for took in times if took < least) > sum(times) / 2
    if starved:
        found += f"; of the {seconds(sum(times))} of compiling in the last run most would not be"
    elif least > _HARDLY_ANY or smallest >= _HARDLY_ANY_BYTES:
        found += ", which hardly any program does"
        starved = True
    yield Check(
        "thresholds",
        "problem" if starved else "note",
        found,
        "lower REWARM_MIN_COMPILE_SECONDS and REWARM_MIN_ENTRY_BYTES for the rest",
    )
