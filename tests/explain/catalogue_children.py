"""Running a piece of Python with a catalogue in a child process that may be limited or unprivileged.

The child imports all it needs before it gives anything up.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_NOBODY = 65534

_PRELUDE = f"""
import os, resource, signal, sys, time
sys.path.insert(0, {str(_HERE)!r})
from pathlib import Path
from records import components, remembered
from rewarm.explain import Catalogue
root = Path(sys.argv[1])
catalogue = Catalogue(root)
def known(program):
    return len(catalogue.alike(program, components(program="another"), "another"))
"""

_DROP = f"""
if os.getuid() == 0:
    os.setgroups([]); os.setgid({_NOBODY}); os.setuid({_NOBODY})
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A child with a `catalogue` for the cache directory that is the first of `arguments`, `sys.argv[1:]`."""
    command = [sys.executable, "-B", "-c", _PRELUDE + textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


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


def run(code: str, *arguments: object) -> list[str]:
    """The lines that such a child prints."""
    return finish(start(code, *arguments))


def run_unprivileged(code: str, *arguments: object) -> list[str]:
    """As `run`, but as a user whom file modes bind; skips where there is no such user to become."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o555)
        if run(_DROP + "print(os.access(sys.argv[1], os.W_OK))", place) != ["False"]:
            pytest.skip("file modes bind nobody here: root without the right to become another user")
    return run(_DROP + textwrap.dedent(code), *arguments)
