"""Whole programs over a disk that is full, has no inodes left, or is read-only: a small tmpfs in a mount namespace."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from conftest import clean_environment

_PROGRAM = """
import json, sys, jax, numpy as np, rewarm
x = np.arange(16, dtype=np.float32).reshape(4, 4)
programs = (lambda x: x @ x + 1, lambda x: x - 7, lambda x: x.sum(0))
results = [np.asarray(jax.jit(program)(x)).tobytes().hex() for program in programs]
numbers = rewarm.stats()
print(json.dumps([results, numbers.hits, numbers.stored, numbers.errors]))
"""


def unshare() -> tuple[str, ...]:
    """The command that runs another where it may mount; skips where there is none."""
    if shutil.which("unshare") is None or shutil.which("mount") is None:
        pytest.skip("no unshare or mount")
    for command in (("unshare", "--mount"), ("unshare", "--map-root-user", "--mount")):
        with tempfile.TemporaryDirectory() as place:
            attempt = [*command, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place]
            if subprocess.run(attempt, capture_output=True, check=False).returncode == 0:
                return command
    pytest.skip("no right to mount, not even in a namespace of its own")


def runs(place: Path, options: str, then: str) -> list[list[Any]]:
    """A program without rewarm, one over the bad disk, and after `then` two more: what each printed."""
    disk, source = place / "disk", place / "program.py"
    disk.mkdir()
    source.write_text(_PROGRAM)
    script = f"""
        "$0" "$1" && mount -t tmpfs -o {options} tmpfs "$2" || exit 9
        export REWARM_DIR="$2/cache"
        "$0" "$1" && {then} && "$0" "$1" && "$0" "$1"
    """
    command = [*unshare(), "sh", "-c", script, sys.executable, str(source), str(disk)]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr, done.stderr
    assert sum("rewarm" in line for line in done.stderr.splitlines()) <= 4, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_over(said: list[list[Any]]) -> None:
    """The results were right throughout, and the last run hits all."""
    right = said[0][0]
    assert [one[0] for one in said] == [right] * 4
    assert said[3][1] == 3


def test_a_disk_with_room_for_one_entry(tmp_path: Path) -> None:
    said = runs(tmp_path, "size=44k", 'mount -o remount,size=64m "$2"')
    assert_over(said)
    assert said[1][2] < 3, "not all fitted, so the disk was full"


@pytest.mark.campaign
def test_a_disk_without_inodes(tmp_path: Path) -> None:
    said = runs(tmp_path, "size=64m,nr_inodes=7", 'mount -o remount,nr_inodes=1000 "$2"')
    assert_over(said)
    assert said[1][2] < 3


@pytest.mark.campaign
def test_a_disk_without_room_for_anything(tmp_path: Path) -> None:
    said = runs(tmp_path, "size=4k", 'mount -o remount,size=64m "$2"')
    assert_over(said)
    assert said[1][2] == 0


@pytest.mark.campaign
def test_a_disk_that_is_mounted_read_only(tmp_path: Path) -> None:
    said = runs(tmp_path, "size=64m,ro", 'mount -o remount,rw "$2"')
    assert_over(said)
    assert said[1][2] == 0
