"""`rewarm tune`, from outside: what is listed, shown, drawn, checked, pruned, and carried to another directory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import clean_environment
from rewarm.sharing.made import Made
from rewarm.store import LocalStore
from rewarm.tunables.keeping import Keeping
from rewarm.tunables.records import Case, Comparison, Record, Trial
from rewarm.tunables.text_file import load

WHEN = 1.7e9
SURE = Comparison(1.5, 1.4, 1.6, "faster", 0.95, 40)


def a_case(arguments: str = "f32[1024,512]", kernel: str = "kernels:attention", **changed: str) -> Case:
    digests = {name: changed.get(name, "a") * 64 for name in ("content", "target", "toolchain", "libraries")}
    return Case(kernel, arguments=arguments, **digests)


def a_record(case: Case | None = None, **more: Any) -> Record:
    trials = (
        Trial({"block": 32}, "timed", (0.003, 0.0031, 0.0032), when=WHEN),
        Trial({"block": 64}, "timed", (0.002, 0.0021, 0.0022), when=WHEN),
        Trial({"block": 128}, "hung", reason="no answer within 60 s", when=WHEN, expires=WHEN + 1e8),
    )
    said: dict[str, Any] = {"trials": trials, "comparison": SURE, "when": WHEN, "about": {"device": "a device"}}
    return Record(case or a_case(), {"block": 32}, **{"winner": {"block": 64}, **said, **more})


def tune(*arguments: object, code: int = 0, cwd: Path | None = None, **env: str) -> str:
    """Run `rewarm tune`; what it printed."""
    command = [sys.executable, "-m", "rewarm", "tune", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, cwd=cwd, env=clean_environment(**env)
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


def fill(root: Path, *records: Record) -> Path:
    """A cache directory with these records."""
    store = LocalStore(root)
    store.prepare()
    keeping = Keeping(store, made=Made(root), producer={})
    for one in records:
        assert keeping.put(one)
    return root


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A directory with three cases."""
    return fill(
        tmp_path / "cache",
        a_record(),
        a_record(a_case("f32[2048,512]"), comparison=None),
        a_record(a_case(kernel="other:scan"), winner={"block": 32}, flags=("noisy (drift): much",)),
    )


def test_ls_has_a_line_for_each_case(cache: Path) -> None:
    out = tune("ls", "--dir", cache)
    assert "kernels:attention  f32[1024,512]  block=64  1.5x (1.4 to 1.6)  tuned" in out
    assert "not decided" in out
    assert "default stays" in out
    assert "noisy (drift)" in out
    assert out.endswith("3 cases\n")
    assert tune("ls", "--dir", cache, "--kernel", "scan").endswith("1 case\n")
    told = json.loads(tune("ls", "--dir", cache, "--json"))
    assert [one["state"] for one in told] == ["tuned", "not decided", "default stays"]
    assert told[0]["ratio"] == 1.5


def test_ls_of_nothing(tmp_path: Path) -> None:
    assert "nothing is tuned there" in tune("ls", "--dir", fill(tmp_path / "empty"))
    assert "does not exist" in tune("ls", "--dir", tmp_path / "none", code=1)


def test_show_has_every_candidate_and_why_it_failed(cache: Path) -> None:
    out = tune("show", "attention", "--arguments", "1024", "--dir", cache)
    assert "faster: 1.500 times as fast as the default (1.400 to 1.600 at 0.95, 40 rounds)" in out
    assert "block=64   2.1 ms    1.476x" in out
    assert "no answer within 60 s; not tried again before" in out
    key = json.loads(tune("show", "scan", "--dir", cache, "--json"))["key"]
    assert "other:scan" in tune("show", key[:8], "--dir", cache)


def test_show_of_none_or_of_several_says_so(cache: Path) -> None:
    assert "2 cases are tuned under 'attention'; name one by its key" in tune(
        "show", "attention", "--dir", cache, code=1
    )
    assert "nothing is tuned under 'nothing'" in tune("show", "nothing", "--dir", cache, code=1)


def test_plots_are_bars_and_pictures(cache: Path, tmp_path: Path) -> None:
    out = tune("show", "scan", "--dir", cache, "--plot", COLUMNS="60")
    assert "block=32 * default" in out
    bars = [line.count("█") for line in out.split("\n") if "█" in line]
    assert bars[0] < bars[1]
    assert max(map(len, out.split("\n\n")[-1].split("\n"))) <= 60
    assert "needs --plot" in tune("show", "scan", "--dir", cache, "-o", tmp_path / "x.png", code=2)
    pytest.importorskip("matplotlib")
    for suffix, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        picture = tmp_path / f"x.{suffix}"
        tune("show", "scan", "--dir", cache, "--plot", "-o", picture)
        assert picture.read_bytes().startswith(start)
    assert "not supported" in tune("show", "scan", "--dir", cache, "--plot", "-o", tmp_path / "x.nothing", code=1)


