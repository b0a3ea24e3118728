"""`rewarm doctor` names each fault that is put there for it, and says nothing of one that is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from examined import Examined, bare_python, doctor

import rewarm
from conftest import clean_environment, entries, execute, first
from rewarm.envelope import open_entry, seal
from rewarm.identity import machine_of_executable
from rewarm.small_files import PRIVATE
from rewarm.trials import condemned

PROGRAM = """
import jax, numpy as np
jax.jit(lambda x: x @ x + 1)(np.ones((4, 4), np.float32))
"""
SOURCES = Path(rewarm.__file__).parent.parent


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache directory with one entry, made by a real program."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "program.py").write_text(PROGRAM)
    env = clean_environment(REWARM_DIR=str(folder / "cache"))
    assert execute([sys.executable, "program.py"], env=env, cwd=folder).code == 0
    return folder / "cache"


@pytest.fixture
def copy(real: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    shutil.copytree(real, tmp_path / "copy")
    return tmp_path / "copy"


def installed(site: Path, name: str, *, plugin: str = "") -> None:
    """Leave the record of a distribution, as an installer does."""
    folder = site / f"{name.replace('-', '_')}-1.2.3.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n")
    if plugin:
        (folder / "entry_points.txt").write_text(f"[jax_plugins]\n{plugin}\n")


# -- all well ------------------------------------------------------------------------------------------------------


def test_a_sound_place_is_all_well(real: Path) -> None:
    found = doctor("--dir", str(real), quick=False, REWARM_DIR=str(real))
    assert [check for check in found.checks if check["verdict"] != "ok"] == []
    assert "one process compiled a small program in" in found.the("end to end")[1]
    assert found.the("file system")[1].endswith("keeps what the store needs: writes, renames, times, names, locks")
    assert found.the("entries") == ("ok", "the 1 newest entries are sound, and for this CPU")
    assert "1 requests, 0 hits" in found.the("last run")[1]
    assert [path.name for path in real.parent.iterdir() if "doctor" in path.name] == []
    assert [path.name for path in real.iterdir() if "doctor" in path.name] == []


def test_its_children_leave_the_metrics_and_logs_of_the_user_alone(real: Path, tmp_path: Path) -> None:
    """They would put their numbers in the place of his program's."""
    kept = {"REWARM_METRICS_TEXTFILE": tmp_path / "job.prom", "REWARM_LOG": tmp_path / "job.jsonl"}
    for path in kept.values():
        path.write_text("of the user's program\n")
    (tmp_path / "train.py").write_text(PROGRAM)
    asked = {
        "REWARM_METRICS_TEXTFILE": str(kept["REWARM_METRICS_TEXTFILE"]),
        "REWARM_LOG": f"json:{kept['REWARM_LOG']}",
        "REWARM_OPENTELEMETRY": "1",
    }
    found = doctor("--dir", str(real), "--", "train.py", quick=False, cwd=tmp_path, REWARM_DIR=str(real), **asked)
    assert found.problems() == []
    assert {path.read_text() for path in kept.values()} == {"of the user's program\n"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.jsonl", "job.prom", "train.py"]


def test_the_text_says_what_to_do(tmp_path: Path) -> None:
    run = execute(
        [sys.executable, "-m", "rewarm", "doctor", "--quick", "--dir", str(tmp_path / "cache")],
        env=clean_environment(),
        cwd=tmp_path,
    )
    assert run.code == 0, run.err
    lines = run.out.splitlines()
    assert any(line.startswith("note     switch") for line in lines)
    assert any("→ set REWARM=1 or REWARM_DIR=PATH" in line for line in lines)
    assert lines[-1] == "no problems, 2 notes"
    assert list(tmp_path.iterdir()) == [], "looking makes nothing"


def test_wrong_usage_is_exit_code_2() -> None:
    for wrong in (["--dir", "s3://x"], ["--frob"], ["--python"]):
        run = execute([sys.executable, "-m", "rewarm", "doctor", *wrong], env=clean_environment(), cwd=Path("/"))
        assert (run.code, run.out) == (2, "")


# -- off, and what the environment says ----------------------------------------------------------------------------


def test_off(real: Path) -> None:
    found = doctor("--dir", str(real))
    assert found.the("switch") == ("note", "nothing in the environment turns rewarm on")
    assert found.problems() == []
    off = doctor(REWARM_DIR=str(real), REWARM="0").the("switch")
    assert off == ("problem", "REWARM_DIR is set, and REWARM turns rewarm off")
    assert doctor("--dir", str(real), REWARM="maybe").the("switch")[0] == "problem"


def test_values_that_do_not_parse(real: Path) -> None:
    found = doctor("--dir", str(real), REWARM="1", REWARM_MIN_COMPILE_SECONDS="soon")
    assert found.the("settings") == (
        "problem",
        "REWARM_MIN_COMPILE_SECONDS: expected seconds, 0 or more, found 'soon'; rewarm stays off",
    )


def test_unknown_variables(real: Path) -> None:
    found = doctor("--dir", str(real), REWARM="1", REWARM_MIN_COMPILE_SECOND="0", REWARM_DIRECTORY="/x")
    assert [check["verdict"] for check in found.of("variables")] == ["problem", "problem"]
    assert "did you mean REWARM_MIN_COMPILE_SECONDS?" in found.of("variables")[1]["found"]
    assert "REWARM_SALT" in found.of("variables")[0]["advice"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--xla_dump_to=/tmp/nowhere", "ask the compiler to write: --xla_dump_to=/tmp/nowhere"),
        ("--xla_cpu_enable_fast_math=false --xla_dump_hlo_as_text=true", "ask the compiler to write"),
        ("--xla_fuel=10", "no program has a key"),
    ],
)
def test_flags_that_go_past_the_cache(real: Path, flags: str, words: str) -> None:
    found = doctor("--dir", str(real), REWARM="1", XLA_FLAGS=flags)
    verdict, told = found.the("XLA_FLAGS")
    assert (verdict, words in told) == ("problem", True)
    assert doctor("--dir", str(real), REWARM="1", XLA_FLAGS="--xla_dump_hlo_as_text=false").of("XLA_FLAGS") == []


