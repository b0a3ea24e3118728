"""What must hit and what must miss, with real programs in fresh processes."""

from __future__ import annotations

import os
import shutil
import textwrap
from pathlib import Path

import pytest

from conftest import Program, entries

pytestmark = pytest.mark.contract

PROGRAM = """
    import jax, numpy as np
    jax.jit(lambda x: x @ x + {number})(np.ones((4, 4), np.float32))
"""


def outcomes(program: Program, source: str = PROGRAM.format(number=1), cwd: Path | None = None, **env: str) -> str:
    """How many hits and misses one fresh process had: "1 0" is all warm."""
    place = {} if cwd is None else {"cwd": cwd}
    numbers = program(source, **place, **env).stats  # type: ignore[arg-type]
    return f"{numbers['hits']} {numbers['misses']}"


def test_moving_copying_or_spelling_the_directory_otherwise_keeps_every_hit(
    program: Program, tmp_path: Path, cache: Path
) -> None:
    native = {"REWARM": "1", "JAX_COMPILATION_CACHE_DIR": str(cache)}
    assert outcomes(program, **native) == "0 1"
    shutil.copytree(cache, tmp_path / "copy")
    cache.rename(tmp_path / "moved")
    for where in (tmp_path / "copy", tmp_path / "moved", Path("moved"), Path("./copy/../moved")):
        assert outcomes(program, cwd=tmp_path, REWARM="1", JAX_COMPILATION_CACHE_DIR=str(where)) == "1 0"
    assert outcomes(program, cwd=tmp_path, REWARM_DIR="moved/rewarm") == "1 0"


def test_a_changed_program_misses(program: Program, cache: Path) -> None:
    assert outcomes(program, REWARM_DIR=str(cache)) == "0 1"
    assert outcomes(program, PROGRAM.format(number=2), REWARM_DIR=str(cache)) == "0 1"
    assert outcomes(program, PROGRAM.replace("4, 4", "5, 5").format(number=1), REWARM_DIR=str(cache)) == "0 1"
    assert outcomes(program, "\n\n\n" + PROGRAM.format(number=1), REWARM_DIR=str(cache)) == "1 0"


def test_options_that_count_and_options_that_do_not(program: Program, cache: Path) -> None:
    on = {"REWARM_DIR": str(cache)}
    assert outcomes(program, **on) == "0 1"
    assert outcomes(program, XLA_FLAGS="--xla_cpu_enable_fast_math=true", **on) == "0 1"
    assert outcomes(program, XLA_FLAGS="--xla_dump_max_hlo_modules=3 --xla_hlo_graph_addresses=true", **on) == "1 0"
    assert outcomes(program, XLA_FLAGS="--xla_gpu_kernel_cache_file=/tmp/other", **on) == "1 0"
    assert outcomes(program, PYTHONHASHSEED="7", **on) == "1 0"


def test_content_of_a_file_that_an_option_names_counts(program: Program, tmp_path: Path, cache: Path) -> None:
    one, same, other = (tmp_path / name for name in ("one.txt", "same.txt", "other.txt"))
    for path, text in ((one, "a"), (same, "a"), (other, "b")):
        path.write_text(text)
    flag = "--xla_gpu_experimental_matmul_perf_table_path="
    assert outcomes(program, REWARM_DIR=str(cache), XLA_FLAGS=f"{flag}{one}") == "0 1"
    assert outcomes(program, REWARM_DIR=str(cache), XLA_FLAGS=f"{flag}{same}") == "1 0"
    assert outcomes(program, REWARM_DIR=str(cache), XLA_FLAGS=f"{flag}{other}") == "0 1"
    one.write_text("b")
    assert outcomes(program, REWARM_DIR=str(cache), XLA_FLAGS=f"{flag}{one}") == "1 0"


def test_a_program_that_dumps_is_compiled_and_not_stored(program: Program, tmp_path: Path, cache: Path) -> None:
    outcomes(program, REWARM_DIR=str(cache))
    dump = tmp_path / "dump"
    run = program(PROGRAM.format(number=1), REWARM_DIR=str(cache), XLA_FLAGS=f"--xla_dump_to={dump}")
    assert run.stats["not_stored"] == {"the options ask the compiler to write: xla_dump_to": 1}
    assert list(dump.iterdir())
    assert len(entries(cache)) == 1


