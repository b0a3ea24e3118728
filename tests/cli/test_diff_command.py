"""`rewarm diff` over entries of real programs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from conftest import Run, clean_environment, entries, execute
from rewarm.envelope import open_entry, seal

_PROGRAM = """\
import sys, jax, jax.numpy as jnp, numpy as np, rewarm, json
number = float(sys.argv[1])
def step(x):
    return jnp.sin(x) * number
jax.jit(step)(np.ones((4, 4), np.float32))
print(json.dumps([event.key for event in rewarm.events()]))
"""


class Entries(NamedTuple):
    """A cache directory, the file that was run, and the keys of three entries."""

    cache: Path
    script: Path
    two: str
    three: str
    salted: str


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Entries:
    folder = tmp_path_factory.mktemp("entries")
    script = folder / "step.py"
    script.write_text(_PROGRAM)
    keys = []
    for number, salt in (("2.0", ""), ("3.0", ""), ("2.0", "pepper")):
        env = clean_environment(REWARM_DIR=str(folder / "cache"), REWARM_SALT=salt)
        done = execute([sys.executable, str(script), number], env=env, cwd=folder)
        assert done.code == 0, done.err
        keys += done.json
    return Entries(folder / "cache", script, *keys)


@pytest.fixture
def copy(made: Entries, tmp_path: Path) -> Entries:
    shutil.copytree(made.cache, tmp_path / "copy")
    return made._replace(cache=tmp_path / "copy")


def diff(of: Entries, *arguments: str) -> Run:
    command = [sys.executable, "-m", "rewarm", "diff", "--dir", str(of.cache), *arguments]
    return execute(command, env=clean_environment(), cwd=of.cache.parent)


def told(of: Entries, *arguments: str) -> Any:
    run = diff(of, "--json", *arguments)
    assert run.code == 0, run.err
    return json.loads(run.out)


def path_of(of: Entries, key: str) -> Path:
    return of.cache / key[:2] / key


def test_two_programs(made: Entries) -> None:
    run = diff(made, made.two[:12], made.three[:12].upper())
    assert (run.code, run.err) == (0, "")
    assert run.out.splitlines() == [
        f"before  {made.two}  jit_step  cpu x1",
        f"after   {made.three}  jit_step  cpu x1",
        "program differs",
        f"  {made.script}:4",
        "    - %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>",
        "    + %cst = stablehlo.constant dense<3.000000e+00> : tensor<f32>",
        "=> the same operations with other constants",
    ]


def test_two_programs_as_json(made: Entries) -> None:
    found = told(made, made.two, made.three)
    assert (found["before"], found["after"]) == (made.two, made.three)
    said = found["explanation"]
    assert set(said) == {"summary", "nearest", "differs", "changes", "findings"}
    assert (said["nearest"], said["differs"]) == (made.two, ["program"])
    assert [finding["kind"] for finding in said["findings"]] == ["constants"]
    assert told(made, made.three, made.two)["explanation"]["nearest"] == made.three


def test_another_component(made: Entries) -> None:
    run = diff(made, made.two, made.salted)
    assert run.out.splitlines()[2:4] == ["salt differs", "  salt:  → pepper"]
    assert told(made, made.three, made.salted)["explanation"]["differs"] == ["program", "salt"]


def test_the_same_key(made: Entries) -> None:
    run = diff(made, made.two, made.two)
    assert run.code == 0
    assert run.out.splitlines()[2:] == ["the same key"]
    assert told(made, made.two, made.two)["explanation"]["differs"] == []


def _one_line(run: Run, *words: str) -> None:
    assert (run.code, run.out) == (1, "")
    assert len(run.err.splitlines()) == 1, run.err
    assert run.err.startswith("Error: ")
    assert all(word in run.err for word in words), run.err


@pytest.mark.parametrize("swap", [False, True])
def test_what_is_not_there_or_not_one_is_one_clear_line(made: Entries, swap: bool) -> None:
    def ask(one: str, other: str) -> Run:
        return diff(made, *((other, one) if swap else (one, other)))

    _one_line(ask("ffff0000ffff", made.two), "'ffff0000ffff'", "rewarm ls")
    _one_line(ask("", made.two), "3 entries")


def test_wrong_usage_is_exit_code_2(made: Entries) -> None:
    assert diff(made, made.two).code == 2
    assert diff(made, made.two, made.three, made.salted).code == 2


@pytest.mark.parametrize("content", [b"", b"junk", None])
def test_an_entry_that_is_not_usable_is_one_clear_line(copy: Entries, content: bytes | None) -> None:
    place = path_of(copy, copy.two)
    data = bytearray(place.read_bytes())
    data[len(data) // 2] ^= 1
    place.write_bytes(bytes(data) if content is None else content)
    _one_line(diff(copy, copy.two, copy.three), copy.two, "rewarm verify")
    _one_line(diff(copy, copy.three, copy.two), copy.two, "rewarm verify")
    assert place.exists(), "looking changes nothing"


def test_an_entry_without_programs_is_compared_by_its_components(copy: Entries) -> None:
    place = path_of(copy, copy.two)
    entry = open_entry(place.read_bytes(), copy.two)
    place.write_bytes(seal(entry.header, {"executable": entry.section("executable")}))
    run = diff(copy, copy.two, copy.three)
    assert run.code == 0
    assert run.out.splitlines()[2:] == [
        "program differs",
        "=> the programs differ; one of them is not kept, or unreadable",
    ]


@pytest.mark.parametrize("section", ["source", "program", "components"])
def test_a_section_that_is_junk_is_no_traceback(copy: Entries, section: str) -> None:
    place = path_of(copy, copy.two)
    entry = open_entry(place.read_bytes(), copy.two)
    kept = {one.name: entry.section(one.name) for one in entry.header.sections}
    place.write_bytes(seal(entry.header, {**kept, section: b"[7]"}))
    for other in (copy.three, copy.salted):
        run = diff(copy, copy.two, other)
        assert (run.code, run.err) == (0, "")


# The environment of another JAX, for a developer who has one: REWARM_TEST_OTHER_PYTHON=/path/to/its/python.
_OTHER = os.environ.get("REWARM_TEST_OTHER_PYTHON", "")


def test_an_entry_of_another_jaxlib(copy: Entries) -> None:
    """Read by this jaxlib where it can be, and by its components where not."""
    if not _OTHER:
        pytest.skip("REWARM_TEST_OTHER_PYTHON names no other environment")
    before = set(entries(copy.cache))
    env = clean_environment(REWARM_DIR=str(copy.cache))
    done = execute([_OTHER, str(copy.script), "3.0"], env=env, cwd=copy.cache.parent)
    assert done.code == 0, done.err
    (new,) = set(entries(copy.cache)) - before
    theirs = execute(
        [_OTHER, "-c", "import jaxlib.version; print(jaxlib.version.__version__)"], env=env, cwd=copy.cache.parent
    ).out.strip()
    found = told(copy, copy.two, new.name)["explanation"]
    assert {"program", "toolchain"} <= set(found["differs"])
    (change,) = [change for change in found["changes"] if change["item"] == "jaxlib"]
    assert (change["before"], change["after"]) == (importlib.metadata.version("jaxlib"), theirs)
    assert f"jaxlib {change['before']} → {theirs}" in found["summary"]
    assert any("3.000000e+00" in change["after"] for change in found["changes"]) or any(
        finding["kind"] == "unfinished" for finding in found["findings"]
    )
