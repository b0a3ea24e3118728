"""An entry that ends the process does so once: the next start says so in one line, puts it aside, compiles, and the
one after that hits. Whatever else ends a program condemns nothing."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import poison
import pytest

from conftest import Program, Run, clean_environment, entries, first

pytestmark = [
    pytest.mark.contract,
    pytest.mark.skipif(sys.platform != "linux", reason="the object files that are changed are ELF"),
]

PROGRAM = """
    import jax, numpy as np
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    print(np.asarray(jax.jit(lambda x: x @ x + 1)(x)).sum())
"""
RESULT = "3936.0\n"

# In the real time of the first load, and with what it holds then.
BEFORE_LOAD = """
    from rewarm.jax_adapter import executables
    load = executables.load
    def watched(*arguments, **named):
        during()
        return load(*arguments, **named)
    executables.load = watched
"""


@pytest.fixture
def program(program: Program) -> Program:
    """As everywhere, and entries are kept whatever they are worth: on a busy machine loads can outlast compiles."""
    return functools.partial(program, REWARM_MIN_COMPILE_SECONDS="0")


def marks(cache: Path) -> list[Path]:
    return sorted((cache / "trials").glob("*.mark"))


def condemned(cache: Path) -> list[dict[str, object]]:
    path = cache / "trials" / "condemned.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def lines_of(run: Run) -> list[str]:
    return [line for line in run.warnings() if "rewarm:" in line or "is not usable" in line]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory with the one entry of the program above."""
    place = tmp_path_factory.mktemp("made")
    path = place / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    environment = clean_environment(REWARM_DIR=str(place / "cache"), REWARM_MIN_COMPILE_SECONDS="0")
    out = subprocess.check_output([sys.executable, str(path)], env=environment, text=True, timeout=240)
    assert out == RESULT
    return place / "cache"


@pytest.fixture
def stored(made: Path, cache: Path) -> Path:
    """The one entry of the program above, in a directory of this test's own."""
    shutil.copytree(made, cache)
    (path,) = entries(cache)
    return path


def assert_healed(program: Program, cache: Path, how: str) -> None:
    """The next two starts after a death."""
    (path,) = entries(cache)
    healed = program(PROGRAM, REWARM_DIR=str(cache))
    assert healed.out == RESULT
    (line,) = lines_of(healed)
    assert path.name[:12] in line
    assert "of jit__lambda" in line
    assert how in line
    assert "quarantined" in line
    assert (healed.stats["hits"], healed.stats["stored"]) == (0, 1)
    assert marks(cache) == []
    assert len(list((cache / "quarantine").iterdir())) == 1
    warm = program(PROGRAM, REWARM_DIR=str(cache))
    assert (warm.out, warm.stats["hits"], lines_of(warm)) == (RESULT, 1, [])


