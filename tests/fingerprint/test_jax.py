"""The callbacks of `custom_partitioning`, with a real JAX: the use that this room was built for."""

from __future__ import annotations

import json

import pytest

from conftest import Program

pytest.importorskip("jax")

PROGRAM = """
import json, sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from rewarm.errors import NotFingerprintableError
from rewarm.fingerprint import fingerprint

SCALE = float(sys.argv[1])
TABLE = np.arange(10.0)

def helper(x):
    return jnp.sum(x) * SCALE + np.sum(TABLE)

def make(k):
    def partition(mesh, arg_shapes, result_shape):
        def lower(x, y):
            z = jnp.where(x > 0, helper(x) * k, jnp.dot(x, y)) + jax.nn.relu(x) + jax.lax.psum(x, "i")
            return jnp.add(z, np.float32(1)).astype(jnp.bfloat16) @ y + jnp.pi
        shardings = jax.tree.map(lambda shape: shape.sharding, arg_shapes)
        return mesh, lower, NamedSharding(mesh, P("i", None)), shardings
    return partition

def infer(mesh, arg_shapes, shape):
    return NamedSharding(mesh, P(*arg_shapes[0].sharding.spec))

def propagate(mesh, user_shape):
    return user_shape.sharding

callbacks = {"partition": make(2), "infer": infer, "propagate": propagate}
first = fingerprint(callbacks, name="callbacks")
took = []
for _ in range(5):
    start = time.perf_counter()
    again = fingerprint(callbacks, name="callbacks")
    took.append(time.perf_counter() - start)
    assert again == first

def refused(function):
    try:
        fingerprint(function)
    except NotFingerprintableError as error:
        return str(error)
    return ""

unsafe = {
    "devices": refused(lambda: jax.devices()),
    "process_index": refused(lambda: jax.process_index()),
    "config": refused(lambda: jax.config.jax_enable_x64),
    "load": refused(lambda x: jnp.load(x)),
    "jitted": refused([jax.jit(lambda x: x)]),
    "traced": refused([jnp.ones(2)]),
}
print(json.dumps({"digest": first.digest, "parts": first.parts, "took": min(took), "unsafe": unsafe}))
"""


@pytest.mark.contract
def test_callbacks_of_custom_partitioning(program: Program) -> None:
    one = program(PROGRAM, "3.0", PYTHONHASHSEED="1").json
    same = program("\n\n\n" + PROGRAM, "3.0", PYTHONHASHSEED="2").json
    other = program(PROGRAM, "3.5", PYTHONHASHSEED="1").json
    assert one["digest"] == same["digest"] != other["digest"]
    changed = [path for path in one["parts"] if one["parts"][path] != other["parts"][path]]
    assert [path.rpartition(" ")[2] for path in changed] == ["SCALE"]
    # Five milliseconds is the aim, less than one is usual; a busy machine must not fail this.
    assert one["took"] < 0.05, one["took"]
    for word, message in one["unsafe"].items():
        assert message, f"{word} has a fingerprint"
    assert "devices" in one["unsafe"]["devices"]
    assert json.dumps(one["parts"], ensure_ascii=True).count("jax") >= 5