def test_the_native_cache_beside_rewarm(real: Path, tmp_path: Path) -> None:
    native = str(tmp_path / "native")
    both = doctor(REWARM_DIR=str(real), JAX_COMPILATION_CACHE_DIR=native).the("native cache")
    assert both[0] == "note"
    assert f"{real} is used, and the other is not written" in both[1]
    alone = doctor(JAX_COMPILATION_CACHE_DIR=native).the("native cache")
    assert alone[0] == "problem"
    assert "JAX's own cache serves programs there, and not rewarm" in alone[1]
    served = doctor(REWARM="1", JAX_COMPILATION_CACHE_DIR=native)
    assert served.told["directory"] == f"{native}/rewarm"
    assert served.the("native cache")[0] == "ok"
    off = doctor(REWARM_DIR=str(real), JAX_ENABLE_COMPILATION_CACHE="false").the("native cache")
    assert off == ("problem", "JAX_ENABLE_COMPILATION_CACHE turns caching off, rewarm's too")


# -- the Python ----------------------------------------------------------------------------------------------------


def test_rewarm_not_installed_in_this_python(tmp_path: Path) -> None:
    python = bare_python(tmp_path / "bare", packages=False)
    found = doctor("--dir", str(tmp_path / "cache"), "--python", str(python), quick=False)
    assert found.the("python")[0] == "problem"
    assert found.the("python")[1].startswith(f"rewarm is not installed in {python}")
    assert found.the("jax") == ("problem", f"JAX is not installed in {python}")
    assert found.the("end to end")[0] == "note"


def test_rewarm_that_can_be_imported_and_has_no_entry_point(tmp_path: Path) -> None:
    python = bare_python(tmp_path / "bare", packages=True)
    found = doctor("--dir", str(tmp_path / "cache"), "--python", str(python), quick=False, PYTHONPATH=str(SOURCES))
    assert found.the("python")[0] == "problem"
    assert "is not installed there as a package" in found.the("python")[1]
    assert found.the("jax")[0] == "ok"
    verdict, words = found.the("end to end")
    assert (verdict, words) == ("problem", "rewarm served no program: it never came on"), "as said"


