"""The numbers of a process, and which programs JAX traced again although it had them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from conftest import Program
from rewarm.ledger import Event, Ledger, Seconds

KEY, OTHER = "a" * 64, "b" * 64


def event(program: str = "jit_f", key: str | None = KEY, outcome: Any = "hit", **fields: Any) -> Event:
    plain: dict[str, Any] = {
        "tier": None,
        "reason": None,
        "stored": False,
        "not_stored": None,
        "seconds": Seconds(),
        "seconds_saved": 0.0,
        "bytes_read": 0,
        "bytes_written": 0,
        "quarantined": None,
        "time": 1.0,
    }
    return Event(program=program, key=key, outcome=outcome, **{**plain, **fields})


def again(traces: dict[str, int], *events: Event) -> dict[str, int]:
    """What is called traced again after these traces, each of no time, and these events."""
    ledger = Ledger()
    for function, count in traces.items():
        for _ in range(count):
            ledger.traced(function, 0.0)
    for one in events:
        ledger.record(one)
    return dict(ledger.stats().traced_again)


def test_traces_are_counted_and_timed() -> None:
    ledger = Ledger()
    for seconds in (0.25, 0.5):
        ledger.traced("f", seconds)
    ledger.traced("g", 1.0)
    stats = ledger.stats()
    assert (stats.traces, stats.seconds_tracing) == (3, 1.75)
    assert stats.traced_again == {}
    assert stats.as_dict()["traced_again"] == {}


def test_a_program_that_is_wanted_and_traced_twice_was_traced_again() -> None:
    assert again({"f": 2}, event(), event()) == {"jit_f": 1}
    assert again({"f": 5}, *[event(outcome="miss")] * 5) == {"jit_f": 4}


def test_a_program_that_is_wanted_twice_and_traced_once_was_not() -> None:
    assert again({"f": 1}, event(), event()) == {}
    assert again({}, event(), event()) == {}


def test_a_function_that_is_traced_for_several_programs_was_not() -> None:
    assert again({"f": 2}, event(), event(key=OTHER)) == {}


def test_an_inner_function_that_is_traced_often_was_not() -> None:
    assert again({"f": 1, "inner": 9}, event()) == {}


def test_programs_without_a_key_are_not_known_to_be_the_same() -> None:
    assert again({"f": 3}, *[event(key=None, outcome="miss")] * 3) == {}


@pytest.mark.parametrize(
    ("function", "module"),
    [
        ("<lambda>", "jit__lambda"),
        ("<lambda>", "jit__lambda_"),
        ("f", "jit_f"),
        ("_f_", "jit__f"),
        ("größe", "jit_größe"),
        ("a.b-c", "jit_a.b-c"),
        ("a b", "jit_a_b"),
    ],
)
def test_functions_are_known_by_what_jax_calls_their_modules(function: str, module: str) -> None:
    assert again({function: 2}, *[event(module)] * 2) == {module: 1}


def test_overhead_is_what_the_cache_took() -> None:
    ledger = Ledger()
    seconds = Seconds(key=1.0, fetch=2.0, load=4.0, compile=8.0, store=16.0, explain=32.0)
    ledger.record(event(outcome="miss", seconds=seconds, not_stored="x", bytes_read=5, quarantined="bad"))
    stats = ledger.stats()
    assert (stats.seconds_overhead, stats.seconds_loading, stats.seconds_compiling) == (51.0, 4.0, 8.0)
    assert (stats.not_stored, stats.bytes_read, stats.quarantined) == ({"x": 1}, 5, 1)


def test_a_snapshot_stays_as_it_was() -> None:
    ledger = Ledger()
    ledger.left_to_jax("x")
    before = ledger.stats()
    ledger.left_to_jax("x")
    ledger.error()
    ledger.record(event())
    assert (before.left_to_jax, before.requests, before.errors) == ({"x": 1}, 0, 0)
    with pytest.raises(TypeError):
        before.left_to_jax["x"] = 7  # type: ignore[index]


def test_threads_lose_nothing() -> None:
    ledger = Ledger()

    def work(number: int) -> None:
        for _ in range(500):
            ledger.traced(f"f{number % 2}", 0.5)
            ledger.record(event(f"jit_f{number % 2}", key=str(number)))
            ledger.stats()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = ledger.stats()
    assert (stats.traces, stats.requests, stats.seconds_tracing) == (2000, 2000, 1000.0)
    assert stats.traced_again == {"jit_f0": 998, "jit_f1": 998}


# ---------------------------------------------------------------------------------------------------------------
# What JAX does

_PROGRAM = """
import json, sys, jax, jax.numpy as jnp, numpy as np, rewarm
x = np.ones(4, np.float32)
told = {}
def section(name):
    stats = rewarm.stats()
    now = dict(stats.traced_again)
    before, section.seen = section.seen, now
    told[name] = {program: count - before.get(program, 0) for program, count in now.items()
                  if count != before.get(program, 0)}
