"""An entry that was made for another CPU is refused before it is loaded, compiled again and replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Program, entries
from rewarm.envelope import open_entry, seal
from rewarm.identity import Machine, machine_of_executable

pytestmark = pytest.mark.contract

PROGRAM = """
    import jax, numpy as np
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    print(np.asarray(jax.jit(lambda x: x @ x + 1)(x)).sum())
"""
RESULT = "3936.0\n"


def executable_of(path: Path) -> bytes:
    return open_entry(path.read_bytes(), path.name).section("executable")


def reseal(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Put a changed executable under the same key, in an entry that is sound."""
    entry = open_entry(path.read_bytes(), path.name)
    sections = {section.name: entry.section(section.name) for section in entry.header.sections}
    path.write_bytes(seal(entry.header, {**sections, "executable": change(sections["executable"])}))


def present(path: Path) -> str:
    """A feature that is named once as a whole, so that another word can take its place."""
    raw = executable_of(path)
    found = machine_of_executable(raw)
    assert found is not None
    words = [word for word in found.features if len(word) >= 3 and raw.count(f"+{word},".encode()) == 1]
    if not words:
        pytest.skip("this CPU's executables name no feature")
    return words[0]


def other_word(word: str) -> str:
    """A word of the same length that no CPU has."""
    return "zz9" + "z" * (len(word) - 3)


@pytest.fixture
def stored(program: Program, cache: Path) -> Path:
    """The one entry of the program above."""
    assert program(PROGRAM, REWARM_DIR=str(cache)).out == RESULT
    (path,) = entries(cache)
    return path


def test_an_entry_for_another_cpu_is_one_line_one_miss_and_replaced(
    program: Program, cache: Path, stored: Path
) -> None:
    word = present(stored)
    mine = machine_of_executable(executable_of(stored))
    reseal(stored, lambda raw: raw.replace(f"+{word},".encode(), f"+{other_word(word)},".encode()))
    theirs = machine_of_executable(executable_of(stored))
    assert mine is not None
    assert theirs is not None
    assert mine.lacks(theirs) == (other_word(word),)

    refused = program(PROGRAM, REWARM_DIR=str(cache))
    assert refused.out == RESULT
    numbers = refused.stats
    assert (numbers["hits"], numbers["misses"], numbers["stored"], numbers["quarantined"]) == (0, 1, 1, 1)
    (line,) = refused.warnings()
    assert f"OtherMachineError: it was made for a CPU with {other_word(word)}, which this one lacks" in line
    assert "quarantined" in line
    assert machine_of_executable(executable_of(stored)) == mine
    healed = program(PROGRAM, REWARM_DIR=str(cache))
    assert (healed.out, healed.stats["hits"], healed.warnings()) == (RESULT, 1, [])


def test_an_entry_for_another_kind_of_cpu_is_refused(program: Program, cache: Path, stored: Path) -> None:
    found = machine_of_executable(executable_of(stored))
    assert found is not None
    other = "zz" + found.triple[2:]
    reseal(stored, lambda raw: raw.replace(found.triple.encode(), other.encode()))
    refused = program(PROGRAM, REWARM_DIR=str(cache))
    assert (refused.out, refused.stats["quarantined"], refused.stats["stored"]) == (RESULT, 1, 1)
    assert f"it was made for a CPU with {other}, which this one lacks" in refused.warnings()[0]


def test_it_is_refused_before_it_is_loaded(program: Program, cache: Path, stored: Path) -> None:
    """Loading it would be the first step of running instructions that are not there."""
    watched = """
        import jax, numpy as np, rewarm
        from rewarm.jax_adapter import seam
        from jax._src import compiler
        from rewarm.jax_adapter import executables
        from rewarm.errors import OtherMachineError
        seen = []
        original = executables.load
        class Client:
            def __init__(self, client):
                self.client = client
            def __getattr__(self, name):
                return getattr(self.client, name)
            def deserialize_executable(self, *arguments):
                seen.append("loaded")
                return self.client.deserialize_executable(*arguments)
        def load(call, machine, raw):
            try:
                return original(call._replace(backend=Client(call.backend)), machine, raw)
            except OtherMachineError:
                seen.append("refused")
                raise
        executables.load = load
        x = np.arange(16, dtype=np.float32).reshape(4, 4)
        jax.jit(lambda x: x @ x + 1)(x)
        print(" ".join(seen))
    """
    assert program(watched, REWARM_DIR=str(cache)).out == "loaded\n"
    word = present(stored)
    reseal(stored, lambda raw: raw.replace(f"+{word},".encode(), f"+{other_word(word)},".encode()))
    assert program(watched, REWARM_DIR=str(cache)).out == "refused\n"


def test_strict_raises_instead(program: Program, cache: Path, stored: Path) -> None:
    word = present(stored)
    reseal(stored, lambda raw: raw.replace(f"+{word},".encode(), f"+{other_word(word)},".encode()))
    refused = program(PROGRAM, ok=False, REWARM_DIR=str(cache), REWARM_STRICT="1")
    assert refused.code == 1
    assert "OtherMachineError" in refused.err


def test_an_entry_for_less_than_this_cpu_is_served(program: Program, cache: Path, stored: Path) -> None:
    """As from an older host: fewer instructions, and only words that steer tuning are others."""
    word = present(stored)
    reseal(stored, lambda raw: raw.replace(f"+{word},".encode(), f"-{word},".encode()))
    assert machine_of_executable(executable_of(stored)) != Machine("", ())
    run = program(PROGRAM, REWARM_DIR=str(cache))
    assert (run.out, run.stats["hits"], run.stats["quarantined"]) == (RESULT, 1, 0)
