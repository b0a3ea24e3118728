"""The pytest plugin's options, in runs of pytest of their own. A small program stands where XLA tunes, and writes as it
does: a temporary file, then renamed; the load side is read by the real compiler elsewhere (test_tuning_flags)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import clean_environment
from cuda_compilers import wanted
from rewarm.autotune import lock, lock_file, targets
from rewarm.autotune.formats import Format, build_of, read, write
from rewarm.autotune.in_tests import Watch, installed_build
from xla_like import COMPILES, PLUGIN, XLA_LIKE, dot_tanh

ROOT = Path(__file__).parent
NEW = ROOT / "autotune" / "samples" / "jax_0_12_0_1"
OLD = ROOT / "autotune" / "samples" / "jax_0_10_2"
IS_NEW = (installed_build() or build_of("0.12.0.1")).default.value == "new"  # type: ignore[union-attr]
HERE = NEW if IS_NEW else OLD
LOAD = HERE / "mlp_128x128" / ("new_load.textproto" if IS_NEW else "legacy_load.textproto")
ONE, OTHER = HERE / "dot_tanh_64x64", HERE / "mlp_128x128"
LOAD_OF = {program: program / LOAD.name for program in (ONE, OTHER)}


class Ran:
    """One run of pytest."""

    def __init__(self, folder: Path, *options: str, code: int = 0, **env: str) -> None:
        command = [sys.executable, "-m", "pytest", *PLUGIN, "-p", "no:cacheprovider", *options]
        done = subprocess.run(
            command, cwd=folder, env=clean_environment(**env), capture_output=True, text=True, timeout=120, check=False
        )
        self.out = done.stdout
        assert done.returncode == code, done.stdout + done.stderr
        self.err = done.stderr


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """Tests that tune what they are told to, in a folder of their own."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:randomly\n")
    (tmp_path / "xla_like.py").write_text(XLA_LIKE)
    (tmp_path / "test_tuning.py").write_text(
        f"""
import pytest, xla_like

def test_nothing():
    xla_like.compiled([])

def test_one():
    xla_like.compiled([{str(LOAD_OF[ONE])!r}])

@pytest.mark.parametrize("again", range(3))
def test_other(again):
    xla_like.compiled([{str(LOAD_OF[OTHER])!r}])
"""
    )
    return tmp_path


def keys(path: Path) -> set[tuple[str, ...]]:
    reading = read(path)
    assert not reading.is_broken, reading.findings
    return {entry.key for entry in reading.entries}


ALL = keys(LOAD_OF[ONE]) | keys(LOAD_OF[OTHER])


def test_what_tests_tuned_is_dumped(suite: Path) -> None:
    ran = Ran(suite, "--rewarm-autotune-dump", "out/tuned.pb")
    assert keys(suite / "out" / "tuned.pb") == ALL
    assert f"out/tuned.pb has {len(ALL)} results, {len(ALL)} of them tuned here" in ran.out
    assert "although" not in ran.out


def test_a_dump_adds_to_what_is_there(suite: Path) -> None:
    write(read(LOAD_OF[OTHER]).entries, suite / "tuned.textproto", Format.NEW_TEXT if IS_NEW else Format.LEGACY_TEXT)
    Ran(suite, "--rewarm-autotune-dump", "tuned.textproto", "-k", "test_one")
    assert keys(suite / "tuned.textproto") == ALL


def test_a_dump_beside_a_compilation_cache_says_what_that_means(suite: Path) -> None:
    ran = Ran(suite, "--rewarm-autotune-dump=a.pb", "-k", "test_one", JAX_COMPILATION_CACHE_DIR=str(suite / "jax"))
    assert "JAX_COMPILATION_CACHE_DIR turns a compilation cache on" in ran.out


def test_a_dump_does_not_overwrite_something_else(suite: Path) -> None:
    (suite / "tuned.pb").write_text("the user's notes\n")
    ran = Ran(suite, "--rewarm-autotune-dump", "tuned.pb", code=4)
    assert "it is not overwritten" in ran.err
    assert (suite / "tuned.pb").read_text() == "the user's notes\n"


