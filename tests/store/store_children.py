"""Running a piece of Python in a child process that may be killed, limited, unprivileged or in a namespace of its own.

Not `os.fork` in the test's own process: that process may have JAX's threads in it. The child imports all it needs
before it gives anything up, since the interpreter's own files may be out of reach afterwards.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

NOBODY = 65534

_PRELUDE = """
import errno, json, os, resource, signal, stat, sys, time
from pathlib import Path
from rewarm.errors import BadEntryError, RewarmError, StoreError
from rewarm.store import LocalStore
from rewarm.store.conformance import key_of
def told(act, *arguments):
    try:
        return repr(act(*arguments))
    except RewarmError as error:
        return f"{type(error).__name__} {errno.errorcode.get(getattr(error, 'errno', None), '-')}"
"""

# What an unprivileged user's codecs, encodings and error paths would import only once the rights are gone.
_DROP = f"""
if os.getuid() == 0:
    told(LocalStore(Path("/dev/null/x")).put, key_of(0), b"")
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
"""


def start(code: str, *arguments: object, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A child that runs `code` after the prelude, with `arguments` in `sys.argv[1:]`."""
    command = [*prefix, sys.executable, "-c", _PRELUDE + textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=_environment())


def run(code: str, *arguments: object, prefix: tuple[str, ...] = ()) -> list[str]:
    """The lines that such a child prints; it must end well within a minute."""
    child = start(code, *arguments, prefix=prefix)
    try:
        printed, complaints = child.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise
    assert child.returncode == 0, complaints
    return printed.splitlines()


def run_unprivileged(code: str, *arguments: object) -> list[str]:
    """As `run`, but as a user whom file modes bind; skips where there is no such user to become."""
    if not can_be_bound_by_modes():
        pytest.skip("file modes bind nobody here: root without the right to become another user")
    return run(_DROP + textwrap.dedent(code), *arguments)


def run_mounting(mount: str, code: str, *arguments: object) -> list[str]:
    """As `run`, after the shell command `mount` in a mount namespace of the child's own; skips where not allowed."""
    unshare = mount_namespace()
    if unshare is None:
        pytest.skip("no right to mount, not even in a namespace of its own")
    return run(code, *arguments, prefix=(*unshare, "sh", "-c", f'{mount} && exec "$0" "$@"'))


@functools.cache
def can_be_bound_by_modes() -> bool:
    """Whether a child can be made that may not write to a directory of mode 0500."""
    with tempfile.TemporaryDirectory() as place:
        shut = Path(place) / "shut"
        shut.mkdir()
        shut.chmod(0o555)
        Path(place).chmod(0o755)
        try:
            printed = run(_DROP + "print(os.access(sys.argv[1], os.W_OK))", shut)
        except AssertionError:
            return False
        return printed == ["False"]


@functools.cache
def mount_namespace() -> tuple[str, ...] | None:
    """The command that runs another in a mount namespace where it may mount a tmpfs, or `None`."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        return None
    for unshare in (("unshare", "--mount"), ("unshare", "--map-root-user", "--mount")):
        with tempfile.TemporaryDirectory() as place:
            attempt = [*unshare, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place]
            if subprocess.run(attempt, capture_output=True, check=False).returncode == 0:
                return unshare
    return None


def _environment() -> dict[str, str]:
    # Without bytecode files: an unprivileged or limited child could not write them.
    return {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
