"""Hits that are compiled again: no drift is found where there is none, each seeded one is found, told and replaced,
and nothing of it is felt by the program."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import struct
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Run, clean_environment, entries, execute
from rewarm.envelope import open_entry, seal
from rewarm.jax_adapter import likeness, rehearsal
from rewarm.jax_adapter.executables import object_files

_HERE = Path(__file__).parent
_EXAMPLES = _HERE.parent.parent / "examples"

Program = Callable[..., Run]


@pytest.fixture
def sampling(tmp_path: Path, cache: Path) -> Program:
    """Runs Python source in a fresh process, with `sampled` to import and the cache in place."""
    count = 0

    def run(source: str, *argv: str, ok: bool = True, **env: str) -> Run:
        nonlocal count
        count += 1
        path = tmp_path / f"program_{count}.py"
        path.write_text(textwrap.dedent(source))
        done = execute([sys.executable, str(path), *argv], env=environment(cache, **env), cwd=tmp_path)
        if ok:
            assert done.code == 0, done.err[-4000:]
        return done

    return run


def environment(cache: Path, **env: str) -> dict[str, str]:
    return clean_environment(
        REWARM_DIR=str(cache), REWARM_STATS="json", PYTHONPATH=f"{_HERE}{os.pathsep}{_EXAMPLES}", **env
    )


def drifts(run: Run) -> list[str]:
    return [line for line in run.err.splitlines() if line.startswith("rewarm: drift:")]


def unchecked(run: Run) -> list[str]:
    return [line for line in run.err.splitlines() if "is not checked" in line]


# ---------------------------------------------------------------------------------------------------------------
# No false drift


@pytest.mark.contract
@pytest.mark.campaign
def test_many_programs_under_other_names_are_the_same(sampling: Program, cache: Path) -> None:
    runs = [
        execute([sys.executable, str(_HERE / "sampled_programs.py"), name], env=environment(cache), cwd=cache.parent)
        for name in ("first", "second")
    ]
    for run in runs:
        assert run.code == 0, run.err[-4000:]
        assert drifts(run) == []
        assert unchecked(run) == []
    numbers = runs[1].json
    assert runs[1].stats["misses"] == 0
    assert numbers["checked"] >= 32
    assert (numbers["drifted"], numbers["skipped"]) == (0, 0)


@pytest.mark.contract
@pytest.mark.campaign
def test_every_kind_of_program_is_the_same(sampling: Program) -> None:
    source = """
        import kinds, sampled
        sampled.on()
        for name, kind in kinds.KINDS.items():
            kind()
        sampled.done()
    """
    sampling(source)
    warm = sampling(source)
    assert drifts(warm) == []
    assert unchecked(warm) == []
    assert warm.json["checked"] >= 25


@pytest.mark.skipif(importlib.util.find_spec("flax") is None, reason="flax is not installed")
def test_a_transformer_is_the_same(sampling: Program) -> None:
    source = """
        import sampled
        sampled.on()
        import transformer
        transformer.train(transformer.Config(layers=2, width=32, heads=2, context=16, batch=2, steps=2))
        sampled.done()
    """
    sampling(source)
    warm = sampling(source)
    assert drifts(warm) == []
    assert warm.json["checked"] >= 3


# ---------------------------------------------------------------------------------------------------------------
# Seeded drifts

TWO = """
    import jax, numpy as np, sampled
    sampled.on({on})
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    def wanted(x): return {wanted}
    def foreign(x): return {foreign}
    print(float(np.asarray(jax.jit(wanted)(x)).sum()))
    if {both}:
        jax.jit(foreign)(x)
    sampled.done()
