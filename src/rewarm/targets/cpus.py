"""CPUs: the levels of x86-64, and this host.

Not promised: that a machine of a level has nothing more. XLA compiles for all that a machine has, so a program's key
on a real one has its own features, and equals that of a level only where the machine says just these; `differences`
shows what it has beyond. A flag that lowers what XLA uses (`--xla_cpu_max_isa`) changes what the machine says.

Source of the levels: System V ABI for x86-64, "Micro-architecture levels", in LLVM's names for the features.
"""

from __future__ import annotations

from rewarm import settings
from rewarm.targets.model import Processor, Target

HOST = "host"
_TRIPLE = "x86_64-unknown-linux-gnu"
_V2 = ("64bit", "cmov", "crc32", "cx16", "cx8", "fxsr", "mmx", "popcnt", "sahf", "sse", "sse2", "sse3", "sse4.1")
_V3 = (*_V2, "sse4.2", "ssse3", "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

_LEVELS = {
    "x86-64-v3": (_V3, "x86-64 with AVX2, FMA and BMI: most servers since 2013"),
    "x86-64-v4": (_V4, "x86-64 with AVX-512 F, BW, CD, DQ and VL"),
}


def names() -> tuple[str, ...]:
    """The CPUs that are described here."""
    return (HOST, *_LEVELS)


def target(name: str) -> Target:
    """One of `names`, with as many threads as XLA takes in this process.

    Raises:
      KeyError: it is none of them.
    """
    threads = settings.cpu_threads()
    if name == HOST:
        return Target(HOST, "cpu", "the CPU of this host, as JAX reports it", "this host", threads=threads)
    features, about = _LEVELS[name]
    processor = Processor(_TRIPLE, name, ",".join(f"+{one}" for one in sorted(features)))
    return Target(name, "cpu", about, processor=processor, threads=threads)
