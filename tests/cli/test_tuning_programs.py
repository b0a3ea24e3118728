"""`rewarm autotune env` and `rewarm autotune run`: real commands, which write results as XLA does, and the real
compiler, which reads them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Run, clean_environment, execute
from cuda_compilers import Compiler, wanted
from rewarm.autotune.formats import Family, Format, read, write
from rewarm.autotune.locating import places
from rewarm.autotune.places import PATIENCE_OF_PROGRAMS
from rewarm.cli.autotune.programs import place_for
from xla_like import COMPILES, SAMPLES, XLA_LIKE, dot_tanh

ONE = SAMPLES / "jax_0_12_0_1" / "dot_tanh_64x64" / "new_load.pb"
OTHER = SAMPLES / "jax_0_12_0_1" / "mlp_128x128" / "new_load.pb"
H200 = ("--target", "h200", "--build", "tensorflow-2.20")
NAME = "tensorflow-2.20-a4baa03864db7cfb"


def rewarm(folder: Path, *words: str, **env: str) -> Run:
    return execute([sys.executable, "-m", "rewarm", *words], env=clean_environment(**env), cwd=folder)


def run(folder: Path, *words: str, **env: str) -> Run:
    """`rewarm autotune run` for a described H200."""
    return rewarm(folder, "autotune", "run", "--dir", "cache", *H200, *words, **env)


def told(ran: Run) -> dict[str, object]:
    """What --json printed."""
    value = json.loads(ran.err.splitlines()[-1])
    assert isinstance(value, dict)
    return value


@pytest.fixture
def cuda() -> Compiler:
    return wanted()


@pytest.fixture
def tunes(tmp_path: Path) -> str:
    """A program that tunes what it is given, and then does what it is told."""
    (tmp_path / "xla_like.py").write_text(XLA_LIKE)
    program = tmp_path / "tunes.py"
    program.write_text(
        "import os, sys, xla_like\nprint('tuned', xla_like.compiled(sys.argv[1:-1]), flush=True)\nexec(sys.argv[-1])\n"
    )
    return str(program)


def names(folder: Path) -> list[str]:
    """The fusions that lie in the one place of a cache directory."""
    (place,) = places(folder / "cache")
    return sorted(str(entry.fusion)[:6] for entry in place.entries().entries)


def test_what_a_program_tunes_is_there_for_the_next_one(tmp_path: Path, tunes: str) -> None:
    first = run(tmp_path, "--", sys.executable, tunes, str(ONE), "sys.exit(7)")
    assert (first.code, first.out) == (7, "tuned 1\n")
    place = tmp_path / "cache" / "autotune" / NAME / "xla"
    assert first.err == f"rewarm: 1 new tuning result (1 TRITON); 1 in {place}\n"
    second = run(tmp_path, "--json", "--", sys.executable, tunes, str(ONE), str(OTHER), "")
    assert second.out == f"tuned {len(read(OTHER).entries)}\n"
    assert (told(second)["new"], told(second)["results"]) == (len(read(OTHER).entries), 1 + len(read(OTHER).entries))
    third = run(tmp_path, "--json", "--", sys.executable, tunes, str(ONE), str(OTHER), "")
    assert (third.out, told(third)["new"]) == ("tuned 0\n", 0)
    assert names(tmp_path)[:1] == ["3e9a8b"]


@pytest.mark.campaign
def test_a_program_waits_for_whoever_hangs_with_the_lock_no_longer_than_in_jax(tmp_path: Path, tunes: str) -> None:
    """Neither before it starts nor, to gather, after it has ended; and nothing is lost."""
    run(tmp_path, "--", sys.executable, tunes, str(ONE), "")
    place = tmp_path / "cache" / "autotune" / NAME
    shutil.rmtree(place / "xla")  # so that what the store has is to be added again
    with (place / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        since = time.monotonic()
        line = rewarm(tmp_path, "autotune", "env", "--dir", "cache", *H200)
        assert (line.code, line.out.startswith("export XLA_FLAGS=")) == (0, True)
        assert time.monotonic() - since < 4 * PATIENCE_OF_PROGRAMS
        since = time.monotonic()
        ran = run(tmp_path, "--", sys.executable, tunes, str(ONE), str(OTHER), "")
        assert (ran.code, "was not gathered" in ran.err) == (0, True)
        assert time.monotonic() - since < 4 * PATIENCE_OF_PROGRAMS
    after = run(tmp_path, "--json", "--", sys.executable, tunes, "")
    assert told(after)["results"] == 1 + len(read(OTHER).entries)


def test_the_places_of_programs_have_a_programs_patience(tmp_path: Path) -> None:
    place = place_for(str(tmp_path), "h200", False, "tensorflow-2.20", sys.executable)
    assert place.patience == PATIENCE_OF_PROGRAMS == 5.0, "as the docs have it"


def test_new_results_are_entries_of_the_store(tmp_path: Path, tunes: str) -> None:
    run(tmp_path, "--", sys.executable, tunes, str(ONE), "'a secret'")
    listed = json.loads(rewarm(tmp_path, "ls", "--dir", "cache", "--json").out)
    assert [one["program"] for one in listed] == [f"tuning of {Path(sys.executable).name}"]
    assert "secret" not in json.dumps(listed)
    # An empty place is filled from the store: so does a host that fetched the entries.
    shutil.rmtree(tmp_path / "cache" / "autotune" / NAME / "xla")
    again = run(tmp_path, "--", sys.executable, tunes, str(ONE), "")
    assert again.out == "tuned 0\n"


def test_a_directory_that_may_hold_nothing_has_no_entry_of_them(tmp_path: Path, tunes: str) -> None:
    first = run(tmp_path, "--", sys.executable, tunes, str(ONE), "", REWARM_MAX_SIZE="0")
    assert first.out == "tuned 1\n"
    assert not [path for path in (tmp_path / "cache").glob("??/*") if len(path.name) == 64]
    assert len(names(tmp_path)) == 1, "the place has them"


@pytest.mark.parametrize("ends", ["1/0", "os.kill(os.getpid(), 15)", "os.kill(os.getpid(), 9)"])
def test_a_program_that_fails_ends_rewarm_as_it_did_and_is_gathered(tmp_path: Path, tunes: str, ends: str) -> None:
    plain = execute([sys.executable, tunes, ends], env=clean_environment(), cwd=tmp_path)
    ours = run(tmp_path, "--", sys.executable, tunes, str(ONE), ends)
    assert ours.code == plain.code != 0
    assert "1 new tuning result" in ours.err
    assert names(tmp_path) == ["ac8f0d"]


def test_the_program_has_rewarms_streams_files_and_arguments(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    source = f"import os, sys; os.write({writer}, b'open'); print(sys.argv[1:], sys.stdin.read())"
    command = [sys.executable, "-m", "rewarm", "autotune", "run", "--dir", "cache", *H200, "--"]
    done = subprocess.run(
        [*command, sys.executable, "-c", source, "--dir", "-h", "a b"],
        input="typed",
        capture_output=True,
        text=True,
        env=clean_environment(),
        cwd=tmp_path,
        pass_fds=[writer],
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "['--dir', '-h', 'a b'] typed\n")
    assert os.read(reader, 10) == b"open"
    os.close(reader)
    os.close(writer)


WAITS = """
import signal, sys, time, xla_like
got = []
for one in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
    signal.signal(one, lambda number, frame: got.append(number))