def test_a_python_that_is_none(tmp_path: Path) -> None:
    found = doctor("--dir", str(tmp_path), "--python", str(tmp_path / "nowhere"))
    assert "cannot be run" in found.the("python")[1]
    found = doctor("--dir", str(tmp_path), "--python", "/bin/false")
    assert found.the("python")[0] == "problem"


def startup(tmp_path: Path, code: str) -> dict[str, str]:
    """An environment whose Python runs this at each start."""
    folder = tmp_path / "startup"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(textwrap.dedent(code))
    return {"PYTHONPATH": str(folder)}


def test_a_jax_whose_compile_step_is_another(real: Path, tmp_path: Path) -> None:
    env = startup(
        tmp_path,
        """
        import jax._src.compiler as compiler
        compiler.compile_or_get_cached = lambda backend, computation, more: None
        """,
    )
    found = doctor("--dir", str(real), **env)
    verdict, words = found.the("jax")
    assert verdict == "problem"
    assert "the compile step is not where rewarm knows it" in words
    assert any("is imported before the program runs" in check["found"] for check in found.of("startup files"))


def test_a_jax_that_cannot_be_imported(real: Path, tmp_path: Path) -> None:
    (tmp_path / "broken" / "jax").mkdir(parents=True)
    (tmp_path / "broken" / "jax" / "__init__.py").write_text("raise ImportError('no libgomp')")
    found = doctor("--dir", str(real), PYTHONPATH=str(tmp_path / "broken"))
    assert found.the("jax") == ("problem", "JAX cannot be imported: ImportError: no libgomp")


def test_startup_files_that_change_settings(real: Path, tmp_path: Path) -> None:
    env = startup(tmp_path, "import os\nos.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '60'\n")
    found = doctor("--dir", str(real), **env)
    note, problem = found.of("startup files")
    assert note["found"].endswith(
        "runs at each start of this Python and speaks of JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"
    )
    assert problem["verdict"] == "problem"
    assert "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS from 'unset' to '60'" in problem["found"]


def test_a_pth_file_that_imports_jax(real: Path, tmp_path: Path) -> None:
    python = bare_python(tmp_path / "bare", packages=False)
    site = next((tmp_path / "bare" / "lib").glob("python*/site-packages"))
    (site / "speedup.pth").write_text("/some/jax/folder\n# import jax\nimport os; os.environ['REWARM_DIR'] = '/x'\n")
    found = doctor("--dir", str(real), "--python", str(python))
    assert (
        found.the("startup files")[1]
        == f"{site / 'speedup.pth'} runs at each start of this Python and speaks of REWARM_DIR"
    )


def test_another_plugin_and_libraries_that_set_the_cache(real: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    installed(site, "other-cache", plugin="other = other_cache.plugin")
    installed(site, "jax-cuda13-plugin", plugin="xla_cuda13 = jax_plugins.xla_cuda13")
    installed(site, "MaxText")
    (site / "other_cache").mkdir()
    (site / "other_cache" / "plugin.py").write_text("def initialize():\n    pass\n")
    found = doctor("--dir", str(real), PYTHONPATH=str(site))
    assert found.the("plugins")[1].startswith("other-cache has a plugin of JAX, other = other_cache.plugin")
    assert found.the("libraries")[1].startswith("maxtext 1.2.3 has a say in JAX's cache: look at jax_cache_dir")


def test_a_module_that_sets_options_of_jax(real: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import jax\njax.config.update('jax_compilation_cache_dir', '/elsewhere')\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 5.0)\nprint('chatty')\n"
    )
    (tmp_path / "off.py").write_text("import jax\njax.config.update('jax_enable_compilation_cache', False)\n")
    (tmp_path / "good.py").write_text("import jax\n")
    (tmp_path / "bad.py").write_text("raise SystemExit('no')\n")

    def imported(module: str) -> tuple[str, str]:
        return doctor("--dir", str(real), "--import", module, cwd=tmp_path).the("import")

    verdict, words = imported("mine")
    assert verdict == "problem"
    assert "jax_compilation_cache_dir from None to '/elsewhere'" in words
    assert "jax_persistent_cache_min_compile_time_secs from 1.0 to 5.0" in words
    assert imported("off")[1].startswith("importing the module turns caching off: jax_enable_compilation_cache")
    assert imported("good") == ("ok", "importing the module changes no option of JAX's cache")
    assert imported("bad") == ("problem", "the module cannot be imported: SystemExit: no")
    assert "ModuleNotFoundError" in imported("nowhere")[1]


