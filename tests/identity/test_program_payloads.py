"""Kernels inside programs: where they stand in a file does not count, what they compute does.

All kernels are lowered for described devices; no GPU, TPU or library for one is needed.
"""

from __future__ import annotations

import base64
import inspect
import json
import linecache
import textwrap
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from module_texts import parse, program, string

from rewarm.identity.program import canonical_program, payloads

pytestmark = pytest.mark.contract

KERNEL = """
    def kernel(x_ref, o_ref):
        o_ref[...] = {expression}
"""
TRITON, MOSAIC_GPU, MOSAIC_TPU = "__gpu$xla.gpu.triton", "mosaic_gpu_v2", "tpu_custom_call"


def kernel_in(file: str, before: str, expression: str) -> Callable[..., None]:
    """A kernel whose source is told to lie in a file, behind some lines."""
    source = before + textwrap.dedent(KERNEL.format(expression=expression))
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {}
    exec(compile(source, file, "exec"), names)
    kernel: Callable[..., None] = names["kernel"]
    return kernel


def described_gpu() -> Any:
    """A context in which JAX lowers for a GPU that is not there."""
    from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

    said: dict[str, Any] = {"device_kind": "NVIDIA H100", "num_cores": 132}
    if "platform" in inspect.signature(AbstractDevice).parameters:  # since JAX 0.10
        said["platform"] = "cuda"
    return use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=AbstractDevice(**said)))


def lowered(function: Callable[..., Any], shape: tuple[int, ...], platform: str) -> Any:
    import jax
    import numpy as np

    jitted = jax.jit(function).trace(jax.ShapeDtypeStruct(shape, np.float32))
    return jitted.lower(lowering_platforms=(platform,)).compiler_ir("stablehlo")


def triton(kernel: Callable[..., None], warps: int = 4) -> Any:
    import jax
    import numpy as np
    from jax.experimental import pallas
    from jax.experimental.pallas import triton as backend

    shape = (64,)
    with described_gpu():
        call = pallas.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct(shape, np.float32),
            compiler_params=backend.CompilerParams(num_warps=warps),
        )
        return lowered(call, shape, "cuda")


def mosaic_gpu(kernel: Callable[..., None]) -> Any:
    import jax
    import numpy as np

    # JAX 0.9 and 0.10 need absl here, which JAX itself does not depend on.
    backend = pytest.importorskip("jax.experimental.pallas.mosaic_gpu", exc_type=ImportError)
    shape = (128, 128)
    result = "out_type" if "out_type" in inspect.signature(backend.kernel).parameters else "out_shape"
    with described_gpu():
        call = backend.kernel(kernel, **{result: jax.ShapeDtypeStruct(shape, np.float32)})
        return lowered(call, shape, "cuda")


def mosaic_tpu(kernel: Callable[..., None]) -> Any:
    import jax
    import numpy as np
    from jax.experimental import pallas

    shape = (8, 128)
    call = pallas.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(shape, np.float32))
    return lowered(call, shape, "tpu")


WAYS: dict[str, Callable[..., Any]] = {TRITON: triton, MOSAIC_GPU: mosaic_gpu, MOSAIC_TPU: mosaic_tpu}
every_way = pytest.mark.parametrize("target", WAYS)


def lower(
    target: str,
    file: str = "/one/kernels.py",
    before: str = "",
    expression: str = "x_ref[...] * 2.0",
    **parameters: int,
) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of JAX's own modules, on import
        return WAYS[target](kernel_in(file, before, expression), **parameters)


def canonical(module: Any) -> bytes:
    return canonical_program(module, metadata_in_key=False).canonical


def configuration(module: Any, target: str) -> str:
    """What the call to the kernel carries, as MLIR prints it."""
    found: list[str] = []
    from jaxlib.mlir import ir

    def look(one: Any) -> Any:
        attributes = one.attributes
        if "call_target_name" in attributes and attributes["call_target_name"].value == target:
            found.extend(
                str(attributes[name]) for name in ("backend_config", "mhlo.backend_config") if name in attributes
            )
        return ir.WalkResult.ADVANCE

    with module.context:
        module.operation.walk(look)
    assert found, f"no call to {target}"
    return "\n".join(found)


@every_way
def test_where_a_kernel_stands_does_not_count(target: str) -> None:
    plain = lower(target)
    moved = lower(target, before="\n\n\n")
    elsewhere = lower(target, file="/another/place/of/it.py", before="# a comment\n")
    assert len({configuration(module, target) for module in (plain, moved, elsewhere)}) == 3, "nothing was to be done"
    assert canonical(plain) == canonical(moved) == canonical(elsewhere)
    assert b"place/of/it" not in canonical(elsewhere)


@every_way
@pytest.mark.parametrize("expression", ["x_ref[...] * 3.0", "x_ref[...] + 2.0", "x_ref[...] * 2.0 + x_ref[...]"])
def test_what_a_kernel_computes_counts(target: str, expression: str) -> None:
    assert canonical(lower(target, expression=expression)) != canonical(lower(target))


def test_what_stands_beside_the_kernel_counts() -> None:
    assert canonical(lower(TRITON, warps=8)) != canonical(lower(TRITON))


@every_way
def test_the_kernel_that_is_compiled_stays_as_it_is(target: str) -> None:
    module = lower(target)
    before = str(module.operation.get_asm(enable_debug_info=True))
    for metadata in (False, True):
        canonical_program(module, metadata_in_key=metadata)
        assert str(module.operation.get_asm(enable_debug_info=True)) == before


