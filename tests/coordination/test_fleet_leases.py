"""Across hosts one process compiles a key; a dead leader or a dead remote delays nobody by more than was said."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from leasing import KEY, OTHER, FolderBlobs, Processes, until

from rewarm.coordination import FleetLeases, HostLeases, Lead, fleet
from rewarm.remote.blobs import TooLargeError, UnreachableError
from rewarm.small_files import PRIVATE

pytest_plugins = ["lease_fixtures"]

NAME = f"ns!leases!{KEY}"
SLACK = 1.5
PAUSE = 2.0

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")


def never() -> bool:
    return False


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobs:
    return FolderBlobs(tmp_path / "remote")


def quick(blobs: FolderBlobs, *, enforces: bool = True, patience: float = 60.0) -> FleetLeases:
    """Leases whose leaders count as dead after 1.5 s."""
    return FleetLeases(blobs, "ns", enforces=enforces, beat=0.3, silence=1.5, patience=patience)


def ask(leases: FleetLeases, key: str = KEY, found: Callable[[], bool] = never) -> Lead:
    with leases.lead(key, found) as lead:
        return lead


def in_thread(work: Callable[[], Lead]) -> Callable[[], Lead]:
    given: list[Lead] = []
    thread = threading.Thread(target=lambda: given.append(work()), daemon=True)
    thread.start()

    def result() -> Lead:
        thread.join(60)
        assert given, "it waits for ever"
        return given[0]

    return result


def names(blobs: FolderBlobs) -> list[str]:
    return sorted(path.name for path in blobs.root.iterdir())


# ---------------------------------------------------------------------------------------------------------------
# Nobody is in trouble


@pytest.mark.parametrize("remote", ["", "from rewarm.remote.folder import FolderBlobs"])
def test_of_many_processes_one_compiles(processes: Processes, remote: str) -> None:
    (processes.root / "remote").mkdir()
    code = f"{remote}\nleases = fleet(); go(); resolve(leases, 2); leases.close()"
    everybody = processes.start_at_once(code, 8)
    lines = [one.home() for one in everybody]
    assert len(processes.compilations()) == 1
    assert sum(said[-1] == "hit" for said in lines) == 7
    assert [path for path in (processes.root / "remote").rglob("*") if KEY in path.name] == []


def test_who_leads_is_told_so_beats_and_leaves_nothing(blobs: FolderBlobs) -> None:
    leases = quick(blobs)
    with leases.lead(KEY, never) as lead:
        assert (lead.outcome, lead.why) == ("leads", "no other host had it in hand")
        assert blobs.asked == ["put"], "one round trip"
        first = (blobs.root / NAME).read_text()
        assert re.fullmatch(rf"rewarm lease 2 [0-9a-f]{{16}}-{os.getpid()}-[0-9a-f]{{8}} - - 1 0\.3\n", first)
        until("it beats", lambda: (blobs.root / NAME).read_text() == first.replace(" 1 0.3", " 3 0.3"), 10)
    assert leases.close()
    assert names(blobs) == []
    time.sleep(0.7)
    assert names(blobs) == [], "no beat comes after the end"


def test_one_thread_beats_for_all(blobs: FolderBlobs) -> None:
    leases = quick(blobs)
    with leases.lead(KEY, never):
        threads = threading.active_count()
        with leases.lead(OTHER, never):
            for key in (KEY, OTHER):
                path = blobs.root / f"ns!leases!{key}"
                until("it beats", lambda path=path: b" 2 0.3" in path.read_bytes(), 10)
            assert threading.active_count() == threads


def test_where_new_blobs_are_not_enforced_nobody_leads(blobs: FolderBlobs) -> None:
    lead = ask(quick(blobs, enforces=False))
    assert lead.outcome == "alone"
    assert blobs.asked == []


def test_what_the_leader_did_not_store_is_compiled_by_all_at_once(processes: Processes) -> None:
    everybody = processes.start_at_once("leases = fleet(); go(); resolve(leases, 1.5, store=False); leases.close()", 4)
    lines = [one.home() for one in everybody]
    assert len(processes.compilations()) == 4
    waited = [float(said[1].split()[1]) for said in lines if said[1].startswith("waited")]
    assert len(waited) == 3
    assert max(waited) < 1.5 + PAUSE + SLACK, "they queued up"


def test_who_finds_the_entry_waits_no_longer(blobs: FolderBlobs, tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    with quick(blobs).lead(KEY, never):
        waiter = in_thread(lambda: ask(quick(blobs), found=stored.exists))
        time.sleep(0.4)
        stored.touch()
        lead = waiter()
    assert (lead.outcome, lead.why) == ("waited", "another host compiled it")
    assert lead.seconds < 0.4 + PAUSE + SLACK


def test_patience_ends(blobs: FolderBlobs) -> None:
    with quick(blobs).lead(KEY, never):
        lead = in_thread(lambda: ask(quick(blobs, patience=1)))()
    assert lead.outcome == "alone"
    assert 1 <= lead.seconds < 1 + PAUSE + SLACK


def test_a_lease_that_is_kept_outlives_its_block(blobs: FolderBlobs) -> None:
    leases = quick(blobs)
    with leases.lead(KEY, never):
        end = leases.keep(KEY)
    waiter = in_thread(lambda: ask(quick(blobs)))
    time.sleep(2.5)  # longer than silence: it beats on
    assert names(blobs) == [NAME]
    end()
    end()
    lead = waiter()
    assert (lead.outcome, lead.why) == ("waited", "another host had it in hand")
    assert lead.seconds > 2.4
    leases.close()
    assert names(blobs) == []
    leases.keep(KEY)()  # nothing to keep
    with leases.lead(KEY, never) as lead:
        assert lead.outcome == "leads"


def test_what_is_kept_for_ever_ends(blobs: FolderBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rewarm.coordination.fleet._KEPT", 0.5)
    leases = quick(blobs)
    with leases.lead(KEY, never):
        leases.keep(KEY)
    until("it ends", lambda: names(blobs) == [], 10)


# ---------------------------------------------------------------------------------------------------------------
# Leaders that do not finish


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_after_a_leader_that_dies_one_of_the_others_leads(processes: Processes, number: int) -> None:
    leader = processes.start("resolve(fleet(beat=0.5, silence=3), 60)")
    leader.line("leads")
    waiters = processes.start_at_once("l = fleet(beat=0.5, silence=3); go(); resolve(l, 4); l.close()", 4)
    time.sleep(1.5)
    leader.send(number)
    died = time.monotonic()
    until("another leads", lambda: len(processes.compilations()) == 2, 20)
    assert time.monotonic() - died < 3 + PAUSE + SLACK
    for waiter in waiters:
        waiter.home()
    assert len(processes.compilations()) == 2
    reasons = [line.split(" ", 2)[2] for waiter in waiters for line in waiter.says("leads")]
    assert reasons == ["the host that had it in hand is silent"]
    assert names(FolderBlobs(processes.root / "remote")) == []


def both(size: int = 0) -> str:
    """What a process does that asks for the lease of its directory and then for the fleet's, which is in no hurry."""
    return f"""
        from contextlib import nullcontext
        from rewarm.coordination import seat_of
        directory = root / "cache"
        directory.mkdir(exist_ok=True)
        own = HostLeases(directory / "leases", PRIVATE, silence=2.0)
        leases = fleet(other_host=False, silence=30.0, seat=seat_of(directory))
        def resolve_both(seconds):
            with own.lead(KEY, stored.exists) as lead:
                if lead.outcome == "waited" and stored.exists():
                    return say("hit")
                resolve(leases, seconds)
        {"go()" if size else "pass"}
        resolve_both({"0.5" if size else "60"})
        leases.close()
    """


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_leader_of_the_same_directory_delays_by_what_the_directory_has(processes: Processes, number: int) -> None:
    """Both waits do not add up: who leads the directory has the fleet's lease at once, also after several deaths."""
    for _ in range(2 if number == signal.SIGKILL else 1):
        leader = processes.start(both())
        leader.line("leads")
        leader.send(number)
    died = time.monotonic()
    waiters = processes.start_at_once(both(size=1), 3)
    until("another leads", (processes.root / "stored").exists, 20)
    assert time.monotonic() - died < (0.0 if number == signal.SIGKILL else 2.0) + PAUSE + SLACK
    said = [waiter.home() for waiter in waiters]
    assert sum(lines[-1] == "hit" for lines in said) == 2
    reasons = [line.split(" ", 2)[2] for waiter in waiters for line in waiter.says("leads")]
    assert reasons == ["the process that had it in hand is gone, or stopped"]
    assert names(FolderBlobs(processes.root / "remote")) == []