xla_like.compiled(sys.argv[1:])
print("ready", flush=True)
until = time.monotonic() + 60
while not got and time.monotonic() < until:
    time.sleep(0.01)
time.sleep(0.5)
print(got, flush=True)
"""


@contextlib.contextmanager
def started(folder: Path, command: list[str], **more: Any) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "rewarm", "autotune", "run", "--dir", "cache", *H200, "--json", "--", *command]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment(), cwd=folder, **more
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            stream.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_go_on_to_the_program_once(tmp_path: Path, tunes: str, number: signal.Signals) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    with started(tmp_path, [sys.executable, "waits.py", str(ONE)]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert out == f"[{int(number)}]\n"
    assert process.returncode == 0
    assert json.loads(err.splitlines()[-1])["new"] == 1


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # where another test of this process imported JAX
def test_a_terminals_interrupt_reaches_the_program_once(tmp_path: Path, tunes: str) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    terminal, inside = pty.openpty()
    try:
        with started(
            tmp_path, [sys.executable, "waits.py"], stdin=inside, start_new_session=True, preexec_fn=_own_terminal
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            os.write(terminal, b"\x03")
            out, _ = process.communicate(timeout=60)
        assert out == f"[{int(signal.SIGINT)}]\n"
    finally:
        os.close(terminal)
        os.close(inside)


def _own_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_rewarm_killed_loses_no_result(tmp_path: Path, tunes: str) -> None:
    ends = "import time; time.sleep(1)"
    with started(tmp_path, [sys.executable, tunes, str(ONE), ends]) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "tuned 1\n"
        process.kill()
        process.wait()
    assert told(run(tmp_path, "--json", "--", "true"))["new"] == 1


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [(["./nowhere"], 127, "No such file"), (["./data"], 126, "Permission denied"), (["./text"], 126, "format error")],
)
def test_a_program_that_does_not_start(tmp_path: Path, command: list[str], code: int, said: str) -> None:
    (tmp_path / "data").write_text("")
    (tmp_path / "text").write_bytes(b"\0nothing")
    (tmp_path / "text").chmod(0o755)
    ran = run(tmp_path, "--", *command)
    assert ran.code == code
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "command", "said"),
    [
        ("--xla_gpu_load_autotune_results_from=/x", [], "XLA_FLAGS: --xla_gpu_load_autotune_results_from asks for"),
        ("--xla_gpu_dump_autotune_results_to=/x", [], "rewarm autotune export"),
        ("", ["--xla_gpu_load_autotune_results_from=/x"], "the command's arguments: --xla_gpu_load"),
        ("--xla_dump_to=/x stray --more", [], "XLA stops reading"),
    ],
)
def test_two_ways_together_are_refused_before_the_program_starts(
    tmp_path: Path, flags: str, command: list[str], said: str
) -> None:
    ran = run(tmp_path, "--", "touch", "started", *command, XLA_FLAGS=flags)
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not (tmp_path / "started").exists()


def test_a_cache_that_cannot_be_used_does_not_stop_the_program(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    ran = run(tmp_path, "--", sys.executable, "-c", "import os; print(os.environ.get('XLA_FLAGS'))")
    assert (ran.code, ran.out) == (0, "None\n")
    assert "nothing was prepared or gathered" in ran.err
    assert "is not a directory" in ran.err


def test_without_a_gpu_the_program_runs_and_one_line_says_so(tmp_path: Path) -> None:
    ran = rewarm(tmp_path, "autotune", "run", "--dir", "cache", "--", "echo", "here")
    assert (ran.code, ran.out) == (0, "here\n")
    assert "--target" in ran.err
    assert len(ran.err.splitlines()) == 1
    asked = rewarm(tmp_path, "autotune", "env", "--this-device", "--dir", "cache")
    assert (asked.code, asked.out, len(asked.err.splitlines())) == (1, "", 1)


def test_rewarm_stays_as_on_or_off_as_it_was(tmp_path: Path) -> None:
    says = [sys.executable, "-c", "import os; print(os.environ.get('REWARM'))"]
    assert run(tmp_path, "--", *says).out == "None\n"
    assert run(tmp_path, "--", *says, REWARM="1").out == "1\n"
    assert run(tmp_path, "--", *says, REWARM="off").out == "0\n"


def test_the_line_for_shells(tmp_path: Path) -> None:
    cache = tmp_path / "it's a cache"
    asked = ["autotune", "env", "--dir", str(cache), *H200]
    line = rewarm(tmp_path, *asked, XLA_FLAGS="--xla_dump_to='/a b'").out
    shell = execute(
        ["sh", "-c", f'{line}exec "$0" -c "import os; print(os.environ[\'XLA_FLAGS\'])"', sys.executable],
        env=clean_environment(),
        cwd=tmp_path,
    )
    wanted = f"--xla_dump_to='/a b' --xla_gpu_per_fusion_autotune_cache_dir=\"{cache}/autotune/{NAME}/xla\"\n"
    assert shell.out == wanted
    assert json.loads(rewarm(tmp_path, *asked, "--format", "json").out)["XLA_FLAGS"].endswith('/xla"')
    fish = rewarm(tmp_path, *asked, "--format", "fish").out
    assert fish.startswith("set -gx XLA_FLAGS '")
    assert "it\\'s a cache" in fish
    assert (cache / "autotune" / NAME / "xla").stat().st_mode & 0o777 == 0o700


def test_the_line_needs_a_device_and_a_build(tmp_path: Path) -> None:
    for words, said in (
        ([], "one of --target NAME|FILE and --this-device"),
        (["--target", "h200", "--this-device"], "one of --target"),
        (["--target", "h999", "--build", "x"], "described are a100, a100-40, b200, h100, h100-pcie, h200"),
        (["--target", "h200", "--build", "tf 2.20"], "a name of letters, digits, '.', '_' and '-'"),
        (["--target", "h200", "--build", "x", "--describe", "f"], "add --this-device"),
    ):
        ran = rewarm(tmp_path, "autotune", "env", "--dir", "cache", *words)
        assert (ran.code, said in ran.err) == (2, True), ran.err
    assert not (tmp_path / "cache").exists()


@pytest.mark.contract
def test_the_real_compiler_reads_what_is_gathered(tmp_path: Path, cuda: Compiler) -> None:
    """With its own cache on, JAX gives XLA a directory over the flag's; it is told not to."""
    entries = dot_tanh(cuda.jax)
    run(tmp_path, "--", "true")
    place = tmp_path / "cache" / "autotune" / NAME / "xla"
    write(entries, place, Format.NEW_DIRECTORY if entries[0].family is Family.NEW else Format.LEGACY_DIRECTORY)
    (tmp_path / "compiles.py").write_text(COMPILES)
    env = cuda.environment(XLA_FLAGS="--xla_gpu_require_complete_aot_autotune_results=true")
    env["JAX_COMPILATION_CACHE_DIR"] = str(tmp_path / "jax")
    words = [sys.executable, "-W", "ignore", "compiles.py"]
    ours = [sys.executable, "-m", "rewarm", "autotune", "run", "--dir", "cache", *H200, "--"]
    ran = execute([*ours, *words], env=env, cwd=tmp_path)
    assert ran.code == 0, ran.err[-2000:]
    assert int(ran.out) > 0
    alone = execute(words, env=env, cwd=tmp_path)
    assert "No cached config found" in alone.err


