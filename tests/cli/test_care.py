"""The commands that look after a directory: gc, du, ls in other orders, quarantine, repair, and what all runs saved."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import Run, clean_environment, entries, execute
from rewarm.envelope import Header, seal
from rewarm.small_files import PRIVATE
from rewarm.store import LocalStore
from rewarm.store.conformance import key_of
from rewarm.trials import condemned, refused_keys

PROGRAM = """
import jax, numpy as np
jax.jit(lambda x: x @ x + 1)(np.ones((4, 4), np.float32))
jax.jit(lambda x: x - 7)(np.ones((4, 4), np.float32))
"""
DAY = 86_400.0


def rewarm(*arguments: str, **env: str) -> Run:
    """Call the command."""
    return execute([sys.executable, "-m", "rewarm", *arguments], env=clean_environment(**env), cwd=Path.cwd())


def told(*arguments: str, code: int = 0, **env: str) -> Any:
    """Call it for its JSON."""
    run = rewarm(*arguments, "--json", **env)
    assert run.code == code, run.err
    return json.loads(run.out)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory with two entries, made by a real program that then ran again."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "program.py").write_text(PROGRAM)
    for _ in range(2):
        done = execute(
            [sys.executable, "program.py"], env=clean_environment(REWARM_DIR=str(folder / "cache")), cwd=folder
        )
        assert done.code == 0, done.err
    return folder / "cache"


@pytest.fixture
def copy(real: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    shutil.copytree(real, tmp_path / "copy")
    return tmp_path / "copy"


def made(number: int, *, program: str, seconds: float, size: int, age: float, target: str = "cpu x1") -> bytes:
    """A sound entry that says this of itself."""
    header = Header(
        kind="executable",
        key=key_of(number),
        components=(),
        program=program,
        compile_seconds=seconds,
        created=time.time() - age,
        producer={"jax": "0.12.0.1" if number % 2 else "0.9.2"},
        target=target,
    )
    return seal(header, {"executable": os.urandom(size)}, codec="raw")


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A directory of six entries: number n took n seconds, has n KiB, and was used n days ago; 0 is large and cheap."""
    store = LocalStore(tmp_path / "shelf")
    store.prepare()
    for number in range(6):
        size = 1024 * number if number else 100_000
        program = f"jit_{'ab'[number % 2]}"
        data = made(number, program=program, seconds=number or 0.01, size=size, age=number * DAY)
        store.put(key_of(number), data, seconds=float(number))
        then = time.time() - number * DAY
        os.utime(store.path(key_of(number)), (then, then))
    return store.root


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    """Which of the entries these are."""
    keys = [key_of(number) for number in range(6)]
    return [keys.index(row["key"]) for row in rows]


# -- ls ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "first"),
    [("used", [0, 1, 2]), ("size", [0, 5, 4]), ("age", [5, 4, 3]), ("compile", [5, 4, 3])],
)
def test_ls_in_an_order(shelf: Path, order: str, first: list[int]) -> None:
    rows = told("ls", "--dir", str(shelf), "--sort", order)
    assert numbers(rows)[:3] == first
    assert len(rows) == 6
    assert numbers(told("ls", "--dir", str(shelf), "--sort", order, "--limit", "2")) == first[:2]


def test_ls_by_worth_is_the_order_of_eviction(shelf: Path) -> None:
    rows = told("ls", "--dir", str(shelf), "--sort", "worth")
    worth = {one.key: one.priority for one in LocalStore(shelf).usages().values()}
    assert [row["key"] for row in rows] == sorted(worth, key=lambda key: -worth[key])
    assert rows[-1]["key"] == key_of(0)
    assert [row["priority"] for row in rows] == sorted(worth.values(), reverse=True)
    text = rewarm("ls", "--dir", str(shelf), "--sort", "worth", "--limit", "3").out
    assert "worth" in text.splitlines()[0]
    assert text.splitlines()[-1].startswith("the first 3 of 6 entries, which have ")


def test_ls_of_a_program(shelf: Path) -> None:
    assert numbers(told("ls", "--dir", str(shelf), "--program", "t_b")) == [1, 3, 5]
    assert numbers(told("ls", "--dir", str(shelf), "--program", "t_b", "--sort", "size", "--limit", "1")) == [5]
    assert "no program's name contains 'zz'" in rewarm("ls", "--dir", str(shelf), "--program", "zz").out


