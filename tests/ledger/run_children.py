"""Running a piece of Python that writes runs, in a child process that may be killed, limited or forked.

Not `os.fork` in the test's own process: that process may have JAX's threads in it.
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
import os, resource, signal, sys, threading, time
from pathlib import Path
from rewarm.ledger import journal
from rewarm.ledger.journal import RunWriter
from rewarm.ledger.runs import read_run, runs
writer = RunWriter(Path(sys.argv[1]), {"rewarm": "0"})
"""

_DROP = f"""
if os.getuid() == 0:
    os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
"""


def start(code: str, *arguments: object, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A child with a `writer` for the cache directory that is the first of `arguments`, `sys.argv[1:]`."""
    command = [*prefix, sys.executable, "-c", _PRELUDE + textwrap.dedent(code), *map(str, arguments)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def finish(child: subprocess.Popen[str]) -> list[str]:
    """The lines that a child prints; it must end well within a minute."""
    try:
        printed, complaints = child.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        raise
    assert child.returncode == 0, complaints
    return printed.splitlines()


def run(code: str, *arguments: object, prefix: tuple[str, ...] = ()) -> list[str]:
    """The lines that such a child prints."""
    return finish(start(code, *arguments, prefix=prefix))


def run_unprivileged(code: str, *arguments: object) -> list[str]:
    """As `run`, but as a user whom file modes bind; skips where there is no such user to become."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o555)
        if run(_DROP + "print(os.access(sys.argv[1], os.W_OK))", place) != ["False"]:
            pytest.skip("file modes bind nobody here: root without the right to become another user")
    return run(_DROP + textwrap.dedent(code), *arguments)


def run_mounting(mount: str, code: str, *arguments: object) -> list[str]:
    """As `run`, after the shell command `mount` in a mount namespace of the child's own; skips where not allowed."""
    unshare = mount_namespace()
    if unshare is None:
        pytest.skip("no right to mount, not even in a namespace of its own")
    return run(code, *arguments, prefix=(*unshare, "sh", "-c", f'{mount} && exec "$0" "$@"'))


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
