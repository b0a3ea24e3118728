"""The canonical options against the jaxlib that is installed: what it writes, what it accepts, and what it acts on.

What XLA acts on is read out of the executable: on CPU its bytes hold the flags as they were after `compiler_options=`
were applied (SerializedXlaExecutable 1 > CompilationResultProto 1 > HloModuleProtoWithConfig 2 > config 14).

JAX keeps executables in memory by `compiler_options=`, where True, 1 and 1.0 are one key: without `clear_caches` a
value that XLA refuses looks accepted once an equal one was.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from wire_encoder import BUILD, DEBUG, counts, of

from conftest import Program
from rewarm.identity import CanonicalOptions, canonical_options, wire
from rewarm.identity.option_table import OptionField, enums, flags, message
from rewarm.identity.option_values import is_unset, read

pytestmark = [pytest.mark.contract, pytest.mark.filterwarnings("default")]

Compile = Callable[[dict[str, Any]], bytes]


@pytest.fixture
def real() -> Any:
    """Compile options of this jaxlib."""
    return pytest.importorskip("jax._src.lib").xla_client.CompileOptions()


@pytest.fixture(scope="module")
def acted_on() -> Compile:
    """The `DebugOptions` that XLA acts on under some `compiler_options=`, for a small program on CPU."""
    jax = pytest.importorskip("jax")
    numpy = pytest.importorskip("numpy")

    def run(options: dict[str, Any]) -> bytes:
        jax.clear_caches()
        compiled = jax.jit(lambda x: x + 1).lower(numpy.float32(1)).compile(compiler_options=options)
        serialized = compiled.runtime_executable().serialize()
        length, position = wire.varint(serialized, 0)
        found = inside(serialized[position + length :], 1, 1, 2, 14) or inside(serialized, 1, 1, 2, 14)
        assert found
        return found

    return run


def inside(data: bytes, *numbers: int) -> bytes:
    """A message within messages, or nothing."""
    try:
        for number in numbers:
            data = b"".join(one.data for one in wire.fields(data) if one.number == number)
    except ValueError:
        return b""
    return data


def form(options: Any) -> CanonicalOptions:
    return canonical_options(options.SerializeAsString())


def flags_of(options: Any) -> bytes:
    return inside(options.SerializeAsString(), BUILD, DEBUG)


def said(real: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The flags of the readable form under these overrides."""
    real.env_option_overrides = list(options.items())
    return {name: value for name, value in form(real).value.items() if name.startswith(("xla_", "env_"))}


def flags_in(debug: bytes) -> dict[str, Any]:
    """The flags of the readable form of a `DebugOptions`."""
    return dict(of(debug=debug).value)


def present(real: Any) -> list[OptionField]:
    """Flags that this jaxlib has and that count, without maps, messages and those for TPU."""
    known = set(dir(type(real.executable_build_options.debug_options)))
    values, _ = read(flags_of(real), message("DebugOptions"))
    numbers = values.keys() | {row.number for row in flags().values() if row.name in known}
    return [
        row
        for row in flags().values()
        if row.number in numbers and row.group == "affects" and row.type != "message" and row.many != "map"
    ]


# ---------------------------------------------------------------------------------------------------------------
# What jaxlib writes


def test_the_numbers_of_the_table_are_those_of_jaxlib(real: Any) -> None:
    debug_options = real.executable_build_options.debug_options
    checked = 0
    for name, row in flags().items():
        if row.many or row.type not in ("bool", "string", "int32", "int64") or not hasattr(debug_options, name):
            continue
        before, _ = read(flags_of(real), message("DebugOptions"))
        value = before.get(row.number, "" if row.type == "string" else 0)
        setattr(debug_options, name, "x" if row.type == "string" else not value if row.type == "bool" else value + 7)
        after, _ = read(flags_of(real), message("DebugOptions"))
        assert {number for number in before | after if before.get(number) != after.get(number)} == {row.number}, name
        checked += 1
    assert checked > 20


def test_nothing_that_jaxlib_writes_is_unknown(real: Any) -> None:
    assert not [name for name in form(real).value if "field " in name]


