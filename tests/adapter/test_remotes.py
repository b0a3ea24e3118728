"""Whole JAX programs that share entries through a remote, each in a fresh process, on machines that are strangers."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers import Server

from conftest import MANY, SLOW, Program, Run, clean_environment, entries
from rewarm.sharing.markers import FOLDER as MARKERS
from shared_remotes import HttpCache, Machine, http_cache

pytest_plugins = ["remote_fixtures"]

PLAIN = """
    import jax, numpy as np
    f = jax.jit(lambda x: x @ x + 1)
    print(float(np.asarray(f(np.ones((8, 8), np.float32))).sum()))
"""


@pytest.fixture
def http() -> Iterator[HttpCache]:
    with http_cache() as cache:
        yield cache


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def remote_of(run: Run, number: int = 0) -> dict[str, object]:
    """What a program had of a remote."""
    found = run.stats["remotes"][number]
    assert isinstance(found, dict)
    return found


def marked(machine: Machine) -> list[str]:
    """What a later start is to send."""
    return [path.name for path in (machine.cache / MARKERS).glob("*/*/*")]


# -- trust ---------------------------------------------------------------------------------------------------------


@pytest.mark.contract
def test_one_compiles_and_another_who_trusts_him_does_not(program: Program, tmp_path: Path, shared: Path) -> None:
    one = Machine.named("one", tmp_path)
    other = Machine.named("other", tmp_path, one)
    url = shared.as_uri()
    made = program(PLAIN, **one.env(url))
    assert (made.stats["misses"], made.stats["stored"], remote_of(made)["written"]) == (1, 1, 1)
    had = program(PLAIN, **other.env(url))
    assert (had.stats["hits"], had.stats["misses"], remote_of(had)["hits"]) == (1, 0, 1)
    assert remote_of(had)["written"] == 0
    alone = program(PLAIN, **other.env())
    assert (alone.stats["hits"], alone.stats["misses"], alone.stats["remotes"]) == (1, 0, [])
    assert made.out == had.out == alone.out == "576.0\n"
    assert made.warnings() == had.warnings() == alone.warnings() == []
    assert marked(one) == marked(other) == []


def test_who_trusts_the_store_takes_what_nobody_signed(program: Program, tmp_path: Path, shared: Path) -> None:
    one, other = Machine.named("one", tmp_path), Machine.named("other", tmp_path)
    url = shared.as_uri()
    unsigned = program(PLAIN, **one.env(url, REWARM_SIGNING_KEY=""))
    assert remote_of(unsigned)["written"] == 0
    assert ["there is no key to sign with" in line for line in unsigned.warnings()] == [True]
    assert len(marked(one)) == 1
    program(PLAIN, **one.env(url + "?trust=store", REWARM_SIGNING_KEY=""))
    assert marked(one) == []
    assert program(PLAIN, **other.env(url)).stats["hits"] == 0
    shutil.rmtree(other.cache)
    taken = program(PLAIN, **other.env(url + "?trust=store"))
    assert (taken.stats["hits"], taken.warnings()) == (1, [])


# -- uploads -------------------------------------------------------------------------------------------------------

TIMED = """
    import time, sys
    import jax, numpy as np
    jax.jit(lambda x: x)(np.ones(1, np.float32))
    before = time.monotonic()
    print(np.asarray(jax.jit(lambda x: x @ x + 1)(np.ones((8, 8), np.float32))).sum(), flush=True)
    print(time.monotonic() - before, flush=True)