def test_a_process_of_this_host_that_is_gone_is_not_waited_for(processes: Processes) -> None:
    """In another directory, so only the fleet's lease knows of it; nor is one whom its parent has not missed yet."""
    asks = "l = fleet(other_host=False, silence=30.0); resolve(l, SECONDS); l.close()"
    for reap in (True, False):
        leader = processes.start(asks.replace("SECONDS", "60"))
        leader.line("leads")
        leader.send(signal.SIGKILL)
        if reap:
            leader.popen.wait(10)
        since = time.monotonic()
        other = processes.start(asks.replace("SECONDS", "0, store=False"))
        assert other.line("leads").endswith("the process that had it in hand is gone, or stopped")
        assert time.monotonic() - since < PAUSE + SLACK
        other.home()


def test_a_process_of_this_host_that_is_stopped_in_another_directory_is_silent_first(processes: Processes) -> None:
    leader = processes.start("resolve(fleet(other_host=False, beat=0.5, silence=2.0), 60)")
    leader.line("leads")
    leader.send(signal.SIGSTOP)
    other = processes.start("l = fleet(other_host=False, beat=0.5, silence=2.0); resolve(l, 0); l.close()")
    assert other.line("leads").endswith("the host that had it in hand is silent")


@pytest.mark.parametrize("forged", ["seat", "process"])
def test_who_does_not_lead_the_directory_takes_nothing_over_for_its_seat(blobs: FolderBlobs, forged: str) -> None:
    """Another thread that may not wait for the directory's leader, or a lease with a number of another container."""
    leases = FleetLeases(blobs, "ns", enforces=True, beat=0.3, silence=1.5, patience=1.0, seat="5" * 16)
    space = "0" * 16 if forged == "process" else fleet.process_space()
    number, seat = (2**22 - 1, "-") if forged == "process" else (os.getpid(), "5" * 16)
    blobs.put(NAME.replace("!", "/"), f"rewarm lease 2 {space}-{number}-00000000 {seat} - 3 0.2\n".encode())
    assert ask(leases).outcome == "alone"


