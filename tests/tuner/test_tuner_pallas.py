"""Kernels of Pallas for GPUs that are only described: every candidate is compiled, and what cannot be is dropped."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import cuda_compilers
from conftest import execute

PROGRAM = """
import functools, json, sys
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt
import rewarm
from rewarm import targets
from rewarm.jax_adapter import activation, described
from rewarm.jax_adapter.tuner import kernels, lookups
from rewarm.jax_adapter.tuner.ahead import feasible

def product_kernel(x, y, out, *, block_k):
    def step(k, total):
        part = pl.ds(k * block_k, block_k)
        return total + x[:, part] @ y[part, :]
    total = jnp.zeros(out.shape, jnp.float32)
    out[...] = jax.lax.fori_loop(0, x.shape[1] // block_k, step, total).astype(out.dtype)

@rewarm.tunable(space={"block_m": [32, 48, 64], "block_n": [64], "block_k": [32, 16384], "warps": [4]},
                constraints=lambda block_k, x: x.shape[1] % block_k == 0)
def product(x, y, *, block_m, block_n, block_k, warps):
    (m, k), n = x.shape, y.shape[1]
    return pl.pallas_call(
        functools.partial(product_kernel, block_k=block_k),
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(pl.cdiv(m, block_m), pl.cdiv(n, block_n)),
        in_specs=[pl.BlockSpec((block_m, k), lambda i, j: (i, 0)), pl.BlockSpec((k, block_n), lambda i, j: (0, j))],
        out_specs=pl.BlockSpec((block_m, block_n), lambda i, j: (i, j)),
        compiler_params=plt.CompilerParams(num_warps=warps, num_stages=2),
    )(x, y)

target = targets.named("h100")
device = described.devices(target, target.topology("1x1x1"))[0]
x = jax.ShapeDtypeStruct((1536, 16384), jnp.float16)
y = jax.ShapeDtypeStruct((16384, 256), jnp.float16)
jnp.zeros(()).block_until_ready()
found = feasible(product, (x, y), {}, device)
told = {"found": found}
session = activation.session()
told["on"] = session is not None
if session is not None:
    asked = product.asked((x, y), {})
    try:
        record = lookups.record_of(session, product.case(asked, kernels.place_of(session, device)))
        told["kept"] = None if record is None else [[dict(one.config), str(one.outcome)] for one in record.trials]
    except Exception as error:
        told["kept"] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
"""


@pytest.mark.contract
def test_candidates_are_compiled_for_a_described_gpu_and_infeasible_ones_are_kept_as_such(tmp_path: Path) -> None:
    compiler = cuda_compilers.wanted()
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    environment = compiler.environment(REWARM_DIR=str(tmp_path / "cache"))
    done = execute([sys.executable, "-W", "ignore", str(path)], env=environment, cwd=tmp_path)
    assert done.code == 0, done.err[-3000:]
    found = done.json["found"]
    good = {text for text, reason in found.items() if not reason}
    bad = {text: reason for text, reason in found.items() if reason}
    assert any('"block_m":64' in text for text in good), found
    assert any('"block_m":48' in text for text in bad), found  # Triton's sizes are powers of two
    assert done.json["on"]
    kept = done.json["kept"]
    assert isinstance(kept, list), kept
    assert {outcome for _, outcome in kept} == {"infeasible"}
    assert len(kept) == len(bad)