"""


def by_program(cache: Path) -> dict[str, Path]:
    return {open_entry(path.read_bytes(), path.name).header.program: path for path in entries(cache)}


def reseal(path: Path, executable: bytes) -> None:
    """Put another executable under the same key, in an entry that is sound."""
    entry = open_entry(path.read_bytes(), path.name)
    sections = {section.name: entry.section(section.name) for section in entry.header.sections}
    path.write_bytes(seal(entry.header, {**sections, "executable": executable}))


def executable_of(path: Path) -> bytes:
    return open_entry(path.read_bytes(), path.name).section("executable")


FOREIGN = {
    "a constant": ("x * 2 + 1", "x * 3 + 1", "constant(2)"),
    "an operation": ("x * 2 + 1", "x * 2 - 1", "compiled `"),
    "a large constant": (
        "x @ np.arange(400, dtype=np.float32).reshape(4, 100)",
        "x @ np.arange(1, 401, dtype=np.float32).reshape(4, 100)",
        "the values of a constant",
    ),
    "the order": ("(x - 1) * 2", "(x * 2) - 1", "compiled `"),
}


@pytest.mark.contract
@pytest.mark.parametrize("kind", FOREIGN)
def test_another_programs_executable_is_found_told_and_replaced(sampling: Program, cache: Path, kind: str) -> None:
    wanted, foreign, told = FOREIGN[kind]
    source = functools.partial(TWO.format, on="", wanted=wanted, foreign=foreign)
    right = sampling(source(both=True)).out.splitlines()[0]
    paths = by_program(cache)
    key = paths["jit_wanted"].name
    reseal(paths["jit_wanted"], executable_of(paths["jit_foreign"]))
    before = open_entry(paths["jit_wanted"].read_bytes(), key)

    hurt = sampling(source(both=False))
    assert hurt.out.splitlines()[0] != right
    assert hurt.json == {"checked": 1, "drifted": 1, "skipped": 0}
    (line,) = drifts(hurt)
    assert "jit_wanted" in line
    assert key[:12] in line
    assert told in line
    assert "the entry is replaced" in line

    after = open_entry(paths["jit_wanted"].read_bytes(), key)
    assert after.header.created > before.header.created
    assert after.header.components == before.header.components
    for section in ("program", "source", "components"):
        assert after.section(section) == before.section(section)

    healed = sampling(source(both=False))
    assert healed.out.splitlines()[0] == right
    assert healed.json == {"checked": 1, "drifted": 0, "skipped": 0}
    assert drifts(healed) == []


@pytest.mark.contract
def test_changed_machine_code_is_found_by_its_results(sampling: Program, cache: Path) -> None:
    source = TWO.format(on="", wanted="(x * 1234.5 - x) @ x", foreign="x", both=False)
    right = sampling(source).out.splitlines()[0]
    (path,) = by_program(cache).values()
    raw = executable_of(path)
    one, other = struct.pack("<f", 1234.5), struct.pack("<f", 1234.75)
    code = [found for found in object_files(raw) if one in found]
    assert code
    for found in code:
        raw = raw.replace(found, found.replace(one, other))
    reseal(path, raw)

    hurt = sampling(source)
    assert hurt.out.splitlines()[0] != right
    (line,) = drifts(hurt)
    assert "result 0 on made-up inputs" in line
    healed = sampling(source)
    assert (healed.out.splitlines()[0], drifts(healed)) == (right, [])


def test_where_nothing_can_be_written_the_entry_stays(sampling: Program, cache: Path) -> None:
    source = functools.partial(TWO.format, wanted="x * 2", foreign="x * 3")
    sampling(source(on="", both=True))
    paths = by_program(cache)
    reseal(paths["jit_wanted"], executable_of(paths["jit_foreign"]))
    before = paths["jit_wanted"].read_bytes()
    (line,) = drifts(sampling(source(on="writable=False", both=False)))
    assert "the entry stays" in line
    assert paths["jit_wanted"].read_bytes() == before


# ---------------------------------------------------------------------------------------------------------------
# The program feels nothing

DEEP = """
    import jax, jax.numpy as jnp, numpy as np, sampled, time
    sampled.on()
    def deep(x):
        for step in range(120):
            x = jnp.tanh(x @ x) * step + jnp.where(x > 0, x, jax.nn.relu(x)).sum(0)
        return x
    x = np.ones((8, 8), np.float32)
    {before}
    since = time.perf_counter()
    jax.jit(deep)(x).block_until_ready()
    print(time.perf_counter() - since)
    {after}