def test_winners_go_from_one_directory_to_another_as_text(cache: Path, tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    assert "2 cases; 1 are not decided and were left out" in tune("export", "-o", lock, "--dir", cache)
    assert len(load(lock)) == 2
    assert "attention" in tune("ls", lock)
    assert "no timings are kept" in tune("show", "attention", lock)
    assert "2 cases taken" in tune("import", lock, "--dir", tmp_path / "new")
    assert tune("ls", "--dir", tmp_path / "new").endswith("2 cases\n")
    tune("export", "-o", tmp_path / "again.lock", "--dir", tmp_path / "new")
    assert (tmp_path / "again.lock").read_text() == lock.read_text()
    tune("export", "-o", lock, "--dir", cache, "--timings")
    assert any(one.trials for one in load(lock))


def test_what_is_no_lock_file_is_not_written_over(cache: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_text("mine\n")
    assert "a lock file, found 'mine'" in tune("export", "-o", notes, "--dir", cache, code=1)
    assert "a lock file, found 'mine'" in tune("import", notes, "--dir", tmp_path / "new", code=1)
    assert notes.read_text() == "mine\n"


def test_prune_removes_what_newer_ones_have_replaced(tmp_path: Path) -> None:
    cache = fill(
        tmp_path / "cache",
        a_record(),
        a_record(a_case(toolchain="b"), when=WHEN + 1),
        a_record(a_case(target="c"), when=WHEN + 1),
    )
    out = tune("prune", "--dir", cache, "--dry-run")
    assert "tuned again since: the compiler changed" in out
    assert "1 case would go, of 3" in out
    assert "1 case removed, of 3" in tune("prune", "--dir", cache)
    assert "0 cases removed, of 2" in tune("prune", "--dir", cache)
    assert "2 cases removed" in tune("prune", "--dir", cache, "--older-than", "1d")
    assert "expected an age" in tune("prune", "--dir", cache, "--older-than", "soon", code=2)
    assert "name a kernel" in tune("prune", "--dir", cache, "--all", code=2)


def test_prune_of_a_kernel(cache: Path) -> None:
    assert "2 cases removed, of 3" in tune("prune", "--dir", cache, "--kernel", "attention", "--all")


def test_du_and_clear_know_the_notes(cache: Path) -> None:
    command = [sys.executable, "-m", "rewarm"]
    out = subprocess.check_output(
        [*command, "du", "--by", "kind", "--dir", str(cache)], env=clean_environment(), text=True
    )
    assert "tuned" in out
    assert "other" not in out
    subprocess.run([*command, "clear", "--yes", "--dir", str(cache)], env=clean_environment(), check=False)


# -- with a real function ----------------------------------------------------------------------------------------

KERNELS = """
import jax, jax.numpy as jnp, rewarm
from jax import lax

@rewarm.tunable(space={"chunk": [16, 1024]}, default={"chunk": 16})
def total(x, scale=1.0, *, chunk):
    def step(carry, part):
        return carry + jnp.tanh(part * scale).sum(), None
    return lax.scan(step, jnp.float32(0), x.reshape(-1, chunk))[0]

def plain(x):
    return x
"""


def test_run_tunes_and_check_names_what_has_changed(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    cache = tmp_path / "cache"
    run = ("run", "kernels:total", "--shapes", "f32[16384]", "--budget", 10, "--dir", cache)
    out = tune(*run, cwd=tmp_path)
    assert "kernels:total for f32[16384]" in out
    [first] = json.loads(tune(*run, "--json", cwd=tmp_path))
    assert not first["measured"]
    check = ("check", "--dir", cache, "--function", "kernels:total")
    assert "1 of 1 case serve here" in tune(*check, cwd=tmp_path)
    (tmp_path / "kernels.py").write_text(KERNELS.replace("jnp.tanh(part", "jnp.sin(part"))
    out = tune(*check, cwd=tmp_path, code=1)
    assert "the kernel changed" in out
    assert "0 of 1 case serve here" in out
    assert "not looked at: whether kernels:total changed" in tune("check", "--dir", cache)
    told = json.loads(tune(*check, "--json", cwd=tmp_path, code=1))
    assert told["records"][0]["changed"] == ["the kernel changed"]
    assert not told["ok"]


def test_run_says_what_is_wrong_with_what_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(KERNELS)
    run = ("run", "--dir", tmp_path / "cache")
    assert "no module nothing" in tune(*run, "nothing:f", "--shapes", "f32[8]", cwd=tmp_path, code=1)
    assert "no function of rewarm.tunable" in tune(*run, "kernels:plain", "--shapes", "f32[8]", cwd=tmp_path, code=1)
    assert "expected shapes such as" in tune(*run, "kernels:total", "--shapes", "f32(8)", cwd=tmp_path, code=2)
    assert "expected a type such as" in tune(*run, "kernels:total", "--shapes", "f33[8]", cwd=tmp_path, code=2)
    bad = ("kernels:total", "--shapes", "f32[8]", "--set", "scale")
    assert "expected NAME=JSON" in tune(*run, *bad, cwd=tmp_path, code=2)


@pytest.mark.parametrize("kernel", ["kernels:make.<locals>.kernel", "kernels:<lambda>"])
def test_closures_of_one_name_are_not_pruned_for_each_other(tmp_path: Path, kernel: str) -> None:
    """Two of one factory live beside each other; an edited one cannot be told from them."""
    of_one = a_record(a_case(kernel=kernel, content="b"))
    of_other = a_record(a_case(kernel=kernel, content="c"), when=WHEN + 10)
    old = a_record(a_case(kernel=kernel, content="b", toolchain="d"), when=WHEN - 10)
    root = fill(tmp_path / "cache", of_one, of_other, old)
    said = json.loads(tune("prune", "--dir", root, "--json"))
    assert [one["key"] for one in said["removed"]] == [old.case.key]
    assert "compiler changed" in said["removed"][0]["why"]
