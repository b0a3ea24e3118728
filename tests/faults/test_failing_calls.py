"""Every file call of every verb fails once, with every error that makes sense; and those of whole requests.

Each of these can happen: a network file system has its moments, quotas and disks fill up, descriptors run out, and
signals arrive. What must hold is that a verb of the store raises its own errors or none, that every entry is whole
afterwards, that nothing is left open, locked or lying about, and that all works again once the trouble is over; and
for a program, that it never learns of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fault_layer import ERRORS, Call, How
from served import HERE, Served

from conftest import Program, clean_environment
from rewarm.envelope import open_entry

pytest_plugins = ["fault_fixtures"]

VERBS = (
    "put",
    "put over",
    "put with a bound",
    "get",
    "get and renew",
    "delete",
    "quarantine",
    "total",
    "count",
    "scan",
    "usages",
    "collect",
    "prepare",
    "first put",
)


def trials(layer: Path, folder: Path, kind: str, *verbs: str) -> dict[str, Any]:
    """Run trials of `store_under_faults.py`; nothing may be wrong."""
    environment = clean_environment(PYTHONPATH=str(HERE), LD_PRELOAD=str(layer))
    command = [sys.executable, str(HERE / "store_under_faults.py"), kind, str(folder), *verbs]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert isinstance(said, dict)
    assert said["faults"] == [], "\n".join(said["faults"][:40])
    return said


@pytest.mark.parametrize("verb", VERBS)
def test_each_call_of_a_verb_fails_once(layer: Path, tmp_path: Path, verb: str) -> None:
    said = trials(layer, tmp_path, "fail_each", verb)
    assert said["trials"] >= 3
    assert sum(said["struck"].values()) == said["trials"], "each trial had its fault"


@pytest.mark.campaign
@pytest.mark.parametrize("verb", VERBS)
def test_each_call_of_a_verb_fails_with_each_error_and_for_good_and_by_chance(
    layer: Path, tmp_path: Path, verb: str
) -> None:
    for kind in ("fail_each_with_all", "fail_for_good", "fail_by_chance"):
        folder = tmp_path / kind
        folder.mkdir()
        assert sum(trials(layer, folder, kind, verb)["struck"].values()) > 3


# ---------------------------------------------------------------------------------------------------------------
# Whole requests


def places(calls: list[int]) -> list[int]:
    """Which of these calls to try: of those that repeat themselves only the first."""
    met: set[tuple[int, ...]] = set()
    found = []
    for number in range(1, len(calls) + 1):
        around = tuple(calls[max(number - 4, 0) : number + 1])
        if around not in met:
            met.add(around)
            found.append(number)
    return found


def fail_each(served: Served, name: str, step: int, *, hit: bool, turns: int = 1) -> int:
    """Each call of a request below the cache fails once; returns how many trials there were."""
    path, under, count = served.path(name), str(served.cache), 0

    def ready() -> None:
        path.unlink(missing_ok=True)
        if hit:
            path.write_bytes(served.sealed[name]["zstd-3"])

    ready()
    calls = served.asker.ask(name, under=under, first=0)["calls"]
    others, aside = served.others(name), set((served.cache / "quarantine").glob("*"))
    for number in places(calls)[::step]:
        call = Call(calls[number - 1])
        for turn in range(turns):
            errors = ERRORS[call]
            fault: dict[str, Any] = {"error": errors[(number + turn) % len(errors)]}
            if call in (Call.READ, Call.WRITE) and turn:
                fault = {"how": How.SHORT}
            where = f"call {number} ({call.name}), {fault}"
            ready()
            hurt = served.asker.ask(name, under=under, first=number, **fault)
            count += 1
            assert hurt["quarantined"] is None, (where, hurt)
            assert len(hurt["lines"]) <= 1, (where, hurt)
            if path.exists():
                open_entry(path.read_bytes(), path.name)
            again = served.asker.ask(name)
            if not hit and again["outcome"] == "miss":
                assert not hurt["stored"], (where, hurt)
                assert again["stored"], (where, again)
                again = served.asker.ask(name)
            assert (again["outcome"], again["lines"]) == ("hit", []), (where, hurt, again)
    if hit:  # a put on a disk that says it is full lets others go
        assert served.others(name) == others
    else:
        served.restore()
    assert set((served.cache / "quarantine").glob("*")) == aside, "no good entry was put aside"
    return count


# Open, look, read: more only where the use is noted, or the entry is on trial.
CALLS_OF_A_HIT = 3


def test_calls_of_a_hit_fail_once(faulty: Served) -> None:
    assert fail_each(faulty, "small", 1, hit=True) >= CALLS_OF_A_HIT


def test_calls_of_a_miss_fail_once(faulty: Served) -> None:
    assert fail_each(faulty, "small", 3, hit=False) > 10


@pytest.mark.campaign
def test_every_call_of_a_request_fails_with_several_errors(faulty: Served) -> None:
    before = faulty.asker.ask("small")["descriptors"]
    assert fail_each(faulty, "small", 1, hit=True, turns=8) >= 8 * CALLS_OF_A_HIT
    assert fail_each(faulty, "small", 1, hit=False, turns=3) > 100
    assert faulty.asker.ask("small")["descriptors"] <= before + 2


@pytest.mark.parametrize("error", ["EIO", "ENOSPC", "EACCES", "EROFS", "EMFILE", "ESTALE", "EDQUOT"])
def test_a_directory_that_fails_for_good_while_the_program_runs(faulty: Served, error: str) -> None:
    under = str(faulty.cache)
    for name in ("small", "medium"):
        hurt = faulty.asker.ask(name, under=under, first=1, last=1 << 30, error=error)
        assert hurt["quarantined"] is None
        assert len(hurt["lines"]) <= 2
        healed = [faulty.asker.ask(name)["outcome"] for _ in range(2)]
        assert healed[-1] == "hit"


_PROGRAM = """
    import sys
    sys.path.insert(0, sys.argv[1])
    import jax, numpy as np
    if sys.argv[2:]:
        from fault_layer import Layer
        Layer().arm(sys.argv[2], chance=0.15, error=sys.argv[3], seed=int(sys.argv[4]))
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    for program in (lambda x: x @ x + 1, lambda x: x - 7, lambda x: x.sum(0)):
        print(np.asarray(jax.jit(program)(x)).tobytes().hex())