@pytest.mark.parametrize("wrong", [["--sort", "taste"], ["--limit", "0"], ["--limit", "x"], ["--limit", "-1"]])
def test_ls_refuses_what_it_cannot_mean(shelf: Path, wrong: list[str]) -> None:
    run = rewarm("ls", "--dir", str(shelf), *wrong)
    assert (run.code, run.out) == (2, "")
    assert wrong[0] in run.err


# -- du ------------------------------------------------------------------------------------------------------------


def _bytes_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def test_du_counts_every_file_once(copy: Path) -> None:
    (copy / "notes.txt").write_text("x" * 1000)
    LocalStore(copy).quarantine(entries(copy)[0].name, "for a test", entries(copy)[0].read_bytes())
    found = told("du", "--dir", str(copy))
    kinds = {row["name"]: row for row in found["by_kind"]}
    assert set(kinds) == {"entries", "quarantine", "runs", "explain", "trials", "loads", "made", "books", "other"}
    assert (kinds["other"]["files"], kinds["other"]["bytes"]) == (1, 1000)
    assert sum(row["bytes"] for row in kinds.values()) == _bytes_of(copy)
    assert kinds["entries"]["bytes"] == sum(path.stat().st_size for path in entries(copy))
    assert kinds["runs"]["bytes"] == _bytes_of(copy / "runs")
    assert (kinds["entries"]["files"], kinds["quarantine"]["files"], kinds["runs"]["files"]) == (1, 1, 2)
    assert sum(row["share"] for row in kinds.values()) == pytest.approx(1.0)
    assert [row["bytes"] for row in found["by_kind"]] == sorted((row["bytes"] for row in kinds.values()), reverse=True)


def test_du_by_program_target_and_version(shelf: Path) -> None:
    by_program = told("du", "--dir", str(shelf), "--by", "program")
    assert set(by_program) == {"directory", "by_program"}
    rows = {row["name"]: row for row in by_program["by_program"]}
    assert [row["name"] for row in by_program["by_program"]] == ["jit_a", "jit_b"]
    assert (rows["jit_a"]["files"], rows["jit_b"]["files"]) == (3, 3)
    assert rows["jit_b"]["compile_seconds"] == 9.0
    jax = {row["name"]: row["files"] for row in told("du", "--dir", str(shelf), "--by", "jax")["by_jax"]}
    assert jax == {"0.12.0.1": 3, "0.9.2": 3}
    target = told("du", "--dir", str(shelf), "--by", "target")["by_target"]
    assert [(row["name"], row["files"]) for row in target] == [("cpu x1", 6)]
    text = rewarm("du", "--dir", str(shelf)).out
    assert re.search(r"^jit_b\s+3\s+\d+\.\d KiB\s+\d+\.\d %\s+9\.00 s$", text, re.MULTILINE)
    assert text.count("in all") == 2


def test_du_names_what_cannot_be_read_and_follows_no_link(copy: Path, tmp_path: Path) -> None:
    entries(copy)[0].write_bytes(b"something else")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "large").write_bytes(bytes(10 << 20))
    (copy / "link").symlink_to(tmp_path / "outside")
    found = told("du", "--dir", str(copy))
    assert {row["name"] for row in found["by_program"]} == {"jit__lambda", "unreadable"}
    assert sum(row["bytes"] for row in found["by_kind"]) < 5 << 20


# -- gc ------------------------------------------------------------------------------------------------------------


def test_gc_by_size_takes_the_least_worth(shelf: Path) -> None:
    size = sum(path.stat().st_size for path in entries(shelf)) - 1
    dry = told("gc", "--dir", str(shelf), "--max-size", str(size), "--dry-run")
    assert (numbers(dry["removed"]), dry["dry_run"]) == ([0], True)
    assert len(entries(shelf)) == 6
    done = told("gc", "--dir", str(shelf), "--max-size", str(size))
    assert numbers(done["removed"]) == [0]
    assert done["removed"][0]["reason"] == "size"
    assert (done["entries"], done["bytes"]) == (1, done["removed"][0]["size"])
    assert {path.name for path in entries(shelf)} == {key_of(number) for number in range(1, 6)}


def test_gc_by_age_and_by_number(shelf: Path) -> None:
    old = told("gc", "--dir", str(shelf), "--max-age", "84h")
    assert sorted(numbers(old["removed"])) == [4, 5]
    assert {row["reason"] for row in old["removed"]} == {"age"}
    few = told("gc", "--dir", str(shelf), "--max-entries", "1")
    assert {row["reason"] for row in few["removed"]} == {"entries"}
    assert len(entries(shelf)) == 1
    assert few["compile_seconds"] == pytest.approx(sum(row["seconds"] for row in few["removed"]))


