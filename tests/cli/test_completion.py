"""Shell completion, as a shell asks for it: the script that is printed, and what it is answered."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Program, clean_environment, execute

REWARM = (sys.executable, "-m", "rewarm")


def answered(words: str, cwd: Path, **env: str) -> list[str]:
    """What bash is offered for the last of some words."""
    number = len(words.split(" ")) - 1
    asked = {"_REWARM_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number), **env}
    done = execute([*REWARM], env=clean_environment(**asked), cwd=cwd)
    return [line.partition(",")[2] for line in done.out.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_ones_that_the_shells_read(shell: str, tmp_path: Path) -> None:
    done = execute([*REWARM, "completion", shell], env=clean_environment(), cwd=tmp_path)
    assert done.code == 0, done.err
    assert "_REWARM_COMPLETE" in done.out
    if found := shutil.which(shell):
        (tmp_path / "script").write_text(done.out)
        assert subprocess.run([found, "-n", str(tmp_path / "script")], check=False).returncode == 0


def test_commands_options_runs_and_keys_are_offered(program: Program, cache: Path, tmp_path: Path) -> None:
    from conftest import MANY, entries

    program(MANY, "2", REWARM_DIR=str(cache))
    assert answered("rewarm rep", tmp_path) == ["report"]
    assert {"ls", "run", "doctor", "completion"} <= set(answered("rewarm ", tmp_path))
    assert "--against" in answered("rewarm report --", tmp_path)
    keys = [path.name for path in entries(cache)]
    assert sorted(answered("rewarm show ", tmp_path, REWARM_DIR=str(cache))) == keys
    assert answered(f"rewarm show {keys[0][:6]}", tmp_path, REWARM_DIR=str(cache)) == [keys[0]]
    runs = [path.stem for path in (cache / "runs").iterdir()]
    assert answered("rewarm report --run ", tmp_path, REWARM_DIR=str(cache)) == runs
    assert answered(f"rewarm explain --dir {cache} --run 2", tmp_path) == runs
    assert answered("rewarm show ", tmp_path, REWARM_DIR=str(tmp_path / "none")) == []


def drawn(*arguments: str, cwd: Path, **env: str) -> str:
    """What a command writes to a terminal."""
    reader, writer = pty.openpty()
    try:
        every = {**clean_environment(**env), "TERM": "xterm-256color", "COLUMNS": "120"}
        child = subprocess.Popen([*REWARM, *arguments], stdout=writer, stderr=writer, stdin=writer, env=every, cwd=cwd)
        os.close(writer)
        found = b""
        while True:
            try:
                part = os.read(reader, 1 << 16)
            except OSError:  # its other end is closed
                break
            if not part:
                break
            found += part
        assert child.wait(240) in (0, 1)
        return found.decode()
    finally:
        os.close(reader)


_COLOURS = tuple(f"\x1b[{start}{number}" for start in ("", "0;", "1;") for number in (31, 32, 33, 34, 35, 36, 37))


def test_colours_are_for_terminals_alone_and_not_with_no_color(program: Program, cache: Path, tmp_path: Path) -> None:
    program("import jax, numpy as np; jax.jit(lambda x: x + 1)(np.ones(3))", REWARM_DIR=str(cache))
    for command in (("ls",), ("du",), ("stats",), ("explain",), ("doctor",)):
        plain = execute([*REWARM, *command, "--dir", str(cache)], env=clean_environment(), cwd=tmp_path)
        assert "\x1b" not in plain.out + plain.err, command
        shown = drawn(*command, "--dir", str(cache), cwd=tmp_path, NO_COLOR="1")
        assert not any(one in shown for one in _COLOURS), (command, shown)
    assert any(one in drawn("doctor", "--dir", str(cache), cwd=tmp_path) for one in _COLOURS)


def test_help_teaches_with_commands_that_are_there(tmp_path: Path) -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = execute([*REWARM, "--help"], env=clean_environment(), cwd=tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Processor time: the wall time of a loaded machine says nothing. 45 ms on one that is quiet.
    assert after.ru_utime - before.ru_utime < 0.3
    examples = re.findall(r"^  \S.* {2,}rewarm (.*)$", done.out, re.MULTILINE)
    assert len(examples) >= 7
    for example in examples:
        command, *words = example.split()
        shown = execute([*REWARM, command, "--help"], env=clean_environment(), cwd=tmp_path)
        assert shown.code == 0, example
        for word in words[: words.index("--")] if "--" in words else words:
            assert not word.startswith("--") or word in shown.out, example


SUMMED = "import jax, numpy as np; jax.jit(lambda x: x @ x + 1)(np.ones((4, 4)))"


def test_one_line_says_what_was_saved_where_that_is_asked_for(program: Program, cache: Path) -> None:
    cold = program(SUMMED, REWARM_DIR=str(cache), REWARM_SUMMARY="1", REWARM_STATS="")
    assert "rewarm: 0 of 1 program was in the cache; " in cold.err
    assert "1 stored for the next start" in cold.err
    warm = program(SUMMED, REWARM_DIR=str(cache), REWARM_SUMMARY="1", REWARM_STATS="")
    assert "rewarm: 1 of 1 program was in the cache, that saved " in warm.err
    said = f"import rewarm; rewarm.enable({str(cache)!r}, summary=True); {SUMMED}"
    assert "rewarm: 1 of 1 program was in the cache" in program(said, REWARM_STATS="").err
    assert "in the cache" not in program(SUMMED, REWARM_DIR=str(cache), REWARM_STATS="").err
