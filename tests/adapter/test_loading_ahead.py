"""Loading ahead in real programs: later starts find their executables loaded, and whatever changed does no harm."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from conftest import MANY, Run, clean_environment, first

# The program has to do something between the making of the client and its first compile, else it is there first.
TRAIN = """
    import sys, time, os, jax, numpy as np, jax.numpy as jnp
    jax.devices()
    if "wait" in sys.argv:
        time.sleep(1.0)
    def step(w, x):
        return w - 0.1 * jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w)) ** 2))(w)
    w = np.full((8, 8), 0.5, np.float32)
    x = np.linspace(-1, 1, int(os.environ.get("ROWS", 4)) * 8, dtype=np.float32).reshape(-1, 8)
    device = jax.devices()[int(os.environ.get("DEVICE", 0))]
    for f in (jax.jit(lambda x: x + 1), jax.jit(lambda x: jnp.sort(x)), jax.jit(lambda x: jnp.tanh(x) @ np.eye(8))):
        x = np.asarray(f(jax.device_put(x, device)))
    w = jax.jit(step)(jax.device_put(w, device), jax.device_put(x, device))
    print(np.asarray(w).tobytes().hex())
"""


def starts(cache: Path, count: int, source: str = TRAIN, *argv: str, **env: str) -> list[Run]:
    """So many starts of one program, which is known by its name: it lies in one file."""
    path = cache.parent / "train.py"
    if not path.exists():
        path.write_text(textwrap.dedent(source))
    runs = []
    for _ in range(count):
        done = subprocess.run(
            [sys.executable, str(path), *argv],
            env=clean_environment(**{"REWARM_DIR": str(cache), "REWARM_STATS": "json", **env}),
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        runs.append(Run(done.returncode, done.stdout, done.stderr))
    return runs


def ahead(run: Run) -> dict[str, int]:
    """What was done ahead in a run."""
    found: dict[str, int] = run.stats["loads_ahead"]
    return found


@pytest.mark.contract
def test_later_starts_find_their_executables_loaded(tmp_path: Path) -> None:
    cold, warm, third = starts(tmp_path / "cache", 3, TRAIN, "wait")
    assert cold.out == warm.out == third.out
    count = cold.stats["misses"]
    assert count >= 4
    assert [run.stats["hits"] for run in (cold, warm, third)] == [0, count, count]
    assert ahead(warm) == {"read": count, "loaded": count, "used": count}, "although nothing has run here"
    assert ahead(third) == {"read": count, "loaded": count, "used": count}
    assert third.warnings() == []
    (off,) = starts(tmp_path / "cache", 1, TRAIN, "wait", REWARM_LOAD_AHEAD="0")
    assert (off.out, ahead(off)) == (cold.out, {})


def test_the_events_say_what_was_done_ahead(tmp_path: Path) -> None:
    starts(tmp_path / "cache", 2, TRAIN, "wait")
    tells = "\nimport rewarm, json\nprint(json.dumps([[e.ahead, e.seconds.load] for e in rewarm.events()]))\n"
    (tmp_path / "train.py").write_text((tmp_path / "train.py").read_text() + tells)
    (third,) = starts(tmp_path / "cache", 1, TRAIN, "wait")
    assert {tuple(one) for one in third.json} == {("loaded", 0.0)}


def test_a_changed_program_takes_what_it_still_wants(tmp_path: Path) -> None:
    starts(tmp_path / "cache", 2, TRAIN, "wait")
    cold, third, fourth = starts(tmp_path / "cache", 3, TRAIN, "wait", ROWS="5")
    expected = starts(tmp_path / "other", 1, TRAIN, "wait", ROWS="5")[0].out
    assert cold.out == third.out == fourth.out == expected
    assert cold.stats["misses"] > 0
    assert third.stats["misses"] == fourth.stats["misses"] == 0
    assert ahead(fourth)["used"] > 0


def test_executables_of_another_device_are_not_used(tmp_path: Path) -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    first = starts(tmp_path / "cache", 3, TRAIN, "wait", **flags)
    assert ahead(first[2])["used"] > 0
    (other,) = starts(tmp_path / "cache", 1, TRAIN, "wait", DEVICE="1", **flags)
    assert other.out == first[0].out
    assert (other.stats["misses"], ahead(other)["used"]) == (0, 0), (
        "one key for all devices, and another way to load it"
    )
    (again,) = starts(tmp_path / "cache", 1, TRAIN, "wait", DEVICE="1", **flags)
    assert ahead(again)["used"] == ahead(again)["loaded"] > 0


@pytest.mark.contract
def test_many_that_are_asked_for_at_once(tmp_path: Path) -> None:
    cold, warm, third = starts(tmp_path / "cache", 3, MANY, "40")
    assert cold.out == warm.out == third.out
    assert (third.stats["hits"], third.stats["misses"]) == (40, 0)
    assert ahead(third)["used"] <= ahead(third)["loaded"] <= 40


CALLBACKS = """
    import jax, numpy as np
    jax.devices()
    import time; time.sleep(0.5)
    seen = []
    def f(x):
        jax.debug.callback(lambda x: seen.append(float(x)), x.sum())
        return x * 2
    y = jax.jit(f)(np.ones(3, np.float32))
    jax.effects_barrier()
    z = jax.jit(lambda x: jax.pure_callback(lambda x: x + 1, jax.ShapeDtypeStruct((3,), np.float32), x))(y)
    print(seen, np.asarray(z).tolist())