def test_fuel_has_no_key(program: Program, cache: Path) -> None:
    run = program(PROGRAM.format(number=1), REWARM_DIR=str(cache), XLA_FLAGS="--xla_fuel=fusion=10")
    assert [reason.split(",")[0] for reason in run.stats["not_stored"]] == ["XLA_FLAGS has --xla_fuel"]


def test_fuel_in_a_file_of_flags_or_gone_from_the_environment_has_no_key(
    program: Program, tmp_path: Path, cache: Path
) -> None:
    flags = tmp_path / "flags.txt"
    flags.write_text("--xla_fuel=fusion=10\n")
    forgets = "import os, jax, rewarm\njax.devices()\n{then}\n" + textwrap.dedent(PROGRAM.format(number=1))
    for then, given in (("", str(flags)), ("jax.jit(abs)(1.0); del os.environ['XLA_FLAGS']", "--xla_fuel=fusion=1000")):
        run = program(forgets.format(then=then), REWARM_DIR=str(cache), XLA_FLAGS=given)
        assert run.stats["stored"] == 0
        assert {reason.split(",")[0] for reason in run.stats["not_stored"]} == {"XLA_FLAGS has --xla_fuel"}


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs a choice of processors")
def test_how_many_threads_xla_divides_work_among_counts(program: Program, cache: Path) -> None:
    """gammaln over a million numbers, compiled for one thread and for two, differs in its last bits (0.9 to 0.11)."""
    source = """
        import os, sys
        if sys.argv[1]:
            os.sched_setaffinity(0, {int(sys.argv[1])})
        import hashlib, jax, numpy as np
        x = (np.random.RandomState(0).randn(1, 1234567) * 3).astype(np.float32)
        print(hashlib.md5(np.asarray(jax.jit(jax.scipy.special.gammaln)(x)).tobytes()).hexdigest())
    """
    one = str(min(os.sched_getaffinity(0)))
    many = len(os.sched_getaffinity(0))
    plain = {argument: program(source, argument, REWARM_STATS="0").out for argument in (one, "")}
    assert program(source, one, REWARM_DIR=str(cache)).out == plain[one]
    other = program(source, "", REWARM_DIR=str(cache))
    assert other.out == plain[""]
    assert other.stats["hits"] == (0 if many > 1 else 1)
    named = program(source, "", REWARM_DIR=str(cache), NPROC=str(many))
    assert (named.out, named.stats["misses"]) == (plain[""], 0)
    assert program(source, "", REWARM_DIR=str(cache), NPROC="16").stats["hits"] == 0


CUSTOM = """
    import os
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import jax, jax.numpy as jnp, numpy as np
    from jax.experimental.custom_partitioning import custom_partitioning
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    @custom_partitioning
    def scale(x):
        return x * 2

    def partition(mesh, arg_shapes, result_shape):
        def lowered(x):
            return x * {number}
        return mesh, lowered, arg_shapes[0].sharding, (arg_shapes[0].sharding,)

    scale.def_partition(partition=partition, infer_sharding_from_operands=lambda m, a, r: a[0].sharding,
                        sharding_rule="i -> i")
    mesh = Mesh(np.array(jax.devices()), ("d",))
    x = jax.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("d")))
    print(np.asarray(jax.jit(scale)(x)).sum())
"""


def test_an_edited_partitioning_body_is_never_served_stale(program: Program, cache: Path) -> None:
    for number, total, hits in ((2, "56.0", 0), (3, "84.0", 0), (3, "84.0", 1), (2, "56.0", 1)):
        run = program(CUSTOM.format(number=number), REWARM_DIR=str(cache))
        assert run.out.strip() == total
        assert (run.stats["hits"], run.stats["not_stored"]) == (hits, {})


def test_inspecting_a_sharding_always_calls_the_program(program: Program, cache: Path) -> None:
    source = """
        import jax, numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        def look(x):
            jax.debug.inspect_array_sharding(x, callback=lambda s: print("looked"))
            return x + 1
        x = jax.device_put(np.ones(4), NamedSharding(Mesh(np.array(jax.devices()), ("d",)), P("d")))
        jax.jit(look)(x)
        try:
            import rewarm
            rewarm.key_of(jax.jit(look), x)
        except rewarm.NotCacheableError as error:
            assert "inspect_array_sharding" in str(error)
        else:
            raise SystemExit("a key where there is none")
    """
    for _ in range(2):
        run = program(source, REWARM_DIR=str(cache), XLA_FLAGS="--xla_force_host_platform_device_count=2")
        assert run.out == "looked\n"
        assert run.stats["not_stored"] == {"inspect_array_sharding": 1}