def test_gc_says_what_went(shelf: Path) -> None:
    text = rewarm("gc", "--dir", str(shelf), "--max-entries", "4", "--dry-run").out
    assert re.search(r"^would remove 2 entries, .* which stood for .* of compiling$", text, re.MULTILINE)
    assert "4 entries" in text.splitlines()[-1]
    text = rewarm("gc", "--dir", str(shelf)).out
    assert text.startswith("removed 0 entries, 0 B")


def test_gc_has_the_bounds_of_a_program_here(shelf: Path) -> None:
    bounds = told("gc", "--dir", str(shelf), "--dry-run", REWARM_MAX_ENTRIES="3", REWARM_MAX_AGE="40d")["bounds"]
    assert (bounds["max_entries"], bounds["max_age"]) == (3, 40 * DAY)
    assert bounds["max_size"] > 1 << 20, "the default follows the disk"
    size = told("gc", "--dir", str(shelf), "--dry-run", JAX_COMPILATION_CACHE_MAX_SIZE="20000")
    assert size["bounds"]["max_size"] == 20_000
    assert size["entries"] > 0
    over = told("gc", "--dir", str(shelf), "--dry-run", "--max-size", "none", JAX_COMPILATION_CACHE_MAX_SIZE="20000")
    assert (over["bounds"]["max_size"], over["entries"]) == (None, 0)


@pytest.mark.parametrize(
    ("option", "value"),
    [("--max-size", "ten"), ("--max-size", "-5"), ("--max-age", "0"), ("--max-age", "x"), ("--max-entries", "1.5")],
)
def test_gc_refuses_what_it_cannot_mean(shelf: Path, option: str, value: str) -> None:
    run = rewarm("gc", "--dir", str(shelf), option, value)
    assert (run.code, run.out) == (2, "")
    assert len(run.err.splitlines()) == 1
    assert run.err.startswith(f"Error: {option}: expected ")
    assert len(entries(shelf)) == 6


# -- verify --repair -----------------------------------------------------------------------------------------------


def _quarantined(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "quarantine").iterdir()) if (cache / "quarantine").exists() else []


def test_repair_puts_bad_entries_into_quarantine(shelf: Path) -> None:
    bad = LocalStore(shelf).path(key_of(1))
    data = bytearray(bad.read_bytes())
    data[-50] ^= 1
    bad.write_bytes(data)
    empty = LocalStore(shelf).path(key_of(2))
    empty.write_bytes(b"")
    run = rewarm("verify", "--repair", "--dir", str(shelf))
    assert run.code == 0, run.err
    assert f"{bad.name}  put into quarantine: digest does not match: truncated or damaged" in run.out
    assert f"{empty.name}  put into quarantine: empty file" in run.out
    assert run.out.splitlines()[-1] == "6 entries, 2 bad, 2 put into quarantine"
    assert [name[:64] for name in _quarantined(shelf)] == sorted([bad.name, empty.name])
    assert len(entries(shelf)) == 4
    assert rewarm("verify", "--dir", str(shelf)).out == "4 entries, 0 bad\n"


@pytest.mark.parametrize("kind", ["directory", "fifo", "link", "broken link"])
def test_repair_moves_what_is_no_file(shelf: Path, tmp_path: Path, kind: str) -> None:
    place = LocalStore(shelf).path(key_of(1))
    data = place.read_bytes()
    place.unlink()
    if kind == "directory":
        place.mkdir()
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        (tmp_path / "target").write_bytes(data)
        place.symlink_to(tmp_path / ("target" if kind == "link" else "nowhere"))
    found = told("verify", "--dir", str(shelf), code=1)
    assert found["bad"] == [{"key": place.name, "problem": "not a regular file"}]
    done = told("verify", "--repair", "--dir", str(shelf))
    assert (done["still_bad"], len(done["repaired"])) == ([], 1)
    assert not os.path.lexists(place)
    (name,) = _quarantined(shelf)
    moved = (shelf / "quarantine" / name).lstat().st_mode
    assert (stat.S_ISDIR(moved), stat.S_ISFIFO(moved), stat.S_ISLNK(moved)) == (
        kind == "directory",
        kind == "fifo",
        "link" in kind,
    )
    if kind == "link":
        assert (tmp_path / "target").read_bytes() == data


