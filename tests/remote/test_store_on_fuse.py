"""The local store on a FUSE mount, which has no hard links: a real one, made by rclone, where this machine has FUSE."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from servers import Server

from conftest import clean_environment, execute
from rewarm.policy import Bounds
from rewarm.store import LocalStore
from rewarm.store.conformance import StoreConformance, key_of

pytest_plugins = ["remote_fixtures"]

_numbers = itertools.count()

PROGRAM = """
import jax, numpy as np
print(float(jax.jit(lambda x: (x @ x + 1).sum())(np.ones((8, 8), np.float32))))
"""


@pytest.fixture
def mounted(server: Callable[[str], Server]) -> Path:
    """An empty folder on the mount."""
    data = server("fuse").data
    assert data is not None
    folder = data / f"store_{next(_numbers)}"
    folder.mkdir()
    return folder


def test_it_has_no_hard_links(mounted: Path) -> None:
    (mounted / "file").write_text("x")
    with pytest.raises(OSError, match=r"\[Errno"):
        os.link(mounted / "file", mounted / "link")


class TestConformance(StoreConformance):
    """The shipped class, on the mount, with one thread at a time.

    While several replace one file, this mount hands out empty files to who reads it: no entry, so a miss.
    """

    threads = 1

    @pytest.fixture(autouse=True)
    def _on_the_mount(self, mounted: Path) -> None:
        self.mounted = mounted

    def make_store(self, place: Path) -> LocalStore:
        """In a folder of the test's own name."""
        return LocalStore(self.mounted / place.name)


def test_bounds_hold_there(mounted: Path) -> None:
    store = LocalStore(mounted / "bounded", bounds=Bounds(max_entries=10))
    for number in range(40):
        store.put(key_of(number), b"x" * 100, seconds=1.0)
    assert sum(1 for _ in store.scan()) <= 10
    assert store.get(key_of(39)) == b"x" * 100


def test_a_whole_program_hits_there(mounted: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    env = clean_environment(REWARM_DIR=str(mounted / "cache"), REWARM_STATS="json")
    cold, warm = (execute([sys.executable, "program.py"], env=env, cwd=tmp_path) for _ in range(2))
    assert (cold.code, warm.code, cold.out, warm.out) == (0, 0, "576.0\n", "576.0\n"), cold.err + warm.err
    assert (cold.stats["stored"], warm.stats["hits"], warm.stats["misses"]) == (1, 1, 0)