def _a_folder(folder: Path) -> str:
    (folder / "tuned.pb").mkdir()
    return "tuned.pb"


def _below_a_file(folder: Path) -> str:
    (folder / "file").write_text("")
    return "file/tuned.pb"


def _a_pipe(folder: Path) -> str:
    os.mkfifo(folder / "tuned.pb")
    return "tuned.pb"


def _of_the_other_family(folder: Path) -> str:
    other = OLD / "mlp_128x128" / "legacy_load.textproto" if IS_NEW else NEW / "mlp_128x128" / "new_load.textproto"
    write(read(other).entries, folder / "tuned.pb", Format.LEGACY_BINARY if IS_NEW else Format.NEW_BINARY)
    return "tuned.pb"


def _a_lock_file(folder: Path) -> str:
    entry = read(LOAD_OF[ONE]).entries[0]
    written = lock_file.written(lock.Lock(targets.device("h200"), "0.12.0.1", (entry,)))
    (folder / "tuning.lock").write_text(written)
    return "tuning.lock"


def _a_link_to_itself(folder: Path) -> str:
    (folder / "tuned.pb").symlink_to("tuned.pb")
    return "tuned.pb"


def _a_link_to_a_lock_file(folder: Path) -> str:
    (folder / "tuned.pb").symlink_to(_a_lock_file(folder))
    return "tuned.pb"


def _nothing(folder: Path) -> str:
    return ""


def _where_nothing_can_be_written(folder: Path) -> str:
    return "/proc/tuned.pb"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (_a_folder, "found a folder"),
        (_below_a_file, "file"),
        (_a_pipe, "found something that is no file"),
        (_of_the_other_family, "found legacy and new"),
        (_where_nothing_can_be_written, "/proc"),
        (_a_lock_file, "found a lock file"),
        (_a_link_to_a_lock_file, "found a lock file"),
        (_a_link_to_itself, "leads back to itself"),
        (_nothing, "--rewarm-autotune-dump: expected a path after it, found an empty value"),
    ],
)
def test_a_dump_that_cannot_be_is_refused_before_the_first_test(
    suite: Path, place: Callable[[Path], str], said: str
) -> None:
    (suite / "conftest.py").write_text("raise SystemExit('the tests have begun')\n")
    ran = Ran(suite, f"--rewarm-autotune-dump={place(suite)}", code=4)
    assert ran.err.startswith("ERROR: rewarm: ")
    assert said in ran.err
    assert "Traceback" not in ran.err
    assert [path.name for path in suite.iterdir() if path.name.startswith(".rewarm")] == []


def test_an_empty_place_to_load_is_wrong_usage(suite: Path) -> None:
    ran = Ran(suite, "--rewarm-autotune-load=", code=4)
    assert "--rewarm-autotune-load: expected a path after it, found an empty value" in ran.err


@pytest.mark.parametrize("is_there", [True, False])
def test_a_dump_through_a_link_goes_to_what_it_leads_to(suite: Path, is_there: bool) -> None:
    form = Format.NEW_TEXT if IS_NEW else Format.LEGACY_TEXT
    link, behind = suite / "tuned.textproto", suite / "kept" / "all.textproto"
    behind.parent.mkdir()
    if is_there:
        write(read(LOAD_OF[OTHER]).entries, behind, form)
    link.symlink_to("kept/all.textproto")
    Ran(suite, "--rewarm-autotune-dump=tuned.textproto", "-k", "test_one")
    assert link.is_symlink()
    assert keys(behind) == (ALL if is_there else keys(LOAD_OF[ONE]))


