"""`rewarm prewarm`: what is there is skipped, what is missing is listed, what fails does not stop the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prewarm_command import DESCRIBES_CPUS, PLANS, attached, command, prewarm

from conftest import clean_environment, entries, execute, first
from rewarm.sharing.sync import NOT_MADE_LINE


def test_check_lists_what_is_missing_and_compiles_nothing(cache: Path) -> None:
    before = prewarm(cache, "alone", "--check")
    assert before.run.code == 1
    assert before.outcomes == {"scaled": "missing"}
    assert before.told["complete"] is False
    assert entries(cache) == []

    made = prewarm(cache, "alone")
    assert (made.run.code, made.outcomes) == (0, {"scaled": "stored"})
    written = entries(cache)[0].stat().st_mtime_ns

    again = prewarm(cache, "alone")
    assert (again.run.code, again.outcomes) == (0, {"scaled": "present"})
    assert entries(cache)[0].stat().st_mtime_ns == written
    assert {one.told["programs"][0]["key"] for one in (before, made, again)} == {entries(cache)[0].name}


def test_one_that_fails_does_not_stop_the_others_and_is_remembered_for_a_while(cache: Path) -> None:
    begun = prewarm(cache, "failing", "-j", "2", "--remember-failures", "1")
    assert begun.run.code == 1
    expected = {"scaled": "stored", "bad shapes": "failed", "no option": "failed", "after": "stored"}
    assert begun.outcomes == expected
    assert "dot_general" in begun.why("bad shapes")
    line = next(n for n, text in enumerate(PLANS.read_text().splitlines(), 1) if "bad shapes" in text)
    assert f"{PLANS}:{line}" in begun.why("bad shapes")
    assert next(one for one in begun.told["programs"] if one["program"] == "bad shapes")["line"] == f"{PLANS}:{line}"
    assert "No such compile option" in begun.why("no option")
    assert len(entries(cache)) == 2

    second = prewarm(cache, "failing")
    assert second.outcomes == {**expected, "scaled": "present", "after": "present"}
    # What could not be traced has no key, and is mended by a change of the code.
    assert [one["remembered"] for one in second.told["programs"]] == [False, False, True, False]
    assert "No such compile option" in second.why("no option")

    [kept] = (cache / "prewarm").iterdir()
    told = json.loads(kept.read_text())
    assert told["expires"] - told["time"] == 3600
    kept.write_text(json.dumps({**told, "time": told["time"] - 90000, "expires": told["time"] - 3600}))
    third = prewarm(cache, "failing", "--only", "no option")
    assert [one["remembered"] for one in third.told["programs"]] == [False]
    assert json.loads(kept.read_text())["expires"] > time.time()
    fourth = prewarm(cache, "failing", "--only", "no option", "--retry")
    assert [one["remembered"] for one in fourth.told["programs"]] == [False]


@pytest.mark.parametrize("number", first(1, [signal.SIGKILL, signal.SIGABRT]))
def test_a_worker_that_ends(cache: Path, number: signal.Signals) -> None:
    filled = prewarm(cache, "ending", END_WITH=str(int(number)))
    assert filled.run.code == 1
    assert filled.outcomes == {"ends it": "failed", "scaled": "stored"}
    assert number.name in filled.why("ends it")
    assert ("memory" in filled.why("ends it")) is (number == signal.SIGKILL)
    assert not (cache / "prewarm").exists()


def test_arguments_that_are_taken_for_others_are_said_to_be(cache: Path) -> None:
    made = prewarm(cache, "computing")
    assert made.outcomes == {"computing": "stored"}, made.run.err
    [notes] = [one["notes"] for one in made.told["programs"]]
    if DESCRIBES_CPUS:  # elsewhere the devices are this process's own, which compute
        assert "with its arguments on the first device" in notes[0]
    assert len(notes) == int(DESCRIBES_CPUS)
    assert all(note in made.run.err for note in notes), "in the line of the program"


def test_plans_that_are_wrong(cache: Path) -> None:
    raised = prewarm(cache, "raising")
    assert raised.run.code == 1
    assert raised.outcomes["scaled"] == "stored"
    line = next(n for n, text in enumerate(PLANS.read_text().splitlines(), 1) if "the plan's own" in text)
    assert f"raises RuntimeError: the plan's own [{PLANS}:{line}]" in str(raised.told["programs"][-1]["why"])
    missing = prewarm(cache, "nowhere")
    assert missing.run.code == 1
    assert "has no function nowhere; it has " in str(missing.told["programs"][0]["why"])
    elsewhere = prewarm(cache, "attached")
    if elsewhere.outcomes != {"scaled": "stored"}:  # where this host's CPU is described
        assert "not for the devices that the plan was given" in elsewhere.why("scaled")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "h9000"], "no target is called 'h9000'"),
        (["--topology", "1x1x1x1x1"], "expected nodes x processes x devices"),
        (["--for-jax", "0.4.1"], "pip install rewarm 'jax==0.4.1'"),
        (["--push"], "no remote is named"),
        (["--check", "--push", "--remote", "file:///nowhere"], "leave out --push or --check"),
        (["--check", "--bundle", "warm.rewarm"], "leave out --bundle or --check"),
        (["--push", "--remote", "file:///tmp?write=no"], "each of the remotes that are named says write=no"),
        (["--push", "--remote", "file:///nowhere/at/all?trust=store"], "file:///nowhere/at/all: "),
        (["--push", "--remote", "file:///tmp"], "there is no key to sign with"),
    ],
)
def test_wrong_usage(cache: Path, options: list[str], words: str) -> None:
    done = prewarm(cache, "alone", *options).run
    assert done.code == (1 if "file:///" in words or "key" in words or "write=no" in words else 2)
    assert words in " ".join(done.err.split())
    assert not cache.exists()


@pytest.mark.parametrize("number", first(1, [signal.SIGINT, signal.SIGTERM]))
def test_an_interrupted_run_is_taken_up(cache: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        command("slow", "--dir", str(cache), "--bundle", str(cache.parent / "warm.rewarm")),
        env=clean_environment(),
        stderr=subprocess.PIPE,
        text=True,
        cwd=cache.parent,
    )
    try:
        assert process.stderr is not None
        assert next((line for line in process.stderr if line.startswith("stored")), None)
        children = _children(process.pid)
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
    assert process.returncode == 128 + number, err
    assert ("interrupted" in err) is (number == signal.SIGINT)
    assert [path.name for path in cache.parent.iterdir() if "warm" in path.name] == [], "no half bundle"
    until = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in children) and time.monotonic() < until:
        time.sleep(0.05)
    assert [pid for pid in children if Path(f"/proc/{pid}").exists()] == []
    assert children
    assert not (cache / "prewarm").exists()
    assert prewarm(cache, "slow", "--only", "scaled").outcomes == {"scaled": "present"}


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _lives(pid: int) -> bool:
    """Whether it is there, and not only what nobody has asked the end of."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_entries_go_to_a_remote_and_into_a_bundle(cache: Path, tmp_path: Path) -> None:
    remote, bundle = tmp_path / "remote", tmp_path / "warm.rewarm"
    remote.mkdir()
    address = f"file://{remote}?trust=store"
    made = prewarm(cache, "alone", "--push", "--remote", address, "--namespace", "next", "--bundle", str(bundle))
    assert made.run.code == 0, made.run.err[-2000:]
    sent = {"remote": f"file://{remote}", "sent": 1, "failures": 0, "problems": [], "passed_over": 0}
    assert made.told["pushed"] == [sent]
    assert made.told["bundle"] == {"file": str(bundle), "entries": 1, "passed_over": 0, "lost": 0}
    elsewhere = tmp_path / "elsewhere"
    found = prewarm(elsewhere, "alone", "--check", "--remote", address, "--namespace", "next")
    assert (found.run.code, found.outcomes) == (0, {"scaled": "present"})
    other = prewarm(tmp_path / "other", "alone", "--check", "--remote", address)  # another namespace
    assert (other.run.code, other.outcomes) == (1, {"scaled": "missing"})
    environment = clean_environment()
    words = [
        *command("alone")[:3],
        "bundle",
        "load",
        str(bundle),
        "--trust",
        "store",
        "--dir",
        str(tmp_path / "loaded"),
    ]
    assert execute(words, env=environment, cwd=tmp_path).code == 0
    assert attached(tmp_path / "loaded", 1, "alone")["events"] == [["jit_scaled", "hit"]]
    refused = prewarm(cache, "alone", "--bundle", str(bundle)).run
    assert refused.code == 1
    assert "is there already" in refused.err


