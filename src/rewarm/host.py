"""What names a host in the names of files, so that what was learnt on one is not taken for another's; its processes.

Not promised: one name for ever. A container that is made anew has another, and learns anew.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import sys
from pathlib import Path


@functools.cache
def host_id() -> str:
    """16 hexadecimal digits for this host's name and, where there is one, its machine id (man 5 machine-id)."""
    machine = b""
    with contextlib.suppress(OSError):
        machine = Path("/etc/machine-id").read_bytes().strip()
    return hashlib.sha256(platform.node().encode("utf-8", "surrogateescape") + b"\0" + machine).hexdigest()[:16]


@functools.cache
def process_space() -> str:
    """16 hexadecimal digits for the processes among which a number means one: of this host, since it was started, and
    of one container. "" where nobody can tell, as where /proc is not there."""
    if not sys.platform.startswith("linux"):
        return _short(host_id())
    try:
        booted = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return _short(f"{host_id()} {booted} {os.readlink('/proc/self/ns/pid')}")  # noqa: PTH115 - it leads nowhere
    except (OSError, ValueError):
        return ""


def is_gone(process: int) -> bool:
    """Whether no process of this space has that number any more, or only its parent remembers it."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[:1] == [b"Z"]
    return False


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