def test_nobody_waits_for_one_whose_entry_would_not_be_used(blobs: FolderBlobs) -> None:
    ours, theirs = "a" * 32, "b" * 32
    leader = FleetLeases(blobs, "ns", enforces=True, signer=theirs)
    for accepts, waits in ((lambda signer: signer == ours, False), (lambda signer: signer == theirs, True)):
        with leader.lead(KEY, never):
            other = FleetLeases(blobs, "ns", enforces=True, patience=0.5, signer=ours, accepts=accepts)
            lead = in_thread(lambda other=other: ask(other))()
        assert lead.outcome == "alone"
        assert (lead.seconds > 0.4, "no entry that would be used" in lead.why) == (waits, not waits)
        leader.close()


def test_a_leader_that_goes_on_after_a_stop_leaves_the_next_ones_lease(
    blobs: FolderBlobs, processes: Processes
) -> None:
    stopped = processes.start("l = fleet(beat=0.3, silence=1.5); resolve(l, 3, store=False); l.close()")
    stopped.line("leads")
    stopped.send(signal.SIGSTOP)
    with quick(blobs).lead(KEY, never) as lead:
        assert lead.outcome == "leads"
        assert 1.4 < lead.seconds < 1.5 + PAUSE + SLACK
        stopped.send(signal.SIGCONT)
        assert stopped.home()[-1] == "compiled"
        until("ours is there again", lambda: names(blobs) == [NAME], 10)


def test_a_lease_that_another_put_over_ours_stays(blobs: FolderBlobs) -> None:
    leases = FleetLeases(blobs, "ns", enforces=True)
    with leases.lead(KEY, never):
        (blobs.root / NAME).write_bytes(b"another's\n")
    leases.close()
    assert (blobs.root / NAME).read_bytes() == b"another's\n"


def test_a_lease_that_nobody_holds_is_taken_over(blobs: FolderBlobs) -> None:
    (blobs.root / NAME).write_bytes(b"\xff anything\n")
    leases = quick(blobs)
    with leases.lead(KEY, never) as lead:
        assert (lead.outcome, lead.why) == ("leads", "the host that had it in hand is silent")
        assert 1.5 <= lead.seconds < 1.5 + PAUSE + SLACK
        assert (blobs.root / NAME).read_bytes().startswith(b"rewarm lease 2 ")
    leases.close()
    assert names(blobs) == []


def test_a_waiter_that_was_stopped_itself_does_not_take_its_leader_for_dead(
    blobs: FolderBlobs, processes: Processes
) -> None:
    with quick(blobs).lead(KEY, never):
        waiter = processes.start("say('asks'); resolve(fleet(beat=0.3, silence=1.5), 0)")
        waiter.line("asks")
        time.sleep(1)
        waiter.send(signal.SIGSTOP)
        time.sleep(3)
        waiter.send(signal.SIGCONT)
        time.sleep(1)
        (processes.root / "stored").touch()
        assert waiter.home()[-1] == "hit"