"""


def ended(source: str, env: dict[str, str], tmp_path: Path) -> tuple[float, Run]:
    """How long after its last line of output a program ended, in seconds, and what it said."""
    path = tmp_path / "timed.py"
    path.write_text(textwrap.dedent(source) + "\nprint('end', flush=True)\n")
    with subprocess.Popen(
        [sys.executable, str(path)], env=clean_environment(REWARM_STATS="json", **env),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            out = ""
            for line in process.stdout:
                out += line
                if line == "end\n":
                    break
            since = time.monotonic()
            rest, err = process.communicate(timeout=60)
        finally:
            process.kill()
    return time.monotonic() - since, Run(process.returncode, out + rest, err)


def test_a_program_waits_for_a_slow_remote_at_its_end_alone(http: HttpCache, tmp_path: Path) -> None:
    one = Machine.named("one", tmp_path)
    http.put_delay = 3.0
    took, run = ended(TIMED, one.env(http.url + "?deadline=8"), tmp_path)
    assert run.code == 0, run.err
    assert float(run.out.splitlines()[1]) < 2.0
    assert took > 1.5
    assert len(http.entries()) == run.stats["stored"]
    waits = [line for line in run.warnings() if "waiting for" in line]
    assert waits == run.warnings(), run.err
    assert len(waits) == 1


def test_the_end_waits_no_longer_than_it_may_and_a_later_start_sends_the_rest(
    program: Program, http: HttpCache, tmp_path: Path
) -> None:
    one = Machine.named("one", tmp_path)
    http.put_delay = 30.0
    env = one.env(http.url + "?deadline=40", REWARM_UPLOAD_SECONDS="1")
    took, run = ended(PLAIN, env, tmp_path)
    assert run.code == 0
    assert took < 15.0
    assert http.entries() == []
    assert len(marked(one)) == 1
    assert ["still on the way" in line for line in run.warnings()] == [True]
    http.put_delay = 0.0
    other_program = "import jax, numpy as np; jax.jit(lambda x: x - 3)(np.ones(3, np.float32))"
    program(other_program, **one.env(http.url + "?deadline=40"))
    assert len(http.entries()) == 2
    assert marked(one) == []


def test_a_dead_remote_costs_no_wait(tmp_path: Path) -> None:
    one = Machine.named("one", tmp_path)
    took, run = ended(PLAIN, one.env("http://127.0.0.1:9/cache"), tmp_path)
    assert (run.code, run.stats["stored"]) == (0, 1)
    assert took < 15.0
    assert len(marked(one)) == 1


def test_a_program_that_is_killed_leaves_its_uploads_to_the_next(
    program: Program, http: HttpCache, tmp_path: Path
) -> None:
    one = Machine.named("one", tmp_path)
    http.put_delay = 30.0
    source = PLAIN + "\n    import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    run = program(source, ok=False, **one.env(http.url))
    assert run.code == -signal.SIGKILL
    assert len(entries(one.cache)) == len(marked(one)) == 1
    http.put_delay = 0.0
    assert program(PLAIN, **one.env(http.url)).stats["hits"] == 1
    assert http.entries() == [path.name for path in entries(one.cache)]
    assert marked(one) == []


def test_ctrl_c_at_the_end_leaves_at_once(http: HttpCache, tmp_path: Path) -> None:
    one = Machine.named("one", tmp_path)
    http.put_delay = 60.0
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(PLAIN))
    with subprocess.Popen(
        [sys.executable, str(path)], env=clean_environment(**one.env(http.url + "?deadline=70")),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            seen = next(line for line in process.stderr if "waiting for" in line)
            process.send_signal(signal.SIGINT)
            since = time.monotonic()
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert seen
    assert time.monotonic() - since < 3.0
    assert "Traceback" not in err
    assert "still on the way" in err
    assert len(marked(one)) == 1


def test_a_remote_that_may_not_be_written_to_is_told_once(program: Program, http: HttpCache, tmp_path: Path) -> None:
    one = Machine.named("one", tmp_path)
    http.put_status = 403
    run = program(MANY, "6", **one.env(http.url))
    assert json.loads(run.out) == [2.0 + number for number in range(6)]
    about = [line for line in run.warnings() if "127.0.0.1" in line]
    assert len(about) == 1, run.err
    assert "read-only" in about[0]
    assert http.count("PUT") <= 6
    assert len(marked(one)) == 6


def test_throttling_slows_the_queue_and_not_the_program(http: HttpCache, tmp_path: Path) -> None:
    one = Machine.named("one", tmp_path)
    http.put_status, http.retry_after = 429, "60"
    took, run = ended(TIMED, one.env(http.url, REWARM_UPLOAD_SECONDS="4"), tmp_path)
    assert run.code == 0
    assert float(run.out.splitlines()[1]) < 2.0
    assert took < 30.0, "the client shows no Retry-After, so the end waits as long as it may, and no longer"
    assert http.count("PUT", "/main/") <= 6
    assert len(marked(one)) == run.stats["stored"]


def test_a_child_of_fork_neither_hangs_nor_sends_what_is_its_parents(
    program: Program, http: HttpCache, tmp_path: Path
) -> None:
    one = Machine.named("one", tmp_path)
    http.put_delay = 1.0
    source = """
        import os, sys, warnings
        warnings.simplefilter("ignore")
        import jax, numpy as np
        jax.jit(lambda x: x @ x + 1)(np.ones((8, 8), np.float32))
        child = os.fork()
        if not child:
            # As multiprocessing ends its children. JAX itself neither compiles in a child nor lives through its end.
            from rewarm.jax_adapter import remotes
            [sharing] = remotes._known.sharings.values()
            print(sharing.remotes.fetch("0" * 64), sharing.remotes.uploads.waiting(), flush=True)
            sharing.remotes.publish("0" * 64, b"", stored=True)
            remotes._at_exit()
            os._exit(7)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    """
    run = program(source, **one.env(http.url))
    assert run.out.split() == ["None", "0", "7"]
    assert http.count("PUT", "/main/") - http.count("PUT", "/plans/") == 1, "a native client is not used in a child"
    assert len(http.entries()) == 1
    assert marked(one) == ["0" * 64], "what is a child's own, a later start sends"


@pytest.mark.parametrize(
    "end",
    [
        "threading.Thread(target=sys.exit).start()",
        "threading.Thread(target=work, args=(5,)).start()",
        "threading.Thread(target=later).start()",
        "os._exit(0)",
    ],
)
def test_ways_to_end_while_something_is_under_way(http: HttpCache, program: Program, tmp_path: Path, end: str) -> None:
    """From Python 3.12 on no thread can be started once the main thread is at its end."""
    one = Machine.named("one", tmp_path)
    http.put_delay = 0.3
    source = f"""
        import os, sys, threading, time
        import jax, numpy as np
        def work(number):
            jax.jit(lambda x: x * 2 + number)(np.ones(3, np.float32))
        def later():
            time.sleep(0.5)
            for number in range(5, 9):
                work(number)
        work(1)
        {end}
    """
    program(source, REWARM_STATS="0", **one.env(http.url))
    if end == "os._exit(0)":
        assert len(marked(one)) == len(entries(one.cache)) == 1
        program("import jax, numpy as np; jax.jit(lambda x: x - 3)(np.ones(3, np.float32))", **one.env(http.url))
    assert sorted(http.entries()) == sorted(path.name for path in entries(one.cache))
    assert (
        len(entries(one.cache))
        == {"later": 5, "work": 2, "exit": 2}.get(
            next((word for word in ("later", "work", "exit(0)") if word in end), ""), 1
        )
        or end == "os._exit(0)"
    )
    assert marked(one) == []


def test_everything_first_compiled_in_a_thread_after_the_main_one_ended(program: Program, tmp_path: Path) -> None:
    """Then the remote may be out of reach (3.12), and the program has its result, and a later start sends it."""
    one = Machine.named("one", tmp_path)
    with http_cache() as http:
        source = """
            import threading, time
            import jax, numpy as np
            def later():
                time.sleep(1.0)
                print(np.asarray(jax.jit(lambda x: x * 2)(np.ones(3, np.float32))).sum())
            threading.Thread(target=later).start()
        """
        run = program(source, **one.env(http.url))
        assert run.out == "6.0\n"
        assert "Traceback" not in run.err
        assert len(http.entries()) + len(marked(one)) == 1
        program(PLAIN, **one.env(http.url))
        assert len(http.entries()) == 2


# -- fetching ahead ------------------------------------------------------------------------------------------------

AHEAD = """
    import json, pathlib, sys, time
    import jax, numpy as np
    import rewarm
    def program(number):
        def f(x):
            return x * 2 + number
        f.__name__ = f"f{number}"
        return jax.jit(f)
    print(float(np.asarray(program(0)(np.ones(2, np.float32)))[0]))
    until = time.monotonic() + float(sys.argv[1])
    cache = pathlib.Path(sys.argv[2])
    while time.monotonic() < until and len(list(cache.glob("[0-9a-f][0-9a-f]/*"))) < 6:
        time.sleep(0.02)
    print(len([path for path in cache.glob("[0-9a-f][0-9a-f]/*") if len(path.name) == 64]))
    print([float(np.asarray(program(number)(np.ones(2, np.float32)))[0]) for number in range(1, 6)])
