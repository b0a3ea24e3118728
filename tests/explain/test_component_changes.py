"""What differs between two values of a component, in words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewarm.explain.components import changes_in
from rewarm.explain.words import words
from rewarm.ledger.explanation import Change

ONE = {"jax": "0.10.2", "jaxlib": "0.10.2"}
OTHER = {"jax": "0.11.2", "jaxlib": "0.11.2"}
A, B = "a" * 64, "b" * 64


def rows(name: str, before: Any, after: Any, producers: tuple[dict[str, str], dict[str, str]] = (ONE, ONE)) -> Any:
    """The changes without the component's name."""
    changes = changes_in(name, before, after, producers)
    assert all(change.component == name for change in changes)
    return [(change.item, change.before, change.after) for change in changes]


# ---------------------------------------------------------------------------------------------------------------
# Options, and mappings of any component


def test_options_name_by_name_in_order() -> None:
    before = {"xla_cpu_max_isa": "AVX2", "same": 1, "gone": [1], "flag": False}
    after = {"xla_cpu_max_isa": "AVX512", "same": 1, "new": 2.5, "flag": True}
    assert rows("options", before, after) == [
        ("flag", "false", "true"),
        ("gone", "[1]", "unset"),
        ("new", "unset", "2.5"),
        ("xla_cpu_max_isa", "AVX2", "AVX512"),
    ]


def test_equal_values_have_no_changes() -> None:
    for name in ("options", "toolchain", "target", "salt", "callbacks", "inputs", "whatever"):
        assert rows(name, {}, {}) == []


def test_an_unknown_component_is_compared_as_it_is() -> None:
    assert rows("whatever", {"a": 1}, {"a": 2}) == [("a", "1", "2")]
    assert rows("whatever", "one", "two") == [("", "one", "two")]
    assert rows("whatever", {"a": 1}, "two") == [("", '{"a": 1}', "two")]
    assert rows("format", 1, 2) == [("", "1", "2")]


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (None, {"a": 1}, ("", "not kept", "")),
        ({"a": 1}, None, ("", "", "not kept")),
        (None, None, ("", "not kept", "")),
    ],
)
@pytest.mark.parametrize("name", ["options", "toolchain", "target", "inputs", "salt"])
def test_a_value_that_is_not_kept_is_said_to_be(name: str, before: Any, after: Any, wanted: Any) -> None:
    assert changes_in(name, before, after, (ONE, OTHER)) == [Change(name, *wanted)]


# ---------------------------------------------------------------------------------------------------------------
# The toolchain


def test_a_library_of_one_version_is_named_with_its_content() -> None:
    before, after = {"jaxlib/x.so": A, "jaxlib/y.so": A}, {"jaxlib/x.so": A, "jaxlib/y.so": B}
    assert rows("toolchain", before, after) == [("jaxlib/y.so", f"0.10.2 sha256 {A[:12]}", f"0.10.2 sha256 {B[:12]}")]


def test_another_jaxlib_is_said_once_for_all_its_libraries() -> None:
    before = {f"jaxlib/{name}.so": A for name in "xyz"} | {"cuda/ptxas": A}
    after = {f"jaxlib/{name}.so": B for name in "xyz"} | {"cuda/ptxas": B}
    found = rows("toolchain", before, after, (ONE, OTHER))
    assert ("jaxlib", "0.10.2", "0.11.2") in found
    assert [item for item, _, _ in found].count("jaxlib") == 1


def test_another_jaxlib_does_not_hide_other_tools() -> None:
    before = {"cuda/ptxas": A, "jaxlib/x.so": A, "libtpu/x.so": A}
    after = {"cuda/ptxas": B, "jaxlib/x.so": B, "libtpu/x.so": B}
    items = [item for item, _, _ in rows("toolchain", before, after, (ONE, OTHER))]
    assert set(items) == {"cuda/ptxas", "jaxlib", "libtpu/x.so"}


def test_tools_and_arguments_are_named() -> None:
    before = {"cuda/ptxas": "one", "LIBTPU_INIT_ARGS": ["--a=1"]}
    after = {"cuda/ptxas": "two", "LIBTPU_INIT_ARGS": ["--a=2"]}
    assert rows("toolchain", before, after) == [
        ("LIBTPU_INIT_ARGS", '["--a=1"]', '["--a=2"]'),
        ("cuda/ptxas", "one", "two"),
    ]


def test_producers_that_say_nothing_are_no_error() -> None:
    assert rows("toolchain", {"jaxlib/x.so": A}, {"jaxlib/x.so": B}, ({}, {}))[0][0] == "jaxlib/x.so"