@pytest.mark.skipif(not IS_NEW, reason="legacy results are found by their own version alone")
def test_what_was_tuned_here_is_dumped_before_what_xla_would_find_loosely(suite: Path) -> None:
    """Of one fusion XLA takes the first that matches, of whichever build it is."""
    there = [replace(one, versions=replace(one.versions, codegen="0" * 16)) for one in read(LOAD_OF[ONE]).entries]
    write(there, suite / "tuned.pb", Format.NEW_BINARY)
    Ran(suite, "--rewarm-autotune-dump=tuned.pb", "-k", "test_one")
    found = read(suite / "tuned.pb").entries
    own = {one.versions.codegen for one in read(LOAD_OF[ONE]).entries}
    assert [one.versions.codegen in own for one in found] == [True, False] * len(there)


@pytest.mark.parametrize("more", [[], ["-n", "1"]], ids=["alone", "xdist"])
def test_a_dump_that_fails_at_the_end_is_no_success(suite: Path, more: list[str]) -> None:
    (suite / "test_z.py").write_text("import pathlib\n\ndef test_it():\n    pathlib.Path('tuned.pb').mkdir()\n")
    ran = Ran(suite, *more, "--rewarm-autotune-dump=tuned.pb", "test_tuning.py", "test_z.py", code=1)
    assert "nothing was dumped: " in ran.out
    assert "failed" not in ran.out


def test_a_worker_that_ends_itself_loses_nothing_that_it_tuned(suite: Path) -> None:
    (suite / "test_z.py").write_text(
        f"import os, xla_like\n\ndef test_ends():\n    xla_like.compiled([{str(LOAD_OF[ONE])!r}])\n    os._exit(0)\n"
    )
    options = ["-n", "1", "--max-worker-restart=0", f"--rewarm-autotune-load={LOAD_OF[OTHER]}"]
    ran = Ran(suite, *options, "--rewarm-autotune-dump=all.pb", "test_z.py", code=1)
    assert keys(suite / "all.pb") == ALL
    assert "1 test tuned 1 fusion although" in ran.out
    assert "(a test that ended its process)" in ran.out


def test_a_forked_child_that_ends_itself_loses_nothing_that_it_tuned(suite: Path) -> None:
    (suite / "test_z.py").write_text(
        f"""
import os, xla_like

def test_forks():
    child = os.fork()
    if not child:
        xla_like.compiled([{str(LOAD_OF[ONE])!r}])
        os._exit(0)
    os.waitpid(child, 0)
"""
    )
    Ran(suite, "--rewarm-autotune-dump=all.pb", "test_z.py")
    assert keys(suite / "all.pb") == keys(LOAD_OF[ONE])


def test_a_dump_of_nothing_writes_nothing(suite: Path) -> None:
    ran = Ran(suite, "--rewarm-autotune-dump", "tuned.pb", "-k", "test_nothing")
    assert not (suite / "tuned.pb").exists()
    assert "no test tuned anything" in ran.out


def test_what_was_loaded_is_not_tuned(suite: Path) -> None:
    ran = Ran(suite, f"--rewarm-autotune-load={LOAD_OF[OTHER]}", "-k", "test_other")
    assert "no test tuned anything" in ran.out
    assert f"{len(keys(LOAD_OF[OTHER]))} results loaded" in ran.out


def test_who_tuned_although_results_were_loaded(suite: Path) -> None:
    ran = Ran(suite, f"--rewarm-autotune-load={LOAD_OF[OTHER]}", "--rewarm-autotune-dump=all.pb")
    assert "1 test tuned 1 fusion although results were loaded" in ran.out
    assert "test_tuning.py::test_one" in ran.out
    assert "never tuned: new or changed in the program" in ran.out
    assert "64x64x32" in ran.out
    assert keys(suite / "all.pb") == ALL


@pytest.mark.parametrize(
    ("change", "why"), [("device", "other device"), ("build", "other build"), ("warps", "unsound: num-warps")]
)
def test_the_reason(suite: Path, change: str, why: str) -> None:
    sound = read(LOAD_OF[OTHER]).entries
    write([changed(read(LOAD_OF[ONE]).entries[0], change), *sound], suite / "old.pb", binary())
    ran = Ran(suite, "--rewarm-autotune-load=old.pb")
    assert f"    {why}" in ran.out
    assert ran.out.count("test_tuning.py::test_one") == 1


