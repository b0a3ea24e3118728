"""Whatever lies under an entry's name, the program's result is right, one line says what happened, and the next run
hits again. Whatever is wrong with the directory, the program runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Program, entries, first

PROGRAM = """
    import jax, numpy as np
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    print(np.asarray(jax.jit(lambda x: x @ x + 1)(x)).sum(), np.asarray(jax.jit(lambda x: x - 7)(x)).sum())
"""
RESULT = "3936.0 8.0\n"


def truncated(path: Path, _: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def half(path: Path, _: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path, _: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path, _: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-200] ^= 0x10
    path.write_bytes(data)


def foreign(path: Path, _: Path) -> None:
    path.write_bytes(b"\x28\xb5\x2f\xfd" + os.urandom(4000))


def newer(path: Path, _: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4] = 9
    path.write_bytes(data)


def swapped(path: Path, other: Path) -> None:
    shutil.copyfile(other, path)


def directory(path: Path, _: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").touch()


def fifo(path: Path, _: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def unloadable(path: Path, _: Path) -> None:
    """A sound entry whose executable is not one: what a runtime that changed its format would find."""
    from rewarm.envelope import open_entry, seal

    entry = open_entry(path.read_bytes(), path.name)
    path.write_bytes(seal(entry.header, {"executable": b"not an executable" * 50}))


REASONS = {
    truncated: "truncated or damaged",
    half: "truncated or damaged",
    emptied: "empty file",
    flipped: "truncated or damaged",
    foreign: "not an entry of rewarm",
    newer: "envelope version 9, this rewarm reads 1",
    swapped: "entry of another key",
    directory: "not a regular file",
    fifo: "not a regular file",
    unloadable: "it cannot be loaded",
}
TYPICAL = (truncated, flipped, foreign, unloadable)


def name_of(damage: Callable[[Path, Path], None]) -> str:
    return damage.__name__


@pytest.mark.parametrize("damage", first(4, sorted(REASONS, key=lambda damage: damage not in TYPICAL)), ids=name_of)
def test_a_bad_entry_is_one_line_one_miss_and_rebuilt(
    program: Program, cache: Path, damage: Callable[[Path, Path], None]
) -> None:
    on = {"REWARM_DIR": str(cache)}
    assert program(PROGRAM, **on).out == RESULT
    first, other = entries(cache)
    damage(first, other)
    hurt = program(PROGRAM, **on)
    assert hurt.out == RESULT
    numbers = hurt.stats
    assert (numbers["hits"], numbers["misses"], numbers["stored"], numbers["quarantined"]) == (1, 1, 1, 1)
    lines = hurt.warnings()
    assert len(lines) == 1, lines
    assert "quarantined" in lines[0]
    assert REASONS[damage] in lines[0]
    assert first.name[:12] in lines[0]
    assert len(list((cache / "quarantine").iterdir())) == 1
    healed = program(PROGRAM, **on)
    assert (healed.out, healed.stats["hits"], healed.warnings()) == (RESULT, 2, [])


def test_strict_raises_instead(program: Program, cache: Path) -> None:
    on = {"REWARM_DIR": str(cache), "JAX_RAISE_PERSISTENT_CACHE_ERRORS": "true"}
    program(PROGRAM, **on)
    flipped(entries(cache)[0], cache)
    hurt = program(PROGRAM, ok=False, **on)
    assert hurt.code == 1
    assert "BadEntryError: digest does not match" in hurt.err


def test_a_file_in_the_way_of_the_directory(program: Program, cache: Path) -> None:
    cache.write_text("mine")
    for where in (cache, cache / "below"):
        run = program(PROGRAM, REWARM_DIR=str(where))
        assert run.out == RESULT
        assert len(run.warnings()) == 1
        assert f"cannot use the directory {where}" in run.warnings()[0]
        assert run.stats["misses"] == sum(run.stats["not_stored"].values()) == 2
    assert cache.read_text() == "mine"
    strict = program(PROGRAM, ok=False, REWARM_DIR=str(cache), REWARM_STRICT="1")
    assert strict.code == 1
    assert "StoreError" in strict.err


def test_a_file_size_limit_strikes(program: Program, cache: Path) -> None:
    limited = (
        """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
    """
        + PROGRAM
    )
    run = program(limited, REWARM_DIR=str(cache))
    assert run.out == RESULT
    assert len(run.warnings()) == 1
    assert "cannot write the store" in run.warnings()[0]
    assert "File too large" in run.warnings()[0]
    assert entries(cache) == []
    assert list(cache.rglob("*.tmp")) == []
    assert run.stats["errors"] == 2


def test_the_directory_goes_while_the_program_runs(program: Program, cache: Path) -> None:
    source = """
        import shutil, sys, jax, numpy as np
        jax.jit(lambda x: x + 1)(np.ones(3))
        shutil.rmtree(sys.argv[1])
        jax.jit(lambda x: x + 2)(np.ones(3))
    """
    run = program(source, str(cache), REWARM_DIR=str(cache))
    assert run.warnings() == []
    assert run.stats["stored"] == 2
    assert len(entries(cache)) == 1


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("REWARM_MIN_COMPILE_SECONDS", "soon", "expected seconds, 0 or more, found 'soon'"),
        ("REWARM_COMPRESSION_LEVEL", "99", "expected a zstd level from 1 to 22, found '99'"),
        ("REWARM_DIR", "s3://bucket/x", "expected a path of a local directory, not a URL, found 's3://bucket/x'"),
        ("REWARM_DIR", " ", "expected a path of a local directory, found ' '"),
        ("REWARM", "maybe", "expected 1 or 0 (on or off), found 'maybe'"),
    ],
)
def test_a_bad_variable_is_one_line_and_rewarm_stays_off(
    program: Program, cache: Path, variable: str, value: str, words: str
) -> None:
    run = program(PROGRAM, **{"REWARM_DIR": str(cache), variable: value})
    assert run.out == RESULT
    assert len(run.warnings()) == 1
    assert variable in run.warnings()[0]
    assert words in run.warnings()[0]
    assert not cache.exists()


def test_a_misspelt_variable_is_named(program: Program, cache: Path) -> None:
    run = program(PROGRAM, REWARM_DIR=str(cache), REWARM_MIN_COMPILE_SECS="3")
    assert len(run.warnings()) == 1
    assert "REWARM_MIN_COMPILE_SECS is ignored; did you mean REWARM_MIN_COMPILE_SECONDS?" in run.warnings()[0]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="needs owners of files")
@pytest.mark.parametrize("trap", ["open", "foreign"])
def test_a_default_directory_that_others_could_have_filled_is_not_used(
    program: Program, tmp_path: Path, trap: str
) -> None:
    default = tmp_path / "xdg" / "rewarm"
    default.mkdir(parents=True, mode=0o700)
    if trap == "open":
        default.chmod(0o777)
    elif os.getuid() == 0:
        os.chown(default, 12345, 12345)
    else:
        pytest.skip("needs the right to give a directory away")
    run = program(PROGRAM, REWARM="1", XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert run.out == RESULT
    assert len(run.warnings()) == 1
    assert "an entry is code, and" in run.warnings()[0]
    assert entries(default) == []


def test_a_directory_that_comes_back_is_used_again(program: Program, cache: Path) -> None:
    source = """
        import sys, jax, numpy as np
        from pathlib import Path
        jax.jit(lambda x: x + 1)(np.ones(3))
        Path(sys.argv[1]).unlink()
        jax.jit(lambda x: x + 2)(np.ones(3))
    """
    cache.write_text("in the way")
    run = program(source, str(cache), REWARM_DIR=str(cache))
    assert len(run.warnings()) == 1
    assert (run.stats["stored"], sum(run.stats["not_stored"].values())) == (1, 1)
