"""The bounds in real programs: JAX's option and rewarm's, lowered and lifted, and what a program hears of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from conftest import Program, entries

# As many programs as the argument says, all different; prints one number that depends on them all.
PROGRAM = """
    import sys, jax, numpy as np
    first, last = (int(word) for word in sys.argv[1:3])
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    print(sum(float(jax.jit(lambda x, k=k: (x @ x + k).sum())(x)) for k in range(first, last)))
"""


def held(cache: Path) -> int:
    return sum(path.stat().st_size for path in entries(cache))


def size_of_one(program: Program, folder: Path) -> int:
    program(PROGRAM, "0", "1", REWARM_DIR=str(folder))
    (path,) = entries(folder)
    return path.stat().st_size


@pytest.mark.parametrize("variable", ["JAX_COMPILATION_CACHE_MAX_SIZE", "REWARM_MAX_SIZE"])
def test_a_bound_on_bytes_is_kept(program: Program, cache: Path, tmp_path: Path, variable: str) -> None:
    one = size_of_one(program, tmp_path / "one")
    bound = int(3.5 * one)
    run = program(PROGRAM, "0", "9", REWARM_DIR=str(cache), **{variable: str(bound)})
    assert run.stats["stored"] == 9, "everything was stored, and the least worth went"
    assert 1 * one <= held(cache) <= bound
    assert run.warnings() == []
    again = program(PROGRAM, "0", "9", REWARM_DIR=str(cache), **{variable: str(bound)})
    assert again.out == run.out
    assert held(cache) <= bound


def test_a_bound_on_entries_is_kept(program: Program, cache: Path) -> None:
    program(PROGRAM, "0", "9", REWARM_DIR=str(cache), REWARM_MAX_ENTRIES="4")
    assert 1 <= len(entries(cache)) <= 4


def test_an_unbounded_directory_is_adopted_and_lowered(program: Program, cache: Path, tmp_path: Path) -> None:
    one = size_of_one(program, tmp_path / "one")
    full = program(PROGRAM, "0", "9", REWARM_DIR=str(cache), REWARM_MAX_SIZE="none")
    assert len(entries(cache)) == 9
    for path in (*cache.glob("*/.usage"), *cache.glob("sizes")):
        path.unlink()  # as a rewarm without bounds left it
    reader = program(PROGRAM, "0", "9", REWARM_DIR=str(cache), REWARM_MAX_SIZE=str(4 * one))
    assert (reader.out, reader.stats["hits"]) == (full.out, 9), "who stores nothing removes nothing"
    program(PROGRAM, "9", "10", REWARM_DIR=str(cache), REWARM_MAX_SIZE=str(4 * one))
    assert held(cache) <= 4 * one


def test_an_entry_above_the_bound_is_not_stored_and_says_so(program: Program, cache: Path) -> None:
    run = program(PROGRAM, "0", "2", REWARM_DIR=str(cache), REWARM_MAX_SIZE="100")
    assert run.stats["not_stored"] == {"larger than max_size": 2}
    assert entries(cache) == []


def test_the_bound_acts_at_the_next_compile(program: Program, cache: Path, tmp_path: Path) -> None:
    one = size_of_one(program, tmp_path / "one")
    source = """
        import sys, jax, numpy as np, rewarm
        from pathlib import Path
        cache, one = sys.argv[1], int(sys.argv[2])
        def held():
            return len([path for path in Path(cache).glob("[0-9a-f][0-9a-f]/*") if len(path.name) == 64])
        def compile(k):
            jax.jit(lambda x: (x @ x + k).sum())(np.ones((4, 4), np.float32))
        rewarm.enable(cache)
        for k in range(6): compile(k)
        print(held())
        jax.config.update("jax_compilation_cache_max_size", int(2.5 * one))
        compile(6)
        print(held())
        rewarm.enable(cache, max_size="none")
        for k in range(7, 12): compile(k)
        print(held())
    """
    told = [int(line) for line in program(source, str(cache), str(one)).out.split()]
    assert told[0] == 6
    assert told[1] <= 2
    assert told[2] == told[1] + 5


def test_old_entries_go(program: Program, cache: Path) -> None:
    program(PROGRAM, "0", "4", REWARM_DIR=str(cache))
    old = entries(cache)
    for path in old:
        status = path.stat()
        os.utime(path, (status.st_atime - 40 * 86400, status.st_mtime - 40 * 86400))
    program(PROGRAM, "4", "5", REWARM_DIR=str(cache), REWARM_MAX_AGE="60d")
    assert len(entries(cache)) == 5
    # A directory of 256 is looked over whenever something is written to it; `rewarm gc` looks over all of them.
    from rewarm.policy import Bounds
    from rewarm.store import LocalStore

    gone = [removed.reason for removed in LocalStore(cache).collect(Bounds(max_age=30 * 86400.0))]
    assert gone == ["age"] * 4
    assert len(entries(cache)) == 1


# ---------------------------------------------------------------------------------------------------------------
# What a program hears


def test_unstored_compile_time_is_one_line_at_exit(program: Program, cache: Path) -> None:
    source = """
        import logging, jax, numpy as np
        logging.basicConfig(level=logging.INFO)
        for name in ("jax", "absl"): logging.getLogger(name).setLevel(logging.WARNING)
        f = jax.jit(lambda x: sum(np.linalg.norm(np.ones(3)) * (x @ x + k) for k in range(400)))
        f(np.ones((4, 4), np.float32))
    """
    run = program(source, REWARM_DIR=str(cache), REWARM_MIN_COMPILE_SECONDS="60")
    lines = [line for line in run.err.splitlines() if "of compiling were not stored" in line]
    assert len(lines) == 1, run.err
    assert "compiled faster than min_compile_seconds" in lines[0]
    assert "INFO" in lines[0]
    stored = program(source, REWARM_DIR=str(cache))
    assert "were not stored" not in stored.err


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs owners of files")
@pytest.mark.parametrize("trap", ["open", "group", "foreign"])
def test_a_directory_that_others_may_write_to_is_refused_unless_shared(
    program: Program, cache: Path, trap: str
) -> None:
    cache.mkdir(mode=0o700)
    if trap == "open":
        cache.chmod(0o777)
    elif os.getuid() != 0:
        pytest.skip("needs the right to give a directory away")
    elif trap == "group":
        os.chown(cache, 0, 12345)
        cache.chmod(0o770)
    else:
        os.chown(cache, 12345, 12345)
    run = program(PROGRAM, "0", "2", REWARM_DIR=str(cache))
    assert len(run.warnings()) == 1
    assert "an entry is code, and" in run.warnings()[0]
    assert "shared" in run.warnings()[0]
    assert entries(cache) == []
    shared = program(PROGRAM, "0", "2", REWARM_DIR=str(cache), REWARM_SHARED="1")
    assert (shared.out, shared.warnings(), shared.stats["stored"]) == (run.out, [], 2)
    assert program(PROGRAM, "0", "2", REWARM_DIR=str(cache), REWARM_SHARED="1").stats["hits"] == 2


def test_a_shared_directory_is_the_group_s_whatever_the_umask(program: Program, cache: Path) -> None:
    masked = "    import os; os.umask(0o077)\n" + PROGRAM
    program(masked, "0", "2", REWARM_DIR=str(cache), REWARM_SHARED="1")
    for path in [cache, *cache.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        a_run = path.parent.name == "runs"  # its arguments may hold secrets
        # Who made what is each maker's own word.
        a_maker = path.relative_to(cache).parts[:1] == ("made",) and path.parent != cache
        wanted = (0o2700 if a_maker else 0o2770) if path.is_dir() else 0o600 if a_run or a_maker else 0o660
        assert mode & 0o2777 == wanted, f"{path.relative_to(cache)} has {mode:o}"


def test_a_private_directory_is_private_whatever_the_umask(program: Program, cache: Path) -> None:
    masked = "    import os; os.umask(0)\n" + PROGRAM
    program(masked, "0", "2", REWARM_DIR=str(cache))
    for path in [cache, *cache.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path.relative_to(cache)