"""


def test_a_program_with_callbacks_loads_its_own(tmp_path: Path) -> None:
    runs = starts(tmp_path / "cache", 3, CALLBACKS)
    assert {run.out for run in runs} == {"[3.0] [3.0, 3.0, 3.0]\n"}
    assert runs[2].stats["misses"] == 0


LAPACK = """
    import jax, numpy as np, jax.numpy as jnp
    jax.devices()
    import time; time.sleep(0.5)
    a = np.array([[2.0, 1.0], [1.0, 3.0]], np.float32)
    for found in (jax.jit(jnp.linalg.eigh)(a)[0], jax.jit(jnp.linalg.cholesky)(a)):
        print(np.asarray(found).tobytes().hex())
"""


@pytest.mark.contract
def test_functions_of_lapack_are_there_when_it_runs(tmp_path: Path) -> None:
    runs = starts(tmp_path / "cache", 4, LAPACK)
    assert len({run.out for run in runs}) == 1
    assert runs[3].stats["misses"] == runs[1].stats["misses"]


KILLED = """
    import jax, numpy as np, time
    jax.devices()
    time.sleep(0.5)
    print(float(jax.jit(lambda x: (x * 3).sum())(np.ones(3, np.float32))), flush=True)
    time.sleep(60)
"""


def test_a_program_that_is_killed_has_a_record(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(KILLED))
    record = tmp_path / "cache" / "loads"
    for _ in range(2):
        running = subprocess.Popen(
            [sys.executable, str(path)],
            env=clean_environment(REWARM_DIR=str(tmp_path / "cache")),
            stdout=subprocess.PIPE,
        )
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == b"9.0\n"
            end = time.monotonic() + 60
            while not list(record.glob("[!.]*")):  # not one that is being written
                assert time.monotonic() < end
                time.sleep(0.05)
        finally:
            running.send_signal(signal.SIGKILL)
            running.communicate()
    for file in record.glob("[!.]*"):
        assert len(json.loads(file.read_text().partition("\n")[2])["loads"]) == 1


FORKS = """
    import os, sys, warnings; warnings.simplefilter("ignore")
    import jax, numpy as np, time
    jax.devices()
    child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    time.sleep(0.5)
    print(float(jax.jit(lambda x: (x * 3).sum())(np.ones(3, np.float32))))
