"""A machine as programs are compiled for it.

Not promised: that what a target leaves unsaid is the same on every such machine. What it says is what the compilers
read; what only a real machine can say (`Reported`) is there for a captured one alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rewarm.settings import MOST_CPU_THREADS
from rewarm.targets import topologies
from rewarm.targets.topologies import Grid, Topology

# More processors than this no machine is said to have.
MOST_SAID = 1 << 16

# JAX 0.9 refuses fields of a GPU's description that it does not know; they stand between these two comments.
_BEGIN, _END = "# After JAX 0.9.", "# Every JAX."


@dataclass(frozen=True, slots=True)
class Processor:
    """A CPU as XLA describes it (`xla.TargetMachineOptionsProto`).

    Attributes:
      triple: such as "x86_64-unknown-linux-gnu".
      cpu: LLVM's name for the model, which steers the choice of instructions and is in no key of a CPU program.
      features: LLVM's, separated by commas: "+avx2,-avx512f". What is not named is absent.
    """

    triple: str
    cpu: str
    features: str

    @property
    def present(self) -> frozenset[str]:
        """The features that it has, without the words that only steer tuning."""
        words = (word[1:] for word in self.features.split(",") if word.startswith("+"))
        return frozenset(word for word in words if not word.startswith("prefer-"))


@dataclass(frozen=True, slots=True)
class Reported:
    """What JAX said on the machine itself.

    Attributes:
      platform_version: the client's own text.
      device_kinds: one for each device of the process, or of the job where the platform tells.
      topology: XLA's serialised topology; `None` where that JAX has none.
      fingerprint: the topology's, where that JAX has it alone.
      shape: the topology as `Target.topology` takes it.
      versions: of jax, jaxlib and what compiles beside them, by the names of their distributions.
    """

    platform_version: str
    device_kinds: tuple[str, ...]
    topology: bytes | None
    fingerprint: int | None
    shape: str
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of machine.

    Attributes:
      name: what it is called.
      platform: "cuda", "tpu" or "cpu", as JAX has them.
      about: a line for lists.
      source: "built in", "this host", or the path of the file that describes it.
      config: CUDA: the text `stream_executor.GpuTargetConfigProto`.
      host: CUDA: the CPU beside it, as "triple/model", which topologies of JAX 0.12 name; "" where it is not known.
      chip: TPU: libtpu's name of the chip.
      chip_config: TPU: libtpu's name of how its cores are used ("default", "megacore").
      grid: TPU: how its chips are laid out.
      processor: CPU: whose code it runs; `None` for the host's own, which JAX tells.
      threads: CPU: how many threads XLA divides a program's work among, unless a process has more devices; of more than
        256 it takes that many.
      reported: what the machine said, of a captured one.
    """

    name: str
    platform: str
    about: str
    source: str = "built in"
    config: str = ""
    host: str = ""
    chip: str = ""
    chip_config: str = "default"
    grid: Grid | None = None
    processor: Processor | None = None
    threads: int = 0
    reported: Reported | None = None

    def topology(self, text: str | None = None) -> Topology:
        """The topology that a text says; by default what the machine reported, else the smallest.

        Args:
          text: "nodes x processes x devices" as JAX has it ("4x8x1"), or the platform's own form: CUDA and CPU take
            "8", the devices of one process, CPU also "2x4", processes and the devices of each; a TPU slice is its
            chips in each direction ("4x4", "2x2x4"), and "2x4@2x4" says how many of them a host has.

        Raises:
          TopologyError: it has none of these forms; the message has them.
        """
        if text is None:
            text = self.reported.shape if self.reported is not None else None
        return topologies.parsed(self.platform, self.chip, self.grid, text)

    def threads_of(self, topology: Topology) -> int:
        """How many threads a process of this topology divides a program's work among; 0 for what is no CPU.

        XLA:CPU takes as many as `NPROC` or the affinity say, or as the process has devices where that is more, and at
        most 256.
        """
        return min(max(self.threads, topology.local), MOST_CPU_THREADS) if self.platform == "cpu" else 0

    def config_for(self, jax: str) -> str:
        """`config` as the compiler of a JAX takes it: 0.9 gets fewer fields."""
        parts = jax.split(".")[:2]
        if not (len(parts) == 2 and all(part.isdecimal() for part in parts)) or tuple(map(int, parts)) >= (0, 10):
            return self.config
        head, _, rest = self.config.partition(_BEGIN)
        return head.rstrip(" ") + rest.partition(_END)[2].lstrip("\n") if rest else self.config

    def with_threads(self, threads: int) -> Target:
        """The same CPU with another number of threads."""
        return replace(self, threads=threads)