KEYS = """
    import sys, jax, numpy as np, rewarm
    f = jax.jit(lambda x, scale=1: x * scale, static_argnames="scale")
    x = np.ones((3, 3), np.float32)
    before = rewarm.key_of(f, x, scale=4)
    assert rewarm.stats().requests == 0 and rewarm.events() == []
    rewarm.enable(sys.argv[1])
    assert rewarm.key_of(f, x, scale=4) == before
    f(x, scale=4)
    assert rewarm.events()[-1].key == before
    assert rewarm.key_of(f, x, scale=4) == before, "after JAX has it in memory"
    assert rewarm.key_of(f, jax.ShapeDtypeStruct((3, 3), np.float32), scale=4) == before
    assert rewarm.key_of(f, x, scale=5) != before
    assert rewarm.stats().requests == 1
    f(x, scale=4)
    print(before)
    for wrong in (lambda x: x, 3):
        try:
            rewarm.key_of(wrong, x)
        except TypeError as error:
            assert "expected a jitted function" in str(error)
"""


def test_key_of_is_the_key_of_the_event_and_compiles_nothing(program: Program, cache: Path) -> None:
    run = program(KEYS, str(cache))
    assert entries(cache)[0].name == run.out.strip()


def test_key_of_while_off_leaves_jax_and_the_disk_alone(program: Program, tmp_path: Path) -> None:
    source = """
        import jax, numpy as np, rewarm
        from jax._src import compiler
        before = compiler.compile_or_get_cached
        rewarm.key_of(jax.jit(lambda x: x + 1), np.ones(3))
        assert compiler.compile_or_get_cached is before
    """
    program(source, XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert not (tmp_path / "xdg").exists()


def test_key_of_with_the_cache_switched_off_in_jax_says_so(program: Program) -> None:
    source = """
        import jax, numpy as np, rewarm
        try:
            rewarm.key_of(jax.jit(lambda x: x + 1), np.ones(3))
        except rewarm.NotCacheableError as error:
            print(error)
    """
    assert "jax_enable_compilation_cache is off" in program(source, JAX_ENABLE_COMPILATION_CACHE="0").out


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs the list of mapped libraries")
def test_the_toolchain_names_the_mapped_compiler(program: Program, cache: Path) -> None:
    """The library that the key identifies is the one that this process runs, and its digest is that of the file."""
    source = """
        import hashlib, json, sys, jax, numpy as np
        from pathlib import Path
        jax.jit(lambda x: x + 1)(np.ones(3))
        from rewarm.envelope import read_header
        path = next(p for p in Path(sys.argv[1]).glob("??/*") if len(p.name) == 64)
        rows = {row["name"]: row.get("value") for row in read_header(path.read_bytes()).components}
        maps = Path("/proc/self/maps").read_text()
        lines = {line.split()[-1] for line in maps.splitlines() if "/jaxlib/libjax_common" in line}
        assert len(lines) == 1, lines
        mapped = Path(lines.pop())
        digest = hashlib.sha256(mapped.read_bytes()).hexdigest()
        assert rows["toolchain"]["jaxlib/libjax_common.so"] == digest, rows["toolchain"]
    """
    program(source, str(cache), REWARM_DIR=str(cache))


def test_a_rebuilt_library_with_the_same_version_misses(program: Program, tmp_path: Path, cache: Path) -> None:
    """A copy of jaxlib with one byte more at its end: the same version string, another content."""
    import jaxlib

    site = tmp_path / "site"
    source_site = Path(jaxlib.__file__).parent.parent
    shutil.copytree(source_site / "jaxlib", site / "jaxlib", symlinks=True)
    for info in source_site.glob("jaxlib-*.dist-info"):
        shutil.copytree(info, site / info.name)
    assert outcomes(program, REWARM_DIR=str(cache)) == "0 1"
    assert outcomes(program, REWARM_DIR=str(cache), PYTHONPATH=str(site)) == "1 0"
    library = site / "jaxlib" / "libjax_common.so"
    before = library.stat()
    with library.open("ab") as file:
        file.write(b"\0")
    os.utime(library, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert outcomes(program, REWARM_DIR=str(cache), PYTHONPATH=str(site)) == "0 1"
