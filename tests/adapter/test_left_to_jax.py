"""Where rewarm cannot or should not serve a call, JAX's own code runs and one log line says so."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import Program, clean_environment, entries

pytestmark = pytest.mark.contract

COMPILE = """
    import sys, jax, numpy as np
    {before}
    import rewarm
    rewarm.enable(sys.argv[1])
    {after}
    for number in (1, 2):
        print(np.asarray(jax.jit(lambda x: x * number)(np.ones(3, np.float32))).sum())
"""


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (
            """
    from jax._src import compiler
    real = compiler.compile_or_get_cached
    compiler.compile_or_get_cached = lambda backend, module, *rest, **more: real(backend, module, *rest, **more)
            """,
            "takes (backend, module, rest, more)",
        ),
        ("from jax._src import compiler; del compiler.backend_compile_and_load", "AttributeError"),
        ("from jax._src import config; del config.explain_cache_misses", "AttributeError"),
    ],
    ids=["another signature", "a helper is gone", "an option is gone"],
)
def test_an_unknown_jax_runs_as_without_rewarm(program: Program, cache: Path, before: str, words: str) -> None:
    after = "" if "signature" in words or "takes" in words else "raise SystemExit(0)"
    run = program(COMPILE.format(before=before.strip(), after=after), str(cache))
    assert len(run.warnings()) == 1
    assert "the compile step is not where rewarm knows it (supported: 0.9 to 0.12)" in run.warnings()[0]
    assert words in run.warnings()[0]
    assert run.out == ("3.0\n6.0\n" if not after else "")
    assert not cache.exists()
    strict = program(COMPILE.format(before=before.strip(), after=""), str(cache), ok=False, REWARM_STRICT="1")
    assert "UnsupportedJaxError" in strict.err


@pytest.mark.parametrize(
    "after",
    [
        'jax.config.update("jax_enable_pgle", True)',
        'jax.config.update("jax_compilation_cache_expect_pgle", True)',
    ],
)
def test_profile_guided_compilation(program: Program, cache: Path, after: str) -> None:
    run = program(COMPILE.format(before="", after=after), str(cache))
    assert run.out == "3.0\n6.0\n"
    assert [line for line in run.warnings() if "rewarm" in line or "left to" in line] == [
        "rewarm: left to JAX's own code: profile-guided compilation is on"
    ]
    assert run.stats["left_to_jax"] == {"profile-guided compilation is on": 2}
    assert run.stats["requests"] == 0


def test_a_fault_of_rewarms_own_while_the_cache_is_opened(program: Program, cache: Path) -> None:
    before = "import rewarm.jax_adapter.session as session; session.LoadCosts = None"
    done = program(COMPILE.format(before=before, after=""), str(cache))
    assert done.out.split() == ["3.0", "6.0"]
    assert sum("the cache cannot be opened: TypeError" in line for line in done.warnings()) == 1
    strict = program(COMPILE.format(before=before, after=""), str(cache), REWARM_STRICT="1", ok=False)
    assert "TypeError" in strict.err


def test_described_devices(program: Program, cache: Path) -> None:
    source = """
        import sys, jax, numpy as np, rewarm
        from jax._src.lib import xla_client
        rewarm.enable(sys.argv[1])
        topology = xla_client.get_topology_for_devices(jax.devices())
        device = topology._make_compile_only_devices()[0]
        sharding = jax.sharding.SingleDeviceSharding(device)
        shape = jax.ShapeDtypeStruct((3,), np.float32, sharding=sharding)
        try:
            jax.jit(lambda x: x * 2).lower(shape).compile()
        except Exception as error:  # 0.9 has no compiler for described CPUs
            assert "No compiler factory" in str(error), error
        print(rewarm.stats().left_to_jax)
    """
    run = program(source, str(cache))
    assert "the devices are only described, not attached" in run.out
    assert entries(cache) == []


RANK = """
import sys, jax, numpy as np
rank, port = int(sys.argv[1]), sys.argv[2]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=rank)
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("d",))
x = jax.make_array_from_callback((4,), NamedSharding(mesh, P("d")), lambda i: np.arange(4, dtype=np.float32)[i])
shared = jax.jit(lambda x: (x * x).sum(), out_shardings=NamedSharding(mesh, P()))
total = shared(x)
local = jax.jit(lambda y: y * 3)(np.ones(2, np.float32))
import json, rewarm
keys = [rewarm.key_of(shared, x), rewarm.key_of(jax.jit(lambda y: y * 3), np.ones(2, np.float32))]
print(json.dumps([float(total), float(np.asarray(local).sum()), rewarm.stats().hits, rewarm.stats().misses, keys]))
"""


def two_ranks(script: Path, cache: Path) -> list[list[Any]]:
    """What both ranks of a real job on loopback print."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), port],
            env=clean_environment(REWARM_DIR=str(cache)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        done = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    import json

    for out, err in done:
        assert out, err[-3000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in done]


def test_two_processes_share_a_directory(tmp_path: Path, cache: Path) -> None:
    """A program of two CPU processes: right results cold and warm, and the warm job compiles nothing on either rank."""
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    cold, warm = two_ranks(script, cache), two_ranks(script, cache)
    assert [row[:2] for row in cold] == [row[:2] for row in warm] == [[14.0, 6.0]] * 2
    assert [row[3] for row in warm] == [0, 0]
    assert all(row[2] > 0 for row in warm)
    assert cold[0][4] == cold[1][4] == warm[0][4], "every rank of a program has one key, and of a local one too"
    assert len(set(cold[0][4])) == 2