"""


def test_a_program_that_forks(tmp_path: Path) -> None:
    runs = starts(tmp_path / "cache", 3, FORKS)
    assert {run.out for run in runs} == {"9.0\n"}
    assert ahead(runs[2])["used"] == 1


def test_a_damaged_entry_is_found_by_who_asks_for_it(tmp_path: Path) -> None:
    cold = starts(tmp_path / "cache", 2, TRAIN, "wait")[0]
    entries = [path for path in (tmp_path / "cache").glob("??/*") if len(path.name) == 64]
    for path in entries:
        whole = bytearray(path.read_bytes())
        whole[len(whole) // 2] ^= 1
        path.write_bytes(whole)
    (third,) = starts(tmp_path / "cache", 1, TRAIN, "wait")
    assert third.out == cold.out
    assert third.stats["quarantined"] == len(entries)
    assert ahead(third)["read"] == 0


def test_a_directory_that_others_may_write_to_has_nothing_loaded(tmp_path: Path) -> None:
    starts(tmp_path / "cache", 3, TRAIN, "wait")
    (tmp_path / "cache").chmod(0o777)
    (run,) = starts(tmp_path / "cache", 1, TRAIN, "wait")
    assert ahead(run) == {}


def test_what_jax_makes_anew_is_not_served_the_old(tmp_path: Path) -> None:
    source = """
    import jax, numpy as np, time
    jax.devices(); time.sleep(0.5)
    import jax.extend
    jax.extend.backend.clear_backends()
    x = jax.jit(lambda x: (x * 3).sum())(np.ones(3, np.float32))
    print(float(x))
    """
    runs = starts(tmp_path / "cache", 3, source)
    assert {run.out for run in runs} == {"9.0\n"}
    assert ahead(runs[2])["used"] == 0


def test_one_record_for_a_program_whatever_wrote_there_before(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "loads").write_text("a file of the user's")
    runs: list[Any] = starts(tmp_path / "cache", 3, TRAIN, "wait")
    assert len({run.out for run in runs}) == 1
    assert (tmp_path / "cache" / "loads").read_text() == "a file of the user's"


# ---------------------------------------------------------------------------------------------------------------
# A client that is made ahead: only where nothing could be spoilt by it

EARLY = """
    import os, sys, time
    import rewarm
    rewarm.enable(load_ahead="early")
    import jax, numpy as np
    time.sleep(1.0)
    exec(os.environ.get("BEFORE", ""))
    x = jax.jit(lambda x: (x * 3).sum())(np.ones(3, np.float32))
    from rewarm.jax_adapter import seam
    print(float(x), jax.device_count(), rewarm.events()[0].ahead, seam.client_ahead())
"""


@pytest.mark.contract
def test_a_start_like_the_last_is_loaded_before_the_program_makes_a_client(tmp_path: Path) -> None:
    runs = starts(tmp_path / "cache", 3, EARLY)
    assert [run.out.split()[:2] for run in runs] == [["9.0", "1"]] * 3
    assert runs[2].out == "9.0 1 loaded None\n"
    assert runs[2].warnings() == []


SPOILERS = {
    "devices": 'jax.config.update("jax_num_cpu_devices", 3)',
    "flags": 'os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3"',
    "dispatch": 'jax.config.update("jax_cpu_enable_async_dispatch", False)',
    "distributed": """
import socket
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
jax.distributed.initialize(f"127.0.0.1:{port}", 1, 0)
""",
    "fork": """
child = os.fork()
if child == 0:
    os._exit(int(jax.jit(lambda x: x + 1)(1)) - 2)