def test_repair_removes_what_dead_writers_left_and_nothing_else(shelf: Path) -> None:
    shard = entries(shelf)[0].parent
    old, young, stray = shard / f".{shard.name}.1.2.tmp", shard / f".{shard.name}.3.4.tmp", shard / "mine.tmp"
    for path in (old, young, stray):
        path.write_bytes(b"half")
    for path in (old, stray):
        os.utime(path, (time.time() - 2 * 3600,) * 2)
    looked = rewarm("verify", "--dir", str(shelf))
    assert looked.code == 0, "a leftover is no bad entry"
    assert looked.out == "6 entries, 0 bad, 1 temporary file of dead writers\n"
    assert old.exists()
    done = rewarm("verify", "--repair", "--dir", str(shelf))
    assert done.code == 0
    assert f"{old}  left by a writer that died, removed" in done.out
    assert [path.exists() for path in (old, young, stray)] == [False, True, True]


def test_repair_of_a_sound_directory_changes_nothing(shelf: Path) -> None:
    before = {path: path.stat().st_ino for path in entries(shelf)}
    assert rewarm("verify", "--repair", "--dir", str(shelf)).out == "6 entries, 0 bad\n"
    assert {path: path.stat().st_ino for path in entries(shelf)} == before


# -- quarantine ----------------------------------------------------------------------------------------------------


@pytest.fixture
def aside(shelf: Path) -> Path:
    """A directory with three things in quarantine: a sound entry, a damaged one, and a directory."""
    store = LocalStore(shelf)
    store.quarantine(key_of(1), "it cannot be loaded: too new", store.path(key_of(1)).read_bytes())
    time.sleep(0.01)
    damaged = store.path(key_of(2)).read_bytes()[:-9]
    store.path(key_of(2)).write_bytes(damaged)
    store.quarantine(key_of(2), "digest does not match: truncated or damaged", damaged)
    time.sleep(0.01)
    store.path(key_of(3)).unlink()
    store.path(key_of(3)).mkdir()
    store.quarantine(key_of(3), "not a regular file", None)
    return shelf


def test_quarantine_ls(aside: Path) -> None:
    rows = told("quarantine", "ls", "--dir", str(aside))["files"]
    assert [row["key"] for row in rows] == [key_of(3), key_of(2), key_of(1)]
    assert [row["program"] for row in rows] == [None, "jit_a", "jit_b"]
    assert [row["why"] for row in rows] == [
        "not a regular file",
        "digest does not match truncated or damaged",
        "it cannot be loaded too new",
    ]
    assert all(abs(row["when"] - time.time()) < 120 for row in rows)
    text = rewarm("quarantine", "ls", "--dir", str(aside)).out
    assert all(row["name"] in text for row in rows)
    assert text.splitlines()[-1].startswith("3 in quarantine, ")


def test_quarantine_show(aside: Path) -> None:
    sound = rewarm("quarantine", "show", key_of(1)[:8], "--dir", str(aside)).out
    for words in ("jit_b", "it cannot be loaded too new", "every check of the envelope holds", "executable: "):
        assert words in sound
    damaged = told("quarantine", "show", key_of(2), "--dir", str(aside))
    assert damaged["problem_now"] == "digest does not match: truncated or damaged"
    assert damaged["header"]["program"] == "jit_a"
    folder = rewarm("quarantine", "show", key_of(3), "--dir", str(aside)).out
    assert folder.splitlines()[-1].split() == ["now", "a", "directory,", "not", "a", "file"]
    none = rewarm("quarantine", "show", "zz", "--dir", str(aside))
    assert (none.code, none.out, len(none.err.splitlines())) == (1, "", 1)
    assert "see rewarm quarantine ls" in none.err
    several = rewarm("quarantine", "show", "", "--dir", str(aside))
    assert (several.code, "3 names start with ''" in several.err) == (1, True)


def test_quarantine_drop(aside: Path) -> None:
    name = told("quarantine", "ls", "--dir", str(aside))["files"][0]["name"]
    assert rewarm("quarantine", "drop", name, "--dir", str(aside)).out == "1 removed from quarantine\n"
    assert len(_quarantined(aside)) == 2
    for wrong in (["drop"], ["drop", "--all", name]):
        run = rewarm("quarantine", *wrong, "--dir", str(aside))
        assert (run.code, run.out) == (2, "")
    assert rewarm("quarantine", "drop", "--all", "--dir", str(aside)).out == "2 removed from quarantine\n"
    assert _quarantined(aside) == []
    assert "nothing is in quarantine" in rewarm("quarantine", "ls", "--dir", str(aside)).out
    assert len(entries(aside)) == 3