def test_real_options_without_effect_do_not_count(real: Any) -> None:
    before = form(real)
    debug_options = real.executable_build_options.debug_options
    debug_options.xla_dump_to = "/tmp/dump"
    debug_options.xla_dump_hlo_as_text = True
    debug_options.xla_dump_hlo_module_re = "jit_.*"
    debug_options.xla_gpu_per_fusion_autotune_cache_dir = "/tmp/cache"
    debug_options.xla_gpu_kernel_cache_file = "/tmp/kernels"
    debug_options.xla_force_host_platform_device_count = 8
    after = form(real)
    assert counts(after) == counts(before)
    assert before.outputs == ()
    assert after.outputs == ("xla_dump_hlo_as_text", "xla_dump_to")


def test_real_options_that_change_code_count(real: Any) -> None:
    found = [form(real).canonical]
    for name, value in (
        ("xla_backend_optimization_level", 1),
        ("xla_cpu_enable_fast_math", True),
        ("xla_llvm_disable_expensive_passes", True),
        ("xla_disable_hlo_passes", "fusion"),
    ):
        setattr(real.executable_build_options.debug_options, name, value)
        found.append(form(real).canonical)
    real.executable_build_options.num_partitions = 2
    found.append(form(real).canonical)
    real.num_replicas = 2
    found.append(form(real).canonical)
    real.parameter_is_tupled_arguments = True
    found.append(form(real).canonical)
    real.executable_build_options.fdo_profile = b"profile"
    found.append(form(real).canonical)
    assert len(set(found)) == len(found)


def test_the_real_device_assignment_does_not_count(real: Any) -> None:
    numpy = pytest.importorskip("numpy")
    from jax._src.lib import xla_client

    real.num_replicas = 1
    real.num_partitions = 2
    found = set()
    for devices in ([[0, 1]], [[1, 0]], [[4, 7]], [[2048, 2049]]):
        real.device_assignment = xla_client.DeviceAssignment.create(numpy.array(devices))
        found.add(counts(form(real)))
    assert len(found) == 1


SPY = """
    import os
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2 " + os.environ.get("MORE", "")
    import jax, numpy as np
    from jax._src import compiler
    from rewarm.identity import canonical_options

    seen, compile_now = [], compiler.compile_or_get_cached
    def spy(backend, computation, devices, compile_options, *rest, **named):
        seen.append(compile_options.SerializeAsString())
        return compile_now(backend, computation, devices, compile_options, *rest, **named)
    compiler.compile_or_get_cached = spy
    for device in jax.devices():
        jax.clear_caches()
        jax.jit(lambda x: x + 1)(jax.device_put(np.float32(1), device))
    assert len(seen) == 2 and seen[0] != seen[1]
    forms = [canonical_options(one) for one in seen]
    assert forms[0] == forms[1]
    import hashlib
    print(hashlib.sha256(forms[0].canonical).hexdigest())
"""


def test_one_program_on_either_of_two_equal_devices_has_one_form(program: Program) -> None:
    plain = program(SPY, REWARM="0").out
    assert len(plain) == 65
    spelled = "--xla_gpu_ftz=false --xla_cpu_enable_fast_math=false --xla_backend_optimization_level=3"
    assert program(SPY, REWARM="0", MORE=spelled).out == plain
    assert program(SPY, REWARM="0", MORE="--xla_gpu_ftz=true").out != plain


# ---------------------------------------------------------------------------------------------------------------
# `compiler_options=`


def default_of(row: OptionField, values: dict[int, Any]) -> Any:
    """The default as `compiler_options=` can say it, or `None`."""
    value = values.get(row.number, [] if row.many else {"string": "", "float": 0.0, "bool": False}.get(row.type, 0))
    if row.many:
        return ",".join(str(one) for one in value)
    return None if row.type == "float" and is_unset(row, value) else value


def test_every_flag_spelled_at_its_default_by_an_override_is_as_if_unsaid(real: Any, acted_on: Compile) -> None:
    """All of them at once: jaxlib accepts them, acts on what it acts on without them, and the form is the same."""
    values, _ = read(flags_of(real), message("DebugOptions"))
    spelled = {row.name: default_of(row, values) for row in present(real) if not row.name.startswith("xla_tpu_")}
    spelled = {name: value for name, value in spelled.items() if value is not None}
    assert len(spelled) > 150
    assert flags_in(acted_on(spelled)) == flags_in(acted_on({}))
    before = form(real)
    assert said(real, spelled) == {name: value for name, value in before.value.items() if name.startswith("xla_")}
    assert counts(form(real)) == counts(before)


