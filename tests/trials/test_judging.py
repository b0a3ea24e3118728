"""Processes that die with something in hand, and what the next ones make of it."""

from __future__ import annotations

import errno
import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dying import CONTENT, KEY

from rewarm.host import host_id
from rewarm.small_files import PRIVATE
from rewarm.trials import Trials, drop, refused_keys
from rewarm.trials.condemned import CONDEMNED, Line, load, save
from rewarm.trials.marks import InHand, begun

DYING = Path(__file__).with_name("dying.py")
DAY = 86_400.0


class Next:
    """A process that comes after, with a store that notes what is put aside."""

    def __init__(self, root: Path, *, gone: bool = True) -> None:
        self.aside: list[tuple[str, str, str]] = []
        self.told: list[str] = []
        self._gone = gone
        self.trials = Trials(root, self._put_aside, self.told.append)

    def _put_aside(self, key: str, reason: str, content: str) -> bool:
        self.aside.append((key, reason, content))
        return self._gone


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


def die(root: Path, what: str, how: str = "kill") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(DYING), str(root), what, how], capture_output=True, text=True, timeout=60, check=False
    )


def marks(root: Path) -> list[Path]:
    return sorted((root / "trials").glob("*.mark"))


def left_mark(
    root: Path, *steps: InHand, host: str | None = None, age: float = 0.0, name: str = "7-0123abcd.mark"
) -> Path:
    """A mark as a process leaves it that was killed `age` seconds ago."""
    folder = root / "trials"
    folder.mkdir(exist_ok=True)
    path = folder / name
    lines = "".join(begun(number, step) for number, step in enumerate(steps))
    path.write_text(f"rewarm mark 1 {host or host_id()} 7\n{lines}")
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def in_hand(step: str = "loading", *, ago: float = 1.0, key: str = KEY, content: str = CONTENT) -> InHand:
    return InHand(step, key, content, time.time() - ago, "jit_f")


@pytest.mark.parametrize(
    ("what", "how", "words"),
    [
        ("load", "crash", "loading it ended process"),
        ("load,loaded,run", "crash", "its first run ended process"),
        ("load,loaded,run,wait", "crash", "its first run ended process"),
        ("fill,load", "crash", "loading it ended process"),
        ("handler,load", "crash", "loading it ended process"),
        ("handler,load", "kill", "loading it ended process"),
    ],
)
def test_what_was_in_hand_is_condemned(root: Path, what: str, how: str, words: str) -> None:
    died = die(root, what, how)
    assert died.returncode in (-signal.SIGKILL, -signal.SIGABRT)
    assert len(marks(root)) == 1
    after = Next(root)
    ((key, reason, content),) = after.aside
    assert (key, content) == (KEY, CONTENT)
    assert reason.startswith(words)
    assert ("with aborted" in reason) is (how == "crash" and "handler" not in what)
    (line,) = after.told
    assert KEY[:12] in line
    assert "jit_f" in line
    assert reason in line
    assert marks(root) == []
    assert after.trials.refused(KEY) is None
    assert Next(root).aside == []


@pytest.mark.parametrize("what", ["load", "load,loaded,run", "load,loaded,run,wait", "fill,load"])
@pytest.mark.parametrize("how", ["kill", "term", "abort", "_exit"])
def test_who_is_ended_from_outside_or_by_a_line_of_python_condemns_nothing(root: Path, what: str, how: str) -> None:
    for _ in range(3):
        die(root, what, how)
        after = Next(root)
        assert (after.aside, after.told, marks(root)) == ([], [], [])
    assert refused_keys(root) == []


def test_without_a_witness_a_death_soon_after_a_first_run_began_counts_at_once(root: Path) -> None:
    """And the key is refused after four: whoever ended it from outside did so four times within two seconds."""
    for number in range(4):
        assert refused_keys(root) == []
        die(root, "handler,load,loaded,run", "crash")
        after = Next(root)
        assert len(after.aside) == 1
        assert ("not loaded and not stored" in after.told[0]) is (number == 3)
        forget_the_content(root)
    assert [one.key for one in refused_keys(root)] == [KEY]