WAYS = {
    "SIGILL": (poison.illegal_instruction, signal.SIGILL, "its first run ended process"),
    "SIGSEGV": (poison.writes_to_null, signal.SIGSEGV, "its first run ended process"),
    "SIGABRT": (lambda: poison.ends_with(signal.SIGABRT), signal.SIGABRT, "its first run ended process"),
    "SIGBUS": (lambda: poison.ends_with(signal.SIGBUS), signal.SIGBUS, "its first run ended process"),
    "load": (lambda: poison.dies_while_loading, signal.SIGABRT, "loading it ended process"),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_entry_that_ends_the_process_does_so_once(program: Program, cache: Path, stored: Path, way: str) -> None:
    change, number, how = WAYS[way]
    poison.reseal(stored, change())
    died = program(PROGRAM, ok=False, REWARM_DIR=str(cache))
    assert (died.code, died.out) == (-number, "")
    assert len(marks(cache)) == 1
    assert_healed(program, cache, how)


def test_what_was_proved_says_nothing_of_another_entry_under_the_same_key(
    program: Program, cache: Path, stored: Path
) -> None:
    assert program(PROGRAM, REWARM_DIR=str(cache)).stats["hits"] == 1
    poison.reseal(stored, poison.illegal_instruction())
    assert program(PROGRAM, ok=False, REWARM_DIR=str(cache)).code == -signal.SIGILL
    assert_healed(program, cache, "its first run ended process")


def test_the_second_entry_of_a_key_that_ends_a_process_is_the_last(program: Program, cache: Path, stored: Path) -> None:
    on = {"REWARM_DIR": str(cache)}
    for _ in range(2):
        poison.reseal(stored, poison.illegal_instruction())
        assert program(PROGRAM, ok=False, **on).code == -signal.SIGILL
        seen = program(PROGRAM, **on)
        assert seen.out == RESULT
        assert len(lines_of(seen)) == 1
    assert "not loaded and not stored" in lines_of(seen)[0]
    assert entries(cache) == []
    refused = program(PROGRAM, **on)
    assert (refused.out, refused.stats["hits"], refused.stats["stored"]) == (RESULT, 0, 0)
    assert "its first run ended process" in " ".join(refused.stats["not_stored"])
    assert lines_of(refused) == []

    from rewarm.trials import drop, refused_keys

    (one,) = refused_keys(cache)
    assert (one.key, one.program) == (stored.name, "jit__lambda")
    assert drop(cache, one.key) == 2
    assert refused_keys(cache) == []
    assert program(PROGRAM, **on).stats["stored"] == 1
    assert program(PROGRAM, **on).stats["hits"] == 1


def test_eight_starts_at_once_after_a_death_all_succeed(program: Program, cache: Path, stored: Path) -> None:
    poison.reseal(stored, poison.illegal_instruction())
    path = cache.parent / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))

    def start_all() -> list[tuple[int, str, str]]:
        children = [
            subprocess.Popen(
                [sys.executable, str(path)],
                env=clean_environment(REWARM_DIR=str(cache)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(8)
        ]
        outputs = [child.communicate(timeout=240) for child in children]
        return [(child.returncode, *output) for child, output in zip(children, outputs, strict=True)]

    assert program(PROGRAM, ok=False, REWARM_DIR=str(cache)).code == -signal.SIGILL
    done = start_all()
    assert [code for code, _, _ in done] == [0] * 8
    assert [out for _, out, _ in done] == [RESULT] * 8
    assert sum("is not usable" in err for _, _, err in done) == 1
    assert len(condemned(cache)) == 1
    # However many of eight had it in hand when they died, that is one event; a late one may have judged the others.
    (path_of_entry,) = entries(cache)
    poison.reseal(path_of_entry, poison.illegal_instruction())
    codes = {code for code, _, _ in start_all()}
    assert -signal.SIGILL in codes
    assert codes <= {-signal.SIGILL, 0}
    assert program(PROGRAM, REWARM_DIR=str(cache)).out == RESULT
    assert len(condemned(cache)) == 2
    assert marks(cache) == []


OWN_DEATHS = {
    "abort": ("os.abort()", -signal.SIGABRT),
    "segv": ("os.kill(os.getpid(), signal.SIGSEGV)", -signal.SIGSEGV),
    "null": ("ctypes.string_at(0)", -signal.SIGSEGV),
    "exit": ("os._exit(3)", 3),
    "kill": ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
}


RUNS = "jax.jit(lambda x: x @ x + 1)(x).block_until_ready()"
MOMENTS = {
    "at once": RUNS,
    "later": f"{RUNS}; time.sleep(1.5)",
    "before the run": "jax.jit(lambda x: x @ x + 1).lower(x).compile()",
}


@pytest.mark.parametrize(
    ("death", "moment"), [*((death, "at once") for death in OWN_DEATHS), ("abort", "later"), ("kill", "before the run")]
)
def test_a_death_of_the_users_own_condemns_nothing(
    program: Program, cache: Path, stored: Path, death: str, moment: str
) -> None:
    how, code = OWN_DEATHS[death]
    died = program(
        f"""
        import ctypes, os, signal, time, jax, numpy as np
        x = np.arange(16, dtype=np.float32).reshape(4, 4)
        {MOMENTS[moment]}
        {how}
        """,
        ok=False,
        REWARM_DIR=str(cache),
    )
    assert died.code == code
    assert len(marks(cache)) == 1
    after = program(PROGRAM, REWARM_DIR=str(cache))
    assert (after.out, after.stats["hits"], lines_of(after)) == (RESULT, 1, [])
    assert condemned(cache) == []
    assert marks(cache) == []


def test_a_kill_while_it_loads_costs_nothing(program: Program, cache: Path, stored: Path) -> None:
    killed = program(
        "import os, signal\ndef during(): os.kill(os.getpid(), signal.SIGKILL)\n"
        + textwrap.dedent(BEFORE_LOAD)
        + textwrap.dedent(PROGRAM),
        ok=False,
        REWARM_DIR=str(cache),
    )
    assert killed.code == -signal.SIGKILL
    after = program(PROGRAM, REWARM_DIR=str(cache))
    assert (after.out, lines_of(after), after.stats["hits"]) == (RESULT, [], 1)


def test_an_error_while_it_loads_is_no_death(program: Program, cache: Path, stored: Path) -> None:
    run = program(
        "def during(): raise ValueError('no')\n" + textwrap.dedent(BEFORE_LOAD) + textwrap.dedent(PROGRAM),
        REWARM_DIR=str(cache),
    )
    assert run.out == RESULT
    assert marks(cache) == []
    assert condemned(cache) == []


def test_a_clean_end_leaves_no_mark_and_the_next_start_makes_none(program: Program, cache: Path, stored: Path) -> None:
    watched = PROGRAM + "    import glob, sys; print(len(glob.glob(sys.argv[1] + '/trials/*.mark')))\n"
    first = program(watched, str(cache), REWARM_DIR=str(cache))
    assert first.out == RESULT + "1\n"
    assert marks(cache) == []
    second = program(watched, str(cache), REWARM_DIR=str(cache))
    assert second.out == RESULT + "0\n"


LONG = """
    import os, signal, sys, time, jax, jax.numpy as jnp, numpy as np
    def long(x, n):
        return jax.lax.fori_loop(0, n, lambda i, x: jnp.sin(x) + 1e-3, x)
    x = np.ones((400, 400), np.float32)
    f = jax.jit(long)
"""


def test_a_run_that_outlasts_its_call_is_watched_to_its_end(program: Program, cache: Path) -> None:
    source = (
        LONG
        + """
    y = f(x, int(sys.argv[2]))
    mark = lambda: [open(f"{sys.argv[1]}/trials/{n}").read() for n in os.listdir(sys.argv[1] + "/trials")
                    if n.endswith(".mark")]
    in_hand = lambda: [text for text in mark() if "running" in text and "\\nran" not in text]
    ready = y.is_ready()
    before = in_hand()
    y.block_until_ready()
    time.sleep(0.2)
    print(ready, len(before), len(in_hand()))
    """
    )
    on = {"REWARM_DIR": str(cache)}
    assert program(LONG + "    f(x, 3).block_until_ready()\n", **on).stats["stored"] >= 1
    seconds = 0.0
    loops = 500
    while seconds < 3.5:
        timed = program(
            LONG + "    f(x, 1); b = time.time(); f(x, int(sys.argv[1])).block_until_ready(); print(time.time() - b)\n",
            str(loops),
        )
        seconds = float(timed.out)
        loops = int(loops * max(1.1, min(20.0, 4.0 / seconds)))
    shutil.rmtree(cache / "trials", ignore_errors=True)
    run = program(source, str(cache), str(loops), **on)
    assert run.stats["hits"] >= 1
    assert run.out == "False 1 0\n"


def test_results_errors_and_donation_are_as_without(program: Program, cache: Path) -> None:
    source = """
        import jax, jax.numpy as jnp, numpy as np
        from jax._src.interpreters import pxla
        x = np.arange(4, dtype=np.float32)
        def fails(x):
            raise ZeroDivisionError("mine")
        told = []
        donated = jnp.ones(4)
        told.append(np.asarray(jax.jit(lambda x: x + 1, donate_argnums=0)(donated)).tolist())
        told.append(donated.is_deleted())
        aot = jax.jit(lambda x: (x, {"a": x * 2})).lower(x).compile()
        told.append(jax.tree.map(lambda one: np.asarray(one).tolist(), [aot(x), aot(x)]))
        try:
            shape = jax.ShapeDtypeStruct((4,), x.dtype)
            jax.block_until_ready(jax.jit(lambda x: jax.pure_callback(fails, shape, x))(x))
        except Exception as error:
            told.append("mine" in str(error))
        told.append(str(jax.jit(lambda: jax.random.split(jax.random.key(0)))().dtype))
        told.append(jax.jit(lambda: None)())
        with jax.disable_jit(False):
            told.append(jax.vmap(jax.jit(lambda x: x * 3))(x).tolist())
        try:
            aot(np.zeros(5, np.float32))
        except TypeError as error:
            told.append(str(error).splitlines()[0])
        told.append(pxla.ExecuteReplicated.__call__.__qualname__)
        print(told)
    """
    without = program(source)
    runs = [program(source, REWARM_DIR=str(cache)) for _ in range(3)]
    assert [run.out for run in runs] == [without.out] * 3
    assert runs[1].stats["hits"] >= 5


def test_jaxs_method_is_its_own_again_when_nothing_is_on_trial(program: Program, cache: Path, stored: Path) -> None:
    source = """
        import jax, numpy as np, rewarm
        from jax._src.interpreters import pxla
        original = pxla.ExecuteReplicated.__call__
        x = np.arange(16, dtype=np.float32).reshape(4, 4)
        compiled = jax.jit(lambda x: x @ x + 1).lower(x).compile()
        during = pxla.ExecuteReplicated.__call__
        compiled(x)
        print(during is original, pxla.ExecuteReplicated.__call__ is original)
    """
    assert program(source, REWARM_DIR=str(cache)).out == "False True\n"


def test_threads_that_load_at_once(program: Program, cache: Path) -> None:
    source = """
        import threading, jax, numpy as np
        x = np.arange(16, dtype=np.float32).reshape(4, 4)
        sums = {}
        def work(n):
            sums[n] = float(np.asarray(jax.jit(lambda x: x @ x + n)(x)).sum())
        threads = [threading.Thread(target=work, args=(n % 6,)) for n in range(12)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        print([sums[n] for n in range(6)])
    """
    cold = program(source, REWARM_DIR=str(cache))
    warm = program(source, REWARM_DIR=str(cache))
    again = program(source, REWARM_DIR=str(cache))
    assert cold.out == warm.out == again.out
    assert marks(cache) == []
    proved = sum(path.stat().st_size for path in (cache / "trials").glob("*/?")) // 8
    assert proved == len(entries(cache))


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written(program: Program, cache: Path, stored: Path) -> None:
    for folder in (*cache.rglob("*"), cache):
        if folder.is_dir():
            folder.chmod(0o500)
    try:
        run = program(PROGRAM, REWARM_DIR=str(cache))
        assert (run.out, run.stats["hits"]) == (RESULT, 1)
        assert not (cache / "trials").exists()
    finally:
        for folder in (cache, *cache.rglob("*")):
            if folder.is_dir():
                folder.chmod(0o700)


def test_a_file_in_the_place_of_the_folder(program: Program, cache: Path, stored: Path) -> None:
    """As a directory that cannot be written: nothing is marked, nothing is said."""
    (cache / "trials").write_text("mine")
    run = program(PROGRAM, REWARM_DIR=str(cache))
    assert (run.out, run.stats["hits"], lines_of(run)) == (RESULT, 1, [])
    assert (cache / "trials").read_text() == "mine"


def test_a_fork_while_an_executable_waits_for_its_run(program: Program, cache: Path, stored: Path) -> None:
    source = """
        import os, sys, warnings, jax, numpy as np
        warnings.simplefilter("ignore")
        x = np.arange(16, dtype=np.float32).reshape(4, 4)
        compiled = jax.jit(lambda x: x @ x + 1).lower(x).compile()
        child = os.fork()
        if child == 0:
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print(np.asarray(compiled(x)).sum())
    """
    run = program(source, REWARM_DIR=str(cache))
    assert run.out == "7\n" + RESULT
    assert marks(cache) == []
    assert program(PROGRAM, REWARM_DIR=str(cache)).stats["hits"] == 1
    assert condemned(cache) == []


def test_the_program_of_a_living_process_is_not_judged(program: Program, cache: Path, stored: Path) -> None:
    path = cache.parent / "stands.py"
    path.write_text(
        textwrap.dedent(
            "import sys\ndef during():\n    print('loading', flush=True); sys.stdin.readline()\n"
            + textwrap.dedent(BEFORE_LOAD)
            + textwrap.dedent(PROGRAM)
        )
    )
    stands = subprocess.Popen(
        [sys.executable, str(path)],
        env=clean_environment(REWARM_DIR=str(cache)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert stands.stdout is not None
        assert stands.stdout.readline() == "loading\n"
        beside = program(PROGRAM, REWARM_DIR=str(cache))
        assert (beside.out, beside.stats["hits"], lines_of(beside)) == (RESULT, 1, [])
        (mark,) = marks(cache)
        before = mark.stat().st_mtime
        time.sleep(2.5)
        assert mark.stat().st_mtime > before  # it is heard each second
        out, _ = stands.communicate("go\n", timeout=120)
        assert out == RESULT
    finally:
        stands.kill()
        stands.wait()
    assert marks(cache) == []
    assert condemned(cache) == []


def test_executables_that_never_run_are_let_go(program: Program, cache: Path) -> None:
    source = """
        import gc, jax, numpy as np
        from rewarm.jax_adapter import first_runs
        x = np.arange(16, dtype=np.float32).reshape(4, 4)
        counts = []
        for n in range(8):
            jax.jit(lambda x: x @ x + n).lower(x).compile()
            jax.clear_caches()
            gc.collect()
            counts.append(len(first_runs._on_trial))
        print(max(counts))
    """
    program(source, REWARM_DIR=str(cache))
    warm = program(source, REWARM_DIR=str(cache))
    assert (warm.out, warm.stats["hits"]) == ("1\n", 8)


LONG_RUN = """
    import os, signal, threading, jax, jax.numpy as jnp, numpy as np
    step = lambda c: (c[0] + 1, jnp.tanh(c[1] @ c[1]))
    run = jax.jit(lambda x: jax.lax.while_loop(lambda c: c[0] < 10**7, step, (0, x))[1])
    compiled = run.lower(np.ones((64, 64), np.float32)).compile()
    def end():
        {end}
    threading.Timer(1.5, end).start()
    compiled(np.ones((64, 64), np.float32)).block_until_ready()
"""


ENDS = ["os.kill(os.getpid(), signal.SIGTERM)", "os.abort()", "os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)"]


@pytest.mark.parametrize("end", first(2, ENDS))
def test_a_program_that_is_ended_in_a_long_first_run_condemns_nothing(program: Program, cache: Path, end: str) -> None:
    for start in range(3):
        run = program(LONG_RUN.replace("{end}", end), ok=False, REWARM_DIR=str(cache), REWARM_STATS="")
        assert run.code in (0, -signal.SIGTERM, -signal.SIGKILL, -signal.SIGABRT)
        assert lines_of(run) == [], start
    assert len(entries(cache)) == 1
    assert condemned(cache) == []


def test_an_abort_in_a_callback_of_the_user_s_condemns_nothing(program: Program, cache: Path) -> None:
    source = """
        import os, sys, jax, numpy as np
        def call(x):
            if sys.argv[1:]: os.abort()
            return x
        shape = jax.ShapeDtypeStruct((3,), np.float32)
        print(jax.jit(lambda x: jax.pure_callback(call, shape, x) * 2)(np.ones(3, np.float32)).sum())
    """
    first = program(source, REWARM_DIR=str(cache))
    for _ in range(3):
        assert program(source, "abort", ok=False, REWARM_DIR=str(cache)).code == -signal.SIGABRT
    after = program(source, REWARM_DIR=str(cache))
    assert (after.out, lines_of(after), condemned(cache)) == (first.out, [], [])