"""


@pytest.mark.contract
def test_a_process_that_ends_meanwhile_waits_for_the_compile_and_starts_no_other(sampling: Program) -> None:
    others = "for number in range(3): jax.jit(lambda x, number=number: x + number)(x)"
    sampling(DEEP.format(before="", after=others))
    ended = sampling(DEEP.format(before="", after=others))
    (line,) = [line for line in ended.err.splitlines() if "sampled hits" in line]
    assert line == "rewarm: verify_sample: of 4 sampled hits 1 were compiled again and compared, 0 of them differed"


@pytest.mark.contract
def test_a_failing_program_keeps_its_exit_code(sampling: Program) -> None:
    sampling(DEEP.format(before="", after=""))
    failed = sampling(DEEP.format(before="", after="raise SystemExit(3)"), ok=False)
    assert failed.code == 3


def test_a_bounded_number_waits(sampling: Program) -> None:
    source = """
        import jax, jax.numpy as jnp, numpy as np, sampled
        from rewarm.jax_adapter import sampling
        sampled.on()
        sampling.MOST_WAITING = 3
        x = np.ones((8, 8), np.float32)
        def deep(x):
            for step in range(60):
                x = jnp.tanh(x @ x) * step
            return x
        jax.jit(deep)(x)
        for number in range(8):
            jax.jit(lambda x, number=number: x + number)(x)
        sampled.done()
    """
    sampling(source)
    warm = sampling(source)
    assert sum(warm.json.values()) == 9
    assert 1 <= warm.json["skipped"] <= 5 + 1
    assert warm.json["drifted"] == 0


def test_a_share_of_the_hits_is_checked(sampling: Program) -> None:
    source = """
        import jax, numpy as np, sampled
        sampled.on(0.3)
        x = np.ones(3, np.float32)
        for number in range(40):
            jax.jit(lambda x, number=number: x + number)(x)
        sampled.done()
    """
    sampling(source)
    assert 4 <= sum(sampling(source).json.values()) <= 20


def test_a_hit_that_is_not_sampled_costs_nothing() -> None:
    from rewarm.jax_adapter.sampling import Checks, Numbers, Sampling

    checks = Checks()
    sampler = Sampling(1e-9, checks, None)
    request: Any = None  # never looked at
    took = []
    for _ in range(5):
        import time

        since = time.perf_counter()
        for _ in range(1000):
            sampler.hit(request, "", b"", None)
        took.append((time.perf_counter() - since) / 1000)
    assert min(took) < 5e-6
    assert checks.numbers == Numbers()


FORKS = """
    import os, sys
    import jax, numpy as np, sampled, rewarm
    sampled.on()
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    def work():
        return float(np.asarray(jax.jit(lambda x: x @ x + 1)(x)).sum())
    {before}
    child = os.fork()
    if child == 0:
        work()
        sampled.done()
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    work()
    sampled.done()
    sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_a_child_has_a_thread_of_its_own(sampling: Program) -> None:
    source = FORKS.format(before="")
    sampling(source)
    child, parent = (json.loads(line) for line in sampling(source).out.splitlines())
    assert child == parent == {"checked": 1, "drifted": 0, "skipped": 0}


def test_a_child_of_a_process_with_clients_checks_nothing(sampling: Program) -> None:
    source = """
        import os, sys
        import jax, numpy as np, sampled
        sampled.on()
        x = np.ones(3, np.float32)
        jax.jit(lambda x: x + 1)(x)
        assert sampled.CHECKS.wait(60)
        child = os.fork()
        if child == 0:
            os._exit(0 if not sampled.CHECKS.has_room() and not any(sampled.CHECKS.numbers) else 5)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    sampling(source)
    sampling(source)


# ---------------------------------------------------------------------------------------------------------------
# What is run, and what is not


@pytest.mark.contract
def test_programs_are_run_only_where_that_is_safe(sampling: Program) -> None:
    source = """
        import os
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
        import json, jax, jax.numpy as jnp, numpy as np, rewarm
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        from rewarm.jax_adapter import rehearsal, seam
        calls = []
        real = seam.compile_now
        def compile_now(call):
            calls.append((call, real(call)))
            return calls[-1][1]
        seam.compile_now = compile_now
        x = np.ones((8, 8), np.float32)
        two = jax.device_put(x, NamedSharding(Mesh(np.array(jax.devices()), ("d",)), P("d")))
        def forever(x):
            return jax.lax.while_loop(lambda c: c.sum() > -1e9, lambda c: c + 1, x)
        def printing(x):
            jax.debug.print("{}", x[0, 0])
            return x + 1
        def long(x):
            return jax.lax.fori_loop(0, 10**8, lambda i, c: jnp.tanh(c @ c), x)
        def counted(x):
            return jax.lax.fori_loop(0, 10, lambda i, c: jnp.tanh(c @ c), x)
        programs = {
            "plain": (lambda x: x @ x, x), "counted": (counted, x), "two devices": (lambda x: x + 2, two),
            "for ever": (forever, x), "prints": (printing, x), "long": (long, x),
            "large": (lambda x: x + 3, np.ones((5000, 5000), np.float32)),
        }
        told = {}
        for name, (function, value) in programs.items():
            jax.jit(function).lower(value).compile()
            call, executable = calls[-1]
            try:
                told[name] = rehearsal.difference(call, executable, executable) or "the same"
            except rehearsal.NotRun as reason:
                told[name] = str(reason)
        print(json.dumps(told))
    """
    assert sampling(source).json == {
        "plain": "the same",
        "counted": "the same",
        "two devices": "it is a program of several devices",
        "for ever": "it has a loop whose number of steps is not known",
        "prints": "it calls the host",
        "long": "it would take long",
        "large": "it needs 190 MiB, 95 of them inputs",
    }


MODULE = """HloModule jit_f, entry_computation_layout={(f32[4]{0}, /*index=5*/s4[2,3]{1,0:E(4)}, pred[])->f32[4]{0}}