# -- the directory -------------------------------------------------------------------------------------------------


def mounted(mount: str) -> tuple[str, ...]:
    """A prefix that runs a command after mounting something, in a namespace of its own; skips where not allowed."""
    for unshare in (("unshare", "--mount"), ("unshare", "--map-root-user", "--mount")):
        trial = [*unshare, "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /mnt"]
        if shutil.which("unshare") and subprocess.run(trial, capture_output=True, check=False).returncode == 0:
            return (*unshare, "sh", "-c", f'{mount} && exec "$0" "$@"')
    pytest.skip("no right to mount, not even in a namespace of its own")


def test_a_directory_that_may_not_be_written_to(copy: Path) -> None:
    prefix = mounted(f"mount -t tmpfs tmpfs {copy} && mkdir {copy}/ab && mount -o remount,ro {copy}")
    found = doctor("--dir", str(copy), prefix=prefix, quick=False)
    verdict, words = found.the("directory")
    assert verdict == "problem"
    assert words == f"{copy} cannot be written to: Read-only file system; entries are read, and new ones are not stored"
    assert found.the("end to end")[0] == "note"
    within = doctor("--dir", str(copy / "deeper"), prefix=prefix)
    assert within.the("directory")[1] == f"{copy / 'deeper'} cannot be made: Read-only file system"


def test_what_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert doctor("--dir", str(tmp_path / "file")).the("directory") == (
        "problem",
        f"{tmp_path / 'file'} is not a directory",
    )


def test_a_directory_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    verdict, words = doctor("--dir", str(tmp_path)).the("directory")
    assert (verdict, "is not empty and not rewarm's so far" in words) == ("note", True)


def test_no_room(copy: Path) -> None:
    prefix = mounted(f"mount -t tmpfs -o size=128k tmpfs {copy}")
    assert doctor("--dir", str(copy), prefix=prefix).the("room") == (
        "problem",
        "1 MiB cannot be written: No space left on device",
    )
    prefix = mounted(f"mount -t tmpfs -o size=8m tmpfs {copy}")
    assert (
        doctor("--dir", str(copy), prefix=prefix)
        .the("room")[1]
        .startswith(("only 7 MB are free", "only 8 MB are free"))
    )
    prefix = mounted(f"mount -t tmpfs -o size=4g,nr_inodes=100 tmpfs {copy}")
    assert doctor("--dir", str(copy), prefix=prefix).the("room")[1].endswith("more files can be made")


def test_a_directory_that_others_may_write_to(copy: Path) -> None:
    copy.chmod(0o777)
    open_to_all = doctor("--dir", str(copy))
    assert open_to_all.the("owner")[0] == "problem"
    assert "an entry is code" in open_to_all.the("owner")[1]
    trusted = doctor("--dir", str(copy), REWARM_SHARED="1")
    assert trusted.the("owner")[0] == "note"
    copy.chmod(0o700)
    assert doctor("--dir", str(copy)).the("owner") == ("ok", "nobody else may write to the directory")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a directory another user's")
def test_a_directory_of_another_user(copy: Path) -> None:
    os.chown(copy, 12345, 12345)
    verdict, words = doctor("--dir", str(copy)).the("owner")
    assert (verdict, "12345" in words) == ("problem", True)