@pytest.mark.contract
def test_an_attached_devices_description_is_what_it_was_made_of(tmp_path: Path, cuda: Compiler) -> None:
    """A described device stands for an attached one: both have a topology, which says what it is made of."""
    ran = cuda.run(
        """
import jax
from jax.experimental import topologies
from rewarm.autotune import attached, targets
from rewarm.autotune.formats import device_of_target

def topology(text):
    described = topologies.get_topology_desc(platform="cuda", target_config=text, topology="1x1x1")
    return described.serialize() if hasattr(described, "serialize") else None

for name in targets.names():
    made = topology(targets.description(name, jax.__version__))
    if made is None:
        break  # this JAX does not tell
    text = attached.description(made)
    assert topology(text) == made, name
    assert device_of_target(text) == targets.device(name), name
print("same")
""",
        tmp_path,
    )
    assert ran.code == 0, ran.err[-2000:]
    assert ran.out.splitlines()[-1] == "same"


@pytest.mark.contract
def test_a_jax_program_with_rewarm_on_has_the_same_place(tmp_path: Path, cuda: Compiler) -> None:
    """So what `rewarm autotune run` gathers serves JAX programs, and the other way round."""
    (tmp_path / "compiles.py").write_text(COMPILES)
    env = cuda.environment(REWARM="1", REWARM_DIR=str(tmp_path / "cache"))
    assert execute([sys.executable, "-W", "ignore", "compiles.py"], env=env, cwd=tmp_path).code == 0
    (made,) = (tmp_path / "cache" / "autotune").iterdir()
    words = ["autotune", "env", "--target", "h200", "--dir", "cache", "--format", "json"]
    line = execute([sys.executable, "-m", "rewarm", *words], env=cuda.environment(), cwd=tmp_path)
    assert line.code == 0, line.err
    assert made.name.rpartition("-")[0] in line.out
    if not cuda.jax.startswith(("0.9.", "0.10.")):  # earlier ones do not tell what the device is
        assert f"/autotune/{made.name}/xla" in line.out