# ---------------------------------------------------------------------------------------------------------------
# The target


TARGET = {"platform": "cpu", "shape": [1, 8], "threads": 2, "triple": "x86_64-linux", "features": "avx,avx2,fma"}


def test_features_are_told_apart() -> None:
    assert rows("target", TARGET, {**TARGET, "features": "avx,avx512f,fma"}) == [("features", "avx2", "avx512f")]
    assert rows("target", TARGET, {**TARGET, "features": "avx"}) == [("features", "avx2 fma", "without")]


def test_many_features_are_cut() -> None:
    many = ",".join(f"f{number:02}" for number in range(20))
    ((_, before, after),) = rows("target", {**TARGET, "features": ""}, {**TARGET, "features": many})
    assert before == "without"
    assert after == "f00 f01 f02 f03 f04 f05 f06 f07 and 12 more"


def test_devices_and_threads() -> None:
    assert rows("target", TARGET, {**TARGET, "shape": [2, 2]}) == [("devices", "8 (1 x 8)", "4 (2 x 2)")]
    assert rows("target", TARGET, {**TARGET, "threads": 1}) == [("threads", "2", "1")]


def test_another_platform_says_all_that_differs() -> None:
    gpu = {"platform": "gpu", "shape": [1, 8], "kinds": ["H200"], "version": "cuda 13", "topology": A}
    found = {item: (before, after) for item, before, after in rows("target", TARGET, gpu)}
    assert found["platform"] == ("cpu", "gpu")
    assert found["kinds"] == ("unset", '["H200"]')
    assert found["topology"] == ("unset", A)
    assert found["threads"] == ("2", "unset")


def test_a_topology_of_gpus_is_compared_field_by_field() -> None:
    clock, cores = "gpu.gpu_device_info.clock_rate_ghz", "gpu.gpu_device_info.core_count"
    gpu = {"platform": "gpu", "shape": [1, 8], "kinds": ["H200"], "version": "cuda 13"}
    described = {**gpu, "topology": {clock: "1.98", cores: "132", "hosts": "8"}}
    found = {**gpu, "topology": {clock: "1.755", cores: "132", "hosts": "8", "gpu.#99": "1"}}
    assert rows("target", described, found) == [
        ("topology gpu.#99", "unset", "1"),
        (f"topology {clock}", "1.98", "1.755"),
    ]
    assert [item for item, _, _ in rows("target", described, {**gpu, "topology": A})] == ["topology"]


@pytest.mark.parametrize("other", [{}, {"platform": "cpu"}, {"shape": 8, "features": 3}, {"shape": []}, "text", 7, []])
def test_a_target_of_another_form_is_no_error(other: Any) -> None:
    """As a later rewarm, or an earlier one, might write it."""
    assert changes_in("target", TARGET, other, (ONE, ONE))
    assert changes_in("target", other, TARGET, (ONE, ONE))


# ---------------------------------------------------------------------------------------------------------------
# Inputs, salt, callbacks


def test_inputs_are_named_by_option_and_file() -> None:
    before = [["xla_deny", "", A], ["xla_ir", "a.ll", A], ["xla_gone", "", A]]
    after = [["xla_deny", "", B], ["xla_ir", "b.ll", A], ["xla_table", "", "missing"]]
    assert rows("inputs", before, after) == [
        ("xla_deny", f"content {A[:12]}", f"content {B[:12]}"),
        ("xla_gone", f"content {A[:12]}", "unset"),
        ("xla_ir a.ll", f"content {A[:12]}", "unset"),
        ("xla_ir b.ll", "unset", f"content {A[:12]}"),
        ("xla_table", "unset", "missing"),
    ]


@pytest.mark.parametrize("other", [{}, "text", 7, [[]], [7], [None], ["xla"]])
def test_inputs_of_another_form_are_no_error(other: Any) -> None:
    assert isinstance(changes_in("inputs", [["xla_deny", "", A]], other, (ONE, ONE)), list)


SALT = {"salt": "one", "custom_hook": "", "flags": []}


def test_salt_by_its_parts() -> None:
    assert rows("salt", SALT, {**SALT, "salt": "two"}) == [("salt", "one", "two")]
    assert rows("salt", SALT, {**SALT, "flags": ["--model=a"]}) == [("flags", "[]", '["--model=a"]')]
    assert rows("salt", SALT, {**SALT, "metadata": True}) == [("metadata", "unset", "true")]


