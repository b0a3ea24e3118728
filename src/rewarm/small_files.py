"""Small files that are written whole: memos, and the parts of the catalogue.

Not promised: that a file survives a power cut; nothing is synced. What is kept here can be worked out again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def replace(path: Path, data: bytes) -> None:
    """Make `data` the content of `path`, mode 0600: whoever reads it finds the old content or the new.

    Of two that write at once the later wins.

    Raises:
      OSError: it cannot be written. Nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
