"""From what a user names, plans, targets and topologies, to the jobs that are to be done.

Not promised: that the JAX that is here can describe the target; the worker finds that out.
"""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterator, Sequence

from rewarm import settings, targets
from rewarm.errors import RewarmError, SettingError
from rewarm.in_force import Settings
from rewarm.jax_adapter import described
from rewarm.jax_adapter.plans import check_form
from rewarm.prewarm.work import Job

# Has XLA say how many tuning results it looked up and found (JAX 0.11 and later); `jax_adapter.prewarming` reads it.
_COUNTS = "config_assigner_pass=1"


# Spaces around the x, as in JAX's own `jax_mock_gpu_topology`: "4 x 8 x 1".
_SPACED = re.compile(r"(?<=\d)\s*x\s*(?=\d)")

# How many CPU devices are described. XLA:CPU gives a process a thread for each of its devices, and makes no more than
# 256. Of a job 16384 were compiled for (3 s, 240 MB), and no more were tried.
_MOST_OF_PROCESS = 256
_MOST_OF_JOB = 16384


class WrongJaxError(RewarmError, RuntimeError):
    """The JAX that is here is not the one that is asked for, or there is none."""


def jobs(plans: Sequence[str], named: Sequence[str], topologies: Sequence[str], more: dict[str, str]) -> Iterator[Job]:
    """Each plan for each target in each topology; where no topology is named, in the target's own.

    Args:
      plans: as `jax_adapter.plans` takes them.
      named: targets.
      topologies: as each of the targets takes them.
      more: variables for the workers.

    Raises:
      PlanError: one is no plan's name, or the file that it names is not there.
      TargetError, UnknownTargetError, TopologyError: there is no such target or topology, or no compiler for it.
    """
    for plan in plans:
        check_form(plan)
    for plan in plans:
        for name in named:
            for text in topologies or (None,):
                yield _job(plan, name, text, more)


def variables(in_force: Settings) -> dict[str, str]:
    """What the workers are told of the settings of a command. They read remotes and write to none: `--push` does.

    Raises:
      SettingError: an address cannot be used.
    """
    told = {"REWARM_DIR": str(in_force.directory), "REWARM_NAMESPACE": in_force.namespace}
    told["REWARM_READ_NAMESPACES"] = ",".join(in_force.read_namespaces)
    told["REWARM_REMOTE"] = ",".join(_read_only(text) for text in in_force.remote) or "none"
    if in_force.autotune_lock is not None:
        told["REWARM_AUTOTUNE_LOCK"] = str(in_force.autotune_lock)
    return told


def _read_only(address: str) -> str:
    kept = [part for part in address.partition("?")[2].split("&") if part and not part.startswith("write=")]
    return f"{address.partition('?')[0]}?{'&'.join([*kept, 'write=no'])}"


def _job(plan: str, name: str, text: str | None, more: dict[str, str]) -> Job:
    target = targets.named(name)
    if (why := described.wrong_architecture(target)) is not None:
        raise targets.TargetError(f"{name}: {why}")
    text = None if text is None else _SPACED.sub("x", text.strip())
    topology = target.topology(text)
    if target.platform == "cpu":
        _see_size(topology)
    environment = {**described.environment(target, topology), **more}
    flags = settings.xla_flags()
    if target.platform == "cpu" and topology.local > 1:
        # Where JAX cannot describe CPUs, the worker's own devices take their place.
        flags = f"{flags} --xla_force_host_platform_device_count={topology.local}".strip()
    if flags:
        environment["XLA_FLAGS"] = flags
    if target.platform == "cuda":
        environment |= {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": _COUNTS}
    # XLA:GPU keeps tuning results in a table of the process.
    return Job(plan, name, target.platform, text or topology.text, environment, int(target.platform == "cuda"))


def _see_size(topology: targets.Topology) -> None:
    """See that so many CPU devices can be described.

    Raises:
      TopologyError: they are too many.
    """
    if topology.local > _MOST_OF_PROCESS or topology.devices > _MOST_OF_JOB:
        raise targets.TopologyError(
            f"cpu has no topology {topology.text}: expected at most {_MOST_OF_PROCESS} devices in a process and "
            f"{_MOST_OF_JOB} in the job, found {topology.local} and {topology.devices}"
        )


def check_lock(in_force: Settings) -> None:
    """See that the lock file that is asked for is there, whatever the targets are.

    Raises:
      SettingError: it is not.
    """
    lock = in_force.autotune_lock
    if lock is None:
        return
    try:
        with lock.open("rb"):
            return
    except OSError as error:
        raise SettingError(f"--lock (REWARM_AUTOTUNE_LOCK): cannot read {lock}: {error.strerror or error}") from None


def check_jax(version: str) -> None:
    """See that the JAX that is here is this one.

    Raises:
      WrongJaxError: it is not; the message says how to run this with that one.
    """
    try:
        here = importlib.metadata.version("jax")
    except importlib.metadata.PackageNotFoundError:
        here = ""
    if here != version:
        found = f"JAX {here}" if here else "no JAX"
        raise WrongJaxError(
            f"--for-jax {version}: {sys.executable} has {found}, whose compiler makes other entries. Run this where "
            f"JAX {version} is: python -m venv jax-{version}; jax-{version}/bin/pip install rewarm 'jax=={version}' "
            f"and what the plan imports; jax-{version}/bin/rewarm prewarm ..."
        )