def test_the_declared_variable_that_differs_is_named() -> None:
    before = {**SALT, "variables": {"DEPTH": A, "SIZE": A}}
    after = {**SALT, "variables": {"DEPTH": A, "SIZE": B}}
    assert rows("salt", before, after) == [("variable SIZE", f"content {A[:12]}", f"content {B[:12]}")]
    assert rows("salt", SALT, before)[0] == ("variable DEPTH", "unset", f"content {A[:12]}")


def test_the_declared_file_that_differs_is_told_from_the_others() -> None:
    before, after = {**SALT, "files": [A, A, A]}, {**SALT, "files": [A, A, B]}
    assert rows("salt", before, after) == [("files, number 3", f"content {A[:12]}", f"content {B[:12]}")]


def test_the_callback_s_part_that_differs_is_named() -> None:
    def value(share: str, digest: str) -> Any:
        parts = {"custom_partitioning.partition": "code 1234", "custom_partitioning.partition.share": share}
        return [{"digest": digest, "parts": parts, "context": ["highest"]}]

    found = rows("callbacks", value("0.5", A), value("0.25", B))
    assert any("custom_partitioning.partition.share" in " ".join(row) for row in found)
    assert any("0.5" in before and "0.25" in after for _, before, after in found)


def test_callbacks_call_by_call() -> None:
    def call(digest: str, part: str, *context: str) -> dict[str, Any]:
        return {"digest": digest, "parts": {"share": part}, "context": list(context)}

    before, after = [call(A, "1", "x", "y"), call(A, "2", "x", "y")], [call(A, "1", "x", "z"), call(B, "3", "x", "y")]
    assert rows("callbacks", before, after) == [
        ("call 1: options that shape a trace", "y", "z"),
        ("call 2: share", "2", "3"),
    ]
    assert rows("callbacks", [call(A, "1")], [call(B, "1")]) == [("what it is made of", A[:12], B[:12])]
    assert rows("callbacks", before, before[:1])


def test_callbacks_of_another_form_are_no_error() -> None:
    others: list[Any] = [[{}], [7], [{"digest": 3, "parts": 4, "context": 5}], {}, "text"]
    for other in others:
        assert isinstance(changes_in("callbacks", [{"digest": A, "parts": {}, "context": []}], other, (ONE, ONE)), list)


def test_a_salt_of_another_form_is_no_error() -> None:
    others: list[Any] = [7, "text", [], {"files": 3}, {"variables": [1]}, {"files": [None]}]
    for other in others:
        assert isinstance(changes_in("salt", SALT, other, (ONE, ONE)), list)


def test_callbacks_that_come_or_go_are_told() -> None:
    ((_, before, after),) = rows("callbacks", "none", [{"digest": A, "parts": {}, "context": []}])
    assert before == "none"
    assert after


# ---------------------------------------------------------------------------------------------------------------
# Words


def test_words_are_short_and_digests_whole() -> None:
    assert words(None) == "unset"
    assert words("") == ""
    assert words(A) == A
    assert words(True) == "true"
    assert words([1, {"a": None}]) == '[1, {"a": null}]'
    assert len(words("x" * 1000)) == 60
    assert words("x" * 1000).endswith("...")


def test_words_are_on_one_line() -> None:
    """A salt, or what a hook gives, may hold anything; a summary is one line."""
    assert len(words("one\ntwo\r\x1b[31m\u2028three").splitlines()) == 1


LONG = "some/very/long/folder" * 5


@pytest.mark.parametrize("name", ["options", "salt", "toolchain", "target", "whatever"])
def test_long_values_that_differ_at_their_end_do_not_look_equal(name: str) -> None:
    for before, after in ((LONG + "a", LONG + "b"), ([A, A, "a"], [A, A, "b"]), ({"x": A, "y": A}, {"x": A, "y": B})):
        found = rows(name, {"item": before}, {"item": after})
        assert found
        assert all(old != new for _, old, new in found), found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["options", "toolchain", "target", "inputs", "salt", "callbacks", "format", "whatever"])


@settings(deadline=None)
@given(NAMES, st.dictionaries(st.text(max_size=8), JSON), st.dictionaries(st.text(max_size=8), JSON))
def test_any_mappings_are_compared(name: str, before: Any, after: Any) -> None:
    found = changes_in(name, before, after, (ONE, ONE))
    assert all(isinstance(text, str) for change in found for text in (change.item, change.before, change.after))
    if before == after:
        assert found == []


@settings(deadline=None)
@given(NAMES, JSON, JSON)
def test_any_values_are_compared(name: str, before: Any, after: Any) -> None:
    assert isinstance(changes_in(name, before, after, (ONE, OTHER)), list)
