"""Programs that call functions by name: LAPACK, and functions of the user's own, in processes that have them or not."""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import pytest

from conftest import Program, Run, entries

pytestmark = pytest.mark.contract

IS_0_9 = jax.__version__.startswith("0.9.")

SOURCE = """
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
static ffi::Error Add(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = x.typed_data()[i] + AMOUNT;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    Typed, Add, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
extern "C" void Untyped(void* out, void** in) {
  for (int i = 0; i < 4; ++i) static_cast<float*>(out)[i] = static_cast<const float*>(in[0])[i] + AMOUNT;
}
"""

CALLS = """
    import ctypes, sys, jax, numpy as np
    library, kind, register = sys.argv[1:]
    functions = ctypes.cdll.LoadLibrary(library)
    if register == "register":
        function, version = (functions.Typed, 1) if kind == "typed" else (functions.Untyped, 0)
        jax.ffi.register_ffi_target("adds", jax.ffi.pycapsule(function), platform="cpu", api_version=version)
    more = {} if kind == "typed" else {"custom_call_api_version": 2, "legacy_backend_config": ""}
    x = np.arange(4, dtype=np.float32)
    call = jax.ffi.ffi_call("adds", jax.ShapeDtypeStruct(x.shape, x.dtype), **more)
    print(np.asarray(jax.jit(lambda x: call(x) * 2)(x)).sum())
"""

LAPACK = """
    import sys, jax, jax.numpy as jnp, jax.scipy.linalg as linalg, numpy as np
    programs = {
        "cholesky": jnp.linalg.cholesky,
        "qr": jnp.linalg.qr,
        "svd": jnp.linalg.svd,
        "eigh": jnp.linalg.eigh,
        "eig": jnp.linalg.eig,
        "solve": lambda a: jnp.linalg.solve(a, a[0]),
        "triangular": lambda a: linalg.solve_triangular(a, a[0]),
        "lu": linalg.lu,
        "schur": linalg.schur,
        "hessenberg": linalg.hessenberg,
    }
    x = np.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]], np.float32)
    for name, function in programs.items():
        found = jax.tree.leaves(jax.jit(function)(x))
        print(name, *(np.asarray(one).round(4).ravel().tolist() for one in found))
"""


@pytest.fixture
def program(program: Program) -> Program:
    """As everywhere, and entries are kept whatever they are worth: on a busy machine loads can outlast compiles."""
    return functools.partial(program, REWARM_MIN_COMPILE_SECONDS="0")


@functools.cache
def library(amount: int) -> Path:
    """A shared library whose functions add `amount`, compiled once for each JAX."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    text = f"#define AMOUNT {amount}.0f\n{SOURCE}"
    place = Path(tempfile.gettempdir()) / f"rewarm-ffi-{jax.__version__}-{hashlib.sha256(text.encode()).hexdigest()}"
    made = place / "functions.so"
    if not made.exists():
        place.mkdir(exist_ok=True)
        (place / "functions.cc").write_text(text)
        with tempfile.NamedTemporaryFile(dir=place, suffix=".so") as new:
            include = f"-I{jax.ffi.include_dir()}"
            command = [compiler, "-std=c++17", "-w", "-fPIC", "-shared", include, "functions.cc", "-o", new.name]
            subprocess.run(command, cwd=place, check=True, timeout=200)
            shutil.copy(new.name, made.with_suffix(".new"))
            made.with_suffix(".new").replace(made)
    return made


def test_lapack_is_right_from_the_cache(program: Program, cache: Path) -> None:
    cold = program(LAPACK, REWARM_DIR=str(cache))
    warm = program(LAPACK, REWARM_DIR=str(cache))
    assert warm.out == cold.out
    assert len(warm.out.splitlines()) == 10
    assert warm.stats["misses"] == 0
    assert warm.stats["hits"] >= 10


FROM_BYTES = """
    import sys, types, jax, numpy as np
    import rewarm.identity
    from pathlib import Path
    from rewarm.envelope import open_entry
    from rewarm.identity import Program
    from rewarm.jax_adapter import custom_calls
    from jax._src import compiler
    from jax._src.lib import xla_client

    path = Path(sys.argv[1])
    entry = open_entry(path.read_bytes(), path.name)
    if sys.argv[2] == "prepare":
        program = Program("", entry.section("program"), (), None, ("stablehlo.custom_call",))
        custom_calls.prepare("cpu", program)
    client = jax.devices()[0].client
    devices = xla_client.DeviceList(tuple(jax.devices()))
    loaded = client.deserialize_executable(entry.section("executable"), devices, compiler.get_compile_options(1, 1))
    print("loaded", flush=True)
    x = jax.device_put(np.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]], np.float32))
    (outs,) = zip(*loaded.execute_sharded([x]).disassemble_into_single_device_arrays())
    print(np.asarray(outs[0]).round(4).ravel().tolist())
