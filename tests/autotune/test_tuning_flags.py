"""`XLA_FLAGS` as XLA reads them, the two ways of keeping results, and paths of tests under Bazel."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda_compilers import wanted
from rewarm.autotune import xla_flags
from rewarm.autotune.xla_flags import DIRECTORY, DUMP, LOAD, Flag, Named
from rewarm.errors import SettingError
from xla_like import COMPILES


@pytest.mark.parametrize(
    ("text", "flags", "left"),
    [
        ("", [], ""),
        ("  --a=1 \t\n--b ", [("a", "1"), ("b", None)], ""),
        ("--a='x y' --b=2", [("a", "x y"), ("b", "2")], ""),
        ('--a="x \\"y\\" \\\\z" -b', [("a", 'x "y" \\z'), ("b", None)], ""),
        ("--a='x \\y'", [("a", "x \\y")], ""),
        ("--a=x='y z' --b", [("a", "x='y")], "z' --b"),
        ("--a=1 stray --b=2", [("a", "1")], "stray --b=2"),
        ("--a='never closed", [("a", "never closed")], ""),
        ("--a=", [("a", "")], ""),
    ],
)
def test_flags_are_read_as_xla_reads_them(text: str, flags: list[tuple[str, str | None]], left: str) -> None:
    assert xla_flags.parsed(text) == ([Flag(*flag) for flag in flags], left)


@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30),
    st.sampled_from(["", "--x=1 "]),
)
def test_what_is_written_is_read_back(value: str, before: str) -> None:
    text = xla_flags.with_flags(before, {DIRECTORY: value})
    flags, left = xla_flags.parsed(f"{text} --y=2")
    assert left == ""
    assert flags[-2:] == [Flag(DIRECTORY, value), Flag("y", "2")]


@given(st.text(alphabet="-=ax'\"\\ \t", max_size=40))
def test_any_text_is_read_to_its_end(text: str) -> None:
    flags, left = xla_flags.parsed(text)
    assert text.endswith(left)
    assert len(flags) <= len(text)


@pytest.mark.contract
def test_the_real_compiler_reads_what_is_written(tmp_path: Path) -> None:
    """XLA names the file that is not there: the value that it read."""
    cuda = wanted()
    value = '/a "b" \\c/it\'s'
    ran = cuda.run(COMPILES, tmp_path, XLA_FLAGS=xla_flags.written(LOAD, value))
    assert ran.code != 0
    assert value in ran.err.splitlines()[-1]


def test_what_is_named() -> None:
    assert xla_flags.named(f"--{DIRECTORY}=/a --{LOAD}=/b --{DIRECTORY}=/c") == Named("/c", "/b")
    assert xla_flags.named(["train", f"--{DUMP}=/a b", f"-{LOAD}", "/c"]) == Named("", "/c", "/a b")
    assert xla_flags.named([f"say --{DUMP}=/a", "--other"]) == Named()
    assert xla_flags.named([f"--{DUMP}"]) == Named()


@pytest.mark.parametrize(
    ("flags", "arguments", "way", "said"),
    [
        (f"--{LOAD}=/a", (), "directory", "rewarm autotune import"),
        (f"--{DUMP}=/a", (), "directory", "rewarm autotune export"),
        (f"--{DIRECTORY}=/a", (), "directory", "names /a already"),
        (f"--{DIRECTORY}=/a", (), "file", "--rewarm-autotune-load"),
        (f"--{DUMP}=/a", (), "file", "not both"),
        ("", (f"--{LOAD}=/a",), "directory", "the command's arguments"),
    ],
)
def test_ways_that_do_not_go_together(flags: str, arguments: tuple[str, ...], way: str, said: str) -> None:
    with pytest.raises(SettingError, match="--xla_gpu_") as refused:
        xla_flags.refuse_others(flags, arguments, way=way)
    assert said in str(refused.value)
    xla_flags.refuse_others(f"--{DIRECTORY}= --{LOAD}=", ("train",), way=way)  # turned off


@pytest.mark.parametrize(
    ("said", "wanted_value"),
    [
        (None, "none"),
        ("", "none"),
        ("all", "xla_gpu_kernel_cache_file"),
        ("xla_gpu_per_fusion_autotune_cache_dir", "none"),
        ("xla_gpu_kernel_cache_file,xla_gpu_per_fusion_autotune_cache_dir", "xla_gpu_kernel_cache_file"),
    ],
)
def test_jax_puts_no_directory_of_its_own(said: str | None, wanted_value: str) -> None:
    assert xla_flags.xla_caches_of_jax(said) == wanted_value


BAZEL = {"TEST_SRCDIR": "/r", "TEST_WORKSPACE": "main", "TEST_UNDECLARED_OUTPUTS_DIR": "/out"}


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("TEST_UNDECLARED_OUTPUTS_DIR/a/b.pb", "/out/a/b.pb"),
        ("TEST_WORKSPACE/pkg/b.pb", "/r/main/pkg/b.pb"),
        ("TEST_WORKSPACE/../other/b.pb", "/r/main/../other/b.pb"),
        ("bazel-out/k8-fastbuild/bin/pkg/b.pb", "/r/main/pkg/b.pb"),
        ("bazel-out/k8-opt/bin/external/other+/b.pb", "/r/other+/b.pb"),
        ("external/other+/b.pb", "/r/other+/b.pb"),
        ("pkg/b.pb", "pkg/b.pb"),
        ("/absolute/b.pb", "/absolute/b.pb"),
        ("TEST_WORKSPACE", "TEST_WORKSPACE"),
        ("TEST_WORKSPACES/b.pb", "TEST_WORKSPACES/b.pb"),
    ],
)
def test_paths_of_a_test_of_bazels(path: str, place: str) -> None:
    assert str(xla_flags.resolved(path, BAZEL)) == place
    if path.startswith(("bazel-out", "external")):
        assert str(xla_flags.resolved(path, {})) == path


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("$(execpath :a)", "Bazel has not expanded"),
        ("TEST_WORKSPACE/$(rootpath :a)", "Bazel has not expanded"),
        ("TEST_UNDECLARED_OUTPUTS_DIR/a", "the variable TEST_UNDECLARED_OUTPUTS_DIR"),
        ("TEST_WORKSPACE/a", "the variable TEST_SRCDIR"),
    ],
)
def test_paths_that_cannot_be(path: str, said: str) -> None:
    with pytest.raises(SettingError, match="expected") as refused:
        xla_flags.resolved(path, {})
    assert said in str(refused.value)
