"""Across hosts, which here are processes with a directory and a name each, and one remote: one compiles, the others
wait for it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers import Server

from conftest import SLOW, Run, clean_environment
from shared_remotes import a_key

pytest_plugins = ["remote_fixtures"]


# Else a process sees that the one which leads is gone.
ON_ITS_HOST = """
import os, platform
platform.node = lambda: os.environ["REWARM_DIR"]
"""


class Fleet:
    """Hosts, and their remote: a folder, if no other is said."""

    def __init__(self, folder: Path, remote: str = "") -> None:
        self.folder = folder
        self.remote = remote or f"file://{folder}/remote"
        self.program = folder / "slow.py"
        self.program.write_text(ON_ITS_HOST + SLOW)
        (folder / "remote").mkdir()

    def start(self, host: str, options: str = "trust=store", **more: str) -> subprocess.Popen[str]:
        env = clean_environment(
            REWARM_DIR=str(self.folder / host),
            REWARM_REMOTE=f"{self.remote}{'&' if '?' in self.remote else '?'}{options}",
            REWARM_STATS="json",
            XDG_CONFIG_HOME=str(self.folder / "config"),
            **more,
        )
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, str(self.program)], env=env, stdout=pipe, stderr=pipe, text=True)

    def leases(self) -> list[Path]:
        found = (self.folder / "remote").rglob("*")
        return [path for path in found if re.search(r"leases.[0-9a-f]{64}$", str(path)) and path.is_file()]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


def begun(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"


def test_one_host_compiles_and_the_others_take_its_entry(fleet: Fleet) -> None:
    one_compiles(fleet)
    assert fleet.leases() == []


@pytest.mark.campaign
def test_one_host_compiles_over_valkey(server: Callable[[str], Server], tmp_path: Path) -> None:
    one_compiles(Fleet(tmp_path, server("valkey").address("fleet")))


@pytest.mark.campaign
def test_over_a_double_of_s3_that_looks_and_then_puts_all_end_well(
    server: Callable[[str], Server], tmp_path: Path
) -> None:
    """Hosts that ask at the same moment may all lead there, the slower the server the more."""
    stats = at_once(Fleet(tmp_path, server("moto").address("fleet")))
    assert all(one["misses"] + one["hits"] == 1 for one in stats)
    assert any(one["misses"] for one in stats)


@pytest.mark.campaign
def test_where_the_remote_keeps_no_leases_each_compiles_and_none_waits(
    server: Callable[[str], Server], tmp_path: Path
) -> None:
    stats = at_once(Fleet(tmp_path, server("rclone-webdav").address("fleet")))
    assert [(one["misses"], one["seconds_waiting"] < 0.2) for one in stats] == [(1, True)] * 4


def at_once(fleet: Fleet) -> list[dict[str, Any]]:
    """What four hosts that start the program at the same time say of themselves."""
    processes = [fleet.start(f"host{number}") for number in range(4)]
    ended = [process.communicate(timeout=200) for process in processes]
    assert {process.returncode for process in processes} == {0}, ended
    assert len({out for out, _ in ended}) == 1
    return [Run(0, out, err).stats for out, err in ended]


def one_compiles(fleet: Fleet) -> None:
    stats = at_once(fleet)
    assert sorted(one["misses"] for one in stats) == [0, 0, 0, 1], [one["misses"] for one in stats]
    assert sum(one["seconds_waiting"] > 0.2 for one in stats) == 3
    assert [one["remotes"][0]["hits"] for one in stats].count(1) == 3


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_host_that_is_killed_or_stopped_delays_the_others_by_its_silence(fleet: Fleet, how: signal.Signals) -> None:
    leader = fleet.start("leader")
    begun(leader)
    until = time.monotonic() + 60
    while not fleet.leases() and time.monotonic() < until:
        time.sleep(0.01)
    assert fleet.leases(), "it leads"
    leader.send_signal(how)
    try:
        follower = fleet.start("follower")
        out, err = follower.communicate(timeout=200)
        assert follower.returncode == 0, err
        told = Run(0, out, err).stats
        assert (told["misses"], told["stored"]) == (1, 1)
        assert 5.0 < told["seconds_waiting"] < 16.0
    finally:
        leader.kill()
        leader.communicate()
    assert fleet.leases() == []


def test_a_host_that_only_reads_waits_for_nobody_and_leads_nobody(fleet: Fleet) -> None:
    reader = fleet.start("reader", "trust=store&write=no")
    begun(reader)
    reader.communicate(timeout=200)
    assert reader.returncode == 0
    assert fleet.leases() == []
    assert list((fleet.folder / "remote").rglob("*")) == []


@pytest.mark.campaign
@pytest.mark.parametrize(
    "settings",
    [
        {"REWARM_SIGNING_KEY": ""},
        {"REWARM_MIN_COMPILE_SECONDS": "1000"},
        {"REWARM_SIGNING_KEY": a_key("a stranger").to_text()},
        {"REWARM_NAMESPACE": "pr-1", "REWARM_READ_NAMESPACES": "main"},
    ],
    ids=["no key", "keeps nothing", "a stranger's key", "reads elsewhere"],
)
def test_nobody_waits_for_who_gives_nothing(fleet: Fleet, settings: dict[str, str]) -> None:
    """One of these hosts begins, and one that signs, trusts itself and reads what it writes wants the same program."""
    ours = {"REWARM_SIGNING_KEY": a_key("ours").to_text()}
    one = fleet.start("one", "trust=require", **{**ours, **settings})
    begun(one)
    other = fleet.start("other", "trust=require", **ours)
    told = []
    for process in (one, other):
        out, err = process.communicate(timeout=200)
        assert process.returncode == 0, err
        told.append(Run(0, out, err).stats)
    assert [one["seconds_waiting"] < 0.5 for one in told] == [True, True], told
    assert [one["misses"] for one in told] == [1, 1]
