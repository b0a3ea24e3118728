"""One process of a host compiles a program; the others wait for its entry."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import SLOW, Run, clean_environment


def start(folder: Path) -> subprocess.Popen[str]:
    program = folder / "slow.py"
    if not program.exists():  # once: the process before may be reading it
        program.write_text(SLOW)
    env = clean_environment(REWARM_DIR=str(folder / "cache"), REWARM_STATS="json")
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, str(program)], env=env, stdout=pipe, stderr=pipe, text=True)


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
def test_a_leader_that_is_killed_or_stopped_holds_nobody(tmp_path: Path, how: signal.Signals) -> None:
    leader = start(tmp_path)
    begun(leader)
    time.sleep(0.3)
    leader.send_signal(how)
    try:
        since = time.monotonic()
        follower = start(tmp_path)
        out, err = follower.communicate(timeout=200)
        assert follower.returncode == 0, err
        told = Run(0, out, err).stats
        assert (told["misses"], told["stored"]) == (1, 1)
        assert told["seconds_waiting"] < (2.0 if how == signal.SIGKILL else 10.0)
        assert out.startswith("begins\n")
        assert time.monotonic() - since < 120
    finally:
        leader.kill()
        leader.communicate()