# ---------------------------------------------------------------------------------------------------------------
# Remotes that fail


def test_a_remote_that_is_down_delays_nobody(blobs: FolderBlobs) -> None:
    (blobs.root / "down").touch()
    lead = ask(quick(blobs))
    assert (lead.outcome, lead.why) == ("alone", "no lease is to be had: no answer")
    assert lead.seconds < SLACK


def test_a_remote_that_goes_down_lets_waiters_go(blobs: FolderBlobs) -> None:
    with quick(blobs).lead(KEY, never):
        waiter = in_thread(lambda: ask(quick(blobs)))
        time.sleep(0.5)
        (blobs.root / "down").touch()
        lead = waiter()
        assert lead.outcome == "alone"
        assert lead.seconds < 0.5 + PAUSE + SLACK
        (blobs.root / "down").unlink()


def test_a_leader_leads_on_while_the_remote_is_down(blobs: FolderBlobs) -> None:
    leases = quick(blobs)
    with leases.lead(KEY, never):
        (blobs.root / "down").touch()
        time.sleep(0.7)
        (blobs.root / "down").unlink()
        before = (blobs.root / NAME).read_bytes()
        until("it beats again", lambda: (blobs.root / NAME).read_bytes() != before, 10)
        (blobs.root / "down").touch()
    assert leases.close()
    (blobs.root / "down").unlink()


@pytest.mark.parametrize(
    "error", [UnreachableError("no answer"), TooLargeError("too large"), ValueError("of a client")]
)
def test_a_look_that_fails_lets_waiters_go(blobs: FolderBlobs, error: Exception) -> None:
    def found() -> bool:
        raise error

    with quick(blobs).lead(KEY, never):
        lead = in_thread(lambda: ask(quick(blobs), found=found))()
    assert lead.outcome == "alone"


def test_a_lease_whose_answer_was_lost_is_withdrawn(tmp_path: Path) -> None:
    class Lossy(FolderBlobs):
        def put(self, name: str, data: bytes, *, only_new: bool = False) -> bool:
            super().put(name, data, only_new=only_new)
            raise UnreachableError("it breaks off")

    blobs = Lossy(tmp_path / "remote")
    leases = quick(blobs)
    assert ask(leases).outcome == "alone"
    assert leases.close()
    assert names(blobs) == []


def test_a_put_that_was_tried_twice_finds_its_own_lease(tmp_path: Path) -> None:
    """A client that repeats a put whose answer was lost is told that the blob is there: it is ours."""

    class Repeating(FolderBlobs):
        def put(self, name: str, data: bytes, *, only_new: bool = False) -> bool:
            super().put(name, data, only_new=only_new)
            return super().put(name, data, only_new=only_new)

    lead = ask(quick(Repeating(tmp_path / "remote")))
    assert lead.outcome == "leads"
    assert lead.seconds < SLACK


def test_a_remote_that_keeps_nothing_new_delays_by_silence(tmp_path: Path) -> None:
    class Frozen(FolderBlobs):
        def put(self, *_: object, only_new: bool = False) -> bool:
            return not only_new

    blobs = Frozen(tmp_path / "remote")
    (blobs.root / NAME).write_bytes(b"old\n")
    leases = quick(blobs)
    lead = ask(leases)
    assert (lead.outcome, lead.why) == ("alone", "the remote does not keep a lease that is put")
    assert lead.seconds < 1.5 + PAUSE + SLACK
    leases.close()
    assert names(blobs) == [NAME], "what is not ours stays"


# ---------------------------------------------------------------------------------------------------------------
# Dead ends, forks, Ctrl-C


def test_two_processes_that_want_each_others_key_both_come_home(processes: Processes) -> None:
    code = """
    mine, other = {keys}
    with fleet().lead(mine, lambda: False) as lead:
        say("ready", lead.outcome)
        while not (root / "go").exists(): time.sleep(0.01)
        with fleet().lead(other, lambda: False) as inner:
            say("inner", inner.outcome, inner.why)
        while not (root / "end").exists(): time.sleep(0.01)
    """
    both = [processes.start(code.format(keys=keys)) for keys in ("KEY, OTHER", "OTHER, KEY")]
    for one in both:
        assert one.line("ready") == "ready leads"
    (processes.root / "go").touch()
    for one in both:
        assert one.line("inner", 5) == "inner alone another host has it in hand, and this thread may not wait"
    (processes.root / "end").touch()
    for one in both:
        one.home()