def preloaded(tmp_path: Path, source: str) -> dict[str, str]:
    """An environment in which a function of the C library is another: a file system that breaks its word."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "liar.c").write_text(source)
    library = tmp_path / "liar.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "liar.c"], check=True, timeout=60)
    return {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize(
    ("source", "verdict", "words"),
    [
        (
            "#include <errno.h>\nint flock(int d, int o) { errno = ENOLCK; return -1; }",
            "note",
            "locking fails (No locks available): the bounds can be passed",
        ),
        ("int flock(int d, int o) { return 0; }", "note", "a lock does not keep another out"),
        (
            "#include <time.h>\nint utimensat(int d, const char *p, const struct timespec t[2], int f) { return 0; }\n"
            "int futimens(int d, const struct timespec t[2]) { return 0; }",
            "note",
            "times that are set are not kept: what was used last is not known",
        ),
        (
            "#include <errno.h>\nint rename(const char *a, const char *b) { errno = EXDEV; return -1; }\n"
            "int renameat(int x, const char *a, int y, const char *b) { errno = EXDEV; return -1; }",
            "problem",
            "renaming over a file fails (Invalid cross-device link): an entry cannot be replaced",
        ),
    ],
)
def test_a_file_system_that_breaks_its_word(copy: Path, tmp_path: Path, source: str, verdict: str, words: str) -> None:
    found = doctor("--dir", str(copy), **preloaded(tmp_path, source)).the("file system")
    assert (found[0], words in found[1]) == (verdict, True), found


# -- bounds and thresholds -----------------------------------------------------------------------------------------


def test_bounds_that_keep_nothing(copy: Path) -> None:
    size = entries(copy)[0].stat().st_size
    assert doctor("--dir", str(copy), REWARM_MAX_SIZE="0").the("bounds") == (
        "problem",
        "max_size is 0: nothing is looked up or stored",
    )
    assert doctor("--dir", str(copy), JAX_COMPILATION_CACHE_MAX_SIZE="0").the("bounds")[0] == "problem"
    small = doctor("--dir", str(copy), REWARM_MAX_SIZE=str(size - 1)).the("bounds")
    assert small == ("problem", f"max_size is {size - 1} bytes, and the largest entry has {size}: it can never stay")
    assert doctor("--dir", str(copy), REWARM_MAX_SIZE=str(size)).the("bounds")[0] == "ok"


STARVE = [
    ("REWARM_MIN_COMPILE_SECONDS", "100", "compiled faster than min_compile_seconds"),
    ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "100", "compiled faster than min_compile_seconds"),
    ("REWARM_MIN_ENTRY_BYTES", "100000000", "smaller than min_entry_bytes"),
]


@pytest.mark.parametrize("threshold", first(1, STARVE), ids=lambda threshold: threshold[0])
def test_thresholds_that_starve_it(tmp_path: Path, threshold: tuple[str, str, str]) -> None:
    name, value, reason = threshold
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {"REWARM_DIR": str(tmp_path / "cache"), name: value}
    assert execute([sys.executable, "program.py"], env=clean_environment(**env), cwd=tmp_path).code == 0
    found = doctor(**env)
    verdict, words = found.the("thresholds")
    assert verdict == "problem"
    assert f"of compiling in the last run were not stored: {reason} (1 programs)" in words
    plain = doctor("--dir", str(tmp_path / "other"), **{name: value}).the("thresholds")
    assert (plain[0], "which hardly any program does" in plain[1]) == ("problem", True), "though no run says so"
    less = {name: "1000" if "BYTES" in name else "1"}
    assert doctor("--dir", str(tmp_path / "other"), **less).the("thresholds")[0] == "note"


# -- entries and runs ----------------------------------------------------------------------------------------------


def reseal(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Put a changed executable under the same key, in an entry that is sound."""
    entry = open_entry(path.read_bytes(), path.name)
    sections = {section.name: entry.section(section.name) for section in entry.header.sections}
    path.write_bytes(seal(entry.header, {**sections, "executable": change(sections["executable"])}))


def foreign(path: Path) -> str:
    """Make an entry one that was made for a CPU with another instruction set; returns its name."""
    raw = open_entry(path.read_bytes(), path.name).section("executable")
    made_for = machine_of_executable(raw)
    assert made_for is not None
    words = [word for word in made_for.features if len(word) >= 3 and raw.count(f"+{word},".encode()) == 1]
    if not words:
        pytest.skip("this CPU's executables name no feature")
    other = "zz9" + "z" * (len(words[0]) - 3)
    reseal(path, lambda raw: raw.replace(f"+{words[0]},".encode(), f"+{other},".encode()))
    return other


def test_entries_for_another_cpu(copy: Path) -> None:
    word = foreign(entries(copy)[0])
    verdict, words = doctor("--dir", str(copy)).the("entries")
    assert verdict == "problem"
    assert f"were made for a CPU with what this one lacks ({word})" in words


