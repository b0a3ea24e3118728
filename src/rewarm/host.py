"""What names a host in the names of files, so that what was learnt on one is not taken for another's.

Not promised: one name for ever. A container that is made anew has another, and learns anew.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
from pathlib import Path


@functools.cache
def host_id() -> str:
    """16 hexadecimal digits for this host's name and, where there is one, its machine id (man 5 machine-id)."""
    machine = b""
    with contextlib.suppress(OSError):
        machine = Path("/etc/machine-id").read_bytes().strip()
    return hashlib.sha256(platform.node().encode("utf-8", "surrogateescape") + b"\0" + machine).hexdigest()[:16]