def other(row: OptionField, value: Any) -> Any:
    """Another value of a flag, as `compiler_options=` can say it."""
    if row.many:
        return "a,b" if row.type == "string" else "1,0"
    if row.type == "bool":
        return not value
    if row.type == "enum":
        return next(number for number in enums()[row.of] if number not in (0, value))
    return {"string": "x", "float": 0.75}.get(row.type, 5 if value != 5 else 6)


def test_what_is_folded_is_what_xla_acts_on(real: Any, acted_on: Compile) -> None:
    """Every flag for GPU, which the CPU compiler carries along, overridden by another value; all at once.

    But for one that makes XLA stop early: such an executable does not load (0.12.0.1).
    """
    values, _ = read(flags_of(real), message("DebugOptions"))
    changed = {
        row.name: other(row, values.get(row.number))
        for row in present(real)
        if row.name.startswith("xla_gpu_") and "early_exit" not in row.name
    }
    assert len(changed) > 100
    assert said(real, changed) == flags_in(acted_on(changed))


# As seen with jaxlib 0.9.2, 0.10.2, 0.11.2 and 0.12.0.1: the same in all four.
ACCEPTED: list[tuple[str, Any]] = [
    ("xla_cpu_enable_fast_math", True),
    ("xla_cpu_enable_fast_math", "True"),
    ("xla_cpu_enable_fast_math", "False"),
    ("xla_backend_optimization_level", 0),
    ("xla_backend_optimization_level", " +02 "),
    ("xla_backend_optimization_level", "-1"),
    ("xla_cmd_buffer_trace_cache_size", 2**40),
    ("xla_cmd_buffer_trace_cache_size", str(2**40)),
    ("xla_gpu_autotune_gemm_rtol", 0.1),
    ("xla_partitioning_algorithm", 1),
    ("xla_partitioning_algorithm", "1"),
    ("xla_partitioning_algorithm", "PARTITIONING_ALGORITHM_EXP0"),
    ("xla_partitioning_algorithm", 77),
    ("xla_disable_hlo_passes", "a,b"),
    ("xla_disable_hlo_passes", "a,"),
    ("xla_disable_hlo_passes", ","),
    ("xla_disable_hlo_passes", ""),
    ("xla_gpu_enable_command_buffer", "FUSION, 2"),
    ("xla_gpu_enable_command_buffer", ""),
    ("xla_gpu_enable_command_buffer", 3),
]


@pytest.mark.parametrize(("name", "value"), ACCEPTED)
def test_a_spelling_that_is_folded_means_to_xla_what_it_means_here(
    real: Any, acted_on: Compile, name: str, value: Any
) -> None:
    assert said(real, {name: value}) == flags_in(acted_on({name: value}))


