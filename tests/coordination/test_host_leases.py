"""On a host one process compiles a key, whatever becomes of it; the others are delayed by no more than was said."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from leasing import KEY, OTHER, Process, Processes, until

from rewarm.coordination import HostLeases, Lead
from rewarm.coordination.lease_file import LeaseFile, State
from rewarm.host import host_id
from rewarm.locks import try_lock
from rewarm.small_files import PRIVATE, SHARED

pytest_plugins = ["lease_fixtures"]

# What a busy machine may add to a bound.
SLACK = 1.5
PAUSE = 0.1

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")


def never() -> bool:
    return False


def lock_files(root: Path) -> list[str]:
    folder = root / "leases"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def ask(leases: HostLeases, key: str = KEY, found: Callable[[], bool] = never) -> Lead:
    with leases.lead(key, found) as lead:
        return lead


def in_thread(work: Callable[[], Lead]) -> Callable[[], Lead]:
    """Starts it; what is returned waits for what it returns."""
    given: list[Lead] = []
    thread = threading.Thread(target=lambda: given.append(work()), daemon=True)
    thread.start()

    def result() -> Lead:
        thread.join(60)
        assert given, "it waits for ever"
        return given[0]

    return result


def leader_and_waiters(
    processes: Processes, count: int, seconds: float, silence: float, before: str = ""
) -> tuple[Process, list[Process]]:
    """One that leads for a minute, and some that wait for it and would compile for so many seconds."""
    leader = processes.start(f"{before}\nresolve(host(silence={silence}), 60)")
    leader.line("leads")
    waiters = processes.start_at_once(f"{before}\ngo(); resolve(host(silence={silence}), {seconds})", count)
    time.sleep(1.5)  # they wait, and the leader was heard
    assert all(not waiter.says("alone") for waiter in waiters)
    return leader, waiters


# ---------------------------------------------------------------------------------------------------------------
# Nobody is in trouble


def test_of_many_processes_one_compiles(processes: Processes) -> None:
    everybody = processes.start_at_once("go(); resolve(host(), 2)", 32)
    lines = [one.home() for one in everybody]
    assert len(processes.compilations()) == 1
    assert sum(said[-1] == "compiled" for said in lines) == 1
    assert sum(said[-1] == "hit" for said in lines) == 31
    assert lock_files(processes.root) == []


def test_who_leads_is_told_so_and_leaves_nothing(tmp_path: Path) -> None:
    leases = HostLeases(tmp_path / "leases", PRIVATE)
    with leases.lead(KEY, never) as lead:
        assert lead[:1] == ("leads",)
        assert lead.seconds < 1
        assert lock_files(tmp_path) == [f"{KEY}.lock"]
        path = tmp_path / "leases" / f"{KEY}.lock"
        assert path.read_text() == f"rewarm lease 1 {host_id()} {os.getpid():19d}\n"
        assert path.stat().st_mode & 0o777 == 0o600
    assert lock_files(tmp_path) == []
    assert ask(leases).outcome == "leads", "and the next one leads again"


def test_a_lease_in_a_shared_folder_is_the_groups(tmp_path: Path) -> None:
    (tmp_path / "leases").mkdir()
    before = os.umask(0o077)
    try:
        with HostLeases(tmp_path / "leases", SHARED).lead(KEY, never):
            assert (tmp_path / "leases" / f"{KEY}.lock").stat().st_mode & 0o777 == 0o660
    finally:
        os.umask(before)


def test_who_leads_looks_once_more(tmp_path: Path) -> None:
    lead = ask(HostLeases(tmp_path / "leases", PRIVATE), found=lambda: True)
    assert (lead.outcome, lead.why) == ("waited", "another process has just compiled it")
    assert lock_files(tmp_path) == []


def test_a_look_that_fails_has_not_found_it(tmp_path: Path) -> None:
    def fails() -> bool:
        raise OSError("gone")

    assert ask(HostLeases(tmp_path / "leases", PRIVATE), found=fails).outcome == "leads"


def test_it_is_heard_while_it_leads(tmp_path: Path) -> None:
    leases = HostLeases(tmp_path / "leases", PRIVATE)
    paths = [tmp_path / "leases" / f"{key}.lock" for key in (KEY, OTHER)]
    with leases.lead(KEY, never), leases.lead(OTHER, never):
        threads = threading.active_count()
        for path in paths:
            os.utime(path, (0, 0))
        for path in paths:
            until("both are heard", lambda path=path: path.stat().st_mtime > 1e9, 10)
        assert threads == threading.active_count()


def test_what_the_leader_did_not_store_is_compiled_by_all_at_once(processes: Processes) -> None:
    everybody = processes.start_at_once("go(); resolve(host(), 1.5, store=False)", 6)
    lines = [one.home() for one in everybody]
    assert len(processes.compilations()) == 6
    assert sorted(said[1].split()[0] for said in lines) == ["leads"] + ["waited"] * 5
    waited = [float(said[1].split()[1]) for said in lines if said[1].startswith("waited")]
    assert max(waited) < 1.5 + SLACK, "they queued up"


def test_who_finds_the_entry_waits_no_longer(tmp_path: Path) -> None:
    leases = HostLeases(tmp_path / "leases", PRIVATE)
    stored = tmp_path / "stored"
    with leases.lead(KEY, never):
        waiter = in_thread(lambda: ask(leases, found=stored.exists))
        time.sleep(0.3)
        stored.touch()
        lead = waiter()
    assert (lead.outcome, lead.why) == ("waited", "another process compiled it")
    assert 0.2 < lead.seconds < 0.3 + PAUSE + SLACK


def test_patience_ends(tmp_path: Path) -> None:
    leases = HostLeases(tmp_path / "leases", PRIVATE, patience=0.5)
    with leases.lead(KEY, never):
        lead = in_thread(lambda: ask(leases))()
    assert lead.outcome == "alone"
    assert 0.5 <= lead.seconds < 0.5 + PAUSE + SLACK


# ---------------------------------------------------------------------------------------------------------------
# Leaders that do not finish


def test_after_a_leader_that_is_killed_one_of_the_others_leads(processes: Processes) -> None:
    leader, waiters = leader_and_waiters(processes, 6, 2, silence=30)
    leader.kill()
    killed = time.monotonic()
    until("another leads", lambda: len(processes.compilations()) == 2, 10)
    assert time.monotonic() - killed < PAUSE + SLACK
    for waiter in waiters:
        waiter.home()
    assert len(processes.compilations()) == 2
    assert sum(bool(waiter.says("leads")) for waiter in waiters) == 1
    assert lock_files(processes.root) == []


def test_after_a_leader_that_is_stopped_one_of_the_others_leads(processes: Processes) -> None:
    leader, waiters = leader_and_waiters(processes, 6, 2, silence=3)
    leader.send(signal.SIGSTOP)
    stopped = time.monotonic()
    until("another leads", lambda: len(processes.compilations()) == 2, 20)
    assert time.monotonic() - stopped < 3 + PAUSE + SLACK
    for waiter in waiters:
        waiter.home()
    assert len(processes.compilations()) == 2
    assert [waiter.says("leads")[0].split(" ", 2)[2] for waiter in waiters if waiter.says("leads")] == [
        "the process that had it in hand is silent"
    ]
    assert lock_files(processes.root) == [f"{KEY}.lock"]
    (processes.root / "stored").unlink()
    late = processes.start("resolve(host(silence=3), 0)").home()
    assert late[0].startswith("leads")
    assert float(late[0].split()[1]) < SLACK, "who comes later does not wait for it"


def test_when_the_next_one_is_stopped_too_everybody_compiles(processes: Processes) -> None:
    leader, waiters = leader_and_waiters(processes, 3, 30, silence=2.5)
    leader.send(signal.SIGSTOP)
    until("another leads", lambda: len(processes.compilations()) == 2, 20)
    second = processes.compilations()[1]
    os.kill(second, signal.SIGSTOP)
    stopped = time.monotonic()
    until("all compile", lambda: len(processes.compilations()) == 4, 20)
    assert time.monotonic() - stopped < 2.5 + PAUSE + SLACK
    others = [waiter for waiter in waiters if waiter.popen.pid != second]
    assert [other.line("alone").split(" ", 2)[2] for other in others] == [
        "the processes that had it in hand are silent"
    ] * 2


def test_a_leader_that_goes_on_after_a_stop_ends_as_it_should(processes: Processes) -> None:
    leader = processes.start("resolve(host(), 1)")
    leader.line("leads")
    leader.send(signal.SIGSTOP)
    time.sleep(0.5)
    leader.send(signal.SIGCONT)
    assert leader.home()[-1] == "compiled"
    assert lock_files(processes.root) == []


def test_what_a_killed_leader_left_delays_nobody(processes: Processes) -> None:
    leader = processes.start("resolve(host(), 60)")
    leader.line("leads")
    leader.kill()
    assert lock_files(processes.root) == [f"{KEY}.lock"]
    line = processes.start("resolve(host(), 0)").home()[0]
    assert line.startswith("leads")
    assert float(line.split()[1]) < SLACK
    assert lock_files(processes.root) == []


def test_a_waiter_that_was_stopped_itself_does_not_take_its_leader_for_silent(processes: Processes) -> None:
    processes.start("resolve(host(), 7)").line("leads")
    waiter = processes.start("say('asks'); resolve(host(silence=2), 0)")
    waiter.line("asks")
    time.sleep(0.5)
    waiter.send(signal.SIGSTOP)
    time.sleep(3)
    waiter.send(signal.SIGCONT)
    assert waiter.home()[-1] == "hit"
    assert len(processes.compilations()) == 1


# ---------------------------------------------------------------------------------------------------------------
# Dead ends


def test_two_processes_that_want_each_others_key_both_come_home(processes: Processes) -> None:
    code = """
    mine, other = {keys}
    with host().lead(mine, lambda: False) as lead:
        say("ready", lead.outcome)
        while not (root / "go").exists(): time.sleep(0.01)
        with host().lead(other, lambda: False) as inner:
            say("inner", inner.outcome, inner.why)
        while not (root / "end").exists(): time.sleep(0.01)
    """
    both = [processes.start(code.format(keys=keys)) for keys in ("KEY, OTHER", "OTHER, KEY")]
    for one in both:
        assert one.line("ready") == "ready leads"
    (processes.root / "go").touch()
    for one in both:
        assert one.line("inner", 5) == "inner alone another process has it in hand, and this thread may not wait"
    (processes.root / "end").touch()
    for one in both:
        one.home()


def test_a_thread_does_not_wait_for_itself(tmp_path: Path) -> None:
    leases = HostLeases(tmp_path / "leases", PRIVATE)
    with leases.lead(KEY, never):
        assert ask(leases).outcome == "alone"
        assert ask(leases, OTHER).outcome == "leads", "what nobody has in hand it leads as well"
        assert lock_files(tmp_path) == [f"{KEY}.lock"]
    assert lock_files(tmp_path) == []


# ---------------------------------------------------------------------------------------------------------------
# Forks, descriptors, Ctrl-C


@needs_fork
def test_a_child_holds_no_lease_of_its_parent(processes: Processes) -> None:
    parent = processes.start(
        """
        import threading
        leases, outcomes = host(), []
        with leases.lead(KEY, lambda: False) as lead:
            child = os.fork()
            if child == 0:
                links = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
                names = [str(link.readlink()) for link in links if link.is_symlink()]
                say("child", os.getpid(), [name for name in names if "lock" in name])
            else:
                time.sleep(60)
        say("left", sorted(path.name for path in (root / "leases").iterdir()) == [f"{KEY}.lock"])
        with leases.lead(KEY, lambda: False) as lead:
            say("then", lead.outcome, lead.why)
            time.sleep(30)
        """
    )
    child = int(parent.line("child").split()[1])
    try:
        assert parent.says("child")[0].endswith("[]")
        assert parent.line("left") == "left True", "the child leaves the block, and the lease is still its parent's"
        time.sleep(0.5)
        assert not parent.says("then")
        parent.send(signal.SIGKILL)
        assert parent.line("then", 10) == "then leads the process that had it in hand died"
    finally:
        os.kill(child, signal.SIGKILL)


@needs_fork
def test_a_child_of_a_waiter_holds_nothing_either(processes: Processes) -> None:
    (processes.root / "go").touch()
    code = """
    import threading
    leases = host()
    def lead():
        with leases.lead(KEY, lambda: False):
            time.sleep(1)
    thread = threading.Thread(target=lead); thread.start(); time.sleep(0.3)
    waiter = threading.Thread(target=lead); waiter.start(); time.sleep(0.3)
    child = os.fork()
    if child == 0:
        with leases.lead(OTHER, lambda: False) as other:
            links = [Path(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
            names = [str(link.readlink()) for link in links if link.is_symlink()]
            say("child", other.outcome, [name[-12:] for name in names if "lock" in name])
        os._exit(0)
    os.waitpid(child, 0)
    thread.join(); waiter.join()
    say(os.listdir(root / "leases"))
    """
    lines = processes.start(code).home()
    assert lines == [f"child leads ['{(OTHER + '.lock')[-12:]}']", "[]"]


def test_a_program_that_closes_our_descriptor_keeps_what_gets_its_number(tmp_path: Path) -> None:
    leases = HostLeases(tmp_path / "leases", PRIVATE)
    with leases.lead(KEY, never):
        links = {int(link.name): link for link in Path("/proc/self/fd").iterdir()}
        [ours] = [number for number, link in links.items() if link.exists() and str(link.readlink()).endswith(".lock")]
        strange = os.open(tmp_path / "strange", os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(strange, ours)
        os.utime(tmp_path / "strange", (0, 0))
        time.sleep(1.3)  # a beat
    assert os.fstat(ours).st_mtime == 0
    os.close(ours)
    os.close(strange)


@pytest.mark.parametrize("outcome", ["leads", "waited"])
def test_ctrl_c_leaves_nothing_locked(processes: Processes, outcome: str) -> None:
    code = """
    leases = host()
    try:
        say("asks")
        with leases.lead(KEY, lambda: False) as lead:
            say("leads")
            time.sleep(60)
    except KeyboardInterrupt:
        say("interrupted")
    with leases.lead(OTHER, lambda: False) as lead:
        say("then", lead.outcome)
    with leases.lead(KEY, (root / "stored").exists) as lead:
        say("again", lead.outcome)
    """
    leader = processes.start(code)
    leader.line("leads")
    interrupted = leader
    if outcome == "waited":
        interrupted = processes.start(code)
        interrupted.line("asks")
        time.sleep(0.5)
    interrupted.send(signal.SIGINT)
    interrupted.line("interrupted", 5)
    assert interrupted.line("then") == "then leads"
    if outcome == "waited":
        (processes.root / "stored").touch()
        assert interrupted.line("again") == "again waited"
    else:
        assert interrupted.line("again") == "again leads"
    interrupted.home()


def test_who_is_interrupted_while_asking_holds_nothing_while_the_error_is_kept(tmp_path: Path) -> None:
    leases = HostLeases(tmp_path / "leases", PRIVATE)

    def interrupted() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept:
        ask(leases, found=interrupted)
    assert kept.tb is not None
    assert lock_files(tmp_path) == []
    assert ask(leases).outcome == "leads"


def test_ctrl_c_at_any_point_leaves_nothing_locked(processes: Processes) -> None:
    """Signals rain on a process that takes and gives back; those that hit the lines in between must leave nothing."""
    rained = processes.start(
        """
        from rewarm.coordination import lead, lease_file
        leases = host()
        hit, armed = 0, False
        def strike(*_):
            global armed
            if armed:
                armed = False
                raise KeyboardInterrupt
        signal.signal(signal.SIGINT, strike)
        say("ready")
        end = time.monotonic() + 6
        while time.monotonic() < end:
            try:
                armed = True
                while time.monotonic() < end:
                    with leases.lead(KEY, lambda: False):
                        pass
                armed = False
            except KeyboardInterrupt:
                hit += 1
        say("hit", hit)
        open_files = [file for file in lease_file._open if file._file.status() is not None]
        say("held", len(lead._in_hand), len(leases.pulse._beats), len(open_files))
        """
    )
    rained.line("ready")
    until_when = time.monotonic() + 5.5
    number = 0
    while time.monotonic() < until_when:
        number += 1
        rained.send(signal.SIGINT)
        time.sleep(0.002 + 0.003 * ((number * 0.618) % 1))
    assert int(rained.line("hit").split()[1]) > 200
    assert rained.line("held") == "held 0 0 0"
    rained.home()
    assert ask(HostLeases(processes.root / "leases", PRIVATE)).outcome == "leads"


# ---------------------------------------------------------------------------------------------------------------
# Files that come and go


def test_there_are_never_two_leaders_of_a_key(processes: Processes) -> None:
    """Eight processes take and give back; whoever leads makes a file that must not be there, and removes it."""
    code = """
    import random
    order = [f"{number % 40:064x}" for number in range(200)]
    random.Random(os.getpid()).shuffle(order)
    leases, outcomes = host(patience=20), {}
    go()
    for key in order:
        with leases.lead(key, lambda: False) as lead:
            outcomes[lead.outcome] = outcomes.get(lead.outcome, 0) + 1
            if lead.outcome == "leads":
                inside = os.open(root / key, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                if key[-1] == "0":
                    time.sleep(0.001)
                os.unlink(root / key)
                os.close(inside)
    say("done", outcomes)
    """
    everybody = processes.start_at_once(code, 8)
    done = [one.home()[-1] for one in everybody]
    assert all(line.startswith("done") and "alone" not in line for line in done), done
    assert sum(line.count("waited") for line in done) > 0, "they never met"
    assert lock_files(processes.root) == []


def test_a_lock_that_came_too_late_is_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader ends between another's look at the file and the lock on it, which is then of a file without a name."""
    leases = HostLeases(tmp_path / "leases", PRIVATE)
    leading = leases.lead(KEY, never)
    leading.__enter__()

    def after_the_end(descriptor: int) -> bool | None:
        monkeypatch.undo()
        leading.__exit__(None, None, None)
        return try_lock(descriptor)

    monkeypatch.setattr("rewarm.locks.try_lock", after_the_end)
    lead = in_thread(lambda: ask(leases))()
    assert (lead.outcome, lead.why) == ("waited", "another process had it in hand")


def test_a_beat_that_an_old_look_hides_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system, whose clients may show the mtime that they saw first."""
    leases = HostLeases(tmp_path / "leases", PRIVATE, silence=2.5)
    stored, look, seen = tmp_path / "stored", LeaseFile.look, list[int]()

    def old_look(file: LeaseFile) -> State:
        state = look(file)
        seen.append(file.heard)
        file.heard = seen[0]
        return state

    with leases.lead(KEY, never):
        monkeypatch.setattr(LeaseFile, "look", old_look)
        waiter = in_thread(lambda: ask(leases, found=stored.exists))
        time.sleep(5)
        stored.touch()
        assert waiter()[::2] == ("waited", "another process compiled it")


def foreign(path: Path) -> None:
    """A file of a leader on another host, whose lock is not to be seen here."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"rewarm lease 1 {'0' * 16} {1:19d}\n")


def test_a_free_lock_of_another_host_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "leases" / f"{KEY}.lock"
    foreign(path)
    leases = HostLeases(tmp_path / "leases", PRIVATE, silence=3)
    waiters = [in_thread(lambda: ask(leases)) for _ in range(4)]
    for _ in range(15):
        time.sleep(0.3)
        os.utime(path)
    silent = time.monotonic()
    leads = [waiter() for waiter in waiters]
    assert time.monotonic() - silent < 3 + PAUSE + SLACK
    assert sorted(lead.outcome for lead in leads) == ["leads"] + ["waited"] * 3, "one of this host leads next"
    assert min(lead.seconds for lead in leads) > 6


def test_a_leader_of_another_host_that_ends_is_over(tmp_path: Path) -> None:
    path = tmp_path / "leases" / f"{KEY}.lock"
    foreign(path)
    waiter = in_thread(lambda: ask(HostLeases(tmp_path / "leases", PRIVATE)))
    time.sleep(0.3)
    path.unlink()
    assert waiter().outcome == "waited"


def test_a_leader_of_another_host_that_was_silent_for_long_delays_nobody(tmp_path: Path) -> None:
    path = tmp_path / "leases" / f"{KEY}.lock"
    foreign(path)
    os.utime(path, (time.time() - 60, time.time() - 60))
    lead = ask(HostLeases(tmp_path / "leases", PRIVATE))
    assert lead.outcome == "leads"
    assert lead.seconds < SLACK


def test_an_empty_file_that_is_not_locked_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / f"{KEY}.lock").touch()
    assert ask(HostLeases(tmp_path / "leases", PRIVATE)).outcome == "leads"
    assert lock_files(tmp_path) == []


@pytest.mark.parametrize("future", [False, True])
def test_files_that_are_left_are_swept(tmp_path: Path, future: bool) -> None:
    leases = HostLeases(tmp_path / "leases", PRIVATE)
    with leases.lead(OTHER, never):
        old, strange = tmp_path / "leases" / f"{KEY}.heir.lock", tmp_path / "leases" / "notes"
        for path in (old, strange):
            path.touch()
            when = time.time() + (1e6 if future else -1e6)
            os.utime(path, (when, when))
        young = tmp_path / "leases" / f"{'ef' * 32}.lock"
        young.touch()
        os.utime(tmp_path / "leases" / f"{OTHER}.lock", (0, 0))  # locked: its leader is alive
        assert leases.sweep() == (0 if future else 1)
        assert set(lock_files(tmp_path)) == {young.name, strange.name, f"{OTHER}.lock"} | (
            {old.name} if future else set()
        )
    assert HostLeases(tmp_path / "nowhere", PRIVATE).sweep() == 0


# ---------------------------------------------------------------------------------------------------------------
# No leases to be had


def test_a_folder_that_cannot_be_written_to_delays_nobody(processes: Processes) -> None:
    lines = processes.start(
        """
        (root / "leases").mkdir(mode=0o555)
        if os.geteuid() == 0:
            os.chown(root, 65534, 65534)
            os.chown(root / "leases", 65534, 65534)
            os.seteuid(65534)
        with host().lead(KEY, lambda: False) as lead:
            say(lead.outcome, lead.why)
        with host().lead(OTHER, lambda: False) as lead:
            say(lead.outcome, lead.seconds < 1)
        """
    ).home()
    assert lines == ["alone no lock file can be made: Permission denied", "alone True"]


@pytest.mark.parametrize("make", ["file", "gone", "link", "fifo", "folder", "socket"])
def test_strange_things_in_the_way_delay_nobody(tmp_path: Path, make: str) -> None:
    folder = tmp_path / "leases"
    name = folder / f"{KEY}.lock"
    if make == "file":
        folder.touch()
    elif make == "gone":
        folder = tmp_path / "not" / "there"
    else:
        folder.mkdir()
        if make == "link":
            (tmp_path / "target").touch()
            name.symlink_to(tmp_path / "target")
        elif make == "fifo":
            os.mkfifo(name)
        elif make == "folder":
            name.mkdir()
        else:
            with socket.socket(socket.AF_UNIX) as one:
                here = Path.cwd()
                os.chdir(folder)
                try:
                    one.bind(name.name)
                finally:
                    os.chdir(here)
    before = time.monotonic()
    assert ask(HostLeases(folder, PRIVATE)).outcome == "alone"
    assert time.monotonic() - before < SLACK
    if make != "file" and make != "gone":
        assert [path.name for path in folder.iterdir()] == [name.name], "what is not ours stays"


NO_LOCKS = """
import errno, fcntl
def none(*_):
    raise OSError(errno.ENOLCK, "no locks available")
fcntl.flock = none
"""


def test_without_locks_one_compiles(processes: Processes) -> None:
    everybody = processes.start_at_once(f"{NO_LOCKS}\ngo(); resolve(host(), 2)", 8)
    lines = [one.home() for one in everybody]
    assert len(processes.compilations()) == 1
    assert sum(said[-1] == "hit" for said in lines) == 7
    assert lock_files(processes.root) == []


def test_without_locks_a_leader_that_was_killed_is_silent(processes: Processes) -> None:
    leader, waiters = leader_and_waiters(processes, 4, 1, silence=3, before=NO_LOCKS)
    leader.kill()
    killed = time.monotonic()
    until("another leads", lambda: len(processes.compilations()) == 2, 20)
    assert time.monotonic() - killed < 3 + PAUSE + SLACK
    for waiter in waiters:
        assert waiter.home()[-1] in ("hit", "compiled")
    assert len(processes.compilations()) == 2
    (processes.root / "stored").unlink()
    late = processes.start(f"{NO_LOCKS}\nresolve(host(silence=3), 0)").home()[0]
    assert re.match(r"leads 0\.", late), "what was left delays nobody"


def test_a_lock_is_a_lock() -> None:
    """The premise of the tests above: here, locks work between two open files of one process."""
    first, second = os.memfd_create("a"), os.memfd_create("b")
    try:
        assert try_lock(first) is True
        other = os.open(f"/proc/self/fd/{first}", os.O_RDWR)
        assert try_lock(other) is False
        os.close(other)
    finally:
        os.close(first)
        os.close(second)