"""


def run_ahead(machine: Machine, url: str, seconds: str, tmp_path: Path, **env: str) -> Run:
    """One script for all, since a plan is known by the script's name."""
    path = tmp_path / "ahead.py"
    path.write_text(textwrap.dedent(AHEAD))
    done = subprocess.run(
        [sys.executable, str(path), seconds, str(machine.cache)],
        env=clean_environment(REWARM_STATS="json", **machine.env(url, **env)),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Run(done.returncode, done.stdout, done.stderr)


def test_a_second_machine_fetches_ahead_by_the_plan_of_the_first(tmp_path: Path, shared: Path) -> None:
    one = Machine.named("one", tmp_path)
    other = Machine.named("other", tmp_path, one)
    run_ahead(one, shared.as_uri(), "0", tmp_path)
    assert len(list((shared / "main" / "plans").iterdir())) == 2
    run = run_ahead(other, shared.as_uri(), "5", tmp_path)
    assert run.out.splitlines()[1] == "6", "all are here before they are asked for"
    assert (run.stats["hits"], run.stats["misses"], remote_of(run)["hits"]) == (6, 0, 6)
    assert run.warnings() == []


# A script of its own for each test, since a plan is known by the script's name. `SETUP` comes before JAX is imported.
MANY_AHEAD = """
    import json, sys
    SETUP
    import jax, numpy as np
    def program(number):
        def f(x):
            return x * 2 + number
        f.__name__ = f"f{number}"
        return jax.jit(f)
    print([float(np.asarray(program(number)(np.ones(2, np.float32)))[0]) for number in range(12)])
"""
TWELVE = str([2.0 + number for number in range(12)])


def run_many(machine: Machine, url: str, tmp_path: Path, setup: str = "", more: int = 0, **env: str) -> Run:
    """Twelve programs, or so many more, with the remote by the environment, or by `setup`."""
    path = tmp_path / "many_ahead.py"
    source = textwrap.dedent(MANY_AHEAD).replace("SETUP", textwrap.dedent(setup))
    path.write_text(f"{source}\nfor number in range(12, {12 + more}): program(number)(np.ones(2, np.float32))\n")
    remotes = (url,) if url else ()
    done = subprocess.run(
        [sys.executable, str(path)], env=clean_environment(REWARM_STATS="json", **machine.env(*remotes, **env)),
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == TWELVE
    return Run(done.returncode, done.stdout, done.stderr)


def entries_asked_for(http: HttpCache) -> int:
    return sum(how == "GET" and len(path.rpartition("/")[2]) == 64 for how, path in http.asked)


def test_many_small_entries_come_in_packs(tmp_path: Path, http: HttpCache) -> None:
    one = Machine.named("one", tmp_path)
    other = Machine.named("other", tmp_path, one)
    made = run_many(one, http.url, tmp_path)
    assert (made.stats["misses"], remote_of(made)["written"], len(http.entries())) == (12, 12, 12)
    assert (http.count("PUT", "/packs/"), http.count("PUT", "/plans/")) == (1, 1), "one id, since it has no arguments"
    http.asked.clear()
    had = run_many(other, http.url, tmp_path)
    assert (had.stats["hits"], had.stats["misses"], had.warnings()) == (12, 0, [])
    assert entries_asked_for(http) <= 2, "the first may be asked for before the plan is here"
    assert http.count("PUT", "/packs/") == 0, "they are there"
    http.asked.clear()
    again = run_many(other, http.url, tmp_path)
    assert (again.stats["hits"], len(entries(other.cache))) == (12, 12)
    assert (http.count("GET", "/main/"), http.count("PUT", "/main/")) == (0, http.count("PUT", "/main/probes/"))


def packs_in(folder: Path) -> set[str]:
    """The packs that lie in a remote."""
    return {path.name for path in (folder / "main" / "packs").glob("*")}


def packs_named_in(folder: Path) -> set[str]:
    """The packs that the plans in a remote name."""
    told = [json.loads(path.read_text()) for path in (folder / "main" / "plans").iterdir()]
    return {name for plan in told for name in plan["packs"]}


def entries_in(folder: Path) -> dict[str, bytes]:
    """The entries in a remote, signatures and all."""
    return {path.name: path.read_bytes() for path in (folder / "main").glob("*/*") if len(path.name) == 64}


def test_a_near_remote_is_filled_with_what_came_in_packs(tmp_path: Path) -> None:
    """The entries with the signature of who made them, and a plan that names packs which are there."""
    one = Machine.named("one", tmp_path)
    other, third = Machine.named("other", tmp_path, one), Machine.named("third", tmp_path, one)
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    run_many(one, far.as_uri(), tmp_path)
    before = {path: path.read_bytes() for path in far.rglob("*") if path.is_file() and "probes" not in path.parts}
    had = run_many(other, f"{near.as_uri()},{far.as_uri()}", tmp_path)
    assert (had.stats["hits"], had.stats["misses"], had.warnings()) == (12, 0, [])
    assert entries_in(near) == entries_in(far)
    assert len(entries_in(near)) == 12
    assert packs_named_in(near) == packs_in(near)
    assert len(packs_in(near)) == 1
    assert packs_named_in(far) == packs_in(far)
    assert {path: path.read_bytes() for path in before if "plans" not in path.parts} == {
        path: data for path, data in before.items() if "plans" not in path.parts
    }, "what was there is as it was"
    from_near = run_many(third, f"{near.as_uri()}?write=no", tmp_path)
    assert (from_near.stats["hits"], from_near.warnings()) == (12, [])
    marks = {path: path.stat().st_mtime_ns for path in (*near.rglob("*"), *far.rglob("*")) if path.is_file()}
    run_many(other, f"{near.as_uri()},{far.as_uri()}", tmp_path)
    assert {path: path.stat().st_mtime_ns for path in marks} == marks, "all of it is there by now"


def test_a_remote_that_is_named_later_gets_no_plan_with_packs_of_another(tmp_path: Path) -> None:
    one = Machine.named("one", tmp_path)
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    run_many(one, far.as_uri(), tmp_path)
    again = run_many(one, f"{near.as_uri()},{far.as_uri()}", tmp_path, more=1)
    assert (again.stats["hits"], again.stats["misses"]) == (12, 1)
    assert packs_in(far) == packs_named_in(far) != set()
    assert packs_named_in(near) == packs_in(near) == set()


def test_packs_that_are_lost_are_made_again_by_who_misses_them(tmp_path: Path, http: HttpCache) -> None:
    one = Machine.named("one", tmp_path)
    other = Machine.named("other", tmp_path, one)
    run_many(one, http.url, tmp_path)
    for path in [path for path in http.blobs if "/packs/" in path]:
        del http.blobs[path]
    had = run_many(other, http.url, tmp_path)
    assert (had.stats["hits"], had.warnings()) == (12, [])
    assert len([path for path in http.blobs if "/packs/" in path]) == 1
    third = Machine.named("third", tmp_path, one)  # who made them, whoever packed them
    http.asked.clear()
    run = run_many(third, http.url + "?write=no", tmp_path)
    assert entries_asked_for(http) <= 2
    assert run.stats["hits"] >= 10


def test_remotes_are_asked_before_jax_is_imported(tmp_path: Path, http: HttpCache) -> None:
    one = Machine.named("one", tmp_path)
    other = Machine.named("other", tmp_path, one)
    run_many(one, http.url, tmp_path)
    http.asked.clear()
    setup = f"""
    import time, rewarm
    rewarm.enable({str(other.cache)!r}, remote={http.url!r})
    time.sleep(3.0)
    print("jax" in sys.modules, flush=True)
    """
    run = run_many(other, "", tmp_path, setup, REWARM_DIR="")
    assert (run.out.splitlines()[0], run.stats["hits"], entries_asked_for(http)) == ("False", 12, 0)


def test_no_backend_is_chosen_by_asking_ahead(tmp_path: Path, http: HttpCache) -> None:
    one = Machine.named("one", tmp_path)
    setup = f"""
    import time, jax, rewarm
    rewarm.enable({str(one.cache)!r}, remote={http.url!r})
    time.sleep(1.0)
    print(len(jax._src.xla_bridge._backends), flush=True)
    jax.config.update("jax_platforms", "cpu")
    """
    run = run_many(one, "", tmp_path, setup, REWARM_DIR="")
    assert run.out.splitlines()[0] == "0"
    assert http.count("GET", "/plans/") >= 1


def test_settings_that_change_after_the_remotes_were_asked(tmp_path: Path, http: HttpCache) -> None:
    """Another remote: what came from the first is not used. Other keys: what came is checked by those in force."""
    one = Machine.named("one", tmp_path)
    run_many(one, http.url, tmp_path)
    with http_cache() as second:
        other = Machine.named("other", tmp_path, one)
        setup = f"""
        import time, rewarm
        rewarm.enable({str(other.cache)!r}, remote={http.url!r})
        time.sleep(2.0)
        rewarm.enable({str(other.cache)!r}, remote={second.url!r})
        """
        run = run_many(other, "", tmp_path, setup, REWARM_DIR="")
        assert (run.stats["hits"], run.stats["misses"], len(run.stats["remotes"])) == (0, 12, 1)
        assert (len(second.entries()), second.count("PUT", "/packs/")) == (12, 1)
        assert http.count("PUT") == len(http.blobs), "it was written by the first program alone"
    third = Machine.named("third", tmp_path, one)
    setup = f"""
    import time, rewarm
    rewarm.enable({str(third.cache)!r}, remote={http.url!r})
    time.sleep(2.0)
    rewarm.enable({str(third.cache)!r}, remote={http.url!r}, trusted_keys=[{third.key.public.to_text()!r}])
    """
    run = run_many(third, "", tmp_path, setup, REWARM_DIR="")
    assert (run.stats["hits"], run.stats["misses"]) == (0, 12)
    refused = remote_of(run)["refused"]
    assert isinstance(refused, dict)
    assert set(refused) == {"signed by an unknown key"}
    assert len(entries(third.cache)) == 12


@pytest.mark.parametrize("plan", [b"not a plan", b"[" * 100_000, b'{"version":1,"keys":[1,null,"../../x"]}', "others"])
def test_a_plan_that_is_wrong_does_no_harm(tmp_path: Path, shared: Path, plan: bytes | str) -> None:
    one = Machine.named("one", tmp_path)
    other = Machine.named("other", tmp_path, one)
    run_ahead(one, shared.as_uri(), "0", tmp_path)
    others = [f"{number:064x}" for number in range(4_000)]
    data = plan if isinstance(plan, bytes) else json.dumps({"version": 1, "program": "x", "keys": others}).encode()
    for path in (shared / "main" / "plans").iterdir():
        path.write_bytes(data)
    run = run_ahead(other, shared.as_uri(), "0.2", tmp_path)
    assert (run.stats["hits"], run.stats["misses"], run.warnings()) == (6, 0, [])
    assert len(entries(other.cache)) == 6


def test_the_program_still_chooses_its_platform(program: Program, tmp_path: Path, shared: Path) -> None:
    one = Machine.named("one", tmp_path)
    source = """
        import os, rewarm
        rewarm.enable()
        rewarm.stats()
        import jax
        from jax._src import xla_bridge
        assert not xla_bridge._backends
        jax.config.update("jax_platforms", "cpu")
        import numpy as np
        print(np.asarray(jax.jit(lambda x: x * 2)(np.ones(2, np.float32))).sum())
    """
    for _ in range(2):
        run = program(source, JAX_PLATFORMS="nowhere", **one.env(shared.as_uri()))
        assert run.out == "4.0\n"


# -- directories ---------------------------------------------------------------------------------------------------


def test_a_disk_that_takes_nothing_and_a_remote_that_does(program: Program, http: HttpCache, tmp_path: Path) -> None:
    one = Machine.named("one", tmp_path)
    full = "    import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
    run = program(full + PLAIN, **one.env(http.url))
    assert (run.out, run.stats["stored"], remote_of(run)["written"]) == ("576.0\n", 0, 1)
    assert entries(one.cache) == []
    assert len(http.entries()) == 1
    again = program(full + PLAIN, **one.env(http.url))
    assert (again.out, again.stats["hits"], again.stats["misses"]) == ("576.0\n", 1, 0)


def test_a_directory_that_is_mounted_read_only(tmp_path: Path, http: HttpCache) -> None:
    """What is made goes to the remote from memory, and comes from there at each start."""
    one = Machine.named("one", tmp_path)
    one.cache.mkdir(parents=True)
    (tmp_path / "plain.py").write_text(textwrap.dedent(PLAIN))
    script = 'mount -t tmpfs -o ro,mode=700 tmpfs "$2" || exit 9; "$0" "$1" && "$0" "$1"'
    for way in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        if shutil.which("unshare") is None:
            break
        done = subprocess.run(
            [*way, "sh", "-c", script, sys.executable, str(tmp_path / "plain.py"), str(one.cache)],
            env=clean_environment(REWARM_STATS="json", **one.env(http.url)), cwd=tmp_path,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            break
    else:
        pytest.skip("no right to mount, not even in a namespace of its own")
    assert done.stdout == "576.0\n576.0\n"
    first, second = (json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"bytes_read"'))
    assert (first["misses"], first["stored"], first["remotes"][0]["written"]) == (1, 0, 1)
    assert (second["hits"], second["misses"], second["remotes"][0]["hits"]) == (1, 0, 1)
    assert sum("read-only" in line for line in done.stderr.splitlines() if line.startswith("rewarm: ")) == 2, (
        "once in each run"
    )
    assert "Traceback" not in done.stderr


def test_an_entry_that_is_damaged_here_comes_from_the_remote(program: Program, tmp_path: Path, shared: Path) -> None:
    one = Machine.named("one", tmp_path)
    program(PLAIN, **one.env(shared.as_uri()))
    [path] = entries(one.cache)
    good = path.read_bytes()
    path.write_bytes(good[:-50])
    run = program(PLAIN, **one.env(shared.as_uri()))
    assert (run.out, run.stats["hits"], run.stats["misses"], run.stats["quarantined"]) == ("576.0\n", 1, 0, 1)
    assert path.read_bytes() == good


# -- settings ------------------------------------------------------------------------------------------------------


def as_s3(http: HttpCache, secret: str = "secret") -> str:
    """JAX itself takes no URLs but those of a few object stores."""
    rest = f"endpoint=http://127.0.0.1:{http.port}&access_key_id=id&secret_access_key={secret}&region=here"
    return f"s3://bucket/cache?{rest}"


def test_jax_own_spelling_of_a_remote(program: Program, http: HttpCache, tmp_path: Path) -> None:
    """The URL is the remote, the local directory is the default one, and no option of XLA is made of the URL."""
    one = Machine.named("one", tmp_path)
    env = one.env(REWARM="1", REWARM_DIR="", JAX_COMPILATION_CACHE_DIR=as_s3(http))
    source = PLAIN + "\n    assert rewarm.stats().left_to_jax == {}\n"
    cold = program("    import rewarm\n" + source, cwd=tmp_path, **env)
    assert (cold.stats["stored"], len(http.entries()), cold.warnings()) == (1, 1, [])
    assert len(entries(one.home / "xdg" / "rewarm")) == 1
    shutil.rmtree(one.home / "xdg")
    warm = program("    import rewarm\n" + source, cwd=tmp_path, **env)
    assert (warm.stats["hits"], remote_of(warm)["hits"]) == (1, 1)
    assert [path.name for path in tmp_path.iterdir() if ":" in path.name] == []


@pytest.mark.parametrize("kind", ["moto", "gcs"])
def test_jax_own_spelling_over_servers(
    kind: str, program: Program, server: Callable[[str], Server], tmp_path: Path
) -> None:
    """The option of JAX instead of its variable; another machine finds what the first one stored, under `explain`."""
    source = f"""
    import jax, rewarm
    jax.config.update("jax_compilation_cache_dir", {server(kind).address(f"jax-{kind}")!r})
    {PLAIN}
    assert rewarm.stats().left_to_jax == {{}}
    """
    one = Machine.named("one", tmp_path)
    other = Machine.named("other", tmp_path, one)
    cold = program(source, cwd=tmp_path, **one.env(REWARM="1", REWARM_DIR=""))
    assert (cold.stats["stored"], cold.warnings()) == (1, [])
    warm = program(source, cwd=tmp_path, **other.env(REWARM="1", REWARM_DIR=""))
    assert (warm.stats["hits"], warm.stats["misses"], remote_of(warm)["hits"]) == (1, 0, 1)


def test_remotes_by_argument(program: Program, tmp_path: Path) -> None:
    """The second of two answers, and the first is sent what it had."""
    one = Machine.named("one", tmp_path)
    for name in ("near", "far"):
        (tmp_path / name).mkdir()
    near, far = ((tmp_path / name).as_uri() for name in ("near", "far"))
    source = """
        import sys, rewarm
        rewarm.enable(sys.argv[1], remote=sys.argv[2:])
        import jax, numpy as np
        jax.jit(lambda x: x * 2)(np.ones(2, np.float32))
    """
    keys = one.env(REWARM_DIR="")
    program(source, str(tmp_path / "a"), far, **keys)
    run = program(source, str(tmp_path / "b"), near, far, **keys)
    assert (run.stats["hits"], run.stats["misses"]) == (1, 0)
    assert [remote_of(run, number)["hits"] for number in (0, 1)] == [0, 1]
    assert [remote_of(run, number)["written"] for number in (0, 1)] == [1, 0]
    run = program(source, str(tmp_path / "c"), near, far, **keys)
    assert [remote_of(run, number)["hits"] for number in (0, 1)] == [1, 0]


def test_a_url_as_jax_directory_that_leads_nowhere(program: Program, tmp_path: Path) -> None:
    one = Machine.named("one", tmp_path)
    url = "gs://bucket/dir?endpoint=http://127.0.0.1:9&skip_signature=true"
    run = program(PLAIN, cwd=tmp_path, **one.env(REWARM="1", REWARM_DIR="", JAX_COMPILATION_CACHE_DIR=url))
    assert (run.out, run.stats["stored"], run.stats["left_to_jax"]) == ("576.0\n", 1, {})
    assert [path.name for path in tmp_path.iterdir() if ":" in path.name] == []


HIDE_OBSTORE = """
    import sys
    from importlib.machinery import PathFinder
    class Without(PathFinder):
        @classmethod
        def find_spec(cls, name, path=None, target=None):
            return None if name.partition(".")[0] == "obstore" else PathFinder.find_spec(name, path, target)
    sys.meta_path[sys.meta_path.index(PathFinder)] = Without
"""


@pytest.mark.parametrize(
    ("before", "env", "words"),
    [
        ("", {"REWARM_REMOTE": "gibberish://x"}, "a remote starts with one of"),
        ("", {"REWARM_REMOTE": "s3://user:hunter2/x@bucket/p"}, "remote (REWARM_REMOTE)"),
        (HIDE_OBSTORE, {"REWARM_REMOTE": "s3://bucket"}, 'pip install "rewarm[remote]"'),
        ("", {"REWARM_SIGNING_KEY": "rewarm-ed25519-secret:hunter2"}, "the signing key"),
        ("", {"REWARM_TRUSTED_KEYS": "/nowhere/at/all"}, "/nowhere/at/all"),
    ],
    ids=["address", "address with a secret", "extra", "key", "trusted"],
)
def test_what_cannot_be_used_is_one_line_and_strict_raises(
    program: Program, tmp_path: Path, shared: Path, before: str, env: dict[str, str], words: str
) -> None:
    one = Machine.named("one", tmp_path)
    run = program(before + PLAIN, **one.env(shared.as_uri(), **env))
    assert (run.out, run.stats["stored"]) == ("576.0\n", 1)
    assert len(run.warnings()) == 1, run.err
    assert words in run.err
    assert "the program goes on without remotes" in run.err
    assert "hunter2" not in run.err
    strict = program(before + PLAIN, ok=False, **one.env(shared.as_uri(), REWARM_STRICT="1", **env))
    assert strict.code == 1
    assert words in strict.err
    assert "hunter2" not in strict.err


def test_strict_and_errors_fail_raise_where_a_remote_does_not_answer(program: Program, tmp_path: Path) -> None:
    one = Machine.named("one", tmp_path)
    url = "http://127.0.0.1:9/cache?errors="
    assert program(PLAIN, REWARM_STRICT="1", **one.env(url + "warn")).out == "576.0\n"
    shutil.rmtree(one.cache)
    assert program(PLAIN, **one.env(url + "fail")).out == "576.0\n"
    shutil.rmtree(one.cache)
    run = program(PLAIN, ok=False, REWARM_STRICT="1", **one.env(url + "fail"))
    assert run.code == 1
    assert "UnreachableError" in run.err
    quiet = program(PLAIN, REWARM_UPLOAD_SECONDS="0", **one.env(url + "ignore"))
    assert [line for line in quiet.warnings() if "still on the way" not in line] == []


def test_strict_and_errors_fail_raise_where_a_remote_does_not_take_what_is_written(
    program: Program, http: HttpCache, tmp_path: Path
) -> None:
    one = Machine.named("one", tmp_path)
    http.put_status = 500
    for errors, strict, code in (("fail", "1", 1), ("fail", "", 0), ("warn", "1", 0), ("ignore", "1", 0)):
        shutil.rmtree(one.cache, ignore_errors=True)
        env = one.env(f"{http.url}?errors={errors}", REWARM_STRICT=strict, REWARM_UPLOAD_SECONDS="3")
        run = program(PLAIN, ok=False, **env)
        assert (run.out, run.code) == ("" if code else "576.0\n", code), run.err
        assert ("UnreachableError: not now (status 500)" in run.err) == bool(code)
        told = [line for line in run.warnings() if "still on the way" not in line]
        assert bool(told) == (errors != "ignore"), (errors, run.err)
        assert len(entries(one.cache)) == 1


def test_of_the_processes_of_a_host_one_asks_a_remote_for_an_entry(http: HttpCache, tmp_path: Path) -> None:
    """One that the remote has, and one that it has not: each is asked for once by four processes at once."""
    one, other = Machine.named("one", tmp_path), Machine.named("other", tmp_path)
    other = Machine(other.home, (one.key.public.to_text(),), other.key)
    script = tmp_path / "slow.py"
    script.write_text(SLOW)

    def run(count: int, env: dict[str, str]) -> list[Run]:
        command = [sys.executable, str(script)]
        settings = clean_environment(**env, REWARM_STATS="json")
        pipe = subprocess.PIPE
        started = [subprocess.Popen(command, env=settings, stdout=pipe, stderr=pipe, text=True) for _ in range(count)]
        ended = [process.communicate(timeout=200) for process in started]
        return [Run(process.returncode, *said) for process, said in zip(started, ended, strict=True)]

    def asked() -> dict[str, int]:
        gets = [path.rpartition("/")[2] for how, path in http.asked if how == "GET" and "/leases/" not in path]
        return {key: gets.count(key) for key in http.entries()}

    [cold, *_] = run(4, one.env(http.url))
    assert (cold.code, len(http.entries())) == (0, 1)
    [missed] = asked().values()
    http.asked.clear()
    http.blobs = {path: data for path, data in http.blobs.items() if "/plans/" not in path and "/packs/" not in path}
    warm = run(4, other.env(http.url))
    assert [(one_run.stats["hits"], one_run.stats["misses"]) for one_run in warm] == [(1, 0)] * 4
    [found] = asked().values()
    assert (missed, found) == (1, 1)


def test_no_secret_is_told_anywhere(program: Program, http: HttpCache, tmp_path: Path) -> None:
    one = Machine.named("one", tmp_path)
    http.password = "user:hunter2hunter2"
    url = f"http://user:hunter2hunter2@127.0.0.1:{http.port}/cache"
    shared_secret = f"rewarm-hmac-secret:{'c2VjcmV0' * 8}"
    secrets = ("hunter2", one.key.to_text().partition(":")[2][:20], "c2VjcmV0")
    source = PLAIN + "\n    import rewarm; print(rewarm.stats(), rewarm.events())\n"
    runs = []
    for env, place in (
        (one.env(url, REWARM_TRUSTED_KEYS=shared_secret), http.url),
        (
            one.env(JAX_COMPILATION_CACHE_DIR=as_s3(http, "hunter2"), REWARM_TRUSTED_KEYS=shared_secret),
            "s3://bucket/cache",
        ),
    ):
        runs.append(program(source, REWARM_EXPLAIN="1", **env))
        assert remote_of(runs[-1])["place"] == place
        doctor = subprocess.run(
            [sys.executable, "-m", "rewarm", "doctor", "--json"], env=clean_environment(**env), cwd=tmp_path,
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        runs.append(Run(doctor.returncode, doctor.stdout, doctor.stderr))
        assert json.loads(doctor.stdout)
    for run in runs:
        assert not [secret for secret in secrets if secret in run.out + run.err], run.out + run.err
    said = b"".join(path.read_bytes() for path in one.home.rglob("*") if path.is_file())
    assert said
    assert not [secret for secret in secrets if secret.encode() in said]
    assert not [secret for secret in secrets if any(secret.encode() in blob for blob in http.blobs.values())]
    assert http.entries()
