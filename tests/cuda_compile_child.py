"""Compiles programs for a described GPU and says what came of it, one line of JSON for each.

Its argument is JSON: the target's text, and a list of compiles with their options. XLA keeps the entries of a process,
where the first of a key stays: what is compared is for processes of their own.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import serialize_executable, topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

# Of square matrices, not so small that XLA divides the product's inner dimension.
SIZES = range(1024, 1024 + 9 * 128, 128)

_ELF = b"\x7fELF\x02\x01"
_SIZES = re.compile(r'"sizes":\[([^\]]*)\]')
_WARPS = re.compile(r'"num_warps":"?(\d+)')
_CALLS = re.compile(r'custom_call_target="([^"]*)"')
_ASSEMBLER = re.compile(rb"Cuda compilation tools, release [0-9.]+, V([0-9.]+)")


def program(name: str, sharding: Any = None) -> tuple[Any, tuple[Any, ...]]:
    """A function and its abstract arguments: "dot_tanh:256" or "mlp:1024", on square matrices of this size."""
    kind, size = name.split(":")
    square = jax.ShapeDtypeStruct((int(size), int(size)), jnp.bfloat16, sharding=sharding)
    functions = {
        "dot_tanh": lambda p, q: jnp.tanh(p @ q),
        "mlp": lambda p, q: jax.nn.softmax(jax.nn.gelu(p @ q) @ q, axis=-1),
    }
    return functions[kind], (square, square)


def plan() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Programs of many sizes, each with keys of its own: so one process can try many entries."""
    for name in (*(f"dot_tanh:{size}" for size in SIZES), "mlp:1024"):
        yield (name, *program(name))


def elf_images(data: bytes) -> list[bytes]:
    """The ELF images in some bytes: one's length follows from its section headers, which stand last."""
    found, at = [], data.find(_ELF)
    while at >= 0:
        size = int.from_bytes(data[at + 40 : at + 48], "little")
        size += int.from_bytes(data[at + 58 : at + 60], "little") * int.from_bytes(data[at + 60 : at + 62], "little")
        found.append(data[at : at + size])
        at = data.find(_ELF, at + max(size, 1))
    return found


def machine_code(compiled: Any, kernels: str) -> dict[str, list[str]]:
    """Digests of the cubins, from the kernel cache file, or where this JAX writes none, from the executable."""
    there = bool(kernels) and Path(kernels).exists()
    images = elf_images(Path(kernels).read_bytes() if there else serialize_executable.serialize(compiled)[0])
    assemblers = {found.decode() for image in images for found in _ASSEMBLER.findall(image)}
    return {"cubins": sorted(hashlib.sha256(one).hexdigest() for one in images), "assembler": sorted(assemblers)}


def compiled(function: Any, arguments: Any, one: dict[str, Any]) -> dict[str, Any]:
    options = one.get("options") or {}
    made = jax.jit(function).lower(*arguments).compile(compiler_options=options)
    text = made.as_text()
    said = {
        "tiles": sorted({tuple(map(int, re.findall(r"\d+", found))) for found in _SIZES.findall(text)}),
        "warps": sorted({int(found) for found in _WARPS.findall(text)}),
        "calls": sorted(set(_CALLS.findall(text))),
        "error": "",
    }
    return said | (machine_code(made, options.get("xla_gpu_kernel_cache_file", "")) if one.get("code") else {})


def main() -> None:
    asked = json.loads(sys.argv[1])
    jax.config.update("jax_enable_compilation_cache", False)
    topology = asked.get("topology", "1x1x1")
    described = topologies.get_topology_desc(platform="cuda", target_config=asked["target"], topology=topology)
    everywhere = NamedSharding(Mesh(np.array(described.devices), ("d",)), PartitionSpec())
    for one in asked["compiles"]:
        try:
            answer = compiled(*program(one["program"], everywhere), one)
        except Exception as wrong:
            answer = {"error": f"{type(wrong).__name__}: {wrong}", "tiles": [], "warps": [], "calls": []}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