REFUSED: list[tuple[str, Any]] = [
    ("xla_cpu_enable_fast_math", "true"),
    ("xla_cpu_enable_fast_math", "1"),
    ("xla_cpu_enable_fast_math", 1),
    ("xla_cpu_enable_fast_math", 1.0),
    ("xla_backend_optimization_level", True),
    ("xla_backend_optimization_level", 1.0),
    ("xla_backend_optimization_level", "1.0"),
    ("xla_backend_optimization_level", 2**31),
    ("xla_cmd_buffer_trace_cache_size", str(2**63)),
    ("xla_partitioning_algorithm", True),
    ("xla_partitioning_algorithm", 1.0),
    ("xla_partitioning_algorithm", "nope"),
    ("xla_gpu_autotune_gemm_rtol", 1),
    ("xla_gpu_autotune_gemm_rtol", 1e300),
    ("xla_disable_hlo_passes", 1),
    ("xla_gpu_enable_command_buffer", "FUSION,"),
    ("xla_gpu_enable_command_buffer", "+FUSION"),
    ("xla_gpu_enable_command_buffer", True),
    ("xla_gpu_enable_command_buffer", 1.0),
    ("xla_no_such_option", True),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_spelling_that_xla_refuses_is_not_folded_so_that_no_hit_hides_the_error(
    real: Any, acted_on: Compile, name: str, value: Any
) -> None:
    with pytest.raises(Exception, match="INVALID_ARGUMENT"):
        acted_on({name: value})
    assert list(said(real, {name: value})["env_option_overrides"]) == [name]


# ---------------------------------------------------------------------------------------------------------------
# XLA_FLAGS

PARSED = """
    import json
    from jax._src.lib import xla_client
    from rewarm.identity import canonical_options
    print(json.dumps(canonical_options(xla_client.CompileOptions().SerializeAsString()).value))
"""


def as_flag(row: OptionField, value: Any) -> str:
    return f"--{row.name}={str(value).lower() if row.type == 'bool' else value}"


def test_every_flag_spelled_at_its_default_is_as_if_unsaid(real: Any, program: Program) -> None:
    """XLA names the flags that it does not have, which a few fields are without; the rest are all said at once."""
    values, _ = read(flags_of(real), message("DebugOptions"))
    scalars = [row for row in present(real) if not row.many and row.type in ("bool", "int32", "int64", "string")]
    spelled = {row.name: as_flag(row, default_of(row, values)) for row in scalars}
    spelled = {name: text for name, text in spelled.items() if " " not in text}
    for _ in range(2):
        run = program(PARSED, ok=False, REWARM="0", XLA_FLAGS=" ".join(spelled.values()))
        if run.code == 0:
            break
        unknown = [name for name, text in spelled.items() if f"{text} " in run.err.replace("\n", " ")]
        assert "Unknown flag" in run.err, run.err[:2000]
        assert 0 < len(unknown) < 30, run.err[:2000]
        spelled = {name: text for name, text in spelled.items() if name not in unknown}
    assert len(spelled) > 150
    assert json.loads(run.out) == form(real).value


def test_a_flag_and_the_same_override_have_one_form(real: Any, program: Program) -> None:
    said_as_flags = (
        "--xla_cpu_enable_fast_math=true --xla_backend_optimization_level=1 --xla_disable_hlo_passes=a,b "
        "--xla_gpu_autotune_gemm_rtol=0.25 --xla_cpu_max_isa=AVX2 --xla_gpu_enable_command_buffer=FUSION,CUBLAS"
    )
    by_flags = json.loads(program(PARSED, REWARM="0", XLA_FLAGS=said_as_flags).out)
    real.env_option_overrides = [
        ("xla_gpu_enable_command_buffer", "FUSION,CUBLAS"),
        ("xla_cpu_max_isa", "AVX2"),
        ("xla_gpu_autotune_gemm_rtol", 0.25),
        ("xla_disable_hlo_passes", "a,b"),
        ("xla_backend_optimization_level", 1),
        ("xla_cpu_enable_fast_math", True),
    ]
    assert form(real).value == by_flags
    assert by_flags["xla_gpu_enable_command_buffer"] == ["FUSION", "CUBLAS"]


def test_real_overrides_that_are_no_flags(real: Any) -> None:
    plain = form(real)
    more: list[tuple[str, Any]] = [("xla_a", 7), ("xla_b", 0.5), ("xla_c", "text"), ("xla_d", True)]
    real.env_option_overrides = more
    one = form(real)
    real.env_option_overrides = more[::-1]
    assert counts(form(real)) == counts(one) != counts(plain)
    assert one.value["env_option_overrides"] == {
        "xla_a": {"int64": 7},
        "xla_b": {"double": 0.5},
        "xla_c": {"string": "text"},
        "xla_d": {"bool": True},
    }
    real.env_option_overrides = [*more, ("xla_dump_to", "/tmp/x"), ("xla_dump_hlo_as_text", False)]
    dumping = form(real)
    assert counts(dumping) == counts(one)
    assert dumping.outputs == ("xla_dump_to",)


def test_the_last_of_two_overrides_with_one_name_is_the_one_that_is_written(real: Any) -> None:
    """XLA applies them in order, so the bytes say what it acts on. JAX adds one of its own while it profiles."""
    real.env_option_overrides = [("xla_a", 1), ("xla_a", 2)]
    assert form(real).value["env_option_overrides"] == {"xla_a": {"int64": 2}}
