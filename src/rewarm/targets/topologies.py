"""How many machines of a kind work together: the texts that say so, and what they mean.

Not promised: that such a slice or cluster can be bought. A compiler may refuse what is well formed here, and says why.

    CUDA   nodes x processes x devices, JAX's form: 4x8x1 is 4 nodes (NVLink domains) of 8 processes with 1 GPU each
           8                                        one process with 8 GPUs, 1x1x8
    CPU    nodes x processes x devices              as above: 1x2x4 is 2 processes with 4 devices each
           processes x devices, or devices          2x4, or 4
    TPU    the chips in each direction              2x4 (v5e, v6e) or 2x2x4 (v4, v5p, tpu7x); also v5e:2x4, as libtpu
                                                    takes it, and 2x4@2x4 with the chips of one host behind the @;
                                                    2*2x4 is two such slices, joined by the data centre's network
           nodes x processes x devices              of chips in two directions alone, where it could not be meant as
                                                    the form above: 1x2x4 is the slice of 8 chips whose hosts have 4
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from rewarm.targets.wrong import TopologyError

_NUMBERS = re.compile(r"[1-9][0-9]{0,5}(?:x[1-9][0-9]{0,5}){0,3}")
_MOST_DEVICES = 1 << 20

# The slices that are sold of chips in two directions: v5e and v6e, by their number of chips.
# Source: https://cloud.google.com/tpu/docs/v5e and .../v6e, "Configurations".
_SLICES = {1: (1, 1), 4: (2, 2), 8: (2, 4), 16: (4, 4), 32: (4, 8), 64: (8, 8), 128: (8, 16), 256: (16, 16)}
_HOSTS = {1: (1, 1), 4: (2, 2), 8: (2, 4)}


class Grid(NamedTuple):
    """How the chips of a kind of TPU are laid out.

    Attributes:
      directions: 2 or 3.
      devices: how many devices of JAX's one chip is.
      host: the chips of one host in each direction, as libtpu has it unless it is told otherwise.
    """

    directions: int
    devices: int
    host: tuple[int, int, int] = (2, 2, 1)


class Topology(NamedTuple):
    """How many devices there are, and in how many processes.

    Attributes:
      text: what the platform's compiler takes: "4x8x1" for CUDA and CPU, "v5e:2x4" for TPU.
      processes: of the whole job.
      devices: of the whole job.
      host: TPU: the chips of one host in each direction, where they are not libtpu's own.
      slices: TPU: how many slices of this text there are, joined by the data centre's network.
    """

    text: str
    processes: int
    devices: int
    host: tuple[int, ...] = ()
    slices: int = 1

    @property
    def local(self) -> int:
        """The devices of one process."""
        return self.devices // self.processes

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of its text."""
        return tuple(int(one) for one in self.text.rpartition(":")[2].split("x"))


def parsed(platform: str, chip: str, grid: Grid | None, text: str | None) -> Topology:
    """The topology that a text says, of a platform and, on TPU, of a chip; of no text, the smallest.

    Raises:
      TopologyError: it has no form of the platform's.
    """
    if grid is not None:
        return _slice(chip, grid, "x".join("1" * grid.directions) if text is None else text)
    numbers = _numbers(platform, "1" if text is None else text.strip())
    if len(numbers) == 1:
        numbers = (1, 1, *numbers)
    elif len(numbers) == 2 and platform == "cpu":
        numbers = (1, *numbers)
    if len(numbers) != 3 or math.prod(numbers) > _MOST_DEVICES:
        raise TopologyError(_forms(platform, str(text)))
    nodes, processes, devices = numbers
    return Topology("x".join(map(str, numbers)), nodes * processes, math.prod((nodes, processes, devices)))


def _numbers(platform: str, text: str) -> tuple[int, ...]:
    if not _NUMBERS.fullmatch(text):
        raise TopologyError(_forms(platform, text))
    return tuple(int(one) for one in text.split("x"))


def _forms(platform: str, text: str) -> str:
    own = "8, the devices of one process"
    if platform == "cpu":
        own = "2x4, processes and the devices of each, or 4, the devices of one"
    return f"{platform} has no topology {text!r}: expected nodes x processes x devices, such as 1x2x4, or {own}"