"""


def whole_program(program: Program, cache: Path, layer: Path, error: str, seed: int) -> None:
    """From its first look at the cache to its end, calls of a fresh program fail by chance."""
    right = program(_PROGRAM, str(HERE)).out
    arguments = (str(HERE), str(cache), error, str(seed))
    for _ in range(2):
        hurt = program(_PROGRAM, *arguments, REWARM_DIR=str(cache), LD_PRELOAD=str(layer))
        assert hurt.out == right
        assert "Traceback" not in hurt.err, hurt.err
    for hits in (None, 3):
        healed = program(_PROGRAM, str(HERE), REWARM_DIR=str(cache))
        assert (healed.out, healed.warnings()) == (right, [])
        assert hits is None or healed.stats["hits"] == hits


@pytest.mark.campaign
def test_calls_of_a_whole_program_fail_by_chance(program: Program, cache: Path, layer: Path) -> None:
    whole_program(program, cache, layer, "EIO", 1)


@pytest.mark.campaign
@pytest.mark.parametrize(("error", "seed"), [("ENOSPC", 2), ("EACCES", 3), ("EMFILE", 4)])
def test_calls_of_whole_programs_fail_by_chance(
    program: Program, cache: Path, layer: Path, error: str, seed: int
) -> None:
    whole_program(program, cache, layer, error, seed)


# ---------------------------------------------------------------------------------------------------------------
# The end, and a stop, right before each call


def test_a_process_that_is_killed_before_any_call_of_a_put(layer: Path, tmp_path: Path) -> None:
    said = trials(layer, tmp_path, "kill_at_each", "first put", "put over", "put with a bound")
    assert said["trials"] > 100
    assert {"WRITE", "FSYNC", "RENAME", "UNLINK", "FLOCK"} <= set(said["struck"])


@pytest.mark.campaign
def test_a_process_that_is_killed_before_any_call_of_any_verb(layer: Path, tmp_path: Path) -> None:
    said = trials(layer, tmp_path, "kill_at_each", *VERBS)
    missing = {call.name for call in Call} - set(said["struck"])
    assert missing <= {"CHMOD", "TRUNCATE"}, "a private store sets no modes after the fact, and cuts no file"


@pytest.mark.campaign
def test_a_process_that_is_stopped_before_any_call_of_a_put(layer: Path, tmp_path: Path) -> None:
    said = trials(layer, tmp_path, "stop_at_each", "put")
    assert said["struck"]["locked"] > 5, "also while it had a directory's lock"


@pytest.mark.campaign
def test_a_process_that_is_stopped_before_any_call_that_changes_a_store(layer: Path, tmp_path: Path) -> None:
    verbs = ("put over", "put with a bound", "delete", "quarantine", "collect")
    assert trials(layer, tmp_path, "stop_at_each", *verbs)["struck"]["locked"] > 50
