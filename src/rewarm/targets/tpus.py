"""TPU slices, by the names that libtpu takes.

Not promised: that what libtpu makes of a name is what an attached slice reports; only a captured one says. Names and
shapes: libtpu 0.0.52, asked for each. Chips and their cores: https://cloud.google.com/tpu/docs/system-architecture.
"""

from __future__ import annotations

from typing import NamedTuple

from rewarm.targets.model import Target
from rewarm.targets.topologies import Grid


class _Chip(NamedTuple):
    grid: Grid
    about: str
    config: str = "default"


# "megacore": the two cores of a chip are one device, which is how JAX shows these chips on Cloud TPU.
_CHIPS = {
    "v4": _Chip(Grid(3, 1), "TPU v4, 32 GB a chip; one device a chip", "megacore"),
    "v5e": _Chip(Grid(2, 1), "TPU v5e, 16 GB a chip"),
    "v5p": _Chip(Grid(3, 1), "TPU v5p, 95 GB a chip; one device a chip", "megacore"),
    "v6e": _Chip(Grid(2, 1), "TPU v6e (Trillium), 32 GB a chip"),
    "tpu7x": _Chip(Grid(3, 2), "TPU7x (Ironwood), 192 GB a chip; two devices a chip"),
}
_ALSO = {"7x": "tpu7x", "v7x": "tpu7x"}


def names() -> tuple[str, ...]:
    """The kinds of TPU that are described here."""
    return tuple(_CHIPS)


def chip_of_kind(kind: str) -> str | None:
    """The name of the chip whose devices JAX calls so ("TPU v5 lite"); `None` of another.

    Source: what devices made of each name say, and `jax.experimental.topologies`.
    """
    kinds = {"TPU v4": "v4", "TPU v5 lite": "v5e", "TPU v5e": "v5e", "TPU v5": "v5p", "TPU v5p": "v5p"}
    return {**kinds, "TPU v6 lite": "v6e", "TPU v6e": "v6e", "TPU7x": "tpu7x"}.get(kind)


def target(name: str) -> Target:
    """One of `names`, or another word for one.

    Raises:
      KeyError: it is none.
    """
    chip = _ALSO.get(name, name)
    known = _CHIPS[chip]
    return Target(chip, "tpu", known.about, chip=chip, chip_config=known.config, grid=known.grid)
