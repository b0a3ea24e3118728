"""The three ways on, the drop-in way, and off again, each in fresh processes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import rewarm
from conftest import Program, clean_environment, entries, execute

pytestmark = pytest.mark.contract

PLAIN = """
    import jax, numpy as np
    f = jax.jit(lambda x: x @ x + 1)
    print(float(f(np.ones((8, 8), np.float32)).sum()))
"""


def test_environment(program: Program, cache: Path) -> None:
    cold, warm = (program(PLAIN, REWARM_DIR=str(cache)) for _ in range(2))
    assert cold.out == warm.out == "576.0\n"
    assert cold.stats["stored"] == cold.stats["misses"] > 0
    assert (warm.stats["hits"], warm.stats["misses"]) == (cold.stats["misses"], 0)
    assert cold.warnings() == warm.warnings() == []


def test_enable_before_jax_is_imported_does_not_import_it(program: Program, cache: Path) -> None:
    source = """
        import sys, rewarm
        rewarm.enable(sys.argv[1])
        assert "jax" not in sys.modules
        import jax, numpy as np
        jax.jit(lambda x: x @ x + 1)(np.ones((8, 8), np.float32))
    """
    assert program(source, str(cache)).stats["stored"] == 1
    assert program(source, str(cache)).stats["hits"] == 1


def test_enable_after_jax_has_compiled(program: Program, cache: Path) -> None:
    source = """
        import sys, jax, numpy as np, rewarm
        jax.jit(lambda x: x - 1)(np.ones(3))
        assert rewarm.stats().requests == 0
        rewarm.enable(sys.argv[1])
        jax.jit(lambda x: x + 1)(np.ones(3))
        assert rewarm.stats().requests == 1, rewarm.stats()
    """
    assert program(source, str(cache)).stats["misses"] == 1
    assert program(source, str(cache)).stats["hits"] == 1


def test_run(tmp_path: Path, cache: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import jax, numpy as np\nprint(jax.jit(lambda x: x * 2)(np.ones(2)))\n")
    command = [sys.executable, "-m", "rewarm", "run", "--dir", str(cache), "--json", str(script)]
    runs = [execute(command, env=clean_environment(), cwd=tmp_path) for _ in range(2)]
    assert [run.code for run in runs] == [0, 0]
    assert [(run.stats["hits"], run.stats["misses"]) for run in runs] == [(0, 1), (1, 0)]


def test_not_asked_for_is_off(program: Program, cache: Path) -> None:
    for env in ({}, {"REWARM": "0", "REWARM_DIR": str(cache)}):
        run = program(PLAIN + "\n    import sys; print('rewarm' in sys.modules)", **env)
        assert run.err == ""
        assert not cache.exists()


@pytest.mark.parametrize("on", [True, False])
def test_a_broken_installation_stops_no_program(program: Program, cache: Path, tmp_path: Path, on: bool) -> None:
    """Files of two versions, as an upgrade leaves them that was cut off."""
    copy = tmp_path / "site" / "rewarm"
    shutil.copytree(Path(rewarm.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "setting_values.py").write_text("")
    run = program(PLAIN, PYTHONPATH=str(copy.parent), **({"REWARM_DIR": str(cache)} if on else {}))
    assert (run.code, run.out) == (0, "576.0\n")
    assert "rewarm: cannot be turned on, its installation is broken; reinstall it" in run.err
    assert not cache.exists()


def test_plugin_does_nothing_fast_when_not_asked(program: Program) -> None:
    source = """
        import sys, time
        import jax
        before = time.perf_counter()
        import importlib
        importlib.import_module("rewarm.jax_adapter.plugin").initialize()
        print(time.perf_counter() - before)
        assert "rewarm.cache" not in sys.modules and "rewarm.jax_adapter.activation" not in sys.modules
    """
    assert min(float(program(source).out) for _ in range(3)) < 0.005


@pytest.mark.parametrize("way", ["environment", "config", "set_cache_dir"])
def test_jax_own_directory_is_used_and_native_does_not_write(program: Program, tmp_path: Path, way: str) -> None:
    native = tmp_path / "native"
    source = f"""
        import jax, numpy as np
        if {way!r} == "config":
            jax.config.update("jax_compilation_cache_dir", {str(native)!r})
        if {way!r} == "set_cache_dir":
            from jax.experimental.compilation_cache import compilation_cache
            compilation_cache.set_cache_dir({str(native)!r})
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.jit(lambda x: x @ x)(np.ones((4, 4), np.float32))
    """
    env = {"REWARM": "1"}
    if way == "environment":
        env["JAX_COMPILATION_CACHE_DIR"] = str(native)
    assert program(source, **env).stats["stored"] == 1
    assert [path.name for path in native.iterdir()] == ["rewarm"]
    assert len(entries(native / "rewarm")) == 1
    assert program(source, **env).stats["hits"] == 1


def test_disable_restores_jax_exactly(program: Program, cache: Path) -> None:
    run = program(
        """
        import sys, jax, numpy as np
        from jax._src import compiler
        before, names = compiler.compile_or_get_cached, set(vars(compiler))
        import rewarm
        rewarm.enable(sys.argv[1])
        assert compiler.compile_or_get_cached is not before
        jax.jit(lambda x: x + 1)(np.ones(3))
        rewarm.disable()
        assert compiler.compile_or_get_cached is before and set(vars(compiler)) == names
        jax.jit(lambda x: x + 2)(np.ones(3))
        rewarm.disable()
        rewarm.enable(sys.argv[1])
        jax.jit(lambda x: x + 3)(np.ones(3))
        print([event.outcome for event in rewarm.events()])
        """,
        str(cache),
    )
    assert run.out == "['miss', 'miss']\n"


def test_disable_leaves_what_somebody_put_on_top(program: Program, cache: Path) -> None:
    program(
        """
        import sys, jax, numpy as np, rewarm
        from jax._src import compiler
        rewarm.enable(sys.argv[1])
        ours, calls = compiler.compile_or_get_cached, []
        def wrapper(*args, **kwargs):
            calls.append(1)
            return ours(*args, **kwargs)
        compiler.compile_or_get_cached = wrapper
        rewarm.disable()
        assert compiler.compile_or_get_cached is wrapper
        jax.jit(lambda x: x + 1)(np.ones(3))
        assert len(calls) == 1 and rewarm.stats().requests == 0
        rewarm.enable(sys.argv[1])
        jax.jit(lambda x: x + 2)(np.ones(3))
        assert len(calls) == 2 and rewarm.stats().requests == 1
        """,
        str(cache),
    )


def test_default_directory_is_the_user_own(program: Program, tmp_path: Path) -> None:
    run = program(PLAIN, REWARM="1", XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert run.stats["stored"] > 0
    assert len(entries(tmp_path / "xdg" / "rewarm")) == run.stats["stored"]


def test_child_processes_of_a_run_are_warm_too(program: Program, cache: Path) -> None:
    source = """
        import multiprocessing, jax, numpy as np
        def work(n):
            return float(np.asarray(jax.jit(lambda x: x @ x)(np.ones((n, n), np.float32))).sum())
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(2) as pool:
                print(pool.map(work, [4, 4]))
    """
    assert program(source, REWARM_DIR=str(cache)).out == "[64.0, 64.0]\n"
    assert len(entries(cache)) == 1


def test_going_on_and_off_while_threads_compile(program: Program, cache: Path) -> None:
    """No compile fails or is lost while another thread turns rewarm on and off, and JAX is restored at the end."""
    run = program(
        """
        import sys, threading, jax, numpy as np, rewarm
        from jax._src import compiler
        before = compiler.compile_or_get_cached
        done, failures = [], []
        def work(seed):
            for step in range(15):
                try:
                    number = float(seed * 100 + step)
                    jax.jit(lambda x: x * number)(np.ones(3, np.float32))
                except BaseException as error:
                    failures.append(repr(error))
            done.append(seed)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
        [thread.start() for thread in threads]
        while len(done) < 3:
            rewarm.enable(sys.argv[1])
            rewarm.key_of(jax.jit(lambda x: x - 1), np.ones(2, np.float32))
            rewarm.disable()
        [thread.join() for thread in threads]
        assert failures == [], failures
        assert compiler.compile_or_get_cached is before
        """,
        str(cache),
    )
    assert run.stats["errors"] == 0


def test_a_function_of_ours_that_somebody_puts_back_calls_no_circle(program: Program, cache: Path) -> None:
    program(
        """
        import sys, jax, numpy as np, rewarm
        from jax._src import compiler, config
        rewarm.enable(sys.argv[1])
        ours = compiler.compile_or_get_cached
        rewarm.disable()
        compiler.compile_or_get_cached = ours
        rewarm.enable(sys.argv[1])
        with config.enable_compilation_cache(False):
            jax.jit(lambda x: x + 1)(np.ones(3))
        jax.jit(lambda x: x + 2)(np.ones(3))
        assert rewarm.stats().requests == 1
        rewarm.disable()
        assert compiler.compile_or_get_cached is not ours
        """,
        str(cache),
    )


def test_off_before_the_first_compile_stays_off(program: Program, cache: Path) -> None:
    """JAX comes to the plugin at its first compile; by then the program has had its word."""
    source = """
        import rewarm
        rewarm.disable()
        import jax, numpy as np
        jax.jit(lambda x: x + 1)(np.ones(3, np.float32))
        print(rewarm.stats().requests)
        rewarm.enable()
        jax.jit(lambda x: x + 2)(np.ones(3, np.float32))
        print(rewarm.stats().requests)
    """
    run = program(source, REWARM_DIR=str(cache))
    assert run.out.split() == ["0", "1"]