def test_who_leads_a_key_on_its_host_waits_for_that_key_alone(blobs: FolderBlobs, tmp_path: Path) -> None:
    host = HostLeases(tmp_path / "leases", PRIVATE)

    def under(key: str) -> Lead:
        with host.lead(key, never) as lead:
            assert lead.outcome == "leads"
            return ask(quick(blobs, patience=1))

    def under_both() -> Lead:
        with host.lead(KEY, never), host.lead(OTHER, never):
            return ask(quick(blobs, patience=1))

    def over() -> Lead:
        with quick(blobs).lead(OTHER, never) as lead:
            assert lead.outcome == "leads"
            with host.lead(OTHER, never) as held:
                return held

    with quick(blobs).lead(KEY, never):
        assert in_thread(lambda: under(KEY))().seconds >= 1
        assert in_thread(lambda: under(OTHER))().seconds < 0.9
        assert in_thread(under_both)().seconds < 0.9
    with host.lead(OTHER, never):
        lead = in_thread(over)()
        assert lead.outcome == "alone"
        assert lead.seconds < 0.9


@needs_fork
def test_a_child_neither_beats_nor_ends_its_parents_lease(processes: Processes) -> None:
    lines = processes.start(
        """
        leases = fleet(beat=0.2, silence=1)
        path = root / "remote" / f"ns!leases!{KEY}"
        with leases.lead(KEY, lambda: False) as lead:
            child = os.fork()
            if child == 0:
                leases.keep(KEY)()
            else:
                os.waitpid(child, 0)
                before = path.read_bytes()
                time.sleep(1)
                say("parent beats", path.read_bytes() != before)
        if child == 0:
            leases.close()
            with leases.lead(OTHER, lambda: False) as lead:
                say("child", lead.outcome, path.exists())
            leases.close()
            os._exit(0)
        leases.close()
        say("left", os.listdir(root / "remote"))
        """
    ).home()
    assert lines == ["child leads True", "parent beats True", "left []"]


@pytest.mark.parametrize("outcome", ["leads", "waits"])
def test_ctrl_c_leaves_no_lease(blobs: FolderBlobs, processes: Processes, outcome: str) -> None:
    code = """
    leases = fleet()
    try:
        say("asks")
        with leases.lead(KEY, lambda: False) as lead:
            say("leads")
            time.sleep(60)
    except KeyboardInterrupt:
        say("interrupted")
    with leases.lead(OTHER, lambda: False) as lead:
        say("then", lead.outcome)
    leases.close()
    """
    leader = processes.start(code)
    leader.line("leads")
    interrupted = leader if outcome == "leads" else processes.start(code)
    interrupted.line("asks") if outcome == "waits" else None
    time.sleep(0.5)
    interrupted.send(signal.SIGINT)
    interrupted.line("interrupted", 5)
    interrupted.line("then leads", 5)
    interrupted.home()
    assert names(blobs) == ([] if outcome == "leads" else [NAME])


def test_a_process_that_was_silent_once_is_not_waited_for_again(blobs: FolderBlobs) -> None:
    """It died, and left a lease for each of its programs."""
    leases = quick(blobs)
    keys = [hashlib.sha256(f"{number}".encode()).hexdigest() for number in range(6)]
    for number, key in enumerate(keys):
        blobs.put(f"ns/leases/{key}", f"rewarm lease 2 0123456789abcdef-77-{number:08x} - - 3 0.2\n".encode())
    waited = []
    for key in keys:
        with leases.lead(key, lambda: False) as lead:
            assert lead.outcome == "leads"
            waited.append(lead.seconds)
    assert waited[0] > 1.4
    assert max(waited[1:]) < 1.0


def test_after_three_silent_ones_nobody_is_waited_for(blobs: FolderBlobs) -> None:
    leases = quick(blobs)
    outcomes = []
    for number in range(5):
        key = hashlib.sha256(f"{number}".encode()).hexdigest()
        blobs.put(f"ns/leases/{key}", f"rewarm lease 2 0123456789abcdef-{number}-00000000 - - 3 0.2\n".encode())
        with leases.lead(key, lambda: False) as lead:
            outcomes.append((lead.outcome, lead.seconds > 1.4))
    assert outcomes == [("leads", True)] * 3 + [("alone", False)] * 2
