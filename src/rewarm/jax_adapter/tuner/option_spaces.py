"""Which options of XLA are tried for a program by default, on each platform, each with its reason and source.

Not promised: that any of them helps. `None` leaves the option away, and is the default of each. Without `numerics`
nothing stands here that is meant to change what is computed, and results must be equal to the bit all the same: on
another order of operations in compiled code nobody gives his word.

Sources: comments of the fields in xla/xla.proto (openxla/xla, DebugOptions) of the jaxlib of JAX 0.9 to 0.12 for CPU
and GPU; for TPU the options that `jax.jit(compiler_options=)` takes from libtpu, as Cloud TPU's performance guide names
them. That each is taken by the compilers of JAX 0.9 to 0.12 is tested; on a GPU or a TPU none has been timed.

Left out, on purpose: whatever is experimental or unsupported by its name; XLA's own autotuning (it has its store);
options of several devices; memory limits; what changes the size of compiled code alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rewarm.tunables.spaces import Value


class Option(NamedTuple):
    """One option.

    Attributes:
      name: as `compiler_options=` has it.
      values: to be tried beside leaving it away.
      reason: what it may do for a program.
      source: where that is said.
      numerics: whether it may change results.
    """

    name: str
    values: tuple[Value, ...]
    reason: str
    source: str
    numerics: bool = False


_PROTO = "xla/xla.proto, DebugOptions"

CPU = (
    Option(
        "xla_cpu_prefer_vector_width",
        (128, 512),
        "bits of the vectors that LLVM prefers (256 by default): wider ones do more at once where the processor does "
        "not slow down for them, narrower ones suit short loops",
        f"{_PROTO}: xla_cpu_prefer_vector_width (308)",
    ),
    Option(
        "xla_cpu_scheduler_type",
        ("CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED", "CPU_SCHEDULER_TYPE_CONCURRENCY_OPTIMIZED"),
        "in which order operations run: for less memory at once, or for more of them beside each other",
        f"{_PROTO}: xla_cpu_scheduler_type (448)",
    ),
    Option(
        "xla_cpu_multi_thread_eigen",
        (False,),
        "products and convolutions in one thread: small ones spare handing work to the pool",
        f"{_PROTO}: xla_cpu_multi_thread_eigen (60)",
    ),
    Option(
        "xla_backend_optimization_level",
        (2,),
        "how hard LLVM tries (3 by default): less unrolling and inlining may suit small caches",
        f"{_PROTO}: xla_backend_optimization_level (31)",
    ),
    Option(
        "xla_cpu_enable_fast_math",
        (True,),
        "LLVM may reorder floating point operations, and assume that there are no NaN and infinities",
        f"{_PROTO}: xla_cpu_enable_fast_math (99)",
        numerics=True,
    ),
    Option(
        "xla_cpu_enable_fast_min_max",
        (True,),
        "minimum and maximum that do not pass NaN on take one instruction",
        f"{_PROTO}: xla_cpu_enable_fast_min_max (140)",
        numerics=True,
    ),
)

GPU = (
    Option(
        "xla_gpu_enable_latency_hiding_scheduler",
        (True,),
        "copies and collectives are started early and waited for late",
        f"{_PROTO}: xla_gpu_enable_latency_hiding_scheduler (186)",
    ),
    Option(
        "xla_gpu_enable_command_buffer",
        ("",),
        "no CUDA graphs: programs of few large kernels spare making them",
        f"{_PROTO}: xla_gpu_enable_command_buffer (258)",
    ),
    Option(
        "xla_gpu_graph_min_graph_size",
        (1, 20),
        "how many kernels make a CUDA graph (5 by default): each launch in one costs less, and making it costs once",
        f"{_PROTO}: xla_gpu_graph_min_graph_size (208)",
    ),
    Option(
        "xla_gpu_enable_while_loop_double_buffering",
        (True,),
        "the body of a loop is there twice, so that copies at its ends go away",
        f"{_PROTO}: xla_gpu_enable_while_loop_double_buffering (248)",
    ),
    Option(
        "xla_gpu_enable_triton_gemm",
        (False,),
        "products by cuBLAS alone; its kernels sum in another order",
        f"{_PROTO}: xla_gpu_enable_triton_gemm (188)",
        numerics=True,
    ),
    Option(
        "xla_gpu_enable_fast_min_max",
        (True,),
        "minimum and maximum that do not pass NaN on take one instruction",
        f"{_PROTO}: xla_gpu_enable_fast_min_max (100)",
        numerics=True,
    ),
)

_LIBTPU = "Cloud TPU documentation, performance guide; taken by libtpu through compiler_options="

TPU = (
    Option(
        "xla_tpu_scoped_vmem_limit_kib",
        (32768, 65536),
        "KiB of fast memory that one operation may take (16384 on most chips by default): larger tiles",
        _LIBTPU,
    ),
    Option(
        "xla_tpu_enable_latency_hiding_scheduler",
        (False,),
        "copies are started where the program has them, not early",
        _LIBTPU,
    ),
    Option(
        "xla_tpu_rwb_fusion",
        (False,),
        "reductions are not fused with the elementwise operations that feed and follow them",
        _LIBTPU,
    ),
    Option(
        "xla_tpu_dot_dot_fusion",
        (True,),
        "a product goes into the next one without a way through memory",
        _LIBTPU,
    ),
)

PLATFORMS: Mapping[str, tuple[Option, ...]] = {"cpu": CPU, "gpu": GPU, "tpu": TPU}


def options_of(platform: str, *, numerics: bool = False) -> tuple[Option, ...]:
    """The default list of a platform; nothing for one that is not known."""
    return tuple(one for one in PLATFORMS.get(platform, ()) if numerics or not one.numerics)


def space_of(platform: str, *, numerics: bool = False) -> dict[str, list[Value]]:
    """The default list as a space."""
    return {one.name: [None, *one.values] for one in options_of(platform, numerics=numerics)}