def test_entries_for_another_cpu_that_a_run_met(copy: Path, tmp_path: Path) -> None:
    foreign(entries(copy)[0])
    (tmp_path / "program.py").write_text(PROGRAM)
    done = execute([sys.executable, "program.py"], env=clean_environment(REWARM_DIR=str(copy)), cwd=tmp_path)
    assert done.code == 0
    found = doctor("--dir", str(copy))
    assert ["made for another CPU" in check["found"] for check in found.of("entries")] == [False, True]


def test_entries_that_are_not_usable(copy: Path) -> None:
    entries(copy)[0].write_bytes(b"RWRM")
    verdict, words = doctor("--dir", str(copy)).the("entries")
    assert (verdict, words) == (
        "problem",
        "1 of the 1 newest entries are not usable: digest does not match: truncated or damaged",
    )


@pytest.mark.parametrize("what", ["folder", "fifo", "link"])
def test_something_else_in_the_place_of_an_entry(copy: Path, what: str) -> None:
    entry = entries(copy)[0]
    aside = entry.rename(copy / "aside")
    {"folder": entry.mkdir, "fifo": lambda: os.mkfifo(entry), "link": lambda: entry.symlink_to(aside)}[what]()
    verdict, words = doctor("--dir", str(copy)).the("entries")
    assert (verdict, words[:52]) == ("problem", "in the place of 1 entries there is something else: a")


def test_keys_that_are_refused(copy: Path) -> None:
    (copy / "trials").mkdir(exist_ok=True)
    key = entries(copy)[0].name
    deaths = [condemned.Line(key, key, "jit_f", "loading it ended it", time.time(), "here", "condemned")] * 2
    condemned.save(copy / "trials", deaths, PRIVATE)
    first, second = doctor("--dir", str(copy)).of("entries")
    assert first["verdict"] == "problem"
    assert first["found"] == "1 keys are neither loaded nor stored, since that ended a process more than once: jit_f"
    assert second["verdict"] == "ok"