def _slice(chip: str, grid: Grid, text: str) -> Topology:
    several, star, rest = text.strip().partition("*")
    if star:
        return _several(chip, grid, several, rest, text)
    said, at, hosts = text.strip().partition("@")
    named, colon, shape = said.rpartition(":")
    if colon and named != chip:
        raise TopologyError(_forms_of_slices(chip, grid, text))
    numbers = _of_slice(chip, grid, shape, text)
    host: tuple[int, ...] = ()
    if at:
        host = _of_slice(chip, grid, hosts, text)
    elif len(numbers) != grid.directions:
        numbers, host = _in_processes(chip, grid, numbers, text)
    usual = _host_of(grid, numbers)
    bounds = (*(host or usual), 1)[:3]
    whole = (*numbers, 1)[:3]
    does_fit = all(all_ % one == 0 for all_, one in zip(whole, bounds, strict=True))
    if math.prod(numbers) * grid.devices > _MOST_DEVICES or not does_fit:
        raise TopologyError(_forms_of_slices(chip, grid, text))
    processes = math.prod(numbers) // math.prod(bounds)
    name = f"{chip}:{'x'.join(map(str, numbers))}"
    return Topology(name, processes, math.prod(numbers) * grid.devices, () if bounds == usual else bounds)


def _several(chip: str, grid: Grid, several: str, rest: str, text: str) -> Topology:
    """So many slices of one form. In the form of nodes, processes and devices a node is no slice."""
    plain = len(rest.partition("@")[0].rpartition(":")[2].split("x")) == grid.directions
    if not (_NUMBERS.fullmatch(several) and several.isdecimal() and plain) or "*" in rest:
        raise TopologyError(_forms_of_slices(chip, grid, text))
    one, slices = _slice(chip, grid, rest), int(several)
    if one.devices * slices > _MOST_DEVICES:
        raise TopologyError(_forms_of_slices(chip, grid, text))
    return one._replace(processes=one.processes * slices, devices=one.devices * slices, slices=slices)


def _of_slice(chip: str, grid: Grid, shape: str, text: str) -> tuple[int, ...]:
    if not _NUMBERS.fullmatch(shape):
        raise TopologyError(_forms_of_slices(chip, grid, text))
    numbers = tuple(int(one) for one in shape.split("x"))
    if len(numbers) != grid.directions and not (grid.directions == 2 and len(numbers) == 3 and shape == text.strip()):
        raise TopologyError(_forms_of_slices(chip, grid, text))
    return numbers


def _host_of(grid: Grid, numbers: tuple[int, ...]) -> tuple[int, ...]:
    """As libtpu has it: a slice of one chip is a host of one."""
    return tuple(min(one, all_) for one, all_ in zip(grid.host, (*numbers, 1)[:3], strict=True))


def _in_processes(
    chip: str, grid: Grid, numbers: tuple[int, ...], text: str
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The slice of so many nodes, processes and devices, and the chips of one of its hosts."""
    nodes, processes, devices = numbers
    found, host = _SLICES.get(nodes * processes * devices), _HOSTS.get(devices)
    if found is None or host is None:
        raise TopologyError(_forms_of_slices(chip, grid, text))
    return found, host


def _forms_of_slices(chip: str, grid: Grid, text: str) -> str:
    good = "2x4, 4x4 or 16x16" if grid.directions == 2 else "2x2x1, 2x2x2 or 4x4x4"
    host = "2x4@2x4" if grid.directions == 2 else "2x2x2@2x2x1"
    more = ""
    if grid.directions == 2:
        more = (
            f"; nodes x processes x devices is taken for {', '.join(map(str, _SLICES))} chips with 1, 4 or 8 to a host"
        )
    return (
        f"{chip} has no slice {text!r}: expected its chips in each of {grid.directions} directions, such as {good} "
        f"(or {chip}:{good.split(',', maxsplit=1)[0]}), or with the chips of one host: {host}, or several "
        f"slices of one form: 2*{good.split(',', maxsplit=1)[0]}{more}"
    )
