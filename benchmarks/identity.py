"""What it costs to say which program this is, beside JAX's own key, and what explaining adds to a hit and to a miss.

Three tables, each made in this one process:

* the whole key, as a second program of a process pays for it: `Identifier.request` and its key, beside JAX's
  `cache_key.get`; and the canonical form of the program alone, beside JAX's `_canonicalize_ir`. The contestants take
  turns; the ratio is the median of the ratios of each round.
* a whole hit (reading, checking, unpacking; not loading), with explanations and the parts of an entry that serve
  them, and without both.
* `seconds.explain` of misses: one constant is another at each, the entry of the one before is in the store, and the
  directory remembers a number of other programs, half of them of the same name.

Nothing of the size that matters is compiled: compilers and executables of the last two tables are made up, the
programs, keys, entries and the store are real. Not measured: the first miss of a process, which imports the explainer.

    python benchmarks/identity.py [--quick] [--json FILE]

Exits with 1 when a median is above its bound: 5 ms on a hit, 50 ms on a miss.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import cache_key, compilation_cache, config
from jax._src.lib.mlir import ir

from _processes import describe_machine
from overhead import measure, record_call
from rewarm import settings
from rewarm.cache import CompileCache, Request
from rewarm.coordination import SingleFlight
from rewarm.explain import Catalogue, Explainer, Remembered
from rewarm.identity import Toolchain, canonical_program
from rewarm.identity.components import TABLE
from rewarm.in_force import HostOptions, resolve
from rewarm.jax_adapter import seam
from rewarm.jax_adapter.requests import Identifier, producer
from rewarm.ledger import Event, Ledger
from rewarm.ledger.explanation import Explanation
from rewarm.policy import Thresholds
from rewarm.store import LocalStore

HIT_BOUND_MS = 5.0
MISS_BOUND_MS = 50.0
REMEMBERED = (10, 5_000)
# 280 are about the most that two programs are compared line by line at, 12,000 that source locations are kept of.
SIZES = (100, 280, 10_000, 12_000, 100_000)
EXECUTABLE_BYTES = 1 << 20


class Subject(NamedTuple):
    """A program to measure.

    Attributes:
      name: what a table calls it.
      call: JAX's call for it.
      operations: how many it has.
      rounds: how often a measurement is repeated.
    """

    name: str
    call: seam.Call
    operations: int
    rounds: int


def straight(operations: int) -> Any:
    """A lowered program of about this many operations, each on a line of its own, one of them a constant."""
    lines = ["x = mul(x, x)", "x = sin(x)"] * (operations // 2)
    source = "\n    ".join(["def step(x):", "x = x + 0.5", *lines, "return x"])
    names: dict[str, Any] = {"sin": jax.lax.sin, "mul": jax.lax.mul}
    exec(compile(source, "straight.py", "exec"), names)
    return jax.jit(names["step"]).lower(jax.ShapeDtypeStruct((16,), np.float32)).compiler_ir("stablehlo")


def helpers(count: int) -> Any:
    """A lowered program of this many private functions."""

    def step(x: jax.Array) -> jax.Array:
        x = x + 0.5
        for number in range(count):

            def helper(y: jax.Array, number: int = number) -> jax.Array:
                return jnp.sin(y) * number + y

            helper.__name__ = f"helper_of_layer_{number}"
            x = jax.jit(helper)(x)
        return x

    return jax.jit(step).lower(jax.ShapeDtypeStruct((16,), np.float32)).compiler_ir("stablehlo")


def count_operations(module: Any) -> int:
    """How many operations a module has."""
    count = 0

    def look(_: Any) -> Any:
        nonlocal count
        count += 1
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return count


def subjects(quick: bool) -> list[Subject]:
    """The programs; the options and devices are those of a small program that JAX really compiled."""
    call = record_call(jnp.tanh)
    made = [(f"{size:,} operations", straight(size), size) for size in SIZES if not quick or size < 100_000]
    made.append(("1,000 functions", helpers(1_000), 5_000))
    rounds = {100: 200, 280: 150, 5_000: 30, 10_000: 30, 12_000: 30, 100_000: 7}
    return [
        Subject(name, call._replace(computation=module), count_operations(module), rounds[size] // (5 if quick else 1))
        for name, module, size in made
    ]


def identifier_in(folder: Path) -> Identifier:
    """What builds rewarm's keys, under default settings."""
    return Identifier(resolve(settings.say(directory=folder), HostOptions()), Toolchain(folder / "libraries.json"))


# -- keys ----------------------------------------------------------------------------------------------------------