def forget_the_content(root: Path) -> None:
    """As if each had been another entry of the key, since the tests have one."""
    lines = load(root / "trials")
    save(root / "trials", [line._replace(content=f"{number:064x}") for number, line in enumerate(lines)], PRIVATE)


@pytest.mark.parametrize("how", ["kill", "term", "abort", "_exit", "crash"])
def test_without_a_witness_a_later_death_condemns_nothing(root: Path, how: str) -> None:
    """As under `absl.app.run` and pytest, whose handler of fatal signals is on."""
    die(root, "handler,load,loaded,run,wait,wait,wait", how)
    after = Next(root)
    assert (after.aside, after.told, marks(root), load(root / "trials")) == ([], [], [], [])


def test_the_handler_is_given_back(root: Path) -> None:
    assert Next(root).aside == []
    trials = Trials(root, lambda *_: True, lambda _: None)
    was_on = faulthandler.is_enabled()
    faulthandler.disable()
    try:
        trial = trials.begin(KEY, "jit_f", CONTENT)
        assert trial is not None
        assert faulthandler.is_enabled()
        trials.loaded(trial)
        assert not faulthandler.is_enabled()
        faulthandler.enable()
        trials.running(trial)
        trials.ran(trial, proved=False)
        assert faulthandler.is_enabled(), "the user's stays on"
    finally:
        if not was_on:
            faulthandler.disable()


@pytest.mark.parametrize(
    "what",
    ["load,loaded", "load,loaded,run,ran", "load,loaded,run,ran,wait", "load,loaded,fill", "load,loaded,run,ran,fill"],
)
@pytest.mark.parametrize("how", ["kill", "abort", "_exit"])
def test_what_was_not_in_hand_is_innocent(root: Path, what: str, how: str) -> None:
    die(root, what, how)
    assert len(marks(root)) == 1
    assert Next(root).aside == []
    assert marks(root) == []


def test_a_clean_end_leaves_nothing_even_with_something_in_hand(root: Path) -> None:
    assert die(root, "load", "exit").returncode == 0
    assert marks(root) == []


def test_a_long_mark_is_started_anew(root: Path) -> None:
    die(root, "fill,fill")
    (mark,) = marks(root)
    assert mark.stat().st_size < 70_000


