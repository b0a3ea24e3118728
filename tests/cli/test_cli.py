"""The command as a person calls it: its words, its exit codes, its JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import Program, Run, clean_environment, entries, execute

PROGRAM = """
    import jax, numpy as np
    jax.jit(lambda x: x @ x + 1)(np.ones((4, 4), np.float32))
    jax.jit(lambda x: x - 7)(np.ones((4, 4), np.float32))
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory with two entries, made by a real program."""
    folder = tmp_path_factory.mktemp("filled")
    script = folder / "program.py"
    script.write_text("import jax, numpy as np\n" + "\n".join(line.strip() for line in PROGRAM.splitlines()[2:]))
    cache = folder / "cache"
    done = execute([sys.executable, str(script)], env=clean_environment(REWARM_DIR=str(cache)), cwd=folder)
    assert done.code == 0, done.err
    return cache


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    shutil.copytree(filled, tmp_path / "copy")
    return tmp_path / "copy"


def rewarm(*arguments: str, cwd: Path | None = None, **env: str) -> Run:
    """Call the command."""
    return execute([sys.executable, "-m", "rewarm", *arguments], env=clean_environment(**env), cwd=cwd or Path.cwd())


def test_ls(filled: Path) -> None:
    text = rewarm("ls", "--dir", str(filled))
    assert text.code == 0
    for entry in entries(filled):
        assert entry.name[:12] in text.out
    assert text.out.count("jit__lambda") == 2
    assert "2 entries" in text.out
    told = json.loads(rewarm("ls", "--dir", str(filled), "--json").out)
    assert sorted(row["key"] for row in told) == [entry.name for entry in entries(filled)]
    assert all(row["compile_seconds"] > 0 and row["bytes"] > 1000 and row["problem"] is None for row in told)
    assert {row["target"] for row in told} == {"cpu x1"}


def test_ls_is_whole_in_a_narrow_pipe(filled: Path) -> None:
    text = rewarm("ls", "--dir", str(filled), COLUMNS="40")
    assert all(entry.name[:12] in text.out for entry in entries(filled))
    assert "…" not in text.out


def test_show(filled: Path) -> None:
    key = entries(filled)[0].name
    text = rewarm("show", key[:10], "--dir", str(filled)).out
    for word in (key, "jit__lambda", "executable", "toolchain", "jaxlib/libjax_common.so", "zstd", "compiled in"):
        assert word in text
    told = json.loads(rewarm("show", key.upper()[:9], "--dir", str(filled), "--json").out)
    assert told["key"] == key
    assert [row["name"] for row in told["components"]] == [
        "format",
        "program",
        "callbacks",
        "options",
        "inputs",
        "toolchain",
        "target",
        "salt",
    ]


def test_show_without_a_match_or_with_several(filled: Path) -> None:
    none = rewarm("show", "ffff0000ffff", "--dir", str(filled))
    assert (none.code, none.out) == (1, "")
    assert len(none.err.splitlines()) == 1
    several = rewarm("show", "", "--dir", str(filled))
    assert several.code == 1
    assert "2 entries have a key that starts with ''" in several.err


def test_stats(filled: Path) -> None:
    told = json.loads(rewarm("stats", "--dir", str(filled), "--json").out)
    assert told["entries"] == 2
    assert told["bytes"] == sum(entry.stat().st_size for entry in entries(filled))
    assert told["by_target"] == {"cpu x1": 2}
    assert (told["unreadable"], told["quarantined"]) == (0, 0)
    assert "2, " in rewarm("stats", "--dir", str(filled)).out


def test_verify(copy: Path) -> None:
    sound = rewarm("verify", "--dir", str(copy))
    assert (sound.code, sound.out) == (0, "2 entries, 0 bad\n")
    bad = entries(copy)[1]
    data = bytearray(bad.read_bytes())
    data[-60] ^= 1
    bad.write_bytes(data)
    found = rewarm("verify", "--dir", str(copy))
    assert found.code == 1
    assert found.out.splitlines()[0] == f"{bad.name}  digest does not match: truncated or damaged"
    told = rewarm("verify", "--dir", str(copy), "--json")
    assert told.code == 1
    assert json.loads(told.out)["bad"] == [{"key": bad.name, "problem": "digest does not match: truncated or damaged"}]
    assert bad.exists(), "verify changes nothing"
    broken = rewarm("show", bad.name, "--dir", str(copy))
    assert broken.code == 1
    assert "is not usable: digest does not match" in broken.err


def test_ls_and_stats_name_what_cannot_be_read(copy: Path) -> None:
    bad = entries(copy)[0]
    bad.write_bytes(b"something else")
    assert "not an entry of rewarm" in rewarm("ls", "--dir", str(copy)).out
    assert json.loads(rewarm("stats", "--dir", str(copy), "--json").out)["unreadable"] == 1


def test_clear_removes_entries_and_nothing_else(copy: Path) -> None:
    stray = copy / "notes.txt"
    stray.write_text("mine")
    shard_stray = entries(copy)[0].parent / "also-mine"
    shard_stray.write_text("mine")
    lost = entries(copy)[0].parent / ".x.1.tmp"
    lost.write_text("half")
    old = time.time() - 7200
    os.utime(lost, (old, old))
    told = json.loads(rewarm("clear", "--dir", str(copy), "--json").out)
    assert told["entries"] == 2
    assert entries(copy) == []
    assert not lost.exists()
    assert stray.read_text() == shard_stray.read_text() == "mine"
    assert json.loads(rewarm("stats", "--dir", str(copy), "--json").out)["entries"] == 0
    assert "no entries in" in rewarm("ls", "--dir", str(copy)).out


def test_clear_refuses_a_directory_that_is_not_ours(tmp_path: Path) -> None:
    precious = tmp_path / "ab" / ("ab" + "0" * 62)
    precious.parent.mkdir()
    precious.write_text("mine")
    refused = rewarm("clear", "--dir", str(tmp_path))
    assert refused.code == 1
    assert "CACHEDIR.TAG" in refused.err
    assert precious.exists()


@pytest.mark.parametrize("verb", ["ls", "stats", "verify", "clear"])
@pytest.mark.parametrize(
    ("given", "words", "code"),
    [
        ("", "--dir: expected a path of a local directory, found ''", 2),
        (" ", "--dir: expected a path of a local directory, found ' '", 2),
        ("a\nb", "--dir: expected a path of a local directory, found 'a\\nb'", 2),
        ("s3://bucket/x", "--dir: expected a path of a local directory, not a URL, found 's3://bucket/x'", 2),
        ("/tmp/" + "a" * 300, "does not exist", 1),
        ("/dev/null", "is not a directory", 1),
        ("/etc", "is no cache directory: it has no CACHEDIR.TAG of rewarm and no entry", 1),
    ],
)
def test_a_directory_that_cannot_be_meant_is_one_clear_line(verb: str, given: str, words: str, code: int) -> None:
    run = rewarm(verb, "--dir", given)
    assert (run.code, run.out) == (code, "")
    assert len(run.err.splitlines()) == 1
    assert run.err.startswith("Error: ")
    assert words in run.err


def test_a_current_directory_that_is_gone_is_one_clear_line(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    run = execute(
        ["bash", "-c", f"rmdir {gone}; {sys.executable} -m rewarm ls --dir here"], env=clean_environment(), cwd=gone
    )
    assert run.code == 2
    assert "since the current one is gone, found 'here'" in run.err
    assert len([line for line in run.err.splitlines() if "shell-init" not in line]) == 1


def test_verify_names_what_is_no_file(copy: Path) -> None:
    name = entries(copy)[0]
    name.unlink()
    name.mkdir()
    run = rewarm("verify", "--dir", str(copy))
    assert run.code == 1
    assert run.out.splitlines() == [f"{name.name}  not a regular file", "2 entries, 1 bad"]


@pytest.mark.parametrize("verb", ["ls", "stats", "verify", "clear"])
def test_a_missing_directory_is_one_clear_line(tmp_path: Path, verb: str) -> None:
    run = rewarm(verb, "--dir", str(tmp_path / "nowhere"))
    assert (run.code, run.out) == (1, "")
    assert run.err.splitlines() == [
        f"Error: the cache directory {tmp_path / 'nowhere'} does not exist: nothing was cached there; "
        f"name another with --dir or REWARM_DIR"
    ]


def test_the_directory_is_what_a_program_here_would_use(filled: Path, tmp_path: Path) -> None:
    assert "2 entries" in rewarm("ls", REWARM_DIR=str(filled)).out
    native = tmp_path / "native"
    native.mkdir()
    shutil.copytree(filled, native / "rewarm")
    assert "2 entries" in rewarm("ls", JAX_COMPILATION_CACHE_DIR=str(native)).out
    bad = rewarm("ls", REWARM_DIR="gs://bucket/dir")
    assert bad.code == 2
    assert bad.err == "Error: REWARM_DIR: expected a path of a local directory, not a URL, found 'gs://bucket/dir'\n"


def test_wrong_usage_is_exit_code_2() -> None:
    for arguments in (["frobnicate"], ["ls", "--frob"], ["show"], ["run", "--dir"]):
        run = rewarm(*arguments)
        assert (run.code, run.out) == (2, "")
        assert run.err


def test_help_teaches_and_imports_no_jax() -> None:
    run = rewarm("--help")
    assert run.code == 0
    for word in ("run", "ls", "show", "stats", "verify", "clear", "Exit codes"):
        assert word in run.out
    look = "import sys, rewarm.cli; sys.argv[1:] = ['--help']\ntry: rewarm.cli.main()\nexcept SystemExit: pass\n"
    imported = execute(
        [sys.executable, "-c", look + "assert not {'jax', 'rich', 'jaxlib'} & set(sys.modules)"],
        env=clean_environment(),
        cwd=Path.cwd(),
    )
    assert imported.code == 0, imported.err


def test_a_reader_that_closes_early_is_no_traceback(filled: Path) -> None:
    run = execute(
        ["bash", "-c", f"{sys.executable} -m rewarm ls --json --dir {filled} | head -c 1"],
        env=clean_environment(),
        cwd=Path.cwd(),
    )
    assert "Traceback" not in run.err


def test_listing_beside_a_running_program(program: Program, copy: Path) -> None:
    program(PROGRAM.replace("- 7", "- 8"), REWARM_DIR=str(copy))
    assert "3 entries" in rewarm("ls", "--dir", str(copy)).out


@pytest.mark.parametrize(
    "command", [["ls"], ["ls", "--json"], ["du"], ["stats"], ["explain"], ["verify"], ["doctor", "--quick"]]
)
@pytest.mark.parametrize("output", ["> /dev/full", ">&-"])
def test_an_output_that_cannot_be_written_is_one_line_at_most(filled: Path, command: list[str], output: str) -> None:
    line = f"{sys.executable} -m rewarm {' '.join(command)} --dir {filled} {output}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=clean_environment(), check=False)
    said = [row for row in done.stderr.splitlines() if row]
    assert said == (["Error: No space left on device"] if "full" in output else [])
    assert (done.returncode != 0) is ("full" in output)
