"""A softmax kernel in Triton, compiled for an H100 that need not be there, and not run.

Prints `READY`, `FIRST` (seconds of the compile, or of its look-up), `MISSED` and `RESULT`, a digest of the machine
code.
"""

# ruff: noqa: E402  # the time that imports take is measured

from __future__ import annotations

import time

STARTED = time.perf_counter()

import hashlib

import triton
import triton.language as tl
from helper import scaled
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SIGNATURE = {"source": "*fp32", "target": "*fp32", "columns": "i32", "BLOCK": "constexpr"}


@triton.jit
def softmax(source, target, columns, BLOCK: tl.constexpr):  # noqa: ANN001, ANN201, N803  # Triton compiles this
    """The softmax of one row, scaled."""
    offsets = tl.arange(0, BLOCK)
    start = tl.program_id(0) * columns
    inside = offsets < columns
    row = scaled(tl.load(source + start + offsets, mask=inside, other=-float("inf")))
    raised = tl.exp(row - tl.max(row, axis=0))
    tl.store(target + start + offsets, raised / tl.sum(raised, axis=0), mask=inside)


def main() -> None:
    """Compile it once."""
    hits: list[bool] = []
    triton.knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
    begun = time.perf_counter()
    print(f"READY {begun - STARTED}")
    source = ASTSource(fn=softmax, signature=SIGNATURE, constexprs={"BLOCK": 1024})
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32))
    code = made.asm["cubin"]
    print(f"FIRST {time.perf_counter() - begun}")
    print(f"MISSED {hits.count(False)}")
    print(f"RESULT {hashlib.sha256(code).hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