def binary() -> Format:
    return Format.NEW_BINARY if IS_NEW else Format.LEGACY_BINARY


def changed(entry: object, change: str) -> object:
    from rewarm.autotune.formats import Versions
    from rewarm.autotune.formats.protobuf import message_class

    assert hasattr(entry, "config")
    if change == "device":
        other = "f568469d2ece8568" if IS_NEW else entry.device.replace("Cores: 132", "Cores: 108")  # type: ignore[attr-defined]
        return replace(entry, device=other)  # type: ignore[type-var]
    if change == "build":
        versions = Versions(codegen="0" * 16, backend="another") if IS_NEW else Versions(entry=44)
        return replace(entry, versions=versions)  # type: ignore[type-var]
    name = "xla.autotuner.BackendConfig" if IS_NEW else "xla.AutotuneResult"
    message = message_class(name).FromString(entry.config)
    message.triton.num_warps = 3
    return replace(entry, config=message.SerializeToString(deterministic=True))  # type: ignore[type-var]


def test_workers_of_xdist_are_gathered(suite: Path) -> None:
    ran = Ran(suite, "-n", "2", f"--rewarm-autotune-load={LOAD_OF[OTHER]}", "--rewarm-autotune-dump=all.pb")
    assert keys(suite / "all.pb") == ALL
    assert "1 test tuned 1 fusion although" in ran.out
    assert "test_tuning.py::test_one" in ran.out


def test_workers_behind_a_wrapper_are_workers_all_the_same(suite: Path) -> None:
    """Their parent is the wrapper's shell, and not who began the run."""
    wrapper = suite / "wrapper"
    wrapper.write_text(f'#!/bin/sh\n{sys.executable} "$@"\nexit $?\n')
    wrapper.chmod(0o755)
    more = (f"--rewarm-autotune-load={LOAD_OF[OTHER]}", "--rewarm-autotune-dump=all.pb")
    ran = Ran(suite, "--dist=load", f"--tx=2*popen//python={wrapper}", *more)
    assert keys(suite / "all.pb") == ALL
    assert "1 test tuned 1 fusion although" in ran.out


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ((), ()),
        pytest.param(("-n1",), (), marks=pytest.mark.campaign),
        pytest.param(("-n1",), ("-n2",), marks=pytest.mark.campaign),
    ],
)
def test_a_pytest_that_a_test_starts_has_a_run_of_its_own(
    outer: tuple[str, ...], inner: tuple[str, ...], suite: Path
) -> None:
    """It obeys its own options, says so in its own report, and what it tunes is not the outer one's."""
    (suite / "inner").mkdir()
    (suite / "inner" / "xla_like.py").write_text(XLA_LIKE)
    (suite / "inner" / "test_inner.py").write_text(
        f"import xla_like\n\ndef test_in_it():\n    xla_like.compiled([{str(LOAD_OF[ONE])!r}])\n"
    )
    (suite / "test_starts.py").write_text(
        f"""
import subprocess, sys

def pytest_in(*options):
    command = [sys.executable, "-m", "pytest", *{PLUGIN!r}, "-p", "no:cacheprovider", *{inner!r}, *options, "inner"]
    return subprocess.run(command, capture_output=True, text=True)

def test_dumps():
    done = pytest_in("--rewarm-autotune-load={LOAD_OF[OTHER]}", "--rewarm-autotune-dump=inner.pb")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 test tuned 1 fusion although" in done.stdout

def test_is_wrong_usage():
    assert pytest_in("--rewarm-autotune-load=not_there.pb").returncode == 4
"""
    )
    more = ("--rewarm-autotune-load", str(LOAD_OF[OTHER]), "--rewarm-autotune-dump=outer.pb")
    ran = Ran(suite, *outer, *more, "--ignore=inner", "test_starts.py")
    assert keys(suite / "inner.pb") == ALL
    assert keys(suite / "outer.pb") == keys(LOAD_OF[OTHER])
    assert "no test tuned anything" in ran.out