def test_strange_names_in_quarantine_are_listed(aside: Path) -> None:
    (aside / "quarantine" / "mine").write_text("x")
    (aside / "quarantine" / "a.b.c").write_text("")
    rows = {row["name"]: row for row in told("quarantine", "ls", "--dir", str(aside))["files"]}
    assert rows["mine"]["unreadable"] == "not an entry of rewarm"
    assert (rows["a.b.c"]["key"], rows["a.b.c"]["unreadable"]) == (None, "empty file")


def condemn(cache: Path, number: int, times: int) -> None:
    """Leave what is known of an entry that ended a process so often."""
    lines = condemned.load(cache / "trials")
    for time_ in range(times):
        reason = f"loading it ended process {number}{time_}"
        lines.append(
            condemned.Line(key_of(number), key_of(9), f"jit_{number}", reason, time.time(), "here", "condemned")
        )
    (cache / "trials").mkdir(exist_ok=True)
    condemned.save(cache / "trials", lines, PRIVATE)


def test_keys_that_are_refused_are_listed_and_allowed_again(shelf: Path) -> None:
    for number, times in ((1, 2), (2, 1), (3, 2), (4, 2)):
        condemn(shelf, number, times)
    rows = told("quarantine", "ls", "--dir", str(shelf))["refused"]
    assert [(row["key"], row["program"]) for row in rows] == [(key_of(n), f"jit_{n}") for n in (1, 3, 4)]
    text = rewarm("quarantine", "ls", "--dir", str(shelf)).out
    assert "nothing is in quarantine" in text
    assert "loading it ended process 31" in text
    assert text.splitlines()[-1].startswith("3 keys are refused; rewarm quarantine allow KEY")
    assert rewarm("quarantine", "allow", key_of(3)[:12].upper(), "--dir", str(shelf)).out == (
        f"{key_of(3)} is no longer refused\n"
    )
    assert [one.key for one in refused_keys(shelf)] == [key_of(1), key_of(4)]
    none = rewarm("quarantine", "allow", key_of(2), "--dir", str(shelf))
    assert (none.code, "none is refused" in none.err) == (1, True)
    assert rewarm("quarantine", "allow", "--dir", str(shelf)).code == 2
    told("clear", "--dir", str(shelf))
    assert len(refused_keys(shelf)) == 2
    assert rewarm("quarantine", "allow", "--all", "--dir", str(shelf)).code == 0
    assert refused_keys(shelf) == []


# -- stats --all-time and clear ------------------------------------------------------------------------------------


def test_stats_of_all_time(real: Path) -> None:
    found = told("stats", "--all-time", "--dir", str(real))
    total = found["total"]
    assert (total["requests"], total["hits"], found["runs"]) == (4, 2, 2)
    assert total["seconds_compiling"] > 0
    assert found["programs"]["jit__lambda"]["requests"] == 4
    assert time.time() - 3600 < found["since"] < time.time()
    text = rewarm("stats", "--all-time", "--dir", str(real)).out
    assert "saved by 2 hits of 4 requests" in text
    assert "jit__lambda" in text


def test_clear_keeps_what_was_saved_unless_all_is_to_go(copy: Path) -> None:
    before = told("stats", "--all-time", "--dir", str(copy))
    assert told("clear", "--dir", str(copy))["entries"] == 2
    assert sorted(path.name for path in copy.iterdir() if path.suffix != ".json") == [".savings.lock", "CACHEDIR.TAG"]
    after = told("stats", "--all-time", "--dir", str(copy))
    assert after == before
    told("clear", "--all", "--dir", str(copy))
    assert not (copy / "savings.json").exists()
    assert told("stats", "--all-time", "--dir", str(copy))["since"] is None
    assert "no run is recorded" in rewarm("stats", "--all-time", "--dir", str(copy)).out


# -- progress ------------------------------------------------------------------------------------------------------


def _on_a_terminal(*arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, and what a terminal on standard error is sent."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rewarm", *arguments],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=clean_environment(TERM="xterm", COLUMNS="100"),
    )
    os.close(theirs)
    sent = b""
    try:
        while select.select([ours], [], [], 60)[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:  # its other end is closed
                break
            if not part:
                break
            sent += part
        assert process.stdout is not None
        out = process.stdout.read().decode()
        return process.wait(60), out, sent.decode()
    finally:
        process.kill()
        process.communicate()
        os.close(ours)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["verify"], "checking entries"),
        (["ls", "--json"], "reading headers"),
        (["stats"], "reading headers"),
        (["du", "--by", "kind"], "looking at files"),
        (["gc"], "removing entries"),
    ],
)
def test_long_work_shows_progress_on_a_terminal_alone(shelf: Path, arguments: list[str], words: str) -> None:
    code, out, sent = _on_a_terminal(*arguments, "--dir", str(shelf))
    assert code == 0
    assert words in sent
    piped = rewarm(*arguments, "--dir", str(shelf))
    assert (piped.code, piped.err) == (0, "")
    assert _timeless(out) == _timeless(piped.out)
    assert "\x1b" not in out


