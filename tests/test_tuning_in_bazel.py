"""`bazel/rewarm.bzl`, evaluated by a Starlark interpreter, and its tests run as Bazel would run them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import clean_environment, execute
from cuda_compilers import wanted
from rewarm.autotune.formats import Family, Format, build_of, read, write
from rewarm.autotune.in_tests import installed_build
from xla_like import COMPILES, PLUGIN, SAMPLES, XLA_LIKE, dot_tanh

ROOT = Path(__file__).parents[1]
BAZEL = ROOT / "bazel"
IS_NEW = (installed_build() or build_of("0.12.0.1")).default is Family.NEW  # type: ignore[union-attr]
HERE = SAMPLES / ("jax_0_12_0_1" if IS_NEW else "jax_0_10_2")
LOAD = "new_load.textproto" if IS_NEW else "legacy_load.textproto"

Target = dict[str, Any]


def evaluated(source: str) -> list[Target]:
    """The targets that a BUILD file makes, each with the name of its rule."""
    starlark = pytest.importorskip("starlark", reason="pip install starlark-pyo3: it evaluates Bazel's language")
    targets: list[Target] = []
    recorder = starlark.Module()
    for rule in ("cc_test", "py_test"):
        recorder.add_callable(f"_{rule}", lambda rule=rule, **given: targets.append({"rule": rule, **given}))
    definitions = "\n".join(f"def {rule}(**given):\n    _{rule}(**given)\n" for rule in ("cc_test", "py_test"))
    globals_ = starlark.Globals.standard()
    starlark.eval(recorder, starlark.parse("rules.bzl", definitions), globals_)
    rules = recorder.freeze()
    macro = starlark.Module()
    starlark.eval(macro, starlark.parse("rewarm.bzl", (BAZEL / "rewarm.bzl").read_text()), globals_)
    ours = macro.freeze()
    loader = starlark.FileLoader(lambda name: ours if name.endswith(":rewarm.bzl") else rules)
    starlark.eval(starlark.Module(), starlark.parse("BUILD", source), globals_, loader)
    return targets


HEAD = """
load("@rules_python//python:defs.bzl", "py_test")
load("//bazel:rewarm.bzl", "autotuned_test")
"""


def one(call: str) -> Target:
    (target,) = evaluated(f'{HEAD}\nautotuned_test(rule = py_test, name = "t", {call})\n')
    return target


def test_the_example_is_what_it_says() -> None:
    kernels, dumps, model = evaluated((BAZEL / "BUILD.example").read_text())
    assert kernels["rule"] == "cc_test"
    assert kernels["data"] == [":autotune_h200.textproto"]
    assert kernels["shard_count"] == 4
    load = "--xla_gpu_load_autotune_results_from=TEST_WORKSPACE/$(rootpath :autotune_h200.textproto)"
    assert kernels["env"] == {"XLA_FLAGS": load}
    dump = "--xla_gpu_dump_autotune_results_to=TEST_UNDECLARED_OUTPUTS_DIR/autotune.textproto"
    assert dumps["env"] == {"XLA_FLAGS": dump}
    assert "shard_count" not in dumps
    assert "data" not in dumps
    assert model["rule"] == "py_test"
    assert "env" not in model
    assert model["shard_count"] == 4
    assert model["args"] == [
        "--rewarm-autotune-load=TEST_WORKSPACE/$(rootpath :autotune_h200.textproto)",
        "--rewarm-autotune-dump=TEST_UNDECLARED_OUTPUTS_DIR/autotune.textproto",
    ]


def test_what_a_target_has_already_stays() -> None:
    target = one('autotune_load = ":a.pb", env = {"XLA_FLAGS": "--xla_dump_to=/x", "A": "b"}, data = [":d"]')
    assert target["data"] == [":d", ":a.pb"]
    assert target["env"]["A"] == "b"
    assert target["env"]["XLA_FLAGS"].startswith("--xla_dump_to=/x --xla_gpu_load_autotune_results_from=")
    assert one('autotune_dump = "a.pb", pytest = True, args = ["-v"]')["args"][0] == "-v"


@pytest.mark.parametrize("there", [":a.pb", "a.pb"])
def test_a_label_that_is_there_is_not_put_in_twice(there: str) -> None:
    assert one(f'autotune_load = ":a.pb", data = [":d", "{there}"]')["data"] == [":d", there]


@pytest.mark.parametrize("more", ["", ", pytest = True"])
def test_none_is_an_attribute_that_is_left_out(more: str) -> None:
    attributes = f'autotune_load = ":a.pb", autotune_dump = "b.pb"{more}'
    nothing = "data = None, env = None, args = None, shard_count = None, tags = None"
    assert one(f"{attributes}, {nothing}") == one(attributes)
    assert one(f'{attributes}, env = {{"XLA_FLAGS": None}}')["data"] == [":a.pb"]


@pytest.mark.parametrize("name", ["a b.pb", "a\\tb.pb", "$(rootpath x)", "$a.pb", "a'b.pb", 'a\\"b.pb', "a`b.pb", ""])
def test_a_name_that_flags_and_arguments_do_not_keep_is_refused(name: str) -> None:
    for attribute in ("autotune_dump", "autotune_load"):
        with pytest.raises(Exception, match=f"{attribute} must be a .* without blanks, quotes"):
            one(f'{attribute} = "{name}"')


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("", "expected autotune_load, autotune_dump or both"),
        ('autotune_dump = "a.pb", shard_count = 2', "each shard would dump a part"),
        ('autotune_dump = "/a.pb"', "a file's name in the outputs"),
        ('autotune_dump = "../a.pb"', "a file's name in the outputs"),
        ('autotune_dump = "a/"', "a file's name in the outputs"),
        ('autotune_load = ":a", env = {"XLA_FLAGS": "--xla_gpu_per_fusion_autotune_cache_dir=/x"}', "not to be mixed"),
        ('autotune_load = ":a", env = {"XLA_FLAGS": "--xla_gpu_load_autotune_results_from=/x"}', "not to be mixed"),
        ('autotune_load = ":a", env = ["A"]', "env must be a dict"),
    ],
)
def test_what_cannot_be_is_refused_when_the_build_is_read(call: str, said: str) -> None:
    with pytest.raises(Exception, match=re.escape(said)):
        one(call)


class World:
    """What Bazel makes for a test: runfiles, outputs, variables."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.source, self.outputs = folder, folder / "runfiles" / "main", folder / "test.outputs"
        (self.source / "pkg").mkdir(parents=True)
        self.outputs.mkdir()

    @property
    def variables(self) -> dict[str, str]:
        return {
            "TEST_SRCDIR": str(self.source.parent),
            "TEST_WORKSPACE": "main",
            "TEST_UNDECLARED_OUTPUTS_DIR": str(self.outputs),
        }

    def expanded(self, text: str) -> str:
        """What Bazel makes of labels in `env` and `args`, for targets of the package pkg."""
        return re.sub(r"\$\((?:rootpath|execpath) :([^)]*)\)", r"pkg/\1", text)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    shutil.copy(HERE / "dot_tanh_64x64" / LOAD, made.source / "pkg" / "autotune_h200.textproto")
    (made.source / "xla_like.py").write_text(XLA_LIKE)
    other = HERE / "mlp_128x128" / LOAD
    (made.source / "model_test.py").write_text(
        f"import xla_like\n\ndef test_it():\n    xla_like.compiled([{str(other)!r}])\n"
    )
    return made


