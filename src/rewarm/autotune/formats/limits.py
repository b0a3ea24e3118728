"""Sizes in a configuration that no tuner would write, and that harm whoever compiles with them.

Not promised: that a configuration within these bounds compiles. How much shared memory a kernel needs, and how many
registers, depends on its element types and on the fusion, which only the compiler knows; what it then says it says at
once. Beyond these bounds it was seen to end the process (a block of 2^31 rows: JAX 0.10.2 and 0.12.0.1), or to compile
for minutes or without an end (1,000 stages; a tile of 2^20 elements in 8 warps).

Each bound is one of the hardware, or a multiple of where XLA's own search ends, so that no result that a tuner found is
beyond it:

    warps in a block                32          CUDA: 1,024 threads
    blocks in a cluster             16          CUDA. XLA tries 1, and old builds tried 16 at most
    stages                          32          XLA tries 5 at most (`kMaxWarpsPerScheduler`, dot_search_space.h)
    elements of a tile              2^18        CUDA: 65,536 registers of 32 bits for a block, full of elements of 8
                                                bits; XLA's search ends there as well (`GetMaxOutputTile`)
    elements of it for a thread     512         CUDA: 255 registers of 32 bits, full of elements of 16 bits. XLA's lists
                                                for Triton have 256 at most, its cost model takes 128
    elements of a stage's operands  2^19        CUDA: 227 KiB of shared memory for a block, full of elements of 4 bits
    parts of a sum (split_k)        65,535      CUDA: blocks in the second and third direction of a grid
    unrolled by the native emitter  64          256 bits, the widest access to memory, of elements of 4 bits

The time of a compile grows with the stages, and with the elements for a thread: with 64 stages or 512 elements it took
JAX 0.12.0.1 some fifteen seconds on a busy core, with 1,024 elements half a minute, with 2,048 two minutes and more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rewarm.autotune.formats.findings import Finding, Place, error, warning

_MOST_WARPS = 32
_LANES = 32
_MOST_CTAS = 16
_MOST_STAGES = 32
_MOST_ELEMENTS = 1 << 18
_MOST_FOR_A_THREAD = 512
_MOST_OF_A_STAGE = 1 << 19
_MOST_UNROLLED = 64
_MOST_SPLIT = 65_535
_SHOWN = 8  # sizes of a tile

# Of XLA's configurations those that are counts, and have a meaning for 0.
_COUNTS = ("group_size", "waves_per_eu", "num_tiles_per_pid")


def triton(config: Any, place: Place) -> Iterator[Finding]:
    """Of a `TritonGemmKey`."""
    blocks = {name: getattr(config, name) for name in ("block_m", "block_n", "block_k")}
    for name, value in blocks.items():
        if not _is_power_of_two(value):
            # A block_k of 48 compiles, a block_m of 48 does not.
            make = warning if name == "block_k" and value > 0 else error
            yield make("block-size", place, f"{name} as a power of two", str(value))
    yield from _threads(config, place)
    m, n, k = blocks.values()
    if min(m, n, k) > 0:
        too_large = list(_tile((m, n), config.num_warps, "block_m x block_n", place))
        yield from too_large
        if not too_large and (m + n) * k > _MOST_OF_A_STAGE:
            expected = f"(block_m + block_n) x block_k of at most {_MOST_OF_A_STAGE}"
            yield error("tile-size", place, expected, f"({m} + {n}) x {k}")
    if not 0 <= config.split_k <= _MOST_SPLIT:
        yield error("split-k", place, f"split_k from 0 to {_MOST_SPLIT}", str(config.split_k))


def block_level(config: Any, place: Place) -> Iterator[Finding]:
    """Of a `BlockLevelFusionConfig`."""
    yield from _threads(config, place)
    if not config.output_tiles:
        yield error("output-tiles", place, "the sizes of each output's tiles", "none")
    for tile in config.output_tiles:
        for size in tile.sizes:
            if size < 1:
                yield error("block-size", place, "tile sizes above 0", str(size))
            elif not _is_power_of_two(size):
                yield warning("block-size", place, "tile sizes that are powers of two", str(size))
        if all(size > 0 for size in tile.sizes):
            yield from _tile(tuple(tile.sizes), config.num_warps, "a tile", place)


def native_emitter(config: Any, place: Place) -> Iterator[Finding]:
    """Of a `NativeEmitterBackendConfig`. XLA tries powers of two; 0 says none."""
    factor = config.unroll_factor
    if factor and (not _is_power_of_two(factor) or factor > _MOST_UNROLLED):
        yield error(
            "unroll-factor", place, f"an unroll_factor of 0, or a power of two up to {_MOST_UNROLLED}", str(factor)
        )
    names = type(config).DESCRIPTOR.fields_by_name["type"].enum_type.values_by_number
    if config.type not in names:
        yield error("emitter-type", place, f"a type of the emitter's (0 to {max(names)})", str(config.type))


def _threads(config: Any, place: Place) -> Iterator[Finding]:
    """Each must be said: XLA has no default for one that is 0, and some that it cannot bear end the process."""
    if not _is_power_of_two(config.num_warps) or config.num_warps > _MOST_WARPS:
        expected = f"num_warps as a power of two up to {_MOST_WARPS}"
        yield error("num-warps", place, expected, str(config.num_warps))
    if not _is_power_of_two(config.num_ctas) or config.num_ctas > _MOST_CTAS:
        yield error("num-ctas", place, f"num_ctas as a power of two up to {_MOST_CTAS}", str(config.num_ctas))
    if not 1 <= config.num_stages <= _MOST_STAGES:
        yield error("num-stages", place, f"num_stages from 1 to {_MOST_STAGES}", str(config.num_stages))
    for name in _COUNTS:
        if getattr(config, name, 0) < 0:
            yield error("negative", place, f"{name} of 0 or above", str(getattr(config, name)))


def _tile(sizes: Iterable[int], warps: int, what: str, place: Place) -> Iterator[Finding]:
    """A tile as Triton has it: each side a power of two."""
    shape = tuple(sizes)
    threads = _LANES * max(1, min(warps, _MOST_WARPS))
    most = min(_MOST_ELEMENTS, _MOST_FOR_A_THREAD * threads)
    elements = 1
    for size in shape:  # a file can say a great many: the product is not to grow with them
        elements <<= (size - 1).bit_length()
        if elements > most:
            expected = f"{what} of at most {most} elements (of {threads} threads)"
            found = " x ".join(map(str, shape[:_SHOWN])) + (" x ..." if len(shape) > _SHOWN else "")
            yield error("tile-size", place, expected, found)
            return


def _is_power_of_two(value: int) -> bool:
    return value > 0 and not value & (value - 1)