def test_a_run_whose_programs_were_not_stored(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    env = {"REWARM_DIR": str(tmp_path / "cache"), "XLA_FLAGS": f"--xla_dump_to={tmp_path / 'dump'}"}
    assert execute([sys.executable, "program.py"], env=clean_environment(**env), cwd=tmp_path).code == 0
    found = doctor("--dir", str(tmp_path / "cache"))
    (check,) = found.of("not stored")
    assert "in the last run were not stored: the options ask the compiler to write" in check["found"]
    assert check["advice"] == "take the dump options out of XLA_FLAGS"


# -- running a program ---------------------------------------------------------------------------------------------


def watched(tmp_path: Path, source: str, *arguments: str, **env: str) -> Examined:
    """Examine a program that is run for it."""
    (tmp_path / "train.py").write_text(textwrap.dedent(source))
    place = ("--dir", str(tmp_path / "cache"))
    return doctor(*place, "--", "train.py", *arguments, cwd=tmp_path, **env)


LATE = """
    import sys, jax, numpy as np, rewarm
    x = np.ones((4, 4), np.float32)
    print("the program's own words", sys.argv[1:])
    def early(x): return x @ x
    def later(x): return x @ x + 1
    jax.jit(early)(x)
    rewarm.enable("cache")
    jax.jit(later)(x)
"""


def test_rewarm_that_comes_on_after_the_first_compile(tmp_path: Path) -> None:
    found = watched(tmp_path, LATE, "--steps", "3")
    verdict, words = found.the("compiled past rewarm")
    assert verdict == "problem"
    assert words.startswith("1 programs were compiled before rewarm was on, in ")
    assert "early" in words
    assert "later" not in words
    assert "JAX asked for 2 programs, of which rewarm served 1, 0 by hits" in found.the("program")[1]
    assert "the program's own words ['--steps', '3']" in found.run.err


def test_rewarm_that_is_never_on(tmp_path: Path) -> None:
    found = watched(tmp_path, PROGRAM)
    verdict, words = found.the("compiled past rewarm")
    assert (verdict, words.startswith("rewarm was never on: all 1 programs")) == ("problem", True)


def test_rewarm_that_goes_off(tmp_path: Path) -> None:
    source = LATE.replace('rewarm.enable("cache")', "rewarm.disable()")
    found = watched(tmp_path, source, REWARM_DIR=str(tmp_path / "cache"))
    assert "1 programs were compiled while rewarm was off" in found.the("compiled past rewarm")[1]


@pytest.mark.parametrize("library", [True, False])
def test_a_program_or_a_library_that_turns_jax_s_switch_off(tmp_path: Path, library: bool) -> None:
    line = "import jax; jax.config.update('jax_enable_compilation_cache', False)\n"
    (tmp_path / "some_library.py").write_text(line)
    source = ("import some_library\n" if library else line) + textwrap.dedent(PROGRAM)
    verdict, words = watched(tmp_path, source, REWARM_DIR=str(tmp_path / "cache")).the("compiled past rewarm")
    assert verdict == "problem"
    assert words.startswith("jax_enable_compilation_cache was set to False by the program, or by a library")


def test_a_program_that_is_served_whole(tmp_path: Path) -> None:
    found = watched(tmp_path, PROGRAM, REWARM_DIR=str(tmp_path / "cache"))
    assert found.of("compiled past rewarm") == []
    assert found.problems() == []
    assert found.the("program") == (
        "ok",
        "it ended with exit code 0; JAX asked for 1 programs, of which rewarm served 1, 0 by hits",
    )
    again = watched(tmp_path, PROGRAM, REWARM_DIR=str(tmp_path / "cache"))
    assert "rewarm served 1, 1 by hits" in again.the("program")[1]


def test_a_program_that_sets_its_own_threshold(tmp_path: Path) -> None:
    source = 'import jax\njax.config.update("jax_persistent_cache_min_compile_time_secs", 50)\n' + PROGRAM
    found = watched(tmp_path, source, REWARM_DIR=str(tmp_path / "cache"))
    told = [check["found"] for check in found.of("thresholds")]
    assert any("of compiling in the program were not stored: compiled faster than" in one for one in told), told


def test_a_program_that_leaves_programs_to_jax(tmp_path: Path) -> None:
    source = "import jax\njax.config.update('jax_compilation_cache_expect_pgle', True)\n" + PROGRAM
    found = watched(tmp_path, source, REWARM_DIR=str(tmp_path / "cache"))
    assert found.of("left to JAX")[0]["found"].startswith("1 programs in the program were left to JAX: ")
    assert found.of("compiled past rewarm") == []


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise SystemExit(7)", "it ended with exit code 7, and JAX compiled nothing in it"),
        ("print(1)", "it ended with exit code 0, and JAX compiled nothing in it"),
        (PROGRAM + "import os; os.kill(os.getpid(), 9)", "it was ended by signal 9; JAX asked for 1 programs"),
    ],
)
def test_programs_that_end_otherwise(tmp_path: Path, source: str, words: str) -> None:
    verdict, told = watched(tmp_path, source, REWARM_DIR=str(tmp_path / "cache")).the("program")
    assert (verdict, told) == ("note", words)


def test_a_module_and_a_path_of_imports_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "imports" / "package").mkdir(parents=True)
    (tmp_path / "imports" / "package" / "train.py").write_text(PROGRAM)
    found = doctor(
        "--dir",
        str(tmp_path / "cache"),
        "--",
        "-m",
        "package.train",
        cwd=tmp_path,
        PYTHONPATH=str(tmp_path / "imports"),
        REWARM_DIR=str(tmp_path / "cache"),
    )
    assert "rewarm served 1" in found.the("program")[1]


# -- the trial -----------------------------------------------------------------------------------------------------


def test_a_trial_that_stores_nothing(tmp_path: Path) -> None:
    found = doctor("--dir", str(tmp_path / "cache"), quick=False, REWARM_MIN_COMPILE_SECONDS="100").the("end to end")
    assert found == ("note", "the second process found 0 of 1 programs: compiled faster than min_compile_seconds")
    dumping = doctor("--dir", str(tmp_path / "cache"), quick=False, XLA_FLAGS=f"--xla_dump_to={tmp_path / 'dump'}")
    assert dumping.the("end to end")[0] == "problem"
    assert "the options ask the compiler to write" in dumping.the("end to end")[1]


def test_looking_is_quick(real: Path) -> None:
    """Two starts of Python and one of JAX; a minute would be no look."""
    began = time.monotonic()
    found: Any = doctor("--dir", str(real))
    assert found.checks
    assert time.monotonic() - began < 60