@pytest.mark.parametrize("form", ["$(rootpath :autotune_h200.textproto)", "$(execpath :autotune_h200.textproto)"])
def test_a_test_of_pytests_loads_and_dumps(world: World, form: str) -> None:
    *_, model = evaluated((BAZEL / "BUILD.example").read_text())
    options = [world.expanded(one.replace("$(rootpath :autotune_h200.textproto)", form)) for one in model["args"]]
    command = [sys.executable, "-m", "pytest", *PLUGIN, "-p", "no:cacheprovider", "model_test.py"]
    ran = execute([*command, *options], env=clean_environment(**world.variables), cwd=world.source)
    assert ran.code == 0, ran.out + ran.err
    dumped = read(world.outputs / "autotune.textproto")
    assert not dumped.is_broken
    programs = ("dot_tanh_64x64", "mlp_128x128")
    wanted_keys = {entry.key for name in programs for entry in read(HERE / name / LOAD).entries}
    assert {entry.key for entry in dumped.entries} == wanted_keys
    assert "1 test tuned" in ran.out


@pytest.mark.contract
def test_any_program_loads_with_xlas_own_flags(world: World) -> None:
    cuda = wanted()
    kernels, *_ = evaluated((BAZEL / "BUILD.example").read_text())
    entries = dot_tanh(cuda.jax)
    form = Format.NEW_TEXT if entries[0].family is Family.NEW else Format.LEGACY_TEXT
    write(entries, world.source / "pkg" / "autotune_h200.textproto", form)
    flags = world.expanded(kernels["env"]["XLA_FLAGS"])
    require = "--xla_gpu_require_complete_aot_autotune_results=true"
    good = cuda.run(COMPILES, world.folder, XLA_FLAGS=f"{flags} {require}", **world.variables)
    assert good.code == 0, good.err[-2000:]
    assert int(good.out) > 0


@pytest.mark.campaign
def test_bazel_itself_reads_it(tmp_path: Path) -> None:
    """Needs `bazel` (or bazelisk under that name) on the PATH, and what it downloads."""
    bazel = shutil.which("bazel") or shutil.which("bazelisk")
    if bazel is None:
        pytest.skip("there is no bazel on the PATH")
    (tmp_path / "MODULE.bazel").write_text('bazel_dep(name = "rules_shell", version = "0.4.0")\n')
    shutil.copytree(BAZEL, tmp_path / "bazel")
    (tmp_path / "bazel" / "BUILD").write_text("")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a.textproto").write_text("version: 3\n")
    (tmp_path / "pkg" / "t.sh").write_text('#!/bin/sh\ntest -n "$XLA_FLAGS" && test -f pkg/a.textproto\n')
    (tmp_path / "pkg" / "t.sh").chmod(0o755)
    (tmp_path / "pkg" / "BUILD").write_text(
        'load("@rules_shell//shell:sh_test.bzl", "sh_test")\nload("//bazel:rewarm.bzl", "autotuned_test")\n'
        'autotuned_test(rule = sh_test, name = "t", srcs = ["t.sh"], autotune_load = ":a.textproto")\n'
    )
    command = [bazel, f"--output_user_root={tmp_path / 'root'}", "test", "//pkg:t"]
    try:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
        if "Error downloading" in done.stderr or "could not download" in done.stderr:
            pytest.skip(f"bazel cannot be had: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stderr[-3000:]
    finally:
        subprocess.run([bazel, f"--output_user_root={tmp_path / 'root'}", "shutdown"], cwd=tmp_path, check=False)