@pytest.mark.parametrize("arguments", [["ls"], ["ls", "--sort", "worth"], ["du"], ["stats", "--all-time"]])
def test_a_narrow_terminal_loses_no_column(real: Path, arguments: list[str]) -> None:
    piped = rewarm(*arguments, "--dir", str(real)).out
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "rewarm", *arguments, "--dir", str(real)],
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env=clean_environment(TERM="xterm", COLUMNS="40", NO_COLOR="1"),
    ) as process:
        os.close(theirs)
        drawn = b""
        with contextlib.suppress(OSError):  # its other end is closed
            while part := os.read(ours, 65536):
                drawn += part
        assert process.wait(60) == 0
    os.close(ours)
    words = re.sub(r"\x1b\[[0-9;]*m", "", _timeless(drawn.decode())).split()
    assert sorted(words) == sorted(_timeless(piped).split())


def test_long_work_says_how_much_is_left(real: Path, tmp_path: Path) -> None:
    """A bar without a total shows neither a share nor a time."""
    (tmp_path / "remote").mkdir()
    shutil.copytree(real, tmp_path / "copy")
    remote = ("--remote", f"file://{tmp_path / 'remote'}?trust=store")
    for arguments, words in (
        (("bundle", "save", str(tmp_path / "b"), "--dir", str(real)), "writing entries"),
        (("bundle", "load", str(tmp_path / "b"), "--trust", "store", "--dir", str(tmp_path / "a")), "storing entries"),
        (("sync", "push", *remote, "--dir", str(real)), "sending entries"),
        (("sync", "pull", *remote, "--dir", str(tmp_path / "c")), "sending entries"),
        (("clear", "--dir", str(tmp_path / "copy")), "removing entries"),
    ):
        code, out, sent = _on_a_terminal(*arguments)
        assert code == 0, out + sent
        assert re.search(rf"{words}.* 100%", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", sent)), (words, sent)


def _timeless(text: str) -> str:
    return re.sub(r"\d+ s ago", "now", text)


def test_what_dead_writers_left_goes_everywhere(real: Path, tmp_path: Path) -> None:
    """By gc and by verify --repair alike; what is younger than an hour, and what is not rewarm's, stays."""
    copy = tmp_path / "copy"
    shutil.copytree(real, copy)
    places = ["ab", ".", "explain", "explain/values", "costs", "plans", "trials", "elsewhere/0123456789abcdef"]
    for command in (("gc",), ("verify", "--repair")):
        left = [copy / place / ".memo.1.0123abcd.tmp" for place in places]
        young, foreign = copy / "costs" / ".new.1.0123abcd.tmp", copy / "mine" / ".memo.1.0123abcd.tmp"
        for path in (*left, young, foreign):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
            if path != young:
                os.utime(path, (time.time() - 2 * DAY,) * 2)
        assert rewarm(*command, "--dir", str(copy)).code == 0
        assert [path for path in left if path.exists()] == []
        assert young.exists()
        assert foreign.exists()


def test_gc_says_what_it_could_not_remove(real: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(real, copy)
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    command = [sys.executable, "-m", "rewarm", "gc", "--max-entries", "1", "--dir", str(copy)]
    for prefix in (("unshare", "-m"), ("unshare", "-rm")):
        if shutil.which("unshare") is None or subprocess.run([*prefix, "true"], check=False).returncode != 0:
            continue
        line = [*prefix, "sh", "-c", script, "sh", str(copy)]
        done = subprocess.run([*line, *command], capture_output=True, text=True, env=clean_environment(), check=False)
        assert (done.returncode, "removed 0 entries" in done.stdout) == (1, True), done.stderr
        assert "Error: 1 entry beyond the bounds could not be removed" in done.stderr
        dry = subprocess.run([*line, *command, "--dry-run"], capture_output=True, text=True, check=False)
        assert (dry.returncode, "would remove 1 entry," in dry.stdout) == (0, True), dry.stderr
        return
    pytest.skip("no mount namespaces here")