@pytest.mark.parametrize(
    "plan", first(2, ["plans.py", "nowhere.py:plan", "plans:", ":plan", "a b:plan", "my-pkg:plan"])
)
def test_what_is_no_plan(plan: str, cache: Path) -> None:
    words = [sys.executable, "-m", "rewarm", "prewarm", plan, "--target", "host", "--dir", str(cache)]
    done = execute(words, env=clean_environment(), cwd=cache.parent)
    assert (done.code, done.out) == (2, "")
    assert ("expected module:function or path/file.py:function" in done.err) is ("nowhere" not in plan)
    assert not cache.exists()


def test_a_remote_that_is_not_there_is_named(cache: Path) -> None:
    done = prewarm(cache, "alone", "--check", "--remote", "file:///nowhere/at/all?trust=store")
    assert (done.run.code, done.outcomes) == (1, {"scaled": "missing"})
    [line] = done.told["remotes"]
    assert line.startswith("file:///nowhere/at/all: ")


SHADOWS = """
import jax, numpy as np, rewarm
A = jax.ShapeDtypeStruct((4,), np.float32)

def plan():
    import tokenize
    assert hasattr(tokenize, "generate_tokens"), tokenize.__file__
    for number, name in enumerate(("dup", "dup", "dup#2")):
        yield rewarm.Program(jax.jit(lambda x, number=number: x + number), A, name=name)
"""


