"""Checks of the environment: whether it turns rewarm on, and with what.

Not promised: to see what a program says to `rewarm.enable` or to `jax.config.update`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rewarm import settings
from rewarm.doctor.check import Check, some
from rewarm.doctor.facts import Facts
from rewarm.identity.option_table import flags

_FALSE = frozenset({"0", "false", "no", "off", "f", "n"})


def checks(facts: Facts) -> Iterator[Check]:
    """All of this file."""
    yield _switch(facts)
    yield from _values(facts)
    for line in settings.unknown_variables():
        found, _, good = line.partition(" Good names: ")
        yield Check("variables", "problem", found, f"unset it, or take one of: {good}")
    yield _native(facts)
    yield from _xla_flags()


def _switch(facts: Facts) -> Check:
    if isinstance(facts.switch, str):
        return Check("switch", "problem", f"{facts.switch}; rewarm stays off", "set REWARM=1")
    if facts.switch:
        return Check("switch", "ok", f"the environment turns rewarm on, in {facts.directory}")
    if facts.environment.get("REWARM_DIR"):
        return Check("switch", "problem", "REWARM_DIR is set, and REWARM turns rewarm off", "set REWARM=1, or unset it")
    advice = "set REWARM=1 or REWARM_DIR=PATH, run the program by rewarm run, or call rewarm.enable() in it"
    return Check("switch", "note", "nothing in the environment turns rewarm on", advice)


def _values(facts: Facts) -> Iterator[Check]:
    if isinstance(facts.in_force, str):
        yield Check("settings", "problem", f"{facts.in_force}; rewarm stays off", "correct it, or unset it")


def _native(facts: Facts) -> Check:
    """JAX's own cache beside rewarm: which of the two is used."""
    directory = facts.environment.get("JAX_COMPILATION_CACHE_DIR")
    if facts.environment.get("JAX_ENABLE_COMPILATION_CACHE", "").strip().lower() in _FALSE or _off_in_jax(facts):
        advice = "unset JAX_ENABLE_COMPILATION_CACHE"
        return Check("native cache", "problem", "JAX_ENABLE_COMPILATION_CACHE turns caching off, rewarm's too", advice)
    if not directory:
        return Check("native cache", "ok", "JAX's own cache is off")
    if facts.switch is not True:
        found = f"JAX_COMPILATION_CACHE_DIR is {directory}, so JAX's own cache serves programs there, and not rewarm"
        return Check("native cache", "problem", found, "set REWARM=1 to let rewarm serve them, in its own folder there")
    if "://" in directory and not facts.environment.get("REWARM_REMOTE"):
        return Check("native cache", "ok", f"JAX_COMPILATION_CACHE_DIR, {directory}, is rewarm's remote")
    if facts.environment.get("REWARM_DIR"):
        found = (
            f"JAX_COMPILATION_CACHE_DIR is {directory} and REWARM_DIR is set: {facts.directory} is used, and the other "
            f"is not written, but for programs that are left to JAX"
        )
        return Check("native cache", "note", found, "unset JAX_COMPILATION_CACHE_DIR if that is not meant")
    found = f"rewarm serves in JAX's place, in {facts.directory}; files of JAX's own in {directory} are not read"
    return Check("native cache", "ok", found)


def _off_in_jax(facts: Facts) -> bool:
    return facts.jax.get("options", {}).get("enabled") is False


def _xla_flags() -> Iterator[Check]:
    text = settings.xla_flags()
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    writing = [word for word in words if _asks_for_output(word)]
    if writing:
        found = f"XLA_FLAGS ask the compiler to write: {some(writing)}; such programs are neither looked up nor stored"
        yield Check("XLA_FLAGS", "problem", found, "take them out once you have what they write")
    if any(word.startswith("--xla_fuel") for word in words):
        found = "XLA_FLAGS has --xla_fuel, which counts over the whole process: no program has a key"
        yield Check("XLA_FLAGS", "problem", found, "take it out")


def _asks_for_output(word: str) -> bool:
    name, _, value = word.removeprefix("--").partition("=")
    field = flags().get(name)
    return field is not None and field.group == "output" and value.strip().lower() not in _FALSE