section.seen = {}

def plain(x): return x * 2
run = jax.jit(plain)
for _ in range(3): run(x)
section("called three times")

def shapes(x): return x * 3
run = jax.jit(shapes)
for size in (4, 8, 12): run(np.ones(size, np.float32))
section("three shapes")

for _ in range(4): jax.jit(lambda x: x * 4)(x)
section("a lambda in a loop")

def static(x, number): return x * 5
run = jax.jit(static, static_argnums=1)
for number in range(3): run(x, number)
section("static arguments that alter nothing")

def aot(x): return x * 6
lowered = jax.jit(aot).lower(x)
lowered.compile(); lowered.compile()
section("lowered once, compiled twice")

def again(x): return x * 7
run = jax.jit(again)
run.lower(x).compile(); run.lower(x).compile()
section("lowered twice")

def placed(x): return x * 8
run = jax.jit(placed)
for device in jax.devices(): run(jax.device_put(x, device))
section("two devices")
run(np.ones(8, np.float32))
section("two devices, and then another shape")

@jax.jit
def inner(x): return x * 9
def outer(x): return inner(x) + inner(x + 1)
jax.jit(outer)(x); inner(x); inner(x)
section("nested")

def cleared(x): return x * 10
run = jax.jit(cleared)
run(x); jax.clear_caches(); run(x)
section("caches cleared")

for name in ("größe", "a b/c", "_", "x" * 300, "tail__", "dots.and-dashes"):
    def fresh():
        def made(x): return x * 11 + len(name)
        made.__name__ = made.__qualname__ = name
        return made
    jax.jit(fresh())(x); jax.jit(fresh())(x)
    section(name[:20])
print(json.dumps(told))
"""


@pytest.mark.contract
def test_what_jax_traces_again(program: Program, cache: Path) -> None:
    env = {
        "REWARM_DIR": str(cache),
        "PYTHONIOENCODING": "utf-8",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    run = program(_PROGRAM, **env)
    told = run.json
    counts = {name: list(found.values()) for name, found in told.items()}
    assert counts == {
        "called three times": [],
        "three shapes": [],
        "a lambda in a loop": [3],
        "static arguments that alter nothing": [2],
        "lowered once, compiled twice": [],
        "lowered twice": [],
        "two devices": [],
        "two devices, and then another shape": [],
        "nested": [],
        "caches cleared": [1],
        "größe": [1],
        "a b/c": [1],
        "_": [1],
        "x" * 20: [1],
        "tail__": [1],
        "dots.and-dashes": [1],
    }
    assert run.stats["traces"] > 20
    assert run.stats["seconds_tracing"] > 0
    warm = program(_PROGRAM, **env)
    assert (warm.json, warm.stats["misses"]) == (told, 0), "a program that hits is traced as often"


@pytest.mark.contract
def test_nothing_is_counted_while_rewarm_is_off(program: Program, cache: Path) -> None:
    source = """
        import sys, jax, numpy as np, rewarm
        x = np.ones(4, np.float32)
        rewarm.enable(sys.argv[1])
        jax.jit(lambda x: x * 2)(x)
        rewarm.disable()
        for _ in range(3):
            jax.jit(lambda x: x * 2)(x)
        assert rewarm.stats().traced_again == {}
        rewarm.enable(sys.argv[1])
        jax.jit(lambda x: x * 2)(x)
        print(list(rewarm.stats().traced_again.values()))
    """
    assert program(source, str(cache)).json == [1]
