"""The `target` component: what the compiler reads of the device.

Not promised: that two hosts with the same value run at the same speed. On CPU the value is the instruction set, not
the model, so an entry made on one host serves another that has the same instructions.

* CPU: the triple, the instruction-set features that are present, the number of threads that XLA divides work among
  (the same program compiled for one thread and for two gives other last bits), and the shape of the device
  assignment. The features that only steer tuning, the CPU's name, process index, device ids and the number of
  devices of the host do not count.
* GPU: the topology but for the CPU beside the GPUs (`gpu_topology.py`), the platform's version and the shape of the
  assignment.
* TPU: the topology, the platform's version (which names the libtpu build) and the assignment itself, since the
  executable depends on which devices it is made for.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any, NamedTuple

from rewarm.identity.gpu_topology import fields_of
from rewarm.identity.machine import Machine


class TargetFacts(NamedTuple):
    """What JAX says of the devices of one request.

    Attributes:
      platform: "cpu", "gpu" or "tpu".
      platform_version: the backend's own text.
      device_kinds: one per device, in the order of the assignment.
      assignment: device ids, shape (replicas, partitions).
      topology: the serialised topology, where this JAX has it.
      fingerprint: the topology's fingerprint, where this JAX has it.
      machine: the CPU that code is made for; `None` elsewhere.
      threads: how many threads XLA:CPU divides the work of one program among; 0 elsewhere.
    """

    platform: str
    platform_version: str
    device_kinds: tuple[str, ...]
    assignment: tuple[tuple[int, ...], ...]
    topology: bytes | None
    fingerprint: int | None
    machine: Machine | None = None
    threads: int | tuple[int, int] = 0

    @property
    def shape(self) -> list[int]:
        """Replicas and partitions."""
        return [len(self.assignment), len(self.assignment[0]) if self.assignment else 0]

    def summary(self) -> str:
        """A few words for lists."""
        count = self.shape[0] * self.shape[1]
        kinds = "/".join(sorted(set(self.device_kinds)))
        return f"{self.platform} {kinds} x{count}" if kinds != self.platform else f"{self.platform} x{count}"


def canonical_target(facts: TargetFacts) -> dict[str, Any]:
    """The component's value.

    Raises:
      ValueError: JAX says neither the topology nor its fingerprint, so the devices cannot be identified.
    """
    shape = {"platform": facts.platform, "shape": facts.shape}
    if facts.platform == "cpu":
        return {**shape, "threads": facts.threads, **_cpu(facts)}
    told = {**shape, "kinds": sorted(set(facts.device_kinds)), "version": facts.platform_version}
    if facts.platform == "tpu":
        told["assignment"] = [list(row) for row in facts.assignment]
    return {**told, "topology": _topology(facts)}


def _topology(facts: TargetFacts) -> dict[str, str] | str:
    """Of GPUs field by field, so that people are told which one differs; of others a digest."""
    if facts.platform == "gpu" and facts.topology is not None:
        with contextlib.suppress(ValueError):  # of another form: all of its bytes count
            return fields_of(facts.topology)
    return _topology_digest(facts)


def _topology_digest(facts: TargetFacts) -> str:
    if facts.topology is not None:
        return hashlib.sha256(facts.topology).hexdigest()
    if facts.fingerprint is not None:
        return f"fingerprint {facts.fingerprint:016x}"
    raise ValueError(f"JAX tells no topology of {facts.platform} {facts.platform_version!r}")


def _cpu(facts: TargetFacts) -> dict[str, Any]:
    if facts.machine is None:
        raise ValueError("JAX does not say which CPU it makes code for")
    return {"triple": facts.machine.triple, "features": ",".join(facts.machine.features)}