def ignored() -> Any:
    """What JAX's key leaves out of the program by default, in the form that this JAX wants."""
    said = config.remove_custom_partitioning_ptr_from_cache_key.value
    if not hasattr(cache_key, "IgnoreCallbacks"):  # since 0.11
        return said
    return cache_key.IgnoreCallbacks.CUSTOM_PARTITIONING if said else cache_key.IgnoreCallbacks.NO


def native_key(call: seam.Call) -> str:
    """JAX's own key."""
    compression = "zstandard" if compilation_cache.zstandard is not None else "zlib"
    key: str = cache_key.get(call.computation, call.devices, call.compile_options, call.backend, compression, ignored())
    return key


def native_canonical(call: seam.Call) -> Any:
    """JAX's own canonical form."""
    return cache_key._canonicalize_ir(call.computation, ignored())


def our_key(identifier: Identifier, call: seam.Call) -> str:
    """rewarm's key."""
    components = identifier.request(call).components
    assert components is not None
    return components.key()


def keys(subject: Subject, identifier: Identifier) -> dict[str, Any]:
    """Medians in seconds, and ratios, of the whole key and of the canonical form."""
    call = subject.call
    pairs: dict[str, dict[str, Callable[[], Any]]] = {
        "key": {"native": lambda: native_key(call), "rewarm": lambda: our_key(identifier, call)},
        "canonical": {
            "native": lambda: native_canonical(call),
            "rewarm": lambda: canonical_program(call.computation, metadata_in_key=False),
        },
    }
    told = {}
    for what, contestants in pairs.items():
        times = measure(contestants, subject.rounds)
        ratios = [ours / theirs for ours, theirs in zip(times["rewarm"], times["native"], strict=True)]
        medians = {name: statistics.median(rows) for name, rows in times.items()}
        told[what] = {**medians, "ratio": statistics.median(ratios)}
    return told


# -- hits and misses -----------------------------------------------------------------------------------------------


class Listener:
    """Keeps the last event."""

    def __init__(self) -> None:
        self.event: Event | None = None

    def missed(self, program: str, key: str | None, reason: str, explanation: Explanation | None) -> None:
        """A miss is about to be compiled."""

    def finished(self, event: Event) -> None:
        """A request was served."""
        self.event = event


def cache_in(folder: Path, listener: Listener, *, explaining: bool) -> CompileCache:
    """A cache over a real store, with or without explanations."""
    store = LocalStore(folder)
    store.prepare()
    return CompileCache(
        store,
        thresholds=Thresholds(min_compile_seconds=0.0, min_entry_bytes=0),
        ledger=Ledger(),
        flights=SingleFlight(),
        observer=listener,
        explainer=Explainer(store, Catalogue(folder)) if explaining else None,
    )


def made_up(request: Request[Any], raw: bytes, *, explaining: bool) -> Request[Any]:
    """The request, with the key and the evidence that it has, and a compiler that takes no time."""
    evidence = request.evidence if explaining else None
    return request._replace(
        compile=lambda: raw, serialise=lambda executable: executable, load=lambda data: data, evidence=evidence
    )


def hits(subject: Subject, identifier: Identifier, scratch: Path) -> dict[str, float]:
    """Medians in seconds of a whole hit with and without explanations, and of the difference."""
    request, raw = identifier.request(subject.call), random.Random(0).randbytes(EXECUTABLE_BYTES)
    contestants: dict[str, Callable[[], Any]] = {}
    for name, explaining in (("without", False), ("with", True)):
        cache = cache_in(scratch / name, Listener(), explaining=explaining)
        wanted = made_up(request, raw, explaining=explaining)
        cache.resolve(wanted)
        contestants[name] = lambda cache=cache, wanted=wanted: cache.resolve(wanted)  # type: ignore[misc]
    times = measure(contestants, max(subject.rounds, 30))
    added = [one - other for one, other in zip(times["with"], times["without"], strict=True)]
    return {**{name: statistics.median(rows) for name, rows in times.items()}, "added": statistics.median(added)}


def fill(folder: Path, count: int, program: str) -> None:
    """Let a directory remember this many programs, half of them of this name."""
    catalogue, draw = Catalogue(folder), random.Random(0)
    shared = {name: secrets.token_hex(32) for name in TABLE}
    for number in range(count):
        catalogue.remember(
            Remembered(
                key=secrets.token_hex(32),
                program=program if number % 2 else f"jit_other_{number}",
                time=time.time() - 1e6 + number,
                outcome="stored" if draw.random() < 0.7 else "not stored",
                why="",
                components={**shared, "program": secrets.token_hex(32)},
                structure=secrets.token_hex(16),
                attributes=secrets.token_hex(16),
                operations=draw.randrange(100, 100_000),
                signature="(tensor<16xf32>) -> tensor<16xf32>",
                producer=producer(),
            ),
            {},
        )