assert os.waitpid(child, 0)[1] == 0
""",
}


@pytest.mark.parametrize("spoiler", first(1, SPOILERS))
def test_what_a_client_would_spoil_acts_as_without_rewarm(tmp_path: Path, spoiler: str) -> None:
    """At the first start with it, after others without; and at each later one."""
    starts(tmp_path / "cache", 3, EARLY)
    script = tmp_path / "train.py"
    script.write_text(script.read_text().replace('exec(os.environ.get("BEFORE", ""))', SPOILERS[spoiler]))
    runs = starts(tmp_path / "cache", 4)
    expected = "3" if spoiler in ("devices", "flags") else "1"
    assert [run.out.split()[:2] for run in runs] == [["9.0", expected]] * 4
    if spoiler != "distributed":  # whose service says that it starts and stops
        assert [run.warnings() for run in runs] == [[]] * 4


def test_what_comes_by_the_environment_or_a_module_counts_too(tmp_path: Path) -> None:
    (tmp_path / "setup_flags.py").write_text("")
    starts(tmp_path / "cache", 3, EARLY, BEFORE="import setup_flags")
    (tmp_path / "setup_flags.py").write_text(f"import os\n{SPOILERS['flags']}\n")
    (changed,) = starts(tmp_path / "cache", 1, BEFORE="import setup_flags")
    assert changed.out.split()[:2] == ["9.0", "3"]
    (told,) = starts(tmp_path / "cache", 1, BEFORE=SPOILERS["flags"])
    assert told.out.split()[:2] == ["9.0", "3"]


def test_disable_leaves_the_client_to_jax(tmp_path: Path) -> None:
    source = """
    import rewarm
    rewarm.enable()
    import jax, time
    from jax._src.lib import xla_client
    rewarm.disable()
    print(xla_client.make_cpu_client.__module__)
    time.sleep(0.5)
    print(jax.device_count())
    """
    runs = starts(tmp_path / "cache", 1, source)
    assert runs[0].out == "jaxlib.xla_client\n1\n"


@pytest.mark.parametrize("starts_before", [1, 2])
def test_what_is_put_aside_after_it_was_read_is_not_served(tmp_path: Path, starts_before: int) -> None:
    """Read only (after one start), or loaded already (after two)."""
    source = """
    import os, pathlib, sys, time
    import jax, numpy as np
    jax.devices()
    time.sleep(1.0)
    for path in pathlib.Path(os.environ["REWARM_DIR"]).glob("??/*"):
        if "AWAY" in os.environ and len(path.name) == 64:
            path.rename(path.with_name(path.name + ".away"))
    print(float(jax.jit(lambda x: (x * 3).sum())(np.ones(3, np.float32))))
    """
    starts(tmp_path / "cache", starts_before, source)
    (run,) = starts(tmp_path / "cache", 1, AWAY="1")
    assert (run.out, run.stats["hits"], run.stats["misses"], run.stats["stored"]) == ("9.0\n", 0, 1, 1)
    assert ahead(run)["read"] == 1


CONFIGURED = """
    import os, time
    import rewarm
    rewarm.enable()
    import jax, numpy as np
    time.sleep(0.5)
    if (count := int(open(os.path.join(os.path.dirname(__file__), "devices")).read())) > 1:
        os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
    print(float(jax.jit(lambda x: (x * 3).sum())(np.ones(3, np.float32))), jax.device_count())
"""


def test_a_program_may_set_flags_by_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "devices").write_text("1")
    starts(tmp_path / "cache", 3, CONFIGURED)
    (tmp_path / "devices").write_text("3")
    runs = starts(tmp_path / "cache", 2, CONFIGURED)
    assert [run.out for run in runs] == ["9.0 3\n"] * 2


@pytest.mark.parametrize("change", first(1, ["options", "Infinity", "empty"]))
def test_a_record_that_is_not_whole_is_none(tmp_path: Path, change: str) -> None:
    """Options that XLA does not take end the process, and nothing catches that."""
    cold = starts(tmp_path / "cache", 3, TRAIN, "wait")[0]
    for path in (tmp_path / "cache" / "loads").iterdir():
        text = path.read_text()
        at = text.index('"options":"') + len('"options":"')
        changed = {
            "options": text[:at] + ("B" if text[at] == "A" else "A") + text[at + 1 :],
            "Infinity": text.replace("]]}", ",Infinity]]}"),
            "empty": "",
        }
        path.write_text(changed[change])
    run, again, after = starts(tmp_path / "cache", 3, TRAIN, "wait")
    assert cold.out == run.out == again.out == after.out
    assert ahead(run) == {"read": 0, "loaded": 0, "used": 0}
    assert ahead(again)["used"] > 0, "the record was made anew"