"""


def test_lapack_in_a_process_that_never_lowered_it(program: Program, cache: Path) -> None:
    """Without being prepared the first run would end the process: that is what `prepare` is for."""
    cold = program(
        """
        import jax, jax.numpy as jnp, numpy as np
        x = np.array([[4, 1, 0], [1, 3, 1], [0, 1, 2]], np.float32)
        print(np.asarray(jax.jit(jnp.linalg.cholesky)(x)).round(4).ravel().tolist())
        """,
        REWARM_DIR=str(cache),
    )
    (path,) = entries(cache)
    prepared = program(FROM_BYTES, str(path), "prepare")
    assert prepared.out == f"loaded\n{cold.out}"
    bare = program(FROM_BYTES, str(path), "as it is", ok=False)
    assert (bare.code, bare.out) == (-11, "loaded\n")


def error_of(run: Run) -> str:
    """What the user's program got: the compiler's own words."""
    return next(line for line in reversed(run.err.splitlines()) if line.startswith("jax.errors"))


@pytest.mark.parametrize("kind", ["typed", "untyped"])
def test_a_function_that_is_not_registered_is_no_crash_and_the_entry_stays(
    program: Program, cache: Path, kind: str
) -> None:
    on = {"REWARM_DIR": str(cache)}
    arguments = (str(library(1)), kind)
    bare = program(CALLS, *arguments, "leave", ok=False)
    assert program(CALLS, *arguments, "register", **on).out == "20.0\n"
    left = program(CALLS, *arguments, "leave", ok=False, **on)
    assert (bare.code, left.code) == (1, 1)
    assert error_of(left) == error_of(bare)
    assert left.stats["quarantined"] == 0
    again = program(CALLS, *arguments, "register", **on)
    assert again.out == "20.0\n"
    assert not any("rewarm:" in line for line in again.warnings())
    if kind == "typed" or not IS_0_9:
        assert again.stats["hits"] == 1


@pytest.mark.parametrize("kind", ["typed", "untyped"])
def test_the_function_that_is_called_is_the_one_that_is_registered_now(
    program: Program, cache: Path, kind: str
) -> None:
    on = {"REWARM_DIR": str(cache)}
    assert program(CALLS, str(library(1)), kind, "register", **on).out == "20.0\n"
    rebuilt = program(CALLS, str(library(100)), kind, "register", **on)
    assert rebuilt.out == "812.0\n"


def test_untyped_functions_are_not_loaded_by_a_jax_that_calls_them_wrongly(program: Program, cache: Path) -> None:
    on = {"REWARM_DIR": str(cache)}
    runs = [program(CALLS, str(library(1)), "untyped", "register", **on) for _ in range(3)]
    assert [run.out for run in runs] == ["20.0\n"] * 3
    if IS_0_9:
        assert entries(cache) == []
        assert "registered without XLA's FFI" in " ".join(runs[2].stats["not_stored"])
    else:
        assert runs[2].stats["hits"] == 1


def test_a_program_without_calls_costs_nothing() -> None:
    from rewarm.identity import Program as Canonical
    from rewarm.jax_adapter import custom_calls

    plain = Canonical("", b"", (), None, ("func.func", "stablehlo.add"))
    assert custom_calls.obstacle("cpu", plain) is None
    custom_calls.prepare("cpu", plain)
    assert custom_calls.missing_target(ValueError("NOT_FOUND: something else")) is None