def a_constant(module: Any) -> Any:
    """One operation of a module that is a number."""
    found = []

    def look(one: Any) -> Any:
        if one.name == "stablehlo.constant" and str(one.results[0].type) == "tensor<f32>":
            found.append(one)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found[0]


def misses(subject: Subject, identifier: Identifier, folder: Path, remembered: int) -> float:
    """The median in seconds of `seconds.explain` over misses, each with another constant."""
    module, raw = subject.call.computation, random.Random(0).randbytes(EXECUTABLE_BYTES)
    listener = Listener()
    cache = cache_in(folder, listener, explaining=True)
    fill(folder, remembered, identifier.request(subject.call).program)
    constant, times = a_constant(module), list[tuple[float, Explanation]]()
    for number in range(1 + max(subject.rounds // 5, 7)):
        with module.context, ir.Location.unknown():
            constant.attributes["value"] = ir.DenseElementsAttr.get(np.array(number + 1000, np.float32))
        cache.resolve(made_up(identifier.request(subject.call), raw, explaining=True))
        event = listener.event
        assert event is not None
        assert event.outcome == "miss", event
        assert event.stored, event
        assert event.explanation is not None
        times.append((event.seconds.explain, event.explanation))
    seconds, explanations = [one for one, _ in times[1:]], [one for _, one in times[1:]]
    assert all(one.nearest is not None for one in explanations), explanations
    return statistics.median(seconds)


# -- telling -------------------------------------------------------------------------------------------------------


def verdict(milliseconds: float, bound: float) -> str:
    """A figure beside its bound."""
    return f"{milliseconds:>8.2f} of {bound:.0f} ms{'' if milliseconds <= bound else '  BROKEN'}"


def tell_keys(rows: dict[str, Any]) -> None:
    """The first table."""
    print(f"{'':<20} {'JAX key':>10} {'rewarm':>10} {'ratio':>6}   {'JAX form':>10} {'rewarm':>10} {'ratio':>6}   (ms)")
    for name, row in rows.items():
        cells = [
            f"{row[what]['native'] * 1e3:>10.2f} {row[what]['rewarm'] * 1e3:>10.2f} {row[what]['ratio']:>6.2f}"
            for what in ("key", "canonical")
        ]
        print(f"{name:<20} {'   '.join(cells)}", flush=True)


def main() -> int:
    """Measure, print, and say whether the bounds hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and nothing of 100,000 operations")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    told: dict[str, Any] = {"jax": jax.__version__, "machine": describe_machine(), "programs": {}}
    print(f"jax {jax.__version__}, python {sys.version.split()[0]}")
    measured, worst_hit, worst_miss = told["programs"], 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        identifier = identifier_in(Path(folder) / "identity")
        (Path(folder) / "identity").mkdir()
        programs = subjects(arguments.quick)
        for subject in programs:
            measured[subject.name] = {"operations": subject.operations, **keys(subject, identifier)}
        tell_keys(measured)
        print(f"\n{'':<20} {'hit':>10} {'explained':>10}   {'what explaining adds':<24} (medians, ms)")
        for number, subject in enumerate(programs):
            row = hits(subject, identifier, Path(folder) / f"hit-{number}")
            measured[subject.name]["hit"] = row
            worst_hit = max(worst_hit, row["added"] * 1e3)
            cells = f"{row['without'] * 1e3:>10.2f} {row['with'] * 1e3:>10.2f}"
            print(f"{subject.name:<20} {cells}   {verdict(row['added'] * 1e3, HIT_BOUND_MS)}", flush=True)
        print(f"\n{'':<20} {'remembered':>10}   what explaining adds to a miss (median)")
        for number, subject in enumerate(programs):
            for remembered in REMEMBERED:
                seconds = misses(subject, identifier, Path(folder) / f"miss-{number}-{remembered}", remembered)
                measured[subject.name][f"miss among {remembered}"] = seconds
                worst_miss = max(worst_miss, seconds * 1e3)
                print(f"{subject.name:<20} {remembered:>10,}   {verdict(seconds * 1e3, MISS_BOUND_MS)}", flush=True)
    holds = worst_hit <= HIT_BOUND_MS and worst_miss <= MISS_BOUND_MS
    bounds = f"at most {HIT_BOUND_MS:.0f} ms on a hit, {MISS_BOUND_MS:.0f} ms on a miss"
    print(f"\n{bounds}: {'holds' if holds else 'DOES NOT HOLD'}")
    if arguments.json:
        arguments.json.write_text(json.dumps(told, indent=2))
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
