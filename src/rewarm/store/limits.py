"""The bounds of a store, from the settings that are in force and the disk that it lies on.

Not promised: that the default bound stays the same. It follows the room on the disk, looked at when a store is opened.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from rewarm.in_force import Settings, default_max_size
from rewarm.policy import Bounds


def bounds_of(in_force: Settings, held: int = 0) -> Bounds:
    """The bounds of the store in `in_force.directory`, of which `held` bytes are known to be there already."""
    size = in_force.max_size
    if size is None:
        size = default_max_size(_free(in_force.directory), held)
    return Bounds(
        max_size=size if size >= 0 else None,
        max_entries=in_force.max_entries if in_force.max_entries >= 0 else None,
        max_age=in_force.max_age if in_force.max_age >= 0 else None,
    )


def _free(directory: Path) -> int:
    """The bytes left on the disk that `directory` lies on, or will lie on; unknown counts as plenty."""
    for place in (directory, *directory.parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:
            continue
    return 1 << 62