def test_a_living_process_is_not_judged_and_is_heard(root: Path) -> None:
    stands = subprocess.Popen(
        [sys.executable, str(DYING), str(root), "load", "stand"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert stands.stdout is not None
        assert stands.stdout.readline() == "ready\n"
        (mark,) = marks(root)
        before = mark.stat().st_mtime
        assert Next(root).aside == []
        deadline = time.monotonic() + 10
        while mark.stat().st_mtime == before and time.monotonic() < deadline:
            time.sleep(0.1)
        assert mark.stat().st_mtime > before
        stands.send_signal(signal.SIGKILL)
        stands.wait()
        assert Next(root).aside == []
        assert marks(root) == []
    finally:
        stands.kill()
        stands.communicate()


def test_a_forked_child_does_not_keep_the_mark_alive(root: Path) -> None:
    with subprocess.Popen(
        [sys.executable, str(DYING), str(root), "load,fork", "crash"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.wait(timeout=60)
        try:
            os.kill(child, 0)  # it lives
            assert len(Next(root).aside) == 1
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_program_that_closes_our_file_writes_into_no_other(root: Path) -> None:
    die(root, "load,closefds,loaded,run", "exit")
    assert (root / "other").read_text() == ""


def test_a_death_long_after_a_run_began_condemns_nothing(root: Path) -> None:
    for _ in range(3):
        left_mark(root, in_hand("running", ago=40.0))
        after = Next(root)
        assert (after.aside, after.told, load(root / "trials")) == ([], [], [])


def test_an_entry_that_stays_and_was_not_seen_to_end_it_is_refused_the_second_time(root: Path) -> None:
    left_mark(root, in_hand("running", ago=1.0))
    assert Next(root, gone=False).trials.refused(KEY) is None
    left_mark(root, in_hand("running", content="ef" * 32, ago=1.0))
    assert Next(root, gone=False).trials.refused(KEY) is not None


def test_a_death_long_after_a_load_began_counts_at_once(root: Path) -> None:
    left_mark(root, in_hand("loading", ago=40.0))
    assert len(Next(root).aside) == 1


def test_the_second_entry_of_a_key_is_refused_until_it_is_dropped(root: Path) -> None:
    left_mark(root, in_hand())
    assert Next(root).trials.refused(KEY) is None
    left_mark(root, in_hand(content="ef" * 32))
    second = Next(root)
    assert "not loaded and not stored" in (second.trials.refused(KEY) or "")
    assert "not loaded and not stored" in second.told[0]
    assert [one.key for one in refused_keys(root)] == [KEY]
    assert drop(root, "00" * 32) == 0
    assert drop(root, KEY) == 2
    assert refused_keys(root) == []
    assert Next(root).trials.refused(KEY) is None


def test_several_that_had_one_entry_in_hand_are_one_event(root: Path) -> None:
    for number in range(8):
        left_mark(root, in_hand(), name=f"{number}-0123abcd.mark")
    after = Next(root)
    assert len(after.told) == 1
    assert len(load(root / "trials")) == 1
    left_mark(root, in_hand())  # one that died later, of the same
    later = Next(root)
    assert later.told == []
    assert later.trials.refused(KEY) is None
    assert later.aside == [(KEY, after.aside[0][1], CONTENT)]  # in case it still lies there


def test_an_entry_that_is_known_by_its_key_alone(root: Path) -> None:
    left_mark(root, in_hand(content=KEY))
    assert len(Next(root).told) == 1
    left_mark(root, in_hand(content=KEY, ago=1000.0))  # begun before that: the same event
    assert Next(root).aside == []
    time.sleep(0.01)
    left_mark(root, in_hand(content=KEY, ago=-1.0))
    assert Next(root).trials.refused(KEY) is not None


def test_an_entry_that_cannot_be_put_aside_is_refused_at_once(root: Path) -> None:
    left_mark(root, in_hand())
    after = Next(root, gone=False)
    assert "not loaded and not stored" in after.told[0]
    assert after.trials.refused(KEY) is not None


def test_what_is_older_than_30_days_does_not_count(root: Path) -> None:
    left_mark(root, in_hand())
    Next(root)
    (line,) = load(root / "trials")
    save(root / "trials", [line._replace(time=line.time - 31 * DAY)], PRIVATE)
    left_mark(root, in_hand(content="ef" * 32))
    assert Next(root).trials.refused(KEY) is None


@pytest.mark.parametrize(("age", "judged"), [(5.0, 0), (120.0, 1)])
def test_another_hosts_mark_is_judged_once_it_is_silent(root: Path, age: float, judged: int) -> None:
    mark = left_mark(root, in_hand(ago=age + 1), host="0123456789abcdef", age=age)
    assert len(Next(root).aside) == judged
    assert mark.exists() == (not judged)


def test_where_there_are_no_locks_silence_decides(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    mark = left_mark(root, in_hand(ago=6.0), age=5.0)
    assert Next(root).aside == []
    os.utime(mark, (time.time() - 120, time.time() - 120))
    assert len(Next(root).aside) == 1
    idle = left_mark(root, age=120.0)
    Next(root)
    assert idle.exists()
    os.utime(idle, (time.time() - 2 * DAY, time.time() - 2 * DAY))
    Next(root)
    assert not idle.exists()


def test_an_empty_mark_is_somebodys_for_a_day(root: Path) -> None:
    """Its process is between making it and locking it."""
    mark = left_mark(root)
    mark.write_bytes(b"")
    Next(root)
    assert mark.exists()
    os.utime(mark, (time.time() - 2 * DAY, time.time() - 2 * DAY))
    Next(root)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content", [b"\x00" * 300, b"rewarm mark 2 x 7\n", b"rewarm mark 1 " + b"z" * 70_000, b"\xff\xfe\n\n\nloading"]
)
def test_strange_files_hurt_nobody(root: Path, content: bytes) -> None:
    mark = left_mark(root)
    mark.write_bytes(content)
    (root / "trials" / "8-0123abcd.mark").mkdir()
    (root / "trials" / "condemned.jsonl").write_bytes(content + b'\n{}\n[]\n{"key": 3}\n')
    os.mkfifo(root / "trials" / "9-0123abcd.mark")
    after = Next(root)
    assert after.aside == []
    assert after.trials.refused(KEY) is None
    assert drop(root) == 0


def test_two_that_start_at_once_judge_once(root: Path) -> None:
    die(root, "load", "crash")
    look = (
        "import sys, time; from pathlib import Path; from rewarm.trials import Trials;"
        "time.sleep(max(0, float(sys.argv[2]) - time.time()));"
        "aside = lambda *told: time.sleep(0.2) or print('aside') or True;"
        "trials = Trials(Path(sys.argv[1]), aside, lambda line: None); print(len(trials.verdicts))"
    )
    start = str(time.time() + 2.0)
    starts = [
        subprocess.Popen([sys.executable, "-c", look, str(root), start], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    outs = sorted(process.communicate(timeout=60)[0] for process in starts)
    assert outs == ["0\n", "0\n", "0\n", "aside\n1\n"]


def test_the_lines_are_bounded(root: Path) -> None:
    folder = root / "trials"
    folder.mkdir()
    now = time.time()
    lines = [Line(f"{n:064x}", CONTENT, "f", "r", now - 1000 + n, "h", CONDEMNED) for n in range(300)]
    save(folder, lines, PRIVATE)
    kept = load(folder)
    assert kept == lines[-256:]
    assert (folder / "condemned.jsonl").stat().st_mode & 0o777 == 0o600


_NEXT = """
import sys
from pathlib import Path
from rewarm.trials import Trials, drop, refused_keys
root, key = Path(sys.argv[1]), "ab" * 32
told = []
trials = Trials(root, lambda *_: False, told.append)
print(len(told), "not loaded" in (trials.refused(key) or ""), [one.key == key for one in refused_keys(root)])
print(drop(root, key), refused_keys(root), Trials(root, lambda *_: False, told.append).refused(key), len(told))
"""


@pytest.mark.parametrize("base", ["home", "temporary"])
@pytest.mark.parametrize(
    "mount",
    [
        'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1"',
        'mount -t tmpfs -o size=64k none "$1" && dd if=/dev/zero of="$1/full" bs=4k 2>"$1.log" || true',
    ],
    ids=["read-only", "full"],
)
def test_where_nothing_can_be_written_marks_lie_elsewhere(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str, base: str
) -> None:
    """The entry cannot be taken out of the way, so its key is refused at once, and can be allowed again."""
    prefix = next((way for way in (("unshare", "-m"), ("unshare", "-rm")) if _may_mount(way)), None)
    if prefix is None:
        pytest.skip("no mount namespaces here")
    for name in ("home", "tmp"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", f"{tmp_path / 'tmp'}")
    home = tmp_path / "home"
    if base == "temporary":
        home = root  # the cache directory is the default one itself
        root = home / "rewarm"
        root.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", f"{home}")
    script = f'{mount}; "$2" "$3" "$1" load crash; "$2" -c "$4" "$1"'
    run = subprocess.run(
        [*prefix, "sh", "-c", script, "sh", str(root), sys.executable, str(DYING), _NEXT],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stdout.splitlines() == ["ends", "1 True [True]", "1 [] None 1"], run.stderr
    kept = tmp_path / ("home/rewarm" if base == "home" else "tmp") / f"{'' if base == 'home' else _temporary()}"
    assert [path.stat().st_mode & 0o777 for path in kept.glob("elsewhere/*")] == [0o700]


def _temporary() -> str:
    return f"rewarm-{os.getuid()}"


def _may_mount(prefix: tuple[str, ...]) -> bool:
    trial = [*prefix, "mount", "-t", "tmpfs", "none", "/mnt"]
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(trial, capture_output=True, check=False).returncode == 0


def test_a_directory_where_nothing_can_be_made(root: Path) -> None:
    (root / "trials").write_text("mine")
    after = Next(root)
    assert after.trials.begin(KEY, "jit_f", CONTENT) is None
    assert after.trials.refused(KEY) is None
    assert refused_keys(root) == []


def test_a_cache_directory_that_goes_away(root: Path) -> None:
    after = Next(root)
    trial = after.trials.begin(KEY, "jit_f", CONTENT)
    assert trial is not None
    (root / "trials").rename(root / "elsewhere")
    (root / "elsewhere" / marks_name(root / "elsewhere")).unlink()
    after.trials.loaded(trial)
    again = after.trials.begin(KEY, "jit_f", CONTENT)
    assert again is not None
    assert len(marks(root)) == 1
    after.trials.ran(again, proved=True)
    assert after.trials.begin(KEY, "jit_f", CONTENT) is None


def marks_name(folder: Path) -> str:
    (mark,) = folder.glob("*.mark")
    return mark.name


# -- loads ahead of the program ------------------------------------------------------------------------------------

LOADS_AHEAD = '  File "/x/rewarm/jax_adapter/seam/loading.py", line 60 in load_bytes\n'
LOADS_AHEAD += (
    '  File "/x/rewarm/restart/ahead.py", line 330 in _executable\n  File "/x/threading.py", line 1012 in run\n'
)
PROGRAMS = (
    '  File "/x/jax/_src/interpreters/pxla.py", line 1386 in __call__\n  File "/home/me/train.py", line 3 in <module>\n'
)
USERS = '  File "/home/me/train.py", line 4 in <module>\n'
A_RUN, TWO_LOADS = ["running"], ["ahead", "ahead"]


@pytest.mark.parametrize(
    ("stack", "condemned"),
    [(LOADS_AHEAD, TWO_LOADS), (PROGRAMS, A_RUN), (USERS, []), ("", [*TWO_LOADS, *A_RUN])],
    ids=["of a load ahead", "of the program", "of the user's", "of no Python thread"],
)
def test_a_report_tells_loads_ahead_from_what_the_program_did(root: Path, stack: str, condemned: list[str]) -> None:
    steps = {f"{number:064x}": step for number, step in enumerate([*TWO_LOADS, *A_RUN])}
    path = left_mark(root, *(in_hand(step, key=key, content=key[::-1]) for key, step in steps.items()))
    with path.open("a") as mark:
        mark.write(f"armed\nFatal Python error: Aborted\n\nStack (most recent call first):\n{stack}")
    after = Next(root)
    assert [steps[key] for key, _, _ in after.aside] == condemned
    assert all(after.trials.refused(key) is None for key in steps), "once is not often enough"


def test_what_was_condemned_is_not_loaded_when_it_comes_again(root: Path) -> None:
    """From a remote, which has it still."""
    assert die(root, "load", "crash").returncode == -signal.SIGABRT
    trials = Next(root).trials
    assert "loading it ended process" in (trials.condemned(CONTENT) or "")
    assert trials.condemned("ef" * 32) is None
    drop(root)
    assert Next(root).trials.condemned(CONTENT) is None


def test_what_was_loaded_ahead_is_on_trial_until_it_has_run(root: Path) -> None:
    trials = Next(root).trials
    loaded = trials.begin(KEY, "jit_f", CONTENT, ahead=True)
    assert loaded is not None
    trials.loaded(loaded)
    given = trials.was_loaded(KEY, "jit_f", CONTENT)
    assert given is not None
    trials.running(given)
    trials.ran(given, proved=True)
    assert trials.was_loaded(KEY, "jit_f", CONTENT) is None
    assert trials.begin(KEY, "jit_f", CONTENT, ahead=True) is None


TAKEN_OVER = """
import faulthandler, sys
from pathlib import Path
from rewarm.trials import Trials
trials = Trials(Path(sys.argv[1]), lambda *_: True, print)
one, two = (trials.begin(key * 32, "jit_f", key * 32) for key in ("ab", "cd"))
with open(sys.argv[2], "w") as mine:
    faulthandler.enable(mine)
    trials.loaded(one)
    trials.loaded(two)
    print(faulthandler.is_enabled())
    three = trials.begin("ef" * 32, "jit_f", "ef" * 32)
    trials.loaded(three)
    print(faulthandler.is_enabled())
    sys.stdout.flush()
    faulthandler._sigsegv()
"""


def test_a_handler_that_the_program_turns_on_meanwhile_stays_on(root: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    command = [sys.executable, "-c", TAKEN_OVER, str(root), str(report)]
    died = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (died.returncode, died.stdout) == (-signal.SIGSEGV, "True\nTrue\n"), died.stderr
    assert "Segmentation fault" in report.read_text()
    assert Next(root).aside == []