%region_0.1 {
  %p.1 = f32[4]{0} parameter(0)
  ROOT %add.2 = f32[4]{0} add(%p.1, %p.1)
}

ENTRY %main.3 {
  %x.1 = f32[4]{0} parameter(0)
  ROOT %while.4 = f32[4]{0} while(%x.1), condition=%c, body=%region_0.1, backend_config={"known_trip_count":{"n":"7"}}
}
"""


def test_names_do_not_count_and_everything_else_does() -> None:
    renamed = MODULE.replace("jit_f", "jit_g").replace("%add.2", "%plus").replace("region_0.1", "body")
    assert likeness.plain(MODULE) == likeness.plain(renamed)
    for change in (("add(", "subtract("), ("%p.1, %p.1)", "%p.1, %x.1)"), ('"n":"7"', '"n":"8"'), ("f32[4]", "f16[4]")):
        assert likeness.plain(MODULE) != likeness.plain(MODULE.replace(*change, 1))


def test_inputs_are_read_from_the_program() -> None:
    assert [tuple(one) for one in rehearsal._declared(MODULE)] == [("f32", (4,)), ("s4", (2, 3)), ("pred", ())]
    with pytest.raises(rehearsal.NotRun, match="layout"):
        rehearsal._declared(MODULE.replace("{1,0:E(4)}", "{0,1:E(4)}"))
    assert rehearsal._deepest(MODULE) == 8
    with pytest.raises(rehearsal.NotRun, match="not known"):
        rehearsal._deepest(MODULE.replace("known_trip_count", "unknown"))


@pytest.mark.parametrize("kind", ["f32", "bf16", "f8e4m3fn", "s4", "u8", "pred", "c64", "f64", "s2"])
def test_inputs_are_not_all_zero_and_repeat(kind: str) -> None:
    parameters = [rehearsal.Parameter(kind, (5, 7))]
    (one,), (again,) = rehearsal._inputs(parameters), rehearsal._inputs(parameters)
    assert one.tobytes() == again.tobytes()
    assert len({bytes(value.tobytes()) for value in one.ravel()}) > 1


def test_results_are_compared_bit_by_bit_and_nan_is_nan() -> None:
    import ml_dtypes
    import numpy as np

    nan, other_nan = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32).reshape(2, 1)
    assert rehearsal._same_bits(nan, other_nan)
    assert not rehearsal._same_bits(np.float32([0.0]), np.float32([-0.0]))
    assert not rehearsal._same_bits(np.float32([np.nan, 1]), np.float32([np.nan, 2]))
    assert not rehearsal._same_bits(np.int32([1]), np.int32([2]))
    half = np.array([np.nan, 1], ml_dtypes.bfloat16)
    assert rehearsal._same_bits(half, half.copy())
    assert rehearsal._same_bits(np.complex64([nan[0] + 1j]), np.complex64([other_nan[0] + 1j]))