def test_a_plans_file_does_not_stand_for_another_module_and_names_differ(cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "of the plan"
    folder.mkdir()
    (folder / "tokenize.py").write_text(SHADOWS)
    words = [*command("alone")[:4], f"{folder / 'tokenize.py'}:plan", "--target", "host", "--check", "--json"]
    done = execute([*words, "--dir", str(cache)], env=clean_environment(), cwd=tmp_path)
    assert [one["program"] for one in json.loads(done.out)["programs"]] == ["dup", "dup#2", "dup#2#2"], done.err


def test_what_the_directory_had_no_room_for_is_not_there(cache: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "warm.rewarm"
    done = prewarm(cache, "many", "--bundle", str(bundle), REWARM_MAX_SIZE="30KB")
    counts = done.told["counts"]
    assert (done.run.code, done.told["complete"]) == (1, False)
    assert counts["evicted"] > 0
    assert counts["stored"] + counts["evicted"] == 6
    assert done.told["bundle"]["entries"] == counts["stored"] == len(entries(cache))
    assert "REWARM_MAX_SIZE" in next(one["why"] for one in done.told["programs"] if one["outcome"] == "evicted")


def test_a_worker_does_not_outlive_the_command(cache: Path) -> None:
    """Killed so that it can do nothing about it, while a worker compiles for many seconds."""
    process = subprocess.Popen(
        command("slow", "--dir", str(cache)),
        env=clean_environment(),
        stderr=subprocess.PIPE,
        text=True,
        cwd=cache.parent,
    )
    try:
        assert process.stderr is not None
        assert next((line for line in process.stderr if line.startswith("stored")), None)
        children = _children(process.pid)
        logs = [Path(f"/proc/{child}/fd/2").readlink() for child in children]
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
    until = time.monotonic() + 10
    while any(map(_lives, children)) and time.monotonic() < until:
        time.sleep(0.05)
    assert [pid for pid in children if _lives(pid)] == []
    assert logs
    assert all(log.name.endswith(" (deleted)") for log in logs), "nothing is left of what a worker writes"


def test_without_push_nothing_is_sent(cache: Path, tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    done = prewarm(cache, "alone", REWARM_REMOTE=f"file://{remote}?trust=store")
    assert done.outcomes == {"scaled": "stored"}
    assert os.listdir(remote) == []  # noqa: PTH208 - its names are all that is asked


LOOK = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
import rewarm
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("d",))
rows = NamedSharding(mesh, P("d"))
tree = {"w": jnp.ones((4, 2)), "n": np.ones(3), "weak": 2.5, "s": "static"}
plain = rewarm.abstract(tree)
divided = rewarm.abstract({"a": jax.device_put(jnp.ones((4, 2)), rows), "b": jnp.ones(2)}, mesh=mesh)
prefix = rewarm.abstract({"a": {"x": jnp.ones(2), "y": jnp.ones(4)}, "b": jnp.ones(2)}, mesh=mesh,
                         sharding={"a": P("d"), "b": None})
shapes = rewarm.abstract(jax.eval_shape(lambda: {"k": jnp.ones((2, 2), jnp.bfloat16)}), sharding=rows)
def say(x): return [str(x.dtype), x.weak_type, None if x.sharding is None else list(x.sharding.spec)]
print(json.dumps({
    "plain": [say(plain["w"]), say(plain["n"]), say(plain["weak"]), plain["s"]],
    "divided": [say(divided["a"]), say(divided["b"])],
    "prefix": [say(prefix["a"]["x"]), say(prefix["a"]["y"]), say(prefix["b"])],
    "shapes": say(shapes["k"]),
    "equal": rewarm.key_of(jax.jit(lambda w, n: w.sum() + n), tree["w"], 2.5)
             == rewarm.key_of(jax.jit(lambda w, n: w.sum() + n), plain["w"], plain["weak"]),
}))
for wrong in (lambda: rewarm.abstract(tree["w"], sharding=P("d")), lambda: rewarm.Program(42, tree)):
    try:
        wrong()
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error, file=sys.stderr)
"""


def test_abstract_arguments_keep_what_counts_for_a_key(tmp_path: Path) -> None:
    path = tmp_path / "look.py"
    path.write_text(LOOK)
    flags = "--xla_force_host_platform_device_count=2"
    done = execute([sys.executable, str(path)], env=clean_environment(XLA_FLAGS=flags), cwd=tmp_path)
    assert done.code == 0, done.err[-3000:]
    rows = ["d"]
    assert done.json == {
        "plain": [["float32", False, None], ["float32", False, None], ["float32", True, None], "static"],
        "divided": [["float32", False, rows], ["float32", False, None]],
        "prefix": [["float32", False, rows], ["float32", False, rows], ["float32", False, None]],
        "shapes": ["bfloat16", False, rows],
        "equal": True,
    }
    assert "give mesh= too" in done.err
    assert f"{path}:" in done.err.partition("TypeError ")[2]
    assert "expected a jitted function" in done.err


def test_what_others_made_is_passed_over_as_by_sync_push(cache: Path, tmp_path: Path) -> None:
    """No failure, one line with what to do, and the same in both."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    ours.mkdir()
    addresses = [f"file://{folder}?trust=store" for folder in (theirs, ours)]
    assert prewarm(cache, "alone", "--push", "--remote", addresses[0]).run.code == 0
    other = tmp_path / "other"
    done = prewarm(other, "alone", "--push", "--remote", ",".join(addresses))
    assert (done.run.code, done.outcomes) == (0, {"scaled": "present"})
    nothing = {"sent": 0, "failures": 0, "problems": []}
    assert done.told["pushed"] == [
        {"remote": f"file://{theirs}", **nothing, "passed_over": 0},
        {"remote": f"file://{ours}", **nothing, "passed_over": 1},
    ]
    words = [sys.executable, "-m", "rewarm", "sync", "push", "--remote", addresses[1], "--dir", str(other)]
    pushed = execute(words, env=clean_environment(), cwd=tmp_path)
    assert pushed.code == 0
    line = f"1 {NOT_MADE_LINE}"
    assert line in pushed.out
    text = execute(command("alone", *words[-4:], "--push"), env=clean_environment(), cwd=tmp_path)
    assert (text.code, f"file://{ours}: {line}" in text.out) == (0, True), text.out