@pytest.mark.campaign
def test_a_run_in_the_worker_of_another_plugins_pytest(suite: Path) -> None:
    """Whose variables it has, and so has the pytest that a test of it starts: neither is a worker of the run."""
    (suite / "test_starts.py").write_text(
        "import subprocess, sys\n\ndef test_it():\n"
        f"    command = [sys.executable, '-m', 'pytest', *{PLUGIN!r}, '--rewarm-autotune-dump=inner.pb', '-k', 'one']\n"
        "    assert subprocess.run([*command, 'test_tuning.py']).returncode == 0\n"
    )
    said = {"PYTEST_XDIST_WORKER": "gw0", "PYTEST_XDIST_TESTRUNUID": "0" * 32}
    environment = {**clean_environment(), **said}
    command = [sys.executable, "-m", "pytest", *PLUGIN, "--rewarm-autotune-load", str(LOAD_OF[OTHER]), "test_starts.py"]
    done = subprocess.run(command, cwd=suite, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert keys(suite / "inner.pb") == keys(LOAD_OF[ONE])


@pytest.mark.campaign
def test_a_worker_that_dies_leaves_what_it_had(suite: Path) -> None:
    (suite / "test_z.py").write_text("import os\n\ndef test_dies():\n    os.kill(os.getpid(), 9)\n")
    Ran(suite, "-n", "1", "--max-worker-restart=0", "--rewarm-autotune-dump=all.pb", code=1)
    assert keys(suite / "all.pb") == ALL


@pytest.mark.campaign
def test_shards_on_one_file_lose_nothing(suite: Path) -> None:
    both = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                *PLUGIN,
                "--rewarm-autotune-dump=all.pb",
                "-k",
                k,
            ],
            cwd=suite,
            env=clean_environment(),
            stdout=subprocess.PIPE,
        )
        for k in ("test_one", "test_other")
    ]
    assert [process.communicate(timeout=120) and process.returncode for process in both] == [0, 0]
    assert keys(suite / "all.pb") == ALL


def test_the_flags_that_were_there_stay_and_nothing_is_left_behind(suite: Path, tmp_path: Path) -> None:
    (suite / "conftest.py").write_text("import os\nFLAGS = os.environ['XLA_FLAGS']\nprint('early', FLAGS)\n")
    places = tmp_path / "temporary"
    places.mkdir()
    ran = Ran(suite, "-s", "--rewarm-autotune-dump=a.pb", XLA_FLAGS="--xla_dump_to=/x", TMPDIR=str(places))
    assert "early --xla_dump_to=/x --xla_gpu_" in ran.out
    assert list(places.glob("rewarm-*")) == []


@pytest.mark.parametrize("flag", ["xla_gpu_load_autotune_results_from", "xla_gpu_per_fusion_autotune_cache_dir"])
def test_two_ways_together_are_refused(suite: Path, flag: str) -> None:
    ran = Ran(suite, "--rewarm-autotune-dump=a.pb", code=4, XLA_FLAGS=f"--{flag}=/somewhere")
    assert ran.err.startswith("ERROR: rewarm: XLA_FLAGS: ")
    assert flag in ran.err
    assert "take the flag out" in ran.err or "not both" in ran.err


@pytest.mark.parametrize(("content", "said"), [("", "empty"), ("version: 3\n", "header-only")])
def test_a_file_that_cannot_be_loaded_ends_the_run(suite: Path, content: str, said: str) -> None:
    (suite / "bad.textproto").write_text(content)
    assert said in Ran(suite, "--rewarm-autotune-load=bad.textproto", code=4).err


