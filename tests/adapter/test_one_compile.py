"""One process of a host compiles a program; the others wait for its entry."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import SLOW, Run, clean_environment


def start(folder: Path, remote: Path | None = None) -> subprocess.Popen[str]:
    program = folder / "slow.py"
    if not program.exists():  # once: the process before may be reading it
        program.write_text(SLOW)
    named = {} if remote is None else {"REWARM_REMOTE": f"{remote.as_uri()}?trust=store"}
    env = clean_environment(REWARM_DIR=str(folder / "cache"), REWARM_STATS="json", **named)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, str(program)], env=env, stdout=pipe, stderr=pipe, text=True)


def finished(place: Path) -> list[Path]:
    """The files of a folder but those that are being written, or that a killed writer left unfinished."""
    return [path for path in place.iterdir() if not path.name.startswith(".")] if place.is_dir() else []


def begun(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"


@pytest.mark.contract
def test_one_compiles_and_the_others_wait(tmp_path: Path) -> None:
    processes = [start(tmp_path) for _ in range(4)]
    ended = [process.communicate(timeout=200) for process in processes]
    assert {process.returncode for process in processes} == {0}, ended
    assert len({out for out, _ in ended}) == 1
    stats = [Run(0, out, err).stats for out, err in ended]
    assert sorted(one["misses"] for one in stats) == [0, 0, 0, 1]
    assert sum(one["stored"] for one in stats) == 1
    assert sum(one["seconds_waiting"] > 0.2 for one in stats) == 3
    assert list((tmp_path / "cache" / "leases").iterdir()) == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("shares", [True, pytest.param(False, marks=pytest.mark.campaign)])
def test_a_leader_that_is_killed_or_stopped_holds_nobody(tmp_path: Path, how: signal.Signals, shares: bool) -> None:
    """Also where it leads a fleet as well: its lease there is taken over with that of the directory."""
    remote = tmp_path / "remote" if shares else None
    if remote is not None:
        remote.mkdir()
    leader = start(tmp_path, remote)
    begun(leader)
    until = time.monotonic() + 60
    place = tmp_path / "cache" / "leases" if remote is None else remote / "main" / "leases"
    while not finished(place) and time.monotonic() < until:
        time.sleep(0.01)
    leader.send_signal(how)
    try:
        since = time.monotonic()
        follower = start(tmp_path, remote)
        out, err = follower.communicate(timeout=200)
        assert follower.returncode == 0, err
        told = Run(0, out, err).stats
        assert (told["misses"], told["stored"]) == (1, 1)
        assert told["seconds_waiting"] < (2.0 if how == signal.SIGKILL else 8.0)
        assert "waiting for a program" not in err
        assert remote is None or not finished(place)
        assert out.startswith("begins\n")
        assert time.monotonic() - since < 120
    finally:
        leader.kill()
        leader.communicate()
