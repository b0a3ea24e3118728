"""Directories, FIFOs, sockets, links and device nodes where rewarm has its own files and folders.

Whatever lies there, a program's results are right and nothing hangs. What is in the way of a side file costs what that
file is for and no more: stored entries are hits, and new programs are stored.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from served import STORED, Served

from conftest import Program, entries

pytest_plugins = ["fault_fixtures"]


def directory(path: Path) -> None:
    path.mkdir()
    (path / "inside").touch()


def file(path: Path) -> None:
    path.write_bytes(b"\x00\xff garbage { [ \n" * 40)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
        server.bind(path.name[:100])


def dangling_link(path: Path) -> None:
    path.symlink_to(path.parent / "nothing")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def device_node(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except (PermissionError, OSError) as error:
        pytest.skip(f"no device nodes may be made here: {error}")


OBSTACLES: dict[str, Callable[[Path], None]] = {
    "directory": directory,
    "file": file,
    "fifo": os.mkfifo,
    "socket": bound_socket,
    "dangling link": dangling_link,
    "link to itself": link_to_itself,
    "link to a device": link_to_a_device,
    "device node": device_node,
}

WHOLE = """
    import jax, numpy as np
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    for program in (lambda x: x @ x + 1, lambda x: x - 7):
        print(np.asarray(jax.jit(program)(x)).tobytes().hex())
"""


def put_in_the_way(path: Path, kind: str) -> None:
    """Whatever lay at `path` is gone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    OBSTACLES[kind](path)


def side_paths(cache: Path) -> dict[str, Path]:
    """One of each kind of file and folder in a cache beside the entries and their directories, by its form."""
    found = {}
    for path in sorted(cache.rglob("*")):
        inside = path.relative_to(cache).as_posix()
        if re.fullmatch(r"[0-9a-f]{2}(/[0-9a-f]{64})?", inside) is None:
            found.setdefault(re.sub(r"[0-9a-f]{2,}", "*", inside), path)
    for folder in ("costs", "quarantine", "explain", "trials", "runs", "savings.json", "sizes"):
        found.setdefault(folder, cache / folder)
    return found


def copy_of(served: Served, tmp_path: Path, name: str) -> Path:
    """A copy of the cache, in force: without what earlier tests put there that is neither file nor folder.

    A device under /dev/zero's number would be copied until the disk is full.
    """

    def strange(folder: str, names: list[str]) -> list[str]:
        modes = {one: Path(folder, one).lstat().st_mode for one in names}
        return [one for one, mode in modes.items() if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))]

    shutil.copytree(served.cache, tmp_path / name, ignore=strange)
    served.asker.tell(enable={"directory": str(tmp_path / name)})
    return tmp_path / name


@pytest.mark.parametrize("kind", OBSTACLES)
def test_in_the_way_of_an_entry(served: Served, kind: str) -> None:
    if kind == "file":
        pytest.skip("that is a damaged entry")
    others = served.others("small")
    put_in_the_way(served.path("small"), kind)
    hurt = served.asker.ask("small")
    assert (hurt["outcome"], hurt["stored"]) == ("miss", True), hurt
    assert len(hurt["lines"]) == (0 if kind == "dangling link" else 1)
    assert served.path("small").is_file()
    assert not served.path("small").is_symlink()
    assert served.asker.ask("small")["outcome"] == "hit"
    assert served.others("small") == others


@pytest.mark.parametrize("kind", OBSTACLES)
def test_in_the_way_of_the_directory_of_entries(served: Served, tmp_path: Path, kind: str) -> None:
    if kind == "directory":
        pytest.skip("that is what belongs there")
    cache = copy_of(served, tmp_path, "cache")
    put_in_the_way(cache / served.keys["small"][:2], kind)
    for _ in range(2):
        hurt = served.asker.ask("small")
        assert (hurt["outcome"], hurt["stored"]) == ("miss", False), hurt
    assert len(hurt["lines"]) <= 1
    for name in STORED:
        if served.keys[name][:2] != served.keys["small"][:2]:
            assert served.asker.ask(name)["outcome"] == "hit"
    path = cache / served.keys["small"][:2]
    if not path.is_dir():
        path.unlink()
    served.asker.ask("small")
    assert served.asker.ask("small")["outcome"] == "hit"


def in_the_way_of_each(served: Served, tmp_path: Path, kind: str, step: int) -> int:
    """Each side file and folder, one after the other; returns how many there were."""
    forms = list(side_paths(served.cache))[::step]
    for number, form in enumerate(forms):
        cache = copy_of(served, tmp_path, f"{kind} {number}".replace(" ", "-"))
        put_in_the_way(cache / side_paths(served.cache)[form].relative_to(served.cache), kind)
        hit = served.asker.ask("medium")
        assert (hit["outcome"], len(hit["lines"]) <= 1) == ("hit", True), (form, hit)
        new = served.asker.ask("new")
        assert (new["outcome"], new["stored"], len(new["lines"]) <= 1) == ("miss", True, True), (form, new)
        assert served.asker.ask("new")["outcome"] == "hit", form
        damaged = cache / served.keys["small"][:2] / served.keys["small"]
        damaged.write_bytes(b"damaged")
        assert served.asker.ask("small")["outcome"] == "miss", form
        assert served.asker.ask("small")["outcome"] == "hit", form
    return len(forms)


@pytest.mark.parametrize("kind", ["fifo", "device node"])
def test_in_the_way_of_some_side_files(served: Served, tmp_path: Path, kind: str) -> None:
    assert in_the_way_of_each(served, tmp_path, kind, 2) >= 5


@pytest.mark.campaign
@pytest.mark.parametrize("kind", OBSTACLES)
def test_in_the_way_of_every_side_file(served: Served, tmp_path: Path, kind: str) -> None:
    assert in_the_way_of_each(served, tmp_path, kind, 1) >= 10


def whole_program(program: Program, cache: Path, kind: str) -> None:
    """Something in the way of everything at the root but the entries, while a fresh program starts, runs and ends."""
    on = {"REWARM_DIR": str(cache)}
    right = program(WHOLE, **on).out
    assert len(entries(cache)) == 2
    in_the_way = {path for path in side_paths(cache).values() if path.parent == cache}
    for path in in_the_way:
        put_in_the_way(path, kind)
    hurt = program(WHOLE, **on)
    assert (hurt.out, hurt.stats["hits"]) == (right, 2)
    assert "Traceback" not in hurt.err, hurt.err
    assert len(hurt.warnings()) <= 2, hurt.warnings()
    damaged = entries(cache)[0]
    damaged.write_bytes(b"damaged")
    program(WHOLE, **on)
    healed = program(WHOLE, **on)
    assert (healed.out, healed.stats["hits"]) == (right, 2)


@pytest.mark.parametrize("kind", ["directory"])
def test_a_whole_program_with_something_everywhere(program: Program, cache: Path, kind: str) -> None:
    whole_program(program, cache, kind)


@pytest.mark.campaign
@pytest.mark.parametrize("kind", [kind for kind in OBSTACLES if kind != "directory"])
def test_whole_programs_with_something_everywhere(program: Program, cache: Path, kind: str) -> None:
    whole_program(program, cache, kind)