def test_paths_of_a_test_under_bazel(suite: Path, tmp_path: Path) -> None:
    data, kept = tmp_path / "runfiles" / "main" / "tuning", tmp_path / "outputs"
    data.mkdir(parents=True)
    kept.mkdir()
    (data / LOAD.name).write_bytes(LOAD_OF[OTHER].read_bytes())
    ran = Ran(
        suite,
        f"--rewarm-autotune-load=TEST_WORKSPACE/tuning/{LOAD.name}",
        "--rewarm-autotune-dump=TEST_UNDECLARED_OUTPUTS_DIR/autotune.textproto",
        TEST_SRCDIR=str(tmp_path / "runfiles"),
        TEST_WORKSPACE="main",
        TEST_UNDECLARED_OUTPUTS_DIR=str(kept),
    )
    assert "1 test tuned 1 fusion" in ran.out
    assert keys(kept / "autotune.textproto") == ALL
    unset = Ran(suite, "--rewarm-autotune-dump=TEST_UNDECLARED_OUTPUTS_DIR/a.pb", code=4)
    assert "expected the variable TEST_UNDECLARED_OUTPUTS_DIR" in unset.err


def test_an_installed_plugin_costs_next_to_nothing() -> None:
    look = (
        "import pytest, _pytest.pytester, sys, time; before = set(sys.modules); b = time.perf_counter();"
        "import rewarm.pytest_plugin; t = time.perf_counter() - b;"
        "print(t, *sorted(name for name in set(sys.modules) - before))"
    )
    runs = [subprocess.check_output([sys.executable, "-c", look], env=clean_environment(), text=True) for _ in range(3)]
    assert min(float(run.split()[0]) for run in runs) < 0.005
    assert {name for run in runs for name in run.split()[1:]} <= {"rewarm", "rewarm.pytest_plugin", "rewarm.errors"}


def test_without_the_options_nothing_of_it_is_loaded(suite: Path) -> None:
    (suite / "test_nothing.py").write_text(
        "import sys, os\n\ndef test_it(request):\n"
        "    assert not {'rewarm.autotune', 'rewarm.settings', 'jax', 'google.protobuf'} & set(sys.modules)\n"
        "    assert not request.config.pluginmanager.has_plugin('rewarm-autotune')\n"
        "    assert 'XLA_FLAGS' not in os.environ\n"
    )
    Ran(suite, "test_nothing.py")


def test_a_watch_sees_what_comes_right_after_a_look(tmp_path: Path) -> None:
    watch = Watch(tmp_path)
    assert watch.changed() == []
    for number in range(200):
        place = tmp_path / f"{number % 3}" / f"{number}.pb"
        place.parent.mkdir(exist_ok=True)
        waiting = tmp_path / ".being-written"
        waiting.write_text(str(number))
        waiting.rename(place)
        assert watch.changed() == [place]
        assert watch.changed() == []
    time.sleep(0.1)
    assert watch.changed() == watch.changed() == []
    waiting.write_text("again")
    waiting.rename(place)
    assert watch.changed() == [place]


def test_a_watch_passes_over_what_is_being_written(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "1").write_text("half")
    (tmp_path / ".2.tmp").write_text("half")
    assert Watch(tmp_path).changed() == []
    assert json.dumps([])  # a folder that goes is an error for the caller to see
    with pytest.raises(FileNotFoundError):
        Watch(tmp_path / "gone").changed()


@pytest.mark.contract
def test_the_real_compiler_is_given_what_is_loaded(tmp_path: Path) -> None:
    cuda = wanted()
    entries = dot_tanh(cuda.jax)
    write(entries, tmp_path / "load.pb", binary())
    (tmp_path / "compiles.py").write_text(COMPILES)
    (tmp_path / "test_compiles.py").write_text("import compiles\n\ndef test_it():\n    assert compiles.compiled()\n")
    env = cuda.environment(XLA_FLAGS="--xla_gpu_require_complete_aot_autotune_results=true")
    loaded = Ran(tmp_path, "--rewarm-autotune-load=load.pb", **env)
    assert "1 passed" in loaded.out
    assert "no test tuned anything" in loaded.out