@every_way
def test_with_metadata_in_the_key_it_counts_where_a_kernel_stands(target: str) -> None:
    found = [canonical_program(lower(target, before=before), metadata_in_key=True) for before in ("", "\n")]
    assert found[0].canonical != found[1].canonical


# -- what cannot be read -------------------------------------------------------------------------------------------


def calling(target: str, attributes: str) -> str:
    return f"""
        module @m {{
          func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
            %0 = stablehlo.custom_call @{string(target)}(%a) {{{attributes}}} : (tensor<4xf32>) -> tensor<4xf32>
            return %0 : tensor<4xf32>
          }}
        }}
    """


NOT_KERNELS = (
    "",
    'backend_config = ""',
    'backend_config = "no JSON"',
    'backend_config = "[]"',
    'backend_config = "null"',
    'backend_config = "17"',
    f"backend_config = {string(json.dumps({'custom_call_config': None}))}",
    f"backend_config = {string(json.dumps({'custom_call_config': 'body'}))}",
    f"backend_config = {string(json.dumps({'custom_call_config': {}}))}",
    f"backend_config = {string(json.dumps({'custom_call_config': {'body': 5}}))}",
    f"backend_config = {string(json.dumps({'custom_call_config': {'body': 'not base64!'}}))}",
    f"backend_config = {string('[' * 20000)}",
    'backend_config = "\\FF\\00"',
    "backend_config = {a = 1 : i32}, api_version = 4 : i32",
    'mhlo.backend_config = "text"',
    "mhlo.backend_config = {}",
    "mhlo.backend_config = {ir = 3 : i32, module = 4 : i32}",
    "mhlo.backend_config = {ir = [1 : i32], module = @main}",
    'mhlo.backend_config = {ir = "no IR", module = "no IR"}',
    'mhlo.backend_config = {ir = "ML\\EFR", module = "ML\\EFR\\0D"}',
    'mhlo.backend_config = {ir = "\\FF\\00", module = ""}',
)


@every_way
def test_what_is_no_kernel_stays_and_counts(target: str) -> None:
    found = [program(calling(target, attributes)).canonical for attributes in NOT_KERNELS]
    assert len(set(found)) == len(NOT_KERNELS)
    assert found == [program(calling(target, attributes)).canonical for attributes in NOT_KERNELS]


@every_way
def test_a_damaged_kernel_stays_and_counts(target: str) -> None:
    """Cut or flipped, and another target's: whatever the parser makes of it, no two are the same."""
    raw = payload(target)
    damaged = [raw[:-1], raw[: len(raw) // 2], raw[:4], b"", raw[::-1], bytes([raw[0] ^ 1]) + raw[1:]]
    found = [program(calling(target, holding(target, data))).canonical for data in (raw, *damaged)]
    assert len(set(found)) == len(found)


@every_way
def test_a_payload_under_the_name_of_another_target_stays(target: str) -> None:
    attributes = holding(target, payload(target))
    with parse(calling("somebody.elses", attributes)).context:
        pass
    assert payloads.without_locations("somebody.elses", {}) == {}
    moved = holding(target, payload(target, before="\n"))
    assert program(calling("mine", attributes)).canonical != program(calling("mine", moved)).canonical
    assert program(calling(target, attributes)).canonical == program(calling(target, moved)).canonical


def payload(target: str, before: str = "") -> bytes:
    """The kernel's IR, with source locations of its own in every version of JAX."""
    text = f"""
        {before}module {{
          func.func @kernel(%a: i32) -> i32 {{
            return %a : i32
          }}
        }}
    """
    return payloads.write(parse(text).operation)


def holding(target: str, raw: bytes) -> str:
    """The attributes of a call that carries this IR."""
    if target == MOSAIC_TPU:
        config = {"custom_call_config": {"body": base64.b64encode(raw).decode(), "needs_layout_passes": True}}
        return f"backend_config = {string(json.dumps(config))}"
    escaped = '"' + "".join(f"\\{byte:02X}" for byte in raw) + '"'
    where = "ir" if target == TRITON else "module"
    return f"mhlo.backend_config = {{{where} = {escaped}, num_warps = 4 : i32}}"


def test_locations_that_lie_beside_a_tpu_kernel_do_not_count_and_the_rest_does() -> None:
    def beside(**more: Any) -> bytes:
        config = {"custom_call_config": {"body": base64.b64encode(payload(MOSAIC_TPU)).decode(), **more}}
        return program(calling(MOSAIC_TPU, f"backend_config = {string(json.dumps(config))}")).canonical

    assert beside(debug_locations="a.py:1") == beside(debug_locations="b.py:2") == beside()
    assert len({beside(), beside(vmem_limit_bytes=1), beside(vmem_limit_bytes=2), beside(serialization_format=1)}) == 4


def test_the_digest_of_a_gpu_kernel_does_not_count_beside_the_kernel() -> None:
    """Mosaic's own digest covers source locations."""

    def beside(digest: str, name: str) -> bytes:
        raw = "".join(f"\\{byte:02X}" for byte in payload(MOSAIC_GPU))
        return program(
            calling(
                MOSAIC_GPU, f'mhlo.backend_config = {{kernel_hash = "{digest}", module = "{raw}", name = "{name}"}}'
            )
        ).canonical

    assert beside("1", "a") == beside("2", "a") != beside("1", "b")
    # Where the kernel cannot be read, its digest stands for it.
    unread = [
        program(calling(MOSAIC_GPU, f'mhlo.backend_config = {{kernel_hash = "{digest}", module = "?"}}')).canonical
        for digest in "12"
    ]
    assert unread[0] != unread[1]
